"""Some of the GPUs of a machine, as if it had no others."""

from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.sources.only import only_gpus
from gpuwatch.sources.simulated.source import SimulatedSource


def read(scenario: str, gpus: int, *only: str) -> Snapshot:
    options = ReadOptions(only_gpus=only)
    source = SimulatedSource(scenario, gpus, clock=ManualClock(), options=options)
    source.open()
    return source.read()


def test_what_runs_on_the_other_gpus_alone_is_gone() -> None:
    """By index or uuid: with the job its loader workers, and what is wrong with its GPU."""
    every = read("mixed", 8)
    some = only_gpus(every, ("2", every.gpus[0].uuid))
    assert [gpu.identity.index for gpu in some.gpus] == [0, 2]
    assert len(some.jobs) == 2 < len(every.jobs)
    members = {member.key for job in some.jobs for member in job.members}
    assert {process.key for process in some.processes} <= members
    assert {problem.target for problem in some.problems} <= {None, *[g.uuid for g in some.gpus]}


def test_a_job_on_a_gpu_that_stays_is_whole() -> None:
    """Its ranks share the machine, whoever looks: advice by cores a rank must not change."""
    every = read("starved", 2)
    assert len(every.jobs[0].gpu_uuids) == 2
    assert only_gpus(every, ("1",)).jobs == every.jobs


def test_a_gpu_that_is_not_there_is_named() -> None:
    """With those that are, and the others are shown; without any name all are."""
    some = read("starved", 2, "0", "7")
    assert [gpu.identity.index for gpu in some.gpus] == [0]
    assert "There is no GPU 7 here: this machine has 0, 1." in [p.message for p in some.problems]
    assert len(read("starved", 2).gpus) == 2
