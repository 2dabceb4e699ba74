"""Questions before something is done that cannot be taken back."""

from __future__ import annotations

from rich.text import Text

from gpuwatch.core.model import Process
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.screens.dialogs.dialog import Dialog
from gpuwatch.tui.terminal.palette import Palette


def end_process_dialog(process: Process, force: bool, palette: Palette, glyphs: Glyphs) -> Dialog:
    """Asks before a process is ended; the answer is empty for no."""
    text = Text()
    text.append("PID ", palette["b:label"])
    text.append(str(process.pid), palette["b:value"])
    text.append(f"   user {process.user or '-'}\n", palette["b:label"])
    text.append(f"{(process.command or process.name or '-')[:400]}\n\n", palette["b:text"])
    if force:
        text.append("It was asked to end (TERM) and is still there. ", palette["b:warn"])
        text.append("KILL ends it at once; nothing is saved.\n\n", palette["b:text"])
    else:
        text.append(
            "TERM asks it to end, so that it can clean up. "
            "If it does not, press k again to KILL it.\n\n",
            palette["b:text"],
        )
    text.append("y", palette["b:key"])
    text.append(f" send {'KILL' if force else 'TERM'}     ", palette["b:text"])
    text.append("n", palette["b:key"])
    text.append(" leave it", palette["b:text"])
    answers = {"y": "yes", "n,escape,q": ""}
    return Dialog("end this process?", "y / n", text, glyphs, answers)


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
    return Dialog("the job is still running", "l / i / s", text, glyphs, answers)
