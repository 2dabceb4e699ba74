"""Command lines and users, on literal bytes."""

import json
import os
import pwd
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.sources.linux.processes import (
    COMMAND_BYTES,
    ProcessEntry,
    UserNames,
    parse_command,
    parse_effective_uid,
    read_command,
    read_uid,
    user_name,
)
from gpuwatch.sources.linux.procfs import PROC
from tests.support.children import wait_until

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
    # The kernel's name is as untrusted as the arguments.
    assert parse_command(b"", b"a\x1b[2J\nb") == "[a\ufffd[2J b]"


def test_a_long_command_line_is_cut_with_a_mark() -> None:
    """4096 characters at most, the last of which says that there is more; exactly as much as is
    shown is shown whole."""
    line = parse_command(b"python\0-c\0" + b"print(1)\n" * 10_000, b"python")
    assert len(line) <= COMMAND_BYTES
    assert line.endswith("…")
    assert line.startswith("python -c 'print(1) print(1)")
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


def test_a_slow_name_service_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user is shown by number until the name is known."""
    answers = threading.Event()

    def look_up(uid: int) -> SimpleNamespace:
        assert answers.wait(60)
        return SimpleNamespace(pw_name=f"user{uid}")

    monkeypatch.setattr(pwd, "getpwuid", look_up)
    names = UserNames(patience_seconds=0.0)
    assert [names.name(uid) for uid in (7001, 7002, 7001)] == ["7001", "7002", "7001"]
    answers.set()
    wait_until(lambda: [names.name(uid) for uid in (7001, 7002)] == ["user7001", "user7002"])


def test_a_name_that_comes_late_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of a process gets it although nothing about the process has changed."""
    names = iter(["1000", "1000", "ada"])
    monkeypatch.setattr("gpuwatch.sources.linux.processes.user_name", lambda _: next(names))
    entry = ProcessEntry(os.getpid(), 0.0, PROC)
    first, same, named = (entry.row(None) for _ in range(3))
    assert (first.user, named.user) == ("1000", "ada")
    assert same is first


_HUNG = """
import ctypes, pwd, sys
from gpuwatch.commands.cli import main

# As in C: the thread that asks cannot be ended.
pwd.getpwuid = lambda uid: ctypes.CDLL(None).sleep(3600)
sys.argv = ["gpuwatch", "status", "--all", "--json"]
main()
"""


def test_a_hung_name_service_keeps_nothing_from_ending() -> None:
    """``status`` shows users by number, and the program ends."""
    done = subprocess.run(
        [sys.executable, "-c", _HUNG], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    users = {process["user"] for process in json.loads(done.stdout)["processes"]}
    assert str(os.geteuid()) in users
    assert all(user is None or user.isdigit() for user in users)


def test_what_cannot_be_read_is_unknown() -> None:
    """A process that has ended has neither command nor user."""
    assert read_command(2**22 + 1, b"x") is None
    assert read_uid(2**22 + 1) is None
    assert read_uid(os.getpid()) == os.geteuid()
