"""Jobs: which one is looked at, its report and its stacks, and one that gpuwatch started.

Also the GPU or process under the cursor: opened, or ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpuwatch.core.model import Job, JobMember, Process, ProcessKey, Snapshot
from gpuwatch.core.source import Source
from gpuwatch.core.text import clean
from gpuwatch.tui.controllers.controller import Controller
from gpuwatch.tui.controllers.diagnosis import DiagnosisController
from gpuwatch.tui.display import Display
from gpuwatch.tui.runs import (
    ended_at,
    find_job,
    follow_job,
    has_ended,
    job_of_selected_process,
    job_to_open,
)

if TYPE_CHECKING:
    from gpuwatch.diagnosis.finding import Diagnosis
    from gpuwatch.diagnosis.ledger import Ledger
    from gpuwatch.jobs.run.job import RunningJob
    from gpuwatch.jobs.run.output import OutputTail
    from gpuwatch.jobs.stacks.report import StackReport
    from gpuwatch.jobs.stacks.sampler import StackSampler
    from gpuwatch.outputs.experiment.log import ExperimentLog
    from gpuwatch.outputs.report.model import Report
    from gpuwatch.outputs.report.recorder import JobRecorder, JobRecorders
    from gpuwatch.outputs.report.store import ReportStore
    from gpuwatch.tui.pages.screen import Dialog
    from gpuwatch.tui.terminal.frame import Line
    from gpuwatch.tui.view import View


# -- the report of a job ---------------------------------------------------------------------------


NOTHING_YET = "nothing to report yet: this job has not been seen"


class JobReportKeeper:
    """Keeper of the report of one job at a time. ``store`` is where reports are kept (by default
    the user's), ``command`` how the only one was started; ``recorders`` has those of jobs that
    were watched before."""

    def __init__(
        self,
        store: ReportStore | None = None,
        command: str | None = None,
        recorders: Callable[[], JobRecorders] | None = None,
    ) -> None:
        self._command = command
        self._store = store
        self._recorders = recorders
        self._recorder: JobRecorder | None = None
        self._key: ProcessKey | None = None
        self._ended_at: float | None = None
        """Monotonic time at which it was first seen to have ended."""
        self._final: Report | None = None
        self._kept = False
        self._before: Report | None = None
        """The run before this one."""
        self._exit_code: int | None = None
        self._written: tuple[tuple[int, str, Report], Sequence[Line]] | None = None

    @property
    def ended(self) -> bool:
        return self._final is not None

    def take_snapshot(
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
        """Return the report of the job so far, or of the whole of one that has ended."""
        if self._final is not None:
            return self._final
        if self._recorder is None or not self._recorder.seen:
            return None
        return self._recorder.report()

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the report in lines of ``width`` cells; of a job that has ended it is drawn once
        for each width."""
        from gpuwatch.tui.panels.report import draw, nothing  # noqa: PLC0415

        report = self.report()
        if report is None:
            return nothing(width, NOTHING_YET)
        key = (width, view.glyphs.name, report)
        if self._written is not None and self._written[0] == key:
            return self._written[1]
        from gpuwatch.outputs.report.document import report_document  # noqa: PLC0415

        made = report_document(report, "text", previous=self._previous(report))
        lines = draw(view, made, width)
        self._written = (key, lines)
        return lines

    def page(self) -> str | None:
        """Return the report as an HTML page, as ``gpuwatch report --html`` writes it."""
        from gpuwatch.outputs.report.document import report_document  # noqa: PLC0415
        from gpuwatch.outputs.report.html import document_html  # noqa: PLC0415

        report = self.report()
        if report is None:
            return None
        return document_html(report_document(report, "page", previous=self._previous(report)))

    def note_exit(self, code: int | None) -> str | None:
        """Take how a job that gpuwatch started has ended: the snapshots do not know."""
        if code is None or code == self._exit_code:
            return None
        self._exit_code = code
        if self._final is not None and self._final.exit_code is None:
            self._final = self._final.with_end(exit_code=code)
            return self._keep() if self._kept else None
        return None

    def end_at(self, unix_seconds: float, code: int) -> None:
        """Note that the job has ended although no snapshot says so yet, and none will come."""
        recorder = self._recorder
        if self._final is None and recorder is not None and recorder.seen:
            self._final = recorder.report().with_end(unix_seconds, exit_code=code)

    def end_here(self) -> None:
        """Take the report so far for the last: nobody watches the job any further."""
        if self._final is None:
            self._final = self.report()

    def close(self) -> str | None:
        """Keep the report of a job that ended a moment ago."""
        return None if self._final is None or self._kept else self._keep()

    def _turn_to(self, key: ProcessKey, snapshot: Snapshot) -> str | None:
        if key == self._key and self._recorder is not None:
            return None
        before = self._recorder
        job = find_job(snapshot.jobs, self._key)
        still = job is not None and find_job((job,), key) is not None and not has_ended(job)
        if before is not None and not before.ended and still:
            # Its launcher was found, or ended: the same job by another name.
            self._key = key
            return None
        says = self.close()
        self._before, self._final = self._final, None
        self._key, self._kept, self._ended_at, self._exit_code = key, False, None, None
        if self._recorders is not None:
            self._recorder = self._recorders().recorder(key)
            return says
        from gpuwatch.outputs.report.recorder import JobRecorder  # noqa: PLC0415

        self._recorder = JobRecorder(key, command=self._command)
        return says

    def _end(self, recorder: JobRecorder, snapshot: Snapshot) -> str | None:
        """Make the report at once; keep it once the driver's last samples have come."""
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
        """Return the run to compare with: the one just watched, else the last that was kept."""
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


# -- a job that gpuwatch started -------------------------------------------------------------------


POLL_SECONDS = 0.25
"""Time between two looks for new output, and at whether the job has ended."""


class StartedJob(Controller):
    """Controller of the job that the dashboard was started for, whichever job is looked at."""

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
        self._printed = False
        """True if it has printed something that is not shown yet."""
        self._read_whole = False
        """True once all that it printed before it ended was read."""
        self._quits_when_ended = False
        """True once the person pressed Ctrl-C: what they wanted is to be done with it."""
        self._question: Dialog | None = None
        """Dialog that asks what shall become of the job, while it is open."""
        if job.output_path is not None:
            from gpuwatch.jobs.run.output import OutputTail  # noqa: PLC0415

            self._tail = OutputTail(job.output_path)
            self.view.job.output = self._tail
            self.view.job.output_name = clean(str(job.output_path))

    def start(self) -> None:
        self.display.app.set_interval(POLL_SECONDS, self._follow_output)

    def is_in(self, job: Job | None) -> bool:
        """Return whether ``job`` is the one that was started; while it lives its first process says
        so."""
        if job is None:
            return False
        if job.key not in self._names and find_job((job,), self._job.key) is not None:
            self._names.add(job.key)
        return job.key in self._names

    def every_second(self) -> bool:
        printed, self._printed = self._printed, False
        return printed

    def follow(
        self, snapshot: Snapshot, diagnosis: Diagnosis | None, ledger: Ledger | None
    ) -> None:
        """Keep its report, also while another job is looked at: one is expected at its end.
        ``diagnosis`` and ``ledger``: as of the snapshot before."""
        # Negative for the signal that ended it; ``None``: it runs.
        code = self._job.poll()
        if self._experiment is not None and code is None:
            for sentence in self._experiment.push(snapshot, ledger):
                self.display.say(sentence)
        self.view.job.exit_code = code if self.is_in(self.view.job.last) else None
        for message in (
            self.report.note_exit(code),
            self.report.take_snapshot(self.key, snapshot, diagnosis),
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
        self._printed = self._read_output() or self._printed
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
            from gpuwatch.jobs.run.job import NO_INPUT  # noqa: PLC0415

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
        from gpuwatch.tui.pages.dialogs import leave_job_dialog  # noqa: PLC0415

        def decided(answer: str | None) -> None:
            self._question = None
            if answer == "leave":
                self.display.app.exit()
            elif answer == "interrupt":
                self.action_interrupt()

        ends = self._job.ends_with_gpuwatch
        self._question = leave_job_dialog(self.view, self._job.command, ends=ends)
        self.display.show(self._question, decided)


# -- the controller --------------------------------------------------------------------------------


class JobController(Controller):
    """Controller of jobs, and of the process or GPU under the cursor. ``reports`` is where reports
    are kept (by default the user's); of a replay none are. ``attached``: a process whose job is the
    first picture."""

    def __init__(
        self,
        display: Display,
        source: Source,
        diagnosis: DiagnosisController,
        started: StartedJob | None,
        reports: ReportStore | None,
        attached: ProcessKey | None,
        *,
        reported: bool,
    ) -> None:
        super().__init__(display)
        self.sampler: StackSampler | None = None
        """The last that sampled stacks, in the background."""
        self._sampling: asyncio.Task[None] | None = None
        self._source = source
        self._diagnosis = diagnosis
        self._started = started
        self._reported = reported
        self._recorders: JobRecorders | None = None
        self._first: Snapshot | None = None
        self._report = JobReportKeeper(reports, recorders=self._all_recorders)
        self._term_sent: set[ProcessKey] = set()
        self._attached = attached
        if attached is None and started is not None:
            self._attached = started.key
        self.view.job.first = self._attached is not None
        if self._attached is not None:
            self._read_closely(self._attached)

    def start(self) -> None:
        if self._attached is not None:
            self._show()

    def on_snapshot(self, snapshot: Snapshot) -> None:
        view = self.view
        before = view.job.key
        follow_job(view, snapshot)
        if not self._reported:
            return
        if view.job.key != before and view.job.last is not None and not view.job.last.attached:
            # The next run of the job: it is read as closely.
            self._source.options.attached = view.job.key
        if self._started is not None:
            self._started.follow(snapshot, self._diagnosis.latest, self._diagnosis.ledger)
        self._record(snapshot)
        report = self.report
        if report is self._report:
            message = report.take_snapshot(view.job.key, snapshot, self._diagnosis.latest)
            if message is not None:
                self.display.say(message)
        view.job.write_report = self._written_report if report.ended else None

    def _record(self, snapshot: Snapshot) -> None:
        """Record the jobs that nobody looks at yet, for the reports of those that are opened."""
        first, self._first = self._first, None
        if self._recorders is None and first is None and self.view.job.key is None:
            # The first picture does not wait until what records is loaded.
            self._first = snapshot
            return
        recorders = self._all_recorders()
        for one in filter(None, (first, snapshot)):
            jobs = one.jobs
            if self._started is not None:
                jobs = tuple([job for job in jobs if not self._started.is_in(job)])
            recorders.push(one, jobs, self._diagnosis.latest)

    def _all_recorders(self) -> JobRecorders:
        if self._recorders is None:
            from gpuwatch.outputs.report.recorder import JobRecorders  # noqa: PLC0415

            self._recorders = JobRecorders()
        return self._recorders

    def every_second(self) -> bool:
        """Say how long sampling will still take."""
        if not self.samples or self.sampler is None:
            return False
        seconds = self.sampler.seconds_left
        left = f"sampling stacks: {seconds:.0f} s left (S ends it early)"
        self.display.say("reading the stacks ..." if seconds < 0.5 else left)
        return True

    def close(self) -> None:
        self._report.close()
        if self._sampling is not None:
            self._sampling.cancel()

    def _read_closely(self, key: ProcessKey) -> None:
        self._source.options.attached = key
        self.view.job.look_at(key)

    # -- which job --------------------------------------------------------------------------------

    def action_job(self) -> None:
        """Go from the whole machine to one job."""
        job = job_to_open(self.view)
        if isinstance(job, str):
            self.display.answer(job)
        else:
            self.open(job)

    def open(self, job: Job) -> None:
        """Show this job, and have it read closely from now on."""
        if find_job((job,), self.view.job.key) is None:
            self._read_closely(job.key)
            self.view.job.last = job
            if self.view.snapshot is not None:
                self._diagnosis.note_job(self.view.snapshot)
                self.on_snapshot(self.view.snapshot)
        self._show()

    def _show(self) -> None:
        from gpuwatch.tui.pages.job import JobScreen  # noqa: PLC0415

        self.view.in_findings = False
        self.display.show_page(JobScreen)

    # -- its report -------------------------------------------------------------------------------

    @property
    def report(self) -> JobReportKeeper:
        if self._started is not None and self._started.is_in(self.view.job.last):
            return self._started.report
        return self._report

    def _written_report(self, width: int) -> Sequence[Line]:
        return self.report.lines(self.view, width)

    def action_report(self) -> None:
        """Show the report of the job so far, or of the one that has ended."""
        from gpuwatch.tui.pages.job import ReportScreen  # noqa: PLC0415

        if not self._open_leading():
            return
        # Snapshots come here before they are diagnosed.
        self.report.note_diagnosis(self._diagnosis.latest)
        if self.report.report() is None:
            self.display.answer(NOTHING_YET)
        else:
            self.display.show(ReportScreen(self.view, self._written_report))

    def _open_leading(self) -> bool:
        """Open the job that is meant, or that of the leading finding, where none is looked at yet;
        say so where there is none."""
        if self.view.job.key is not None:
            return True
        job, found = job_to_open(self.view), self._diagnosis.latest
        if isinstance(job, str) and self.view.snapshot is not None and found is not None:
            keys = [one.job for one in found.findings if one.job is not None]
            job = next(filter(None, (find_job(self.view.snapshot.jobs, x) for x in keys)), job)
        if isinstance(job, str):
            self.display.answer(job)
            return False
        self.open(job)
        return True

    def action_save_report(self) -> None:
        """Save the report that is shown, up to now."""
        self.report.note_diagnosis(self._diagnosis.latest)
        page = self.report.page()
        if page is not None:
            self.display.save("report", page, "gpuwatch-report", "html")

    # -- its stacks -------------------------------------------------------------------------------

    @property
    def samples(self) -> bool:
        return self._sampling is not None and not self._sampling.done()

    def action_stacks(self) -> None:
        """Sample for some seconds where the job's main threads are, then show it."""
        from gpuwatch.tui.pages.job import JobScreen  # noqa: PLC0415

        if not self._open_leading():
            return
        job = self.view.job.last
        if self.samples and self.sampler is not None:
            self.sampler.stop()
            self.display.answer("reading the stacks ...")
        elif self._source.simulated:
            self.display.answer("a simulated job has no stacks to sample")
        elif job is None or ended_at(self.view, job) is not None:
            self.display.answer("the job is not running: there are no stacks to sample")
        else:
            screen = self.display.app.screen
            selected = screen.selected_member() if isinstance(screen, JobScreen) else None
            self._sample(job, selected)

    def _sample(self, job: Job, selected: JobMember | None) -> None:
        from gpuwatch.jobs.stacks.sampler import StackSampler, job_targets  # noqa: PLC0415

        targets = job_targets(job, selected)
        sampler = self.sampler = StackSampler(targets)

        async def sample() -> None:
            self.show_stacks(await sampler.run())

        self._sampling = asyncio.create_task(sample())
        self.display.watch(self._sampling)
        threads = "the main thread" if len(targets) == 1 else f"{len(targets)} main threads"
        self.display.answer(
            f"sampling the stacks of {threads}: {sampler.seconds_left:.0f} s (S ends it early)"
        )

    def show_stacks(self, reports: Sequence[StackReport]) -> None:
        """Show what the main threads were doing, which also decides between some causes."""
        from gpuwatch.tui.pages.dialogs import stacks_dialog  # noqa: PLC0415

        if self.view.job.last is not None:
            self._diagnosis.note_stacks(self.view.job.last, reports)
        self.view.message = None
        self.display.show(stacks_dialog(self.view, reports))

    # -- what is under the cursor -----------------------------------------------------------------

    def action_all_processes(self) -> None:
        options = self._source.options
        every = options.all_processes = self.view.all_processes = not options.all_processes
        self.display.answer("all processes" if every else "processes that use a GPU")

    def action_open(self) -> None:
        """Open a finding, a GPU, or a process's job (its GPU without one)."""
        view = self.view
        if view.in_findings:
            self._diagnosis.action_evidence()
            return
        if view.focus == "processes" and view.selected_row is not None:
            job = job_of_selected_process(view)
            if job is not None:
                self.open(job)
                return
            uuid = view.selected_row[2]
            if uuid is None:
                self.display.answer("this process belongs to no job and uses no GPU")
                return
            view.selected_gpu = uuid
        self.action_open_gpu()

    def action_open_gpu(self) -> None:
        from gpuwatch.tui.pages.detail import DetailScreen  # noqa: PLC0415

        if self.view.gpus:
            self.display.show(DetailScreen(self.view, self._source.options))
        else:
            self.display.answer("no GPU to open")

    def action_command(self) -> None:
        from gpuwatch.tui.pages.dialogs import command_dialog  # noqa: PLC0415

        process = self._selected()
        if process is None:
            self.display.answer("select a process first (up and down)")
        else:
            self.display.show(command_dialog(self.view, process))

    def action_end_process(self) -> None:
        """Ask first; a second time, after TERM, about KILL."""
        from gpuwatch.tui.pages.dialogs import end_process_dialog  # noqa: PLC0415

        process, snapshot = self._selected(), self.view.snapshot
        if process is None or snapshot is None:
            self.display.answer("select a process first (up and down)")
            return
        if snapshot.simulated:
            self.display.answer("a simulated process cannot be ended")
            return
        force = process.key in self._term_sent
        dialog = end_process_dialog(self.view, process, force)
        self.display.show(dialog, partial(self._end, process, force))

    def _selected(self) -> Process | None:
        """Return the process under the cursor of the screen in front; without a cursor the only one
        listed."""
        from gpuwatch.tui.pages.job import JobScreen  # noqa: PLC0415
        from gpuwatch.tui.pages.overview import OverviewScreen  # noqa: PLC0415

        screen = self.display.app.screen
        return screen.selected_process() if isinstance(screen, JobScreen | OverviewScreen) else None

    def _end(self, process: Process, force: bool, answer: str | None) -> None:
        if not answer:
            return
        from gpuwatch.sources.linux.processes import end_process  # noqa: PLC0415

        result = end_process(process.pid, process.started_at_unix_seconds, force=force)
        if result.ok:
            self._term_sent.add(process.key)
        self.display.answer(result.message)
