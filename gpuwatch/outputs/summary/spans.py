"""Findings that come and go, as stretches of time."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.core.model import GpuKey, ProcessKey
from gpuwatch.diagnosis.finding import Diagnosis, Finding, rank
from gpuwatch.outputs.summary.model import FindingUse, Stretch

MERGE_SECONDS = 60.0
"""A finding that is back so soon was never gone: the diagnosis looks at windows of a minute."""
STRETCHES_KEPT = 64
USES_KEPT = 256

_Key = tuple[str, ProcessKey | None, tuple[GpuKey, ...]]


class _Use:
    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.gpus: dict[GpuKey, None] = {}
        self.stretches: list[list[float]] = []
        """[begin, end, what was counted before it, what is counted by now]"""
        self.before = 0.0
        """What ledgers counted that have been closed."""
        self.counted: float | None = None
        """By the ledger of now."""

    def cost(self) -> float | None:
        return None if self.counted is None else self.before + self.counted


class Spans:
    """Fed with each new diagnosis; times on the report's axis."""

    def __init__(self) -> None:
        self._uses: dict[_Key, _Use] = {}
        self._present: set[_Key] = set()

    def add(self, diagnosis: Diagnosis, now: float, begin: float, offset: float) -> None:
        """``begin`` of the report's time; ``offset`` of the wall clock against its axis."""
        present: set[_Key] = set()
        for finding in diagnosis.findings:
            key = _key(finding)
            use = self._uses.get(key)
            if use is None:
                if len(self._uses) >= USES_KEPT:
                    continue
                use = self._uses[key] = _Use(finding)
            present.add(key)
            self._hold(use, finding, now, begin, offset)
        self._present = present

    def _hold(self, use: _Use, finding: Finding, now: float, begin: float, offset: float) -> None:
        use.gpus.update(dict.fromkeys(finding.gpus))
        if finding.confidence >= use.finding.confidence:
            use.finding = finding
        since = finding.since_unix_seconds
        since = now if since is None else min(now, max(begin, since - offset))
        last = use.stretches[-1] if use.stretches else None
        if last is None or since - last[1] > MERGE_SECONDS:
            since = since if last is None else max(since, last[1])
            use.stretches.append([since, now, use.cost() or 0.0, 0.0])
            if len(use.stretches) > STRETCHES_KEPT:
                _merge_nearest(use.stretches)
        use.stretches[-1][1] = now
        cost = finding.cost_gpu_seconds
        if cost is not None:
            if use.counted is not None and cost < use.counted:
                # A job that began anew, or another recording: it counts from zero again.
                use.before += use.counted
            use.counted = cost
        use.stretches[-1][3] = use.cost() or 0.0

    def uses(self, end: float) -> tuple[FindingUse, ...]:
        """``end`` of the time: what holds in the last diagnosis holds until then."""
        for key in self._present:
            self._uses[key].stretches[-1][1] = end
        made = [self._made(key, use) for key, use in self._uses.items()]
        return tuple(sorted(made, key=_rank))

    def _made(self, key: _Key, use: _Use) -> FindingUse:
        cost = use.cost()
        return FindingUse(
            finding=use.finding,
            gpus=tuple(use.gpus),
            stretches=tuple(
                [
                    Stretch(
                        begin_unix_seconds=begin,
                        end_unix_seconds=end,
                        cost_gpu_seconds=None if cost is None else max(0.0, now - before),
                    )
                    for begin, end, before, now in use.stretches
                ]
            ),
            cost_gpu_seconds=cost,
            holds=key in self._present,
        )


def _key(finding: Finding) -> _Key:
    """Which of a job's GPUs it is about may change while it holds."""
    return (finding.rule, finding.job, finding.gpus if finding.job is None else ())


def _merge_nearest(stretches: list[list[float]]) -> None:
    pairs = range(len(stretches) - 1)
    place = min(pairs, key=lambda at: stretches[at + 1][0] - stretches[at][1])
    one, other = stretches[place], stretches.pop(place + 1)
    one[1], one[3] = other[1], other[3]


def _rank(use: FindingUse) -> tuple[object, ...]:
    finding = use.finding
    return rank(finding.severity, use.cost_gpu_seconds, finding.cost_share, use.seconds)


def share_of(uses: Iterable[FindingUse], watched: float | None) -> float | None:
    """0 to 1: the part of the GPU time watched that these cost together."""
    costs = [use.cost_gpu_seconds for use in uses if use.cost_gpu_seconds is not None]
    return min(1.0, sum(costs) / watched) if costs and watched else None
