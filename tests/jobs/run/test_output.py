"""What a job prints, as lines."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.text import clean
from gpuwatch.jobs.run.output import LINE_CHARACTERS, LINES_KEPT, OutputTail


def tail_of(lines_kept: int = LINES_KEPT) -> OutputTail:
    return OutputTail(Path("/nowhere"), lines_kept=lines_kept)


def shown(*parts: str) -> list[str]:
    tail = tail_of()
    for part in parts:
        tail.take_printed(part)
    return list(tail.lines(0, tail.total))


@pytest.mark.parametrize(
    ("printed", "lines"),
    [
        ("one\ntwo\n", ["one", "two"]),
        ("one\ntw", ["one", "tw"]),
        ("one\r\ntwo\r\n", ["one", "two"]),
        ("\n\nlast", ["", "", "last"]),
        ("", []),
        ("a\tb\n", ["a       b"]),
        ("12345678\tb", ["12345678        b"]),
        ("bell\a \x00nul\x7f", ["bell nul"]),
    ],
)
def test_plain_text(printed: str, lines: list[str]) -> None:
    """Line ends and tabs do what they do on a terminal, and other controls nothing."""
    assert shown(printed) == lines


@pytest.mark.parametrize(
    "printed",
    [
        "\x1b[31mred\x1b[0m and \x1b[1;38;5;208mbold\x1b[m",
        "\x1b]0;a title\x07red and bold",
        "\x1b]8;;http://example.org\x1b\\red\x1b]8;;\x1b\\ and bold",
        "\x1bPq#0;2;0;0;0\nmore of a picture\x1b\\red and bold",
        "\x1b_Gf=24;AAAA\x1b\\red \x1b^private\x1b\\and \x1bXstart\x07bold",
        "\x1b(B\x1b)0red and \x1b7bold\x1b8\x1b=\x1b>\x1bc",
        "\x1b[?25l\x1b[?1049hred and bold\x1b[?25h\x1b[>4;1m\x1b[6n",
        "red and bold\x1b[99999999999999999999C",
    ],
)
def test_escapes_are_taken_out(printed: str) -> None:
    """Of colours, titles, links, pictures and modes nothing is left."""
    assert shown(printed) == ["red and bold"]


def test_escape_that_never_ends() -> None:
    """An escape without an end hides nothing that comes after its line."""
    lines = shown("before\x1b]0;title without an end\nafter\n\x1b[12", ";3Hthird\n")
    assert lines[0].startswith("before")
    assert lines[1:] == ["after", "third"]


DRAWN = {
    "a progress bar overwrites itself": (
        ["\r 10%|#    |", "\r 20%|##   |", "\r100%\x1b[K", " done\n"], ["100% done"]
    ),
    "what was longer before is gone": (["abcdef\rxyz"], ["xyz"]),
    "an escape begun before a title is none with what is behind it": (
        ["\x1b[\x1b", "]title\x07\\\n"], ["[\\"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DRAWN)
def test_progress_bars_overwrite_their_lines(case: str) -> None:
    """What follows a carriage return replaces the line, in whatever parts it comes."""
    parts, lines = DRAWN[case]
    assert shown(*parts) == shown("".join(parts)) == lines


def test_a_line_without_end_is_cut() -> None:
    """A line of millions of characters keeps its beginning."""
    screen = tail_of()
    for _ in range(50):
        screen.take_printed("abcdefgh" * 1000)
    screen.take_printed("\nnext\n")
    assert [len(line) for line in screen.lines(0, 9)] == [LINE_CHARACTERS, 4]


def test_old_lines_are_forgotten_but_keep_their_numbers() -> None:
    """The number of a line stays the same while older ones are forgotten."""
    screen = tail_of(lines_kept=100)
    for number in range(1000):
        screen.take_printed(f"line {number}\n")
    assert (screen.first, screen.total) == (900, 1000)
    assert screen.lines(950, 2) == ["line 950", "line 951"]
    assert screen.lines(0, 1) == ["line 900"]
    assert screen.lines(998, 10) == ["line 998", "line 999"]
    assert screen.lines(1000, 10) == []


def cut_anywhere(text: str, data: st.DataObject) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


_PIECES = st.sampled_from(
    [
        *("\x1b[", "\x1b]", "\x1bP", "\x1b", "\\", "\x07"),
        *("A", "B", "H", "J", "K", "X", "m", "3", ";", "?"),
        *("\n", "\r", "\t", "\b", "\x00", "\x7f", "\x9b"),
        *(" ", "text", "日本", "\u202e", "\ud800"),
    ]
)


@given(st.lists(_PIECES, max_size=60), st.data())
def test_nothing_unsafe_is_shown_however_it_comes_in(
    pieces: list[str], data: st.DataObject
) -> None:
    """Whatever is printed, in whatever parts it arrives, every line is safe to show."""
    screen = tail_of(lines_kept=20)
    for part in cut_anywhere("".join(pieces), data):
        screen.take_printed(part)
        for line in screen.lines(screen.first, 30):
            assert line == clean(line)
    assert screen.first <= screen.total <= screen.first + 21


@given(st.lists(_PIECES, max_size=60), st.data())
def test_parts_make_no_difference(pieces: list[str], data: st.DataObject) -> None:
    """Terminated escapes and lines mean the same whether they come whole or in parts."""
    text = "".join(pieces) + "\x1b\\\x07\n"
    assert shown(*cut_anywhere(text, data)) == shown(text)


class TestFile:
    @pytest.fixture
    @staticmethod
    def tail(tmp_path: Path) -> Iterator[OutputTail]:
        made = OutputTail(tmp_path / "log", lines_kept=20_000)
        yield made
        made.close()

    def test_follows_what_is_appended(self, tail: OutputTail) -> None:
        """Each poll takes what has been written since, and says whether that was anything. A
        character whose bytes come in two parts is one, and other bytes are marked."""
        assert not tail.poll()
        with tail.path.open("wb", buffering=0) as file:
            for byte in "Größe 日本\nsec".encode():
                file.write(bytes([byte]))
                assert tail.poll()
            assert tail.lines(0, 9) == ["Größe 日本", "sec"]
            assert not tail.poll()
            file.write(b"ond\n\xff\xfe!\n")
            assert tail.poll()
        assert tail.lines(0, 9) == ["Größe 日本", "second", "��!"]

    def test_far_behind_shows_the_last_part(self, tail: OutputTail) -> None:
        """Of much more output than a pane shows, the last part is shown, whole lines of it, after
        a line that says how much is left out."""
        with tail.path.open("wb") as file:
            # A hole reads as zeros, and takes no room on the disk.
            file.seek(100_000_000)
            file.write(b"\n")
            file.writelines(b"step %09d loss 0.25\n" % number for number in range(40_000))
        assert tail.poll()
        note, *texts = tail.lines(tail.first, 20_000)
        assert "in the file" in note
        numbers = [int(text.split()[1]) for text in texts]
        assert len(numbers) >= 4000
        assert numbers == list(range(numbers[0], 40_000))
        assert texts[-1] == "step 000039999 loss 0.25"

    def test_a_file_cut_short_begins_again(self, tail: OutputTail) -> None:
        """A file that somebody has emptied is read from its start."""
        tail.path.write_bytes(b"old\n" * 10)
        tail.poll()
        tail.path.write_bytes(b"new\n")
        assert tail.poll()
        *_, note, text = tail.lines(0, 99)
        assert text == "new"
        assert "truncated" in note
