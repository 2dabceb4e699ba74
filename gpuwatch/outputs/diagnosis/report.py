"""A diagnosis with all that is shown beside it."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.jobs.stacks.summary import StackReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A finding that no longer held at the end."""

    finding: Finding
    until_unix_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeen:
    """Summary of one GPU, for a diagnosis that finds nothing."""

    uuid: str
    index: int
    name: str
    readings: int
    busy_percent: float | None = None
    busy_low_percent: float | None = None
    busy_high_percent: float | None = None
    power_watts: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSeen:
    """Origin of the snapshots, and how well it could be read."""

    kind: str
    name: str | None = None
    interval_seconds: float | None = None
    snapshots: int = 0
    seconds: float = 0.0
    """From the first snapshot to the last."""
    started_at_unix_seconds: float | None = None
    lines: int = 0
    other_lines: int = 0
    torn_lines: int = 0
    overlong_lines: int = 0
    unread_values: int = 0
    incomplete_ticks: int = 0
    missing_ticks: int = 0
    clock_jumps: int = 0
    notes: tuple[str, ...] = ()
    simulated: bool = False

    @property
    def is_file(self) -> bool:
        return self.kind not in {"live", "simulated"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisReport:
    """A diagnosis and all that is shown with it."""

    diagnosis: Diagnosis
    source: SourceSeen
    gpus: tuple[GpuSeen, ...] = ()
    ended: tuple[Ended, ...] = ()
    stacks: tuple[StackReport, ...] = ()
    problem: str | None = None
    """Why there is no GPU, where there is none."""

    @property
    def found(self) -> bool:
        return bool(self.diagnosis.findings or self.ended)

    @property
    def decided(self) -> bool:
        return self.diagnosis.decided and any(gpu.readings for gpu in self.gpus)

    @property
    def verdict(self) -> str:
        """The headline sentence."""
        if self.diagnosis.findings:
            return self.diagnosis.verdict
        if self.ended:
            worst = self.ended[0].finding
            return f"Nothing was wrong at the end; earlier: {worst.summary}"
        if not self.gpus:
            return self.problem or "There was no GPU to look at."
        if not self.decided and self.diagnosis.decided:
            return "Idle GPUs cannot be diagnosed: no utilisation was read."
        return self.diagnosis.verdict
