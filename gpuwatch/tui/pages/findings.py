"""The pages of findings: all to choose from, and each in full.

In full are what to do, the waveform that shows it, what speaks for and against it, what was ruled
out, and the rule's own documentation.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from textual.binding import BindingType

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, Job
from gpuwatch.core.text import clean, paragraphs
from gpuwatch.diagnosis.finding import Evidence, Finding, FindingKey
from gpuwatch.outputs.terminal import Column
from gpuwatch.tui.charts.strips import TimeWindow
from gpuwatch.tui.charts.timeline import span_in
from gpuwatch.tui.keys import (
    EVIDENCE_FOOTER,
    EVIDENCE_KEYS,
    FINDINGS_FOOTER,
    FINDINGS_KEYS,
    bindings,
)
from gpuwatch.tui.pages.layout import EDGE, Drawn, Frame, Title, abreast, edge, filled, has_boxes
from gpuwatch.tui.pages.screen import (
    CursorPlace,
    ListScreen,
    ScrolledScreen,
    SheetBody,
    draw_sheet,
)
from gpuwatch.tui.panels import job_charts, time_axis
from gpuwatch.tui.panels.findings import (
    at_length,
    cause,
    cause_of,
    chosen_finding,
    finding_holds,
    findings_of_ended_job,
    lost,
    lost_sentence,
    mark_line,
    parts,
    place,
    present_findings,
    readable_findings,
    rule_of,
    severity_sign,
    style_of,
    sure,
    whose,
    worth_saying,
)
from gpuwatch.tui.panels.table import add_cells, add_headings
from gpuwatch.tui.panels.time_axis import shown_gpu
from gpuwatch.tui.runs import find_job
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Zone,
    blank,
    fit,
    left,
    plain,
    width_of,
    wrapped,
)
from gpuwatch.tui.view import View

# -- the waveform: the GPUs, who feeds them, and the reading that the rule names -------------------


_LEAST_CHART_SECONDS = 60.0
_ALL_SHOWN = 2
"""Number of GPUs up to which each has a chart of its own."""
_TALL, _TALLEST = 30, 45
"""Rows of a page from which on its charts are higher."""
_AFTER_LOSS = 0.2
"""Share of the range that is from after a GPU was lost."""


class _Rows(NamedTuple):
    """Rows of the charts: of how busy a GPU is, of how busy all are, of what else shows it."""

    gpu: int
    spread: int
    other: int


def _chart_rows(tall: int) -> _Rows:
    """Return how high charts are on a page of ``tall`` rows: on the smallest the table of the
    evidence begins in sight."""
    return _Rows(2, 1, 1) if tall < _TALL else _Rows(3, 2, 2) if tall < _TALLEST else _Rows(6, 4, 3)


def _draw_waveform(
    view: View, finding: Finding, width: int, tall: int, until: float | None
) -> list[Line]:
    """Draw the GPUs named, who feeds them, and what else shows it, on one time axis."""
    one = _representative(finding)
    job = _job_of(view, one)
    gpus = _gpus_shown(view, finding, job)
    if view.snapshot is None or (not gpus and job is None):
        return []
    span = job_charts.span(width)
    view.chart_columns = max(1, span[1])
    if view.own_range:
        # Charts and the numbers beside them are of the same time.
        seconds = own_span(view, finding)
        view = replace(view, timeline=replace(view.timeline, span_seconds=seconds))
    window, end = view.window, until
    gpus = [shown_gpu(view, gpu) for gpu in gpus]
    if gpus and view.own_range and all(gpu.lost for gpu in gpus):
        # What was before tells more than the nothing since.
        end = _begin(view, finding) + _AFTER_LOSS * window.span_seconds
    if end is not None:
        window = replace(window, now=min(window.now, end))
    shown = _traces(view, finding, one, gpus, job, _chart_rows(tall))
    if until is not None:
        shown = [(job_charts.of_the_past(trace), rows) for trace, rows in shown]
    lines = job_charts.draw(view, shown, window, width)
    lines.append(time_axis.draw(view, window, [span], width)[0])
    words = _span_words(window, end is not None)
    if job is not None and len({each.job for each in parts(finding)}) > 1:
        words += f"; threads of PID {job.pid}"
    begin = _begin(view, finding)
    since = (
        f"found {time_axis.clock(view, begin)}" if begin > window.now - window.span_seconds else ""
    )
    return [*_heading(view, words, width, since), *lines]


def _traces(
    view: View, finding: Finding, one: Finding, gpus: Sequence[Gpu], job: Job | None, high: _Rows
) -> list[tuple[job_charts.Trace, int]]:
    """Return the charts and how high each is. Of many GPUs one stands for all, that of the job of
    ``one``, beside the one that they wait for, with the spread of all of them below."""
    several = len(gpus) > _ALL_SHOWN
    alone = gpus
    if several:
        late = [gpu for gpu in gpus if gpu.uuid in one.late][:1]
        own = [gpu for gpu in gpus if gpu.uuid in one.gpus and gpu not in late]
        alone = [*(own or gpus)[:1], *late]
    shown = [(trace, high.gpu) for trace in job_charts.gpu_traces(view, alone, with_state=True)]
    if several:
        shown.append((job_charts.spread_trace(view, gpus), high.spread))
    others = job_charts.evidence(view, finding, alone, job)
    return [*shown, *[(trace, high.other) for trace in others]]


def _representative(finding: Finding) -> Finding:
    """Return the finding of the job that loses most, where it is one of several."""
    return max(parts(finding), key=lambda one: one.cost_gpu_seconds or 0.0)


def _begin(view: View, finding: Finding) -> float:
    """Return since when the finding holds, on the snapshots' own clock."""
    snapshot, since = view.snapshot, finding.since_unix_seconds
    if snapshot is None or since is None:
        return view.window.now
    return snapshot.monotonic_seconds - (snapshot.taken_at_unix_seconds - since)


