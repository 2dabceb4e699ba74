"""Write the file of a reporting job, and know where such files lie.

``$XDG_RUNTIME_DIR/gpuwatch/steps`` (or that folder below ``/run/user/UID``), else
``/dev/shm/gpuwatch-UID/steps``, else ``/tmp/gpuwatch-UID/steps``; folders are open to their
owner only. While it lives the writer holds a lock on its file, by which dead files are known from
living ones across PID namespaces too.
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

from gpuwatch.jobs.loop.step_file import (
    CHECKSUM,
    FILE_BYTES,
    HEADER,
    LAYOUT_VERSION,
    MAGIC,
    RECORD_BYTES,
    SLOTS_AT,
)

NAME = re.compile(r"(?:\.new-)?(\d{1,10})-(\d{1,20})\.steps")
"""Name of a file: the writer's PID, in its own PID namespace, and its start time in ticks."""
_CLEANED_AT_MOST = 4096
_pack_checksum = CHECKSUM.pack
_SAFE_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs", "overlay"})
"""Where a page once allocated can always be written: elsewhere (copy on write) a full disk can
end the process that writes to its mapping."""


def folders(uid: int, environment: Mapping[str, str]) -> list[tuple[str, tuple[str, str]]]:
    """Return where the files of a user can be, the best first: a folder that is there, and the
    folders below it that writers make."""
    places = [(f"/run/user/{uid}", ("gpuwatch", "steps"))]
    places += [(base, (f"gpuwatch-{uid}", "steps")) for base in ("/dev/shm", "/tmp")]
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and runtime != places[0][0]:
        places.insert(0, (runtime, ("gpuwatch", "steps")))
    return places


def open_folder(base: str, below: tuple[str, str], uid: int, *, make: bool = False) -> int:
    """Open the folder; returns a descriptor. Raises ``OSError`` where it is not there, is a link,
    belongs to another user or is open to others."""
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
    """Return when a process started, in clock ticks since boot; ``None`` where there is none."""
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
    """Return the inode of our PID namespace; 0 where it is not known."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def files_in(folder: int) -> Iterator[tuple[str, int, int]]:
    """Yield the names of step files in a folder, with PID and start ticks. Raises ``OSError``."""
    for name in os.listdir(folder):
        found = NAME.fullmatch(name)
        if found is not None:
            yield name, int(found[1]), int(found[2])


def remove_dead(folder: int) -> None:
    """Remove the files of processes that have ended: those that cannot be seen here, and whose
    writer does not hold its lock. Never raises."""
    with contextlib.suppress(OSError):
        for name, pid, ticks in itertools.islice(files_in(folder), _CLEANED_AT_MOST):
            if start_ticks_of(pid) != ticks:
                with contextlib.suppress(OSError):
                    _remove_unlocked(folder, name)


def _remove_unlocked(folder: int, name: str) -> None:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(descriptor)


class StepFile:
    """The step file of this process, mapped for writing."""

    def __init__(self, path: str, mapping: mmap.mmap) -> None:
        self.path = path
        self._map = mapping
        self._slot = 0

    @classmethod
    def create(cls, environment: Mapping[str, str] | None = None) -> StepFile:
        """Create the file in the first place that lets it. Raises ``OSError`` where none does."""
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
                try:
                    _check_file_system(folder, base)
                    remove_dead(folder)
                    name = file_name(os.getpid(), ticks)
                    return cls("/".join([base, *below, name]), _map_new(folder, name, header))
                finally:
                    os.close(folder)
            except OSError as refused:
                why = (refused.errno, refused.strerror or str(refused))
        raise OSError(*why)

    def write(self, body: bytes) -> None:
        """Write one record."""
        at = SLOTS_AT[self._slot]
        self._slot ^= 1
        self._map[at : at + RECORD_BYTES] = body + _pack_checksum(crc32(body))

    def close(self, *, remove: bool = True) -> None:
        """Close the file, without raising. A forked child leaves its parent's file where it is."""
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
    """Check that written pages stay writable there; see _SAFE_FILE_SYSTEMS. Raises ``OSError``."""
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
