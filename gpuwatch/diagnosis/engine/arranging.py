"""Which of the faults that hold in a window are causes, and which are symptoms or rivals.

A cause says which rules its symptoms fire. Causes that claim the same idle time are rivals: the
one with the better evidence leads, and one for which nothing is left is no cause here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwatch.diagnosis.engine.accounting import Shares
from gpuwatch.diagnosis.engine.hysteresis import Held
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.rule import Firing

WEAK = 0.6
"""An explanation must have this share of the strength of what it explains."""
LEFT_OVER = 0.3
"""Of what a rival claims: with less than this left, its time is explained by others."""
INCUMBENT = 0.1
"""Added to the strength of what led before, so that two near equals do not take turns."""


@dataclass(slots=True)
class Cause:
    """One finding of a window, with what it explains."""

    rule: str
    held: Held
    firing: Firing
    lost_share: float | None
    """What is left of the firing's claim."""
    symptoms: list[tuple[str, Firing]] = field(default_factory=list)
    rivals: list[tuple[str, Firing]] = field(default_factory=list)


def arrange(window: Window, held: Mapping[str, Held], led_before: frozenset[str]) -> list[Cause]:
    """The causes among what is raised, the leading one first; ``led_before`` as it was told."""
    raised = {rule: one for rule, one in held.items() if one.raised and one.firing is not None}
    if not raised:
        return []
    explained = _explained(raised, _pending(held), led_before)
    ordered = sorted(
        [rule for rule in raised if rule not in explained],
        key=lambda rule: (-_weight(rule, raised[rule], led_before), rule),
    )
    causes = _compete(window, [(rule, raised[rule]) for rule in ordered])
    by_rule = {cause.rule: cause for cause in causes}
    for rule, reason in explained.items():
        leader = by_rule.get(_last(reason, explained))
        firing = raised[rule].firing
        if leader is not None and firing is not None:
            leader.symptoms.append((rule, firing))
    return causes


def _weight(rule: str, held: Held, led_before: frozenset[str]) -> float:
    return held.strength + (INCUMBENT if rule in led_before else 0.0)


def _pending(held: Mapping[str, Held]) -> dict[str, Held]:
    return {rule: one for rule, one in held.items() if one.fires_now and not one.raised}


def _explained(
    raised: Mapping[str, Held], pending: Mapping[str, Held], led_before: frozenset[str]
) -> dict[str, str]:
    """Rule: the one that explains it. What is about to be raised explains, too, unless the
    symptom is on the screen already: that changes only when the cause is sure."""
    out: dict[str, str] = {}
    for rule, one in raised.items():
        reasons = [other for other in raised if _explains(raised, other, rule, led_before)]
        if not reasons and rule not in led_before:
            reasons = [
                other
                for other, candidate in pending.items()
                if candidate.firing is not None
                and rule in candidate.firing.explains
                and candidate.strength >= WEAK * one.strength
            ]
        if reasons:
            out[rule] = max(reasons, key=lambda other: _strength(other, raised, pending))
    for rule in _circular(out):
        del out[rule]
    return out


def _circular(explained: Mapping[str, str]) -> list[str]:
    """One rule of every circle of explanations, so that each has an end."""
    first = []
    for rule in explained:
        seen = [rule]
        while (reason := explained.get(seen[-1])) is not None and reason not in seen:
            seen.append(reason)
        if reason == rule and min(seen) == rule:
            first.append(rule)
    return first


def _strength(rule: str, *sets: Mapping[str, Held]) -> float:
    return next((one[rule].strength for one in sets if rule in one), 0.0)


def _explains(
    raised: Mapping[str, Held], reason: str, rule: str, led_before: frozenset[str]
) -> bool:
    mine, theirs = raised[reason], raised[rule]
    if reason == rule or mine.firing is None or theirs.firing is None:
        return False
    if rule not in mine.firing.explains or mine.strength < WEAK * theirs.strength:
        return False
    if reason in theirs.firing.explains:
        # Each explains the other: the one with the better evidence is right.
        ours = (_weight(reason, mine, led_before), reason)
        return ours > (_weight(rule, theirs, led_before), rule)
    return True


def _last(rule: str, explained: Mapping[str, str]) -> str:
    """The cause behind a chain of explanations."""
    seen = set()
    while rule in explained and rule not in seen:
        seen.add(rule)
        rule = explained[rule]
    return rule


def _compete(window: Window, ordered: list[tuple[str, Held]]) -> list[Cause]:
    shares = Shares(window)
    everything = tuple([gpu.uuid for gpu in window.gpus])
    causes: list[Cause] = []
    for rule, held in ordered:
        firing = held.firing
        if firing is None:
            continue
        claim = firing.lost_share
        if claim is None:
            causes.append(Cause(rule, held, firing, None))
            continue
        wanted = firing.gpus or everything
        given = shares.take(rule, wanted, claim, busy=firing.lost_while_busy)
        if firing.pauses:
            # They lie in other minutes, too: what the others leave of this one says nothing.
            given = claim
        leader = _leader(causes, firing)
        if leader is not None and given < LEFT_OVER * claim:
            leader.rivals.append((rule, firing))
        else:
            causes.append(Cause(rule, held, firing, given))
    return causes


def _leader(causes: list[Cause], firing: Firing) -> Cause | None:
    """The cause that took this one's time."""
    wanted = set(firing.gpus)
    for cause in causes:
        same = not wanted or not cause.firing.gpus or wanted.intersection(cause.firing.gpus)
        if cause.lost_share is not None and same:
            return cause
    return None
