"""Colours by what they mean, for each theme.

A panel names a style (``busy``, ``warn``, ``dim``); a palette says what that is in the theme in
force. Meaning never rests on colour alone: a warning also carries a sign or a word.
"""

from rich import palette as rich_palette
from rich.color import Color as TerminalColor
from rich.style import Style
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from gpuwatch.outputs.terminal import STATE_HUES
from gpuwatch.tui.charts.strips import (
    BESIDE,
    FILLED_PALE,
    FILLS,
    FLOOR,
    ON_PALE,
    PALE,
    SHADES,
)

# On a dark and on a light ground.
_HUES = {
    "accent": ("#62a8e5", "#1565b5"),
    **STATE_HUES,
    "unknown": ("#b9dbe6", "#17506b"),
    "gauge": ("#6e8faa", "#64788c"),
    "area": ("#727f89", "#7f92a2"),
    "host": ("#7fb4b8", "#1f7a80"),
    "main": ("#6a9ac8", "#386896"),
    "worker": ("#6a9ac8", "#386896"),
    "disk": ("#938ebc", "#665d9f"),
    "dim": ("#848e99", "#626b75"),
    "label": ("#98a2ad", "#555f69"),
    "rule": ("#2b333b", "#d5d9dc"),
    "edge": ("#46525e", "#b4bcc3"),
    "select": ("#212a33", "#e2e8ee"),
    "bar": ("#181f26", "#eef0f1"),
    "cursor": ("#4a5766", "#c3ccd4"),
    "simulated": ("#e39ac0", "#a8326f"),
}

GPUWATCH_DARK = Theme(
    name="gpuwatch-dark",
    primary="#62a8e5",
    secondary="#7fb4b8",
    accent="#5fc992",
    warning=STATE_HUES["starved"][0],
    error="#ff7068",
    success="#5fc992",
    foreground="#d3dae1",
    background="#10151a",
    surface="#181f26",
    panel="#212a33",
    dark=True,
)

GPUWATCH_LIGHT = Theme(
    name="gpuwatch-light",
    primary="#1565b5",
    secondary="#1f7a80",
    accent="#18824d",
    warning=STATE_HUES["starved"][1],
    error="#c0261c",
    success="#18824d",
    foreground="#22282e",
    background="#fbfbf9",
    surface="#eef0f1",
    panel="#e2e8ee",
    dark=False,
)

# Sixteen colours and the terminal's own background: every hue is one the terminal defines. Not the
# plain blue and, in words, magenta, which are too dark to read on black; red is for what is lost.
_ANSI = {
    "text": "default",
    "background": "default",
    "accent": "bright_blue",
    "fed": "green",
    "starved": "yellow",
    "throttled": "bright_magenta",
    "waiting": "bright_blue",
    "late": "bright_yellow",
    "idle": "default",
    "unknown": "cyan",
    "gauge": "cyan",
    "area": "default",
    "host": "cyan",
    "main": "cyan",
    "worker": "cyan",
    "disk": "magenta",
    "dim": "default",
    "label": "default",
    "rule": "bright_black",
    "edge": "bright_black",
    "warning": "yellow",
    "error": "bright_red",
    "simulated": "bright_magenta",
}

_FAINT = {"dim", "idle", "area"}
"""Hues that are the terminal's own ink, dimmed: its grey is hard to read on many, and on some it is
the ground."""

_FILL_OF_FAINT = "bright_black"
"""Ground of a cell that is filled with such a hue: an ink is dimmed and a ground is not."""
_QUIET_CHARTS = {"host", "gauge"}
"""Hues whose charts are as quiet as ``area``: most are flat, and blocks of a full colour would be
the loudest of all."""

# Style names that are a hue and more: (hue, bold, reverse). Any other name is a hue itself.
_LOOKS: dict[str, tuple[str, bool | None, bool]] = {
    "value": ("text", True, False),
    "title": ("text", True, False),
    "warn": ("warning", True, False),
    "throttled value": ("throttled", True, False),
    "error": ("error", True, False),
    "simulated": ("simulated", True, False),
    "past": ("warning", True, True),
    "recording": ("error", True, True),
    "replay": ("accent", True, True),
    "key": ("accent", True, False),
    "marker": ("accent", True, False),
}

