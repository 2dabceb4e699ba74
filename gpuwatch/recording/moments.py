"""Moments of a recording as people write them: ``14:30``, ``2026-03-01 14:30``, ``+15m``, ``-2h``,
``50%``. Local times, unless they say a zone."""

import re
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from gpuwatch.core.text import SentenceError, clean
from gpuwatch.core.units import seconds_in

WRITE = "write it as 14:30, 2026-03-01 14:30, +15m, -2h or 50%"
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,3})?))?", re.ASCII)
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,3})?) ?%", re.ASCII)


class MomentError(SentenceError):
    """A text is no moment, or none of this recording."""


class Moment(NamedTuple):
    """One of the five ways to say when."""

    text: str
    kind: Literal["unix", "after", "before", "share", "of day"]
    value: float
    """Seconds (for ``of day`` since midnight, local); for ``share`` 0 to 1."""
    tolerance: float = 0.0
    """Seconds within the second or minute that was written: a recording that begins in it has the
    moment."""

    @property
    def needs_end(self) -> bool:
        return self.kind in ("before", "share")

    def unix(self, start: float, end: float | None = None) -> float:
        """Return the moment in a recording from ``start`` (to ``end``): spans count from the start
        and from the end, a time of day is its first after the start. Raises ``MomentError`` where
        the end is needed and not known."""
        if self.needs_end and end is None:
            raise MomentError(
                f"{self.text} needs the end, which is known only once everything is read: give a "
                "time, or count from the start (+15m)."
            )
        last = start if end is None else end
        if self.kind == "of day":
            return next(at for at in self._days(start, 3) if at > start - self.tolerance)
        return self._counted(start, last, after=start, before=last)

    def near(self, now: float, first: float, last: float) -> float:
        """Return the moment to go to in a recording from ``first`` to ``last`` of which ``now`` is
        shown: spans count from there, and of several times of day the nearest is meant. Raises
        ``MomentError``."""
        if self.kind != "of day":
            return self._counted(first, last, after=now, before=now)
        days = self._days(first, int((last - first) / 86400) + 2)
        inside = [at for at in days if first - self.tolerance < at <= last]
        if not inside:
            shown = [datetime.fromtimestamp(at, tz=UTC).astimezone() for at in (first, last)]
            raise MomentError(
                f"the recording has no {self.text}: it goes from "
                f"{shown[0]:%H:%M:%S} to {shown[1]:%H:%M:%S}"
            )
        return min(inside, key=lambda at: abs(at - now))

    def _counted(self, first: float, last: float, *, after: float, before: float) -> float:
        return {
            "after": after + self.value,
            "before": before - self.value,
            "share": first + self.value * (last - first),
        }.get(self.kind, self.value)

    def _days(self, start: float, count: int) -> list[float]:
        # By the calendar, not by adding days of 24 hours: a clock change may lie between.
        begin = datetime.fromtimestamp(start, tz=UTC).astimezone().replace(tzinfo=None)
        midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
        spans = [timedelta(days=day, seconds=self.value) for day in range(count)]
        return [(midnight + span).timestamp() for span in spans]


def parse_moment(text: str) -> Moment:
    """Parse a moment as a person writes it. Raises ``MomentError``."""
    typed = " ".join(text.replace("T", " ").split())
    span = seconds_in(typed[1:]) if typed[:1] in ("+", "-") else None
    if span is not None:
        return Moment(typed, "after" if typed[0] == "+" else "before", span)
    share = _SHARE.fullmatch(typed)
    if share is not None:
        if float(share[1]) > 100:
            raise MomentError("the recording ends at 100%")
        return Moment(typed, "share", float(share[1]) / 100)
    clock = _CLOCK.fullmatch(typed)
    if clock is None:
        try:
            date = datetime.fromisoformat(re.sub(r" (?=Z$|[+-][\d:]{4,5}$)", "", typed))
            return Moment(typed, "unix", date.timestamp())
        except (ValueError, OverflowError, OSError):
            raise MomentError(f"{clean(text, 60)!r} is not a time: {WRITE}.") from None
    hours, minutes, seconds = int(clock[1]), int(clock[2]), float(clock[3] or 0)
    if hours > 23 or minutes > 59 or seconds >= 60:
        raise MomentError(f"there is no such time of day; {WRITE}.")
    since = hours * 3600 + minutes * 60 + seconds
    return Moment(typed, "of day", since, 1.0 if clock[3] else 60.0)
