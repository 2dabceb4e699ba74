"""Findings to choose from, and the band under the header that shows them.

The band has as many rows whatever there is to say: findings, one line each, or a quiet one that
nothing is; readings that fail; what a change brought about.
"""

import textwrap
import time
from collections.abc import Iterable, Sequence

from gpuwatch.core import units
from gpuwatch.core.model import Problem
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Diagnosis, Finding, FindingKey, about_job, severity_place
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, band_rows, filled
from gpuwatch.tui.panels.finding_words import (
    by_key,
    cause,
    changes,
    gpu_names,
    lost,
    parts,
    place,
    severity_sign,
    style_of,
    whose,
)
from gpuwatch.tui.runs import ended_at, is_about
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, fit, left, width_of, wrapped
from gpuwatch.tui.view import Side, View

# -- findings to choose from -----------------------------------------------------------------------


def present_findings(view: View) -> tuple[Finding, ...]:
    """Return a finding for each cause; those of the job that is looked at come first."""
    diagnosis, job = view.diagnosis, view.job.last
    if diagnosis is None or job is None:
        return () if diagnosis is None else diagnosis.causes
    own = {id(one) for one in about_job(diagnosis, job)}
    return tuple(sorted(diagnosis.causes, key=lambda one: own.isdisjoint(map(id, parts(one)))))


def findings_of_ended_job(view: View) -> tuple[Finding, ...]:
    """Return the findings about the job looked at when it ended; none while it runs."""
    job = view.job.last
    return () if job is None or ended_at(view, job) is None else view.job.findings


def readable_findings(view: View) -> tuple[Finding, ...]:
    """Return the findings that hold, then those of a job that ended."""
    now = present_findings(view)
    keys = {one.key for one in now}
    return (*now, *[one for one in findings_of_ended_job(view) if one.key not in keys])


def finding_holds(view: View, finding: Finding) -> bool:
    return any(one is finding for one in present_findings(view))


def chosen_finding(view: View) -> Finding | None:
    """Return the finding under the cursor, as it is now."""
    return by_key(readable_findings(view), view.finding)


def keep_finding_in_sight(view: View, keys: Sequence[FindingKey]) -> bool:
    """Keep the cursor among ``keys``, which the panel shows now: if the cursor was on one that is
    gone, it goes to another, or leaves the panel. Whether it had to."""
    if not view.in_findings or view.finding in keys:
        return False
    one = chosen_finding(view)
    view.in_findings = bool(keys)
    if keys:
        view.finding = one.key if one is not None and one.key in keys else keys[0]
    return True


# -- readings that fail ----------------------------------------------------------------------------


def _problem_lines(view: View, width: int, most: int) -> list[Line]:
    """Return at most ``most`` lines for the gravest problems; a single one is wrapped rather than
    cut, several get a line each and the last says how many more there are."""
    problems, glyphs = _worth_saying(view), view.glyphs
    if not problems or most <= 0:
        return []
    out: list[Run] = []
    if len(problems) == 1:
        wrapped = textwrap.wrap(problems[0].message, max(8, width - 5), max_lines=most,
                                placeholder=f" {glyphs.ellipsis}")  # fmt: skip
        style, signs = _problem_style(problems[0]), (glyphs.warning, *" " * most)
        out = [(f" {sign} {text}", style) for sign, text in zip(signs, wrapped, strict=False)]
    for number, problem in enumerate(problems[:most] if len(problems) > 1 else ()):
        more = len(problems) - most if number == most - 1 else 0
        note = f" +{more} more (!)" if more > 0 else ""
        text = fit(f" {glyphs.warning} {problem.message}", width - len(note) - 1, glyphs.ellipsis)
        out.append((left(text, width - len(note)) + note, _problem_style(problem)))
    return [Row(width).add(text, style).line() for text, style in out]


def _problems_are_grave(view: View) -> bool:
    """The gravest is an error, and no finding says so."""
    return any(one.severity == "error" for one in _worth_saying(view))


def _worth_saying(view: View) -> list[Problem]:
    """Errors first, then warnings, each once; what is merely good to know is left to the
    problems screen."""
    there = () if view.snapshot is None else view.snapshot.problems
    worth = [p for p in there if p.severity != "info" and not _is_a_finding(view, p)]
    return sorted(worth, key=lambda p: severity_place(p.severity))


