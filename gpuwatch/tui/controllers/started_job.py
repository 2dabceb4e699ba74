"""A job that gpuwatch started: its output, its end; and one to practise with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.core.model import Job, ProcessKey, Snapshot
from gpuwatch.core.text import clean
from gpuwatch.tui.controllers.controller import Controller
from gpuwatch.tui.controllers.diagnosis import DiagnosisController
from gpuwatch.tui.controllers.following import find
from gpuwatch.tui.controllers.job_report import JobReportKeeper
from gpuwatch.tui.display import Display
from gpuwatch.tui.keys import PRACTICE_KEYS

if TYPE_CHECKING:
    from gpuwatch.diagnosis.finding import Diagnosis
    from gpuwatch.jobs.launch.output import OutputTail
    from gpuwatch.jobs.launch.runner import RunningJob
    from gpuwatch.outputs.experiment.log import ExperimentLog
    from gpuwatch.outputs.report.store import ReportStore
    from gpuwatch.practice.control import Practice
    from gpuwatch.tui.screens.dialogs.dialog import Dialog

POLL_SECONDS = 0.25
"""Of output that comes in: soon enough to read along."""
_INTERRUPTED = 130
"""As a shell has it for Ctrl-C."""


class StartedJob(Controller):
    """The job that the dashboard was started for, whichever job is looked at."""

    def __init__(
        self,
        display: Display,
        job: RunningJob,
        reports: ReportStore | None,
        experiment: ExperimentLog | None = None,
    ) -> None:
        super().__init__(display)
        self._experiment = experiment
        self.key = job.key
        self.report = JobReportKeeper(reports, job.command)
        self._job = job
        self._names: set[ProcessKey] = {job.key}
        self._tail: OutputTail | None = None
        self._read_whole = False
        """All that it printed before it ended."""
        self._quits_when_ended = False
        """The person pressed Ctrl-C: what they wanted is to be done with it."""
        self._question: Dialog | None = None
        """What shall become of it, while that is asked."""
        if job.output_path is not None:
            from gpuwatch.jobs.launch.output import OutputTail  # noqa: PLC0415

            self._tail = OutputTail(job.output_path)
            self.view.job.output = self._tail
            self.view.job.output_name = clean(str(job.output_path))

    def start(self) -> None:
        self.display.app.set_interval(POLL_SECONDS, self._follow_output)

    def is_in(self, job: Job | None) -> bool:
        """True if ``job`` is the one that was started: while it lives its first process says so."""
        if job is None:
            return False
        if job.key not in self._names and find((job,), self._job.key) is not None:
            self._names.add(job.key)
        return job.key in self._names

    def follow(self, snapshot: Snapshot, diagnosis: Diagnosis | None) -> None:
        """Keep its report, also while another job is looked at: one is expected at its end.
        ``diagnosis``: of the snapshot before."""
        # Negative for the signal that ended it; ``None``: it runs.
        code = self._job.poll()
        if self._experiment is not None and code is None:
            for sentence in self._experiment.push(snapshot, diagnosis):
                self.display.say(sentence)
        self.view.job.exit_code = code if self.is_in(self.view.job.last) else None
        for message in (
            self.report.note_exit(code),
            self.report.push(self.key, snapshot, diagnosis),
        ):
            if message is not None:
                self.display.say(message)

    def close(self) -> None:
        code, at = self._job.poll(), self._job.ended_at_unix_seconds
        if code is not None and at is not None:
            self.report.end_at(at, code)
        else:
            self.report.end_here()
        if self._tail is not None:
            self._tail.close()
        self.report.close()

    def _follow_output(self) -> None:
        """Show what it printed; quit once it has ended, if the person asked for that."""
        size = self.display.app.size
        self._job.resize(max(20, size.width - 2), max(4, size.height // 4))
        if self._read_output():
            self.display.redraw_output()
        if self._job.poll() is None:
            return
        if self._quits_when_ended:
            self._exit()
        elif self._question is not None:
            # Nothing is left to decide.
            self._question.dismiss("stay")
            self.display.answer("the job has ended: q quits")

    def _read_output(self) -> bool:
        """Take what it printed since; whether there is anything new to show."""
        tail, job = self._tail, self._job
        if tail is None:
            return False
        came = tail.poll()
        if came or self._read_whole or job.poll() is None or not job.output_complete:
            return came
        self._read_whole = True
        if job.missed_input:
            from gpuwatch.jobs.launch.runner import NO_INPUT  # noqa: PLC0415

            tail.say(NO_INPUT)
        return job.missed_input

    def _exit(self) -> None:
        """Quit with its exit code as a shell has it: 128 and more for a signal."""
        code = self._job.poll() or 0
        self.display.app.exit(None, code if code >= 0 else 128 - code)

    # -- keys -------------------------------------------------------------------------------------

    def action_interrupt(self) -> None:
        """Ctrl-C is meant for the job."""
        if self._job.poll() is not None:
            self._exit()
        else:
            self._quits_when_ended = True
            self.display.answer(self._job.stop_step())

    def action_quit(self) -> None:
        """Quit; while it runs, ask what shall become of it."""
        if self._job.poll() is not None:
            self._exit()
            return
        from gpuwatch.tui.screens.dialogs.texts import leave_job_dialog  # noqa: PLC0415

        def decided(answer: str | None) -> None:
            self._question = None
            if answer == "leave":
                self.display.app.exit()
            elif answer == "interrupt":
                self.action_interrupt()

        ends = self._job.ends_with_gpuwatch
        self._question = leave_job_dialog(self.view, self._job.command, ends=ends)
        self.display.show(self._question, decided)


class PracticeController(Controller):
    """A key turns the knobs of a practice job. Whoever started that ends it once the dashboard is
    left, so nothing is asked."""

    keys = PRACTICE_KEYS

    def __init__(
        self, display: Display, practice: Practice, diagnosis: DiagnosisController
    ) -> None:
        super().__init__(display)
        self.view.practice = self._practice = practice
        self._diagnosis = diagnosis

    def every_second(self) -> bool:
        return self._practice.look()

    def action_turn(self) -> None:
        """Turn the knobs, and compare from here on."""
        if self._practice.ended:
            self.display.answer("the job has ended: its settings can no longer be changed")
        elif not self._practice.turns:
            self.display.answer("nothing is wrong: there is nothing to fix")
        else:
            try:
                self._practice.turn()
            except OSError as error:
                reason = error.strerror or error
                self.display.answer(f"the settings cannot be changed: {reason}")
            else:
                self._diagnosis.action_mark()

    def action_quit(self) -> None:
        self.display.app.exit()

    def action_interrupt(self) -> None:
        self.display.app.exit(None, _INTERRUPTED)
