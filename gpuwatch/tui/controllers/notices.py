"""Desktop notifications of what is found while nobody looks, shown by the terminal."""

from collections.abc import Mapping

from textual.events import AppBlur, AppFocus, Event

from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.outputs.alerts import RAISED, Alerts
from gpuwatch.tui.controllers.controller import Controller
from gpuwatch.tui.controllers.diagnosis import DiagnosisController
from gpuwatch.tui.display import Display
from gpuwatch.tui.terminal.driver import write_directly

_LENGTH = 240


class NoticeController(Controller):
    """For warnings and errors, unless the terminal has said that it has the focus: one that never
    says so (tmux without ``focus-events``) may be out of sight."""

    def __init__(
        self, display: Display, diagnosis: DiagnosisController, environment: Mapping[str, str]
    ) -> None:
        super().__init__(display)
        self._diagnosis = diagnosis
        self._environment = environment
        self._alerts = Alerts(lambda one: one.severity != "info", 0.0)
        self._focused = False

    def takes(self, event: Event) -> bool:
        if isinstance(event, AppFocus | AppBlur):
            self._focused = isinstance(event, AppFocus)
        return False

    def on_snapshot(self, snapshot: Snapshot) -> None:
        latest = self._diagnosis.latest
        for one in [] if latest is None else self._alerts.push(snapshot, latest):
            if one.event == RAISED and not self._focused:
                write_directly(self.display.app, notification(one.text, self._environment))


def notification(text: str, environment: Mapping[str, str]) -> str:
    """What has a terminal show ``text``. OSC 9 is iTerm2's and kitty's; to Windows' terminals it is
    other things too, and the rest know rxvt's OSC 777, in which ``;`` ends a part."""
    text = clean(text, _LENGTH).replace(";", ",")
    names = " ".join(environment.get(one, "") for one in ("TERM", "TERM_PROGRAM", "LC_TERMINAL"))
    nine = "iTerm" in names or "kitty" in names or "KITTY_WINDOW_ID" in environment
    sequence = f"\x1b]9;gpuwatch: {text}\a" if nine else f"\x1b]777;notify;gpuwatch;{text}\a"
    if "TMUX" in environment:
        # It hands on what is wrapped so, if allow-passthrough is on.
        sequence = "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return sequence
