"""The picture on the terminal: when it is drawn, in which theme and characters, and its message."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rich.terminal_theme import TerminalTheme
from textual.app import App
from textual.screen import Screen

from gpuwatch.core.text import clean
from gpuwatch.tui.charts.strips import (
    ASCII,
    BARS,
    COLOURLESS,
    DOTS,
    FILLED_ASCII,
    SHADED_ASCII,
    UNICODE,
)
from gpuwatch.tui.pages.screen import CanvasScreen, Dialog
from gpuwatch.tui.terminal import picture
from gpuwatch.tui.terminal.driver import is_ending, strips_of, terminal_of
from gpuwatch.tui.terminal.palette import GPUWATCH_DARK, GPUWATCH_LIGHT, THEMES, Palette
from gpuwatch.tui.view import View

_MESSAGE_SECONDS = 6.0
_BEHIND_SECONDS = 0.1
"""Time until a terminal that was behind is looked at again."""
_SLOW_LINK_SECONDS = 2.0
"""A slow link is drawn to at most this often; sampling goes on at its own pace."""

Answer = TypeVar("Answer")


class Display:
    """Common ground of the controllers: the view, the message, and the way to the screen."""

    def __init__(
        self,
        app: App[int],
        view: View,
        environment: Mapping[str, str],
        *,
        ascii_mode: bool | None,
        theme: str | None,
        slow_link: bool,
    ) -> None:
        self.app = app
        self.view = view
        self.error: BaseException | None = None
        """The error that ended the application: a bug."""
        self.farewell: str | None = None
        """Sentence for the terminal once the dashboard has left it."""
        self._no_color = bool(environment.get("NO_COLOR"))
        self._message: str | None = None
        self._message_until = 0.0
        self._read = False
        self._drawn_at = float("-inf")
        self._waits = False
        for own_theme in (GPUWATCH_DARK, GPUWATCH_LIGHT):
            app.register_theme(own_theme)
        app.theme = "ansi-dark" if self._no_color else theme_name(theme, environment)
        view.palette = self._palette()
        view.slow_link = slow_link
        self._choose_glyphs(not speaks_unicode(environment) if ascii_mode is None else ascii_mode)

    def _palette(self) -> Palette:
        return Palette(self.app.current_theme, self._no_color, self.app.console.color_system)

    def watch(self, task: asyncio.Task[None]) -> None:
        """End the program with the error of a bug in ``task``, which else would freeze the
        picture."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.error = error
                self.app.exit(70)

        task.add_done_callback(ended)

    # -- drawing ----------------------------------------------------------------------------------

    def say(self, message: str, seconds: float = _MESSAGE_SECONDS) -> None:
        """Show ``message`` above the keys for a few seconds, from the next drawing on."""
        self.view.message = self._message = message
        self._message_until = time.monotonic() + seconds

    def answer(self, message: str) -> None:
        self.say(message)
        self.redraw()

    def copy(self, text: str) -> None:
        """Copy to the clipboard, by the terminal (OSC 52): it may refuse, and does not say so."""
        self.app.copy_to_clipboard(text)
        self.answer("copied; if pasting fails, the terminal does not support it (OSC 52)")

    def drop_message(self) -> None:
        """Take the message back with the next drawing: the person goes on."""
        self._read = self.view.message is not None
        self.view.message = self._message = None

    def redraw(self) -> None:
        """Draw the screen in front, and a dialog over it."""
        if is_ending(self.app):
            return
        if self.is_behind:
            # What it shows next is then the newest picture, and not one after the other.
            if not self._waits:
                self._waits = True
                self.app.set_timer(_BEHIND_SECONDS, self._redraw_later)
            return
        for screen in reversed(self.app.screen_stack):
            if isinstance(screen, CanvasScreen):
                screen.redraw()
                break
        if isinstance(self.app.screen, Dialog):
            self.app.screen.redraw()

    def redraw_at(self, seconds: float, least_seconds: float = _SLOW_LINK_SECONDS) -> None:
        """Draw what came in at ``seconds``; on a slow link only so often."""
        if not self.view.slow_link or seconds - self._drawn_at >= least_seconds - 0.05:
            self._drawn_at = seconds
            self.redraw()

    @property
    def is_behind(self) -> bool:
        """Return whether the terminal has not taken the last pictures yet."""
        terminal = terminal_of(self.app)
        return terminal is not None and terminal.is_behind

    def _redraw_later(self) -> None:
        self._waits = False
        self.redraw()

    def show(
        self, screen: Screen[Answer], decided: Callable[[Answer | None], Any] | None = None
    ) -> None:
        """Put a screen or a dialog in front; ``decided`` is given what it ends with."""
        self.app.push_screen(screen, decided)

    def show_page(self, kind: type[CanvasScreen], *more: Any) -> None:
        """Put a page in front, unless it is somewhere on the stack."""
        if not any(isinstance(screen, kind) for screen in self.app.screen_stack):
            self.show(kind(self.view, *more))

    def every_second(self) -> bool:
        """Take back a message that has been read; return whether to draw."""
        view = self.view
        changed, self._read = self._read, False
        if view.message != self._message:
            # Said by a screen: it gets its time from now on.
            self._message, self._message_until = view.message, time.monotonic() + _MESSAGE_SECONDS
        elif view.message and time.monotonic() > self._message_until:
            view.message = self._message = None
            changed = True
        return changed

    def _choose_glyphs(self, ascii_mode: bool) -> None:
        # A tone costs a colour change of some twenty bytes, a dotted cell three.
        ansi = self.app.current_theme.ansi
        has_tones = not (self._no_color or ansi or self.view.slow_link)
        has_shades = has_tones and not self.view.palette.is_of_256
        if ascii_mode:
            coloured = SHADED_ASCII if has_shades else FILLED_ASCII
            self.view.glyphs = ASCII if self._no_color else coloured
        elif has_tones:
            self.view.glyphs = UNICODE if has_shades else BARS
        else:
            self.view.glyphs = COLOURLESS if self._no_color else DOTS

    # -- keys -------------------------------------------------------------------------------------

    def action_help(self) -> None:
        from gpuwatch.tui.pages.dialogs import help_dialog  # noqa: PLC0415

        self.show(help_dialog(self.view))

    def action_problems(self) -> None:
        from gpuwatch.tui.pages.dialogs import problems_dialog  # noqa: PLC0415

        if self.view.snapshot is not None:
            self.show(problems_dialog(self.view))

    def action_palette(self) -> None:
        """Show everything that can be done on the screen in front, to be found by typing."""
        from gpuwatch.tui.pages.dialogs import command_palette  # noqa: PLC0415

        app, screen = self.app, self.app.screen
        bound = screen.active_bindings.values()
        actions = {("app." if one.node is app else "") + one.binding.action for one in bound}

        async def chosen(action: str | None) -> None:
            if action:
                await app.run_action(action, screen)

        self.show(command_palette(self.view, actions), chosen)

    def action_theme(self, name: str | None = None) -> None:
        app = self.app
        position = THEMES.index(app.theme) if app.theme in THEMES else -1
        app.theme = name or THEMES[(position + 1) % len(THEMES)]
        self.view.palette = self._palette()
        self._choose_glyphs(self.view.glyphs.is_ascii)
        for screen in app.screen_stack:
            if isinstance(screen, CanvasScreen):
                screen.canvas.repaint(self.view.palette)
        self.answer(f"theme: {app.theme}")

    def action_save_picture(self) -> None:
        self.save("picture", self.picture())

    def save(self, what: str, text: str, *name: str) -> None:
        """Write ``text`` to a file, and say where; ``name``: as ``picture.save`` takes it."""
        try:
            path = picture.save(text, time.time(), *name)
        except OSError as error:
            self.answer(f"the {what} could not be saved: {error.strerror or error}")
        else:
            self.answer(f"saved {clean(str(path))}")

    def picture(self) -> str:
        """Return the screen as it stands, dialogs and all, as SVG."""
        return picture.svg([list(one) for one in strips_of(self.app.screen)], self._picture_theme())

    def _picture_theme(self) -> TerminalTheme:
        """Return colours for a picture that stand for "the terminal's own"."""
        if self.app.native_ansi_color:
            return _OF_A_TERMINAL
        text = self.view.palette["text"]
        assert text.bgcolor is not None
        assert text.color is not None
        ground, ink = text.bgcolor.get_truecolor(), text.color.get_truecolor()
        return TerminalTheme((*ground,), (*ink,), [(0, 0, 0)] * 8)


