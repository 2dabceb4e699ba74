"""Why stacks cannot be taken, and what a person is told to do."""

import errno
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.jobs.stacks import access as stack_access
from gpuwatch.jobs.stacks.access import Refused
from tests.support.children import Children, wait_until
from tests.support.fake_proc import FakeProc

NOBODY = 65534


REFUSED = Refused(
    pid=42, user="ada", own_user=True, capable=False, ptrace_scope=0, root=False, contained=False
)


@pytest.mark.parametrize(
    ("facts", "why", "what_to_do"),
    [
        ({"own_user": False}, "belongs to ada", 'sudo "$(command -v gpuwatch)" stacks 42'),
        ({"ptrace_scope": 1}, "ptrace_scope is 1", "sudo sysctl kernel.yama.ptrace_scope=0"),
        ({"ptrace_scope": 1, "contained": True}, "lacks the capability", "--cap-add SYS_PTRACE"),
        ({"ptrace_scope": 2}, "ptrace_scope is 2", "sudo"),
        ({"ptrace_scope": 3, "capable": True, "root": True}, "3 forbids it to all", "outside"),
        ({"root": True, "contained": True}, "lacks the capability", "--cap-add SYS_PTRACE"),
        ({"capable": True, "root": True}, "though it has the capability", "outside"),
        ({}, "though it is yours", "sudo"),
    ],
)
def test_each_refusal_says_why_and_what_to_do(
    facts: dict[str, Any], why: str, what_to_do: str
) -> None:
    """The reason comes from the kernel's own settings, the remedy fits it."""
    sentence = stack_access.explain_refusal(REFUSED._replace(**facts))
    assert why in sentence
    assert what_to_do in sentence


def test_the_facts_are_read_from_proc(tmp_path: Path) -> None:
    """Users, the capability and Yama's setting, where the kernel has it."""
    proc = FakeProc(tmp_path)
    proc.process(42, uid=12345)
    proc.write("self/status", "Name:\tx\nCapEff:\t000000ffff77ffff\n")
    facts = stack_access.gather(42, tmp_path)
    assert (facts.capable, facts.ptrace_scope) == (False, None)
    proc.write("self/status", "Name:\tx\nCapEff:\t0000000000080000\n")
    proc.write("sys/kernel/yama/ptrace_scope", "2\n")
    facts = stack_access.gather(42, tmp_path)
    assert (facts.user, facts.own_user) == ("12345", False)
    assert (facts.capable, facts.ptrace_scope) == (True, 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_the_memory_of_another_user_may_not_be_read() -> None:
    """Asked as nobody about a process of root's."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            code = stack_access.probe_memory(parent)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == errno.EACCES


def test_a_program_that_is_no_python_is_refused_by_name(started: Children) -> None:
    """Before py-spy is started; nothing stands in the way of one that is."""
    child, python = started.run(["sleep", "60"]), started.python("ready()\nwait()\n")
    wait_until(lambda: "python" not in str(Path(f"/proc/{child.pid}/exe").readlink()))
    started.ready(python)
    if stack_access.probe_memory(child.pid) != 0:
        pytest.skip("reading another process's memory is not allowed here")
    sentence = stack_access.why_not(child.pid, sys.executable)
    assert f"Process {child.pid} is not Python: it runs /" in sentence
    assert stack_access.why_not(python.pid, sys.executable) is None


def test_what_has_no_stack_to_take_is_said(started: Children, tmp_path: Path) -> None:
    """Stopped, it would look like one long wait; ended, a zombie still has its PID; a kernel
    thread runs no Python, and nobody has a PID that large."""
    FakeProc(tmp_path).process(2, name="kthreadd", flags=0x00200000)
    assert "kernel thread" in (stack_access.why_not(2, sys.executable, tmp_path) or "")
    gone = "There is no process 99999999 (any more)."
    assert stack_access.why_not(99_999_999, sys.executable) == gone
    child = started.waiting()
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: stack_access.why_not(child.pid, sys.executable) is not None)
    assert f"kill -CONT {child.pid}" in (stack_access.why_not(child.pid, sys.executable) or "")
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: " Z " in Path(f"/proc/{child.pid}/stat").read_text())
    assert stack_access.why_not(child.pid, sys.executable) == f"Process {child.pid} has ended."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Error: Unsupported version of Python: 3.19.0a1\n", "Python 3.19.0a1 of process 42"),
        (
            "Error: Failed to get process executable name. Check that the process is running.",
            "ended",
        ),
        ("Error: something \x1b[31mnew\nReason: x", "could not read process 42: something \ufffd"),
        ("", "could not read process 42: nothing"),
    ],
)
def test_what_py_spy_says_becomes_a_sentence(text: str, says: str) -> None:
    """Known errors are explained, others shown by their first line, made safe."""
    assert says in stack_access.explain_failure(42, text)


def test_py_spy_of_our_own_environment_comes_first(tmp_path: Path) -> None:
    """It is the one that was installed for gpuwatch; another on the path will do."""
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "py-spy").write_text("#!/bin/sh\n")
        (folder / "py-spy").chmod(0o755)
    assert stack_access.find_py_spy([str(own)], str(other)) == str(own / "py-spy")
    assert stack_access.find_py_spy([str(tmp_path), ""], str(other)) == str(other / "py-spy")
    assert stack_access.find_py_spy([str(tmp_path)], str(tmp_path)) is None
