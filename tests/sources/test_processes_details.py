"""Command lines and users, on literal bytes."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.sources.process_details import (
    COMMAND_BYTES,
    parse_command,
    parse_effective_uid,
    read_command,
    read_user,
    user_name,
)

COMMANDS = {
    "plain": (b"python\0train.py\0--lr=1e-4\0", "python train.py --lr=1e-4"),
    "an argument with blanks": (b"sh\0-c\0echo a b\0", "sh -c 'echo a b'"),
    "an argument with quotes": (b"echo\0it's\0", 'echo "it\'s"'),
    "an argument with both": (b"echo\0'\"\0", """echo ''"'"'"'"""),
    "an empty argument": (b"train\0--tag\0\0--x\0", "train --tag '' --x"),
    "brackets need no quotes": (b"train\0gpus=[0,1]\0", "train gpus=[0,1]"),
    "a rewritten title": (b"ray::Worker.step()\0\0\0\0\0", "ray::Worker.step()"),
    "a title with blanks": (b"nginx: worker process", "nginx: worker process"),
    "a title padded with blanks": (b"sshd: ada@pts/0       \0", "sshd: ada@pts/0"),
    "nothing": (b"", "[python]"),
    "only padding": (b"\0\0\0", "[python]"),
    "newlines become blanks": (b"python\0-c\0a=1\nb=2\0", "python -c 'a=1 b=2'"),
    "escapes become harmless": (b"\x1b]0;owned\x07\0x", "\ufffd]0;owned\ufffd x"),
    "markup stays text": (b"[bold]\0[/bold]\0", "[bold] [/bold]"),
    "bytes that are not UTF-8": (b"a\xff\xfeb\0", "a\ufffd\ufffdb"),
    "direction overrides": ("a\u202eb\0".encode(), "a\ufffdb"),
    "other scripts stay": ("训练.py\0".encode(), "训练.py"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_line_reads_as_typed_and_is_harmless(case: str) -> None:
    """Arguments can be told apart, titles stay, and nothing a terminal obeys is left."""
    raw, shown = COMMANDS[case]
    assert parse_command(raw, b"python") == shown


def test_a_name_in_brackets_is_harmless_too() -> None:
    """The kernel's name is as untrusted as the arguments."""
    assert parse_command(b"", b"a\x1b[2J\nb") == "[a\ufffd[2J b]"


def test_a_long_command_line_is_cut_with_a_mark() -> None:
    """4096 characters at most, the last of which says that there is more."""
    line = parse_command(b"python\0-c\0" + b"print(1)\n" * 10_000, b"python")
    assert len(line) <= COMMAND_BYTES
    assert line.endswith("…")
    assert line.startswith("python -c 'print(1) print(1)")


def test_a_line_of_the_greatest_length_is_not_marked() -> None:
    """Exactly as much as is shown is shown whole."""
    assert parse_command(b"x" * COMMAND_BYTES, b"x") == "x" * COMMAND_BYTES


@given(st.binary(max_size=6000), st.binary(max_size=16))
def test_no_bytes_at_all_can_reach_the_terminal_as_control(raw: bytes, name: bytes) -> None:
    """Whatever is in the command line and name: one printable line within the limit."""
    line = parse_command(raw, name)
    assert line.isprintable()
    assert 0 < len(line) <= COMMAND_BYTES


def test_the_user_is_who_the_process_acts_as() -> None:
    """The second of the four numbers; nothing where the line is missing."""
    assert parse_effective_uid(b"Name:\tx\nUid:\t1000\t33\t0\t0\nGid:\t1\n") == 33
    assert parse_effective_uid(b"Name:\tx\n") is None


def test_an_unknown_user_is_shown_by_number() -> None:
    """Containers run users that the host does not know."""
    assert user_name(3_999_999_999) == "3999999999"


def test_what_cannot_be_read_is_unknown() -> None:
    """A process that has ended has neither command nor user."""
    assert read_command(2**22 + 1, b"x") is None
    assert read_user(2**22 + 1) is None
    assert read_user(os.getpid()) == user_name(os.geteuid())
