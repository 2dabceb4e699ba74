"""Which batch sizes are measured, in which order, until the largest that fits is known.

Whoever measures stands behind ``Measure``; everything here is decisions. Sizes grow until memory
grows with them, leap to a fraction of what the line says would fit, so that the prediction is no
long way from what was measured, and close in on the largest that a step has shown to fit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from gpuwatch.tuning.failures import MeasureError, OutOfTimeError
from gpuwatch.tuning.memory.fit import BATCH_MAX, MARGIN_SHARE, fit_line, leaves_margin, predict
from gpuwatch.tuning.memory.records import (
    AS_IS,
    MemoryPoint,
    MemoryReport,
    PrecisionResult,
    Subject,
)

FIRST = 2
"""Batch normalisation cannot train on a batch of one."""
POINTS_WANTED = 5
STEPS_MOST = 12
"""Measurements of a precision, so that whatever memory does they come to an end."""
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
WORTH = 1.1
"""A prediction this much beyond what fits is worth another step."""
CLOSE_SHARE = 0.05
"""The search ends when what fits and what does not are this close."""
STEPS = 3

Measure = Callable[[int, str], MemoryPoint]
"""Takes a batch size and a precision. Raises ``MeasureError``: with the code ``no_memory`` where
it does not fit, ``hang`` where it took too long."""


@dataclass(slots=True)
class _Known:
    """One precision, as far as it was measured; ``points`` in the order of their sizes."""

    precision: str
    margin_share: float
    points: list[MemoryPoint] = field(default_factory=list)
    ran_out_at: int | None = None
    first_prediction: int | None = None
    stopped: str | None = None

    @property
    def fits(self) -> int:
        """The largest size that was seen to leave what it should; 0: none."""
        good = [one.batch_size for one in self.points if leaves_margin(one, self.margin_share)]
        return max(good, default=0)

    @property
    def too_large(self) -> int | None:
        """The smallest that was seen not to."""
        over = [one.batch_size for one in self.points if one.batch_size > self.fits]
        return min([*over, *([self.ran_out_at] if self.ran_out_at else [])], default=None)

    def result(self) -> PrecisionResult:
        return PrecisionResult(
            precision=self.precision,
            points=tuple(self.points),
            fit=fit_line(self.points),
            prediction=predict(self.points, self.margin_share),
            first_prediction=self.first_prediction,
            largest_batch_size=self.fits or None,
            too_large=self.too_large,
            ran_out_at=self.ran_out_at,
            stopped=self.stopped,
        )


@dataclass(slots=True)
class Plan:
    """``sizes``: measure these, instead of growing. ``report`` is given what comes next, a short
    text. ``seconds_max``: steps that would take longer are not tried."""

    subject: Subject
    measure: Measure
    precisions: tuple[str, ...] = (AS_IS,)
    sizes: tuple[int, ...] = ()
    margin_share: float = MARGIN_SHARE
    seconds_max: float = 300.0
    budget_seconds: float = 600.0
    clock: Callable[[], float] = monotonic
    report: Callable[[str], object] = lambda _text: None

    def run(self) -> MemoryReport:
        """Measure everything, or what there is time for; a Ctrl-C ends it with what there is.

        Raises ``MeasureError`` where not even the first step can be measured.
        """
        begin, ended = self.clock(), None
        done: list[_Known] = []
        for precision in self.precisions:
            known = _Known(precision, self.margin_share)
            # Sizes of the first precision again, so that like is compared with like.
            sizes = [one.batch_size for one in done[0].points] if done else []
            try:
                self._one(known, spread(sizes, PAIRED) or self.sizes, begin)
            except (KeyboardInterrupt, OutOfTimeError) as error:
                ended = "budget" if isinstance(error, OutOfTimeError) else "interrupted"
            except MeasureError as error:
                # Of a further precision: the step itself was measured.
                if not done:
                    raise
                known.stopped = str(error)
            if known.points or known.stopped:
                done.append(known)
            if ended:
                break
        results = tuple(known.result() for known in done)
        seconds = self.clock() - begin
        return MemoryReport(
            subject=self.subject,
            margin_share=self.margin_share,
            results=results,
            seconds=seconds,
            ended=ended,
        )

    def _one(self, known: _Known, sizes: Sequence[int], begin: float) -> None:
        for size in sizes:
            if known.stopped is None and (known.ran_out_at is None or size < known.ran_out_at):
                self._step(known, size, begin)
        for _ in range(0 if sizes else STEPS_MOST):
            further = next_size(known.points, known.ran_out_at, self.margin_share)
            if further is None or known.stopped is not None:
                break
            self._step(known, further, begin)
        for number in range(TRIES):
            prediction = predict(known.points, self.margin_share)
            if prediction is None or known.stopped is not None:
                return
            if number == 0:
                known.first_prediction = prediction.batch_size
            candidate = _candidate(prediction.batch_size, known)
            if candidate is None:
                return
            self._step(known, candidate, begin)

    def _step(self, known: _Known, size: int, begin: float) -> None:
        """Measure one size. Raises ``MeasureError`` where it is the first and says nothing."""
        last = known.points[-1] if known.points else None
        if last is not None:
            seconds = (last.seconds_per_step or 0.0) * max(1.0, size / last.batch_size)
            if seconds * STEPS > self.seconds_max:
                known.stopped = f"A step at batch size {size} would take too long (--timeout)."
                return
            if self.clock() - begin > self.budget_seconds:
                raise OutOfTimeError
        precision = known.precision
        self.report(f"batch size {size}{'' if precision == AS_IS else f', {precision}'}")
        try:
            known.points.append(self.measure(size, precision))
        except MeasureError as error:
            if error.code == "no_memory":
                known.ran_out_at = size
                if not known.points and size < FIRST:
                    raise MeasureError(f"Not even batch size {size} fits. {error}") from None
                return
            if not known.points:
                raise
            known.stopped = str(error)
            if error.code != "hang":
                known.stopped = f"Batch size {size} could not be measured: {error}"
        known.points.sort(key=lambda one: one.batch_size)


def next_size(
    points: Sequence[MemoryPoint], ran_out_at: int | None, margin_share: float = MARGIN_SHARE
) -> int | None:
    """The next size that makes the line clearer; ``None``: enough is known."""
    if not points:
        return FIRST if ran_out_at is None else ran_out_at // 2 or None
    largest = points[-1].batch_size
    if ran_out_at is not None:
        # Below what ran out, until there are points enough for a line.
        middle = (largest + ran_out_at) // 2
        return middle if len(points) < POINTS_WANTED and middle > largest else None
    grown = points[-1].peak_bytes > (1 + GROWN_SHARE) * points[0].peak_bytes
    said = predict(points, margin_share) if grown else None
    if said is None or len(points) < 3:
        # Far up at once, while the batch still weighs nothing.
        further = largest * (2 if len(points) < 3 or grown else LEAP)
        return further if further <= BATCH_MAX else None
    if said.batch_size > NEAR * largest:
        return min(said.batch_size // 2, LEAP * largest)
    if len(points) < POINTS_WANTED and said.batch_size // 2 > largest:
        return said.batch_size // 2
    return None


def _candidate(predicted: int, known: _Known) -> int | None:
    """The next size to try for the largest; ``None``: it is known closely enough."""
    fits, too_large = known.fits, known.too_large
    if too_large is None:
        measured = known.points[-1].batch_size
        first = predicted == known.first_prediction
        worth = predicted > (fits if first else WORTH * fits)
        return min(predicted, NEAR * measured) if worth else None
    if too_large - fits <= max(1, CLOSE_SHARE * fits):
        return None
    return predicted if fits < predicted < too_large else (fits + too_large) // 2 or None


def spread(sizes: Sequence[int], count: int) -> list[int]:
    """Up to ``count`` of ``sizes``, the first and the last among them.

    >>> spread([2, 4, 8, 16, 64, 512], 3)
    [2, 8, 512]
    """
    if len(sizes) <= count:
        return list(sizes)
    return [sizes[round(one * (len(sizes) - 1) / (count - 1))] for one in range(count)]
