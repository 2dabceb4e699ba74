"""The pages of findings: all to choose from, and each in full.

In full are what to do, the waveform that shows it, what speaks for and against it, what was ruled
out, and the rule's own documentation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from textual.binding import BindingType

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, Job
from gpuwatch.core.text import clean, paragraphs
from gpuwatch.diagnosis.finding import WINDOW_SECONDS, Finding, FindingKey, in_short
from gpuwatch.tui.charts.strips import TimeWindow
from gpuwatch.tui.charts.timeline import span_in
from gpuwatch.tui.keys import (
    EVIDENCE_FOOTER,
    EVIDENCE_KEYS,
    FINDINGS_FOOTER,
    FINDINGS_KEYS,
    bindings,
)
from gpuwatch.tui.pages.layout import (
    EDGE,
    Drawn,
    Frame,
    Title,
    abreast,
    edge,
    filled,
    has_boxes,
    means_in_words,
)
from gpuwatch.tui.pages.screen import (
    CursorPlace,
    ListScreen,
    ScrolledScreen,
    SheetBody,
    draw_sheet,
)
from gpuwatch.tui.panels import job_charts, time_axis
from gpuwatch.tui.panels.evidence import (
    LIMITED,
    heading,
    legend,
    paragraph,
    reasons,
    table,
)
from gpuwatch.tui.panels.findings import (
    at_length,
    cause_of,
    chosen_finding,
    finding_holds,
    findings_of_ended_job,
    lost,
    lost_so_far,
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
    view: View, finding: Finding, width: int, tall: int, until: float | None, spare: int
) -> list[Line]:
    """Draw the GPUs named, who feeds them, and what else shows it, on one time axis. With what is
    around it this leaves ``spare`` rows of the page; the charts get them."""
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
    window, end, begin = view.window, until, _begin(view, finding)
    if (finding.lost_of_seconds or 0.0) <= WINDOW_SECONDS:
        view = replace(view, means_of_look=True)
    gpus = [shown_gpu(view, gpu) for gpu in gpus]
    if gpus and view.own_range and all(gpu.lost for gpu in gpus):
        # What was before tells more than the nothing since.
        end = begin + _AFTER_LOSS * window.span_seconds
    if end is not None:
        window = replace(window, now=min(window.now, end))
    shown = _traces(view, finding, one, gpus, job, _chart_rows(tall))
    spare -= sum([rows for _, rows in shown]) + _AROUND_CHARTS
    shown = list(_higher(shown, spare))
    if until is not None:
        shown = [(job_charts.of_the_past(trace), rows) for trace, rows in shown]
    lines = job_charts.draw(view, shown, window, width)
    about = finding.gpus or None
    lines.append(time_axis.draw(view, window, [span], width, gpus=about, said=finding.rule)[0])
    words = _span_words(window, end is not None)
    words += means_in_words(view)
    if job is not None and len({each.job for each in parts(finding)}) > 1:
        words += f"; threads of PID {job.pid}"
    is_later = begin > window.now - window.span_seconds
    since = f"found {time_axis.clock(view, begin)}" if is_later else ""
    return [*heading(view, words, width, since), *lines]


_AROUND_CHARTS = 2
"""Rows of the heading above the charts and of the axis below them."""
_BY_ROWS = 3
"""Rows by which the charts get higher: not each time that a sentence needs one more or less."""


def _higher(
    shown: Sequence[tuple[job_charts.Trace, int]], spare: int
) -> Iterator[tuple[job_charts.Trace, int]]:
    """Yield the charts with ``spare`` rows more, at most twice as high as they are; lines have
    enough."""
    total = sum([rows for trace, rows in shown if not trace.is_level])
    more = min(total, max(0, spare) // _BY_ROWS * _BY_ROWS)
    for trace, rows in shown:
        yield trace, rows + (0 if trace.is_level else more * rows // max(1, total))


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
    shown = [
        (job_charts.busy_trace(view, [gpu], [gpu], one, with_state=True), high.gpu) for gpu in alone
    ]
    if several:
        shown.append((job_charts.spread_trace(view, gpus), high.spread))
    others = job_charts.evidence(view, finding, alone, job)
    return [
        *shown,
        *[(trace, min(high.other, 2) if trace.is_level else high.other) for trace in others],
    ]


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
    # What fits into one line leaves one more to the evidence, which has the rest.
    forms = [clean(finding.summary), *map(clean, in_short(finding, view.gpus)[:1])]
    says = next((one for one in forms if width_of(one) <= width - 4), forms[0])
    for number, text in enumerate(wrapped(says, width - 4)):
        mark = severity_sign(finding.severity, view.glyphs) if number == 0 else " "
        lines.append(Row(width).add(f" {mark} {text}", style).line())
    return [*lines, *_standing(view, finding, width, until)]


_STANDING_ROWS = 2
_GAP = "   "
_LEAST_COMMAND = 16


def _standing(view: View, finding: Finding, width: int, until: float | None) -> list[Line]:
    """Return how sure it is and since when, what a cure gains, what is lost and whose job it is:
    in so few words that two lines hold them, if they can."""
    every = list(_said_of(view, finding, until))
    jobs = () if view.snapshot is None else view.snapshot.jobs
    named = bool(whose(finding, jobs))
    for length in (0, 1, 2):
        lines = _packed([forms[min(length, len(forms) - 1)] for forms in every], width)
        room = width - 4 - width_of(_GAP.join(lines[-1])) - len(_GAP)
        who = whose(finding, jobs, room, view.glyphs.ellipsis) if room >= _LEAST_COMMAND else ""
        if named and (not who or (view.glyphs.ellipsis in who and len(lines) < _STANDING_ROWS)):
            who = whose(finding, jobs, width - 4, view.glyphs.ellipsis)
            lines.append([])
        if len(lines) <= _STANDING_ROWS:
            break
    lines[-1] += [who] if named else []
    return [Row(width).add(f"   {_GAP.join(line)}", "label").line() for line in lines]


def _packed(texts: Sequence[str], width: int) -> list[list[str]]:
    """Return the texts in as few lines as hold them."""
    lines = [list[str]()]
    for text in texts:
        if lines[-1] and width_of(_GAP.join([*lines[-1], text])) > width - 4:
            lines.append([])
        lines[-1].append(text)
    return lines


def _said_of(view: View, finding: Finding, until: float | None) -> Iterator[tuple[str, ...]]:
    """Yield texts, each in up to three forms, the longest first."""
    text = sure(finding)
    if finding.since_unix_seconds is not None and view.snapshot is not None:
        until = view.snapshot.monotonic_seconds if until is None else until
        text += f" ({units.age(until - _begin(view, finding))})"
    yield (text,)
    if (gain := finding.gain) is not None:
        unknown = "gain not known, " if gain.factor is None else ""
        yield tuple([clean(unknown + form) for form in (gain.in_full, gain.within)])
    if forms := lost_so_far(finding, view):
        # What was lost is said in full as long as a gain without its limit leaves it room.
        yield forms[0], *forms


def evidence_body(
    view: View,
    finding: Finding,
    width: int,
    *,
    tall: int = 0,
    room: int = 0,
    documentation: str | None = None,
    until: float | None = None,
    title: str = "",
) -> Drawn:
    """Return all below the title on a page of ``tall`` rows, of which it has ``room``; without
    charts if ``tall`` is 0. Charts end at ``until``, on the snapshots' own clock. With a ``title``,
    what speaks for it alone, below a list."""
    lines = list(_advice(view, finding, width, title or "what to do"))
    of_jobs = not (tall >= _TALL or not tall)
    if not of_jobs:
        lines = [*_jobs(view, finding, width), *lines]
    # Charts show another time than that of which the readings are.
    of_minute = rule_of(finding.rule).chart_seconds <= _LEAST_CHART_SECONDS
    when = ", the last minute" if of_minute else ""
    one = _representative(finding)
    # Of several jobs the sentence has the range of them all.
    which = f": {place(one, view.gpus)}" if one is not finding and len(parts(finding)) > 1 else ""
    others = () if title else one.ruled_out
    ruled_out = [each for each in others if not each.symptom]
    symptoms = [each for each in others if each.symptom]
    has_left = one.evidence or symptoms or (of_jobs and len(finding.members) > 1)
    is_abreast = width >= _HALVES and bool(ruled_out) and bool(has_left)
    halves = _halves(width) if is_abreast else (width, width)
    below = list[Line]()
    left = [*_evidence(view, one, halves[0], f"evidence{when}{which}")]
    left += _jobs(view, finding, halves[0]) if of_jobs else ()
    if symptoms:
        left += heading(view, "also seen, explained by this", halves[0])
        left += reasons(symptoms, halves[0])
    right = list[Line]()
    if ruled_out:
        right = [*heading(view, "ruled out", halves[1]), *reasons(ruled_out, halves[1])]
    below += abreast([left, right], halves, _BETWEEN) if is_abreast else [*left, *right]
    if documentation:
        name = clean(finding.rule)
        below += heading(view, f"about: {cause_of(finding)}", width, f"gpuwatch explain {name}")
        below += _documentation(documentation, width)
    spare = room - len(lines) - len(below)
    drawn = _draw_waveform(view, finding, width, tall, until, spare) if tall else []
    zones = job_charts.clicks(len(lines), len(drawn), width)
    return [*lines, *drawn, *below], zones


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


def _jobs(view: View, finding: Finding, width: int) -> Iterator[Line]:
    """Yield a line for each job with what it loses and what to change there, where several have one
    cause."""
    if len(finding.members) < 2:
        return
    yield from heading(view, "in each job" if finding.members[0].job else "on each GPU", width)
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


def _advice(view: View, finding: Finding, width: int, title: str) -> Iterator[Line]:
    yield from heading(view, title, width)
    if not finding.advice:
        yield from paragraph("No action needed: this is for information.", width)
    for one in finding.advice:
        yield from paragraph(one.action, width, style="value")
        if one.why:
            yield from paragraph(one.why, width, 5, "label")
        if one.gain not in (None, finding.gain):
            yield from paragraph(clean(one.gain.in_full), width, 5, "label")


_HALVES, _BETWEEN = 170, 2
"""Width from which on what speaks against other causes is beside the evidence, and cells between
the two."""


def _halves(width: int) -> tuple[int, int]:
    """Return the widths of the two, of which the table of the evidence has more."""
    first = width * 3 // 5
    return first, width - first - _BETWEEN


def _evidence(view: View, finding: Finding, width: int, text: str) -> Iterator[Line]:
    if finding.evidence:
        yield from heading(view, text, width, legend(finding.evidence))
        # The sentence has its name.
        yield from table(view, finding.evidence, width, place(finding, view.gpus))


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
    first = (width - _BETWEEN) // 2
    halves = [first, width - _BETWEEN - first] if width >= _HALVES else [width]
    lines, ends = list[Line](), [0]
    for indent, words in parts:
        if not words:
            ends.append(len(lines))
            lines.append(blank(halves[0]))
            continue
        style = "label" if indent else "text"
        lines += paragraph(words, halves[0], 5 if indent else 3, style)
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
    """Return how many findings there are, which come first, after how long, and how many causes
    were not checked."""
    diagnosis, found = view.diagnosis, present_findings(view)
    if diagnosis is None:
        return "findings", "not checked"
    notes = sum(one.severity == "info" for one in found)
    count = len(found) - notes
    counted = [units.plural(count, "finding")] if count or not notes else []
    counted += [units.plural(notes, "note")] if notes else []
    rules = len({one.rule for one in diagnosis.unknown})
    watched = f"watched {units.age(diagnosis.watched_seconds)}"
    first = ["this job's first"] if view.job.last is not None and len(found) > 1 else []
    text = ", ".join([*counted, *first, watched])
    return text, f"{rules or 'none'} not checked"


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
        left = room - len(lines)
        title = f"{place(chosen, view.gpus)}: {cause_of(chosen)}"
        body = evidence_body(view, chosen, width, tall=room, room=left, until=until, title=title)
        lines += body[0]
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
    loss, prefix = lost(finding, view, 0).strip(), "s:" if selected else ""
    if loss and finding.severity == "info":
        # Why the greatest of all may come last.
        loss = f"slows no job   {loss}"
    if width < LIMITED:
        loss = tail = ""
    return at_length(view, finding, width, tail, prefix, beside=loss, quiet=not selected)


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

    def body(width: int, room: int) -> SheetBody:
        line = Row(width).add(fit(f" {note}", width, view.glyphs.ellipsis), "key").line()
        top = [line] if note and not boxes else []
        above = _evidence_title(view, finding, width, gone_at)
        bottom = time_axis.values(view, _first_gpu(view, finding), width)
        below, zones = evidence_body(
            view,
            finding,
            width,
            tall=height,
            room=room - len(top) - len(above) - len(bottom),
            documentation=documentation,
            until=gone_at,
        )
        zones = [zone._replace(y=zone.y + len(above)) for zone in zones]
        return top, [*above, *below], zones, bottom

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