def own_span(view: View, finding: Finding) -> float:
    """Return how many of the seconds watched show the finding: as many as all charts do, but where
    it takes longer to be seen."""
    seconds = rule_of(finding.rule).chart_seconds
    if seconds <= _LEAST_CHART_SECONDS or view.diagnosis is None:
        return view.timeline.span_seconds
    return min(seconds, max(_LEAST_CHART_SECONDS, view.diagnosis.watched_seconds))


def _span_words(window: TimeWindow, gone: bool) -> str:
    words = span_in(window.span_seconds, (" seconds", " minutes", " hours"))
    if window.end is not None and window.end < window.now:
        return f"{words} of the past"
    return f"its last {words}" if gone else f"the last {words}"


def _job_of(view: View, finding: Finding) -> Job | None:
    if finding.job is None or view.snapshot is None:
        return None
    last = view.job.last
    there = find_job(view.snapshot.jobs, finding.job)
    return last if there is None and last is not None and last.key == finding.job else there


def _gpus_shown(view: View, finding: Finding, job: Job | None) -> list[Gpu]:
    wanted = finding.gpus or (() if job is None else job.gpu_uuids)
    return [gpu for gpu in view.gpus if gpu.uuid in wanted]


def _first_gpu(view: View, finding: Finding) -> Gpu | None:
    return next(iter(_gpus_shown(view, finding, _job_of(view, finding))), None)


# -- one in full -----------------------------------------------------------------------------------


_COPY_WIDTH = 96


def _evidence_title(
    view: View, finding: Finding, width: int, until: float | None = None
) -> list[Line]:
    """Return the sentence, and where it stands: how sure, since when, up to ``until`` on the
    snapshots' own clock, what is lost."""
    style = style_of(finding)
    lines = []
    for number, text in enumerate(wrapped(finding.summary, width - 4)):
        mark = severity_sign(finding.severity, view.glyphs) if number == 0 else " "
        lines.append(Row(width).add(f" {mark} {text}", style).line())
    row = Row(width).add("  ")
    for text in _standing(view, finding, until):
        if row.used > 2 and row.room < width_of(text) + 4:
            lines.append(row.line())
            row = Row(width).add("  ")
        row.add(" " if row.used == 2 else "   ")
        row.add(fit(text, row.room - 1, view.glyphs.ellipsis), "label")
    return [*lines, row.line()]


