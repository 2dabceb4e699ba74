"""``gpuwatch replay`` in a real terminal, parts of a recording, and what it refuses."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import click
import pytest

from gpuwatch.commands import replay as command
from gpuwatch.sources.logs.source import LogOptions
from gpuwatch.sources.logs.text import zstd
from tests.commands.running import program
from tests.support.children import wait_until
from tests.support.long_recording import Piece
from tests.tui.replay.recordings import recorded
from tests.tui.terminal.pseudo_terminal import PseudoTerminal, clean_environment, terminal

PIECES = (Piece("healthy", 180.0), Piece("starved", 180.0))

DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
    0     68     34     36      {busy}      1      0      0      0      0   2619   1980
"""


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("replay") / "night.jsonl.zst", PIECES)


@pytest.fixture(scope="module")
def stream(night: Path) -> Path:
    """As ``zstdcat`` gives it."""
    path = night.with_name("stream.jsonl")
    path.write_bytes(zstd.decompress(night.read_bytes()))
    return path


@contextmanager
def shell(command: str, **files: Path) -> Iterator[PseudoTerminal]:
    """A shell in a terminal; ``files`` are names in ``command``."""
    for name, path in files.items():
        command = command.replace(f"<{name}>", f"'{path}'")
    command = command.replace("gpuwatch", f"'{sys.executable}' -m gpuwatch")
    program = f"import os; os.execvp('sh', ['sh', '-c', {command!r}])"
    settings = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    screen = PseudoTerminal(["-c", program], 100, 30, settings)
    try:
        yield screen
    finally:
        screen.close()


def replay(path: Path | str) -> AbstractContextManager[PseudoTerminal]:
    return terminal("-m", "gpuwatch", "replay", str(path))


def test_recording_is_played_in_a_terminal(night: Path) -> None:
    """Keys work, and q leaves the terminal with exit code 0."""
    with replay(night) as screen:
        screen.until_it_says("▶ playing")
        screen.until(lambda: "REPLAY" in screen.lines[0])
        screen.type("n")
        screen.until_it_says("num_workers")
        screen.type(" ")
        screen.until_it_says("paused")
        screen.type(":20:01\r")
        screen.until_it_says("20:01:00")
        screen.type("q")
        assert screen.end() == 0


def test_some_gpus_and_one_job_of_a_recording_are_played(night: Path) -> None:
    """``-g`` leaves out the others, in the bar and among the findings, too; ``--pid`` opens the
    page of a job, and there must be one."""
    tape, first = command._tape(str(night), None, LogOptions())
    part = command._PartOfTape(tape, ("1",), first)
    shown = next(part.snapshots(float("-inf")))
    assert [gpu.identity.index for gpu in shown.gpus] == [1]
    only = {shown.gpus[0].uuid}
    wait_until(lambda: part.progress >= 1.0)
    assert all(set(one.gpus) <= only for one in part.buckets)
    assert any(one.gpus for one in part.buckets)
    assert all(only & set(one.gpus) for one in part.findings if one.gpus)
    job = first.jobs[0]
    assert command._job_in([first], job.members[-1].pid, "it") == job.key
    with pytest.raises(click.UsageError, match="no job with a process 9"):
        command._job_in([first], 9, "it")
    tape.close()


def test_standard_input_is_played_with_keys_from_the_terminal(stream: Path) -> None:
    """What comes in a pipe is kept: it can be gone to, and back."""
    with shell("cat <file> | gpuwatch replay -", file=stream) as screen:
        screen.until_it_says("▶ playing")
        screen.type(":100%\r")
        screen.until_it_says("20:05:5")
        screen.type(" :0%\r")
        screen.until(lambda: "20:00:00" in screen.lines[0])
        screen.type("q")
        assert screen.end() == 0


def test_input_that_is_waited_for_can_be_left(stream: Path) -> None:
    """Nothing has come for long and nothing will: q ends it at once and well."""
    with shell(
        "{ cat <file>; exec sleep 600; } | { gpuwatch replay -; echo code $?; }", file=stream
    ) as screen:
        screen.until_it_says("▶ playing")
        screen.type(":100%\r")
        screen.until_it_says("20:05:5")
        screen.type("q")
        # Written wherever the cursor was left, perhaps over the end of a line.
        screen.until(lambda: b"code " in screen.raw)
        screen.until(lambda: b"code 0" in screen.raw)
        assert b"Fatal" not in screen.raw


def test_a_file_that_does_not_come_can_be_left(tmp_path: Path) -> None:
    """However long it takes to its first snapshot: Ctrl-C ends it before there is a screen."""
    path = tmp_path / "run.jsonl"
    os.mkfifo(path)
    with replay(path) as screen, path.open("w"):
        screen.type("\x03")
        assert screen.end() == 130


def test_live_stream_is_followed() -> None:
    """It shows what comes as it comes, until somebody goes elsewhere in it."""
    with shell("gpuwatch stream --demo -i 0.2 | gpuwatch replay -") as screen:
        screen.until_it_says("live")
        screen.type(" ")
        screen.until_it_says("paused")
        screen.type(":100%\r ")
        screen.until_it_says("playing")
        screen.type("q")
        assert screen.end() == 0


def test_log_of_nvidia_smi_is_played(tmp_path: Path) -> None:
    """A dmon log has no times and no host: what there is is shown. A message says how many lines
    are none, and ! shows it."""
    path = tmp_path / "dmon.log"
    rows = [DMON.format(busy=busy) for busy in (10, 90) * 40]
    path.write_text("".join([*rows[:9], "what is this\n", *rows[9:]]))
    with replay(path) as screen:
        screen.until_it_says("▶ playing")
        screen.until(lambda: "REPLAY" in screen.lines[0])
        assert "SIMULATED" not in screen.lines[0]
        screen.until_it_says("message")
        screen.type("!")
        screen.until_it_says("not a reading")
        screen.type("q")
        screen.type("q")
        assert screen.end() == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file"),
        ("what is this\nand this\n", ""),
        ('{"kind":"header","schema":99,"machine":"a","gpus":[]}\n', "update gpuwatch"),
    ],
)
def test_bad_input_ends_with_a_sentence_before_the_screen_opens(
    tmp_path: Path, content: str | None, says: str
) -> None:
    """Exit code 2, one line, no other screen."""
    path = tmp_path / "bad.jsonl"
    if content is not None:
        path.write_text(content)
    with replay(path) as screen:
        assert screen.end() == 2
        assert b"\x1b[?1049h" not in screen.raw
        assert "gpuwatch: " in screen.text
        assert "bug" not in screen.text
        assert says in screen.text.replace("\n", "")


def test_bad_standard_input_is_refused() -> None:
    """An empty pipe ends it with a sentence."""
    with shell("true | gpuwatch replay -; echo code $?") as screen:
        screen.until_it_says("code 2")
        assert "gpuwatch: " in screen.text


def test_keyboard_is_no_recording() -> None:
    """Without a pipe ``-`` would wait for somebody to type JSON."""
    with replay("-") as screen:
        assert screen.end() == 2
        assert "pipe a recording into it" in screen.text


def test_without_a_terminal_it_says_what_does_without(night: Path) -> None:
    """In a script there is nothing to draw on."""
    done = program("replay", str(night), env=clean_environment())
    assert done.returncode == 2
    assert "gpuwatch report" in done.stderr
