"""Knobs that are turned while a job runs: a file of ``name=value`` lines in the job's folder, and
the dashboard's hold on them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gpuwatch.core.private_files import read_own, why
from gpuwatch.core.text import clean
from gpuwatch.practice.causes import Cause
from gpuwatch.practice.knobs import KnobError, Knobs, changed, in_words, written

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
        found = read_own(path, MOST_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise KnobError(why(error)) from None
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


class Practice:
    """A practice job as the dashboard sees it: its fault, and the knobs that a key turns. All texts
    are safe to show."""

    def __init__(
        self, cause: Cause, folder: Path, cores: float, has_ended: Callable[[], bool]
    ) -> None:
        """``cores``: how many the job may use."""
        self.cause = cause
        self._cure = cause.cure_on(cores)
        self._folder = folder
        self._has_ended = has_ended
        self._on_cpu: bool | None = None
        self._said_ended = False
        self.cured = False

    @property
    def turns(self) -> str:
        """What the key changes: ``num_workers 1 -> 4``; empty: nothing."""
        ill = self.cause.knobs
        cured = replace(ill, **self._cure)
        return in_words(cured, ill) if self.cured else in_words(ill, cured)

    @property
    def note(self) -> str | None:
        """What cannot be seen on this machine."""
        return self.cause.cpu_note if self._on_cpu else None

    @property
    def can_be_named(self) -> bool:
        return self.cause.name != "healthy" and not (self._on_cpu and self.cause.gpus)

    @property
    def ended(self) -> bool:
        return self._has_ended()

    def look(self) -> bool:
        """Find out what is known only once the job runs; whether there is something new."""
        if self.ended != self._said_ended:
            self._said_ended = self.ended
            return True
        if self._on_cpu is not None or (kind := device_kind(self._folder)) is None:
            return False
        self._on_cpu = kind == "cpu"
        return self._on_cpu

    def turn(self) -> None:
        """Turn the knobs back, or ill again. Raises ``OSError``."""
        turn(self._folder, {} if self.cured else self._cure)
        self.cured = not self.cured
