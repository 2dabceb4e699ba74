"""The report of a job: fed with every snapshot, kept when the job has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuwatch.core.model import ProcessKey, Snapshot
from gpuwatch.core.text import clean
from gpuwatch.tui.controllers.following import find, has_ended

if TYPE_CHECKING:
    from gpuwatch.diagnosis.finding import Diagnosis
    from gpuwatch.outputs.report.model import Report
    from gpuwatch.outputs.report.recorder import JobRecorder
    from gpuwatch.outputs.report.store import ReportStore

NOTHING_YET = "nothing to report yet: this job has not been seen"


class JobReportKeeper:
    """Follows one job at a time. ``store`` is where reports are kept (by default the user's),
    ``command`` how the only one was started."""

    def __init__(self, store: ReportStore | None = None, command: str | None = None) -> None:
        self._command = command
        self._store = store
        self._recorder: JobRecorder | None = None
        self._key: ProcessKey | None = None
        self._ended_at: float | None = None
        """Monotonic time at which it was first seen to have ended."""
        self._final: Report | None = None
        self._kept = False
        self._before: Report | None = None
        """The run before this one."""
        self._exit_code: int | None = None
        self._written: tuple[int, bool, Report, Sequence[str]] | None = None

    @property
    def ended(self) -> bool:
        return self._final is not None

    def push(
        self, key: ProcessKey | None, snapshot: Snapshot, diagnosis: Diagnosis | None = None
    ) -> str | None:
        """Take a snapshot of which ``key`` is the job looked at, and the newest ``diagnosis``; what
        is to be said of it, if anything."""
        if key is None:
            return None
        says = self._turn_to(key, snapshot)
        recorder = self._recorder
        assert recorder is not None
        recorder.push(snapshot, diagnosis)
        if not recorder.ended:
            self._final, self._ended_at = None, None
            return says
        return self._end(recorder, snapshot) or says

    def note_diagnosis(self, diagnosis: Diagnosis | None) -> None:
        """Take the newest diagnosis, while the job runs."""
        if self._recorder is not None and self._final is None:
            self._recorder.note_diagnosis(diagnosis)

    def report(self) -> Report | None:
        """Of the job so far, or of the whole of one that has ended."""
        if self._final is not None:
            return self._final
        if self._recorder is None or not self._recorder.seen:
            return None
        return self._recorder.report()

    def lines(self, width: int, unicode: bool) -> Sequence[str]:
        """The report as text; of a job that has ended it is written once for each width."""
        report = self.report()
        if report is None:
            return (NOTHING_YET,)
        if self._written is not None and self._written[:3] == (width, unicode, report):
            return self._written[3]
        from gpuwatch.outputs.report.text import report_text  # noqa: PLC0415

        text = report_text(
            report, width=width, colour=False, unicode=unicode, previous=self._previous(report)
        )
        lines = tuple(clean(line) for line in text.splitlines())
        self._written = (width, unicode, report, lines)
        return lines

    def note_exit(self, code: int | None) -> str | None:
        """How a job that gpuwatch started has ended: the snapshots do not know."""
        if code is None or code == self._exit_code:
            return None
        self._exit_code = code
        if self._final is not None and self._final.exit_code is None:
            self._final = self._final.with_end(exit_code=code)
            return self._keep() if self._kept else None
        return None

    def end_at(self, unix_seconds: float, code: int) -> None:
        """The job is known to have ended although no snapshot says so yet, and none will come."""
        recorder = self._recorder
        if self._final is None and recorder is not None and recorder.seen:
            self._final = recorder.report().with_end(unix_seconds, exit_code=code)

    def end_here(self) -> None:
        """Nobody watches the job any further: its report so far is all there may be of it."""
        if self._final is None:
            self._final = self.report()

    def close(self) -> str | None:
        """Keep the report of a job that ended a moment ago."""
        return None if self._final is None or self._kept else self._keep()

    def _turn_to(self, key: ProcessKey, snapshot: Snapshot) -> str | None:
        if key == self._key and self._recorder is not None:
            return None
        before = self._recorder
        job = find(snapshot.jobs, self._key)
        still = job is not None and find((job,), key) is not None and not has_ended(job)
        if before is not None and not before.ended and still:
            # Its launcher was found, or ended: the same job by another name.
            self._key = key
            return None
        says = self.close()
        self._before, self._final = self._final, None
        self._key, self._kept, self._ended_at, self._exit_code = key, False, None, None
        from gpuwatch.outputs.report.recorder import JobRecorder  # noqa: PLC0415

        self._recorder = JobRecorder(key, command=self._command)
        return says

    def _end(self, recorder: JobRecorder, snapshot: Snapshot) -> str | None:
        """The report at once; kept once the driver's last samples have come."""
        from gpuwatch.outputs.report.recorder import LATE_SECONDS  # noqa: PLC0415

        now = snapshot.monotonic_seconds
        if self._ended_at is None:
            self._ended_at = now
        late = now - self._ended_at <= LATE_SECONDS
        if self._final is None or (late and not self._kept):
            self._final = report = recorder.report()
            if report.exit_code is None and self._exit_code is not None:
                self._final = report.with_end(exit_code=self._exit_code)
        return None if late or self._kept else self._keep()

    def _keep(self) -> str | None:
        report = self._final
        self._kept = True
        if report is None or report.simulated:
            return None
        from gpuwatch.outputs.report.store import StoreError  # noqa: PLC0415

        try:
            path = self._reports().save(report)
        except StoreError as error:
            return str(error)
        return f"the report is saved in {clean(str(path))}"

    def _previous(self, report: Report) -> Report | None:
        """The run to compare with: the one just watched, else the last that was kept."""
        before = self._before
        if before is not None and before.run_digest == report.run_digest is not None:
            return before
        if report.simulated:
            return None
        from gpuwatch.outputs.report.store import StoreError  # noqa: PLC0415

        try:
            return self._reports().previous_run(report)
        except StoreError:
            return None

    def _reports(self) -> ReportStore:
        if self._store is None:
            from gpuwatch.outputs.report.store import ReportStore  # noqa: PLC0415

            self._store = ReportStore()
        return self._store
