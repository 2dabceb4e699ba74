"""Values of the model from the driver's buffers. Pure: no driver, no clock.

Every number on its way into a ``GpuReading`` or ``GpuIdentity`` passes ``plausible``.
"""

import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from sys import byteorder
from typing import Any

from gpuwatch.core import registry
from gpuwatch.core.model import BusySample
from gpuwatch.core.text import clean
from gpuwatch.sources.nvml import tables

ProcessSlot = tuple[int, int | None]
"""(pid, MIG GPU instance or ``None``)."""

PROCESS_RECORDS = {16: struct.Struct("@I4xQ"), 24: struct.Struct("@I4xQII")}
"""``nvmlProcessInfo_v1_t`` and ``_v2_t`` by their sizes: pid, bytes used[, GPU instance, compute
instance]. Longer records begin as the second does: drivers 535.43 to 535.86 put the memory
protected by confidential computing behind it."""
_PROCESS_BYTES = (24, 32, 16)
PROCESS_BYTES_MAX = 64
"""Room for a record of a process; the longest known has 32 bytes."""
PID_MAX = 1 << 22
"""The kernel's own limit (proc(5): pid_max)."""
BUSY_RECORD = struct.Struct("@I4xQI12x")
"""``nvmlProcessUtilizationSample_t``: pid, microseconds, SM percent (and three more)."""
_VALUES = ("d", "I4x", "Q", "Q", "q", "i4x", "H6x")
"""Layouts of ``nvmlValue_t``, by ``nvmlValueType_t`` (64-bit Linux)."""
SAMPLE_RECORDS = tuple(struct.Struct(f"@Q{value}") for value in _VALUES)
"""``nvmlSample_t`` by the same: microseconds, value."""

FUTURE_SECONDS = 60.0
"""A time stamp further ahead of the wall clock than this is not one (drivers have returned
uninitialised ones); less can be a clock that was just set."""
PAST_SECONDS = 86_400.0
"""No driver holds samples that are older than this."""
SPAN_SECONDS = 3600.0
"""No driver's samples reach further back than this from the newest."""
CLOCK_OFF_SECONDS = 400 * 86_400.0
"""Time stamps that are made by a clock that is wrong may lie so far in the future."""
SHIFT_SECONDS = 5.0
"""A look can come so late after the newest sample."""


def text(raw: bytes | str) -> str:
    """Make a driver string safe to show; bytes that are not UTF-8 become U+FFFD."""
    if isinstance(raw, bytes):
        raw = raw.decode("utf-8", "replace")
    return clean(raw.strip(), 256)


RANGES = {name: field.range for name, field in registry.OF_GPU.items() if field.range is not None}
"""Range of each number, by field."""


def plausible(name: str, value: Any) -> Any:
    """Return ``value`` in the type of its range, or ``None`` out of it; a field without a range
    takes anything."""
    limits = RANGES.get(name)
    if value is None or limits is None:
        return value
    low, high = limits
    return type(low)(value) if low <= value <= high else None


class Values(dict[str, Any]):
    """Values by field name; a number that cannot be is put in as ``None``."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, Any] = {}
        """Values that the driver gave and that cannot be, by field: the first since a good one."""

    def __setitem__(
        self, name: str, value: Any, put: Callable[..., None] = dict.__setitem__
    ) -> None:
        believed = plausible(name, value)
        put(self, name, believed)
        if value is None or believed is not None:
            self.refused.pop(name, None)
        else:
            self.refused.setdefault(name, value)

    def refuse(self, name: str, value: Any) -> None:
        """Put in ``None``, since ``value`` cannot be beside what else is known."""
        super().__setitem__(name, None)
        self.refused.setdefault(name, value)

    def senseless(self, names: Iterable[str]) -> list[str]:
        """Return the fields whose last value was nonsense, and not the driver's way to say "not
        available"."""
        return [
            name for name in names if name in self.refused and not not_available(self.refused[name])
        ]

    def clear(self) -> None:
        super().clear()
        self.refused.clear()


_ALL_ONES = (tables.ALL_ONES_32, tables.ALL_ONES_64)


def not_available(value: Any) -> bool:
    """Return True for the driver's "not available", perhaps after a change of unit."""
    is_number = isinstance(value, int | float)
    return value in _ALL_ONES or (is_number and value * 1000.0 in _ALL_ONES)


UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z./-]{1,100}")
BUS_ID = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
VERSION = re.compile(r"[0-9][0-9A-Za-z._-]{0,40}")
CUDA_VERSION = re.compile(r"[0-9]{1,3}\.[0-9]{1,2}")


