"""Knobs that are turned while a job runs: a file of ``name=value`` lines in the job's folder."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.core.text import clean
from gpuwatch.practice.knobs import KnobError, Knobs, changed, written

FILE_NAME = "knobs"
MOST_BYTES = 10_000
_DEVICE_FILE = "device"


class Control:
    """The file's knobs on top of those that the job was started with; cheap enough to ask in each
    step."""

    def __init__(self, path: Path, knobs: Knobs) -> None:
        self.path = path
        self._started_with = self.knobs = knobs
        self._seen: tuple[int, int, int] | None = None
        self.trouble: str | None = None
        """Why the file was not followed last time."""
        self.turned()

    def turned(self) -> bool:
        """True if the knobs are others than at the last call."""
        try:
            found = self.path.stat()
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        except OSError:
            stamp = None
        if stamp == self._seen:
            return False
        self._seen, self.trouble, before = stamp, None, self.knobs
        try:
            # Always from the start: a line that is gone is a knob that is back.
            self.knobs = changed(self._started_with, _text_of(self.path))
        except KnobError as error:
            self.trouble = clean(f"{self.path.name} was not applied: {error}", 300)
        return self.knobs != before


def _text_of(path: Path) -> str:
    """Empty where there is none. Raises ``KnobError`` for what is no file of knobs."""
    try:
        # A pipe that nobody writes to would be waited for.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise KnobError(f"it cannot be read ({error.strerror})") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise KnobError("it is not a file")
        found = os.read(handle, MOST_BYTES + 1)
    finally:
        os.close(handle)
    if len(found) > MOST_BYTES:
        raise KnobError(f"it is longer than {MOST_BYTES} bytes")
    return found.decode(errors="replace")


def turn(folder: Path, values: Mapping[str, object]) -> None:
    """Write the control file of the job in ``folder``, whole or not at all. Raises ``OSError``."""
    path = folder / FILE_NAME
    fresh = path.with_suffix(".new")
    fresh.write_text(written(values))
    fresh.replace(path)


def note_device(folder: Path, kind: str) -> None:
    """Say on what the job in ``folder`` trains. Raises ``OSError``."""
    (folder / _DEVICE_FILE).write_text(kind)


def device_kind(folder: Path) -> str | None:
    """The device by the job's own word; ``None``: it has not said it yet."""
    try:
        return _text_of(folder / _DEVICE_FILE) or None
    except KnobError:
        return None
