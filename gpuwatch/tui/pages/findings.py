"""The list of findings as a pure drawing, with the evidence of the selected one below it."""

import time
from dataclasses import dataclass

from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Finding, FindingKey
from gpuwatch.tui.keys import EVIDENCE_FOOTER, FINDINGS_FOOTER
from gpuwatch.tui.pages import evidence, sheet
from gpuwatch.tui.pages import finding_selection as selection
from gpuwatch.tui.pages.finding_words import by_key, cause
from gpuwatch.tui.pages.grid import has_boxes
from gpuwatch.tui.pages.layout import Frame, Title, boxed, edge, filled
from gpuwatch.tui.panels import footer, header
from gpuwatch.tui.panels.findings import at_length, mark_line
from gpuwatch.tui.terminal.frame import Line, Row, Zone, blank, fit, wrapped
from gpuwatch.tui.view import View

_LEAST_PREVIEW = 6


@dataclass(slots=True)
class FindingsFrame(Frame):
    """A picture, and the finding under the cursor."""

    selected: Finding | None = None


def draw(view: View, width: int, height: int) -> FindingsFrame:
    """Exactly ``height`` lines of exactly ``width`` cells; the selection stays in sight."""
    diagnosis = view.diagnosis
    findings = selection.readable(view)
    now = selection.present(view)
    boxes = has_boxes(width, height)
    width -= 2 * boxes
    frame = FindingsFrame(lines=[header.draw(view, width)], inset=int(boxes))
    lines = frame.lines
    if boxes:
        lines += edge(view.glyphs, width, Title("findings", (("u", "unknown", "unknown"),)))[0]
    verdict = "No diagnosis yet." if diagnosis is None else clean(diagnosis.verdict)
    if any(clean(one.summary).rstrip(".") == verdict.rstrip(".") for one in now):
        order = "worst first" if view.job.last is None else "those of the job shown first"
        verdict = "one finding" if len(now) == 1 else f"{len(now)} findings, {order}"
    for text in wrapped(verdict, width - 2)[:2]:
        lines.append(Row(width).add(f" {text}", "title").line())
    if view.mark is not None:
        lines.append(mark_line(view, width))
    lines += _watched(view, width)
    lines.append(blank(width))
    bottom = height - 1 - boxes
    room = max(0, bottom - len(lines))
    if findings:
        frame.selected = by_key(findings, view.finding) or findings[0]
        position = next(n for n, one in enumerate(findings) if one is frame.selected)
        # Two rows each; what is left shows the evidence, if that is worth it.
        shown = max(1, min(len(findings), room // 2))
        first = max(0, min(position, len(findings) - shown))
        for one in findings[first : first + shown]:
            zone_top = len(lines)
            lines += _entry(view, one, width, selected=one is frame.selected)
            frame.zones += [Zone(zone_top + y, 0, width, "finding", one.key) for y in (0, 1)]
        below = bottom - len(lines)
        if below >= _LEAST_PREVIEW:
            until = None if selection.holds(view, frame.selected) else view.job.findings_at
            body, _ = evidence.body(view, diagnosis, frame.selected, width, until=until)
            lines += body[:below]
    lines = filled(lines, width, bottom)
    if boxes:
        lines += edge(view.glyphs, width, Title())[0]
    foot, zones = footer.draw(view, width, FINDINGS_FOOTER)
    frame.zones += [zone._replace(y=height - 1) for zone in zones]
    lines.append(foot)
    frame.lines = boxed(lines, view.glyphs) if boxes else lines
    return frame


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
            view, view.diagnosis, finding, width, documentation=documentation, until=gone_at
        )
        zones = [zone._replace(y=zone.y + len(above)) for zone in zones]
        return [top] if note and not boxes else [], [*above, *below], zones

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
