"""The keys of a recording that is played."""

from __future__ import annotations

from rich.text import Text

from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.keys import (
    APP_KEYS,
    DETAIL_KEYS,
    EVIDENCE_KEYS,
    FINDINGS_KEYS,
    JOB_KEYS,
    OVERVIEW_KEYS,
)
from gpuwatch.tui.replay.keys import REPLAY_KEYS
from gpuwatch.tui.screens.dialogs.windows import Dialog
from gpuwatch.tui.terminal.palette import Palette

_GROUPS = ("Replay", "Time", "Move", "Processes", "Diagnosis", "View", "Job", "Detail", "General")
_NOT_HERE = frozenset(
    {
        "pause",
        "faster",
        "app.end_process",
        "app.all_processes",
        "app.report",
        "app.stacks",
        "pane",
        "app.to_mark(-1)",
        "app.move_cursor(-1)",
    }
)


def replay_help(palette: Palette, glyphs: Glyphs, simulated: bool) -> Dialog:
    """All keys by group, those of the player first, and how to read its bar."""
    text = Text()
    others = (*OVERVIEW_KEYS, *APP_KEYS, *JOB_KEYS, *FINDINGS_KEYS, *EVIDENCE_KEYS, *DETAIL_KEYS)
    keys = (*REPLAY_KEYS, *[key for key in others if key.action not in _NOT_HERE])
    for group in _GROUPS:
        shown = [key for key in keys if key.group == group and key.shown]
        if not shown:
            continue
        text.append(f"{group}\n", palette["b:title"])
        for key in shown:
            text.append(f"  {key.shown:<12}", palette["b:key"])
            text.append(f"{key.help}\n", palette["b:text"])
    text.append("The bar at the bottom\n", palette["b:title"])
    text.append(
        "  The whole recording: how busy the GPUs were, half minute by half minute; a\n"
        "  column is solid up to the lowest and pale up to the highest. Below it what was\n"
        "  found, from when to when. A click goes there.",
        palette["b:label"],
    )
    hint = "SIMULATED, esc closes" if simulated else "esc closes"
    return Dialog("gpuwatch replay: keys", hint, text, glyphs)
