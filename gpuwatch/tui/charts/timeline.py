"""Stretch of the past that all charts show, and what was found in it, on the history's own
clock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from gpuwatch.core.model import GpuKey

if TYPE_CHECKING:
    from gpuwatch.diagnosis.ledger import Episode

SPANS = (15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0)
"""Ranges that a chart can show, in seconds, whatever its width."""

FIRST_SPAN = 30.0
"""Range at the start: short enough that an oscillation of seconds is a waveform at 80 columns."""

_LEAST_SHOWN = 0.25
"""Scrolled back as far as it goes, so much of the charts still has something to show."""


def span_words(seconds: float) -> str:
    """Return ``30 seconds``, ``1 hour``."""
    for unit, name in ((3600.0, "hour"), (60.0, "minute")):
        if seconds >= unit:
            count = seconds / unit
            return f"{count:g} {name}{'' if count == 1 else 's'}"
    return f"{seconds:g} seconds"


def span_in(seconds: float, names: Sequence[str]) -> str:
    """Return ``60 s``, ``60 min``, ``3 h``: ``names`` are the units; from two of the next on, in
    that."""
    place = (seconds >= 120) + (seconds >= 7200)
    return f"{seconds / 60**place:.0f}{names[place]}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """Stretch of time that is shown. ``end_seconds`` is the moment at the right edge; ``None``: the
    newest is followed. ``cursor_seconds`` is a moment whose exact values are shown; ``None``: no
    cursor."""

    span_seconds: float = FIRST_SPAN
    end_seconds: float | None = None
    cursor_seconds: float | None = None
    held: bool = False
    """True if only the cursor keeps the charts from following the newest."""

    @property
    def moment(self) -> float | None:
        """Return the moment of the numbers beside the charts; ``None``: now."""
        return self.end_seconds if self.cursor_seconds is None else self.cursor_seconds

    def zoomed(self, step: int, now: float) -> Timeline:
        """Return the next longer range (``step`` 1), or the next shorter one (-1), about the cursor
        where there is one, else with the same end."""
        present = self.span_seconds
        if step > 0:
            span = next((one for one in SPANS if one > present), present)
        else:
            span = next((one for one in reversed(SPANS) if one < present), present)
        end, cursor = self.end_seconds, self.cursor_seconds
        if end is not None and cursor is not None:
            end = min(now, cursor + (end - cursor) * span / present)
        return replace(self, span_seconds=span, end_seconds=end)

    def scrolled(self, share: float, now: float, earliest: float) -> Timeline:
        """Back (below 0) or forth by a share of the range, the cursor with it; at ``now`` the
        newest is followed again. Not past ``earliest``, the first moment there is."""
        end = now if self.end_seconds is None else self.end_seconds
        least = min(now, earliest + _LEAST_SHOWN * self.span_seconds)
        wanted = max(least, end + share * self.span_seconds)
        cursor = self.cursor_seconds
        if cursor is not None:
            cursor = min(now, max(earliest, cursor + wanted - end))
        if wanted >= now:
            if cursor is None:
                return Timeline(self.span_seconds)
            return Timeline(self.span_seconds, now, cursor, held=True)
        return Timeline(self.span_seconds, wanted, cursor)

    def with_cursor(self, at: float, now: float) -> Timeline:
        """Return it with the cursor at the moment ``at``, which is brought into sight; the charts
        stand still."""
        end = now if self.end_seconds is None else self.end_seconds
        span = self.span_seconds
        held = self.held or self.end_seconds is None
        if at > end:
            end, held = min(now, at + span / 4), False
        elif at < end - span:
            end, held = min(now, at + 3 * span / 4), False
        return Timeline(span, end, min(at, now), held)

    def without_cursor(self) -> Timeline:
        return Timeline(self.span_seconds, None if self.held else self.end_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingMark:
    """A finding on the time axis; ``end_seconds`` is ``None`` while it holds."""

    rule: str
    severity: str
    summary: str
    short: tuple[str, ...] = ()
    """The summary in fewer words, as a finding has it."""
    change: str = ""
    """The first change to make."""
    brief: str = ""
    """The first change to make in fewer words, as in ``Advice.brief``."""
    gpus: tuple[GpuKey, ...] = ()
    late: tuple[GpuKey, ...] = ()
    """GPUs of the finding that the other GPUs wait for."""
    in_doubt: bool = False
    """Whether its sentence says only what may be."""
    loses_time: bool = True
    """Whether any time is lost to it so far."""
    begin_seconds: float
    end_seconds: float | None = None
    lost_share: float | None = None
    """Share of its GPUs' time that was lost in it; ``None``: not known, or it still holds."""


_SAME_MOMENT_SECONDS = 1e-3
_begin = attrgetter("begin_seconds")


def mark_beside(marks: Sequence[FindingMark], at: float, step: int) -> FindingMark | None:
    """Return the first mark that begins after ``at`` (``step`` 1), or the last one before it
    (-1)."""
    marks = sorted(marks, key=_begin)
    if step > 0:
        place = bisect_right(marks, at + _SAME_MOMENT_SECONDS, key=_begin)
        return marks[place] if place < len(marks) else None
    place = bisect_left(marks, at - _SAME_MOMENT_SECONDS, key=_begin)
    return marks[place - 1] if place else None


def mark_at(marks: Sequence[FindingMark], begin: float, end: float) -> FindingMark | None:
    """Return the finding that held last in the time from ``begin`` to ``end``."""
    return max(marks_at(marks, begin, end), key=_begin, default=None)


def marks_at(marks: Sequence[FindingMark], begin: float, end: float) -> list[FindingMark]:
    """Return the findings that held in the time from ``begin`` to ``end``."""
    return [
        one
        for one in marks
        if one.begin_seconds <= end and (one.end_seconds is None or one.end_seconds > begin)
    ]


def marks_about(marks: Sequence[FindingMark], gpus: Collection[GpuKey]) -> list[FindingMark]:
    """Return the findings about any of ``gpus``, or about the whole machine."""
    return [one for one in marks if not one.gpus or not set(one.gpus).isdisjoint(gpus)]


def mark_of(episode: Episode, offset: float = 0.0) -> FindingMark:
    """Return an episode as a mark; ``offset`` is what the wall clock is ahead of the charts'."""
    end, lost = episode.end_unix_seconds, episode.cost_gpu_seconds
    gpu_seconds = 0.0 if end is None else (end - episode.begin_unix_seconds) * len(episode.gpus)
    return FindingMark(
        rule=episode.rule,
        severity=episode.severity,
        summary=episode.summary,
        short=episode.short,
        change=episode.advice[0].change if episode.advice else "",
        brief=episode.advice[0].brief if episode.advice else "",
        gpus=episode.gpus,
        late=episode.late,
        in_doubt=episode.in_doubt,
        loses_time=bool(episode.cost_gpu_seconds),
        begin_seconds=episode.begin_unix_seconds - offset,
        end_seconds=None if end is None else end - offset,
        lost_share=min(1.0, lost / gpu_seconds) if lost is not None and gpu_seconds > 0 else None,
    )
