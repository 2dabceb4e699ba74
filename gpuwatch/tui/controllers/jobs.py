"""What the application does about jobs: which is looked at, its report, its stacks, and one that
gpuwatch has started."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import App

from gpuwatch.core.model import Job, ProcessKey, Snapshot
from gpuwatch.core.source import Source
from gpuwatch.tui.charts.glyphs import ASCII
from gpuwatch.tui.controllers.following import find, follow, job_to_open
from gpuwatch.tui.controllers.job_report import NOTHING_YET, Recording
from gpuwatch.tui.controllers.running import POLL_SECONDS, Running
from gpuwatch.tui.controllers.stack_sampling import Stacking
from gpuwatch.tui.panels.job.header import ended_at
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View

if TYPE_CHECKING:
    from gpuwatch.jobs.launch.runner import RunningJob
    from gpuwatch.jobs.stacks.summary import StackReport
    from gpuwatch.outputs.report.store import ReportStore


class JobApp(App[int]):
    """The part of ``GpuwatchApp`` that is about jobs; it calls the parts named here."""

    view: View
    palette: Palette
    _source: Source

    @abstractmethod
    def say(self, message: str) -> None: ...

    @abstractmethod
    def redraw(self) -> None: ...

    @abstractmethod
    def _task_ended(self, task: asyncio.Task[None]) -> None: ...

    def _watch_job(
        self,
        attached: ProcessKey | None,
        running: RunningJob | None,
        reports: ReportStore | None,
    ) -> None:
        """Part of the start; ``reports`` is where they are kept, by default the user's."""
        self._recording = Recording(reports)
        self._started_recording = Recording(reports)
        self._stacking = Stacking(self._show_stacks, self._task_ended)
        self._started_job = None if running is None else Running(running, self.view)
        if attached is None and running is not None:
            attached = running.key
        self._attached = attached
        if attached is not None:
            self._read_closely(attached)

    def _begin_job(self) -> None:
        """Once the application runs."""
        if self._attached is not None:
            self._show_job()
        if self._started_job is not None:
            self.set_interval(POLL_SECONDS, self._follow_output)

    def _leave_job(self) -> None:
        """At the end: keep what there is to keep, leave nothing running of our own."""
        running = self._started_job
        if running is not None:
            code, at = running.raw_code, running.ended_at_unix_seconds
            if code is not None and at is not None:
                self._started_recording.end_at(at, code)
            else:
                self._started_recording.end_here()
            running.close()
        self._started_recording.close()
        self._recording.close()
        self._stacking.close()

    # -- which job ----------------------------------------------------------------------------

    def action_job(self) -> None:
        """From the whole machine to one job."""
        found = job_to_open(self.view)
        if isinstance(found, str):
            self.say(found)
            self.redraw()
        else:
            self.open_job(found)

    def open_job(self, job: Job) -> None:
        """Show this job, and have it read closely from now on."""
        if find((job,), self.view.job.key) is None:
            self._read_closely(job.key)
            self.view.job.last = job
            if self.view.snapshot is not None:
                self._follow_job(self.view.snapshot)
        self._show_job()

    def _show_job(self) -> None:
        self.view.in_findings = False
        from gpuwatch.tui.screens.job import JobScreen  # noqa: PLC0415

        if not any(isinstance(screen, JobScreen) for screen in self.screen_stack):
            self.push_screen(JobScreen(self.view, self.palette))

    def _read_closely(self, key: ProcessKey) -> None:
        self._source.options.attached = key
        self.view.job.look_at(key)

    def _follow_job(self, snapshot: Snapshot) -> None:
        """Where the job stands, and its report; also while the picture is paused."""
        view = self.view
        before = view.job.key
        follow(view, snapshot)
        if view.job.key != before and view.job.last is not None and not view.job.last.attached:
            # The next run of the job: it is read as closely.
            self._source.options.attached = view.job.key
        running = self._started_job
        if running is not None:
            # Also while another job is looked at: a report of this one is expected at its end.
            view.job.exit_code = running.raw_code if running.is_in(view.job.last) else None
            self._say_if(self._started_recording.note_exit(running.raw_code))
            self._say_if(self._started_recording.push(running.key, snapshot))
        recording = self.recording
        if recording is self._recording:
            self._say_if(recording.push(view.job.key, snapshot))
        view.job.write_report = self._written_report if recording.ended else None

    def _say_if(self, message: str | None) -> None:
        if message is not None:
            self.say(message)

    # -- its report ---------------------------------------------------------------------------

    @property
    def recording(self) -> Recording:
        """Of the job that is looked at."""
        running = self._started_job
        if running is not None and running.is_in(self.view.job.last):
            return self._started_recording
        return self._recording

    def _written_report(self, width: int) -> Sequence[str]:
        return self.recording.lines(width, self.view.glyphs is not ASCII)

    def action_report(self) -> None:
        """The report of the job so far, or of the one that has ended."""
        from gpuwatch.tui.screens.report import ReportScreen  # noqa: PLC0415

        if self.recording.report() is None:
            self.say(NOTHING_YET)
            self.redraw()
        else:
            self.push_screen(ReportScreen(self.view, self.palette, self._written_report))

    # -- its stacks ---------------------------------------------------------------------------

    def action_stacks(self) -> None:
        """Where the job's main threads are: sampled for some seconds, then shown."""
        from gpuwatch.tui.screens.job import JobScreen  # noqa: PLC0415

        job = self.view.job.last
        if self._stacking.active:
            self._stacking.stop()
            self.say("reading the stacks ...")
        elif self._source.simulated:
            self.say("a simulated job has no stacks to sample")
        elif job is None or ended_at(self.view, job) is not None:
            self.say("the job is not running: there are no stacks to sample")
        else:
            screen = self.screen
            selected = screen.selected_member() if isinstance(screen, JobScreen) else None
            self.say(self._stacking.start(job, selected))
        self.redraw()

    def _show_stacks(self, reports: Sequence[StackReport]) -> None:
        from gpuwatch.tui.screens.dialogs.stacks import stacks_dialog  # noqa: PLC0415

        self.view.message = None
        self.push_screen(stacks_dialog(reports, self.palette, self.view.glyphs))

    # -- one that gpuwatch started ------------------------------------------------------------

    def _follow_output(self) -> None:
        """What it printed, and whether it has ended after the person asked for that."""
        running = self._started_job
        assert running is not None
        running.fit_output(max(20, self.size.width - 2), max(4, self.size.height // 4))
        if running.read_output():
            for screen in reversed(self.screen_stack):
                draw = getattr(screen, "redraw_output", None)
                if draw is not None:
                    draw()
        if running.quits_when_ended and not running.runs:
            self.exit(None, running.exit_code or 0)

    def action_interrupt(self) -> None:
        """Ctrl-C: a job that gpuwatch started is what it is meant for."""
        running = self._started_job
        if running is None:
            self.exit()
        elif running.runs:
            self.say(running.interrupt())
            self.redraw()
        else:
            self.exit(None, running.exit_code or 0)

    async def action_quit(self) -> None:
        running = self._started_job
        if running is None or not running.runs:
            self.exit(None, 0 if running is None else running.exit_code or 0)
            return
        from gpuwatch.tui.screens.dialogs.windows import LeaveJobDialog  # noqa: PLC0415

        def decided(answer: str | None) -> None:
            if answer == "leave":
                self.exit()
            elif answer == "interrupt":
                self.action_interrupt()

        dialog = LeaveJobDialog(
            running.command, self.palette, self.view.glyphs, ends=running.ends_with_gpuwatch
        )
        self.push_screen(dialog, decided)
