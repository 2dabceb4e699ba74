"""The report of ``gpuwatch tune memory``, as text for a person and as JSON."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

import msgspec
from msgspec import structs

from gpuwatch import __version__
from gpuwatch.core.text import clean
from gpuwatch.core.units import UNKNOWN
from gpuwatch.outputs.terminal.table import Column, table
from gpuwatch.outputs.tuning import memory_words as words
from gpuwatch.outputs.tuning.chart import memory_chart
from gpuwatch.outputs.tuning.memory_words import size
from gpuwatch.outputs.tuning.text import number
from gpuwatch.tuning.memory.records import (
    AS_IS,
    MemoryPoint,
    MemoryReport,
    PrecisionResult,
    Subject,
)

SCHEMA = 2
CHART_ROWS = 14
CHART_CELLS_MOST = 100
_ASCII = str.maketrans({"±": "+-", "²": "2", "…": "~"})
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
        "differences": list(words.differences(report)),
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def _result_object(result: PrecisionResult) -> dict[str, Any]:
    fit = result.fit
    return {
        **structs.asdict(result),
        "fit": None if fit is None else {**structs.asdict(fit), "says": words.quality(fit)},
        "says": words.outcome(result),
    }


def page(report: MemoryReport, *, width: int, unicode: bool) -> str:
    """All of it, no line wider than ``width``."""
    plain = report.results[0]
    lines = [*_wrapped(heading(report.subject, plain), width), ""]
    first = words.headline(plain)
    lines += [*_wrapped(first, width), ""] if first else []
    for result in report.results:
        lines += _result(result, report.subject, width, unicode)
    changes = list(words.differences(report))
    for change in changes:
        lines += _wrapped(change, width)
    lines += [""] if changes else []
    lines += _wrapped(ENDED[report.ended], width) if report.ended else []
    text = "\n".join(lines).rstrip() + "\n"
    return text if unicode else text.translate(_ASCII)


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


def _result(result: PrecisionResult, subject: Subject, width: int, unicode: bool) -> Iterator[str]:
    if result.precision != AS_IS:
        yield f"With {result.precision} autocast around the step"
    if result.points:
        yield from _table(result.points, subject, width)
        yield ""
    sentences: list[str] = []
    if result.fit is not None:
        if result.precision == AS_IS and len(result.fit.sizes) > 2:
            cells = min(width, CHART_CELLS_MOST)
            yield from memory_chart(result, width=cells, height=CHART_ROWS, unicode=unicode)
            yield ""
        yield words.line(result.fit)
        sentences.append(words.quality(result.fit))
    if result.stopped and result.points:
        sentences.append(result.stopped)
    for sentence in (*sentences, words.outcome(result)):
        yield from _wrapped(sentence, width)
    yield ""


def _table(points: Sequence[MemoryPoint], subject: Subject, width: int) -> list[str]:
    """One row for each batch size. Columns with nothing in them are left out."""
    columns: tuple[Column[MemoryPoint], ...] = (
        Column("batch", lambda one: str(one.batch_size)),
        Column("tensors", lambda one: size(one.allocated_bytes), rank=3),
        Column("reserved" if subject.is_gpu else "resident", lambda one: size(one.peak_bytes)),
        Column("process", lambda one: size(one.process_bytes) if subject.is_gpu else "-", rank=4),
        Column("device", lambda one: size(one.device_used_bytes), rank=4),
        Column("per step", lambda one: _milliseconds(one.seconds_per_step), rank=2),
        Column("samples/s", lambda one: number(one.samples_per_second), rank=1),
    )
    return table(columns, [[column.cell(one) for column in columns] for one in points], width)


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, max(20, width), break_on_hyphens=False)
