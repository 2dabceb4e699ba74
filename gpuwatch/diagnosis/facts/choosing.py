"""Choice of what is judged: jobs, where there are more than can be followed, and GPUs without a
known job that look like one."""

import math
from collections.abc import Sequence
from itertools import groupby

from gpuwatch.core.model import GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.diagnosis.facts.watched_gpu import GpuTrack
from gpuwatch.diagnosis.signals.load import agreement

FOLLOWED_JOBS_MAX = 16
"""Each job costs time and memory. Of more than so many (a machine of notebooks and small servers),
those that use GPUs most are followed, the attached one always."""
CHOSEN_SECONDS = 30.0
USE_SECONDS = 30.0
"""What counts is the use over about so long: of jobs whose GPUs swing, each is the busiest for a
moment."""
KEPT_PERCENT = 5.0
"""Those that are followed keep their place against others that are about as busy."""

HELD_BYTES = 2 * 1024**3
"""What no driver or desktop holds by itself."""
ALIKE_BYTES, ALIKE_SHARE = 1.5 * 1024**3, 0.1
"""By how much the memory of data-parallel ranks may differ: the first gathers, logs and keeps
contexts of the others; sequences of different lengths leave caches of different sizes."""
TOGETHER, UNRELATED = 0.7, 0.5
"""Mean correlation from which GPUs are one group whatever they hold (as much of the opposite are
turns), and below which each moves for itself: runs of a sweep. But ranks do, too, that wait for
each other in every step: those spin."""
STAYS = 0.2
"""Less suffices for what they are already."""
LOOK_SECONDS = 5.0
"""Two looks must agree: ranks fill their memory within seconds of each other, not at once."""
SETTLED_SECONDS = 15.0
"""Between two looks, while they agree and memory in use stays what it is."""
MOVES_SECONDS = 180.0
"""How far back their load is compared: in a minute, two pauses are alike by chance."""

_Group = tuple[GpuKey, ...]


class Choice:
    """The jobs followed, chosen anew each half minute."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._followed: frozenset[ProcessKey] | None = None
        self._chosen_at = -math.inf
        self._use: dict[ProcessKey, float] = {}
        self._busy: dict[int, float] = {}
        """Percent times seconds of each process, since it was counted for its job."""
        self._seconds = 0.0

    def push(self, snapshot: Snapshot, at: float, seconds: float) -> None:
        if len(snapshot.jobs) <= FOLLOWED_JOBS_MAX:
            self._begin()
            return
        busy = self._busy
        for process in snapshot.processes:
            if process.gpu_busy_percent:
                used = seconds * process.gpu_busy_percent
                busy[process.pid] = busy.get(process.pid, 0.0) + used
        self._seconds += seconds
        before = self._followed or frozenset()
        asked_for = all(job.key in before for job in snapshot.jobs if job.attached)
        due = not asked_for or at >= self._chosen_at + CHOSEN_SECONDS
        if due or self._seconds >= LOOK_SECONDS:
            self._take_use(snapshot.jobs)
        if not due:
            return
        self._chosen_at = at

        def weight(job: Job) -> tuple[bool, bool, float]:
            kept = KEPT_PERCENT if job.key in before else 0.0
            return (job.attached, bool(job.loader_workers), self._use[job.key] + kept)

        ranked = sorted(snapshot.jobs, key=weight, reverse=True)
        self._followed = frozenset([job.key for job in ranked[:FOLLOWED_JOBS_MAX]])

    def _take_use(self, jobs: Sequence[Job]) -> None:
        """Work out how much each job uses GPUs, as a mean in which the newest counts most."""
        busy, seconds, before = self._busy, self._seconds, self._use
        share = min(1.0, seconds / USE_SECONDS)
        self._busy, self._seconds, self._use = {}, 0.0, {}
        for job in jobs:
            used = sum([busy.get(member.pid, 0.0) for member in job.members]) / seconds
            known = before.get(job.key, used)
            self._use[job.key] = known + share * (used - known)

    def of(self, snapshot: Snapshot) -> Sequence[Job]:
        """Its jobs that are followed."""
        followed = self._followed
        if followed is None:
            return snapshot.jobs
        pids = {pid for pid, _ in followed}
        return [job for job in snapshot.jobs if job.pid in pids and job.key in followed]


class Groups:
    """Those of the GPUs without a known job that look like one job: the same model, with memory in
    use that is alike, or readings that move together or in turns."""

    def __init__(self) -> None:
        self.found: tuple[_Group, ...] = ()
        self._wanted: tuple[_Group, ...] = ()
        self._looked_at = -math.inf
        self._held: dict[GpuKey, int] = {}
        """Memory in use at the last look, roughly."""

    def push(self, gpus: Sequence[GpuTrack], at: float) -> None:
        """``gpus``: all that no running job uses."""
        uuids = {gpu.identity.uuid for gpu in gpus}
        gone = any(not uuids.issuperset(group) for group in self.found)
        if at < self._looked_at + LOOK_SECONDS and not gone:
            return
        held = {gpu.identity.uuid: round(_held(gpu) / ALIKE_BYTES) for gpu in gpus}
        settled = held == self._held and self._wanted == self.found
        if settled and at < self._looked_at + SETTLED_SECONDS and not gone:
            return
        self._looked_at, self._held = at, held
        by_model = sorted([gpu for gpu in gpus if gpu.identity.mig_instance is None], key=_model)
        wanted = tuple(
            [group for _, alike in groupby(by_model, _model) for group in self._of([*alike], at)]
        )
        if gone or not self.found or wanted == self._wanted:
            self.found = wanted
        self._wanted = wanted

    def _of(self, gpus: list[GpuTrack], at: float) -> list[_Group]:
        """``gpus``: of one model."""
        before = {uuid: group for group in self.found for uuid in group}
        # Once they are a group, the end of the job that they run is no other job.
        gpus = [
            gpu
            for gpu in gpus
            if gpu.memory_used_bytes is None
            or gpu.memory_used_bytes >= HELD_BYTES
            or gpu.identity.uuid in before
        ]
        uuids, since = _keys(gpus), at - MOVES_SECONDS
        less = STAYS if uuids in self.found else 0.0
        busy, power = agreement([gpu.load for gpu in gpus], since)
        for value in (busy, power):
            turns = 0.0 if value is None else value * (1 - len(gpus))
            if max(value or 0.0, turns) >= TOGETHER - less:
                return [uuids]
        alone = busy is not None and max(busy, power or 0.0) < UNRELATED - less
        if alone and not all(gpu.load.spins(since)[1] for gpu in gpus):
            return []
        groups: list[list[GpuTrack]] = []
        for gpu in sorted(gpus, key=_held):
            least = groups[-1][0] if groups else gpu
            were = 2.0 if gpu.identity.uuid in before.get(least.identity.uuid, ()) else 1.0
            slack = were * max(ALIKE_BYTES, ALIKE_SHARE * _held(gpu))
            if not groups or _held(gpu) - _held(least) > slack:
                groups.append([])
            groups[-1].append(gpu)
        return [_keys(group) for group in groups if len(group) > 1]


def _held(gpu: GpuTrack) -> float:
    return float(gpu.memory_used_bytes or 0)


def _model(gpu: GpuTrack) -> str:
    return gpu.identity.name or ""


def _keys(gpus: Sequence[GpuTrack]) -> _Group:
    return tuple([gpu.identity.uuid for gpu in sorted(gpus, key=lambda gpu: gpu.identity.index)])