def signed(value: float) -> float:
    """Correct a 32-bit number that the driver may have typed as unsigned though it is below
    zero."""
    return value - (1 << 32) if value >= 1 << 31 else value


def in_thousands(value: float | None) -> float | None:
    """Return watts for milliwatts, joules for millijoules."""
    return None if value is None else value / 1000.0


def at_most(value: int | None, most: int | None) -> int | None:
    """Return ``value``, or ``None`` for more than there is, where that is known."""
    return None if value is not None and most is not None and value > most else value


def cuda_version(number: int | None) -> str | None:
    """Return ``"12.8"`` for ``12080``; ``None`` for a number that is no version."""
    text = "" if number is None else f"{number // 1000}.{number % 1000 // 10}"
    return text if CUDA_VERSION.fullmatch(text) and text != "0.0" else None


_REASON_CACHE: dict[int, tuple[str, ...]] = {}


def throttle_reasons(mask: int) -> tuple[str, ...] | None:
    """Return the names of the set bits, without bits nobody knows; ``None`` for a number that is no
    mask."""
    reasons = _REASON_CACHE.get(mask)
    if reasons is None:
        if mask >= tables.ALL_ONES_32:
            return None
        reasons = tuple(name for bit, name in tables.EVENT_REASONS if mask & bit)
        if len(_REASON_CACHE) < 256:
            _REASON_CACHE[mask] = reasons
    return reasons


def rate(
    before: tuple[float, float] | None, now_seconds: float, value: float, unit: float = 1.0
) -> float | None:
    """Return the growth of a counter a second, in ``unit``; ``None`` at first and after it went
    back."""
    if before is None:
        return None
    then_seconds, old = before
    elapsed = now_seconds - then_seconds
    if elapsed <= 0 or value < old:
        return None
    return (value - old) * unit / elapsed


