"""Writes the design sheet ``SHEET.md`` in this folder: the rows, the colours, the glyphs.

    python -m screenshots.sheet

All figures come from the code that draws: ``tui/pages/layout.py`` and ``tui/terminal/palette.py``.
"""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from textual.color import Color
from textual.theme import Theme

from gpuwatch.tui.charts.strips import ASCII, UNICODE
from gpuwatch.tui.pages.layout import band_rows, overview_rows
from gpuwatch.tui.panels.gpus import STATES, gauge
from gpuwatch.tui.terminal.palette import GPUWATCH_DARK, GPUWATCH_LIGHT, Palette

HERE = Path(__file__).parent
SIZES = ((200, 50), (120, 40), (100, 30), (80, 24), (60, 20), (40, 12))
COUNTS = (1, 2, 4, 8, 16)

# How a colour is seen without the cones for green, and without those for red (Machado et al.,
# "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, severity 1.0).
_BLIND = {
    "no green": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "no red": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
}


def _linear(colour: Color) -> tuple[float, ...]:
    return tuple(
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour.normalized
    )


def _luminance(linear: tuple[float, ...]) -> float:
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    """As WCAG 2 defines it, 1 to 21."""
    low, high = sorted((_luminance(_linear(one)), _luminance(_linear(other))))
    return (high + 0.05) / (low + 0.05)


def _lab(linear: tuple[float, ...]) -> tuple[float, float, float]:
    r, g, b = (min(1.0, max(0.0, part)) for part in linear)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def _distance(one: Color, other: Color, blind: str | None) -> float:
    """CIE76, where 2.3 is just noticeable."""
    labs = []
    for colour in (one, other):
        linear = _linear(colour)
        if blind is not None:
            linear = tuple(
                sum(factor * part for factor, part in zip(row, linear, strict=True))
                for row in _BLIND[blind]
            )
        labs.append(_lab(linear))
    return float(sum((a - b) ** 2 for a, b in zip(*labs, strict=True)) ** 0.5)


def _grid() -> Iterator[str]:
    yield "| size | band | " + " | ".join(f"{count} GPU{'s' * (count > 1)}" for count in COUNTS)
    yield "|---|---|" + "---|" * len(COUNTS)
    for width, height in SIZES:
        cells = []
        for count in COUNTS:
            one = overview_rows(width, height, count)
            band = band_rows(height, count)
            above = 2 + band + one.host + one.axis + one.edges + one.shown * one.each + one.cause
            shown = "" if one.shown == count else f"{one.shown} of "
            cells.append(
                f"{shown}{count} x {one.each} {one.style.name.lower()}, "
                f"{f'cause {one.cause}, ' if one.cause else ''}"
                f"host {one.host}, table {height - above}{', boxed' if one.edges else ''}"
            )
        yield f"| {width}x{height} | {band} | " + " | ".join(cells) + " |"


def _colours(theme: Theme) -> Iterator[str]:
    palette, ground = Palette(theme), Color.parse(str(theme.background))
    seen: dict[str, Color] = {}
    for word, style, *_ in STATES:
        ink = palette[style].color
        if ink is not None:
            seen.setdefault(style, Color.from_rich_color(ink))
            yield f"| {word} | `{seen[style].hex}` | {contrast(seen[style], ground):.1f} |"
    for style in ("gauge", "host", "accent", "label", "dim", "warn"):
        ink = palette[style].color
        assert ink is not None
        colour = Color.from_rich_color(ink)
        yield f"| ({style}) | `{colour.hex}` | {contrast(colour, ground):.1f} |"
    for blind in (None, *_BLIND):
        far, one, other = min(
            (_distance(seen[a], seen[b], blind), a, b) for a, b in combinations(seen, 2)
        )
        yield f"| nearest two, {blind or 'all cones'} | {one}, {other} | {far:.0f} |"


def _glyphs() -> Iterator[str]:
    for what, draw in (
        ("column, to the mean; the highest of long ones a line (`▁─▔`)", lambda g: g.solid[1:]),
        ("gauge", lambda g: "".join([text for text, _ in gauge(g, 0.45, 8, "gauge")])),
        ("warning, worse, good to know", lambda g: f"{g.warning} {g.grave} {g.note}"),
        ("selected", lambda g: g.marker),
    ):
        yield f"| {what} | `{draw(UNICODE)}` | `{draw(ASCII)}` |"


_GRID_TEXT = """\
Header and footer have a row each; `band` is what is wrong, reserved whether or not anything is;
the table has what is left, whether or not it is full. Nothing here depends on what is read, so
nothing moves when processes and findings come and go. Of a GPU's rows *stacked* has a heading, the
busy chart, the power's chart and a row of gauges (*cause* is the chart below them of what a single
GPU waits for); *wide* the busy chart in all rows, and at its
right numbers in columns with their gauges below; *single* is one line of the same columns. Their
headings stand once: in the edge above, or without edges in the row of the time axis. Without a GPU
the band has three rows (two below 16), then come the host and the table. *Boxed* has edges around
the parts, with a title and the keys for what is in each: five rows, and two columns for the sides.
A message stands for a moment over the row above the keys."""

_COLOUR_TEXT = """\
The busy chart of a GPU has the colour of what it does, and the word stands beside it; gauges are
neutral until near their limit (`warn`, with a sign). Contrast is against the ground (WCAG 2; text
is held to 3 at least); distances between states are CIE76, in which 2.3 is just noticeable."""

_CHART_TEXT = """\
A chart of three rows or more has ticks at 0, 50 and 100, but for *wide* ones."""


def sheet() -> str:
    lines = [
        "# Design sheet of the dashboard",
        "",
        "Made by `python -m screenshots.sheet` from the code that draws.",
        "",
        "## Grid of the overview",
        "",
        *_GRID_TEXT.split("\n"),
        "",
        *_grid(),
        "",
        "## Colour says state",
        "",
        *_COLOUR_TEXT.split("\n"),
    ]
    for theme in (GPUWATCH_DARK, GPUWATCH_LIGHT):
        lines += ["", f"| {theme.name} | colour | contrast or distance |", "|---|---|---|"]
        lines += _colours(theme)
    lines += [
        "",
        "## Glyphs",
        "",
        "| | Unicode | ASCII |",
        "|---|---|---|",
        *_glyphs(),
        "",
        *_CHART_TEXT.split("\n"),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (HERE / "SHEET.md").write_text(sheet(), encoding="utf-8")
