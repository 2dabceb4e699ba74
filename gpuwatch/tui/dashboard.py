"""Starts the dashboard, live or over a recording, and says how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gpuwatch.core import memory_trim
from gpuwatch.core.model import Snapshot
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import ReadOptions, Source
from gpuwatch.tui.app import TERMINAL_GONE, GpuwatchApp
from gpuwatch.tui.controllers.diagnosis import Diagnoser
from gpuwatch.tui.terminal.driver import let_go

if TYPE_CHECKING:
    from gpuwatch.recording.hosts.remote import RemoteHost
    from gpuwatch.recording.replay import Tape


_SWITCH_SECONDS = 0.02
"""Each time a waiting thread asks, it wakes up. A key waits no longer than this for a thread that
computes, and there is none for long."""


def new_engine() -> Diagnoser:
    """The one that knows every rule: the last that is loaded of what stays."""
    from gpuwatch.diagnosis.engine import Engine  # noqa: PLC0415

    engine = Engine()
    memory_trim.settle()
    return engine


def run_dashboard(
    source: Source, sampler: Sampler, *, message: str | None = None, **options: Any
) -> int:
    """Show the dashboard until the person quits; the exit code. ``message`` is said at first;
    ``options``: those of ``GpuwatchApp``. Once a job that gpuwatch started has ended, the exit code
    is its own (128 and more for a signal)."""
    # A thread that waits for the interpreter asks for it so often; a picture takes 10 ms.
    sys.setswitchinterval(_SWITCH_SECONDS)
    app = GpuwatchApp(source, sampler, make_engine=new_engine, **options)
    return _run(app, sampler.close, message)


def run_replay(tape: Tape, *, message: str | None = None, **options: Any) -> int:
    """Play until the person quits; the exit code. ``options``: those of ``replay_app``."""
    app = replay_app(tape, **options)
    assert app.player is not None
    return _run(app, app.player.close, message)


def run_fleet(hosts: Sequence[RemoteHost], *, slurm_job: str | None = None, **options: Any) -> int:
    """Show many machines, and the one that is opened, until the person quits; the exit code.
    ``slurm_job``: they were asked for as the job's, which is opened as soon as it is seen;
    ``options``: those of ``GpuwatchApp``. Closes ``hosts``."""
    from gpuwatch.recording.hosts.together import SharedJob  # noqa: PLC0415
    from gpuwatch.tui.pages.fleet import Fleet, FleetApp, Member  # noqa: PLC0415

    # Threads that read share the interpreter with the one that draws.
    sys.setswitchinterval(_SWITCH_SECONDS)
    fleet = Fleet([Member(host) for host in hosts])
    for host in hosts:
        host.start()
    alone = len(hosts) == 1
    opens = alone or slurm_job is not None
    try:
        while True:
            app = FleetApp(TapeSource(False), fleet, opens, **options)
            code = _run(app, lambda: None, None)
            opened, opens = app.opened, False
            if opened is None:
                return code
            latest = opened.latest
            if opened.tape is None or latest is None:
                # Its clock was set at this moment: it begins anew.
                continue
            simulated = latest.simulated
            jobs = latest.jobs
            if not isinstance(opened, SharedJob):
                jobs = tuple([one for one in jobs if alone and one.slurm_job == (slurm_job or "")])
            job = jobs[0].key if jobs else None
            played = replay_app(
                opened.tape, simulated=simulated, follows=True, attached=job, **options
            )
            assert played.player is not None
            message = None if alone else f"{opened.name}: q returns to the list of hosts"
            apart = opened.clocks_apart_seconds if isinstance(opened, SharedJob) else None
            if apart is not None:
                message = f"The hosts' clocks agree to within {apart:.1f} s. {message}"
            code = _run(played, played.player.stop, message)
            if code or alone:
                return code
    finally:
        every = [*hosts, *[one.host for one in fleet.jobs]]
        for one in every:
            one.leave()
        for one in every:
            one.close()


class TapeSource:
    """Source without a machine to read: the player delivers what was recorded."""

    def __init__(self, simulated: bool) -> None:
        self.simulated = simulated
        self.options = ReadOptions(all_processes=True)

    def open(self) -> None:
        """Do nothing: there is no machine."""

    def read(self) -> Snapshot:
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def replay_app(
    tape: Tape,
    *,
    simulated: bool = False,
    follows: bool = False,
    make_engine: Callable[[], Diagnoser] | None = new_engine,
    monotonic: Callable[[], float] = time.monotonic,
    **options: Any,
) -> GpuwatchApp:
    """The dashboard over ``tape``. ``follows``: what comes in is live and is shown as it comes;
    ``options``: those of ``GpuwatchApp``."""
    from gpuwatch.tui.replay import Player  # noqa: PLC0415

    player = Player(tape, make_engine=make_engine, follows=follows, monotonic=monotonic)
    return GpuwatchApp(TapeSource(simulated), player, player=player, **options)


def _run(app: GpuwatchApp, close: Callable[[], None], message: str | None) -> int:
    preferences = app.preferences
    problem = None if preferences is None else preferences.problem
    if message or problem:
        app.drawing.say(" ".join([one for one in (message, problem) if one]))
    try:
        app.run()
    finally:
        close()
    unsaved = None if preferences is None else preferences.save(app.view, app.theme)
    if unsaved is not None and app.return_code != TERMINAL_GONE:
        print(f"gpuwatch: {unsaved}", file=sys.stderr)
    if app.return_code == TERMINAL_GONE:
        let_go()
    if app.drawing.error is not None:
        raise app.drawing.error
    return app.return_code or 0
