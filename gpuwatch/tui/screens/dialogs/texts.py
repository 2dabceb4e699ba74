"""Dialogs with a text: the help, what could not be read or checked, questions."""

import time
from collections.abc import Sequence

from rich.text import Text

from gpuwatch.core.model import Gpu, Process
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Unchecked, severity_place
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.keys import described
from gpuwatch.tui.pages.finding_words import undecided
from gpuwatch.tui.panels.gpus.state import STATES
from gpuwatch.tui.screens.dialogs.dialog import Dialog, closing_hint
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View


def help_dialog(view: View, palette: Palette) -> Dialog:
    """The keys by group, then what the picture means."""
    text = Text()
    replay = view.replay is not None
    for group, keys in described(replay=replay, practice=view.practice is not None):
        text.append(f"{group}\n", palette["b:title"])
        for key in keys:
            text.append(f"  {key.shown:<12}", palette["b:key"])
            text.append(f"{key.help}\n", palette["b:text"])
    if replay:
        _add_bar(text, palette)
    else:
        _add_charts(text, palette, view.glyphs)
    title = "gpuwatch replay: keys" if replay else "gpuwatch: keys"
    return Dialog(title, closing_hint(view), text, palette, view.glyphs)


def _add_bar(text: Text, palette: Palette) -> None:
    text.append("The bar at the bottom\n", palette["b:title"])
    text.append(
        "  The whole recording: how busy the GPUs were, half minute by half minute; a\n"
        "  column is solid up to the lowest and pale up to the highest. Below it what was\n"
        "  found, from when to when. A click goes there.",
        palette["b:label"],
    )


def _add_charts(text: Text, palette: Palette, glyphs: Glyphs) -> None:
    text.append("Reading the charts\n", palette["b:title"])
    full, half, low = glyphs.solid[8], glyphs.solid[4], glyphs.solid[1]
    swing = (glyphs.ranges[0][8] * 3, "b:fed", "from the lowest to the highest of one column")
    if glyphs.tones:
        swing = (half * 3, "b:fed.4", "solid: the mean of one column; pale: up to its highest")
    for sample, style, meaning in (
        (f"{low}{half}{full}", "b:fed", "zero, half and all of a fixed scale: 100%, or the limit"),
        swing,
        ("   ", "b:text", "blank: not measured (never zero)"),
        (glyphs.warning, "b:warn", "on the time axis: when a finding began, how long it held"),
    ):
        text.append(f"  {sample:<12}", palette[style])
        text.append(f"{meaning}\n", palette["b:text"])
    text.append("  The colour of a GPU is what it does:\n ", palette["b:text"])
    for word, style in STATES:
        text.append(f" {word}", palette[f"b:{style}"])
    text.append(
        "\n  30% every 2s: it works in bursts too short for the chart, 30% of the time.\n"
        "  busy: a kernel was resident, so 100% can be a wait. rx: host to GPU.\n"
        "  A process's CPU: 100% is one core. MAIN: its main thread alone.\n"
        "  QUEUE: it was runnable but waited for a core. DISK: it waited for a disk.\n"
        "  DATA: the loop waited for data, as reported by a job with gpuwatch.torch:\n"
        "  for batch in watch(loader) in the training script.\n"
        "  PSS: resident memory, a page shared by n processes counted 1/n each.\n"
        "  A role with a question mark is a guess: nothing names it.",
        palette["b:label"],
    )


def problems_dialog(view: View, palette: Palette) -> Dialog:
    """Everything that could not be read, and what is merely good to know."""
    problems = () if view.snapshot is None else view.snapshot.problems
    text = Text()
    if not problems:
        text.append("Everything this machine reports is being read.", palette["b:text"])
    for problem in sorted(problems, key=lambda one: severity_place(one.severity)):
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
    return Dialog(title, closing_hint(view), text, palette, view.glyphs)


def unknown_dialog(
    unknown: Sequence[Unchecked], gpus: Sequence[Gpu], palette: Palette, glyphs: Glyphs
) -> Dialog:
    """By the readings that were missing, with the GPUs or jobs it is about where not all are."""
    text = Text()
    if not unknown:
        says = "Every check has the data it needs." if gpus else "There is no GPU to check."
        text.append(says, palette["b:text"])
    for missing, causes in undecided(unknown).items():
        here = [one for one in unknown if clean(", ".join(one.missing)) == missing]
        text.append(missing, palette["b:title"])
        where = list(dict.fromkeys(name for one in here for name in _where(one, gpus)))
        if 0 < len(where) < max(2, len(gpus)):
            text.append(f"  ({', '.join(where)})", palette["b:label"])
        text.append(f"\n  needed for: {', '.join(causes)}\n", palette["b:text"])
    text.rstrip()
    return Dialog("checks that need more data", "esc closes", text, palette, glyphs)


def _where(one: Unchecked, gpus: Sequence[Gpu]) -> list[str]:
    named = [f"GPU {gpu.identity.index}" for gpu in gpus if gpu.uuid in one.gpus]
    if named or one.job is None:
        return named
    return [f"PID {one.job[0]}"]


def command_dialog(process: Process, palette: Palette, glyphs: Glyphs) -> Dialog:
    """The command line in full."""
    text = Text()
    text.append(f"user {clean(process.user or '-')}\n\n", palette["b:label"])
    text.append(process.command or process.name or "-", palette["b:text"])
    return Dialog(f"PID {process.pid}", "esc closes", text, palette, glyphs)


def end_process_dialog(process: Process, force: bool, palette: Palette, glyphs: Glyphs) -> Dialog:
    """Asks before a process is ended; the answer is empty for no."""
    text = Text()
    text.append("PID ", palette["b:label"])
    text.append(str(process.pid), palette["b:value"])
    text.append(f"   user {process.user or '-'}\n", palette["b:label"])
    text.append(f"{(process.command or process.name or '-')[:400]}\n\n", palette["b:text"])
    if force:
        text.append("It got SIGTERM and is still running. ", palette["b:warn"])
        text.append("SIGKILL ends it at once; nothing is saved.\n\n", palette["b:text"])
    else:
        text.append(
            "SIGTERM asks it to exit and clean up. If it does not, press k again for SIGKILL.\n\n",
            palette["b:text"],
        )
    text.append("y", palette["b:key"])
    text.append(f" send {'SIGKILL' if force else 'SIGTERM'}     ", palette["b:text"])
    text.append("n", palette["b:key"])
    text.append(" cancel", palette["b:text"])
    answers = {"y": "yes", "n,escape,q": ""}
    return Dialog("kill this process?", "y / n", text, palette, glyphs, answers)


def leave_job_dialog(command: str, palette: Palette, glyphs: Glyphs, *, ends: bool) -> Dialog:
    """Asks, when the dashboard is left, what shall become of the job that it started: ``leave``,
    ``interrupt`` or ``stay``. ``ends``: it ends with the dashboard."""
    leaving = "leave it running and quit; its output still goes to its file"
    if ends:
        leaving = "quit, and end it (SIGTERM), as --kill-on-exit asks"
    text = Text()
    text.append(f"{command[:400]}\n\n", palette["b:text"])
    for key, what in (
        ("l", leaving),
        ("i", "interrupt it (as Ctrl-C does) and quit once it has ended"),
        ("s", "stay"),
    ):
        text.append(f"  {key}", palette["b:key"])
        text.append(f"  {what}\n", palette["b:text"])
    answers = {"l": "leave", "i": "interrupt", "s,n,escape,q": "stay"}
    return Dialog("the job is still running", "l / i / s", text, palette, glyphs, answers)
