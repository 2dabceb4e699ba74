"""What tests of stacks share: real jobs, and whether this machine lets them be looked into."""

import contextlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model import JobMember
from gpuwatch.jobs.stacks import sampler
from tests.support.children import Children, children, children_of
from tests.support.torch_job import TrainingJob

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
    if sampler.find_py_spy() is None:
        pytest.skip("py-spy is not installed")
    child = started.waiting()
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    # py-spy is no parent of what it samples.
    by_yama = os.geteuid() != 0 and yama.exists() and yama.read_text().strip() != "0"
    if by_yama or not sampler.may_read_memory(child.pid):
        pytest.skip("reading another process's memory is not allowed here")


def target(pid: int, **facts: object) -> JobMember:
    return JobMember(pid=pid, role="rank", **facts)  # type: ignore[arg-type]


def spinning(started: Children) -> int:
    """The PID of a process whose stacks can be taken."""
    require_py_spy(started)
    child = started.python(SPIN)
    started.ready(child)
    return child.pid


def py_spies_of(parent: int) -> list[int]:
    """By the program: a process that has just begun it can still have its parent's name."""
    found = []
    for pid in children_of(parent):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/exe").readlink().name.startswith("py-spy"):
                found.append(pid)
    return found


def has_sampled(py_spy: int, times: int = 40) -> bool:
    """Whether it slept that often, as it does between samples."""
    switches = 0
    for thread in Path(f"/proc/{py_spy}/task").iterdir():
        status = (thread / "status").read_text()
        at = status.find("\nvoluntary_ctxt_switches:")
        switches += int(status[at:].split(None, 2)[1]) if at >= 0 else 0
    return switches >= times


@contextlib.contextmanager
def training_job() -> Iterator[TrainingJob]:
    with children() as started:
        require_py_spy(started)
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    with tempfile.TemporaryDirectory() as folder, TrainingJob(Path(folder)) as job:
        yield job
