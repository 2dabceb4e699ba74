"""Practice jobs: real PyTorch training with one fault each, and the cure (``gpuwatch demo-job``).

    python -m gpuwatch.practice loader_cpu_bound            # the job with the fault
    python -m gpuwatch.practice loader_cpu_bound --fixed    # the same job, cured

It runs until it is ended. Costs are CPU time (of transforms, of Python) and time on the device, in
which a small model trains on the batch again and again. PyTorch is imported by what runs it, so
that the causes can be listed without it.
"""

from __future__ import annotations

import argparse
import copy
import os
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from gpuwatch.core.text import SentenceError, clean
from gpuwatch.jobs.run.trees import end_with_parent

if TYPE_CHECKING:
    import torch

SAY_EVERY_SECONDS = 2.0
"""Between two lines about the job's pace."""
FEATURES = 256
"""Numbers at the beginning of a sample that the model sees."""


# What can be wrong


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a practice job trains; the defaults are those of a healthy one."""

    workers: int = 2
    transform_ms: float = 2.0
    """CPU time of the transforms of one sample."""
    batch_size: int = 8
    sample_kib: int = 4
    pin_memory: bool = True
    python_ms: float = 15.0
    """CPU time of the Python that launches a step."""
    step_ms: float = 120.0
    """Time on the device of a step; 0: one pass of the model."""
    small_kernels: bool = False
    """A recurrent network, whose kernels are small where the batch is."""
    width: int = 256
    """Width of the model's layers."""
    save_every_seconds: float = 0.0
    """Time between two checkpoints; 0: none are written."""
    save_mib: int = 500
    save_in_thread: bool = False
    cores: int | None = None
    """Cores that the job may use at most."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One fault, named for its rule (``gpuwatch explain NAME``)."""

    name: str
    says: str
    sick: Mapping[str, Any]
    """Settings that differ from those of a healthy job."""
    fixed: Mapping[str, Any]
    """Settings that the cure changes."""
    needs_gpu: bool = False
    """On the CPU nothing names it."""

    def settings(self, *, fixed: bool) -> Settings:
        """Return how it trains, with the fault or cured."""
        return replace(Settings(), **{**self.sick, **(self.fixed if fixed else {})})

    @property
    def cure(self) -> str:
        """Return the settings that ``--fixed`` changes: ``workers 1 -> 4``."""
        sick = asdict(self.settings(fixed=False))
        return ", ".join([f"{name} {sick[name]} -> {value}" for name, value in self.fixed.items()])


# fmt: off
_ALL = (
    Cause(name="loader_cpu_bound", says="one worker for transforms of 30 ms a sample",
          sick={"workers": 1, "transform_ms": 30.0}, fixed={"transform_ms": 6.0}),
    Cause(name="loader_in_main_process",
          says="num_workers=0: the training process loads its own batches",
          sick={"workers": 0, "transform_ms": 20.0}, fixed={"workers": 2}),
    Cause(name="too_many_workers", says="16 workers where the job may use two cores",
          sick={"workers": 16, "transform_ms": 40.0, "cores": 2},
          fixed={"workers": 2, "transform_ms": 6.0}),
    Cause(name="checkpoint_pauses", says="training stops while 500 MiB are written and synced",
          sick={"save_every_seconds": 14.0}, fixed={"save_in_thread": True}),
    Cause(name="batch_too_small", says="a batch of one sample: small kernels on a large card",
          sick={"small_kernels": True, "batch_size": 1, "width": 64, "workers": 1,
                "step_ms": 60.0, "python_ms": 1.0, "transform_ms": 0.1},
          fixed={"batch_size": 256, "width": 1024}, needs_gpu=True),
    Cause(name="memory_not_pinned", says="large batches are copied from unpinned memory",
          sick={"pin_memory": False, "sample_kib": 65536, "workers": 4, "step_ms": 60.0,
                "transform_ms": 0.0}, fixed={"pin_memory": True}, needs_gpu=True),
)
# fmt: on
CAUSES: Mapping[str, Cause] = {cause.name: cause for cause in _ALL}


def find(name: str) -> Cause:
    """Return the cause of this name, also written with dashes.

    Raises ``SentenceError`` where there is none, or no PyTorch to run it with.
    """
    cause = CAUSES.get(name.strip().lower().replace("-", "_"))
    if cause is None:
        raise SentenceError(
            f"There is no practice job {clean(name, 60)!r}: choose one of {', '.join(CAUSES)}."
        )
    if find_spec("torch") is None:
        raise SentenceError(
            "A practice job is a PyTorch job, and PyTorch is not installed here: "
            "pip install '.[torch]' in gpuwatch's folder"
        )
    return cause


