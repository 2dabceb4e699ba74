"""Fitting text into cells."""

from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpuwatch.core.text import clean
from gpuwatch.tui.terminal.frame import Row, fit, fit_end, left, plain, right, width_of

WIDTHS = st.integers(0, 40)
# Letters, wide CJK, emoji (joined ones too), marks that combine or widen, out of ``clean``.
ODD = ("é", "e\u0301", "漢", "한", "🚀", "👩\u200d🚀", "ｱ", "…", "☎", "\ufe0f", "🏻")
MIXED = st.lists(st.sampled_from(["a", "7", " ", *ODD]) | st.characters(), max_size=30).map(
    lambda parts: clean("".join(parts))
)


@given(MIXED, WIDTHS)
def test_fitted_text_is_never_wider(text: str, width: int) -> None:
    """Whatever the characters, a cut text takes at most its cells."""
    assert cell_len(fit(text, width)) <= width


@given(MIXED, WIDTHS)
def test_flush_texts_are_exactly_as_wide(text: str, width: int) -> None:
    """A column keeps its width for any text, wide characters included."""
    assert cell_len(left(text, width)) == width
    assert cell_len(right(text, width)) == width


@given(MIXED, st.integers(1, 40))
def test_of_a_text_whose_front_is_cut_the_end_is_left(text: str, width: int) -> None:
    """As much of the end as fits, behind the mark; a text that fits is untouched."""
    shown = fit_end(text, width)
    assert cell_len(shown) <= width
    if cell_len(text) <= width:
        assert shown == text
        return
    kept = shown.removeprefix("…")
    assert text.endswith(kept)
    # Not one character of a single cell more would have fitted, the mark included.
    before = text[: len(text) - len(kept)][-1]
    assert cell_len(before + kept) >= width or cell_len(before) != 1


@given(MIXED, st.integers(1, 40))
def test_a_cut_is_marked(text: str, width: int) -> None:
    """A text that does not fit says so by its last character; one that fits is untouched."""
    if cell_len(text) <= width:
        assert fit(text, width) == text
    else:
        assert fit(text, width).endswith("…")


@given(MIXED)
def test_width_is_in_cells(text: str) -> None:
    """The fast way for ASCII and the full one agree."""
    assert width_of(text) == cell_len(text)


@given(
    st.integers(0, 60),
    st.lists(st.tuples(MIXED, st.sampled_from(["text", "dim"])), max_size=8),
    st.lists(st.integers(0, 70), max_size=3),
)
@example(4, [("1☎", "text"), ("\ufe0fa", "dim")], [])
def test_a_row_is_exactly_as_wide_as_it_was_made(
    width: int, parts: list[tuple[str, str]], pads: list[int]
) -> None:
    """However much is added, a row is padded or cut to its width."""
    row = Row(width)
    for text, style in parts:
        row.add(text, style)
    for column in pads:
        row.pad_to(column)
    assert row.room >= 0
    assert cell_len(plain(row.line())) == width


@given(st.integers(0, 30), MIXED)
def test_fits_adds_all_or_nothing(width: int, text: str) -> None:
    """A note that does not fit leaves no part of itself behind, nor one that takes no cell."""
    row = Row(width)
    fitted = row.fits(text)
    assert fitted == (cell_len(text) <= width)
    shown = plain(row.line()).rstrip()
    assert cell_len(shown) == (cell_len(text.rstrip()) if fitted else 0)
    assert shown in text


def test_a_prefix_goes_before_every_style() -> None:
    """A row on a bar or a selection has its surface in every style."""
    row = Row(12, prefix="b:").add("PID", "value").add_runs([("▁▂", "fed")], 2)
    assert all(style.startswith("b:") for _, style in row.line())
