"""Report of a job as the screen writes it: the document that ``gpuwatch report`` prints, with the
dashboard's own charts."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from gpuwatch.core.store import bucket_index
from gpuwatch.core.text import clean
from gpuwatch.outputs import terminal
from gpuwatch.outputs.report import document, text
from gpuwatch.outputs.report.document import Document, Found, Group, Paragraph, Timeline, ToDo
from gpuwatch.outputs.report.model import Report, TimeProfile
from gpuwatch.tui.charts.strips import Column, Held, TimeWindow
from gpuwatch.tui.charts.timeline import FindingMark
from gpuwatch.tui.pages.layout import Title, edge
from gpuwatch.tui.panels import evidence, job_charts, time_axis
from gpuwatch.tui.panels.findings import (
    SEVERITY_STYLES,
    changes,
    gains,
    rule_of,
    severity_sign,
    shorter_and_shorter,
)
from gpuwatch.tui.panels.findings import (
    cause as cause_of,
)
from gpuwatch.tui.panels.gpus import FED, held_up
from gpuwatch.tui.panels.job_charts import Trace
from gpuwatch.tui.terminal.frame import Line, Row, blank, fit, to_ascii, width_of, wrapped
from gpuwatch.tui.view import View

# -- the document ----------------------------------------------------------------------------------


_LOOKS_OF = {"verdict": "title", "why": "text", "bad": "error", "warn": "label", "command": "text"}
"""Styles of the paragraphs that are not as on a terminal."""


_TITLE_ENDS = 34
"""Cells of a page's title around the command, at most."""


def draw(view: View, made: Document, width: int) -> list[Line]:
    """Draw the whole document in lines of ``width`` cells. It begins as other pages do, with what
    it is of, each finding, what was lost and what to change; advice in full is with the
    evidence."""
    blocks = [block for section in made.sections for block in section.blocks]
    report = next((one.report for one in blocks if isinstance(one, Timeline)), None)
    found = {f"#{one.number}": one for one in (() if report is None else document.groups(report))}
    about = [one for one in made.sections if one.title == document.ABOUT]
    lines = [line for one in about for line in _about(view, one.blocks, width)]
    for place, section in enumerate(made.sections):
        if section in about:
            continue
        if any(isinstance(one, Timeline) for one in section.blocks):
            for block in section.blocks:
                lines += _over_time(view, block, width) if isinstance(block, Timeline) else ()
            continue
        name = section.title
        if place:
            name = name if name[:2].isupper() else name[0].lower() + name[1:]
            signs = any(isinstance(one, Found) and one.evidence for one in section.blocks)
            note = evidence.legend(()) if signs else ""
            lines += edge(view.glyphs, width, Title(name, (), note))[0]
        elif report is not None and any(isinstance(one, ToDo) for one in section.blocks):
            lines += _head(view, report, list(found.values()), section.blocks, width)
            continue
        for block in section.blocks:
            if isinstance(block, Paragraph) and block.style in _LOOKS_OF:
                lines += _wrapped(block.text, width, 1, _LOOKS_OF[block.style])
            elif isinstance(block, Found) and block.name in found:
                lines += _reasons(view, found[block.name], width)
            else:
                lines += _in_words(view, block, width)
    return lines


def _about(view: View, blocks: Sequence[document.Block], width: int) -> Iterator[Line]:
    """Yield what ran, when and where; the command only where the title of the page has no room for
    it."""
    for block in blocks:
        if isinstance(block, Paragraph):
            if block.style != "command" or width_of(block.text) + _TITLE_ENDS > width:
                yield from _wrapped(block.text, width, _INDENT, "text")
        elif isinstance(block, document.FactLine):
            yield from _wrapped(
                f" {view.glyphs.dot} ".join(filter(None, block.facts)), width, _INDENT, "label"
            )
        else:
            yield from _in_words(view, block, width)


_INDENT = 3


