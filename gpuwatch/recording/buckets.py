"""The overview of a recording: minimum, mean and maximum of half a minute each, and when findings
held: one for each cause. Written into recordings beside the lines (``frames``), and made anew for
files without.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuwatch.core.bounds import Seconds, Text, UnixSeconds
from gpuwatch.core.model import GpuKey, ProcessKey, Snapshot
from gpuwatch.core.store import Column, without_late
from gpuwatch.diagnosis.causes import cause_of

if TYPE_CHECKING:
    from gpuwatch.diagnosis.engine.engine import Engine
    from gpuwatch.diagnosis.finding import Diagnosis, Finding


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingSpan:
    """Time for which a finding held; ``end_unix_seconds`` is ``None`` while it does."""

    rule: Text
    severity: Text
    summary: Text
    gpus: tuple[GpuKey, ...] = ()
    job: ProcessKey | None = None
    begin_unix_seconds: UnixSeconds = 0.0
    end_unix_seconds: UnixSeconds | None = None
    cost_gpu_seconds: float | None = None


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


SPANS_KEPT = 1000


class FindingSpans:
    """Spans of the findings of a diagnosis: its own, unless ``push`` is given one."""

    def __init__(self) -> None:
        self.raised = 0
        """Number of findings so far."""
        self._engine: Engine | None = None
        self.diagnosis: Diagnosis | None = None
        """The latest diagnosis."""
        self._open: dict[tuple[str, ...], FindingSpan] = {}
        self._ended: list[FindingSpan] = []

    @property
    def spans(self) -> tuple[FindingSpan, ...]:
        """Spans that are over (since ``take_spans``) and those that hold, by their beginning."""
        found = [*self._ended, *self._open.values()]
        return tuple(sorted(found, key=lambda span: span.begin_unix_seconds))

    def take_spans(self) -> tuple[FindingSpan, ...]:
        """Return ``spans``, and forget those that are over."""
        found = self.spans
        self._ended.clear()
        return found

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis | None = None) -> None:
        """Follow the findings of the next snapshot: of ``diagnosis``, if somebody made one
        already."""
        if diagnosis is None:
            if self._engine is None:
                # Loading the rules takes a while.
                from gpuwatch.diagnosis.engine.engine import Engine  # noqa: PLC0415

                self._engine = Engine()
            self._engine.push(snapshot)
            diagnosis = self._engine.diagnosis
        if diagnosis is self.diagnosis:
            return
        self.diagnosis = diagnosis
        at = snapshot.taken_at_unix_seconds
        before, self._open = self._open, {}
        for finding in diagnosis.causes:
            key = cause_of(finding)
            held = before.pop(key, None)
            self.raised += held is None
            self._open[key] = _span(finding, held, at)
        self._ended += [replace(span, end_unix_seconds=at) for span in before.values()]
        del self._ended[:-SPANS_KEPT]


def _span(finding: Finding, held: FindingSpan | None, at: float) -> FindingSpan:
    since = finding.since_unix_seconds
    costs = [finding.cost_gpu_seconds, None if held is None else held.cost_gpu_seconds]
    return FindingSpan(
        rule=finding.rule,
        severity=finding.severity,
        summary=finding.summary,
        gpus=finding.gpus,
        job=finding.job,
        begin_unix_seconds=(
            held.begin_unix_seconds if held else at if since is None else min(at, since)
        ),
        cost_gpu_seconds=max([cost for cost in costs if cost is not None], default=None),
    )
