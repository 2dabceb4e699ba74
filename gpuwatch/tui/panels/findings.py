"""Findings in a few words, those to choose from, and the band under the header that shows them.

The band has as many rows whatever there is to say: findings, one line each, or a quiet one that
nothing is; readings that fail; what a change brought about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, GpuKey, Job, Problem
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import (
    Diagnosis,
    Finding,
    FindingKey,
    Unchecked,
    about_job,
    gpu_names,
    in_short,
    severity_place,
)
from gpuwatch.diagnosis.rule import NO_ANSWER, Rule
from gpuwatch.outputs.terminal import wrap
from gpuwatch.tui.charts.strips import Glyphs
from gpuwatch.tui.charts.timeline import FindingMark, marks_about, marks_at
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, band_rows, filled
from gpuwatch.tui.panels.table import fit_command
from gpuwatch.tui.runs import ended_at, is_about
from gpuwatch.tui.terminal.frame import Line, Row, Zone, fit, width_of, wrapped
from gpuwatch.tui.view import BeforeOrAfter, View

if TYPE_CHECKING:
    from gpuwatch.diagnosis.ledger import Episode


# -- in a few words: the cause, where, what is lost, what to change -------------------------------


_WIDE, _NARROW = 100, 60
"""Columns in which all of a sentence has room, and what is lost is told from its share; and those
below which what to do about the first finding comes before the next one."""

SEVERITY_STYLES = {"error": "error", "warning": "warn", "info": "label"}


def by_key(findings: Iterable[Finding], key: FindingKey | None) -> Finding | None:
    """Return the finding with this key as it is now; one that has moved to other GPUs of its job,
    or that others have joined, is still it."""
    if key is None:
        return None
    same = [finding for finding in findings if finding.rule == key.rule]
    for finding in same:
        if finding.key == key:
            return finding
    jobs = [one for one in same if one.job is not None and one.job == key.job]
    shared = [one for one in same if not set(one.gpus).isdisjoint(key.gpus)]
    return next(iter(jobs or shared), None)


def parts(finding: Finding) -> tuple[Finding, ...]:
    """Return the finding of each job, where it is one of several."""
    return finding.members or (finding,)


def whose(finding: Finding, jobs: Sequence[Job], room: int = 400, ellipsis: str = "…") -> str:
    """Return ``PID 4242 python train.py``, ``6 jobs``, in at most ``room`` cells; nothing where no
    job is known."""
    keys = {one.job for one in parts(finding) if one.job is not None}
    if len(keys) > 1:
        return fit(f"{len(keys)} jobs", room, ellipsis)
    commands = {job.key: clean(job.command or "") for job in jobs}
    texts = [fit_command(commands.get(key, ""), room, ellipsis, f"PID {key[0]} ") for key in keys]
    return "".join(texts).strip()


def rule_of(name: str) -> Rule:
    """Return the rule of this name; an empty one for the name of another version of gpuwatch."""
    # The rules come with the engine, which nobody waits for.
    from gpuwatch.diagnosis.catalogue import known  # noqa: PLC0415

    return known(name)


def cause(rule: str) -> str:
    """Return the cause in at most 22 characters."""
    return clean(rule_of(rule).title, 22)


def cause_of(finding: Finding | Episode | FindingMark) -> str:
    """Return the cause of a finding, in as much doubt as its sentence."""
    in_doubt = rule_of(finding.rule).title_in_doubt if finding.in_doubt else ""
    return in_doubt or cause(finding.rule)


def style_of(finding: Finding) -> str:
    return SEVERITY_STYLES.get(finding.severity, "warn")


def severity_sign(severity: str, glyphs: Glyphs) -> str:
    """Return a shape of its own for each severity."""
    signs = {"error": glyphs.grave, "info": glyphs.note}
    return signs.get(severity, glyphs.warning)


def about_gpu(diagnosis: Diagnosis | None, uuid: GpuKey) -> list[Finding]:
    """Return the findings that name this GPU, the leading one first."""
    found = () if diagnosis is None else diagnosis.findings
    return [one for one in found if uuid in one.gpus]


def place(finding: Finding, gpus: Sequence[Gpu]) -> str:
    """Return ``GPU 0``, ``GPU 0-3,6``, ``8 GPUs`` (all), ``7 GPUs wait for GPU 3``, ``PID 4242``,
    or ``host``."""
    names, late = gpu_names(finding.gpus, gpus), gpu_names(finding.late, gpus)
    others = [one for one in finding.gpus if one not in finding.late]
    if late and len(others) > 1:
        return f"{len(others)} GPUs wait for {late}"
    if late and (waits := gpu_names(others, gpus)):
        return f"{waits} waits for {late}"
    if names:
        return names
    if finding.job is not None:
        return f"PID {finding.job[0]}"
    return "GPU" if finding.gpus else "host"


def shorter_and_shorter(
    one: Finding | FindingMark, gpus: Sequence[Gpu], label: str
) -> Iterator[str]:
    """Yield its sentence, then the same in fewer words, and at last a ``label``."""
    yield clean(one.summary)
    yield from map(clean, in_short(one, gpus))
    yield label


def lost(finding: Finding, view: View, width: int = _WIDE) -> str:
    """Return ``38% lost``: of the time of its sentence. Where that has the share of some GPUs of a
    job, and ``width`` allows it, ``29% of 4 GPUs lost``. Nothing where no time is lost, or it is
    not known."""
    share = finding.share_lost
    if share is None or share <= 0:
        return ""
    of = f" of {count} GPUs" if width >= _WIDE and (count := _more_gpus(finding, view)) else ""
    return f"<1%{of} lost" if share < 0.005 else f"{share * 100:2.0f}%{of} lost"


def _more_gpus(finding: Finding, view: View) -> int:
    """Return the number of GPUs that its jobs use, and of which its loss is a share, where its
    sentence is about some of them; else 0."""
    jobs = () if view.snapshot is None else view.snapshot.jobs
    keys = {one.job for one in parts(finding)}
    every = {uuid for job in jobs if job.key in keys for uuid in job.gpu_uuids}.union(finding.gpus)
    named = set(finding.gpus).difference(finding.late)
    return len(every) if named and named < every else 0


def lost_so_far(finding: Finding, view: View) -> list[str]:
    """Return ``38% lost over 1 min; 46 GPU-seconds, 38.2Wh so far``, at a price the money
    instead of the energy, and for less room the same without; nothing where no time is lost."""
    forms, seconds = losses(finding, view)[:1], finding.cost_gpu_seconds
    if seconds is None:
        return forms
    worth = units.worth(seconds, view.price_per_gpu_hour, finding.lost_joules)
    texts = [f"{units.gpu_time(seconds)}{worth} so far", units.gpu_time(seconds)]
    return ["; ".join([*forms, text]) for text in texts]


def changes(finding: Finding, room: int) -> str:
    """Return as many changes as fit, the first in any case, in as many words as there is room
    for."""
    text = ""
    sentences = any(one.setting is None or one.wanted is None for one in finding.advice)
    between = "; " if sentences else ", "
    # Of several jobs each may have the same.
    for change, brief in dict.fromkeys([(clean(one.change), one.brief) for one in finding.advice]):
        if not text:
            text = change_in(change, brief, room)
            continue
        next_one = change[:1].lower() + change[1:] if change[1:2].islower() else change
        if width_of(more := f"{text}{between}{next_one}") > room:
            break
        text = more
    return text


def change_in(change: str, brief: str, room: int) -> str:
    """Return a change for ``room`` cells: without what stands in brackets, its ``brief`` form, or
    that up to what it says of how, where the rest has no room."""
    known = _forms(change, brief)
    return next((one for one in known if width_of(one) <= room), known[-1] if known else "")


def _forms(change: str, brief: str) -> list[str]:
    change, brief = clean(change), clean(brief)
    forms = [change, _ASIDE.sub("", change), brief, _HOW.split(brief)[0]]
    return [one for one in forms if one]


_ASIDE, _CLAUSE_ENDS = re.compile(r" \([^()]*\)"), re.compile(r"[:;,.](?= )")
_HOW = re.compile("[:;] ")


def shortened(text: str, room: int, ellipsis: str) -> str:
    """Return advice that has no shorter form in at most ``room`` cells: up to the end of a clause,
    if half of the room is used then."""
    if width_of(text) <= room:
        return text
    ends = [found.start() for found in _CLAUSE_ENDS.finditer(text, 0, room + 1)]
    if ends and 2 * ends[-1] >= room:
        return f"{text[: ends[-1]]}{ellipsis}"
    return fit(text, room, ellipsis)


def losses(finding: Finding, view: View, width: int = _WIDE, *, dated: bool = False) -> list[str]:
    """Return ``29% of 4 GPUs lost over 1 min``, and for less room the same in fewer words;
    nothing where no time is lost. ``dated``: since when it is found stands beside it."""
    text, seconds = lost(finding, view, width).strip(), finding.lost_of_seconds
    forms = [text, lost(finding, view, 0).strip()] if text else []
    since = finding.since_unix_seconds
    if text and since is not None and rule_of(finding.rule).means is NO_ANSWER:
        # All of the time from then on, and nothing before.
        clock = units.clock(since)
        forms = forms if dated else [f"{text} since {clock}", *forms]
    elif text and seconds is not None:
        span = f"{seconds:.0f} s" if seconds < 57.5 else f"{seconds / 60.0:.0f} min"
        forms.insert(0, f"{text} over {span}")
    return forms


def gains(finding: Finding, width: int = _WIDE) -> list[str]:
    """Return ``about 1.8x as fast, limited by 8 cores``, in less room without the limit, and on a
    narrow screen as ``~1.8x``; nothing where nothing is promised."""
    gain = finding.gain
    if gain is None or gain.factor is None:
        return []
    least = [f"~{gain.times}"] if width < _NARROW else []
    return [clean(gain.says), gain.brief, *least]


def undecided(unknown: Iterable[Unchecked]) -> dict[str, list[str]]:
    """Causes that could not be decided, by the readings that were missing."""
    causes: dict[str, list[str]] = {}
    for one in unknown:
        names = causes.setdefault(clean(", ".join(one.missing)), [])
        if cause(one.rule) not in names:
            names.append(cause(one.rule))
    return causes


def how_to_read(missing: str) -> str:
    """Return the key that reads what is missing, in brackets; nothing where there is none."""
    return " (S on the job's page samples them)" if missing.startswith("stacks") else ""


# -- findings to choose from -----------------------------------------------------------------------


def present_findings(view: View) -> tuple[Finding, ...]:
    """Return a finding for each cause; those of the job that is looked at come first, information
    last."""
    diagnosis, job = view.diagnosis, view.job.last
    if diagnosis is None or job is None:
        return () if diagnosis is None else diagnosis.causes
    own = {id(one) for one in about_job(diagnosis, job)}

    def order(one: Finding) -> tuple[bool, bool]:
        return one.severity == "info", own.isdisjoint(map(id, parts(one)))

    return tuple(sorted(diagnosis.causes, key=order))


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
    problems = worth_saying(view)
    if not problems or most <= 0:
        return []
    if len(problems) == 1:
        signed, text, style = _problem_look(view, problems[0])
        return _signed(view, signed, text, style, width, width - 2, most)
    lines = []
    for number, problem in enumerate(problems[:most]):
        more = len(problems) - most if number == most - 1 else 0
        note = f"+{more} more (!)" if more > 0 else ""
        (sign, look), text, style = _problem_look(view, problem)
        row = Row(width).add(f" {sign} ", look)
        row.add(fit(text, width - len(note) - 5, view.glyphs.ellipsis), style)
        lines.append(row.pad_to(width - len(note) - 1).add(note, "key").line())
    return lines


def _problem_look(view: View, problem: Problem) -> tuple[tuple[str, str], str, str]:
    """Return its sign with the sign's style, its text, and the style of that: what gpuwatch cannot
    read is no finding, and has no sign of one."""
    if problem.severity == "error":
        return (view.glyphs.grave, "error"), problem.message, "error"
    return (view.glyphs.unread, "key"), problem.message, "text"


def _signed(
    view: View, sign: tuple[str, str], text: str, style: str, width: int, room: int, most: int
) -> list[Line]:
    """Draw ``text`` in ``room`` cells behind a sign in its style, in at most ``most`` lines. Only
    what is wrong has the colour of an error, and commands are bold; where there is room, what to do
    stands below it."""
    text, room = clean(text), room - 3
    what = _FIRST_CLAUSE.match(text) if style == "error" else None
    texts = [text] if what is None else [what[0].rstrip(":;"), text[what.end() + 1 :]]
    if sum([len(wrap(one, room)) for one in texts]) > most:
        texts = [text]
    wrong = _WRONG.match(text) if style == "error" else None
    red = len(wrong[0]) if wrong else 0
    rows: list[Row] = []
    for one in texts:
        is_command = False
        for line in wrap(one, room, most=most):
            row = Row(width).add("   " if rows else f" {sign[0]} ", sign[1])
            shown = line.replace("…", view.glyphs.ellipsis)
            row.add(shown[:red], "error")
            for number, part in enumerate(shown[red:].split("`")):
                is_command ^= number > 0
                plain_style = "text" if style == "error" else style
                row.add(part, "value" if is_command else plain_style)
            # A line ends where a blank was.
            red = max(0, red - len(line) - 1)
            rows.append(row)
    return [row.line() for row in rows]


_FIRST_CLAUSE = re.compile(r".+?[:;.](?= )")
_WRONG = re.compile(r".+?(?=, so |[:;.] |$)")


def _problems_are_grave(view: View) -> bool:
    """Return whether the gravest is an error, and no finding says so."""
    return any(one.severity == "error" for one in worth_saying(view))


def worth_saying(view: View) -> list[Problem]:
    """Errors first, then warnings, each once; what is merely good to know is left to the
    problems screen."""
    there = () if view.snapshot is None else view.snapshot.problems
    worth = [p for p in there if p.severity != "info" and not _is_a_finding(view, p)]
    return sorted(worth, key=lambda p: severity_place(p.severity))


def _is_a_finding(view: View, problem: Problem) -> bool:
    """Return whether a finding says it: a GPU that is lost is said once, with what to do."""
    findings = () if view.diagnosis is None else view.diagnosis.findings
    names: set[str | None] = {problem.target} if problem.reading is None else set()
    if problem.reading == "lost":
        names = {gpu.uuid for gpu in view.gpus if gpu.lost}
    found = [uuid for one in findings if one.rule == "gpu_lost" for uuid in one.gpus]
    return bool(names) and names.issubset(found)


# -- the band --------------------------------------------------------------------------------------


_GAP = "  "
_BRIEF = 46
"""Cells of the short form of advice, which is all of it."""
_LEAST_ADVICE = 24
_LOSS_CELLS = len("100% lost")
_LEAST_NAME = 24
_THEN = "then: "
"""Words before what held at a moment in the past; the header says how long ago that was."""
_EARLY_SECONDS = 30.0
"""A job that has been seen for less has not shown its steady work for as long as it takes."""


def _draw(page: Page, rows: int) -> Drawn:
    """Draw findings (those of the page's job only), problems, and what a change brought about."""
    view, width, job = page.view, page.width, page.job
    marked = rows > 1 and view.mark is not None and (job is None or is_about(view.mark, job))
    findings = _findings_to_show(page)
    then = _then(page, rows - marked)
    trouble = _trouble(page, findings, rows - marked - len(then))
    free = max(0, rows - marked - len(then) - len(trouble))
    lines = _found(page, findings, min(1, free) if then else free, bool(trouble))
    if then:
        # What holds now has no colour beside what held then.
        lines = [tuple([(text, "label") for text, _ in line]) for line in lines]
    at_once = _lines_each(findings, width, free)
    keys = [findings[y // at_once].key if findings else None for y in range(len(lines))]
    zones = [Zone(len(then) + y, 0, width, "finding", key) for y, key in enumerate(keys)]
    lines = [*then, *lines]
    zones += [Zone(len(lines) + y, 0, width, "problems") for y in range(len(trouble))]
    lines = [*lines, *trouble, *([mark_line(view, width)] if marked else [])]
    return filled(lines, width, rows), zones


def _then(page: Page, most: int) -> list[Line]:
    """Return what held at the moment in the past that is looked at, in all but the last of so many
    lines; nothing while that is now."""
    view, width = page.view, page.width
    moment, snapshot = view.timeline.moment, view.snapshot
    if moment is None or snapshot is None or view.diagnosis is None or most <= 0:
        return []
    shown = {gpu.uuid for gpu in page.gpus}
    held = list(marks_at(view.spans, moment, moment))
    held = held if page.job is None else list(marks_about(held, shown))
    held.sort(key=lambda one: severity_place(one.severity))
    if not held:
        dot = view.glyphs.dot, "text"
        return _signed(view, dot, f"{_THEN}no finding held", "text", width, width - 1, 1)
    mark = held[0]
    more = f" (+{len(held) - 1} more)" if len(held) > 1 else ""
    style = SEVERITY_STYLES.get(mark.severity, "warn")
    first = Row(width).add(f" {severity_sign(mark.severity, view.glyphs)} ", style)
    room = first.room - 1 - len(more)
    share = f", {units.share(mark.lost_share)} lost" if mark.lost_share else ""
    forms = [_THEN + one for one in shorter_and_shorter(mark, view.gpus, cause_of(mark) + share)]
    change = change_in(mark.change, mark.brief, _BRIEF) if most < 3 else ""
    beside = len(_GAP) + width_of(change) if change else 0
    # On one line what to do comes before more words for the cause.
    fits = [(one, taken) for taken in (beside, 0) for one in forms if width_of(one) + taken <= room]
    text, taken = fits[0] if fits else (forms[-1], 0)
    first.add(fit(f"{text}{more}", first.room - 1, view.glyphs.ellipsis), style)
    if most < 3:
        return [(first.add(_GAP).add(change, "value") if taken else first).line()]
    change = change_in(mark.change, mark.brief, width - 5)
    second = Row(width).add("   ").add(shortened(change, width - 5, view.glyphs.ellipsis), "value")
    return [first.line(), second.line()]


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
    """Return lines on readings that fail. They take no row that a finding needs; an error takes
    one, and be it the only one."""
    view = page.view
    if not findings and (view.diagnosis is None or not page.gpus):
        return _problem_lines(view, page.width, most)
    if _problems_are_grave(view):
        return _problem_lines(view, page.width, min(1, most))
    # A finding has its sentence and what to do.
    return _problem_lines(view, page.width, min(1, most - max(1, min(2 * len(findings), most))))


def _found(page: Page, findings: Sequence[Finding], most: int, trouble: bool) -> list[Line]:
    """Return at most ``most`` lines on what was found, or that nothing was."""
    view, width, diagnosis = page.view, page.width, page.view.diagnosis
    if not most:
        return []
    if findings:
        if _lines_each(findings, width, most) > 1:
            # A job's page says above whose it is.
            tail, named = _more(findings[1:], width), page.job is None
            return at_length(view, findings[0], width, tail, most=most, named=named)
        return _findings(view, findings, width, most)
    if _has_ended(page):
        what = "nothing was found in" if view.job.decided else "not enough data on"
        text = f"{what} this job before it ended"
        return _signed(view, (view.glyphs.dot, "dim"), text, "dim", width, width - 1, 1)
    if diagnosis is None or (trouble and not page.gpus):
        # That no GPU is in use says nothing where none can be read.
        return []
    return _quiet(view, diagnosis, width, most, named=page.job is None)


def _rows(page: Page) -> int:
    # One job has fewer things wrong than a machine.
    several = len(page.view.gpus) if page.job is None else min(1, len(page.view.gpus))
    return band_rows(page.height, several)


PANEL = Panel("findings", _rows, _draw)


def keys_in(zones: Iterable[Zone]) -> list[FindingKey]:
    """Return the findings that have a line there, top to bottom."""
    shown = [zone.argument for zone in zones if isinstance(zone.argument, FindingKey)]
    return list(dict.fromkeys(shown))


def _quiet(view: View, diagnosis: Diagnosis, width: int, most: int, *, named: bool) -> list[Line]:
    """Return the verdict where nothing was found; it is longer where the cause is not known.
    ``named``: where there is one job, whose it is."""
    text = _dated(view) + clean(diagnosis.verdict)
    if diagnosis.findings:
        early = view.job.seen_seconds < _EARLY_SECONDS or not diagnosis.decided
        text = "not enough data on this job yet" if early else "nothing found in this job"
        text += f" ({len(diagnosis.causes)} elsewhere: d)"
    style = "text" if diagnosis.decided else "label"
    if len(wrapped(text, width - 4)) > (most if width >= _NARROW else 1):
        text = _ASIDE.sub("", text)
    well = diagnosis.decided and not diagnosis.findings
    sign = (view.glyphs.good, "fed") if well else (view.glyphs.dot, style)
    lines = _signed(view, sign, text, style, width, width - 1, most)
    if well and len(lines) < most:
        watched = units.age(diagnosis.watched_seconds)
        row = Row(width).add(f"   watched for {watched}: no finding holds", "label")
        jobs = () if view.snapshot is None or not named else view.snapshot.jobs
        if len(jobs) == 1 and row.room >= _LEAST_NAME:
            text = clean(jobs[0].command or "")
            room = row.room - len(_GAP) - 1
            named_job = fit_command(text, room, view.glyphs.ellipsis, f"PID {jobs[0].key[0]} ")
            row.add(_GAP).add(named_job, "label")
        lines.append(row.line())
    return lines


def _dated(view: View) -> str:
    """Return ``now: `` while the numbers beside the charts are those of a moment in the past."""
    return "" if view.timeline.moment is None else "now: "


def _findings(view: View, findings: Sequence[Finding], width: int, most: int) -> list[Line]:
    """Return a line for each of several: the first, which leads, in its colour."""
    shown = findings[:most]
    note = _more(findings[most:], width)
    rooms = [width] * len(shown)
    if note:
        rooms[-1] -= len(note) + 2
    begun = [
        _begin(view, one, width, room, in_a_line=True, quiet=one is not shown[0])
        for one, room in zip(shown, rooms, strict=True)
    ]
    # What is lost and what to do stand below each other.
    along = max([row.used for row in begun]) if width >= _WIDE else 0
    rows = [
        _end(view, one, row.pad_to(along), width, room)
        for one, row, room in zip(shown, begun, rooms, strict=True)
    ]
    if note and rows:
        rows[-1].pad_to(width - len(note) - 1).add(note, "key")
    return [row.line() for row in rows]


def _lines_each(findings: Sequence[Finding], width: int, rows: int) -> int:
    """Return how many of ``rows`` lines a finding has: all where it is alone, or the screen is too
    narrow for what to do in the line that says what is wrong."""
    return max(1, rows) if len(findings) == 1 or width < _NARROW else 1


def _more(others: Sequence[Finding], width: int) -> str:
    """Return ``+2 more (d)`` for those that have no line, ``+1 note (d)`` where they are notes."""
    if not others:
        return ""
    notes = all(one.severity == "info" for one in others)
    what = units.plural(len(others), "note") if notes else f"{len(others)} more"
    return f"+{what} (d)" if width >= _NARROW else f"+{len(others)}"


def _begin(
    view: View,
    finding: Finding,
    width: int,
    room: int,
    prefix: str = "",
    *,
    in_a_line: bool = False,
    quiet: bool = False,
) -> Row:
    """Begin a line: the cursor, where it is on this finding, the sign of its severity, and its
    sentence in as many words as there is room for. Where all else is said ``in_a_line``, too, it
    gives way to what to do and what is lost; a ``quiet`` one has its colour in the sign alone,
    unless it is an error."""
    here = bool(prefix) or (view.in_findings and finding.key == view.finding)
    row, style = Row(width, prefix=prefix), style_of(finding)
    row.add(view.glyphs.marker if here else " ", "marker")
    row.add(f"{severity_sign(finding.severity, view.glyphs)} ", style)
    room -= row.used + 1
    label = f"{place(finding, view.gpus)}: {cause_of(finding)}"
    forms = [_dated(view) + one for one in shorter_and_shorter(finding, view.gpus, label)]
    besides = [0]
    if in_a_line:
        loss = width_of(lost(finding, view, width))
        change = min(
            [
                width_of(one)
                for each in finding.advice[:1]
                for one in _forms(each.change, each.brief)
            ],
            default=0,
        )
        besides = [loss + change + 2 * len(_GAP), loss + len(_GAP), 0]
    # What is lost gives way to no form but the full one; what to do to none but a label.
    fitting = [
        one
        for beside in besides
        for one in forms[: -1 if beside else None] or forms
        if width_of(one) + beside <= room
    ]
    text = next(iter(fitting), forms[-1])
    quiet = quiet and finding.severity == "warning"
    return row.add(fit(text, room, view.glyphs.ellipsis), "text" if quiet else style)


def at_length(
    view: View,
    finding: Finding,
    width: int,
    tail: str = "",
    prefix: str = "",
    *,
    beside: str = "",
    most: int = 2,
    named: bool = True,
    quiet: bool = False,
) -> list[Line]:
    """Return its sentence, with ``beside`` at the right, and below it what to do, how much faster
    that makes it, and what is lost; at the right ``tail``, which says that itself. In less room the
    advice is brief, and what else has none is left out. Where ``most`` allows a third line, it says
    what is known of the finding: what is lost, how sure it is and since when, and whose job it is
    (where that is to be ``named``). ``quiet``: only its sign is in colour, and nothing bold."""
    room = width - (width_of(beside) + len(_GAP) if beside else 0)
    first = _begin(view, finding, width, room, prefix, quiet=quiet)
    if beside:
        first.pad_to(width - width_of(beside) - 1).add(beside, "label" if quiet else "value")
    second = Row(width, prefix=prefix).add("   ")
    free, indent, apart = second.room - 1, second.used, most > 2
    least = "no action needed: this is for information"
    if finding.advice:
        least = change_in(finding.advice[0].change, finding.advice[0].brief, _BRIEF)

    def longest(texts: Sequence[str], *others: str) -> str:
        """Return the first of the texts beside which the others and the change have room."""
        taken = width_of(least) + sum([width_of(one) + len(_GAP) for one in others if one])
        fits = [text for text in texts if taken + len(_GAP) + width_of(text) <= free]
        return next(iter(fits), "")

    every_loss = [] if tail or apart else losses(finding, view, width)
    every_gain = gains(finding, width)
    gain = longest(every_gain[-1:], tail)
    loss = longest(every_loss, gain, tail)
    gain = longest(every_gain, loss, tail)
    look = "label" if not finding.advice else "text" if quiet else "value"
    room = free - sum([width_of(one) + len(_GAP) for one in (gain, loss, tail) if one])
    text, row, lines = changes(finding, room) or least, second, [second]
    row.add(shortened(text, room, view.glyphs.ellipsis), look)
    for one in filter(None, (gain, loss)):
        row.add(_GAP).add(one, "label")
    if apart:
        row = Row(width, prefix=prefix).add(" " * indent)
        row.add(_GAP.join([*losses(finding, view, width, dated=True)[:1], sure(finding)]), "label")
        lines.append(row)
    free = row.room - (len(tail) + len(_GAP) if tail else 0) - len(_GAP) - 1
    complete = bool(loss) >= bool(every_loss) and bool(gain) >= bool(every_gain)
    if named and (apart or complete) and finding.job is not None and free >= _LEAST_NAME:
        jobs = () if view.snapshot is None else view.snapshot.jobs
        row.add(_GAP).add(whose(finding, jobs, free, view.glyphs.ellipsis), "label")
    if tail:
        row.pad_to(width - len(tail) - 1).add(tail, "label")
    return [first.line(), *[one.line() for one in lines]]


def sure(finding: Finding) -> str:
    """Return ``99% sure, since 22:30:00``, and without the time while that is not known."""
    text = f"{finding.confidence * 100:.0f}% sure"
    since = finding.since_unix_seconds
    return text if since is None else f"{text}, since {units.clock(since)}"


def _end(view: View, finding: Finding, row: Row, width: int, room: int) -> Row:
    """Add what is lost, what to change and how much faster that is, as far as they go; ``room`` is
    free of the ``width``."""
    loss = lost(finding, view, width)
    aligned = width >= _WIDE
    if (loss or aligned) and row.used + len(_GAP) + width_of(loss) < room:
        row.add(_GAP).add(f"{loss:>{_LOSS_CELLS}}" if aligned else loss, "label")
    free = room - row.used - len(_GAP) - 1
    text = changes(finding, free)
    # What comes without a short form, as from another version of gpuwatch, is cut.
    least = _LEAST_ADVICE if text and not finding.advice[0].brief else width_of(text)
    if text and free >= min(width_of(text), least):
        row.add(_GAP).add(shortened(text, free, view.glyphs.ellipsis), "value")
    free = room - row.used - len(_GAP) - 1
    if gain := next((one for one in gains(finding, width) if width_of(one) <= free), ""):
        row.add(_GAP).add(gain, "label")
    return row


def mark_line(view: View, width: int) -> Line:
    """Return what came of a change: ``changed 12:04:31 (42s ago)  busy 41% -> 93%  126 -> 402
    samples/s  waits 61% -> 3%  gone: loader is CPU-bound``. What a job reports of itself stands for
    the GPUs where there are none."""
    mark, snapshot = view.mark, view.snapshot
    row = Row(width)
    if mark is None or snapshot is None:
        return row.line()
    row.add(f" {view.glyphs.mark} ", "marker")
    clock = units.clock(mark.at_unix_seconds)
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
    _add_gain(row, before, after)
    _add_rules(row, view, "gone", before, after, "value")
    _add_rules(row, view, "new", after, before, "warn")
    return row.line()


def _add_rules(
    row: Row, view: View, word: str, those: BeforeOrAfter, others: BeforeOrAfter, style: str
) -> None:
    """Add the causes that ``those`` have and ``others`` have not, as the time axis calls them."""
    names = {one.rule: cause_of(one) for one in view.spans}
    rules = [rule for rule in those.rules if rule not in others.rules]
    text = ", ".join([names.get(rule) or cause(rule) for rule in rules])
    if text and row.room >= len(word) + 12:
        row.add(f"  {word}: ", "label").add(fit(text, row.room - 1, view.glyphs.ellipsis), style)


def _add_gain(row: Row, before: BeforeOrAfter, after: BeforeOrAfter) -> None:
    """Add how many times as fast it is, beside what was predicted."""
    measured, gain = after.times(before), before.predicted
    if measured is None or gain is None or gain.factor is None:
        return
    text = f"{measured:.1f}x as fast ({gain.factor:.1f}x predicted)"
    if row.room >= len(text) + 3:
        row.add("  ").add(text, "label")


def _add_reports(row: Row, before: BeforeOrAfter, after: BeforeOrAfter) -> None:
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
