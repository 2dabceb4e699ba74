"""How exact a recording is: readings less the digits that are noise, which take most of its room.

Times to the millisecond, percents to 0.01 (of single cores to 0.1: the kernel counts in
hundredths of a second), shares to 0.0001, watts, joules and celsius to 0.1,
rates in bytes to four digits, other rates to 0.1, loads to 0.01. Whole numbers stay. What is not
finite becomes ``None``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Generic, TypeVar

from gpuwatch.core.codec.snapshots import (
    HOST_TABLE,
    JOB_TABLE,
    LOOP_TABLE,
    MEMBER_TABLE,
    OWN_COST_TABLE,
    PROCESS_TABLE,
    RANK_TABLE,
    READING_TABLE,
    Table,
)
from gpuwatch.core.model import BusySample, Gpu, ReadingAge, ReasonSeconds, Snapshot

T = TypeVar("T")
_Round = Callable[[Any], Any]

_DIGITS = (
    ("_unix_seconds", 3),
    ("_percent", 2),
    ("_share", 4),
    ("_watts", 1),
    ("_celsius", 1),
    ("_joules", 1),
    ("_per_second", 1),
    ("_milliseconds", 1),
    ("uptime_seconds", 0),
    ("_minute", 2),
    ("_minutes", 2),
    ("_cores", 3),
)
_TIME_DIGITS = 3
_RATE_MOST = 1e15


def rounded(snapshot: Snapshot, before: tuple[Snapshot, Snapshot] | None = None) -> Snapshot:
    """``snapshot`` as it is recorded.

    ``before`` is an earlier snapshot and what this gave for it: objects that the two snapshots
    share are not looked at again.
    """
    known = {} if before is None else _known(*before)
    return replace(
        snapshot,
        taken_at_unix_seconds=_to(_TIME_DIGITS)(snapshot.taken_at_unix_seconds),
        monotonic_seconds=_to(_TIME_DIGITS)(snapshot.monotonic_seconds),
        host=_HOST(snapshot.host),
        gpus=tuple([_gpu(gpu) for gpu in snapshot.gpus]),
        processes=tuple([known.get(id(each)) or _PROCESS(each) for each in snapshot.processes]),
        jobs=tuple([known.get(id(each)) or _JOB(each) for each in snapshot.jobs]),
        own_cost=_OWN_COST(snapshot.own_cost),
    )


def _known(snapshot: Snapshot, done: Snapshot) -> dict[int, Any]:
    """By the identity of objects that ``snapshot`` keeps alive."""
    pairs = [
        *zip(snapshot.processes, done.processes, strict=True),
        *zip(snapshot.jobs, done.jobs, strict=True),
    ]
    return {id(one): two for one, two in pairs}


def _gpu(gpu: Gpu) -> Gpu:
    reading = _READING(gpu.reading)
    return (
        gpu
        if reading is gpu.reading
        else Gpu(identity=gpu.identity, reading=reading, lost=gpu.lost)
    )


def _to(digits: int) -> Callable[[float], float]:
    def to_digits(value: float) -> float:
        return round(value, digits) if math.isfinite(value) else value

    return to_digits


def _finite(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def _plain(digits: int) -> _Round:
    def to_digits(value: float) -> float | None:
        return _finite(value, digits)

    return to_digits


def _four_digits(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    size = abs(value)
    if not 10_000.0 <= size < _RATE_MOST:
        # Beyond any rate digits mean nothing.
        return float(round(value))
    return float(round(value, 3 - math.floor(math.log10(size))))


def _samples(samples: tuple[BusySample, ...]) -> tuple[BusySample, ...]:
    return tuple(
        [BusySample(round(at, 3), round(percent, 2)) for at, percent in samples]
        if all(math.isfinite(at) and math.isfinite(percent) for at, percent in samples)
        else [
            BusySample(round(at, 3), round(percent, 2))
            for at, percent in samples
            if math.isfinite(at) and math.isfinite(percent)
        ]
    )


def _reasons(reasons: tuple[ReasonSeconds, ...]) -> tuple[ReasonSeconds, ...]:
    return tuple(
        [
            ReasonSeconds(reason, round(seconds, _TIME_DIGITS))
            for reason, seconds in reasons
            if math.isfinite(seconds)
        ]
    )


def _ages(ages: tuple[ReadingAge, ...]) -> tuple[ReadingAge, ...]:
    return tuple([ReadingAge(name, round(age, 1)) for name, age in ages if math.isfinite(age)])


def _percents(percents: tuple[float | None, ...]) -> tuple[float | None, ...]:
    return tuple([None if value is None else _finite(value, 1) for value in percents])


def _how(name: str, annotation: str) -> _Round | None:
    if annotation == "float":
        if name.endswith("_bytes_per_second"):
            return _four_digits
        digits = [count for ending, count in _DIGITS if name.endswith(ending)]
        return _plain(digits[0] if digits else _TIME_DIGITS)
    return _TUPLES.get(annotation)


_TUPLES: Mapping[str, _Round] = {
    "tuple[BusySample, ...]": _samples,
    "tuple[ReasonSeconds, ...]": _reasons,
    "tuple[ReadingAge, ...]": _ages,
    "tuple[float | None, ...]": _percents,
}


class _Rounding(Generic[T]):
    """Rounds one dataclass of the model; gives the same object where nothing changes."""

    def __init__(self, table: Table[T], **parts: _Rounding[Any]) -> None:
        hows = {name: _how(name, table.annotations[name]) for name in table.fields}
        hows.update({name: part.all for name, part in parts.items()})
        self._hows = [(place, how) for place, how in enumerate(hows.values()) if how is not None]
        self._values = attrgetter(*table.fields)
        self._table = table

    def __call__(self, item: T) -> T:
        values: Sequence[Any] = self._values(item)
        changed: list[Any] | None = None
        for place, how in self._hows:
            value = values[place]
            if value is None:
                continue
            new = how(value)
            if new is not value and new != value:
                changed = changed or list(values)
                changed[place] = new
        if changed is None:
            return item
        return self._table.made(**dict(zip(self._table.fields, changed, strict=True)))

    def all(self, items: tuple[T, ...]) -> tuple[T, ...]:
        done = [self(item) for item in items]
        unchanged = all(new is item for new, item in zip(done, items, strict=True))
        return items if unchanged else tuple(done)


_HOST = _Rounding(HOST_TABLE)
_READING = _Rounding(READING_TABLE)
_PROCESS = _Rounding(PROCESS_TABLE)
_OWN_COST = _Rounding(OWN_COST_TABLE)
_JOB = _Rounding(
    JOB_TABLE,
    ranks=_Rounding(RANK_TABLE),
    members=_Rounding(MEMBER_TABLE),
    loops=_Rounding(LOOP_TABLE),
)