def held_seconds(before: tuple[float, float] | None, now: float, value: float) -> float | None:
    """Return the seconds a nanosecond accumulator grew, at most the time that passed.

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


def busy_samples(
    raw: memoryview,
    value_type: int,
    last_microseconds: int,
    unix_seconds: float,
    shift_seconds: float = 0.0,
) -> tuple[BusySample, ...]:
    """Return the new, believable samples of ``nvmlSample_t`` records, oldest first;
    ``shift_seconds``: see ``clock_shift``."""
    if not 0 <= value_type < len(SAMPLE_RECORDS):
        return ()
    now = unix_seconds - shift_seconds
    oldest = max(last_microseconds, (now - PAST_SECONDS) * 1e6)
    limit = (now + FUTURE_SECONDS) * 1e6
    found = [
        BusySample(stamp / 1e6 + shift_seconds, float(value))
        for stamp, value in SAMPLE_RECORDS[value_type].iter_unpack(raw)
        if oldest < stamp < limit and 0 <= value <= 100
    ]
    found.sort()
    return tuple(found)


def clock_shift(microseconds: Sequence[int], unix_seconds: float, known: float) -> float:
    """Return the seconds by which wall time is ahead of the clock that new time stamps are made by:
    0 where that is wall time, as it nearly always is.

    Some drivers count from the start of the machine (as the project gpu-metrics-agent found), and
    a clock can be hours off. The newest of a list that hangs together is then taken for now.
    ``known`` is the shift that was found before.
    """
    low, high = (unix_seconds - PAST_SECONDS) * 1e6, (unix_seconds + FUTURE_SECONDS) * 1e6
    if any(low < stamp < high for stamp in microseconds):
        return 0.0
    newest, oldest = max(microseconds, default=0), min(microseconds, default=0)
    together = oldest > 0 and newest - oldest < SPAN_SECONDS * 1e6
    if (
        not together
        or newest > high + CLOCK_OFF_SECONDS * 1e6
        or len(microseconds) < 2 - bool(known)
    ):
        # Rubbish, as drivers have returned, or nothing.
        return known
    shift = unix_seconds - newest / 1e6
    # The newest is never older than it seems, and a look that comes late moves nothing.
    return known if known and 0.0 <= shift - known < SHIFT_SECONDS else shift


def newest_stamp(microseconds: Iterable[int], unix_seconds: float) -> int:
    """Return the newest believable time stamp, or 0."""
    limit = (unix_seconds + FUTURE_SECONDS) * 1e6
    return max((stamp for stamp in microseconds if 0 < stamp < limit), default=0)


FieldValues = dict[int, float | int]

_FIELD_RECORD = struct.Struct("@IIqqIIQ")


def field_values(raw: memoryview) -> tuple[FieldValues, dict[int, int]]:
    """Parse ``nvmlFieldValue_t`` records into (values, error codes), each by field id. A field that
    was asked for of several links is the sum of those that answered."""
    values: FieldValues = {}
    failures: dict[int, int] = {}
    for field, _, _, _, kind, code, value in _FIELD_RECORD.iter_unpack(raw):
        if code:
            failures[field] = code
            continue
        number: float | int = value
        if kind == 1:
            number = value & 0xFFFF_FFFF
        elif kind < len(_VALUES):
            (number,) = struct.unpack(f"@{_VALUES[kind]}", value.to_bytes(8, byteorder))
        values[field] = values[field] + number if field in values else number
    return values, {field: code for field, code in failures.items() if field not in values}


ProcessList = list[tuple[ProcessSlot, int | None]]
"""((pid, GPU instance), bytes or ``None``) of each process that a driver lists."""


def processes(written: bytes, count: int) -> tuple[ProcessList, int]:
    """Parse ``count`` records that a driver wrote one after the other into processes, without
    records that are none, and the size of a record; (empty, 0) where they cannot be told apart.

    The version of the function does not tell the size: drivers 535.43 to 535.86 write 32 bytes
    where those before and after write 24, and some write 16. Where the driver stopped tells it;
    one that also wrote behind its last record is read by the size that makes every record one.
    """
    size = -(-len(written) // count)
    size += -size % 8
    # A field at the end of the last record may have been left out.
    stopped = size * count - len(written) <= 8
    if stopped and size in _PROCESS_BYTES:
        listed = list(_processes(written, size, count))
        return (listed, size) if listed else ([], 0)
    for other in (size, *_PROCESS_BYTES):
        known = min(PROCESS_RECORDS) <= other <= PROCESS_BYTES_MAX
        if known and other * count <= len(written):
            listed = list(_processes(written, other, count))
            if len(listed) == count:
                return listed, other
    return [], 0


def _processes(written: bytes, size: int, count: int) -> Iterator[tuple[ProcessSlot, int | None]]:
    record = PROCESS_RECORDS[min(size, max(PROCESS_RECORDS))]
    whole = written.ljust(size * count, b"\xff")
    for at in range(0, size * count, size):
        pid, used, *instances = record.unpack_from(whole, at)
        if 0 < pid <= PID_MAX:
            instance = plausible("mig_instance", instances[0]) if instances else None
            yield (pid, instance), plausible("memory_used_bytes", used)


ProcessTable = dict[ProcessSlot, tuple[int | None, str]]


def merge_processes(
    compute: Iterable[tuple[ProcessSlot, int | None]],
    graphics: Iterable[tuple[ProcessSlot, int | None]],
    most_bytes: int | None = None,
) -> ProcessTable:
    """Merge two lists into one row a (pid, instance): bytes (at most ``most_bytes``, or unknown)
    and kind. A process in both has the same memory in both, so the larger is taken, not the
    sum."""
    merged: ProcessTable = {}
    for kind, listed in (("compute", compute), ("graphics", graphics)):
        for slot, listed_bytes in listed:
            used = at_most(listed_bytes, most_bytes)
            known = merged.get(slot)
            if known is None:
                merged[slot] = (used, kind)
                continue
            both = kind if known[1] == kind else "compute+graphics"
            sizes = [size for size in (known[0], used) if size is not None]
            merged[slot] = (max(sizes, default=None), both)
    return merged


def process_busy(
    raw: memoryview, last_microseconds: int, unix_seconds: float, window_seconds: float
) -> tuple[dict[int, float], int]:
    """Return the mean SM percent by pid over the new samples, and the newest time stamp.

    The driver can return several samples for a PID; the mean over them is its use since the
    last look. Samples over 100, from before the last look, or more than ``window_seconds``
    older than the newest one (left in the buffer by processes long idle) are dropped.
    """
    limit = (unix_seconds + FUTURE_SECONDS) * 1e6
    samples = [
        (stamp, pid, sm)
        for pid, stamp, sm in BUSY_RECORD.iter_unpack(raw)
        if last_microseconds < stamp < limit and sm <= 100
    ]
    if not samples:
        return {}, last_microseconds
    newest = max(samples)[0]
    oldest = newest - window_seconds * 1e6
    by_pid: dict[int, list[int]] = {}
    for stamp, pid, sm in samples:
        if stamp >= oldest:
            by_pid.setdefault(pid, []).append(sm)
    return {pid: sum(values) / len(values) for pid, values in by_pid.items()}, newest


def activity(value: float) -> float | None:
    """Return a GPM percentage; ``None`` for NaN and nonsense. Rounding can put it just above
    100."""
    if math.isnan(value) or value < 0 or value > 101:
        return None
    return min(value, 100.0)


def mebibytes(value: float) -> float:
    return value * 1048576.0
