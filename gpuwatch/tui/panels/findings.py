"""Findings right under the header: one line each, or a quiet one that nothing is."""

import time
from collections.abc import Iterable, Sequence

from gpuwatch.core import units
from gpuwatch.core.model import Job
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Diagnosis, Finding, FindingKey
from gpuwatch.tui.controllers.marking import is_about
from gpuwatch.tui.pages.finding_words import (
    about_job,
    cause,
    changes,
    gpu_names,
    lost,
    place,
    severity_sign,
    style_of,
)
from gpuwatch.tui.pages.layout import Drawn, Page, Panel
from gpuwatch.tui.panels.job.header import ended_at
from gpuwatch.tui.terminal.frame import Line, Row, Zone, fit, left, width_of, wrapped
from gpuwatch.tui.view import Mark, View

_GAP = "  "
_LEAST_ADVICE = 12
_EARLY_SECONDS = 30.0
"""A job that has been seen for less has not shown its steady work for as long as it takes."""
_SENTENCE_WIDTH = 100
"""From here on a finding is given in its own sentence where that fits."""


def most_rows(height: int) -> int:
    """Rows that findings may take."""
    return 0 if height < 9 else 1 if height < 20 else 2 if height < 32 else 3 if height < 45 else 4


def reserved_rows(view: View, height: int) -> int:
    """Rows that other parts must do without, whether or not they are used now: so charts keep
    their size when a finding comes or goes."""
    if view.diagnosis is None:
        return 0
    if not view.diagnosis.findings and (height < 16 or not view.gpus):
        return 0
    return most_rows(height)


def mark_rows(view: View, height: int, job: Job | None = None) -> int:
    if view.mark is None or height < 16:
        return 0
    return 1 if job is None or is_about(view.mark, job) else 0


def _rows(page: Page) -> int:
    return reserved_rows(page.view, page.height) + mark_rows(page.view, page.height, page.job)


def _draw(page: Page, rows: int) -> Drawn:
    """The findings (those of the page's job only) and what a change brought about."""
    view, width, job, diagnosis = page.view, page.width, page.job, page.view.diagnosis
    lines: list[Line] = []
    findings: Sequence[Finding] = ()
    marked = mark_rows(view, page.height, job)
    most = rows - marked
    if diagnosis is not None and most:
        ended = job is not None and ended_at(view, job) is not None
        if ended:
            findings = view.job.findings
        else:
            findings = diagnosis.findings if job is None else about_job(diagnosis, job)
        if findings:
            lines = _findings(view, findings, width, most)
        elif ended:
            what = "nothing was found in" if view.job.decided else "not enough data on"
            lines = [_quiet_line(view, f"{what} this job before it ended", width)]
        else:
            lines = _quiet(view, diagnosis, width, most)
    # One that is alone has several lines.
    keys = [
        findings[0 if len(findings) == 1 else y].key if findings else None
        for y in range(len(lines))
    ]
    zones = [Zone(y, 0, width, "finding", key) for y, key in enumerate(keys)]
    return [*lines, *([mark_line(view, width)] if marked else [])], zones


PANEL = Panel("findings", _rows, _draw)


def keys_in(zones: Iterable[Zone]) -> list[FindingKey]:
    """The findings that have a line there, top to bottom."""
    shown = [zone.argument for zone in zones if isinstance(zone.argument, FindingKey)]
    return list(dict.fromkeys(shown))


def _quiet_line(view: View, text: str, width: int) -> Line:
    text = fit(text, width - 4, view.glyphs.ellipsis)
    return Row(width).add(f" {view.glyphs.dot} {text}", "dim").line()


def _begin(view: View, finding: Finding, width: int) -> Row:
    """The cursor, where it is on this one, and the sign of its severity."""
    row = Row(width)
    if view.in_findings and finding.key == view.finding:
        row.add(view.glyphs.marker, "marker")
    else:
        row.add(" ")
    return row.add(f"{severity_sign(finding.severity, view.glyphs)} ", style_of(finding))


def _quiet(view: View, diagnosis: Diagnosis, width: int, most: int) -> list[Line]:
    """The verdict where nothing was found; it is longer where the cause is not known."""
    text = clean(diagnosis.verdict)
    if diagnosis.findings:
        early = view.job.seen_seconds < _EARLY_SECONDS or not diagnosis.decided
        text = "not enough data on this job yet" if early else "nothing found in this job"
        text += f" ({len(diagnosis.findings)} elsewhere: d)"
    style = "dim" if diagnosis.decided else "label"
    texts = wrapped(text, width - 4)
    if len(texts) > most:
        rest = fit(" ".join(texts[most - 1 :]), width - 4, view.glyphs.ellipsis)
        texts = [*texts[: most - 1], rest]
    marks = [view.glyphs.dot] + [" "] * len(texts)
    return [
        Row(width).add(f" {mark} {one}", style).line()
        for mark, one in zip(marks, texts, strict=False)
    ]


def _findings(view: View, findings: Sequence[Finding], width: int, most: int) -> list[Line]:
    if len(findings) == 1 and most > 1:
        return _one_at_length(view, findings[0], width)
    shown = findings[:most]
    more = len(findings) - len(shown)
    note = f"+{more} more (d)" if width >= 60 else f"+{more}"
    room = width - (len(note) + 2 if more else 0)
    if width >= _SENTENCE_WIDTH and all(
        4 + width_of(one.summary) + _tail_width(one) <= room for one in shown
    ):
        rows = [_sentence(view, one, width) for one in shown]
    else:
        rows = _columns(view, shown, width, room)
    if more:
        rows[-1].pad_to(width - len(note) - 1).add(note, "key")
    return [row.line() for row in rows]


