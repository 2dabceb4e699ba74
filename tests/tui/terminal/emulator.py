"""A terminal for tests: what was written to it, as text and colours (pyte does the emulating)."""

import pyte
from rich.color import ColorSystem
from textual.drivers.headless_driver import HeadlessDriver

from gpuwatch.tui.app import GpuwatchApp
from gpuwatch.tui.terminal.canvas import sgr
from gpuwatch.tui.terminal.frame import Line, width_of
from gpuwatch.tui.terminal.palette import Palette

Cell = tuple[str, str, str, bool, bool]
"""Character, foreground, background, bold, reversed."""


class Terminal:
    """Takes what an application writes."""

    def __init__(self, width: int, height: int) -> None:
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.Stream(self.screen)
        self.written = 0

    def feed(self, data: str) -> None:
        self.written += len(data.encode())
        self._stream.feed(data)

    @property
    def lines(self) -> list[str]:
        return [str(line) for line in self.screen.display]

    def cells(self, y: int) -> list[Cell]:
        row = self.screen.buffer[y]
        cells = [row[x] for x in range(self.screen.columns)]
        return [(c.data, c.fg, c.bg, c.bold, c.reverse) for c in cells]


class TerminalDriver(HeadlessDriver):
    """Gives an application that is driven by a test a terminal to write to."""

    terminal: Terminal

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.terminal.feed(data)


class AppOnTerminal(GpuwatchApp):
    """The application, writing to the terminal in ``self.terminal``."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.terminal: Terminal

    def _build_driver(self, headless, inline, mouse, size):  # type: ignore[no-untyped-def]
        driver = TerminalDriver(self, debug=False, mouse=mouse, size=size)
        self.terminal = driver.terminal = Terminal(*size)
        return driver


def expected_cells(line: Line, palette: Palette, colours: ColorSystem | None) -> list[Cell]:
    """The cells a line should have on a terminal: each character at its place in its own style,
    written naively, run by run."""
    terminal = Terminal(max(1, sum(width_of(text) for text, _ in line)), 1)
    for text, name in line:
        codes = ";".join(["0", *filter(None, sgr(palette[name], colours))])
        terminal.feed(f"\x1b[{codes}m{text}")
    return terminal.cells(0)
