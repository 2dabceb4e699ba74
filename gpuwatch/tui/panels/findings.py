"""The band under the header, of as many rows whatever there is to say: findings, one line each, or
a quiet one that nothing is; readings that fail; what a change brought about."""

import time
from collections.abc import Iterable, Sequence

from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Diagnosis, Finding, FindingKey, about_job
from gpuwatch.tui.controllers.marking import is_about
from gpuwatch.tui.pages.finding_words import (
    cause,
    changes,
    gpu_names,
    lost,
    place,
    severity_sign,
    style_of,
    whose,
)
from gpuwatch.tui.pages.grid import band_rows
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, filled
from gpuwatch.tui.panels import problems
from gpuwatch.tui.panels.job.header import ended_at
from gpuwatch.tui.terminal.frame import Line, Row, Zone, fit, width_of, wrapped
from gpuwatch.tui.view import Side, View

_GAP = "  "
_LEAST_ADVICE = 12
_LEAST_NAME = 24
_EARLY_SECONDS = 30.0
"""A job that has been seen for less has not shown its steady work for as long as it takes."""


def _draw(page: Page, rows: int) -> Drawn:
    """The findings (those of the page's job only), problems, and what a change brought about.
    Problems leave the findings a row, an error takes the only one."""
    view, width, job, diagnosis = page.view, page.width, page.job, page.view.diagnosis
    findings: Sequence[Finding] = ()
    ended = job is not None and ended_at(view, job) is not None
    if ended:
        findings = view.job.findings
    elif diagnosis is not None:
        findings = diagnosis.causes if job is None else about_job(diagnosis, job)
    marked = rows > 1 and view.mark is not None and (job is None or is_about(view.mark, job))
    most = rows - marked
    quiet = not findings and (diagnosis is None or not page.gpus)
    grave = most == 1 and problems.are_grave(view)
    trouble = problems.lines(view, width, most if quiet or grave else min(1, most - 1))
    most -= len(trouble)
    lines: list[Line] = []
    if findings and most:
        lines = _findings(view, findings, width, most, "" if page.boxed else "[d] why")
    elif ended and most:
        what = "nothing was found in" if view.job.decided else "not enough data on"
        lines = [_quiet_line(view, f"{what} this job before it ended", width)]
    elif diagnosis is not None and most and (page.gpus or not trouble):
        # That no GPU is in use says nothing where none can be read.
        lines = _quiet(view, diagnosis, width, most)
    # One that is alone has several lines.
    keys = [
        findings[0 if len(findings) == 1 else y].key if findings else None
        for y in range(len(lines))
    ]
    zones = [Zone(y, 0, width, "finding", key) for y, key in enumerate(keys)]
    zones += [Zone(len(lines) + y, 0, width, "problems") for y in range(len(trouble))]
    lines = [*lines, *trouble, *([mark_line(view, width)] if marked else [])]
    return filled(lines, width, rows), zones


PANEL = Panel("findings", lambda page: band_rows(page.height, len(page.view.gpus)), _draw)


def keys_in(zones: Iterable[Zone]) -> list[FindingKey]:
    """The findings that have a line there, top to bottom."""
    shown = [zone.argument for zone in zones if isinstance(zone.argument, FindingKey)]
    return list(dict.fromkeys(shown))


def _quiet_line(view: View, text: str, width: int) -> Line:
    text = fit(text, width - 4, view.glyphs.ellipsis)
    return Row(width).add(f" {view.glyphs.dot} {text}", "dim").line()


def _quiet(view: View, diagnosis: Diagnosis, width: int, most: int) -> list[Line]:
    """The verdict where nothing was found; it is longer where the cause is not known."""
    text = clean(diagnosis.verdict)
    if diagnosis.findings:
        early = view.job.seen_seconds < _EARLY_SECONDS or not diagnosis.decided
        text = "not enough data on this job yet" if early else "nothing found in this job"
        text += f" ({len(diagnosis.causes)} elsewhere: d)"
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


