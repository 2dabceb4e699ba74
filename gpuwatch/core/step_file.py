"""The small memory-mapped file through which a job tells of its own training loop.

One file for each telling process, 1024 bytes: a header that says whose it is, and two slots. The
writer fills the slots in turn, each with a sequence number and a checksum over all of it, so one
of them is whole at any moment, whatever the writer is doing and however it ended. Readers copy
the file with one ``pread``, never map it (a file that is cut short ends a process that maps it),
and take the newest slot whose checksum holds. A record is the loop's state now, its counters since
it began to tell, and the same counters as they were about ten seconds ago: one look at one record
gives rates.

Where it lies: ``$XDG_RUNTIME_DIR/gpuwatch/steps`` (or that folder below ``/run/user/UID``), else
``/dev/shm/gpuwatch-UID/steps``, else ``/tmp/gpuwatch-UID/steps``; folders are open to their
owner only. While it lives the writer holds a lock on its file, which tells dead files from living
ones across PID namespaces too.

All numbers are little-endian 64-bit integers; ``NONE`` stands for what is not known. Times are
nanoseconds of ``CLOCK_MONOTONIC``, which is one clock for the whole machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import re
import stat
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

MAGIC = b"gpuwstep"
LAYOUT_VERSION = 1
FILE_BYTES = 1024
NONE = -1

HEADER = struct.Struct("<8sIIQQQ")
_SLOTS_AT = (128, 576)
_SLOT_BYTES = 448
_CHECKSUM = struct.Struct("<I")
_pack_checksum = _CHECKSUM.pack
_crc32 = zlib.crc32

IDLE, WAIT, STEP, COPY, BETWEEN, VALIDATION, CHECKPOINT = range(7)
"""What a loop can be doing: nothing that was told; waiting for the next batch; in a step; copying
to the device, as the CPU sees it; in the loop outside its steps; validating; saving."""
STATES = 7

WAITS_TOLD = 1
"""Flag: it uses ``watch``, so its waits for data are known (and none is a measured none)."""
DEVICE_TIMED = 2
"""Flag: steps are measured by CUDA events."""
COPIES_TIMED = 4
"""Flag: copies to the device are measured by CUDA events."""

LARGEST = 1 << 62
"""No counter of an honest writer comes near it."""

NAME = re.compile(r"(?:\.new-)?(\d{1,10})-(\d{1,20})\.steps")
"""Of a file: the writer's PID, in its own PID namespace, and its start time in ticks."""
_CLEANED_AT_MOST = 4096
_SAFE_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs", "overlay"})
"""Where a page once allocated can always be written: elsewhere (copy on write) a full disk can
end the process that writes to its mapping."""


class Header(NamedTuple):
    """Whose file it is: its PID as it knows it, its start in ticks since boot (as in
    ``/proc/PID/stat``), and the inode of its PID namespace (0: not known)."""

    pid: int
    start_ticks: int
    pid_namespace: int


class Counters(NamedTuple):
    """What only grows, as of ``at_ns``. Times are in nanoseconds of wall time, and each moment is
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
    """What moves both ways. The counters hold the time in ``state`` up to ``Counters.at_ns``."""

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


# A slot in parts, so that a step packs no more than what it changes: the first four numbers of
# Now, the first eleven of Counters, the others of Counters, the others of Now, the base.
STEP_PART = struct.Struct("<15q")
DEVICE_PART = struct.Struct("<6q")
ABOUT_PART = struct.Struct("<12q")
_LIVE = 4
_LOOP = 11
LOOP_AT = 8 * _LIVE
"""Where in the packed first part its counters begin; with the device's they make a base."""
_BODY = struct.Struct("<50q")
_BODY_BYTES = _BODY.size
assert STEP_PART.size + 2 * DEVICE_PART.size + ABOUT_PART.size + 8 * _LOOP == _BODY_BYTES
_TOLD_BYTES = _BODY_BYTES + _CHECKSUM.size
assert _TOLD_BYTES <= _SLOT_BYTES


