"""From what the driver wrote into a buffer to values of the model. Pure: no driver, no clock."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator

from gpuwatch.model import BusySample
from gpuwatch.sources import nvml_tables as tables
from gpuwatch.text import clean

ProcessSlot = tuple[int, int | None]
"""(pid, MIG GPU instance or ``None``)."""

PROCESS_FORMATS = {1: "@I4xQ", 2: "@I4xQII", 3: "@I4xQII"}
"""``nvmlProcessInfo_v1/v2/v3_t``: pid, bytes used[, GPU instance, compute instance]."""
UTILIZATION_FORMAT = "@I4xQIIII"
"""``nvmlProcessUtilizationSample_t``: pid, microseconds, SM, memory, encoder, decoder."""
SAMPLE_BYTES = 16

FUTURE_SECONDS = 60.0
"""A time stamp further ahead of the wall clock than this is not one (drivers have returned
uninitialised ones); less can be a clock that was just set."""


def text(raw: bytes | str) -> str:
    """A driver string, safe to show; bytes that are not UTF-8 become U+FFFD."""
    if isinstance(raw, bytes):
        raw = raw.decode("utf-8", "replace")
    return clean(raw.strip(), 256)


def percent(value: float) -> float | None:
    """0-100, or ``None`` for anything else (all ones included)."""
    return float(value) if 0 <= value <= 100 else None


def unsigned(value: int) -> int | None:
    """``None`` for the 32 and 64-bit "not available" sentinels."""
    return None if value in (tables.ALL_ONES_32, tables.ALL_ONES_64) else value


def signed(value: float) -> float:
    """A 32-bit number that the driver may have typed as unsigned though it is below zero."""
    return value - (1 << 32) if value >= 1 << 31 else value


def memory_bytes(value: int | None) -> int | None:
    """Bytes, or ``None`` where the driver does not say (no right to, WSL, Windows)."""
    return None if value is None or value >= tables.ALL_ONES_64 - 1 else value


def watts(milliwatts: float) -> float | None:
    """``None`` for sentinels and for what no card draws (above 100 kW)."""
    return milliwatts / 1000.0 if 0 <= milliwatts < 100_000_000 else None


def celsius(value: float) -> float | None:
    """``None`` for sentinels and for what is no temperature of a chip."""
    return float(value) if -60 <= value <= 250 else None


def cuda_version(number: int) -> str | None:
    """``12080`` -> ``"12.8"``."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else None


_REASON_CACHE: dict[int, tuple[str, ...]] = {}


def throttle_reasons(mask: int) -> tuple[str, ...] | None:
    """Names of the set bits; bits nobody knows are left out; ``None`` for all ones."""
    reasons = _REASON_CACHE.get(mask)
    if reasons is None:
        if unsigned(mask) is None:
            return None
        reasons = tuple(name for bit, name in tables.EVENT_REASONS if mask & bit)
        if len(_REASON_CACHE) < 256:
            _REASON_CACHE[mask] = reasons
    return reasons


def rate(
    before: tuple[float, float] | None, now_seconds: float, value: float, unit: float = 1.0
) -> float | None:
    """Growth of a counter a second, in ``unit``; ``None`` at first and after it went back."""
    if before is None:
        return None
    then_seconds, old = before
    elapsed = now_seconds - then_seconds
    if elapsed <= 0 or value < old:
        return None
    return (value - old) * unit / elapsed


def held_seconds(before: tuple[float, float] | None, now: float, value: float) -> float | None:
    """Seconds a nanosecond accumulator grew, at most the time that passed.

    Drivers advance it in steps of about 100 ms, so a little more than the elapsed time is
    rounding; a lot more is not a time.
    """
    if before is None:
        return None
    elapsed = now - before[0]
    held = (value - before[1]) / 1e9
    if held < 0 or held > elapsed + 0.3:
        return None
    return min(held, elapsed)


def is_time(microseconds: int, unix_seconds: float) -> bool:
    return 0 < microseconds < (unix_seconds + FUTURE_SECONDS) * 1e6


