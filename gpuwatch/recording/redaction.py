"""Snapshots without what could be a secret or name a person: for recordings that are handed on.

What stays: readings, PIDs, names of programs and of processes, roles, ranks, the port or library
that shows what a job does, numbers of Slurm jobs, the GPUs with their UUIDs and PCI addresses. What
goes: the arguments of command lines, users (a number stays), the host's name, folders,
environments, containers, pods, and by what a role or a loader was recognised.

Fields are taken out whole, and no text is searched: the sentences of ``problems`` stay, because
whoever makes one names processes and GPUs by their numbers and quotes nothing that was read.
"""

import re
from dataclasses import replace

from gpuwatch.core.model import Job, JobMember, JobRank, Process, Snapshot

HIDDEN = "…"


def redacted(snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        host=replace(snapshot.host, name=""),
        processes=tuple([_process(process) for process in snapshot.processes]),
        jobs=tuple([_job(job) for job in snapshot.jobs]),
    )


def program_name(command: str | None) -> str | None:
    """``python`` of ``/usr/bin/python train.py --token x``."""
    words = [] if command is None else command.split(None, 1)
    if command is None or not words:
        return None
    if words[0][0] in "'\"":
        # Blanks within: a path or a whole title, and nothing tells where the program's name ends.
        return HIDDEN
    name = words[0].rstrip("/").rpartition("/")[2]
    # A variable set before the command, or a title that a program gave itself.
    return re.split(r"[=:?@]", name, maxsplit=1)[0] or HIDDEN


def _process(process: Process) -> Process:
    return replace(
        process,
        command=program_name(process.command),
        user=_number_only(process.user),
        container=None,
    )


def _job(job: Job) -> Job:
    return replace(
        job,
        command=program_name(job.command),
        user=_number_only(job.user),
        working_directory=None,
        environment=None,
        container=None,
        pod=None,
        ranks=tuple([_rank(rank) for rank in job.ranks]),
        members=tuple([_member(member) for member in job.members]),
    )


def _rank(rank: JobRank) -> JobRank:
    return replace(rank, loader_workers_sign=None, pinned_memory_sign=None)


def _member(member: JobMember) -> JobMember:
    return replace(member, command=program_name(member.command), role_sign=None)


def _number_only(user: str | None) -> str | None:
    """A uid that has no name is no name."""
    return user if user is not None and user.isdigit() else None
