"""Where a process was when it crashed, ended itself or hung: written for ``failures`` to read.

For measuring processes and their workers. Standard library only.
"""

import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

STACKS_SIGNAL = signal.SIGUSR2
_STDERR = 2
_QUIET = (os.path.dirname(os.path.dirname(__file__)), f"{os.sep}multiprocessing{os.sep}")  # noqa: PTH120


def write_stacks() -> None:
    """From now on a crash, a call of ``os._exit`` and ``STACKS_SIGNAL`` print the stack."""
    # It would keep the handlers that torch gives its workers since, which name no line.
    faulthandler.disable()
    faulthandler.enable(_STDERR, all_threads=False)
    faulthandler.register(STACKS_SIGNAL, _STDERR, all_threads=False)
    if os._exit.__module__ != __name__:
        vars(os)["_exit"] = _announced(os._exit)


def _announced(leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    def _exit(status: int) -> NoReturn:
        caller = sys._getframe(1).f_code.co_filename
        # Processes that end in the way they should.
        if not any(one in caller for one in _QUIET):
            with contextlib.suppress(Exception):
                os.write(_STDERR, b"Fatal Python error: os._exit\n")
                faulthandler.dump_traceback(_STDERR, all_threads=False)
        leave(status)

    return _exit


class WorkerStart:
    """A loader's ``worker_init_fn`` that also has the worker write where it crashes."""

    def __init__(self, own: Callable[[int], object] | None) -> None:
        self._own = own

    def __call__(self, worker_id: int) -> None:
        write_stacks()
        if self._own is not None:
            self._own(worker_id)
