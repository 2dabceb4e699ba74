"""What could not be told, and which readings were missing, in a window over the screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gpuwatch.diagnosis.finding import NotTold
from gpuwatch.model import Gpu
from gpuwatch.text import clean
from gpuwatch.tui.finding_words import cause
from gpuwatch.tui.glyphs import Glyphs
from gpuwatch.tui.palette import Palette
from gpuwatch.tui.screens.dialogs import Dialog


def unknown_dialog(
    unknown: Sequence[NotTold], gpus: Sequence[Gpu], palette: Palette, glyphs: Glyphs
) -> Dialog:
    """Each rule once for the same missing readings, with the GPUs it is about."""
    text = Text()
    if not unknown:
        text.append("Every rule could be decided.", palette["b:text"])
    places: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in unknown:
        where = places.setdefault((one.rule, one.missing), [])
        where += [name for name in _where(one, gpus) if name not in where]
    for (rule, missing), where in places.items():
        text.append(cause(rule), palette["b:title"])
        text.append(f"  {clean(rule)}", palette["b:label"])
        if where and len(where) < max(2, len(gpus)):
            text.append(f"  {', '.join(where)}", palette["b:label"])
        text.append(f"\n  missing: {clean(', '.join(missing))}\n", palette["b:text"])
    text.rstrip()
    return Dialog("what could not be told", "esc closes", text, glyphs)


def _where(one: NotTold, gpus: Sequence[Gpu]) -> list[str]:
    named = [f"GPU {gpu.identity.index}" for gpu in gpus if gpu.uuid in one.gpus]
    if named or one.job is None:
        return named
    return [f"PID {one.job[0]}"]
