"""A page for a terminal: lines that fit, painted where there are colours."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from gpuwatch.outputs.terminal.table import Column, cell_width, table, wrap

BOLD, DIM, RED, YELLOW, CYAN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[36m"
COLOURS = {"error": RED, "warning": YELLOW, "info": CYAN}
"""Of a finding, by its severity."""
ASCII_FRAME = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++|+++-|")
"""For the frames of charts."""
_RESET = "\x1b[0m"
_ASCII = str.maketrans({"…": "~", "·": "-", "→": ">", "×": "x"})

Item = TypeVar("Item")

LABEL = 10
"""Cells of what stands before a line that is labelled."""
_KEEP = "\ue000"


class Page:
    """Filled from the top; ``lines`` is what stands on it."""

    def __init__(self, width: int, colour: bool) -> None:
        self.lines: list[str] = []
        self.width = width
        self._colour = colour

    def text(self, unicode: bool) -> str:
        text = "\n".join(self.lines).rstrip("\n")
        return text if unicode else text.translate(_ASCII).encode("ascii", "replace").decode()

    def paint(self, text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if self._colour and text and style else text

    def gap(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def say(self, text: str, *, style: str = "", first: str = "", later: str = "") -> None:
        lines = wrap(text, self.width, first=first, later=later)
        self.lines += [self.paint(line, style) for line in lines]

    def facts(
        self, facts: Iterable[str], between: str = ", ", *, style: str = "", later: str = ""
    ) -> None:
        """In one line where there is room; no line ends within a fact that fits one."""
        kept = between.join(fact.replace(" ", _KEEP) for fact in facts)
        lines = wrap(kept, self.width, later=later)
        self.lines += [self.paint(line.replace(_KEEP, " "), style) for line in lines]

    def labelled(self, label: str, text: str, mark: str = "") -> None:
        """``  Because   - busy 47% ...``, wrapped under itself."""
        first = f"  {label:<{LABEL}}{mark}"
        self.say(text, first=first, later=" " * cell_width(first))

    def table(self, columns: Sequence[Column[Any]], rows: Sequence[Sequence[str]]) -> None:
        titles, *lines = table(columns, rows, self.width)
        self.lines += [self.paint(titles, BOLD), *lines]

    def items(
        self,
        columns: Sequence[Column[Item]],
        items: Sequence[Item],
        *,
        style: Callable[[Item], str] = lambda _item: "",
        below: Callable[[Item], Iterable[str]] = lambda _item: (),
    ) -> None:
        """A row each, painted in its ``style``, with what stands ``below`` it."""
        rows = [[column.cell(item) for column in columns] for item in items]
        titles, *lines = table(columns, rows, self.width)
        self.lines.append(self.paint(titles, BOLD))
        for item, line in zip(items, lines, strict=True):
            self.lines += [self.paint(line, style(item)), *below(item)]
