"""``python -m tests.evaluation.calibrate``: fits confidences.

Prints ``CURVE`` of ``gpuwatch/diagnosis/rule_state.py``, a monotone curve from a firing's
strength to the share that was right (isotonic regression, pooling adjacent violators), fitted on
one half of the simulated machines and on the recordings, and the ``trust`` of each rule that was
right clearly more or less often than others of its strength. The findings are the first ones of
their cases.
"""

import argparse
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from gpuwatch.diagnosis import rule_state
from gpuwatch.diagnosis.catalogue import find
from tests.evaluation import recorded
from tests.evaluation.harness import LOADER_ADVICE, Outcome, judge, run
from tests.evaluation.report import reliability
from tests.evaluation.simulator.cases import cases

_LEAST_FINDINGS = 6
"""A rule with fewer is left as it is: its share would be luck."""
_PRIOR = 4.0
"""Findings of average quality that each rule is given beside its own."""
_POINTS = 6


@dataclass(frozen=True, slots=True)
class Claim:
    """One finding: what the engine said of it and whether it was right."""

    rule: str
    confidence: float
    right: bool


def claims_of(outcomes: Iterable[Outcome]) -> list[Claim]:
    """The first finding of every case that has one."""
    return [
        Claim(one.others[0] if one.said == LOADER_ADVICE else one.said, one.confidence, one.right)
        for one in outcomes
        if one.confidence is not None
    ]


def isotonic(pairs: Sequence[tuple[float, bool]]) -> list[tuple[float, float, int]]:
    """Blocks (mean x, share right, count) with rising shares, by pooling adjacent violators."""
    blocks = [(x, float(right), 1) for x, right in sorted(pairs)]
    pooled: list[tuple[float, float, int]] = []
    for block in blocks:
        pooled.append(block)
        while len(pooled) > 1 and pooled[-2][1] >= pooled[-1][1]:
            (x1, y1, n1), (x2, y2, n2) = pooled[-2:]
            n = n1 + n2
            pooled[-2:] = [((x1 * n1 + x2 * n2) / n, (y1 * n1 + y2 * n2) / n, n)]
    return pooled


def curve(blocks: Sequence[tuple[float, float, int]]) -> list[tuple[float, float]]:
    """The blocks, shrunk towards their mean for want of findings, as a few points."""
    total = sum(count for _, _, count in blocks)
    mean = sum(share * count for _, share, count in blocks) / total
    shares = [(share * count + mean * _PRIOR) / (count + _PRIOR) for _, share, count in blocks]
    # A small block is drawn more to the mean than its neighbours: it must not pass them.
    points = list(zip([x for x, _, _ in blocks], accumulate(shares, max), strict=True))
    while len(points) > _POINTS:
        # The two that say the most alike become one.
        near = min(range(len(points) - 1), key=lambda n: abs(points[n + 1][1] - points[n][1]))
        (x1, y1), (x2, y2) = points[near], points[near + 1]
        points[near : near + 2] = [((x1 + x2) / 2, (y1 + y2) / 2)]
    return points


def on(points: Sequence[tuple[float, float]], x: float) -> float:
    """The value at ``x``, straight between the points and level beyond them."""
    if x <= points[0][0]:
        return points[0][1]
    for (x1, y1), (x2, y2) in pairwise(points):
        if x <= x2:
            return y1 + (y2 - y1) * (x - x1) / (x2 - x1) if x2 > x1 else y2
    return points[-1][1]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.evaluation.calibrate", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=8, help="of all kinds (default 8)")
    options = parser.parse_args()
    simulated = [case for case in cases(options.seed, options.rounds) if case.half == "dev"]
    outcomes = [one for case in simulated for one in judge(case)]
    outcomes += [one for case in recorded.all_recordings() for one in run(case)]
    claims = claims_of(outcomes)
    pairs = [(claim.confidence, claim.right) for claim in claims]
    points = curve(isotonic(pairs))
    print(reliability(pairs) + "\n\nwhat is said now -> what it should be:")
    for x, y in points:
        print(f"  {x:.3f} -> {y:.3f}")
    print(f"\nthe curve now, by strength: {rule_state.CURVE}")
    fit = tuple((x, round(on(points, y), 3)) for x, y in rule_state.CURVE)
    print(f"CURVE = {fit}")
    print("\nby rule: findings, share right, mean confidence, factor")
    for rule in sorted({claim.rule for claim in claims}):
        print(_of_rule(rule, [claim for claim in claims if claim.rule == rule], points))


def _of_rule(rule: str, own: Sequence[Claim], points: Sequence[tuple[float, float]]) -> str:
    right = sum(claim.right for claim in own)
    said = statistics.fmean(on(points, claim.confidence) for claim in own)
    share = (right + _PRIOR * said) / (len(own) + _PRIOR)
    known = len(own) >= _LEAST_FINDINGS
    factor = f"{find(rule).trust * share / said:.2f}" if known else "(too few)"
    return f"  {rule:24}{len(own):4}{right / len(own):6.2f}{said:6.2f}  {factor}"


if __name__ == "__main__":
    main()
