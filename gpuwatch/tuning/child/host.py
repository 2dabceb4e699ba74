"""The process that measuring processes are forked from.

It imports the user's module once, so that a measurement costs a fork instead of the import of
torch and the making of the dataset, and begins from the same state each time. It ends when
gpuwatch does (its socket closes), and everything it started with it. What cannot be forked
safely (a CUDA context, threads) makes it say so; it is then started anew without the import,
which each measuring process does for itself.

Run as ``python -c`` with this module's ``main``: standard library only until a target is loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from gpuwatch.tuning.bench import crash, processes, usage
from gpuwatch.tuning.bench.channel import Channel, ClosedError
from gpuwatch.tuning.search.setting import Setting


def main(descriptor: int) -> None:
    channel = Channel.of_descriptor(descriptor)
    crash.tell_where()
    # Ctrl-C is for gpuwatch, which decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes.adopt_orphans()
    # A user's module can hang where nothing here is heard of gpuwatch's end; from then on it is
    # heard, and there is more to clear up than a kill from the kernel would.
    processes.die_with_parent()
    try:
        _Host(channel, channel.receive()).serve()
    except ClosedError:
        pass
    finally:
        processes.kill_children(frozenset())
        _flush()
        os._exit(0)


class _Host:
    def __init__(self, channel: Channel, start: dict[str, Any]) -> None:
        self._channel = channel
        self._start = start
        self._maker: Any = None
        self._step: Any = None
        self._threads = 0

    def serve(self) -> None:
        if self._start["load_first"]:
            if not self._load_and_tell():
                return
        else:
            self._channel.send({"kind": "ready"})
        processes.outlive_parent()
        while True:
            order = self._channel.receive()
            if order["kind"] == "order":
                self._fork(order)

    # --- loading -----------------------------------------------------------------------------

    def _load_and_tell(self) -> bool:
        from gpuwatch.tuning.child.target import NO_TORCH, TargetError  # noqa: PLC0415

        try:
            self._load()
            told = _described(self._maker)
        except TargetError as error:
            code = "no_torch" if str(error) == NO_TORCH else "target"
            self._channel.send({"kind": "unusable", "code": code, "sentence": str(error)})
            return False
        told["unsafe"] = self._unsafe()
        self._channel.send({"kind": "loaded", **told})
        return True

    def _load(self) -> None:
        """Raises ``TargetError``."""
        from gpuwatch.tuning.child.target import NO_TORCH, TargetError, load  # noqa: PLC0415

        try:
            with contextlib.suppress(ModuleNotFoundError):
                import numpy  # noqa: F401, PLC0415 - its threads are its own and survive a fork
            import torch  # noqa: PLC0415
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "torch":
                raise TargetError(NO_TORCH) from None
            raise TargetError(f"PyTorch cannot be imported: {error}.") from None
        from gpuwatch.tuning.child.loader_factory import Maker  # noqa: PLC0415

        # From now on it is the user's own code that takes its time.
        self._channel.send({"kind": "alive", "phase": "torch"})
        self._threads = usage.threads()
        # OpenMP's threads do not survive a fork, so none may start here.
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        with self._optimizer_reported():
            target = load(self._start["target"])
        self._maker = Maker(target, self._start["batch_size"])
        if self._start["step"] is not None:
            self._step = load(self._start["step"])
            # The first optimizer of a process imports it, for seconds: not in each measurement.
            with contextlib.suppress(Exception):
                importlib.import_module("torch._dynamo")
        if torch.get_num_threads() == 1:
            torch.set_num_threads(before)

    @contextlib.contextmanager
    def _optimizer_reported(self) -> Iterator[None]:
        """The first step of any optimizer meanwhile is reported: the target trains."""
        from torch.optim import optimizer  # noqa: PLC0415

        def report(*_of_step: object) -> None:
            hook.remove()
            self._channel.send({"kind": "trains"})

        hook = optimizer.register_optimizer_step_pre_hook(report)
        try:
            yield
        finally:
            hook.remove()

    def _unsafe(self) -> str | None:
        import torch  # noqa: PLC0415

        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return "it uses CUDA while it is imported"
        if threading.active_count() > 1 or usage.threads() > self._threads:
            return "it starts threads while it is imported"
        return None

    # --- measuring ---------------------------------------------------------------------------

    def _fork(self, order: dict[str, Any]) -> None:
        spared = processes.children()
        _flush()
        pid = os.fork()
        if pid == 0:
            self._child(order)
        self._channel.send({"kind": "started", "pid": pid})
        status = self._wait(pid)
        processes.kill_session(pid)
        processes.kill_children(spared)
        self._channel.send({"kind": "ended", "pid": pid, "status": status})

    def _wait(self, pid: int) -> int:
        """Until it has ended or is to. Raises ``ClosedError`` when gpuwatch has gone."""
        ended = _pidfd(pid)
        try:
            while True:
                watched: list[Any] = [self._channel] if ended is None else [self._channel, ended]
                ready, _, _ = select.select(watched, [], [], 0.05 if ended is None else None)
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    return status
                if self._channel in ready:
                    self._channel.receive()
                    os.kill(pid, signal.SIGKILL)
                    return os.waitpid(pid, 0)[1]
        except ClosedError:
            processes.kill_session(pid)
            raise
        finally:
            if ended is not None:
                os.close(ended)

    def _child(self, order: dict[str, Any]) -> None:
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

    def _measured(self, order: dict[str, Any]) -> dict[str, Any]:
        from gpuwatch.tuning.bench import failing  # noqa: PLC0415
        from gpuwatch.tuning.child.target import TargetError  # noqa: PLC0415
        from gpuwatch.tuning.search.setting import Failure  # noqa: PLC0415

        setting = Setting.from_dict(order["setting"])
        try:
            if self._maker is None:
                self._load()
                self._channel.send({"kind": "alive", "phase": "loaded"})
            return self._do(order, setting)
        except TargetError as error:
            failure = Failure(code="target", sentence=str(error))
        except (KeyboardInterrupt, SystemExit, Exception) as error:
            failure = self._failure(error, setting, failing)
        return _failed(failure)

    def _report_dead_workers(self) -> None:
        """PyTorch raises from its handler of SIGCHLD, wherever this process happens to be: where
        the error is swallowed, or while that of another dead worker is being handled. So a dead
        worker is reported from the handler itself, and that ends this process."""
        from gpuwatch.tuning.bench import failing  # noqa: PLC0415

        with contextlib.suppress(ImportError, AttributeError):
            from torch.utils.data._utils import signal_handling  # noqa: PLC0415

            signal_handling._set_SIGCHLD_handler()
        check: Any = signal.getsignal(signal.SIGCHLD)

        def report(number: int, frame: Any) -> None:
            try:
                check(number, frame)
            except RuntimeError as error:
                self._channel.send(_failed(failing.from_exception(error)))
                _flush()
                os._exit(0)

        if callable(check):
            signal.signal(signal.SIGCHLD, report)

    def _failure(self, error: BaseException, setting: Setting, failing: Any) -> Any:
        from gpuwatch.tuning.child.loader_factory import start_method  # noqa: PLC0415
        from gpuwatch.tuning.child.measure import NoBatchError, TooSlowError  # noqa: PLC0415
        from gpuwatch.tuning.child.repeats import RepeatsError  # noqa: PLC0415
        from gpuwatch.tuning.child.step import StepError  # noqa: PLC0415
        from gpuwatch.tuning.search.setting import Failure  # noqa: PLC0415

        if isinstance(error, NoBatchError):
            return Failure(code="empty", sentence=str(error))
        if isinstance(error, RepeatsError):
            return Failure(code="repeats", sentence=str(error))
        if isinstance(error, TooSlowError):
            return Failure(code="too_slow", sentence=str(error))
        if isinstance(error, StepError):
            from gpuwatch.tuning.child import blame  # noqa: PLC0415

            cause = error.__cause__
            line = None if cause is None else blame.own_line(cause)
            return Failure(code="step", sentence=str(error), line=line)
        pickled = None
        method = start_method(self._maker.loader) if setting.num_workers else "fork"
        if method != "fork" and failing.looks_unpicklable(error):
            pickled = failing.unpicklable(self._maker.loader, method)
        return failing.from_exception(error, pickled)

    def _do(self, order: dict[str, Any], setting: Setting) -> dict[str, Any]:
        from gpuwatch.tuning.child import measure  # noqa: PLC0415

        if order["what"] == "copies":
            return {"kind": "copies", "copies": _copies(self._maker, setting)}
        self._report_dead_workers()
        step = self._made_step()
        # Building a model takes its time, too.
        self._alive()
        visit = measure.measure(
            self._maker,
            measure.Order(
                setting=setting,
                round=order["round"],
                seconds=order["seconds"],
                limit_seconds=order["limit_seconds"],
                seed=order["seed"],
                whole_epochs=order["whole_epochs"],
                restart=order["restart"],
            ),
            self._alive,
            None if order["restart"] else step,
        )
        return {"kind": "visit", "visit": visit.as_dict()}

    def _made_step(self) -> Callable[[Any], object] | None:
        if self._step is None:
            return None
        from gpuwatch.tuning.child.step import make_step  # noqa: PLC0415

        return make_step(self._step.found, self._step.text)

    def _alive(self) -> None:
        self._channel.send({"kind": "alive", "phase": "batch"})


def _failed(failure: Any) -> dict[str, Any]:
    return {
        "kind": "failed",
        "code": failure.code,
        "sentence": failure.sentence,
        "line": failure.line,
    }


def _described(maker: Any) -> dict[str, Any]:
    """What gpuwatch has to know of a loader to choose settings and to write the line to paste."""
    import torch  # noqa: PLC0415

    from gpuwatch.tuning.child import loader_factory as makers  # noqa: PLC0415

    samples, batches = makers.lengths(maker.loader)
    name, arguments = maker.line()
    return {
        "base": maker.base.as_dict(),
        "fixed": maker.fixed,
        "takes": sorted(maker.takes),
        "defaults": {knob: _plain(value) for knob, value in maker.defaults.items()},
        "is_dataset": maker.is_dataset,
        "iterable": makers.is_iterable(maker.loader),
        "dataset": makers._kind(maker.loader.dataset),
        "samples": samples,
        "batches": batches,
        "start_method": makers.start_method(maker.loader),
        "accelerator": _accelerator(),
        "line_name": name,
        "line_arguments": arguments,
        "torch": torch.__version__,
    }


def _plain(value: object) -> bool | int | None:
    """A default as JSON has it; what is no value of a knob is none."""
    return value if isinstance(value, bool | int) else None


def _accelerator() -> str | None:
    """Without making a context: a process that has one cannot be forked."""
    import torch  # noqa: PLC0415

    try:
        if torch.cuda.is_available():
            return "cuda"
    except Exception:
        return None
    return None


def _copies(maker: Any, setting: Setting) -> dict[str, Any] | None:
    import dataclasses  # noqa: PLC0415

    from gpuwatch.tuning.child.cuda import measure_copies  # noqa: PLC0415

    loader = maker.make(setting.with_knob("num_workers", 0).with_knob("pin_memory", False))
    result = measure_copies(next(iter(loader)))
    return None if result is None else dataclasses.asdict(result)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
