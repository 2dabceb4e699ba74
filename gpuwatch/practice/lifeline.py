"""A process that ends when another one does, however that one ends."""

from __future__ import annotations

import os
import select
import signal
import threading
import time

_PATIENCE_SECONDS = 15.0
"""It may be importing PyTorch, which is not broken off."""


def end_with(pid: int, after_seconds: float = 0.0) -> None:
    """From now on, this process is ended as soon as process ``pid`` is gone (Linux 5.3, else
    within a second), or so long after."""
    threading.Thread(target=_wait, args=(pid, after_seconds), daemon=True, name="lifeline").start()


def _wait(pid: int, after_seconds: float) -> None:
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        pass
    except OSError:
        _wait_by_name(pid)
    else:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        poll.poll()
    time.sleep(after_seconds)
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        # It may have something to give back.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_PATIENCE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_by_name(pid: int) -> None:
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        except PermissionError:
            pass
        time.sleep(1.0)
