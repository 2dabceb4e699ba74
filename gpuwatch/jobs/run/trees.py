"""Signals to a process and all that descends from it, and never to anybody else."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable

from gpuwatch.jobs.identity.process_facts import children_of, read_all
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import pinned

_ROUNDS_MAX = 5
"""A process can start another while the tree is read; the next round finds it."""
_END_SECONDS = 5.0
_TRACKER_SECONDS = 1.0


def family(begins: Callable[[int, procfs.ProcessStat], bool]) -> dict[int, int]:
    """Return processes of which ``begins`` is true and their descendants as they are now, each with
    its start in ticks since boot."""
    seen = {one: found for one, found in read_all().items() if found.state not in "ZX"}
    children = children_of(seen)
    tree: dict[int, int] = {}
    waiting = [pid for pid, found in seen.items() if begins(pid, found)]
    while waiting:
        member = waiting.pop()
        if member not in tree:
            tree[member] = seen[member].start_ticks
            waiting += children.get(member, ())
    return tree


def tree_of(pid: int) -> dict[int, int]:
    return family(lambda one, _found: one == pid)


def signal_tree(pid: int, number: int, *, group: int | None = None) -> bool:
    """Send a signal to ``pid`` and its descendants, or to those of them in process group
    ``group``; whether anybody got it."""
    reached = False
    for member, start in tree_of(pid).items():
        with contextlib.suppress(OSError):
            if group is None or os.getpgid(member) == group:
                reached = _send(member, start, number) or reached
    return reached


def kill_tree(pid: int) -> None:
    """Kill ``pid`` and all its descendants, also those started while that is done."""
    killed: dict[int, int] = {}
    for _ in range(_ROUNDS_MAX):
        # Stopped first: what is killed one by one could start replacements.
        tree = tree_of(pid)
        new = {member: start for member, start in tree.items() if killed.get(member) != start}
        if not new:
            break
        for member, start in new.items():
            _send(member, start, signal.SIGSTOP)
        killed |= new
    for member, start in killed.items():
        _send(member, start, signal.SIGKILL)


def _send(pid: int, start_ticks: int, number: int) -> bool:
    """Send a signal unless the number is another process's by now."""
    try:
        with pinned(pid) as send:
            found = procfs.read_stat(pid)
            if found is None or found.state in "ZX" or found.start_ticks != start_ticks:
                return False
            send(number)
    except OSError:
        return False
    return True


def kill_all(begins: Callable[[int, procfs.ProcessStat], bool]) -> None:
    """Kill such processes and all below them, until none is left. Python's resource tracker is
    given a moment: it removes what the others have left in /dev/shm and ends by itself. One in an
    uninterruptible wait for a disk stays."""
    begun = time.monotonic()
    while (found := family(begins)) and time.monotonic() < begun + _TRACKER_SECONDS + _END_SECONDS:
        patient = time.monotonic() < begun + _TRACKER_SECONDS
        for pid in found:
            if not (patient and _is_tracker(pid)):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _is_tracker(pid: int) -> bool:
    return b"resource_tracker" in procfs.read_if_possible(f"/proc/{pid}/cmdline")


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal once its parent is gone, however that ends
    (prctl(2), PR_SET_PDEATHSIG)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, number, 0, 0, 0)
