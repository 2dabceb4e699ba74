"""A recording is played: the player stands where a sampler does, and has keys and a bar."""

import time
from functools import partial

from textual.events import Click

from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.recording.moments import MomentError, parse_moment
from gpuwatch.tui.charts.strips import StripCache
from gpuwatch.tui.charts.timeline import FindingMark, Timeline, mark_of
from gpuwatch.tui.controllers.controller import Controller, TypingController
from gpuwatch.tui.controllers.diagnosis import DiagnosisController
from gpuwatch.tui.controllers.jobs import JobController
from gpuwatch.tui.controllers.timeline import TimelineController
from gpuwatch.tui.display import Display
from gpuwatch.tui.keys import REPLAY_KEYS
from gpuwatch.tui.panels import replay_bar
from gpuwatch.tui.replay.cue import Readied, Shown
from gpuwatch.tui.replay.player import Player
from gpuwatch.tui.replay.state import SPEEDS, Stop, beside
from gpuwatch.tui.screens.canvas_screen import CanvasScreen
from gpuwatch.tui.view import Prompt

_SLOW_LINK_SECONDS = 1.5
_REFUSED = {
    "all_processes": "a recording shows only the processes that were recorded",
    "end_process": "this is a recording, not a live machine: there is no process to end",
    "stacks": "this is a recording, not a live machine: there are no stacks to sample",
    "report": "gpuwatch report FILE writes the report of a recording, with --pid of one job",
    "record": "this already is a recording",
}
"""Actions of a live screen, and why they are not to be had."""


class ReplayController(Controller):
    """The player's screen, and the keys that mean something else here."""

    keys = REPLAY_KEYS

    def __init__(
        self,
        display: Display,
        player: Player,
        jobs: JobController,
        diagnosis: DiagnosisController,
        timeline: TimelineController,
        typing: TypingController,
    ) -> None:
        super().__init__(display)
        self._player = player
        self._jobs = jobs
        self._diagnosis = diagnosis
        self._timeline = timeline
        self._typing = typing
        typing.openers["go_to"] = self.action_go_to
        self._diagnosed = player.makes_engine is not None
        self._marks: dict[tuple[int, float], tuple[FindingMark, ...]] = {}
        """Of the overview, by how much of it is known."""
        self.view.replay = player.state
        player.screen, player.display = self, display
        for name, why in _REFUSED.items():
            setattr(self, f"action_{name}", partial(display.answer, why))

    # -- what the player asks for -----------------------------------------------------------------

    def begin_at(self, readied: Readied) -> None:
        view, snapshot = self.view, readied.past[-1].snapshot
        view.history, view.strips = readied.history, StripCache()
        make_engine = self._player.makes_engine if readied.watched else None
        self._diagnosis.restart(readied.engine, make_engine)
        view.mark = None
        view.timeline = Timeline(view.timeline.span_seconds)
        if view.job.key is not None:
            view.job.look_at(view.job.key)
        self._jobs.on_snapshot(snapshot)
        if readied.watched and readied.engine is None:
            readied.past[-1] = Shown(snapshot, self._diagnosis.of(snapshot))

    def advance(self, snapshot: Snapshot) -> Shown:
        if self._player.state.undiagnosed:
            self._diagnosis.leave_out()
        self.view.history.push(snapshot)
        self._jobs.on_snapshot(snapshot)
        self._diagnosis.on_snapshot(snapshot)
        return Shown(snapshot, self.view.diagnosis)

    def show_moment(self, shown: Shown) -> None:
        view, snapshot = self.view, shown.snapshot
        view.diagnosis = shown.diagnosis
        if shown.diagnosis is None and self._diagnosed:
            view.diagnosis = self._of_overview(snapshot)
        view.interval_seconds = snapshot.interval_seconds
        view.spans = self._marks_of_overview() or view.spans
        view.show(snapshot)
        if self._player.state.playing:
            self.display.redraw_at(self._player.clock.now(), _SLOW_LINK_SECONDS)
        else:
            self.display.redraw()

    def _of_overview(self, snapshot: Snapshot) -> Diagnosis:
        """The overview's word on a moment that is not diagnosed now."""
        at = snapshot.taken_at_unix_seconds
        worst = next(iter(self._player.state.holding(at)), None)
        too_fast = "Too fast for a diagnosis: pause, or play slower."
        return Diagnosis(
            taken_at_unix_seconds=at,
            watched_seconds=0.0,
            verdict=too_fast if worst is None else clean(worst.summary),
            decided=False,
        )

    def _marks_of_overview(self) -> tuple[FindingMark, ...]:
        state = self._player.state
        known = (len(state.findings), state.progress)
        if known not in self._marks:
            self._marks = {known: tuple([mark_of(span) for span in state.findings])}
        return self._marks[known]

    # -- keys -------------------------------------------------------------------------------------

    def action_pause(self) -> None:
        """Play, or pause; at the end, from the beginning."""
        player, state = self._player, self._player.state
        state.playing = not state.playing
        if state.playing and state.ended:
            player.seek(state.first)
        elif state.playing:
            player.clock.restart()
        else:
            state.following = False
            player.diagnose_again()
        self.display.redraw()

    def action_speed(self, step: int) -> None:
        state = self._player.state
        place = SPEEDS.index(state.speed) + step
        if not 0 <= place < len(SPEEDS):
            self.display.answer(f"{state.speed:g}x is the {'fastest' if step > 0 else 'slowest'}")
            return
        state.speed = SPEEDS[place]
        state.following = state.following and state.speed == 1.0
        self._player.clock.restart()
        if step < 0:
            self._player.diagnose_again()
        self.display.redraw()

    def action_to_mark(self, step: int) -> None:
        """To the finding after this moment (1) or before it (-1)."""
        player = self._player
        player.look_at_tape()
        stop = beside(player.state, player.heading, step)
        if isinstance(stop, Stop):
            player.seek(stop.at)
            begin = time.strftime("%H:%M:%S", time.localtime(stop.finding.begin_unix_seconds))
            self.display.answer(f"{begin} {clean(stop.finding.summary)}")
        else:
            self.display.answer(stop)

    def action_move_cursor(self, step: int) -> None:
        """The cursor where there is one, else the recording, by a snapshot."""
        if self.view.timeline.cursor_seconds is not None:
            self._timeline.action_move_cursor(step)
        else:
            self._player.step(step)
            self.display.redraw()

    def action_seek_by(self, seconds: float) -> None:
        self.seek(self._player.heading + seconds)

    def seek(self, at: float) -> None:
        self._player.seek(at)
        self.display.redraw()

    def action_zoom(self, step: int) -> None:
        self._timeline.action_zoom(step)
        self._player.refresh_past()

    def action_range(self, seconds: float) -> None:
        self._timeline.action_range(seconds)
        self._player.refresh_past()

    def on_click(self, event: Click) -> None:
        screen = self.display.app.screen
        if not isinstance(screen, CanvasScreen):
            return
        width, height = screen.size
        count = replay_bar.rows(self.view, height)
        if count > 1 and height - count <= event.screen_y < height - 1:
            self.seek(replay_bar.moment_at(self._player.state, event.screen_x, width))

    def action_go_to(self) -> None:
        hints = ("14:30  14:30:05  +5m  -30s  50%", "enter goes there, esc cancels")
        self._typing.open(Prompt(" go to: ", hints, self._go_to))

    def _go_to(self, typed: str | None) -> None:
        state = self._player.state
        if typed and typed.strip():
            try:
                moment = parse_moment(typed)
                self.seek(moment.near(self._player.heading, state.first, state.last))
            except MomentError as error:
                self.display.say(str(error))
