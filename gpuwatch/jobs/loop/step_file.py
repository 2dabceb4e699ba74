"""Layout of the small memory-mapped file through which a job reports its own training loop.

One file for each reporting process, 1024 bytes: a header that says whose it is, and two slots. The
writer fills the slots in turn, each with a sequence number and a checksum over all of it, so one
of them is whole at any moment, whatever the writer is doing and however it ended. Readers copy
the file with one ``pread``, never map it (a file that is cut short ends a process that maps it),
and take the newest slot whose checksum holds. A record is the loop's state now, its counters since
it began to report, and the same counters as they were about ten seconds ago: one look at one
record gives rates.

All numbers are little-endian 64-bit integers; ``NONE`` stands for what is not known. Times are
nanoseconds of ``CLOCK_MONOTONIC``, which is one clock for the whole machine.
"""

import struct
import zlib
from typing import NamedTuple

MAGIC = b"gpuwstep"
LAYOUT_VERSION = 1
FILE_BYTES = 1024
NONE = -1

HEADER = struct.Struct("<8sIIQQQ")
SLOTS_AT = (128, 576)
_SLOT_BYTES = 448

IDLE, WAIT, STEP, COPY, BETWEEN, VALIDATION, CHECKPOINT = range(7)
"""States of a loop: nothing that was reported; waiting for the next batch; in a step;
copying to the device, as the CPU sees it; in the loop outside its steps; validating; saving."""
STATES = 7

WAITS_REPORTED = 1
"""Flag: it uses ``watch``, so its waits for data are known (and none is a measured none)."""
DEVICE_TIMED = 2
"""Flag: steps are measured by CUDA events."""
COPIES_TIMED = 4
"""Flag: copies to the device are measured by CUDA events."""

LARGEST = 1 << 62
"""No counter of an honest writer comes near it."""


class Header(NamedTuple):
    """Whose file it is: its PID as it knows it, its start in ticks since boot (as in
    ``/proc/PID/stat``), and the inode of its PID namespace (0: not known)."""

    pid: int
    start_ticks: int
    pid_namespace: int


class Counters(NamedTuple):
    """Counters that only grow, as of ``at_ns``. Times are nanoseconds of wall time; each moment is
    counted for one state only; those of the device overlap them."""

    at_ns: int
    steps: int
    samples: int
    idle_ns: int
    wait_ns: int
    step_ns: int
    copy_ns: int
    between_ns: int
    validation_ns: int
    checkpoint_ns: int
    last_step_ns: int
    """When the last step ended; 0: there was none."""
    device_step_ns: int
    device_steps_measured: int
    device_steps_skipped: int
    device_copy_ns: int
    device_copies_measured: int
    device_copies_skipped: int


class Now(NamedTuple):
    """Values that move both ways. The counters hold the time in ``state`` up to their ``at_ns``."""

    sequence: int
    state: int
    step_in_epoch: int
    batch_size: int
    began_ns: int
    flags: int
    epoch: int
    steps_in_epoch: int
    loader_workers: int
    pinned_memory: int
    rank: int
    local_rank: int
    world_size: int
    memory_allocated_bytes: int
    memory_reserved_bytes: int
    memory_peak_bytes: int


class Record(NamedTuple):
    """``base``: the counters about ten seconds before ``counters``, or when it began."""

    now: Now
    counters: Counters
    base: Counters


# A slot: the first four numbers of Now, Counters, the others of Now; then the base, then the
# checksum of all of it.
_LIVE = 4
_COUNTERS = len(Counters._fields)
MOVING = struct.Struct(f"<{_LIVE + _COUNTERS}q")
SELDOM = struct.Struct(f"<{len(Now._fields) - _LIVE}q")
COUNTERS_PART = slice(8 * _LIVE, 8 * (_LIVE + _COUNTERS))
"""Where the counters are in the packed ``MOVING``: kept, they are a base later."""
_BODY = struct.Struct(f"<{len(Now._fields) + 2 * _COUNTERS}q")
CHECKSUM = struct.Struct("<I")
RECORD_BYTES = _BODY.size + CHECKSUM.size
assert RECORD_BYTES <= _SLOT_BYTES


def parse_header(data: bytes) -> Header | None:
    """Parse whose file it is; ``None`` for anything but a file of this layout."""
    if len(data) != FILE_BYTES:
        return None
    magic, version, size, *whose = HEADER.unpack_from(data)
    if (magic, version, size) != (MAGIC, LAYOUT_VERSION, FILE_BYTES):
        return None
    return Header(*whose)


def parse_record(data: bytes) -> Record | None:
    """Parse the newest whole record of a file's content; ``None`` where there is none, or its
    numbers cannot be."""
    if len(data) != FILE_BYTES:
        return None
    bodies = [data[at : at + _BODY.size] for at in SLOTS_AT if _is_whole(data, at)]
    if not bodies:
        return None
    # The sequence is the first number of a slot.
    numbers = max(map(_BODY.unpack, bodies), key=lambda slot: slot[0])
    rest = _LIVE + _COUNTERS
    record = Record(
        Now(*numbers[:_LIVE], *numbers[rest:-_COUNTERS]),
        Counters(*numbers[_LIVE:rest]),
        Counters(*numbers[-_COUNTERS:]),
    )
    return record if _can_be(record) else None


def _is_whole(data: bytes, at: int) -> bool:
    body = data[at : at + _BODY.size]
    (checksum,) = CHECKSUM.unpack_from(data, at + _BODY.size)
    # A slot that was never written is all zeros.
    return body[:8] != bytes(8) and zlib.crc32(body) == checksum


def _can_be(record: Record) -> bool:
    now, counters, base = record
    return (
        min(now) >= NONE
        and 0 <= now.state < STATES
        and min(base) >= 0
        and all(map(int.__le__, base, counters))
        and max(counters) < LARGEST
        and max(now) < LARGEST
        and now.began_ns <= base.at_ns
    )
