"""What the driver says of one process on one GPU, before the host half is known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuProcess:
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