def _standing(view: View, finding: Finding, until: float | None) -> list[str]:
    texts = [f"{finding.confidence * 100:.0f}% sure"]
    since = finding.since_unix_seconds
    if since is not None:
        text = f"since {time.strftime('%H:%M:%S', time.localtime(since))}"
        if view.snapshot is not None:
            until = view.snapshot.monotonic_seconds if until is None else until
            text += f" ({units.age(until - _begin(view, finding))})"
        texts.append(text)
    if finding.gain is not None:
        unknown = "gain not known, " if finding.gain.factor is None else ""
        texts.append(clean(unknown + finding.gain.in_full))
    texts += lost_sentence(finding, view)
    who = whose(finding, () if view.snapshot is None else view.snapshot.jobs)
    return [*texts, *([who] if who else [])]


def evidence_body(
    view: View,
    finding: Finding,
    width: int,
    *,
    tall: int = 0,
    documentation: str | None = None,
    until: float | None = None,
) -> Drawn:
    """Return all below the title on a page of ``tall`` rows, without charts if that is 0; charts
    end at ``until``, on the snapshots' own clock."""
    lines, jobs = list(_advice(view, finding, width)), list(_jobs(view, finding, width))
    if tall >= _TALL or not tall:
        lines, jobs = [*jobs, *lines], []
    drawn = _draw_waveform(view, finding, width, tall, until) if tall else []
    zones = job_charts.clicks(len(lines), len(drawn), width)
    lines += drawn
    # Charts show another time than that of which the readings are.
    of_minute = rule_of(finding.rule).chart_seconds <= _LEAST_CHART_SECONDS
    when = ", the last minute" if of_minute else ""
    one = _representative(finding)
    # Of several jobs the sentence has the range of them all.
    which = f": {place(one, view.gpus)}" if one is not finding and len(parts(finding)) > 1 else ""
    halves = _halves(width) if width >= _HALVES else (width, width)
    left = [*_evidence(view, one.evidence, halves[0], f"evidence{when}{which}"), *jobs]
    left += _ruled_out(view, one, halves[0], symptom=True)
    right = list(_ruled_out(view, one, halves[1], symptom=False))
    if width >= _HALVES and left and right:
        lines += abreast([left, right], halves, _BETWEEN)
    else:
        lines += [*left, *right]
    if documentation:
        name = clean(finding.rule)
        lines += _heading(view, f"about: {cause_of(finding)}", width, f"gpuwatch explain {name}")
        lines += _documentation(documentation, width)
    return lines, zones


def plain_text(view: View, finding: Finding) -> str:
    """Return the finding as text to paste somewhere; charts are left out."""
    host = "" if view.snapshot is None else f"{clean(view.snapshot.host.name)}, "
    where = place(finding, view.gpus)
    head = [f"gpuwatch: {host}{where}: {cause_of(finding)}"]
    width = _COPY_WIDTH
    top = _evidence_title(view, finding, width)
    rest, _ = evidence_body(view, finding, width)
    return "\n".join([*head, *[_plain(line) for line in (*top, *rest)]]) + "\n"


def _plain(line: Line) -> str:
    """Return a line as text; headings keep their words alone."""
    if line[0][1] != EDGE:
        return plain(line).rstrip()
    return "\n" + "".join([text for text, style in line if style != EDGE]).rstrip()


# -- sections -----------------------------------------------------------------------------


def _heading(view: View, text: str, width: int, note: str = "") -> list[Line]:
    return edge(view.glyphs, width, Title(text, (), note))[0]


