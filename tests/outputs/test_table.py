"""Plain tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.text import clean
from gpuwatch.outputs.terminal import Column, cell_width, cut, table, wrap

COLUMNS = (Column("A"), Column("NAME", kind="text", rank=2), Column("NUM", rank=1))


def test_columns_are_aligned() -> None:
    """Numbers end in one column and texts begin in one."""
    lines = table(COLUMNS, [["1", "x", "5"], ["22", "longer", "100"]], 80)
    assert lines == [" A  NAME    NUM", " 1  x         5", "22  longer  100"]


def test_least_important_column_goes_first() -> None:
    """Columns leave in the order of their rank, and rank 0 stays."""
    rows = [["1", "aaaaaaaa", "12345"]]
    assert table(COLUMNS, rows, 12)[0] == "A    NUM"
    assert table(COLUMNS, rows, 5)[0] == "A"


def test_column_without_content_is_left_out() -> None:
    """A column in which nothing was read takes no room."""
    assert table(COLUMNS, [["1", "x", "-"], ["2", "y", "-"]], 80)[0] == "A  NAME"


def test_last_text_takes_what_is_left() -> None:
    """A long command is cut at the width with an ellipsis; with room it is whole."""
    headings = (Column("PID"), Column("COMMAND", kind="text"))
    rows = [["1", "python " + "x" * 50]]
    assert table(headings, rows, 30)[1] == "  1  python xxxxxxxxxxxxxxxxx…"
    assert table(headings, rows, 80)[1] == "  1  python " + "x" * 50


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("漢字漢", 5, "漢字…"),
        ("漢字", 3, "漢…"),
        ("ab", 1, "…"),
    ],
)
def test_cut_counts_cells(text: str, width: int, expected: str) -> None:
    """Wide characters count twice, so a cut line still fits."""
    assert cut(text, width) == expected


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 8, ["one two", "three"]),
        ("one two three", 20, ["one two three"]),
        ("", 8, []),
        ("abcdefghij", 5, ["abcd…"]),
        ("a bcdefghij", 5, ["a", "bcde…"]),
        ("漢字 漢字", 5, ["漢字", "漢字"]),
    ],
)
def test_wrap_breaks_between_words(text: str, width: int, lines: list[str]) -> None:
    """Lines end between words; a word that fits in no line is cut."""
    assert wrap(text, width) == lines


def test_wrap_indents_and_ends_in_an_ellipsis() -> None:
    """The first line has its own beginning, and what is too much is said to be."""
    assert wrap("a b c d e f", 5, first="- ", later="  ", most=2) == ["- a b", "  c …"]


def test_a_command_is_not_broken_over_lines() -> None:
    """Nor a word and its options; one that is longer than a line is."""
    text = "so no GPU can be read: try `sudo modprobe nvidia`, or nvidia-smi -q"
    assert wrap(text, 30) == [
        *("so no GPU can be read: try", "`sudo modprobe nvidia`, or", "nvidia-smi -q"),
    ]
    assert wrap(text, 12)[-3:] == ["nvidia`, or", "nvidia-smi", "-q"]


@given(st.text(max_size=60), st.integers(6, 40))
def test_wrapped_lines_are_never_too_wide(text: str, width: int) -> None:
    """Whatever the text, no line passes the width."""
    lines = wrap(clean(text), width, first="> ", later="  ", most=4)
    assert all(cell_width(line) <= width for line in lines)
    assert len(lines) <= 4
