"""The first line: where, how fast, how old, and what watching costs. Below it: what is wrong."""

from __future__ import annotations

import textwrap
import time

from gpuwatch.core import units
from gpuwatch.core.model import OwnCost, Problem, Snapshot
from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.terminal.frame import Line, Row, Zone, fit, left, right
from gpuwatch.tui.view import View

_SEVERITY_ORDER = {"error": 0, "warning": 1, "info": 2}


def shown_problems(snapshot: Snapshot | None) -> list[Problem]:
    """Errors first, then warnings, each once; what is merely good to know is left to the
    problems screen."""
    if snapshot is None:
        return []
    worth = [p for p in snapshot.problems if p.severity != "info"]
    return sorted(worth, key=lambda p: _SEVERITY_ORDER.get(p.severity, 1))


def draw(view: View, width: int) -> Line:
    """Name, state and machine on the left; own cost and the clock on the right."""
    snapshot = view.snapshot
    row = Row(width, prefix="b:").add(" gpuwatch ", "title")
    if snapshot is None:
        return row.add(" " + (view.message or "reading the machine..."), "label").line("label")
    if view.replay is not None:
        row.add(" ").add(" REPLAY ", "replay")
    if snapshot.simulated:
        row.add(" ").add(" SIMULATED ", "simulated")
    if view.paused:
        row.add(" ").add(" PAUSED ", "warn")
    if view.recording is not None:
        row.add(" ").add(f" {view.recording} ", "recording")
    if time_axis.is_shown(view):
        row.add(" ").add(f" {right(time_axis.ago(view), 5)} AGO ", "past")
    right_parts = _right(view, snapshot, width)
    reserved = sum(len(text) + 2 for text, _ in right_parts)
    for text, style in _left(view, snapshot):
        if row.room >= len(text) + 2 + reserved:
            row.add("  ").add(text, style)
    row.pad_to(width - reserved, "label")
    for text, style in right_parts:
        row.add(" ").add(text, style).add(" ", "label")
    return row.line("label")


def _left(view: View, snapshot: Snapshot) -> list[tuple[str, str]]:
    parts: list[tuple[str, str]] = []
    if view.stale_seconds is not None:
        parts.append((f"data is {units.age(view.stale_seconds)} old", "warn"))
    parts.append((fit(snapshot.host.name, 24, view.glyphs.ellipsis), "text"))
    notes = sum(problem.severity == "info" for problem in snapshot.problems)
    if notes:
        parts.append((f"! {notes} note{'' if notes == 1 else 's'}", "key"))
    parts.append((f"every {units.interval(view.interval_seconds)}", "label"))
    if view.slow_link:
        parts.append(("slow link", "label"))
    if snapshot.gpus:
        identity = snapshot.gpus[0].identity
        if identity.driver_version is not None:
            parts.append((f"driver {identity.driver_version}", "label"))
        if identity.cuda_version is not None:
            parts.append((f"CUDA {identity.cuda_version}", "label"))
    if snapshot.host.uptime_seconds is not None:
        parts.append((f"up {units.age(snapshot.host.uptime_seconds)}", "label"))
    return parts


def _right(view: View, snapshot: Snapshot, width: int) -> list[tuple[str, str]]:
    parts = []
    cost = cost_text(snapshot.own_cost, brief=width < 100)
    if view.replay is not None:
        # What watching cost then says nothing about now; the day does.
        day = time.localtime(snapshot.taken_at_unix_seconds)
        if width >= 60:
            parts.append((time.strftime("%Y-%m-%d", day), "label"))
    elif cost and width >= 60:
        parts.append((cost, "dim"))
    if width >= 50 and not view.slow_link:
        moment = time.localtime(snapshot.taken_at_unix_seconds)
        parts.append((time.strftime("%H:%M:%S", moment), "text"))
    return parts


def cost_text(cost: OwnCost, brief: bool) -> str:
    """``own 0.7% 34.0M nvml 1.2ms/s``: what watching takes of a core, memory and the driver."""
    parts = []
    if cost.cpu_percent is not None:
        parts.append(f"own {cost.cpu_percent:3.1f}%")
    if brief:
        return " ".join(parts)
    if cost.memory_resident_bytes is not None:
        parts.append(units.size(cost.memory_resident_bytes))
    if cost.nvml_milliseconds_per_second is not None:
        parts.append(f"nvml {cost.nvml_milliseconds_per_second:3.1f}ms/s")
    return " ".join(parts)


def problem_texts(view: View, width: int, most: int) -> list[tuple[str, str]]:
    """At most ``most`` lines (text, style) for the gravest problems; a single one is wrapped rather
    than cut, several get a line each and the last says how many more there are."""
    problems = [one for one in shown_problems(view.snapshot) if not _is_a_finding(view, one)]
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


def draw_problems(
    texts: list[tuple[str, str]], width: int, rows: int, top: int
) -> tuple[list[Line], list[Zone]]:
    """The first ``rows`` of ``texts``; a click on them opens the list."""
    lines = [Row(width).add(text, style).line() for text, style in texts[:rows]]
    return lines, [Zone(top + number, 0, width, "problems") for number in range(len(lines))]
