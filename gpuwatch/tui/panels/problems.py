"""Problems: readings that fail, and why, in a line or two under the findings."""

import textwrap

from gpuwatch.core.model import Problem
from gpuwatch.diagnosis.finding import severity_place
from gpuwatch.tui.terminal.frame import Line, Row, Run, fit, left
from gpuwatch.tui.view import View


def lines(view: View, width: int, most: int) -> list[Line]:
    """At most ``most`` for the gravest problems; a single one is wrapped rather than cut, several
    get a line each and the last says how many more there are."""
    problems, glyphs = _worth_saying(view), view.glyphs
    if not problems or most <= 0:
        return []
    out: list[Run] = []
    if len(problems) == 1:
        wrapped = textwrap.wrap(problems[0].message, max(8, width - 5), max_lines=most,
                                placeholder=f" {glyphs.ellipsis}")  # fmt: skip
        style, signs = _style(problems[0]), (glyphs.warning, *" " * most)
        out = [(f" {sign} {text}", style) for sign, text in zip(signs, wrapped, strict=False)]
    for number, problem in enumerate(problems[:most] if len(problems) > 1 else ()):
        more = len(problems) - most if number == most - 1 else 0
        note = f" +{more} more (!)" if more > 0 else ""
        text = fit(f" {glyphs.warning} {problem.message}", width - len(note) - 1, glyphs.ellipsis)
        out.append((left(text, width - len(note)) + note, _style(problem)))
    return [Row(width).add(text, style).line() for text, style in out]


def are_grave(view: View) -> bool:
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


def _style(problem: Problem) -> str:
    return "error" if problem.severity == "error" else "warn"
