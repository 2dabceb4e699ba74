"""The last line: the keys, most needed first, as many as fit. Each can be clicked."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from gpuwatch.tui.keys import OVERVIEW_FOOTER, Footer, replay_footer
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, fixed
from gpuwatch.tui.panels import practice_bar
from gpuwatch.tui.terminal.frame import Line, Row, Zone, fit
from gpuwatch.tui.view import View


def panel(keys: Callable[[View], Footer]) -> Panel:
    """The footer of a page with these keys."""

    def draw_keys(page: Page, _rows: int) -> Drawn:
        line, zones = draw(page.view, page.width, keys(page.view))
        return [line], zones

    return fixed("footer", 1, draw_keys)


def draw(
    view: View, width: int, keys: Footer = OVERVIEW_FOOTER, below: int = 0
) -> tuple[Line, list[Zone]]:
    """The line that is typed, else the keys, and how many lines are below those shown."""
    row = Row(width, prefix="b:")
    prompt = view.prompt
    if prompt is not None:
        row.add(prompt.label, "key").add(fit(prompt.text, width - 24, view.glyphs.ellipsis))
        row.add(view.glyphs.cursor, "key")
        for hint in prompt.hints:
            row.fits(f"   {hint}", "label")
        return row.line("label"), []
    if view.replay is not None:
        keys = replay_footer(keys)
    if view.practice is not None:
        keys = practice_bar.keys(view, keys)
    more = f" {view.glyphs.down}{below} more lines" if below else ""
    line, zones = _keys(tuple(keys), width, view.paused, more)
    return line, list(zones)


# The same at nearly every look.
@lru_cache(maxsize=8)
def _keys(keys: Footer, width: int, paused: bool, more: str) -> tuple[Line, Sequence[Zone]]:
    row = Row(width, prefix="b:")
    zones = []
    for key, what, action in keys:
        if row.room < len(key) + len(what) + 3 + len(more):
            break
        start = row.used
        label = "resume" if action == "pause" and paused else what
        row.add(" ").add(key, "key").add(" " + label, "label").add(" ")
        zones.append(Zone(0, start, row.used, action))
    row.pad_to(width - len(more) - 1, "label").add(more, "warn")
    return row.line("label"), zones
