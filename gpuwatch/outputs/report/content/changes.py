"""Two reports compared, in words and as a document."""

from collections.abc import Callable, Iterable

from gpuwatch.core import units
from gpuwatch.outputs.report.comparison import Comparison, Figure, FindingChange
from gpuwatch.outputs.report.content import words
from gpuwatch.outputs.report.content.document import (
    Block,
    Bullets,
    Column,
    Document,
    Found,
    Labelled,
    Said,
    Section,
    Table,
)
from gpuwatch.outputs.report.content.findings import advice_line, quality, worded
from gpuwatch.outputs.report.content.timeline import meta, timeline
from gpuwatch.outputs.report.content.words import Times
from gpuwatch.outputs.report.encoding import dumps
from gpuwatch.outputs.report.model import Report, without_profiles
from gpuwatch.outputs.report.parts import replaced

MUCH_LONGER = 3.0
_ONLY_CHANGES = {"gpus", "throttled_percent"}
"""Of these only a difference says something."""
_PROPORTIONAL, _RESIDENT = "memory_proportional_peak_bytes", "memory_resident_peak_bytes"


def _share(value: float) -> str:
    """Below ten percent a digit more says something."""
    return f"{value:.1f}%" if 0 < value < 9.95 else units.percent(value)


_WRITERS: dict[str, Callable[[float], str]] = {
    "percent": _share,
    "seconds": words.period,
    "bytes": units.size,
    "bytes/s": units.rate,
    "watts": units.watts,
    "joules": units.energy,
    "celsius": units.celsius,
    "per second": units.samples,
    "per minute": "{:.1f}".format,
    "GPU-s": words.grouped,
    "cores": "{:.1f}".format,
    "count": "{:.0f}".format,
    "unix": lambda value: words.clock(value, "%m-%d %H:%M"),
}


