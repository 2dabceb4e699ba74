"""What a redacted recording does not hold."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuwatch.core.model import (
    Host,
    Job,
    JobMember,
    JobRank,
    NetworkMount,
    Problem,
    Process,
    Snapshot,
    TrainingLoop,
)
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.jobs.tracking.job import TrackedJob
from gpuwatch.jobs.tracking.tracker import JobTracker
from gpuwatch.recording.recorder import Recorder
from gpuwatch.recording.redaction import program_name, redacted
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux.processes import ProcessSource
from gpuwatch.sources.local import bug
from tests.support.fake_proc import FakeProc
from tests.support.snapshots import gpu, snapshot

SECRET = "tok-s3cret"
KEPT = {
    Process: {"name", "state", "slurm_job", "gpu_uuid", "gpu_kind", "unseen"},
    JobMember: {"name", "state", "role"},
    Job: {"launcher", "framework", "slurm_job", "serves", "simulates", "collectives"},
    JobRank: set(),
    TrainingLoop: {"phase"},
    Host: {"cpu_governor"},
}
"""Fields of text that a redacted recording has."""


def secretive(kind: type[Any], **known: object) -> Any:
    """One whose every field of text holds the secret, but for those that stay."""
    texts = {
        field.name: SECRET
        for field in dataclasses.fields(kind)
        if "Text" in str(field.type) and field.name not in KEPT[kind]
    }
    if "command" in texts:
        texts["command"] = f"/home/{SECRET}/bin/python train.py --token {SECRET}"
    return kind(**{**texts, **known})


def problems_of_a_job(user: str) -> tuple[Problem, ...]:
    """What is said of a job whose processes may not be read, and of one that was started again."""
    member = SimpleNamespace(
        pid=7, meter=SimpleNamespace(refused=True), row=secretive(Process, pid=7, user=user)
    )
    job = SimpleNamespace(
        key=(7, 1.0), refused=True, members={7: member}, last=secretive(Job, pid=7, user=user)
    )
    tracker = JobTracker(ManualClock(), ReadOptions())
    tracker._jobs = [cast("TrackedJob", job)]
    tracker._attached, tracker._started_again = (7, 1.0), (100.0, 8)
    return tracker._problems(0.0)


def problems_of_processes(root: Path) -> tuple[Problem, ...]:
    """What is said of a process whose file in /proc is not understood."""
    FakeProc(root).process(7, command=SECRET.encode())
    (root / "7" / "stat").write_bytes(f"7 (a) S {SECRET} 1".encode())
    source = ProcessSource(ManualClock(1000.0), ReadOptions(), root)
    return source.read([GpuProcess(7, "GPU-0")])[1]


class Failing:
    """A source that fails with the secret in the error."""

    simulated = False
    clock = ManualClock()
    options = ReadOptions()

    def open(self) -> None: ...

    def close(self) -> None: ...

    def read(self) -> Snapshot:
        raise KeyError(SECRET)


def problems_of_bugs() -> tuple[Problem, ...]:
    sampler = Sampler(cast("Any", Failing()), 1.0)
    said = sampler._judge(sampler._read_blocking(0.0)).problems
    try:
        int(SECRET)
    except ValueError as error:
        return (*said, bug("nvml", "the GPUs", error))
    raise AssertionError("no number is read")


def test_a_redacted_recording_holds_no_secret(tmp_path: Path) -> None:
    """Wherever it stands in a snapshot, nor in a sentence that the readers make of such things."""
    problems = (
        *problems_of_a_job(SECRET),
        *problems_of_processes(tmp_path / "proc"),
        *problems_of_bugs(),
    )
    assert len(problems) == 6
    rank = secretive(JobRank, pid=7)
    mount = NetworkMount(f"/home/{SECRET}", "nfs4", 1.0, 1.0, 0.1, 0.2, 0.0)
    taken = snapshot(
        host=secretive(Host, cpu_percent=5.0, network_mounts=(mount,)),
        gpus=(gpu(busy_percent=3.0),),
        processes=(secretive(Process, pid=7), secretive(Process, pid=8, gpu_uuid="GPU-0")),
        jobs=(
            secretive(
                Job,
                pid=7,
                ranks=(rank,),
                members=(secretive(JobMember, pid=7, role="rank"),),
                loops=(secretive(TrainingLoop, pid=7),),
            ),
        ),
        problems=problems,
    )
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path, redact=True)
    for second in range(90):
        at = taken.taken_at_unix_seconds + second
        recorder.push(dataclasses.replace(taken, taken_at_unix_seconds=at))
    recorder.close()
    text = path.read_text()
    assert [line for line in text.splitlines() if SECRET in line] == []
    assert all(problem.message in text for problem in problems)


def test_what_is_measured_stays() -> None:
    """With the names of programs, and numbers of users that nobody has a name for."""
    taken = snapshot(
        host=Host(name="box3", cpu_percent=5.0),
        gpus=(gpu(busy_percent=3.0),),
        processes=(
            Process(pid=7, user="ada", command="/home/ada/python x", name="pt", cpu_percent=9.0),
            Process(pid=8, user="1004", command="python x"),
        ),
        jobs=(Job(pid=7, ranks=(JobRank(pid=7, rank=0),), members=(JobMember(pid=7),)),),
    )
    found = redacted(taken)
    assert (found.gpus, found.jobs) == (taken.gpus, taken.jobs)
    assert found.host == Host(name="", cpu_percent=5.0)
    assert found.processes == (
        Process(pid=7, command="python", name="pt", cpu_percent=9.0),
        Process(pid=8, user="1004", command="python"),
    )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3.11 -m train --key x", "python3.11"),
        ("python", "python"),
        ("ray::IDLE worker", "ray"),
        ("TOKEN=abc python x", "TOKEN"),
        ("sshd: ada@pts/0", "sshd"),
        ("'/home/ada/my secrets/python' x", "…"),
        ("'python train.py --key /secret' x", "…"),
        ("it's a title", "it's"),
        ("", None),
        ("   ", None),
        (None, None),
        ("=x", "…"),
    ],
)
def test_only_the_program_of_a_command_line_is_kept(command: str | None, name: str | None) -> None:
    """Without its folder."""
    assert program_name(command) == name