def _paragraph(text: str, width: int, indent: int = 3, style: str = "text") -> Iterator[Line]:
    for line in wrapped(text, width - indent - 1):
        yield Row(width).add(" " * indent).add(line, style).line()


def _jobs(view: View, finding: Finding, width: int) -> Iterator[Line]:
    """Yield a line for each job with what it loses and what to change there, where several have one
    cause."""
    if len(finding.members) < 2:
        return
    yield from _heading(view, "in each job" if finding.members[0].job else "on each GPU", width)
    jobs = () if view.snapshot is None else view.snapshot.jobs
    places = [place(one, view.gpus) for one in finding.members]
    for one, where in zip(finding.members, places, strict=True):
        row = Row(width).add("   ").add(left(where, max(map(width_of, places))))
        changed = ", ".join([clean(each.change) for each in one.advice if each.wanted is not None])
        # Where nothing is to be set, what it is in this one: how many orphans, what they hold.
        says = changed or clean(one.summary)
        for text, style in (
            (lost(one, view, width), "label"),
            (says, "value"),
            (whose(one, jobs), "label"),
        ):
            if text and row.room > 3:
                row.add("  ").add(fit(text, row.room - 1, view.glyphs.ellipsis), style)
        yield row.line()


def _advice(view: View, finding: Finding, width: int) -> Iterator[Line]:
    yield from _heading(view, "what to do", width)
    if not finding.advice:
        yield from _paragraph("No action needed: this is for information.", width)
    for one in finding.advice:
        yield from _paragraph(one.action, width, style="value")
        if one.why:
            yield from _paragraph(one.why, width, 5, "label")
        if one.gain not in (None, finding.gain):
            yield from _paragraph(clean(one.gain.in_full), width, 5, "label")


_LIMITED = 60
"""Width from which on evidence has a column for limits, and the list says how sure a finding is."""
_LEAST_MEANING = 28
_HALVES, _BETWEEN = 170, 2
"""Width from which on what speaks against other causes is beside the evidence, and cells between
the two."""


def _halves(width: int) -> tuple[int, int]:
    """Return the widths of the two, of which the table of the evidence has more."""
    first = width * 3 // 5
    return first, width - first - _BETWEEN


def _evidence(view: View, evidence: Sequence[Evidence], width: int, heading: str) -> Iterator[Line]:
    if not evidence:
        return
    unread = "   ? not read" if any(one.value is None for one in evidence) else ""
    yield from _heading(view, heading, width, f"+ speaks for it   - does not{unread}")
    columns: list[Column[Evidence]] = [
        Column("reading", lambda one: clean(one.name, 60), "text", style=lambda *_: "text"),
        Column("value", _value, style=lambda *_: "value"),
        Column("limit", _threshold, style=lambda *_: "label"),
    ]
    names, values, bounds = [max(width_of(c.cell(one)) for one in evidence) for c in columns]
    if width < _LIMITED:
        columns, bounds = columns[:2], 0
    else:
        bounds = max(5, bounds)
    room = width - 8 - max(5, values) - bounds - 2 * len(columns)
    widths = (min(names, max(8, room)), max(5, values), bounds)
    columns = [one._replace(width=cells) for one, cells in zip(columns, widths, strict=False)]
    # What it means stands below where the names leave it no room.
    beside = room - names >= _LEAST_MEANING
    row = Row(width).add("     ")
    add_headings(row, columns, style="dim", gap="  ")
    yield row.add("meaning" if beside else "", "dim").line()
    for one in evidence:
        # For or against, by sign: the colour only repeats it.
        sign = "?" if one.value is None else "+" if one.supports else "-"
        mark = (f"{sign} ", "key" if one.supports else "label")
        row = Row(width).add("   ").add(*mark)
        add_cells(row, columns, one, view.glyphs.ellipsis, "  ")
        indent = row.used
        first, *rest = (wrapped(one.says, width - indent - 1) if beside else []) or [""]
        yield row.add(first).line()
        for text in rest:
            yield Row(width).add(" " * indent).add(text).line()
        if not beside:
            yield from _paragraph(one.says, width, 7, "label")


