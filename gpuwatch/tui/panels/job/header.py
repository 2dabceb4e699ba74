"""A job in a few lines: command, who, where, how it gets its data, the cores it has."""

import time
from functools import partial

from gpuwatch.core import units
from gpuwatch.core.model import Host, Job
from gpuwatch.jobs.words import cores_sentence, job_loading_sentence, loop_facts
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, Title, edge, fixed
from gpuwatch.tui.panels.job.traces import has_reported, kinds
from gpuwatch.tui.terminal.frame import Line, Row, Run, fit, width_of
from gpuwatch.tui.terminal.listing import brief_command
from gpuwatch.tui.view import View

_GAP = "   "
_THROTTLED_WORTH_SAYING_PERCENT = 1.0


def _draw_title(page: Page, _rows: int) -> Drawn:
    """The command, and at the right that it has ended, if it has."""
    view, job, width = page.view, page.job, page.width
    assert job is not None
    ended = end_text(view, job, brief=width < 76)
    note = f" {ended[0]} " if ended is not None else ""
    command = brief_command(job.command or f"PID {job.pid}")
    if page.boxed:
        return edge(view.glyphs, width, Title(command, (), *(ended or ())))
    row = Row(width).add(" ")
    row.add(fit(command, max(8, row.room - width_of(note) - 1), view.glyphs.ellipsis), "title")
    if ended is not None:
        row.pad_to(width - width_of(note)).add(note, ended[1])
    return [row.line()], []


TITLE = fixed("title", 1, _draw_title)


def end_text(view: View, job: Job, brief: bool = False) -> Run | None:
    """``ended 12:03:11 after 2h13, exit code 1``, and its style; ``None``: it runs."""
    at = ended_at(view, job)
    if at is None:
        return None
    text = f"ended {time.strftime('%H:%M:%S', time.localtime(at))}"
    if job.started_at_unix_seconds is not None:
        text += f" after {units.age(at - job.started_at_unix_seconds)}"
    code = view.job.exit_code if job.exit_code is None else job.exit_code
    if code is None:
        return text, "warn"
    if code < 0:
        text += f", signal {-code}"
    else:
        text += f", exit {code}" if brief else f", exit code {code}"
    return text, "text" if code == 0 else "error"


def ended_at(view: View, job: Job) -> float | None:
    """When it ended; one that left the list ended when it was missed."""
    if job.ended_at_unix_seconds is not None:
        return job.ended_at_unix_seconds
    return view.job.gone_at_unix_seconds


def _fact_rows(page: Page) -> int:
    """Rows of facts, as long as each chart and three processes have theirs."""
    assert page.job is not None
    height = page.tall
    wanted = 1 if height < 14 else 2 if height < 18 or page.width >= 110 else 3
    wanted += height >= 14 and has_reported(page.view, page.job)
    return max(0, min(wanted, page.room - len(kinds(page)) - 3))


def _draw(page: Page, rows: int) -> Drawn:
    """At most ``rows`` lines of facts, most telling first, in the order of the screen."""
    view, job = page.view, page.job
    assert job is not None
    assert view.snapshot is not None
    known = job.ranks and job.loader_workers is not None
    loading = job_loading_sentence(job), "value" if known else "label"
    cores = _cores(job, view.snapshot.host)
    together = [loading, *cores]
    reported = _reported(view, job)
    flow = partial(_flow, view, page.width)
    if reported and rows <= 2:
        return [flow(reported), flow(together)][:rows], []
    most = rows - bool(reported)
    one_line = sum(width_of(text) + len(_GAP) for text, _ in together) <= page.width
    apart = most >= 3 and bool(cores) and not one_line
    lines = [flow(one) for one in (([loading], cores) if apart else (together,))]
    if most > 1:
        lines = [flow(_identity(view, job), gap="  "), *lines][:most]
    return [*lines, flow(reported)] if reported else lines, []


FACTS = Panel("facts", _fact_rows, _draw)


def _reported(view: View, job: Job) -> list[Run]:
    """The job's report on its own loop."""
    now = None if view.snapshot is None else view.snapshot.taken_at_unix_seconds
    if ended_at(view, job) is not None:
        return []
    texts = loop_facts(job, now)
    return [(text, "value" if number == 0 else "text") for number, text in enumerate(texts)]


def _flow(view: View, width: int, facts: list[Run], gap: str = _GAP) -> Line:
    """Facts side by side; one that has no room is cut if it is the first, else left out."""
    row = Row(width).add(" ")
    for number, (text, style) in enumerate(facts):
        if number == 0:
            row.add(fit(text, row.room - 1, view.glyphs.ellipsis), style)
        elif row.room >= width_of(text) + len(gap) + 1:
            row.add(gap).add(text, style)
    return row.line()


def _identity(view: View, job: Job) -> list[Run]:
    assert view.snapshot is not None
    now, since = view.snapshot.taken_at_unix_seconds, job.started_at_unix_seconds
    inner = "" if job.inner_pid in (None, job.pid) else f" ({job.inner_pid} inside)"
    runs = since is not None and ended_at(view, job) is None
    facts = (
        (f"PID {job.pid}{inner}", "text"),
        (job.user, "text"),
        (f"for {units.age(now - (since or 0.0))}" if runs else None, "text"),
        (_ranks(job), "text"),
        (job.framework, "label"),
        (job.slurm_job and f"slurm {job.slurm_job}", "label"),
        (job.container and f"container {job.container}", "label"),
        (job.pod and f"pod {job.pod}", "label"),
        (job.environment, "label"),
        (job.working_directory and f"in {job.working_directory}", "label"),
    )
    return [(text, style) for text, style in facts if text]


def _ranks(job: Job) -> str | None:
    count = len(job.ranks)
    if count == 0:
        return None if job.launcher is None else f"{job.launcher}, no rank seen"
    if job.world_size is not None and job.world_size > count:
        text = f"{count} of {job.world_size} ranks here"
    elif count > 1:
        text = f"{count} ranks"
    else:
        return job.launcher
    return text if job.launcher is None else f"{text} ({job.launcher})"


def _cores(job: Job, host: Host) -> list[Run]:
    """``8 of 16 cores usable (quota 8.0), 4 per rank``, and whether it is held back."""
    facts: list[Run] = []
    cores = cores_sentence(job, host)
    if cores is not None:
        facts.append((cores, "label"))
    held = job.cpu_throttled_percent
    if held is not None and held >= _THROTTLED_WORTH_SAYING_PERCENT:
        facts.append((f"CPU throttled {held:.0f}% of the time", "warn"))
    return facts
