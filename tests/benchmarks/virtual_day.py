"""Whether a day of watching leaves the dashboard as it was, in minutes: with a clock of its own.

    python -m tests.benchmarks.virtual_day [HOURS]            # 24

A simulated machine (4 GPUs that starve, processes that come and go) is read once a virtual second.
Every snapshot goes through the whole application: history, job tracking, diagnosis, findings and
marks; every tenth second is drawn, and each hour every screen is opened and closed. Prints resident
memory and the objects that the garbage collector tracks, by hour.
"""

import asyncio
import gc
import os
import sys
import time

from gpuwatch.core import memory_trim
from gpuwatch.tui.app import new_engine
from tests.benchmarks.tools import process_tree
from tests.support.churn import churning
from tests.tui.driving import Driven, InATerminal, driven

MIB = 1 << 20
HOUR = 3600
DRAWN_EVERY = 10
LIVES_SECONDS = 300
SCREENS = ("question_mark", "exclamation_mark", "enter", "j", "d", "right_square_bracket")


async def _visit(drive: Driven) -> None:
    for key in SCREENS:
        await drive.press(key)
        await drive.press("escape")


async def watch(hours: int) -> None:
    """A line an hour."""
    begun = time.monotonic()
    snapshots = churning(hours * HOUR + 1, 4, LIVES_SECONDS)
    async with driven(
        next(snapshots), (200, 50), app_type=InATerminal, make_engine=new_engine
    ) as drive:
        app = drive.app
        redraw = app.drawing.redraw
        for second, snapshot in enumerate(snapshots, 1):
            app.drawing.redraw = redraw if second % DRAWN_EVERY == 0 else _nothing  # type: ignore[method-assign]
            app.deliver(snapshot)
            if second % 60 == 0:
                await drive.settle()
                memory_trim.tidy()
            if second % HOUR == 0:
                await _visit(drive)
                memory_trim.tidy()
                print(
                    f"{second // HOUR:3} h "
                    f"{process_tree.own_resident_bytes(os.getpid()) / MIB:7.1f} MiB "
                    f"{len(gc.get_objects()):8} objects, after {time.monotonic() - begun:.0f} s",
                    flush=True,
                )


def _nothing() -> None:
    """Not drawn."""


if __name__ == "__main__":
    asyncio.run(watch(int(sys.argv[1]) if len(sys.argv) > 1 else 24))
