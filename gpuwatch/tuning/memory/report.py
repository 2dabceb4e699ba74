"""What ``gpuwatch tune memory`` found out."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.tuning.memory.fit import LineFit
from gpuwatch.tuning.memory.point import AS_IS, MemoryPoint
from gpuwatch.tuning.memory.predict import Confirmed, Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was measured, and where. ``device``: ``cuda:1`` or ``cpu``."""

    step: str
    loader: str | None
    device: str
    device_name: str
    torch_version: str
    limit_bytes: int | None = None
    """Memory the device was taken to have, less than it has."""

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionResult:
    """One precision. ``points`` are those the line comes from; the guarded steps that confirm
    the prediction are in ``confirmed``. ``out_of_memory_at``: the smallest size that did not
    fit while measuring. ``stopped``: why there is no more, a sentence."""

    precision: str
    points: tuple[MemoryPoint, ...]
    fit: LineFit | None = None
    allocated_fit: LineFit | None = None
    prediction: Prediction | None = None
    confirmed: Confirmed | None = None
    out_of_memory_at: int | None = None
    stopped: str = ""

    @property
    def all_points(self) -> tuple[MemoryPoint, ...]:
        tried = () if self.confirmed is None else self.confirmed.attempts
        return (*self.points, *(one.point for one in tried if one.point is not None))

    @property
    def largest(self) -> int | None:
        """The largest batch that is known to fit, else the one predicted; ``None``: neither."""
        if self.confirmed is not None:
            return self.confirmed.batch_size or None
        return None if self.prediction is None else self.prediction.batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """Everything measured. ``ended``: why it ended before it was done (``interrupted``,
    ``budget``), empty: it was done."""

    subject: Subject
    margin_share: float
    results: tuple[PrecisionResult, ...]
    seconds: float
    ended: str = ""

    @property
    def plain(self) -> PrecisionResult | None:
        """The step as it is."""
        return next((one for one in self.results if one.precision == AS_IS), None)
