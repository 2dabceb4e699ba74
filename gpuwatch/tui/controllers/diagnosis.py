"""The diagnosis: the engine, the findings, before and after a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from gpuwatch.core.model import Job, ProcessKey, Snapshot
from gpuwatch.diagnosis.finding import WINDOW_SECONDS, Diagnosis, about_job
from gpuwatch.tui.charts.timeline import FIRST_SPAN, SPANS, FindingMark, mark_of
from gpuwatch.tui.controllers.controller import Controller
from gpuwatch.tui.display import Display
from gpuwatch.tui.panels.findings import chosen_finding, present_findings, readable_findings
from gpuwatch.tui.runs import (
    Runs,
    ended_at,
    gives_way,
    mark_now,
    mark_run,
    measure_after,
)

if TYPE_CHECKING:
    from gpuwatch.diagnosis.ledger import Counted, EpisodeKey, Ledger
    from gpuwatch.jobs.stacks.report import StackReport
    from gpuwatch.tui.view import MarkedChange, View


class Diagnoser(Protocol):
    """Engine, as far as the dashboard uses it; tests have one with a fixed answer."""

    def push(self, snapshot: Snapshot) -> None: ...

    def go_on_from(self, lost: Mapping[EpisodeKey, Counted]) -> None: ...

    def note_stacks(
        self, job: ProcessKey, stacks: tuple[tuple[str, float, str | None], ...]
    ) -> None: ...

    def finish(self) -> None: ...

    @property
    def diagnosis(self) -> Diagnosis | None: ...

    @property
    def ledger(self) -> Ledger: ...


class DiagnosisController(Controller):
    """Diagnosis of what is watched. Without an engine there is none, and no line says anything of
    it."""

    def __init__(self, display: Display, make_engine: Callable[[], Diagnoser] | None) -> None:
        super().__init__(display)
        self.latest: Diagnosis | None = None
        """Diagnosis of the newest snapshot, also while the picture is paused."""
        self.restart(None, make_engine)

    def restart(
        self, engine: Diagnoser | None, make_engine: Callable[[], Diagnoser] | None
    ) -> None:
        """Forget what was; go on with ``engine``, or with one that is made at the second snapshot:
        the rules take a moment to load, and the first picture does not wait for them."""
        self.engine = engine
        self._make_engine = make_engine
        self._first: Snapshot | None = None
        self._marked = -1
        """Changes of the ledger by the time at which it was put on the time axis last."""
        self._runs = Runs()

    @property
    def ledger(self) -> Ledger | None:
        """Return the times for which findings held; ``None`` while nothing is diagnosed."""
        return None if self.engine is None else self.engine.ledger

    def leave_out(self) -> None:
        """Diagnose nothing from here on."""
        self.engine = self._make_engine = None

    def on_snapshot(self, snapshot: Snapshot) -> None:
        view = self.view
        self.latest = diagnosis = self.diagnose(snapshot)
        followed = self._runs.take_snapshot(snapshot)
        if followed is not None and gives_way(view.mark, followed[0]):
            view.mark = mark_run(view, snapshot, *followed, self.ledger)
        self.note_job(snapshot)
        if view.mark is not None:
            measure_after(view.mark, view, snapshot, diagnosis)
        changes = 0 if self.ledger is None else self.ledger.changes
        if changes != self._marked:
            self._marked = changes
            view.spans = self._marks(snapshot)
        if not view.paused:
            view.diagnosis = diagnosis
            self._give_range(snapshot)

    def _give_range(self, snapshot: Snapshot) -> None:
        columns = self.display.app.size.width
        self.view.give_range(_range_for(self.view, snapshot.monotonic_seconds, columns))

    def note_job(self, snapshot: Snapshot) -> None:
        """Note what is known of the job looked at, while it runs: once it has ended, that is said
        of it."""
        view, diagnosis, job = self.view, self.latest, self.view.job.last
        if job is not None and diagnosis is not None and ended_at(view, job) is None:
            view.job.findings = about_job(diagnosis, job)
            view.job.findings_at = snapshot.monotonic_seconds
            view.job.decided = diagnosis.decided
            view.job.seen_seconds = self._runs.seen_seconds(job.key)

    def _marks(self, snapshot: Snapshot) -> tuple[FindingMark, ...]:
        """Return when findings held, on the charts' clock."""
        episodes = () if self.ledger is None else self.ledger.episodes()
        if not episodes:
            return ()
        from gpuwatch.diagnosis.finding import names_among  # noqa: PLC0415 - after the start
        from gpuwatch.diagnosis.ledger import by_cause  # noqa: PLC0415

        names = names_among(gpu.identity for gpu in snapshot.gpus)
        offset = snapshot.taken_at_unix_seconds - snapshot.monotonic_seconds
        marks = [mark_of(one, offset) for one in by_cause(episodes, names)]
        return tuple([_until_change(one, self.view.mark) for one in marks])

    def diagnose(self, snapshot: Snapshot) -> Diagnosis | None:
        """Diagnose this snapshot, which is the next."""
        if self.engine is None:
            if self._make_engine is None:
                return None
            if self._first is None:
                self._first = snapshot
                return Diagnosis(
                    taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
                    watched_seconds=0.0,
                    verdict="Collecting data for a diagnosis.",
                    decided=False,
                )
            self.engine = self._make_engine()
            self.engine.push(self._first)
            # A snapshot is half a MiB on a large machine.
            self._first = None
        self.engine.push(snapshot)
        return self.engine.diagnosis

    def note_stacks(self, job: Job, reports: Sequence[StackReport]) -> None:
        """Tell the engine what the main threads of ``job`` were doing."""
        if self.engine is not None:
            from gpuwatch.jobs.stacks.report import stack_facts  # noqa: PLC0415

            self.engine.note_stacks(job.key, stack_facts(job, reports))

    # -- keys -------------------------------------------------------------------------------------

    def action_findings(self) -> None:
        """Show everything that was found, with the evidence of the selected finding; of a single
        finding its evidence."""
        found = readable_findings(self.view)
        if len(found) == 1:
            self.view.finding = found[0].key
            self.action_evidence()
            return
        from gpuwatch.tui.pages.findings import FindingsScreen  # noqa: PLC0415

        self.display.show_page(FindingsScreen)

    def action_evidence(self) -> None:
        """Show the chosen finding in full; the list where it is gone."""
        from gpuwatch.tui.pages.findings import EvidenceScreen  # noqa: PLC0415

        one = chosen_finding(self.view)
        if one is None:
            self.action_findings()
        else:
            self.view.finding = one.key
            self.display.show_page(EvidenceScreen)

    def action_unknown(self) -> None:
        """Show a list of everything that could not be checked."""
        from gpuwatch.tui.pages.dialogs import unknown_dialog  # noqa: PLC0415

        view = self.view
        if view.diagnosis is not None:
            self.display.show(unknown_dialog(view, view.diagnosis.unknown))

    def action_copy_finding(self) -> None:
        """Copy the chosen finding to the clipboard, as text."""
        from gpuwatch.tui.pages.findings import plain_text  # noqa: PLC0415

        one = chosen_finding(self.view)
        if one is None:
            self.display.answer("no finding to copy")
        else:
            self.display.copy(plain_text(self.view, one))

    def action_mark(self) -> None:
        """Compare with before from here on."""
        view = self.view
        reported = view.snapshot is not None and any(job.loops for job in view.snapshot.jobs)
        if view.snapshot is None or not (view.gpus or reported):
            self.display.answer("no GPU readings to compare")
        else:
            view.mark = mark_now(view, view.snapshot, view.diagnosis, self._runs)
            self._marked = -1
            self._give_range(view.snapshot)
            self.display.answer("marked: comparing before and after from now on (M ends it)")

    def action_forget_mark(self) -> None:
        view, marked = self.view, self.view.mark is not None
        view.mark, self._marked = None, -1
        if view.snapshot is not None:
            self._give_range(view.snapshot)
        self.display.answer("comparison ended" if marked else "nothing was marked")