def pack_record(record: Record) -> bytes:
    """As a slot holds it, without its checksum."""
    now, counters, base = record
    return _BODY.pack(*now[:_LIVE], *counters, *now[_LIVE:], *base)


def _unpack_record(body: bytes) -> Record:
    numbers = _BODY.unpack(body)
    about = _LIVE + len(Counters._fields)
    base = about + len(Now._fields) - _LIVE
    return Record(
        Now._make(numbers[:_LIVE] + numbers[about:base]),
        Counters._make(numbers[_LIVE:about]),
        Counters._make(numbers[base:]),
    )


def parse_header(data: bytes) -> Header | None:
    """``None`` for anything but a file of this layout."""
    if len(data) != FILE_BYTES:
        return None
    magic, version, size, *whose = HEADER.unpack_from(data)
    if (magic, version, size) != (MAGIC, LAYOUT_VERSION, FILE_BYTES):
        return None
    return Header(*whose)


def parse_record(data: bytes) -> Record | None:
    """The newest whole record of a file's content; ``None`` where there is none, or its numbers
    cannot be."""
    # The sequence is the first number of a slot.
    slots = [data[at : at + _SLOT_BYTES] for at in _SLOTS_AT]
    slots.sort(key=lambda slot: int.from_bytes(slot[:8], "little"), reverse=True)
    newest = _whole(slots[0]) or _whole(slots[1])
    if newest is None:
        return None
    record = _unpack_record(newest)
    return record if _can_be(record) else None


def _whole(slot: bytes) -> bytes | None:
    if len(slot) != _SLOT_BYTES:
        return None
    (checksum,) = _CHECKSUM.unpack_from(slot, _BODY_BYTES)
    body = slot[:_BODY_BYTES]
    # A slot that was never written is all zeros.
    return body if _crc32(body) == checksum and body[:8] != bytes(8) else None


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


# Where it lies