_GROUNDS = {"": "background", "s": "select", "b": "bar", "c": "cursor"}

THEMES = ("gpuwatch-dark", "gpuwatch-light", "ansi-dark", "nord", "gruvbox", "tokyo-night")
"""The themes the theme key walks through, in order."""
KNOWN_THEMES = frozenset({*THEMES, *BUILTIN_THEMES})


class Palette(dict[str, Style]):
    """Rich styles by name. A name that starts with ``s:`` is that style on the selected row,
    ``b:`` on a bar (header, footer, table heading), ``c:`` under the cursor of the charts;
    ``fed/starved`` is the first hue on a ground with a tint of the second (not
    in sixteen colours, of which none is a quiet ground); ``fed+waiting`` has above its solid part
    the second."""

    def __init__(self, theme: Theme, no_color: bool = False, colours: str | None = None) -> None:
        """Take the colours of ``theme``, or none; ``colours`` is what the terminal has, as Rich
        names it (``256``)."""
        super().__init__()
        self.is_of_256 = colours == "256"
        self._ansi = theme.ansi or no_color
        self._no_color = no_color
        self._hues = dict(_ANSI) if self._ansi else _hues(theme)
        self._dark = theme.dark

    def __missing__(self, name: str) -> Style:
        style = self._make(name)
        if self.is_of_256:
            style += Style(color=_nearest(style.color), bgcolor=_nearest(style.bgcolor))
        self[name] = style
        return style

    def _make(self, name: str) -> Style:
        surface = ""
        if name[1:2] == ":":
            surface, name = name[0], name[2:]
        name, _, tone = name.partition(".")
        tone, shade = tone[:1], tone[1:]
        name, _, tint = name.partition("/")
        name, _, lost = name.partition("+")
        hue, bold, reverse = _LOOKS.get(name, (name, None, False))
        foreground = self._hues.get(hue, self._hues["text"])
        background = base = "default" if self._ansi else self._hues[_GROUNDS[surface]]
        if tint and not self._ansi and surface in ("", "b"):
            ground = Color.parse(background)
            share = _REST if lost else _TINT
            background = ground.blend(Color.parse(self._hues[tint]), share).hex
        if self._ansi and tone and hue in _QUIET_CHARTS:
            hue, foreground = "area", self._hues["area"]
        if self._ansi and lost and tone == PALE:
            foreground = self._hues[lost]
        if tone and not self._ansi:
            steady = name == _STEADY_NAME and not (tint or lost)
            grounds = (base if lost else background, background)
            return self._toned(foreground, grounds, tone + shade, lost, steady=steady)
        if self._ansi and surface == "s":
            # A row of many hues turned around is hard to read.
            foreground, bold, reverse = self._hues["text"], None, True
        elif self._ansi and surface == "c":
            reverse = True
        if self._no_color:
            return Style(
                bold=bold,
                # Bars are the largest areas, and would outshine every word, and labels their
                # numbers. A bar is underlined in one brightness.
                dim=bool(tone)
                or name in {"dim", "rule", "edge"}
                or (name == "label" and surface != "b"),
                reverse=reverse or None,
                underline=(surface == "b") or None,
            )
        if self._ansi and tone and tone in FILLS and surface not in {"s", "c"}:
            filled = _FILL_OF_FAINT if hue in _FAINT else foreground
            return Style(color=filled, bgcolor=filled)
        dim = (self._ansi and hue in _FAINT and surface != "s") or None
        return Style(
            color=foreground, bgcolor=background, bold=bold, dim=dim, reverse=reverse or None
        )

    def _toned(
        self,
        foreground: str,
        grounds: tuple[str, str],
        tones: str,
        lost: str,
        *,
        steady: bool,
    ) -> Style:
        """Return the colours of a cell of a chart; what was no work has the hue of what was
        ``lost``. Its bars are a part of the first of the ``grounds``, and stand on the second;
        ``steady``: nothing held that up."""
        (mixed_with, background), tone, shade = grounds, tones[:1], tones[1:]
        hue, ground = Color.parse(foreground), Color.parse(mixed_with)
        apart = Color.parse(self._hues[lost]) if lost else hue
        # Of 256 colours the nearest to a quieter hue is grey.
        if tone in SHADES:
            share = _LEAST_SHADE + (_MOST_SHADE - _LEAST_SHADE) * SHADES.index(tone) / len(SHADES)
            share *= _STEADY / _SOLID if steady else 1.0
            return Style(color=ground.blend(hue, share).hex, bgcolor=background)
        if tone in FILLS:
            share = _LEAST_FILL + (1 - _LEAST_FILL) * FILLS.index(tone) / (len(FILLS) - 1)
            most = 1.0 if self.is_of_256 else _BESIDE if shade == BESIDE else _SOLID
            most = min(most, _STEADY) if steady and not self.is_of_256 else most
            filled = ground.blend(hue, share * most).hex
            return Style(color=filled, bgcolor=filled)
        is_low = tone == FLOOR and shade == BESIDE
        share = _FLOOR if tone == FLOOR else _BESIDE if shade == BESIDE else _SOLID
        share = min(share, _STEADY) if steady else share
        solid = ground.blend(hue, _LOW_FLOOR if is_low else share).hex
        solid = hue.hex if self.is_of_256 and not is_low else solid
        pale = (
            apart.hex
            if lost and self.is_of_256
            else ground.blend(apart, _LOST.get(lost, _LOST_ELSE) if lost else _PALE).hex
        )
        if tone == FILLED_PALE:
            return Style(color=pale, bgcolor=pale)
        if tone == ON_PALE:
            return Style(color=solid, bgcolor=pale)
        return Style(color=pale if tone == PALE else solid, bgcolor=background)


