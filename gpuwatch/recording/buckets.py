"""The overview of a recording: minimum, mean and maximum of half a minute each, and when findings
held. Written into recordings as lines of their own, and made anew for files without."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuwatch.core import json_values
from gpuwatch.core.history import without_late
from gpuwatch.core.json_values import CodecError, Json
from gpuwatch.core.model import GpuKey, ProcessKey, Snapshot

BUCKET_SECONDS = 30.0
GPU_READINGS = (
    "busy_percent",
    "memory_used_bytes",
    "power_watts",
    "temperature_celsius",
    "sm_clock_mhz",
    "sm_active_percent",
)
HOST_READINGS = (
    "cpu_percent",
    "memory_used_bytes",
    "cpu_iowait_percent",
    "disk_read_bytes_per_second",
    "disk_write_bytes_per_second",
    "network_receive_bytes_per_second",
    "network_transmit_bytes_per_second",
)
"""What has a chart. Recordings of before have fewer."""
_DIGITS = 2
_WHOLE_FROM = 1e5
"""From here on nothing behind the point is worth its room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Of one reading over a bucket's time; the busy share is that of the fine samples, where the
    driver has them."""

    minimum: float
    mean: float
    maximum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Half a minute (by the wall clock) of a machine. What was never read in it has no band."""

    begin_unix_seconds: float
    seconds: float
    gpus: Mapping[GpuKey, Mapping[str, Band]]
    """By the names of ``GpuReading``: ``GPU_READINGS``."""
    host: Mapping[str, Band]
    """By the names of ``Host``: ``HOST_READINGS``."""

    @property
    def end_unix_seconds(self) -> float:
        return self.begin_unix_seconds + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingSpan:
    """From when to when a finding held; ``end_unix_seconds`` is ``None`` while it does."""

    rule: str
    severity: str
    summary: str
    gpus: tuple[GpuKey, ...] = ()
    job: ProcessKey | None = None
    begin_unix_seconds: float = 0.0
    end_unix_seconds: float | None = None
    cost_gpu_seconds: float | None = None


@dataclass(slots=True)
class _Tally:
    count: int = 0
    total: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)

    def band(self) -> Band:
        return Band(
            minimum=_rounded(self.minimum),
            mean=_rounded(self.total / self.count),
            maximum=_rounded(self.maximum),
        )


def _rounded(value: float) -> float:
    return round(value) if _WHOLE_FROM <= abs(value) < math.inf else round(float(value), _DIGITS)


@dataclass(slots=True)
class BucketFolder:
    """Folds snapshots into buckets, which begin at whole multiples of their length."""

    seconds: float = BUCKET_SECONDS
    _begin: float | None = None
    _gpus: dict[GpuKey, dict[str, _Tally]] = field(default_factory=dict)
    _host: dict[str, _Tally] = field(default_factory=dict)

    def push(self, snapshot: Snapshot) -> Bucket | None:
        """Take a snapshot; the bucket before, if this is the first of another."""
        begin = math.floor(snapshot.taken_at_unix_seconds / self.seconds) * self.seconds
        done = self.end() if self._begin is not None and begin != self._begin else None
        self._begin = begin
        for gpu in without_late(snapshot.gpus):
            self._add_gpu(self._gpus.setdefault(gpu.uuid, {}), gpu.reading)
        _add(self._host, HOST_READINGS, snapshot.host)
        return done

    def so_far(self) -> Bucket | None:
        """The bucket that has begun, as it is; ``None`` if none has."""
        if self._begin is None:
            return None
        return Bucket(
            begin_unix_seconds=self._begin,
            seconds=self.seconds,
            gpus={uuid: _bands(tallies) for uuid, tallies in self._gpus.items()},
            host=_bands(self._host),
        )

    def end(self) -> Bucket | None:
        """The same; the next snapshot begins another."""
        bucket = self.so_far()
        self._begin, self._gpus, self._host = None, {}, {}
        return bucket

    def _add_gpu(self, tallies: dict[str, _Tally], reading: object) -> None:
        samples = getattr(reading, "busy_samples", None)
        names: Iterable[str] = GPU_READINGS
        if samples:
            tally = tallies.setdefault("busy_percent", _Tally())
            for _, percent in samples:
                tally.add(percent)
            names = GPU_READINGS[1:]
        _add(tallies, names, reading)


def _add(tallies: dict[str, _Tally], names: Iterable[str], item: object) -> None:
    for name in names:
        value = getattr(item, name)
        if value is not None:
            tallies.setdefault(name, _Tally()).add(value)


def _bands(tallies: dict[str, _Tally]) -> dict[str, Band]:
    return {name: tally.band() for name, tally in tallies.items()}


