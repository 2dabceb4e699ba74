"""A finding in full as a pure drawing: what to do, the waveform that shows it, what speaks for and
against it, what was ruled out, and the rule's own documentation."""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gpuwatch.core import units
from gpuwatch.core.text import clean, paragraphs
from gpuwatch.diagnosis.finding import Advice, Evidence, Finding
from gpuwatch.tui.pages import waveform
from gpuwatch.tui.pages.finding_words import (
    cause,
    cost_sentence,
    lost,
    place,
    severity_sign,
    style_of,
    undecided,
    whose,
)
from gpuwatch.tui.pages.layout import EDGE, Drawn, Title, edge
from gpuwatch.tui.panels.job import charts as job_charts
from gpuwatch.tui.terminal.frame import Line, Row, blank, fit, left, plain, right, width_of, wrapped
from gpuwatch.tui.view import View

_COPY_WIDTH = 96


def title_lines(view: View, finding: Finding, width: int) -> list[Line]:
    """The sentence, and where it stands: rule, how sure, since when, what it cost."""
    style = style_of(finding)
    lines = []
    for number, text in enumerate(wrapped(finding.summary, width - 4)):
        mark = severity_sign(finding.severity, view.glyphs) if number == 0 else " "
        lines.append(Row(width).add(f" {mark} {text}", style).line())
    row = Row(width).add("  ")
    for text in _standing(view, finding):
        if row.used > 2 and row.room < width_of(text) + 2:
            lines.append(row.line())
            row = Row(width).add("  ")
        row.add(" " if row.used == 2 else "   ")
        row.add(fit(text, row.room - 1, view.glyphs.ellipsis), "label")
    return [*lines, row.line()]


def _standing(view: View, finding: Finding) -> list[str]:
    parts = [clean(finding.rule), f"{finding.confidence * 100:.0f}% sure"]
    since = finding.since_unix_seconds
    if since is not None:
        text = f"since {time.strftime('%H:%M:%S', time.localtime(since))}"
        if view.snapshot is not None:
            text += f" ({units.age(view.snapshot.taken_at_unix_seconds - since)})"
        parts.append(text)
    cost = cost_sentence(finding)
    parts += [] if cost is None else [f"cost {cost}"]
    who = whose(finding, () if view.snapshot is None else view.snapshot.jobs)
    return [*parts, who] if who else parts


def body(
    view: View,
    finding: Finding,
    width: int,
    *,
    charts: bool = True,
    documentation: str | None = None,
    until: float | None = None,
) -> Drawn:
    """All below the title; the charts end at ``until``, on the snapshots' own clock."""
    lines = [*_jobs(view, finding, width), *_advice(view, finding.advice, width)]
    drawn = waveform.draw(view, finding, width, until) if charts else []
    zones = job_charts.clicks(len(lines), len(drawn), width)
    lines += drawn
    lines += _evidence(view, finding.evidence, width)
    lines += _ruled_out(view, finding, width)
    lines += _not_checked(view, finding, width)
    if documentation:
        lines += _heading(view, f"about {clean(finding.rule)}", width)
        lines += _documentation(documentation, width)
    return lines, zones


def plain_text(view: View, finding: Finding) -> str:
    """The finding as text to paste somewhere; charts are left out."""
    host = "" if view.snapshot is None else f"{clean(view.snapshot.host.name)}, "
    where = place(finding, view.gpus)
    head = [f"gpuwatch: {host}{where}: {cause(finding.rule)}"]
    width = _COPY_WIDTH
    top = title_lines(view, finding, width)
    rest, _ = body(view, finding, width, charts=False)
    return "\n".join([*head, *[_plain(line) for line in (*top, *rest)]]) + "\n"


def _plain(line: Line) -> str:
    """As text; headings keep their words alone."""
    if line[0][1] != EDGE:
        return plain(line).rstrip()
    return "\n" + "".join([text for text, style in line if style != EDGE]).rstrip()


# -- sections -----------------------------------------------------------------------------


def _heading(view: View, text: str, width: int) -> list[Line]:
    return edge(view.glyphs, width, Title(text))[0]


def _paragraph(text: str, width: int, indent: int = 3, style: str = "text") -> Iterator[Line]:
    for line in wrapped(text, width - indent - 1):
        yield Row(width).add(" " * indent).add(line, style).line()


