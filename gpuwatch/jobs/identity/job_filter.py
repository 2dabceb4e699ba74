"""A snapshot of one job alone, for who asked for a job and not for the machine."""

from __future__ import annotations

from dataclasses import replace

from gpuwatch.core.model import Gpu, Job, Problem, ProcessKey, Snapshot


def only_job(snapshot: Snapshot, key: ProcessKey) -> Snapshot:
    """``snapshot`` less what is not about the job with this key.

    What stays: the host, the job, its processes, the GPUs they use (none if they use none), the
    other processes on these, and the problems that concern these. A job that is not in the
    snapshot leaves it without jobs, processes and GPUs.
    """
    job = next((job for job in snapshot.jobs if job.key == key), None)
    if job is None:
        return _reduced(snapshot, (), frozenset(), frozenset())
    own = {member.key for member in job.members} | {rank.key for rank in job.ranks}
    uuids = set(job.gpu_uuids)
    uuids.update(
        process.gpu_uuid
        for process in snapshot.processes
        if process.key in own and process.gpu_uuid is not None
    )
    return _reduced(snapshot, (job,), frozenset(own), frozenset(uuids))


def _reduced(
    snapshot: Snapshot,
    jobs: tuple[Job, ...],
    own: frozenset[ProcessKey],
    uuids: frozenset[str],
) -> Snapshot:
    concerned = uuids | _cards_of(snapshot.gpus, uuids)
    return replace(
        snapshot,
        gpus=tuple([gpu for gpu in snapshot.gpus if gpu.uuid in uuids]),
        processes=tuple(
            [
                process
                for process in snapshot.processes
                if process.key in own or process.gpu_uuid in uuids
            ]
        ),
        jobs=jobs,
        problems=tuple([problem for problem in snapshot.problems if _concerns(problem, concerned)]),
    )


def _cards_of(gpus: tuple[Gpu, ...], uuids: frozenset[str]) -> frozenset[str]:
    """The cards of MIG instances: what is wrong with one is wrong with its MIG instances."""
    parents = (gpu.identity.mig_parent_uuid for gpu in gpus if gpu.uuid in uuids)
    return frozenset(parent for parent in parents if parent is not None)


def _concerns(problem: Problem, uuids: frozenset[str]) -> bool:
    """About one of these GPUs, or about no GPU in particular."""
    return problem.target is None or problem.target in uuids
