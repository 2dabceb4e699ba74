"""Stacks of a job's main threads, sampled in the background while the dashboard goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpuwatch.core.model import Job, JobMember

if TYPE_CHECKING:
    from gpuwatch.jobs.stacks.sampler import StackSampler, StackTarget
    from gpuwatch.jobs.stacks.summary import StackReport


class Stacking:
    """One sampling at a time. ``done`` is given the reports, ``ended`` the task in any case; both
    on the event loop."""

    def __init__(
        self,
        done: Callable[[Sequence[StackReport]], None],
        ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._done = done
        self._ended = ended
        self._sampler: StackSampler | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, job: Job, selected: JobMember | None) -> str:
        """Begin; a sentence about it."""
        from gpuwatch.jobs.stacks.sampler import StackSampler  # noqa: PLC0415

        targets = targets_of(job, selected)
        sampler = self._sampler = StackSampler(targets)
        self._task = asyncio.create_task(self._run(sampler))
        self._task.add_done_callback(self._ended)
        count = len(targets)
        whom = "the main thread" if count == 1 else f"{count} main threads"
        return f"sampling the stacks of {whom}: {sampler.seconds_in_all} s (S ends it early)"

    def progress(self) -> str | None:
        """How long it will take; ``None``: nothing is sampled."""
        if not self.active or self._sampler is None:
            return None
        left = self._sampler.seconds_left
        if left < 0.5:
            return "reading the stacks ..."
        return f"sampling stacks: {left:.0f} s left (S ends it early)"

    def stop(self) -> None:
        """Make do with what has been sampled."""
        if self._sampler is not None:
            self._sampler.stop()

    def close(self) -> None:
        """Let no sampler run on."""
        if self._task is not None:
            self._task.cancel()
        if self._sampler is not None:
            self._sampler.close()

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
