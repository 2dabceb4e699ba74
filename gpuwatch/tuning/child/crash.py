"""Where a process was when it crashed or hung: written for ``failures`` to read.

For measuring processes and their workers. Standard library only.
"""

import faulthandler
import signal
from collections.abc import Callable

STACKS_SIGNAL = signal.SIGUSR2
_STDERR = 2


def write_stacks() -> None:
    """From now on a crash and ``STACKS_SIGNAL`` print the stack."""
    # It would keep the handlers that torch gives its workers since, which name no line.
    faulthandler.disable()
    faulthandler.enable(_STDERR, all_threads=False)
    faulthandler.register(STACKS_SIGNAL, _STDERR, all_threads=False)


class WorkerStart:
    """A loader's ``worker_init_fn`` that also has the worker write where it crashes."""

    def __init__(self, own: Callable[[int], object] | None) -> None:
        self._own = own

    def __call__(self, worker_id: int) -> None:
        write_stacks()
        if self._own is not None:
            self._own(worker_id)
