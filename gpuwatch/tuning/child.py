"""The measuring process: imports the user's code, and answers what gpuwatch asks it over a socket.

Run as ``python -c`` with ``main``; it ends when gpuwatch does (its socket closes). PyTorch is
imported with the user's code (``measures``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from gpuwatch.core.text import clean
from gpuwatch.jobs.run.trees import end_with_parent
from gpuwatch.tuning import failures
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.records import Loaded, MemoryPoint, Order, Visit
from gpuwatch.tuning.target import NO_TORCH, load, make_step

if TYPE_CHECKING:
    from gpuwatch.tuning.loader_factory import LoaderFactory

_PR_SET_CHILD_SUBREAPER = 36


def main(descriptor: int) -> None:
    failures.write_stacks()
    # Ctrl-C is for gpuwatch, which decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The user's code may hang where nothing is heard of gpuwatch's end; and what it starts in
    # sessions of its own stays below this process, where gpuwatch finds and ends it (prctl(2)).
    end_with_parent(signal.SIGKILL)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code = 1
    try:
        Measuring(Connection(descriptor)).serve()
    except (OSError, EOFError):
        # The other end has gone.
        code = 0
    except BaseException:
        # One of gpuwatch's own: the user's have become answers.
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


class Measuring:
    """State of a measuring process: the loader's factory, the train step, the way back."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._factory: LoaderFactory | None = None
        self._step: tuple[object, str] | None = None

    def serve(self) -> None:
        """Answer requests until gpuwatch has gone (``OSError``, ``EOFError``): each is the name of
        a method below and its arguments, and gets what that returns, or a ``Failure``."""
        while True:
            name, arguments = self._connection.recv()
            try:
                answer = getattr(self, name)(**arguments)
            except (KeyboardInterrupt, SystemExit, Exception) as error:
                answer = failures.from_exception(error)
            self._connection.send(answer)

    def load(self, target: str | None, step: str | None, batch_size: int | None) -> Loaded:
        """Import PyTorch, then the user's code. Raises ``MeasureError``."""
        try:
            import torch  # noqa: PLC0415 - the measuring process alone has it
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "torch":
                raise MeasureError(NO_TORCH) from None
            raise MeasureError(f"PyTorch cannot be imported: {error}.") from None
        from gpuwatch.tuning.loader_factory import LoaderFactory  # noqa: PLC0415 - brings torch

        with contextlib.suppress(ImportError, AttributeError):
            from torch.utils.data._utils import signal_handling  # noqa: PLC0415

            # DataLoader does so only once its workers run, and some crash at once.
            signal_handling._set_SIGCHLD_handler()
        if step is not None:
            self._step = load(step), step
        version, gpu = clean(str(torch.__version__), 40), None
        if torch.cuda.is_available():
            gpu = clean(torch.cuda.get_device_name(), 120)
        if target is None:
            return Loaded(torch=version, gpu=gpu)
        made = self._factory = LoaderFactory(target, load(target), batch_size)
        return Loaded(
            torch=version,
            gpu=gpu,
            base=made.base,
            fixed=made.fixed,
            samples=made.samples,
            is_iterable=made.is_iterable,
        )

    def visit(self, order: Order) -> Visit:
        """Measure a setting."""
        from gpuwatch.tuning.measures import LoaderRun  # noqa: PLC0415 - brings torch

        assert self._factory is not None
        step = None if self._step is None else make_step(*self._step)
        run = LoaderRun(self._factory, order, step, self._say_alive)
        try:
            return run.measure()
        finally:
            run.end_workers()

    def memory(self, batch_size: int, on_cpu: bool, limit_bytes: int | None) -> MemoryPoint:
        """Measure the memory of steps at a batch size."""
        from gpuwatch.tuning.measures import measure_memory  # noqa: PLC0415 - brings torch

        assert self._step is not None
        return measure_memory(batch_size, self._step, on_cpu, limit_bytes)

    def _say_alive(self) -> None:
        self._connection.send(None)
