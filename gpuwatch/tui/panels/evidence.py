"""Evidence for a finding and against it, and the other causes that were ruled out: on the page of
the finding, and in the report of a job."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Evidence, RuledOut
from gpuwatch.outputs.report.document import evidence_limit, evidence_value
from gpuwatch.outputs.terminal import Column
from gpuwatch.tui.pages.layout import Title, edge
from gpuwatch.tui.panels.findings import cause, how_to_read
from gpuwatch.tui.panels.table import add_cells, add_headings
from gpuwatch.tui.terminal.frame import Line, Row, width_of, wrapped
from gpuwatch.tui.view import View

LIMITED = 60
"""Width from which on evidence has a column for limits, and the list says how sure a finding is."""
_LEAST_NAME, _LEAST_MEANING = 24, 24
_WORDS = {"correlation"}
_INDENT = 3


def heading(view: View, text: str, width: int, note: str = "") -> list[Line]:
    return edge(view.glyphs, width, Title(text, (), note))[0]


def paragraph(text: str, width: int, indent: int = _INDENT, style: str = "text") -> Iterator[Line]:
    for line in wrapped(text, width - indent - 1):
        yield Row(width).add(" " * indent).add(line, style).line()


def legend(evidence: Sequence[Evidence]) -> str:
    """Return what the signs before the readings say."""
    unread = "   ? not read" if any(one.value is None for one in evidence) else ""
    return f"+ speaks for it   - does not{unread}"


def table(view: View, evidence: Sequence[Evidence], width: int, gpu: str = "") -> Iterator[Line]:
    """Yield a row for each reading: its value, where the limit lies, and what it means; without the
    name of the ``gpu`` that the finding is about, where all are of it."""
    if not evidence:
        return
    # Words beside numbers would push all of them aside.
    evidence = [
        replace(one, name=f"{one.name}, {one.unit}", unit=None) if one.unit in _WORDS else one
        for one in evidence
    ]
    said = f"{gpu} " if all(one.name.startswith(f"{gpu} ") for one in evidence) else ""

    def name(one: Evidence) -> list[str]:
        return wrapped(clean(one.name.removeprefix(said), 60), cells) or [""]

    cells = 60
    columns: list[Column[Evidence]] = [
        Column("reading", lambda one: name(one)[0], "text", style=lambda *_: "text"),
        Column("value", lambda one: clean(evidence_value(one), 200), style=lambda *_: "value"),
        Column("limit", lambda one: clean(evidence_limit(one), 200), style=lambda *_: "label"),
    ]
    names, values, bounds = [max(width_of(c.cell(one)) for one in evidence) for c in columns]
    if width < LIMITED:
        columns, bounds = columns[:2], 0
    else:
        bounds = max(5, bounds)
    room = width - 8 - max(5, values) - bounds - 2 * len(columns)
    # Long names are broken for what it means, which stands below where that is not enough.
    beside = room - min(names, _LEAST_NAME) >= _LEAST_MEANING
    cells = min(names, room - _LEAST_MEANING if beside else max(8, room))
    widths = (cells, max(5, values), bounds)
    columns = [one._replace(width=wide) for one, wide in zip(columns, widths, strict=False)]
    row = Row(width).add("     ")
    add_headings(row, columns, style="dim", gap="  ")
    yield row.add("meaning" if beside else "", "dim").line()
    for one in evidence:
        # For or against, by sign: the colour only repeats it.
        sign = "?" if one.value is None else "+" if one.supports else "-"
        mark = (f"{sign} ", "key" if one.supports else "label")
        row = Row(width).add(" " * _INDENT).add(*mark)
        add_cells(row, columns, one, view.glyphs.ellipsis, "  ")
        indent = row.used
        says = one.says + (how_to_read(one.name) if one.value is None else "")
        first, *rest = (wrapped(says, width - indent - 1) if beside else []) or [""]
        yield row.add(first).line()
        for part, text in zip_longest(name(one)[1:], rest, fillvalue=""):
            yield Row(width).add(" " * (_INDENT + 2)).add(part).pad_to(indent).add(text).line()
        if not beside:
            yield from paragraph(says, width, 7, "label")


def reasons(known: Sequence[RuledOut], width: int) -> Iterator[Line]:
    """Yield other causes and why it is none of them, quieter than what speaks for the finding."""
    start = _INDENT + 2 + max([width_of(cause(one.rule)) for one in known], default=0)
    for one in known:
        if width < LIMITED:
            yield from paragraph(f"{cause(one.rule)}: {one.why}", width, style="label")
            continue
        first, *rest = wrapped(one.why, width - start - 1) or [""]
        row = Row(width).add(" " * _INDENT).add(cause(one.rule), "dim").pad_to(start)
        yield row.add(first, "label").line()
        for text in rest:
            yield Row(width).pad_to(start).add(text, "label").line()
