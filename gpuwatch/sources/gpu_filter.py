"""The part of a machine that was asked for, as if there were nothing else on it."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from gpuwatch.core.model import Gpu, Job, Problem, Process, ProcessKey, Snapshot
from gpuwatch.core.source import ReadOptions
from gpuwatch.core.units import gpu_label, gpus_named

_NO_GPU = "There is no GPU"


def only_wanted(snapshot: Snapshot, options: ReadOptions) -> Snapshot:
    """Cut ``snapshot`` down to the GPUs and the Slurm job that ``options`` name."""
    if options.slurm_job is not None:
        return only_slurm_job(snapshot, options.slurm_job, options.only_gpus)
    return only_gpus(snapshot, options.only_gpus)


def only_gpus(snapshot: Snapshot, wanted: Collection[str]) -> Snapshot:
    """Cut ``snapshot`` down to the GPUs that are ``wanted`` (by index, ``0.3`` or how the uuid
    begins) and the processes and jobs that are not on the others alone. A job on a GPU that stays
    is whole: its share of the machine is shared by all its ranks."""
    if not wanted or not snapshot.gpus:
        return snapshot
    gpus = [gpu for gpu in snapshot.gpus if any(_is_called(gpu, one) for one in wanted)]
    kept = {gpu.uuid for gpu in gpus}
    left_out = {gpu.uuid for gpu in snapshot.gpus} - kept
    jobs = [one for one in snapshot.jobs if not one.gpu_uuids or kept & set(one.gpu_uuids)]
    elsewhere = _members(snapshot.jobs) - _members(jobs)
    elsewhere |= {one.key for one in snapshot.processes if one.gpu_uuid in left_out}
    processes = [
        one
        for one in snapshot.processes
        if one.gpu_uuid in kept or (one.gpu_uuid is None and one.key not in elsewhere)
    ]
    problems = [one for one in snapshot.problems if one.target not in left_out]
    missing = [one for one in wanted if not any(_is_called(gpu, one) for gpu in gpus)]
    if missing:
        has = gpus_named(gpu.identity for gpu in snapshot.gpus)
        there = f"{_NO_GPU} {', '.join(missing)} here: this machine has {has}."
        problems.append(Problem(source="nvml", message=there))
    return replace(
        snapshot,
        gpus=tuple(gpus),
        jobs=tuple(jobs),
        processes=tuple(processes),
        problems=tuple(problems),
    )


def no_such_gpu(snapshot: Snapshot) -> str | None:
    """Return which of the GPUs that were asked for are not there, as a sentence."""
    return next((one.message for one in snapshot.problems if one.message.startswith(_NO_GPU)), None)


def only_slurm_job(snapshot: Snapshot, number: str, given: Collection[str]) -> Snapshot:
    """Cut ``snapshot`` down to the processes and jobs of the Slurm job ``number``, and to the GPUs
    that were ``given`` to it or are used by it."""
    part = _only_of(snapshot, lambda one: one.slurm_job == number, f"Slurm job {number}", given)
    return replace(part, gpus=tuple([_without_other_jobs(gpu, number) for gpu in part.gpus]))


def only_users(snapshot: Snapshot, users: Collection[str]) -> Snapshot:
    """Cut ``snapshot`` down to the processes and jobs of ``users``, and to the GPUs that they use;
    leave all of it without any."""
    if not users:
        return snapshot
    return _only_of(snapshot, lambda one: one.user in users, f"those of {' and '.join(users)}")


def _only_of(
    snapshot: Snapshot,
    is_own: Callable[[Job | Process], bool],
    whose: str,
    given: Collection[str] = (),
) -> Snapshot:
    """Cut ``snapshot`` down to some processes and jobs, and to the GPUs that were ``given`` to them
    or are used by them.

    Of the processes that are left out, only their presence on one of its GPUs is said, so that no
    rule takes the others for all that run there.
    """
    jobs = [job for job in snapshot.jobs if is_own(job)]
    own = _members(jobs) | {one.key for one in snapshot.processes if is_own(one)}
    processes = [one for one in snapshot.processes if one.key in own]
    used = {one.gpu_uuid for one in processes}.union(*[job.gpu_uuids for job in jobs])
    wanted = (*given, *[gpu.uuid for gpu in snapshot.gpus if gpu.uuid in used])
    part = only_gpus(snapshot, wanted) if wanted else replace(snapshot, gpus=())
    shared = {one.gpu_uuid for one in snapshot.processes if one.key not in own}
    targets = {None, *[gpu.uuid for gpu in part.gpus]}
    kept = [
        one
        for one in part.problems
        # Sentences about processes and jobs can be about anybody's.
        if one.source not in ("processes", "jobs") and one.target in targets
    ]
    return replace(
        snapshot,
        gpus=part.gpus,
        jobs=tuple(jobs),
        processes=tuple(processes),
        problems=(*kept, *[_shared(gpu, whose) for gpu in part.gpus if gpu.uuid in shared]),
    )


def _shared(gpu: Gpu, whose: str) -> Problem:
    return Problem(
        source="processes",
        message=f"GPU {gpu_label(gpu)} is also used by processes outside {whose}: "
        "they are left out, so how much of the GPU each process uses is not known.",
        target=gpu.uuid,
        reading="processes",
        severity="info",
    )


def _members(jobs: Iterable[Job]) -> set[ProcessKey]:
    return {member.key for job in jobs for member in job.members}


def _without_other_jobs(gpu: Gpu, number: str) -> Gpu:
    """Return the GPU as allocated to this job alone."""
    if gpu.allocated_to is None:
        return gpu
    return replace(gpu, allocated_to=tuple([job for job in gpu.allocated_to if job == number]))


def _is_called(gpu: Gpu, name: str) -> bool:
    index = str(gpu.identity.index)
    return name in (index, gpu_label(gpu)) or (len(name) > 3 and gpu.uuid.startswith(name))
