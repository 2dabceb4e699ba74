"""Findings that come and go, as stretches of time."""

from dataclasses import dataclass, field

from gpuwatch.core.model import GpuKey, ProcessKey
from gpuwatch.diagnosis.finding import Diagnosis, Finding, rank
from gpuwatch.outputs.report.model import FindingUse, Stretch

MERGE_SECONDS = 60.0
"""Time within which a finding that is back was never gone: the diagnosis looks at windows of a
minute."""
STRETCHES_KEPT = 64
FINDINGS_KEPT = 256
OF_FINDING = (
    *("rule", "severity", "confidence", "summary", "says"),
    *("evidence", "advice", "ruled_out", "job"),
)

Key = tuple[str, ProcessKey | None, tuple[GpuKey, ...]]


def key_of(finding: Finding) -> Key:
    """Return the key by which a finding is recognised later. Which of a job's GPUs it is about may
    change while it holds."""
    return (finding.rule, finding.job, finding.gpus if finding.job is None else ())


@dataclass(slots=True)
class _Held:
    """A stretch, with what the finding had cost by its beginning and its end."""

    begin: float
    end: float
    cost_before: float
    cost: float = 0.0


@dataclass(slots=True)
class _Use:
    finding: Finding
    gpus: dict[GpuKey, None] = field(default_factory=dict)
    held: list[_Held] = field(default_factory=list)
    cost_before: float = 0.0
    """Cost counted by ledgers that have been closed."""
    counted: float | None = None
    """Cost counted by the present ledger."""

    @property
    def cost(self) -> float | None:
        return None if self.counted is None else self.cost_before + self.counted


class FindingsAccumulator:
    """Sums of findings over all diagnoses, with times on the report's axis."""

    def __init__(self, *, newest: bool = False) -> None:
        """``newest``: findings are shown as they are last, not as they were when surest."""
        self._newest = newest
        self._uses: dict[Key, _Use] = {}
        self._present: set[Key] = set()

    def add_diagnosis(self, diagnosis: Diagnosis, now: float, begin: float, offset: float) -> None:
        """Take a new diagnosis. ``begin``: of the report's time; ``offset``: of the wall clock
        against its axis."""
        self._present = set()
        for finding in diagnosis.findings:
            key = key_of(finding)
            if key not in self._uses and len(self._uses) >= FINDINGS_KEPT:
                continue
            self._present.add(key)
            since = finding.since_unix_seconds
            since = now if since is None else min(now, max(begin, since - offset))
            use = self._uses.setdefault(key, _Use(finding))
            if self._newest or finding.confidence >= use.finding.confidence:
                use.finding = finding
            _hold(use, finding, since, now)

    def uses(self, end: float) -> tuple[FindingUse, ...]:
        """Return the findings so far; those that hold in the last diagnosis hold until ``end``."""
        for key in self._present:
            self._uses[key].held[-1].end = end
        uses = sorted(self._uses.items(), key=lambda item: _rank(item[1]))
        return tuple([_made(use, key in self._present) for key, use in uses])


def _hold(use: _Use, finding: Finding, since: float, now: float) -> None:
    use.gpus.update(dict.fromkeys(finding.gpus))
    held = use.held
    if not held or since - held[-1].end > MERGE_SECONDS:
        since = max(since, held[-1].end) if held else since
        held.append(_Held(since, now, use.cost or 0.0))
        if len(held) > STRETCHES_KEPT:
            _merge_nearest(held)
    cost = finding.cost_gpu_seconds
    if cost is not None:
        if use.counted is not None and cost < use.counted:
            # A job that began anew, or another recording: it counts from zero again.
            use.cost_before += use.counted
        use.counted = cost
    held[-1].end, held[-1].cost = now, use.cost or 0.0


def _merge_nearest(held: list[_Held]) -> None:
    place = min(range(len(held) - 1), key=lambda at: held[at + 1].begin - held[at].end)
    other = held.pop(place + 1)
    held[place].end, held[place].cost = other.end, other.cost


def _made(use: _Use, holds: bool) -> FindingUse:
    known = use.cost is not None
    stretches = [
        Stretch(
            begin_unix_seconds=one.begin,
            end_unix_seconds=one.end,
            cost_gpu_seconds=max(0.0, one.cost - one.cost_before) if known else None,
        )
        for one in use.held
    ]
    return FindingUse(
        **{name: getattr(use.finding, name) for name in OF_FINDING},
        gpus=tuple(use.gpus),
        holds_at_end=holds,
        seconds=sum(one.seconds for one in stretches),
        cost_gpu_seconds=use.cost,
        stretches=tuple(stretches),
    )


def _rank(use: _Use) -> tuple[object, ...]:
    seconds = sum(one.end - one.begin for one in use.held)
    return rank(use.finding.severity, use.cost, use.finding.cost_share, seconds)
