"""The shape of a controller: it reacts to snapshots and to keys."""

from collections.abc import Callable, Sequence

from textual.events import Click, Event

from gpuwatch.core.model import Snapshot
from gpuwatch.tui.display import Display
from gpuwatch.tui.keys import Key


class Controller:
    """One concern of the application. A method ``action_NAME`` is what the key table calls NAME."""

    keys: Sequence[Key] = ()
    """Keys that are there only with this controller, on every screen."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.view = display.view

    def start(self) -> None:
        """Called once the application runs."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Take each snapshot, also while the picture is paused."""

    def every_second(self) -> bool:
        """Look after what changes without a snapshot; whether there is something new to draw."""
        return False

    def takes(self, event: Event) -> bool:
        """Say of a typed key or pasted text that it is for this controller alone."""
        del event
        return False

    def on_click(self, event: Click) -> None:
        """Take a click that a screen has seen too."""

    def close(self) -> None:
        """Keep what there is to keep, and leave nothing running."""


def actions_of(parts: list[object]) -> dict[str, Callable[..., object]]:
    """The actions of ``parts`` by name; a later one takes the place of an earlier."""
    prefix = "action_"
    return {
        name.removeprefix(prefix): getattr(part, name)
        for part in parts
        for name in dir(part)
        if name.startswith(prefix)
    }
