"""The watching of ``gpuwatch diagnose``: it feeds the engine and keeps what it said."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuwatch.diagnosis.engine.engine import Engine
from gpuwatch.diagnosis.finding import ordered
from gpuwatch.outputs.diagnosis.report import DiagnosisReport, Ended, GpuSeen, SourceSeen

if TYPE_CHECKING:
    from gpuwatch.core.model import Gpu, GpuKey, Snapshot
    from gpuwatch.core.sampler import Sampler
    from gpuwatch.diagnosis.finding import Diagnosis, Finding, FindingKey
    from gpuwatch.jobs.stacks.summary import StackReport
    from gpuwatch.recording.reader import OpenedLog

ENDED_KEPT = 64
EARLY_BY_SECONDS = 0.05
STACKS_SECONDS = 10
STACKS_AT_MOST = 8
"""Processes sampled: one py-spy each, about 2% of a core."""


@dataclass(slots=True)
class _GpuTally:
    """Sums of what was read of one GPU."""

    gpu: Gpu
    readings: int = 0
    busy: float = 0.0
    low: float = 100.0
    high: float = 0.0
    power_readings: int = 0
    power: float = 0.0

    def add(self, gpu: Gpu) -> None:
        self.gpu = gpu
        busy, power = gpu.reading.busy_percent, gpu.reading.power_watts
        if busy is not None:
            self.readings += 1
            self.busy += busy
            self.low, self.high = min(self.low, busy), max(self.high, busy)
        if power is not None:
            self.power_readings += 1
            self.power += power

    def seen(self) -> GpuSeen:
        identity, count = self.gpu.identity, self.readings
        return GpuSeen(
            uuid=identity.uuid,
            index=identity.index,
            name=identity.name,
            readings=count,
            busy_percent=self.busy / count if count else None,
            busy_low_percent=self.low if count else None,
            busy_high_percent=self.high if count else None,
            power_watts=self.power / self.power_readings if self.power_readings else None,
        )


class Collector:
    """Pushes snapshots through an engine; keeps findings that end before the watching does."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = Engine() if engine is None else engine
        self.snapshots = 0
        self.seconds = 0.0
        self.started_at_unix_seconds: float | None = None
        self.last: Snapshot | None = None
        self.stacks: tuple[StackReport, ...] = ()
        self._gpus: dict[GpuKey, _GpuTally] = {}
        self._noted: Diagnosis | None = None
        self._held: dict[FindingKey, tuple[Finding, float]] = {}
        self._ended: dict[FindingKey, Ended] = {}

    def push(self, snapshot: Snapshot) -> None:
        self.snapshots += 1
        if self.last is not None:
            # A second recording in the same file may have begun on another clock.
            self.seconds += max(0.0, snapshot.monotonic_seconds - self.last.monotonic_seconds)
        self.last = snapshot
        if self.started_at_unix_seconds is None:
            self.started_at_unix_seconds = snapshot.taken_at_unix_seconds
        for gpu in snapshot.gpus:
            self._gpus.setdefault(gpu.uuid, _GpuTally(gpu)).add(gpu)
        self.engine.push(snapshot)
        self._note(snapshot.taken_at_unix_seconds)

    def _note(self, now: float) -> None:
        diagnosis = self.engine.diagnosis
        if diagnosis is self._noted:
            return
        self._noted = diagnosis
        findings = diagnosis.findings
        if not findings and not self._held:
            return
        present: dict[FindingKey, tuple[Finding, float]] = {}
        for finding in findings:
            key = finding.key
            present[key] = (_clearest(self._held.get(key), finding), now)
        for key, (finding, last) in self._held.items():
            if key not in present and len(self._ended) < ENDED_KEPT:
                self._ended[key] = Ended(finding=finding, until_unix_seconds=last)
        self._held = present

    def report(self, source: SourceSeen) -> DiagnosisReport:
        diagnosis = self.engine.diagnosis
        ended = [each for key, each in self._ended.items() if key not in self._held]
        order = ordered([each.finding for each in ended])
        return DiagnosisReport(
            diagnosis=diagnosis,
            source=source,
            gpus=tuple([tally.seen() for tally in self._gpus.values()]),
            ended=tuple(sorted(ended, key=lambda each: order.index(each.finding))),
            stacks=self.stacks,
            problem=self._problem(),
        )

    def _problem(self) -> str | None:
        problems = () if self.last is None else self.last.problems
        for severity in ("error", "warning", "info"):
            for problem in problems:
                if problem.severity == severity and problem.source == "nvml":
                    return problem.message
        jobs = () if self.last is None else self.last.jobs
        if jobs and not self._gpus:
            return (
                f"The job of process {jobs[0].pid} uses no GPU that can be seen from here: it has "
                "not started to, has released it, or is not a GPU job."
            )
        return None


def _clearest(before: tuple[Finding, float] | None, now: Finding) -> Finding:
    """One that fades is remembered as it was, not by its last moments; its cost goes on."""
    if before is None or before[0].confidence <= now.confidence:
        return now
    return replace(before[0], cost_share=now.cost_share, cost_gpu_seconds=now.cost_gpu_seconds)


def live_source(collector: Collector, *, simulated: bool) -> SourceSeen:
    last = collector.last
    return SourceSeen(
        kind="simulated" if simulated else "live",
        snapshots=collector.snapshots,
        seconds=collector.seconds,
        interval_seconds=None if last is None else last.interval_seconds,
        started_at_unix_seconds=collector.started_at_unix_seconds,
        simulated=simulated,
    )


COUNTS = (
    "lines", "other_lines", "torn_lines", "overlong_lines", "unread_values", "incomplete_ticks",
    "missing_ticks", "clock_jumps",
)  # fmt: skip
"""How well a file could be read; by the same names in what read it and in the report."""


def file_source(log: OpenedLog, collector: Collector) -> SourceSeen:
    stats, last = log.stats, collector.last
    return SourceSeen(
        kind=log.kind,
        name=log.shown,
        snapshots=collector.snapshots,
        seconds=collector.seconds,
        interval_seconds=stats.interval_seconds,
        started_at_unix_seconds=collector.started_at_unix_seconds,
        simulated=last is not None and last.simulated,
        notes=tuple(stats.sentences()),
        **{name: getattr(stats, name) for name in COUNTS},
    )


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
