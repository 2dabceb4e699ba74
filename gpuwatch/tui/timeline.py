"""Which stretch of the past the charts show: one for all of them, on the history's own clock."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.model import GpuKey

SPANS = (15.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0)
"""How much time a chart can show, in seconds, whatever its width."""

FIRST_SPAN = 30.0
"""At the start: short enough that an oscillation of seconds is a waveform at 80 columns."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """``end_seconds`` is the moment at the right edge; ``None``: the newest is followed.
    ``cursor_seconds`` is a moment whose exact values are shown; ``None``: no cursor."""

    span_seconds: float = FIRST_SPAN
    end_seconds: float | None = None
    cursor_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingMark:
    """A finding on the time axis; ``end_seconds`` is ``None`` while it holds."""

    rule: str
    severity: str
    summary: str
    gpus: tuple[GpuKey, ...] = ()
    begin_seconds: float
    end_seconds: float | None = None
