"""The output of a job, followed in its file and made readable, at little cost.

``OutputTail`` reads the file's new bytes; ``Screen`` turns them into lines. The bytes are
hostile: whatever a terminal could obey is obeyed here, as far as lines go (a progress bar
overwrites its line, a few lines of bars move the cursor up), or taken out.
"""

import codecs
import os
import re
from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from gpuwatch.core.text import clean
from gpuwatch.core.units import size

LINES_KEPT = 5000
LINE_CHARACTERS = 2000
"""A longer line is cut; nobody reads it in a pane."""
_CHARACTERS_KEPT = 2_000_000

READ_BYTES = 256 * 1024
"""Taken by one ``poll`` at most. A job that prints faster has its last part shown: nobody could
read the rest, and the file has it all."""

_ROWS_UP = 100
"""How far above the last line the cursor can move: a terminal's height, and then some."""
_TAB = 8
_UNFINISHED_CHARACTERS = 65536

# ECMA-48: CSI with its parameters; other escapes with their intermediates; single controls, an
# escape that begins nothing among them. The strings (OSC, DCS, SOS, PM, APC) end in BEL or ST.
_CONTROL = re.compile(
    r"\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|(?P<control>[\x00-\x1f\x7f])"
)
# The beginning of one of those where the text that has come so far ends.
_STRING = re.compile(r"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)")
# More digits than any terminal has rows or columns are no number.
_NUMBERS = re.compile(r"(?:[0-9]{0,4};)*[0-9]{0,4}")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z")


class LineScreen:
    """Lines as a terminal without colours and of endless height would show them, numbered from the
    first that was seen."""

    def __init__(self, lines_kept: int = LINES_KEPT) -> None:
        self.first = 0
        """The number of the oldest line kept."""
        self._rows = deque([""])
        self._kept = lines_kept
        self._characters = 0
        self._up = 0
        """How far the cursor is above the last row."""
        self._column = 0
        self._unfinished = ""

    @property
    def total(self) -> int:
        """The lines so far: up to the cursor's, and those below it with anything in them."""
        rows, empty = self._rows, 0
        while empty <= self._up and not rows[-1 - empty]:
            empty += 1
        return self.first + len(rows) - empty

    def lines(self, first: int, count: int) -> Sequence[str]:
        """At most ``count`` lines from number ``first`` (or the oldest kept) on, safe to show."""
        start = max(0, first - self.first)
        end = min(start + count, self.total - self.first)
        return list(islice(self._rows, start, end)) if end > start else []

    def feed(self, text: str) -> None:
        """Take what was printed next; escapes and lines may be cut anywhere."""
        if self._unfinished:
            text = self._unfinished + text
            self._unfinished = ""
        if "\x1b" in text:
            cut = _UNFINISHED.search(text, max(0, len(text) - _UNFINISHED_CHARACTERS))
            if cut is not None:
                self._unfinished, text = cut.group(), text[: cut.start()]
            # The strings may hold line feeds, which are no lines. What is left in their place does
            # nothing, but keeps apart what stood before and behind.
            text = _STRING.sub("\0", text)
        *whole, rest = text.split("\n")
        for line in whole:
            self._write(line[:-1] if line.endswith("\r") else line)
            self._next_row()
        if rest:
            self._write(rest)
        self._forget()

    def interrupt(self, note: str) -> None:
        """Put ``note`` on a line of its own; what follows has nothing to do with what was."""
        self._unfinished = ""
        self._fresh_row()
        self._put(note)
        self._next_row()

    def _write(self, text: str) -> None:
        """Text without a line feed."""
        if text.isprintable():
            if text:
                self._put(text)
            return
        done = 0
        for match in _CONTROL.finditer(text):
            if match.start() > done:
                self._put(text[done : match.start()])
            done = match.end()
            if (control := match["control"]) is not None:
                self._obey_control(control)
            elif (final := match["final"]) is not None:
                self._obey(final, match["parameters"])
        if done < len(text):
            self._put(text[done:])

    def _put(self, text: str) -> None:
        """Write at the cursor, over what is there."""
        column = self._column
        room = LINE_CHARACTERS - column
        self._column = min(LINE_CHARACTERS, column + len(text))
        if room <= 0:
            return
        if len(text) > room:
            text = text[:room]
        if not text.isprintable():
            text = clean(text)
        row = self._rows[-1 - self._up]
        if column < len(row):
            text = row[:column] + text + row[column + len(text) :]
        elif column:
            text = row.ljust(column) + text
        self._set(self._up, text)

    def _set(self, up: int, text: str) -> None:
        self._characters += len(text) - len(self._rows[-1 - up])
        self._rows[-1 - up] = text

    def _next_row(self) -> None:
        self._column = 0
        if self._up:
            self._up -= 1
        else:
            self._rows.append("")

    def _fresh_row(self) -> None:
        self._up = self._column = 0
        if self._rows[-1]:
            self._rows.append("")

    def _forget(self) -> None:
        rows = self._rows
        while len(rows) > self._kept + 1 or self._characters > _CHARACTERS_KEPT:
            self._characters -= len(rows.popleft())
            self.first += 1
        self._up = min(self._up, len(rows) - 1)

    def _obey_control(self, control: str) -> None:
        column = self._column
        to = {"\r": 0, "\b": max(0, column - 1), "\t": (column // _TAB + 1) * _TAB}
        self._column = min(LINE_CHARACTERS, to.get(control, column))

    def _obey(self, final: str, parameters: str) -> None:
        """Do what a CSI does to lines; colours, modes, questions and the rest do nothing."""
        if final == "m" or not _NUMBERS.fullmatch(parameters):
            return
        first = parameters.partition(";")[0]
        number = int(first) if first else 0
        if final in "ABEF":
            up = self._up + (number or 1) * (1 if final in "AF" else -1)
            self._up = max(0, min(up, _ROWS_UP, len(self._rows) - 1))
            if final in "EF":
                self._column = 0
        elif final in "CDG":
            to = {"C": self._column + (number or 1), "D": self._column - (number or 1)}
            self._column = max(0, min(LINE_CHARACTERS, to.get(final, number - 1)))
        elif final == "K":
            self._erase_in_row(number)
        elif final == "J" and number == 0:
            self._erase_in_row(0)
            for below in range(self._up):
                self._set(below, "")
        elif final in "HfJ":
            # A screen drawn as a whole: there is none here, so it goes below what there is.
            self._fresh_row()

    def _erase_in_row(self, mode: int) -> None:
        row, column = self._rows[-1 - self._up], self._column
        left = {0: row[:column], 1: " " * min(column, len(row)) + row[column:], 2: ""}
        self._set(self._up, left.get(mode, row))


class OutputTail(LineScreen):
    """The last lines of a file that is being written. For one thread."""

    def __init__(self, path: Path, *, lines_kept: int = LINES_KEPT) -> None:
        super().__init__(lines_kept)
        self.path = path
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._descriptor: int | None = None
        self._offset = 0

    def poll(self) -> bool:
        """Take what has been written since; whether anything was. A file that is not there (yet)
        has nothing in it, and one that was cut short is read from its start."""
        try:
            data = self._read()
        except OSError:
            return False
        if data:
            self.feed(self._decoder.decode(data))
        return bool(data)

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

    def say(self, what: str) -> None:
        """A line of gpuwatch's own among those of the job."""
        self._decoder.reset()
        self.interrupt(f"[... {what} ...]")