def _value(one: Evidence) -> str:
    # Of what it is a share the meaning beside it says.
    unit = _short(one.unit) if one.says else one.unit
    return clean(units.quantity(one.value, unit), 200)


_UNIT_WORD = re.compile(r" [a-z]{4,}.*$")


def _threshold(one: Evidence) -> str:
    """Return ``> 75%``: where a reading lies that speaks for the finding."""
    if one.threshold is None or not isinstance(one.value, (int, float)):
        return ""
    side = "<" if (one.value < one.threshold) == one.supports else ">"
    # A unit that is a word stands beside the value.
    return f"{side} " + _UNIT_WORD.sub("", units.quantity(one.threshold, _short(one.unit)))


def _short(unit: str | None) -> str | None:
    """Return a unit in short, to stand beside a value that has it in full."""
    return "%" if unit is not None and unit.startswith("%") else unit


def _ruled_out(view: View, finding: Finding, width: int, *, symptom: bool) -> Iterator[Line]:
    """Yield the other causes that were looked at: its symptoms, or those it is not."""
    known = [one for one in finding.ruled_out if one.symptom == symptom]
    if known:
        yield from _heading(view, "also seen, explained by this" if symptom else "ruled out", width)
    for one in known:
        if width < _LIMITED:
            yield from _paragraph(f"{cause(one.rule)}: {one.why}", width, style="label")
            continue
        # Quieter than what speaks for the finding.
        first, *rest = wrapped(one.why, width - _REASON - 1) or [""]
        row = Row(width).add("   ").add(cause(one.rule), "dim").pad_to(_REASON)
        yield row.add(first, "label").line()
        for text in rest:
            yield Row(width).pad_to(_REASON).add(text, "label").line()


_REASON = 28
"""Cells before the reasons of what is ruled out."""


_ABOUT = ("What it checks", "When it is wrong")
"""Sections of a rule's documentation that its page has; ``gpuwatch explain`` prints all."""


