"""The sentences about a memory fit: what the line is, whether it holds, what fits. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.tuning.memory.records import (
    Attempt,
    Confirmed,
    LineFit,
    MemoryReport,
    PrecisionResult,
    Prediction,
)

LOOSE_SHARE = 0.15
"""Of the reserved memory that no tensor used: worth another allocator setting."""
FAR_TIMES = 8
"""A prediction this many times beyond what was measured is called a guess."""
SAME_SHARE = 0.02
"""A precision that changes less than this changes nothing."""


def size(value: float | None) -> str:
    """Bytes with the digits in which two batch sizes differ: ``1.72G``, ``31.24M``, ``139.8G``."""
    if value is None:
        return "-"
    amount, prefix = float(value), "B"
    for prefix in ("B", "K", "M", "G", "T"):
        if abs(amount) < 999.5 or prefix == "T":
            break
        amount /= 1024
    if prefix == "B":
        # A slope of nothing is not written -0.
        return f"{round(amount)}B"
    return f"{amount:.2f}{prefix}" if abs(amount) < 99.995 else f"{amount:.1f}{prefix}"


def line(fit: LineFit) -> str:
    """``memory = 1.2G (+-10.0M) + batch x 31.2M (+-0.3M), R² 0.9998``."""
    text = (
        f"memory = {with_error(fit.fixed_bytes, fit.fixed_error_bytes)} + batch x "
        f"{with_error(fit.per_sample_bytes, fit.per_sample_error_bytes)}"
    )
    return text if fit.r_squared is None else f"{text}, R² {cut(fit.r_squared)}"


def cut(r_squared: float) -> str:
    """Never rounded up to a perfect 1."""
    return "1" if r_squared >= 1 else f"{int(r_squared * 10_000) / 10_000:.4f}"


def with_error(value: float, error: float | None) -> str:
    return size(value) if error is None else f"{size(value)} (±{size(error)})"


def quality(fit: LineFit) -> str:
    """How well the line holds, with its largest deviation; a sentence."""
    if len(fit.sizes) < 3:
        return "Two points always make a line: how well memory follows it is not known."
    side = "more" if fit.largest_deviation_bytes > 0 else "less"
    far = (
        f"{size(abs(fit.largest_deviation_bytes))} ({fit.largest_deviation_share:.1%}) {side} than "
        f"the line at batch {fit.largest_deviation_at}"
    )
    how = {"fits": "fits: at most", "roughly": "fits roughly: up to", "not": "does not fit:"}
    return " ".join([f"The line {how[fit.quality]} {far}.", *_misfits(fit)])


def _misfits(fit: LineFit) -> Iterator[str]:
    if fit.bends > 0:
        yield (
            "Memory bends upwards: a sample costs more in a larger batch, so a line says too "
            "little for larger ones."
        )
    elif fit.bends < 0:
        yield "Memory bends downwards: a sample costs less in a larger batch."
    if fit.left_out:
        yield (
            f"Up to batch {fit.left_out[-1]} the peak hardly moves ({size(fit.floor_bytes)}): "
            "there it lies where the batch does not count (the optimizer's step, a library's "
            "workspace), and is left out of the line."
        )


def allocator(result: PrecisionResult) -> Iterator[str]:
    """Differences of reserved memory from the tensors': blocks, fragmentation."""
    fit, tensors = result.fit, result.allocated_fit
    if fit is None or tensors is None or not result.points:
        return
    if fit.quality != "fits" and tensors.quality == "fits":
        yield (
            "The tensors themselves follow a line (at most "
            f"{tensors.largest_deviation_share:.1%} off): it is the allocator, which takes memory "
            "in blocks, that does not."
        )
    last = result.points[-1]
    loose = last.peak_bytes - (last.allocated_bytes or 0)
    if loose > LOOSE_SHARE * last.peak_bytes:
        yield (
            f"At batch {last.batch_size} the allocator held {size(loose)} "
            f"({loose / last.peak_bytes:.0%}) more than tensors ever used: "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may win most of that back."
        )


def headline(result: PrecisionResult) -> str | None:
    """The batch to take, in a sentence; ``None``: that is not known."""
    largest = result.largest
    if not largest:
        return None
    if result.confirmed is None:
        return f"Batch {largest} fits by the line alone: no step has confirmed it."
    took = next((one for one in result.all_points if one.batch_size == largest), None)
    if took is None:
        return f"Batch {largest} fits."
    return (
        f"Batch {largest} fits: a step took {size(took.peak_bytes)} of the "
        f"{size(took.available_bytes)} available."
    )


