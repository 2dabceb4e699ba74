"""The report of ``gpuwatch tune memory``: what the line is, whether it holds, what fits; as text
and as JSON.
"""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
from msgspec import structs

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.outputs.terminal import Column, Page
from gpuwatch.outputs.tuning.chart import memory_chart
from gpuwatch.tuning.memory import (
    AS_IS,
    BATCH_MAX,
    LineFit,
    MemoryPoint,
    MemoryReport,
    Series,
    fit_line,
)

SAME_SHARE = 0.02
"""A precision that changes less than this changes nothing."""
SCHEMA = 3
CHART_ROWS = 14
CHART_CELLS_MOST = 100
_FITS = {"fits": "fits: at most", "roughly": "fits roughly: up to", "not": "does not fit:"}


size = partial(units.size, digits=2)
"""With the digits in which two batch sizes differ."""


def line(fit: LineFit) -> str:
    """``memory = 1.2G + batch x 31.2M, R² 0.9998``."""
    text = f"memory = {size(fit.fixed_bytes)} + batch x {size(fit.per_sample_bytes)}"
    if fit.r_squared is None:
        return text
    # Never rounded up to a perfect 1.
    return f"{text}, R² {int(fit.r_squared * 10_000 + 1e-6) / 10_000:g}"


def quality(fit: LineFit) -> str:
    """How well the line holds, with its largest deviation; a sentence or two."""
    if fit.quality is None:
        return "Two points always make a line: how well memory follows it is not known."
    side = "more" if fit.largest_deviation_bytes > 0 else "less"
    text = (
        f"The line {_FITS[fit.quality]} {size(abs(fit.largest_deviation_bytes))} "
        f"({fit.largest_deviation_share:.1%}) {side} than the line at batch "
        f"{fit.largest_deviation_at}."
    )
    if fit.left_out:
        text += f" Up to batch {fit.left_out[-1]} the peak hardly moves: the line ignores it."
    return text


def outcome(series: Series) -> str:
    """The largest batch, in a sentence or two."""
    predicted, fits, over = series.predicted, series.fits, series.too_large
    if len(series.points) < 2:
        return series.stopped or "One batch size makes no line: there is no prediction."
    if predicted is None:
        return (
            "Memory does not grow with the batch size over "
            f"{series.points[0].batch_size} to {series.points[-1].batch_size}, so there is nothing "
            "to predict: does the step use the batch size it is given?"
        )
    last = series.points[-1]
    more = "or more " if predicted == BATCH_MAX else ""
    text = (
        f"By the line batch {predicted} {more}is the largest that leaves "
        f"{size(series.margin_share * last.total_bytes)} of {size(last.available_bytes)} free. "
        f"The largest that a step has shown to fit is {fits or 'none'}"
    )
    if over is not None:
        text += f"; {over} is too large"
        text += " (it ran out of memory, which was caught)" if over == series.ran_out_at else ""
    return f"{text}."


def differences(report: MemoryReport) -> Iterator[str]:
    """Changes by each further precision, measured; a sentence each."""
    plain, *others = report.results
    for other in others:
        before, after = fit_line(plain.points), fit_line(other.points)
        if before is None or after is None:
            yield f"{other.precision}: {other.stopped or 'too little was measured to compare.'}"
            continue
        changes = [
            _change("fixed", before.fixed_bytes, after.fixed_bytes),
            _change("per sample", before.per_sample_bytes, after.per_sample_bytes),
            f"largest batch {plain.fits or 'none'} -> {other.fits or 'none'}",
        ]
        # At the largest size that both measured.
        times = {one.batch_size: one.seconds_per_step for one in plain.points}
        for point in reversed(other.points):
            first, second = times.get(point.batch_size), point.seconds_per_step
            if first is not None and second is not None:
                name = f"a step at batch {point.batch_size}"
                changes.append(_change(name, first, second, units.duration))
                break
        yield f"{other.precision} autocast: {', '.join(changes)}."


def _change(name: str, before: float, after: float, shown: Callable[[float], str] = size) -> str:
    change = after / before - 1 if before > 0 else 0.0
    how = "the same" if abs(change) < SAME_SHARE else f"{change:+.0%}"
    return f"{name} {shown(before)} -> {shown(after)}{f' ({how})' if before > 0 else ''}"


def report_json(report: MemoryReport) -> str:
    """``null`` is not measured."""
    found = {
        "kind": "tune_memory",
        "schema": SCHEMA,
        "gpuwatch": __version__,
        **structs.asdict(report),
        "results": [
            {
                **structs.asdict(one),
                "fit": fit_line(one.points),
                "predicted_batch_size": one.predicted,
                "largest_batch_size": one.fits or None,
                "too_large": one.too_large,
                "says": outcome(one),
            }
            for one in report.results
        ],
        "differences": list(differences(report)),
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def page(report: MemoryReport, *, width: int, unicode: bool) -> str:
    """All of it, no line wider than ``width``."""
    made = Page(max(20, width), colour=False)
    step = clean(report.step, 200)
    if report.loader is not None:
        step += f" on {clean(report.loader, 200)}"
    on_gpu, last = report.device != "cpu", report.results[0].points[-1]
    what = "GPU memory" if on_gpu else "Host memory (the step ran on the CPU)"
    made.say(
        f"{what} of {step} on {report.device}: {clean(report.device_name, 120)}, "
        f"{size(last.total_bytes)}{' by --limit' if report.limit_bytes else ''}, "
        f"{size(last.available_bytes)} available"
    )
    made.gap()
    for series in report.results:
        if series.precision != AS_IS:
            made.say(f"With {series.precision} autocast around the step")
        if series.points:
            made.items(_columns(on_gpu), series.points)
            made.gap()
        fit = fit_line(series.points)
        if fit is not None:
            if series.precision == AS_IS and fit.quality is not None:
                cells = min(made.width, CHART_CELLS_MOST)
                made.lines += memory_chart(
                    series.points, fit, width=cells, height=CHART_ROWS, unicode=unicode
                )
                made.gap()
            made.say(line(fit))
            made.say(quality(fit))
            made.say(series.stopped or "")
        made.say(outcome(series))
        made.gap()
    for change in differences(report):
        made.say(change)
    made.gap()
    made.say("Interrupted: this was measured so far." if report.interrupted else "")
    return made.text(unicode) + "\n"


def _columns(on_gpu: bool) -> tuple[Column[MemoryPoint], ...]:
    return (
        Column("batch", lambda one: str(one.batch_size)),
        Column("tensors", lambda one: size(one.allocated_bytes), rank=3),
        Column("reserved" if on_gpu else "resident", lambda one: size(one.peak_bytes)),
        Column("process", lambda one: size(one.process_bytes), rank=4),
        Column("device", lambda one: size(one.device_used_bytes), rank=4),
        Column("per step", lambda one: units.duration(one.seconds_per_step), rank=2),
        Column("samples/s", lambda one: units.samples(one.batch_size / one.seconds_per_step)
               if one.seconds_per_step else "-", rank=1),
    )  # fmt: skip
