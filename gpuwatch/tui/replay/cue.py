"""Getting ready to play from a moment on, with the past that a live screen would have had then.

What a screen at that moment shows of its past is read from the recording: the last minutes snapshot
by snapshot, what lies before them from the overview, by half minutes. The engine has watched what
came before too. All of it happens on a thread, which then reads ahead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuwatch.core.history import BLOCK_SECONDS, Band, History
from gpuwatch.core.model import Problem, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.recording.buckets import Band as RecordedBand
from gpuwatch.recording.buckets import Bucket
from gpuwatch.recording.replay import Tape, on_wall_clock
from gpuwatch.sources.files.log_text import LogError
from gpuwatch.tui.controllers.diagnosis import Diagnoser

WARM_UP_SECONDS = 120.0
"""The engine looks at windows of a minute, and holds what it finds against flapping."""
FINE_MOST_SECONDS = 900.0
FINE_SNAPSHOTS_MOST = 400
"""About two seconds of reading; what is older comes from the overview."""
_REACH_SECONDS = 12 * 3600.0
_LOOK_BACK_SECONDS = (600.0, 7200.0, float("inf"))
_AHEAD = 64
_WAIT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Shown:
    """A snapshot and what was said of it."""

    snapshot: Snapshot
    diagnosis: Diagnosis | None


@dataclass(slots=True)
class Readied:
    """What the screen begins with."""

    history: History = field(default_factory=History)
    engine: Diagnoser | None = None
    past: list[Shown] = field(default_factory=list)
    """Up to the moment itself; the last is shown. Empty where nothing can be read."""
    from_overview: bool = False
    """Some of the past is by half minutes."""
    watched: bool = False
    """It is diagnosed; without an engine from the next snapshot on."""


class Cue:
    """Readies ``at`` on a thread, then reads ahead. ``fine_seconds``: how much of the past is to be
    read snapshot by snapshot; without ``make_engine`` nothing is diagnosed."""

    def __init__(
        self,
        tape: Tape,
        at: float,
        *,
        fine_seconds: float,
        make_engine: Callable[[], Diagnoser] | None,
        ready: Callable[[], None] = lambda: None,
        notes: Callable[[], tuple[Problem, ...]] = tuple,
    ) -> None:
        self.at = at
        self.readied: Readied | None = None
        """Once it is there."""
        self.error: BaseException | None = None
        self.trouble: str | None = None
        """Why nothing can be read, as a sentence."""
        self._tape = tape
        self._fine_seconds = fine_seconds
        self._make_engine = make_engine
        self._ready = ready
        self._notes = notes
        self._stopped = False
        self._ended = False
        self._room = threading.Condition()
        self._ahead: deque[Snapshot] = deque()
        threading.Thread(target=self._run, name="gpuwatch-replay", daemon=True).start()

    @property
    def ended(self) -> bool:
        """All has been taken."""
        return self._ended and not self._ahead

    def peek(self) -> Snapshot | None:
        """The next one, if it is there yet."""
        ahead = self._ahead
        return ahead[0] if ahead else None

    def take(self) -> Snapshot:
        """The one that ``peek`` gave."""
        with self._room:
            found = self._ahead.popleft()
            if len(self._ahead) <= _AHEAD // 2:
                self._room.notify()
        return found

    def stop(self) -> None:
        self._stopped = True
        with self._room:
            self._room.notify_all()

    # On the thread.

    def _run(self) -> None:
        try:
            rest = self._begin()
            self._ready()
            for snapshot in rest:
                with self._room:
                    while len(self._ahead) >= _AHEAD and not self._stopped:
                        self._room.wait(_WAIT_SECONDS)
                    if self._stopped:
                        return
                    self._ahead.append(snapshot)
        except Exception as error:
            self.error = error
        finally:
            if self.readied is None:
                self.readied = Readied()
            self._ended = True
            self._ready()

    def _begin(self) -> Iterator[Snapshot]:
        begin = self.at - self._fine_seconds
        begin -= begin % BLOCK_SECONDS
        past, rest = self._past(begin)
        for back in _LOOK_BACK_SECONDS:
            if (past and past[-1].taken_at_unix_seconds <= self.at) or self._stopped:
                break
            first = self._tape.first_unix_seconds
            if first is None or first > self.at:
                break
            # Nothing right before it: a gap, or a file that is read from a moment on exactly.
            past, rest = self._past(max(self.at - back, first - 1.0))
        self.readied = self._readied(past)
        return rest

    def _past(self, begin: float) -> tuple[Sequence[Snapshot], Iterator[Snapshot]]:
        """What was taken until ``at``, and all that comes later."""
        past: deque[Snapshot] = deque(maxlen=FINE_SNAPSHOTS_MOST)
        rest = self._in_order(self._tape.snapshots(begin))
        for snapshot in rest:
            if self._stopped:
                break
            if snapshot.taken_at_unix_seconds > self.at:
                if not past:
                    # Before everything: the first there is.
                    return [snapshot], rest
                return past, _after(snapshot, rest)
            past.append(snapshot)
            last = self._tape.last_unix_seconds
            if self._tape.arriving and last is not None and snapshot.taken_at_unix_seconds >= last:
                # The next one is still to come.
                break
        return past, rest

    def _in_order(self, snapshots: Iterator[Snapshot]) -> Iterator[Snapshot]:
        """A clock that was set back says times again that were there: those are left out."""
        last = float("-inf")
        try:
            for snapshot in snapshots:
                at = snapshot.taken_at_unix_seconds
                if at > last:
                    last = at
                    shown = on_wall_clock(snapshot)
                    notes = self._notes()
                    if notes:
                        shown = replace(shown, problems=shown.problems + notes)
                    yield shown
        except LogError as error:
            self.trouble = str(error)

    def _readied(self, past: Sequence[Snapshot]) -> Readied:
        readied = Readied()
        if not past:
            return readied
        history = readied.history
        begin = self._take_overview(history, past[0].taken_at_unix_seconds)
        readied.from_overview = begin is not None
        readied.watched = self._make_engine is not None
        engine = None
        if self._make_engine is not None and len(past) > 1:
            # At the beginning the first picture does not wait for the rules to be loaded.
            engine = self._make_engine()
        warm = self.at - WARM_UP_SECONDS
        for snapshot in past:
            if self._stopped:
                break
            if begin is None or snapshot.taken_at_unix_seconds > begin:
                history.push(snapshot)
            if engine is None or snapshot.taken_at_unix_seconds < warm:
                continue
            engine.push(snapshot)
            readied.past.append(Shown(snapshot, engine.diagnosis))
        if not readied.past:
            # A gap before it, or nobody diagnoses.
            if engine is not None:
                engine.push(past[-1])
            told = None if engine is None else engine.diagnosis
            readied.past.append(Shown(past[-1], told))
        if history.latest_at is None:
            history.push(past[-1])
        readied.engine = engine
        return readied

    def _take_overview(self, history: History, first: float) -> float | None:
        """Fill in what lies before the snapshot taken at ``first``, by half minutes; the moment up
        to which that was done."""
        done = None
        for bucket in self._tape.buckets:
            begin, end = bucket.begin_unix_seconds, bucket.end_unix_seconds
            if end <= self.at - _REACH_SECONDS or not _is_block(bucket):
                continue
            # The half minute in which the snapshots begin is whole in the overview only.
            if begin >= first or end >= self.at:
                break
            history.take_block(
                begin,
                {uuid: _bands(bands) for uuid, bands in bucket.gpus.items()},
                _bands(bucket.host),
            )
            done = end
        return done


def _after(first: Snapshot, rest: Iterator[Snapshot]) -> Iterator[Snapshot]:
    yield first
    yield from rest


def _is_block(bucket: Bucket) -> bool:
    return bucket.seconds == BLOCK_SECONDS and bucket.begin_unix_seconds % BLOCK_SECONDS == 0


def _bands(bands: Mapping[str, RecordedBand]) -> dict[str, Band]:
    return {name: (band.minimum, band.mean, band.maximum) for name, band in bands.items()}
