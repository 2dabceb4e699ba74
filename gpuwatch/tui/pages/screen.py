"""Screens that are one canvas, drawn whole from the view.

All screens are of one of these kinds: pages, lists with a cursor, sheets that scroll, dialogs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.screen import ModalScreen, Screen

from gpuwatch.core.text import clean
from gpuwatch.tui.charts.strips import Glyphs
from gpuwatch.tui.keys import Footer
from gpuwatch.tui.pages.layout import Frame, Title, boxed, edge, filled, has_boxes
from gpuwatch.tui.panels.bars import draw_footer, draw_header, draw_replay_bar, replay_rows
from gpuwatch.tui.panels.findings import keep_finding_in_sight, keys_in
from gpuwatch.tui.terminal.canvas import Canvas
from gpuwatch.tui.terminal.frame import Line, Row, Zone, blank, cut, fit, plain, width_of
from gpuwatch.tui.view import View

# -- screens ---------------------------------------------------------------------------------------


END = 1_000_000
"""Rows: beyond every end."""
_WHEEL_LINES = 3

CursorPlace = tuple[str, Any]
"""A kind of row, as its zones have it for an action, and the key of one."""


class CanvasScreen(Screen[None]):
    """Screen that is one canvas. Subclasses draw in ``redraw`` and hand the lines to
    ``show_lines``."""

    # The arrow and tab keys are ours: nothing here takes Textual's focus.
    AUTO_FOCUS = ""
    CANVAS_ID: ClassVar[str]

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        self.canvas = Canvas(view.palette, id=self.CANVAS_ID)
        self.shown = Frame(lines=[])

    def compose(self) -> ComposeResult:
        yield self.canvas

    def on_resize(self) -> None:
        self.redraw()

    def on_screen_resume(self) -> None:
        self.redraw()

    def drawn(self, width: int, height: int) -> Frame:
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw the view at the present size; only what changed goes to the terminal."""
        width, height = self.room
        if width and height:
            self.shown = self.drawn(width, height)
            keys, below = height - 1, self.size.height - height
            self.shown.zones = [
                zone._replace(y=zone.y + below) if zone.y == keys else zone
                for zone in self.shown.zones
            ]
            self.show_lines(self.shown.lines)

    @property
    def room(self) -> tuple[int, int]:
        """Width and height of the picture: the screen's, less the bar of a replay."""
        width, height = self.size
        return width, height - replay_rows(self.view, width, height)

    def show_lines(self, lines: list[Line]) -> None:
        """Show ``lines``, as wide as the screen, the bar of a replay above the keys, and over what
        is above both what is to be said for a moment; only what changed goes to the terminal."""
        width, height = self.size
        if self.view.message and len(lines) > 2:
            text = fit(self.view.message, width - 2, self.view.glyphs.ellipsis)
            said = Row(width, prefix="s:").add(f" {text}", "title").line()
            lines = [*lines[:-2], said, lines[-1]]
        lines = [*lines[:-1], *draw_replay_bar(self.view, width, height), *lines[-1:]]
        self.canvas.ascii_only = self.view.glyphs.is_ascii
        self.canvas.show(lines, width)

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Dismiss once: a second key that was on its way already is not for the screen below."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def action_back(self) -> None:
        self.dismiss()

    # -- the mouse --------------------------------------------------------------------------------

    async def on_click(self, event: events.Click) -> None:
        x, y = event.screen_x - self.shown.inset, event.screen_y
        # A chart is in the row of what it is about.
        for zone in [one for one in self.shown.zones if one.y == y and one.left <= x < one.right]:
            await self.clicked(zone, event)

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        """Do what the zone is for, where that is the same on every screen."""
        if zone.action == "moment":
            # The second click of two takes back the cursor that the first has set.
            x = event.screen_x - self.shown.inset
            point = f"app.point({x}, {zone.left}, {zone.right - zone.left})"
            await self.run_action(point if event.chain == 1 else "app.cursor")
        elif zone.action == "finding":
            self.view.finding = zone.argument  # type: ignore[assignment]
            await self.run_action("app.evidence")
        else:
            own = any(zone.action == one.action for one in self.BINDINGS)  # type: ignore[union-attr]
            await self.run_action(zone.action if own else f"app.{zone.action}")

    async def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        await self.wheel(event.screen_y, 1)

    async def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        await self.wheel(event.screen_y, -1)

    async def wheel(self, y: int, step: int) -> None:
        """Turn the wheel by one notch over the line ``y``."""


