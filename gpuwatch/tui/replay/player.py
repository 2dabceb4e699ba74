"""Plays a tape: what is due, at which speed, from where. Its clock is the recorded one."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from gpuwatch.core import units
from gpuwatch.core.model import Problem, Snapshot
from gpuwatch.core.text import clean
from gpuwatch.recording.buckets import FindingSpan
from gpuwatch.recording.replay import Tape
from gpuwatch.sources.files.log_text import LogError
from gpuwatch.tui.controllers.diagnosis import Diagnoser
from gpuwatch.tui.replay.cue import FINE_MOST_SECONDS, WARM_UP_SECONDS, Cue, Readied, Shown
from gpuwatch.tui.replay.state import SPEEDS, ReplayState

FRAME_SECONDS = 0.1
_WORK_SECONDS = 0.06
"""Of a frame: what is left is for drawing, and for the thread that reads."""
_TAPE_SECONDS = 0.5
_PAST_KEPT = 128
_GAP_LEAST_SECONDS = 10.0
_GAP_INTERVALS = 3.0
_LATE_SECONDS = 0.5
"""Of real time: later than this the diagnosis is left out."""
_VERY_LATE_SECONDS = 1.0
"""Later than this snapshots are left out, where a jump is faster than reading on."""
_QUICK_SECONDS = 0.5
_SKIPPED_SECONDS = 3.0
_STOPPED_SECONDS = 0.75
"""Between two frames: then the program was stopped, and the recording with it."""
_LEAD_SECONDS = 60.0
"""Into a finding, where it is shown: by then the diagnosis has said it."""
_SAME_SECONDS = 30.0
"""Findings that begin so close to each other are gone to together."""


class Screen(Protocol):
    """What shows it."""

    def begin_at(self, readied: Readied) -> None:
        """From now on this is the past."""
        ...

    def advance(self, snapshot: Snapshot) -> Shown:
        """The next snapshot: what is said of it."""
        ...

    def show_moment(self, shown: Shown) -> None:
        """Draw it."""
        ...

    def redraw(self) -> None: ...

    def say(self, message: str) -> None: ...

    def fine_seconds(self) -> float:
        """How much of the past the charts show."""
        ...


class Player:
    """Stands where a live dashboard has its sampler."""

    def __init__(
        self,
        tape: Tape,
        *,
        make_engine: Callable[[], Diagnoser] | None,
        follows: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        first = tape.first_unix_seconds or 0.0
        self.state = ReplayState(
            shown=tape.shown, first=first, last=first, now=first, playing=True, following=follows
        )
        self.latest: Snapshot | None = None
        self.interval_seconds = 1.0
        # What the dashboard asks of a sampler: nothing here gets old.
        self.age_seconds: float | None = None
        self.in_flight_seconds: float | None = None
        self.overdue = False
        self._tape = tape
        self._make_engine = make_engine
        self._monotonic = monotonic
        self._screen: Screen | None = None
        self._cue: Cue | None = None
        self._next: Cue | None = None
        self._next_light = False
        self._asked_at = 0.0
        self._cue_seconds = 0.0
        self._past: deque[Shown] = deque(maxlen=_PAST_KEPT)
        self._place = -1
        self._steps = 0
        self._wanted: int | None = None
        """The direction of a finding that is waited for."""
        self._anchor = (0.0, first)
        self._ticked_at = 0.0
        self._looked_at = float("-inf")
        self._skipped_at = float("-inf")
        self._measured = (0.0, first)
        self._fine_seconds = WARM_UP_SECONDS
        self._whole_past = False
        self._wake = asyncio.Event()

    # -- life ---------------------------------------------------------------------------------

    def shows_on(self, screen: Screen) -> None:
        """Part of the start."""
        self._screen = screen

    async def run(self, _deliver: object = None) -> None:
        """Play until cancelled."""
        follows = self.state.following
        self._look_at_tape()
        self.seek(self.state.first)
        self.state.following = follows
        while True:
            busy = self.tick()
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), 0.02 if busy else FRAME_SECONDS)
            except TimeoutError:
                continue

    def close(self, timeout_seconds: float = 0.5) -> None:
        del timeout_seconds
        for cue in (self._cue, self._next):
            if cue is not None:
                cue.stop()
        self._tape.close()

    @property
    def screen(self) -> Screen:
        assert self._screen is not None
        return self._screen

    # -- what a person does -------------------------------------------------------------------

    def toggle(self) -> None:
        """Play, or pause; at the end, from the beginning."""
        state = self.state
        self._wanted, self._steps = None, 0
        if state.ended and not state.playing:
            state.playing = True
            self.seek(state.first)
            return
        state.playing = not state.playing
        if state.playing:
            self._set_anchor()
        else:
            state.following = False
            self._diagnose_again()

    def change_speed(self, step: int) -> None:
        state = self.state
        place = SPEEDS.index(state.speed) + step
        if not 0 <= place < len(SPEEDS):
            most = "fastest" if step > 0 else "slowest"
            self.screen.say(f"{state.speed:g}x is the {most}")
            return
        state.speed = SPEEDS[place]
        state.following = state.following and state.speed == 1.0
        state.real_speed = None
        self._set_anchor()
        if step < 0:
            self._diagnose_again()

    def seek(self, at: float, *, light: bool = False) -> None:
        """Show the moment ``at``; ``light``: only what is needed to go on from there."""
        state = self.state
        at = min(max(at, state.first), max(state.first, state.last))
        if self._next is not None:
            self._next.stop()
        state.ended, state.seeking = False, not light
        if not light:
            self._wanted, self._steps = None, 0
            state.following = state.arriving and state.playing and at >= state.last
            state.skipping = state.undiagnosed = False
        seconds = self.screen.fine_seconds() * 1.1
        self._fine_seconds = min(FINE_MOST_SECONDS, max(WARM_UP_SECONDS, seconds))
        self._next_light, self._asked_at = light, self._monotonic()
        try:
            loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            loop = None

        def ready() -> None:
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self._wake.set)

        self._next = Cue(
            self._tape,
            at,
            fine_seconds=0.0 if light else self._fine_seconds,
            make_engine=None if light else self._make_engine,
            ready=ready,
            notes=self._notes,
        )

    def seek_by(self, seconds: float) -> None:
        self.seek(self.heading + seconds)

    @property
    def heading(self) -> float:
        """Where it stands, or is going to."""
        return self.state.now if self._next is None else self._next.at

    def step(self, count: int) -> None:
        """Some snapshots forth or back, paused."""
        state = self.state
        state.playing = state.following = False
        if count < 0 and self._place + count < 0:
            if state.now <= state.first:
                self.screen.say("this is the beginning of the recording")
            elif self._next is None:
                self.seek(state.now - 0.001)
            return
        self._steps += count
        self._wake.set()

    def to_finding(self, step: int) -> None:
        """To the finding after this moment (1) or before it (-1)."""
        state = self.state
        self._look_at_tape()
        at = self.heading
        found = next_stop(stops(state.findings, state.last), at, step)
        if found is not None:
            self.seek(found[0])
            begin = time.strftime("%H:%M:%S", time.localtime(found[1].begin_unix_seconds))
            self.screen.say(f"{begin} {clean(found[1].summary)}")
        elif state.progress < 1.0 and step > 0:
            self._wanted = step
            self.screen.say("looking for the next finding ...")
        elif not state.findings:
            so_far = "so far" if state.arriving else "in this recording"
            self.screen.say(f"nothing was found {so_far}")
        else:
            self.screen.say(
                "no finding begins later" if step > 0 else "no finding begins before this"
            )

    def refresh_past(self) -> None:
        """The charts show more than was read: read it, and stay where it is."""
        if self.screen.fine_seconds() > self._fine_seconds and self._next is None:
            self._read_again()

    # -- frames -------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Bring the picture up to date; whether there is more to do at once."""
        now = self._monotonic()
        if now - self._ticked_at > _STOPPED_SECONDS:
            self._anchor = (self._anchor[0] + now - self._ticked_at, self._anchor[1])
        self._ticked_at = now
        changed = now - self._looked_at >= _TAPE_SECONDS and self._look_at_tape()
        if self._next is not None and self._next.readied is not None:
            self._adopt(self._next)
            return True
        if self._cue is None or self.state.seeking:
            if changed:
                self.screen.redraw()
            return False
        before = self.latest
        busy = self._step() if self._steps else self.state.playing and self._play(now)
        if self.latest is not before:
            self.screen.show_moment(self._past[self._place])
        elif changed:
            self.screen.redraw()
        return busy

    def _adopt(self, cue: Cue) -> None:
        """What was readied is the past now."""
        readied, light = cue.readied, self._next_light
        assert readied is not None
        self._next = None
        self._raise_of(cue)
        state = self.state
        state.seeking = False
        if not readied.past:
            cue.stop()
            state.playing = False
            self.screen.say(cue.trouble or "nothing can be read there")
            self.screen.redraw()
            return
        if self._cue is not None:
            self._cue.stop()
        self._cue = cue
        self._cue_seconds = self._monotonic() - self._asked_at
        self._whole_past = readied.from_overview or state.progress >= 1.0
        self.screen.begin_at(readied)
        self._past = deque(readied.past, maxlen=_PAST_KEPT)
        self._place = len(self._past) - 1
        shown = self._past[-1]
        self._now_is(shown)
        if not light:
            self._set_anchor()
        self.screen.show_moment(shown)

    def _play(self, now: float) -> bool:
        state = self.state
        begun, at = self._anchor
        target = float("inf") if state.following else at + (now - begun) * state.speed
        due, waits = False, False
        while True:
            coming = self._coming()
            if coming is None:
                waits = not self._at_end()
                break
            taken_at = coming.taken_at_unix_seconds
            if taken_at > target:
                gap = taken_at - state.now
                if gap <= max(_GAP_LEAST_SECONDS, _GAP_INTERVALS * coming.interval_seconds):
                    break
                if target < state.now + coming.interval_seconds:
                    # The last before it is shown for as long as any.
                    break
                self.screen.say(f"nothing was recorded for {units.age(gap)}: skipped")
                self._anchor = (now, taken_at)
                target = taken_at
            self._forward()
            if self._monotonic() - now > _WORK_SECONDS:
                due = True
                break
        if state.following:
            return due
        if due or waits:
            self._keep_up(now, target)
        else:
            state.skipping = state.skipping and now - self._skipped_at < _SKIPPED_SECONDS
        self._measure(now)
        return due

    def _coming(self) -> Snapshot | None:
        """The next snapshot, if it is there."""
        if self._place + 1 < len(self._past):
            return self._past[self._place + 1].snapshot
        assert self._cue is not None
        return self._cue.peek()

    def _forward(self) -> None:
        """Show the next snapshot, which is there."""
        assert self._cue is not None
        if self._place + 1 < len(self._past):
            self._place += 1
        else:
            self._past.append(self.screen.advance(self._cue.take()))
            self._place = len(self._past) - 1
        self._now_is(self._past[self._place])

    def _keep_up(self, now: float, target: float) -> None:
        """What is left out where reading is slower than the speed asked for."""
        state = self.state
        late = (target - state.now) / state.speed
        if self._tape.arriving and target > state.last:
            # Not late: it has not been recorded yet.
            self._anchor = (now, max(state.now, state.last))
            return
        if late > _LATE_SECONDS and state.speed > 1.0:
            state.undiagnosed = True
        if late <= _VERY_LATE_SECONDS:
            return
        if self._cue_seconds <= _QUICK_SECONDS and self._next is None and target < state.last:
            state.skipping, self._skipped_at = True, now
            self.seek(target, light=True)
        elif self._next is None:
            self._anchor = (now, state.now)

    def _measure(self, now: float) -> None:
        state = self.state
        begun, at = self._measured
        if now - begun < 2.0:
            return
        real = (state.now - at) / (now - begun)
        interval = max(self.interval_seconds, 0.1)
        exact = state.speed * (now - begun) > 3 * interval
        slow = exact and 0 < real < 0.75 * state.speed and not self._tape.arriving
        state.real_speed = real if slow else None
        self._measured = (now, state.now)

    def _at_end(self) -> bool:
        cue = self._cue
        assert cue is not None
        if not cue.ended:
            return False
        self._raise_of(cue)
        state = self.state
        state.playing = state.following = False
        state.ended = True
        self._wanted = None
        self.screen.say(f"the end of {state.shown}: space plays it from its beginning")
        self._diagnose_again()
        self.screen.redraw()
        return True

    def _step(self) -> bool:
        """One of the steps that were asked for."""
        if self._steps < 0:
            self._place += self._steps
            self._steps = 0
            self._place = max(0, self._place)
            self._now_is(self._past[self._place])
            return False
        if self._coming() is None:
            if self._cue is not None and self._cue.ended:
                self._steps = 0
                self.state.ended = True
                self.screen.say("this is the end of the recording")
                self.screen.redraw()
            return False
        self._forward()
        self._steps -= 1
        return self._steps > 0

    # -- the rest -----------------------------------------------------------------------------

    def _now_is(self, shown: Shown) -> None:
        self.latest = shown.snapshot
        self.interval_seconds = shown.snapshot.interval_seconds
        state = self.state
        state.now = shown.snapshot.taken_at_unix_seconds
        state.first = min(state.first, state.now)
        state.last = max(state.last, state.now)
        state.ended = False

    def _set_anchor(self) -> None:
        now = self._monotonic()
        self._anchor = self._measured = (now, self.state.now)
        self._ticked_at = now

    def _diagnose_again(self) -> None:
        """It was left out for speed: catch up with it."""
        if self.state.undiagnosed and self._next is None:
            self._read_again()

    def _read_again(self) -> None:
        ended, wanted = self.state.ended, self._wanted
        following = self.state.following
        self.seek(self.state.now)
        self.state.ended, self._wanted, self.state.following = ended, wanted, following

    def _look_at_tape(self) -> bool:
        """What is known of the tape by now; whether that is more than before."""
        state, tape = self.state, self._tape
        self._looked_at = self._monotonic()
        if tape.error is not None:
            raise tape.error
        before = (state.first, state.last, state.progress, len(state.findings), state.arriving)
        if tape.first_unix_seconds is not None:
            state.first = min(state.first, tape.first_unix_seconds)
        if tape.last_unix_seconds is not None:
            state.last = max(state.last, tape.last_unix_seconds)
        state.progress, state.arriving = tape.progress, tape.arriving
        state.buckets, state.findings = tape.buckets, tape.findings
        known = state.progress >= 1.0 and not state.arriving
        if known and not self._whole_past and self._cue is not None and self._next is None:
            self._whole_past = True
            if not state.playing or state.speed <= 2.0:
                self._read_again()
        if self._wanted is not None:
            self._go_to_wanted(self._wanted)
        return before != (
            state.first,
            state.last,
            state.progress,
            len(state.findings),
            state.arriving,
        )

    def _go_to_wanted(self, step: int) -> None:
        state = self.state
        found = next_stop(stops(state.findings, state.last), self.heading, step)
        if found is not None or state.progress >= 1.0:
            self._wanted = None
            self.to_finding(step)

    def _notes(self) -> tuple[Problem, ...]:
        return tuple(
            [
                Problem(source="recording", message=message, severity="info")
                for message in self._tape.notes()
            ]
        )

    def _raise_of(self, cue: Cue) -> None:
        """A bug ends the program; a file that is gone or cannot be read any more ends the file."""
        if cue.error is None:
            return
        if not isinstance(cue.error, OSError | LogError):
            raise cue.error
        self.screen.say(f"reading failed: {clean(str(cue.error), 200)}")


