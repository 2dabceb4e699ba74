"""What a job tells of its own training loops, followed from snapshot to snapshot."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from gpuwatch.core.model import TrainingLoop
from gpuwatch.diagnosis.facts.window import LoopFacts
from gpuwatch.diagnosis.signals.running import RunningMeans

PHASES_KEPT = 512
"""Changes of phase, two for each pause: the 15 minutes of which pauses are remembered."""
PAUSE_SHARE = 0.3
"""Of a pause: the phase is seen once a snapshot, the pause with the driver's fine samples."""
PAUSES = ("checkpoint", "validation")


class LoopTrack:
    """One rank's."""

    def __init__(self, keep_seconds: float) -> None:
        self._means = RunningMeans(4, keep_seconds)
        self._last: TrainingLoop | None = None

    def push(self, loop: TrainingLoop, at: float, seconds: float) -> None:
        self._last = loop
        # However long ago it told last: what is told is counted up to now, and a wait that lasts
        # is what there is to be seen.
        if loop.phase in {None, "train"}:
            row = (
                loop.data_wait_share,
                loop.copy_share,
                loop.compute_share,
                loop.samples_per_second,
            )
            self._means.add(at, row, seconds)

    def facts(self, since: float) -> LoopFacts | None:
        """``None`` before it has told anything after ``since``."""
        last = self._last
        mean = self._means.over(since)
        if last is None or mean.watched_seconds <= 0.0:
            return None
        return LoopFacts(
            data_wait_share=mean[0],
            copy_share=mean[1],
            compute_share=mean[2],
            compute_on_device=last.compute_on_device,
            samples_per_second=mean[3],
            phase=last.phase,
            memory_allocated_bytes=last.memory_allocated_bytes,
            memory_reserved_bytes=last.memory_reserved_bytes,
        )


class PhaseTrack:
    """What the job as a whole does: while one rank saves, the others wait for it."""

    def __init__(self) -> None:
        self._since: deque[tuple[float, str | None]] = deque(maxlen=PHASES_KEPT)
        self._until = 0.0

    def push(self, loops: Sequence[TrainingLoop], at: float, seconds: float) -> None:
        """As it was in the ``seconds`` up to ``at``."""
        if not loops and not self._since:
            return
        told = [loop.phase for loop in loops]
        phase = next((one for one in PAUSES if one in told), None)
        if phase is None and "train" in told:
            phase = "train"
        if not self._since or self._since[-1][1] != phase:
            self._since.append((at - seconds, phase))
        self._until = at

    def pauses(self, since: float) -> list[tuple[float, float]]:
        """Begin and end of those that are over and ended after ``since``: where no GPU shows
        them, as exactly as snapshots come."""
        return [
            (begin, end)
            for (begin, phase), (end, _) in pairwise(self._since)
            if phase in PAUSES and end > since
        ]

    def between(self, begin: float, end: float) -> str | None:
        """The pause that was told in a good part of that time, else ``train`` if that was."""
        spent: dict[str | None, float] = {}
        until = self._until
        for since, phase in reversed(self._since):
            spent[phase] = spent.get(phase, 0.0) + max(0.0, min(end, until) - max(begin, since))
            if since <= begin:
                break
            until = since
        least = PAUSE_SHARE * (end - begin)
        for phase in PAUSES:
            if spent.get(phase, 0.0) >= least > 0.0:
                return phase
        return "train" if spent.get("train", 0.0) >= 0.5 * (end - begin) else None
