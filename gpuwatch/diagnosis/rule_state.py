"""Raising and withdrawing of findings: slowly enough not to flap.

A rule's answers fill and drain a level, in seconds. What fires for long enough is raised; from
then on it takes a longer absence to withdraw it. What is dangerous is raised at once.
"""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from gpuwatch.diagnosis import gain as gains
from gpuwatch.diagnosis.finding import Advice, Gain
from gpuwatch.diagnosis.rule import Clear, Firing, Rule, Unknown, Verdict
from gpuwatch.diagnosis.sentence import shape

RAISE_SECONDS = 8.0
"""Windows reach back a minute, so an answer that holds this long is no accident of one sample; with
the time a rule waits for evidence, a starved loader is named within 15 s."""
RAISE_SURE_SECONDS = 5.0
SURE_STRENGTH = 0.8
WEAK_STRENGTH = 0.5
"""Time for evidence that could hardly be clearer; in between, in proportion."""
BEGAN_SECONDS = 1.0
RAISE_EVALUATIONS = 3
"""Where snapshots come slowly, time alone would be one or two looks."""
CLEAR_SECONDS = 20.0
"""Longer than raising takes: a finding that is on the screen is being read."""
CLEAR_ERROR_SECONDS = 60.0
"""An error that is over must still be there when somebody looks up."""
UNKNOWN_DRAINS = 0.5
"""A reading that is missing for a moment is no sign that the fault is gone."""
UNRAISED_DRAINS = 2.0
"""Factor by which what is not raised yet is forgotten faster: noise must not add up."""
SMOOTHING_SECONDS = 10.0
"""The strength that decides between rivals moves this slowly."""


@dataclass(slots=True)
class RuleState:
    """Answers of one rule on one window, over time."""

    rule: Rule
    level: float = 0.0
    looks: int = 0
    """Evaluations in which it fired since the level was last at zero."""
    raised: bool = False
    firing: Firing | None = None
    """The latest, kept while it is raised."""
    fires_now: bool = False
    since_unix_seconds: float | None = None
    strength: float = 0.0
    """Smoothed."""
    lost_at_first: float | None = None
    """Share lost of the window in which it fired first."""
    severity_before: str | None = None
    """Severity of the firing before; ``None``: there was none."""
    advice: tuple[Advice, ...] = ()
    """Changes to make, with numbers that stay what they are while the facts do."""

    @property
    def is_pending(self) -> bool:
        """Whether it fires, and has not done so for long enough to be raised."""
        return self.fires_now and not self.raised

    @property
    def explains(self) -> Set[str]:
        own = None if self.firing is None else self.firing.explains
        return self.rule.explains if own is None else own

    @property
    def severity(self) -> str:
        """The rule's, or a milder one by what is to be gained."""
        own = (self.firing and self.firing.severity) or self.rule.severity
        gain = None if self.firing is None or self.rule.harms else self.firing.gain
        return gains.severity(own, gain, self.severity_before)

    @property
    def gain(self) -> Gain | None:
        """Gain of the best cure, as it is said of it."""
        if self.firing is None or self.firing.gain is None:
            return None
        best, now = self.firing.gain, tuple(self.firing.advice or ())
        said = [old.gain for new, old in zip(now, self.advice, strict=True) if new.gain == best]
        return said[0] if said else best

    @property
    def loses_busy_time(self) -> bool:
        """The time it costs lies where a kernel was resident."""
        busy = self.firing is not None and self.firing.lost_while_busy
        return busy or self.rule.lost_while_busy

    def update(
        self,
        verdict: Verdict,
        seconds: float,
        unix_seconds: float,
        watched_seconds: float = 0.0,
        judged_late_seconds: float = 0.0,
    ) -> None:
        """``seconds``: since the evaluation before; ``watched_seconds``: of the window;
        ``judged_late_seconds``: for how long it could have been judged, had the end of the job's
        start-up been seen at once."""
        worth = isinstance(verdict, Firing) and (
            self.rule.harms or gains.is_worth_saying(verdict.gain, said=self.raised)
        )
        if isinstance(verdict, Firing) and not worth:
            verdict = Clear()
        fired_before = self.fires_now
        self.fires_now = isinstance(verdict, Firing)
        if isinstance(verdict, Firing):
            # It began somewhere between the two looks, which may be far apart while all is calm.
            held = seconds if fired_before else min(BEGAN_SECONDS, 0.5 * seconds)
            if judged_late_seconds > held and not self.looks:
                # The window it fired in reaches back so far: that is as good as one look more.
                held, self.looks, self.since_unix_seconds = judged_late_seconds, 1, unix_seconds
                self.strength, self.lost_at_first = verdict.strength, verdict.lost_share
            self._fire(verdict, held, unix_seconds, watched_seconds)
        elif isinstance(verdict, Clear) and verdict.at_once:
            self._reset()
        else:
            drain = UNKNOWN_DRAINS if isinstance(verdict, Unknown) else 1.0
            self.level -= (drain if self.raised else UNRAISED_DRAINS * drain) * seconds
            if self.level <= 0.0:
                self._reset()

    def _fire(
        self, firing: Firing, seconds: float, unix_seconds: float, watched_seconds: float
    ) -> None:
        if self.looks == 0:
            self.since_unix_seconds = unix_seconds
            self.strength, self.lost_at_first = firing.strength, firing.lost_share
        share = min(1.0, seconds / SMOOTHING_SECONDS)
        self.strength += share * (firing.strength - self.strength)
        now = tuple(self.rule.cure if firing.advice is None else firing.advice)
        self.advice = steadied(now, self.advice) if self.raised else now
        self.firing = firing
        self.severity_before = self.severity
        self.looks += 1
        at_once = self.severity == "error"
        ceiling = CLEAR_ERROR_SECONDS if at_once else CLEAR_SECONDS
        most = ceiling if self.raised else max(ceiling, firing.hold_seconds)
        self.level = min(max(most, self.level), self.level + seconds)
        needed = max(firing.hold_seconds, _raise_seconds(self.strength))
        held = self.level >= needed and self.looks >= RAISE_EVALUATIONS
        if held and not (at_once or self.raised):
            self._find_begin(firing, unix_seconds, watched_seconds)
        if at_once or (held and not self.raised):
            self.level = ceiling if not self.raised else max(self.level, ceiling)
            self.raised = True

    def _find_begin(self, firing: Firing, now: float, watched_seconds: float) -> None:
        """Find when it began, before it fired first: with its first pause, or as long ago as its
        share of the window took to grow to what it was then. One that does not grow fills the
        window."""
        first, lost = self.lost_at_first, firing.lost_share
        if first is None or lost is None or self.since_unix_seconds is None:
            return
        begins = [pause.at_unix_seconds for pause in firing.pauses]
        passed = now - self.since_unix_seconds
        before = watched_seconds - passed
        if lost > first:
            before = min(before, passed * first / (lost - first))
        # Readings speak of the second before them as well.
        before = max(0.0, before - BEGAN_SECONDS)
        self.since_unix_seconds = min(begins, default=self.since_unix_seconds - before)

    def _reset(self) -> None:
        self.level = 0.0
        self.looks = 0
        self.raised = False
        self.firing = None
        self.advice = ()
        self.severity_before = None
        self.since_unix_seconds = None


