"""The part of a machine that was asked for, as if there were nothing else on it."""

from collections.abc import Collection
from dataclasses import replace

from gpuwatch.core.model import Gpu, Problem, Snapshot
from gpuwatch.core.source import ReadOptions
from gpuwatch.core.units import gpu_label


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
    gpus = tuple([gpu for gpu in snapshot.gpus if any(_is_called(gpu, one) for one in wanted)])
    kept = {gpu.uuid for gpu in gpus}
    left_out = {gpu.uuid for gpu in snapshot.gpus} - kept
    jobs = tuple(
        [job for job in snapshot.jobs if not job.gpu_uuids or not kept.isdisjoint(job.gpu_uuids)]
    )
    keys = {member.key for job in jobs for member in job.members}
    elsewhere = {member.key for job in snapshot.jobs for member in job.members} - keys
    elsewhere |= {one.key for one in snapshot.processes if one.gpu_uuid in left_out}
    processes = [
        one
        for one in snapshot.processes
        if one.gpu_uuid in kept or (one.gpu_uuid is None and one.key not in elsewhere)
    ]
    problems = [one for one in snapshot.problems if one.target not in left_out]
    missing = [one for one in wanted if not any(_is_called(gpu, one) for gpu in gpus)]
    if missing:
        labels = ", ".join([gpu_label(gpu) for gpu in snapshot.gpus])
        there = f"There is no GPU {', '.join(missing)} here: this machine has {labels}."
        problems.append(Problem(source="nvml", message=there))
    return replace(
        snapshot, gpus=gpus, jobs=jobs, processes=tuple(processes), problems=tuple(problems)
    )


def only_slurm_job(snapshot: Snapshot, number: str, given: Collection[str]) -> Snapshot:
    """Cut ``snapshot`` down to the processes and jobs of the Slurm job ``number``, and to the GPUs
    that were ``given`` to it or are used by it.

    Of the processes that are left out, only their presence on one of its GPUs is said, so that no
    rule takes the others for all that run there.
    """
    jobs = tuple([job for job in snapshot.jobs if job.slurm_job == number])
    own = {member.key for job in jobs for member in job.members}
    own |= {one.key for one in snapshot.processes if one.slurm_job == number}
    processes = tuple([one for one in snapshot.processes if one.key in own])
    used = {one.gpu_uuid for one in processes} | {uuid for job in jobs for uuid in job.gpu_uuids}
    wanted = (*given, *[gpu.uuid for gpu in snapshot.gpus if gpu.uuid in used])
    gpus, problems = tuple[Gpu, ...](), snapshot.problems
    if wanted:
        part = only_gpus(snapshot, wanted)
        gpus, problems = part.gpus, part.problems
    shared = {one.gpu_uuid for one in snapshot.processes if one.key not in own}
    left_out = [
        Problem(
            source="processes",
            message=f"GPU {gpu_label(gpu)} is also used by processes outside Slurm job {number}: "
            "they are left out, so how much of the GPU each process uses is not known.",
            target=gpu.uuid,
            reading="processes",
            severity="info",
        )
        for gpu in gpus
        if gpu.uuid in shared
    ]
    targets = {None, *[gpu.uuid for gpu in gpus]}
    kept = [
        one
        for one in problems
        # Sentences about processes and jobs can be about anybody's.
        if one.source not in ("processes", "jobs") and one.target in targets
    ]
    return replace(
        snapshot,
        gpus=tuple([_without_other_jobs(gpu, number) for gpu in gpus]),
        jobs=jobs,
        processes=processes,
        problems=(*kept, *left_out),
    )


def _without_other_jobs(gpu: Gpu, number: str) -> Gpu:
    """Return the GPU as allocated to this job alone."""
    if gpu.allocated_to is None:
        return gpu
    return replace(gpu, allocated_to=tuple([job for job in gpu.allocated_to if job == number]))


def _is_called(gpu: Gpu, name: str) -> bool:
    index = str(gpu.identity.index)
    return name in (index, gpu_label(gpu)) or (len(name) > 3 and gpu.uuid.startswith(name))
