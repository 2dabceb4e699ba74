"""NVML's readings of the GPU that a measuring process is on."""

import os
from contextlib import suppress

import torch

from gpuwatch.core.source import ReadOptions, SystemClock
from gpuwatch.sources.nvml.source import NvmlSource


class OwnGpu:
    """The GPU that CUDA calls ``cuda``, else the only one that NVML sees this process on.

    Without a GPU or a driver everything is unknown. ``start``, then ``note`` every second or so.
    """

    def __init__(self) -> None:
        self._uuid: str | None = None
        # is_available() does not answer this: once Lightning is imported it asks NVML, not CUDA.
        # A build without CUDA raises AssertionError, one without a driver RuntimeError.
        with suppress(AssertionError, RuntimeError, AttributeError):
            uuid = str(torch.cuda.get_device_properties("cuda").uuid)
            # torch leaves out NVML's prefix.
            self._uuid = f"GPU-{uuid.removeprefix('GPU-')}"
        self._source = NvmlSource(SystemClock(), ReadOptions(interval_seconds=0.5))
        self._source.open()
        self._percents: list[float] = []
        self.process_bytes: int | None = None
        self.used_bytes: int | None = None

    def start(self) -> None:
        self.note()
        self._percents.clear()

    def note(self) -> None:
        reading = self._source.read()
        on = {one.gpu_uuid: one.memory_bytes for one in reading.processes if one.pid == os.getpid()}
        if self._uuid is None and len(on) == 1:
            self._uuid = next(iter(on))
        self.process_bytes = on.get(self._uuid or "")
        for gpu in reading.gpus:
            if gpu.uuid == self._uuid:
                self.used_bytes = gpu.reading.memory_used_bytes
                # The driver's fine samples since the reading before, or its one figure.
                fine = [sample.percent for sample in gpu.reading.busy_samples or ()]
                one = gpu.reading.busy_percent
                self._percents += fine or ([] if one is None else [one])

    def percent(self) -> float | None:
        """The mean utilisation since ``start``; ``None``: nothing was read."""
        return sum(self._percents) / len(self._percents) if self._percents else None

    def close(self) -> None:
        self._source.close()