def _is_a_finding(view: View, problem: Problem) -> bool:
    """A GPU that is lost is said once, with what to do."""
    names: set[str | None] = {problem.target} if problem.reading is None else set()
    if problem.reading == "lost":
        names = {gpu.uuid for gpu in view.gpus if gpu.lost}
    findings = () if view.diagnosis is None else view.diagnosis.findings
    found = [uuid for one in findings if one.rule == "gpu_lost" for uuid in one.gpus]
    return bool(names) and names.issubset(found)


def _problem_style(problem: Problem) -> str:
    return "error" if problem.severity == "error" else "warn"


# -- the band --------------------------------------------------------------------------------------


_GAP = "  "
_LEAST_ADVICE = 12
_LEAST_NAME = 24
_EARLY_SECONDS = 30.0
"""A job that has been seen for less has not shown its steady work for as long as it takes."""


def _draw(page: Page, rows: int) -> Drawn:
    """Draw findings (those of the page's job only), problems, and what a change brought about."""
    view, width, job = page.view, page.width, page.job
    marked = rows > 1 and view.mark is not None and (job is None or is_about(view.mark, job))
    findings = _findings_to_show(page)
    trouble = _trouble(page, findings, rows - marked)
    lines = _found(page, findings, rows - marked - len(trouble), bool(trouble))
    # One that is alone has several lines.
    alone = len(findings) == 1
    keys = [findings[0 if alone else y].key if findings else None for y in range(len(lines))]
    zones = [Zone(y, 0, width, "finding", key) for y, key in enumerate(keys)]
    zones += [Zone(len(lines) + y, 0, width, "problems") for y in range(len(trouble))]
    lines = [*lines, *trouble, *([mark_line(view, width)] if marked else [])]
    return filled(lines, width, rows), zones


def _has_ended(page: Page) -> bool:
    return page.job is not None and ended_at(page.view, page.job) is not None


def _findings_to_show(page: Page) -> Sequence[Finding]:
    """Return the causes found; on a job's page those of the job, also after it has ended."""
    diagnosis = page.view.diagnosis
    if _has_ended(page):
        return page.view.job.findings
    if diagnosis is None:
        return ()
    return diagnosis.causes if page.job is None else about_job(diagnosis, page.job)


def _trouble(page: Page, findings: Sequence[Finding], most: int) -> list[Line]:
    """Return lines on readings that fail. They leave the findings a row; an error takes the only
    one."""
    view = page.view
    quiet = not findings and (view.diagnosis is None or not page.gpus)
    grave = most == 1 and _problems_are_grave(view)
    return _problem_lines(view, page.width, most if quiet or grave else min(1, most - 1))


def _found(page: Page, findings: Sequence[Finding], most: int, trouble: bool) -> list[Line]:
    """Return at most ``most`` lines on what was found, or that nothing was."""
    view, width, diagnosis = page.view, page.width, page.view.diagnosis
    if not most:
        return []
    if findings:
        return _findings(view, findings, width, most, "" if page.boxed else "[d] why")
    if _has_ended(page):
        what = "nothing was found in" if view.job.decided else "not enough data on"
        return [_quiet_line(view, f"{what} this job before it ended", width)]
    if diagnosis is None or (trouble and not page.gpus):
        # That no GPU is in use says nothing where none can be read.
        return []
    return _quiet(view, diagnosis, width, most)


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
    """Return its sentence, and below it what is lost, what to do, whose job it is, and
    ``tail``."""
    first = _begin(view, finding, width, width, prefix)
    second, loss = Row(width, prefix=prefix).add("   "), lost(finding).strip()
    if loss:
        second.add(loss, "label").add(_GAP)
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
    """Return a finding in one line, with what is lost and what to change as far as that goes;
    ``room`` is free of the width."""
    loss = lost(finding)
    row = _begin(view, finding, width, room - (len(_GAP) + width_of(loss) if loss else 0))
    for text, look in ((loss, "label"), (changes(finding, room), "value")):
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