def _one_at_length(view: View, finding: Finding, width: int) -> list[Line]:
    """Its sentence, and below it what to do."""
    glyphs, style = view.glyphs, style_of(finding)
    hint = f"{_GAP}[d] why"
    first = _begin(view, finding, width)
    text = clean(finding.summary)
    if width_of(text) > first.room - 1:
        # Cut, a sentence may say everything but the cause.
        text = f"{place(finding, view.gpus)}: {cause(finding.rule)}"
    first.add(fit(text, first.room - 1, glyphs.ellipsis), style)
    second = Row(width).add("   ")
    cost = lost(finding).strip()
    if cost:
        second.add(cost, "label").add(_GAP)
    room = second.room - len(hint) - 2
    text = changes(finding, room - 4) or "no action needed: this is for information"
    second.add(fit(text, room, glyphs.ellipsis), "value" if finding.advice else "label")
    second.pad_to(width - len(hint) - 1).add(hint, "label")
    return [first.line(), second.line()]


def _tail_width(finding: Finding) -> int:
    cost, advice = lost(finding), changes(finding, 40)
    return sum(width_of(text) + len(_GAP) for text in (cost, advice) if text)


def _sentence(view: View, finding: Finding, width: int) -> Row:
    style = style_of(finding)
    row = _begin(view, finding, width).add(clean(finding.summary), style)
    for text, look in ((lost(finding), "label"), (changes(finding, 40), "value")):
        if text:
            row.add(_GAP).add(text, look)
    return row


def _columns(view: View, shown: Sequence[Finding], width: int, room: int) -> list[Row]:
    """Place, cause, cost and change, each in a column; what has no room is left out from the right.
    ``room``: how much of the width is free in every row."""
    glyphs = view.glyphs
    gap = _GAP if width >= 60 else " "
    places = [place(one, view.gpus) for one in shown]
    place_width = min(max(map(width_of, places)), 12 if width >= 60 else 7)
    causes = [cause(one.rule) for one in shown]
    costs = [lost(one) for one in shown]
    cost_width = max(map(width_of, costs))
    cause_room = room - 4 - place_width - len(gap)
    cause_width = min(max(map(width_of, causes)), max(8, cause_room))
    rows = []
    for finding, where, what, cost in zip(shown, places, causes, costs, strict=True):
        style = style_of(finding)
        row = _begin(view, finding, width)
        row.add(left(where, place_width, glyphs.ellipsis), "title").add(gap)
        row.add(left(what, cause_width, glyphs.ellipsis), style)
        if cost_width and row.used + len(gap) + cost_width < room:
            row.add(gap).add(left(cost, cost_width), "label")
        free = room - row.used - len(gap) - 1
        if free >= _LEAST_ADVICE:
            text = changes(finding, free) if finding.advice else clean(finding.summary)
            look = "value" if finding.advice else "label"
            row.add(gap).add(fit(text, free, glyphs.ellipsis), look)
        rows.append(row)
    return rows


def mark_line(view: View, width: int) -> Line:
    """``changed 12:04:31 (42s ago)  busy 41% -> 93%  126 -> 402 samples/s  waits 61% -> 3%  gone:
    loader is CPU-bound``. What a job reports of itself stands for the GPUs where there are none."""
    mark, snapshot = view.mark, view.snapshot
    row = Row(width)
    if mark is None or snapshot is None:
        return row.line()
    row.add(f" {view.glyphs.mark} ", "marker")
    clock = time.strftime("%H:%M:%S", time.localtime(mark.at_unix_seconds))
    ago = units.age(snapshot.monotonic_seconds - mark.at)
    row.add("next run" if mark.next_run else "changed", "title")
    names = gpu_names(mark.gpus, view.gpus)
    if names and len(mark.gpus) < len(view.gpus) and width >= 60:
        row.add(f" {names}", "title")
    row.add(f" {clock} ({ago} ago)" if width >= 100 else f" {ago} ago", "label")
    if mark.gpus or mark.pace_before is None:
        row.add("  busy ", "label").add(f"{units.percent(mark.busy_before)} -> ", "value")
        if mark.measured:
            row.add(units.percent(mark.busy_after), _better(mark.busy_before, mark.busy_after))
    if not mark.measured:
        waits = "GPU not in use yet" if mark.after_from is None else "measuring"
        row.add("" if mark.gpus or mark.pace_before is None else "  ")
        return row.add(waits, "label").line()
    _add_pace(row, mark)
    for word, rules, style in (
        ("gone", mark.rules_gone, "value"),
        ("new", mark.rules_new, "warn"),
    ):
        if rules:
            text = ", ".join(cause(rule) for rule in rules)
            if row.room >= len(word) + 12:
                row.add(f"  {word}: ", "label")
                row.add(fit(text, row.room - 1, view.glyphs.ellipsis), style)
    return row.line()


def _add_pace(row: Row, mark: Mark) -> None:
    before, after = mark.pace_before, mark.pace_after
    if before is None or after is None:
        return
    rates = before.samples_per_second, after.samples_per_second
    was, now = ["-" if rate is None else f"{rate:.0f}" for rate in rates]
    if row.room >= len(was) + len(now) + 16:
        row.add(f"  {was} -> ", "value").add(now, _better(*rates)).add(" samples/s", "label")
    waits = before.data_wait_share, after.data_wait_share
    if None not in waits and row.room >= 20:
        was, now = map(units.share, waits)
        row.add("  waits ", "label").add(f"{was} -> {now}", "value")


def _better(before: float | None, after: float | None) -> str:
    return "key" if before is not None and after is not None and after > before else "value"
