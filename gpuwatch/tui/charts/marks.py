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
        self._last: dict[FindingKey, FindingMark] = {}
        """The last of each finding, also where it has ended."""
        self._before: list[FindingMark] = []

    def push(self, findings: Sequence[Finding], now: float, wall_offset: float) -> None:
        """What holds at ``now``; ``wall_offset`` is unix time less the clock of ``now``."""
        present = {key_of(one): one for one in findings}
        changed = {
            key: replace(mark, end_seconds=now)
            for key, mark in self._last.items()
            if mark.end_seconds is None and key not in present
        }
        for key, one in present.items():
            mark = self._last.get(key)
            if mark is not None and mark.end_seconds is None:
                continue
            if mark is not None and now - (mark.end_seconds or 0.0) < _SAME_SECONDS:
                changed[key] = replace(mark, end_seconds=None)
                continue
            self._before += [] if mark is None else [mark]
            since = one.since_unix_seconds
            begin = now if since is None else min(now, since - wall_offset)
            changed[key] = FindingMark(
                rule=one.rule,
                severity=one.severity,
                summary=one.summary,
                gpus=one.gpus,
                begin_seconds=begin,
            )
        if changed:
            self._last |= changed
            self._before = [one for one in self._before if _is_kept(one, now)][-_KEPT:]
            self._last = {key: one for key, one in self._last.items() if _is_kept(one, now)}
            self._show()

    def add(self, marks: Sequence[FindingMark]) -> None:
        """Put in what was found before all that has been pushed."""
        self._before = [*marks, *self._before]
        self._show()

    def _show(self) -> None:
        marks = sorted((*self._before, *self._last.values()), key=lambda one: one.begin_seconds)
        self.spans = tuple(marks[-_KEPT:])


def _is_kept(mark: FindingMark, now: float) -> bool:
    return mark.end_seconds is None or mark.end_seconds > now - _KEPT_SECONDS