def cell(figure: Figure, value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or units.UNKNOWN
    return _WRITERS[figure.kind](value)


def change(figure: Figure) -> str:
    """``+61 points``, ``-12%``, ``same``; empty where one is unknown."""
    difference, before = figure.difference, figure.before
    if difference is None or not isinstance(before, (int, float)):
        return ""
    if figure.kind in {"percent", "celsius"}:
        unit = " points" if figure.kind == "percent" else "C"
        return "same" if abs(difference) < 0.5 else f"{difference:+.0f}{unit}"
    if before <= 0 or figure.kind in {"unix", "count"}:
        return ""
    return words.ratio(1 + difference / before)


def compared_table(comparison: Comparison) -> Table:
    rows = []
    proportional = any(
        one.name == _PROPORTIONAL and one.difference is not None for one in comparison.figures
    )
    for one in comparison.figures:
        before, after = cell(one, one.before), cell(one, one.after)
        unknown = units.UNKNOWN in (before, after)
        if before == after and (unknown or one.name in _ONLY_CHANGES):
            continue
        if one.name == (_RESIDENT if proportional else _PROPORTIONAL):
            # What only one of them has cannot be compared.
            continue
        judged = one.judged if one.judged in {"better", "worse"} else ""
        rows.append([one.label, before, after, change(one), judged])
    columns = (
        Column("Figure", "COMPARED", str, "text"),
        Column("Before", "BEFORE", str),
        Column("After", "AFTER", str),
        Column("Change", "CHANGE", str, "text", 1),
        Column("", "", str, "text", 2),
    )
    return Table("Figures", columns, rows, judged=True)


def comparison_document(comparison: Comparison, form: str) -> Document:
    before, after = comparison.before, comparison.after
    jobs = before.job is not None and after.job is not None
    what = "jobs" if jobs else "recordings"
    head, _, rest = verdict(comparison).partition(". ")
    said: list[Block] = [Said(verdict(comparison), "verdict")]
    if form == "page":
        said = [Said(f"{head.rstrip('.')}.", "verdict"), *([Said(rest, "why")] if rest else [])]
    said += [Said(f"Hard to compare: {doubt}", "warn") for doubt in doubts(comparison)]
    sides = [("before", named(before)), ("after", named(after))]
    if form == "text":
        said.append(Labelled("", [*sides, ("times", Times(after).zone())]))
    sections = [
        Section("", said),
        Section("Figures", [compared_table(comparison)]),
        Section("Findings", [_found(one, comparison) for one in comparison.findings]),
    ]
    for title, report, name in (("Before", before, "x"), ("After", after, "y")):
        if form == "page":
            notes = Bullets("", list(quality(report)))
            sections.append(Section(title, [*meta(report), timeline(report, name), notes]))
    return Document(
        f"GPU reports compared: {', '.join(text for _, text in sides)}",
        f"Two {what} compared",
        before.simulated or after.simulated,
        [section for section in sections if section.blocks],
    )


def verdict(comparison: Comparison) -> str:
    before, after = (one.total.busy_percent for one in (comparison.before, comparison.after))
    if before is None or after is None:
        said = "How busy the GPUs were cannot be compared: it was not read in both."
    else:
        points = after - before
        more = f"{abs(points):.0f} points {'more' if points > 0 else 'less'}"
        how = "as busy as before" if abs(points) < 0.5 else more
        said = (
            f"The GPUs were busy {units.percent(before)} before and {units.percent(after)} "
            f"after, {how}."
        )
    parts = [said]
    speed = comparison.figure("samples_per_second")
    if speed.difference is not None:
        # What it comes to, where the jobs of both reported it.
        both = f"{cell(speed, speed.before)} samples/s before and {cell(speed, speed.after)} after"
        ratio = f" ({change(speed)})" if change(speed) else ""
        parts.append(f"As reported by the jobs, {both}{ratio}.")
    for state, word in (("gone", "Gone"), ("still", "Still there"), ("new", "New")):
        if rules := comparison.having(state):
            parts.append(f"{word}: {', '.join(rules)}.")
    return " ".join(parts)


def doubts(comparison: Comparison) -> Iterable[str]:
    """Reasons against comparing the two, in sentences."""
    before, after = comparison.before, comparison.after
    one, two = words.gpu_names(before), words.gpu_names(after)
    if one != two:
        yield f"The GPUs differ: {one} before, {two} after."
    if before.simulated != after.simulated:
        yield f"The {'first' if before.simulated else 'second'} is of a simulated machine."
    if before.job is not None or after.job is not None:
        # Runs of a job may well differ in length: that is what they are compared for.
        return
    shorter, longer = sorted((before.time.seconds, after.time.seconds))
    if longer > MUCH_LONGER * max(shorter, 1.0):
        yield (
            f"One is much longer than the other: {units.age(before.time.seconds)} before, "
            f"{units.age(after.time.seconds)} after."
        )
    for report, which in ((before, "before"), (after, "after")):
        if report.gpus and report.total.busy_percent is None:
            yield f"No utilisation was read {which}."
        if report.time.gap_seconds > 0.2 * report.time.seconds:
            share = units.percent(100.0 * report.time.gap_seconds / report.time.seconds)
            yield f"{share} of the time {which} is missing."


def named(report: Report) -> str:
    simulated = ", simulated" if report.simulated else ""
    if report.job is not None and report.source is None:
        return f"{words.command(report.job)}, {words.when(report)}{simulated}"
    name = None if report.source is None else report.source.name
    # A redacted recording names no machine.
    known = filter(None, (name, report.machine, words.gpu_names(report), words.when(report)))
    return ", ".join(known) + simulated


def _found(found: FindingChange, comparison: Comparison) -> Found:
    use = found.after or found.before
    assert use is not None
    parts = []
    for which, one, share, report in (
        ("before", found.before, found.before_share, comparison.before),
        ("after", found.after, found.after_share, comparison.after),
    ):
        if one is not None:
            cost = "" if share is None else f", {words.share(share)} of all GPU time"
            of = units.age(report.time.seconds)
            parts.append(f"{which} {units.age(one.seconds)} of {of}{cost}")
    state = {"new": "New", "still": "Still there", "gone": "Gone"}[found.state]
    advice = () if found.after is None else found.after.advice
    return Found(
        f"{state}:",
        found.rule,
        found.severity,
        "; ".join(parts),
        "",
        "",
        [use.summary],
        [advice_line(one) for one in advice],
    )


def comparison_json(comparison: Comparison) -> str:
    found = tuple(doubts(comparison))
    made = replaced(
        comparison,
        verdict=verdict(comparison),
        comparable=not found,
        doubts=found,
        before=without_profiles(worded(comparison.before)),
        after=without_profiles(worded(comparison.after)),
    )
    return dumps(made)
