"""All keys, and how to read the charts, or the bar of a recording that is played."""

from __future__ import annotations

from rich.text import Text

from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.keys import described
from gpuwatch.tui.screens.dialogs.dialog import Dialog, closing_hint
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View


def help_dialog(view: View, palette: Palette, simulated: bool) -> Dialog:
    """The keys by group, then what the picture means."""
    text = Text()
    replay = view.replay is not None
    for group, keys in described(replay=replay, practice=view.practice is not None):
        text.append(f"{group}\n", palette["b:title"])
        for key in keys:
            text.append(f"  {key.shown:<12}", palette["b:key"])
            text.append(f"{key.help}\n", palette["b:text"])
    if replay:
        _add_bar(text, palette)
    else:
        _add_charts(text, palette, view.glyphs)
    title = "gpuwatch replay: keys" if replay else "gpuwatch: keys"
    return Dialog(title, closing_hint(simulated), text, view.glyphs)


def _add_bar(text: Text, palette: Palette) -> None:
    text.append("The bar at the bottom\n", palette["b:title"])
    text.append(
        "  The whole recording: how busy the GPUs were, half minute by half minute; a\n"
        "  column is solid up to the lowest and pale up to the highest. Below it what was\n"
        "  found, from when to when. A click goes there.",
        palette["b:label"],
    )


def _add_charts(text: Text, palette: Palette, glyphs: Glyphs) -> None:
    text.append("Reading the charts\n", palette["b:title"])
    full, half, low = glyphs.solid[8], glyphs.solid[4], glyphs.solid[1]
    swing = (full * 3, "b:busy.1") if glyphs.tones else (glyphs.ranges[0][8] * 3, "b:busy")
    for sample, style, meaning in (
        (f"{low}{half}{full}", "b:busy", "zero, half and all of a fixed scale: 100%, or the limit"),
        (*swing, "from the lowest to the highest within one column"),
        ("   ", "b:text", "blank: not measured (never zero)"),
        (
            glyphs.warning,
            "b:warn",
            "on the time axis: when a finding began, and how long it held",
        ),
    ):
        text.append(f"  {sample:<12}", palette[style])
        text.append(f"{meaning}\n", palette["b:text"])
    text.append(
        "  busy: a kernel was resident, so 100% can be a wait. rx: host to GPU.\n"
        "  A process's CPU: 100% is one core. MAIN: its main thread alone.\n"
        "  QUEUE: it was runnable but waited for a core. DISK: it waited for a disk.\n"
        "  DATA: the loop waited for data, as reported by a job with gpuwatch.torch:\n"
        "  for batch in watch(loader) in the training script.\n"
        "  PSS: resident memory, a page shared by n processes counted 1/n each.\n"
        "  A role with a question mark is a guess: nothing names it.",
        palette["b:label"],
    )
