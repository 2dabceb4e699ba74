"""Time stamps of logs to unix seconds.

``nvidia-smi`` writes local time without a zone, so it is read in this machine's zone. Where only
the time of day is there (``dmon -o T``), or nothing, seconds are counted from 1970.
"""

from __future__ import annotations

import re
import time
from datetime import datetime

from gpuwatch.core.json_values import is_moment

_DAY_SECONDS = 86400.0

_STAMP = re.compile(
    r"(?P<year>\d{4})[/-](?P<month>\d{1,2})[/-](?P<day>\d{1,2})[ T]"
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2}):(?P<second>\d{2}(?:[.,]\d{1,9})?)"
    r"\s*(?P<zone>Z|[+-]\d{2}:?\d{2})?",
    re.ASCII,
)
_LOCAL = re.compile(
    r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\.?,? +(?P<hour>\d{1,2}):(?P<minute>\d{2}):"
    r"(?P<second>\d{2}(?:[.,]\d{1,9})?)(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?",
    re.ASCII,
)
"""As other programs rewrite it: which number is the day cannot be told, the time of day can."""
_EPOCH = re.compile(r"\d{10}(?:\.\d{1,9})?|\d{13}", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2}):(\d{2}(?:\.\d{1,9})?)", re.ASCII)
_DATE = re.compile(r"(\d{4})[/-]?(\d{2})[/-]?(\d{2})", re.ASCII)


def looks_like_stamp(text: str) -> bool:
    return _STAMP.fullmatch(text) is not None or _LOCAL.fullmatch(text) is not None


def looks_like_epoch(text: str) -> bool:
    """Unix seconds (or milliseconds) between 2001 and 2100."""
    if _EPOCH.fullmatch(text) is None:
        return False
    return 1e9 <= _epoch(text) < 4.2e9


class StampReader:
    """Reads the stamps of one log, one after the other."""

    def __init__(self) -> None:
        self._hour_text = ""
        self._hour_unix = 0.0
        self._day = 0.0
        self._last_clock: float | None = None
        self._dated = False

    def stamp(self, text: str) -> float | None:
        """``2025/01/31 12:34:56.789``, ISO 8601, or unix seconds; ``None`` for anything else.

        In a log whose dates are written otherwise (``31.01.2025 12:34:56``) the time of day
        counts, from 1970.
        """
        # Nearly all stamps share their hour with the one before.
        if len(text) == 23 and text[:13] == self._hour_text and text[13] == ":" == text[16]:
            try:
                minute, second = int(text[14:16]), float(text[17:])
            except ValueError:
                return None
            if 0 <= minute < 60 and 0.0 <= second < 61.0:
                return self._hour_unix + minute * 60 + second
            return None
        found = _STAMP.fullmatch(text)
        if found is None:
            return _epoch(text) if looks_like_epoch(text) else self._local(text)
        self._dated = True
        unix = _unix(found)
        if unix is not None and len(text) == 23 and found["zone"] is None:
            self._hour_text = text[:13]
            second = float(found["second"].replace(",", "."))
            self._hour_unix = unix - int(found["minute"]) * 60 - second
        return unix

    def _local(self, text: str) -> float | None:
        found = None if self._dated else _LOCAL.fullmatch(text)
        if found is None:
            return None
        hour, half = int(found["hour"]), found["half"]
        if half is not None:
            if not 1 <= hour <= 12:
                return None
            hour = hour % 12 + (12 if half in "pP" else 0)
        return self.clock(f"{hour}:{found['minute']}:{found['second'].replace(',', '.')}")

    def date_and_clock(self, date: str, clock: str) -> float | None:
        """``20250131`` and ``12:34:56``, as ``dmon -o DT`` writes them."""
        found = _DATE.fullmatch(date)
        if found is None:
            return None
        return self.stamp(f"{found[1]}/{found[2]}/{found[3]} {clock}")

    def clock(self, text: str) -> float | None:
        """The time of day alone; a day is added each time it passes midnight."""
        found = _CLOCK.fullmatch(text)
        if found is None:
            return None
        hour, minute, second = int(found[1]), int(found[2]), float(found[3])
        if hour > 23 or minute > 59 or second >= 61.0:
            return None
        seconds = hour * 3600 + minute * 60 + second
        if self._last_clock is not None and seconds < self._last_clock - _DAY_SECONDS / 2:
            self._day += _DAY_SECONDS
        self._last_clock = seconds
        return self._day + seconds


def _epoch(text: str) -> float:
    return float(text) / 1000.0 if len(text) == 13 and "." not in text else float(text)


def _unix(found: re.Match[str]) -> float | None:
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    hour, minute = int(found["hour"]), int(found["minute"])
    second = float(found["second"].replace(",", "."))
    if second >= 61.0:
        return None
    try:
        moment = datetime(year, month, day, hour, minute)  # noqa: DTZ001 - local time is meant
        if found["zone"] is not None:
            zone = "+00:00" if found["zone"] == "Z" else found["zone"]
            unix = datetime.fromisoformat(f"{moment.isoformat()}{zone}").timestamp() + second
        else:
            # Local midnight and the like do not exist on some days: mktime takes the next best.
            unix = time.mktime(moment.timetuple()) + second
    except (ValueError, OverflowError, OSError):
        return None
    return unix if is_moment(unix) else None
