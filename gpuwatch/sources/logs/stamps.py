"""Reads the time stamps of logs as unix seconds.

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
_TO_MINUTE = len("2025/01/31 12:34:")
_SECONDS = re.compile(r"[0-5]\d\.\d{3}", re.ASCII)
_ALONE_LENGTH = 80
_LABEL = re.compile(
    r"(?:(?:current|local|log|logged|poll|query|sample|sampled|server|system|unix|utc) )?"
    r"(?:time ?stamp|date(?: ?(?:and |& ?)?time)?|time|epoch|now|ts|at)\b[\s:=]*",
    re.ASCII | re.IGNORECASE,
)
_UNIX = re.compile(r"[1-4]\d{9}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?", re.ASCII)
_COMPACT = re.compile(
    r"(\d{4})[-/.]?(\d{2})[-/.]?(\d{2})[ T_-]+(\d{2})[:h-]?(\d{2})"
    r"(?:[:m-]?(\d{2}))?([.,]\d{1,9})?s? ?(Z|[+-]\d{2}:?\d{2})?(?: ?[A-Z]{3,5})?",
    re.ASCII,
)
"""``2025-02-26T13:50:00+01:00``, ``20250226_135000``, ``2025-02-26 13:50``."""
_CLOCK_WITHIN = re.compile(
    r"(?<![\d:])(\d{1,2})[:时時](\d\d)[:分](\d\d(?:[.,]\d{1,9})?)秒?"
    r"( ?[AaPp]\.?[Mm]\b\.?)?(?![\d:])"
)
_PARTS_OF_DATE = re.compile(r"[^\W\d_]{1,12}|\d{1,4}")
_BETWEEN_PARTS = " \t.,/-+:()'’年月日년월일"
_YEAR = re.compile(r"(?:19|20)\d\d", re.ASCII)
_DAY_OF_YEAR = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\.?,?", re.ASCII)
_MONTH = re.compile(r"Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec")
_WORDS_MOST = 4
"""The day of the week, the month, a word between them and the zone."""
_SPACED = str.maketrans(dict.fromkeys("年月日년월일", " "))
_AROUND = " \t=-#*[]>:"
"""Characters that people put around the time of a block of a log."""


class StampReader:
    """Reads the stamps of one log, one after the other."""

    def __init__(self) -> None:
        self._day = 0.0
        self._last_clock: float | None = None
        self._dated = False
        self._minute, self._minute_unix = "", 0.0
        """The last that was read (``2025/01/31 12:34:``), for the others in it."""
        self.whole_seconds = True
        """No stamp so far said more."""

    def stamp(self, text: str) -> float | None:
        """Parse ``2025/01/31 12:34:56.789``, ISO 8601, unix time in any unit, the output of
        ``date``, or seconds since a start; ``None`` for anything else.

        In a log whose dates are written otherwise (``31.01.2025 12:34:56``: which number is the
        day cannot be known) the time of day counts, from 1970.
        """
        if text[:_TO_MINUTE] == self._minute and _SECONDS.fullmatch(text, _TO_MINUTE):
            return self._minute_unix + float(text[_TO_MINUTE:])
        if self.whole_seconds and ("." in text[10:] or "," in text[10:]):
            self.whole_seconds = False
        return self._stamp(text)

    def _stamp(self, text: str) -> float | None:
        if _EPOCH.fullmatch(text) is not None:
            # Among dates, a number is the rest of a damaged one.
            return None if self._dated else _counted(float(text))
        iso = text.replace("/", "-")
        if _DATED.fullmatch(iso) is not None:
            self._dated = True
            try:
                unix = datetime.fromisoformat(iso).timestamp()
            except (ValueError, OverflowError, OSError):
                return None
            if not is_moment(unix):
                return None
            if _SECONDS.fullmatch(text, _TO_MINUTE):
                self._minute = text[:_TO_MINUTE]
                self._minute_unix = unix - float(text[_TO_MINUTE:])
            return unix
        found = None if self._dated else _LOCAL.fullmatch(text)
        if found is not None:
            return self.clock(found[1])
        return _named(text)

    def alone(self, line: str) -> float | None:
        """Return the time of the rows after ``line``, if it says a time and nothing else: output of
        ``date`` in any format and language, an epoch, a clock time; with or without a label.

        Of a date in another language than English the time of day counts, from 1970.
        """
        if not 8 <= len(line) <= _ALONE_LENGTH or not any(map(str.isdigit, line)):
            return None
        text = _LABEL.sub("", line.strip(_AROUND), count=1).strip(_AROUND)
        if _UNIX.fullmatch(text) is not None:
            return self.stamp(text)
        found = _COMPACT.fullmatch(text)
        if found is not None:
            year, month, day, hour, minute, second, fraction, zone = found.groups(default="")
            clock = f"{hour}:{minute}:{second or '00'}{fraction.replace(',', '.')}{zone}"
            return self.stamp(f"{year}-{month}-{day} {clock}")
        at = _named(text)
        return self._clock_of_date(text) if at is None else at

    def _clock_of_date(self, text: str) -> float | None:
        found = _CLOCK_WITHIN.search(text)
        if found is None:
            return None
        rest = (text[: found.start()] + " " + text[found.end() :]).strip()
        parts = _PARTS_OF_DATE.findall(rest.translate(_SPACED))
        words = [part for part in parts if not part.isdigit()]
        if _PARTS_OF_DATE.sub("", rest).strip(_BETWEEN_PARTS) or len(words) > _WORDS_MOST:
            return None
        if rest and not words and _DAY_OF_YEAR.fullmatch(rest) is None:
            return None
        if words and not any(map(_YEAR.fullmatch, parts)) and _MONTH.search(rest) is None:
            return None
        hour, minute, second, half = found.groups(default="")
        return self.clock(f"{hour}:{minute}:{second}{half}")

    def clock(self, text: str) -> float | None:
        """Parse the time of day alone; a day is added each time it passes midnight."""
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


def is_stamp(line: str) -> bool:
    """Return True for a line that says a time and nothing else (``StampReader.alone``)."""
    return StampReader().alone(line) is not None


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
