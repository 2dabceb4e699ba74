"""A page for a terminal: lines that fit, painted where there are colours."""

from collections.abc import Sequence

from gpuwatch.outputs.terminal.painting import BOLD, DIM, painter, to_ascii
from gpuwatch.outputs.terminal.table import Heading, cell_width, table, wrap

LABEL = 10
"""Cells of what stands before a line that is labelled."""


class Page:
    """Filled from the top; ``lines`` is what stands on it."""

    def __init__(self, width: int, colour: bool) -> None:
        self.lines: list[str] = []
        self.width = width
        self.paint = painter(colour)

    def text(self, unicode: bool) -> str:
        text = "\n".join(self.lines).rstrip("\n")
        return text if unicode else to_ascii(text)

    def gap(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def say(self, text: str, *, style: str = "", first: str = "", later: str = "") -> None:
        lines = wrap(text, self.width, first=first, later=later)
        self.lines += [self.paint(line, style) for line in lines]

    def bold(self, text: str) -> None:
        self.say(text, style=BOLD)

    def dim(self, text: str) -> None:
        self.say(text, style=DIM)

    def labelled(self, label: str, text: str, mark: str = "") -> None:
        """``  Because   - busy 47% ...``, wrapped under itself."""
        first = f"  {label:<{LABEL}}{mark}"
        self.say(text, first=first, later=" " * cell_width(first))

    def table(self, headings: Sequence[Heading], rows: Sequence[Sequence[str]]) -> None:
        titles, *lines = table(headings, rows, self.width)
        self.lines += [self.paint(titles, BOLD), *lines]
