"""Outcomes to figures, as text."""

import math
import statistics
import subprocess
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tests.evaluation.case import HEALTHY, LOADING, NEVER_LOADING, UNDECIDED
from tests.evaluation.harness import Outcome

ROOT = Path(__file__).parent


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Overall and per cause: as the documentation has it."""
    pairs = [(one.label, one.label if one.right else one.said) for one in outcomes]
    lines = ["| cause | cases | precision | recall | F1 |", "|---|---|---|---|---|"]
    every = []
    for label in sorted({label for label, _ in pairs}):
        right = pairs.count((label, label))
        there = sum(truth == label for truth, _ in pairs)
        said = sum(answer == label for _, answer in pairs)
        every.append(2 * right / (there + said))
        found = f"{_within(right, said)} | {_within(right, there)} | {every[-1]:.2f}"
        lines.append(f"| {label} | {there} | {found} |")
    overall = {"macro F1": f"{statistics.fmean(every):.3f}", **_overall(outcomes)}
    rows = [f"| {name} | {value} |" for name, value in overall.items()]
    return "\n".join(["| overall | |", "|---|---|", *rows, "", *lines])


def _overall(outcomes: Sequence[Outcome]) -> dict[str, str]:
    count = len(outcomes)
    healthy = [one for one in outcomes if one.label == HEALTHY]
    alarms, hours = sum(len(one.alarms) for one in healthy), sum(one.gpu_hours for one in healthy)
    rate = f"{alarms / hours:.3f}" if hours else "-"
    wrong = [one for one in outcomes if not one.right]
    blamed = sum(one.label in NEVER_LOADING and one.said in LOADING for one in wrong)
    found = [one for one in outcomes if one.right and one.seconds_to_detect is not None]
    unsure = [(said - right) ** 2 for said, right in sureness(outcomes)]
    return {
        "top-1": f"{sum(one.right for one in outcomes) / count:.3f}",
        "abstained": f"{sum(one.said == UNDECIDED for one in wrong) / count:.3f}",
        "false alarms / GPU-hour": f"{rate} ({alarms}/{hours:.0f} h)",
        "blamed on loading wrongly": str(blamed),
        "s to detect loading": _median([one for one in found if one.label in LOADING]),
        "s to detect all": _median(found),
        "Brier score": f"{statistics.fmean(unsure):.3f}" if unsure else "-",
    }


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
    wrong = [one for one in outcomes if not one.right]
    lines = []
    for pair, count in Counter((one.label, one.said) for one in wrong).most_common(most):
        cases = [one.case for one in wrong if (one.label, one.said) == pair]
        lines.append(f"{count:4}  {' -> '.join(pair)}: {', '.join(cases[:4])}")
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


def _within(right: int, of: int) -> str:
    low, high = wilson_percent(right, of)
    return f"{right / of:.2f} ({low / 100:.2f}-{high / 100:.2f})" if of else "-"


def _median(found: Sequence[Outcome]) -> str:
    times = [one.seconds_to_detect for one in found if one.seconds_to_detect is not None]
    return f"{statistics.median(times):.0f}" if times else "-"


Z_95 = 1.959964


def wilson_percent(count: int, total: int) -> tuple[float, float]:
    """Return the 95% interval of a share, in percent (Wilson 1927): sensible at 0, at 100 and for
    few samples. (0, 100) where there is none."""
    if total <= 0:
        return 0.0, 100.0
    share = count / total
    scale = 1 + Z_95**2 / total
    middle = share + Z_95**2 / (2 * total)
    reach = Z_95 * math.sqrt(share * (1 - share) / total + Z_95**2 / (4 * total**2))
    return max(0.0, 100 * (middle - reach) / scale), min(100.0, 100 * (middle + reach) / scale)
