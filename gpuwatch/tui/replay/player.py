"""Plays a tape: what is due, at which speed, from where. Its clock is the recorded one."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from gpuwatch.core import units
from gpuwatch.core.model import Snapshot
from gpuwatch.recording.replay import Tape
from gpuwatch.tui.controllers.diagnosis import Diagnoser
from gpuwatch.tui.display import Display
from gpuwatch.tui.replay.cue import Cue, Readied, Shown
from gpuwatch.tui.replay.state import ReplayClock, ReplayState

FRAME_SECONDS = 0.1
_WORK_SECONDS = 0.06
"""Of a frame: what is left is for drawing, and for the thread that reads."""
_TAPE_SECONDS = 0.5
_GAP_LEAST_SECONDS = 10.0
_GAP_INTERVALS = 3.0
_LATE_SECONDS = 0.5
"""Of real time: later than this the diagnosis is left out."""
_VERY_LATE_SECONDS = 1.0
"""Later than this snapshots are left out, where a jump is faster than reading on."""
_QUICK_SECONDS = 0.5
_SKIPPED_SECONDS = 3.0
_LATE_INTERVALS = 3.0
"""Of what comes in live: older than this it is no longer the present."""


class PlayerScreen(Protocol):
    def begin_at(self, readied: Readied) -> None: ...  # From now on this is the past.
    def advance(self, snapshot: Snapshot) -> Shown: ...  # Take the next; what is said of it.
    def show_moment(self, shown: Shown) -> None: ...


class _AsSampler:
    """What the dashboard asks of a sampler: nothing here is under way."""

    in_flight_seconds: float | None = None
    state: ReplayState
    interval_seconds = 1.0

    def __init__(self) -> None:
        self.came_at = time.monotonic()
        """When what is shown came in."""

    @property
    def age_seconds(self) -> float | None:
        """How long ago what is shown came in, while it is followed; else it cannot get old."""
        return time.monotonic() - self.came_at if self.state.following else None

    @property
    def overdue(self) -> bool:
        age = self.age_seconds
        return age is not None and age > _LATE_INTERVALS * max(1.0, self.interval_seconds)


class Player(_AsSampler):
    """Stands where a live dashboard has its sampler. ``follows``: what comes in is live and is
    shown as it comes."""

    screen: PlayerScreen
    display: Display

    def __init__(
        self,
        tape: Tape,
        *,
        make_engine: Callable[[], Diagnoser] | None,
        follows: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        first = tape.first_unix_seconds or 0.0
        self.state = ReplayState(
            shown=tape.shown, first=first, last=first, now=first, playing=True, following=follows
        )
        self.latest: Snapshot | None = None
        self.makes_engine = make_engine
        self.clock = ReplayClock(self.state, monotonic)
        self.tape = tape
        self.next: Cue | None = None
        """The moment that is being readied."""
        self.wake = asyncio.Event()
        """There is something to do before the next frame."""
        self._cue: Cue | None = None
        self._asked_at = self._readied_seconds = 0.0
        self._steps = 0
        self._looked_at = self._skipped_at = float("-inf")
        self._whole_past = False

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
        for cue in filter(None, (self._cue, self.next)):
            cue.stop()

    def close(self) -> None:
        self.stop()
        self.tape.close()

    # -- what a person does -------------------------------------------------------------------

    def seek(self, at: float, *, light: bool = False) -> None:
        """Show the moment ``at``; ``light``: only what is needed to play on from there."""
        state = self.state
        at = min(max(at, state.first), max(state.first, state.last))
        state.ended, state.seeking = False, not light
        if not light:
            self._steps = 0
            state.following = state.arriving and state.playing and at >= state.last
            state.skipping = state.undiagnosed = False
        if self.next is not None:
            self.next.stop()
        self._asked_at = self.clock.now()
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, self.wake.set)
        seconds = self.display.view.timeline.span_seconds
        self.next = Cue(self.tape, at, seconds, self.makes_engine, wake, light=light)

    @property
    def heading(self) -> float:
        """Where it stands, or is going to."""
        return self.state.now if self.next is None else self.next.at

    def step(self, step: int) -> None:
        """One snapshot forth (1) or back (-1), paused."""
        state = self.state
        state.playing = state.following = False
        if step > 0:
            self._steps += 1
            self.wake.set()
        elif self._cue is not None and self._cue.back():
            self._note_moment(self._cue)
            self.screen.show_moment(self._cue.shown)
        elif state.now <= state.first:
            self.display.say("this is the beginning of the recording")
        elif self.next is None:
            self.seek(state.now - 0.001)

    def refresh_past(self) -> None:
        """The charts show more than was read: read it, and stay where it is."""
        known = 0.0 if self._cue is None else self._cue.fine_seconds
        if self.next is None and self.display.view.timeline.span_seconds > known > 0.0:
            self._read_again()

    # -- frames -------------------------------------------------------------------------------

    def _tick(self) -> bool:
        """Bring the picture up to date; whether there is more to do at once."""
        now = self.clock.tick()
        changed = now - self._looked_at >= _TAPE_SECONDS and self.look_at_tape()
        if self._adopt():
            return True
        cue, before, busy = self._cue, self.latest, False
        if cue is not None and not self.state.seeking:
            if self._steps:
                self._step(cue)
            else:
                busy = self.state.playing and self._play(cue, now)
        if cue is not None and self.latest is not before:
            self.screen.show_moment(cue.shown)
        elif changed:
            self.display.redraw()
        return busy

    def _adopt(self) -> bool:
        """Make what was readied the past, if it is there."""
        cue, state = self.next, self.state
        if cue is None or cue.readied is None:
            return False
        readied, self.next = cue.readied, None
        state.seeking = False
        trouble = cue.trouble
        if trouble is not None or not readied.past:
            self.display.say(trouble or "nothing can be read there")
        if not readied.past:
            cue.stop()
            state.playing = False
            self.display.redraw()
            return True
        if self._cue is not None:
            self._cue.stop()
        self._readied_seconds = self.clock.now() - self._asked_at
        self._whole_past = readied.from_overview or state.progress >= 1.0
        self.screen.begin_at(readied)
        cue.begin(readied)
        self._cue = cue
        self._note_moment(cue)
        if not cue.light:
            self.clock.restart()
        self.screen.show_moment(cue.shown)
        return True

    def _play(self, cue: Cue, now: float) -> bool:
        """Show all that is due; whether there is more of it."""
        state, target, due, waits = self.state, self.clock.due(now), False, False
        while not due:
            coming = cue.coming
            if coming is None:
                waits = not self._at_end(cue)
                break
            taken_at = coming.taken_at_unix_seconds
            if taken_at > target:
                gap = taken_at - state.now
                longest = max(_GAP_LEAST_SECONDS, _GAP_INTERVALS * coming.interval_seconds)
                # The last before a gap is shown for as long as any.
                if gap <= longest or target < state.now + coming.interval_seconds:
                    break
                self.display.say(f"nothing was recorded for {units.age(gap)}: skipped")
                self.clock.show(now, taken_at)
                target = taken_at
            self._forward(cue)
            due = self.clock.now() - now > _WORK_SECONDS
        if not state.following:
            if due or waits:
                self.keep_up(now, target)
            elif now - self._skipped_at >= _SKIPPED_SECONDS:
                state.skipping = False
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
        if late <= _VERY_LATE_SECONDS or self.next is not None:
            return
        if self._readied_seconds <= _QUICK_SECONDS and target < state.last:
            state.skipping, self._skipped_at = True, now
            self.seek(target, light=True)
        else:
            self.clock.show(now, state.now)

    def _at_end(self, cue: Cue) -> bool:
        if not cue.ended:
            return False
        state = self.state
        state.playing, state.following, state.ended = False, False, True
        end = f"the end of {state.shown}: space plays it from its beginning"
        self.display.say(cue.trouble or end)
        self.diagnose_again()
        self.display.redraw()
        return True

    def _step(self, cue: Cue) -> None:
        """Take the steps that were asked for, as far as the snapshots are there."""
        while self._steps and cue.coming is not None:
            self._forward(cue)
            self._steps -= 1
        if self._steps and cue.ended:
            self._steps = 0
            self.state.ended = True
            self.display.say("this is the end of the recording")
            self.display.redraw()

    def _forward(self, cue: Cue) -> None:
        cue.forward(self.screen.advance)
        self._note_moment(cue)

    def _note_moment(self, cue: Cue) -> None:
        snapshot = self.latest = cue.shown.snapshot
        self.came_at = time.monotonic()
        self.interval_seconds = snapshot.interval_seconds
        self.state.show(snapshot.taken_at_unix_seconds)

    def diagnose_again(self) -> None:
        """The diagnosis was left out for speed: catch up with it."""
        if self.state.undiagnosed and self.next is None:
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
        if whole and not self._whole_past and self._cue is not None and self.next is None:
            self._whole_past = True
            if not state.playing or state.speed <= 2.0:
                self._read_again()
        return grew
