"""Glyphs: what a column of a chart looks like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpuwatch.tui.charts.strips import (
    ASCII,
    FULL,
    LEVELS_PER_ROW,
    ON_PALE,
    UNICODE,
    Glyphs,
    cells,
    level,
)
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
    assert (level(one, 100.0, rows) == 1) == (one <= 0)
    assert one < 100.0 or level(one, 100.0, rows) == top
    assert level(50.0, 100.0, rows) in {top // 2 + 1, top // 2 + 2}


@SETS
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_zero_a_half_and_all_are_told_apart_by_shape(glyphs: Glyphs, rows: int) -> None:
    """A measured zero is a mark and never a blank. Where there are no tones a swing has a shape
    of its own; where there are, it is pale and a steady value is not."""
    top = LEVELS_PER_ROW * rows - 1
    shapes = [cells(glyphs, n, n, rows)[0] for n in (1, (top + 1) // 2, top)]
    assert len(set(shapes)) == 3
    assert shapes[0].strip(" \u2800")
    swing, tones = cells(glyphs, 1, top, rows)
    assert glyphs.tones or swing not in {cells(glyphs, n, n, rows)[0] for n in range(1, top + 1)}
    assert glyphs.tones == (set(tones) != {FULL})


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
            assert set(tones) <= set("01234")


def test_a_swing_has_the_height_of_its_mean() -> None:
    """In one row, a swing up to the limit stands on a pale cell; one that ends below it is drawn
    the fuller the higher its mean."""
    shapes = [cells(UNICODE, mean, 7) for mean in range(1, 6)]
    assert [shape for shape, _ in shapes] == list(UNICODE.solid[1:6])
    assert {tone for _, tone in shapes} == {ON_PALE}
    tones = [cells(UNICODE, mean, 6)[1] for mean in range(1, 5)]
    assert tones == sorted(tones)
    assert tones[0] < tones[-1]


def test_ascii_glyphs_are_ascii() -> None:
    """Every character of the ASCII set is ASCII, ranges and frames included."""
    for name in ASCII.__dataclass_fields__:
        value = getattr(ASCII, name)
        for text in value if isinstance(value, tuple) else (value,):
            assert isinstance(text, bool) or "".join(text).isascii(), name
