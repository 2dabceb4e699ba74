"""What could not be checked, and which readings were missing, in a window over the screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gpuwatch.core.model import Gpu
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Unchecked
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.pages.finding_words import undecided
from gpuwatch.tui.screens.dialogs.windows import Dialog
from gpuwatch.tui.terminal.palette import Palette


def unknown_dialog(
    unknown: Sequence[Unchecked], gpus: Sequence[Gpu], palette: Palette, glyphs: Glyphs
) -> Dialog:
    """By the readings that were missing, with the GPUs or jobs it is about where not all are."""
    text = Text()
    if not unknown:
        text.append("Every rule could be checked.", palette["b:text"])
    for missing, causes in undecided(unknown).items():
        here = [one for one in unknown if clean(", ".join(one.missing)) == missing]
        text.append(missing, palette["b:title"])
        where = list(dict.fromkeys(name for one in here for name in _where(one, gpus)))
        if 0 < len(where) < max(2, len(gpus)):
            text.append(f"  ({', '.join(where)})", palette["b:label"])
        text.append(f"\n  needed for: {', '.join(causes)}\n", palette["b:text"])
    text.rstrip()
    return Dialog("what could not be checked", "esc closes", text, glyphs)


def _where(one: Unchecked, gpus: Sequence[Gpu]) -> list[str]:
    named = [f"GPU {gpu.identity.index}" for gpu in gpus if gpu.uuid in one.gpus]
    if named or one.job is None:
        return named
    return [f"PID {one.job[0]}"]
