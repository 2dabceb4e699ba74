"""Jobs of real processes that stand in for those of PyTorch: what belongs to one, over time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.core.source import SystemClock
from gpuwatch.jobs.tracking.tracker import JobTracker
from tests.jobs.tracking.watching import (
    RENAME,
    Watch,
    key_of,
    members,
    own_loop_reader,
    roles,
    watching,
)
from tests.support.children import Children, wait_until


def with_workers(count: int) -> str:
    return (
        f"{RENAME}"
        f"print(*[fork(name='pt_data_worker') for _ in range({count})], flush=True)\n"
        "wait()\n"
    )


def say(started: Children, child: subprocess.Popen[bytes]) -> list[int]:
    """The numbers on the child's next line."""
    return [int(word) for word in started.ready(child).split()]


def trainer(started: Children, workers: int) -> tuple[int, list[int]]:
    """A process with named workers: its PID and theirs."""
    child = started.python(with_workers(workers))
    pids = say(started, child)
    return child.pid, pids


def tell(child: subprocess.Popen[bytes], text: str = "\n") -> None:
    assert child.stdin is not None
    child.stdin.write(text.encode())
    child.stdin.flush()


def test_a_process_and_its_workers_are_one_job(started: Children) -> None:
    """Roles with their signs, the user and folder, and the cores it may use."""
    pid, workers = trainer(started, 2)
    with watching(pid) as watch:
        job = watch.job()
        assert job.key == key_of(pid)
        assert job.attached
        assert roles(job) == {pid: "rank", workers[0]: "loader_worker", workers[1]: "loader_worker"}
        worker = members(job)[workers[0]]
        assert (worker.role_sign, worker.role_guessed) == ("named pt_data_worker", False)
        (rank,) = job.ranks
        assert (rank.pid, rank.loader_workers, rank.rank) == (pid, 2, None)
        assert job.working_directory == str(Path.cwd())
        assert job.user == next(row.user for row in watch.processes if row.pid == pid)
        assert job.usable_cores is not None
        assert 0 < job.usable_cores <= len(os.sched_getaffinity(0))
        assert watch.problems == ()


@pytest.mark.parametrize("ask_for", ["the worker", "the rank"])
def test_attaching_to_any_process_finds_its_job(started: Children, ask_for: str) -> None:
    """A worker leads to the training process above it."""
    pid, workers = trainer(started, 1)
    with watching(workers[0] if ask_for == "the worker" else pid) as watch:
        job = watch.job()
        assert job.pid == pid
        assert set(roles(job)) == {pid, *workers}


def test_a_shell_above_is_not_a_part_of_the_job(started: Children, tmp_path: Path) -> None:
    """The script that started it goes on to other things."""
    script = tmp_path / "train.sh"
    script.write_text(f"{sys.executable} -S -c 'print(1, flush=True); input()'; sleep 600\n")
    shell = started.run(["/bin/sh", str(script)])
    started.ready(shell)
    (child,) = _children_of(shell.pid)
    with watching(child) as watch:
        assert roles(watch.job()) == {child: "rank"}
    with watching(shell.pid) as watch:
        assert roles(watch.job()) == {shell.pid: "other", child: "rank"}


def test_a_script_between_two_commands_has_not_ended(started: Children) -> None:
    """Attached to a shell script: what it starts next belongs to the job too."""
    script = "read a; sleep 600 & read a; kill $!; wait; sleep 601; true"
    shell = started.run(["/bin/sh", "-c", script])
    assert shell.stdin is not None
    with watching(shell.pid) as watch:
        assert watch.job().ended_at_unix_seconds is None
        for _ in range(2):
            before = _children_of(shell.pid)
            tell(shell)
            wait_until(lambda before=before: _children_of(shell.pid) not in ([], before))
            watch.look(after=2.0)
            job = watch.job(after=2.0)
            assert set(roles(job)) == {shell.pid, *_children_of(shell.pid)}
            assert job.ended_at_unix_seconds is None
    _kill(shell)


def test_a_program_that_is_no_python_is_a_job_too(started: Children) -> None:
    """Its CPU side is still useful; how it loads data is not known."""
    child = started.run(["sleep", "600"])
    wait_until(lambda: Path(f"/proc/{child.pid}/comm").read_text() == "sleep\n")
    with watching(child.pid) as watch:
        job = watch.job()
        assert roles(job) == {child.pid: "rank"}
        assert members(job)[child.pid].role_guessed
        assert job.ranks[0].loader_workers is None
        assert job.ranks[0].loader_workers_sign


