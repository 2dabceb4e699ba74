"""The device of a practice job: the CPU, a CUDA GPU, or a device that somebody else brings.

A device of one's own is a callable ``module:name`` that takes the rank and the knobs and gives an
object with the public names of ``TorchDevice``; ``kind`` is what it calls itself. Work is queued
with ``launch`` and ``spin``, and is done in that order.
"""

import importlib
import os
import sys
import time
from collections import deque
from typing import Any

import torch
from torch import distributed, nn

from gpuwatch.core.text import SentenceError
from gpuwatch.practice.job.data import FEATURES
from gpuwatch.practice.knobs import Knobs

AHEAD = 2
"""Steps that may be queued on the device before the job waits for it."""
CALIBRATIONS = 5
MIB = 1 << 20


class TorchDevice:
    """A model on PyTorch's own CPU or CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.kind = device.type
        self.cuda = device.type == "cuda"
        self.name = f"{device}: {torch.cuda.get_device_name(device)}" if self.cuda else "cpu"
        self._shape: tuple[str, int] | None = None
        self._timed: tuple[object, ...] | None = None
        self._pass_ms = 1.0
        self._loss = torch.zeros(())
        self._held: torch.Tensor | None = None
        self._held_percent = 0.0
        self._leaked: list[torch.Tensor] = []
        self._queued: deque[Any] = deque()
        self._cycles_per_ms: float | None = None

    def prepare(self, knobs: Knobs) -> None:
        """Be as the knobs say; also when they were turned."""
        if self._shape != (knobs.model, knobs.width):
            self._shape = (knobs.model, knobs.width)
            torch.manual_seed(0)
            self._model = (Recurrent if knobs.model == "gru" else perceptron)(knobs.width)
            self._model.to(self.device)
        self._hold(knobs.gpu_held_percent)

    def copy(self, batch: Any) -> Any:
        return [part.to(self.device, non_blocking=True) for part in batch]

    def launch(self, batch: Any, milliseconds: float) -> None:
        for _ in range(self._passes(batch, milliseconds)):
            self._train_pass(batch)

    def _train_pass(self, batch: Any) -> None:
        samples, labels = batch
        outputs = self._model(samples[:, :FEATURES])
        loss: Any = nn.functional.mse_loss(outputs.squeeze(-1), labels)
        weights: list[torch.Tensor] = list(self._model.parameters())
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            # The first optimizer of PyTorch's own imports its compiler, which takes a second.
            torch._foreach_add_(weights, gradients, alpha=-1e-3)
        self._loss = loss.detach()

    def evaluate(self, batch: Any, milliseconds: float) -> None:
        with torch.inference_mode():
            # A forward pass is about a third of a training pass.
            for _ in range(3 * self._passes(batch, milliseconds)):
                self._model(batch[0][:, :FEATURES])

    def _passes(self, batch: Any, milliseconds: float) -> int:
        """How many take about so long on this device when nobody else uses it."""
        if milliseconds <= 0:
            return 1
        key = (self._shape, len(batch[0]))
        if self._timed != key:
            self._timed = key
            self._pass_ms = self._time_a_pass(batch)
        return max(1, round(milliseconds / self._pass_ms))

    def _time_a_pass(self, batch: Any) -> float:
        self._train_pass(batch)
        self.synchronize()
        took = []
        for _ in range(CALIBRATIONS):
            began = time.perf_counter()
            self._train_pass(batch)
            self.synchronize()
            took.append(time.perf_counter() - began)
        # The shortest: what another process took is not the device's.
        return max(0.01, min(took) * 1000)

    def spin(self, milliseconds: float) -> None:
        if milliseconds <= 0:
            return
        if not self.cuda:
            time.sleep(milliseconds / 1000)
            return
        sleep: Any = torch.cuda._sleep
        if self._cycles_per_ms is None:
            cycles = 20_000_000
            event: Any = torch.cuda.Event
            begin, end = event(enable_timing=True), event(enable_timing=True)
            begin.record()
            sleep(cycles)
            end.record()
            end.synchronize()
            self._cycles_per_ms = cycles / max(0.1, begin.elapsed_time(end))
        sleep(round(milliseconds * self._cycles_per_ms))

    def meet(self) -> None:
        """Average the model with the other ranks (as local SGD does)."""
        parameters = list(self._model.parameters())
        flat = torch.cat([one.detach().flatten() for one in parameters])
        shared = flat.cpu() if distributed.get_backend() == "gloo" else flat
        distributed.all_reduce(shared)
        shared /= distributed.get_world_size()
        start = 0
        with torch.no_grad():
            for one in parameters:
                one.copy_(shared[start : start + one.numel()].view_as(one))
                start += one.numel()

    def loss(self) -> float:
        return float(self._loss.item())

    def step_done(self) -> None:
        """A step was launched: wait if the device is too far behind."""
        if self.cuda:
            make: Any = torch.cuda.Event
            self._queued.append(make())
            self._queued[-1].record()
            if len(self._queued) > AHEAD:
                self._queued.popleft().synchronize()

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def _hold(self, percent: float) -> None:
        if not self.cuda or percent == self._held_percent:
            return
        self._held_percent = percent
        self._held = None
        torch.cuda.empty_cache()
        if percent > 0:
            free, total = torch.cuda.mem_get_info(self.device)
            wanted = round(total * percent / 100) - (total - free)
            # 64 MiB are left to the kernels.
            wanted = min(wanted, free - (64 << 20))
            if wanted > 0:
                self._held = torch.ones(wanted, dtype=torch.uint8, device=self.device)

    def leak(self, bytes_: int) -> None:
        """Keep so much more; 0 lets go of all that was kept."""
        if not bytes_ and self._leaked:
            self._leaked.clear()
            torch.cuda.empty_cache()
        if bytes_ and self.cuda:
            free, total = torch.cuda.mem_get_info(self.device)
            if free - bytes_ > total * 0.03:
                self._leaked.append(torch.ones(bytes_, dtype=torch.uint8, device=self.device))

    def state(self) -> dict[str, Any]:
        return {"model": self._model.state_dict()}


def perceptron(width: int) -> nn.Module:
    """Large products, as of a transformer's layers."""
    return nn.Sequential(
        nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 1),
    )  # fmt: skip


