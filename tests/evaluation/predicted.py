"""What the diagnosis of a recording predicts of another setting. (Needs no PyTorch, as the jobs of
``gains`` do: each process that runs tests imports this.)"""

from collections.abc import Iterable
from dataclasses import replace

from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.catalogue import find
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.diagnosis.facts.observer import Observer
from gpuwatch.diagnosis.finding import Advice, Gain
from gpuwatch.diagnosis.gain import with_gains
from gpuwatch.diagnosis.rule import Firing

CLOSE = 0.25
"""Of the measured gain."""


class Seen:
    """What is said first at the end of a recording, with the window that it is said of."""

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        engine, observer = Engine(), Observer()
        for snapshot in snapshots:
            engine.push(snapshot)
            observer.push(snapshot)
            # When its steady work begins is seen as it goes on.
            windows = observer.windows()
        (self._window,) = [one for one in windows if one.job is not None]
        self._findings = findings = engine.diagnosis.findings
        self.rule = find(findings[0].rule) if findings else None
        self.gain = findings[0].gain if findings else None

    def gain_of(self, setting: str, present: str, wanted: str) -> Gain | None:
        """Return the gain of just this change, whatever was advised; ``None``: nothing is found, or
        no gain is known."""
        advising = [
            one for one in self._findings if any(it.setting == setting for it in one.advice)
        ]
        rule = find(advising[0].rule) if advising else self.rule
        verdict = rule.check(self._window) if rule else None
        if rule is None or not isinstance(verdict, Firing):
            return None
        change = Advice("Try it.", setting=setting, present=present, wanted=wanted)
        return with_gains(self._window, rule, replace(verdict, advice=(change,))).gain