def _jobs(view: View, finding: Finding, width: int) -> Iterator[Line]:
    """Each job with what it loses and what to change there, where several have one cause."""
    if len(finding.members) < 2:
        return
    yield from _heading(view, "in each job" if finding.members[0].job else "on each GPU", width)
    jobs = () if view.snapshot is None else view.snapshot.jobs
    places = [place(one, view.gpus) for one in finding.members]
    for one, where in zip(finding.members, places, strict=True):
        row = Row(width).add("   ").add(left(where, max(map(width_of, places))))
        changed = ", ".join([clean(each.change) for each in one.advice if each.wanted is not None])
        for text, style in ((lost(one), "label"), (changed, "value"), (whose(one, jobs), "label")):
            if text and row.room > 3:
                row.add("  ").add(fit(text, row.room - 1, view.glyphs.ellipsis), style)
        yield row.line()


def _advice(view: View, advice: Sequence[Advice], width: int) -> Iterator[Line]:
    yield from _heading(view, "what to do", width)
    if not advice:
        yield from _paragraph("No action needed: this is for information.", width)
    for one in advice:
        yield from _paragraph(one.action, width, style="value")
        setting = clean(one.change) if one.setting is not None and one.wanted is not None else ""
        text = f"{setting}: {one.why}" if setting and one.why else setting or one.why
        if text:
            yield from _paragraph(text, width, 5, "label")


def _evidence(view: View, evidence: Sequence[Evidence], width: int) -> Iterator[Line]:
    if not evidence:
        return
    yield from _heading(view, "evidence", width)
    table = [
        (
            clean(one.name, 60),
            clean(units.quantity(one.value, one.unit), 200),
            "" if one.threshold is None else units.quantity(one.threshold, _short(one.unit)),
        )
        for one in evidence
    ]
    names, values, bounds = [max(map(width_of, texts)) for texts in zip(*table, strict=True)]
    roomy = width >= 76
    names = min(names, width // 3 if roomy else width - 16)
    values = min(max(5, values), width // 5)
    bounds = min(max(10, bounds), width // 6)
    ellipsis = view.glyphs.ellipsis
    if roomy:
        row = Row(width).add("     ").add(left("reading", names), "dim").add("  ")
        row.add(right("value", values), "dim").add("  ").add(right("threshold", bounds), "dim")
        yield row.add("  ").add("meaning", "dim").line()
    for one, (name, value, bound) in zip(evidence, table, strict=True):
        # For or against, by sign: the colour only repeats it.
        mark = ("+ ", "key") if one.supports else ("- ", "warn")
        row = Row(width).add("   ").add(*mark).add(left(name, names, ellipsis)).add("  ")
        row.add(right(value, values, ellipsis), "value")
        if not roomy:
            yield row.line()
            yield from _paragraph(one.says, width, 5, "label")
            continue
        row.add("  ").add(right(bound, bounds, ellipsis), "label").add("  ")
        indent = row.used
        first, *rest = wrapped(one.says, width - indent - 1) or [""]
        yield row.add(first).line()
        for text in rest:
            yield Row(width).add(" " * indent).add(text).line()


def _short(unit: str | None) -> str | None:
    """Beside the value, which has it in full."""
    return "%" if unit is not None and unit.startswith("%") else unit


def _ruled_out(view: View, finding: Finding, width: int) -> Iterator[Line]:
    if not finding.ruled_out:
        return
    yield from _heading(view, "ruled out", width)
    for one in finding.ruled_out:
        yield from _paragraph(f"{cause(one.rule)}: {one.why}", width)


def _not_checked(view: View, finding: Finding, width: int) -> Iterator[Line]:
    """Rules about the same that could not be decided."""
    mine = set(finding.gpus)
    unknown = [
        one
        for one in (() if view.diagnosis is None else view.diagnosis.unknown)
        if (one.job is not None and one.job == finding.job) or mine.intersection(one.gpus)
    ]
    if not unknown:
        return
    yield from _heading(view, "not checked", width)
    for missing, causes in undecided(unknown).items():
        hint = " (S on the job's screen samples them)" if missing.startswith("stacks") else ""
        text = f"{missing}{hint}: needed for {', '.join(causes)}"
        yield from _paragraph(text, width, style="label")


def _documentation(text: str, width: int) -> Iterator[Line]:
    """Headings stand out: what has something indented below it."""
    parts = [*paragraphs(text), ("", "")]
    for (indent, words), (below, _) in pairwise(parts):
        if not words:
            yield blank(width)
            continue
        heading = not indent and below.startswith(" ")
        yield from _paragraph(words, width, 5 if indent else 3, "text" if heading else "label")
