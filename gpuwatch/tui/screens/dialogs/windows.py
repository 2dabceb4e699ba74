"""Small windows over the dashboard: help, problems, and the question before ending a process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from gpuwatch.core.model import Problem, Process
from gpuwatch.tui.charts.glyphs import ASCII, Glyphs
from gpuwatch.tui.keys import (
    APP_KEYS,
    DETAIL_KEYS,
    EVIDENCE_KEYS,
    FINDINGS_KEYS,
    JOB_KEYS,
    OVERVIEW_KEYS,
    Key,
)
from gpuwatch.tui.terminal.frame import to_ascii
from gpuwatch.tui.terminal.palette import Palette


class Dialog(ModalScreen[bool]):
    """A framed text that scrolls when it must. ``title`` and ``hint`` are ours, never read from a
    machine: Textual takes markup there; the text itself is shown as it is."""

    DEFAULT_CSS = """
    Dialog {
        align: center middle;
        background: transparent;
        & > VerticalScroll {
            width: 80;
            max-width: 100%;
            height: auto;
            max-height: 100%;
            padding: 0 1;
            background: $surface;
            border: round $primary;
            scrollbar-size-vertical: 1;
        }
        & Static { width: 100%; height: auto; }
        &.ascii > VerticalScroll {
            border: ascii $primary;
            scrollbar-size-vertical: 0;
        }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,question_mark,exclamation_mark", "answer(False)", show=False),
    ]
    AUTO_FOCUS = "VerticalScroll"
    click_closes = True

    def __init__(self, title: str, hint: str, text: Text, glyphs: Glyphs) -> None:
        super().__init__(classes="ascii" if glyphs is ASCII else None)
        if glyphs is ASCII:
            text = _ascii(text)
        self._title = title
        self._hint = hint
        self._text = text

    @property
    def text(self) -> str:
        """What the dialog says."""
        return self._text.plain

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = self._title
            box.border_subtitle = self._hint
            yield Static(self._text, markup=False)

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)

    def on_click(self) -> None:
        if self.click_closes:
            self.dismiss(False)


def _closes(simulated: bool) -> str:
    """The hint; a dialog can cover the header, where it also says that all this is simulated."""
    return "SIMULATED, esc closes" if simulated else "esc closes"


def _ascii(text: Text) -> Text:
    return Text(to_ascii(text.plain), spans=text.spans) if not text.plain.isascii() else text


def help_dialog(
    palette: Palette, glyphs: Glyphs, simulated: bool, more: Sequence[Key] = ()
) -> Dialog:
    """All keys by group (those of ``more`` first), and how to read the charts."""
    text = Text()
    keys = (*OVERVIEW_KEYS, *APP_KEYS, *JOB_KEYS, *FINDINGS_KEYS, *EVIDENCE_KEYS, *DETAIL_KEYS)
    for key in more:
        text.append(f"{key.group}\n", palette["b:title"])
        text.append(f"  {key.shown:<12}", palette["b:key"])
        text.append(f"{key.help}\n", palette["b:text"])
    for group in ("Move", "Processes", "Time", "Diagnosis", "View", "Job", "Detail", "General"):
        text.append(f"{group}\n", palette["b:title"])
        for key in keys:
            if key.group == group and key.shown:
                text.append(f"  {key.shown:<12}", palette["b:key"])
                text.append(f"{key.help}\n", palette["b:text"])
    text.append("Reading the charts\n", palette["b:title"])
    full, half, low = glyphs.solid[8], glyphs.solid[4], glyphs.solid[1]
    swing = (full * 3, "b:busy.1") if glyphs.tones else (glyphs.ranges[0][8] * 3, "b:busy")
    for sample, style, meaning in (
        (f"{low}{half}{full}", "b:busy", "zero, half and all of a fixed scale: 100%, or the limit"),
        (*swing, "from the lowest to the highest within one column"),
        ("   ", "b:text", "blank: not measured (never zero)"),
        (
            glyphs.warning,
            "b:warn",
            "on the time axis: when a finding began, and how long it held",
        ),
    ):
        text.append(f"  {sample:<12}", palette[style])
        text.append(f"{meaning}\n", palette["b:text"])
    text.append(
        "  busy: a kernel was resident, so 100% can be a wait. rx: host to GPU.\n"
        "  A process's CPU: 100% is one core. MAIN: its main thread alone.\n"
        "  QUEUE: it was runnable but waited for a core. DISK: it waited for a disk.\n"
        "  DATA: the loop waited for data, as reported by a job with gpuwatch.torch:\n"
        "  for batch in watch(loader) in the training script.\n"
        "  PSS: resident memory, a page shared by n processes counted 1/n each.\n"
        "  A role with a question mark is a guess: nothing names it.",
        palette["b:label"],
    )
    return Dialog("gpuwatch: keys", _closes(simulated), text, glyphs)


def problems_dialog(
    problems: Sequence[Problem], palette: Palette, glyphs: Glyphs, simulated: bool
) -> Dialog:
    """Everything that could not be read, and what is merely good to know."""
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
    return Dialog(title, _closes(simulated), text, glyphs)


class EndProcessDialog(Dialog):
    """Asks before a process is ended; ``True``: yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape,q", "answer(False)", show=False),
    ]
    # A stray click must not decide: only the keys do.
    click_closes = False

    def __init__(self, process: Process, force: bool, palette: Palette, glyphs: Glyphs) -> None:
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
        super().__init__("end this process?", "y / n", text, glyphs)


class LeaveJobDialog(ModalScreen[str]):
    """Asked when the dashboard is left while the job it started runs: ``leave``, ``interrupt`` or
    ``stay``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "choose('leave')", show=False),
        Binding("i", "choose('interrupt')", show=False),
        Binding("s,n,escape,q", "choose('stay')", show=False),
    ]
    DEFAULT_CSS = Dialog.DEFAULT_CSS.replace("Dialog", "LeaveJobDialog", 1)

    def __init__(
        self, command: str, palette: Palette, glyphs: Glyphs, *, ends: bool = False
    ) -> None:
        super().__init__(classes="ascii" if glyphs is ASCII else None)
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
        self._text = _ascii(text) if glyphs is ASCII else text

    @property
    def text(self) -> str:
        """What the dialog says."""
        return self._text.plain

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "the job is still running"
            box.border_subtitle = "l / i / s"
            yield Static(self._text, markup=False)

    def action_choose(self, answer: str) -> None:
        self.dismiss(answer)
