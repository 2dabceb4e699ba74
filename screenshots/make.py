"""Draws the pictures in this folder from simulated data; the same code gives the same pictures.

    python -m screenshots.make            every picture
    python -m screenshots.make detail     those with "detail" in their name

Run it from the repository's folder, in an environment with gpuwatch installed. All are
written as SVG, a few as PNG too where ``rsvg-convert`` (librsvg) is installed. ``cure.gif`` is
made by ``python -m screenshots.cure``.
"""

import asyncio
import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

from textual.pilot import Pilot

from gpuwatch.commands.cli import run as gpuwatch
from gpuwatch.core.model import Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.recording.hosts.remote import RemoteHost
from gpuwatch.recording.recorder import Recorder
from gpuwatch.recording.replay import open_tape
from gpuwatch.sources.simulated.source import SimulatedSource
from gpuwatch.tui.app import GpuwatchApp, new_engine, replay_app
from gpuwatch.tui.pages.fleet import Fleet, FleetApp, FleetRow
from tests.support.long_recording import NIGHT, snapshots

HERE = Path(__file__).parent
_COLOURFUL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


@dataclass(frozen=True)
class Shot:
    """One picture: a machine, a terminal, and the keys pressed before it is taken."""

    name: str
    width: int
    height: int
    scenario: str = "starved"
    gpus: int = 1
    theme: str = "dark"
    keys: tuple[str, ...] = ()
    seconds: int = 130
    ascii_mode: bool = False
    no_color: bool = False
    attached: bool = False
    """To the first job, from the beginning: the first picture is its screen."""
    prints: bool = False
    """The job was started by gpuwatch, and prints."""
    then: str | None = None
    """What was changed to, a minute ago: the person marked the moment."""
    pieces: tuple[tuple[str, int], ...] = ()
    """Scenarios and how long each held, instead of one: looked at every five seconds."""
    hosts: tuple[tuple[str, str, int], ...] = ()
    """Many machines: the name, the scenario (empty: it does not answer) and the GPUs of each."""
    night: bool = False
    """A recording of twelve hours is played (``tests.support.long_recording``)."""
    png: bool = False
    """Also as PNG, for where an SVG cannot be shown."""


_HOUR = (("healthy", 1500), ("unpinned", 900), ("healthy", 900))
_TO_AN_HOUR = ("right_square_bracket",) * 5


_HOSTS = (
    *(("node01", "healthy", 8), ("node02", "healthy", 8), ("node03", "starved", 8)),
    *(("node04", "imbalanced", 4), ("node05", "mixed", 8), ("node06", "checkpoint", 4)),
    *(("node07", "throttled", 2), ("node08", "healthy", 4), ("node09", "", 0)),
    *(("node10", "unpinned", 4), ("node11", "lost", 2), ("node12", "healthy", 8)),
)