# The colours of a terminal of 256 that are the same on all: a cube, and shades of grey.
_LEVELS = (0, 95, 135, 175, 215, 255)
_XTERM = rich_palette.Palette(
    [(red, green, blue) for red in _LEVELS for green in _LEVELS for blue in _LEVELS]
    + [(grey, grey, grey) for grey in range(8, 239, 10)]
)


def _nearest(color: TerminalColor | None) -> TerminalColor | None:
    """Return the nearest of 256 colours. Rich looks at the hue of a dark colour first: quiet amber
    grounds are dark red to it."""
    if color is None or color.triplet is None:
        return color
    return TerminalColor.from_triplet(_XTERM[_XTERM.match(color.triplet)])


_TINT = 0.09
"""How much of the hue a tinted ground has: quiet, and still told from the ground."""

_REST = 0.4
"""How much of it the ground has that is a part of the whole, as the bars below it are."""
_SOLID = 0.64
"""How much of its hue a bar of how busy a GPU is has: one that is busy all the time is no glaring
slab."""
_STEADY_NAME, _STEADY = "fed", 0.5
"""How much it has while no finding holds: what is well asks for no attention."""
_LEAST_SHADE, _MOST_SHADE = 0.08, 0.88
"""How much a cell has that is shaded, of what it was busy for."""
_LEAST_FILL = 0.25
"""How much of its colour a cell has that is filled to the least."""
_BESIDE = 0.5
"""How much all other charts have."""
_LOST, _LOST_ELSE = {"waiting": 0.28}, 0.5
"""How much of its hue the part has that was busy without work: a wait fills half of a chart."""
_PALE, _FLOOR, _LOW_FLOOR = 0.2, 0.45, 0.25
"""How much a range has, and the base line of idle time, of a chart of more rows and of one: where
all GPUs wait there are many."""


def _hues(theme: Theme) -> dict[str, str]:
    own = {name: hues[0 if theme.dark else 1] for name, hues in _HUES.items()}
    generated = theme.to_color_system().generate()
    if theme.name not in {GPUWATCH_DARK.name, GPUWATCH_LIGHT.name}:
        # Any other Textual theme: its own hues where it names them.
        own.update(
            accent=theme.primary,
            fed=theme.success or own["fed"],
            starved=theme.warning or own["starved"],
            throttled=theme.error or own["throttled"],
            waiting=theme.accent or own["waiting"],
            host=theme.secondary or own["host"],
            select=generated["panel"],
            bar=generated["surface"],
            rule=generated["panel"],
            edge=generated["panel-lighten-2"],
        )
    own["text"] = theme.foreground or generated["foreground"]
    own["background"] = theme.background or generated["background"]
    own["warning"] = theme.warning or generated["warning"]
    own["error"] = theme.error or generated["error"]
    return own
