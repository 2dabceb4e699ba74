"""Snapshots without what could be a secret or name a person: for recordings that are handed on.

What stays: readings, PIDs, names of programs and of processes, roles, ranks, the GPUs. What goes:
the arguments of command lines, users (a number stays), the host's name, folders, environments,
containers and pods, and whatever of these a sentence holds.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpuwatch.model import Host, Job, JobMember, JobRank, Problem, Process, Snapshot

HIDDEN = "…"
_PATH = re.compile(r"(?<![\w.])[~.]{0,2}/[^\s,;:'\")]+")
_SAYS_ENVIRONMENT = re.compile(r"=| in its environment")


def program_name(command: str | None) -> str | None:
    """``python`` of ``/usr/bin/python train.py --token x``."""
    if command is None:
        return None
    words = command.split(None, 1)
    if not words:
        return None
    name = words[0].rstrip("/").rpartition("/")[2]
    # A variable set before the command, or a title that a program gave itself.
    return re.split(r"[=:?@]", name, maxsplit=1)[0] or HIDDEN


class Redactor:
    """Takes the private parts out of snapshots; remembers rows, as most stay as they are."""

    def __init__(self) -> None:
        self._words: set[str] = set()
        self._hides: re.Pattern[str] | None = None

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        self._learn(snapshot)
        return replace(
            snapshot,
            host=self._host(snapshot.host),
            processes=tuple([self._process(process) for process in snapshot.processes]),
            jobs=tuple([self._job(job) for job in snapshot.jobs]),
            problems=tuple([self._problem(problem) for problem in snapshot.problems]),
        )

    def _learn(self, snapshot: Snapshot) -> None:
        """The words that sentences must not hold."""
        users = [process.user for process in snapshot.processes]
        users += [job.user for job in snapshot.jobs]
        words = {word for word in (*users, snapshot.host.name) if word and not word.isdigit()}
        if not words <= self._words:
            self._words |= words
            longest_first = sorted(self._words, key=len, reverse=True)
            either = "|".join(re.escape(word) for word in longest_first)
            self._hides = re.compile(rf"(?<!\w)(?:{either})(?!\w)")

    def text(self, text: str) -> str:
        """A sentence without paths, users and the host."""
        text = _PATH.sub(HIDDEN, text)
        return text if self._hides is None else self._hides.sub(HIDDEN, text)

    def _host(self, host: Host) -> Host:
        return replace(host, name="")

    def _process(self, process: Process) -> Process:
        return replace(
            process,
            command=program_name(process.command),
            user=_number_only(process.user),
            container=None,
        )

    def _job(self, job: Job) -> Job:
        return replace(
            job,
            command=program_name(job.command),
            user=_number_only(job.user),
            working_directory=None,
            environment=None,
            container=None,
            pod=None,
            ranks=tuple([self._rank(rank) for rank in job.ranks]),
            members=tuple([self._member(member) for member in job.members]),
        )

    def _rank(self, rank: JobRank) -> JobRank:
        return replace(
            rank,
            loader_workers_sign=self._sign(rank.loader_workers_sign),
            pinned_memory_sign=self._sign(rank.pinned_memory_sign),
        )

    def _member(self, member: JobMember) -> JobMember:
        return replace(
            member,
            command=program_name(member.command),
            role_sign=self._sign(member.role_sign),
        )

    def _sign(self, sign: str | None) -> str | None:
        if sign is None or _SAYS_ENVIRONMENT.search(sign):
            return None
        return self.text(sign)

    def _problem(self, problem: Problem) -> Problem:
        return replace(problem, message=self.text(problem.message))


def _number_only(user: str | None) -> str | None:
    """A uid that has no name is no name."""
    return user if user is not None and user.isdigit() else None
