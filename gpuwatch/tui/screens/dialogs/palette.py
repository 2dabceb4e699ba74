"""The command palette: whatever a key does, and settings that keys only step through."""

import re
from collections.abc import Collection, Iterator

from gpuwatch.core import units
from gpuwatch.tui.charts.timeline import SPANS, span_words
from gpuwatch.tui.keys import Key, described
from gpuwatch.tui.screens.dialogs.menu import Choice, Menu
from gpuwatch.tui.terminal.palette import THEMES
from gpuwatch.tui.view import INTERVALS, SORT_KEYS, View

_TWO_WAYS = re.compile(r"(\S+) or (\S+?)(,.*)?(?= |$)")
_STEP = re.compile(r"\((-?\d+)\)$")


def command_palette(view: View, actions: Collection[str]) -> Menu:
    """Ends with an action, of the screen whose keys have ``actions``."""
    return Menu(view, "commands", list(_commands(view, actions)))


def _commands(view: View, actions: Collection[str]) -> Iterator[Choice]:
    keys = described(replay=view.replay is not None, practice=view.practice is not None)
    # The first that names an action is about this screen.
    known = dict[str, Choice]()
    for key in [key for _, some in keys for key in some]:
        action = key.action if key.action in actions else f"app.{key.action}"
        if action in actions and action != "app.palette":
            for one in _ways(key._replace(action=action)):
                known.setdefault(one.name, one)
    yield from known.values()
    if "sort_menu" in actions:
        for name in SORT_KEYS:
            yield Choice(f"sort_by({name!r})", f"sort by {name}", "O")
    for span in SPANS:
        yield Choice(f"app.range({span})", f"range: {span_words(span)}", "[ ]")
    if view.replay is None:
        for seconds in INTERVALS:
            text = f"refresh interval: {units.interval(seconds)}"
            yield Choice(f"app.interval({seconds})", text, "+ -")
    for name in THEMES:
        yield Choice(f"app.theme({name!r})", f"theme: {name}", "T")


def _ways(key: Key) -> Iterator[Choice]:
    """What the key does; of a pair that goes to and fro each of both, if its help names them."""
    text = re.sub("^in [a-z ]+: ", "", key.help)
    step, ways = _STEP.search(key.action), _TWO_WAYS.search(text)
    if step is None:
        yield Choice(key.action, text, key.shown)
    elif ways is not None:
        other = 1 if step[1] == "0" else -int(step[1])
        back = key.action[: step.start()] + f"({other})"
        both = key.shown.split()
        shown = both if len(both) == 2 else [key.shown] * 2
        for action, way, press in zip((key.action, back), ways.groups(), shown, strict=False):
            yield Choice(action, text[: ways.start()] + way + text[ways.end() :], press)
