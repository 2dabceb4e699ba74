"""The overview of a recording: minimum, mean and maximum of half a minute each. Written into
recordings beside the lines, and made anew for files without.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuwatch.core.bounds import Seconds, UnixSeconds
from gpuwatch.core.history import Column, without_late
from gpuwatch.core.model import GpuKey, Snapshot

BUCKET_SECONDS = 30.0
GPU_READINGS = (
    *("busy_percent", "memory_used_bytes", "power_watts", "temperature_celsius"),
    *("sm_clock_mhz", "sm_active_percent"),
)
HOST_READINGS = (
    *("cpu_percent", "memory_used_bytes", "cpu_iowait_percent"),
    *("disk_read_bytes_per_second", "disk_write_bytes_per_second"),
    *("network_receive_bytes_per_second", "network_transmit_bytes_per_second"),
)
"""Readings of the host that have a chart."""
_DIGITS = 2
_WHOLE_FROM = 1e5
"""Value from which decimals are not worth their room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Half a minute (by the wall clock) of a machine. What was never read in it has no column; the
    busy share is that of the fine samples, where the driver has them."""

    begin_unix_seconds: UnixSeconds
    seconds: Seconds
    gpus: Mapping[GpuKey, Mapping[str, Column]]
    """Columns of each GPU by the names of ``GPU_READINGS``."""
    host: Mapping[str, Column]
    """Columns of the host by the names of ``HOST_READINGS``."""

    @property
    def end_unix_seconds(self) -> float:
        return self.begin_unix_seconds + self.seconds


_Readings = dict[str, list[float]]


def _rounded(value: float) -> float:
    return round(value) if abs(value) >= _WHOLE_FROM else round(float(value), _DIGITS)


@dataclass(slots=True)
class BucketFolder:
    """Folds snapshots into buckets, which begin at whole multiples of their length."""

    seconds: float = BUCKET_SECONDS
    _begin: float | None = None
    _gpus: dict[GpuKey, _Readings] = field(default_factory=dict)
    _host: _Readings = field(default_factory=dict)

    def push(self, snapshot: Snapshot) -> Bucket | None:
        """Add a snapshot, and return the bucket before if this is the first of another."""
        begin = math.floor(snapshot.taken_at_unix_seconds / self.seconds) * self.seconds
        done = self.end() if self._begin is not None and begin != self._begin else None
        self._begin = begin
        for gpu in without_late(snapshot.gpus):
            readings, samples = self._gpus.setdefault(gpu.uuid, {}), gpu.reading.busy_samples
            _add(readings, "busy_percent", [percent for _, percent in samples or ()])
            for name in GPU_READINGS[1:] if samples else GPU_READINGS:
                _add(readings, name, [getattr(gpu.reading, name)])
        for name in HOST_READINGS:
            _add(self._host, name, [getattr(snapshot.host, name)])
        return done

    def so_far(self) -> Bucket | None:
        """Return the bucket that has begun, as it is; ``None`` if none has."""
        if self._begin is None:
            return None
        return Bucket(
            begin_unix_seconds=self._begin,
            seconds=self.seconds,
            gpus={uuid: _columns(readings) for uuid, readings in self._gpus.items()},
            host=_columns(self._host),
        )

    def end(self) -> Bucket | None:
        """End the bucket that has begun and return it; the next snapshot begins another."""
        bucket = self.so_far()
        self._begin, self._gpus, self._host = None, {}, {}
        return bucket


def _add(readings: _Readings, name: str, values: Iterable[float | None]) -> None:
    for value in values:
        if value is not None and math.isfinite(value):
            readings.setdefault(name, []).append(value)


def _columns(readings: _Readings) -> dict[str, Column]:
    columns = {}
    for name, values in readings.items():
        low, high = min(values), max(values)
        # The sum of what is beyond all measure is no number.
        mean = max(low, min(high, sum(values) / len(values)))
        columns[name] = Column(_rounded(low), _rounded(mean), _rounded(high))
    return columns
