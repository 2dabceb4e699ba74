"""The findings of the time that the history holds, as marks for the time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuwatch.diagnosis.finding import Finding
from gpuwatch.tui.charts.timeline import FindingMark
from gpuwatch.tui.pages.finding_words import FindingKey, key_of

_KEPT = 1000
_KEPT_SECONDS = 12 * 3600.0
_SAME_SECONDS = 15.0
"""Gone for less than this and found again is the same finding."""


class Marks:
    """Fed with what is found at each snapshot; ``spans`` is in the order in which they began."""

    def __init__(self) -> None:
        self.spans: tuple[FindingMark, ...] = ()
        self._open: dict[FindingKey, FindingMark] = {}
        self._closed: dict[FindingKey, FindingMark] = {}
        self._told: Sequence[Finding] = ()

    def push(self, findings: Sequence[Finding], now: float, wall_offset: float) -> None:
        """What holds at ``now``; ``wall_offset`` is unix time less the clock of ``now``."""
        present = {key_of(one): one for one in findings}
        changed = False
        for key in [key for key in self._open if key not in present]:
            ended = replace(self._open.pop(key), end_seconds=now)
            self._closed.pop(key, None)
            self._closed[key] = ended
            self._put(ended)
            changed = True
        for key, one in present.items():
            if key in self._open:
                continue
            before = self._closed.get(key)
            if before is not None and now - (before.end_seconds or 0.0) < _SAME_SECONDS:
                mark = replace(before, end_seconds=None)
            else:
                since = one.since_unix_seconds
                begin = now if since is None else min(now, since - wall_offset)
                mark = FindingMark(
                    rule=one.rule,
                    severity=one.severity,
                    summary=one.summary,
                    gpus=one.gpus,
                    begin_seconds=begin,
                )
            self._open[key] = mark
            self._put(mark)
            changed = True
        if changed:
            self._forget(now)

    def add(self, marks: Sequence[FindingMark]) -> None:
        """Put in what was found before all that has been pushed."""
        self.spans = tuple(sorted((*marks, *self.spans), key=lambda one: one.begin_seconds))

    def _put(self, mark: FindingMark) -> None:
        rest = [
            one
            for one in self.spans
            if (one.rule, one.gpus, one.begin_seconds) != (mark.rule, mark.gpus, mark.begin_seconds)
        ]
        self.spans = tuple(sorted((*rest, mark), key=lambda one: one.begin_seconds))

    def _forget(self, now: float) -> None:
        kept = [
            one
            for one in self.spans
            if one.end_seconds is None or one.end_seconds > now - _KEPT_SECONDS
        ]
        self.spans = tuple(kept[-_KEPT:])
        self._closed = {
            key: one
            for key, one in self._closed.items()
            if now - (one.end_seconds or now) < _SAME_SECONDS
        }
