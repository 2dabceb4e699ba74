"""The process that measuring processes are forked from.

It imports the user's module once, so that a measurement costs a fork instead of the import of
torch and the making of the dataset, and begins from the same state each time. It ends when
gpuwatch does (its socket closes), and everything it started with it. What cannot be forked
safely (a CUDA context, threads) makes it say so; it is started anew without the import, which
each measuring process does for itself.

Run as ``python -c`` with this module's ``main``: torch is imported with a target.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

import psutil

from gpuwatch.tuning import failures, processes
from gpuwatch.tuning.child import crash
from gpuwatch.tuning.child.target import NO_TORCH, load, make_step
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.messages import Answer, Channel, ClosedError, Order, Start
from gpuwatch.tuning.settings import Failure

if TYPE_CHECKING:
    from gpuwatch.tuning.child.loader_factory import LoaderFactory


def main(descriptor: int) -> None:
    channel = Channel(socket.socket(fileno=descriptor))
    crash.write_stacks()
    # Ctrl-C is for gpuwatch, which decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes.adopt_orphans()
    # A user's module can hang where nothing here is heard of gpuwatch's end; from then on it is
    # heard, and there is more to clear up than a kill from the kernel would.
    processes.die_with_parent()
    try:
        Host(channel, channel.receive(Start)).serve()
    except ClosedError:
        pass
    except BaseException:
        # Of gpuwatch's own: the user's have become answers.
        traceback.print_exc()
    finally:
        processes.kill_children()
        _flush()
        os._exit(0)


class Host:
    def __init__(self, channel: Channel, start: Start) -> None:
        self._channel = channel
        self._start = start
        self._loaded = False
        self._factory: LoaderFactory | None = None
        self._step: Any = None
        self._threads = 0

    def serve(self) -> None:
        """Until gpuwatch has gone (``ClosedError``) or the target cannot be used."""
        answer = Answer(kind="loaded")
        if self._start.load_first:
            try:
                self._load()
                answer.unsafe = self._unsafe()
                if self._factory is not None:
                    answer.description = self._factory.describe()
            except MeasureError as error:
                self._channel.send(_failed(failures.from_exception(error)))
                return
        self._channel.send(answer)
        processes.die_with_parent(False)
        while True:
            order = self._channel.receive(Order)
            if order.what != "abort":
                self._fork(order)

    # --- loading -----------------------------------------------------------------------------

    def _load(self) -> None:
        """Raises ``MeasureError``."""
        try:
            with contextlib.suppress(ModuleNotFoundError):
                import numpy  # noqa: F401, PLC0415 - its threads are its own and survive a fork
            import torch  # noqa: PLC0415
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "torch":
                raise MeasureError(NO_TORCH) from None
            raise MeasureError(f"PyTorch cannot be imported: {error}.") from None
        from gpuwatch.tuning.child import loader_factory  # noqa: PLC0415 - brings torch

        # From now on it is the user's own code that takes its time.
        self._alive()
        self._threads = psutil.Process().num_threads()
        # OpenMP's threads do not survive a fork, so none may start here.
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        target, step = self._start.target, self._start.step
        if target is not None:
            found = load(target)
            self._factory = loader_factory.LoaderFactory(target, found, self._start.batch_size)
        if step is not None:
            self._step = load(step)
            # The first optimizer of a process imports it, for seconds: not in each measurement.
            with contextlib.suppress(Exception):
                importlib.import_module("torch._dynamo")
        if torch.get_num_threads() == 1:
            torch.set_num_threads(before)
        self._loaded = True

    def _unsafe(self) -> str | None:
        import torch  # noqa: PLC0415 - it is there

        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return "it uses CUDA while it is imported"
        if threading.active_count() > 1 or psutil.Process().num_threads() > self._threads:
            return "it starts threads while it is imported"
        return None

    # --- measuring ---------------------------------------------------------------------------

    def _fork(self, order: Order) -> None:
        spared = processes.children()
        _flush()
        pid = os.fork()
        if pid == 0:
            self._child(order)
        self._channel.send(Answer(kind="started", pid=pid))
        status = self._wait(pid)
        processes.kill_session(pid)
        processes.kill_children(spared)
        self._channel.send(Answer(kind="ended", pid=pid, status=status))

    def _wait(self, pid: int) -> int:
        """Until it has ended or is to. Raises ``ClosedError`` when gpuwatch has gone."""
        ended = os.pidfd_open(pid)
        try:
            while True:
                watched: list[Any] = [self._channel, ended]
                ready, _, _ = select.select(watched, [], [])
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    return status
                if self._channel in ready:
                    self._channel.receive(Order)
                    os.kill(pid, signal.SIGKILL)
                    return os.waitpid(pid, 0)[1]
        except ClosedError:
            processes.kill_session(pid)
            raise
        finally:
            os.close(ended)

    def _child(self, order: Order) -> None:
        try:
            os.setsid()
            processes.die_with_parent()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._channel.send(self._measured(order))
        except ClosedError:
            pass
        except BaseException as error:
            with contextlib.suppress(Exception):
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            _flush()
            os._exit(0)

    def _measured(self, order: Order) -> Answer:
        try:
            if order.device is not None:
                given = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",")
                os.environ["CUDA_VISIBLE_DEVICES"] = visible_device(given, order.device)
            if not self._loaded:
                self._load()
                self._alive()
            return self._do(order)
        except (KeyboardInterrupt, SystemExit, Exception) as error:
            method = "fork"
            if order.what == "visit" and order.setting.num_workers and self._factory is not None:
                from gpuwatch.tuning.child import loader_factory  # noqa: PLC0415 - brings torch

                method = loader_factory.start_method(self._factory.loader)
            return _failed(failures.from_exception(error, method))

    def _do(self, order: Order) -> Answer:
        from gpuwatch.tuning.child import measure, memory  # noqa: PLC0415 - bring torch

        if order.what == "gpus":
            return memory.list_gpus()
        if order.what == "memory":
            step = (self._step, self._start.step or "")
            point = memory.measure_memory(order, self._factory, step, self._alive)
            return Answer(kind="result", point=point)
        assert self._factory is not None
        self._report_dead_workers()
        text = self._start.step
        made = None if text is None else make_step(self._step, text)
        # Building a model takes its time, too.
        self._alive()
        visit = measure.measure(self._factory, order, self._alive, made)
        return Answer(kind="result", visit=visit)

    def _report_dead_workers(self) -> None:
        """PyTorch raises from its handler of SIGCHLD, wherever this process happens to be: where
        the error is swallowed, or while that of another dead worker is being handled. So a dead
        worker is reported from the handler itself, and that ends this process."""
        with contextlib.suppress(ImportError, AttributeError):
            from torch.utils.data._utils import signal_handling  # noqa: PLC0415

            signal_handling._set_SIGCHLD_handler()
        check: Any = signal.getsignal(signal.SIGCHLD)

        def report(number: int, frame: Any) -> None:
            try:
                check(number, frame)
            except RuntimeError as error:
                self._channel.send(_failed(failures.from_exception(error)))
                _flush()
                os._exit(0)

        if callable(check):
            signal.signal(signal.SIGCHLD, report)

    def _alive(self) -> None:
        self._channel.send(Answer(kind="alive"))


def visible_device(given: list[str], index: int) -> str:
    """``CUDA_VISIBLE_DEVICES`` for a process that is to see only torch's device ``index``, where
    these are given.

    >>> visible_device(["2", "GPU-5f"], 1)
    'GPU-5f'
    """
    return given[index] if index < len(given) and given[index] else str(index)


def _failed(failure: Failure) -> Answer:
    return Answer(kind="failed", failure=failure)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
