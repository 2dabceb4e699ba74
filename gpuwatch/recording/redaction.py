"""Snapshots without what could be a secret or name a person: for recordings that are handed on.

What stays: readings, PIDs, names of programs and of processes, roles, ranks, the port or library
that shows what a job does, numbers of Slurm jobs, the GPUs with their UUIDs and PCI addresses. What
goes: the arguments of command lines, users (a number stays), names of hosts, folders,
environments, containers, pods, and by what a role or a loader was recognised.

Fields are taken out whole, and no text is searched: the sentences of ``problems`` stay, because
whoever makes one names processes and GPUs by their numbers and quotes nothing that was read.
"""

import re
from dataclasses import replace
from typing import Any, TypeVar

from gpuwatch.core.model import Job, JobMember, JobRank, Process, Snapshot

HIDDEN = "…"
Item = TypeVar("Item", Process, Job, JobRank, JobMember)


HIDDEN_FIELDS = {
    Process: ("container",),
    Job: ("working_directory", "environment", "container", "pod", "behind_elsewhere", "rendezvous"),
    JobRank: ("loader_workers_sign", "pinned_memory_sign"),
    JobMember: ("role_sign",),
}


def redacted(snapshot: Snapshot) -> Snapshot:
    mounts = snapshot.host.network_mounts
    if mounts is not None:
        mounts = tuple([mount._replace(mount_point=HIDDEN) for mount in mounts])
    return replace(
        snapshot,
        host=replace(snapshot.host, name="", network_mounts=mounts),
        processes=tuple([_without(process) for process in snapshot.processes]),
        jobs=tuple(
            [
                replace(
                    _without(job),
                    ranks=tuple([_without(rank) for rank in job.ranks]),
                    members=tuple([_without(member) for member in job.members]),
                )
                for job in snapshot.jobs
            ]
        ),
    )


def _without(item: Item) -> Item:
    kept: dict[str, Any] = dict.fromkeys(HIDDEN_FIELDS[type(item)])
    if hasattr(item, "command"):
        kept["command"] = program_name(item.command)
    user = getattr(item, "user", None)
    if user is not None and not user.isdigit():
        # A uid that has no name is no name.
        kept["user"] = None
    return replace(item, **kept)


def program_name(command: str | None) -> str | None:
    """Return ``python`` for ``/usr/bin/python train.py --token x``."""
    words = [] if command is None else command.split(None, 1)
    if command is None or not words:
        return None
    if words[0][0] in "'\"":
        # Blanks within: a path or a whole title, and nothing tells where the program's name ends.
        return HIDDEN
    name = words[0].rstrip("/").rpartition("/")[2]
    # A variable set before the command, or a title that a program gave itself.
    return re.split(r"[=:?@]", name, maxsplit=1)[0] or HIDDEN
