"""Jobs: which one is looked at, its report, its stacks; and the GPU or process under the cursor:
opened, or ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpuwatch.core.model import Job, JobMember, Process, ProcessKey, Snapshot
from gpuwatch.core.source import Source
from gpuwatch.tui.charts.glyphs import ASCII
from gpuwatch.tui.controllers.controller import Controller
from gpuwatch.tui.controllers.diagnosis import DiagnosisController
from gpuwatch.tui.controllers.following import find, follow, job_of_selected_process, job_to_open
from gpuwatch.tui.controllers.job_report import NOTHING_YET, JobReportKeeper
from gpuwatch.tui.controllers.started_job import StartedJob
from gpuwatch.tui.display import Display
from gpuwatch.tui.panels.job.header import ended_at
from gpuwatch.tui.panels.processes.order import rows

if TYPE_CHECKING:
    from gpuwatch.jobs.stacks.sampler import StackSampler, StackTarget
    from gpuwatch.jobs.stacks.summary import StackReport
    from gpuwatch.outputs.report.store import ReportStore


class JobController(Controller):
    """``reports`` is where reports are kept (by default the user's); of a replay none are.
    ``attached``: a process whose job is the first picture."""

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
        self._report = JobReportKeeper(reports)
        self._term_sent: set[ProcessKey] = set()
        self._attached = attached
        if attached is None and started is not None:
            self._attached = started.key
        if self._attached is not None:
            self._read_closely(self._attached)

    def start(self) -> None:
        if self._attached is not None:
            self._show()

    def on_snapshot(self, snapshot: Snapshot) -> None:
        view = self.view
        before = view.job.key
        follow(view, snapshot)
        if not self._reported:
            return
        if view.job.key != before and view.job.last is not None and not view.job.last.attached:
            # The next run of the job: it is read as closely.
            self._source.options.attached = view.job.key
        if self._started is not None:
            self._started.follow(snapshot, self._diagnosis.latest)
        report = self.report
        if report is self._report:
            message = report.push(view.job.key, snapshot, self._diagnosis.latest)
            if message is not None:
                self.display.say(message)
        view.job.write_report = self._written_report if report.ended else None

    def every_second(self) -> bool:
        """How long sampling will take."""
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
        if self.sampler is not None:
            self.sampler.close()

    def _read_closely(self, key: ProcessKey) -> None:
        self._source.options.attached = key
        self.view.job.look_at(key)

    # -- which job --------------------------------------------------------------------------------

    def action_job(self) -> None:
        """From the whole machine to one job."""
        job = job_to_open(self.view)
        if isinstance(job, str):
            self.display.answer(job)
        else:
            self.open(job)

    def open(self, job: Job) -> None:
        """Show this job, and have it read closely from now on."""
        if find((job,), self.view.job.key) is None:
            self._read_closely(job.key)
            self.view.job.last = job
            if self.view.snapshot is not None:
                self.on_snapshot(self.view.snapshot)
        self._show()

    def _show(self) -> None:
        from gpuwatch.tui.screens.job import JobScreen  # noqa: PLC0415

        self.view.in_findings = False
        self.display.show_page(JobScreen)

    # -- its report -------------------------------------------------------------------------------

    @property
    def report(self) -> JobReportKeeper:
        if self._started is not None and self._started.is_in(self.view.job.last):
            return self._started.report
        return self._report

    def _written_report(self, width: int) -> Sequence[str]:
        return self.report.lines(width, self.view.glyphs is not ASCII)

    def action_report(self) -> None:
        """The report of the job so far, or of the one that has ended."""
        from gpuwatch.tui.screens.report import ReportScreen  # noqa: PLC0415

        self.report.note_diagnosis(self._diagnosis.to_the_second())
        if self.report.report() is None:
            self.display.answer(NOTHING_YET)
        else:
            self.display.show(ReportScreen(self.view, self._written_report))

    # -- its stacks -------------------------------------------------------------------------------

    @property
    def samples(self) -> bool:
        return self._sampling is not None and not self._sampling.done()

    def action_stacks(self) -> None:
        """Where the job's main threads are: sampled for some seconds, then shown."""
        from gpuwatch.tui.screens.job import JobScreen  # noqa: PLC0415

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
            self._sample(_targets(job, selected))

    def _sample(self, targets: Sequence[StackTarget]) -> None:
        from gpuwatch.jobs.stacks.sampler import StackSampler  # noqa: PLC0415

        sampler = self.sampler = StackSampler(targets)

        async def sample() -> None:
            self.show_stacks(await sampler.run())

        self._sampling = asyncio.create_task(sample())
        self.display.watch(self._sampling)
        threads = "the main thread" if len(targets) == 1 else f"{len(targets)} main threads"
        self.display.answer(
            f"sampling the stacks of {threads}: {sampler.seconds_in_all} s (S ends it early)"
        )

    def show_stacks(self, reports: Sequence[StackReport]) -> None:
        """Show what the main threads were doing, which also decides between some causes."""
        from gpuwatch.tui.screens.dialogs.texts import stacks_dialog  # noqa: PLC0415

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
        """A finding, a GPU, or a process's job (its GPU without one)."""
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
        from gpuwatch.tui.screens.detail import DetailScreen  # noqa: PLC0415

        if self.view.gpus:
            self.display.show(DetailScreen(self.view, self._source.options))
        else:
            self.display.answer("no GPU to open")

    def action_command(self) -> None:
        from gpuwatch.tui.screens.dialogs.texts import command_dialog  # noqa: PLC0415

        process = self._selected()
        if process is None:
            self.display.answer("select a process first (up and down)")
        else:
            self.display.show(command_dialog(self.view, process))

    def action_end_process(self) -> None:
        """Ask first; a second time, after TERM, about KILL."""
        from gpuwatch.tui.screens.dialogs.texts import end_process_dialog  # noqa: PLC0415

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
        """The one under the cursor of the screen in front; without a cursor the only one listed."""
        from gpuwatch.tui.screens.job import JobScreen  # noqa: PLC0415

        screen = self.display.app.screen
        if isinstance(screen, JobScreen):
            return screen.selected_process()
        table = rows(self.view)
        for row in table:
            if row.key == self.view.selected_row:
                return row.process
        return table[0].process if len(table) == 1 else None

    def _end(self, process: Process, force: bool, answer: str | None) -> None:
        if not answer:
            return
        from gpuwatch.sources.linux.signals import end_process  # noqa: PLC0415

        result = end_process(process.pid, process.started_at_unix_seconds, force=force)
        if result.ok:
            self._term_sent.add(process.key)
        self.display.answer(result.message)


def _targets(job: Job, selected: JobMember | None) -> list[StackTarget]:
    """The ranks; where none is known, the process selected, or the topmost."""
    from gpuwatch.jobs.stacks.targets import target_of  # noqa: PLC0415

    members = list(job.having("rank"))
    if not members:
        members = [selected] if selected is not None else list(job.members[:1])
    return [target_of(member) for member in members]
