"""Contract between this machine's snapshot and a driver of GPUs, whichever vendor's."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gpuwatch.core.model import Gpu, Problem


class GpuProcess(NamedTuple):
    """One process on one GPU as the driver lists it; ``None`` where it does not say.

    ``pid`` is the driver's, which inside a container can be the host's number. ``busy_percent``
    is the share of the GPU's SM time, a measured 0 when the process is idle. ``kind`` is
    ``compute``, ``graphics`` or ``compute+graphics``.
    """

    pid: int
    gpu_uuid: str
    memory_bytes: int | None = None
    busy_percent: float | None = None
    kind: str = "compute"
    mig_instance: int | None = None


@dataclass(frozen=True, slots=True)
class DriverReading:
    """One look at all GPUs of a driver. ``call_seconds`` and ``call_count`` are the time and the
    calls that the driver took since the look before."""

    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    problems: tuple[Problem, ...] = ()
    call_seconds: float = 0.0
    call_count: int = 0


class GpuSource(Protocol):
    """A driver, called on one thread. Its failures are problems of the reading; ``DriverLink``
    handles exceptions and hangs."""

    def open(self) -> None: ...

    def read(self) -> DriverReading: ...

    def close(self) -> None: ...