_OF_A_TERMINAL = TerminalTheme(
    (0x00, 0x00, 0x00),
    (0xD3, 0xD7, 0xCF),
    [
        *((0x2E, 0x34, 0x36), (0xCC, 0x00, 0x00), (0x4E, 0x9A, 0x06), (0xC4, 0xA0, 0x00)),
        *((0x34, 0x65, 0xA4), (0x75, 0x50, 0x7B), (0x06, 0x98, 0x9A), (0xD3, 0xD7, 0xCF)),
    ],
    [
        *((0x55, 0x57, 0x53), (0xEF, 0x29, 0x29), (0x8A, 0xE2, 0x34), (0xFC, 0xE9, 0x4F)),
        *((0x72, 0x9F, 0xCF), (0xAD, 0x7F, 0xA8), (0x34, 0xE2, 0xE2), (0xEE, 0xEE, 0xEC)),
    ],
)
"""Sixteen colours that many terminals have: Tango's."""


def forget_exported(environment: Mapping[str, str]) -> bool:
    """Drop from this process's environment what Textual would take at its word; whether
    ``NO_COLOR`` is set there."""
    no_color = bool(environment.get("NO_COLOR"))
    if not no_color:
        # Set but empty means not set (no-color.org); Textual would take it for set.
        os.environ.pop("NO_COLOR", None)
    # A shell that exports these freezes the size: Textual would believe them, and no resize.
    os.environ.pop("COLUMNS", None)
    os.environ.pop("LINES", None)
    return no_color


def theme_name(wanted: str | None, environment: Mapping[str, str]) -> str:
    """Return the Textual theme for ``wanted``; sixteen-colour terminals get the terminal's own
    colours."""
    if wanted is None:
        return "ansi-dark" if _few_colours(environment) else GPUWATCH_DARK.name
    own = {"dark": GPUWATCH_DARK.name, "light": GPUWATCH_LIGHT.name, "ansi": "ansi-dark"}
    return own.get(wanted, wanted)


def _few_colours(environment: Mapping[str, str]) -> bool:
    term = environment.get("TERM", "")
    if environment.get("COLORTERM") in {"truecolor", "24bit"}:
        return False
    return not any(mark in term for mark in ("256", "direct", "kitty", "alacritty", "ghostty"))


def speaks_unicode(environment: Mapping[str, str]) -> bool:
    """Return whether block and braille characters will arrive: the output's encoding must be UTF-8,
    and the Linux console's font has none of them."""
    if environment.get("TERM") == "linux":
        return False
    stream = sys.__stdout__
    encoding = (stream.encoding if stream is not None else None) or "ascii"
    return encoding.lower().replace("-", "") == "utf8"
