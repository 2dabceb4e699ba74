"""How soon a recording is on the screen, how fast it is played, and what its report costs."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.recording.replay import open_tape
from gpuwatch.tui.app import replay_app
from gpuwatch.tui.view import SPEEDS
from tests.benchmarks.tools.terminal import Terminal

ROOT = Path(__file__).parents[3]
_PAINT_SECONDS = 30.0
_PLAYED_SECONDS = 8.0
_STARTS = 3
_REPORTING_ITS_PEAK = """
import atexit, pathlib, runpy, sys
atexit.register(lambda: sys.stderr.write(pathlib.Path("/proc/self/status").read_text()))
runpy.run_module("gpuwatch", run_name="__main__", alter_sys=True)
"""
"""gpuwatch, which reports its peak of memory: that of wait4 counts the parent's too."""


def started(module: str, *arguments: str) -> subprocess.Popen[str]:
    """``module``, run beside this."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def said_by(process: subprocess.Popen[str]) -> str:
    return process.communicate()[0]


def first_picture(path: Path, hours: float) -> Iterator[tuple[str, str]]:
    """The first GPU on the screen of ``gpuwatch replay``, from its start."""
    found = []
    for _ in range(_STARTS):
        terminal = Terminal(120, 40, r"H200")
        terminal.start(
            [sys.executable, "-m", "gpuwatch", "replay", str(path)],
            {**os.environ, "TERM": "xterm-256color"},
            ROOT,
        )
        terminal.wait_for_paint(_PAINT_SECONDS, match=True)
        if terminal.paint.match_at is not None:
            found.append(terminal.paint.match_at - terminal.started_at)
        terminal.stop()
    shown = f"{min(found):.1f}-{max(found):.1f} s" if found else "none"
    yield f"{hours:g} hours: first picture of replay", shown


def speed(path: Path, what: str) -> Iterator[tuple[str, str]]:
    """Asked for the fastest: how much faster than it was recorded, and what was left out."""
    played, left_out = asyncio.run(_played(path))
    yield (
        f"played at {SPEEDS[-1]:g}x, snapshots {what}",
        f"{played:.0f}x{', some left out' if left_out else ''}",
    )


async def _played(path: Path) -> tuple[float, bool]:
    app = replay_app(open_tape(str(path)))
    player = app.player
    assert player is not None
    async with app.run_test(size=(120, 40)) as pilot:
        state = player.state
        deadline = time.monotonic() + _PAINT_SECONDS
        while (player.latest is None or state.progress < 1.0) and time.monotonic() < deadline:
            await pilot.pause(0.1)
        for _ in SPEEDS:
            await app.run_action("faster")
        await pilot.pause(1.0)
        begun, at = time.monotonic(), state.now
        left_out = False
        while time.monotonic() - begun < _PLAYED_SECONDS and not state.ended:
            await pilot.pause(0.2)
            left_out = left_out or state.skipping
        return (state.now - at) / (time.monotonic() - begun), left_out


def report(path: Path, what: str) -> Iterator[tuple[str, str]]:
    """``gpuwatch report --html``, in a process of its own."""
    out = path.with_suffix(".html")
    command = [sys.executable, "-c", _REPORTING_ITS_PEAK, "report", str(path), "--html", str(out)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    peak = re.search(r"VmHWM:\s*(\d+) kB", said)
    if peak is None:
        raise RuntimeError(said)
    yield (
        f"report of {what} as HTML ({out.stat().st_size / 1e3:.0f} kB)",
        f"{used.ru_utime + used.ru_stime:.0f} s CPU, {int(peak[1]) / 1024:.0f} MiB",
    )