class ListScreen(CanvasScreen):
    """Screen on which a cursor runs through findings and other rows."""

    ROWS: ClassVar[str]
    """The kind of the rows of the page's table."""
    OPENS: ClassVar[Mapping[str, str]]
    """The kinds of rows that a click chooses, and the action of another click on the same."""

    @property
    def cursor(self) -> CursorPlace:
        """Return where the cursor is, whether or not that is still there."""
        raise NotImplementedError

    @property
    def chosen(self) -> object:
        """Return the key of the row of the table where the cursor is, or was last."""
        raise NotImplementedError

    def put(self, kind: str, key: Any) -> None:
        """Put the cursor there."""
        raise NotImplementedError

    def stops(self) -> list[CursorPlace]:
        """The places for the cursor, top to bottom."""
        return [*self._findings(), *[(self.ROWS, row.key) for row in self.shown.table]]

    def _findings(self) -> list[CursorPlace]:
        return [("finding", key) for key in keys_in(self.shown.zones)]

    def page(self, width: int, height: int) -> Frame:
        """Draw the page before the cursor of the findings is brought into sight."""
        raise NotImplementedError

    def drawn(self, width: int, height: int) -> Frame:
        frame = self.page(width, height)
        if keep_finding_in_sight(self.view, keys_in(frame.zones)):
            frame = self.page(width, height)
        return frame

    def position(self) -> int | None:
        """Return the place of the chosen row; ``None``: it is not there."""
        chosen = self.chosen
        places = (place for place, row in enumerate(self.shown.table) if row.key == chosen)
        return next(places, None)

    def select(self, position: int) -> None:
        """Choose the row at ``position``, or the nearest there is."""
        table = self.shown.table
        if table:
            self.put(self.ROWS, table[max(0, min(position, len(table) - 1))].key)

    def action_move(self, step: int) -> None:
        """Move the cursor up or down, through all rows."""
        here, stops = self.cursor, self.stops()
        if here in stops:
            place = min(stops.index(here) + step, len(stops) - 1)
        else:
            # Down leads to the first of its kind, if there is one, up to what is above that.
            alike = [number for number, (kind, _) in enumerate(stops) if kind == here[0]]
            place = min(alike, default=len(stops)) + min(0, step)
        if stops and place < len(stops):
            self.put(*stops[max(0, place)])
        self.redraw()

    def action_edge(self, end: int) -> None:
        self.action_move(END if end else -END)

    async def wheel(self, y: int, step: int) -> None:
        del y
        self.action_move(step)

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        stop = zone.action, zone.argument
        if zone.action not in self.OPENS:
            await super().clicked(zone, event)
            return
        again = stop == self.cursor and event.chain > 1
        self.put(*stop)
        self.redraw()
        if again:
            await self.run_action(self.OPENS[zone.action])


class ScrolledScreen(CanvasScreen):
    """Screen whose picture can be longer than the terminal. Subclasses draw from the line
    ``body_offset`` on, and set it to what was possible."""

    body_offset = 0

    def action_scroll_body(self, lines: int) -> None:
        self.body_offset += lines
        self.redraw()

    def action_scroll_page(self, step: int) -> None:
        self.action_scroll_body(step * max(1, self.size.height - 3))

    def action_scroll_edge(self, end: int) -> None:
        self.body_offset = END if end else 0
        self.redraw()

    async def wheel(self, y: int, step: int) -> None:
        del y
        self.action_scroll_body(step * _WHEEL_LINES)


# -- sheets ----------------------------------------------------------------------------------------


SheetBody = tuple[Sequence[Line], Sequence[Line], Sequence[Zone], Sequence[Line]]
"""Lines that stay in sight, those that scroll below them, and where these can be clicked; lines
that stay below them."""


def draw_sheet(
    view: View,
    width: int,
    height: int,
    title: Title,
    body: Callable[[int, int], SheetBody],
    keys: Footer,
    offset: int,
) -> tuple[Frame, int]:
    """Draw exactly ``height`` lines of exactly ``width`` cells, and return ``offset`` (how far the
    body is scrolled) brought into range. ``body`` is asked for a width and a number of rows."""
    boxes = has_boxes(width, height)
    inner = width - 2 * boxes
    room = max(0, height - 2 - 2 * boxes)
    top, rest, spots, bottom = body(inner, room)
    view.strips.forget_unused()
    room = max(0, room - len(top) - len(bottom))
    offset = max(0, min(offset, len(rest) - room))
    lines = filled([*top, *rest[offset : offset + room]], inner, len(top) + room)
    lines += bottom
    if boxes:
        ends = [edge(view.glyphs, inner, one)[0] for one in (title, Title())]
        lines = [*ends[0], *lines, *ends[1]]
    first = 1 + boxes + len(top)
    zones = [zone._replace(y=zone.y - offset + first) for zone in spots]
    zones = [zone for zone in zones if first <= zone.y < first + room]
    foot, pressed = draw_footer(view, inner, keys, max(0, len(rest) - room - offset))
    zones += [zone._replace(y=height - 1) for zone in pressed]
    lines = filled([draw_header(view, inner), *lines], inner, height - 1)
    lines = [*lines, foot]
    return Frame(boxed(lines, view.glyphs) if boxes else lines, zones, inset=int(boxes)), offset


