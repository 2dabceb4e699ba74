"""Finding and ending all processes of a session. Standard library only; Linux."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
TRACKER_SECONDS = 1.0


def die_with_parent() -> None:
    """This process is killed when the thread that started it ends (prctl(2))."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def outlive_parent() -> None:
    """No longer (``die_with_parent``)."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process (prctl(2))."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def processes() -> Iterator[tuple[int, int, int]]:
    """PID, parent and session of every process that can be seen."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - hot enough to matter
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - as above
                raw = file.read()
        except OSError:
            continue
        fields = raw[raw.rindex(b")") + 2 :].split(None, 5)
        if fields[0] not in (b"Z", b"X"):
            yield int(name), int(fields[1]), int(fields[3])


def of_session(session: int) -> list[int]:
    return [pid for pid, _, its in processes() if its == session]


def kill_session(session: int) -> None:
    """Everything in it, and what it started that has made itself a session of its own.

    Python's resource tracker is given a moment: it removes what the others have left in /dev/shm
    and ends by itself.
    """
    deadline = time.monotonic() + TRACKER_SECONDS
    while found := _family(session):
        patient = time.monotonic() < deadline
        victims = [pid for pid in found if not (patient and _is_tracker(pid))]
        for pid in victims:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.005 if victims else 0.02)
        if time.monotonic() > deadline + 5:
            # In an uninterruptible wait for a disk: nobody can end it.
            return


def _family(session: int) -> list[int]:
    """The session's processes and all their descendants."""
    all_of_them = list(processes())
    found = {pid for pid, _, its in all_of_them if its == session}
    grown = True
    while grown:
        more = {pid for pid, parent, _ in all_of_them if parent in found} - found
        found |= more
        grown = bool(more)
    return sorted(found - {os.getpid()})


def kill_children(spared: frozenset[int]) -> None:
    """All children of this process (adopted orphans, too) but ``spared``, until they have gone."""
    deadline = time.monotonic() + 5
    while found := children() - spared:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        if time.monotonic() > deadline:
            # In an uninterruptible wait for a disk: nobody can end it.
            return
        time.sleep(0.005)
    _reap()


def children() -> frozenset[int]:
    me = os.getpid()
    return frozenset(pid for pid, parent, _ in processes() if parent == me)


def _is_tracker(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - as above
            return b"resource_tracker" in file.read()
    except OSError:
        return False


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
