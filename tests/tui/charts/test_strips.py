"""Charts: what a column looks like, and strips on absolute columns, drawn bit by bit."""

from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpuwatch.core.store import SampledSeries
from gpuwatch.tui.charts.strips import (
    ASCII,
    BARS,
    COLOURLESS,
    DOTS,
    FILLED_ASCII,
    FILLED_PALE,
    FILLS,
    FULL,
    HIGHEST,
    LEVELS_PER_ROW,
    ON_PALE,
    PALE,
    SHADED_ASCII,
    SHADES,
    UNICODE,
    Glyphs,
    Held,
    Smoothed,
    Strip,
    StripCache,
    TimeWindow,
    cells,
    level,
    nice_ceiling,
    scale_marks,
)
from gpuwatch.tui.charts.timeline import SPANS
from gpuwatch.tui.terminal.frame import Run, width_of
from tests.tui.scenes import GLYPHS

SETS = pytest.mark.parametrize("glyphs", GLYPHS, ids=lambda glyphs: glyphs.name)
ROWS = st.integers(1, 4)


@given(st.floats(-10, 200), st.floats(-10, 200), ROWS)
def test_levels_follow_the_values(one: float, other: float, rows: int) -> None:
    """Zero and below are the base line, however little more is above it; the larger of two values
    is never drawn lower; the limit and above are the top, an eighth of a row below the edge."""
    low, high = sorted((one, other))
    top = LEVELS_PER_ROW * rows - 1
    assert level(low, 100.0, rows) <= level(high, 100.0, rows) <= top
    assert (level(one, 100.0, rows) == 1) == (one < 0.5)
    assert one < 100.0 or level(one, 100.0, rows) == top
    assert level(50.0, 100.0, rows) in {top // 2 + 1, top // 2 + 2}


@SETS
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_zero_a_half_and_all_are_told_apart_by_shape(glyphs: Glyphs, rows: int) -> None:
    """A measured zero is a mark and never a blank. Where there are no tones a swing has a shape of
    its own; where there are, taller ones have a line at their highest, and a steady value has
    none."""
    top = LEVELS_PER_ROW * rows - 1
    shapes = [cells(glyphs, n, n, rows)[0] for n in (1, (top + 1) // 2, top)]
    assert len(set(shapes)) == 3
    assert shapes[0].strip(" \u2800")
    swing, tones = cells(glyphs, 1, top, rows)
    assert glyphs.tones or swing not in {cells(glyphs, n, n, rows)[0] for n in range(1, top + 1)}
    assert (tones != FULL * rows) == (rows > 1 or not glyphs.tones)


@SETS
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_column_has_a_character_and_a_tone_for_each_row(glyphs: Glyphs, rows: int) -> None:
    """Every range of levels gives exactly one narrow character and one tone a row."""
    top = LEVELS_PER_ROW * rows - 1
    for low in range(1, top + 1):
        for high in range(low, top + 1):
            characters, tones = cells(glyphs, low, high, rows)
            assert len(characters) == len(tones) == rows
            assert cell_len(characters) == rows
            assert set(tones) <= set("0123")


def test_the_highest_is_a_line_above_the_mean() -> None:
    """It stands in the cell that it reaches, at its bottom, middle or top, in the top row at the
    edge above all bars, and only in a cell that the bar leaves free; one row has the mean alone."""
    drawn = [cells(UNICODE, 3, highest, 3) for highest in (9, 11, 12, 15, 17, 20)]
    assert [shape for shape, _ in drawn] == [" ▁▃", " ─▃", " ─▃", " ▔▃", "▔ ▃", "▔ ▃"]
    assert {tone for _, tones in drawn for tone in tones} == {HIGHEST, FULL}
    assert cells(UNICODE, 3, 7, 2) == (" ▃", FULL * 2)
    assert cells(UNICODE, 3, 7) == ("▃", FULL)


def test_what_was_no_work_stands_above_the_work() -> None:
    """Where it nearly fills a cell it is a ground behind the work; a cell that it fills in part has
    the tone of most of it."""
    shapes = [cells(UNICODE, work, 7, apart=True) for work in range(2, 6)]
    assert [shape for shape, _ in shapes] == list(UNICODE.solid[2:6])
    assert {tone for _, tone in shapes} == {ON_PALE}
    tones = [cells(UNICODE, work, 5, apart=True)[1] for work in range(1, 4)]
    assert tones == [PALE, PALE, PALE]
    assert cells(UNICODE, 12, 13, apart=True, rows=2)[1] == FULL * 2


def test_the_highest_is_marked_where_columns_are_longer_than_a_swing() -> None:
    """Ten seconds in ten columns have lines; in twenty, or in few rows, they are bars alone."""
    series = SampledSeries()
    for tenth in range(1, 101):
        series.add_reading(tenth / 10, 100.0 * (tenth % 2))
    window = TimeWindow(10.0, 10.0)
    for width, rows, marked in ((10, 4, True), (20, 4, False), (10, 2, False)):
        lines = Strip().draw(series, window, width, 100.0, UNICODE, "fed", rows, ())
        styles = {style for line in lines for _, style in line}
        assert (f"fed.{HIGHEST}" in styles) == marked


def test_a_dip_between_high_bars_has_no_line_above_it() -> None:
    """It would stand beside the tops of bars of means, and say nothing that these do not."""
    series = SampledSeries()
    for tenth in range(1, 101):
        series.add_reading(tenth / 10, 0.0 if 50 < tenth <= 55 else 99.0)
    lines = Strip().draw(series, TimeWindow(10.0, 10.0), 10, 100.0, UNICODE, "fed", 4, ())
    assert f"fed.{HIGHEST}" not in {style for line in lines for _, style in line}


def test_ascii_bars_are_of_one_character() -> None:
    """A bar is full or empty in each row, and hatched up to the highest; only at the bottom are a
    zero and what is less than half of a row told apart from it."""
    assert [cells(ASCII, n, n)[0] for n in range(1, 8)] == list("_...###")
    assert cells(ASCII, 11, 31, 4)[0] == "///#"
    assert cells(ASCII, 1, 31, 4)[0] == "////"
    assert [cells(ASCII, n, n, 2)[0] for n in (1, 3, 9, 12)] == [" _", " .", " #", "##"]
    for highest in range(1, 32):
        characters = cells(ASCII, highest, highest, 4)[0]
        assert characters.lstrip() == characters.replace(" ", "")


def test_where_ascii_has_colours_solid_cells_are_filled() -> None:
    """A copy of the screen has the same characters as without. With all colours the part of a cell
    is a shade, the stronger the more there is of it; each has a character of its own, which a copy
    has, and by which it is seen what has moved."""
    for highest in range(1, 32):
        plain, _ = cells(ASCII, highest, highest, 4)
        filled, tones = cells(FILLED_ASCII, highest, highest, 4)
        assert filled == plain
        assert [tone in FILLS for tone in tones] == [one == "#" for one in plain]
    shades = dict.fromkeys([cells(SHADED_ASCII, n, n) for n in range(1, 8)])
    assert [tone for _, tone in shades] == [FULL, *FILLS]
    assert len({character for character, _ in shades}) == len(shades)
    assert cells(SHADED_ASCII, 8, 8, 2)[1] == FULL + FILLS[-1]
    assert cells(SHADED_ASCII, 9, 15, 2, apart=True)[1] == FILLED_PALE + FILLS[-1]


def test_idle_time_is_the_bare_ground_where_there_is_one() -> None:
    """Base lines on the ground of what held the GPU up would be the only characters to be seen."""
    series = steady(0.0, 4)
    for held, line in (([], "____"), ([Held(0.0, inf, "starved", False)], "    ")):
        drawn = Strip().draw(series, TimeWindow(4.0, 4.0), 4, 100.0, SHADED_ASCII, "fed", 2, held)
        assert picture(drawn) == ["    ", line]


def test_ascii_glyphs_are_ascii() -> None:
    """Every character of the ASCII set is ASCII, ranges and frames included."""
    for name in ASCII.__dataclass_fields__:
        value = getattr(ASCII, name)
        for text in value if isinstance(value, tuple) else (value,):
            assert isinstance(text, (bool, int)) or "".join(text).isascii(), name


# -- strips -----------------------------------------------------------------------------------


PERCENTS = st.integers(0, 100).map(float)


def picture(lines: list[list[Run]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def draw(
    series: SampledSeries | None,
    now: float,
    width: int,
    *,
    column_seconds: float = 1.0,
    step: int = 1,
    glyphs: Glyphs = UNICODE,
    rows: int = 1,
    strip: Strip | None = None,
) -> list[list[Run]]:
    window = TimeWindow(now, column_seconds * max(1, width), step * column_seconds)
    return (strip or Strip()).draw(series, window, width, 100.0, glyphs, "busy", rows)


def steady(value: float, count: int) -> SampledSeries:
    """``count`` readings a second apart, the first at 1 s."""
    series = SampledSeries()
    for second in range(1, count + 1):
        series.add_reading(float(second), value)
    return series


class Flat:
    """The same value at all times."""

    def __init__(self, value: float) -> None:
        self._column = (value, value, value)

    def columns(
        self, _end: float, _column_seconds: float, count: int
    ) -> list[tuple[float, float, float] | None]:
        return [self._column] * count


def test_a_series_that_takes_the_place_of_one_that_is_gone_is_drawn_anew() -> None:
    """Though it may stand where that one stood in memory."""
    strip, window, others = Strip(), TimeWindow(30.0, 20.0), []
    low = Flat(0.0)
    place = id(low)
    # No assertion here: pytest would hold on to what is compared.
    strip.draw(low, window, 20, 100.0, UNICODE, "busy")
    del low
    for _ in range(1000):
        others.append(Flat(100.0))
        if id(others[-1]) == place:
            break
    assert picture(strip.draw(others[-1], window, 20, 100.0, UNICODE, "busy")) == ["▇" * 20]


# -- the window -----------------------------------------------------------------------------


COLUMN_SECONDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
WIDTHS = st.integers(1, 200)


@given(st.floats(0.01, 1e6), st.sampled_from(SPANS), WIDTHS, st.floats(0.1, 10.0))
def test_the_right_edge_is_less_than_a_step_ahead(
    now: float, span: float, width: int, step: float
) -> None:
    """The newest column is in sight, and no more than a step of time after it is empty."""
    grid = TimeWindow(now, span, step).grid(width)
    assert grid.first <= grid.last <= grid.end
    assert grid.end_seconds - now <= step + grid.column_seconds * 1.01
    assert grid.end - grid.first + 1 == width


@given(st.floats(1.0, 1e6), st.floats(0, 1.0), st.sampled_from(SPANS), WIDTHS, WIDTHS)
def test_all_charts_show_the_same_time(
    now: float, back: float, span: float, width: int, other: int
) -> None:
    """Charts of any two widths begin and end at the same moments, to a column."""
    for end in (None, now * (1 - back)):
        window = TimeWindow(now, span, 2.0, end)
        one, two = window.grid(width), window.grid(other)
        widest = max(one.column_seconds, two.column_seconds)
        assert abs(one.end_seconds - two.end_seconds) <= widest * 1.01
        assert abs(one.begin_seconds - two.begin_seconds) <= widest * 1.01
        assert one.end_seconds - one.begin_seconds == pytest.approx(span)


def test_scrolled_back_the_picture_stays_put() -> None:
    """With an end, time goes on and nothing on the chart changes."""
    series, strip = SampledSeries(), Strip()
    pictures = set()
    for second in range(1, 200):
        series.add_reading(float(second), second * 7 % 100, second - 1.0)
        if second >= 60:
            window = TimeWindow(float(second), 30.0, 3.0, 50.0)
            lines = strip.draw(series, window, 30, 100.0, UNICODE, "busy")
            pictures.add("".join(text for text, _ in lines[0]))
            fresh = Strip().draw(series, window, 30, 100.0, UNICODE, "busy")
            assert lines == fresh
    assert len(pictures) == 1
    assert " " not in pictures.pop()


@given(st.integers(-5, 30), st.integers(1, 25), st.integers(1, 3))
def test_the_cursor_is_one_cell_of_every_row(ago: int, width: int, rows: int) -> None:
    """The column of the cursor, and only it, is marked; the characters stay the same."""
    series = steady(50.0, 40)
    plain_window = TimeWindow(40.0, float(width))
    window = TimeWindow(40.0, float(width), cursor=39.5 - ago)
    lines = Strip().draw(series, window, width, 100.0, UNICODE, "busy", rows)
    assert picture(lines) == picture(
        Strip().draw(series, plain_window, width, 100.0, UNICODE, "busy", rows)
    )
    for line in lines:
        cells = [style for text, style in line for _ in text]
        marked = [place for place, style in enumerate(cells) if style.startswith("c:")]
        assert marked == ([width - 1 - ago] if 0 <= ago < width else [])


# -- what is drawn --------------------------------------------------------------------------


@pytest.mark.parametrize("glyphs", GLYPHS, ids=lambda glyphs: glyphs.name)
def test_a_gap_is_blank_and_zero_is_a_line(glyphs: Glyphs) -> None:
    """Seconds without a reading stay empty; seconds at zero do not."""
    series = SampledSeries()
    for second, value in ((1, 0.0), (2, None), (3, 0.0)):
        series.add_reading(float(second), value)
    (line,) = picture(draw(series, 3.0, 3, glyphs=glyphs))
    assert line[1] == " "
    assert line[0] == line[2] == glyphs.solid[1]


@pytest.mark.parametrize(
    ("series", "width", "rows", "expected"),
    [
        (None, 7, 2, [" " * 7] * 2),
        (SampledSeries(), 7, 1, [" " * 7]),
        (steady(50.0, 3), 0, 2, ["", ""]),
        (steady(50.0, 3), -4, 1, [""]),
        # The newest is at the right.
        (steady(0.0, 3), 5, 1, ["  ▁▁▁"]),
    ],
)
def test_what_is_not_there_is_blank(
    series: SampledSeries | None, width: int, rows: int, expected: list[str]
) -> None:
    """A series that does not exist or is empty, at its full width; squeezed to nothing, nothing."""
    assert picture(draw(series, 3.0, width, rows=rows)) == expected


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("of_busy", [False, True])
def test_a_column_has_the_colour_of_what_it_was(rows: int, of_busy: bool) -> None:
    """Work before and after a finding keeps its colour. While it held, busy columns have the
    finding's own where busy time was lost, else the room above them and the base line has."""
    series = SampledSeries()
    for second, value in enumerate((60.0, 0.0, 60.0, 0.0, 60.0, 0.0), start=1):
        series.add_reading(float(second), value)
    held = [Held(2.2, 3.8, "starved", of_busy)]
    lines = Strip().draw(series, TimeWindow(6.0, 6.0), 6, 100.0, UNICODE, "fed", rows, held)
    # Without the tone, and the shade of the row, of what is solid.
    styles = [style.partition(".")[0] for text, style in lines[-1] for _ in text]
    middle = ["starved", "starved"] if of_busy else ["fed/starved", "starved/starved"]
    assert styles == ["fed", "idle", *middle, "fed", "idle"]


def test_without_colours_the_room_above_columns_that_were_held_up_is_dotted() -> None:
    """While nothing held them up, and where nothing was read, it is blank, and base lines stay."""
    series = SampledSeries()
    for second, value in enumerate((50.0, 0.0, None, 50.0, 0.0, 50.0), start=1):
        series.add_reading(float(second), value)
    held = [Held(0.0, 4.5, "starved", False)]
    upper, lower = picture(
        Strip().draw(series, TimeWindow(6.0, 6.0), 6, 100.0, COLOURLESS, "fed", 2, held)
    )
    assert (upper, lower[1:3], lower[4]) == ("·· ·· ", "▁ ", "▁")


def test_a_peak_that_is_no_swing_is_not_marked() -> None:
    """Of columns that are longer than a swing the mean is drawn alone where the highest is near
    it."""
    busy = SampledSeries()
    for second in range(1, 41):
        busy.add_reading(second / 2, 98.0 if second % 2 else 90.0)
    drawn = Strip().draw(busy, TimeWindow(20.0, 20.0), 10, 100.0, UNICODE, "fed", 8, [])
    assert not any(f".{HIGHEST}" in style for line in drawn for _, style in line)


def test_busy_time_without_work_stands_above_the_work() -> None:
    """Where what of the busy time was work is read, a column that a finding held up is solid up to
    that, and from there up to its mean in the finding's hue; where it was not read, all of it
    is."""
    busy, work = SampledSeries(), SampledSeries()
    for second in (1.0, 2.0, 3.0, 4.0):
        busy.add_reading(second, 100.0)
        work.add_reading(second, None if second == 3.0 else 50.0)
    held = [Held(1.5, inf, "waiting", True, work)]
    window = TimeWindow(4.0, 4.0)
    lines = Strip().draw(busy, window, 4, 100.0, UNICODE, "fed", 2, held)
    assert picture(lines) == ["▇▇▇▇", "████"]
    upper, lower = ([style for text, style in line for _ in text] for line in lines)
    assert {style.partition(".")[0] for style in (upper[0], lower[0])} == {"fed"}
    assert {style.partition(".")[0] for style in (*upper[1:], *lower[1:])} == {"fed+waiting"}
    tones = [style.partition(".")[2][:1] for style in (*upper[1:], *lower[1:])]
    assert tones == [*(PALE, PALE, PALE), *(FULL, PALE, FULL)]


def test_work_alone_stands_on_the_ground_of_what_held_it_up() -> None:
    """What is not ``of_busy`` has no second tone in its columns, which are as high as the work."""
    busy, work = SampledSeries(), SampledSeries()
    for second in (1.0, 2.0, 3.0, 4.0):
        busy.add_reading(second, 100.0)
        work.add_reading(second, 50.0)
    held = [Held(2.5, inf, "waiting", False, work)]
    (line,) = Strip().draw(busy, TimeWindow(4.0, 4.0), 4, 100.0, BARS, "fed", 1, held)
    assert picture([line]) == ["▇▇▄▄"]
    assert [style.partition(".")[0] for text, style in line for _ in text] == [
        *("fed", "fed"),
        *("fed/waiting", "fed/waiting"),
    ]


def test_a_row_of_shades_tells_how_busy_by_its_tone() -> None:
    """Of equal blocks, the busier the stronger; zero is a base line, and what was not read is
    blank."""
    busy = SampledSeries()
    for second, percent in ((0.5, 100.0), (1.0, 40.0), (1.5, 0.0), (2.5, 40.0)):
        busy.add_reading(second, percent)
    (line,) = Strip().draw(busy, TimeWindow(2.5, 2.5), 5, 100.0, UNICODE, "fed", 1, [])
    (cells_drawn,) = picture([line])
    assert cells_drawn == "▇▇▁ ▇"
    tones = [style.partition(".")[2] for text, style in line for _ in text]
    assert SHADES.index(tones[0]) > SHADES.index(tones[1]) == SHADES.index(tones[4])


@pytest.mark.parametrize("glyphs", [DOTS, ASCII], ids=lambda glyphs: glyphs.name)
def test_without_tones_one_row_is_as_high_as_the_work(glyphs: Glyphs) -> None:
    """Where it was not read, it is as high as the busy time and has another look."""
    (work, tone), (unknown, other) = (
        cells(glyphs, 4, 7, apart=True),
        cells(glyphs, 1, 7, apart=True),
    )
    assert (work, tone) == (glyphs.solid[4], FULL)
    assert unknown not in glyphs.solid
    assert other == PALE


# -- bit by bit -----------------------------------------------------------------------------

POLLS = st.lists(
    st.tuples(
        st.sampled_from([0.1, 0.2, 0.5, 1.0, 1.0, 1.0, 2.0, 5.0, 10.0]), st.none() | PERCENTS
    ),
    min_size=2,
    max_size=40,
)


@given(
    polls=POLLS,
    widths=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    column_seconds=st.sampled_from(COLUMN_SECONDS),
    step=st.integers(1, 12),
    rows=st.integers(1, 3),
    glyphs=st.sampled_from(GLYPHS),
)
def test_drawing_bit_by_bit_equals_drawing_from_scratch(
    polls: list[tuple[float, float | None]],
    widths: list[int],
    column_seconds: float,
    step: int,
    rows: int,
    glyphs: Glyphs,
) -> None:
    """After any polls, gaps and resizes the kept strip shows what a new one would, exactly as
    wide as asked for."""
    series, strip, now = SampledSeries(), Strip(), 100.0
    for number, (pause, value) in enumerate(polls):
        before = now
        now = round(now + pause, 3)
        series.add_reading(now, value, before)
        width = widths[number * len(widths) // len(polls)]
        look = {"column_seconds": column_seconds, "step": step, "rows": rows, "glyphs": glyphs}
        lines = draw(series, now, width, strip=strip, **look)  # type: ignore[arg-type]
        assert lines == draw(series, now, width, **look)  # type: ignore[arg-type]
        assert [sum(width_of(text) for text, _ in line) for line in lines] == [width] * rows


@given(
    pauses=st.lists(st.sampled_from([0.2, 0.5, 1.0, 1.0, 2.0, 5.0, 10.0]), min_size=2, max_size=12),
    lag=st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0]),
    spacing=st.sampled_from([1 / 6, 0.25, 0.1]),
    column_seconds=st.sampled_from(COLUMN_SECONDS),
    data=st.data(),
)
def test_late_fine_samples_are_drawn_where_they_belong(
    pauses: list[float], lag: float, spacing: float, column_seconds: float, data: st.DataObject
) -> None:
    """The driver hands samples over up to a second late: the columns of that time, drawn empty
    or in part before, are drawn again, at every interval."""
    series, strip, now, done = SampledSeries(), Strip(), 100.0, 0
    for pause in pauses:
        now += pause
        upto = ceil((now - lag - 100.0) / spacing)
        moments = [100.0 + number * spacing for number in range(done, upto)]
        series.add_samples([(at, data.draw(PERCENTS)) for at in moments])
        done = max(done, upto)
        lines = draw(series, now, 40, column_seconds=column_seconds, strip=strip)
        assert lines == draw(series, now, 40, column_seconds=column_seconds)


def test_between_two_steps_only_the_newest_columns_change() -> None:
    """What was drawn stays where it is until the window moves on."""
    series, strip = steady(30.0, 16), Strip()
    before = picture(draw(series, 16.0, 16, step=8, strip=strip))[0]
    assert before == "▃" * 16
    series.add_reading(17.0, 100.0)
    (moved,) = picture(draw(series, 17.0, 16, step=8, strip=strip))
    series.add_reading(18.0, 100.0)
    (after,) = picture(draw(series, 18.0, 16, step=8, strip=strip))
    assert moved == "▃" * 8 + "▇" + " " * 7
    assert after == "▃" * 8 + "▇▇" + " " * 6


# -- the cache and the scale ----------------------------------------------------------------


def test_strips_not_drawn_are_forgotten() -> None:
    """Charts of GPUs and processes that are gone take no memory."""
    cache = StripCache()
    kept = cache.get("kept")
    gone = cache.get("gone")
    cache.forget_unused()
    assert cache.get("kept") is kept
    cache.forget_unused()
    assert cache.get("gone") is not gone


@given(st.floats(0, 1e13), st.sampled_from([1.0, 1024.0, 1024.0**2]))
def test_a_scale_holds_its_values_and_is_not_far_off(value: float, floor: float) -> None:
    """The ceiling is at least the value and the floor, and the chart is not mostly empty."""
    ceiling = nice_ceiling(value, floor)
    assert ceiling >= value
    assert ceiling >= floor
    assert ceiling == floor or ceiling <= 2.6 * value


@pytest.mark.parametrize("rows", range(1, 33))
def test_marks_of_the_scale_are_evenly_spaced(rows: int) -> None:
    """50 is as far from 100 as from 0, or left out."""
    places = {text: row for row, text in scale_marks(rows).items()}
    assert set(places) in ({"100", "50", "0"}, {"100", "0"}, set())
    if "50" in places:
        assert places["50"] - places["100"] == places["0"] - places["50"]


def test_single_looks_at_what_comes_in_bursts_are_smoothed() -> None:
    """Each column is the mean of some seconds up to it, so that it stays when time goes on; what
    was not read stays a gap."""

    class Looks:
        def columns(self, end: float, column_seconds: float, count: int) -> list[object]:
            last = int(end / column_seconds)
            values = [100.0 * (number % 4 == 0) for number in range(last - count + 1, last + 1)]
            return [None if value and last == 40 else (value, value, value) for value in values]

    smoothed = Smoothed(Looks(), 3.0)  # type: ignore[arg-type]
    assert smoothed.columns(39.0, 1.0, 8) == [(25.0, 25.0, 25.0)] * 8
    assert smoothed.columns(40.0, 1.0, 1) == [None]
    # Longer columns than that are means themselves.
    assert smoothed.columns(36.0, 4.0, 1) == Looks().columns(36.0, 4.0, 1)
