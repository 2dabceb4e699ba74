"""Jobs of real processes that stand in for those of PyTorch: what only the kernel can show."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.tracking.watching import key_of, members, roles, watching
from tests.support.children import Children, children_of, open_files, ran, wait_until

WORKERS = """
def fork():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with open('/proc/self/comm', 'w') as file:
            file.write('pt_data_worker')
        os.write(writer, b'.')
        time.sleep(600)
    os.read(reader, 1)
    return pid
print(*[fork() for _ in range(COUNT)], flush=True)
wait()
"""
"""Prints the PIDs of its workers once they have their name."""


def with_workers(count: int) -> str:
    return WORKERS.replace("COUNT", str(count))


def say(started: Children, child: subprocess.Popen[bytes]) -> list[int]:
    """The numbers on the child's next line."""
    return [int(word) for word in started.ready(child).split()]


def trainer(started: Children) -> tuple[int, list[int]]:
    """A process with two named workers: its PID and theirs."""
    child = started.python(with_workers(2))
    return child.pid, say(started, child)


def test_a_process_and_its_workers_are_one_job(started: Children) -> None:
    """Roles with their signs, the user and folder, and the cores it may use; fine samples of its
    main thread and of its workers. All is closed at the end: descriptors of hundreds of processes
    must not pile up with every attachment."""
    pid, workers = trainer(started)
    open_before = open_files()
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
        assert 0 < job.usable_cores <= len(os.sched_getaffinity(0))
        assert watch.problems == ()
        counts = [0, 0]

        def sampled() -> bool:
            # The clock of the test stands still: time for rates is what is given here.
            job = watch.job(after=0.2)
            counts[0] += len(job.main_thread_samples or ())
            counts[1] += len(job.loader_worker_samples or ())
            return min(counts) >= 2

        wait_until(sampled)
        watch.options.attached = None
        watch.look(after=1.0)
    assert open_files() <= open_before


def _kill(child: subprocess.Popen[bytes]) -> None:
    """As the OOM killer does; the child's own children stay."""
    child.send_signal(signal.SIGKILL)
    child.wait()


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
        assert after.main_thread_cpu_percent >= 15
        assert after.run_queue_wait_percent is not None
        assert after.read_bytes_per_second == 0.0
        assert after.memory_proportional_bytes is not None


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
    (pid,) = children_of(outer.pid)
    with watching(pid) as watch:
        job = watch.job()
        assert (job.pid, job.inner_pid) == (pid, 1)
        assert sorted(roles(job).values()) == ["loader_worker", "rank"]


def test_another_users_job_says_once_what_cannot_be_read(started: Children) -> None:
    """Its tree and names are open to all; its memory, disk use and environment are not."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can look at it as another user")
    pid, workers = trainer(started)
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
    if ran("-c", "import tests.jobs.tracking.watching", under=nobody).returncode != 0:
        pytest.skip("this checkout cannot be read as another user")
    found = ran("-c", code, str(pid), under=nobody)
    assert found.returncode == 0, found.stderr
    by_pid, read, messages = json.loads(found.stdout)
    assert by_pid == {str(pid): "rank", **dict.fromkeys(map(str, workers), "loader_worker")}
    assert read == [None, None, None]
    # Other jobs of this machine may have something said of them, too.
    (message,) = [one for one in messages if f"of job {pid} " in one]
    assert "because another user owns it" in message
    # A redacted recording has the sentence as it is.
    assert "python" not in message


def _cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
