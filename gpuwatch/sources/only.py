"""Some of a machine's GPUs, as if it had no others."""

from collections.abc import Collection
from dataclasses import replace

from gpuwatch.core.model import Gpu, Problem, Snapshot
from gpuwatch.core.units import gpu_label


def only_gpus(snapshot: Snapshot, wanted: Collection[str]) -> Snapshot:
    """``snapshot`` less the GPUs that are not ``wanted`` (by index, ``0.3`` or how the uuid begins)
    and what runs on these alone. A job on a GPU that stays is whole: what it may use of the machine
    is shared by all its ranks."""
    if not wanted or not snapshot.gpus:
        return snapshot
    gpus = tuple([gpu for gpu in snapshot.gpus if any(_is(gpu, one) for one in wanted)])
    here = {gpu.uuid for gpu in gpus}
    gone = {gpu.uuid for gpu in snapshot.gpus} - here
    others = [job for job in snapshot.jobs if job.gpu_uuids and here.isdisjoint(job.gpu_uuids)]
    elsewhere = {member.key for job in others for member in job.members}
    elsewhere |= {one.key for one in snapshot.processes if one.gpu_uuid in gone}
    missing = [one for one in wanted if not any(_is(gpu, one) for gpu in gpus)]
    problems = [one for one in snapshot.problems if one.target not in gone]
    if missing:
        labels = ", ".join([gpu_label(gpu) for gpu in snapshot.gpus])
        there = f"There is no GPU {', '.join(missing)} here: this machine has {labels}."
        problems.append(Problem(source="nvml", message=there))
    return replace(
        snapshot,
        gpus=gpus,
        jobs=tuple([job for job in snapshot.jobs if job not in others]),
        processes=tuple(
            [
                one
                for one in snapshot.processes
                if one.gpu_uuid in here or (one.gpu_uuid is None and one.key not in elsewhere)
            ]
        ),
        problems=tuple(problems),
    )


def _is(gpu: Gpu, name: str) -> bool:
    index = str(gpu.identity.index)
    return name in (index, gpu_label(gpu)) or (len(name) > 3 and gpu.uuid.startswith(name))
