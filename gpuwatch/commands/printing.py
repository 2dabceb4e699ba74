"""Print, complain and write files.

Exit codes: 0 done (also when the reader of a pipe has gone), 2 the request cannot be met as it
was made, 69 no answer from the machine, 70 a bug, 74 the output cannot be written, 130
interrupted.
"""

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO, cast

import click

from gpuwatch.core.private_files import private, write_whole
from gpuwatch.core.text import SentenceError, clean

EXIT_USAGE = 2
EXIT_NO_ANSWER = 69
EXIT_BUG = 70
EXIT_OUTPUT = 74
EXIT_INTERRUPTED = 130

STANDARD_STREAM = "-"
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class ReaderGoneError(Exception):
    """The reader of standard output has gone. (click ends with 1 on a ``BrokenPipeError``.)"""


class NoOutputError(SentenceError):
    """Standard output or a file cannot be written."""


def complain(sentence: str, code: int = 0) -> int:
    """Print a sentence on standard error; gives ``code`` back."""
    if sys.stderr is not None:
        try:
            print(f"gpuwatch: {sentence}", file=sys.stderr)
        except OSError:
            # A terminal that has gone away takes the sentence with it.
            return code
    return code


def is_terminal(stream: TextIO | None) -> bool:
    # None: the descriptor was closed before the start.
    return stream is not None and stream.isatty()


def is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"


def has_screen() -> bool:
    """True if a dashboard can be drawn and be typed at: Textual draws on standard error."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(is_terminal(stream) for stream in streams) and not is_dumb()


def require_screen(doing: str, instead: str, *, keys_elsewhere: bool = False) -> None:
    """Check that a dashboard can be drawn. Raises ``click.UsageError``. ``doing`` begins the
    sentence, ``instead`` says what can be used without a terminal."""
    streams = [sys.stdout] if keys_elsewhere else [sys.stdin, sys.stdout]
    if not all(is_terminal(stream) for stream in streams):
        raise click.UsageError(f"{doing} needs a terminal to read keys and to draw. {instead}")
    # Textual draws on standard error.
    if not is_terminal(sys.stderr):
        raise click.UsageError("The screen is drawn on standard error: do not redirect it.")
    if is_dumb():
        raise click.UsageError(f"This terminal (TERM=dumb) cannot place text. {instead}")


def terminal_width(out: TextIO) -> int:
    try:
        columns = os.get_terminal_size(out.fileno()).columns
    except OSError:
        columns = 0
    # A serial line says 0 when it does not know.
    return columns or 80


class Drawing(NamedTuple):
    width: int
    colour: bool
    unicode: bool


def drawing(
    out: TextIO, ascii_mode: bool | None = None, *, width_without_terminal: int = 80
) -> Drawing:
    terminal = is_terminal(out)
    return Drawing(
        width=terminal_width(out) if terminal else width_without_terminal,
        colour=terminal and not os.environ.get("NO_COLOR") and not is_dumb(),
        unicode=_has_blocks(out) if ascii_mode is None else not ascii_mode,
    )


def _has_blocks(out: TextIO) -> bool:
    try:
        "█⣿─●±²".encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def open_output() -> TextIO:
    if sys.stdout is None:
        raise NoOutputError(
            "Standard output is closed, so there is nowhere to print to.", EXIT_OUTPUT
        )
    # A locale that lacks a character must not end the command.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    return sys.stdout


@contextmanager
def writing(path: str | None = None) -> Iterator[None]:
    """Turn what goes wrong with writing ``path`` (or standard output) into ``NoOutputError``, and
    ``ReaderGoneError`` for a pipe nobody reads."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGoneError from error
    except OSError as error:
        raise NoOutputError(cannot_write(error, path), EXIT_OUTPUT) from error


def cannot_write(error: OSError, path: str | None = None) -> str:
    what = "The output" if path is None else shown(path)
    return f"{what} cannot be written: {error.strerror or error}."


def print_text(text: str, out: TextIO | None = None) -> None:
    """Print ``text`` and the end of its line, flushed, to standard output."""
    out = out or open_output()
    with writing():
        out.write(text if text.endswith("\n") else text + "\n")
        out.flush()


def shown(path: str | Path) -> str:
    """Return a path as it can be put into a sentence."""
    return clean(str(path), 200)


def refuse_overwriting(out: str | None, *inputs: str) -> None:
    """Check that the recording that is read is not written to. Raises ``click.UsageError``."""
    if out is None or out == STANDARD_STREAM:
        return
    if not out:
        raise click.UsageError("The name of the file to write is empty.")
    for given in inputs:
        try:
            same = Path(out).samefile(given)
        except (OSError, ValueError):
            continue
        if same:
            raise click.UsageError(f"{shown(out)} is the recording itself: write elsewhere.")


def write_file(path: str, text: str) -> None:
    """Write a file whole or not at all: another file of that name is only replaced by the finished
    one. ``-`` is standard output. Raises ``NoOutputError``."""
    if path == STANDARD_STREAM:
        print_text(text)
        return
    target = Path(path)
    with writing(path):
        if target.exists() and not target.is_file():
            # A device or a pipe is written to, never replaced.
            target.write_text(text, encoding="utf-8")
        else:
            write_whole(target, text.encode())


@contextmanager
def text_file(path: str) -> Iterator[TextIO]:
    """Open a file to write rows to, gzip by its ending; ``-`` is standard output. Raises what
    ``writing`` raises."""
    if path == STANDARD_STREAM:
        with writing():
            out = open_output()
            yield out
            out.flush()
    else:
        with writing(path), open(path, "wb", opener=private) as raw, _text(raw, path) as file:
            yield file


def _text(raw: BinaryIO, path: str) -> TextIO:
    if path.endswith(".gz"):
        import gzip

        return cast("TextIO", gzip.open(raw, "wt", encoding="utf-8", newline=""))
    import io

    return io.TextIOWrapper(raw, encoding="utf-8", newline="")


class StatusLine:
    """One line on a terminal's standard error that says how it goes, and is gone at the end."""

    def __init__(self, seconds_apart: float, *, first_after_seconds: float = 0.0) -> None:
        self._shown = is_terminal(sys.stderr) and not is_dumb()
        self._seconds_apart = seconds_apart
        self._next = time.monotonic() + first_after_seconds
        self._width = 0

    @property
    def due(self) -> bool:
        """Whether what is shown now would be written."""
        return self._shown and time.monotonic() >= self._next

    def show(self, text: str) -> None:
        """Write ``text``, cut to the terminal, unless the last was a moment ago."""
        if not self.due:
            return
        self._next = time.monotonic() + self._seconds_apart
        line = text[: max(10, terminal_width(sys.stderr) - 1)]
        self._write(f"\r{line:<{self._width}}")
        self._width = len(line)

    def complain(self, sentence: str) -> None:
        self.end()
        complain(sentence)

    def end(self) -> None:
        if self._width:
            self._write(f"\r{'':<{self._width}}\r")
            self._width = 0

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            self._shown = False
