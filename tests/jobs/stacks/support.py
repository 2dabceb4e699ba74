"""What tests of stacks share: real jobs, and whether this machine lets them be looked into."""

import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.jobs.stacks import access as stack_access
from tests.support.children import Children, children, children_of

JOB = Path(__file__).with_name("job.py")

SPIN = """
def spin():
    n = 0
    while True:
        n += 1

ready()
spin()
"""


def require_py_spy(started: Children) -> None:
    """Skip where stacks cannot be taken, saying why."""
    if stack_access.find_py_spy() is None:
        pytest.skip("py-spy is not installed")
    child = started.waiting()
    facts = stack_access.gather(child.pid)
    by_yama = (facts.ptrace_scope or 0) > 0 and not facts.capable
    if by_yama or stack_access.probe_memory(child.pid) != 0:
        pytest.skip("reading another process's memory is not allowed here")


def spinning(started: Children) -> int:
    """The PID of a process whose stacks can be taken."""
    require_py_spy(started)
    child = started.python(SPIN)
    started.ready(child)
    return child.pid


def py_spies_of(parent: int) -> list[int]:
    return [pid for pid, stat in children_of(parent).items() if stat.name.startswith(b"py-spy")]


def has_sampled(py_spy: int, times: int = 40) -> bool:
    """Whether it slept that often, as it does between samples."""
    switches = 0
    for thread in Path(f"/proc/{py_spy}/task").iterdir():
        status = (thread / "status").read_text()
        at = status.find("\nvoluntary_ctxt_switches:")
        switches += int(status[at:].split(None, 2)[1]) if at >= 0 else 0
    return switches >= times


class TrainingJob:
    """A real PyTorch job that does what it is told."""

    def __init__(self, process: subprocess.Popen[bytes], started: Children) -> None:
        self.pid = process.pid
        self._process = process
        self._started = started

    def do(self, phase: str) -> None:
        """Return once ``phase`` has begun."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{phase}\n".encode())
        self._process.stdin.flush()
        while self._started.ready(self._process) != phase:
            assert self._process.poll() is None, "the job has ended"


@contextlib.contextmanager
def training_job() -> Iterator[TrainingJob]:
    with children() as started:
        require_py_spy(started)
        if importlib.util.find_spec("torch") is None:
            pytest.skip("torch is not installed")
        process = started.run([sys.executable, "-u", str(JOB)])
        assert started.ready(process) == "ready"
        yield TrainingJob(process, started)
