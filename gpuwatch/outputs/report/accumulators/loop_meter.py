"""A rank's loop since the look before, from what it reports of its last ten seconds.

The window that is reported reaches further back than the look before. A mean of it over the looks
would count the beginning of a loop many times and smear what changes, so the sums behind it are
put together again: what was spent up to now is what was spent in the window, and what had been
spent by its beginning.
"""

from collections import deque
from typing import NamedTuple

from gpuwatch.core.model import TrainingLoop
from gpuwatch.outputs.report.accumulators.sums import sane

SHARES = ("data_wait_share", "compute_share", "copy_share", "validation_share", "checkpoint_share")
SAME_SECONDS = 0.5
"""Times of one moment, as reported and as seen, differ by less."""
_KEPT_SECONDS = 60.0
"""Windows are ten seconds, and what a step or a wait lasts longer."""

_Sums = tuple[float, ...]


class Did(NamedTuple):
    """The work of a loop in a time."""

    seconds: float
    """For how long of it the loop ran; all else is about those."""
    samples: float | None
    spent: tuple[float | None, ...]
    """Seconds, for each of ``SHARES``; a little negative where it was reported late that
    less was spent."""


class LoopMeter:
    """One rank's."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, _Sums]] = deque()
        """Seconds spent up to some moments."""
        self._kinds: tuple[bool, ...] = ()
        self._steps: int | None = None
        self._idle = True
        self._until: float | None = None
        """When it was looked at last."""

    def add(self, loop: TrainingLoop, since: float, at: float, unix: float) -> Did:
        """Its work from ``since`` (the look before) to ``at``, in monotonic seconds; ``unix``:
        wall time ``at`` that moment."""
        window = sane(loop.window_seconds)
        seconds = at - since
        if self._until is None and window is not None:
            # It began after the look before.
            seconds = min(seconds, window)
        elif self._until is not None and since - self._until > SAME_SECONDS:
            # Nobody looked for a while, of which nothing is known.
            self._steps, self._kinds = None, ()
        steps, before = loop.steps, self._steps
        made = None if steps is None or before is None or steps < before else steps - before
        idle = loop.phase == "idle"
        ran = bool(made) or not (idle and self._idle)
        spent = self._spend(loop, seconds if window is None else window, seconds, at)
        if idle and loop.told_at_unix_seconds is not None:
            # Since then it has been idle.
            seconds = max(0.0, seconds - max(0.0, unix - loop.told_at_unix_seconds))
        self._steps, self._idle, self._until = steps, idle, at
        return Did(seconds if ran else 0.0, _samples(loop, made, seconds), spent)

    def _spend(
        self, loop: TrainingLoop, window: float, seconds: float, at: float
    ) -> tuple[float | None, ...]:
        shares = [sane(getattr(loop, name), 1.0) for name in SHARES]
        kinds = tuple([share is None for share in shares])
        points = self._points
        before = self._sums_at(at - window) if kinds == self._kinds else None
        if before is None:
            # It begins to report (this), or nobody looked for longer than the window.
            self._kinds = kinds
            points.clear()
            points.append((at - window, (0.0,) * len(shares)))
            points.append((at, tuple([(share or 0.0) * window for share in shares])))
            return tuple([None if share is None else share * seconds for share in shares])
        last = points[-1][1]
        now = tuple(
            [(share or 0.0) * window + was for share, was in zip(shares, before, strict=True)]
        )
        points.append((at, now))
        while points[1][0] < at - max(window, _KEPT_SECONDS):
            points.popleft()
        return tuple(
            [None if none else one - was for none, one, was in zip(kinds, now, last, strict=True)]
        )

    def _sums_at(self, at: float) -> _Sums | None:
        """Straight between the moments; ``None`` outside of them."""
        points = self._points
        if not points or points[-1][0] < at:
            return None
        later = points[-1]
        for point in reversed(points):
            if point[0] <= at:
                length = later[0] - point[0]
                part = (at - point[0]) / length if length > 0.0 else 0.0
                pairs = zip(point[1], later[1], strict=True)
                return tuple([was + part * (after - was) for was, after in pairs])
            later = point
        return points[0][1] if points[0][0] - at < SAME_SECONDS else None


def _samples(loop: TrainingLoop, steps: int | None, seconds: float) -> float | None:
    """By the steps, which are counted; rates are reported from step to step."""
    rate, step_rate = sane(loop.samples_per_second), sane(loop.steps_per_second)
    if rate is None:
        return None
    if steps is None or not step_rate:
        return rate * seconds
    return steps * rate / step_rate
