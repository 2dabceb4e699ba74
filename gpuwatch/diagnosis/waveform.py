"""The shape of a utilisation signal: duty cycle, busy and idle runs, their rhythm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Stretches of one kind (busy or idle) that began and ended inside what was seen."""

    count: int
    mean_seconds: float | None = None
    longest_seconds: float | None = None
    variation: float | None = None
    """Coefficient of variation of their lengths; near 0 is a rhythm. ``None`` below three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waveform:
    """Facts of one GPU's busy signal over a window."""

    seconds: float
    """Time covered by samples; gaps are not in it."""
    sample_seconds: float
    """Median distance of the samples: nothing faster than twice this can be seen."""
    mean_percent: float
    low_percent: float
    high_percent: float
    """5th and 95th percentile of the samples."""
    duty: float
    """0 to 1: share of the time in busy runs (Schmitt trigger)."""
    busy: Runs
    idle: Runs
    period_seconds: float | None = None
    """From one busy run to the next where at least three cycles show a rhythm."""
    faster_than_seen: bool = False
    """Samples at neither end most of the time: it may swing faster than they can show."""
    middling_share: float = 0.0
    """Share of the samples between the two thresholds of the trigger."""
