"""Ending a process a person pointed at, and never another one.

Between the picture and the key press a process can end and its PID can be given to somebody
else. The process is therefore pinned first (pidfd_open(2)), its start time compared, and the
signal sent to what was pinned.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from gpuwatch.core.text import SentenceError
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.process_details import clean_name, read_uid, user_name

SAME_START_SECONDS = 0.05
"""Start times are in ticks of 10 ms, and may have been rounded on their way; no PID comes round
again this fast."""

_INIT = 1


@dataclass(frozen=True, slots=True)
class EndResult:
    """Outcome: if the signal was sent, and a sentence for a person."""

    ok: bool
    message: str


def end_process(pid: int, started_at_unix_seconds: float | None, force: bool = False) -> EndResult:
    """Ask a process to end (TERM), or with ``force`` end it at once (KILL).

    ``started_at_unix_seconds`` is the start time as a snapshot of this run gave it. The result
    is that the signal was sent: a process can take its time over TERM, or ignore it. Never
    raises.
    """
    kind = signal.SIGKILL if force else signal.SIGTERM
    try:
        started_at = _check_target(pid, started_at_unix_seconds)
        with pinned(pid) as send:
            name = _check_same(pid, started_at)
            send(kind)
    except SentenceError as refused:
        return EndResult(False, str(refused))
    except (ProcessLookupError, FileNotFoundError):
        return EndResult(False, f"Process {pid} has already ended.")
    except PermissionError:
        return EndResult(False, _not_permitted(pid))
    except OSError as error:
        return EndResult(False, f"Process {pid} could not be signalled: {error.strerror}.")
    return EndResult(True, f"Process {pid} ({name}) was {'killed' if force else 'asked to end'}.")


def _check_target(pid: int, started_at: float | None) -> float:
    if pid == os.getpid():
        raise SentenceError(f"Process {pid} is gpuwatch itself: leave it with its own quit key.")
    if pid == _INIT:
        raise SentenceError("Process 1 keeps the machine or container running and is not ended.")
    # Zero and negative numbers name whole groups of processes to kill(2).
    if pid < _INIT:
        raise SentenceError(f"{pid} is not a process.")
    if started_at is None:
        raise SentenceError(
            f"Process {pid} cannot be seen from here, so it is not certain which process that is."
        )
    return started_at


@contextmanager
def pinned(pid: int) -> Iterator[Callable[[int], None]]:
    """Sends signals to the process that has this PID now. Who looks at it inside knows whom they
    reach: had it ended before, its start time would be another. Raises ``ProcessLookupError``."""
    descriptor = None
    # The kernel (before 5.3) or a sandbox may have none.
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(pid)
        except (ProcessLookupError, OverflowError):
            raise ProcessLookupError from None
        except OSError:
            pass
    if descriptor is None:
        yield partial(os.kill, pid)
        return
    try:
        yield partial(signal.pidfd_send_signal, descriptor)
    finally:
        os.close(descriptor)


def _check_same(pid: int, started_at: float) -> str:
    """The name of the process."""
    stat = procfs.parse_process_stat(procfs.read_once(f"/proc/{pid}/stat"))
    if abs(procfs.start_unix_seconds(stat) - started_at) > SAME_START_SECONDS:
        raise SentenceError(
            f"Process {pid} is no longer the one that was shown: that one has ended and its "
            "number is in use again. Nothing was sent."
        )
    if stat.is_kernel_thread:
        raise SentenceError(f"Process {pid} is a part of the kernel and cannot be ended.")
    if stat.state in "ZX":
        raise SentenceError(
            f"Process {pid} has already ended; its parent, process {stat.parent_pid}, has not "
            "taken note yet."
        )
    return clean_name(stat.name)


def _not_permitted(pid: int) -> str:
    uid = read_uid(pid)
    owner = "another user" if uid is None else user_name(uid)
    helper = f"{owner} or root" if uid else "root"
    return (
        f"Process {pid} belongs to {owner}, and you may not end it: run "
        f"gpuwatch as {helper} to do so."
    )