SHOTS = (
    Shot("overview-1gpu-120x40-dark", 120, 40, png=True),
    Shot("overview-1gpu-120x40-light", 120, 40, theme="light"),
    Shot("overview-1gpu-80x24-dark", 80, 24, "checkpoint"),
    Shot("overview-1gpu-40x12-dark", 40, 12),
    Shot("overview-2gpu-80x24-light", 80, 24, gpus=2, theme="light"),
    Shot("overview-2gpu-120x40-imbalanced", 120, 40, "imbalanced", gpus=2),
    Shot("overview-8gpu-200x50-dark", 200, 50, gpus=8),
    Shot("overview-8gpu-200x50-light", 200, 50, "mixed", gpus=8, theme="light"),
    Shot("overview-8gpu-120x40-dark", 120, 40, "mixed", gpus=8),
    Shot("overview-8gpu-80x24-dark", 80, 24, gpus=8),
    Shot("overview-8gpu-40x12-light", 40, 12, gpus=8, theme="light"),
    Shot("overview-16gpu-200x50-dark", 200, 50, gpus=16),
    Shot("overview-16gpu-120x40-light", 120, 40, gpus=16, theme="light"),
    Shot("overview-16gpu-80x24-dark", 80, 24, gpus=16),
    Shot("throttled-120x40-dark", 120, 40, "throttled", seconds=200),
    Shot("lost-80x24-dark", 80, 24, "lost", gpus=2, seconds=45),
    Shot("healthy-80x24-dark", 80, 24, "healthy"),
    Shot("no-gpu-120x40-dark", 120, 40, "no_gpu", gpus=0),
    Shot("findings-120x40-dark", 120, 40, "mixed", gpus=8, keys=("d",)),
    Shot("findings-80x24-light", 80, 24, "throttled", gpus=2, theme="light", keys=("d",)),
    Shot("evidence-120x40-dark", 120, 40, keys=("d",), png=True),
    Shot("evidence-200x50-light", 200, 50, "main_process", theme="light", keys=("d",)),
    Shot("evidence-80x24-dark", 80, 24, "checkpoint", keys=("d",)),
    Shot("evidence-checkpoint-120x40-dark", 120, 40, "checkpoint", keys=("d",)),
    Shot("evidence-ascii-80x24", 80, 24, theme="ansi", ascii_mode=True, keys=("d",)),
    Shot("mark-120x40-dark", 120, 40, "main_process", then="healthy"),
    Shot("next-run-120x40-dark", 120, 40, "rerun", attached=True, seconds=135),
    Shot("next-run-80x24-light", 80, 24, "rerun", theme="light", seconds=135),
    Shot("mark-80x24-light", 80, 24, "starved", then="healthy", theme="light"),
    Shot("detail-120x40-dark", 120, 40, keys=("enter",)),
    Shot("detail-200x50-light", 200, 50, theme="light", keys=("enter",)),
    Shot("detail-80x24-dark", 80, 24, keys=("enter",)),
    Shot("help-120x40-dark", 120, 40, keys=("question_mark",)),
    Shot("filter-120x40-dark", 120, 40, gpus=2, keys=("slash", *"torchrun")),
    Shot("job-1gpu-120x40-dark", 120, 40, attached=True, png=True),
    Shot("job-1gpu-80x24-dark", 80, 24, "main_process", attached=True),
    Shot("job-1gpu-40x12-dark", 40, 12, attached=True),
    Shot("job-2gpu-120x40-light", 120, 40, "unpinned", gpus=2, theme="light", attached=True),
    Shot("job-8gpu-200x50-dark", 200, 50, "imbalanced", gpus=8, attached=True),
    Shot("job-8gpu-80x24-light", 80, 24, "imbalanced", gpus=8, theme="light", attached=True),
    Shot("job-output-120x40-dark", 120, 40, "unpinned", attached=True, prints=True),
    Shot("job-ended-120x40-dark", 120, 40, "rerun", attached=True, seconds=70),
    Shot("job-report-80x24-light", 80, 24, theme="light", attached=True, keys=("R",)),
    Shot("job-reported-120x40-dark", 120, 40, "reported", attached=True),
    Shot("job-reported-2gpu-120x40-dark", 120, 40, "reported", gpus=2, attached=True),
    Shot("job-reported-80x24-light", 80, 24, "reported", theme="light", attached=True),
    Shot("job-reported-8gpu-200x50-dark", 200, 50, "reported", gpus=8, attached=True),
    Shot("job-reported-40x12-dark", 40, 12, "reported", gpus=2, attached=True),
    Shot(
        "range-120x40-dark",
        120,
        40,
        gpus=2,
        pieces=_HOUR,
        keys=(*_TO_AN_HOUR, "left_curly_bracket", "c", *("comma",) * 32),
    ),
    Shot(
        "range-80x24-light",
        80,
        24,
        gpus=1,
        theme="light",
        pieces=_HOUR,
        keys=(*_TO_AN_HOUR, "c", "full_stop"),
    ),
    Shot("hosts-200x50-light", 200, 50, theme="light", hosts=_HOSTS),
    Shot("hosts-120x40-dark", 120, 40, hosts=_HOSTS),
    Shot("hosts-80x24-dark", 80, 24, hosts=_HOSTS),
    Shot("replay-120x40-dark", 120, 40, night=True, keys=("n", "n")),
    Shot("replay-80x24-light", 80, 24, theme="light", night=True, keys=("n", "n")),
    Shot("ascii-80x24", 80, 24, gpus=2, theme="ansi", ascii_mode=True),
    Shot("sixteen-colours-120x40", 120, 40, gpus=2, theme="ansi"),
    Shot("no-color-80x24", 80, 24, gpus=2, no_color=True),
)


