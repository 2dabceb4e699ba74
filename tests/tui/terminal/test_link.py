"""Telling a slow connection from a quick one."""

from __future__ import annotations

import pytest

from gpuwatch.core.source import ManualClock
from gpuwatch.tui.terminal.link import LinkProbe, over_ssh


class Terminal:
    """Takes what is written to it, as a Textual driver would."""

    is_headless = False

    def __init__(self) -> None:
        self.written = ""

    def write(self, text: str) -> None:
        self.written += text

    def flush(self) -> None:
        """Nothing is held back."""


def asked() -> tuple[LinkProbe, ManualClock, Terminal]:
    clock, terminal = ManualClock(), Terminal()
    probe = LinkProbe(clock.monotonic)
    probe.start(terminal)  # type: ignore[arg-type]
    return probe, clock, terminal


def test_the_terminal_is_asked_once_where_its_cursor_is() -> None:
    """The question is the standard cursor position report, which every terminal answers."""
    _, _, terminal = asked()
    assert terminal.written == "\x1b[6n"


@pytest.mark.parametrize(
    ("seconds", "slow"), [(0.0, False), (0.3, False), (0.8, True), (9.0, True)]
)
def test_an_answer_tells_by_how_long_it_took(seconds: float, slow: bool) -> None:
    """A quick answer is a quick connection, however long ago it was."""
    probe, clock, _ = asked()
    clock.advance(seconds)
    probe.answered()
    clock.advance(60)
    assert probe.is_slow() is slow


def test_no_answer_is_slow_only_after_a_while() -> None:
    """A terminal that has not answered yet may still do so; one that never does is slow."""
    probe, clock, _ = asked()
    clock.advance(1.0)
    assert not probe.is_slow()
    clock.advance(2.0)
    assert probe.is_slow()


def test_a_probe_that_never_asked_knows_nothing() -> None:
    """Without a terminal there is no verdict."""
    probe = LinkProbe(ManualClock(seconds=100).monotonic)
    probe.start(None)
    probe.answered()
    assert not probe.is_slow()


def test_ssh_is_known_by_what_it_leaves_in_the_environment() -> None:
    """A local shell has neither variable; an empty one counts as none."""
    assert over_ssh({"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"})
    assert over_ssh({"SSH_TTY": "/dev/pts/3"})
    assert not over_ssh({"SSH_TTY": "", "HOME": "/home/ada"})
