"""Times as a person types them to go to one: 14:30, 14:30:05, +5m, -30s, 50%."""

import re
from datetime import UTC, datetime, timedelta

WRITE = "write 14:30, 14:30:05, 2026-03-01 14:30, +5m, -30s or 50%"
_CLOCK = re.compile(
    r"(?:(\d{4})-(\d{1,2})-(\d{1,2})[ T]+)?(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,3})?))?", re.ASCII
)
_SPAN = re.compile(
    r"([+-])((?:\d{1,7}(?:\.\d{1,3})?(?:d|h|min|m|s))*(?:\d{1,7}(?:\.\d{1,3})?)?)(?<=\w)", re.ASCII
)
_PART = re.compile(r"(\d+(?:\.\d+)?)(d|h|min|m|s|)", re.ASCII)
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)\s*%", re.ASCII)
_SECONDS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "": 1.0}


class TimeError(ValueError):
    """That is no time; the message is a sentence."""


def parse_time(text: str, first: float, now: float, last: float) -> float:
    """The moment that is meant in a recording from ``first`` to ``last``, of which ``now`` is
    shown. A time of day is the one in the recording, and of several the nearest to ``now``.
    Raises ``TimeError``."""
    typed = " ".join(text.split())
    share = _SHARE.fullmatch(typed)
    if share is not None:
        if float(share[1]) > 100:
            raise TimeError("the recording ends at 100%")
        return first + float(share[1]) / 100 * (last - first)
    span = _SPAN.fullmatch(typed.replace(" ", ""))
    if span is not None:
        seconds = sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(span[2]))
        return now + (seconds if span[1] == "+" else -seconds)
    clock = _CLOCK.fullmatch(typed)
    if clock is None:
        raise TimeError(f"not a time: {WRITE}")
    return _of_clock(clock, first, now, last)


def _of_clock(clock: re.Match[str], first: float, now: float, last: float) -> float:
    hours, minutes, seconds = int(clock[4]), int(clock[5]), float(clock[6] or 0)
    if hours > 23 or minutes > 59 or seconds >= 60:
        raise TimeError("there is no such time of day")
    of_day = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if clock[1] is not None:
        try:
            day = datetime(int(clock[1]), int(clock[2]), int(clock[3]))  # noqa: DTZ001 - local
            return (day + of_day).timestamp()
        except (ValueError, OverflowError, OSError):
            raise TimeError("there is no such day") from None
    # By the calendar, not by adding days of 24 hours: a clock change may lie between.
    begin = datetime.fromtimestamp(first, tz=UTC).astimezone().replace(tzinfo=None)
    midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    days = int((last - first) / 86400) + 2
    moments = [(midnight + timedelta(days=day) + of_day).timestamp() for day in range(days)]
    # Written to the second, or the minute: that of the first snapshot is not before it.
    whole = 1.0 if clock[6] else 60.0
    inside = [at for at in moments if first - whole < at <= last]
    if not inside:
        shown = [datetime.fromtimestamp(at, tz=UTC).astimezone() for at in (first, last)]
        raise TimeError(
            f"the recording has no {clock[0]}: it goes from "
            f"{shown[0]:%H:%M:%S} to {shown[1]:%H:%M:%S}"
        )
    return min(inside, key=lambda at: abs(at - now))
