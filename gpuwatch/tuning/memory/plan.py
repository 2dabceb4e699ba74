"""Which batch sizes are measured, in which order, until the largest that fits is known.

Whoever measures stands behind ``Measure``; everything here is decisions. Sizes grow until memory
grows with them, and leap to a fraction of what the line says would fit, so that the prediction is
no long way from what was measured. A guarded step confirms it, or others find one that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic

from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.memory.fit import (
    BATCH_MAX,
    MARGIN_SHARE,
    fit_line,
    fit_points,
    leaves_margin,
    predict,
)
from gpuwatch.tuning.memory.records import (
    AS_IS,
    Attempt,
    Confirmed,
    MemoryPoint,
    MemoryReport,
    PrecisionResult,
    Prediction,
    Subject,
)

FIRST = 2
"""Batch normalisation cannot train on a batch of one."""
POINTS_WANTED = 5
POINTS_MAX = 12
NEAR = 4
"""A prediction is trusted up to so many times the largest size measured; a step at half of it is
measured otherwise."""
LEAP = 8
"""Times the largest size, at most, at once."""
GROWN_SHARE = 0.1
"""Memory has grown with the batch once it is this much above that of the smallest."""
PAIRED = 5
"""Sizes measured again for each further precision."""
TRIES = 4
CLOSE_SHARE = 0.05
"""The search ends when what fits and what does not are this close."""
STEPS = 3

Measure = Callable[[int, str], MemoryPoint]
"""Takes a batch size and a precision. Raises ``MeasureError``: with the code ``no_memory`` where
it does not fit, ``hang`` where it took too long."""


class OutOfBudgetError(Exception):
    """The time is over."""


@dataclass(slots=True)
class Plan:
    """``sizes``: measure exactly these, instead of growing. ``report`` is given what comes next, a
    short text. ``seconds_max``: steps that would take longer are not tried."""

    subject: Subject
    measure: Measure
    precisions: tuple[str, ...] = (AS_IS,)
    sizes: tuple[int, ...] = ()
    margin_share: float = MARGIN_SHARE
    tries: int = TRIES
    seconds_max: float = 300.0
    budget_seconds: float = 600.0
    clock: Callable[[], float] = monotonic
    report: Callable[[str], object] = lambda _text: None
    _begin: float = field(default=0.0, init=False)
    _done: list[PrecisionResult] = field(default_factory=list, init=False)
    _points: list[MemoryPoint] = field(default_factory=list, init=False)
    _attempts: list[Attempt] = field(default_factory=list, init=False)
    _too_large: int | None = field(default=None, init=False)

    def run(self) -> MemoryReport:
        """Measure everything, or what there is time for; a Ctrl-C ends it with what there is.

        Raises ``MeasureError`` where not even the first step can be measured.
        """
        self._begin = self.clock()
        ended = None
        for precision in self.precisions:
            try:
                self._done.append(self._one(precision))
            except (KeyboardInterrupt, OutOfBudgetError) as error:
                ended = "budget" if isinstance(error, OutOfBudgetError) else "interrupted"
                if self._points:
                    self._done.append(self._result(precision, stopped=None))
                break
            except MeasureError as error:
                # Of a further precision: the step itself was measured.
                if not self._done:
                    raise
                self._done.append(PrecisionResult(precision=precision, stopped=str(error)))
        return MemoryReport(
            subject=self.subject,
            margin_share=self.margin_share,
            results=tuple(self._done),
            seconds=self.clock() - self._begin,
            ended=ended,
        )

    def _one(self, precision: str) -> PrecisionResult:
        self._points, self._attempts, self._too_large = [], [], None
        stopped = self._grow(precision)
        prediction = predict(self._points, self.margin_share)
        if prediction is None or prediction.batch_size < 1:
            return self._result(precision, stopped)
        confirmed = confirm(
            prediction,
            self._points,
            lambda size: self._attempt(size, precision),
            margin_share=self.margin_share,
            tries=self.tries,
            too_large=self._too_large,
        )
        return self._result(precision, stopped, confirmed)

    def _result(
        self, precision: str, stopped: str | None, confirmed: Confirmed | None = None
    ) -> PrecisionResult:
        """What is known so far."""
        if confirmed is None and self._attempts:
            # Ended in the midst of the search.
            known = [one.point for one in self._attempts if one.outcome == "fits" and one.point]
            known += [one for one in self._points if leaves_margin(one, self.margin_share)]
            confirmed = Confirmed(
                batch_size=max((one.batch_size for one in known), default=None),
                too_large=self._too_large,
                attempts=tuple(self._attempts),
                predicted_held=False,
                stopped="It was ended.",
            )
        allocated = [(one.batch_size, one.allocated_bytes) for one in self._points]
        return PrecisionResult(
            precision=precision,
            points=tuple(self._points),
            fit=fit_points(self._points),
            allocated_fit=fit_line([(size, used) for size, used in allocated if used is not None]),
            prediction=predict(self._points, self.margin_share),
            confirmed=confirmed,
            out_of_memory_at=self._too_large,
            stopped=stopped,
        )

    def _grow(self, precision: str) -> str | None:
        """Measure sizes for the line; why it stopped before its time, a sentence."""
        refused: MeasureError | None = None
        for size in self._sizes():
            if self._is_too_slow(size):
                return f"A step at batch size {size} would take too long (--timeout)."
            self._check_budget()
            try:
                self._points.append(self._measured(size, precision))
            except MeasureError as error:
                if error.code == "no_memory":
                    self._too_large, refused = size, error
                    continue
                if not self._points:
                    raise
                if error.code == "hang":
                    return str(error)
                return f"Batch size {size} could not be measured: {error}"
            self._points.sort(key=lambda one: one.batch_size)
        if not self._points and refused is not None:
            raise MeasureError(f"Not even batch size {self._too_large} fits. {refused}")
        return None

    def _sizes(self) -> Iterator[int]:
        """The next size, each time from what is known by then."""
        if self._done or self.sizes:
            first = self._done[0].points if self._done else ()
            # Those of the first precision again, so that like is compared with like.
            for size in spread([one.batch_size for one in first], PAIRED) or self.sizes:
                if self._too_large is None or size < self._too_large:
                    yield size
            return
        while len(self._points) < POINTS_MAX:
            further = next_size(self._points, self._too_large, self.margin_share)
            if further is None:
                return
            yield further

    def _attempt(self, size: int, precision: str) -> Attempt:
        """A guarded step; nothing that it can do but a Ctrl-C ends the search."""
        if self._is_too_slow(size):
            why = "A step of that size would take too long (--timeout)."
            return self._tried(Attempt(size, "slow", why))
        self._check_budget()
        try:
            point = self._measured(size, precision, ", a guarded step")
        except MeasureError as error:
            outcome = {"no_memory": "memory", "hang": "slow"}.get(error.code, "failed")
            return self._tried(Attempt(size, outcome, str(error)))
        fits = leaves_margin(point, self.margin_share)
        return self._tried(Attempt(size, "fits" if fits else "margin", None, point))

    def _tried(self, attempt: Attempt) -> Attempt:
        self._attempts.append(attempt)
        if attempt.outcome == "memory":
            self._too_large = min(attempt.batch_size, self._too_large or attempt.batch_size)
        return attempt

    def _measured(self, size: int, precision: str, more: str = "") -> MemoryPoint:
        self.report(f"batch size {size}{'' if precision == AS_IS else f', {precision}'}{more}")
        return self.measure(size, precision)

    def _is_too_slow(self, size: int) -> bool:
        """By the time a sample takes at the largest size measured."""
        last = self._points[-1] if self._points else None
        if last is None or last.seconds_per_step is None:
            return False
        expected = last.seconds_per_step * max(1.0, size / last.batch_size)
        return expected * STEPS > self.seconds_max

    def _check_budget(self) -> None:
        if self._points and self.clock() - self._begin > self.budget_seconds:
            raise OutOfBudgetError


def next_size(
    points: Sequence[MemoryPoint], too_large: int | None, margin_share: float = MARGIN_SHARE
) -> int | None:
    """The next size that makes the line clearer; ``None``: enough is known.

    ``points`` in the order of their sizes; ``too_large``: a size that ran out of memory.
    """
    if not points:
        return FIRST if too_large is None else too_large // 2 or None
    if too_large is not None:
        return _between(points, too_large)
    largest = points[-1].batch_size
    grown = points[-1].peak_bytes > (1 + GROWN_SHARE) * points[0].peak_bytes
    said = predict(points, margin_share) if grown else None
    if said is None or len(points) < 3:
        # Far up at once, while the batch still weighs nothing.
        further = largest * (2 if len(points) < 3 or grown else LEAP)
        return further if further <= BATCH_MAX else None
    if said.batch_size > NEAR * largest:
        return min(said.batch_size // 2, LEAP * largest)
    if len(points) < POINTS_WANTED and said.batch_size > 2 * largest:
        return said.batch_size // 2
    return _between(points, largest)


def _between(points: Sequence[MemoryPoint], below: int) -> int | None:
    """The middle of the widest gap below a size that is not to be reached."""
    if len(points) >= POINTS_WANTED:
        return None
    # Batch normalisation cannot train on one sample: that low only where there is little else.
    lowest = points[0].batch_size if len(points) >= 3 else 0
    edges = sorted({lowest, *(one.batch_size for one in points if one.batch_size < below), below})
    width, low = max((high - low, low) for low, high in pairwise(edges))
    return low + width // 2 if width >= 2 else None


def spread(sizes: Sequence[int], count: int) -> list[int]:
    """Up to ``count`` of ``sizes``, the first and the last among them.

    >>> spread([2, 4, 8, 16, 64, 512], 3)
    [2, 8, 512]
    """
    if len(sizes) <= count:
        return list(sizes)
    return [sizes[round(one * (len(sizes) - 1) / (count - 1))] for one in range(count)]


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

    ``attempt`` runs a step. ``too_large``: a size known not to fit. A step that fits less well
    than predicted moves the prediction; one that runs out of memory halves the way back.
    """
    known = list(points)
    low = max((p.batch_size for p in known if leaves_margin(p, margin_share)), default=0)
    over = [p.batch_size for p in known if p.batch_size > low]
    high = min([*over, *([] if too_large is None else [too_large])], default=None)
    done: list[Attempt] = []
    held, stopped = False, None
    candidate: int | None = prediction.batch_size
    if high is not None and prediction.batch_size >= high:
        candidate = (low + high) // 2
    while candidate is not None and candidate > low and len(done) < tries:
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
        batch_size=low or None,
        too_large=high,
        attempts=tuple(done),
        predicted_held=held or (prediction.batch_size == low and not done),
        stopped=stopped,
    )


def _next(
    known: Sequence[MemoryPoint], low: int, high: int | None, margin_share: float, tried: Attempt
) -> int | None:
    """The next size worth a step; ``None``: it is known closely enough."""
    again = predict(known, margin_share)
    if high is None:
        # It fits. Worth another step only where the line now says clearly more.
        if again is None or again.batch_size <= low * 1.1:
            return None
        return min(again.batch_size, 2 * low)
    if high - low <= max(1, CLOSE_SHARE * low):
        return None
    if tried.outcome == "memory" or again is None or not low < again.batch_size < high:
        return (low + high) // 2
    return again.batch_size