def _documentation(text: str, width: int) -> list[Line]:
    """Return what the rule checks and when it is wrong in its own words, on wide pages in two
    columns."""
    parts, heading = list[tuple[str, str]](), ""
    for indent, words in paragraphs(text):
        heading = words if words and not indent else heading
        if heading in _ABOUT:
            parts.append((indent, words))
    halves = [(width - _BETWEEN) // 2] * 2 if width >= _HALVES else [width]
    lines, ends = list[Line](), [0]
    for indent, words in parts:
        if not words:
            ends.append(len(lines))
            lines.append(blank(halves[0]))
            continue
        style = "label" if indent else "text"
        lines += _paragraph(words, halves[0], 5 if indent else 3, style)
    if len(halves) < 2:
        return lines
    middle = min(ends, key=lambda end: abs(2 * end - len(lines)))
    return abreast([lines[:middle], lines[middle + 1 :]], halves, _BETWEEN)


# -- the list --------------------------------------------------------------------------------------


_LEAST_PREVIEW = 6


def selected_finding(view: View) -> Finding | None:
    """Return the finding under the cursor, else the first."""
    return chosen_finding(view) or next(iter(readable_findings(view)), None)


def draw_findings(view: View, width: int, height: int) -> Frame:
    """Draw the list: exactly ``height`` lines of exactly ``width`` cells; the selection stays in
    sight."""
    boxes = has_boxes(width, height)

    def body(width: int, room: int) -> SheetBody:
        lines = _above(view, width, titled=not boxes)
        return [], *_list(view, lines, width, room), []

    text, unchecked = _counted(view)
    title = Title(text, (("u", unchecked, "unknown"),))
    return draw_sheet(view, width, height, title, body, FINDINGS_FOOTER, 0)[0]


def _counted(view: View) -> tuple[str, str]:
    """Return how many findings there are, in which order, after how long, and how many causes were
    not checked."""
    diagnosis, found = view.diagnosis, present_findings(view)
    if diagnosis is None:
        return "findings", "not checked"
    notes = sum(one.severity == "info" for one in found)
    count = len(found) - notes
    order = ", worst first" if view.job.last is None else ", those of the job shown first"
    text = f"findings: {count or 'none'}{order if count > 1 else ''}"
    text += f", and {units.plural(notes, 'note')}" if notes else ""
    rules = len({one.rule for one in diagnosis.unknown})
    watched = f"watched {units.age(diagnosis.watched_seconds)}"
    return f"{text}, {watched}", f"{rules or 'none'} not checked"


def _above(view: View, width: int, *, titled: bool) -> list[Line]:
    """Return what stands above the list: a title where no box has it, the verdict where nothing was
    found, and what a change brought about."""
    lines = []
    if titled:
        text, unchecked = _counted(view)
        row = Row(width).add(fit(f" {text}", width - 1, view.glyphs.ellipsis), "title")
        if row.room > len(unchecked) + 5:
            row.add("   u", "key").add(f" {unchecked}", "label")
        lines.append(row.line())
    if not present_findings(view):
        verdict = "No diagnosis yet." if view.diagnosis is None else clean(view.diagnosis.verdict)
        if not view.gpus and (trouble := worth_saying(view)):
            # Without a driver, that is what there is to say.
            verdict = clean(trouble[0].message)
        lines += [Row(width).add(f" {one}").line() for one in wrapped(verdict, width - 2)[:4]]
    return [*lines, *([mark_line(view, width)] if view.mark is not None else [])]


def _list(view: View, lines: list[Line], width: int, room: int) -> tuple[list[Line], list[Zone]]:
    """Return ``lines`` and below them the findings, two rows each; what is left of ``room`` shows
    the evidence of the selected one, if that is worth it, or what was found earlier."""
    zones: list[Zone] = []
    findings, chosen = readable_findings(view), selected_finding(view)
    if chosen is None:
        return (lines + _earlier(view, width))[:room], zones
    position = next(n for n, one in enumerate(findings) if one is chosen)
    shown = max(1, min(len(findings), (room - len(lines)) // 2))
    first = max(0, min(position, len(findings) - shown))
    for one in findings[first : first + shown]:
        zones += [Zone(len(lines) + y, 0, width, "finding", one.key) for y in (0, 1)]
        lines += _entry(view, one, width, selected=one is chosen)
    if room - len(lines) >= _LEAST_PREVIEW:
        until = None if finding_holds(view, chosen) else view.job.findings_at
        lines += evidence_body(view, chosen, width, tall=room, until=until)[0]
    return lines[:room], zones


def _earlier(view: View, width: int) -> list[Line]:
    """Findings that hold no longer, the last one first."""
    past = [one for one in reversed(view.spans) if one.end_seconds is not None]
    lines = edge(view.glyphs, width, Title("earlier"))[0] if past else []
    for one in past:
        ends = (one.begin_seconds, one.end_seconds or 0.0)
        clocks = [time_axis.clock(view, at) for at in ends]
        row = Row(width).add(f"   {'-'.join(clocks)}  ", "label")
        row.add(f"{severity_sign(one.severity, view.glyphs)} ", "label")
        lines.append(row.add(fit(clean(one.summary), row.room - 1, view.glyphs.ellipsis)).line())
    return lines


def _entry(view: View, finding: Finding, width: int, *, selected: bool) -> list[Line]:
    """Return a finding's two rows: its sentence, what to do, what is lost, and how sure that is."""
    tail = sure(finding) if finding_holds(view, finding) else "until the job ended"
    tail = "   ".join(filter(None, [lost(finding, view, 0), tail])) if width >= _LIMITED else ""
    return at_length(view, finding, width, tail, "s:" if selected else "")


def draw_evidence(
    view: View,
    finding: Finding,
    width: int,
    height: int,
    offset: int,
    *,
    gone_at: float | None = None,
    documentation: str | None,
) -> tuple[Frame, int]:
    """Draw one finding over the whole screen, and ``offset`` brought into range. One that is gone
    is shown as it was at ``gone_at``, on the snapshots' own clock."""
    note = ""
    if gone_at is not None:
        ended = any(one is finding for one in findings_of_ended_job(view))
        note = f"{'The job has ended' if ended else 'This no longer holds'}; shown as last seen."
    boxes = has_boxes(width, height)

    def body(width: int, _room: int) -> SheetBody:
        top = Row(width).add(fit(f" {note}", width, view.glyphs.ellipsis), "key").line()
        above = _evidence_title(view, finding, width, gone_at)
        below, zones = evidence_body(
            view, finding, width, tall=height, documentation=documentation, until=gone_at
        )
        zones = [zone._replace(y=zone.y + len(above)) for zone in zones]
        bottom = time_axis.values(view, _first_gpu(view, finding), width)
        return [top] if note and not boxes else [], [*above, *below], zones, bottom

    title = Title(cause_of(finding), (), note, "key")
    return draw_sheet(view, width, height, title, body, EVIDENCE_FOOTER, offset)


def neighbour(view: View, step: int) -> FindingKey | None:
    """Return the finding before or after the chosen one, round about."""
    findings = readable_findings(view)
    if not findings:
        return None
    present = chosen_finding(view)
    position = next((n for n, one in enumerate(findings) if one is present), -step)
    return findings[(position + step) % len(findings)].key


# -- the screens -----------------------------------------------------------------------------------


class FindingsScreen(ListScreen):
    """Screen of the list; the finding under the cursor is ``view.finding``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(FINDINGS_KEYS)
    CANVAS_ID = "findings"
    OPENS: ClassVar[Mapping[str, str]] = {"finding": "app.evidence"}

    def drawn(self, width: int, height: int) -> Frame:
        return draw_findings(self.view, width, height)

    @property
    def cursor(self) -> CursorPlace:
        present = selected_finding(self.view)
        return "finding", None if present is None else present.key

    def put(self, kind: str, key: Any) -> None:
        del kind
        self.view.finding = key

    def stops(self) -> list[CursorPlace]:
        return [("finding", one.key) for one in readable_findings(self.view)]

    def _settle(self) -> bool:
        """Mean the finding under the cursor from now on; true if there is one."""
        present = selected_finding(self.view)
        if present is None:
            return False
        self.view.finding = present.key
        return True

    async def action_open(self) -> None:
        if self._settle():
            await self.run_action("app.evidence")
        else:
            self.view.message = "there is no finding to open"
            self.redraw()

    async def action_copy(self) -> None:
        self._settle()
        await self.run_action("app.copy_finding")


class EvidenceScreen(ScrolledScreen):
    """Screen of ``view.finding`` as it is now or, once it is gone, as it was last."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(EVIDENCE_KEYS)
    CANVAS_ID = "evidence"

    _last: Finding | None = None
    _last_at = 0.0

    def drawn(self, width: int, height: int) -> Frame:
        view = self.view
        now = chosen_finding(view)
        holds = now is not None and finding_holds(view, now)
        if holds and view.snapshot is not None:
            self._last_at = view.snapshot.monotonic_seconds
        elif now is not None:
            self._last_at = view.job.findings_at
        shown = self._last = now or self._last
        if shown is None:
            return Frame(filled([], width, height))
        frame, self.body_offset = draw_evidence(
            view,
            shown,
            width,
            height,
            self.body_offset,
            gone_at=None if holds else self._last_at,
            documentation=rule_of(shown.rule).documentation,
        )
        return frame

    def action_other(self, step: int) -> None:
        key = neighbour(self.view, step)
        if key is not None:
            self.view.finding = key
            self.body_offset = 0
            self.redraw()
