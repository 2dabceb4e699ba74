"""A small window over the dashboard: a text, and keys that end it with an answer.

It is drawn on a canvas of its own, over what the screen behind it shows: Textual's widgets for this
take 4 MiB and 30 times the bytes of what changes behind it.
"""

from collections.abc import Mapping
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.screen import ModalScreen

from gpuwatch.core.text import clean
from gpuwatch.tui.charts.glyphs import ASCII, Glyphs
from gpuwatch.tui.screens.canvas_screen import CanvasScreen
from gpuwatch.tui.terminal.canvas import Canvas
from gpuwatch.tui.terminal.frame import Line, Row, blank, cut, fit, plain, width_of
from gpuwatch.tui.view import View

CLOSES = {"escape,enter,q,question_mark,exclamation_mark,f1,h,e": ""}
_KEYS = ("escape", "enter", "question_mark", "exclamation_mark", "f1", *"ehilnqsy")
"""All that any dialog takes for an answer."""
_SCROLLS = {
    **{"up": "-1", "down": "1", "pageup": "-10", "pagedown": "10"},
    **{"home": "-10000", "end": "10000"},
}
WIDTH = 76
"""Cells of text, where there is room."""
FRAME_CELLS = 4
"""An edge and a blank on both sides."""
_END = 100_000


class Dialog(ModalScreen[str]):
    """A framed ``text`` (its styles are names, as on bars) that scrolls when it must, and ends with
    what the key pressed stands for in ``answers`` (keys as Textual names them, comma separated). A
    click closes it unless it is a question: only keys decide there."""

    DEFAULT_CSS = "Dialog { background: $background; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        *[Binding(key, f"answer('{key}')", show=False) for key in _KEYS],
        *[Binding(key, f"scroll({lines})", show=False) for key, lines in _SCROLLS.items()],
    ]
    AUTO_FOCUS = ""

    def __init__(
        self,
        view: View,
        title: str,
        text: Text,
        hint: str | None = None,
        answers: Mapping[str, str] = CLOSES,
    ) -> None:
        super().__init__()
        # It can cover the header, where it also says that all this is simulated.
        simulated = view.snapshot is not None and view.snapshot.simulated
        self.labels = (title, hint or ("SIMULATED, esc closes" if simulated else "esc closes"))
        self._view = view
        self._answers = {key: what for keys, what in answers.items() for key in keys.split(",")}
        self._closes = answers is CLOSES
        self._words = text
        self._first = 0
        """The line of the text that is at the top."""
        self.canvas = Canvas(view.palette)
        self.box = Region()
        """The window, edges and all."""

    @property
    def text(self) -> str:
        return self._words.plain

    def compose(self) -> ComposeResult:
        yield self.canvas

    def on_resize(self) -> None:
        self.redraw()

    def lines(self, width: int) -> list[Line]:
        """All of its text, in lines of ``width`` cells."""
        lines = []
        for line in self._words.wrap(self.app.console, width):
            row = Row(width, prefix="b:")
            # Character for character: the spans stay where they are.
            shown, at = clean(line.plain), 0
            for start, stop, style in line.spans:
                row.add(shown[at:start]).add(shown[max(at, start) : stop], str(style))
                at = max(at, stop)
            lines.append(row.add(shown[at:]).line())
        return lines

    def redraw(self) -> None:
        """Draw the window over what is behind it now."""
        width, height = self.size
        if not (self.is_running and width and height):
            return
        inner = max(1, min(WIDTH, width - FRAME_CELLS))
        text = self.lines(inner)
        rows = max(1, min(len(text), height - 2))
        self._first = max(0, min(self._first, len(text) - rows))
        lines = []
        for y, line in enumerate(text[self._first : self._first + rows]):
            row = Row(inner + FRAME_CELLS).add(f"{self._glyphs.separator} ", "b:accent")
            row.add_runs(line, inner).pad_to(inner + 3, "b:text")
            lines.append(row.add(*self._side(y, rows, len(text))).line("b:text"))
        title, hint = self.labels
        top, bottom = self._edge(title, inner, 0), self._edge(hint, inner, 4)
        lines = [top, *lines, bottom][:height]
        x, y = max(0, width - inner - FRAME_CELLS) // 2, (height - len(lines)) // 2
        self.box = Region(x, y, inner + FRAME_CELLS, len(lines))
        self.canvas.ascii_only = self._glyphs is ASCII
        self.canvas.show(self._over(self._behind(width, height), lines), width)

    @property
    def _glyphs(self) -> Glyphs:
        return self._view.glyphs

    def _edge(self, text: str, inner: int, corners: int) -> Line:
        """At the top with its text to the left, at the bottom to the right."""
        glyphs = self._glyphs
        word = f" {fit(text, inner - 2, glyphs.ellipsis)} "
        rules = [glyphs.rule, glyphs.rule * (inner + 1 - width_of(word))]
        before, after = reversed(rules) if corners else rules
        row = Row(inner + FRAME_CELLS).add(glyphs.corners[corners] + before, "b:accent")
        row.add(word, "b:title").add(after + glyphs.corners[corners + 1], "b:accent")
        return row.line("b:accent")

    def _side(self, y: int, rows: int, lines: int) -> tuple[str, str]:
        """The right edge, in which a bar says what part of the text is in sight."""
        start = self._first * rows // lines if lines else 0
        if lines > rows and start <= y <= start + rows * rows // lines:
            return self._glyphs.solid[8], "b:label"
        return self._glyphs.separator, "b:accent"

    def _behind(self, width: int, height: int) -> list[Line]:
        """What the screen behind shows, where it has been drawn at this size."""
        screens = [one for one in self.app.screen_stack if isinstance(one, CanvasScreen)]
        lines = list(screens[-1].canvas.lines) if screens else []
        fits = len(lines) == height and screens[-1].size.width == width
        return lines if fits else [blank(width)] * height

    def _over(self, behind: list[Line], lines: list[Line]) -> list[Line]:
        box = self.box
        for y, line in enumerate(lines, box.y):
            beside = behind[y]
            text = plain(beside)
            if width_of(text) != len(text):
                # A character of two cells could be cut in half.
                beside = blank(self.size.width)
            behind[y] = (*cut(beside, 0, box.x), *line, *cut(beside, box.right, _END))
        return behind

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "answer" or parameters[0] in self._answers

    def dismiss(self, result: str | None = None) -> AwaitComplete:
        """Once: a second key that was on its way already is not for the screen below."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def action_answer(self, key: str) -> None:
        self.dismiss(self._answers[key])

    def action_scroll(self, lines: int) -> None:
        self._first += lines
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        del event
        if self._closes:
            self.dismiss("")

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll(-3)
