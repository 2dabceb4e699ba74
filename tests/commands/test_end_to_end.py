"""From a job's process tree to what a person's script reads: nothing in between is replaced but
the driver's library, and that one follows the job."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.codec import Decoder, Header
from gpuwatch.core.model import Snapshot
from tests.commands.running import program
from tests.support.fake_nvml import FakeNvml, create_or_skip

ROOT = Path(__file__).parents[2]
MEMORY_BYTES = 6 << 30

# A starved training job: the GPU waits for its data.
STARVED_JOB = """
import sys, time
from tests.support.virtual_gpu import VirtualGpu

gpu = VirtualGpu.open(0, memory_bytes=int(sys.argv[1]))
print("runs", flush=True)
while True:
    gpu.run(0.5)
    time.sleep(0.7)
"""


Job = subprocess.Popen[str]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeNvml, Job]]:
    fake = create_or_skip(tmp_path_factory.mktemp("nvml"), gpus=2)
    fake.gpu[0].waveform("virtual")
    command = [sys.executable, "-c", STARVED_JOB, str(MEMORY_BYTES)]
    with subprocess.Popen(
        command, env=fake.env(), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout.readline() == "runs\n"
        yield fake, job
        job.kill()


def gpuwatch(fake: FakeNvml, *arguments: str) -> str:
    done = program(*arguments, env=fake.env(), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def stream(machine: tuple[FakeNvml, Job]) -> tuple[Header, list[Snapshot]]:
    """From the header that has the GPUs: on a busy machine the driver library is still being opened
    when the first snapshot goes out, and a second header follows. The driver has a new share of the
    SMs once a second: of less than six, all can fall into pauses."""
    for count in (14, 30):
        text = gpuwatch(machine[0], "stream", "--interval", "0.5", "--count", str(count))
        decoder, snapshots = Decoder(), list[Snapshot]()
        for read in map(decoder.decode, text.splitlines()):
            if isinstance(read, Header):
                snapshots.clear()
            elif read is not None:
                snapshots.append(read)
        if len(snapshots) >= 8:
            break
    assert decoder.header is not None
    return decoder.header, snapshots


def test_a_stream_has_a_header_and_then_snapshots(
    stream: tuple[Header, list[Snapshot]],
) -> None:
    """The first line says what machine it is, the others follow in order."""
    header, snapshots = stream
    assert len(snapshots) >= 8
    assert len(header.gpus) == 2
    assert not header.simulated


def test_the_oscillation_of_a_starved_job_is_in_the_samples(
    stream: tuple[Header, list[Snapshot]],
) -> None:
    """Busy 0.5 s of every 1.2 s: the driver's fine samples reach both the floor and the ceiling,
    and their mean is neither."""
    # The first snapshot also brings what the driver kept from before the job.
    samples = [
        sample.percent
        for snapshot in stream[1][1:]
        for sample in snapshot.gpus[0].reading.busy_samples or ()
    ]
    assert min(samples) <= 5
    assert max(samples) >= 95
    assert 20 <= sum(samples) / len(samples) <= 65


def test_the_job_is_on_its_gpu(
    machine: tuple[FakeNvml, Job], stream: tuple[Header, list[Snapshot]]
) -> None:
    """With its memory, a share of the SMs that follows its bursts, and its command line."""
    job, snapshots = machine[1], stream[1]
    rows = [
        process
        for snapshot in snapshots[1:]
        for process in snapshot.processes
        if process.pid == job.pid
    ]
    assert {row.gpu_uuid for row in rows} == {snapshots[-1].gpus[0].uuid}
    assert {row.gpu_memory_bytes for row in rows} == {MEMORY_BYTES}
    shares = [row.gpu_busy_percent for row in rows if row.gpu_busy_percent is not None]
    assert max(shares) > min(shares)
    assert "VirtualGpu" in (rows[0].command or "")


def test_one_look_says_the_same(machine: tuple[FakeNvml, Job]) -> None:
    """``status --json`` has the job and its memory on the GPU too."""
    fake, job = machine
    status = json.loads(gpuwatch(fake, "status", "--json"))
    (row,) = [process for process in status["processes"] if process["pid"] == job.pid]
    assert row["gpu_memory_bytes"] == MEMORY_BYTES
    first = status["gpus"][0]
    assert row["gpu_uuid"] == first["uuid"]
    assert first["memory_used_bytes"] >= MEMORY_BYTES
    assert status["simulated"] is False


def test_gpus_that_are_lost_before_the_start_are_shown(tmp_path: Path) -> None:
    """``status`` has a row for each, marked as lost, and one sentence for all."""
    fake = create_or_skip(tmp_path, gpus=4)
    for index in (1, 2):
        fake.gpu[index].set(lost=1)
    status = json.loads(gpuwatch(fake, "status", "--json"))
    shown = [(gpu["index"], gpu["lost"]) for gpu in status["gpus"]]
    assert shown == [(0, False), (1, True), (2, True), (3, False)]
    (problem,) = [one for one in status["problems"] if one["source"] == "nvml"]
    assert problem["message"].startswith("GPUs 1 and 2 are lost")
    rows = gpuwatch(fake, "status").splitlines()
    assert [row.split()[:4] for row in rows if " lost " in row and row.startswith("  ")] == [
        [str(index), "NVIDIA", "GPU", "lost"] for index in (1, 2)
    ]


def test_a_process_on_a_gpu_is_watched_whatever_its_program(
    machine: tuple[FakeNvml, Job], tmp_path: Path
) -> None:
    """A task of Celery that trains; one that the driver does not list is refused."""
    fake, _ = machine
    celery = tmp_path / "celery"
    # A link and not only a name: a Python that was moved finds its library by its path.
    celery.symlink_to(sys.executable)
    fake.gpu[1].waveform("virtual")
    code = STARVED_JOB.replace("open(0", "open(1")
    for script, code_on_gpu in ((code, True), ("print('runs', flush=True); input()", False)):
        command = [str(celery), "-c", script, str(MEMORY_BYTES)]
        with subprocess.Popen(
            command, env=fake.env(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        ) as task:  # fmt: skip
            assert task.stdout.readline() == "runs\n"
            asked = ("status", "--json", "--quick", "--pid", str(task.pid))
            done = program(*asked, env=fake.env(), cwd=ROOT)
            task.kill()
        assert done.returncode == (0 if code_on_gpu else 2), done.stderr
        if code_on_gpu:
            (job,) = json.loads(done.stdout)["jobs"]
            assert [rank["pid"] for rank in job["ranks"]] == [task.pid]
        else:
            assert "is a service that runs other programs" in done.stderr