def listing() -> Iterator[str]:
    """Yield a line for each cause: its name, what is wrong, and what it needs."""
    for cause in _ALL:
        yield f"  {cause.name:<23} {cause.says}{'; needs a GPU' * cause.needs_gpu}"


# The job


class Samples:
    """A data set without an end: numbers, and a label that can be learnt from them."""

    def __init__(self, settings: Settings) -> None:
        import torch

        self._transform_seconds = settings.transform_ms / 1000
        self._numbers = max(FEATURES, settings.sample_kib * 256)
        self._all = torch.randn(self._numbers + 4096)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * 61 % 4096
        sample = self._all[start : start + self._numbers].clone()
        until = time.thread_time() + self._transform_seconds
        while time.thread_time() < until:
            sample[:FEATURES].flip(0).sort()
        return sample, sample[:16].sum()


class Device:
    """A model on PyTorch's own CPU or CUDA device: what is launched is done in that order.

    Raises ``SentenceError`` where the device called so (``cpu``, ``cuda``, ``cuda:1``, or ``auto``:
    a GPU if there is one) cannot be used.
    """

    def __init__(self, name: str = "auto") -> None:
        import torch

        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self.device = torch.device("cuda:0" if name == "cuda" else name)
            self.loss = torch.zeros((), device=self.device)
            self.name = torch.cuda.get_device_name(self.device) if "cuda" in name else "cpu"
            if "cuda" in name:
                torch.cuda.set_device(self.device)
        except (RuntimeError, AssertionError, ValueError) as error:
            why = clean(str(error).partition("\n")[0], 200)
            raise SentenceError(f"The device {clean(name, 60)!r} cannot be used: {why}.") from None
        self.kind = self.device.type
        self._cuda: Any = torch.cuda if self.kind == "cuda" else None
        self._queued: deque[Any] = deque()
        self._pass_seconds: float | None = None

    def prepare(self, settings: Settings) -> None:
        """Make the model that ``settings`` ask for."""
        import torch
        from torch import nn

        torch.manual_seed(0)
        width, self._recurrent = settings.width, settings.small_kernels
        self._model: nn.Module = nn.Sequential(
            nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )  # fmt: skip
        if self._recurrent:
            # One small product after the other: with a small batch they fill no card.
            self._model = nn.GRU(4, width, batch_first=True)
        self._model.to(self.device)
        self._weights: list[torch.Tensor] = list(self._model.parameters())
        self._pass_seconds = None

    def copy(self, batch: Any) -> Any:
        return [part.to(self.device, non_blocking=True) for part in batch]

    def launch(self, batch: Any, milliseconds: float) -> None:
        """Train on the batch again and again, for so long when nobody else uses the device."""
        if self._cuda is None:
            until = time.thread_time() + milliseconds / 1000
            self._train_once(batch)
            while time.thread_time() < until:
                self._train_once(batch)
            return
        if self._pass_seconds is None:
            self._pass_seconds = self._time_a_pass(batch)
        for _ in range(max(1, round(milliseconds / 1000 / self._pass_seconds))):
            self._train_once(batch)

    def _time_a_pass(self, batch: Any) -> float:
        """Return the shortest of many: the clocks of an idle GPU take a while to rise."""
        times = []
        until = time.perf_counter() + 0.5
        while (began := time.perf_counter()) < until:
            self._train_once(batch)
            self.synchronize()
            times.append(time.perf_counter() - began)
        return min(times)

    def _train_once(self, batch: Any) -> None:
        import torch

        samples, labels = batch
        samples = samples[:, :FEATURES]
        if self._recurrent:
            outputs = self._model(samples.reshape(len(samples), -1, 4))[0][:, -1].mean(1)
        else:
            outputs = self._model(samples).squeeze(1)
        self.loss = (outputs - labels).square().mean()
        # The first optimizer of PyTorch's own imports its compiler, which takes seconds.
        gradients = torch.autograd.grad(self.loss, self._weights)
        with torch.no_grad():
            torch._foreach_add_(self._weights, gradients, alpha=-1e-3)

    def end_step(self) -> None:
        """Wait if the device is more than two steps behind."""
        if self._cuda is not None:
            self._queued.append(self._cuda.Event())
            self._queued[-1].record()
            if len(self._queued) > 2:
                self._queued.popleft().synchronize()

    def synchronize(self) -> None:
        if self._cuda is not None:
            self._cuda.synchronize(self.device)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {"model": self._model.state_dict()}