# -- the range in which it is seen -----------------------------------------------------------------


_SHARE_AFTER = 0.75
"""Most of a range that is of the time after a change: what was before is still seen."""
_LONGEST_SPAN_SECONDS = 300.0
"""Longest range that charts have for a change: what is fast is no waveform in a longer one."""
_SEVERAL_PAUSES_SECONDS = 120.0
"""Longest range that charts have for pauses: most are too short to be seen in a longer one."""
_WIDE = 160
"""Columns of a terminal that shows swings of seconds also in a chart of a minute, as long as the
diagnosis looks at."""


def _until_change(one: FindingMark, change: MarkedChange | None) -> FindingMark:
    """Return a finding that was gone within a minute of a change with its end there: it was about
    the last minute, and is withdrawn only when that has passed."""
    end = one.end_seconds
    if change is None or end is None or not one.begin_seconds < change.at < end:
        return one
    if change.gpus and set(change.gpus).isdisjoint(one.gpus):
        return one
    return replace(one, end_seconds=change.at) if end - change.at <= WINDOW_SECONDS else one


def _range_for(view: View, now: float, columns: int) -> float | None:
    """Return a range in which what the verdict is about is seen: what was before a change beside
    what is now (the shortest that does), several pauses of those that recur, or on a terminal of so
    many ``columns`` all that the verdict looks at; ``None`` where the person's own does, or none
    can (that of a change after some minutes)."""
    if view.mark is not None:
        since = now - view.mark.at
        wide = (one for one in SPANS if view.chosen_span_seconds <= one <= _LONGEST_SPAN_SECONDS)
        return next((one for one in wide if since <= _SHARE_AFTER * one), None)
    leading = next(iter(present_findings(view)), None)
    seconds = 0.0 if leading is None else leading.lost_of_seconds or 0.0
    if seconds <= WINDOW_SECONDS:
        is_first = view.chosen_span_seconds == FIRST_SPAN
        return WINDOW_SECONDS if is_first and columns >= _WIDE else None
    return max(one for one in SPANS if one <= min(seconds, _SEVERAL_PAUSES_SECONDS))
