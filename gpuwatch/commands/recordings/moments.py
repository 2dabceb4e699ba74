"""Moments as a person writes them: ``14:30``, ``2026-03-01 14:30``, ``+15m``, ``-2h``."""

import re
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from gpuwatch.core.text import SentenceError

WRITE = "write it as 14:30, 2026-03-01 14:30, +15m (from the start) or -2h (from the end)"
_SPAN = re.compile(r"([+-])\s*((?:\d{1,6}(?:\.\d{1,3})?\s*(?:d|h|min|m|s)\s*){1,4})", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,3})?))?", re.ASCII)
_SECONDS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0}
FORMS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d")
_ZONED = ("%Y-%m-%d %H:%M:%S%z", "%Y-%m-%d %H:%M%z")


class MomentError(SentenceError):
    """That is no moment."""


class Moment(NamedTuple):
    """One of the four ways to say when."""

    text: str
    kind: Literal["unix", "after start", "before end", "of day"]
    """``of day``, local: its first after the start of the recording (or at it)."""
    seconds: float

    def unix(self, start: float, end: float | None = None) -> float:
        """In a recording from ``start`` (to ``end``). Raises ``MomentError`` where the end is
        needed and not known."""
        if self.kind == "unix":
            return self.seconds
        if self.kind == "after start":
            return start + self.seconds
        if self.kind == "of day":
            return _next_time_of_day(start, self.seconds)
        if end is None:
            raise MomentError(
                f"{self.text} counts from the end, which is known only once everything is read: "
                "give a time, or count from the start (+15m)."
            )
        return end - self.seconds


def parse_moment(text: str) -> Moment:
    """Raises ``MomentError``."""
    stripped = " ".join(text.replace("T", " ").split())
    span = _SPAN.fullmatch(stripped)
    if span is not None:
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(span[2]))
        return Moment(text, "after start" if span[1] == "+" else "before end", seconds)
    clock = _CLOCK.fullmatch(stripped)
    if clock is None:
        return Moment(text, "unix", _date(stripped))
    hours, minutes, seconds = int(clock[1]), int(clock[2]), float(clock[3] or 0)
    if hours > 23 or minutes > 59 or seconds >= 60:
        raise MomentError(f"there is no such time of day; {WRITE}.")
    return Moment(text, "of day", hours * 3600 + minutes * 60 + seconds)


def _date(text: str) -> float:
    zoned = re.sub(r"\s*Z$", "+0000", text)
    zoned = re.sub(r"\s+([+-]\d\d:?\d\d)$", r"\1", zoned)
    for form in (*FORMS, *_ZONED):
        try:
            found = datetime.strptime(zoned, form)  # noqa: DTZ007 - local unless it says a zone
        except ValueError:
            continue
        try:
            return found.timestamp()
        except (OverflowError, OSError, ValueError):
            break
    raise MomentError(f"not a time; {WRITE}.")


def _next_time_of_day(start: float, seconds: float) -> float:
    # By the calendar, not by adding days of 24 hours: a clock change may lie between.
    first = datetime.fromtimestamp(start, tz=UTC).astimezone().replace(tzinfo=None)
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    for days in (0, 1):
        moment = (midnight + timedelta(days=days, seconds=seconds)).timestamp()
        # A recording that began at 14:30:00.2 has "14:30".
        if moment >= start - 1.0:
            return moment
    return moment
