"""Outcomes to figures."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.evaluation.case import HEALTHY, LOADING, NEVER_LOADING, UNDECIDED
from tests.evaluation.harness import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
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
    seconds_to_detect: float | None
    """The median over the causes in loading that were found."""
    seconds_to_detect_all: float | None
    brier: float | None

    @property
    def false_alarms_per_hour(self) -> float | None:
        hours = self.healthy_gpu_hours
        return self.false_alarms / hours if hours else None


def score(outcomes: Sequence[Outcome]) -> Score:
    """Of the engine. Raises ``ValueError`` when there are none."""
    pairs = [(one.label, one.answer) for one in outcomes]
    healthy = [one for one in outcomes if one.label == HEALTHY]
    times = [one for one in outcomes if one.right and one.seconds_to_detect is not None]
    loading = [one for one in times if one.label in LOADING]
    sure = [(one.confidence - one.right) ** 2 for one in outcomes if one.confidence is not None]
    return _score(
        pairs,
        false_alarms=sum(len(one.alarms) for one in healthy),
        hours=sum(one.gpu_hours for one in healthy),
        blamed=sum(_blames(one, one.said) for one in outcomes),
        seconds=_median(loading),
        seconds_all=_median(times),
        brier=statistics.fmean(sure) if sure else None,
    )


def score_baseline(outcomes: Sequence[Outcome], name: str) -> Score:
    """Of a rule from elsewhere, which says what it says once, at the end."""
    pairs = [
        (one.label, one.label if one.baselines[name] in one.accepted else one.baselines[name])
        for one in outcomes
    ]
    healthy = [one for one in outcomes if one.label == HEALTHY]
    return _score(
        pairs,
        false_alarms=sum(one.baselines[name] not in one.accepted for one in healthy),
        hours=sum(one.gpu_hours for one in healthy),
        blamed=sum(_blames(one, one.baselines[name]) for one in outcomes),
        seconds=None,
        seconds_all=None,
        brier=None,
    )


def confusions(outcomes: Sequence[Outcome]) -> list[tuple[str, str, int, list[str]]]:
    """(label, what was said, how often, the cases), the most frequent first."""
    wrong = [one for one in outcomes if not one.right]
    counts = Counter((one.label, one.said) for one in wrong)
    return [
        (label, said, count, [one.case for one in wrong if (one.label, one.said) == (label, said)])
        for (label, said), count in counts.most_common()
    ]


def _score(
    pairs: Sequence[tuple[str, str]],
    *,
    false_alarms: int,
    hours: float,
    blamed: int,
    seconds: float | None,
    seconds_all: float | None,
    brier: float | None,
) -> Score:
    if not pairs:
        raise ValueError("nothing to score")
    labels = sorted({label for label, _ in pairs})
    causes = tuple(_cause(label, pairs) for label in labels)
    return Score(
        causes=causes,
        cases=len(pairs),
        macro_f1=statistics.fmean(cause.f1 for cause in causes),
        top_1=sum(label == said for label, said in pairs) / len(pairs),
        abstained=sum(said == UNDECIDED != label for label, said in pairs) / len(pairs),
        false_alarms=false_alarms,
        healthy_gpu_hours=hours,
        blamed_loading=blamed,
        seconds_to_detect=seconds,
        seconds_to_detect_all=seconds_all,
        brier=brier,
    )


def _cause(label: str, pairs: Sequence[tuple[str, str]]) -> CauseScore:
    right = sum(pair == (label, label) for pair in pairs)
    there = sum(truth == label for truth, _ in pairs)
    said = sum(answer == label for _, answer in pairs)
    return CauseScore(
        label=label,
        cases=there,
        precision=right / said if said else None,
        recall=right / there,
        f1=2 * right / (there + said),
        said=said,
        right=right,
    )


def _blames(one: Outcome, said: str) -> bool:
    return one.label in NEVER_LOADING and said in LOADING and said not in one.accepted


def wilson(right: int, of: int) -> tuple[float, float]:
    """The 95% interval of a share (E. B. Wilson, 1927); 0 to 1 where there is nothing."""
    if not of:
        return 0.0, 1.0
    share, z = right / of, 1.96
    middle = share + z * z / (2 * of)
    half = z * math.sqrt(share * (1.0 - share) / of + z * z / (4 * of * of))
    return max(0.0, (middle - half) / (1 + z * z / of)), min(
        1.0, (middle + half) / (1 + z * z / of)
    )


def _median(outcomes: Sequence[Outcome]) -> float | None:
    times = [one.seconds_to_detect for one in outcomes if one.seconds_to_detect is not None]
    return statistics.median(times) if times else None
