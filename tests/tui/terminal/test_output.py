"""What reaches the terminal: only what changed, and exactly what is meant."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem

from gpuwatch.tui.terminal.canvas import Encoder, difference
from gpuwatch.tui.terminal.canvas import changes as found
from gpuwatch.tui.terminal.frame import Line, plain, width_of
from gpuwatch.tui.terminal.palette import GPUWATCH_DARK, Palette
from tests.tui.driving import Driven, driven
from tests.tui.scenes import scene
from tests.tui.terminal.emulator import AppOnTerminal, Terminal, expected_cells

WIDTH = 60
STYLES = ("text", "value", "dim", "fed", "fed.1", "fed.4", "warn", "s:text", "b:label", "rule")
# Charts, digits, wide characters, emoji. (What combines with its neighbour does not pass here as
# pyte and a real terminal count it differently.)
WIDE = ("漢字", "🚀", "é", "◽")
WORDS = st.sampled_from(
    ["47%", "31.2/139.8G", " ", "   ", "▁▂▃▄▅▆▇█", "⣿⡇", "python train.py", *WIDE, "│", "…"]
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
    """A line and what became of it: another line, a chart that moved on, or a small change, as
    frames mostly bring."""
    before = draw(RUNS)
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return line_of(before), draw(LINES)
    if kind == 1:
        cells = st.tuples(st.sampled_from("▁▃▅▇"), st.sampled_from(STYLES[3:6]))
        chart = draw(st.lists(cells, min_size=50, max_size=60))
        cut = draw(st.integers(0, 12))
        head = [(f"{draw(st.integers(10, 99))}%", "value")]
        return line_of([("47%", "value"), *chart[: 50 - cut]]), line_of([*head, *chart[cut:]])
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
def test_every_cell_that_differs_is_written(change: tuple[Line, Line]) -> None:
    """Pieces ascend, stay apart and within the line, and outside them nothing differs, once what
    moved has moved."""
    before, after = change
    move, pieces = found(before, after)
    spans = [(x, x + width_of(text)) for x, text, _ in pieces]
    assert all(0 <= start < end <= WIDTH for start, end in spans)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    old, new = cells_of(before), cells_of(after)
    if move is not None:
        del old[move.start : move.start + move.cells]
        old[move.stop - move.cells : move.stop - move.cells] = [("", "")] * move.cells
    inside = {x for start, end in spans for x in range(start, end)}
    assert {x for x in range(WIDTH) if old[x] != new[x]} <= inside


@given(LINES)
def test_of_a_line_that_did_not_change_nothing_is_written(line: Line) -> None:
    """Nor of one whose runs are only split differently, unless it has letters that might be
    wide."""
    assert found(line, line)[1] == []
    assert found((), line)[1]
    assert not found(line, ())[1]
    split = tuple((character, style) for text, style in line for character in text)
    if not set(plain(line)) & set("".join(WIDE)):
        assert found(line, split)[1] == []


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
    unknown: Line = (("\0" * WIDTH, ""),)
    terminal.feed(encoder.encode([(y, unknown, one) for y, (one, _) in enumerate(lines)], WIDTH))
    for y, (before, _) in enumerate(lines):
        assert terminal.cells(y) == expected_cells(before, palette, colours)
    terminal.feed(encoder.encode([(y, *one) for y, one in enumerate(lines)], WIDTH))
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
    before: Line = (("  busy ", "label"), ("         47% ", "value"), ("▁▇" * 20, "fed"))
    after: Line = (before[0], ("         48% ", "value"), before[2])
    assert found(before, after)[1] == [(17, "8", "value")]
    assert len(Encoder(palette, colours).encode([(3, before, after)], 60).encode()) < 60


def test_a_chart_that_moved_on_is_moved_by_the_terminal() -> None:
    """For the bytes of what is new in it, wherever the chart stands in its line, also right behind
    a number that changed."""
    palette = Palette(GPUWATCH_DARK)
    drawn = [("▁▂▃▄▅▆▇"[n * n % 61 % 7], STYLES[3 + n % 5 % 3]) for n in range(96)]
    before, after = (
        ((f"{42 + at}%", "value"), *drawn[at : at + 90], ("rx 5", "dim")) for at in (0, 6)
    )
    encoder, terminal = Encoder(palette, ColorSystem.TRUECOLOR), Terminal(97, 1)
    terminal.feed(encoder.encode([(0, (("\0" * 97, ""),), before)], 97))
    sent = encoder.encode([(0, before, after)], 97)
    terminal.feed(sent)
    assert terminal.cells(0) == expected_cells(after, palette, ColorSystem.TRUECOLOR)
    assert len(sent.encode()) < 220


# -- the whole application --------------------------------------------------------------------


def check(drive: Driven, theme_colours: ColorSystem = ColorSystem.TRUECOLOR) -> None:
    """The terminal shows the canvas, cell by cell, colours included."""
    app = drive.app
    lines = (drive.dialog or drive.front).canvas.lines
    assert app.terminal.lines == [plain(line) for line in lines]
    for y, line in enumerate(lines):
        assert app.terminal.cells(y) == expected_cells(line, app.view.palette, theme_colours), y


@pytest.mark.parametrize(("scenario", "size"), [("starved", (80, 24)), ("lost", (40, 12))], ids=str)
async def test_the_terminal_shows_what_was_drawn(scenario: str, size: tuple[int, int]) -> None:
    """After snapshots, keys, other screens and dialogs the terminal shows exactly the lines and
    colours of the last drawing: nothing is left behind and nothing is missed."""
    async with driven(scene(scenario, 2), size, app_type=AppOnTerminal) as drive:
        assert drive.app.console.color_system == "truecolor"
        check(drive)
        for keys in (
            *(("tab", "down"), ("right_square_bracket",), ("t", "s", "s"), ("p",)),
            *(("p",), ("j",), ("t",), ("R",), ("escape", "escape"), ()),
            *(("question_mark",), (), ("escape",), ("enter",), (), ("escape",), ("T",), ()),
        ):
            # No keys: a snapshot comes.
            await (drive.press(*keys) if keys else drive.next())
            check(drive)


async def test_the_dashboard_stays_in_sight_behind_a_dialog() -> None:
    """A dialog covers its own place only: around it the dashboard goes on, SIMULATED with it."""
    async with driven(scene("starved", 2), (120, 40), app_type=AppOnTerminal) as drive:
        app = drive.app
        await drive.press("exclamation_mark")
        assert drive.dialog is not None
        assert app.terminal.lines[:2] == drive.lines[:2]
        await drive.next()
        assert app.terminal.lines[0] == drive.lines[0]


@pytest.mark.parametrize("scenario", ["healthy", "starved"])
@pytest.mark.parametrize(("slow", "most"), [(False, 2200), (True, 1100)], ids=["usual", "slow"])
async def test_a_second_is_a_few_bytes(scenario: str, slow: bool, most: int) -> None:
    """Of a large screen of 8 GPUs, charts that move on and all; fewer on a slow link."""
    size = (200, 50)
    async with driven(scene(scenario, 8), size, slow_link=slow, app_type=AppOnTerminal) as drive:
        app = drive.app
        first, seconds = app.terminal.written, 6
        for _ in range(seconds):
            await drive.next()
        assert 0 < (app.terminal.written - first) / seconds < most
        again = app.terminal.written
        app.drawing.redraw()
        assert app.terminal.written == again