def save(state: dict[str, Any], mebibytes: int) -> None:
    """Write a checkpoint of at least so many mebibytes and wait until it is on the disk.

    Nobody has to remove it: the file has no name. Raises ``OSError``.
    """
    import torch

    padding = torch.frombuffer(bytearray(os.urandom(1 << 20)), dtype=torch.uint8).repeat(mebibytes)
    # Unlike /tmp, /var/tmp is on a disk, where writing takes its time.
    with tempfile.TemporaryFile(dir=os.environ.get("TMPDIR") or "/var/tmp") as file:
        torch.save({**state, "padding": padding}, file)
        file.flush()
        os.fsync(file.fileno())


class Job:
    """Training by ``settings`` on ``device``; what it does is printed.

    ``reports``: its loop is reported by ``gpuwatch.torch``; else it is seen from outside only.
    """

    def __init__(self, settings: Settings, device: Device, *, reports: bool = True) -> None:
        self.settings, self.device, self.samples = settings, device, Samples(settings)
        nothing = dict.fromkeys(("step", "checkpoint"), nullcontext)
        self._reported: Any = SimpleNamespace(watch=iter, **nothing)
        if reports:
            import gpuwatch.torch

            self._reported = gpuwatch.torch
        self._thread: threading.Thread | None = None

    def train(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Train until ``is_over``, which is asked after each step."""
        from torch.utils.data import DataLoader

        settings, device, samples = self.settings, self.device, cast("Any", self.samples)
        device.prepare(settings)
        loader = DataLoader[Any](
            samples,
            batch_size=settings.batch_size,
            num_workers=settings.workers,
            pin_memory=settings.pin_memory and device.kind != "cpu",
            sampler=cast("Any", count()),
            worker_init_fn=_ignore_signals,
        )
        said_at = saved_at = time.monotonic()
        said = 0
        for step, batch in enumerate(self._reported.watch(loader), 1):
            with self._reported.step():
                self.step(batch)
            now = time.monotonic()
            if 0 < settings.save_every_seconds <= now - saved_at:
                self._save()
                saved_at = time.monotonic()
            if is_over():
                return
            if step == 1:
                print("training", flush=True)
            if now - said_at >= SAY_EVERY_SECONDS:
                # Without the loss: to read it is to wait for the device.
                rate = (step - said) / (now - said_at)
                samples_rate = rate * settings.batch_size
                print(f"step {step}  {rate:.1f} steps/s  {samples_rate:.0f} samples/s", flush=True)
                said_at, said = now, step

    def step(self, batch: Any) -> None:
        there = self.device.copy(batch)
        until = time.thread_time() + self.settings.python_ms / 1000
        while time.thread_time() < until:
            pass
        self.device.launch(there, self.settings.step_ms)
        self.device.end_step()

    def _save(self) -> None:
        self.device.synchronize()
        if not self.settings.save_in_thread:
            with self._reported.checkpoint():
                save(self.device.state(), self.settings.save_mib)
            print(f"saved {self.settings.save_mib} MiB", flush=True)
        elif self._thread is None or not self._thread.is_alive():
            # The training goes on with the originals; one that is due too soon is left out.
            arguments = (copy.deepcopy(self.device.state()), self.settings.save_mib)
            self._thread = threading.Thread(target=save, args=arguments, daemon=True)
            self._thread.start()


def _ignore_signals(_worker: int) -> None:
    """Let a worker end with the job, which asks it to or is gone: a signal amid a batch would leave
    that batch in /dev/shm, half made, for as long as the machine is up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


# The command


def main(arguments: list[str] | None = None) -> int:
    """Run a practice job until it is ended; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m gpuwatch.practice",
        description="Train for real with something wrong, until it is ended.",
        epilog="\n".join(("causes:", *listing())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("cause", metavar="CAUSE", help="what is wrong, one of those below")
    add("--fixed", action="store_true", help="the same job, cured")
    add("--device", default="auto", help="cpu, cuda or cuda:1  [a GPU if there is one]")
    add("--no-report", action="store_true", help="do not report the loop to gpuwatch")
    add("--ends-with-parent", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.ends_with_parent:
        end_with_parent()
    try:
        cause = find(options.cause)
        cores = sorted(os.sched_getaffinity(0))
        settings = cause.settings(fixed=options.fixed)
        os.sched_setaffinity(0, cores[: settings.cores])
        print(f"{cause.name}: {cause.says}", flush=True)
        print(f"{'cured' if options.fixed else 'with --fixed'}: {cause.cure}", flush=True)
        import torch

        # From here on: an exception amid that import is lost, or ends the process in C++.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))
        torch.set_num_threads(1)
        device = Device(options.device)
        print(f"device: {device.name}", flush=True)
        Job(settings, device, reports=not options.no_report).train()
    except KeyboardInterrupt:
        return 130
    except (SentenceError, OSError) as error:
        print(f"The job cannot run: {clean(str(error), 400)}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
