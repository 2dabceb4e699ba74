"""Descent of processes, without reading every process every time.

A parent is read once for each new PID: it changes only when the parent ends, and then
its children are read again. Which PIDs were given out since the last look shows in one number in
``/proc/loadavg``: where they are few each is tried, which takes a hundredth of a list of ``/proc``.
``/proc/PID/task/TID/children`` would need a read for every thread, and deep-learning processes
have hundreds.
"""

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from gpuwatch.core.source import Clock
from gpuwatch.sources.linux import procfs

LIST_SECONDS = 1.5
"""Where many began, a new child is seen after at most two, with an interval of one second."""
TRIED_MOST = 256
TRIED_SECONDS = 10.0
"""Then they are listed all the same, if any began: one whose birth the kernel had not finished
when its PID was tried is in no later range."""
RELIST_SECONDS = 60.0
"""All parents are read again this often: a PID used again between two lists goes unnoticed."""

T = TypeVar("T")


class ProcessList(Generic[T]):
    """What is known of each process of the machine: read when it is first listed, and again when
    its parent has ended. ``read`` gives ``None`` for those that are to be left out."""

    def __init__(
        self, proc: Path, read: Callable[[int], T | None], parent_of: Callable[[T], int]
    ) -> None:
        self._proc = proc
        self._read = read
        self._parent_of = parent_of
        self._names: set[str] = set()
        self.known: dict[int, T] = {}

    def refresh(self, *, anew: bool = False) -> tuple[list[int], set[int]]:
        """List the processes: those that were read, and those that have ended. ``anew``: all are
        read again. Raises ``OSError`` when they cannot be listed."""
        # Most are those of the last list: their names are compared and nothing is made of them.
        names = set(os.listdir(self._proc))  # noqa: PTH208 - names only, no Path each
        ended = {int(name) for name in self._names - names if name.isdigit()}
        if anew:
            self._names.clear()
            self.known.clear()
        gone = {pid for pid in ended if self.known.pop(pid, None) is not None}
        changed = [int(name) for name in names - self._names if name.isdigit()]
        self._names = names
        if gone:
            parent_of = self._parent_of
            changed += [pid for pid, one in self.known.items() if parent_of(one) in gone]
        return self.take(changed), ended

    def take(self, pids: list[int]) -> list[int]:
        """Read these, new or known: those that are to be known."""
        for pid in pids:
            self._names.add(str(pid))
            self.known.pop(pid, None)
            if (found := self._read(pid)) is not None:
                self.known[pid] = found
        return [pid for pid in pids if pid in self.known]

    def forget(self, pid: int) -> bool:
        """Whoever has this PID at the next list is somebody else; whether it was known."""
        self._names.discard(str(pid))
        return self.known.pop(pid, None) is not None


class ProcessTree:
    """The processes of the machine, kernel threads left out, and their parents."""

    def __init__(self, clock: Clock, proc: Path = procfs.PROC) -> None:
        self._clock = clock
        self._proc = proc
        self._load = procfs.KernelFile(proc / "loadavg")
        self._has_clocks = procfs.has_clocks(proc)
        self._last_pid = 0
        self._listed_at = -math.inf
        self._tried = False
        """PIDs were, since the last list."""
        self._read_all_at = 0.0
        self._list = ProcessList(proc, self._read_parent, int)
        self._parents = self._list.known
        self._found_under: dict[int, int] = {}
        self._roots: set[int] = set()

    def close(self) -> None:
        self._load.close()

    @property
    def pids(self) -> Iterable[int]:
        """Every process of the last list, kernel threads left out."""
        return self._parents.keys()

    def refresh(self, *, force: bool = False) -> bool:
        """Find the processes that began, listing all if it is time; whether any began or ended
        below the roots that were asked for last. Raises ``OSError`` when ``/proc`` cannot be
        listed."""
        now, last_pid = self._clock.monotonic(), self._read_last_pid()
        given_out = last_pid - self._last_pid
        few = self._has_clocks and 0 < given_out <= TRIED_MOST
        wait = TRIED_SECONDS if few or self._tried else math.inf
        if not few and (given_out or not last_pid):
            wait = LIST_SECONDS
        ended: set[int] = set()
        if force or now - self._listed_at >= wait:
            self._listed_at, self._last_pid, self._tried = now, last_pid, False
            anew = now - self._read_all_at >= RELIST_SECONDS
            if anew:
                self._read_all_at = now
            changed, ended = self._list.refresh(anew=anew)
        elif few:
            # Threads take numbers too, and have no such clock.
            pids = range(self._last_pid + 1, last_pid + 1)
            changed = self._list.take([pid for pid in pids if procfs.cpu_clock(pid) is not None])
            self._last_pid, self._tried = last_pid, True
        else:
            return False
        watched = self._roots | self._found_under.keys()
        return not watched.isdisjoint(ended) or any(
            pid in watched or self._parents[pid] in watched for pid in changed
        )

    def put(self, pid: int, parent: int) -> None:
        """A process, or another parent of it, found elsewhere."""
        self._parents[pid] = parent

    def drop(self, pid: int) -> bool:
        """The process has ended: whoever has its PID at the next list is somebody else. Whether it
        was in the tree."""
        self._found_under.pop(pid, None)
        return self._list.forget(pid)

    def descendants(self, roots: set[int]) -> list[int]:
        """All below ``roots`` in the order of their PIDs, roots left out.

        A process once found below a root stays while that root does, even when the kernel gave
        it a new parent because the one between has ended.
        """
        children: dict[int, list[int]] = {}
        for pid, parent in self._parents.items():
            children.setdefault(parent, []).append(pid)
        still = self._found_under.keys() & self._parents.keys() - roots
        found = {pid: self._found_under[pid] for pid in still if self._found_under[pid] in roots}
        waiting = [(root, root) for root in roots] + list(found.items())
        while waiting:
            pid, root = waiting.pop()
            for child in children.get(pid, ()):
                if child not in found and child not in roots:
                    found[child] = root
                    waiting.append((child, root))
        self._found_under, self._roots = found, roots
        return sorted(found)

    def _read_last_pid(self) -> int:
        try:
            return procfs.last_pid(self._load.read())
        except (OSError, ValueError, IndexError):
            return 0

    def _read_parent(self, pid: int) -> int | None:
        stat = procfs.read_stat(pid, self._proc)
        return None if stat is None or stat.is_kernel_thread else stat.parent_pid
