"""What could not be read, and what could not be checked for that."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.text import Text

from gpuwatch.core.model import Gpu
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Unchecked
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.pages.finding_words import undecided
from gpuwatch.tui.screens.dialogs.dialog import Dialog, closing_hint
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View


def problems_dialog(view: View, palette: Palette, simulated: bool) -> Dialog:
    """Everything that could not be read, and what is merely good to know."""
    problems = () if view.snapshot is None else view.snapshot.problems
    text = Text()
    if not problems:
        text.append("Everything this machine reports is being read.", palette["b:text"])
    order = {"error": 0, "warning": 1, "info": 2}
    for problem in sorted(problems, key=lambda p: order.get(p.severity, 1)):
        style = {"error": "b:error", "warning": "b:warn"}.get(problem.severity, "b:label")
        text.append(f"{problem.severity}  ", palette[style])
        text.append(problem.source, palette["b:label"])
        if problem.since_unix_seconds is not None:
            since = time.strftime("%H:%M:%S", time.localtime(problem.since_unix_seconds))
            text.append(f"  since {since}", palette["b:dim"])
        text.append(f"\n  {problem.message}\n", palette["b:text"])
    notes = all(problem.severity == "info" for problem in problems)
    title = "notes" if problems and notes else "what could not be read"
    if not notes and any(problem.severity == "info" for problem in problems):
        title += ", and notes"
    return Dialog(title, closing_hint(simulated), text, view.glyphs)


def unknown_dialog(
    unknown: Sequence[Unchecked], gpus: Sequence[Gpu], palette: Palette, glyphs: Glyphs
) -> Dialog:
    """By the readings that were missing, with the GPUs or jobs it is about where not all are."""
    text = Text()
    if not unknown:
        text.append("Every rule could be checked.", palette["b:text"])
    for missing, causes in undecided(unknown).items():
        here = [one for one in unknown if clean(", ".join(one.missing)) == missing]
        text.append(missing, palette["b:title"])
        where = list(dict.fromkeys(name for one in here for name in _where(one, gpus)))
        if 0 < len(where) < max(2, len(gpus)):
            text.append(f"  ({', '.join(where)})", palette["b:label"])
        text.append(f"\n  needed for: {', '.join(causes)}\n", palette["b:text"])
    text.rstrip()
    return Dialog("what could not be checked", "esc closes", text, glyphs)


def _where(one: Unchecked, gpus: Sequence[Gpu]) -> list[str]:
    named = [f"GPU {gpu.identity.index}" for gpu in gpus if gpu.uuid in one.gpus]
    if named or one.job is None:
        return named
    return [f"PID {one.job[0]}"]
