"""Stacks of a job's main threads, sampled in the background while the dashboard goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpuwatch.core.model import Job, JobMember

if TYPE_CHECKING:
    from gpuwatch.jobs.stacks.sampler import StackSampler, StackTarget
    from gpuwatch.jobs.stacks.summary import StackReport


class StackSampling:
    """One sampling at a time. ``done`` is given the reports on the event loop, ``watch`` a task."""

    def __init__(
        self,
        done: Callable[[Sequence[StackReport]], None],
        watch: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self.sampler: StackSampler | None = None
        self._done = done
        self._watch = watch
        self._task: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, job: Job, selected: JobMember | None) -> str:
        """Begin; a sentence about it."""
        from gpuwatch.jobs.stacks.sampler import StackSampler  # noqa: PLC0415

        targets = targets_of(job, selected)
        sampler = self.sampler = StackSampler(targets)
        self._task = asyncio.create_task(self._run(sampler))
        self._watch(self._task)
        threads = "the main thread" if len(targets) == 1 else f"{len(targets)} main threads"
        return f"sampling the stacks of {threads}: {sampler.seconds_in_all} s (S ends it early)"

    def progress(self) -> str | None:
        """How long it will take; ``None``: nothing is sampled."""
        if not self.active or self.sampler is None:
            return None
        seconds = self.sampler.seconds_left
        if seconds < 0.5:
            return "reading the stacks ..."
        return f"sampling stacks: {seconds:.0f} s left (S ends it early)"

    def stop(self) -> None:
        """Make do with what has been sampled."""
        if self.sampler is not None:
            self.sampler.stop()

    def close(self) -> None:
        """Let no sampler run on."""
        if self._task is not None:
            self._task.cancel()
        if self.sampler is not None:
            self.sampler.close()

    async def _run(self, sampler: StackSampler) -> None:
        self._done(await sampler.run())


def targets_of(job: Job, selected: JobMember | None) -> list[StackTarget]:
    """The ranks; where none is known, the process selected, or the topmost."""
    from gpuwatch.jobs.stacks.sampler import StackTarget  # noqa: PLC0415

    members = list(job.having("rank"))
    if not members:
        members = [selected] if selected is not None else list(job.members[:1])
    return [
        StackTarget(
            pid=member.pid,
            started_at_unix_seconds=member.started_at_unix_seconds,
            rank=member.rank,
            role=member.role,
            command=member.command,
        )
        for member in members
    ]
