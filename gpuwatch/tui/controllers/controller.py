"""The shape of a controller: it reacts to snapshots and to keys."""

from collections.abc import Callable, Sequence

from textual.events import Click, Event, Key, Paste

from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.tui.display import Display
from gpuwatch.tui.keys import Key as KeyRow
from gpuwatch.tui.terminal.frame import edited
from gpuwatch.tui.view import Prompt

_LENGTH = 200
"""Characters that can be pasted."""


class Controller:
    """Concern of the application. A method ``action_NAME`` is what the key table calls NAME."""

    keys: Sequence[KeyRow] = ()
    """Keys that are there only with this controller, on every screen."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.view = display.view

    def start(self) -> None:
        """Called once the application runs."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Take each snapshot, also while the picture is paused."""

    def every_second(self) -> bool:
        """Look after what changes without a snapshot; return whether there is something new to
        draw."""
        return False

    def takes(self, event: Event) -> bool:
        """Say of a typed key or pasted text that it is for this controller alone."""
        del event
        return False

    def on_click(self, event: Click) -> None:
        """Take a click that a screen has seen too."""

    def close(self) -> None:
        """Keep what there is to keep, and leave nothing running."""


class TypingController(Controller):
    """A line that is typed. Keys are taken here rather than by an input widget: one would be
    mounted a moment later, and what is typed in that moment would act as commands."""

    def __init__(self, display: Display) -> None:
        super().__init__(display)
        self.openers: dict[str, Callable[[], None]] = {"filter": self.action_filter}
        """Actions that open a line. Their keys do so at once: bindings run a moment later, after
        what is typed behind them."""

    def open(self, prompt: Prompt) -> None:
        self.view.prompt = prompt
        self.display.redraw()

    def action_filter(self) -> None:
        def take(text: str | None) -> None:
            self.view.filter_text = text or ""

        hints = ("enter keeps it, esc clears it",)
        self.open(Prompt(" / ", hints, take, take, self.view.filter_text))

    def takes(self, event: Event) -> bool:
        """All that is typed into an open line, and the keys that open one."""
        prompt = self.view.prompt
        if event.is_forwarded or not isinstance(event, Key | Paste):
            return False
        if prompt is None:
            return isinstance(event, Key) and self._opens(event.key)
        text: str | None = None
        if isinstance(event, Paste):
            text = prompt.text + clean(event.text.strip(), _LENGTH)
        elif event.key == "ctrl+c":
            return False
        elif event.key in {"enter", "escape"} or (event.key == "backspace" and not prompt.text):
            self.view.prompt = None
            prompt.done(prompt.text if event.key == "enter" else None)
        else:
            text = edited(prompt.text, event.key, event.character)
        if text is not None:
            prompt.text = text
            prompt.changed(text)
        self.display.redraw()
        return True

    def _opens(self, key: str) -> bool:
        bound = self.display.app.screen.active_bindings.get(key)
        name = "" if bound is None else bound.binding.action.removeprefix("app.")
        if name in self.openers:
            self.openers[name]()
        return name in self.openers


def actions_of(parts: list[object]) -> dict[str, Callable[..., object]]:
    """The actions of ``parts`` by name; a later one takes the place of an earlier."""
    prefix = "action_"
    return {
        name.removeprefix(prefix): getattr(part, name)
        for part in parts
        for name in dir(part)
        if name.startswith(prefix)
    }
