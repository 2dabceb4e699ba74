"""Dialogs with a text: the help, what could not be read or checked, questions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from gpuwatch.core.model import Gpu, Process
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Unchecked, severity_place
from gpuwatch.tui.charts.glyphs import ASCII, Glyphs
from gpuwatch.tui.keys import described
from gpuwatch.tui.pages.finding_words import SEVERITY_STYLES, undecided
from gpuwatch.tui.panels.gpus.state import STATES
from gpuwatch.tui.screens.dialogs.dialog import WIDTH, Dialog
from gpuwatch.tui.view import View

if TYPE_CHECKING:
    from gpuwatch.jobs.stacks.summary import StackReport

_OF_BAR = (
    "  The whole recording: how busy the GPUs were, half minute by half minute; a\n"
    "  column is solid up to the lowest and pale up to the highest. Below it what was\n"
    "  found, from when to when. A click goes there."
)
_OF_FLEET = (
    "  BUSY: the mean of the host's GPUs over the last 30 readings. Its chart is\n"
    "  solid up to the mean, pale up to the busiest GPU.\n"
    "  WASTED: how many GPUs' worth of time is lost to what was found.\n"
    "  GPU only: the host has no gpuwatch, so its nvidia-smi is read. What its\n"
    "  CPUs, disks and jobs do is unknown then."
)
_OF_CHARTS = (
    "\n  30% every 2s: it works in bursts too short for the chart, 30% of the time.\n"
    "  busy: a kernel was resident, so 100% can be a wait. rx: host to GPU.\n"
    "  A process's CPU: 100% is one core. MAIN: its main thread alone.\n"
    "  QUEUE: it was runnable but waited for a core. DISK: it waited for a disk.\n"
    "  DATA: the loop waited for data, as reported by a job with gpuwatch.torch:\n"
    "  for batch in watch(loader) in the training script.\n"
    "  PSS: resident memory, a page shared by n processes counted 1/n each.\n"
    "  A role with a question mark is a guess: nothing names it."
)


def help_dialog(view: View) -> Dialog:
    """The keys by group, then what the picture means."""
    text = Text()
    replay = view.replay is not None
    practice = view.practice is not None
    for group, keys in described(replay=replay, practice=practice, fleet=view.fleet):
        text.append(f"{group}\n", "title")
        for key in keys:
            text.append(f"  {key.shown:<12}", "key").append(f"{key.help}\n")
    if replay:
        text.append("The bar at the bottom\n", "title").append(_OF_BAR, "label")
    elif view.fleet:
        text.append("The columns\n", "title").append(_OF_FLEET, "label")
    else:
        _add_charts(text, view.glyphs)
    return Dialog(view, "gpuwatch replay: keys" if replay else "gpuwatch: keys", text)


def _add_charts(text: Text, glyphs: Glyphs) -> None:
    text.append("Reading the charts\n", "title")
    full, half, low = glyphs.solid[8], glyphs.solid[4], glyphs.solid[1]
    swing = (glyphs.ranges[0][8] * 3, "fed", "from the lowest to the highest of one column")
    if glyphs.tones:
        swing = (half * 3, "fed.4", "solid: the mean of one column; pale: up to its highest")
    for sample, style, meaning in (
        (f"{low}{half}{full}", "fed", "zero, half and all of a fixed scale: 100%, or the limit"),
        swing,
        ("   ", "text", "blank: not measured (never zero)"),
        (glyphs.warning, "warn", "on the time axis: when a finding began, how long it held"),
    ):
        text.append(f"  {sample:<12}", style).append(f"{meaning}\n")
    text.append("  The colour of a GPU is what it does:\n ")
    for word, style in STATES:
        text.append(f" {word}", style)
    text.append(_OF_CHARTS, "label")


def problems_dialog(view: View) -> Dialog:
    """Everything that could not be read, and what is merely good to know."""
    problems = () if view.snapshot is None else view.snapshot.problems
    text = Text()
    if not problems:
        text.append("Everything this machine reports is being read.")
    for problem in sorted(problems, key=lambda one: severity_place(one.severity)):
        text.append(f"{problem.severity}  ", SEVERITY_STYLES.get(problem.severity, "label"))
        text.append(problem.source, "label")
        if problem.since_unix_seconds is not None:
            since = time.strftime("%H:%M:%S", time.localtime(problem.since_unix_seconds))
            text.append(f"  since {since}", "dim")
        text.append(f"\n  {problem.message}\n")
    notes = all(problem.severity == "info" for problem in problems)
    title = "notes" if problems and notes else "what could not be read"
    if not notes and any(problem.severity == "info" for problem in problems):
        title += ", and notes"
    return Dialog(view, title, text)


def unknown_dialog(view: View, unknown: Sequence[Unchecked]) -> Dialog:
    """By the readings that were missing, with the GPUs or jobs it is about where not all are."""
    text, gpus = Text(), view.gpus
    if not unknown:
        text.append("Every check has the data it needs." if gpus else "There is no GPU to check.")
    for missing, causes in undecided(unknown).items():
        here = [one for one in unknown if clean(", ".join(one.missing)) == missing]
        text.append(missing, "title")
        where = list(dict.fromkeys(name for one in here for name in _where(one, gpus)))
        if 0 < len(where) < max(2, len(gpus)):
            text.append(f"  ({', '.join(where)})", "label")
        text.append(f"\n  needed for: {', '.join(causes)}\n")
    text.rstrip()
    return Dialog(view, "checks that need more data", text)


def _where(one: Unchecked, gpus: Sequence[Gpu]) -> list[str]:
    named = [f"GPU {gpu.identity.index}" for gpu in gpus if gpu.uuid in one.gpus]
    if named or one.job is None:
        return named
    return [f"PID {one.job[0]}"]


def command_dialog(view: View, process: Process) -> Dialog:
    command = process.command or process.name or "-"
    text = Text.assemble((f"user {clean(process.user or '-')}\n\n", "label"), command)
    return Dialog(view, f"PID {process.pid}", text)


def stacks_dialog(view: View, reports: Sequence[StackReport]) -> Dialog:
    """What ``gpuwatch stacks`` prints of these processes."""
    from gpuwatch.outputs.stacks import stacks_page  # noqa: PLC0415 - seldom asked for

    text = Text(stacks_page(reports, width=WIDTH, ascii_only=view.glyphs is ASCII))
    text.highlight_regex("[█▏▎▍▌▋▊▉#]+", "host")
    return Dialog(view, "where the main threads are", text)


def end_process_dialog(view: View, process: Process, force: bool) -> Dialog:
    """Asks before a process is ended; the answer is empty for no."""
    text = Text.assemble(
        ("PID ", "label"),
        (str(process.pid), "value"),
        (f"   user {process.user or '-'}\n", "label"),
        f"{(process.command or process.name or '-')[:400]}\n\n",
    )
    if force:
        text.append("It got SIGTERM and is still running. ", "warn")
        text.append("SIGKILL ends it at once; nothing is saved.\n\n")
    else:
        text.append("SIGTERM asks it to exit and clean up. ")
        text.append("If it does not, press k again for SIGKILL.\n\n")
    text.append("y", "key").append(f" send {'SIGKILL' if force else 'SIGTERM'}     ")
    text.append("n", "key").append(" cancel")
    answers = {"y": "yes", "n,escape,q": ""}
    return Dialog(view, "kill this process?", text, "y / n", answers)


def leave_job_dialog(view: View, command: str, *, ends: bool) -> Dialog:
    """Asks, when the dashboard is left, what shall become of the job that it started: ``leave``,
    ``interrupt`` or ``stay``. ``ends``: it ends with the dashboard."""
    leaving = "leave it running and quit; its output still goes to its file"
    if ends:
        leaving = "quit, and end it (SIGTERM), as --kill-on-exit asks"
    interrupting = "interrupt it (as Ctrl-C does) and quit once it has ended"
    text = Text(f"{command[:400]}\n\n")
    for key, what in (("l", leaving), ("i", interrupting), ("s", "stay")):
        text.append(f"  {key}", "key").append(f"  {what}\n")
    answers = {"l": "leave", "i": "interrupt", "s,n,escape,q": "stay"}
    return Dialog(view, "the job is still running", text, "l / i / s", answers)
