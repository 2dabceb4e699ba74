"""The clock of a replay: which recorded moment is due now."""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch.tui.replay.state import ReplayState

_STOPPED_SECONDS = 0.75
"""Between two frames: then the program was stopped, and the recording with it."""
_MEASURED_SECONDS = 2.0


class ReplayClock:
    """Real time at ``state.speed``, from a real moment and the recorded one that it shows."""

    def __init__(self, state: ReplayState, monotonic: Callable[[], float]) -> None:
        self.now = monotonic
        self.ticked_at = 0.0
        self._state = state
        self._anchor = self._measured = (0.0, state.now)

    def restart(self) -> None:
        """Go on from what is shown, now."""
        self.ticked_at = self.now()
        self._anchor = self._measured = (self.ticked_at, self._state.now)

    def tick(self) -> float:
        """Begin a frame; when it is."""
        now = self.now()
        if now - self.ticked_at > _STOPPED_SECONDS:
            self._anchor = (self._anchor[0] + now - self.ticked_at, self._anchor[1])
        self.ticked_at = now
        return now

    def due(self, now: float) -> float:
        """The recorded moment that is due."""
        begun, at = self._anchor
        return float("inf") if self._state.following else at + (now - begun) * self._state.speed

    def show(self, now: float, at: float) -> None:
        """Have ``at`` be due now."""
        self._anchor = (now, at)

    def measure(self, now: float, interval_seconds: float) -> None:
        """Find out whether the speed asked for is kept."""
        state = self._state
        begun, at = self._measured
        if now - begun >= _MEASURED_SECONDS:
            real = (state.now - at) / (now - begun)
            exact = state.speed * (now - begun) > 3 * max(interval_seconds, 0.1)
            slow = exact and 0 < real < 0.75 * state.speed and not state.arriving
            state.real_speed = real if slow else None
            self._measured = (now, state.now)