def folders(uid: int, environment: Mapping[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    """Where the files of a user can be, the best first: a folder that is there, and the folders
    below it that writers make."""
    own: tuple[str, ...] = ("gpuwatch", "steps")
    shared: tuple[str, ...] = (f"gpuwatch-{uid}", "steps")
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    bases = [runtime] if runtime.startswith("/") else []
    bases += [base for base in (f"/run/user/{uid}",) if base not in bases]
    return [(base, own) for base in bases] + [("/dev/shm", shared), ("/tmp", shared)]


def open_folder(base: str, below: tuple[str, ...], uid: int, *, make: bool = False) -> int:
    """A descriptor of the folder. Raises ``OSError`` where it is not there, is a link, belongs to
    another user or is open to others."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    folder = os.open(base, flags)
    try:
        if below[0] == "gpuwatch":
            # The user's own; the others are everybody's.
            _check_folder(folder, uid, 0o022)
        for name in below:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=folder)
            inner = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
            _check_folder(folder, uid, 0o077)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _check_folder(folder: int, uid: int, forbidden_mode: int) -> None:
    found = os.fstat(folder)
    if found.st_uid != uid or found.st_mode & forbidden_mode:
        raise PermissionError(errno.EPERM, "the folder is another user's, or open to others")


def file_name(pid: int, start_ticks: int) -> str:
    return f"{pid}-{start_ticks}.steps"


def start_ticks_of(pid: int | str) -> int | None:
    """When a process started, in clock ticks since boot; ``None`` where there is none."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, 2048)
        finally:
            os.close(descriptor)
        # The name can hold anything; field 22, counted from 3 after it.
        return int(text[text.rindex(b")") + 2 :].split(None, 20)[19])
    except (OSError, ValueError, IndexError):
        return None


def own_pid_namespace() -> int:
    """Its inode; 0 where it is not known."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def files_in(folder: int) -> Iterator[tuple[str, int, int]]:
    """The names of step files in a folder, with PID and start ticks. Raises ``OSError``."""
    for name in os.listdir(folder):
        found = NAME.fullmatch(name)
        if found is not None:
            yield name, int(found[1]), int(found[2])


def remove_dead(folder: int, is_alive: Callable[[int, int], bool]) -> int:
    """Remove the files of processes that have ended; how many. Never raises.

    ``is_alive(pid, start_ticks)`` spares those that can be seen; of the rest, those whose writer
    still holds its lock.
    """
    removed = 0
    with contextlib.suppress(OSError):
        for name, pid, ticks in itertools.islice(files_in(folder), _CLEANED_AT_MOST):
            if not is_alive(pid, ticks):
                removed += _remove_unlocked(folder, name)
    return removed


def _remove_unlocked(folder: int, name: str) -> bool:
    try:
        descriptor = os.open(
            name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def is_alive_here(pid: int, start_ticks: int) -> bool:
    """Whether this process is there, as far as this PID namespace shows."""
    return start_ticks_of(pid) == start_ticks


# Writing


class StepFile:
    """The file of this process, as its writer has it."""

    def __init__(self, folder: str, name: str, mapping: mmap.mmap) -> None:
        self.path = f"{folder}/{name}"
        self._map = mapping
        self._slot = 0

    @classmethod
    def create(cls, environment: Mapping[str, str] | None = None) -> StepFile:
        """In the first place that lets it. Raises ``OSError`` where none does."""
        uid = os.geteuid()
        ticks = start_ticks_of("self")
        if ticks is None:
            raise OSError(errno.ENOSYS, "/proc does not say when this process started")
        header = HEADER.pack(
            MAGIC, LAYOUT_VERSION, FILE_BYTES, os.getpid(), ticks, own_pid_namespace()
        )
        # Not the error itself: it would hold the callers' frames, and with them the job's loader.
        why: tuple[int | None, str] = (errno.ENOENT, "there is no folder for it")
        for base, below in folders(uid, os.environ if environment is None else environment):
            try:
                folder = open_folder(base, below, uid, make=True)
            except OSError as refused:
                why = (refused.errno, refused.strerror or str(refused))
                continue
            try:
                _check_file_system(folder, base)
                remove_dead(folder, is_alive_here)
                name = file_name(os.getpid(), ticks)
                mapping = _map_new(folder, name, header)
                return cls("/".join([base, *below]), name, mapping)
            except OSError as refused:
                why = (refused.errno, refused.strerror or str(refused))
            finally:
                os.close(folder)
        raise OSError(*why)

    def write(self, body: bytes) -> None:
        """Tell one record, as ``pack_record`` has it."""
        at = _SLOTS_AT[self._slot]
        self._slot ^= 1
        self._map[at : at + _TOLD_BYTES] = body + _pack_checksum(_crc32(body))

    def close(self, *, remove: bool = True) -> None:
        """Never raises. A forked child leaves its parent's file where it is."""
        with contextlib.suppress(OSError):
            if remove:
                Path(self.path).unlink()
        with contextlib.suppress(BufferError, ValueError):
            self._map.close()


def _map_new(folder: int, name: str, header: bytes) -> mmap.mmap:
    new = f".new-{name}"
    descriptor = os.open(
        new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
    )
    try:
        try:
            # The lock belongs to the open file: the mapping's own descriptor keeps it.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                raise
        # A page that cannot be had later would end the process: have all of it now.
        os.posix_fallocate(descriptor, 0, FILE_BYTES)
        os.pwrite(descriptor, header.ljust(FILE_BYTES, b"\0"), 0)
        mapping = mmap.mmap(descriptor, FILE_BYTES)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)
    return mapping


def _check_file_system(folder: int, base: str) -> None:
    """Raises ``OSError`` unless written pages stay writable there; see _SAFE_FILE_SYSTEMS."""
    if base != "/tmp":
        return
    device = os.fstat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            if fields.split()[2] == wanted and rest.split()[0] in _SAFE_FILE_SYSTEMS:
                return
    raise OSError(errno.ENOTSUP, "the file system cannot promise that a mapping can be written")
