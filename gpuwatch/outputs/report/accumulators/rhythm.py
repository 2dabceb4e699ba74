"""Oscillation of a GPU between idle and busy: for how long and how fast, minute by minute.

The shape of a signal is seen in a window of it (``diagnosis.signals.waveform``); a long recording
is many windows, of which only sums are kept.
"""

from __future__ import annotations

import math
from copy import copy

from gpuwatch.diagnosis.signals.waveform import analyse

WINDOW_SECONDS = 60.0
WINDOW_SAMPLES = 12
"""Seldom samples need a longer window: this many at least."""
SAMPLES_MAX = 2048
SWINGS = 3
"""So many whole busy and idle stretches in a window are an oscillation, also without a rhythm."""
STEPS_A_DOUBLING = 12
"""Periods are counted in classes 6% wide, which is finer than a period of steps varies."""


class Rhythm:
    """Fed with (seconds on the axis, percent), in the order of time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.busy_seconds = 0.0
        self.oscillating_seconds = 0.0
        self.cycles = 0.0
        self._periods: dict[int, tuple[float, float]] = {}
        """Class: (seconds, seconds times period)."""
        self._samples: list[tuple[float, float]] = []

    def add(self, at: float, percent: float, longest: float) -> None:
        """``longest``: from there on the time since the sample before is a gap."""
        samples = self._samples
        if samples and (
            at - samples[-1][0] > longest
            or (at - samples[0][0] >= WINDOW_SECONDS and len(samples) >= WINDOW_SAMPLES)
            or len(samples) >= SAMPLES_MAX
        ):
            self.close()
        self._samples.append((at, percent))

    def add_unbroken(self, added: list[tuple[float, float]], longest: float) -> None:
        """Samples without a gap between them."""
        samples = self._samples
        if (
            samples
            and added[0][0] - samples[-1][0] <= longest
            and added[-1][0] - samples[0][0] < WINDOW_SECONDS
            and len(samples) + len(added) <= SAMPLES_MAX
        ):
            samples += added
            return
        for at, percent in added:
            self.add(at, percent, longest)

    def closed(self) -> Rhythm:
        """A copy in which what has come since the last window is one too."""
        made = copy(self)
        made._periods = dict(self._periods)
        made.close()
        return made

    def close(self) -> None:
        """Take what has come since the last window as one."""
        samples, self._samples = self._samples, []
        wave = analyse(samples)
        if wave is None:
            return
        self.seconds += wave.seconds
        self.busy_seconds += wave.seconds * wave.duty
        swings = min(wave.busy.count, wave.idle.count)
        if wave.period_seconds is not None or swings >= SWINGS:
            self.oscillating_seconds += wave.seconds
        if wave.period_seconds is not None:
            self.cycles += wave.seconds / wave.period_seconds
            place = round(math.log2(wave.period_seconds) * STEPS_A_DOUBLING)
            held, weighed = self._periods.get(place, (0.0, 0.0))
            self._periods[place] = (
                held + wave.seconds,
                weighed + wave.seconds * wave.period_seconds,
            )

    @property
    def duty(self) -> float | None:
        return self.busy_seconds / self.seconds if self.seconds > 0 else None

    @property
    def period_seconds(self) -> float | None:
        """That of the middle of the time in which there was one."""
        half = sum(held for held, _ in self._periods.values()) / 2
        passed = 0.0
        for _, (held, weighed) in sorted(self._periods.items()):
            passed += held
            if passed >= half:
                return weighed / held
        return None
