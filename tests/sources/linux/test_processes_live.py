"""The process source on real processes: trees, churn, zombies, hostile names."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model import Process
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux.processes import ProcessSource
from tests.support.children import Children, wait_until


class Watch:
    """A source of real processes, with a clock that only the test turns."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.options = ReadOptions()
        self.source = ProcessSource(self.clock, self.options)

    def read(self, *pids: int, after: float = 0.0) -> dict[int, Process]:
        """The rows by PID, with each of ``pids`` on a GPU."""
        self.clock.advance(after)
        rows, self.problems = self.source.read([GpuProcess(pid, "GPU-0") for pid in pids])
        return {row.pid: row for row in rows}


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.source.close()


def test_a_real_process_shows_what_the_system_says_of_it(started: Children, watch: Watch) -> None:
    """Command, parent, state, user, threads and memory of a child that waits."""
    child = started.waiting("", "--lr", "a b")
    row = watch.read(child.pid)[child.pid]
    wait_until(lambda: watch.read(child.pid)[child.pid].state == "S")
    assert row.parent_pid == os.getpid()
    assert row.threads == 1
    assert row.command is not None
    assert row.command.startswith(sys.executable)
    assert row.command.endswith("--lr 'a b'")
    assert row.memory_resident_bytes is not None
    assert row.memory_resident_bytes > 1 << 20
    assert row.user
    assert watch.problems == ()


def test_a_worker_whose_parent_ends_stays_with_its_trainer(started: Children, watch: Watch) -> None:
    """A launcher between the two exits: the kernel gives the worker a new parent, not us."""
    trainer = started.python(
        "launcher = os.fork()\n"
        "if launcher == 0:\n"
        "    worker = os.fork()\n"
        "    if worker == 0:\n"
        "        time.sleep(600)\n"
        "    ready(worker)\n"
        "    sys.stdin.readline()\n"
        "    os._exit(0)\n"
        "os.waitpid(launcher, 0)\n"
        "ready()\n"
        "time.sleep(600)\n"
    )
    worker = int(started.ready(trainer))
    try:
        rows = watch.read(trainer.pid)
        launcher = rows[worker].parent_pid
        assert set(rows) == {trainer.pid, launcher, worker}
        assert trainer.stdin is not None
        trainer.stdin.write(b"go\n")
        trainer.stdin.flush()
        started.ready(trainer)
        for seconds in (0.1, 2.0, 70.0):
            rows = watch.read(trainer.pid, after=seconds)
            assert set(rows) == {trainer.pid, worker}
        assert rows[worker].parent_pid != launcher
    finally:
        os.kill(worker, signal.SIGKILL)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to start a process as another user")
def test_another_users_process_is_shown_where_the_system_allows_it(
    started: Children, watch: Watch
) -> None:
    """User and command line of a process that runs as nobody."""
    child = started.waiting("os.setuid(65534)", "--theirs")
    row = watch.read(child.pid)[child.pid]
    assert row.user in ("nobody", "65534")
    assert (row.command or "").endswith("--theirs")


SEEN_FROM_ELSEWHERE = """
import os, pwd, sys
sys.path.insert(0, sys.argv[1])
from gpuwatch.core.source import ReadOptions, SystemClock
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux.processes import ProcessSource
if "nobody" in sys.argv:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
source = ProcessSource(SystemClock(), ReadOptions())
rows, problems = source.read([GpuProcess(int(sys.argv[2]), "GPU-0", 5)])
print([(row.gpu_memory_bytes, row.user, row.command) for row in rows], end=" ")
print(*(problem.message for problem in problems), sep="|")
"""


@pytest.mark.parametrize("hidden_by", ["hidepid=1", "hidepid=2", "container"])
def test_what_the_kernel_hides_is_explained_in_one_sentence(
    started: Children, hidden_by: str
) -> None:
    """Another user's process under hidepid, and a host PID seen from inside a container."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("needs to make namespaces")
    mount = f'mount -t proc -o {hidden_by} proc /proc && "$@" nobody'
    how, word = ["--mount", "sh", "-c", mount, "-"], "hidepid"
    if hidden_by == "container":
        how, word = ["--pid", "--fork", "--mount-proc"], hidden_by
    child = started.waiting()
    package = str(Path(__file__).parents[3])
    looker = [sys.executable, "-c", SEEN_FROM_ELSEWHERE, package, str(child.pid)]
    done = subprocess.run(
        [unshare, *how, *looker], capture_output=True, text=True, timeout=60, check=False
    )
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("may not make namespaces here")
    assert done.stderr == ""
    assert done.stdout.startswith("[(5, None, None)] ")
    assert word in done.stdout
    assert "|" not in done.stdout
