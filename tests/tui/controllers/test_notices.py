"""Desktop notifications of what is found while nobody looks."""

import re
from pathlib import Path

import pytest

from gpuwatch.tui.controllers.notices import notification
from tests.tui.terminal.pseudo_terminal import terminal

NOTICES = re.compile(rb"\x1b\]777;notify;gpuwatch;([^\x07]*)\x07")


def noticed(folder: Path, text: str, typed: str) -> list[bytes]:
    """What the dashboard of a machine that loses a GPU has the terminal show, from the moment on
    when that is on its screen; ``typed`` is what the terminal says first."""
    config = folder / "config.toml"
    config.write_text(text)
    demo = ("-m", "gpuwatch", "--demo", "lost", "--interval", "0.5", "--config", str(config))
    with terminal(*demo) as opened:
        opened.until(lambda: "SIMULATED" in opened.text)
        opened.type(typed)
        opened.until_it_says("no longer responds")
        opened.type("q")
        assert opened.end() == 0
        return NOTICES.findall(opened.raw)


@pytest.mark.parametrize("typed", ["", "\x1b[I\x1b[O"], ids=["unknown", "out of focus"])
def test_what_is_found_out_of_sight_is_shown_once(tmp_path: Path, typed: str) -> None:
    """Also by a terminal that has never said where the focus is."""
    (one,) = noticed(tmp_path, "notify = true", typed)
    assert b"raised error gpu_lost: GPU 0 no longer responds" in one


@pytest.mark.parametrize(("text", "typed"), [("", ""), ("notify = true", "\x1b[I")])
def test_nothing_is_shown_unasked_or_to_somebody_who_looks(
    tmp_path: Path, text: str, typed: str
) -> None:
    """It is off until it is turned on."""
    assert noticed(tmp_path, text, typed) == []


def test_a_notification_cannot_be_broken_out_of() -> None:
    """By control characters, or by what ends a part of it."""
    hostile = "a;b\x07\x1b]0;c\x1b\\d\x9c\x00\n" + "e" * 1000
    for environment in ({"TERM": "foot"}, {"TERM": "xterm-kitty"}):
        shown = notification(hostile, environment)
        assert shown[0] == "\x1b"
        assert shown[-1] == "\x07"
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", shown[1:-1])
        assert shown.count(";") == (3 if environment["TERM"] == "foot" else 1)
        assert len(shown) < 300


def test_each_terminal_gets_its_own() -> None:
    """iTerm2 and kitty OSC 9, others OSC 777; tmux hands on what is wrapped."""
    assert notification("x", {"LC_TERMINAL": "iTerm2"}) == "\x1b]9;gpuwatch: x\x07"
    assert notification("x", {}) == "\x1b]777;notify;gpuwatch;x\x07"
    wrapped = "\x1bPtmux;\x1b\x1b]777;notify;gpuwatch;x\x07\x1b\\"
    assert notification("x", {"TMUX": "/tmp/tmux-1/default,1,0"}) == wrapped