def busy_samples(
    raw: memoryview, value_type: int, last_microseconds: int, unix_seconds: float
) -> tuple[BusySample, ...]:
    """The new, believable ones of ``nvmlSample_t`` records, oldest first."""
    if not 0 <= value_type < len(tables.VALUE_FORMATS):
        return ()
    records = struct.iter_unpack("@Q" + tables.VALUE_FORMATS[value_type], raw)
    limit = (unix_seconds + FUTURE_SECONDS) * 1e6
    found = [
        BusySample(stamp / 1e6, float(value))
        for stamp, value in records
        if last_microseconds < stamp < limit and 0 <= value <= 100
    ]
    found.sort()
    return tuple(found)


def newest_stamp(raw: memoryview, unix_seconds: float) -> int:
    """The newest believable time stamp (microseconds) of ``nvmlSample_t`` records, or 0."""
    stamps = [stamp for stamp, _ in struct.iter_unpack("@QQ", raw) if is_time(stamp, unix_seconds)]
    return max(stamps, default=0)


def processes(raw: memoryview, version: int) -> Iterator[tuple[ProcessSlot, int | None]]:
    """((pid, GPU instance), bytes or ``None``) of one driver list."""
    for record in struct.iter_unpack(PROCESS_FORMATS[version], raw):
        instance = record[2] if version > 1 else tables.ALL_ONES_32
        slot = (record[0], None if instance == tables.ALL_ONES_32 else instance)
        yield slot, memory_bytes(record[1])


ProcessTable = dict[ProcessSlot, tuple[int | None, str]]


def merge_processes(
    compute: Iterable[tuple[ProcessSlot, int | None]],
    graphics: Iterable[tuple[ProcessSlot, int | None]],
) -> ProcessTable:
    """One row a (pid, instance): bytes and kind.

    A process in both lists has the same memory in both, so the larger is taken, not the sum.
    """
    merged: ProcessTable = {}
    for kind, listed in (("compute", compute), ("graphics", graphics)):
        for slot, used in listed:
            known = merged.get(slot)
            if known is None:
                merged[slot] = (used, kind)
                continue
            both = kind if known[1] == kind else "compute+graphics"
            merged[slot] = (larger(known[0], used), both)
    return merged


def larger(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def process_busy(
    raw: memoryview, last_microseconds: int, unix_seconds: float, window_seconds: float
) -> tuple[dict[int, float], int]:
    """Mean SM percent by pid over the new samples, and the newest time stamp.

    The driver can return several samples for a PID; the mean over them is what it used since
    the last look. Samples over 100, from before the last look, or more than ``window_seconds``
    older than the newest one (left in the buffer by processes long idle) are dropped.
    """
    samples = [
        (stamp, pid, sm)
        for pid, stamp, sm, *_ in struct.iter_unpack(UTILIZATION_FORMAT, raw)
        if stamp > last_microseconds and sm <= 100 and is_time(stamp, unix_seconds)
    ]
    newest = max((stamp for stamp, _, _ in samples), default=last_microseconds)
    oldest = newest - window_seconds * 1e6
    sums: dict[int, tuple[int, int]] = {}
    for stamp, pid, sm in samples:
        if stamp >= oldest:
            total, count = sums.get(pid, (0, 0))
            sums[pid] = (total + sm, count + 1)
    return {pid: total / count for pid, (total, count) in sums.items()}, newest


def newest_busy_stamp(raw: memoryview, unix_seconds: float) -> int:
    """The newest believable time stamp (microseconds) of utilisation records, or 0."""
    records = struct.iter_unpack(UTILIZATION_FORMAT, raw)
    return max((record[1] for record in records if is_time(record[1], unix_seconds)), default=0)


def activity(value: float) -> float | None:
    """A GPM percentage; ``None`` for NaN and nonsense. Rounding can put it just above 100."""
    if math.isnan(value) or value < 0 or value > 101:
        return None
    return min(value, 100.0)


def mebibytes_rate(value: float) -> float | None:
    """A GPM rate (MiB/s) in bytes a second."""
    return None if math.isnan(value) or not 0 <= value < 1e9 else value * 1048576.0
