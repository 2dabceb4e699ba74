"""The output of a job: where it is kept, and the lines of it that a pane shows.

A job's output is kept in a folder of files in the user's state folder, which only its owner can
read. It is bounded: the oldest are forgotten, but never one that a job still writes to. Whoever
writes holds a shared lock (flock(2)) on its file, the keeper included, so that this is known for
jobs whose gpuwatch has long ended.

``OutputTail`` follows such a file and makes it readable at little cost. The bytes are hostile: what
a terminal could obey is taken out, but for a carriage return, after which a progress bar replaces
its line.
"""

import codecs
import contextlib
import fcntl
import os
import re
import stat
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePath

from gpuwatch.core.private_files import make_folder, state_folder
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.core.units import size

# Where it is kept

RUNS_KEPT = 50
KEPT_BYTES = 64 << 20
"""Kept of what one job prints: more than a day of progress bars."""

_NAME = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9._-]{1,60}\.log")
_INTERPRETERS = re.compile(r"(?:python|pypy)[\d.]*|uv|poetry|run|bash|sh|zsh|env|nice|torchrun")


def open_kept(command: Sequence[str], folder: Path | None = None) -> tuple[int, Path]:
    """Open a new file of its own for what ``command`` prints, open for appending; the oldest files
    make room for it. Raises ``SentenceError``."""
    folder = state_folder("runs") if folder is None else folder
    when = time.strftime("%Y%m%d-%H%M%S")
    path = folder / f"{when}-{short_name(command)}-{os.getpid()}.log"
    try:
        make_folder(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise SentenceError(
            f"The job's output cannot be kept in {clean(str(folder), 300)}: {error.strerror}. "
            "Choose a file with --output FILE, or see it as it comes with --plain.",
            74,
        ) from None
    _hold(descriptor)
    # It is there: what cannot be tidied up now is tidied up next time.
    with contextlib.suppress(OSError):
        forget_oldest(folder)
    return descriptor, path


def open_chosen(path: Path) -> int:
    """Open the file a person chose, emptied, open for appending. Raises ``SentenceError``."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags, 0o666)
        # A pipe or a device has nothing to empty.
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.ftruncate(descriptor, 0)
    except OSError as error:
        shown = clean(str(path), 300)
        raise SentenceError(f"{shown} cannot be written: {error.strerror}.") from None
    _hold(descriptor)
    return descriptor


def forget_oldest(folder: Path, kept: int = RUNS_KEPT) -> None:
    """Delete all but the newest ``kept`` files of ended jobs. Raises ``OSError``."""
    names = sorted(entry.name for entry in folder.iterdir() if _NAME.fullmatch(entry.name))
    for name in names[: max(0, len(names) - kept)]:
        with contextlib.suppress(OSError):
            _forget(folder / name)


def short_name(command: Sequence[str]) -> str:
    """Return a name for this command, fit for a file name: ``train.py``."""
    words = [word for word in command if not word.startswith("-") and "=" not in word]
    names = [PurePath(word).name for word in words]
    scripts = [name for name in names if name.endswith((".py", ".sh"))]
    others = [name for name in names if not _INTERPRETERS.fullmatch(name)]
    name = (scripts or others or names or [PurePath(command[0]).name])[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:40].lstrip(".") or "job"


def _hold(descriptor: int) -> None:
    # Some network file systems have no locks: their files are not forgotten, then.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _forget(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)


# The lines of it

LINES_KEPT = 5000
LINE_CHARACTERS = 500
"""A longer line is cut; nobody reads it in a pane."""

READ_BYTES = 256 * 1024
"""Taken by one ``poll`` at most. A job that prints faster has its last part shown: nobody could
read the rest, and the file has it all."""

_UNFINISHED_CHARACTERS = 65536

# ECMA-48: the strings (OSC, DCS, SOS, PM, APC), which end in BEL or ST and may hold line feeds that
# are no lines; CSI with its parameters; other escapes with their intermediates; single controls, an
# escape that begins nothing among them.
_CONTROL = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
# The beginning of one of those where the text that has come so far ends.
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z")


class OutputTail:
    """The last lines of a file that is being written, numbered from the first that was seen. For
    one thread."""

    def __init__(self, path: Path, *, lines_kept: int = LINES_KEPT) -> None:
        self.path = path
        self.first = 0
        """The number of the oldest line kept."""
        self._lines_kept = lines_kept
        self._rows = deque([""])
        self._replaces = False
        """True if what is printed next replaces the last row."""
        self._unfinished = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._descriptor: int | None = None
        self._offset = 0

    @property
    def total(self) -> int:
        """The number of lines so far, of the last only if there is anything in it."""
        return self.first + len(self._rows) - (not self._rows[-1])

    def lines(self, first: int, count: int) -> Sequence[str]:
        """Return at most ``count`` lines from number ``first`` (or the oldest kept) on, safe to
        show."""
        start = max(0, first - self.first)
        end = min(start + count, self.total - self.first)
        return list(islice(self._rows, start, end)) if end > start else []

    def poll(self) -> bool:
        """Take what has been written since; whether anything was. A file that is not there (yet)
        has nothing in it, and one that was cut short is read from its start."""
        try:
            data = self._read()
        except OSError:
            return False
        if data:
            self.take_printed(self._decoder.decode(data))
        return bool(data)

    def say(self, what: str) -> None:
        """Put a line of gpuwatch's own among those of the job; what follows has nothing to do with
        what was."""
        self._decoder.reset()
        self._unfinished = ""
        self._replaces = False
        self._print("\n" * bool(self._rows[-1]) + f"[... {what} ...]\n")

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> bytes:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        length = os.fstat(self._descriptor).st_size
        if length < self._offset:
            self._offset = 0
            self.say("the file was truncated; reading from its start")
        skipped = max(0, length - self._offset - READ_BYTES)
        self._offset += skipped
        data = os.pread(self._descriptor, min(READ_BYTES, length - self._offset), self._offset)
        self._offset += len(data)
        if skipped:
            self.say(f"{size(skipped)} more of it in the file")
            # From the next whole line on, if there is one.
            data = data[data.find(b"\n") + 1 :]
        return data

    def take_printed(self, text: str) -> None:
        """Take what was printed next; escapes and lines may be cut anywhere."""
        text = self._unfinished + text
        cut = _UNFINISHED.search(text, max(0, len(text) - _UNFINISHED_CHARACTERS))
        self._unfinished = "" if cut is None else cut.group()
        if cut is not None:
            text = text[: cut.start()]
        self._print(_CONTROL.sub("", text))

    def _print(self, text: str) -> None:
        for number, line in enumerate(text.split("\n")):
            if number:
                self._replaces = False
                self._rows.append("")
            for place, part in enumerate(line.split("\r")):
                self._replaces = self._replaces or place > 0
                row = "" if self._replaces else self._rows[-1]
                if part and len(row) < LINE_CHARACTERS:
                    whole = (row + part[:LINE_CHARACTERS]).expandtabs()
                    self._rows[-1] = clean(whole[:LINE_CHARACTERS])
                self._replaces = self._replaces and not part
        while len(self._rows) > self._lines_kept + 1:
            self._rows.popleft()
            self.first += 1
