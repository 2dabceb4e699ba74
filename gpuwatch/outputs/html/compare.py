"""Two recordings side by side as one HTML file."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gpuwatch.outputs.html.parts import bullets, element, page
from gpuwatch.outputs.html.report import SEVERITY_MARKS, meta
from gpuwatch.outputs.html.timeline import timeline
from gpuwatch.outputs.recording_report import compare as words
from gpuwatch.outputs.recording_report.words import advice_line, quality
from gpuwatch.outputs.summary.comparison import Comparison, FindingChange, Row
from gpuwatch.outputs.summary.model import Summary

_STATES = {"new": "New", "still": "Still there", "gone": "Gone"}
_JUDGED = {"better": ("up", "▲ better"), "worse": ("down", "▼ worse")}


def comparison_html(comparison: Comparison) -> str:
    """The whole file."""
    before, after = comparison.before, comparison.after
    return page(f"GPU reports compared: {before.file.name}, {after.file.name}", _body(comparison))


def _body(comparison: Comparison) -> Iterable[str]:
    yield element("h1", "Two recordings compared")
    if comparison.before.simulated or comparison.after.simulated:
        yield element("div", "SIMULATED — no such machine ran", "badge")
    head, _, rest = words.verdict(comparison).partition(". ")
    yield element("p", f"{head.rstrip('.')}.", "verdict")
    if rest:
        yield element("p", rest, "why")
    if comparison.doubts:
        told = "".join(element("p", f"Hardly comparable: {one}") for one in comparison.doubts)
        yield f'<div class="alert">{told}</div>'
    yield "<h2>Figures</h2>"
    yield _figures(comparison)
    yield from _findings(comparison)
    yield from _side("Before", comparison.before, "x")
    yield from _side("After", comparison.after, "y")


def _figures(comparison: Comparison) -> str:
    rows = "".join(_figure(row) for row in words.shown_rows(comparison))
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Figures"><table><thead><tr>'
        '<th scope="col" class="t">Figure</th><th scope="col">Before</th>'
        '<th scope="col">After</th><th scope="col">Change</th><th scope="col" class="t"></th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _figure(row: Row) -> str:
    kind, told = _JUDGED.get(row.judged, ("", ""))
    return (
        f'<tr><th scope="row" class="t">{escape(row.label)}</th>'
        f"<td>{escape(words.figure(row, row.before))}</td>"
        f"<td>{escape(words.figure(row, row.after))}</td>"
        f'<td>{escape(words.change(row))}</td><td class="t {kind}">{told}</td></tr>'
    )


def _findings(comparison: Comparison) -> Iterable[str]:
    if not comparison.findings:
        return
    yield "<h2>Findings</h2>"
    for found in comparison.findings:
        yield from _finding(found, comparison)


def _finding(found: FindingChange, comparison: Comparison) -> Iterable[str]:
    severity = "info" if found.state == "gone" else found.severity
    yield f'<section class="finding {severity}"><header>'
    yield element("h3", f"{_STATES[found.state]}: {found.rule}")
    yield element("span", SEVERITY_MARKS[found.severity], "sev")
    yield "</header>"
    yield element("p", words.told_change(found, comparison), "when")
    yield element("p", words.summary_of(found), "what")
    if found.after is not None and found.after.finding.advice:
        yield "<dl>"
        for number, advice in enumerate(found.after.finding.advice):
            yield element("dt", "Do" if number == 0 else "")
            yield element("dd", advice_line(advice), "do" if number == 0 else "")
        yield "</dl>"
    yield "</section>"


def _side(title: str, summary: Summary, prefix: str) -> Iterable[str]:
    yield element("h2", title)
    yield meta(summary)
    if summary.gpus or summary.host.courses:
        yield from timeline(summary, prefix)
    yield bullets(quality(summary))