def _findings(
    view: View, findings: Sequence[Finding], width: int, most: int, key: str
) -> list[Line]:
    if len(findings) == 1 and most > 1:
        return at_length(view, findings[0], width, key)
    shown = findings[:most]
    more = len(findings) - len(shown)
    note = f"+{more} more (d)" if width >= 60 else f"+{more}"
    rows = [_in_a_line(view, one, width, width - len(note) - 2 if more else width) for one in shown]
    if more:
        rows[-1].pad_to(width - len(note) - 1).add(note, "key")
    return [row.line() for row in rows]


def _begin(view: View, finding: Finding, width: int, room: int, prefix: str = "") -> Row:
    """The cursor, where it is on this one, the sign of its severity, and its sentence; place and
    cause where that has no room: cut, a sentence may say everything but the cause."""
    here = bool(prefix) or (view.in_findings and finding.key == view.finding)
    row, text = Row(width, prefix=prefix), clean(finding.summary)
    row.add(view.glyphs.marker if here else " ", "marker")
    row.add(f"{severity_sign(finding.severity, view.glyphs)} ", style_of(finding))
    if row.used + width_of(text) >= room:
        text = f"{place(finding, view.gpus)}: {cause(finding.rule)}"
    return row.add(fit(text, room - row.used - 1, view.glyphs.ellipsis), style_of(finding))


def at_length(view: View, finding: Finding, width: int, tail: str, prefix: str = "") -> list[Line]:
    """Its sentence, and below it what it costs, what to do, whose job it is, and ``tail``."""
    first = _begin(view, finding, width, width, prefix)
    second, cost = Row(width, prefix=prefix).add("   "), lost(finding).strip()
    if cost:
        second.add(cost, "label").add(_GAP)
    free = second.room - len(tail) - 3
    text = changes(finding, free - 4) or "no action needed: this is for information"
    second.add(fit(text, free, view.glyphs.ellipsis), "value" if finding.advice else "label")
    free = second.room - len(tail) - len(_GAP) - 2
    if free >= _LEAST_NAME:
        jobs = () if view.snapshot is None else view.snapshot.jobs
        who = fit(whose(finding, jobs), free, view.glyphs.ellipsis)
        second.add(_GAP).add(who, "label")
    second.pad_to(width - len(tail) - 1).add(tail, "label")
    return [first.line(), second.line()]


def _in_a_line(view: View, finding: Finding, width: int, room: int) -> Row:
    """Then what it costs and what to change, as far as that goes; ``room`` is free of the width."""
    cost = lost(finding)
    row = _begin(view, finding, width, room - (len(_GAP) + width_of(cost) if cost else 0))
    for text, look in ((cost, "label"), (changes(finding, room), "value")):
        free = room - row.used - len(_GAP) - 1
        if text and free >= min(width_of(text), _LEAST_ADVICE):
            row.add(_GAP).add(fit(text, free, view.glyphs.ellipsis), look)
    return row


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
    before, after = mark.before, mark.after
    of_gpus = bool(mark.gpus) or not before.reported
    if of_gpus:
        row.add("  busy ", "label").add(f"{units.percent(before.busy_percent)} -> ", "value")
    if after is None:
        waits = "GPU not in use yet" if mark.after_from is None else "measuring"
        return row.add("" if of_gpus else "  ").add(waits, "label").line()
    if of_gpus:
        better = _better(before.busy_percent, after.busy_percent)
        row.add(units.percent(after.busy_percent), better)
    if before.reported and after.reported:
        _add_reports(row, before, after)
    gone = [rule for rule in before.rules if rule not in after.rules]
    new = [rule for rule in after.rules if rule not in before.rules]
    for word, rules, style in (("gone", gone, "value"), ("new", new, "warn")):
        if rules and row.room >= len(word) + 12:
            row.add(f"  {word}: ", "label")
            text = ", ".join(cause(rule) for rule in rules)
            row.add(fit(text, row.room - 1, view.glyphs.ellipsis), style)
    return row.line()


def _add_reports(row: Row, before: Side, after: Side) -> None:
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
