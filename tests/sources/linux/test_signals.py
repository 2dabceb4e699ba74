"""Ending a process: the right one, and never another."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

import gpuwatch
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import EndResult, ProcessSource, end_process
from tests.support.children import Children, wait_until


def end(pid: int, *, off_by: float = 0.0, force: bool = False, pinned: bool = True) -> EndResult:
    """With its true start time, or one that is off; ``pinned``: by a process descriptor."""
    started_at = procfs.read_start(pid)
    assert started_at is not None
    with pytest.MonkeyPatch.context() as patch:
        if not pinned:
            # As before Linux 5.3. Python itself waits with it, from 3.15 on.
            patch.delattr(os, "pidfd_open", raising=False)
        return end_process(pid, started_at + off_by, force)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_process_is_asked_to_end_with_term(started: Children, pinned: bool) -> None:
    """It can clean up: TERM, not KILL."""
    child = started.waiting()
    result = end(child.pid, pinned=pinned)
    assert result.ok
    assert str(child.pid) in result.message
    assert child.wait(60) == -signal.SIGTERM


def test_force_kills_what_ignores_term(started: Children) -> None:
    """TERM is reported as sent though it has no effect; KILL then ends it."""
    child = started.waiting("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)")
    assert end(child.pid).ok
    assert child.poll() is None
    assert end(child.pid, force=True).ok
    assert child.wait(60) == -signal.SIGKILL


def test_the_start_time_of_a_snapshot_is_good_for_it(started: Children) -> None:
    """What the process source shows is what this takes."""
    child = started.waiting()
    source = ProcessSource(ManualClock(), ReadOptions())
    (row,), _ = source.read([GpuProcess(child.pid, "GPU-0")])
    source.close()
    assert end_process(row.pid, row.started_at_unix_seconds).ok
    assert child.wait(60) == -signal.SIGTERM


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("difference", [-1000.0, -0.5, 0.5, 1000.0])
def test_a_reused_pid_is_never_signalled(
    started: Children, difference: float, pinned: bool
) -> None:
    """Another start time is another process, with or without process descriptors."""
    child = started.waiting()
    result = end(child.pid, off_by=difference, force=True, pinned=pinned)
    assert not result.ok
    assert "no longer" in result.message
    # Had a signal been sent, this would not come back.
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) == 0


def test_a_process_that_has_ended_is_said_to_have_ended(started: Children) -> None:
    """Gone altogether, and gone but not yet collected by its parent."""
    child = started.waiting()
    start = procfs.read_start(child.pid)
    child.kill()
    wait_until(lambda: Path(f"/proc/{child.pid}/stat").read_bytes().split()[2] == b"Z")
    zombie = end_process(child.pid, start)
    child.wait()
    for result in (zombie, end_process(child.pid, start)):
        assert not result.ok
        assert "already ended" in result.message


@pytest.mark.parametrize("force", [False, True])
def test_gpuwatch_itself_is_not_ended(force: bool) -> None:
    """Its own PID is refused, and this test goes on."""
    result = end(os.getpid(), force=force)
    assert not result.ok
    assert "gpuwatch itself" in result.message


@pytest.mark.parametrize("pid", [1, 0, -1, -4242, 2**40])
def test_process_1_groups_and_impossible_numbers_are_refused(pid: int) -> None:
    """Zero and negative numbers would reach whole groups of processes."""
    assert not end_process(pid, 0.0, force=True).ok


def test_a_process_whose_start_is_unknown_is_refused(started: Children) -> None:
    """A host PID seen from a container can be somebody else's number here."""
    child = started.waiting()
    assert not end_process(child.pid, None, force=True).ok
    assert child.poll() is None


def test_a_kernel_thread_is_refused() -> None:
    """It would ignore the signal; the person is told why instead."""
    seen = {pid: procfs.read_stat(pid) for pid in range(2, 40)}
    thread = next((pid for pid, stat in seen.items() if stat and stat.is_kernel_thread), None)
    if thread is None:
        pytest.skip("no kernel thread is visible here")
    result = end(thread)
    assert not result.ok
    assert "kernel" in result.message


def test_no_permission_names_the_owner(started: Children) -> None:
    """The kernel refuses, and the sentence says whose process it is."""
    if os.geteuid() != 0:
        pytest.skip("needs to act as another user")
    child = started.waiting()
    code = (
        "sys.path[:0] = sys.argv[1].split(':')\n"
        "from gpuwatch.sources.linux.processes import end_process\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "result = end_process(int(sys.argv[2]), float(sys.argv[3]))\n"
        "ready(f'{result.ok} {result.message}')\nwait()\n"
    )
    package = ":".join(str(Path(one).parents[1]) for one in (gpuwatch.__file__, msgspec.__file__))
    start = procfs.read_start(child.pid)
    said = started.ready(started.python(code, package, str(child.pid), str(start)))
    assert said.startswith("False")
    assert "root" in said
    assert child.poll() is None
