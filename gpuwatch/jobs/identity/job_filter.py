"""A snapshot of one job alone, for who asked for a job and not for the machine."""

from collections.abc import Collection
from dataclasses import replace

from gpuwatch.core.model import Job, ProcessKey, Snapshot


def only_job(snapshot: Snapshot, key: ProcessKey) -> Snapshot:
    """``snapshot`` less what is not about the job with this key.

    What stays: the host, the job, its processes, the GPUs they use (of a job that is known to be
    unable to use one: those that nobody uses), the other processes on these, and the problems that
    concern these or no GPU in particular. A job that is not in the snapshot leaves it without
    jobs, processes and GPUs.
    """
    jobs = tuple([job for job in snapshot.jobs if job.key == key])[:1]
    if not jobs:
        general = tuple([one for one in snapshot.problems if one.target is None])
        return replace(snapshot, gpus=(), processes=(), jobs=(), problems=general)
    job, processes = jobs[0], snapshot.processes
    own = {one.key for one in (*job.members, *job.ranks)}
    used = _gpus_of(job, own, snapshot)
    gpus = tuple([gpu for gpu in snapshot.gpus if gpu.uuid in used])
    # What is wrong with a card is wrong with its MIG instances.
    concerned = {None, *used, *[gpu.identity.mig_parent_uuid for gpu in gpus]}
    return replace(
        snapshot,
        gpus=gpus,
        processes=tuple([one for one in processes if one.key in own or one.gpu_uuid in used]),
        jobs=jobs,
        problems=tuple([one for one in snapshot.problems if one.target in concerned]),
    )


def _gpus_of(job: Job, own: Collection[ProcessKey], snapshot: Snapshot) -> set[str]:
    """Return the GPUs that a job uses, or those that nobody uses where it cannot use one."""
    processes = snapshot.processes
    named = [one.gpu_uuid for one in processes if one.key in own]
    used = {uuid for uuid in (*job.gpu_uuids, *named) if uuid is not None}
    if not used and job.is_without_gpus:
        return {gpu.uuid for gpu in snapshot.gpus} - {one.gpu_uuid for one in processes}
    return used
