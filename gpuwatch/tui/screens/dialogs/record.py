"""Asks for the name of the file to record to."""

from rich.text import Text
from textual import events

from gpuwatch.core.text import clean
from gpuwatch.tui.screens.dialogs.dialog import Dialog
from gpuwatch.tui.terminal.frame import Line, edited, fit_end
from gpuwatch.tui.view import View

_SHOWN = 72
_LENGTH = 4000


class RecordDialog(Dialog):
    """Ends with the name as it was typed; an empty one: no recording. What is typed first takes the
    place of the name that is offered."""

    def __init__(self, view: View, name: str) -> None:
        super().__init__(view, "record to a file", Text(), "enter starts, esc cancels", {})
        self._change(name)
        self._offered = True

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        match event.key:
            case "enter":
                self.dismiss(self.name_typed.strip())
            case "escape" | "ctrl+c":
                self.dismiss("")
            case "left" | "right" | "home" | "end":
                # It is to be changed rather than replaced.
                self._offered = False
            case key:
                replaced = self._offered and event.is_printable
                name = edited("" if replaced else self.name_typed, key, event.character)
                if name is not None:
                    self._change(name)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._change(("" if self._offered else self.name_typed) + event.text.strip())

    def _change(self, name: str) -> None:
        self.name_typed = clean(name, _LENGTH)
        self._offered = False
        self.redraw()

    def lines(self, width: int) -> list[Line]:
        name = fit_end(self.name_typed, _SHOWN, self._glyphs.ellipsis)
        self._words = Text.assemble(
            (name, "label" if self._offered else "value"),
            (f"{self._glyphs.cursor}\n\n", "key"),
            "JSON lines; compressed where the name ends in .zst. Only you can read the file. "
            "The command lines of processes are in it: `gpuwatch record --redact` omits them. "
            "`gpuwatch replay FILE` plays it.",
        )
        return super().lines(width)
