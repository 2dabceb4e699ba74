"""The command palette: whatever a key does, and settings that keys only step through."""

from collections.abc import Collection, Iterator

from gpuwatch.core import units
from gpuwatch.tui.charts.timeline import SPANS, span_words
from gpuwatch.tui.keys import described
from gpuwatch.tui.screens.dialogs.menu import Choice, Menu
from gpuwatch.tui.terminal.palette import THEMES, Palette
from gpuwatch.tui.view import INTERVALS, View


def command_palette(view: View, palette: Palette, actions: Collection[str]) -> Menu:
    """Ends with an action, of the screen whose keys have ``actions``."""
    return Menu("commands", list(_commands(view, actions)), palette, view.glyphs)


def _commands(view: View, actions: Collection[str]) -> Iterator[Choice]:
    keys = described(replay=view.replay is not None, practice=view.practice is not None)
    # The first that names an action is about this screen. A pair of keys moves to and fro: nobody
    # opens a list for that.
    known = dict[str, Choice]()
    for key in [key for _, some in keys for key in some]:
        action = key.action if key.action in actions else f"app.{key.action}"
        if action in actions and not action.endswith(")"):
            known.setdefault(action, Choice(action, key.help, key.shown))
    yield from known.values()
    for span in SPANS:
        yield Choice(f"app.range({span})", f"range: {span_words(span)}", "[ ]")
    if view.replay is None:
        for seconds in INTERVALS:
            text = f"refresh interval: {units.interval(seconds)}"
            yield Choice(f"app.interval({seconds})", text, "+ -")
    for name in THEMES:
        yield Choice(f"app.theme({name!r})", f"theme: {name}", "T")
