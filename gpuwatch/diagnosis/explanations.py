"""Sorting of the faults that hold in a window: causes, symptoms and rivals.

A cause says which rules its symptoms fire. Causes that claim the same idle time are rivals: the
one with the better evidence leads, and one for which nothing is left is no cause here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.rule import Firing
from gpuwatch.diagnosis.rule_state import RuleState

WEAK = 0.6
"""Share of the strength of what it explains that an explanation must have."""
UNEXPLAINED = 0.3
"""Share of what a rival claims that must be left: with less, its time is explained by others."""
INCUMBENT = 0.1
"""Added to the strength of what led before, so that two near equals do not take turns."""


@dataclass(slots=True)
class RankedFinding:
    """A cause found in a window, with what it explains."""

    state: RuleState
    firing: Firing
    lost_share: float | None
    """Share of the time that is left of the firing's claim."""
    symptoms: list[RuleState] = field(default_factory=list)
    rivals: list[RuleState] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.state.rule.name


def arrange(
    window: Window, states: Mapping[str, RuleState], led_before: frozenset[str]
) -> list[RankedFinding]:
    """Return the causes among what is raised, the leading one first; ``led_before``: names of the
    causes as they were shown before."""
    raised = {name: one for name, one in states.items() if one.raised}
    if not raised:
        return []
    reasons = _Reasons(states, led_before)
    explained = {name: why for name in raised if (why := reasons.of(name)) is not None}
    _break_circles(explained)
    left = sorted(raised.keys() - explained.keys(), key=reasons.place)
    causes = _compete(window, [raised[name] for name in left])
    by_name = {cause.name: cause for cause in causes}
    for name, reason in explained.items():
        # The cause behind a chain of explanations.
        last = reason
        while last in explained:
            last = explained[last]
        if last in by_name:
            by_name[last].symptoms.append(raised[name])
    return causes


class _Reasons(NamedTuple):
    """Explanations among the rules that fire in a window: which cause accounts for which."""

    states: Mapping[str, RuleState]
    led_before: frozenset[str]

    def of(self, name: str) -> str | None:
        """Return the strongest reason for a raised rule to fire; ``None``: it stands for itself."""
        found = [one for one, state in self.states.items() if state.raised]
        found = [one for one in found if self._explains(one, name)]
        if not found and name not in self.led_before:
            # What is about to be raised explains, too, unless the symptom is on the screen
            # already: that changes only when the cause is sure.
            pending = [one for one, state in self.states.items() if state.is_pending]
            found = [one for one in pending if self._explains(one, name)]
        return max(found, key=lambda one: self.states[one].strength, default=None)

    def place(self, name: str) -> tuple[float, str]:
        """Return a key that sorts the best evidence first; by name where that is equal."""
        return -self._weight(name), name

    def _weight(self, name: str) -> float:
        return self.states[name].strength + (INCUMBENT if name in self.led_before else 0.0)

    def _explains(self, reason: str, name: str) -> bool:
        one, other = self.states[reason], self.states[name]
        if name not in one.explains or one.strength < WEAK * other.strength or reason == name:
            return False
        # Where each explains the other, the one with the better evidence is right.
        mutual = reason in other.explains and other.raised and one.raised
        heavier = (self._weight(reason), reason) > (self._weight(name), name)
        return heavier or not mutual


def _break_circles(explained: dict[str, str]) -> None:
    """Drop one rule of every circle of explanations, so that each has an end."""
    first = []
    for name in explained:
        seen = [name]
        while (reason := explained.get(seen[-1])) is not None and reason not in seen:
            seen.append(reason)
        if reason == name and min(seen) == name:
            first.append(name)
    for name in first:
        del explained[name]


def _compete(window: Window, ordered: list[RuleState]) -> list[RankedFinding]:
    idle = {gpu.uuid: gpu.idle_share for gpu in window.gpus}
    # The time a GPU waits in a collective for one that idles is shown as that one's.
    busy = dict.fromkeys(idle, 1.0)
    causes: list[RankedFinding] = []
    for state in ordered:
        firing = state.firing
        if firing is None:
            continue
        claim = firing.lost_share
        if claim is None:
            causes.append(RankedFinding(state, firing, None))
            continue
        given = _take(busy if state.loses_busy_time else idle, firing.gpus or tuple(idle), claim)
        if firing.pauses:
            # They lie in other minutes, too: what the others leave of this one says nothing.
            given = claim
        leader = _leader(causes, firing)
        if leader is not None and given < UNEXPLAINED * claim:
            leader.rivals.append(state)
        else:
            causes.append(RankedFinding(state, firing, given))
    return causes


def _take(left: dict[GpuKey, float], gpus: tuple[GpuKey, ...], claim: float) -> float:
    """Take what is left of ``claim`` (0 to 1 of the time), a mean over the GPUs."""
    parts = [(key, min(claim, left[key])) for key in gpus if key in left]
    for key, part in parts:
        left[key] -= part
    return sum(part for _, part in parts) / len(parts) if parts else claim


def _leader(causes: list[RankedFinding], firing: Firing) -> RankedFinding | None:
    """Return the cause that took this one's time."""
    wanted = set(firing.gpus)
    for cause in causes:
        same = not wanted or not cause.firing.gpus or wanted.intersection(cause.firing.gpus)
        if cause.lost_share is not None and same:
            return cause
    return None
