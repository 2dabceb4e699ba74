"""Time stamps of logs to unix seconds.

``nvidia-smi`` writes local time without a zone, so it is read in this machine's zone. Where only
the time of day is there (``dmon -o T``), or what has passed since a start, seconds are counted from
1970.
"""

import re
from datetime import datetime

from gpuwatch.core.bounds import is_moment

_DAY_SECONDS = 86400.0
_EPOCH = re.compile(r"\d+(?:\.\d+)?(?:[eE]\+?\d\d?)?", re.ASCII)
_EPOCH_UNITS = ((1.0, 1e9), (1e-3, 1e12), (1e-6, 1e15), (1e-9, 1e18))
"""Seconds, milliseconds, micro, nano: from 2001 to 2103 they do not overlap."""
_PASSED_MOST = 1e8
"""Seconds since a start: three years."""
_DATED = re.compile(r"\d{4}-?\d{2}-?\d{2}[ T]\d{1,2}:\d{2}:.*", re.ASCII)
_LOCAL = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\.?,? +(.*)", re.ASCII)
_NAMED = re.compile(
    r"(?:[A-Z][a-z]{2},? )?(?:(\d{1,2}) )?([A-Z][a-z]{2}) (?:(\d{1,2}) )?(?:(\d{4}) )?"
    r"(\d{1,2}:\d\d:\d\d)(\.\d+)?( [AP]M)?(?: [A-Z][A-Za-z]{0,4}| [+-]\d{2,4})?(?: (\d{4}))?",
    re.ASCII,
)
"""``Sun May  4 04:27:32 2025``, what ``date`` prints (with a zone, which is taken for the local
one), and ``Fri 21 Nov 2025 11:41:31 PM EST``."""
_CLOCK = re.compile(
    r"(\d{1,2}):(\d{2}):(\d{2}(?:[.,]\d{1,9})?)(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?", re.ASCII
)
_ALONE_LENGTH = 80
_AROUND = " \t=-#*[]>:"
"""What people put around the time of a block of a log."""


class StampReader:
    """Reads the stamps of one log, one after the other."""

    def __init__(self) -> None:
        self._day = 0.0
        self._last_clock: float | None = None
        self._dated = False
        self.whole_seconds = True
        """No stamp so far said more."""

    def stamp(self, text: str) -> float | None:
        """``2025/01/31 12:34:56.789``, ISO 8601, unix time in any unit, what ``date`` prints, or
        seconds since a start; ``None`` for anything else.

        In a log whose dates are written otherwise (``31.01.2025 12:34:56``: which number is the
        day cannot be known) the time of day counts, from 1970.
        """
        if self.whole_seconds and ("." in text[10:] or "," in text[10:]):
            self.whole_seconds = False
        if _EPOCH.fullmatch(text) is not None:
            # Among dates a number is what damage has left of one.
            return None if self._dated else _counted(float(text))
        iso = text.replace("/", "-")
        if _DATED.fullmatch(iso) is not None:
            self._dated = True
            try:
                unix = datetime.fromisoformat(iso).timestamp()
            except (ValueError, OverflowError, OSError):
                return None
            return unix if is_moment(unix) else None
        found = None if self._dated else _LOCAL.fullmatch(text)
        if found is not None:
            return self.clock(found[1])
        return _named(text)

    def alone(self, line: str) -> float | None:
        """Of a line that says a time and nothing else: that of the rows after it."""
        if len(line) > _ALONE_LENGTH or ":" not in line:
            return None
        text = line.strip(_AROUND)
        return self.stamp(text) if _DATED.match(text.replace("/", "-")) else _named(text)

    def clock(self, text: str) -> float | None:
        """The time of day alone; a day is added each time it passes midnight."""
        found = _CLOCK.fullmatch(text)
        if found is None:
            return None
        hour, minute, second = int(found[1]), int(found[2]), float(found[3].replace(",", "."))
        half = found["half"]
        if half is not None:
            if not 1 <= hour <= 12:
                return None
            hour = hour % 12 + (12 if half in "pP" else 0)
        if hour > 23 or minute > 59 or second >= 61.0:
            return None
        seconds = hour * 3600 + minute * 60 + second
        if self._last_clock is not None and seconds < self._last_clock - _DAY_SECONDS / 2:
            self._day += _DAY_SECONDS
        self._last_clock = seconds
        return self._day + seconds


def _counted(value: float) -> float | None:
    if value <= _PASSED_MOST:
        return value
    for factor, least in _EPOCH_UNITS:
        if least <= value < 4.2 * least:
            return value * factor
    return None


def _named(text: str) -> float | None:
    found = _NAMED.fullmatch(" ".join(text.split()))
    if found is None:
        return None
    early, month, late, before, clock, fraction, half, after = found.groups(default="")
    written = f"{early or late} {month} {before or after} {clock}{half}"
    form = "%d %b %Y %I:%M:%S %p" if half else "%d %b %Y %H:%M:%S"
    try:
        return datetime.strptime(written, form).astimezone().timestamp() + float(fraction or 0.0)
    except (ValueError, OverflowError, OSError):
        return None
