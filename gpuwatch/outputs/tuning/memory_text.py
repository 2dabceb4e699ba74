"""The report of ``gpuwatch tune memory`` for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from gpuwatch.core.text import clean
from gpuwatch.core.units import UNKNOWN
from gpuwatch.outputs.tuning.memory_chart import chart
from gpuwatch.tuning.memory import words
from gpuwatch.tuning.memory.point import AS_IS, MemoryPoint
from gpuwatch.tuning.memory.report import MemoryReport, PrecisionResult, Subject
from gpuwatch.tuning.memory.words import size

CHART_ROWS = 14
ENDED = {
    "interrupted": "Interrupted: this was measured until then.",
    "budget": "Out of time (--budget): this was measured until then.",
}


def page(report: MemoryReport, *, width: int, unicode: bool) -> str:
    """All of it, no line wider than ``width`` but the table."""
    lines: list[str] = [*_wrapped(heading(report.subject, report.plain), width), ""]
    first = None if report.plain is None else words.headline(report.plain)
    if first is not None:
        lines += [*_wrapped(first, width), ""]
    for result in report.results:
        lines += _result(result, report.subject, width, unicode)
    changes = list(words.differences(report))
    for change in changes:
        lines += _wrapped(change, width)
    if changes:
        lines.append("")
    if report.ended:
        lines += [*_wrapped(ENDED[report.ended], width), ""]
    text = "\n".join(lines).rstrip() + "\n"
    return text if unicode else text.replace("±", "+-").replace("²", "2").replace("…", "~")


def heading(subject: Subject, plain: PrecisionResult | None) -> str:
    step = clean(subject.step, 200)
    if subject.loader is not None:
        step += f" on {clean(subject.loader, 200)}"
    last = plain.points[-1] if plain is not None and plain.points else None
    room = "" if last is None else f", {size(last.total_bytes)}"
    if subject.limit_bytes is not None:
        room += " by --limit"
    if last is not None:
        room += f", {size(last.available_bytes)} available"
    where = f"{subject.device}: {clean(subject.device_name, 120)}{room}"
    what = "GPU memory" if subject.is_gpu else "Host memory (the step ran on the CPU)"
    return f"{what} of {step} on {where}"


def _result(result: PrecisionResult, subject: Subject, width: int, unicode: bool) -> Iterator[str]:
    if result.precision != AS_IS:
        yield f"With {result.precision} autocast around the step"
    if result.points:
        yield from table(result.all_points, subject)
        yield ""
    if result.fit is not None:
        if result.precision == AS_IS and result.fit.freedom > 0:
            yield from chart(result, width=min(width, 100), height=CHART_ROWS, unicode=unicode)
            yield ""
        yield words.line(result.fit)
        yield from _wrapped(words.quality(result.fit), width)
        for sentence in words.allocator(result):
            yield from _wrapped(sentence, width)
    if result.stopped and result.points:
        yield from _wrapped(result.stopped, width)
    yield from _wrapped(words.outcome(result), width)
    yield ""


def table(points: Sequence[MemoryPoint], subject: Subject) -> Iterator[str]:
    """One row for each batch size. Columns that nobody filled are left out."""
    columns = [
        ("batch", [str(one.batch_size) for one in points]),
        ("tensors", [size(one.allocated_bytes) for one in points]),
        ("reserved" if subject.is_gpu else "resident", [size(one.peak_bytes) for one in points]),
        ("process", [size(one.process_bytes) for one in points] if subject.is_gpu else []),
        ("device", [size(one.device_used_bytes) for one in points]),
        ("a step", [_milliseconds(one.seconds_per_step) for one in points]),
        ("samples/s", [_number(one.samples_per_second) for one in points]),
    ]
    shown = [(name, cells) for name, cells in columns if any(cell != UNKNOWN for cell in cells)]
    widths = [max(len(name), *(len(cell) for cell in cells)) for name, cells in shown]
    yield "  ".join(name.rjust(w) for (name, _), w in zip(shown, widths, strict=True))
    for row in zip(*(cells for _, cells in shown), strict=True):
        yield "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, max(20, width), break_on_hyphens=False)
