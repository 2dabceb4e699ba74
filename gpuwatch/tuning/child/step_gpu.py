"""NVML's utilisation of the GPU that a measuring process is on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.core.model import Gpu
from gpuwatch.core.source import ReadOptions, SystemClock
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.nvml.source import NvmlSource


def uuid_of(device: str | None) -> str | None:
    """NVML's name of a CUDA device; ``None`` for any other device, or where torch does not say."""
    if device is None or not device.startswith("cuda"):
        return None
    import torch  # noqa: PLC0415 - only a measuring process pays for it

    uuid = getattr(torch.cuda.get_device_properties(torch.device(device)), "uuid", None)
    # torch leaves out NVML's prefix.
    return None if uuid is None else f"GPU-{str(uuid).removeprefix('GPU-')}"


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """What NVML says of a process's memory on a GPU, and of the GPU's in use."""

    process_bytes: int | None = None
    device_used_bytes: int | None = None

    @classmethod
    def read(cls, uuid: str | None, pid: int) -> GpuMemory:
        """One look at the GPU ``uuid``, else at the one the process is on."""
        source = NvmlSource(SystemClock(), ReadOptions())
        source.open()
        try:
            reading = source.read()
        finally:
            source.close()
        where = uuid or gpu_of(pid, reading.processes)
        own = [p.memory_bytes for p in reading.processes if p.pid == pid and p.gpu_uuid == where]
        used = [g.reading.memory_used_bytes for g in reading.gpus if g.uuid == where]
        return cls(own[0] if own else None, used[0] if used else None)


class GpuBusy:
    """Collects the utilisation of one GPU: that of ``uuid``, else the one this process is on.

    Without a GPU or a driver nothing is collected. ``start``, then ``note`` every second or so.
    """

    def __init__(self, uuid: str | None) -> None:
        self._uuid = uuid
        self._source = NvmlSource(SystemClock(), ReadOptions(interval_seconds=0.5))
        self._source.open()
        self._percents: list[float] = []

    def start(self) -> None:
        """Forget what was before."""
        reading = self._source.read()
        self._uuid = self._uuid or gpu_of(os.getpid(), reading.processes)
        self._percents.clear()

    def note(self) -> None:
        for gpu in self._source.read().gpus:
            if gpu.uuid == self._uuid:
                self._percents += busy_percents(gpu)

    def percent(self) -> float | None:
        """The mean since ``start``; ``None``: nothing was read."""
        return sum(self._percents) / len(self._percents) if self._percents else None

    def close(self) -> None:
        self._source.close()


def busy_percents(gpu: Gpu) -> list[float]:
    """The driver's fine samples since the reading before, or its one figure."""
    reading = gpu.reading
    if reading.busy_samples:
        return [sample.percent for sample in reading.busy_samples]
    return [] if reading.busy_percent is None else [reading.busy_percent]


def gpu_of(pid: int, processes: Sequence[GpuProcess]) -> str | None:
    """The only GPU that a process is on; ``None``: none, or several."""
    uuids = {process.gpu_uuid for process in processes if process.pid == pid}
    return uuids.pop() if len(uuids) == 1 else None
