"""Playing a recording: past and future of a moment, the player, and the controller with its keys.

What a screen at a moment shows of its past is read from the recording: the last minutes snapshot
by snapshot, what lies before them from the overview, by half minutes. The engine has watched what
came before too. All of it happens on a thread, which then reads ahead. The player stands where a
live dashboard has its sampler, and its clock is the recorded one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from textual.events import Click

from gpuwatch.core import units
from gpuwatch.core.model import Problem, Snapshot
from gpuwatch.core.store import BLOCK_SECONDS, Store
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.recording.moments import MomentError, parse_moment
from gpuwatch.recording.replay import Tape, on_wall_clock, share
from gpuwatch.sources.logs.text import LogError
from gpuwatch.tui.charts.strips import StripCache
from gpuwatch.tui.charts.timeline import FindingMark, Timeline, mark_of
from gpuwatch.tui.controllers.controller import Controller, TimelineController, TypingController
from gpuwatch.tui.controllers.diagnosis import Diagnoser, DiagnosisController
from gpuwatch.tui.controllers.jobs import JobController
from gpuwatch.tui.display import Display
from gpuwatch.tui.keys import REPLAY_KEYS
from gpuwatch.tui.pages.screen import CanvasScreen
from gpuwatch.tui.panels.bars import moment_at, replay_rows, strip_rows
from gpuwatch.tui.view import SPEEDS, Prompt, ReplayState

if TYPE_CHECKING:
    from gpuwatch.diagnosis.ledger import Episode
    from gpuwatch.recording.replay import Tape


# -- a moment of a tape: its past, and what follows it ---------------------------------------------


WARM_UP_SECONDS = 120.0
"""The engine looks at windows of a minute, and holds what it finds against flapping."""
FINE_MOST_SECONDS = 900.0
FINE_SNAPSHOTS_MOST = 400
"""Snapshots that are read in about two seconds; what is older comes from the overview."""
_LOOK_BACK_SECONDS = (600.0, 7200.0, float("inf"))
_REACH_SECONDS = 12 * 3600.0
"""The longest range of the charts."""
_PAST_KEPT = 128
_AHEAD = 64
_WAIT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class DiagnosedSnapshot:
    snapshot: Snapshot
    diagnosis: Diagnosis | None


@dataclass(slots=True)
class LoadedPast:
    """The past with which the screen begins."""

    history: Store = field(default_factory=Store)
    engine: Diagnoser | None = None
    past: list[DiagnosedSnapshot] = field(default_factory=list)
    """Moments up to the one asked for, which is shown. Empty where nothing can be read."""
    from_overview: bool = False
    """True if some of the past is by half minutes."""
    watched: bool = False
    """True if it is diagnosed; without an engine from the next snapshot on."""


class Seek:
    """Jump to ``at``: load its past on a thread, call ``ready``, then read ahead."""

    def __init__(
        self,
        tape: Tape,
        at: float,
        fine_seconds: float,
        make_engine: Callable[[], Diagnoser] | None,
        ready: Callable[[], object],
    ) -> None:
        self.at = at
        self.fine_seconds = min(FINE_MOST_SECONDS, max(WARM_UP_SECONDS, fine_seconds * 1.1))
        """Length of the past that is read snapshot by snapshot."""
        self.loaded: LoadedPast | None = None
        """Past with which the screen begins, once it is there."""
        self._tape = tape
        self._make_engine = make_engine
        self._on_ready = ready
        self._trouble: str | None = None
        self._error: BaseException | None = None
        self._stopped = self._read_all = False
        self._room = threading.Condition()
        self._ahead: deque[Snapshot] = deque()
        self._past: deque[DiagnosedSnapshot] = deque(maxlen=_PAST_KEPT)
        self._place = -1
        threading.Thread(target=self._run, name="gpuwatch-replay", daemon=True).start()

    @property
    def trouble(self) -> str | None:
        """Why reading ended, as a sentence. Raises a bug's error: a file that is gone or cannot be
        read any more only ends the file."""
        if self._error is None:
            return self._trouble
        if not isinstance(self._error, OSError | LogError):
            raise self._error
        return f"reading failed: {clean(str(self._error), 200)}"

    def begin(self, past: Sequence[DiagnosedSnapshot]) -> None:
        """Show the last moment of ``past``, which was loaded."""
        self._past.extend(past)
        self._place = len(self._past) - 1

    @property
    def shown(self) -> DiagnosedSnapshot:
        return self._past[self._place]

    @property
    def coming(self) -> Snapshot | None:
        if self._place + 1 < len(self._past):
            return self._past[self._place + 1].snapshot
        return self._ahead[0] if self._ahead else None

    @property
    def ended(self) -> bool:
        """Return whether nothing comes any more."""
        return self._read_all and not self._ahead

    def forward(self, advance: Callable[[Snapshot], DiagnosedSnapshot]) -> None:
        """Show the next snapshot, which is there; one that is new goes through ``advance``."""
        if self._place + 1 < len(self._past):
            self._place += 1
            return
        with self._room:
            snapshot = self._ahead.popleft()
            if len(self._ahead) <= _AHEAD // 2:
                self._room.notify()
        self._past.append(advance(snapshot))
        self._place = len(self._past) - 1

    def back(self) -> bool:
        """Show the one before; whether it is still there."""
        if self._place <= 0:
            return False
        self._place -= 1
        return True

    def stop(self) -> None:
        self._stopped = True
        with self._room:
            self._room.notify_all()

    # On the thread.

    def _run(self) -> None:
        try:
            rest = self._begin()
            self._call()
            for snapshot in rest:
                with self._room:
                    while len(self._ahead) >= _AHEAD and not self._stopped:
                        self._room.wait(_WAIT_SECONDS)
                    if self._stopped:
                        return
                    self._ahead.append(snapshot)
        except Exception as error:
            self._error = error
        finally:
            self.loaded = self.loaded or LoadedPast()
            self._read_all = True
            self._call()

    def _call(self) -> None:
        # The loop that is told may have ended.
        with contextlib.suppress(RuntimeError):
            self._on_ready()

    def _begin(self) -> Iterator[Snapshot]:
        begin = self.at - self._seconds_to_read()
        past, rest = self._read_from(begin - begin % BLOCK_SECONDS)
        for back in _LOOK_BACK_SECONDS:
            if (past and past[-1].taken_at_unix_seconds <= self.at) or self._stopped:
                break
            first = self._tape.first_unix_seconds
            if first is None or first > self.at:
                break
            # Nothing right before it: a gap, or a file that is read from a moment on exactly.
            past, rest = self._read_from(max(self.at - back, first - 1.0))
        self.loaded = self._load_past(past) if past else LoadedPast()
        return rest

    def _seconds_to_read(self) -> float:
        """Return how much of the past to read: no more than is kept."""
        first = next(self._in_order(self._tape.snapshots(self.at - self.fine_seconds)), None)
        if first is None:
            return self.fine_seconds
        kept = max(WARM_UP_SECONDS, FINE_SNAPSHOTS_MOST * first.interval_seconds)
        return min(self.fine_seconds, kept)

    def _read_from(self, begin: float) -> tuple[Sequence[Snapshot], Iterator[Snapshot]]:
        """Snapshots taken until ``at``, and all that come later."""
        past: deque[Snapshot] = deque(maxlen=FINE_SNAPSHOTS_MOST)
        rest = self._in_order(self._tape.snapshots(begin))
        for snapshot in rest:
            if self._stopped:
                break
            if snapshot.taken_at_unix_seconds > self.at:
                # Before everything: the first there is.
                return (past, chain([snapshot], rest)) if past else ([snapshot], rest)
            past.append(snapshot)
            last = self._tape.last_unix_seconds
            if self._tape.arriving and last is not None and snapshot.taken_at_unix_seconds >= last:
                # The next one is still to come.
                break
        return past, rest

    def _in_order(self, snapshots: Iterator[Snapshot]) -> Iterator[Snapshot]:
        """Yield the snapshots whose times go forward: a clock that was set back repeats times that
        were there."""
        last = float("-inf")
        before: Snapshot | None = None
        try:
            for snapshot in snapshots:
                if snapshot.taken_at_unix_seconds > last:
                    last = snapshot.taken_at_unix_seconds
                    shown = on_wall_clock(snapshot)
                    # It was just decoded: every name and number anew.
                    shown = before = shown if before is None else share(shown, before)
                    notes = [
                        Problem(source="recording", message=message, severity="info")
                        for message in self._tape.notes()
                    ]
                    if notes:
                        shown = replace(shown, problems=(*shown.problems, *notes))
                    yield shown
        except LogError as error:
            self._trouble = str(error)

    def _load_past(self, past: Sequence[Snapshot]) -> LoadedPast:
        loaded = LoadedPast(watched=self._make_engine is not None)
        history = loaded.history
        begin = self._take_overview(history, past[0].taken_at_unix_seconds)
        loaded.from_overview = begin is not None
        engine = None
        if self._make_engine is not None and len(past) > 1:
            # At the beginning the first picture does not wait for the rules to be loaded.
            engine = loaded.engine = self._make_engine()
        warm = self.at - WARM_UP_SECONDS
        for snapshot in past:
            if self._stopped:
                break
            if begin is None or snapshot.taken_at_unix_seconds > begin:
                history.push(snapshot)
            if engine is not None and snapshot.taken_at_unix_seconds >= warm:
                if not loaded.past:
                    engine.go_on_from(self._tape.lost_before(snapshot.taken_at_unix_seconds))
                engine.push(snapshot)
                loaded.past.append(DiagnosedSnapshot(snapshot, engine.diagnosis))
        if engine is not None and loaded.past:
            # Its first seconds it did not judge yet; the file knows what was lost in them.
            engine.finish()
            engine.go_on_from(
                self._tape.lost_before(loaded.past[-1].snapshot.taken_at_unix_seconds)
            )
            loaded.past[-1] = replace(loaded.past[-1], diagnosis=engine.diagnosis)
        if not loaded.past:
            # A gap before it, or nobody diagnoses.
            if engine is not None:
                engine.push(past[-1])
            loaded.past.append(
                DiagnosedSnapshot(past[-1], None if engine is None else engine.diagnosis)
            )
        if history.latest_at is None:
            history.push(past[-1])
        return loaded

    def _take_overview(self, history: Store, first: float) -> float | None:
        """Fill in what lies before the snapshot taken at ``first``, by half minutes; the moment up
        to which that was done."""
        begins = self._tape.first_unix_seconds
        if begins is not None and first <= begins:
            # All there is was read: its first half minute is no more whole in the overview.
            return None
        blocks = [
            block
            for block in self._tape.buckets
            # An overview has longer ones than half minutes too.
            if block.seconds == BLOCK_SECONDS
            and block.begin_unix_seconds >= self.at - _REACH_SECONDS
            # The half minute in which the snapshots begin is whole in the overview only.
            and block.begin_unix_seconds < first
            and block.end_unix_seconds < self.at
            # Of a clock that was set, one can lie across the history's own.
            and not block.begin_unix_seconds % BLOCK_SECONDS
        ]
        for block in blocks:
            history.take_block(block.begin_unix_seconds, block.gpus, block.host)
        return blocks[-1].end_unix_seconds if blocks else None


# -- which recorded moment is due, and where the keys for findings lead ----------------------------


_STOPPED_SECONDS = 0.75
"""Time between two frames from which on the program was stopped, and the recording with it."""


class ReplayClock:
    """Real time at ``state.speed``, from a real moment and the recorded one that it shows."""

    def __init__(self, state: ReplayState, monotonic: Callable[[], float]) -> None:
        self.now = monotonic
        self.ticked_at = 0.0
        self._state = state
        self._anchor = (0.0, state.now)

    def restart(self) -> None:
        """Go on from what is shown, now."""
        self.ticked_at = self.now()
        self._anchor = (self.ticked_at, self._state.now)

    def tick(self) -> float:
        """Begin a frame; when it is."""
        now = self.now()
        if now - self.ticked_at > _STOPPED_SECONDS:
            self._anchor = (self._anchor[0] + now - self.ticked_at, self._anchor[1])
        self.ticked_at = now
        return now

    def due(self, now: float) -> float:
        """Return the recorded moment that is due."""
        begun, at = self._anchor
        return float("inf") if self._state.following else at + (now - begun) * self._state.speed

    def show(self, now: float, at: float) -> None:
        """Have ``at`` be due now."""
        self._anchor = (now, at)


_LEAD_SECONDS = 60.0
"""Time into a finding at which it is shown: by then the diagnosis has said it. Of one that is
shorter than twice that, its middle."""
_SAME_SECONDS = 30.0
"""Distance up to which findings that begin together are gone to together."""
_NEAR_SHARE = 0.1
"""Distance of what is no other stop, as a share of a short recording."""


class FindingStop(NamedTuple):
    at: float
    finding: Episode


def beside(state: ReplayState, at: float, step: int) -> FindingStop | str:
    """Return the first stop after ``at`` (1), or the last one before it (-1); else why there is
    none."""
    # A snapshot lies up to an interval before the moment gone to.
    near = min(_SAME_SECONDS / 2, (state.last - state.first) * _NEAR_SHARE)
    found = stops(state.findings, state.last)
    if step > 0:
        stop = next((stop for stop in found if stop.at > at + near), None)
    else:
        stop = next((stop for stop in reversed(found) if stop.at < at - near), None)
    if stop is not None:
        return stop
    if state.progress < 1.0 and step > 0:
        return "looking for the next finding: it is shown once it is read"
    if not state.findings:
        return f"nothing was found {'so far' if state.arriving else 'in this recording'}"
    return f"no finding begins {'later' if step > 0 else 'before this'}"


def stops(findings: Sequence[Episode], last: float) -> list[FindingStop]:
    """Return a stop for each finding, in order: a minute into it, or in its middle. Those that are
    good to know are stops only where nothing is wrong; those that begin together are one, of the
    gravest."""
    wrong = [span for span in findings if span.severity != "info"] or findings
    found: list[FindingStop] = []
    for span in sorted(wrong, key=lambda one: one.begin_unix_seconds):
        begin = span.begin_unix_seconds
        end = last if span.end_unix_seconds is None else min(last, span.end_unix_seconds)
        lead = min(_LEAD_SECONDS, max(0.0, end - begin) / 2)
        stop = FindingStop(begin + lead, span)
        if not found or begin - found[-1].finding.begin_unix_seconds > _SAME_SECONDS:
            found.append(stop)
        elif span.severity == "error" != found[-1].finding.severity:
            found[-1] = stop
    return sorted(found, key=lambda stop: stop.at)


# -- the player ------------------------------------------------------------------------------------


FRAME_SECONDS = 0.1
_WORK_SECONDS = 0.06
"""Time of a frame for playing: what is left is for drawing, and for the thread that reads."""
_TAPE_SECONDS = 0.5
_GAP_LEAST_SECONDS = 10.0
_GAP_INTERVALS = 3.0
_LATE_SECONDS = 0.5
"""Delay in real time from which on the diagnosis is left out."""
_VERY_LATE_SECONDS = 1.0
"""Delay from which on it is played as fast as it can be."""
_LATE_INTERVALS = 3.0
"""Age in intervals from which on what comes in live is no longer the present."""


class PlayerScreen(Protocol):
    """The screen on which a player shows what it plays."""

    def begin_at(self, loaded: LoadedPast) -> Sequence[DiagnosedSnapshot]:
        """Make ``loaded`` the past from now on; return its moments, the last of them diagnosed."""

    def advance(self, snapshot: Snapshot) -> DiagnosedSnapshot:
        """Take the next snapshot; return it with what is found."""

    def show_moment(self, shown: DiagnosedSnapshot) -> None: ...

    def redraw(self) -> None: ...

    def note_more_is_known(self) -> None:
        """Bring what is said of the whole recording up to date: more of it has been read."""

    def say(self, message: str) -> None: ...

    @property
    def charts_seconds(self) -> float:
        """Range of the charts."""


class Player:
    """Player in the place of a live dashboard's sampler. ``follows``: what comes in is live and is
    shown as it comes."""

    in_flight_seconds: float | None = None
    interval_seconds = 1.0
    screen: PlayerScreen
    """Set by the controller, before the player runs."""

    def __init__(
        self,
        tape: Tape,
        *,
        make_engine: Callable[[], Diagnoser] | None,
        follows: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.came_at = time.monotonic()
        """Time at which what is shown came in."""
        first = tape.first_unix_seconds or 0.0
        self.state = ReplayState(
            shown=tape.shown, first=first, last=first, now=first, playing=True, following=follows
        )
        self.latest: Snapshot | None = None
        self.make_engine = make_engine
        self.clock = ReplayClock(self.state, monotonic)
        self.tape = tape
        self.pending_seek: Seek | None = None
        """Seek whose past is being loaded."""
        self.wake = asyncio.Event()
        """Event that says there is something to do before the next frame."""
        self._seek: Seek | None = None
        self._steps = 0
        self._looked_at = float("-inf")
        self._whole_past = False

    @property
    def age_seconds(self) -> float | None:
        """Return the age of what is shown while it is followed; else it cannot get old."""
        return time.monotonic() - self.came_at if self.state.following else None

    @property
    def overdue(self) -> bool:
        """Return whether what is followed is too old to be the present."""
        age = self.age_seconds
        return age is not None and age > _LATE_INTERVALS * max(1.0, self.interval_seconds)

    async def run(self, _deliver: object = None) -> None:
        """Play until cancelled."""
        follows = self.state.following
        self.look_at_tape()
        self.seek(self.state.last if follows else self.state.first)
        self.state.following = follows
        while True:
            busy = self._tick()
            self.wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), 0.02 if busy else FRAME_SECONDS)

    def stop(self) -> None:
        """Stop playing; the tape goes on."""
        for seek in filter(None, (self._seek, self.pending_seek)):
            seek.stop()

    def close(self) -> None:
        self.stop()
        self.tape.close()

    # -- what a person does -------------------------------------------------------------------

    def seek(self, at: float) -> None:
        """Show the moment ``at``."""
        state = self.state
        at = min(max(at, state.first), max(state.first, state.last))
        state.ended, state.seeking, state.undiagnosed = False, True, False
        self._steps = 0
        state.following = state.arriving and state.playing and at >= state.last
        if self.pending_seek is not None:
            self.pending_seek.stop()
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, self.wake.set)
        seconds = self.screen.charts_seconds
        self.pending_seek = Seek(self.tape, at, seconds, self.make_engine, wake)

    def play_or_pause(self) -> None:
        """Play, or pause; at the end, play from the beginning."""
        state = self.state
        state.playing = not state.playing
        if state.playing and state.ended:
            self.seek(state.first)
        elif state.playing:
            self.clock.restart()
        else:
            state.following = False
            self.diagnose_again()

    def change_speed(self, step: int) -> bool:
        """Play at the next faster (1) or slower (-1) speed; return whether there is one."""
        state = self.state
        place = SPEEDS.index(state.speed) + step
        if not 0 <= place < len(SPEEDS):
            return False
        state.speed = SPEEDS[place]
        state.following = state.following and state.speed == 1.0
        self.clock.restart()
        if step < 0:
            self.diagnose_again()
        return True

    def stop_beside(self, step: int) -> FindingStop | str:
        """Return the stop after the present moment (1) or before it (-1), or why there is none."""
        self.look_at_tape()
        return beside(self.state, self.heading, step)

    @property
    def heading(self) -> float:
        """Return where it stands, or is going to."""
        return self.state.now if self.pending_seek is None else self.pending_seek.at

    def step(self, step: int) -> None:
        """Go one snapshot forth (1) or back (-1), paused."""
        state = self.state
        state.playing = state.following = False
        if step > 0:
            self._steps += 1
            self.wake.set()
        elif self._seek is not None and self._seek.back():
            self._note_moment(self._seek)
            self.screen.show_moment(self._seek.shown)
        elif state.now <= state.first:
            self.screen.say("this is the beginning of the recording")
        elif self.pending_seek is None:
            self.seek(state.now - 0.001)

    def refresh_past(self) -> None:
        """Read more of the past where the charts show more than was read, and stay where it is."""
        known = 0.0 if self._seek is None else self._seek.fine_seconds
        if self.pending_seek is None and self.screen.charts_seconds > known > 0.0:
            self._read_again()

    # -- frames -------------------------------------------------------------------------------

    def _tick(self) -> bool:
        """Bring the picture up to date; whether there is more to do at once."""
        now = self.clock.tick()
        changed = now - self._looked_at >= _TAPE_SECONDS and self.look_at_tape()
        if self._adopt():
            return True
        seek, before, busy = self._seek, self.latest, False
        if seek is not None and not self.state.seeking:
            if self._steps:
                self._step(seek)
            else:
                busy = self.state.playing and self._play(seek, now)
        if seek is not None and self.latest is not before:
            self.screen.show_moment(seek.shown)
        elif changed:
            self.screen.note_more_is_known()
        return busy

    def _adopt(self) -> bool:
        """Make the past that was loaded the one shown, if it is there."""
        seek, state = self.pending_seek, self.state
        if seek is None or seek.loaded is None:
            return False
        loaded, self.pending_seek = seek.loaded, None
        state.seeking = False
        trouble = seek.trouble
        if trouble is not None or not loaded.past:
            self.screen.say(trouble or "nothing can be read there")
        if not loaded.past:
            seek.stop()
            state.playing = False
            self.screen.redraw()
            return True
        if self._seek is not None:
            self._seek.stop()
        self._whole_past = loaded.from_overview or state.progress >= 1.0
        seek.begin(self.screen.begin_at(loaded))
        self._seek = seek
        self._note_moment(seek)
        self.clock.restart()
        self.screen.show_moment(seek.shown)
        return True

    def _play(self, seek: Seek, now: float) -> bool:
        """Show all that is due; whether there is more of it."""
        state, target, due, waits = self.state, self.clock.due(now), False, False
        while not due:
            coming = seek.coming
            if coming is None:
                waits = not self._at_end(seek)
                break
            taken_at = coming.taken_at_unix_seconds
            if taken_at > target:
                gap = taken_at - state.now
                longest = max(_GAP_LEAST_SECONDS, _GAP_INTERVALS * coming.interval_seconds)
                # The last before a gap is shown for as long as any.
                if gap <= longest or target < state.now + coming.interval_seconds:
                    break
                self.screen.say(f"nothing was recorded for {units.age(gap)}: skipped")
                self.clock.show(now, taken_at)
                target = taken_at
            self._forward(seek)
            due = self.clock.now() - now > _WORK_SECONDS
        if not state.following and (due or waits):
            self.keep_up(now, target)
        return due

    def keep_up(self, now: float, target: float) -> None:
        """Leave something out where reading is slower than the speed asked for."""
        state = self.state
        late = (target - state.now) / state.speed
        if self.tape.arriving and target > state.last:
            # Not late: it has not been recorded yet.
            self.clock.show(now, max(state.now, state.last))
            return
        if late > _LATE_SECONDS and state.speed > 1.0:
            state.undiagnosed = True
        if late > _VERY_LATE_SECONDS and self.pending_seek is None:
            self.clock.show(now, state.now)

    def _at_end(self, seek: Seek) -> bool:
        if not seek.ended:
            return False
        state = self.state
        state.playing, state.following, state.ended = False, False, True
        end = f"the end of {state.shown}: space plays it from its beginning"
        self.screen.say(seek.trouble or end)
        self.diagnose_again()
        self.screen.redraw()
        return True

    def _step(self, seek: Seek) -> None:
        """Take the steps that were asked for, as far as the snapshots are there."""
        while self._steps and seek.coming is not None:
            self._forward(seek)
            self._steps -= 1
        if self._steps and seek.ended:
            self._steps = 0
            self.state.ended = True
            self.screen.say("this is the end of the recording")
            self.screen.redraw()

    def _forward(self, seek: Seek) -> None:
        seek.forward(self.screen.advance)
        self._note_moment(seek)

    def _note_moment(self, seek: Seek) -> None:
        snapshot = self.latest = seek.shown.snapshot
        self.came_at = time.monotonic()
        self.interval_seconds = snapshot.interval_seconds
        self.state.show(snapshot.taken_at_unix_seconds)

    def diagnose_again(self) -> None:
        """Catch up with the diagnosis, where it was left out for speed."""
        if self.state.undiagnosed and self.pending_seek is None:
            self._read_again()

    def _read_again(self) -> None:
        state = self.state
        ended, following = state.ended, state.following
        self.seek(state.now)
        state.ended, state.following = ended, following

    def look_at_tape(self) -> bool:
        """Take over what is known of the tape by now; whether that is more than before."""
        state, tape = self.state, self.tape
        self._looked_at = self.clock.now()
        if tape.error is not None:
            raise tape.error
        grew = state.learn(tape)
        whole = state.progress >= 1.0 and not state.arriving
        if whole and not self._whole_past and self._seek is not None and self.pending_seek is None:
            self._whole_past = True
            if not state.playing or state.speed <= 2.0:
                self._read_again()
        return grew


# -- the controller --------------------------------------------------------------------------------


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
    """Controller that is the player's screen, and has the keys that mean something else here."""

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
        self._diagnosed = player.make_engine is not None
        self._awaits_finding = False
        """The next finding has been asked for and is not read yet."""
        self._marks: dict[tuple[int, float], tuple[FindingMark, ...]] = {}
        """Marks of the overview, by how much of it is known."""
        self.view.replay = player.state
        player.screen = self
        for name, why in _REFUSED.items():
            setattr(self, f"action_{name}", partial(display.answer, why))

    # -- what the player asks for -----------------------------------------------------------------

    def begin_at(self, loaded: LoadedPast) -> Sequence[DiagnosedSnapshot]:
        view, snapshot = self.view, loaded.past[-1].snapshot
        view.history, view.strips = loaded.history, StripCache()
        make_engine = self._player.make_engine if loaded.watched else None
        self._diagnosis.restart(loaded.engine, make_engine)
        view.timeline = Timeline(view.chosen_span_seconds)
        view.mark = view.given_range = None
        if view.job.key is not None:
            view.job.look_at(view.job.key)
        self._jobs.on_snapshot(snapshot)
        if loaded.watched and loaded.engine is None:
            return [
                *loaded.past[:-1],
                DiagnosedSnapshot(snapshot, self._diagnosis.diagnose(snapshot)),
            ]
        return loaded.past

    def advance(self, snapshot: Snapshot) -> DiagnosedSnapshot:
        if self._player.state.undiagnosed:
            self._diagnosis.leave_out()
        self.view.history.push(snapshot)
        self._jobs.on_snapshot(snapshot)
        self._diagnosis.on_snapshot(snapshot)
        return DiagnosedSnapshot(snapshot, self.view.diagnosis)

    def show_moment(self, shown: DiagnosedSnapshot) -> None:
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
        """Return the overview's word on a moment that is not diagnosed now."""
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

    def say(self, message: str) -> None:
        self.display.say(message)

    def redraw(self) -> None:
        self.display.redraw()

    def note_more_is_known(self) -> None:
        if self._awaits_finding:
            self.action_to_mark(1)
        self.display.redraw()

    @property
    def charts_seconds(self) -> float:
        return self.view.timeline.span_seconds

    # -- keys -------------------------------------------------------------------------------------

    def action_pause(self) -> None:
        self._awaits_finding = False
        self._player.play_or_pause()
        self.display.redraw()

    def action_speed(self, step: int) -> None:
        if self._player.change_speed(step):
            self.display.redraw()
        else:
            speed, end = self._player.state.speed, "fastest" if step > 0 else "slowest"
            self.display.answer(f"{speed:g}x is the {end}")

    def action_to_mark(self, step: int) -> None:
        """Go to the finding after this moment (1) or before it (-1); to one that is not read yet as
        soon as it is, unless the person goes elsewhere meanwhile."""
        stop = self._player.stop_beside(step)
        self._awaits_finding = False
        if isinstance(stop, FindingStop):
            self._player.seek(stop.at)
            begin = units.clock(stop.finding.begin_unix_seconds)
            self.display.answer(f"{begin} {clean(stop.finding.summary)}")
        else:
            self._awaits_finding = step > 0 and self._player.state.progress < 1.0
            self.display.answer(stop)

    def action_move_cursor(self, step: int) -> None:
        """Move the cursor where there is one, else the recording by a snapshot."""
        if self.view.timeline.cursor_seconds is not None:
            self._timeline.action_move_cursor(step)
        else:
            self._awaits_finding = False
            self._player.step(step)
            self.display.redraw()

    def action_seek_by(self, seconds: float) -> None:
        self.seek(self._player.heading + seconds)

    def seek(self, at: float) -> None:
        self._awaits_finding = False
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
        # Above the keys.
        top = height - 1 - replay_rows(self.view, width, height)
        if top <= event.screen_y < top + strip_rows(width, height):
            self.seek(moment_at(self.view, self._player.state, event.screen_x, width, height))

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
