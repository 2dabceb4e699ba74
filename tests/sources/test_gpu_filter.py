"""Some of the GPUs of a machine, or one Slurm job of it, as if there were nothing else."""

from dataclasses import replace

from gpuwatch.core.model import Problem, Snapshot
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.sources.gpu_filter import only_gpus, only_users, only_wanted
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
    assert "There is no GPU 7 here: this machine has GPUs 0 and 1." in [
        p.message for p in some.problems
    ]
    assert len(read("starved", 2).gpus) == 2


def on_a_cluster() -> Snapshot:
    """Two jobs of Slurm, 12 and 13, with what is said of their processes and GPUs."""
    every = read("mixed", 8)
    numbers = ("12", "13")
    jobs = [
        replace(job, slurm_job=number) for job, number in zip(every.jobs, numbers, strict=False)
    ]
    owner = {member.key: job.slurm_job for job in jobs for member in job.members}
    processes = [
        replace(one, slurm_job=owner[one.key]) for one in every.processes if one.key in owner
    ]
    gpus = [replace(gpu, allocated_to=numbers) for gpu in every.gpus]
    said = Problem(source="jobs", message="The environment of job 4711 cannot be read.")
    return replace(
        every, gpus=tuple(gpus), jobs=tuple(jobs), processes=tuple(processes), problems=(said,)
    )


def test_of_a_slurm_job_nothing_but_its_own_stays() -> None:
    """Its processes, the GPUs that it uses and those that it was given, and no word of others."""
    every = on_a_cluster()
    mine = every.jobs[0]
    own = {member.key for member in mine.members}
    used = {one.gpu_uuid for one in every.processes}
    spare = next(gpu for gpu in every.gpus if gpu.uuid not in used)
    wanted = ReadOptions(slurm_job="12", only_gpus=(spare.uuid,))
    some = only_wanted(every, wanted)
    assert some.jobs == (mine,)
    assert {one.key for one in some.processes} == own & {one.key for one in every.processes}
    assert {gpu.uuid for gpu in some.gpus} == {spare.uuid, *mine.gpu_uuids}
    assert {gpu.allocated_to for gpu in some.gpus} == {("12",)}
    assert some.problems == ()


def test_of_a_user_nothing_but_their_own_stays() -> None:
    """The GPUs of others are gone with their jobs; who else is on one that stays is not named."""
    every = read("mixed", 8)
    user = every.jobs[0].user or ""
    mine = [job for job in every.jobs if job.user == user]
    assert 0 < len(mine) < len(every.jobs)
    some = only_users(every, (user,))
    assert list(some.jobs) == mine
    assert {gpu.uuid for gpu in some.gpus} == {uuid for job in mine for uuid in job.gpu_uuids}
    assert {one.user for one in some.processes} == {user}
    assert only_users(every, ("nobody",)).gpus == ()
    assert only_users(every, ()) is every
    shared = replace(
        every,
        jobs=tuple([replace(job, gpu_uuids=mine[0].gpu_uuids) for job in every.jobs]),
        processes=tuple([replace(one, gpu_uuid=mine[0].gpu_uuids[0]) for one in every.processes]),
    )
    (says,) = {one.message for one in only_users(shared, (user,)).problems}
    assert f"used by processes outside those of {user}" in says


def test_a_slurm_job_that_has_not_begun_has_the_gpus_it_was_given() -> None:
    """None where it was given none: all would be the GPUs of others."""
    every = on_a_cluster()
    given = only_wanted(every, ReadOptions(slurm_job="99", only_gpus=("3",)))
    assert ([gpu.identity.index for gpu in given.gpus], given.jobs, given.processes) == (
        [3],
        (),
        (),
    )
    assert only_wanted(every, ReadOptions(slurm_job="99")).gpus == ()


def test_somebody_else_on_the_gpu_of_a_slurm_job_is_left_out_and_not_denied() -> None:
    """The processes on that GPU count as not listed, so no rule takes the job's for all."""
    every = on_a_cluster()
    uuid = every.jobs[0].gpu_uuids[0]
    guest = next(one for one in every.processes if one.slurm_job == "13")
    every = replace(every, processes=(*every.processes, replace(guest, gpu_uuid=uuid)))
    some = only_wanted(every, ReadOptions(slurm_job="12"))
    assert guest.key not in {one.key for one in some.processes}
    (said,) = some.problems
    assert (said.target, said.reading) == (uuid, "processes")
    assert str(guest.pid) not in said.message