def bucket_object(bucket: Bucket) -> Json:
    """As it is written: a band is ``[minimum, mean, maximum]``."""
    return {
        "kind": "bucket",
        "begin_unix_seconds": bucket.begin_unix_seconds,
        "seconds": bucket.seconds,
        "gpus": {uuid: _written(bands) for uuid, bands in bucket.gpus.items()},
        "host": _written(bucket.host),
    }


def _written(bands: Mapping[str, Band]) -> Json:
    return {name: [band.minimum, band.mean, band.maximum] for name, band in bands.items()}


def read_bucket(value: Json) -> Bucket:
    """Raises ``CodecError``."""
    gpus = json_values.json_object(value.get("gpus"), "bucket.gpus")
    return Bucket(
        begin_unix_seconds=_time(value.get("begin_unix_seconds"), "bucket.begin_unix_seconds"),
        seconds=_time(value.get("seconds"), "bucket.seconds"),
        gpus={json_values.text(uuid, "bucket"): _read_bands(bands) for uuid, bands in gpus.items()},
        host=_read_bands(value.get("host")),
    )


def _time(value: object, where: str) -> float:
    found = json_values.number(value, where)
    if not 0.0 <= found < 1e11:
        raise CodecError(f"{where} is no time.")
    return found


def _read_bands(value: object) -> dict[str, Band]:
    bands = {}
    for name, three in json_values.json_object(value, "bucket").items():
        numbers = [json_values.number(one, "bucket") for one in json_values.json_list(three, name)]
        if len(numbers) != 3:
            raise CodecError("A band of a bucket is not of three numbers.")
        bands[json_values.text(name, "bucket")] = Band(
            minimum=numbers[0], mean=numbers[1], maximum=numbers[2]
        )
    return bands


class SpanFolder:
    """Turns the events of findings into spans."""

    def __init__(self) -> None:
        self._open: dict[tuple[object, ...], FindingSpan] = {}
        self._done: list[FindingSpan] = []

    @property
    def spans(self) -> tuple[FindingSpan, ...]:
        """Those that are over and those that hold, by their beginning."""
        found = [*self._done, *self._open.values()]
        return tuple(sorted(found, key=lambda span: span.begin_unix_seconds))

    def push(self, value: Json) -> None:
        """Take a ``finding`` line. Raises ``CodecError``."""
        event = value.get("event")
        at = _time(value.get("at_unix_seconds"), "finding.at_unix_seconds")
        span = _read_span(value, at)
        key = (span.rule, span.gpus, span.job)
        before = self._open.get(key)
        if before is not None:
            span = _joined(before, span)
        if event == "cleared":
            self._open.pop(key, None)
            self._done.append(_ended(span, at))
        else:
            self._open[key] = span

    def end(self, at: float) -> None:
        """The recording of what holds ends here."""
        for span in self._open.values():
            self._done.append(_ended(span, max(at, span.begin_unix_seconds)))
        self._open = {}


def _read_span(found: Json, at: float) -> FindingSpan:
    job, since = found.get("job"), found.get("since_unix_seconds")
    cost = found.get("cost")
    spent = cost.get("gpu_seconds") if isinstance(cost, dict) else None
    return FindingSpan(
        rule=json_values.text(found.get("rule"), "finding.rule"),
        severity=json_values.text(found.get("severity"), "finding.severity"),
        summary=json_values.text(found.get("summary"), "finding.summary"),
        gpus=tuple(
            [
                json_values.text(uuid, "finding.gpus")
                for uuid in json_values.json_list(found.get("gpus"), "finding.gpus")
            ]
        ),
        job=None if job is None else _read_job(json_values.json_object(job, "finding.job")),
        begin_unix_seconds=at if since is None else min(at, _time(since, "finding.since")),
        cost_gpu_seconds=None if spent is None else json_values.number(spent, "finding.cost"),
    )


def _read_job(value: Json) -> ProcessKey:
    started = value.get("started_at_unix_seconds")
    return (
        json_values.whole(value.get("pid"), "finding.job.pid"),
        None if started is None else json_values.number(started, "finding.job.started"),
    )


def _joined(before: FindingSpan, now: FindingSpan) -> FindingSpan:
    costs = [span.cost_gpu_seconds for span in (before, now) if span.cost_gpu_seconds is not None]
    return FindingSpan(
        rule=now.rule,
        severity=now.severity,
        summary=now.summary,
        gpus=now.gpus,
        job=now.job,
        begin_unix_seconds=min(before.begin_unix_seconds, now.begin_unix_seconds),
        cost_gpu_seconds=max(costs) if costs else None,
    )


def _ended(span: FindingSpan, at: float) -> FindingSpan:
    return FindingSpan(
        rule=span.rule,
        severity=span.severity,
        summary=span.summary,
        gpus=span.gpus,
        job=span.job,
        begin_unix_seconds=span.begin_unix_seconds,
        end_unix_seconds=at,
        cost_gpu_seconds=span.cost_gpu_seconds,
    )
