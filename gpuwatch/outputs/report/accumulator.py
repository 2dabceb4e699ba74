"""Accumulator of a ``Report``: from snapshots, or from the parts of a recording, in one pass and in
memory that does not grow with the time.

What adds up is counted by ``recording/statistics.py``, and what was found is in the ledger;
``figures.py`` makes the report of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpuwatch.core.model import Gpu, GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis, Unchecked
from gpuwatch.diagnosis.ledger import Ledger, Page
from gpuwatch.recording.statistics import Part, Statistics, TimeSums

if TYPE_CHECKING:
    from gpuwatch.diagnosis.engine import Engine
    from gpuwatch.outputs.report.model import Report, Source

EVALUATE_SECONDS = 5.0
"""Time between two evaluations: the diagnosis looks at windows of a minute, and more often would
find no more and take longer."""


class Accumulator:
    """Push every snapshot, ask for the report at any time."""

    def __init__(
        self,
        job: ProcessKey | None = None,
        *,
        live: bool = False,
        diagnoses: bool = True,
        evaluate_seconds: float = EVALUATE_SECONDS,
        newest: bool = False,
    ) -> None:
        """``job``: the report is about this job alone. ``live``: watched as it runs, by one who
        diagnoses it and says so (``note_diagnosis``); without the machine, other processes, and
        all that is drawn in HTML only. ``diagnoses``: else somebody has (``note_ledger``)."""
        self._job = job
        self._statistics = Statistics(job, live=live)
        self.engine: Engine | None = None
        if diagnoses and not live:
            # Slow to import.
            from gpuwatch.diagnosis.engine import Engine  # noqa: PLC0415

            self.engine = Engine(evaluate_seconds=evaluate_seconds)
        self._newest = newest
        self._ledger = Ledger(newest=newest)
        self._diagnosis: Diagnosis | None = None
        self._unknown: tuple[Unchecked, ...] | None = None
        """Rules that could not be checked last; ``None``: nothing was diagnosed."""

    @property
    def held(self) -> frozenset[GpuKey]:
        """GPUs in the last snapshot."""
        return self._statistics.there

    @property
    def time(self) -> TimeSums:
        """The time so far."""
        return self._statistics.time

    def push(self, snapshot: Snapshot) -> None:
        self._statistics.add_snapshot(snapshot)
        self._diagnose(snapshot)

    def push_job(
        self, snapshot: Snapshot, job: Job, gpus: Sequence[Gpu], since: float | None = None
    ) -> None:
        """Take the next snapshot of the job, which is on ``gpus``, and began at ``since`` if that
        was after the look before."""
        self._statistics.add_job(snapshot, job, gpus, since)
        self._diagnose(snapshot)

    def push_late(self, gpus: Iterable[Gpu], job: Job) -> None:
        """Take fine samples of the time before the end of the job, and nothing else."""
        self._statistics.add_late(gpus, job)

    def _diagnose(self, snapshot: Snapshot) -> None:
        if self.engine is not None:
            self.engine.push(snapshot)
            self.note_diagnosis(self.engine.diagnosis)

    def note_diagnosis(self, diagnosis: Diagnosis) -> None:
        """Take the diagnosis of the newest snapshot, or of one a moment before."""
        step = self._statistics.latest
        if diagnosis is self._diagnosis or step is None:
            return
        if self._diagnosis is None:
            # Whoever diagnoses may have watched before this report began.
            begin = (self._statistics.time.begin or 0.0) + step.offset
            self._ledger.leave_out_before(begin, diagnosis)
        self._diagnosis, self._unknown = diagnosis, diagnosis.unknown
        self._ledger.add_diagnosis(diagnosis, step.until, step.offset)

    def merge_part(self, part: Part) -> None:
        """Add a part of a recording, which comes after all before."""
        self._statistics.merge(part)

    def note_ledger(self, page: Page, unknown: tuple[Unchecked, ...] | None) -> None:
        """Take what was found by whoever recorded what was added."""
        self._ledger.merge(page)
        self._unknown = unknown

    def report(self, source: Source | None = None) -> Report:
        """Return the report so far. Raises ``ValueError`` if there was no snapshot."""
        if self._statistics.grid is None:
            raise ValueError("no snapshot was pushed")
        if self.engine is not None:
            self.engine.finish()
            self.note_diagnosis(self.engine.diagnosis)
        # Slow to import, where a dashboard records jobs of which nobody may want a report.
        from gpuwatch.outputs.report.figures import report_of  # noqa: PLC0415

        about_job = self._job is not None
        found = self._ledger, self._unknown
        return report_of(
            self._statistics, *found, about_job=about_job, newest=self._newest, source=source
        )
