"""Two recordings side by side as text, Markdown and JSON.

The JSON is one object, ``schema`` 1; ``COMPARISON_SCHEMA`` says what is in it.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.outputs.job_report.lines import fitting
from gpuwatch.outputs.job_report.words import ratio_word
from gpuwatch.outputs.recording_report import words
from gpuwatch.outputs.recording_report.json import dumps, number, recording_object, use_object
from gpuwatch.outputs.recording_report.markdown import escaped, markdown_table
from gpuwatch.outputs.recording_report.schema import (
    FINDING,
    RECORDING_SCHEMA,
    Schema,
    many,
    or_null,
    record,
    text,
    value,
)
from gpuwatch.outputs.recording_report.words import Times
from gpuwatch.outputs.summary.comparison import Comparison, FindingChange, Row
from gpuwatch.outputs.summary.model import Summary
from gpuwatch.outputs.terminal.page import Page
from gpuwatch.outputs.terminal.painting import COLOURS
from gpuwatch.outputs.terminal.table import Heading

SCHEMA = 1
KINDS = (
    "percent",
    "seconds",
    "bytes",
    "bytes/s",
    "watts",
    "joules",
    "celsius",
    "per minute",
    "per second",
)
STATES = ("new", "still", "gone")


def _share(value: float | None) -> str:
    """Below ten percent a digit more says something."""
    return f"{value:.1f}%" if value is not None and 0 < value < 9.95 else units.percent(value)


_WRITERS: dict[str, Callable[[float | None], str]] = {
    "percent": _share,
    "seconds": words.period,
    "bytes": units.size,
    "bytes/s": units.rate,
    "watts": units.watts,
    "joules": units.energy,
    "celsius": units.celsius,
    "per second": units.samples,
    "per minute": lambda value: units.UNKNOWN if value is None else f"{value:.1f}",
}


def figure(row: Row, value: float | None) -> str:
    return _WRITERS[row.kind](value)


def change(row: Row) -> str:
    """``+61 points``, ``-12%``, ``same``; empty where one is unknown."""
    difference = row.difference
    if difference is None or row.before is None:
        return ""
    if row.kind == "percent":
        return "same" if abs(difference) < 0.5 else f"{difference:+.0f} points"
    if row.kind == "celsius":
        return "same" if abs(difference) < 0.5 else f"{difference:+.0f}C"
    if row.before <= 0:
        return ""
    return ratio_word(1 + difference / row.before)


def shown_rows(comparison: Comparison) -> list[Row]:
    """Those of which something is known."""
    return [row for row in comparison.rows if row.before is not None or row.after is not None]


def verdict(comparison: Comparison) -> str:
    """The headline sentence."""
    before, after = comparison.before.busy_percent, comparison.after.busy_percent
    if before is None or after is None:
        told = "How busy the GPUs were cannot be compared: it was not read in both."
    else:
        points = after - before
        how = (
            "as busy as before"
            if abs(points) < 0.5
            else f"{abs(points):.0f} points {'more' if points > 0 else 'less'}"
        )
        told = (
            f"The GPUs were busy {units.percent(before)} before and {units.percent(after)} "
            f"after, {how}."
        )
    parts = [told, *_speed(comparison)]
    for state, word in (("gone", "Gone"), ("still", "Still there"), ("new", "New")):
        rules = comparison.having(state)
        if rules:
            parts.append(f"{word}: {', '.join(rules)}.")
    return " ".join(parts)


def _speed(comparison: Comparison) -> list[str]:
    """What it comes to, where the jobs of both reported it."""
    row = next(row for row in comparison.rows if row.name == "samples_per_second")
    if row.before is None or row.after is None:
        return []
    ratio = change(row)
    told = f"{figure(row, row.before)} samples/s before and {figure(row, row.after)} after"
    return [f"As reported by the jobs, {told}{f' ({ratio})' if ratio else ''}."]


def named(summary: Summary) -> str:
    """Which recording it is, in one line."""
    return (
        f"{summary.file.name}, {summary.machine}, {words.gpu_names(summary)}, "
        f"{words.when(summary)} ({units.age(summary.seconds)})"
        f"{', simulated' if summary.simulated else ''}"
    )


def told_change(found: FindingChange, comparison: Comparison) -> str:
    """When it held, and what it cost, in each."""
    parts = []
    for which, use, share, summary in (
        ("before", found.before, found.before_share, comparison.before),
        ("after", found.after, found.after_share, comparison.after),
    ):
        if use is not None:
            cost = "" if share is None else f", {words.share(share)} of all GPU time"
            parts.append(f"{which} {units.age(use.seconds)} of {units.age(summary.seconds)}{cost}")
    return "; ".join(parts)


def summary_of(found: FindingChange) -> str:
    use = found.after or found.before
    assert use is not None
    return use.finding.summary


# --- text ------------------------------------------------------------------------------------


def comparison_text(
    comparison: Comparison, *, width: int = 80, colour: bool = False, unicode: bool = True
) -> str:
    """Lines of at most ``width`` cells, without a line end."""
    page = Page(fitting(width), colour)
    page.bold(verdict(comparison))
    for doubt in comparison.doubts:
        page.say(f"Hardly comparable: {doubt}", style=COLOURS["warning"], later="  ")
    page.dim(f"before: {named(comparison.before)}")
    page.dim(f"after:  {named(comparison.after)}")
    page.dim(f"times:  {Times(comparison.after).zone()}")
    page.gap()
    page.table(
        (
            Heading("", text=True),
            Heading("BEFORE"),
            Heading("AFTER"),
            Heading("CHANGE", text=True),
            Heading("", text=True, rank=1),
        ),
        [
            [
                row.label,
                figure(row, row.before),
                figure(row, row.after),
                change(row),
                "" if row.judged == "same" else row.judged,
            ]
            for row in shown_rows(comparison)
        ],
    )
    for found in comparison.findings:
        page.gap()
        mark = f"{found.state}:"
        page.say(
            f"{mark} {found.rule} ({found.severity}), {told_change(found, comparison)}", later="  "
        )
        page.say(summary_of(found), first="  ", later="  ")
        if found.after is not None:
            for line in found.after.finding.advice:
                page.labelled("Do", words.advice_line(line))
    return page.text(unicode)


# --- Markdown --------------------------------------------------------------------------------


def comparison_markdown(comparison: Comparison) -> str:
    """Without a line end."""
    lines = ["# Two recordings compared", "", f"**{escaped(verdict(comparison))}**", ""]
    lines += [f"- Hardly comparable: {escaped(doubt)}" for doubt in comparison.doubts]
    lines.append(f"- Before: {escaped(named(comparison.before))}")
    lines.append(f"- After: {escaped(named(comparison.after))}")
    lines.append(f"- Times: {escaped(Times(comparison.after).zone())}")
    rows = [
        [
            row.label,
            figure(row, row.before),
            figure(row, row.after),
            change(row),
            "" if row.judged == "same" else row.judged,
        ]
        for row in shown_rows(comparison)
    ]
    lines += ["", *markdown_table((":", "Before", "After", "Change", ":"), rows)]
    if comparison.findings:
        lines += ["", "## Findings", ""]
    lines += [
        f"- **{found.state}**: {escaped(found.rule)} ({found.severity}), "
        f"{escaped(told_change(found, comparison))}: {escaped(summary_of(found))}"
        for found in comparison.findings
    ]
    return "\n".join(lines)


# --- JSON ------------------------------------------------------------------------------------


def comparison_json(comparison: Comparison) -> str:
    """One JSON object, without a line end."""
    return dumps(
        {
            "kind": "recording_comparison",
            "schema": SCHEMA,
            "gpuwatch": __version__,
            "verdict": verdict(comparison),
            "comparable": not comparison.doubts,
            "doubts": list(comparison.doubts),
            "figures": [
                {
                    "name": row.name,
                    "kind": row.kind,
                    "before": number(row.before),
                    "after": number(row.after),
                    "difference": number(row.difference),
                    "judged": row.judged or None,
                }
                for row in comparison.rows
            ],
            "findings": [
                {
                    "rule": found.rule,
                    "severity": found.severity,
                    "state": found.state,
                    "before_share": number(found.before_share),
                    "after_share": number(found.after_share),
                    "before": None if found.before is None else use_object(found.before),
                    "after": None if found.after is None else use_object(found.after),
                }
                for found in comparison.findings
            ],
            "before": recording_object(comparison.before, courses=False),
            "after": recording_object(comparison.after, courses=False),
        }
    )


def _without_courses() -> Schema:
    properties = dict(RECORDING_SCHEMA["properties"])
    del properties["courses"]
    return record("As gpuwatch report FILE --json, without courses.", **properties)


_RECORDING = _without_courses()


def _of_all(says: str) -> Schema:
    return value("number", says, null=True, minimum=0, maximum=1)


COMPARISON_SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "gpuwatch compare --json",
    **record(
        "Two recordings compared.",
        kind={"const": "recording_comparison", "description": "What this object is."},
        schema={"const": 1, "description": "Version of this schema."},
        gpuwatch=text("Version of the program."),
        verdict=text("The headline sentence."),
        comparable=value("boolean", "false: hardly; doubts say why."),
        doubts=many("Reasons against comparing the two.", text("A sentence.")),
        figures=many(
            "What was measured in both.",
            record(
                "A figure.",
                name=text("Which."),
                kind=value("string", "Its unit.", enum=list(KINDS)),
                before=value("number", "In the first recording.", null=True),
                after=value("number", "In the second.", null=True),
                difference=value("number", "After minus before.", null=True),
                judged=text("better, worse, same; null where it is neither.", null=True),
            ),
        ),
        findings=many(
            "Rules that found something in either; new ones first.",
            record(
                "A rule.",
                rule=text("Its name."),
                severity=text("Of the newer finding."),
                state=value("string", "What became of it.", enum=list(STATES)),
                before_share=_of_all("Its cost as a share of all GPU time."),
                after_share=_of_all("The same after."),
                before=or_null(FINDING),
                after=or_null(FINDING),
            ),
        ),
        before=_RECORDING,
        after=_RECORDING,
    ),
}
"""What ``gpuwatch compare --schema`` prints."""
