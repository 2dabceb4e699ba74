"""What the benchmark's own instruments say, so that its table can be believed."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.tools import process_tree, report
from tests.benchmarks.tools.report import Result
from tests.benchmarks.tools.terminal import FirstPaint, Terminal, answer, visible_text

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07shown", "shown"),
        (b"\x1bP+q544e\x1b\\shown", "shown"),
        (b"\x1b(B\x1b)0\x1b=shown\x1b>", "shown"),
        (b"one\r\ntwo", "onetwo"),
        (b"shown\x1b[38;2;1", "shown"),
        ("▁▂█".encode(), "▁▂█"),
        ("▁▂█".encode()[:-1], "▁▂"),
    ],
)
def test_escape_sequences_are_no_text(written: bytes, text: str) -> None:
    """Only what a person would see counts as text, also when a write ends in mid-sequence."""
    assert visible_text(written) == text


def times(paint: FirstPaint) -> tuple[float | None, float | None]:
    return paint.text_at, paint.match_at


def test_the_first_paint_is_the_first_character_on_the_alternate_screen() -> None:
    """Text before it, spaces and clearing the screen do not count."""
    paint = FirstPaint("H200")
    paint.feed(b"starting ...\x1b[?10", 1.0)
    paint.feed(b"49h\x1b[2J\x1b[H   ", 2.0)
    assert times(paint) == (None, None)
    paint.feed(b"\x1b[1mGPU", 3.0)
    paint.feed(b" 0 H2", 4.0)
    paint.feed(b"\x1b[0m00", 5.0)
    paint.feed(b"more", 6.0)
    assert times(paint) == (3.0, 5.0)


def test_questions_to_the_terminal_are_answered() -> None:
    """Cursor and mode questions get a terminal's replies, nothing else does."""
    assert answer(b"x\x1b[6ny\x1b[c") == b"\x1b[1;1R"
    assert answer(b"\x1b[?2026$p\x1b[?2048$p") == b"\x1b[?2026;2$y\x1b[?2048;0$y"
    assert answer(b"\x1b[2J\x1b[1;31mtext") == b""


def test_a_program_is_counted_in_a_terminal_of_the_size_asked_for() -> None:
    """Bytes, first paint and size are those of a real terminal."""
    terminal = Terminal(90, 30, "word")
    code = (
        "import os, sys; s = os.get_terminal_size();"
        "sys.stdout.write(f'\\x1b[?1049h{s.columns}x{s.lines} word'); sys.stdout.flush();"
        "sys.stdin.readline()"
    )
    terminal.start([sys.executable, "-c", code], dict(os.environ), ROOT)
    try:
        assert terminal.wait_for_paint(30, match=True)
        assert b"90x30 word" in terminal.tail
        assert terminal.bytes_written == len(b"\x1b[?1049h90x30 word")
        assert process_tree.memory(terminal.pid)[0] > 1 << 20
    finally:
        terminal.stop()
    assert terminal.exit_code is not None


def test_cpu_time_is_that_of_the_process_and_its_children() -> None:
    """A child's work counts, and this process is what it was measured to be."""
    before = process_tree.cpu_seconds(os.getpid())
    child = os.fork()
    if child == 0:
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        os._exit(0)
    os.waitpid(child, 0)
    assert process_tree.cpu_seconds(os.getpid()) - before > 0.05
    assert process_tree.tree(os.getpid())[0].pid == os.getpid()


def measured(*percents: float, failure: str | None = None) -> list[Result]:
    return [Result("m", {"CPU % of a core": one}, failure) for one in percents]


def test_the_table_says_what_failed_and_what_was_not_measured() -> None:
    """The median of the runs of each, one row a monitor, a dash for no number, the failure below;
    that is never averaged away."""
    median = report.median_of(measured(1.2, 9.0, 2.5))
    failed = report.median_of([*measured(1.0), *measured(0.0, failure="ended")])
    table = report.table("8 GPUs", [median, replace(failed, monitor="n")])
    assert table.startswith("| 8 GPUs | CPU % of a core | memory MiB |")
    assert "| m | 2.50 | - |" in table
    assert "n failed: ended" in table
