"""All processes of a measurement, and their end. Linux."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
TRACKER_SECONDS = 1.0
END_SECONDS = 5.0


def die_with_parent(yes: bool = True) -> None:
    """This process is killed when the thread that started it ends (prctl(2)), or no longer."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL if yes else 0)


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process (prctl(2))."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def of_session(session: int) -> list[int]:
    return [pid for pid in psutil.pids() if _session_of(pid) == session and is_running(pid)]


def _session_of(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return None


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    except psutil.Error:
        return False


def below(pid: int) -> list[int]:
    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return [one.pid for one in found if is_running(one.pid)]


def kill_session(session: int) -> None:

    def family() -> set[int]:
        own = of_session(session)
        return {*own, *(pid for one in own for pid in below(one))} - {os.getpid()}

    _kill(family)


def kill_children(spared: frozenset[int] = frozenset()) -> None:
    """All descendants of this process (adopted orphans, too) but the children in ``spared``."""

    def family() -> set[int]:
        mine = children() - spared
        return {*mine, *(pid for one in mine for pid in below(one))}

    _kill(family)
    _reap()


def children() -> frozenset[int]:
    """Of this process, and running."""
    found = psutil.Process().children()
    return frozenset(one.pid for one in found if is_running(one.pid))


def _kill(family: Callable[[], set[int]]) -> None:
    """Until none is left. Python's resource tracker is given a moment: it removes what the others
    have left in /dev/shm and ends by itself. One in an uninterruptible wait for a disk stays."""
    begun = time.monotonic()
    while (found := family()) and time.monotonic() < begun + TRACKER_SECONDS + END_SECONDS:
        patient = time.monotonic() < begun + TRACKER_SECONDS
        victims = [pid for pid in found if not (patient and _is_tracker(pid))]
        for pid in victims:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.005 if victims else 0.02)


def _is_tracker(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return "resource_tracker" in " ".join(psutil.Process(pid).cmdline())
    return False


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
