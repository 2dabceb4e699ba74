"""What reaches the terminal: only what changed, and exactly what is meant."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import ColorSystem

from gpuwatch.tui.terminal.canvas import changed_spans
from gpuwatch.tui.terminal.frame import Line, plain, width_of
from gpuwatch.tui.terminal.output import Encoder, difference
from gpuwatch.tui.terminal.palette import GPUWATCH_DARK, Palette
from tests.tui.driving import Driven, driven
from tests.tui.scenes import scene
from tests.tui.terminal.emulator import AppOnTerminal, Terminal, expected_cells

WIDTH = 60
STYLES = ("text", "value", "dim", "busy", "busy.1", "busy.4", "warn", "s:text", "b:label", "rule")
# Charts, digits, wide characters, emoji. (What combines with its neighbour does not pass here as
# pyte and a real terminal count it differently.)
WORDS = st.sampled_from(
    [
        "47%",
        "31.2/139.8G",
        " ",
        "   ",
        "▁▂▃▄▅▆▇█",
        "⣿⡇",
        "python train.py",
        "漢字",
        "🚀",
        "é",
        "│",
        "…",
    ]
)

RUNS = st.lists(st.tuples(WORDS, st.sampled_from(STYLES)), max_size=12)


def line_of(runs: list[tuple[str, str]]) -> Line:
    """``runs`` cut and padded to exactly ``WIDTH`` cells."""
    out: list[tuple[str, str]] = []
    used = 0
    for text, style in runs:
        if used + width_of(text) > WIDTH:
            break
        out.append((text, style))
        used += width_of(text)
    return (*out, (" " * (WIDTH - used), "text")) if used < WIDTH else tuple(out)


LINES = RUNS.map(line_of)


@st.composite
def changes(draw: st.DrawFn) -> tuple[Line, Line]:
    """A line and what became of it: another line, or a small change, as frames mostly bring."""
    before = draw(RUNS)
    if draw(st.booleans()):
        return line_of(before), draw(LINES)
    after = list(before)
    for _ in range(draw(st.integers(0, 3))):
        if after:
            place = draw(st.integers(0, len(after) - 1))
            after[place] = (draw(WORDS), draw(st.sampled_from(STYLES)))
    return line_of(before), line_of(after)


def cells_of(line: Line) -> list[tuple[str, str]]:
    """Each cell's character (a wide one's second cell is empty) and style."""
    out = []
    for text, style in line:
        for character in text:
            out.append((character, style))
            out.extend([("", style)] * (width_of(character) - 1))
    return out


@given(changes())
def test_spans_hold_every_cell_that_differs(change: tuple[Line, Line]) -> None:
    """Spans ascend, stay apart and within the line, and outside them nothing differs."""
    before, after = change
    spans = changed_spans(before, after)
    assert all(0 <= start < end <= WIDTH for start, end in spans)
    assert all(one[1] < other[0] for one, other in pairwise(spans))
    old, new = cells_of(before), cells_of(after)
    inside = {x for start, end in spans for x in range(start, end)}
    assert {x for x in range(WIDTH) if old[x] != new[x]} <= inside


@given(LINES)
def test_a_line_that_did_not_change_has_no_spans(line: Line) -> None:
    """Nor has one whose runs are only split differently, unless it has letters that might be
    wide."""
    assert changed_spans(line, line) == []
    split = tuple((character, style) for text, style in line for character in text)
    if not set(plain(line)) & set("é漢字🚀"):
        assert changed_spans(line, split) == []


@settings(max_examples=150)
@given(
    st.lists(changes(), min_size=1, max_size=3),
    st.sampled_from([ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD, None]),
)
def test_writing_only_the_spans_gives_the_new_lines(
    lines: list[tuple[Line, Line]], colours: ColorSystem | None
) -> None:
    """A terminal that shows the old lines and is sent the changes shows the new ones, every
    character and colour, and is left with its style reset."""
    palette = Palette(GPUWATCH_DARK)
    encoder = Encoder(palette, colours)
    terminal = Terminal(WIDTH, len(lines))
    everything = [(y, before, [(0, WIDTH)]) for y, (before, _) in enumerate(lines)]
    terminal.feed(encoder.encode(everything))
    for y, (before, _) in enumerate(lines):
        assert terminal.cells(y) == expected_cells(before, palette, colours)
    updates = [(y, after, changed_spans(before, after)) for y, (before, after) in enumerate(lines)]
    terminal.feed(encoder.encode([update for update in updates if update[2]]))
    for y, (_, after) in enumerate(lines):
        assert terminal.cells(y) == expected_cells(after, palette, colours)
    terminal.feed("\x1b[1;1HX")
    assert terminal.cells(0)[0] == ("X", "default", "default", False, False)


ATTRIBUTES = [";".join(codes) for n in range(5) for codes in combinations(("1", "2", "4", "7"), n)]


@pytest.mark.parametrize("before", ATTRIBUTES)
def test_from_any_style_to_any_other(before: str) -> None:
    """Attributes and colours are put on and taken back, also where one code takes back two."""
    for after in ATTRIBUTES:
        for colours in (("31", ""), ("", "48;2;1;2;3"), ("", "")):
            terminal, plain_one = Terminal(1, 1), Terminal(1, 1)
            terminal.feed(f"\x1b[{before + ';' if before else ''}32;44m")
            terminal.feed(difference((before, "32", "44"), (after, *colours)) + "x")
            wanted = ";".join(["0", *filter(None, (after, *colours))])
            plain_one.feed(f"\x1b[{wanted}mx")
            assert terminal.screen.buffer[0][0] == plain_one.screen.buffer[0][0], after


@pytest.mark.parametrize("colours", [ColorSystem.TRUECOLOR, ColorSystem.STANDARD, None])
def test_a_digit_that_changes_is_a_few_bytes(colours: ColorSystem | None) -> None:
    """47% to 48% on a full line: where, in which colour, the digit, and a reset."""
    palette = Palette(GPUWATCH_DARK)
    before: Line = (("  busy ", "label"), ("         47% ", "value"), ("▁▇" * 20, "busy"))
    after: Line = (before[0], ("         48% ", "value"), before[2])
    spans = changed_spans(before, after)
    assert spans == [(17, 18)]
    assert len(Encoder(palette, colours).encode([(3, after, spans)]).encode()) < 60


# -- the whole application --------------------------------------------------------------------


def check(drive: Driven, theme_colours: ColorSystem = ColorSystem.TRUECOLOR) -> None:
    """The terminal shows the canvas, cell by cell, colours included."""
    app = drive.app
    assert isinstance(app, AppOnTerminal)
    assert app.terminal.lines == drive.lines
    for y, line in enumerate(drive.front.canvas.lines):
        assert app.terminal.cells(y) == expected_cells(line, app.drawing.palette, theme_colours), y


@pytest.mark.parametrize(
    ("scenario", "size"),
    [("starved", (120, 40)), ("lost", (40, 12))],
    ids=str,
)
async def test_the_terminal_shows_what_was_drawn(scenario: str, size: tuple[int, int]) -> None:
    """After snapshots, keys, other screens and dialogs the terminal shows exactly the lines and
    colours of the last drawing: nothing is left behind and nothing is missed."""
    async with driven(scene(scenario, 2), size, app_type=AppOnTerminal) as drive:
        assert drive.app.console.color_system == "truecolor"
        check(drive)
        for keys in (
            (),
            ("tab", "down"),
            ("right_square_bracket",),
            ("t", "s", "s"),
            ("A",),
            ("p",),
            ("A", "p"),
            ("j",),
            ("t",),
            ("R",),
            ("escape", "escape"),
        ):
            await drive.press(*keys)
            check(drive)
        await drive.next()
        check(drive)
        await drive.press("question_mark")
        await drive.next()
        await drive.press("escape")
        check(drive)
        await drive.press("enter")
        check(drive)
        await drive.next()
        check(drive)
        await drive.press("escape")
        check(drive)
        await drive.press("T")
        check(drive)
        await drive.next()
        check(drive)


async def test_the_dashboard_stays_in_sight_behind_a_dialog() -> None:
    """A dialog covers its own place only: around it the dashboard goes on, SIMULATED with it."""
    async with driven(scene("starved", 2), (120, 40), app_type=AppOnTerminal) as drive:
        app = drive.app
        assert isinstance(app, AppOnTerminal)
        await drive.press("exclamation_mark")
        assert drive.dialog is not None
        assert app.terminal.lines[:2] == drive.lines[:2]
        await drive.next()
        assert app.terminal.lines[0] == drive.lines[0]


async def test_a_refresh_is_a_small_part_of_the_first_picture() -> None:
    """A second's changes cost a fraction of the bytes of a whole screen."""
    async with driven(scene("healthy", 8), (200, 50), app_type=AppOnTerminal) as drive:
        app = drive.app
        assert isinstance(app, AppOnTerminal)
        first = app.terminal.written
        seconds = 6
        for _ in range(seconds):
            await drive.next()
        assert (app.terminal.written - first) / seconds < 9000
        assert (app.terminal.written - first) / seconds < first / 3


async def test_a_slow_link_gets_fewer_bytes() -> None:
    """With the same snapshots a slow link is sent less than half."""
    written = {}
    for slow in (False, True):
        async with driven(
            scene("starved", 8), (120, 40), slow_link=slow, app_type=AppOnTerminal
        ) as drive:
            app = drive.app
            assert isinstance(app, AppOnTerminal)
            first = app.terminal.written
            for _ in range(6):
                await drive.next()
            written[slow] = app.terminal.written - first
    assert written[True] < written[False] / 2
