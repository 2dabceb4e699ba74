"""Telling a slow connection from a quick one."""

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


@pytest.mark.parametrize(
    ("asked", "answered_after", "looked_at_after", "slow"),
    [
        (True, 0.3, 60.0, False),
        (True, 0.8, 60.0, True),
        # One that has not answered yet may still do so.
        (True, None, 1.0, False),
        (True, None, 3.0, True),
        # Without a terminal there is no verdict.
        (False, 0.0, 60.0, False),
    ],
)
def test_an_answer_says_by_how_long_it_took(
    asked: bool, answered_after: float | None, looked_at_after: float, slow: bool
) -> None:
    """The question is the standard cursor position report, which every terminal answers; a quick
    answer is a quick connection, however long ago it was."""
    clock, terminal = ManualClock(), Terminal()
    probe = LinkProbe(clock.monotonic)
    probe.start(terminal if asked else None)  # type: ignore[arg-type]
    assert terminal.written == ("\x1b[6n" if asked else "")
    if answered_after is not None:
        clock.advance(answered_after)
        probe.answered()
    clock.advance(looked_at_after)
    assert probe.is_slow() is slow


def test_ssh_is_known_by_what_it_leaves_in_the_environment() -> None:
    """A local shell has neither variable; an empty one counts as none."""
    assert over_ssh({"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"})
    assert over_ssh({"SSH_TTY": "/dev/pts/3"})
    assert not over_ssh({"SSH_TTY": "", "HOME": "/home/ada"})
