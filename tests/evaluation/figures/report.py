"""The figures as text."""

import statistics
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tests.evaluation.case import HEALTHY
from tests.evaluation.figures import baselines
from tests.evaluation.figures.scoring import Score, confusions, score, score_baseline, wilson
from tests.evaluation.harness import Outcome

ROOT = Path(__file__).parent


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Overall and per cause, gpuwatch beside the rules from elsewhere: as the README has it."""
    ours = score(outcomes)
    others = {name: score_baseline(outcomes, name) for name in baselines.NAMES}
    beside = "".join(f" {name} |" for name in others)
    lines = [f"| overall | gpuwatch |{beside}", "|---" * (2 + len(others)) + "|"]
    for name, values in _overall([ours, *others.values()]):
        lines.append(f"| {name} | {' | '.join(values)} |")
    beside = "".join(f" {name} F1 |" for name in others)
    lines += ["", f"| cause | cases | precision | recall | F1 |{beside}"]
    lines.append("|---" * (5 + len(others)) + "|")
    for number, cause in enumerate(ours.causes):
        figures = [_within(cause.right, cause.said), _within(cause.right, cause.cases)]
        figures += [_ratio(cause.f1)]
        figures += [_ratio(other.causes[number].f1) for other in others.values()]
        lines.append(f"| {cause.label} | {cause.cases} | {' | '.join(figures)} |")
    return "\n".join(lines)


_BINS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)


def sureness(outcomes: Sequence[Outcome]) -> list[tuple[float, bool]]:
    """Of the first findings: how sure they were, and whether they were right."""
    return [(one.confidence, one.right) for one in outcomes if one.confidence is not None]


def reliability(sure: Sequence[tuple[float, bool]]) -> str:
    """How many of those that were so sure were right."""
    lines = ["| said | findings | mean | right |", "|---|---|---|---|"]
    for low, high in pairwise(_BINS):
        some = [(said, right) for said, right in sure if low < said <= high]
        if some:
            mean = statistics.fmean(said for said, _ in some)
            right = _within(sum(right for _, right in some), len(some))
            lines.append(f"| {low:.2f}-{high:.2f} | {len(some)} | {mean:.2f} | {right} |")
    return "\n".join(lines)


def whole(outcomes: Sequence[Outcome], of: str, beside: str = "", most: int = 60) -> str:
    """All figures of cases; ``of``: which they are, ``beside``: what else is to be said."""
    return "\n".join(
        [
            *(f"{stamp()}: {len(outcomes)} cases, {of}\n", markdown(outcomes), ""),
            *(reliability(sureness(outcomes)), beside, "what was taken for what:"),
            *(worst(outcomes, most), "", "false alarms on healthy jobs:"),
            raised_wrongly(outcomes) or "  none",
        ]
    )


def one(outcome: Outcome, view: object = "") -> str:
    """A line of a case, and what there is to look at where it went wrong."""
    lines = [
        f"{'ok ' if outcome.right else 'BAD'} {outcome.case}: {outcome.label} -> {outcome.said}"
    ]
    lines += [] if outcome.right else [f"{outcome.summary} {view}".rstrip()]
    lines += [f"wrongly raised: {', '.join(outcome.alarms)}"] if outcome.alarms else []
    return "\n      ".join(lines)


def stamp() -> str:
    """The commit that was measured; ``+`` where files differ from it."""
    words = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    found = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    return f"commit {found.stdout.strip() or 'unknown'}"


def worst(outcomes: Sequence[Outcome], most: int = 15) -> str:
    """What was taken for what, with cases to look at."""
    lines = []
    for label, said, count, cases in confusions(outcomes)[:most]:
        lines.append(f"{count:4}  {label} -> {said}: {', '.join(cases[:4])}")
    return "\n".join(lines)


def raised_wrongly(outcomes: Sequence[Outcome]) -> str:
    """False alarms on healthy jobs, by rule."""
    counts: dict[str, list[str]] = {}
    for one in outcomes:
        if one.label == HEALTHY:
            for rule in one.alarms:
                counts.setdefault(rule, []).append(one.case)
    most = sorted(counts.items(), key=lambda item: -len(item[1]))
    return "\n".join(f"{len(cases):4}  {rule}: {', '.join(cases[:4])}" for rule, cases in most)


def hours(outcomes: Sequence[Outcome]) -> str:
    """Warnings on healthy machines that were watched for long, apart from cases: so many hours
    would lift every other figure."""
    watched = sum(one.gpu_hours for one in outcomes)
    alarms = sum(len(one.alarms) for one in outcomes)
    rules = raised_wrongly(outcomes) or "  none"
    return f"{alarms} warnings in {watched:.1f} GPU-hours of healthy machines\n{rules}"


def _overall(scores: Sequence[Score]) -> list[tuple[str, list[str]]]:
    return [
        ("macro F1", [f"{of.macro_f1:.3f}" for of in scores]),
        ("top-1", [f"{of.top_1:.3f}" for of in scores]),
        ("abstained", [f"{of.abstained:.3f}" for of in scores]),
        ("false alarms / GPU-hour", [_alarms(of) for of in scores]),
        ("blamed on loading wrongly", [str(of.blamed_loading) for of in scores]),
        ("s to detect loading", [_seconds(of.seconds_to_detect) for of in scores]),
        ("s to detect all", [_seconds(of.seconds_to_detect_all) for of in scores]),
        ("Brier score", [_ratio(of.brier, 3) for of in scores]),
    ]


def _alarms(of: Score) -> str:
    rate = of.false_alarms_per_hour
    return "-" if rate is None else f"{rate:.3f} ({of.false_alarms}/{of.healthy_gpu_hours:.0f} h)"


def _within(right: int, of: int) -> str:
    low, high = wilson(right, of)
    return f"{right / of:.2f} ({low:.2f}-{high:.2f})" if of else "-"


def _ratio(value: float | None, places: int = 2) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
