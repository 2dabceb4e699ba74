"""A moment of a tape with the past that a live screen would have had then, and what follows it.

What a screen at that moment shows of its past is read from the recording: the last minutes snapshot
by snapshot, what lies before them from the overview, by half minutes. The engine has watched what
came before too. All of it happens on a thread, which then reads ahead.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from gpuwatch.core.history import BLOCK_SECONDS, History
from gpuwatch.core.model import Problem, Snapshot
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.recording.replay import Tape, on_wall_clock, share
from gpuwatch.sources.files.log_text import LogError
from gpuwatch.tui.controllers.diagnosis import Diagnoser

WARM_UP_SECONDS = 120.0
"""The engine looks at windows of a minute, and holds what it finds against flapping."""
FINE_MOST_SECONDS = 900.0
FINE_SNAPSHOTS_MOST = 400
"""About two seconds of reading; what is older comes from the overview."""
_LOOK_BACK_SECONDS = (600.0, 7200.0, float("inf"))
_REACH_SECONDS = 12 * 3600.0
"""The longest range of the charts."""
_PAST_KEPT = 128
_AHEAD = 64
_WAIT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Shown:
    snapshot: Snapshot
    diagnosis: Diagnosis | None


@dataclass(slots=True)
class Readied:
    """The past with which the screen begins."""

    history: History = field(default_factory=History)
    engine: Diagnoser | None = None
    past: list[Shown] = field(default_factory=list)
    """Up to the moment itself; the last is shown. Empty where nothing can be read."""
    from_overview: bool = False
    """Some of the past is by half minutes."""
    watched: bool = False
    """It is diagnosed; without an engine from the next snapshot on."""


class Cue:
    """Readies ``at`` on a thread, calls ``ready``, then reads ahead. ``light``: without a past or a
    diagnosis."""

    def __init__(
        self,
        tape: Tape,
        at: float,
        fine_seconds: float,
        make_engine: Callable[[], Diagnoser] | None,
        ready: Callable[[], object],
        *,
        light: bool,
    ) -> None:
        self.at = at
        self.light = light
        self.fine_seconds = min(FINE_MOST_SECONDS, max(WARM_UP_SECONDS, fine_seconds * 1.1))
        """How much of the past is read snapshot by snapshot."""
        self.readied: Readied | None = None
        """Once it is there."""
        self._tape = tape
        self._make_engine = None if light else make_engine
        self._on_ready = ready
        self._trouble: str | None = None
        self._error: BaseException | None = None
        self._stopped = self._read_all = False
        self._room = threading.Condition()
        self._ahead: deque[Snapshot] = deque()
        self._past: deque[Shown] = deque(maxlen=_PAST_KEPT)
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

    def begin(self, readied: Readied) -> None:
        """Show the last of what was readied."""
        self._past.extend(readied.past)
        self._place = len(self._past) - 1

    @property
    def shown(self) -> Shown:
        return self._past[self._place]

    @property
    def coming(self) -> Snapshot | None:
        if self._place + 1 < len(self._past):
            return self._past[self._place + 1].snapshot
        return self._ahead[0] if self._ahead else None

    @property
    def ended(self) -> bool:
        """Nothing comes any more."""
        return self._read_all and not self._ahead

    def forward(self, advance: Callable[[Snapshot], Shown]) -> None:
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
            self.readied = self.readied or Readied()
            self._read_all = True
            self._call()

    def _call(self) -> None:
        # The loop that is told may have ended.
        with contextlib.suppress(RuntimeError):
            self._on_ready()

    def _begin(self) -> Iterator[Snapshot]:
        begin = self.at - (0.0 if self.light else self._seconds_to_read())
        past, rest = self._read_from(begin - begin % BLOCK_SECONDS)
        for back in _LOOK_BACK_SECONDS:
            if (past and past[-1].taken_at_unix_seconds <= self.at) or self._stopped:
                break
            first = self._tape.first_unix_seconds
            if first is None or first > self.at:
                break
            # Nothing right before it: a gap, or a file that is read from a moment on exactly.
            past, rest = self._read_from(max(self.at - back, first - 1.0))
        self.readied = self._readied(past) if past else Readied()
        return rest

    def _seconds_to_read(self) -> float:
        """No more of the past than is kept."""
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
        """A clock that was set back repeats times that were there: those are left out."""
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

    def _readied(self, past: Sequence[Snapshot]) -> Readied:
        readied = Readied(watched=self._make_engine is not None)
        history = readied.history
        begin = self._take_overview(history, past[0].taken_at_unix_seconds)
        readied.from_overview = begin is not None
        engine = None
        if self._make_engine is not None and len(past) > 1:
            # At the beginning the first picture does not wait for the rules to be loaded.
            engine = readied.engine = self._make_engine()
        warm = self.at - WARM_UP_SECONDS
        for snapshot in past:
            if self._stopped:
                break
            if begin is None or snapshot.taken_at_unix_seconds > begin:
                history.push(snapshot)
            if engine is not None and snapshot.taken_at_unix_seconds >= warm:
                engine.push(snapshot)
                readied.past.append(Shown(snapshot, engine.diagnosis))
        if not readied.past:
            # A gap before it, or nobody diagnoses.
            if engine is not None:
                engine.push(past[-1])
            readied.past.append(Shown(past[-1], None if engine is None else engine.diagnosis))
        if history.latest_at is None:
            history.push(past[-1])
        return readied

    def _take_overview(self, history: History, first: float) -> float | None:
        """Fill in what lies before the snapshot taken at ``first``, by half minutes; the moment up
        to which that was done."""
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