async def take(shot: Shot) -> str:
    """The picture as SVG."""
    if shot.night:
        return await take_replay(shot)
    if shot.hosts:
        return await take_hosts(shot)
    clock = ManualClock(seconds=1000.0)
    source = SimulatedSource(shot.scenario, shot.gpus, clock=clock)
    source.options.all_processes = shot.scenario == "no_gpu"
    source.open()
    attached = None
    if shot.attached:
        # From a twin: a source that has been read once lacks samples that other pictures have.
        twin = SimulatedSource(shot.scenario, shot.gpus, clock=clock)
        attached = twin.read().jobs[0].key
    app = GpuwatchApp(
        source,
        _Idle(source, 1.0, clock),
        theme=None if shot.no_color else shot.theme,
        ascii_mode=shot.ascii_mode,
        environment=_COLOURFUL | ({"NO_COLOR": "1"} if shot.no_color else {}),
        attached=attached,
        make_engine=new_engine,
    )
    if shot.prints:
        app.view.job.output = _Printed()
        app.view.job.output_name = "~/.local/state/gpuwatch/runs/20231114-214144-train.py-4242.log"
    async with app.run_test(size=(shot.width, shot.height)) as pilot:
        last: Snapshot | None = None
        for scenario, seconds in shot.pieces:
            source = SimulatedSource(
                scenario, shot.gpus, clock=clock, options=ReadOptions(interval_seconds=5.0)
            )
            before, changed_at = last, clock.unix()
            for _ in range(seconds // 5):
                last = continued(source.read(), before, changed_at)
                app.deliver(last)
                clock.advance(5.0)
        for _ in range(0 if shot.pieces else shot.seconds):
            app.deliver(source.read())
            clock.advance(1.0)
        last = continued(source.read(), last, clock.unix())
        app.deliver(last)
        await pilot.pause()
        if shot.then is not None:
            await pilot.press("m")
            source = SimulatedSource(shot.then, shot.gpus, clock=clock)
            source.open()
            changed_at = clock.unix()
            for _ in range(70):
                clock.advance(1.0)
                app.deliver(continued(source.read(), last, changed_at))
            app.view.message = None
        for key in shot.keys:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause()
        app.drawing.redraw()
        await pilot.pause()
        return app.drawing.picture()


def continued(snapshot: Snapshot, before: Snapshot | None, changed_at: float) -> Snapshot:
    """Return the snapshot of a machine with the processes of the one ``before`` that it still has;
    the others began when it changed to this."""
    if before is None:
        return snapshot
    since = dict(one.key for one in before.processes)

    def told(one: Begun) -> Begun:
        return replace(one, started_at_unix_seconds=since.get(one.pid, changed_at))

    jobs = [
        replace(
            told(job),
            ranks=tuple([told(one) for one in job.ranks]),
            members=tuple([told(one) for one in job.members]),
        )
        for job in snapshot.jobs
    ]
    processes = tuple([told(one) for one in snapshot.processes])
    return replace(snapshot, processes=processes, jobs=tuple(jobs))


Begun = TypeVar("Begun", Process, Job, JobRank, JobMember)


@cache
def night() -> Path:
    """Twelve hours with a starved one in them, as ``gpuwatch record`` writes them."""
    folder = Path(tempfile.mkdtemp(prefix="gpuwatch-"))
    atexit.register(shutil.rmtree, folder)
    path = folder / "night.jsonl.zst"
    recorder = Recorder(path)
    for snapshot in snapshots(NIGHT, gpus=2):
        recorder.push(snapshot)
    recorder.close()
    return path


async def take_replay(shot: Shot) -> str:
    """The recording played: paused where the keys have led."""
    app = replay_app(
        open_tape(str(night())),
        theme=shot.theme,
        environment=_COLOURFUL,
        simulated=True,
    )
    player = app.player
    assert player is not None
    async with app.run_test(size=(shot.width, shot.height)) as pilot:
        await _until(pilot, lambda: player.latest is not None and player.state.progress >= 1.0)
        await pilot.press("space")
        for key in shot.keys:
            await pilot.press(key)
            await _until(pilot, lambda: player.pending_seek is None)
        app.view.message = None
        player.state.shown = "night.jsonl.zst"
        app.drawing.redraw()
        await pilot.pause()
        picture = app.drawing.picture()
        player.close()
        return picture


def _row(name: str, scenario: str, gpus: int) -> FleetRow:
    """A host as it is when its newest reading has just come in."""
    host = RemoteHost(name, ("false",), 1.0)
    row = FleetRow(host)
    if not scenario:
        host.trouble = "Connection timed out"
        return row
    clock, engine = ManualClock(seconds=1000.0), new_engine()
    source = SimulatedSource(scenario, gpus, clock=clock)
    for _ in range(130):
        host.latest = source.read()
        engine.push(host.latest)
        host.tape = SimpleNamespace(diagnosis=engine.diagnosis, error=None)  # type: ignore[assignment]
        host._arrived_at = time.monotonic()
        row.note_readings()
        clock.advance(1.0)
    return row


async def take_hosts(shot: Shot) -> str:
    """The list of many machines."""
    source = SimulatedSource(shot.scenario, shot.gpus)
    fleet = Fleet([_row(*one) for one in shot.hosts])
    fleet.selected = "node03"
    app = FleetApp(source, fleet, opens=False, theme=shot.theme, environment=_COLOURFUL)
    for one in fleet.members:
        if isinstance(one.host, RemoteHost):
            # Those made first are as young as the last.
            one.host._arrived_at = time.monotonic()
    async with app.run_test(size=(shot.width, shot.height)) as pilot:
        app.drawing.redraw()
        await pilot.pause()
        return app.drawing.picture()


async def _until(pilot: Pilot[int], condition: Callable[[], bool]) -> None:
    while not condition():
        await pilot.pause(0.05)


def draw_report() -> None:
    """The report of that recording, as a browser shows it."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("report-html-light.png: chromium is not installed")
        return
    page = night().with_name("report.html")
    # The page names the file as it was asked for.
    with contextlib.chdir(page.parent):
        gpuwatch(["report", night().name, "--html", page.name])
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        "--window-size=900,1100",
        f"--user-data-dir={page.parent / 'browser'}",
        f"--screenshot={HERE / 'report-html-light.png'}",
        page.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True)
    print("report-html-light.png")


class _Printed:
    """What a training script prints."""

    first = 0
    total = 412

    def lines(self, first: int, count: int) -> list[str]:
        return [
            f"epoch 3  step {number:4d}/1251  loss {2.41 - 0.003 * number:.3f}  lr 1.0e-03"
            for number in range(first, min(self.total, first + count))
        ]


class _Idle(Sampler):
    """Delivers nothing: the pictures' time is turned by hand."""

    async def run(self, deliver: object) -> None:
        del deliver
        await asyncio.Event().wait()


def main(wanted: str = "") -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    converter = shutil.which("rsvg-convert")
    for shot in SHOTS:
        if wanted not in shot.name:
            continue
        path = HERE / f"{shot.name}.svg"
        path.write_text(asyncio.run(take(shot)), encoding="utf-8")
        if shot.png and converter is not None:
            command = [converter, "--output", str(path.with_suffix(".png")), str(path)]
            subprocess.run(command, check=True)
        print(path.name)
    if wanted in "report-html-light":
        draw_report()


if __name__ == "__main__":
    main(*sys.argv[1:2])