def _head(
    view: View,
    report: Report,
    found: Sequence[Group],
    blocks: Sequence[document.Block],
    width: int,
) -> Iterator[Line]:
    """Yield that the job failed, the findings, and quietly what else is said of it."""
    said = [one for one in blocks if isinstance(one, Paragraph)]
    for one in said:
        if one.style == "bad":
            yield from _wrapped(one.text, width, 1, "error")
    for group in found:
        if group.cause.advice or group.cost:
            yield from _finding(view, group, width)
    verdict, rest = document.verdict(report), [one for one in said if one.style != "bad"]
    # How much of the run was watched belongs to how busy it was.
    words = [document.besides_findings(report) if one.text == verdict else one.text for one in rest]
    yield from _wrapped(" ".join(words), width, _INDENT, "text")


def _finding(view: View, group: Group, width: int) -> Iterator[Line]:
    """Yield its sentence, and below it what to change, what that gains and what was lost; of one
    that did not hold all the time, when it did."""
    one, look = group.cause, SEVERITY_STYLES.get(group.severity, "warn")
    row = Row(width).add(f" {severity_sign(group.severity, view.glyphs)} ", look)
    forms = list(shorter_and_shorter(one, view.gpus, ""))[:-1]
    text = next((form for form in forms if width_of(form) < row.room), forms[-1])
    first, *rest = wrapped(text, row.room - 1)
    yield row.add(first, look).line()
    for line in rest:
        yield Row(width).add(f"   {line}", look).line()
    cost, gained = clean(group.cost_words()), gains(one) if group.is_of_all_time else []
    row = Row(width).add("   ")
    brief = f"  {gained[-1]}" if gained else ""
    loss = f"  lost {cost}" if cost else ""
    free = row.room - 1 - width_of(brief)
    changed = changes(one, free - width_of(loss)) or "no action needed"
    if width_of(changed) + width_of(loss) > free:
        changed = changes(one, free) or changed
    first, *rest = wrapped(changed, row.room - 1)
    row.add(first, "value")
    for line in rest:
        yield row.line()
        row = Row(width).add("   ").add(line, "value")
    if gained and row.room <= width_of(brief):
        yield row.line()
        row = Row(width).add(" ")
    # Less of the gain gives what was lost its room on the line.
    fitting = [gain for gain in gained if width_of(gain) + 2 < row.room]
    both = [gain for gain in fitting if width_of(gain) + 2 + width_of(loss) < row.room]
    longest = next(iter([*both, *fitting]), "")
    row.add(f"  {longest}" if longest else "", "label")
    if row.room <= width_of(loss):
        yield row.line()
        row = Row(width).add(" ")
    yield row.add(loss, "label").line()
    if not group.is_of_all_time:
        gain = group.gain_words()
        words = [group.when(), *([f"gain: {gain}"] if gain else [])]
        yield from _wrapped("; ".join(words), width, 3, "label")


def _reasons(view: View, group: Group, width: int) -> Iterator[Line]:
    """Yield what the head of the page does not say of a finding: each of its jobs, what to do in
    full, and what speaks for it, as on the page of the finding, which has the reasons of what was
    ruled out."""
    found, cause = group.found(), group.cause
    # The head of the page has its colour already.
    row = _headed(view, found, width, "title")
    about = f"  {found.sure} sure  {found.when}"
    yield row.add(fit(about, row.room - 1, view.glyphs.ellipsis), "label").line()
    for words in found.what[1:]:
        yield from _wrapped(words, width, _INDENT, "label")
    yield from evidence.table(view, [one for one in cause.evidence if one.value is not None], width)
    ruled_out = ", ".join([cause_of(one.rule) for one in cause.ruled_out if not one.symptom])
    labels = [("what to do", one.text) for one in found.advice]
    labels += [("also seen", one) for one in found.also_seen]
    labels += [("ruled out", ruled_out)] if ruled_out else []
    before = ""
    for label, words in labels:
        yield from _labelled("" if label == before else label, words, width)
        before = label


_LABEL = 12


def _labelled(label: str, words: str, width: int) -> Iterator[Line]:
    """Yield words behind their label, below each other."""
    start = _INDENT + _LABEL
    for place, one in enumerate(wrapped(clean(words), width - start - 1)):
        row = Row(width).add(" " * _INDENT).add("" if place else label, "dim")
        yield row.pad_to(start).add(one, "label").line()


