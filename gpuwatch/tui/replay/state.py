"""What the screen tells of a recording that is played: where we are, how fast, what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwatch.recording.buckets import Bucket, FindingSpan
    from gpuwatch.recording.replay import Tape

SPEEDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


@dataclass(slots=True)
class ReplayState:
    """Set by the player; the bar, the header and the footer read it. Times are unix seconds."""

    shown: str
    """The file's name, made safe; ``standard input``."""
    first: float = 0.0
    last: float = 0.0
    """Of what is known so far."""
    now: float = 0.0
    """When what is on the screen was recorded."""
    playing: bool = False
    speed: float = 1.0
    real_speed: float | None = None
    """Where ``speed`` cannot be kept."""
    skipping: bool = False
    """Snapshots are left out to keep the speed."""
    undiagnosed: bool = False
    """The diagnosis is left out to keep the speed."""
    seeking: bool = False
    ended: bool = False
    """It stands at the end."""
    following: bool = False
    """What comes in is shown as it comes."""
    arriving: bool = False
    """More may come in, of standard input."""
    progress: float = 1.0
    """How much of the file the overview knows, 0 to 1."""
    buckets: Sequence[Bucket] = ()
    findings: Sequence[FindingSpan] = ()
    prompt: str | None = None
    """The time to go to, while it is typed."""
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

    @property
    def seconds(self) -> float:
        return max(0.0, self.last - self.first)

    @property
    def share(self) -> float:
        """How far it is, 0 to 1."""
        if self.last <= self.first:
            return 1.0
        return min(1.0, max(0.0, (self.now - self.first) / (self.last - self.first)))
