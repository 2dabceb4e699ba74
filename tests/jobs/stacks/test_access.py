"""Why stacks cannot be taken, and what a person is told to do."""

import os
import signal
import sys
from pathlib import Path

import pytest

from gpuwatch.jobs.stacks import sampler
from tests.support.children import Children, wait_until

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_the_memory_of_another_user_may_not_be_read() -> None:
    """Asked as nobody about a process of root's."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        code = 2
        try:
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            code = int(sampler.may_read_memory(parent))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_what_has_no_stack_to_take_is_said(started: Children) -> None:
    """Stopped, it would look like one long wait; ended, a zombie still has its PID; nobody has a
    PID that large."""
    gone = "Process 99999999 has ended."
    assert sampler.why_not(99_999_999, sys.executable) == gone
    child = started.waiting()
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: sampler.why_not(child.pid, sys.executable) is not None)
    assert f"kill -CONT {child.pid}" in (sampler.why_not(child.pid, sys.executable) or "")
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: " Z " in Path(f"/proc/{child.pid}/stat").read_text())
    assert sampler.why_not(child.pid, sys.executable) == f"Process {child.pid} has ended."


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
    assert says in sampler.explain_failure(42, text)


def test_py_spy_of_our_own_environment_comes_first(tmp_path: Path) -> None:
    """It is the one that was installed for gpuwatch; another on the path will do."""
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "py-spy").write_text("#!/bin/sh\n")
        (folder / "py-spy").chmod(0o755)
    assert sampler.find_py_spy([str(own)], str(other)) == str(own / "py-spy")
    assert sampler.find_py_spy([str(tmp_path), ""], str(other)) == str(other / "py-spy")
    assert sampler.find_py_spy([str(tmp_path)], str(tmp_path)) is None
