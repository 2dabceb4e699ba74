"""All processes of a measurement, and their end. Linux."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable

import psutil

from gpuwatch.jobs.identity.evidence import read_all
from gpuwatch.jobs.launch.tree_signals import family
from gpuwatch.sources.linux.procfs import ProcessStat

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
    return [pid for pid, one in read_all().items() if one.session == session and _runs(one)]


def children() -> frozenset[int]:
    """Of this process, and running."""
    own = os.getpid()
    seen = read_all().items()
    return frozenset(pid for pid, one in seen if one.parent_pid == own and _runs(one))


def _runs(process: ProcessStat) -> bool:
    return process.state not in "ZX"


def kill_session(session: int) -> None:
    _kill(lambda _pid, one: one.session == session)


def kill_children(spared: frozenset[int] = frozenset()) -> None:
    """All descendants of this process (adopted orphans, too) but the children in ``spared``."""
    own = os.getpid()
    _kill(lambda pid, one: one.parent_pid == own and pid not in spared)
    _reap()


def _kill(begins: Callable[[int, ProcessStat], bool]) -> None:
    """Such processes and all below them, until none is left. Python's resource tracker is given a
    moment: it removes what the others have left in /dev/shm and ends by itself. One in an
    uninterruptible wait for a disk stays."""
    begun = time.monotonic()
    while (found := family(begins).keys() - {os.getpid()}) and (
        time.monotonic() < begun + TRACKER_SECONDS + END_SECONDS
    ):
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
