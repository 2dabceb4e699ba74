"""State of a recording that is played: what the screen says of it, which recorded moment is due
now, and where the keys for the next and the previous finding lead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.diagnosis.finding import severity_place

if TYPE_CHECKING:
    from gpuwatch.diagnosis.ledger import Episode
    from gpuwatch.recording.buckets import Bucket
    from gpuwatch.recording.replay import Tape


SPEEDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


@dataclass(slots=True)
class ReplayState:
    """State that the player sets, and bar, header and footer read. Times are unix seconds."""

    shown: str
    """The file's name, made safe; ``standard input``."""
    first: float = 0.0
    last: float = 0.0
    """End of what is known so far."""
    now: float = 0.0
    """Time at which what is on the screen was recorded."""
    playing: bool = False
    speed: float = 1.0
    skipping: bool = False
    """Snapshots are left out to keep the speed."""
    undiagnosed: bool = False
    """The diagnosis is left out to keep the speed."""
    seeking: bool = False
    ended: bool = False
    """True if it stands at the end."""
    following: bool = False
    """Snapshots that come in are shown as they come."""
    arriving: bool = False
    """More may come in, of standard input."""
    progress: float = 1.0
    """Share of the file that the overview knows, 0 to 1."""
    buckets: Sequence[Bucket] = ()
    findings: Sequence[Episode] = ()
    drawn: tuple[object, list[tuple[float, float] | None]] | None = None
    """The columns of the bar as they were drawn last, and what of."""

    def show(self, at: float) -> None:
        """Have ``at`` be the moment shown."""
        self.now = at
        self.first, self.last = min(self.first, at), max(self.last, at)
        self.ended = False

    def learn(self, tape: Tape) -> bool:
        """Take over what is known of the tape by now; whether that is more than before."""
        before = self._known()
        if tape.first_unix_seconds is not None:
            self.first = min(self.first, tape.first_unix_seconds)
        if tape.last_unix_seconds is not None:
            self.last = max(self.last, tape.last_unix_seconds)
        self.progress, self.arriving = tape.progress, tape.arriving
        self.buckets, self.findings = tape.buckets, tape.findings
        return before != self._known()

    def _known(self) -> tuple[object, ...]:
        return (self.first, self.last, self.progress, len(self.findings), self.arriving)

    def holding(self, at: float) -> list[Episode]:
        """Findings that held at a moment, the gravest first."""
        spans = [
            span
            for span in self.findings
            if span.begin_unix_seconds <= at
            and (span.end_unix_seconds is None or at <= span.end_unix_seconds)
        ]
        return sorted(spans, key=lambda span: severity_place(span.severity))

    @property
    def seconds(self) -> float:
        return max(0.0, self.last - self.first)

    @property
    def share(self) -> float:
        """Return how far it is, 0 to 1."""
        if self.last <= self.first:
            return 1.0
        return min(1.0, max(0.0, (self.now - self.first) / (self.last - self.first)))


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
        """The recorded moment that is due."""
        begun, at = self._anchor
        return float("inf") if self._state.following else at + (now - begun) * self._state.speed

    def show(self, now: float, at: float) -> None:
        """Have ``at`` be due now."""
        self._anchor = (now, at)


_LEAD_SECONDS = 60.0
"""Time into a finding at which it is shown: by then the diagnosis has said it."""
_SAME_SECONDS = 30.0
"""Distance up to which findings that begin together are gone to together."""


class Stop(NamedTuple):
    at: float
    finding: Episode


def beside(state: ReplayState, at: float, step: int) -> Stop | str:
    """The first stop after ``at`` (1), or the last one before it (-1); else why there is none."""
    # A snapshot lies up to an interval before the moment gone to.
    near = _SAME_SECONDS / 2
    found = stops(state.findings, state.last)
    if step > 0:
        stop = next((stop for stop in found if stop.at > at + near), None)
    else:
        stop = next((stop for stop in reversed(found) if stop.at < at - near), None)
    if stop is not None:
        return stop
    if state.progress < 1.0 and step > 0:
        return f"none so far: {state.progress:.0%} of the recording is read; press again later"
    if not state.findings:
        return f"nothing was found {'so far' if state.arriving else 'in this recording'}"
    return f"no finding begins {'later' if step > 0 else 'before this'}"


def stops(findings: Sequence[Episode], last: float) -> list[Stop]:
    """Return a stop for each finding, in order: a minute into it, or at its end. Those that are
    good to know are stops only where nothing is wrong; those that begin together are one, of the
    gravest."""
    wrong = [span for span in findings if span.severity != "info"] or findings
    found: list[Stop] = []
    for span in sorted(wrong, key=lambda one: one.begin_unix_seconds):
        begin = span.begin_unix_seconds
        end = last if span.end_unix_seconds is None else min(last, span.end_unix_seconds)
        stop = Stop(max(begin, min(begin + _LEAD_SECONDS, end - 1.0)), span)
        if not found or begin - found[-1].finding.begin_unix_seconds > _SAME_SECONDS:
            found.append(stop)
        elif span.severity == "error" != found[-1].finding.severity:
            found[-1] = stop
    return sorted(found, key=lambda stop: stop.at)