def _raise_seconds(strength: float) -> float:
    sure = min(1.0, max(0.0, (strength - WEAK_STRENGTH) / (SURE_STRENGTH - WEAK_STRENGTH)))
    return RAISE_SECONDS - sure * (RAISE_SECONDS - RAISE_SURE_SECONDS)


# --- numbers that stay while the facts do -------------------------------------------------------

STEADY_BY = 0.2
"""Share by which a number that is advised must move to be said anew: on a steady load estimates
wander by one worker of eight, and nobody tries both."""
STEADY_LEAST = 1.0


def steadied(now: Sequence[Advice], before: Sequence[Advice]) -> tuple[Advice, ...]:
    """Return what is advised now; of what was advised ``before`` and has hardly moved, that."""
    return tuple([_kept(new, before) for new in now])


def _kept(new: Advice, before: Sequence[Advice]) -> Advice:
    old = next((one for one in before if _is_about(new, one)), None)
    if old is None:
        return new
    # The reason may name what is read now, as the evidence does; and no gain is held that would be
    # more than what is lost now, which stands beside it, can give back. What limits that may be the
    # number that is advised now.
    if new.gain is None or old.gain is None or old.gain.worth <= new.gain.high:
        return replace(old, why=new.why)
    if new.gain.limited_by != old.gain.limited_by:
        return new
    return replace(old, why=new.why, gain=new.gain)


def _is_about(new: Advice, old: Advice) -> bool:
    """Check whether two pieces of advice are one, with numbers that are about the same."""
    if (new.setting, new.present, shape(new.says)) != (old.setting, old.present, shape(old.says)):
        return False
    wanted, was = _number(new.wanted), _number(old.wanted)
    if wanted is None or was is None:
        alike = (new.action, new.wanted) == (old.action, old.wanted)
    else:
        alike = abs(wanted - was) <= max(STEADY_LEAST, STEADY_BY * was)
    return alike and _is_about_as_much(new.gain, old.gain)


def _is_about_as_much(new: Gain | None, old: Gain | None) -> bool:
    if new is None or old is None:
        return new is old
    known = (new.factor is None) == (old.factor is None)
    return known and abs(new.worth - old.worth) <= STEADY_BY * (old.worth - 1.0)


def _number(text: str | None) -> float | None:
    found = re.match(r"[0-9]+(?:\.[0-9]+)?", text or "")
    return float(found[0]) if found else None


# --- how likely the cause named is the right one ------------------------------------------------

CURVE = ((0.0, 0.50), (0.4, 0.75), (0.6, 0.90), (0.8, 0.96), (1.0, 0.99))
"""(strength, confidence), straight lines between.

It and the rules' ``trust`` come from ``python -m tests.evaluation.calibrate``: isotonic regression
of being right on what was said, and a factor for rules that were right less often than others of
the same strength, on two generators of labelled jobs of which one is still kept. On its held-out
cases, 97% of what was said at 0.7 to 0.9 was right, 96% at 0.9 to 0.95 and 99% above. The curve
promises less than that, since a real machine has more ways to surprise than a generator."""
MISSING_COST = 0.05
"""Confidence lost for each reading that would have made it surer."""
HIGHEST = 0.99
"""Highest confidence: nothing seen from outside is certain."""
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
