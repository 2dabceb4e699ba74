"""Charging of GPU time: to which users and batch jobs each GPU was given, and what each of them
lost to which cause.

``GivenTime`` is a part of ``Statistics``; what was lost is the ledger's. ``Charges`` puts the two
together, for the exporter as they come and for a ranking minute by minute of recordings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from gpuwatch.core.bounds import Seconds, Text
from gpuwatch.core.model import GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.diagnosis.ledger import EpisodeKey

USERS_KEPT = 1024
"""Batch jobs of which the user is remembered: between two programs none of its processes may be
there."""


class Owner(NamedTuple):
    """Who GPU time is charged to; empty text is not known, or no batch job."""

    user: str
    slurm_job: str


NOBODY = Owner("", "")


def owner_of(job: Job) -> Owner:
    return Owner(job.user or "", job.slurm_job or "")


class Given(Struct, kw_only=True, omit_defaults=True):
    """Time for which a GPU was given to somebody. What several have at the same time is divided
    equally among them, so that all of it adds up to the GPU's."""

    user: Text = ""
    slurm_job: Text = ""
    gpu: GpuKey
    seconds: Seconds = 0.0
    watched_seconds: Seconds = 0.0
    """Part of it in which it is known how busy the GPU was."""
    busy_seconds: Seconds = 0.0

    @property
    def owner(self) -> Owner:
        return Owner(self.user, self.slurm_job)


class GivenTime:
    """GPU time by whom it was given to, since it was taken out last."""

    def __init__(self) -> None:
        self.owners: Mapping[GpuKey, Sequence[Owner]] = {}
        """Owners of each GPU in the newest snapshot."""
        self._given: dict[tuple[GpuKey, Owner], Given] = {}
        self._users: dict[str, str] = {}
        """Users of batch jobs, by their numbers."""

    def note_owners(self, snapshot: Snapshot) -> None:
        """Note to whom each GPU is given: whose jobs are on it, and which batch job it is allocated
        to, used or not. Processes count where no job is known."""
        found: dict[GpuKey, dict[Owner, None]] = {}
        for job in snapshot.jobs:
            self._note_user(job.slurm_job, job.user)
            for uuid in job.gpu_uuids if job.ended_at_unix_seconds is None else ():
                found.setdefault(uuid, {})[owner_of(job)] = None
        others: dict[GpuKey, dict[Owner, None]] = {}
        for process in snapshot.processes:
            self._note_user(process.slurm_job, process.user)
            if process.gpu_uuid is not None and process.gpu_kind != "graphics":
                owner = Owner(process.user or "", process.slurm_job or "")
                others.setdefault(process.gpu_uuid, {})[owner] = None
        for gpu in snapshot.gpus:
            known = {one.slurm_job for one in found.get(gpu.uuid, ())}
            for number in gpu.allocated_to or ():
                if number not in known:
                    owner = Owner(self._users.get(number, ""), number)
                    found.setdefault(gpu.uuid, {})[owner] = None
        self.owners = {uuid: tuple(found.get(uuid) or others[uuid]) for uuid in {**others, **found}}

    def _note_user(self, slurm_job: str | None, user: str | None) -> None:
        if slurm_job and user and self._users.get(slurm_job) != user:
            self._users[slurm_job] = user
            if len(self._users) > USERS_KEPT:
                del self._users[next(iter(self._users))]

    def add_time(
        self, gpu: GpuKey, seconds: float, watched_seconds: float, busy_seconds: float
    ) -> None:
        """Add time of a GPU to those whom it is given to now."""
        owners = self.owners.get(gpu, ())
        for owner in owners:
            one = self._given.get((gpu, owner))
            if one is None:
                one = Given(user=owner.user, slurm_job=owner.slurm_job, gpu=gpu)
                self._given[gpu, owner] = one
            one.seconds += seconds / len(owners)
            one.watched_seconds += watched_seconds / len(owners)
            one.busy_seconds += busy_seconds / len(owners)

    def take(self) -> list[Given]:
        """Return what was added, and forget it."""
        taken, self._given = list(self._given.values()), {}
        return taken


@dataclass(slots=True)
class Account:
    """GPU seconds of one owner."""

    given: float = 0.0
    watched: float = 0.0
    busy: float = 0.0
    lost: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds lost, by the names of the rules."""


class Charges:
    """Accounts of all owners. What is lost to a finding about a job is that of the job's owner;
    about GPUs of no known job, of those whom these GPUs are given to."""

    def __init__(self) -> None:
        self.accounts: defaultdict[Owner, Account] = defaultdict(Account)
        self._of_job: dict[ProcessKey, Owner] = {}
        self._of_gpu: dict[GpuKey, dict[Owner, float]] = {}
        """Seconds of each owner in the newest time that was given."""

    def note_jobs(self, owners: Mapping[ProcessKey, Owner]) -> None:
        """Note whose jobs these are; others are remembered, since what they lost last may be known
        only after their end."""
        self._of_job.update(owners)

    def forget_jobs(self, kept: Iterable[ProcessKey]) -> None:
        """Forget all jobs but these."""
        self._of_job = {key: self._of_job[key] for key in kept if key in self._of_job}

    def add_given(self, given: Sequence[Given], share: float = 1.0) -> None:
        """Add time that was given, or a ``share`` of it."""
        self._of_gpu = {}
        for one in given:
            account = self.accounts[one.owner]
            account.given += share * one.seconds
            account.watched += share * one.watched_seconds
            account.busy += share * one.busy_seconds
            self._of_gpu.setdefault(one.gpu, {})[one.owner] = one.seconds

    def shares(self, key: EpisodeKey) -> Mapping[Owner, float]:
        """Return who is charged for a finding now, and with what share (all together 1)."""
        if key.job is not None:
            return {self._of_job.get(key.job, NOBODY): 1.0}
        found: defaultdict[Owner, float] = defaultdict(float)
        for gpu in key.gpus:
            owners = self._of_gpu.get(gpu) or {NOBODY: 1.0}
            total = sum(owners.values())
            for owner, seconds in owners.items():
                part = seconds / total if total > 0.0 else 1.0 / len(owners)
                found[owner] += part / len(key.gpus)
        return found or {NOBODY: 1.0}

    def add_lost(self, key: EpisodeKey, seconds: float) -> None:
        """Charge ``seconds`` that were lost to a finding."""
        for owner, share in self.shares(key).items():
            self.accounts[owner].lost[key.rule] += share * seconds
