"""The watching of ``gpuwatch diagnose``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwatch.diagnosis.engine.engine import EVALUATE_SECONDS, Engine
from gpuwatch.outputs.diagnosis.report import DiagnosisReport, of_watch
from gpuwatch.outputs.report.accumulator import Accumulator

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.sampler import Sampler
    from gpuwatch.jobs.stacks.summary import StackReport

EARLY_BY_SECONDS = 0.05
STACKS_SECONDS = 10
STACKS_AT_MOST = 8
"""Processes sampled: one py-spy each, about 2% of a core."""


class Collector:
    """Pushes snapshots of a machine that is watched."""

    def __init__(self) -> None:
        self._watched = Accumulator(evaluate_seconds=EVALUATE_SECONDS, newest=True)
        self.last: Snapshot | None = None
        self.stacks: tuple[StackReport, ...] = ()

    @property
    def engine(self) -> Engine:
        assert self._watched.engine is not None
        return self._watched.engine

    def push(self, snapshot: Snapshot) -> None:
        self.last = snapshot
        self._watched.push(snapshot)

    def report(self) -> DiagnosisReport | None:
        """``None`` if there was nothing."""
        if self.last is None:
            return None
        report = self._watched.report()
        problem = self._problem(self.last)
        return of_watch(report, self.engine.diagnosis, stacks=self.stacks, problem=problem)

    def _problem(self, last: Snapshot) -> str | None:
        for severity in ("error", "warning", "info"):
            for problem in last.problems:
                if problem.severity == severity and problem.source == "nvml":
                    return problem.message
        if last.jobs and not last.gpus:
            return (
                f"The job of process {last.jobs[0].pid} uses no GPU that can be seen from here: it "
                "has not started to, has released it, or is not a GPU job."
            )
        return None


class LiveWatch:
    """Watches for ``seconds``; from the middle on, also stacks if asked for, so that what they say
    can still be weighed."""

    def __init__(
        self,
        sampler: Sampler,
        collector: Collector,
        seconds: float,
        *,
        only: Callable[[Snapshot], Snapshot] | None = None,
        stacks: bool = False,
        show: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._sampler = sampler
        self._collector = collector
        self._seconds = seconds
        self._only = only
        self._stacks = stacks
        self._show = show
        self._began: float | None = None

    async def run(self) -> None:
        """Watch to the end, or until the job that is watched has ended. Raises what escapes."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def deliver(snapshot: Snapshot) -> None:
            now = loop.time()
            # The first reading can wait long for a driver that wakes up.
            self._began = now if self._began is None else self._began
            shown = snapshot if self._only is None else self._only(snapshot)
            self._collector.push(shown)
            passed = now - self._began
            self._show(f"watching, {passed:.0f} of {self._seconds:.0f} s")
            over = self._only is not None and shown.jobs[0].ended_at_unix_seconds is not None
            # A look that comes a little early is the last one all the same.
            if passed >= self._seconds - EARLY_BY_SECONDS or over:
                ended.set()

        tasks = [asyncio.create_task(self._sampler.run(deliver)), asyncio.create_task(ended.wait())]
        sampling = asyncio.create_task(self._sample_stacks()) if self._stacks else None
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
        finally:
            for task in (*tasks, *([] if sampling is None else [sampling])):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                if sampling is not None:
                    await sampling

    async def _sample_stacks(self) -> None:
        from gpuwatch.jobs.stacks.sampler import StackSampler
        from gpuwatch.jobs.stacks.summary import stack_facts
        from gpuwatch.jobs.stacks.targets import job_targets

        await asyncio.sleep(self._seconds / 2)
        last = self._collector.last
        jobs = () if last is None else last.jobs
        targets = [target for job in jobs for target in job_targets(job, job.key)]
        targets = targets[:STACKS_AT_MOST]
        if not targets:
            return
        seconds = max(1, min(STACKS_SECONDS, int(self._seconds / 4)))
        reports = await StackSampler(targets, seconds=seconds).run()
        self._collector.stacks = reports
        for job in jobs:
            self._collector.engine.note_stacks(job.key, stack_facts(job, reports))
