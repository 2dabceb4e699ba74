"""A snapshot reduced to one job says nothing of the others."""

from gpuwatch.core.model import (
    Gpu,
    GpuIdentity,
    GpuReading,
    Job,
    JobMember,
    JobRank,
    Problem,
    Process,
    Snapshot,
)
from gpuwatch.jobs.identity.job_filter import only_job
from tests.support.snapshots import gpu, snapshot


def job(pid: int, *uuids: str) -> Job:
    return Job(
        pid=pid,
        ranks=(JobRank(pid=pid, gpu_uuids=uuids),),
        members=(JobMember(pid=pid, role="rank"), JobMember(pid=pid + 1, role="loader_worker")),
        gpu_uuids=uuids,
    )


def problem(source: str, target: str | None = None) -> Problem:
    return Problem(source=source, target=target, message=target or source)


def machine() -> Snapshot:
    on_gpus = ((10, "GPU-a"), (10, "GPU-c"), (11, None), (20, "GPU-b"), (30, "GPU-c"))
    rows = [Process(pid=pid, gpu_uuid=uuid) for pid, uuid in on_gpus]
    return snapshot(
        gpus=(gpu("GPU-a", 0), gpu("GPU-b", 1), gpu("GPU-c", 2)),
        processes=(*rows, Process(pid=10, started_at_unix_seconds=5.0, gpu_uuid="GPU-b")),
        jobs=(job(10, "GPU-a"), job(20, "GPU-b")),
        problems=(
            *(problem("nvml", uuid) for uuid in ("GPU-a", "GPU-b", None)),
            *map(problem, ("host", "jobs")),
        ),
    )


def test_one_job_keeps_its_processes_its_gpus_and_what_concerns_them() -> None:
    """Its rows, the GPUs any of them uses, and problems of those or of no GPU in particular."""
    found = only_job(machine(), (10, None))
    assert [one.pid for one in found.jobs] == [10]
    assert [one.uuid for one in found.gpus] == ["GPU-a", "GPU-c"]
    assert [(p.pid, p.gpu_uuid, p.started_at_unix_seconds) for p in found.processes] == [
        (10, "GPU-a", None),
        (10, "GPU-c", None),
        (11, None, None),
        # Another tenant of its GPU.
        (30, "GPU-c", None),
    ]
    assert [problem.message for problem in found.problems] == [
        "GPU-a", "nvml", "host", "jobs"
    ]  # fmt: skip
    assert found.host == machine().host


def test_job_without_a_gpu_shows_none() -> None:
    """A job on the CPU is shown with the host alone; one that is not there leaves the host, and
    nothing of another job in its place."""
    none = only_job(machine(), (99, None))
    assert (none.jobs, none.gpus, none.processes) == ((), (), ())
    assert none.host.name == "box3"
    taken = snapshot(gpus=(gpu("GPU-a"),), jobs=(job(10),), processes=(Process(pid=10),))
    found = only_job(taken, (10, None))
    assert found.gpus == ()
    assert [process.pid for process in found.processes] == [10]


def test_problem_of_the_card_concerns_its_instance() -> None:
    """A job in a MIG instance is told what is wrong with the card."""
    identity = GpuIdentity(index=0, uuid="MIG-1", name="x", mig_parent_uuid="GPU-a")
    taken = snapshot(
        gpus=(gpu("GPU-a"), Gpu(identity=identity, reading=GpuReading())),
        jobs=(job(10, "MIG-1"),),
        problems=(problem("nvml", "GPU-a"),),
    )
    found = only_job(taken, (10, None))
    assert [one.uuid for one in found.gpus] == ["MIG-1"]
    assert [problem.message for problem in found.problems] == ["GPU-a"]
