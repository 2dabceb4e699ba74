"""A slow look at all processes of the machine, for what the tree of a job does not reach.

Loader workers whose parent ended before anybody watched, ranks beside one another below a
daemon, and the next run of a job that has ended. Each process is read once, and again when its
parent has ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.jobs.identity import evidence
from gpuwatch.jobs.identity.evidence import Lineage
from gpuwatch.sources.linux import procfs

LOOK_SECONDS = 10.0
FULL_SECONDS = 300.0
"""A PID used again between two looks is noticed only then."""


class MachineLook:
    """The lineage of every process that is not a kernel thread."""

    def __init__(self, proc: Path = procfs.PROC) -> None:
        self._proc = proc
        self._known: dict[int, Lineage] = {}
        self._kernel: set[int] = set()
        self._looked_at: float | None = None
        self._full_at = 0.0

    def refresh(self, now: float, every: float = LOOK_SECONDS) -> frozenset[int] | None:
        """Look if the last look is ``every`` seconds old: the PIDs that are new, or have a new
        parent, since the look before; ``None`` if it was not time."""
        if self._looked_at is not None and now - self._looked_at < every:
            return None
        if self._looked_at is None or now - self._full_at >= FULL_SECONDS:
            self._full_at = now
            self._known.clear()
            self._kernel.clear()
        self._looked_at = now
        try:
            names = os.listdir(self._proc)  # noqa: PTH208 - names only, no Path each
        except OSError:
            return frozenset()
        return self._take({int(name) for name in names if name.isdigit()})

    def lineages(self) -> Iterator[tuple[int, Lineage]]:
        return iter(self._known.items())

    def parent_of(self, pid: int) -> int | None:
        lineage = self._known.get(pid)
        return None if lineage is None else lineage.parent

    def beside(self, parent: int) -> list[int]:
        """The children of ``parent``."""
        return [pid for pid, lineage in self._known.items() if lineage.parent == parent]

    def _take(self, now: set[int]) -> frozenset[int]:
        gone = self._known.keys() - now
        for pid in gone:
            del self._known[pid]
        self._kernel &= now
        moved = {pid for pid, lineage in self._known.items() if lineage.parent in gone}
        changed = (now - self._known.keys() - self._kernel) | moved
        for pid in changed:
            self._read(pid)
        return frozenset(changed - self._kernel)

    def _read(self, pid: int) -> None:
        lineage = evidence.read_lineage(pid, self._proc)
        if lineage is None:
            self._known.pop(pid, None)
        elif lineage.is_kernel_thread:
            self._kernel.add(pid)
        else:
            self._known[pid] = lineage
