"""The dashboard over a practice job: one more key, which turns its knobs; it ends with it."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from gpuwatch.tui.app import GpuwatchApp
from gpuwatch.tui.keys import Key
from gpuwatch.tui.practice import Practice

PRACTICE_KEYS: tuple[Key, ...] = (
    Key("x", "turn", "x", "fix the fault, or bring it back", "Practice"),
)


_INTERRUPTED = 130
"""As a shell has it for Ctrl-C."""


class PracticeApp(GpuwatchApp):
    """Its job is ended by whoever started it, as soon as this is left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.help, show=False) for key in PRACTICE_KEYS
    ]

    def __init__(self, practice: Practice, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._practice = practice
        self.view.practice = practice

    def _every_second(self) -> None:
        if self._practice.look():
            self.redraw()
        super()._every_second()

    def action_turn(self) -> None:
        """Turn the knobs, and compare from here on."""
        if self._practice.ended or not self._practice.turns:
            ended = "the job has ended: its settings can no longer be changed"
            self.say(ended if self._practice.ended else "nothing is wrong: there is nothing to fix")
            self.redraw()
            return
        try:
            self._practice.turn()
        except OSError as error:
            self.say(f"the settings cannot be changed: {error.strerror or error}")
            self.redraw()
            return
        self.action_mark()

    def action_help(self) -> None:
        from gpuwatch.tui.screens.dialogs.windows import help_dialog  # noqa: PLC0415

        self.push_screen(
            help_dialog(self.palette, self.view.glyphs, self._source.simulated, PRACTICE_KEYS)
        )

    async def action_quit(self) -> None:
        """Nobody needs a practice job that nobody looks at: it is not asked about."""
        self.exit()

    def action_interrupt(self) -> None:
        """Nor does it get the time to end by itself."""
        self.exit(None, _INTERRUPTED)
