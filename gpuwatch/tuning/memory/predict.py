"""From the line to the largest batch that fits, and the guarded steps that confirm it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuwatch.tuning.memory.fit import LineFit, fit_line
from gpuwatch.tuning.memory.point import MemoryPoint

BATCH_MAX = 1 << 24
"""No batch is predicted beyond this."""
MARGIN_SHARE = 0.10
"""Of the device's memory that is left free: other steps, other algorithms, fragmentation."""
TRIES = 4
CLOSE_SHARE = 0.05
"""The search ends when what fits and what does not are this close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The largest batch size by the line.

    ``batch_size`` leaves ``margin_bytes`` of the ``available_bytes`` free, ``without_margin``
    would use them up. ``margin_is_interval``: the prediction is that uncertain that its interval
    is the margin. ``capped``: more would fit than is ever predicted.
    """

    batch_size: int
    expected_bytes: float
    interval_bytes: float | None
    margin_bytes: float
    margin_is_interval: bool
    available_bytes: int
    without_margin: int
    measured_to: int
    """The largest batch size that the line comes from."""
    capped: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One guarded step at a size. ``outcome``: ``fits``, ``margin`` (it ran, but left less free
    than it should), ``memory`` (it ran out of memory), ``slow`` or ``failed``."""

    batch_size: int
    outcome: str
    says: str = ""
    point: MemoryPoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """The end of the search: ``batch_size`` is the largest that was seen to fit (0: none was),
    ``too_large`` the smallest that was seen not to. ``stopped``: why the search did not go on."""

    batch_size: int
    too_large: int | None
    attempts: tuple[Attempt, ...]
    predicted_held: bool
    """The predicted size itself fitted, at the first try."""
    stopped: str = ""


def expected_bytes(fit: LineFit, points: Sequence[MemoryPoint], batch_size: float) -> float:
    """What a step at ``batch_size`` takes: by the line or, beyond the last point, by the last
    stretch, whichever says more (a line through a bent course says too little)."""
    found = fit.at(batch_size)
    known = sorted({(point.batch_size, point.peak_bytes) for point in points})
    if len(known) < 2 or batch_size <= known[-1][0]:
        return found
    (x0, y0), (x1, y1) = known[-2:]
    if x1 == x0:
        return found
    return max(found, y1 + (y1 - y0) / (x1 - x0) * (batch_size - x1))


def predict(
    fit: LineFit, points: Sequence[MemoryPoint], margin_share: float = MARGIN_SHARE
) -> Prediction | None:
    """The largest batch that fits; ``None`` where memory does not grow with the batch.

    What is available is as the last point found it. A prediction of 0: not even one sample fits
    with the margin.
    """
    if not points or fit.per_sample_bytes <= 0:
        return None
    last = points[-1]
    share = margin_share * last.total_bytes

    def needs(batch_size: int) -> float:
        return expected_bytes(fit, points, batch_size) + max(share, fit.interval(batch_size) or 0.0)

    size = _largest(lambda b: needs(b) <= last.available_bytes)
    bare = _largest(lambda b: expected_bytes(fit, points, b) <= last.available_bytes)
    interval = fit.interval(max(size, 1))
    return Prediction(
        batch_size=size,
        expected_bytes=expected_bytes(fit, points, max(size, 1)),
        interval_bytes=interval,
        margin_bytes=max(share, interval or 0.0),
        margin_is_interval=interval is not None and interval > share,
        available_bytes=last.available_bytes,
        without_margin=bare,
        measured_to=max(point.batch_size for point in points),
        capped=size >= BATCH_MAX,
    )


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest size up to ``BATCH_MAX`` for which a monotone ``fits`` holds; 0: none."""
    low, high = 0, 1
    while high <= BATCH_MAX and fits(high):
        low, high = high, high * 2
    high = min(high, BATCH_MAX + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def leaves_margin(point: MemoryPoint, margin_share: float) -> bool:
    """Whether a step that ran left what it should. The margin is there for what differs from
    step to step, so a single step may use up to half of it."""
    left = point.available_bytes - point.peak_bytes
    return left >= margin_share / 2 * point.total_bytes


def confirm(
    prediction: Prediction,
    points: Sequence[MemoryPoint],
    attempt: Callable[[int], Attempt],
    *,
    margin_share: float = MARGIN_SHARE,
    tries: int = TRIES,
    too_large: int | None = None,
) -> Confirmed:
    """Try the predicted size with a guarded step; where it does not hold, find one that does.

    ``attempt`` runs a step and tells how it went. ``too_large``: a size known not to fit. A step
    that fits less well than predicted moves the prediction; one that runs out of memory halves
    the way back.
    """
    known = list(points)
    fitting = [p.batch_size for p in known if leaves_margin(p, margin_share)]
    low = max(fitting, default=0)
    over = [p.batch_size for p in known if p.batch_size > low]
    high = min([*over, *([] if too_large is None else [too_large])], default=None)
    done: list[Attempt] = []
    held = False
    stopped = ""
    candidate = _inside(prediction.batch_size, low, high)
    while candidate is not None and len(done) < tries:
        tried = attempt(candidate)
        done.append(tried)
        if tried.point is not None:
            known.append(tried.point)
        if tried.outcome == "fits":
            held = held or (len(done) == 1 and candidate == prediction.batch_size)
            low = candidate
        elif tried.outcome in ("margin", "memory"):
            high = candidate
        else:
            stopped = tried.says
            break
        candidate = _next(known, low, high, margin_share, tried)
    return Confirmed(
        batch_size=low,
        too_large=high,
        attempts=tuple(done),
        predicted_held=held or (prediction.batch_size == low and not done),
        stopped=stopped,
    )


def _inside(candidate: int, low: int, high: int | None) -> int | None:
    """A size to try above ``low`` and below ``high``; ``None``: there is none to try."""
    if high is not None and candidate >= high:
        candidate = (low + high) // 2
    return candidate if candidate > low else None


def _next(
    known: Sequence[MemoryPoint],
    low: int,
    high: int | None,
    margin_share: float,
    tried: Attempt,
) -> int | None:
    """The next size worth a step; ``None``: it is found closely enough."""
    fit = fit_line([(p.batch_size, p.peak_bytes) for p in known])
    again = None if fit is None else predict(fit, known, margin_share)
    if high is None:
        # It fits. Worth another step only where the line now says clearly more.
        if again is None or again.batch_size <= low * 1.1:
            return None
        return min(again.batch_size, 2 * low)
    if high - low <= max(1, CLOSE_SHARE * low):
        return None
    middle = (low + high) // 2
    if tried.outcome == "memory" or again is None or not low < again.batch_size < high:
        return middle if middle > low else None
    return again.batch_size
