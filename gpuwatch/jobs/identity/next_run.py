"""Recognises the next run of a job that has ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpuwatch.jobs.identity.evidence import Look
from gpuwatch.jobs.identity.runs import run_identity
from gpuwatch.sources.linux import procfs

LOOK_SECONDS = 1.5
"""How often new processes are looked for while nothing else is to be watched."""
LEARN_SECONDS = 10.0
"""A process that was just started can still show its parent's command."""
SETTLE_SECONDS = 5.0
"""For how long a new process is looked at: it becomes what it is with its exec."""
EARLIEST_SECONDS = 2.0
"""The end is seen late, and the kernel gives start times to the second of its boot."""


class NextRun:
    """What a job was, learned while it runs, and who of the new processes is that again."""

    def __init__(self, proc: Path = procfs.PROC) -> None:
        self._proc = proc
        self._digest: str | None = None
        self._learn_at: float | None = None
        self._waiting: dict[int, float] = {}

    def learn(self, now: float, pid: int) -> None:
        """Look at the job's topmost process, if it is time."""
        if self._learn_at is not None and now < self._learn_at:
            return
        self._learn_at = now + LEARN_SECONDS
        identity = run_identity(pid, self._proc)
        if identity is not None:
            self._digest = identity.digest()

    def find(
        self,
        now: float,
        began: frozenset[int],
        ended_at_unix: float,
        climb: Callable[[int], tuple[Look, ...]],
    ) -> Look | None:
        """The topmost process of the next run; ``began`` are the PIDs that are new."""
        if self._digest is None:
            return None
        self._waiting.update(dict.fromkeys(began, now + SETTLE_SECONDS))
        for pid, until in list(self._waiting.items()):
            if now > until:
                del self._waiting[pid]
                continue
            identity = run_identity(pid, self._proc)
            if identity is None or identity.digest() != self._digest:
                continue
            chain = climb(pid)
            started = chain[-1].started_at if chain else None
            if started is not None and started >= ended_at_unix - EARLIEST_SECONDS:
                return chain[-1]
            del self._waiting[pid]
        return None
