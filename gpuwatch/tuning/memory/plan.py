"""Which batch sizes are measured, in which order, until the largest that fits is known.

The device stands behind ``Measurer``; everything here is decisions. Sizes grow until memory
grows with them, then leap to a fraction of what the line says would fit, so that the prediction
is no long way from what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic

from gpuwatch.tuning.memory.fit import fit_line
from gpuwatch.tuning.memory.point import (
    AS_IS,
    MeasureError,
    Measurer,
    MemoryPoint,
    NoMemoryError,
    TooSlowError,
)
from gpuwatch.tuning.memory.predict import (
    BATCH_MAX,
    MARGIN_SHARE,
    TRIES,
    Attempt,
    Confirmed,
    confirm,
    leaves_margin,
    predict,
)
from gpuwatch.tuning.memory.report import MemoryReport, PrecisionResult, Subject

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


class OutOfBudgetError(Exception):
    """The time is over."""


@dataclass(slots=True)
class Plan:
    """``sizes``: measure exactly these, instead of growing. ``tell`` is told what comes next, a
    short text. ``seconds_max``: steps that would take longer are not tried."""

    subject: Subject
    measurer: Measurer
    precisions: tuple[str, ...] = (AS_IS,)
    sizes: tuple[int, ...] = ()
    margin_share: float = MARGIN_SHARE
    tries: int = TRIES
    steps: int = 3
    seconds_max: float = 300.0
    budget_seconds: float = 600.0
    clock: Callable[[], float] = monotonic
    tell: Callable[[str], object] = lambda _text: None
    _begin: float = field(default=0.0, init=False)
    _done: list[PrecisionResult] = field(default_factory=list, init=False)
    _points: list[MemoryPoint] = field(default_factory=list, init=False)
    _attempts: list[Attempt] = field(default_factory=list, init=False)
    _too_large: int | None = field(default=None, init=False)

    def run(self) -> MemoryReport:
        """Measure everything, or what there is time for; a Ctrl-C ends it with what there is.

        Raises ``MeasureError`` where not even the first step can be measured, and
        ``NoMemoryError`` where it does not fit.
        """
        self._begin = self.clock()
        ended = ""
        for precision in self.precisions:
            try:
                self._done.append(self._one(precision))
            except (KeyboardInterrupt, OutOfBudgetError) as error:
                ended = "budget" if isinstance(error, OutOfBudgetError) else "interrupted"
                if self._points:
                    self._done.append(self._result(precision))
                break
            except (MeasureError, NoMemoryError) as error:
                # Of a further precision: the step itself was measured.
                if not self._done:
                    raise
                self._done.append(
                    PrecisionResult(precision=precision, points=(), stopped=str(error))
                )
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
        found = self._result(precision, stopped=stopped)
        if found.prediction is None or found.prediction.batch_size < 1:
            return found
        confirmed = confirm(
            found.prediction,
            self._points,
            lambda size: self._attempt(size, precision),
            margin_share=self.margin_share,
            tries=self.tries,
            too_large=self._too_large,
        )
        return self._result(precision, stopped=stopped, confirmed=confirmed)

    def _result(
        self, precision: str, *, stopped: str = "", confirmed: Confirmed | None = None
    ) -> PrecisionResult:
        """What is known so far."""
        points = tuple(self._points)
        fit = fit_line([(one.batch_size, one.peak_bytes) for one in points])
        allocated = [
            (one.batch_size, float(one.allocated_bytes))
            for one in points
            if one.allocated_bytes is not None
        ]
        if confirmed is None and self._attempts:
            # Ended in the midst of the search.
            fitting = [one for one in self._points if leaves_margin(one, self.margin_share)]
            fitting += [one.point for one in self._attempts if one.outcome == "fits" and one.point]
            confirmed = Confirmed(
                batch_size=max((one.batch_size for one in fitting), default=0),
                too_large=self._too_large,
                attempts=tuple(self._attempts),
                predicted_held=False,
                stopped="It was ended.",
            )
        return PrecisionResult(
            precision=precision,
            points=points,
            fit=fit,
            allocated_fit=fit_line(allocated),
            prediction=None if fit is None else predict(fit, points, self.margin_share),
            confirmed=confirmed,
            out_of_memory_at=self._too_large,
            stopped=stopped,
        )

    # Growing.

    def _grow(self, precision: str) -> str:
        """Measure sizes for the line; why it stopped before its time, a sentence or nothing."""
        refused: NoMemoryError | None = None
        for size in self._sizes():
            if self._is_too_slow(size):
                return f"A step at batch size {size} would take too long (--timeout)."
            self._check_budget()
            self.tell(self._doing(size, precision))
            try:
                self._points.append(self.measurer.measure(size, precision))
            except NoMemoryError as error:
                self._too_large = size
                refused = error
            except TooSlowError as error:
                if not self._points:
                    raise
                return str(error)
            except MeasureError as error:
                if not self._points:
                    raise
                return f"Batch size {size} could not be measured: {error}"
            self._points.sort(key=lambda one: one.batch_size)
        if not self._points and refused is not None:
            raise NoMemoryError(f"Not even batch size {self._too_large} fits. {refused}")
        return ""

    def _sizes(self) -> Iterator[int]:
        """The next size, each time from what is known by then."""
        if self._done:
            yield from self._paired()
            return
        if self.sizes:
            for size in self.sizes:
                if self._too_large is None or size < self._too_large:
                    yield size
            return
        while len(self._points) < POINTS_MAX:
            further = next_size(self._points, self._too_large, self.margin_share)
            if further is None:
                return
            yield further

    def _paired(self) -> Iterator[int]:
        """Those of the first precision again, so that like is compared with like."""
        for size in spread([one.batch_size for one in self._done[0].points], PAIRED):
            if self._too_large is None or size < self._too_large:
                yield size

    def _attempt(self, size: int, precision: str) -> Attempt:
        """A guarded step; nothing that it can do but a Ctrl-C ends the search."""
        tried = self._tried(size, precision)
        self._attempts.append(tried)
        if tried.outcome == "memory":
            self._too_large = size if self._too_large is None else min(size, self._too_large)
        return tried

    def _tried(self, size: int, precision: str) -> Attempt:
        if self._is_too_slow(size):
            return Attempt(size, "slow", "A step of that size would take too long (--timeout).")
        self._check_budget()
        self.tell(f"{self._doing(size, precision)}, a guarded step")
        try:
            point = self.measurer.measure(size, precision)
        except NoMemoryError as error:
            return Attempt(size, "memory", str(error))
        except TooSlowError as error:
            return Attempt(size, "slow", str(error))
        except MeasureError as error:
            return Attempt(size, "failed", str(error))
        fits = leaves_margin(point, self.margin_share)
        return Attempt(size, "fits" if fits else "margin", "", point)

    def _doing(self, size: int, precision: str) -> str:
        return f"batch size {size}{'' if precision == AS_IS else f', {precision}'}"

    def _is_too_slow(self, size: int) -> bool:
        """By the time a sample takes at the largest size measured."""
        last = self._points[-1] if self._points else None
        if last is None or last.seconds_per_step is None:
            return False
        expected = last.seconds_per_step * max(1.0, size / last.batch_size)
        return expected * self.steps > self.seconds_max

    def _check_budget(self) -> None:
        if self._points and self.clock() - self._begin > self.budget_seconds:
            raise OutOfBudgetError


def next_size(
    points: Sequence[MemoryPoint], too_large: int | None, margin_share: float = MARGIN_SHARE
) -> int | None:
    """The next size that tells the line more; ``None``: enough is known.

    ``points`` in the order of their sizes; ``too_large``: a size that ran out of memory.
    """
    if not points:
        return FIRST if too_large is None else too_large // 2 or None
    if too_large is not None:
        return _between(points, too_large)
    largest = points[-1].batch_size
    fit = fit_line([(one.batch_size, one.peak_bytes) for one in points])
    grown = points[-1].peak_bytes > (1 + GROWN_SHARE) * points[0].peak_bytes
    said = predict(fit, points, margin_share) if fit is not None and grown else None
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
    gaps = [(high - low, low) for low, high in pairwise(edges)]
    width, low = max(gaps)
    return low + width // 2 if width >= 2 else None


def spread(sizes: Sequence[int], count: int) -> list[int]:
    """Up to ``count`` of ``sizes``, the first and the last among them.

    >>> spread([2, 4, 8, 16, 64, 512], 3)
    [2, 8, 512]
    """
    if len(sizes) <= count:
        return list(sizes)
    places = [round(one * (len(sizes) - 1) / (count - 1)) for one in range(count)]
    return [sizes[place] for place in places]