def stops(findings: Sequence[FindingSpan], last: float) -> list[tuple[float, FindingSpan]]:
    """Where to go for each finding, in order: a minute into it, or to its end. Those that are good
    to know are stops only where nothing is wrong; those that begin together are one stop, of the
    gravest."""
    wrong = [span for span in findings if span.severity != "info"] or list(findings)
    found: list[tuple[float, FindingSpan]] = []
    for span in sorted(wrong, key=lambda one: one.begin_unix_seconds):
        begin = span.begin_unix_seconds
        end = last if span.end_unix_seconds is None else min(last, span.end_unix_seconds)
        if found and begin - found[-1][1].begin_unix_seconds <= _SAME_SECONDS:
            if span.severity == "error" and found[-1][1].severity != "error":
                found[-1] = (max(begin, min(begin + _LEAD_SECONDS, end - 1.0)), span)
            continue
        found.append((max(begin, min(begin + _LEAD_SECONDS, end - 1.0)), span))
    return sorted(found, key=lambda one: one[0])


def next_stop(
    found: Sequence[tuple[float, FindingSpan]], at: float, step: int
) -> tuple[float, FindingSpan] | None:
    """The first stop after ``at``, or the last one before it."""
    times = [stop for stop, _ in found]
    if step > 0:
        # A snapshot lies up to an interval before the moment gone to.
        place = bisect_right(times, at + _SAME_SECONDS / 2)
        return found[place] if place < len(found) else None
    place = bisect_left(times, at - _SAME_SECONDS / 2)
    return found[place - 1] if place else None
