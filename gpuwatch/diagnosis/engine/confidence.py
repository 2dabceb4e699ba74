"""From the strength of a rule's evidence to how likely the cause it names is the right one.

``CURVE`` and the rules' ``trust`` come from ``python -m tests.evaluation.calibrate``: isotonic
regression of being right on what was said, and a factor for rules that were right less often than
others of the same strength, on two generators of labelled jobs of which one is still kept. On its
held-out cases, 97% of what was said at 0.7 to 0.9 was right, 96% at 0.9 to 0.95 and 99% above. The
curve promises less than that, since a real machine has more ways to surprise than a generator.
"""

from itertools import pairwise

from gpuwatch.diagnosis.rule import Firing

CURVE = ((0.0, 0.50), (0.4, 0.75), (0.6, 0.90), (0.8, 0.96), (1.0, 0.99))
"""(strength, confidence), straight lines between."""
MISSING_COST = 0.05
"""For each reading that would have made it surer, of those it rests on."""
HIGHEST = 0.99
"""Nothing seen from outside is certain."""
LOWEST = 0.05


def confidence(trust: float, firing: Firing, strength: float) -> float:
    """0 to 1. ``trust`` is the rule's, ``strength`` the firing's, smoothed over its evaluations."""
    present = len([item for item in firing.evidence if item is not None and item.value is not None])
    wanted = present + len(firing.missing)
    share = present / wanted if wanted else 1.0
    value = _on_curve(strength) * trust
    value *= 1.0 - MISSING_COST * min(3, len(firing.missing)) * (2.0 - share)
    return min(HIGHEST, max(LOWEST, value))


def _on_curve(strength: float) -> float:
    for (left, low), (right, high) in pairwise(CURVE):
        if strength <= right:
            return low + (high - low) * max(0.0, strength - left) / (right - left)
    return CURVE[-1][1]
