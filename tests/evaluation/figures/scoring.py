"""Outcomes to figures."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.evaluation.case import HEALTHY, LOADING, NEVER_LOADING, UNDECIDED
from tests.evaluation.harness import Outcome


@dataclass(frozen=True, slots=True)
class CauseScore:
    """How well one label is found."""

    label: str
    cases: int
    precision: float | None
    recall: float
    f1: float
    said: int
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The figures of one way to diagnose."""

    causes: tuple[CauseScore, ...]
    cases: int
    macro_f1: float
    top_1: float
    abstained: float
    false_alarms: int
    healthy_gpu_hours: float
    blamed_loading: int
    """Checkpoints, collective waits, throttles and the like that were blamed on loading."""
    seconds_to_detect: float | None = None
    """The median over the causes in loading that were found."""
    seconds_to_detect_all: float | None = None
    brier: float | None = None

    @property
    def false_alarms_per_hour(self) -> float | None:
        hours = self.healthy_gpu_hours
        return self.false_alarms / hours if hours else None


def score(outcomes: Sequence[Outcome]) -> Score:
    """Of the engine. Raises ``ValueError`` when there are none."""
    made = _score(outcomes, [one.said for one in outcomes], [len(one.alarms) for one in outcomes])
    times = [one for one in outcomes if one.right and one.seconds_to_detect is not None]
    sure = [(one.confidence - one.right) ** 2 for one in outcomes if one.confidence is not None]
    return replace(
        made,
        seconds_to_detect=_median([one for one in times if one.label in LOADING]),
        seconds_to_detect_all=_median(times),
        brier=statistics.fmean(sure) if sure else None,
    )


def score_baseline(outcomes: Sequence[Outcome], name: str) -> Score:
    """Of a rule from elsewhere, which says what it says once, at the end."""
    said = [one.baselines[name] for one in outcomes]
    wrong = [what not in one.accepted for one, what in zip(outcomes, said, strict=True)]
    return _score(outcomes, said, wrong)


def confusions(outcomes: Sequence[Outcome]) -> list[tuple[str, str, int, list[str]]]:
    """(label, what was said, how often, the cases), the most frequent first."""
    wrong = [one for one in outcomes if not one.right]
    counts = Counter((one.label, one.said) for one in wrong)
    return [
        (label, said, count, [one.case for one in wrong if (one.label, one.said) == (label, said)])
        for (label, said), count in counts.most_common()
    ]


def _score(outcomes: Sequence[Outcome], said: Sequence[str], alarms: Sequence[int]) -> Score:
    if not outcomes:
        raise ValueError("nothing to score")
    rows = list(zip(outcomes, said, alarms, strict=True))
    pairs = [(one.label, one.label if what in one.accepted else what) for one, what, _ in rows]
    causes = tuple(_cause(label, pairs) for label in sorted({label for label, _ in pairs}))
    return Score(
        causes=causes,
        cases=len(pairs),
        macro_f1=statistics.fmean(cause.f1 for cause in causes),
        top_1=sum(label == answer for label, answer in pairs) / len(pairs),
        abstained=sum(answer == UNDECIDED != label for label, answer in pairs) / len(pairs),
        false_alarms=sum(count for one, _, count in rows if one.label == HEALTHY),
        healthy_gpu_hours=sum(one.gpu_hours for one in outcomes if one.label == HEALTHY),
        blamed_loading=sum(_blames(one, what) for one, what, _ in rows),
    )


def _cause(label: str, pairs: Sequence[tuple[str, str]]) -> CauseScore:
    right = sum(pair == (label, label) for pair in pairs)
    there = sum(truth == label for truth, _ in pairs)
    said = sum(answer == label for _, answer in pairs)
    precision, f1 = right / said if said else None, 2 * right / (there + said)
    return CauseScore(label, there, precision, right / there, f1, said, right)


def _blames(one: Outcome, said: str) -> bool:
    return one.label in NEVER_LOADING and said in LOADING and said not in one.accepted


def wilson(right: int, of: int) -> tuple[float, float]:
    """The 95% interval of a share (E. B. Wilson, 1927); 0 to 1 where there is nothing."""
    if not of:
        return 0.0, 1.0
    share, z = right / of, 1.96
    middle = share + z * z / (2 * of)
    half = z * math.sqrt(share * (1.0 - share) / of + z * z / (4 * of * of))
    low, high = [(middle + side) / (1 + z * z / of) for side in (-half, half)]
    return max(0.0, low), min(1.0, high)


def _median(outcomes: Sequence[Outcome]) -> float | None:
    times = [one.seconds_to_detect for one in outcomes if one.seconds_to_detect is not None]
    return statistics.median(times) if times else None
