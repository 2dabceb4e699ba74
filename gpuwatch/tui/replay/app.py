"""The dashboard over time past: the same screens, fed by a player, with a bar below them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType

from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ReadOptions
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.recording.buckets import FindingSpan
from gpuwatch.recording.replay import Tape
from gpuwatch.tui.app import GpuwatchApp
from gpuwatch.tui.charts.strips import StripCache
from gpuwatch.tui.charts.timeline import FindingMark, Timeline
from gpuwatch.tui.controllers.diagnosis import Diagnoser
from gpuwatch.tui.controllers.following import follow
from gpuwatch.tui.dashboard import new_engine, result_of
from gpuwatch.tui.panels import replay_bar
from gpuwatch.tui.replay.cue import Readied, Shown
from gpuwatch.tui.replay.keys import REPLAY_KEYS
from gpuwatch.tui.replay.player import Player
from gpuwatch.tui.replay.time import TimeError, parse_time
from gpuwatch.tui.screens.canvas_screen import CanvasScreen

if TYPE_CHECKING:
    from gpuwatch.core.sampler import Sampler

_PROMPT_LENGTH = 40
_SEEK_SECONDS = 60.0
_SLOW_LINK_FRAME_SECONDS = 1.5
_NOT_LIVE = "this is a recording, not a live machine"


class _NoSource:
    """Stands where a live dashboard has what it reads."""

    def __init__(self, simulated: bool) -> None:
        self.simulated = simulated
        self.options = ReadOptions(all_processes=True)

    def open(self) -> None:
        """Nothing is read here."""

    def read(self) -> Snapshot:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


class ReplayApp(GpuwatchApp):
    """Plays ``tape``. ``follows``: what comes in is live and is shown as it comes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.help, show=False) for key in REPLAY_KEYS
    ]

    def __init__(
        self,
        tape: Tape,
        *,
        simulated: bool = False,
        follows: bool = False,
        ascii_mode: bool | None = None,
        theme: str | None = None,
        slow_link: bool | None = None,
        make_engine: Callable[[], Diagnoser] | None = new_engine,
        monotonic: Callable[[], float] = time.monotonic,
        **more: object,
    ) -> None:
        self.player = Player(tape, make_engine=make_engine, follows=follows, monotonic=monotonic)
        super().__init__(
            _NoSource(simulated),
            cast("Sampler", self.player),
            ascii_mode=ascii_mode,
            theme=theme,
            slow_link=slow_link,
            **more,  # type: ignore[arg-type]
        )
        self.view.replay = self.player.state
        self._engine_made = make_engine
        self._marks_of: tuple[int, float] | None = None
        self._index_marks: tuple[FindingMark, ...] = ()
        self.player.shows_on(self)

    # -- what the player asks for -------------------------------------------------------------

    def deliver(self, snapshot: Snapshot) -> None:
        """The player draws by ``show_moment``."""
        raise NotImplementedError

    def begin_at(self, readied: Readied) -> None:
        view = self.view
        shown = readied.past[-1]
        view.history, view.strips = readied.history, StripCache()
        self._begin_diagnosis(self._engine_made if readied.watched else None)
        self._engine = readied.engine
        view.mark = None
        view.timeline = Timeline(view.timeline.span_seconds)
        if view.job.key is not None:
            view.job.look_at(view.job.key)
        self._follow_job(shown.snapshot)
        if readied.watched and readied.engine is None:
            readied.past[-1] = Shown(shown.snapshot, self._told(shown.snapshot))

    def advance(self, snapshot: Snapshot) -> Shown:
        view = self.view
        view.history.push(snapshot)
        self._follow_job(snapshot)
        self._diagnose(snapshot)
        return Shown(snapshot, view.diagnosis)

    def show_moment(self, shown: Shown) -> None:
        view, snapshot = self.view, shown.snapshot
        first = view.snapshot is None
        view.snapshot, view.diagnosis = snapshot, shown.diagnosis
        if shown.diagnosis is None and self._engine_made is not None:
            view.diagnosis = self._found_before(snapshot)
        view.interval_seconds = snapshot.interval_seconds
        view.spans = self._marks_of_index() or view.spans
        if first:
            self._begin(snapshot)
        if snapshot.gpus and view.selected_gpu not in {gpu.uuid for gpu in snapshot.gpus}:
            view.selected_gpu = snapshot.gpus[0].uuid
        if view.slow_link:
            now = self.player._monotonic()
            if now - self._drawn_at < _SLOW_LINK_FRAME_SECONDS and self.player.state.playing:
                return
            self._drawn_at = now
        self.redraw()

    def fine_seconds(self) -> float:
        return self.view.timeline.span_seconds

    def _follow_job(self, snapshot: Snapshot) -> None:
        """Which job it is; its report is ``gpuwatch report``'s, and none is kept of a replay."""
        follow(self.view, snapshot)

    def _told(self, snapshot: Snapshot) -> Diagnosis | None:
        if self.player.state.undiagnosed:
            self._engine = self._make_engine = None
        if self._engine is None and self._make_engine is None:
            return None if self._engine_made is None else self._found_before(snapshot)
        return super()._told(snapshot)

    def _found_before(self, snapshot: Snapshot) -> Diagnosis:
        """What the overview says of a moment that is not diagnosed now."""
        at = snapshot.taken_at_unix_seconds
        holding = [span for span in self.player.state.findings if _holds(span, at)]
        order = {"error": 0, "warning": 1}
        worst = min(holding, key=lambda span: order.get(span.severity, 2), default=None)
        return Diagnosis(
            taken_at_unix_seconds=at,
            watched_seconds=0.0,
            verdict=(
                "Too fast for a diagnosis: pause, or play slower."
                if worst is None
                else clean(worst.summary)
            ),
            decided=False,
        )

    def _marks_of_index(self) -> tuple[FindingMark, ...]:
        spans = self.player.state.findings
        key = (len(spans), self.player.state.progress)
        if key != self._marks_of:
            self._marks_of = key
            self._index_marks = tuple(
                [
                    FindingMark(
                        rule=span.rule,
                        severity=span.severity,
                        summary=span.summary,
                        gpus=span.gpus,
                        begin_seconds=span.begin_unix_seconds,
                        end_seconds=span.end_unix_seconds,
                    )
                    for span in spans
                ]
            )
        return self._index_marks

    # -- keys -----------------------------------------------------------------------------------

    def action_pause(self) -> None:
        self.player.toggle()
        self.redraw()

    def action_faster(self) -> None:
        self._change_speed(1)

    def action_slower(self) -> None:
        self._change_speed(-1)

    def _change_speed(self, step: int) -> None:
        self.player.change_speed(step)
        self.redraw()

    def action_to_mark(self, step: int) -> None:
        self.player.to_finding(step)
        self.redraw()

    def action_next_finding(self) -> None:
        self.action_to_mark(1)

    def action_move_cursor(self, step: int) -> None:
        """The cursor where there is one, else the recording, by a snapshot."""
        if self.view.timeline.cursor_seconds is not None:
            super().action_move_cursor(step)
        else:
            self.action_step(step)

    def action_step(self, step: int) -> None:
        self.player.step(step)
        self.redraw()

    def action_seek_by(self, seconds: float) -> None:
        self.player.seek_by(seconds)
        self.redraw()

    def action_zoom(self, step: int) -> None:
        super().action_zoom(step)
        self.player.refresh_past()

    def action_all_processes(self) -> None:
        self.say("a recording shows only the processes that were recorded")
        self.redraw()

    def action_end_process(self) -> None:
        self.say(f"{_NOT_LIVE}: there is no process to end")
        self.redraw()

    def action_stacks(self) -> None:
        self.say(f"{_NOT_LIVE}: there are no stacks to sample")
        self.redraw()

    def action_report(self) -> None:
        self.say("gpuwatch report FILE writes the report of a recording, with --pid of one job")
        self.redraw()

    def action_help(self) -> None:
        from gpuwatch.tui.screens.dialogs.replay_help import replay_help  # noqa: PLC0415

        self.push_screen(replay_help(self.palette, self.view.glyphs, self._simulated))

    @property
    def _simulated(self) -> bool:
        return self.view.snapshot is not None and self.view.snapshot.simulated

    # -- going to a time ------------------------------------------------------------------------
    # Typed keys are taken here rather than by an input widget, as those of the filter are: one
    # would be mounted a moment later, and what is typed in that moment would act as commands.

    def action_go_to(self) -> None:
        self._prompt("")

    def _prompt(self, text: str | None) -> None:
        self.player.state.prompt = text
        self.redraw()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded and self._takes(event):
            return
        if (
            isinstance(event, events.Paste)
            and not event.is_forwarded
            and self.player.state.prompt is not None
        ):
            typed = self.player.state.prompt + clean(event.text.strip(), _PROMPT_LENGTH)
            self._prompt(typed[:_PROMPT_LENGTH])
            return
        await super().on_event(event)

    def _takes(self, event: events.Key) -> bool:
        """Whether the key is part of a time that is typed, or begins one."""
        typed = self.player.state.prompt
        if typed is None:
            begins = event.key in {"colon", "at"} and isinstance(self.screen, CanvasScreen)
            if begins and not self.view.filtering:
                self._prompt("")
                return True
            return False
        match event.key:
            case "ctrl+c":
                return False
            case "escape":
                self._prompt(None)
            case "enter":
                self._go_to(typed)
            case "backspace":
                self._prompt(typed[:-1] if typed else None)
            case "ctrl+u":
                self._prompt("")
            case _ if event.is_printable and event.character is not None:
                self._prompt((typed + event.character)[:_PROMPT_LENGTH])
        return True

    def _go_to(self, typed: str) -> None:
        state = self.player.state
        if typed.strip():
            try:
                self.player.seek(parse_time(typed, state.first, self.player.heading, state.last))
            except TimeError as error:
                self.say(str(error))
        self._prompt(None)

    # -- the mouse ------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """On the bar: go there."""
        if not isinstance(self.screen, CanvasScreen):
            return
        width, height = self.screen.size
        count = replay_bar.rows(self.view, height)
        if count > 1 and height - count <= event.screen_y < height - 1:
            self.player.seek(replay_bar.moment_at(self.player.state, event.screen_x, width))
            self.redraw()


def _holds(span: FindingSpan, at: float) -> bool:
    return span.begin_unix_seconds <= at and (
        span.end_unix_seconds is None or at <= span.end_unix_seconds
    )


def run_replay(
    tape: Tape,
    *,
    simulated: bool = False,
    follows: bool = False,
    ascii_mode: bool | None = None,
    theme: str | None = None,
    slow_link: bool | None = None,
    message: str | None = None,
) -> int:
    """Play until the person quits; the exit code. ``message`` is said at first."""
    app = ReplayApp(
        tape,
        simulated=simulated,
        follows=follows,
        ascii_mode=ascii_mode,
        theme=theme,
        slow_link=slow_link,
    )
    if message:
        app.say(message)
    try:
        app.run()
    finally:
        app.player.close()
    return result_of(app)