def test_a_launcher_and_its_ranks_are_one_job(started: Children) -> None:
    """With the numbers from their environment; each worker belongs to its rank."""
    code = RENAME + (
        "import subprocess\n"
        "rename('torchrun')\n"
        "ranks = [subprocess.Popen([sys.executable, '-S', '-c', sys.argv[1]], "
        "env={**os.environ, 'RANK': str(r), 'LOCAL_RANK': str(r), 'WORLD_SIZE': '2'}, "
        "stdin=subprocess.PIPE, stdout=subprocess.PIPE) for r in (0, 1)]\n"
        "[rank.stdout.readline() for rank in ranks]\n"
        "print(*[rank.pid for rank in ranks], flush=True)\nwait()\n"
    )
    rank_code = (
        "import os, sys, time\n"
        + RENAME
        + "fork(name='pt_data_worker')\nprint(flush=True)\nsys.stdin.read()\n"
    )
    launcher = started.python(code, rank_code)
    zero, one = say(started, launcher)
    with watching() as watch:
        # Of the two ranks, both on GPUs, one job is made.
        job = watch.job(zero, one)
        assert (job.pid, job.launcher, job.world_size) == (launcher.pid, "torchrun", 2)
        assert [(rank.pid, rank.rank, rank.local_rank) for rank in job.ranks] == [
            (zero, 0, 0),
            (one, 1, 1),
        ]
        assert [rank.gpu_uuids for rank in job.ranks] == [("GPU-0",), ("GPU-1",)]
        assert job.gpu_uuids == ("GPU-0", "GPU-1")
        assert job.loader_workers == 2
        assert not job.attached
        assert [m.rank for m in job.having("loader_worker")] == [0, 1]
        assert [m.role for m in job.members] == [
            "launcher",
            "rank",
            "loader_worker",
            "rank",
            "loader_worker",
        ]


def test_workers_that_come_and_go(started: Children) -> None:
    """Each look counts those that are there; in between it is unknown, not none."""
    child = started.python(
        RENAME + "while True:\n"
        "    count = int(sys.stdin.readline())\n"
        "    pids = [fork(name='pt_data_worker') for _ in range(count)]\n"
        "    print(*pids, flush=True)\n"
        "    sys.stdin.readline()\n"
        "    for pid in pids:\n        os.kill(pid, 9)\n        os.waitpid(pid, 0)\n"
        "    print(0, flush=True)\n"
    )
    with watching(child.pid) as watch:
        for count in (3, 1, 4):
            tell(child, f"{count}\n")
            pids = say(started, child)
            watch.look(after=2.0)
            job = watch.job(after=0.1)
            assert {m.pid for m in job.having("loader_worker")} == set(pids)
            assert job.ranks[0].loader_workers == count
            tell(child)
            say(started, child)
            job = watch.job(after=2.0)
            assert job.having("loader_worker") == ()
            assert job.ranks[0].loader_workers is None
            assert job.ranks[0].loader_workers_sign == f"it had {count} until 2s ago"
            assert job.ended_at_unix_seconds is None


def _kill(child: subprocess.Popen[bytes]) -> None:
    """As the OOM killer does; the child's own children stay."""
    child.send_signal(signal.SIGKILL)
    child.wait()


def test_workers_of_a_killed_process_stay_in_the_job_as_orphans(started: Children) -> None:
    """They are named as such, keep their role, and the job has ended."""
    child = started.python(with_workers(2))
    workers = say(started, child)
    with watching(child.pid) as watch:
        watch.look()
        _kill(child)
        job = watch.job(after=1.0)
        job = watch.job(after=1.0)
        assert job.pid == child.pid
        assert job.ended_at_unix_seconds is not None
        assert job.ranks == ()
        by_pid = members(job)
        assert by_pid[child.pid].state is None
        assert by_pid[child.pid].role == "rank"
        for pid in workers:
            assert (by_pid[pid].role, by_pid[pid].orphaned) == ("loader_worker", True)
            assert by_pid[pid].state is not None
        watch.look(after=30.0)
        assert any(f"kill {workers[0]} {workers[1]}" in message for message in watch.messages)


