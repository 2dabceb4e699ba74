"""``gpuwatch stacks`` on real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.commands.stacks import exit_code
from gpuwatch.jobs.stacks import access as stack_access
from gpuwatch.jobs.stacks.summary import StackReport
from tests.commands.conftest import Gpuwatch
from tests.commands.running import environment_in
from tests.jobs.stacks.support import TrainingJob, has_sampled, py_spies_of, spinning, training_job
from tests.support.children import Children, children_of, wait_until


@pytest.fixture(scope="module")
def job() -> Iterator[TrainingJob]:
    with training_job() as running:
        running.do("starving")
        yield running


def worker_of(job: TrainingJob) -> int:
    return next(iter(children_of(job.pid)))


def test_a_loader_worker_s_pid_finds_the_training_process(
    job: TrainingJob, gpuwatch: Gpuwatch
) -> None:
    """And says where it waits, on the training loop's own line."""
    page = gpuwatch("stacks", str(worker_of(job)), "-s", "2").out
    assert page.startswith(f"PID {job.pid}: ")
    for said in ("waiting for data", "train.py", "for _batch in loader:", "was never paused."):
        assert said in page


def test_workers_on_request(job: TrainingJob, gpuwatch: Gpuwatch) -> None:
    """What the workers are busy with is the other half of a starved job."""
    done = gpuwatch("stacks", str(job.pid), "-s", "1", "--workers", "--json")
    processes = done.json["processes"]
    assert [process["role"] for process in processes] == ["rank", "loader_worker"]
    largest = processes[1]["shares"][0]
    assert largest["category"] == "loading_data"
    assert largest["lines"][0]["function"] == "augment"


def test_only_the_process_named(job: TrainingJob, gpuwatch: Gpuwatch) -> None:
    """A worker by itself."""
    worker = worker_of(job)
    done = gpuwatch("stacks", str(worker), "-s", "1", "--only", "--json")
    (process,) = done.json["processes"]
    assert process["pid"] == worker


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        ([StackReport(pid=1, samples=5), StackReport(pid=2, problem="No.", refused=True)], 0),
        ([StackReport(pid=1, problem="No."), StackReport(pid=2, problem="No.", refused=True)], 69),
        ([StackReport(pid=1, problem="No.", refused=True)], 2),
    ],
)
def test_the_exit_code_says_what_came_of_it(reports: list[StackReport], code: int) -> None:
    """0 something was seen, 69 nothing but it could have been, 2 it is not possible."""
    assert exit_code(tuple(reports)) == code


@pytest.mark.parametrize("options", [[], ["--only"]])
def test_a_pid_of_nobody(options: list[str], gpuwatch: Gpuwatch) -> None:
    """2, and a sentence."""
    if stack_access.find_py_spy() is None:
        pytest.skip("py-spy is not installed")
    assert "99999999" in gpuwatch("stacks", "99999999", *options, code=2).err


@pytest.mark.parametrize("arguments", [["x"], ["0"], ["-5"], ["1", "--seconds", "0"], []])
def test_arguments_that_make_no_sense(arguments: list[str], gpuwatch: Gpuwatch) -> None:
    """2, without a look at anything."""
    gpuwatch("stacks", *arguments, code=2)


def test_without_py_spy_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, gpuwatch: Gpuwatch
) -> None:
    """2, before anything else is done."""
    monkeypatch.setattr(stack_access, "find_py_spy", lambda: None)
    assert "install py-spy" in gpuwatch("stacks", str(os.getpid()), code=2).err


def test_ctrl_c_ends_early_with_what_was_seen(started: Children, tmp_path: Path) -> None:
    """130, and the page all the same; the process goes on."""
    pid = spinning(started)
    command = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "stacks", str(pid), "--only", "--seconds", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_in(tmp_path),
        start_new_session=True,
    )
    wait_until(lambda: any(has_sampled(py_spy) for py_spy in py_spies_of(command.pid)))
    os.killpg(command.pid, signal.SIGINT)
    out, errors = command.communicate(timeout=60)
    assert command.returncode == 130, errors
    assert f"PID {pid}: " in out
    assert Path(f"/proc/{pid}").exists()
