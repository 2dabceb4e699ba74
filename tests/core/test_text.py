"""Untrusted text made safe."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.text import clean


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("python train.py", "python train.py"),
        ("", ""),
        ("a\nb\tc\r\nd", "a b c  d"),
        ("\x1b[2J\x1b]0;owned\x07", "\ufffd[2J\ufffd]0;owned\ufffd"),
        ("\x9b31m", "\ufffd31m"),
        ("a\x00b\x7f", "a\ufffdb\ufffd"),
        ("\u202egnp.exe", "\ufffdgnp.exe"),
        ("bad\udc80byte", "bad\ufffdbyte"),
        ("zero\u200bwidth", "zero\ufffdwidth"),
        ("line\u2028sep", "line sep"),
        ("naïve Ünïcode 漢字 é", "naïve Ünïcode 漢字 é"),
        ("[bold]not markup[/]", "[bold]not markup[/]"),
        ("\u00a0", " "),
    ],
)
def test_clean(text: str, safe: str) -> None:
    """What a terminal could obey is replaced; everything else stays as it is."""
    assert clean(text) == safe


def test_long_text_is_cut() -> None:
    """A command line of a megabyte is cut to the limit, with an ellipsis."""
    assert clean("x" * 1_000_000) == "x" * 4095 + "…"
    assert clean("x" * 4096) == "x" * 4096
    assert clean("\x1b" * 10, limit=4) == "\ufffd\ufffd\ufffd…"


@given(st.text(st.characters(), max_size=200))
def test_nothing_unsafe_passes(text: str) -> None:
    """Whatever goes in, no control, format, surrogate or separator character comes out."""
    cleaned = clean(text)
    assert len(cleaned) == len(text)
    for character in cleaned:
        assert character.isprintable()
        assert unicodedata.category(character)[0] not in {"C"}
