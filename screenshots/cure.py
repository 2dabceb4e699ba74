"""Draws ``cure.gif``, the picture at the top of the README: a practice job, cured by its key.

    python -m screenshots.cure

It is ``gpuwatch demo-job loader_cpu_bound`` in a terminal, typed at as a person would: the job, its
loader worker and its waits are real, and ``x`` turns the knobs of the running job. Only the GPU is
simulated (``tests.support.virtual_gpu``), and its name says so. It takes some two minutes and wants
PyTorch, a C compiler, ``rsvg-convert`` (librsvg) and Pillow.
"""

import io
import subprocess
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
_JOB = (
    *("-m", "gpuwatch", "demo-job", "loader_cpu_bound"),
    *("--device", "tests.support.virtual_device:open_device"),
    # A step in a second, and a batch in more: slow enough to be seen.
    *("--", "--batch", "32", "--step-ms", "900"),
)
_BETWEEN_SECONDS = 2.0
_ILL_FRAMES, _CURED_FRAMES = 5, 24
_COLOURS = 48
_SHOWN_MS, _LAST_SHOWN_MS = 500, 4000


def frames() -> Iterator[str]:
    """The pictures, as SVG: some before the key, and more after it."""
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
        with terminal(*_JOB, size=_SIZE, environment=settings, folder=folder) as it:
            it.until_it_says("PRACTICE")
            it.type("j")
            it.until_it_says("diagnosed above")
            yield from _taken(it, _ILL_FRAMES)
            it.type("x")
            yield from _taken(it, _CURED_FRAMES)
            it.type("q")
            it.end()


def _taken(it: PseudoTerminal, count: int) -> Iterator[str]:
    for _ in range(count):
        until = time.monotonic() + _BETWEEN_SECONDS
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