class Recurrent(nn.Module):
    """One small product after the other: with a small batch they fill no card."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cells = nn.GRU(4, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.cells(samples.reshape(len(samples), -1, 4))
        found: torch.Tensor = self.head(outputs[:, -1])
        return found


def choose(text: str, rank: int, knobs: Knobs) -> TorchDevice:
    """The device that ``auto``, ``cpu``, ``cuda`` or ``module:name`` stands for.

    Raises ``SentenceError``.
    """
    if ":" in text and not text.startswith("cuda:"):
        return _from_factory(text, rank, knobs)
    if text == "auto":
        text = "cuda" if torch.cuda.is_available() else "cpu"
    if text == "cpu":
        return TorchDevice(torch.device("cpu"))
    if not text.startswith("cuda"):
        raise SentenceError(f"There is no device {text[:60]!r}: cpu, cuda, cuda:1 or module:name.")
    if not torch.cuda.is_available():
        why = "it was built without CUDA" if torch.version.cuda is None else "it finds no GPU"
        raise SentenceError(f"This PyTorch ({torch.__version__}) cannot use CUDA: {why}.")
    if text == "cuda":
        text = f"cuda:{rank % torch.cuda.device_count()}"
    try:
        device = torch.device(text)
        torch.cuda.set_device(device)
    except (RuntimeError, ValueError) as error:
        raise SentenceError(f"{text[:60]} cannot be used: {str(error).splitlines()[0]}") from None
    return TorchDevice(device)


def _from_factory(text: str, rank: int, knobs: Knobs) -> TorchDevice:
    module, _, name = text.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:  # noqa: PTH109
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SentenceError(f"The device {text[:120]} was not found: {error}.") from None
    device: TorchDevice = factory(rank, knobs)
    return device
