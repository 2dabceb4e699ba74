"""Descent of processes, without reading every process every time.

A parent is read once for each new PID: it changes only when the parent ends, and then
its children are read again. Whether any process began at all is one number in
``/proc/loadavg``. ``/proc/PID/task/TID/children`` would need a read for every thread, and
deep-learning processes have hundreds.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from gpuwatch.core.source import Clock
from gpuwatch.sources.linux import procfs

LIST_SECONDS = 1.5
"""With an interval of one second, a new child is seen after at most two."""
RELIST_SECONDS = 60.0
"""All parents are read again this often: a PID used again between two lists goes unnoticed."""


class ProcessTree:
    """The processes of the machine, kernel threads left out, and their parents."""

    def __init__(self, clock: Clock, proc: Path = procfs.PROC) -> None:
        self._clock = clock
        self._proc = proc
        self._load = procfs.KernelFile(proc / "loadavg")
        self._last_pid: int | None = None
        self._listed_at: float | None = None
        self._read_all_at = 0.0
        self._parents: dict[int, int] = {}
        self._kernel: set[int] = set()
        self._found_under: dict[int, int] = {}

    def close(self) -> None:
        self._load.close()

    @property
    def pids(self) -> Iterable[int]:
        """Every process of the last list, kernel threads left out."""
        return self._parents.keys()

    def refresh(self, *, force: bool = False) -> bool:
        """List the processes if it is time and something began; whether they were listed.

        Raises ``OSError`` when ``/proc`` cannot be listed.
        """
        now = self._clock.monotonic()
        if not force and self._listed_at is not None and now - self._listed_at < LIST_SECONDS:
            return False
        last_pid = self._read_last_pid()
        if not force and self._listed_at is not None and last_pid == self._last_pid != 0:
            return False
        self._last_pid, self._listed_at = last_pid, now
        if now - self._read_all_at >= RELIST_SECONDS:
            self._read_all_at = now
            self._parents.clear()
            self._kernel.clear()
        self._list()
        return True

    def set_parent(self, pid: int, parent: int) -> None:
        """A parent read elsewhere."""
        if pid in self._parents:
            self._parents[pid] = parent

    def put(self, pid: int, parent: int) -> None:
        """A process found elsewhere."""
        self._parents[pid] = parent

    def drop(self, pid: int) -> bool:
        """The process has ended: whoever has its PID at the next list is somebody else.

        Whether it was in the tree.
        """
        self._found_under.pop(pid, None)
        return self._parents.pop(pid, None) is not None

    def descendants(self, roots: set[int]) -> list[int]:
        """All below ``roots`` in the order of their PIDs, roots left out.

        A process once found below a root stays while that root does, even when the kernel gave
        it a new parent because the one between has ended.
        """
        children: dict[int, list[int]] = {}
        for pid, parent in self._parents.items():
            children.setdefault(parent, []).append(pid)
        found = {
            pid: root
            for pid, root in self._found_under.items()
            if root in roots and pid in self._parents and pid not in roots
        }
        waiting = [(root, root) for root in roots] + list(found.items())
        while waiting:
            pid, root = waiting.pop()
            for child in children.get(pid, ()):
                if child not in found and child not in roots:
                    found[child] = root
                    waiting.append((child, root))
        self._found_under = found
        return sorted(found)

    def _read_last_pid(self) -> int:
        try:
            return procfs.last_pid(self._load.read())
        except (OSError, ValueError, IndexError):
            return 0

    def _list(self) -> None:
        names = os.listdir(self._proc)  # noqa: PTH208 - names only, no Path each
        now = {int(name) for name in names if name.isdigit()}
        gone = self._parents.keys() - now
        for pid in gone:
            del self._parents[pid]
        self._kernel &= now
        orphans = {pid for pid, parent in self._parents.items() if parent in gone}
        for pid in (now - self._parents.keys() - self._kernel) | orphans:
            self._read(pid)

    def _read(self, pid: int) -> None:
        try:
            stat = procfs.parse_process_stat(procfs.read_once(f"{self._proc}/{pid}/stat", 2048))
        except (OSError, ValueError):
            self._parents.pop(pid, None)
            return
        if stat.is_kernel_thread:
            self._kernel.add(pid)
        else:
            self._parents[pid] = stat.parent_pid
