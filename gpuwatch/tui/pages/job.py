"""The screen of one job as a pure drawing: what it is, its GPUs, who is busy and who waits, its
processes, and what it prints; once it has ended, its report."""

from collections.abc import Sequence
from dataclasses import replace

from gpuwatch.core.model import Job
from gpuwatch.tui.charts.strips import TimeWindow
from gpuwatch.tui.controllers.following import find
from gpuwatch.tui.keys import JOB_FOOTER, Footer
from gpuwatch.tui.pages.grid import has_boxes
from gpuwatch.tui.pages.layout import (
    BOTTOM,
    EDGE,
    Drawn,
    Frame,
    Page,
    Panel,
    Title,
    edge_panel,
    filled,
    laid_out,
    range_keys,
    too_small,
)
from gpuwatch.tui.panels import findings, footer, header, moment
from gpuwatch.tui.panels.job import charts, gpus, output, tree
from gpuwatch.tui.panels.job.header import FACTS, TITLE, ended_at
from gpuwatch.tui.terminal.frame import Line, Row, fit
from gpuwatch.tui.view import View

_OUTPUT_KEY = "o"


def _table_rows(page: Page) -> int:
    """Takes what is left, and says how much that should be."""
    report, height = page.decided["report"], page.tall
    least = 3 if height < 16 else 5 if height < 24 else 6 if height < 30 else 8
    page.table_least = least + (2 if report and height >= 16 else 0)
    wanted = height * 11 // 20 if report else height * 3 // 10
    page.table_wanted = max(page.table_least, wanted)
    return 0


def _draw_table(page: Page, rows: int) -> Drawn:
    """The processes; of a job that has ended, its report."""
    view, job = page.view, page.job
    assert job is not None
    if not page.decided["report"]:
        return tree.draw(page, job, rows)
    assert view.job.write_report is not None
    return _report(view, view.job.write_report(page.width - 1), page.width, rows), []


def _keys(view: View) -> Footer:
    """Those that do something."""
    job = shown_job(view)
    without = set() if view.job.output is not None else {_OUTPUT_KEY}
    if job is not None and ended_at(view, job) is not None:
        without |= {"S", "t", "k"} if shows_report(view) else {"S"}
    return [key for key in JOB_FOOTER if key[0] not in without]


def _of_processes(page: Page) -> Title:
    if page.decided["report"]:
        return Title("report", (("R", "full screen", "report"),))
    return Title("processes", (("t", "fold", "fold"), ("S", "stacks", "stacks")))


_TABLE = Panel("table", _table_rows, _draw_table)
_AXIS = moment.axis(lambda page: page.tall >= 20 and page.room > page.table_least)
_ACTIVITY = edge_panel("activity", lambda page: Title("busy and waiting", range_keys(page)))
_PROCESSES = edge_panel("processes", _of_processes)
_FOOTER = footer.panel(_keys)

PANELS = (
    *(header.PANEL, TITLE, findings.PANEL, FACTS, gpus.PANEL, _ACTIVITY),
    *(charts.PANEL, _AXIS, _PROCESSES),
    *(_TABLE, moment.VALUES, output.PANEL, BOTTOM, _FOOTER),
)
"""From top to bottom."""
COMPETING = (
    *(output.PANEL, FACTS, _TABLE, gpus.PANEL, charts.PANEL, _AXIS, charts.PANEL),
    moment.VALUES,
)
"""By importance: first who waits for whom, the charts of GPU, main thread and loader workers;
then the processes; then everything else."""


def draw(view: View, width: int, height: int) -> Frame:
    """Exactly ``height`` lines of exactly ``width`` cells. Offsets in ``view.job`` are brought
    into range so that the selection stays in sight."""
    if width < 20 or height < 6:
        return too_small(width, height, "20x6")
    job = shown_job(view)
    if job is None or view.snapshot is None:
        return _waiting(view, width, height)
    mine = [gpu for gpu in view.gpus if gpu.uuid in job.gpu_uuids]
    boxes = has_boxes(width, height)
    width -= 2 * boxes
    page = Page(view, width, height, boxes, _window(view, job), mine, job, tree.rows(view, job))
    page.decided["report"] = shows_report(view)
    view.chart_columns = max(1, charts.span(width)[1])
    return laid_out(page, PANELS, COMPETING, _TABLE)


