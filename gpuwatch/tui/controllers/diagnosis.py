"""What the application does about the diagnosis: the engine, the findings, before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from gpuwatch.core.model import ProcessKey, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.tui.charts.marks import Marks
from gpuwatch.tui.controllers.jobs import JobApp
from gpuwatch.tui.controllers.marking import bring_up_to_date, gives_way, mark_now, mark_run
from gpuwatch.tui.controllers.runs import Runs
from gpuwatch.tui.pages import finding_selection as found
from gpuwatch.tui.pages.finding_words import about_job, key_of
from gpuwatch.tui.panels.job.header import ended_at

if TYPE_CHECKING:
    from gpuwatch.jobs.stacks.summary import StackReport

_WATCHING = "Collecting data for a diagnosis."


class Diagnoser(Protocol):
    """What the dashboard needs of the engine."""

    def push(self, snapshot: Snapshot) -> None: ...

    def note_stacks(
        self, job: ProcessKey, stacks: tuple[tuple[str, float, str | None], ...]
    ) -> None: ...

    @property
    def diagnosis(self) -> Diagnosis | None: ...


class DiagnosisApp(JobApp):
    """The part of ``GpuwatchApp`` that is about findings."""

    def _begin_diagnosis(self, make_engine: Callable[[], Diagnoser] | None) -> None:
        """Part of the start. Without an engine nothing is diagnosed, and no line says anything.

        It is made at the second snapshot: the rules take a moment to load, and the first picture
        does not wait for them.
        """
        self._make_engine = make_engine
        self._engine: Diagnoser | None = None
        self._first: Snapshot | None = None
        self._runs = Runs()
        self._marks = Marks()

    def _diagnose(self, snapshot: Snapshot) -> None:
        """Every snapshot counts, also while the picture is paused."""
        view = self.view
        diagnosis = self._told(snapshot)
        job = view.job.last
        followed = self._runs.push(snapshot, diagnosis)
        if followed is not None and gives_way(view.mark, followed[0]):
            view.mark = mark_run(view, snapshot, *followed)
        if job is not None and diagnosis is not None and ended_at(view, job) is None:
            view.job.findings = about_job(diagnosis, job)
            view.job.findings_at = snapshot.monotonic_seconds
            view.job.decided = diagnosis.decided
            view.job.seen_seconds = self._runs.seen_seconds(job.key)
        if view.mark is not None:
            bring_up_to_date(view.mark, view, snapshot, diagnosis)
        if diagnosis is not None:
            now = snapshot.monotonic_seconds
            self._marks.push(diagnosis.findings, now, snapshot.taken_at_unix_seconds - now)
            view.spans = self._marks.spans
        if not view.paused:
            view.diagnosis = diagnosis

    def _told(self, snapshot: Snapshot) -> Diagnosis | None:
        if self._engine is None:
            if self._make_engine is None:
                return None
            if self._first is None:
                self._first = snapshot
                return Diagnosis(
                    taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
                    watched_seconds=0.0,
                    verdict=_WATCHING,
                    decided=False,
                )
            self._engine = self._make_engine()
            self._engine.push(self._first)
        self._engine.push(snapshot)
        return self._engine.diagnosis

    def _show_diagnosis(self) -> None:
        """The picture goes on: what was found meanwhile."""
        if self._engine is not None:
            self.view.diagnosis = self._engine.diagnosis

    def _show_stacks(self, reports: Sequence[StackReport]) -> None:
        """What the main threads were doing decides between some causes."""
        job = self.view.job.last
        if self._engine is not None and job is not None:
            from gpuwatch.jobs.stacks.facts import stack_facts  # noqa: PLC0415

            self._engine.note_stacks(job.key, stack_facts(job, reports))
        super()._show_stacks(reports)

    # -- keys -------------------------------------------------------------------------------

    def action_findings(self) -> None:
        """All that was found, with the evidence of the selected one."""
        from gpuwatch.tui.screens.findings import FindingsScreen  # noqa: PLC0415

        if not any(isinstance(screen, FindingsScreen) for screen in self.screen_stack):
            self.push_screen(FindingsScreen(self.view, self.palette))

    def action_evidence(self) -> None:
        """The chosen finding in full; the list where it is gone."""
        from gpuwatch.tui.screens.evidence import EvidenceScreen  # noqa: PLC0415

        one = found.chosen(self.view)
        if one is None:
            self.action_findings()
            return
        self.view.finding = key_of(one)
        if not any(isinstance(screen, EvidenceScreen) for screen in self.screen_stack):
            self.push_screen(EvidenceScreen(self.view, self.palette))

    def action_unknown(self) -> None:
        from gpuwatch.tui.screens.dialogs.unknown import unknown_dialog  # noqa: PLC0415

        view = self.view
        if view.diagnosis is not None:
            self.push_screen(
                unknown_dialog(view.diagnosis.unknown, view.gpus, self.palette, view.glyphs)
            )

    def action_copy_finding(self) -> None:
        """To the clipboard, by the terminal (OSC 52): it may not allow that, and does not tell."""
        from gpuwatch.tui.pages.evidence import plain_text  # noqa: PLC0415

        view = self.view
        one = found.chosen(view)
        if one is None:
            self.say("no finding to copy")
        else:
            self.copy_to_clipboard(plain_text(view, view.diagnosis, one))
            self.say("copied; if pasting fails, the terminal does not support it (OSC 52)")
        self.redraw()

    def action_mark(self) -> None:
        """From here on it is compared with before."""
        view = self.view
        told = view.snapshot is not None and any(job.loops for job in view.snapshot.jobs)
        if view.snapshot is None or not (view.gpus or told):
            self.say("no GPU readings: there is nothing to compare")
        else:
            view.mark = mark_now(view, view.snapshot, view.diagnosis, self._runs)
            self.say("marked: comparing before and after from now on (M ends it)")
        self.redraw()

    def action_forget_mark(self) -> None:
        self.say("comparison ended" if self.view.mark is not None else "nothing was marked")
        self.view.mark = None
        self.redraw()
