"""Pauses of a job or a GPU, with what else happened in them."""

import math
from collections.abc import Sequence

from gpuwatch.core.bounds import highest
from gpuwatch.core.model import GpuKey, Snapshot
from gpuwatch.core.store import Table
from gpuwatch.diagnosis.facts.watched_gpu import GpuTrack
from gpuwatch.diagnosis.facts.watched_host import HostTrack
from gpuwatch.diagnosis.facts.watched_job import (
    BUSIEST,
    CHANGED,
    LAG_SECONDS,
    MAIN,
    OTHERS,
    SENT,
    WRITTEN,
    JobTrack,
)
from gpuwatch.diagnosis.facts.window import Pause
from gpuwatch.diagnosis.signals.stretches import KEEP_SECONDS, Stretch

_Found = tuple[Stretch, GpuKey]


class Pauses:
    """Those of one job with its GPUs, or of one GPU of which no job is known."""

    def __init__(
        self, snapshot: Snapshot, gpus: Sequence[GpuTrack], job: JobTrack | None, host: HostTrack
    ) -> None:
        self._now = snapshot.monotonic_seconds
        self._offset = snapshot.taken_at_unix_seconds - self._now
        self._gpus, self._job, self._host = gpus, job, host
        steady = None if job is None else job.steady_at
        self._steady = -math.inf if steady is None else steady

    def over(self) -> tuple[Pause, ...]:
        """Those that are over, oldest first."""
        oldest = max(self._now - KEEP_SECONDS, self._steady)
        if self._job is not None and not self._gpus:
            return tuple([self._made(*one) for one in self._job.phases.pauses(oldest)])
        found = [
            (pause, gpu.identity.uuid)
            for gpu in self._gpus
            for pause in gpu.pauses.found
            if pause.end > oldest
        ]
        groups: list[list[_Found]] = []
        for one in sorted(found, key=lambda one: one[0].begin):
            if groups and one[0].begin < max([other.end for other, _ in groups[-1]]):
                groups[-1].append(one)
            else:
                groups.append([one])
        return tuple([self._of(group) for group in groups])

    def ongoing(self) -> tuple[Pause, ...]:
        """Those that are not over, by GPU."""
        found = [
            # Nobody knows whether what a silent driver reported last goes on.
            (gpu.pauses.open(self._now if gpu.read_at is None else gpu.read_at), gpu.identity.uuid)
            for gpu in self._gpus
        ]
        return tuple(
            [
                self._of([(one, uuid)])
                for one, uuid in found
                if one is not None and one.end > self._steady
            ]
        )

    def _of(self, group: Sequence[_Found]) -> Pause:
        begin, end = min([one.begin for one, _ in group]), max([one.end for one, _ in group])
        uuids = tuple(dict.fromkeys([uuid for _, uuid in group]))
        freed = [_freed(gpu.memory, begin, end) for gpu in self._gpus if gpu.identity.uuid in uuids]
        return self._made(
            begin,
            end,
            busy_percent=sum([one.busy_percent for one, _ in group]) / len(group),
            gpus=uuids,
            memory_freed_share=highest(freed),
        )

    def _made(
        self,
        begin: float,
        end: float,
        *,
        busy_percent: float | None = None,
        gpus: tuple[GpuKey, ...] = (),
        memory_freed_share: float | None = None,
    ) -> Pause:
        job, host = self._job, self._host
        wrote = sent = changed = main = busiest = others = None
        if job is not None:
            table, late = job.table, 0.0 if job.job.attached else LAG_SECONDS
            wrote = table.total(WRITTEN, begin, end + late)
            sent = table.total(SENT, begin, end)
            changed = table.total(CHANGED, begin - 1.0, end + 1.0)
            main, busiest, others = [table.mean(n, begin, end) for n in (MAIN, BUSIEST, OTHERS)]
        if wrote is None:
            wrote = host.written_bytes(begin, end)
        return Pause(
            at_unix_seconds=begin + self._offset,
            seconds=end - begin,
            busy_percent=busy_percent,
            gpus=gpus,
            wrote_bytes=wrote,
            sent_bytes=highest([sent, _excess(host, begin, end)]),
            main_thread_percent=main,
            busiest_worker_percent=busiest,
            other_workers_percent=others,
            workers_changed=(changed or 0.0) > 0.0,
            phase=None if job is None else job.phases.between(begin, end),
            memory_freed_share=memory_freed_share,
        )


def _freed(memory: Table, begin: float, end: float) -> float | None:
    """Share of the memory held just before that was not held in the middle of the pause."""
    edge = (end - begin) / 4.0
    before, within = memory.mean("memory_used_bytes", begin - edge, begin), None
    if before:
        within = memory.mean("memory_used_bytes", begin + edge, end - edge)
    return None if not before or within is None else max(0.0, 1.0 - within / before)


def _excess(host: HostTrack, begin: float, end: float) -> float | None:
    """What was sent beyond what was in as much time before."""
    now = host.sent_bytes(begin, end)
    before = host.sent_bytes(2.0 * begin - end, begin)
    return None if now is None else max(0.0, now - (before or 0.0))
