"""Glyphs: what a column of a chart looks like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpuwatch.tui.charts.glyphs import (
    ASCII,
    DOTS,
    FULL,
    LEVELS_PER_ROW,
    UNICODE,
    Glyphs,
    cells,
    level,
)
from tests.tui.scenes import GLYPHS

SETS = pytest.mark.parametrize("glyphs", GLYPHS, ids=lambda glyphs: glyphs.name)
ROWS = st.integers(1, 4)


@given(st.floats(-10, 0), st.floats(0.001, 1e12), ROWS)
def test_zero_and_below_are_the_base_line(value: float, limit: float, rows: int) -> None:
    """Nothing measured above zero is level 1, whatever the scale."""
    assert level(value, limit, rows) == 1


@given(st.floats(1e-6, 1e9), st.floats(1e-6, 1e9), ROWS)
def test_more_than_zero_is_above_the_base_line(value: float, limit: float, rows: int) -> None:
    """However little it is, more than zero never looks like zero, nor passes the top."""
    assert 2 <= level(value, limit, rows) <= LEVELS_PER_ROW * rows - 1


@given(st.floats(0, 200), st.floats(0, 200), ROWS)
def test_levels_follow_the_values(one: float, other: float, rows: int) -> None:
    """The larger of two values is never drawn lower."""
    low, high = sorted((one, other))
    assert level(low, 100.0, rows) <= level(high, 100.0, rows)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_the_limit_and_above_are_the_top(rows: int) -> None:
    """A reading over its limit is drawn at the top, an eighth of a row below the edge."""
    top = LEVELS_PER_ROW * rows - 1
    assert level(100.0, 100.0, rows) == level(250.0, 100.0, rows) == top


def test_half_is_in_the_middle() -> None:
    """The scale is linear: half the limit is half the height."""
    assert level(50.0, 100.0, 1) in {4, 5}
    assert level(50.0, 100.0, 4) in {16, 17}


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


@SETS
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_zero_is_a_mark_and_never_a_blank(glyphs: Glyphs, rows: int) -> None:
    """A measured zero has a visible base line, so a blank can mean "not measured"."""
    characters, _ = cells(glyphs, 1, 1, rows)
    assert characters[-1] not in " \u2800"
    assert characters[:-1].strip() == ""


@SETS
def test_taller_values_have_other_characters(glyphs: Glyphs) -> None:
    """Zero, about half and all of the scale are told apart by shape alone."""
    shapes = {cells(glyphs, n, n)[0] for n in (1, 4, 7)}
    assert len(shapes) == 3


@SETS
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_swing_differs_from_every_steady_value(glyphs: Glyphs, rows: int) -> None:
    """A column that went from 0 to 99% looks like no steady percentage."""
    swing = cells(glyphs, level(0, 100, rows), level(99, 100, rows), rows)
    for percent in range(101):
        steady = level(percent, 100, rows)
        assert cells(glyphs, steady, steady, rows) != swing


@pytest.mark.parametrize("glyphs", [DOTS, ASCII], ids=lambda glyphs: glyphs.name)
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_without_tones_a_swing_differs_in_shape(glyphs: Glyphs, rows: int) -> None:
    """Where there are no colours in between, the shape alone says that it swings."""
    swing, tones = cells(glyphs, 1, LEVELS_PER_ROW * rows - 1, rows)
    assert set(tones) == {FULL}
    for steady in range(1, LEVELS_PER_ROW * rows):
        assert cells(glyphs, steady, steady, rows)[0] != swing


def test_with_tones_a_swing_is_pale_and_a_steady_value_is_not() -> None:
    """What was reached only at times is pale; what was reached always has the full hue."""
    assert cells(UNICODE, 1, 7)[1] != FULL
    assert all(cells(UNICODE, n, n)[1] == FULL for n in range(1, 8))


def test_the_paler_the_less_of_it_was_always_reached() -> None:
    """A range that begins higher up is drawn in a fuller tone."""
    tones = [cells(UNICODE, low, 7)[1] for low in range(1, 6)]
    assert tones == sorted(tones)
    assert tones[0] < tones[-1]


def test_ascii_glyphs_are_ascii() -> None:
    """Every character of the ASCII set is ASCII, ranges and frames included."""
    for name in ASCII.__dataclass_fields__:
        value = getattr(ASCII, name)
        for text in value if isinstance(value, tuple) else (value,):
            assert isinstance(text, bool) or "".join(text).isascii(), name


@SETS
def test_marks_in_text_take_one_cell(glyphs: Glyphs) -> None:
    """Separators, marks and core bars keep columns aligned."""
    for mark in (
        *(glyphs.separator, glyphs.dot, glyphs.ellipsis, glyphs.marker, glyphs.rule),
        *(glyphs.tick, glyphs.up, glyphs.down, glyphs.warning, *glyphs.core, *glyphs.solid),
    ):
        assert cell_len(mark) == 1
    assert cell_len(glyphs.branch) == cell_len(glyphs.last_branch) == cell_len(glyphs.trunk)
