"""Snapshots in, a ``Summary`` out: one pass, in memory that does not grow with the time."""

from __future__ import annotations

from gpuwatch.core.history import without_late
from gpuwatch.core.model import GpuKey, Snapshot
from gpuwatch.diagnosis.engine.engine import Engine
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.jobs.report.time_profile import Grid
from gpuwatch.outputs.summary.gpu_sum import GpuSum
from gpuwatch.outputs.summary.host_sum import HostSum
from gpuwatch.outputs.summary.model import FileSeen, Summary
from gpuwatch.outputs.summary.spans import Spans
from gpuwatch.outputs.summary.timeline import Step, Timeline
from gpuwatch.outputs.summary.usage import Uses

BUCKETS = 480
"""Twelve hours in buckets of about two minutes: as fine as a page shows them."""
EVALUATE_SECONDS = 5.0
"""The diagnosis looks at windows of a minute; more often would tell no more and takes longer."""
GPUS_KEPT = 256
PROBLEMS_KEPT = 12


class Summer:
    """Push every snapshot, then ask for the summary once."""

    def __init__(self) -> None:
        self._timeline = Timeline()
        self._grid: Grid | None = None
        self._host: HostSum | None = None
        self._gpus: dict[GpuKey, GpuSum] = {}
        self._uses = Uses()
        self._spans = Spans()
        self._engine = Engine(evaluate_seconds=EVALUATE_SECONDS)
        self._diagnosis: Diagnosis | None = None
        self._problems: dict[str, None] = {}
        self._last: Snapshot | None = None
        self._step: Step | None = None
        self._simulated = False
        self.snapshots = 0

    def push(self, snapshot: Snapshot) -> None:
        step = self._timeline.step(snapshot)
        if self._grid is None or self._host is None:
            self._grid = Grid(step.since, BUCKETS)
            self._host = HostSum(self._grid)
        self._grid.reach(step.until)
        self.snapshots += 1
        self._simulated = self._simulated or snapshot.simulated
        self._last = snapshot
        self._host.add(snapshot.host, step)
        present = {gpu.uuid: gpu for gpu in without_late(snapshot.gpus)}
        for uuid, gpu in present.items():
            if uuid not in self._gpus and len(self._gpus) < GPUS_KEPT:
                self._gpus[uuid] = GpuSum(gpu, self._grid, step.until)
        for uuid, recorder in self._gpus.items():
            recorder.add(present.get(uuid), step)
        self._uses.add(snapshot, step)
        self._note_problems(snapshot)
        self._engine.push(snapshot)
        self._note_diagnosis(step)
        self._step = step

    def _note_diagnosis(self, step: Step) -> None:
        begin, diagnosis = self._timeline.begin, self._engine.diagnosis
        if diagnosis is not self._diagnosis and begin is not None:
            self._diagnosis = diagnosis
            self._spans.add(diagnosis, step.until, begin, step.offset)

    def _note_problems(self, snapshot: Snapshot) -> None:
        for problem in snapshot.problems:
            if problem.severity != "info" and len(self._problems) < PROBLEMS_KEPT:
                self._problems[problem.message] = None
            recorder = self._gpus.get(problem.target or "")
            if recorder is not None and problem.reading in ("busy_percent", "busy_samples", None):
                recorder.note_missing(problem.message)

    def summary(self, file: FileSeen, *, pid: int | None = None) -> Summary:
        """Raises ``ValueError`` if there was no snapshot."""
        last, grid, host, timeline = self._last, self._grid, self._host, self._timeline
        step = self._step
        if last is None or grid is None or host is None or step is None or timeline.begin is None:
            raise ValueError("no snapshot was pushed")
        self._engine.finish()
        self._note_diagnosis(step)
        gpus = [recorder.summary(timeline.end) for recorder in self._gpus.values()]
        gpus.sort(key=lambda gpu: (gpu.identity.index, _instance(gpu.identity.mig_instance)))
        diagnosis = self._diagnosis
        return Summary(
            file=file,
            machine=last.host.name,
            simulated=self._simulated,
            begin_unix_seconds=timeline.begin,
            end_unix_seconds=timeline.end,
            snapshots=self.snapshots,
            interval_seconds=last.interval_seconds or None,
            covered_seconds=timeline.covered,
            gap_count=timeline.gap_count,
            gap_seconds=timeline.gap_seconds,
            gaps=timeline.gaps,
            clock_set_back=timeline.set_back,
            course_seconds=grid.seconds,
            pid=pid,
            decided=diagnosis is not None and diagnosis.decided,
            gpus=tuple(gpus),
            host=host.summary(timeline.end),
            findings=self._spans.uses(timeline.end),
            not_told=() if diagnosis is None else diagnosis.unknown,
            jobs=self._uses.jobs(),
            told_seconds=self._uses.told_seconds,
            processes=self._uses.processes(),
            left_out_processes=self._uses.left_out,
            problems=tuple(self._problems),
        )


def _instance(number: int | None) -> int:
    return -1 if number is None else number
