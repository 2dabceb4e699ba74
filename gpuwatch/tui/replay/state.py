"""What the screen tells of a recording that is played: where we are, how fast, what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.recording.buckets import Bucket, FindingSpan

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

    @property
    def seconds(self) -> float:
        return max(0.0, self.last - self.first)

    @property
    def share(self) -> float:
        """How far it is, 0 to 1."""
        if self.last <= self.first:
            return 1.0
        return min(1.0, max(0.0, (self.now - self.first) / (self.last - self.first)))