def test_orphans_that_were_never_seen_with_their_parent_are_a_job(started: Children) -> None:
    """Found by their name and by who took them in, and told as what they are."""
    child = started.python(with_workers(2))
    workers = say(started, child)
    _kill(child)
    with watching() as watch:
        mine = [job for job in watch.look_at_all() if {m.pid for m in job.members} & set(workers)]
        (job,) = mine
        assert set(roles(job)) == set(workers)
        assert all(member.orphaned for member in job.members)
        assert job.ranks == ()
        assert job.ended_at_unix_seconds is not None
        watch.look(after=11.0)
        assert any("left over from a job that has ended" in message for message in watch.messages)


def test_an_orphan_that_holds_gpu_memory_is_a_job(started: Children) -> None:
    """The driver names it at once, without waiting for the slow look around."""
    child = started.python(with_workers(1))
    (worker,) = say(started, child)
    with watching() as watch:
        watch.look()
        _kill(child)
        jobs = watch.look_at_all(worker, after=0.1)
        job = next(job for job in jobs if job.pid == worker)
        assert job.gpu_uuids == ("GPU-0",)
        assert (job.members[0].role, job.members[0].orphaned) == ("loader_worker", True)


def test_an_ended_job_stays_while_somebody_is_attached(started: Children) -> None:
    """With when it ended; the next attachment takes its place."""
    child = started.python("ready()\nwait()\n")
    other = started.python("ready()\nwait()\n")
    started.ready(child)
    started.ready(other)
    with watching(child.pid) as watch:
        watch.look()
        _kill(child)
        job = watch.job(after=1.0)
        ended = job.ended_at_unix_seconds
        assert ended == watch.clock.unix()
        assert [(m.pid, m.state, m.cpu_percent) for m in job.members] == [(child.pid, None, None)]
        assert watch.job(after=60.0).ended_at_unix_seconds == ended
        watch.options.attached = key_of(other.pid)
        assert watch.job(after=1.0).pid == other.pid
        watch.options.attached = None
        assert watch.look(after=1.0) == ()


def test_a_zombie_is_an_ended_job(started: Children) -> None:
    """Nobody has waited for it yet; it will never run again."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    with watching(child.pid) as watch:
        watch.look()
        child.send_signal(signal.SIGKILL)
        wait_until(lambda: _state(child.pid) == "Z")
        job = watch.job(after=1.0)
        assert job.ended_at_unix_seconds is not None
        assert job.ranks == ()


def test_a_job_on_a_gpu_is_gone_when_it_ends(started: Children) -> None:
    """Nobody is attached to it."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    with watching() as watch:
        assert watch.job(child.pid).pid == child.pid
        _kill(child)
        assert watch.look(child.pid, after=1.0) == ()


def test_a_driver_that_is_silent_for_a_moment_loses_no_job(started: Children) -> None:
    """It names no process then; after some seconds the job has left the GPU."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    with watching() as watch:
        watch.look(child.pid)
        assert watch.job(after=1.0).pid == child.pid
        assert watch.look(after=6.0) == ()


def test_what_was_asked_for_and_has_ended_is_said(started: Children) -> None:
    """There is no job to show, and a sentence that says why."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    key = key_of(child.pid)
    _kill(child)
    watch = Watch(attached=key)
    assert watch.look() == ()
    assert watch.messages[0] == f"Process {child.pid} has ended: there is no job to show."
    watch.close()


