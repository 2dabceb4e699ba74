"""Ending a process: the right one, and never another."""

import os
import signal
from pathlib import Path

import pytest

from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import ProcessSource
from gpuwatch.sources.linux.signals import end_process
from tests.support.children import Children, wait_until

TERM_IS_IGNORED = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\nwait()\n"


def start_of(pid: int) -> float:
    return procfs.start_unix_seconds(
        procfs.parse_process_stat(procfs.read_once(f"/proc/{pid}/stat"))
    )


def test_a_process_is_asked_to_end_with_term(started: Children) -> None:
    """It can clean up: TERM, not KILL."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    result = end_process(child.pid, start_of(child.pid))
    assert result.ok
    assert str(child.pid) in result.message
    assert child.wait(60) == -signal.SIGTERM


def test_force_kills_what_ignores_term(started: Children) -> None:
    """TERM is reported as sent though it has no effect; KILL then ends it."""
    child = started.python(TERM_IS_IGNORED)
    started.ready(child)
    start = start_of(child.pid)
    assert end_process(child.pid, start).ok
    assert child.poll() is None
    assert end_process(child.pid, start, force=True).ok
    assert child.wait(60) == -signal.SIGKILL


def test_the_start_time_of_a_snapshot_is_good_for_it(started: Children) -> None:
    """What the process source shows is what this takes."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    source = ProcessSource(ManualClock(), ReadOptions())
    (row,), _ = source.read([GpuProcess(child.pid, "GPU-0")])
    source.close()
    assert end_process(row.pid, row.started_at_unix_seconds).ok
    assert child.wait(60) == -signal.SIGTERM


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("difference", [-1000.0, -0.5, 0.5, 1000.0])
def test_a_reused_pid_is_never_signalled(
    started: Children, monkeypatch: pytest.MonkeyPatch, difference: float, pinned: bool
) -> None:
    """Another start time is another process, with or without process descriptors."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    # Python itself waits with pidfd_open, from 3.15 on.
    with monkeypatch.context() as patch:
        if not pinned:
            patch.delattr(os, "pidfd_open", raising=False)
        result = end_process(child.pid, start_of(child.pid) + difference, force=True)
    assert not result.ok
    assert "no longer" in result.message
    # Had a signal been sent, this would not come back.
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) == 0


def test_without_process_descriptors_the_right_process_is_ended(
    started: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels before 5.3 have no pidfd_open."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    with monkeypatch.context() as patch:
        patch.delattr(os, "pidfd_open", raising=False)
        assert end_process(child.pid, start_of(child.pid)).ok
    assert child.wait(60) == -signal.SIGTERM


def test_a_process_that_has_ended_is_said_to_have_ended(started: Children) -> None:
    """Gone altogether, and gone but not yet collected by its parent."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    start = start_of(child.pid)
    child.kill()
    wait_until(lambda: Path(f"/proc/{child.pid}/stat").read_bytes().split()[2] == b"Z")
    zombie = end_process(child.pid, start)
    child.wait()
    gone = end_process(child.pid, start)
    for result in (zombie, gone):
        assert not result.ok
        assert "already ended" in result.message


@pytest.mark.parametrize("force", [False, True])
def test_gpuwatch_itself_is_not_ended(force: bool) -> None:
    """Its own PID is refused, and this test goes on."""
    result = end_process(os.getpid(), start_of(os.getpid()), force)
    assert not result.ok
    assert "gpuwatch itself" in result.message


@pytest.mark.parametrize("pid", [1, 0, -1, -4242, 2**40])
def test_process_1_groups_and_impossible_numbers_are_refused(pid: int) -> None:
    """Zero and negative numbers would reach whole groups of processes."""
    assert not end_process(pid, 0.0, force=True).ok


def test_a_process_whose_start_is_unknown_is_refused(started: Children) -> None:
    """A host PID seen from a container can be somebody else's number here."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    assert not end_process(child.pid, None, force=True).ok
    assert child.poll() is None


def test_a_kernel_thread_is_refused() -> None:
    """It would ignore the signal; the person is told why instead."""
    thread = next(
        (pid for pid in range(2, 40) if Path(f"/proc/{pid}/stat").exists() and _is_kernel(pid)),
        None,
    )
    if thread is None:
        pytest.skip("no kernel thread is visible here")
    result = end_process(thread, start_of(thread))
    assert not result.ok
    assert "kernel" in result.message


def _is_kernel(pid: int) -> bool:
    return procfs.parse_process_stat(procfs.read_once(f"/proc/{pid}/stat")).is_kernel_thread


def test_no_permission_names_the_owner(started: Children) -> None:
    """The kernel refuses, and the sentence says whose process it is."""
    if os.geteuid() != 0:
        pytest.skip("needs to act as another user")
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    code = (
        "sys.path.insert(0, sys.argv[1])\n"
        "from gpuwatch.sources.linux.signals import end_process\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "result = end_process(int(sys.argv[2]), float(sys.argv[3]))\n"
        "ready(f'{result.ok} {result.message}')\nwait()\n"
    )
    package = Path(__file__).parents[3]
    other = started.python(code, str(package), str(child.pid), str(start_of(child.pid)))
    said = started.ready(other)
    assert said.startswith("False")
    assert "root" in said
    assert child.poll() is None
