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
from collections.abc import Iterator
from dataclasses import replace

from gpuwatch.core import lean
from gpuwatch.core.model import Process, Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.sources.simulated.source import SimulatedSource
from gpuwatch.tui.dashboard import new_engine
from tests.benchmarks.tools import process_tree
from tests.tui.driving import Driven, InATerminal, driven

MIB = 1 << 20
HOUR = 3600
DRAWN_EVERY = 10
LIVES_SECONDS = 300
SCREENS = ("question_mark", "exclamation_mark", "enter", "j", "d", "right_square_bracket")


def machine(seconds: int) -> Iterator[Snapshot]:
    """A second apart. The processes beside the jobs are others every five minutes."""
    clock = ManualClock(seconds=1000.0)
    source = SimulatedSource("starved", 4, clock=clock)
    source.options.all_processes = True
    for second in range(seconds):
        clock.advance(1.0)
        snapshot = source.read()
        members = {member.key for job in snapshot.jobs for member in job.members}
        yield replace(
            snapshot,
            processes=tuple(
                process if process.key in members else _one_of_many(process, second)
                for process in snapshot.processes
            ),
        )


def _one_of_many(process: Process, second: int) -> Process:
    generation = (second + 7 * process.pid) // LIVES_SECONDS
    return replace(process, pid=process.pid + 10_000 * generation)


async def _visit(drive: Driven) -> None:
    for key in SCREENS:
        await drive.press(key)
        await drive.press("escape")


async def watch(hours: int) -> None:
    """A line an hour."""
    begun = time.monotonic()
    snapshots = machine(hours * HOUR + 1)
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
                lean.tidy()
            if second % HOUR == 0:
                await _visit(drive)
                lean.tidy()
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