def outcome(result: PrecisionResult) -> str:
    """The largest batch, in a sentence or two."""
    prediction = result.prediction
    if result.fit is None:
        if result.points:
            return "One batch size makes no line: there is no prediction."
        return result.stopped or "Nothing was measured."
    if prediction is None:
        return (
            "Memory does not grow with the batch size over "
            f"{result.points[0].batch_size} to {result.points[-1].batch_size}, so there is nothing "
            "to predict: does the step use the batch size it is given?"
        )
    if result.confirmed is not None:
        return confirmation(result.confirmed, prediction)
    if prediction.batch_size < 1:
        return (
            f"By the line not even one sample fits with {size(prediction.margin_bytes)} left free "
            f"of the {size(prediction.available_bytes)} that can be had."
        )
    return f"{predicted(prediction)} No step confirmed it."


def predicted(prediction: Prediction) -> str:
    """The largest batch by the line, with the margin and where it comes from."""
    if prediction.capped:
        return f"By the line more than {prediction.batch_size} samples fit; that is not tried."
    margin = "the line is that uncertain there" if prediction.margin_is_interval else "the margin"
    return (
        f"By the line batch {prediction.batch_size} is the largest that leaves "
        f"{size(prediction.margin_bytes)} ({margin}) of {size(prediction.available_bytes)} free; "
        f"{prediction.without_margin} would fill it.{_from_afar(prediction)}"
    )


def _from_afar(prediction: Prediction) -> str:
    if prediction.batch_size <= FAR_TIMES * prediction.measured_to:
        return ""
    times = prediction.batch_size / prediction.measured_to
    return (
        f" That is {times:.0f} times the largest batch that was measured "
        f"({prediction.measured_to}): no more than a guess."
    )


def confirmation(found: Confirmed, prediction: Prediction) -> str:
    """How the guarded steps went."""
    if found.stopped:
        seen = (
            f" The largest that was seen to fit is {found.batch_size}." if found.batch_size else ""
        )
        return f"{predicted(prediction)} That is not confirmed: {found.stopped}{seen}"
    if not found.batch_size:
        return (
            f"{predicted(prediction)} No guarded step fitted: "
            f"{', '.join(attempt(one) for one in found.attempts)}."
        )
    if found.predicted_held:
        fitted = [one for one in found.attempts if one.outcome == "fits"]
        took = f": {attempt(fitted[0])}" if fitted else ""
        beyond = (
            f" Batch {found.batch_size} was seen to fit too."
            if found.batch_size > prediction.batch_size
            else ""
        )
        return f"{predicted(prediction)} A guarded step confirmed it{took}.{beyond}"
    tried = "; ".join(attempt(one) for one in found.attempts)
    upper = "" if found.too_large is None else f", {found.too_large} does not"
    return (
        f"Batch {found.batch_size} fits{upper}. The line alone said {prediction.batch_size}"
        f"{f'; guarded steps: {tried}' if tried else ''}."
    )


def attempt(tried: Attempt) -> str:
    if tried.outcome == "memory":
        return f"batch {tried.batch_size} ran out of memory (caught)"
    if tried.point is None:
        return f"batch {tried.batch_size} could not be measured"
    took = f"batch {tried.batch_size} took {size(tried.point.peak_bytes)}"
    expected = "" if tried.outcome == "fits" else " and left too little free"
    return took + expected


def differences(report: MemoryReport) -> Iterator[str]:
    """Changes by each further precision, measured; a sentence each."""
    plain = report.plain
    for result in report.results:
        if plain is None or result is plain:
            continue
        if result.fit is None or plain.fit is None:
            yield f"{result.precision}: {result.stopped or 'too little was measured to compare.'}"
            continue
        yield f"{result.precision} autocast: {', '.join(_changes(plain, result))}."


def _changes(plain: PrecisionResult, other: PrecisionResult) -> Iterator[str]:
    assert plain.fit is not None
    assert other.fit is not None
    changed = [
        ("fixed", plain.fit.fixed_bytes, other.fit.fixed_bytes),
        ("a sample", plain.fit.per_sample_bytes, other.fit.per_sample_bytes),
    ]
    for name, before, after in changed:
        yield f"{name} {size(before)} -> {size(after)}{_percent(before, after)}"
    if plain.largest is not None and other.largest is not None:
        yield f"largest batch {plain.largest} -> {other.largest}"
    same = _same_size(plain, other)
    if same is not None:
        at, before, after = same
        yield (
            f"a step at batch {at} {before * 1000:.3g} ms -> {after * 1000:.3g} ms"
            f"{_percent(before, after)}"
        )


def _percent(before: float, after: float) -> str:
    if before <= 0:
        return ""
    change = after / before - 1
    return " (the same)" if abs(change) < SAME_SHARE else f" ({change:+.0%})"


def _same_size(plain: PrecisionResult, other: PrecisionResult) -> tuple[int, float, float] | None:
    """The largest size that both measured, and the seconds of a step."""
    times = {one.batch_size: one.seconds_per_step for one in plain.points}
    for point in reversed(other.points):
        before = times.get(point.batch_size)
        if before is not None and point.seconds_per_step is not None:
            return point.batch_size, before, point.seconds_per_step
    return None
