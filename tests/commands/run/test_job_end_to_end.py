"""A real PyTorch job on the virtual GPU, and what a person learns of it from outside: nothing in
between is replaced but the driver's library, and that one follows the job."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_nvml import FakeNvml, create_or_skip

pytest.importorskip("torch", reason="torch is not installed")

ROOT = Path(__file__).parents[3]
MEMORY_BYTES = 6 << 30

TRAIN = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from tests.support.virtual_gpu import VirtualGpu

workers, steps, cost = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

def augment(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

class Pictures(Dataset):
    def __len__(self):
        return 1 << 20
    def __getitem__(self, index):
        augment(cost)
        return torch.zeros(16)

def train():
    torch.set_num_threads(1)
    gpu = VirtualGpu.open(0, memory_bytes=6 << 30)
    for step, batch in enumerate(DataLoader(Pictures(), batch_size=8, num_workers=workers)):
        if step == 0:
            print("training", flush=True)
        gpu.run(0.1)
        if step >= steps:
            break
    print("done", flush=True)

train()
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    made = create_or_skip(tmp_path_factory.mktemp("nvml"), gpus=2)
    made.gpu[0].waveform("virtual")
    return made


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("project") / "train.py"
    path.write_text(TRAIN)
    return path


@contextlib.contextmanager
def training(fake: FakeNvml, script: Path, workers: int, cost: float = 0.02) -> Iterator[int]:
    """The job's PID, once its first batch is there."""
    job = subprocess.Popen(
        [sys.executable, str(script), str(workers), "1000000", str(cost)],
        env=fake.env({"PYTHONPATH": str(ROOT)}),
        cwd=script.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None
    try:
        assert job.stdout.readline() == "training\n"
        yield job.pid
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()
        job.stdout.close()


def gpuwatch(fake: FakeNvml, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", *arguments],
        env=fake.env({"PYTHONPATH": str(ROOT)}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def watched_job(
    fake: FakeNvml, pid: int, until: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The job of ``pid`` as a stream has it, once it is as wanted (or after 60 s)."""
    stream = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "stream", "--pid", str(pid), "-i", "0.5"],
        env=fake.env({"PYTHONPATH": str(ROOT)}),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert stream.stdout is not None
    try:
        assert json.loads(stream.stdout.readline())["kind"] == "header"
        for _ in range(120):
            line = json.loads(stream.stdout.readline())
            if line["kind"] == "header":
                # The job has just begun to use its GPU.
                continue
            (job,) = line["jobs"]
            members = {member["pid"] for member in job["members"]}
            assert {process["pid"] for process in line["processes"]} <= members
            if until(job):
                break
        return dict(job)
    finally:
        stream.kill()
        stream.wait()
        stream.stdout.close()


def knows(*names: str) -> Callable[[dict[str, Any]], bool]:
    """Whether all of these have been read."""
    return lambda job: all(job[name] is not None for name in names)


class TestAlone:
    """A job that loads in its own process; no other is beside it."""

    @pytest.fixture(scope="class")
    @staticmethod
    def alone(fake: FakeNvml, script: Path) -> Iterator[int]:
        with training(fake, script, 0) as pid:
            yield pid

    def test_a_job_that_loads_in_its_own_process(
        self, fake: FakeNvml, script: Path, alone: int
    ) -> None:
        """Without workers the rank says so, and its main thread is what works."""
        job = watched_job(fake, alone, knows("loader_workers", "main_thread_cpu_percent"))
        page = gpuwatch(fake, "status", "--pid", str(alone)).stdout
        (rank,) = job["ranks"]
        assert (job["pid"], job["attached"], rank["loader_workers"]) == (alone, True, 0)
        assert rank["pinned_memory"] is None
        # A busy machine leaves it little.
        assert job["main_thread_cpu_percent"] > 1
        assert job["working_directory"] == str(script.parent)
        assert len(job["gpu_uuids"]) == 1
        # One look is too short to know it of a process this young.
        assert "no workers: loading runs in the training process" in page or "unknown" in page

    def test_stacks_name_the_users_own_line(self, alone: int) -> None:
        """What the main thread does all the time is loading, in the person's own function."""
        done = subprocess.run(
            [sys.executable, "-m", "gpuwatch", "stacks", str(alone), "--seconds", "2", "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode == 2 and "py-spy is not installed" in done.stderr:
            pytest.skip("py-spy is not installed")
        if done.returncode == 2 and "not allowed" in done.stderr:
            pytest.skip("reading another process's memory is not allowed here")
        assert done.returncode == 0, done.stderr
        text = done.stdout
        assert "augment" in text
        assert "train.py" in text


def test_a_job_with_four_workers(fake: FakeNvml, script: Path) -> None:
    """The workers are counted, they are busy and the training process waits for them; the job is
    found from one of its workers as well."""
    with training(fake, script, 4, 0.005) as pid:
        job = watched_job(fake, pid, knows("pinned_memory", "loader_worker_cpu_percent"))
        workers = [m["pid"] for m in job["members"] if m["role"] == "loader_worker"]
        page = gpuwatch(fake, "status", "--pid", str(workers[0])).stdout
    (rank,) = job["ranks"]
    assert (job["pid"], rank["loader_workers"], len(workers)) == (pid, 4, 4)
    assert rank["pinned_memory"] is False
    assert job["main_thread_cpu_percent"] < job["loader_worker_cpu_percent"]
    assert "4 loader workers" in page
    assert str(pid) in page


def test_a_job_that_gpuwatch_runs_has_a_report(
    fake: FakeNvml, script: Path, tmp_path: Path
) -> None:
    """Its own output stays as it is; the report on standard error says how long it ran, how busy
    its GPU was and how it loaded its data, and is kept."""
    state = tmp_path / "state"
    environment = fake.env({"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(state)})
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gpuwatch", "run", "--plain", "-i", "0.5"),
            *("--", sys.executable, str(script), "2", "16", "0.04"),
        ],
        env=environment,
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "training\ndone\n"
    assert "2 loader workers" in done.stderr
    kept = subprocess.run(
        [sys.executable, "-m", "gpuwatch", "report", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    report = json.loads(kept.stdout)
    (gpu,) = report["gpus"]
    # Bursts of 0.1 s in the time that the driver was watched, which a busy machine makes longer.
    assert 0 < gpu["busy_percent"] < 60
    assert gpu["idle_seconds"] > 0.5
    assert report["jobs"][0]["exit_code"] == 0
