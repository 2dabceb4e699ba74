"""The thing under the cursor: opened, or ended if it is a process."""

from gpuwatch.core.model import Process, ProcessKey
from gpuwatch.core.source import Source
from gpuwatch.tui.controllers.controller import Controller
from gpuwatch.tui.controllers.diagnosis import DiagnosisController
from gpuwatch.tui.controllers.following import job_of_selected_process
from gpuwatch.tui.controllers.jobs import JobController
from gpuwatch.tui.display import Display
from gpuwatch.tui.panels.processes.order import rows


class ProcessController(Controller):
    def __init__(
        self, display: Display, source: Source, diagnosis: DiagnosisController, jobs: JobController
    ) -> None:
        super().__init__(display)
        self._source = source
        self._diagnosis = diagnosis
        self._jobs = jobs
        self._term_sent: set[ProcessKey] = set()

    def action_all_processes(self) -> None:
        options = self._source.options
        options.all_processes = self.view.all_processes = not options.all_processes
        self.display.answer(
            "all processes" if options.all_processes else "processes that use a GPU"
        )

    def action_open(self) -> None:
        """A finding, a GPU, or a process's job (its GPU without one)."""
        view = self.view
        if view.in_findings:
            self._diagnosis.action_evidence()
            return
        if view.focus == "processes" and view.selected_row is not None:
            job = job_of_selected_process(view)
            if job is not None:
                self._jobs.open(job)
                return
            uuid = view.selected_row[2]
            if uuid is None:
                self.display.answer("this process belongs to no job and uses no GPU")
                return
            view.selected_gpu = uuid
        self.action_open_gpu()

    def action_open_gpu(self) -> None:
        """The detail of the selected GPU."""
        from gpuwatch.tui.screens.detail import DetailScreen  # noqa: PLC0415

        if self.view.gpus:
            palette = self.display.palette
            self.display.show(DetailScreen(self.view, palette, self._source.options))
        else:
            self.display.answer("no GPU to open")

    def action_command(self) -> None:
        """The whole command line of the process under the cursor."""
        from gpuwatch.tui.screens.dialogs.texts import command_dialog  # noqa: PLC0415

        process = self._selected()
        if process is None:
            self.display.answer("select a process first (up and down)")
        else:
            self.display.show(command_dialog(process, self.display.palette, self.view.glyphs))

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

        def decided(answer: str | None) -> None:
            if answer:
                self._end(process, force)

        dialog = end_process_dialog(process, force, self.display.palette, self.view.glyphs)
        self.display.show(dialog, decided)

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

    def _end(self, process: Process, force: bool) -> None:
        from gpuwatch.sources.linux.signals import end_process  # noqa: PLC0415

        result = end_process(process.pid, process.started_at_unix_seconds, force=force)
        if result.ok:
            self._term_sent.add(process.key)
        self.display.answer(result.message)
