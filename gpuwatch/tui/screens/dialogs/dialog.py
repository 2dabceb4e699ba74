"""A small window over the dashboard: a text, and keys that end it with an answer."""

from collections.abc import Mapping
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from gpuwatch.tui.charts.glyphs import ASCII, Glyphs
from gpuwatch.tui.terminal.frame import to_ascii
from gpuwatch.tui.view import View

CLOSES = {"escape,enter,q,question_mark,exclamation_mark,f1,h,e": ""}
_KEYS = ("escape", "enter", "question_mark", "exclamation_mark", "f1", *"ehilnqsy")
"""All that any dialog takes for an answer."""


class Dialog(ModalScreen[str]):
    """A framed text that scrolls when it must, and ends with what the key pressed stands for in
    ``answers`` (keys as Textual names them, comma separated).

    ``title`` and ``hint`` are ours, never read from a machine: Textual takes markup there; the text
    itself is shown as it is. A click closes it unless it is a question: only keys decide there.
    """

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
        Binding(key, f"answer('{key}')", show=False) for key in _KEYS
    ]
    AUTO_FOCUS = "VerticalScroll"

    def __init__(
        self, title: str, hint: str, text: Text, glyphs: Glyphs, answers: Mapping[str, str] = CLOSES
    ) -> None:
        super().__init__(classes="ascii" if glyphs is ASCII else None)
        self.labels = (title, hint)
        self._glyphs = glyphs
        self._answers = {key: what for keys, what in answers.items() for key in keys.split(",")}
        self._closes = answers is CLOSES
        self._text = self._fitting(text)

    def _fitting(self, text: Text) -> Text:
        if self._glyphs is not ASCII or text.plain.isascii():
            return text
        return Text(to_ascii(text.plain), spans=text.spans)

    @property
    def text(self) -> str:
        """The dialog's text."""
        return self._text.plain

    def say(self, text: Text) -> None:
        """Show another text."""
        self._text = self._fitting(text)
        self.query_one(Static).update(self._text)

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title, box.border_subtitle = self.labels
            yield Static(self._text, markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "answer" or parameters[0] in self._answers

    def dismiss(self, result: str | None = None) -> AwaitComplete:
        """Once: a second key that was on its way already is not for the screen below."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def action_answer(self, key: str) -> None:
        self.dismiss(self._answers[key])

    def on_click(self, event: events.Click) -> None:
        del event
        if self._closes:
            self.dismiss("")


def closing_hint(view: View) -> str:
    """A dialog can cover the header, where it also says that all this is simulated."""
    simulated = view.snapshot is not None and view.snapshot.simulated
    return "SIMULATED, esc closes" if simulated else "esc closes"