def _wrapped(words: str, width: int, indent: int, style: str) -> Iterator[Line]:
    for one in wrapped(clean(words), width - indent - 1):
        yield Row(width).add(" " * indent).add(one, style).line()


def _headed(view: View, found: Found, width: int, style: str = "") -> Row:
    """Begin a line with a finding's sign and cause."""
    look = SEVERITY_STYLES.get(found.severity, "warn")
    row = Row(width).add(f" {severity_sign(found.severity, view.glyphs)} ", look)
    return row.add(clean(found.cause), style or look)


_STYLES = {
    terminal.BOLD: "title",
    terminal.DIM: "label",
    terminal.RED: "error",
    terminal.YELLOW: "warn",
    terminal.CYAN: "key",
}
_SEQUENCE = re.compile(r"(\x1b\[[0-9;]*m)")


def _in_words(view: View, block: document.Block, width: int) -> Iterator[Line]:
    """Yield the block as text, in the colours that it has on a terminal; findings and headings of
    tables as other pages have them."""
    indent = 1 if isinstance(block, document.Table) else _INDENT
    page = terminal.Page(width - 1 - indent, colour=True)
    if isinstance(block, Found):
        row = _headed(view, block, width)
        yield row.add(fit(f"  {block.when}", row.room - 1, view.glyphs.ellipsis), "label").line()
        text.write_details(page, block)
    else:
        text.write_block(page, block)
    for number, line in enumerate(page.lines):
        heading = number == 0 and isinstance(block, document.Table)
        quiet = heading or isinstance(block, document.Labelled)
        row, style = Row(width, prefix="b:" if heading else "").add(" " * indent), "text"
        for part in _SEQUENCE.split(line):
            if _SEQUENCE.fullmatch(part):
                style = _STYLES.get(part, "text")
                style = "label" if quiet and style == "title" else style
            else:
                shown = clean(part)
                row.add(to_ascii(shown) if view.glyphs.is_ascii else shown, style)
        yield row.line()


# -- the charts ------------------------------------------------------------------------------------


