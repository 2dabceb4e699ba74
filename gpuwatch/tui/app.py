"""The Textual application: one view, one source of snapshots, its screens and its controllers.

At the end what runs it, live or over a recording.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from textual.actions import parse
from textual.app import App
from textual.binding import BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Click, Event, Key, MouseDown
from textual.screen import Screen

from gpuwatch.core import memory_trim
from gpuwatch.core.model import ProcessKey, Snapshot
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import ReadOptions, Source
from gpuwatch.core.text import clean
from gpuwatch.tui.controllers.controller import (
    Controller,
    RecordingController,
    TimelineController,
    TypingController,
    actions_of,
)
from gpuwatch.tui.controllers.diagnosis import Diagnoser, DiagnosisController
from gpuwatch.tui.controllers.jobs import JobController
from gpuwatch.tui.display import Display, forget_exported
from gpuwatch.tui.keys import APP_KEYS, bindings, elsewhere
from gpuwatch.tui.pages.overview import OverviewScreen
from gpuwatch.tui.pages.screen import CanvasScreen
from gpuwatch.tui.terminal.driver import (
    TerminalDriver,
    discard_output,
    error_of,
    terminal_of,
    write_directly,
)
from gpuwatch.tui.view import INTERVALS, View

if TYPE_CHECKING:
    from gpuwatch.jobs.run.job import RunningJob
    from gpuwatch.outputs.experiment.log import ExperimentLog
    from gpuwatch.outputs.report.store import ReportStore
    from gpuwatch.recording.replay import Tape
    from gpuwatch.tui.preferences import Preferences
    from gpuwatch.tui.replay import Player


_TIDY_SECONDS = 60.0
_ALWAYS_ENDING = (signal.SIGTERM, signal.SIGINT)
_ENDING_SIGNALS = (
    *_ALWAYS_ENDING,
    *(signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGALRM),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
TERMINAL_GONE = 128 + signal.SIGHUP


class GpuwatchApp(App[int]):
    """Application that shows what ``sampler`` delivers.

    Give ``ascii_mode`` to override what is detected; ``theme`` is a Textual
    theme's name or ``dark``, ``light``, ``ansi``. ``attached``: a process whose job is the first
    picture. ``running``: a job that gpuwatch has started: its output is shown below it;
    ``experiment``: what it is logged to.
    ``reports``: where reports are kept, by default the user's folder. ``player``: plays a
    recording, and is the ``sampler``. ``preferences``: what begins as it was left.
    """

    TITLE = "gpuwatch"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = bindings(APP_KEYS)

    def __init__(
        self,
        source: Source,
        sampler: Sampler | Player,
        *,
        ascii_mode: bool | None = None,
        theme: str | None = None,
        slow_link: bool = False,
        environment: Mapping[str, str] = os.environ,
        attached: ProcessKey | None = None,
        running: RunningJob | None = None,
        experiment: ExperimentLog | None = None,
        reports: ReportStore | None = None,
        make_engine: Callable[[], Diagnoser] | None = None,
        player: Player | None = None,
        filter_text: str = "",
        preferences: Preferences | None = None,
    ) -> None:
        super().__init__(ansi_color=True if forget_exported(environment) else None)
        self._source = source
        self._sampler = sampler
        self.player = player
        self._sampling: asyncio.Task[None] | None = None
        self.preferences = preferences
        preferred = {} if preferences is None else preferences.values
        theme = theme or preferred.get("theme")
        if player is None and "interval_seconds" in preferred:
            sampler.interval_seconds = preferred["interval_seconds"]
        self.view = view = View(
            interval_seconds=sampler.interval_seconds,
            all_processes=source.options.all_processes,
            filter_text=clean(filter_text, 200),
        )
        if preferences is not None:
            preferences.apply(view)
        self.drawing = display = Display(
            self, view, environment, ascii_mode=ascii_mode, theme=theme, slow_link=slow_link
        )
        self._overview = OverviewScreen(view)
        started = None
        if running is not None:
            from gpuwatch.tui.controllers.jobs import StartedJob  # noqa: PLC0415

            started = StartedJob(display, running, reports, experiment)
        self.diagnosis = DiagnosisController(display, make_engine)
        self.jobs = JobController(
            display, source, self.diagnosis, started, reports, attached, reported=player is None
        )
        self.timeline = TimelineController(display)
        found = self.diagnosis
        self.recording = RecordingController(display, lambda: found.latest)
        typing = TypingController(display)
        self.controllers: list[Controller] = [
            *(self.jobs, self.diagnosis, self.timeline, self.recording, typing)
        ]
        if started is not None:
            self.controllers.append(started)
        if player is not None:
            from gpuwatch.tui.replay import ReplayController  # noqa: PLC0415

            self.controllers.append(
                ReplayController(display, player, self.jobs, self.diagnosis, self.timeline, typing)
            )
        for key in [key for controller in self.controllers for key in controller.keys]:
            self.bind(key.keys, key.action, show=False)
        self._own_actions = actions_of([display, *self.controllers])

    def get_driver_class(self) -> type[Driver]:
        found = super().get_driver_class()
        return TerminalDriver if found is LinuxDriver else found

    def write_directly(self, text: str) -> bool:
        """Send ``text`` to the terminal, past the compositor; whether that could be done."""
        return write_directly(self, text)

    # -- life -------------------------------------------------------------------------------

    def get_default_screen(self) -> Screen[None]:
        return self._overview

    def on_mount(self) -> None:
        for controller in self.controllers:
            controller.start()
        self._sampling = asyncio.create_task(self._sampler.run(self.deliver))
        self.drawing.watch(self._sampling)
        self.set_interval(1.0, self.every_second)
        self.set_interval(_TIDY_SECONDS, memory_trim.tidy)
        # Asked to end from outside, the terminal must still be given back as it was.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            self._handle_signals(asyncio.get_running_loop())

    def _handle_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in _ENDING_SIGNALS:
            before = signal.getsignal(number)
            hangs_up = number == signal.SIGHUP and before != signal.SIG_IGN
            # nohup has it ignore one, and a job that it runs may be sent others.
            if number in _ALWAYS_ENDING or before is signal.SIG_DFL or hangs_up:
                loop.add_signal_handler(number, self.exit, None, 128 + number)
        terminal = terminal_of(self)
        if terminal is not None:
            # Textual's own handlers write from wherever the program happens to be.
            loop.add_signal_handler(signal.SIGTSTP, terminal.suspend)
            loop.add_signal_handler(signal.SIGCONT, terminal.resume)
            self.app_resume_signal.subscribe(self, self._draw_anew)

    def _draw_anew(self, _: object) -> None:
        """Draw all again, as the terminal shows nothing of what was sent to it before."""
        for widget in self.screen.walk_children(with_self=True):
            widget.refresh()

    async def on_unmount(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
        for controller in self.controllers:
            controller.close()

    def deliver(self, snapshot: Snapshot) -> None:
        """Keep every snapshot; draw the newest, unless the person paused the picture."""
        view = self.view
        view.history.push(snapshot)
        for controller in self.controllers:
            controller.on_snapshot(snapshot)
        first = view.snapshot is None
        if view.paused and not first:
            return
        view.stale_seconds = None
        view.interval_seconds = self._sampler.interval_seconds
        if first and not snapshot.gpus:
            # "Processes on a GPU" is an empty list then: show the machine's, busiest first.
            self._source.options.all_processes = True
        view.show(snapshot)
        if first and self.preferences is not None:
            self.preferences.begin(view, self.theme)
        self.drawing.redraw_at(snapshot.monotonic_seconds)

    def every_second(self) -> None:
        """See to all but snapshots: the age of old data, a message that has been read."""
        terminal = terminal_of(self)
        if terminal is not None and terminal.is_gone:
            self.exit(return_code=TERMINAL_GONE)
            return
        view, sampler = self.view, self._sampler
        stale = sampler.age_seconds if sampler.overdue and not view.paused else None
        changed = stale is not None or view.stale_seconds is not None
        view.stale_seconds = stale
        for controller in self.controllers:
            changed = controller.every_second() or changed
        changed = self.drawing.every_second() or changed
        if view.snapshot is None and sampler.overdue:
            waited = sampler.in_flight_seconds or 0.0
            sentence = f"the machine has not answered for {waited:.0f}s; still waiting (q quits)"
            self.drawing.say(sentence, 2.0)
            changed = True
        if changed:
            self.drawing.redraw()

    async def on_event(self, event: Event) -> None:
        if isinstance(event, (Key, MouseDown)):
            self.drawing.drop_message()
        if any(controller.takes(event) for controller in self.controllers):
            return
        if isinstance(event, Key) and event.is_forwarded:
            # The page has had it.
            self._answer_unbound(event.key)
        await super().on_event(event)

    def _answer_unbound(self, key: str) -> None:
        """Say of a key that does nothing on the page in front what it is for."""
        page = isinstance(self.screen, CanvasScreen) and self.view.snapshot is not None
        if page and self.view.prompt is None and key not in self.screen.active_bindings:
            self.drawing.answer(elsewhere(key))

    def on_click(self, event: Click) -> None:
        for controller in self.controllers:
            controller.on_click(event)

    # -- keys -------------------------------------------------------------------------------

    async def run_action(
        self,
        action: str | tuple[str, str, tuple[object, ...]],
        default_namespace: Any = None,
        namespaces: Any = None,
    ) -> bool:
        """Run an action of the application: its controllers', else its own."""
        place, name, parameters = parse(action) if isinstance(action, str) else action
        own = place == "app" or (not place and default_namespace in (None, self))
        act = self._own_actions.get(name) if own else None
        if act is None:
            return await super().run_action(action, default_namespace, namespaces)
        if not self.check_action(name, parameters):
            return False
        done = act(*parameters)
        if inspect.isawaitable(done):
            await done
        return True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuse all but Ctrl-C while a line is typed, as keys are text then."""
        del parameters
        return self.view.prompt is None or action == "interrupt"

    def action_pause(self) -> None:
        view = self.view
        view.paused = not view.paused
        if not view.paused and self._sampler.latest is not None:
            view.snapshot = self._sampler.latest
            view.diagnosis = self.diagnosis.latest
        self.drawing.redraw()

    def action_speed(self, step: int) -> None:
        """Choose the next shorter interval (1), or the next longer one (-1)."""
        now = self.view.interval_seconds
        beyond = [one for one in INTERVALS if (now - one) * step > 1e-9]
        self.action_interval(*sorted(beyond, key=lambda one: abs(one - now))[:1])

    def action_interval(self, *wanted: float) -> None:
        for seconds in wanted:
            self._sampler.interval_seconds = self.view.interval_seconds = seconds
        self.drawing.redraw()

    def action_suspend_process(self) -> None:
        terminal = terminal_of(self)
        if terminal is None or not terminal.can_suspend:
            self.drawing.answer("no shell to return to")
        else:
            # To what feeds this through a pipe, too, as the terminal itself would.
            os.killpg(os.getpgrp(), signal.SIGTSTP)

    @property
    def at_first_page(self) -> bool:
        """Whether no page leads back from here: the overview or, where that is what was asked for,
        the job."""
        from gpuwatch.tui.pages.job import JobScreen  # noqa: PLC0415

        front = self.screen
        of_job = self.view.job.first and isinstance(front, JobScreen)
        return of_job or len(self.screen_stack) == 1

    async def action_leave(self) -> None:
        """Go back a page; from the first one quit."""
        await self.run_action("app.quit" if self.at_first_page else "screen.back")

    def action_interrupt(self) -> None:
        self.exit()


# -- running it ------------------------------------------------------------------------------------


SWITCH_SECONDS = 0.02
"""Each time a waiting thread asks, it wakes up. A key waits no longer than this for a thread that
computes, and there is none for long."""


def new_engine() -> Diagnoser:
    """Return the engine that knows every rule: the last that is loaded of what stays."""
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
    sys.setswitchinterval(SWITCH_SECONDS)
    app = GpuwatchApp(source, sampler, make_engine=new_engine, **options)
    return run(app, sampler.close, message)


def run_replay(tape: Tape, *, message: str | None = None, **options: Any) -> int:
    """Play until the person quits; the exit code. ``options``: those of ``replay_app``."""
    app = replay_app(tape, **options)
    assert app.player is not None
    return run(app, app.player.close, message)


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
    """Return the dashboard over ``tape``. ``follows``: what comes in is live and is shown as it
    comes; ``options``: those of ``GpuwatchApp``."""
    from gpuwatch.tui.replay import Player  # noqa: PLC0415

    player = Player(tape, make_engine=make_engine, follows=follows, monotonic=monotonic)
    return GpuwatchApp(TapeSource(simulated), player, player=player, **options)


def run(app: GpuwatchApp, close: Callable[[], None], message: str | None) -> int:
    preferences = app.preferences
    problem = None if preferences is None else preferences.problem
    if message or problem:
        app.drawing.say(" ".join([one for one in (message, problem) if one]))
    try:
        app.run()
    finally:
        close()
    unsaved = None if preferences is None else preferences.save(app.view, app.theme)
    for sentence in (unsaved, app.drawing.farewell):
        if sentence is not None and app.return_code != TERMINAL_GONE:
            print(f"gpuwatch: {sentence}", file=sys.stderr)
    if app.return_code == TERMINAL_GONE:
        discard_output()
    if (error := app.drawing.error or error_of(app)) is not None:
        raise error
    return app.return_code or 0