def shown_job(view: View) -> Job | None:
    """The job as it is now, or as it was last seen; of one that has ended what it was stays: how it
    loaded its data, on which GPUs."""
    state = view.job
    job = state.last
    if view.snapshot is not None and state.key is not None:
        job = find(view.snapshot.jobs, state.key) or job
    alive = state.alive
    if job is None or alive is None or job.ended_at_unix_seconds is None:
        return job
    return replace(job, ranks=job.ranks or alive.ranks, gpu_uuids=job.gpu_uuids or alive.gpu_uuids)


def shows_report(view: View) -> bool:
    """The report takes the place of the processes: the job has ended and none of them is left.
    Orphans hold memory until somebody ends them, and are to be seen for that."""
    if view.job.write_report is None:
        return False
    job = shown_job(view)
    there = () if view.snapshot is None else view.snapshot.jobs
    return job is None or not (
        any(one.key == job.key for one in there) and any(one.orphaned for one in job.members)
    )


def _window(view: View, job: Job) -> TimeWindow:
    """The charts of a job that has ended stay at its end."""
    window, snapshot = view.window, view.snapshot
    at = ended_at(view, job)
    if at is None or snapshot is None:
        return window
    end = snapshot.monotonic_seconds - (snapshot.taken_at_unix_seconds - at)
    return replace(window, now=min(window.now, end + 1.0))


def draw_pane(view: View, frame: Frame) -> list[Line]:
    """``frame``'s lines with the output pane drawn anew: the rest stays as it was."""
    page = frame.plan
    rows = 0 if page is None else page.rows["output"]
    if page is None or not rows:
        return frame.lines
    pane, _ = output.PANEL.draw(replace(page, view=view), rows)
    side = ((view.glyphs.separator, EDGE),) * page.boxed
    pane = [(*side, *line, *side) for line in pane]
    return [*frame.lines[: page.pane_top], *pane, *frame.lines[page.pane_top + rows :]]


def _report(view: View, texts: Sequence[str], width: int, height: int) -> list[Line]:
    """The report of the job that has ended, from ``view.job.report_offset`` on."""
    state = view.job
    rows = height - 1
    state.report_offset = max(0, min(state.report_offset, len(texts) - rows))
    below = len(texts) - state.report_offset - rows
    row = Row(width, prefix="b:").add(" REPORT", "label")
    note = f"{view.glyphs.down}{below} more lines (R: all)" if below > 0 else "R: full screen"
    row.note(note, "warn" if below > 0 else "label")
    shown = texts[state.report_offset : state.report_offset + rows]
    return filled([row.line(), *[text_line(view, one, width) for one in shown]], width, height)


def text_line(view: View, text: str, width: int) -> Line:
    return Row(width).add(" ").add(fit(text, width - 1, view.glyphs.ellipsis)).line()


def _waiting(view: View, width: int, height: int) -> Frame:
    """No job yet: what was asked for, and why it may not be there."""
    lines = [header.draw(view, width)]
    if view.snapshot is not None and view.job.key is not None:
        says = [one.message for one in view.snapshot.problems if one.source == "jobs"]
        texts = says or [f"PID {view.job.key[0]}: its job has not been seen yet."]
        ellipsis = view.glyphs.ellipsis
        lines += filled([], width, 1)
        for text in texts:
            lines.append(Row(width).add("  ").add(fit(text, width - 3, ellipsis)).line())
        lines.append(Row(width).add("  j shows the whole machine", "label").line())
    foot, zones = footer.draw(view, width, _keys(view))
    zones = [zone._replace(y=height - 1) for zone in zones]
    return Frame([*filled(lines, width, height - 1), foot], zones)
