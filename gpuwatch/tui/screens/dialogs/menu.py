"""A list to choose from, in a window. Typing shortens it."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from rich.text import Text
from textual import events

from gpuwatch.tui.pages.layout import scrolled
from gpuwatch.tui.screens.dialogs.dialog import WIDTH, Dialog
from gpuwatch.tui.terminal.frame import Line, Row, edited, plain
from gpuwatch.tui.view import View

_HEAD_ROWS = 2
"""The line that is typed into, and a blank one below it."""


class Choice(NamedTuple):
    """``note``: at the right. ``ticked``: in or out; ``None``: it is chosen, not ticked."""

    name: str
    text: str
    note: str = ""
    ticked: bool | None = None


def _match(words: Sequence[str], choice: Choice) -> tuple[int, Collection[int]] | None:
    """How far ``choice`` is from what was typed, and which of its characters were; ``None``: some
    word is not in it. Nearest: its key, or a word of it that begins so; then any part of it, the
    name of its action, and letters in this order."""
    text, named = choice.text.lower(), choice.name.replace("_", " ")
    keys = choice.note.lower().split()
    far, places = 0, set[int]()
    for word in words:
        begins = re.search(rf"\b{re.escape(word)}", text)
        at = text.find(word) if begins is None else begins.start()
        if word in keys:
            far -= 1
        elif at >= 0:
            far += begins is None
            places.update(range(at, at + len(word)))
        elif word in named:
            far += 2
        else:
            letters = re.search(".*?".join([f"({re.escape(one)})" for one in word]), text)
            if letters is None:
                return None
            far += 3 + letters.end() - letters.start()
            places.update(map(letters.start, range(1, len(word) + 1)))
    return far, places


class Menu(Dialog):
    """Ends with the name of what was chosen, an empty one for nothing. With ``toggle``, which is
    given a name and answers with the choices as they are then, it stays until it is closed."""

    def __init__(
        self,
        view: View,
        title: str,
        choices: Sequence[Choice],
        *,
        at: int = 0,
        toggle: Callable[[str], Sequence[Choice]] | None = None,
    ) -> None:
        self._choices = choices
        self._toggle = toggle
        self._typed = ""
        self._position, self._offset = at, 0
        hint = "enter chooses, esc closes" if toggle is None else "space: in or out, esc closes"
        super().__init__(view, title, Text(), hint, {})

    @property
    def text(self) -> str:
        return "\n".join(map(plain, self.lines(WIDTH)))

    @property
    def _found(self) -> list[tuple[Choice, Collection[int]]]:
        """Those that have every word that was typed, the nearest first, and where they have it."""
        words = self._typed.lower().split()
        matches = [(_match(words, one), one) for one in self._choices]
        found = [(match, one) for match, one in matches if match is not None]
        found.sort(key=lambda each: each[0][0])
        return [(one, places) for (_, places), one in found]

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        match event.key:
            case "escape" | "ctrl+c":
                self.dismiss("")
            case "enter" | "space" if event.key == "enter" or self._toggle is not None:
                self._choose()
            case "up" | "down" | "pageup" | "pagedown" | "home" | "end":
                page = self._rows
                steps = {"up": -1, "down": 1, "pageup": -page, "pagedown": page}
                self._move(steps.get(event.key, len(self._choices) * (event.key == "end" or -1)))
            case key:
                text = edited(self._typed, key, event.character)
                if text is not None:
                    self._typed, self._position = text, 0
                    self.redraw()

    def on_click(self, event: events.Click) -> None:
        """On a choice, or beside the window to close it."""
        place = event.screen_y - self.box.y - 1 - _HEAD_ROWS
        if not self.box.contains(event.screen_x, event.screen_y):
            self.dismiss("")
        elif 0 <= place < min(self._rows, len(self._found) - self._offset):
            self._position = self._offset + place
            self._choose()

    def on_mouse_scroll_down(self) -> None:
        self._move(1)

    def on_mouse_scroll_up(self) -> None:
        self._move(-1)

    def _move(self, step: int) -> None:
        self._position = max(0, min(self._position + step, len(self._found) - 1))
        self.redraw()

    def _choose(self) -> None:
        found = self._found
        if found and self._toggle is not None:
            self._choices = self._toggle(found[self._position][0].name)
            self.redraw()
        elif found:
            self.dismiss(found[self._position][0].name)

    @property
    def _rows(self) -> int:
        return max(1, self.app.size.height - _HEAD_ROWS - 2)

    def lines(self, width: int) -> list[Line]:
        glyphs, found = self._glyphs, self._found
        rows = min(self._rows, len(self._choices))
        self._offset = scrolled(self._offset, self._position, rows, len(found))
        line = Row(width, prefix="b:")
        line.add(f"{self._typed}{glyphs.cursor}", "key")
        line.add("" if self._typed else " type to search", "dim")
        lines = [line.line(), Row(width, prefix="b:").line()]
        for place in range(self._offset, self._offset + rows):
            chosen = place == self._position
            line = Row(width, prefix="s:" if chosen else "b:")
            if place < len(found):
                one, typed = found[place]
                line.add(f"{glyphs.marker} " if chosen else "  ", "marker")
                line.add("" if one.ticked is None else "[x] " if one.ticked else "[ ] ", "key")
                for at, character in enumerate(one.text):
                    line.add(character, "key" if at in typed else "text")
                if line.room > len(one.note) + 1:
                    line.pad_to(width - len(one.note)).add(one.note, "label")
            elif not found and place == self._offset:
                line.add("  nothing of that name", "label")
            lines.append(line.line())
        return lines
