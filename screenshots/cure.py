"""Draws ``cure.gif``, the picture at the top of the README: a job before and after its cure.

    python -m screenshots.cure

Both are real PyTorch jobs (``gpuwatch.practice``) that ``gpuwatch run`` has started in a terminal:
loader, workers and waits are real. Only the GPU is simulated (``tests.support.virtual_device``),
and its name says so. It takes some two minutes and wants PyTorch, a C compiler, ``rsvg-convert``
(librsvg) and Pillow.
"""

import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pyte
from PIL import Image
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.color import Color

from gpuwatch.tui.terminal import picture
from gpuwatch.tui.terminal.palette import GPUWATCH_DARK
from tests.support.fake_nvml import FakeNvml
from tests.tui.terminal.pseudo_terminal import PseudoTerminal, clean_environment, terminal

HERE = Path(__file__).parent
_SIZE = (100, 32)
_RUN = ("-m", "gpuwatch", "run", "--kill-on-exit", "--", sys.executable, "train.py")
_TRAIN = """import sys
from tests.support.virtual_device import train
train(%r)
"""
# A step in a second, and a batch in more: slow enough to be seen.
_SICK = {"workers": 1, "transform_ms": 30.0, "batch_size": 64, "step_ms": 900.0}
_CURED = {**_SICK, "transform_ms": 1.0}
"""The advice where no core is free for more workers: cheaper transforms."""
_BETWEEN_SECONDS = 2.0
_FIRST_FRAME_SECONDS = 30.0
_SICK_FRAMES, _CURED_FRAMES = 8, 14
_COLOURS = 48
_SHOWN_MS, _LAST_SHOWN_MS = 500, 4000


def frames() -> Iterator[str]:
    """Yield the pictures, as SVG: of the job with its fault, then of the cured one."""
    with tempfile.TemporaryDirectory(prefix="gpuwatch-") as name:
        folder = Path(name)
        fake = FakeNvml.create(folder)
        fake.gpu[0].set(name="H200 (simulated)")
        settings = {
            **fake.env(clean_environment()),
            **{"TERM": "xterm-256color", "COLORTERM": "truecolor", "TMPDIR": name},
            **dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"), name),
            "PYTHONPATH": str(HERE.parent),
        }
        for job, count in ((_SICK, _SICK_FRAMES), (_CURED, _CURED_FRAMES)):
            (folder / "train.py").write_text(_TRAIN % job)
            with terminal(*_RUN, size=_SIZE, environment=settings, folder=folder) as it:
                it.until_it_says("step ")
                for _ in _taken(it, 1, _FIRST_FRAME_SECONDS):
                    pass
                yield from _taken(it, count, _BETWEEN_SECONDS)
                it.type("q")
                it.until_it_says("the job is still running")
                it.type("l")
                it.end()


def _taken(it: PseudoTerminal, count: int, seconds: float) -> Iterator[str]:
    for _ in range(count):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            it.read(left)
        yield _picture(it.screen)


def _picture(screen: pyte.Screen) -> str:
    """What a terminal shows, as the dashboard saves it (``w``)."""
    ground, ink = (
        Color.parse(one).rgb for one in (GPUWATCH_DARK.background, GPUWATCH_DARK.foreground)
    )
    theme = TerminalTheme(ground, ink, [(0, 0, 0)] * 8)
    lines = []
    for y in range(screen.lines):
        cells = [screen.buffer[y][x] for x in range(screen.columns)]
        styled = groupby(cells, key=lambda cell: (cell.fg, cell.bg, cell.bold, cell.reverse))
        lines.append(
            [Segment("".join([one.data for one in some]), _style(*look)) for look, some in styled]
        )
    return picture.svg(lines, theme)


def _style(ink: str, ground: str, bold: bool, reverse: bool) -> Style:
    colours = [None if one == "default" else f"#{one}" for one in (ink, ground)]
    return Style(color=colours[0], bgcolor=colours[1], bold=bold, reverse=reverse)


def main() -> None:
    pictures = []
    for svg in frames():
        png = subprocess.run(["rsvg-convert"], input=svg.encode(), capture_output=True, check=True)
        pictures.append(Image.open(io.BytesIO(png.stdout)).convert("RGB"))
    # One palette for all: what stays the same is then not in the file again.
    width, height = pictures[0].size
    both = Image.new("RGB", (width, 2 * height))
    both.paste(pictures[0], (0, 0))
    both.paste(pictures[-1], (0, height))
    palette = both.quantize(_COLOURS)
    first, *others = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures]
    waits = [_SHOWN_MS] * len(others) + [_LAST_SHOWN_MS]
    first.save(HERE / "cure.gif", save_all=True, append_images=others, duration=waits, loop=0)
    print("cure.gif")


if __name__ == "__main__":
    main()
