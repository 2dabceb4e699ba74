"""The recordings that run now: each leaves a note in the user's state folder.

A note is a small JSON file that only its owner can read. One of another machine (the folder may be
shared), of a process that has ended, or of one whose PID is another's now, is no running recording.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gpuwatch.core.bounds import Seconds, Text, UnixSeconds, Whole
from gpuwatch.core.codec import CodecError, decoded
from gpuwatch.core.private_files import BESIDE, make_folder, read_own, state_folder, write_whole
from gpuwatch.core.text import clean
from gpuwatch.sources.linux import procfs

_ENDING = ".json"
_NOTE_BYTES_MOST = 64 * 1024
_TROUBLE_LENGTH = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRecording:
    """A recording that is being made on this machine, by a process of this user."""

    pid: Annotated[int, Meta(gt=1, lt=2**31)]
    """Others name no process that records: zero and below whole groups of them."""
    path: Text
    """Whole."""
    started_at_unix_seconds: UnixSeconds
    until_unix_seconds: UnixSeconds | None = None
    """The end that was asked for."""
    interval_seconds: Seconds = 1.0
    detached: bool = False
    redacted: bool = False
    watched_pid: Whole | None = None
    """Any process of the one job it records; ``None``: the machine."""
    simulated: bool = False
    trouble: Text | None = None
    """The reason why nothing can be written now, as a sentence."""


class _Note(Struct):
    recording: RunningRecording
    machine: str
    process: str | None


_NOTE = msgspec.json.Decoder(_Note)


def notes_folder() -> Path:
    return state_folder("recordings")


def running_recordings(folder: Path | None = None) -> list[RunningRecording]:
    """Those that run now, the oldest first. Raises nothing: what cannot be read is none."""
    folder = notes_folder() if folder is None else folder
    found = []
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
    for name in names:
        if name.startswith(BESIDE) or not name.endswith(_ENDING):
            continue
        note = _read(folder / name)
        if note is None or note.machine != machine():
            continue
        mark = process_mark(note.recording.pid)
        if mark is None or mark != note.process:
            # It was killed: nobody else will tidy up.
            with contextlib.suppress(OSError):
                (folder / name).unlink()
            continue
        found.append(note.recording)
    return sorted(found, key=lambda recording: recording.started_at_unix_seconds)


@contextmanager
def announced(
    recording: RunningRecording, folder: Path | None = None
) -> Iterator[Callable[[str | None], None]]:
    """Leave a note while this process records; gives what changes it to say what is the matter, or
    that nothing is. Where that cannot be written (on a disk that is full) it stays as it was."""
    folder = notes_folder() if folder is None else folder
    path = folder / f"{machine()[:12]}-{recording.pid}{_ENDING}"
    mark = process_mark(recording.pid)

    def update(trouble: str | None) -> None:
        note = _Note(replace(recording, trouble=trouble), machine(), mark)
        with contextlib.suppress(OSError):
            make_folder(path.parent)
            write_whole(path, msgspec.json.encode(note))

    update(recording.trouble)
    try:
        yield update
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def machine() -> str:
    """Tells this run of this machine, and of this PID namespace, from all others."""
    boot = procfs.read_if_possible("/proc/sys/kernel/random/boot_id").decode().strip()
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return f"{boot}-{namespace}"


def process_mark(pid: int) -> str | None:
    """The start of ``pid`` in the kernel's ticks; ``None`` if it is not there (or has ended)."""
    stat = procfs.read_stat(pid)
    return None if stat is None or stat.state in "ZX" else str(stat.start_ticks)


def _read(path: Path) -> _Note | None:
    try:
        note = decoded(_NOTE, read_own(path, _NOTE_BYTES_MOST))
    except (OSError, UnicodeError, CodecError):
        return None
    recording = note.recording
    if clean(recording.path) != recording.path:
        return None
    if recording.trouble is not None:
        note.recording = replace(recording, trouble=clean(recording.trouble, _TROUBLE_LENGTH))
    return note