class Profile:
    """Time profile of a report as a series of charts; ``begin`` is the time of its first bucket."""

    def __init__(self, profile: TimeProfile, begin: float, bucket_seconds: float) -> None:
        self._profile, self._begin, self._seconds = profile, begin, bucket_seconds

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        """Return the last ``count`` columns up to the one that holds ``end``, oldest first."""
        last = bucket_index(end, column_seconds)
        return [
            self._column(number * column_seconds, (number + 1) * column_seconds)
            for number in range(last - count + 1, last + 1)
        ]

    def _column(self, begin: float, end: float) -> Column | None:
        first = max(0, int((begin - self._begin) // self._seconds))
        stop = max(0, ceil((end - self._begin) / self._seconds - 1e-6))
        one = self._profile
        parts = [values[first:stop] for values in (one.minimum, one.mean, one.maximum)]
        known = [
            (low, mean, high)
            for low, mean, high in zip(*parts, strict=True)
            if low is not None and mean is not None and high is not None
        ]
        if not known:
            return None
        lows, means, highs = zip(*known, strict=True)
        return min(lows), sum(means) / len(means), max(highs)


_CHARTS = {"waits for data": "wait", "loader workers": "worker", "main thread": "main"}
_HUES = {"wait": "starved"}
_LOW, _EACH = 2, 1
_WIDE = 100
"""Width from which on the charts of GPUs have more rows."""
_EACH_SHOWN = 16


def _over_time(view: View, made: Timeline, width: int) -> list[Line]:
    """Draw the GPUs, who fed them, and when each finding held, on one time axis."""
    time = made.report.time
    longest = [one.profile.mean for one in (*made.gpus, *made.others) if one.profile]
    longest += [made.cpu.profile.mean] if made.cpu is not None and made.cpu.profile else []
    seconds = time.bucket_seconds * max(map(len, longest), default=0)
    if seconds <= 0:
        return []
    begin = time.begin_unix_seconds
    marks = tuple(_marks(made))
    # The report's own findings colour its charts.
    view = replace(view, spans=marks)
    high = 4 if width >= _WIDE or len(made.gpus) == 1 else 2
    shown = list(_traces(view, made, begin, high))
    window = TimeWindow(begin + seconds, seconds, end=begin + seconds - 1e-3)
    lines = [*edge(view.glyphs, width, Title("over time"))[0]]
    lines += job_charts.draw(view, shown, window, width)
    lead, cells = job_charts.span(width)
    grid = window.grid(max(1, cells))
    for lane in made.lanes if len(made.lanes) > 1 else ():
        held = [
            (lane.severity, grid.place(one.begin_unix_seconds), grid.place(one.end_unix_seconds))
            for one in lane.stretches
        ]
        name = fit(clean(lane.cause), lead - 4, view.glyphs.ellipsis)
        row = Row(width).add("  ").add(name, "label")
        row.pad_to(lead - 1).add(view.glyphs.axis, "rule")
        for cell in time_axis.mark_cells(held, cells, view.glyphs):
            row.add(*(cell or (" ", "text")))
        lines.append(row.line())
    # Which of several findings held when is said above it; one stands on it, as on other pages.
    single = made.lanes[0] if len(made.lanes) == 1 else None
    name = "" if single is None else fit(clean(single.cause), lead - 4, view.glyphs.ellipsis)
    row = Row(width).add("  ").add(name, "label").pad_to(lead)
    on_axis = () if single is None else marks
    for words, style in time_axis.axis(on_axis, window, cells, 0.0, view.glyphs):
        row.add(words, style)
    return [*lines, row.line()]


def _marks(made: Timeline) -> Iterator[FindingMark]:
    for use in made.report.findings:
        for one in use.stretches:
            yield FindingMark(
                rule=use.rule,
                severity=use.severity,
                summary=use.summary,
                gpus=use.gpus,
                late=use.late,
                loses_time=bool(use.cost_gpu_seconds),
                begin_seconds=one.begin_unix_seconds,
                end_seconds=one.end_unix_seconds,
            )


def _traces(view: View, made: Timeline, begin: float, high: int) -> Iterator[tuple[Trace, int]]:
    """Yield the charts and how high each is: of many GPUs all together (``high``), then a row for
    each."""
    bucket = made.report.time.bucket_seconds
    gpus = [
        (row, gpu.uuid) for row, gpu in zip(made.gpus, made.report.gpus, strict=True) if row.profile
    ]

    def trace(row: document.Row, style: str, held: Sequence[Held] | None = None) -> Trace:
        assert row.profile is not None
        series = Profile(row.profile, begin, bucket)
        label = row.label if held is None else f"{row.label} busy"
        top = f"{row.top:.0f}"
        return Trace("report", label, row.short, row.end, style, series, row.top, top, held=held)

    several = len(gpus) > 2
    if several:
        mean = text.mean_profile([row.profile for row, _ in gpus if row.profile])
        busy = made.report.total.busy_percent
        end = "" if busy is None else f"{busy:.0f}%"
        name = f"all {len(gpus)} GPUs"
        together = document.Row(name, f"{len(gpus)} gpus", "", mean, end, "")
        yield trace(together, FED.hue, held_up(view, *[uuid for _, uuid in gpus])), high
    for row, _ in gpus[:_EACH_SHOWN]:
        held = [
            Held(one.stretch.begin_unix_seconds, one.stretch.end_unix_seconds, one.hue, one.of_busy)
            for one in row.marks
        ]
        yield trace(row, FED.hue, held), _EACH if several else high
    findings = made.report.findings
    named = rule_of(findings[0].rule).charts if findings else ()
    for row in (*made.others, *([] if made.cpu is None else [made.cpu])):
        chart = _CHARTS.get(row.label, "")
        style = _HUES.get(chart, chart) if chart in named else job_charts.QUIET
        if row.profile:
            yield trace(row, style), _LOW


def nothing(width: int, says: str) -> list[Line]:
    """Return the report while there is none."""
    return [blank(width), Row(width).add(f" {says}", "label").line()]