def test_somebody_elses_process_of_the_same_number_is_not_the_job(started: Children) -> None:
    """The kernel gives numbers out again."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    pid, began = key_of(child.pid)
    assert began is not None
    watch = Watch(attached=(pid, began - 100.0))
    assert all(not job.attached for job in watch.look())
    assert "belongs to another process now" in watch.messages[0]
    watch.close()


def test_the_same_command_started_again_is_the_jobs_next_run(
    started: Children, tmp_path: Path
) -> None:
    """By the same user in the same folder: gpuwatch goes on with it and says so."""
    script = tmp_path / "train.py"
    script.write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")
    command = [sys.executable, "-S", str(script), "--epochs", "3"]
    first = started.run(command)
    started.ready(first)
    with watching(first.pid) as watch:
        watch.look()
        _kill(first)
        watch.look(after=1.0)
        other = started.run([*command[:-1], "4"])
        started.ready(other)
        assert watch.job(after=2.0).pid == first.pid
        again = started.run(command)
        started.ready(again)
        # The clock of the test does not move by itself: the run is as new as it looks.
        watch.look(after=2.0)
        job = watch.job(after=2.0)
        assert (job.pid, job.attached) == (again.pid, True)
        assert watch.options.attached == key_of(again.pid)
        assert any("was started again" in message for message in watch.messages)


def test_rates_come_with_the_second_look(started: Children) -> None:
    """A busy main thread is near one full core; what was not measured is absent."""
    child = started.python("ready()\nwhile os.getppid() != 1:\n    sum(range(1000))\n")
    started.ready(child)
    with watching(child.pid) as watch:
        before = members(watch.job())[child.pid]
        assert before.main_thread_cpu_percent is None
        assert before.read_bytes_per_second is None
        ticks = _cpu_seconds(child.pid)
        wait_until(lambda: _cpu_seconds(child.pid) > ticks + 0.2)
        after = members(watch.job(after=1.0))[child.pid]
        assert after.main_thread_cpu_percent is not None
        assert after.main_thread_cpu_percent >= 15
        assert after.run_queue_wait_percent is not None
        assert after.read_bytes_per_second == 0.0
        assert after.memory_proportional_bytes is not None


def test_the_attached_job_has_fine_samples(started: Children) -> None:
    """Of its main thread and of its workers, from a thread that ends with the tracker."""
    pid, _workers = trainer(started, 2)
    watch = Watch(attached=key_of(pid))
    watch.tracker = JobTracker(SystemClock(), watch.options, loops=own_loop_reader())
    main: list[float] = []
    work: list[float] = []

    def sampled() -> bool:
        job = watch.job()
        main.extend(sample.percent for sample in job.main_thread_samples or ())
        work.extend(sample.percent for sample in job.loader_worker_samples or ())
        return len(main) >= 2 and len(work) >= 2

    wait_until(sampled)
    watch.close()


def test_everything_is_closed_at_the_end(started: Children) -> None:
    """Descriptors of hundreds of processes must not pile up with every attachment."""
    pid, _workers = trainer(started, 3)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with watching(pid) as watch:
        watch.look()
        watch.look(after=1.0)
        watch.options.attached = None
        watch.look(after=1.0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_job_in_a_pid_namespace_of_its_own(started: Children) -> None:
    """As in a container: it is followed by the PIDs seen here, and its own number is told."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    tried = subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip("this machine does not allow PID namespaces")
    code = "import os, sys, time\n" + with_workers(1).replace("wait()", "sys.stdin.read()")
    outer = started.run(["unshare", "--pid", "--fork", sys.executable, "-S", "-c", code])
    assert say(started, outer) == [2]
    (pid,) = _children_of(outer.pid)
    with watching(pid) as watch:
        job = watch.job()
        assert (job.pid, job.inner_pid) == (pid, 1)
        assert sorted(roles(job).values()) == ["loader_worker", "rank"]


def test_another_users_job_says_once_what_cannot_be_read(started: Children) -> None:
    """Its tree and names are open to all; its memory, disk use and environment are not."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can look at it as another user")
    pid, workers = trainer(started, 2)
    code = (
        "from tests.jobs.tracking.watching import watching, roles\n"
        "import json, sys\n"
        "with watching(int(sys.argv[1])) as watch:\n"
        "    watch.look()\n"
        "    job = watch.job(after=1.0)\n"
        "    read = [member.read_bytes_per_second for member in job.members]\n"
        "    print(json.dumps([roles(job), read, watch.messages]))\n"
    )
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    allowed = subprocess.run(
        [*nobody, sys.executable, "-c", "import tests.jobs.tracking.watching"],
        capture_output=True,
        check=False,
    )
    if allowed.returncode != 0:
        pytest.skip("this checkout cannot be read as another user")
    found = subprocess.run(
        [*nobody, sys.executable, "-c", code, str(pid)], capture_output=True, check=False, text=True
    )
    assert found.returncode == 0, found.stderr
    by_pid, read, messages = json.loads(found.stdout)
    assert by_pid == {str(pid): "rank", **dict.fromkeys(map(str, workers), "loader_worker")}
    assert read == [None, None, None]
    # Other jobs of this machine may have something said of them, too.
    (message,) = [one for one in messages if f"of job {pid} " in one]
    assert "because another user owns it" in message
    # A redacted recording has the sentence as it is.
    assert "python" not in message


def _children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