# -- dialogs ---------------------------------------------------------------------------------------


CLOSES = {"escape,enter,q,question_mark,exclamation_mark,f1,h,e": ""}
_KEYS = ("escape", "enter", "question_mark", "exclamation_mark", "f1", *"ehilnqsy")
"""All that any dialog takes for an answer."""
_SCROLLS = {
    **{"up": "-1", "down": "1", "pageup": "-10", "pagedown": "10"},
    **{"home": "-10000", "end": "10000"},
}
WIDTH = 76
"""Cells of text that a person reads in lines, where there is room."""
FRAME_CELLS = 4
"""An edge and a blank on both sides."""
_LEAST_BESIDE = 16
"""Cells beside a dialog below which nothing is shown there: pieces of frames look like a fault."""
_END = 100_000


def _in_grey(line: Line) -> Line:
    """Return ``line`` without its colours, but for the tones of charts."""
    return tuple([(text, "edge" + "".join(style.partition(".")[1:])) for text, style in line])


class Dialog(ModalScreen[str]):
    """A framed ``text`` (its styles are names, as on bars) that scrolls when it must, and ends with
    what the key pressed stands for in ``answers`` (keys as Textual names them, comma separated). A
    click closes it unless it is a question: only keys decide there."""

    DEFAULT_CSS = "Dialog { background: $background; }"
    CELLS_MOST: ClassVar[int] = WIDTH
    """Cells of text, where there is room."""
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
        """The text of the page, in lines of ``width`` cells."""
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
        inner = max(1, min(self.CELLS_MOST, width - FRAME_CELLS))
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
        self.canvas.ascii_only = self._glyphs.is_ascii
        self.canvas.show(self._over(self._behind(width, height), lines), width)

    @property
    def _glyphs(self) -> Glyphs:
        return self._view.glyphs

    def _edge(self, text: str, inner: int, corners: int) -> Line:
        """Draw an edge: at the top with its text to the left, at the bottom to the right."""
        glyphs = self._glyphs
        word = f" {fit(text, inner - 2, glyphs.ellipsis)} "
        rules = [glyphs.rule, glyphs.rule * (inner + 1 - width_of(word))]
        before, after = reversed(rules) if corners else rules
        row = Row(inner + FRAME_CELLS).add(glyphs.corners[corners] + before, "b:accent")
        row.add(word, "b:title").add(after + glyphs.corners[corners + 1], "b:accent")
        return row.line("b:accent")

    def _side(self, y: int, rows: int, lines: int) -> tuple[str, str]:
        """Return the right edge, in which a bar says what part of the text is in sight."""
        start = self._first * rows // lines if lines else 0
        if lines > rows and start <= y <= start + rows * rows // lines:
            return self._glyphs.thumb, "b:label"
        return self._glyphs.separator, "b:accent"

    def _behind(self, width: int, height: int) -> list[Line]:
        """Return the lines of the screen behind in grey, where it has been drawn at this size."""
        screens = [one for one in self.app.screen_stack if isinstance(one, CanvasScreen)]
        lines = list(screens[-1].canvas.lines) if screens else []
        fits = len(lines) == height and screens[-1].size.width == width
        return list(map(_in_grey, lines)) if fits else [blank(width)] * height

    def _over(self, behind: list[Line], lines: list[Line]) -> list[Line]:
        box = self.box
        for y, line in enumerate(lines, box.y):
            beside = behind[y]
            text = plain(beside)
            if width_of(text) != len(text) or self.size.width - box.width < _LEAST_BESIDE:
                # A character of two cells could be cut in half.
                beside = blank(self.size.width)
            behind[y] = (*cut(beside, 0, box.x), *line, *cut(beside, box.right, _END))
        return behind

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "answer" or parameters[0] in self._answers

    def dismiss(self, result: str | None = None) -> AwaitComplete:
        """Dismiss once: a second key that was on its way already is not for the screen below."""
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
