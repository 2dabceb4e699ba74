"""Asks for the name of the file to record to."""

from rich.text import Text
from textual import events

from gpuwatch.core.text import clean
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.screens.dialogs.dialog import Dialog
from gpuwatch.tui.terminal.frame import fit_end
from gpuwatch.tui.terminal.palette import Palette

_SHOWN = 72
_LENGTH = 4000


class RecordDialog(Dialog):
    """Ends with the name as it was typed; an empty one: no recording. What is typed first takes the
    place of the name that is offered."""

    def __init__(self, name: str, palette: Palette, glyphs: Glyphs) -> None:
        self.name_typed = name
        self._offered = True
        self._palette = palette
        self._glyphs = glyphs
        title, hint = "record to a file", "enter starts, esc cancels"
        super().__init__(title, hint, self._drawn(), palette, glyphs, {})

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        match event.key:
            case "enter":
                self.dismiss(self.name_typed.strip())
            case "escape" | "ctrl+c":
                self.dismiss("")
            case "backspace":
                self._change(self.name_typed[:-1])
            case "ctrl+u" | "ctrl+w":
                self._change("")
            case "left" | "right" | "home" | "end":
                # It is to be changed rather than replaced.
                self._offered = False
            case _ if event.is_printable and event.character is not None:
                self._change(("" if self._offered else self.name_typed) + event.character)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._change(("" if self._offered else self.name_typed) + event.text.strip())

    def _change(self, name: str) -> None:
        self.name_typed = clean(name, _LENGTH)
        self._offered = False
        self.say(self._drawn())

    def _drawn(self) -> Text:
        palette = self._palette
        text = Text()
        name = fit_end(self.name_typed, _SHOWN, self._glyphs.ellipsis)
        text.append(name, palette["b:value" if not self._offered else "b:label"])
        text.append(self._glyphs.cursor + "\n\n", palette["b:key"])
        text.append(
            "JSON lines; compressed where the name ends in .zst. Only you can read the file. "
            "The command lines of processes are in it: `gpuwatch record --redact` omits them. "
            "`gpuwatch replay FILE` plays it.",
            palette["b:text"],
        )
        return text
