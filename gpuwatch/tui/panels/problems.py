"""Problems: readings that fail, and why, in a line or two under the findings."""

import textwrap

from gpuwatch.core.model import Problem, Snapshot
from gpuwatch.diagnosis.finding import severity_place
from gpuwatch.tui.pages.layout import Drawn, Page, Panel
from gpuwatch.tui.terminal.frame import Row, Run, Zone, fit, left
from gpuwatch.tui.view import View


def _most(page: Page) -> int:
    """How many lines problems may take: more where there is no GPU to show instead."""
    height = page.height
    if page.job is not None:
        return 1 if height >= 16 else 0
    if not page.gpus:
        return 0 if height < 5 else 2 if height < 16 else 3
    return 0 if height < 7 else 1 if height < 24 else 2


def _rows(page: Page) -> int:
    return len(_texts(page.view, page.width, _most(page)))


def _draw(page: Page, rows: int) -> Drawn:
    """A click on them opens the list."""
    texts = _texts(page.view, page.width, rows)
    lines = [Row(page.width).add(text, style).line() for text, style in texts]
    return lines, [Zone(y, 0, page.width, "problems") for y in range(rows)]


PANEL = Panel("problems", _rows, _draw)


def _worth_saying(snapshot: Snapshot | None) -> list[Problem]:
    """Errors first, then warnings, each once; what is merely good to know is left to the
    problems screen."""
    if snapshot is None:
        return []
    worth = [p for p in snapshot.problems if p.severity != "info"]
    return sorted(worth, key=lambda p: severity_place(p.severity))


def _texts(view: View, width: int, most: int) -> list[Run]:
    """At most ``most`` lines (text, style) for the gravest problems; a single one is wrapped rather
    than cut, several get a line each and the last says how many more there are."""
    problems = [one for one in _worth_saying(view.snapshot) if not _is_a_finding(view, one)]
    if not problems or most <= 0:
        return []
    glyphs = view.glyphs
    lines = []
    if len(problems) == 1:
        wrapped = textwrap.wrap(problems[0].message, max(8, width - 5), max_lines=most,
                                placeholder=f" {glyphs.ellipsis}")  # fmt: skip
        for number, text in enumerate(wrapped):
            lines.append((f" {glyphs.warning if number == 0 else ' '} {text}", _style(problems[0])))
        return lines
    for number, problem in enumerate(problems[:most]):
        more = len(problems) - most if number == most - 1 else 0
        note = f" +{more} more (!)" if more > 0 else ""
        text = fit(f" {glyphs.warning} {problem.message}", width - len(note) - 1, glyphs.ellipsis)
        lines.append((left(text, width - len(note)) + note, _style(problem)))
    return lines


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
