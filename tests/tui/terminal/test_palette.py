"""Colours by meaning, in every theme."""

from functools import cache

import pytest
from rich.color import Color as TerminalColor
from rich.color import ColorSystem, ColorType
from textual.app import App
from textual.color import Color
from textual.theme import Theme

from gpuwatch.tui.charts.strips import FILLS, FULL
from gpuwatch.tui.charts.timeline import Timeline
from gpuwatch.tui.pages import detail, overview
from gpuwatch.tui.terminal.palette import GPUWATCH_DARK, GPUWATCH_LIGHT, THEMES, Palette
from tests.tui.scenes import scene, view_of

SIZES = ((200, 50), (120, 40), (80, 24), (40, 12))
SCENARIOS = (
    "starved",
    "throttled",
    "lost",
    "mig",
    "unified",
    "no_gpu",
    "mixed",
)


def themes() -> dict[str, Theme]:
    app: App[None] = App()
    for own in (GPUWATCH_DARK, GPUWATCH_LIGHT):
        app.register_theme(own)
    return app.available_themes


def contrast_ratio(one: Color, other: Color) -> float:
    """As WCAG 2 defines it, 1 to 21."""

    def luminance(colour: Color) -> float:
        parts = [
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
            for part in colour.normalized
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@cache
def styles_in_use() -> frozenset[str]:
    """Every style name that the drawing of many machines, states and sizes uses."""
    names = set()
    for scenario in SCENARIOS:
        what = scene(scenario, 2)
        for fields in (
            {},
            {"paused": True, "message": "saved", "stale_seconds": 7.0},
            {"focus": "processes", "filter_text": "no such process"},
        ):
            view = view_of(what, timeline=Timeline(300.0), **fields)
            if what.now.processes and "filter_text" not in fields:
                process = what.now.processes[0]
                view.selected_row = (process.pid, process.started_at_unix_seconds, process.gpu_uuid)
            for width, height in SIZES:
                frames = [overview.draw(view, width, height)]
                if view.gpus:
                    frames.append(detail.draw(view, width, height, 0)[0])
                names |= {name for frame in frames for line in frame.lines for _, name in line}
    return frozenset(names)


@pytest.mark.parametrize("name", THEMES)
def test_no_style_is_misspelt(name: str) -> None:
    """Every style that is drawn has ink and ground, and one that means something looks like
    something: an unknown name would look like text. Sixteen colours show labels as text."""
    palette = Palette(themes()[name])
    for style in styles_in_use():
        assert palette[style].color is not None, style
        assert palette[style].bgcolor is not None, style
        surface, bare = (style[:2], style[2:]) if style[1:2] == ":" else ("", style)
        if bare != "text" and name != "ansi-dark":
            assert palette[style] != palette[f"{surface}text"], style


def test_sixteen_colour_terminals_get_no_others() -> None:
    """The theme of the terminal's own colours names only those sixteen."""
    palette = Palette(themes()["ansi-dark"])
    for style in styles_in_use():
        for colour in (palette[style].color, palette[style].bgcolor):
            assert colour.type in {ColorType.STANDARD, ColorType.DEFAULT}, style


def test_without_colour_a_selection_is_seen() -> None:
    """With NO_COLOR no style has any colour, whatever the theme; a selected row and a heading are
    told by other means."""
    palette = Palette(themes()["ansi-dark"], no_color=True)
    for style in styles_in_use():
        for look in (palette[style], Palette(GPUWATCH_DARK, no_color=True)[style]):
            assert look.color is look.bgcolor is None, style
    assert palette["s:text"].reverse
    assert palette["s:text"] != palette["text"]
    assert palette["b:text"] != palette["text"]
    assert palette["warn"].bold


def test_without_colour_bars_and_labels_are_dimmed() -> None:
    """Bars are the largest areas, and the words in their hue are what is read; numbers are, and not
    their labels. The line below a heading is of one brightness."""
    palette = Palette(GPUWATCH_DARK, no_color=True)
    assert palette["fed.0"].dim
    assert palette["b:fed.0"].dim
    assert not palette["fed"].dim


@pytest.mark.parametrize("name", ["gpuwatch-dark", "gpuwatch-light", "ansi-dark"])
def test_a_filled_cell_is_a_block_without_a_character(name: str) -> None:
    """Ink and ground are one colour, which is not that of the page; the cursor is seen in it."""
    palette = Palette(themes()[name])
    for style in ("fed", "area", "host", "starved", "worker"):
        look = palette[f"{style}.{FILLS[-1]}"]
        assert look.color == look.bgcolor != palette["text"].bgcolor, style
        assert palette[f"b:{style}.{FILLS[-1]}"].color == palette[f"b:{style}.{FILLS[-1]}"].bgcolor
        assert palette[f"c:{style}.{FILLS[-1]}"] != look, style
    assert not any(Palette(themes()[name], no_color=True)[f"fed.{one}"].bgcolor for one in FILLS)


def test_a_cell_that_is_filled_less_is_nearer_to_its_ground() -> None:
    """Each of the tones of a filled cell is told from the next, on a tinted ground as well."""
    palette = Palette(GPUWATCH_DARK)
    for style in ("fed", "fed/starved", "area"):
        ground = palette[style].bgcolor
        apart = [_distance(palette[f"{style}.{one}"].bgcolor, ground) for one in FILLS]
        assert apart == sorted(set(apart))
        assert apart[0] > 0


def test_in_sixteen_colours_charts_of_the_machine_are_grey() -> None:
    """Blocks of a full colour are left to what is about the finding, and to gauges."""
    palette = Palette(themes()["ansi-dark"])
    for style in ("host", "gauge"):
        assert palette[f"{style}.{FULL}"] == palette[f"area.{FULL}"] != palette[style]
    assert palette[f"worker.{FULL}"] == palette["worker"] != palette[f"area.{FULL}"]


def test_idle_time_never_looks_like_work() -> None:
    """Where no quiet ground is to be had, the room above a chart's columns is left as it is."""
    for no_color in (False, True):
        palette = Palette(themes()["ansi-dark"], no_color=no_color)
        assert palette["fed/starved"] == palette["fed"]
    assert Palette(GPUWATCH_DARK)["fed/starved"] != Palette(GPUWATCH_DARK)["fed"]


@pytest.mark.parametrize("theme", [GPUWATCH_DARK, GPUWATCH_LIGHT], ids=lambda theme: theme.name)
def test_text_can_be_read(theme: Theme) -> None:
    """In our own themes text stands out from its ground by 4.5 to 1 (WCAG AA), on the selected
    row by 4 and under the cursor by 2.5, and charts and gauges by 2.5; thin rules and pale tones of
    charts are not read."""
    palette = Palette(theme)
    for style in styles_in_use():
        if "." in style or style.endswith(("rule", "edge")):
            continue
        look = palette[style]
        ink, ground = Color.from_rich_color(look.color), Color.from_rich_color(look.bgcolor)
        surface, bare = (style[:1], style[2:]) if style[1:2] == ":" else ("", style)
        least = 2.5 if bare in {"area", "gauge"} else {"s": 4.0, "c": 2.5}.get(surface, 4.5)
        assert contrast_ratio(ink, ground) >= least, style


def test_in_sixteen_colours_a_selected_row_is_of_one_look() -> None:
    """Plain text turned around, whatever its cells mean; no words in dark blue or magenta, nor in
    the grey that some terminals have as their ground; red is for what is lost."""
    palette = Palette(themes()["ansi-dark"])
    selected = {palette[f"s:{name}"] for name in ("text", "warn", "dim", "value", "gauge", "key")}
    assert len(selected) == 1
    assert selected.pop().reverse
    for style in styles_in_use():
        assert palette[style].color.name != "blue", style
    assert palette["error"].color.name == "bright_red"
    assert "red" not in palette["throttled"].color.name
    assert "magenta" not in {palette[name].color.name for name in ("simulated", "throttled")}
    faint = palette["dim"]
    assert (faint.color.name, faint.dim) == ("default", True)


def test_a_quiet_ground_is_quiet_in_256_colours() -> None:
    """It is a shade of grey there, like the background, and never the dark red that is nearest by
    hue; both of a terminal's writers send that very colour."""
    palette = Palette(GPUWATCH_DARK, colours="256")
    for name in ("text", "fed/starved", "fed/throttled", "fed/waiting", "fed/error"):
        ground = palette[name].bgcolor
        assert ground is not None
        sent = ground.downgrade(ColorSystem.EIGHT_BIT)
        assert sent.number is not None
        assert 232 <= sent.number <= 237, name
        assert sent.get_truecolor() == ground.triplet


def test_a_bar_is_quieter_than_a_word() -> None:
    """A word in a hue is the strongest, then a bar in it, then a range; among sixteen colours all
    are the same."""
    for name in ("gpuwatch-dark", "gpuwatch-light", "nord"):
        palette = Palette(themes()[name])
        ground = palette["text"].bgcolor
        drawn = [palette[style].color for style in ("fed", "fed.0", "fed.1")]
        apart = [_distance(one, ground) for one in drawn]
        assert apart == sorted(apart, reverse=True)
        assert len(set(apart)) == len(apart)
    sixteen = Palette(themes()["ansi-dark"])
    assert sixteen["fed.0"] == sixteen["fed"]


def test_the_part_of_a_bar_that_was_no_work_has_the_hue_of_its_cause() -> None:
    """Work below it keeps its own, that of work which anything held up."""
    palette = Palette(themes()["gpuwatch-dark"])
    assert palette["fed+waiting.0"] == palette["fed+throttled.0"]
    lost = palette["fed+waiting.1"].color
    assert lost != palette["fed.1"].color
    assert lost == palette["fed+waiting.2"].bgcolor
    assert lost != palette["fed+throttled.1"].color


def test_what_nothing_holds_up_is_quieter() -> None:
    """A GPU that is fed stands behind one that is not, on light and dark grounds."""
    for name in ("gpuwatch-dark", "gpuwatch-light"):
        palette = Palette(themes()[name])
        ground = palette["text"].bgcolor
        fed, held_up = (palette[style].color for style in ("fed.0", "fed/starved.0"))
        assert _distance(fed, ground) < _distance(held_up, ground)


def test_bars_of_256_colours_are_as_many_hues_as_words() -> None:
    """The nearest of them to a quieter hue would be grey, and work look like workers."""
    palette = Palette(themes()["gpuwatch-dark"], colours="256")
    styles = ("fed.0", "worker.0", "fed+waiting.1", "fed+throttled.1", "area.0")
    assert len({palette[name].color for name in styles}) == len(styles)
    assert palette["fed.3"].color == palette["fed/starved.3"].color == palette["fed.0"].color


def _distance(one: TerminalColor | None, other: TerminalColor | None) -> int:
    assert one is not None
    assert other is not None
    pairs = zip(one.get_truecolor(), other.get_truecolor(), strict=True)
    return sum((a - b) ** 2 for a, b in pairs)
