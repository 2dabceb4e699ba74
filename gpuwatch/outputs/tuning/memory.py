"""The report of ``gpuwatch tune memory``: what the line is, whether it holds, what fits; as text
and as JSON.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import structs

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.outputs.terminal import Column, Page
from gpuwatch.outputs.tuning.chart import memory_chart
from gpuwatch.tuning.memory.fit import BATCH_MAX
from gpuwatch.tuning.memory.records import (
    AS_IS,
    LineFit,
    MemoryPoint,
    MemoryReport,
    PrecisionResult,
    Prediction,
    Subject,
)

FAR_TIMES = 8
"""A prediction this many times beyond what was measured is called a guess."""
SAME_SHARE = 0.02
"""A precision that changes less than this changes nothing."""
_FITS = {"fits": "fits: at most", "roughly": "fits roughly: up to", "not": "does not fit:"}


size = partial(units.size, digits=2)
"""With the digits in which two batch sizes differ."""


def line(fit: LineFit) -> str:
    """``memory = 1.2G (±10.0M) + batch x 31.2M (±0.3M), R² 0.9998``."""
    fixed, sample = (
        size(value) if error is None else f"{size(value)} (±{size(error)})"
        for value, error in (
            (fit.fixed_bytes, fit.fixed_error_bytes),
            (fit.per_sample_bytes, fit.per_sample_error_bytes),
        )
    )
    text = f"memory = {fixed} + batch x {sample}"
    if fit.r_squared is None:
        return text
    # Never rounded up to a perfect 1.
    share = "1" if fit.r_squared >= 1 else f"{int(fit.r_squared * 10_000) / 10_000:.4f}"
    return f"{text}, R² {share}"


def quality(fit: LineFit) -> str:
    """How well the line holds, with its largest deviation; a sentence or two."""
    if len(fit.sizes) < 3:
        return "Two points always make a line: how well memory follows it is not known."
    side = "more" if fit.largest_deviation_bytes > 0 else "less"
    text = (
        f"The line {_FITS[fit.quality]} {size(abs(fit.largest_deviation_bytes))} "
        f"({fit.largest_deviation_share:.1%}) {side} than the line at batch "
        f"{fit.largest_deviation_at}."
    )
    if fit.left_out:
        text += (
            f" Up to batch {fit.left_out[-1]} the peak hardly moves ({size(fit.floor_bytes)}): "
            "there it comes from something other than the batch (the optimizer's step, a library's "
            "workspace), and the line ignores it."
        )
    return text


def headline(result: PrecisionResult) -> str | None:
    """The batch to take, in a sentence; ``None``: that is not known."""
    largest = result.largest_batch_size
    took = next((one for one in result.points if one.batch_size == largest), None)
    if took is None:
        return None
    return (
        f"Batch {largest} fits: a step took {size(took.peak_bytes)} of the "
        f"{size(took.available_bytes)} available."
    )


def outcome(result: PrecisionResult) -> str:
    """The largest batch, in a sentence or two."""
    prediction, largest = result.prediction, result.largest_batch_size
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
    if prediction.batch_size < 1 and largest is None:
        return (
            f"By the line not even one sample fits with {size(prediction.margin_bytes)} left free "
            f"of the {size(prediction.available_bytes)} available."
        )
    seen = f"The largest batch that a step has shown to fit is {largest or 'none'}"
    if result.too_large is not None:
        ran_out = " (it ran out of memory, which was caught)"
        seen += f"; {result.too_large} is too large"
        seen += ran_out if result.too_large == result.ran_out_at else ""
    if result.first_prediction not in (None, largest) and result.too_large is not None:
        seen += f". The first prediction was {result.first_prediction}"
    return f"{_predicted(prediction)} {seen}."


def _predicted(prediction: Prediction) -> str:
    """The largest batch by the line, with the margin and where it comes from."""
    if prediction.batch_size >= BATCH_MAX:
        return f"By the line more than {prediction.batch_size} samples fit; that is not tried."
    margin = "the line is that uncertain there" if prediction.margin_is_interval else "the margin"
    text = (
        f"By the line batch {prediction.batch_size} is the largest that leaves "
        f"{size(prediction.margin_bytes)} ({margin}) of {size(prediction.available_bytes)} free; "
        f"{prediction.without_margin} would fill it."
    )
    if prediction.batch_size <= FAR_TIMES * prediction.measured_to:
        return text
    times = prediction.batch_size / prediction.measured_to
    return (
        f"{text} That is {times:.0f} times the largest batch that was measured "
        f"({prediction.measured_to}): no more than a guess."
    )


def differences(report: MemoryReport) -> Iterator[str]:
    """Changes by each further precision, measured; a sentence each."""
    for result in report.results[1:]:
        plain = report.results[0]
        if result.fit is None or plain.fit is None:
            yield f"{result.precision}: {result.stopped or 'too little was measured to compare.'}"
        else:
            yield f"{result.precision} autocast: {', '.join(_changes(plain, result))}."


def _changes(plain: PrecisionResult, other: PrecisionResult) -> Iterator[str]:
    if plain.fit is not None and other.fit is not None:
        for name, before, after in (
            ("fixed", plain.fit.fixed_bytes, other.fit.fixed_bytes),
            ("per sample", plain.fit.per_sample_bytes, other.fit.per_sample_bytes),
        ):
            yield f"{name} {size(before)} -> {size(after)}{_percent(before, after)}"
    if plain.largest_batch_size is not None and other.largest_batch_size is not None:
        yield f"largest batch {plain.largest_batch_size} -> {other.largest_batch_size}"
    # At the largest size that both measured.
    times = {one.batch_size: one.seconds_per_step for one in plain.points}
    for point in reversed(other.points):
        first, second = times.get(point.batch_size), point.seconds_per_step
        if first is not None and second is not None:
            change = f"{units.duration(first)} -> {units.duration(second)}{_percent(first, second)}"
            yield f"a step at batch {point.batch_size} {change}"
            return


def _percent(before: float, after: float) -> str:
    if before <= 0:
        return ""
    change = after / before - 1
    return " (the same)" if abs(change) < SAME_SHARE else f" ({change:+.0%})"


SCHEMA = 2
CHART_ROWS = 14
CHART_CELLS_MOST = 100
ENDED = {
    "interrupted": "Interrupted: this was measured so far.",
    "budget": "Out of time (--budget): this was measured so far.",
}


def report_json(report: MemoryReport) -> str:
    """``null`` is not measured."""
    found = {
        "kind": "tune_memory",
        "schema": SCHEMA,
        "gpuwatch": __version__,
        **structs.asdict(report.subject),
        "margin_share": report.margin_share,
        "seconds": round(report.seconds, 3),
        "ended": report.ended,
        "results": [_result_object(one) for one in report.results],
        "differences": list(differences(report)),
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def _result_object(result: PrecisionResult) -> dict[str, Any]:
    fit = result.fit
    return {
        **structs.asdict(result),
        "fit": None if fit is None else {**structs.asdict(fit), "says": quality(fit)},
        "says": outcome(result),
    }


def page(report: MemoryReport, *, width: int, unicode: bool) -> str:
    """All of it, no line wider than ``width``."""
    made, plain = Page(max(20, width), colour=False), report.results[0]
    for sentence in (heading(report.subject, plain), headline(plain)):
        made.say(sentence or "")
        made.gap()
    for result in report.results:
        _result(made, result, report.subject, unicode)
        made.gap()
    for change in differences(report):
        made.say(change)
    made.gap()
    made.say(ENDED.get(report.ended or "", ""))
    return made.text(unicode) + "\n"


def heading(subject: Subject, plain: PrecisionResult) -> str:
    step = clean(subject.step, 200)
    if subject.loader is not None:
        step += f" on {clean(subject.loader, 200)}"
    room = ""
    if plain.points:
        room += f", {size(plain.points[-1].total_bytes)}"
    if subject.limit_bytes is not None:
        room += " by --limit"
    if plain.points:
        room += f", {size(plain.points[-1].available_bytes)} available"
    where = f"{subject.device}: {clean(subject.device_name, 120)}{room}"
    what = "GPU memory" if subject.is_gpu else "Host memory (the step ran on the CPU)"
    return f"{what} of {step} on {where}"


def _result(made: Page, result: PrecisionResult, subject: Subject, unicode: bool) -> None:
    fit = result.fit
    if result.precision != AS_IS:
        made.say(f"With {result.precision} autocast around the step")
    if result.points:
        _table(made, result.points, subject)
        made.gap()
    if fit is not None:
        if result.precision == AS_IS and len(fit.sizes) > 2:
            cells = min(made.width, CHART_CELLS_MOST)
            made.lines += memory_chart(result, width=cells, height=CHART_ROWS, unicode=unicode)
            made.gap()
        made.say(line(fit))
        made.say(quality(fit))
    if result.stopped and result.points:
        made.say(result.stopped)
    made.say(outcome(result))


def _table(made: Page, points: Sequence[MemoryPoint], subject: Subject) -> None:
    """One row for each batch size. Columns with nothing in them are left out."""
    columns: tuple[Column[MemoryPoint], ...] = (
        Column("batch", lambda one: str(one.batch_size)),
        Column("tensors", lambda one: size(one.allocated_bytes), rank=3),
        Column("reserved" if subject.is_gpu else "resident", lambda one: size(one.peak_bytes)),
        Column("process", lambda one: size(one.process_bytes) if subject.is_gpu else "-", rank=4),
        Column("device", lambda one: size(one.device_used_bytes), rank=4),
        Column("per step", lambda one: units.duration(one.seconds_per_step), rank=2),
        Column("samples/s", lambda one: units.samples(one.samples_per_second), rank=1),
    )
    made.items(columns, points)
