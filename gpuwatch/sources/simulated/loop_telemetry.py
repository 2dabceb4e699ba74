"""Reports of simulated ranks on their own loop, as ``gpuwatch.torch`` would make them."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.core.model import ProcessKey, TrainingLoop

WINDOW_SECONDS = 10.0
KEPT = 1024
"""Entries: a window of steps of a hundredth of a second."""
ALLOCATED_SHARE, RESERVED_SHARE, PEAK_SHARE = 0.74, 0.93, 0.9
"""Of the memory its process holds on the GPU: the rest is the CUDA context and what the allocator
keeps for the next step."""


class Entry(NamedTuple):
    """A step, or a pause in training; ``waited``, ``copied`` and ``computed`` are seconds of it."""

    begin: float
    end: float
    kind: str = "train"
    waited: float = 0.0
    copied: float = 0.0
    computed: float = 0.0
    step: int = 0
    """How many there have been, this one included."""


@dataclass
class Diary:
    """One rank's.

    Nothing ahead of the moment asked for is reported, so that how often it is read changes
    nothing. What goes on then is reported up to it: a wait that lasts counts while it lasts.
    """

    batch_samples: int
    steps_an_epoch: int

    def __post_init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._begun = Entry(0.0, 0.0)
        self._work_at = 0.0
        self._steps = 0

    def add(self, entry: Entry) -> None:
        """A pause: validation or a checkpoint."""
        self._entries.append(entry._replace(step=self._steps))

    def begin_step(self, asked: float, *, waited: float, copied: float, before: float) -> None:
        """``before``: how much of the copy comes before the compute rather than beside it."""
        self._begun = Entry(asked, asked, waited=waited, copied=copied)
        self._work_at = asked + waited + before

    def end_step(self, end: float) -> None:
        """Its last kernel, the collective's included, has ended; it computed since the copy."""
        self._steps += 1
        computed = end - self._work_at
        self._entries.append(self._begun._replace(end=end, computed=computed, step=self._steps))

    def report(
        self, key: ProcessKey, now: float, unix_at_zero: float, *, workers: int, pinned: bool,
        memory_bytes: int | None,
    ) -> TrainingLoop | None:  # fmt: skip
        """``None`` before its first step has ended."""
        entries = [entry for entry in self._entries if entry.end <= now]
        if not entries:
            return None
        last = entries[-1]
        recent = [entry for entry in entries if entry.end > last.end - WINDOW_SECONDS]
        first, rate = recent[0].begin, _rate(recent, now)
        reported_at = last.end
        going = self._going_on(now)
        if going is not None:
            recent.append(going)
            waits = going.kind == "train" and going.waited >= going.end - going.begin
            reported_at = (
                going.begin if waits or going.kind != "train" else going.begin + going.waited
            )
        seconds = recent[-1].end - first
        in_epoch = (last.step - 1) % self.steps_an_epoch + 1 if last.step else 0

        def share(spans: Iterable[float]) -> float:
            return round(min(1.0, sum(spans) / seconds), 4)

        return TrainingLoop(
            pid=key[0],
            started_at_unix_seconds=key[1],
            window_seconds=round(seconds, 3),
            steps=last.step,
            steps_per_second=round(rate, 3),
            samples_per_second=round(rate * self.batch_samples, 1),
            data_wait_share=share(entry.waited for entry in recent),
            copy_share=share(entry.copied for entry in recent),
            compute_share=share(entry.computed for entry in recent),
            compute_on_device=True,
            phase="train" if going is None else going.kind,
            validation_share=share(_lasted(recent, "validation")),
            checkpoint_share=share(_lasted(recent, "checkpoint")),
            epoch=max(0, last.step - 1) // self.steps_an_epoch,
            step_in_epoch=in_epoch,
            steps_in_epoch=self.steps_an_epoch,
            batch_size=self.batch_samples,
            loader_workers=workers,
            pinned_memory=pinned,
            memory_allocated_bytes=_part(memory_bytes, ALLOCATED_SHARE),
            memory_reserved_bytes=_part(memory_bytes, RESERVED_SHARE),
            memory_peak_bytes=_part(memory_bytes, PEAK_SHARE),
            reported_at_unix_seconds=round(unix_at_zero + reported_at, 3),
        )

    def _going_on(self, now: float) -> Entry | None:
        """The entry it is in, as far as it has come; kernels are measured at their end."""
        entry = next((one for one in self._entries if one.begin < now < one.end), None)
        if entry is None:
            return None
        so_far = now - entry.begin
        waited = min(entry.waited, so_far)
        copied = min(entry.copied, so_far - waited)
        return entry._replace(end=now, waited=waited, copied=copied, computed=0.0)


def _rate(recent: Sequence[Entry], now: float) -> float:
    """Steps a second, from step to step; less and less once the next is overdue."""
    steps = sum(entry.kind == "train" for entry in recent)
    seconds = recent[-1].end - recent[0].begin
    if not steps:
        return 0.0
    overdue = max(0.0, now - recent[-1].end - seconds / steps)
    return steps / (seconds + overdue)


def _lasted(entries: Iterable[Entry], kind: str) -> Iterable[float]:
    return (entry.end - entry.begin for entry in entries if entry.kind == kind)


def _part(total: int | None, share: float) -> int | None:
    return None if total is None else int(total * share)
