"""The list of findings as a pure drawing, with the evidence of the selected one below it."""

import time

from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Finding, FindingKey
from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.keys import EVIDENCE_FOOTER, FINDINGS_FOOTER
from gpuwatch.tui.pages import evidence, sheet, waveform
from gpuwatch.tui.pages import finding_selection as selection
from gpuwatch.tui.pages.finding_words import cause, severity_sign
from gpuwatch.tui.pages.grid import has_boxes
from gpuwatch.tui.pages.layout import Frame, Title, edge
from gpuwatch.tui.panels.findings import at_length, mark_line
from gpuwatch.tui.terminal.frame import Line, Row, Zone, blank, fit, wrapped
from gpuwatch.tui.view import View

_LEAST_PREVIEW = 6


def selected(view: View) -> Finding | None:
    """The one under the cursor, else the first."""
    return selection.chosen(view) or next(iter(selection.readable(view)), None)


def draw(view: View, width: int, height: int) -> Frame:
    """Exactly ``height`` lines of exactly ``width`` cells; the selection stays in sight."""
    title = Title("findings", (("u", "unknown", "unknown"),))

    def body(width: int, room: int) -> sheet.Body:
        lines = _above(view, width)
        return [], *_list(view, lines, width, room), []

    return sheet.draw(view, width, height, title, body, FINDINGS_FOOTER, 0)[0]


def _above(view: View, width: int) -> list[Line]:
    """The verdict, what a change brought about, and how long was watched."""
    diagnosis, now = view.diagnosis, selection.present(view)
    verdict = "No diagnosis yet." if diagnosis is None else clean(diagnosis.verdict)
    if any(clean(one.summary).rstrip(".") == verdict.rstrip(".") for one in now):
        order = "worst first" if view.job.last is None else "those of the job shown first"
        verdict = "one finding" if len(now) == 1 else f"{len(now)} findings, {order}"
    lines = [Row(width).add(f" {text}", "title").line() for text in wrapped(verdict, width - 2)[:2]]
    lines += [mark_line(view, width)] if view.mark is not None else []
    return [*lines, *_watched(view, width), blank(width)]


def _list(view: View, lines: list[Line], width: int, room: int) -> tuple[list[Line], list[Zone]]:
    """Below ``lines`` the findings, two rows each; what is left of ``room`` shows the evidence of
    the selected one, if that is worth it, or what was found earlier."""
    zones: list[Zone] = []
    findings, chosen = selection.readable(view), selected(view)
    if chosen is None:
        return (lines + _earlier(view, width))[:room], zones
    position = next(n for n, one in enumerate(findings) if one is chosen)
    shown = max(1, min(len(findings), (room - len(lines)) // 2))
    first = max(0, min(position, len(findings) - shown))
    for one in findings[first : first + shown]:
        zones += [Zone(len(lines) + y, 0, width, "finding", one.key) for y in (0, 1)]
        lines += _entry(view, one, width, selected=one is chosen)
    if room - len(lines) >= _LEAST_PREVIEW:
        until = None if selection.holds(view, chosen) else view.job.findings_at
        lines += evidence.body(view, chosen, width, until=until)[0]
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


def _watched(view: View, width: int) -> list[Line]:
    diagnosis = view.diagnosis
    if diagnosis is None:
        return []
    rules = len({one.rule for one in diagnosis.unknown})
    text = f"watched for {diagnosis.watched_seconds:.0f} s"
    if rules:
        text += f"; {rules} check{'s need' if rules > 1 else ' needs'} more data (u)"
    return [Row(width).add(fit(f" {text}", width - 1, view.glyphs.ellipsis), "label").line()]


def _entry(view: View, finding: Finding, width: int, *, selected: bool) -> list[Line]:
    """Its sentence, what it costs, what to do, and how sure that is."""
    tail = f"{finding.confidence * 100:.0f}% sure"
    if not selection.holds(view, finding):
        tail = "until the job ended"
    elif finding.since_unix_seconds is not None and width >= 60:
        since = time.localtime(finding.since_unix_seconds)
        tail += f", since {time.strftime('%H:%M:%S', since)}"
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
    """One finding over the whole screen, and ``offset`` brought into range. One that is gone is
    shown as it was at ``gone_at``, on the snapshots' own clock."""
    note = ""
    if gone_at is not None:
        ended = any(one is finding for one in selection.of_ended_job(view))
        note = f"{'The job has ended' if ended else 'This no longer holds'}; shown as last seen."
    boxes = has_boxes(width, height)

    def body(width: int, _room: int) -> sheet.Body:
        top = Row(width).add(fit(f" {note}", width, view.glyphs.ellipsis), "key").line()
        above = evidence.title_lines(view, finding, width)
        below, zones = evidence.body(
            view, finding, width, documentation=documentation, until=gone_at
        )
        zones = [zone._replace(y=zone.y + len(above)) for zone in zones]
        bottom = time_axis.values(view, waveform.first_gpu(view, finding), width)
        return [top] if note and not boxes else [], [*above, *below], zones, bottom

    title = Title(cause(finding.rule), (), note, "key")
    return sheet.draw(view, width, height, title, body, EVIDENCE_FOOTER, offset)


def neighbour(view: View, step: int) -> FindingKey | None:
    """The finding before or after the chosen one, round about."""
    findings = selection.readable(view)
    if not findings:
        return None
    present = selection.chosen(view)
    position = next((n for n, one in enumerate(findings) if one is present), -step)
    return findings[(position + step) % len(findings)].key
