"""Time stamps of logs to unix seconds.

``nvidia-smi`` writes local time without a zone, so it is read in this machine's zone. Where only
the time of day is there (``dmon -o T``), seconds are counted from 1970.
"""

from __future__ import annotations

import re
from datetime import datetime

from gpuwatch.core.bounds import is_moment

_DAY_SECONDS = 86400.0
_EPOCH = re.compile(r"\d{10}(?:\.\d{1,9})?|\d{13}", re.ASCII)
_DATED = re.compile(r"\d{4}-?\d{2}-?\d{2}[ T]\d{1,2}:\d{2}:.*", re.ASCII)
_LOCAL = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\.?,? +(.*)", re.ASCII)
_CLOCK = re.compile(
    r"(\d{1,2}):(\d{2}):(\d{2}(?:[.,]\d{1,9})?)(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?", re.ASCII
)


class StampReader:
    """Reads the stamps of one log, one after the other."""

    def __init__(self) -> None:
        self._day = 0.0
        self._last_clock: float | None = None
        self._dated = False

    def stamp(self, text: str) -> float | None:
        """``2025/01/31 12:34:56.789``, ISO 8601, or unix seconds; ``None`` for anything else.

        In a log whose dates are written otherwise (``31.01.2025 12:34:56``: which number is the
        day cannot be known) the time of day counts, from 1970.
        """
        if _EPOCH.fullmatch(text) is not None:
            unix = float(text) / 1000.0 if len(text) == 13 and "." not in text else float(text)
            return unix if 1e9 <= unix < 4.2e9 else None
        iso = text.replace("/", "-")
        if _DATED.fullmatch(iso) is not None:
            self._dated = True
            try:
                unix = datetime.fromisoformat(iso).timestamp()
            except (ValueError, OverflowError, OSError):
                return None
            return unix if is_moment(unix) else None
        found = None if self._dated else _LOCAL.fullmatch(text)
        return None if found is None else self.clock(found[1])

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
