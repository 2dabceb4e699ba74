"""What a job is, in a few lines: command, who, where, how it gets its data, the cores it has."""

from __future__ import annotations

import time

from gpuwatch.core import units
from gpuwatch.core.model import Host, Job
from gpuwatch.jobs.words import cores_sentence, job_loading_sentence, loop_facts
from gpuwatch.tui.terminal.frame import Line, Row, fit, width_of
from gpuwatch.tui.view import View

Fact = tuple[str, str]

_THROTTLED_WORTH_SAYING_PERCENT = 1.0


def title(view: View, job: Job, width: int) -> Line:
    """The command, and at the right that it has ended, if it has."""
    ended = end_text(view, job, brief=width < 76)
    note = f" {ended[0]} " if ended is not None else ""
    row = Row(width).add(" ")
    command = job.command or f"PID {job.pid}"
    row.add(fit(command, max(8, row.room - width_of(note) - 1), view.glyphs.ellipsis), "title")
    if ended is not None:
        row.pad_to(width - width_of(note)).add(note, ended[1])
    return row.line()


def end_text(view: View, job: Job, brief: bool = False) -> Fact | None:
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


def lines(view: View, job: Job, width: int, most: int) -> list[Line]:
    """At most ``most`` lines of facts, most telling first, in the order of the screen."""
    if most <= 0 or view.snapshot is None:
        return []
    loading = _loading(job)
    cores = _cores(job, view.snapshot.host)
    gap = "   "
    one_line = sum(width_of(text) + len(gap) for text, _ in [loading, *cores]) <= width
    told = telling(view, job)
    if told and (most == 1 or most >= 3):
        most -= 1
        if most == 0:
            return [_flow(told, width, gap, view)]
    elif told:
        return [_flow(told, width, gap, view), _flow([loading, *cores], width, gap, view)]
    if most == 1:
        return [_flow([loading, *cores], width, gap, view)]
    if one_line or not cores:
        wanted = [[loading, *cores]]
    elif most >= 3:
        wanted = [[loading], cores]
    else:
        wanted = [[loading, *cores]]
    return [
        _flow(_identity(view, job), width, "  ", view),
        *[_flow(facts, width, gap, view) for facts in wanted],
    ][:most] + ([_flow(told, width, gap, view)] if told else [])


def telling(view: View, job: Job) -> list[Fact]:
    """What the job tells of its own loop."""
    now = None if view.snapshot is None else view.snapshot.taken_at_unix_seconds
    if ended_at(view, job) is not None:
        return []
    texts = loop_facts(job, now)
    return [(text, "value" if number == 0 else "text") for number, text in enumerate(texts)]


def _flow(facts: list[Fact], width: int, gap: str, view: View) -> Line:
    """Facts side by side; one that has no room is cut if it is the first, else left out."""
    row = Row(width).add(" ")
    for number, (text, style) in enumerate(facts):
        if number == 0:
            row.add(fit(text, row.room - 1, view.glyphs.ellipsis), style)
        elif row.room >= width_of(text) + len(gap) + 1:
            row.add(gap).add(text, style)
    return row.line()


def _identity(view: View, job: Job) -> list[Fact]:
    assert view.snapshot is not None
    facts: list[Fact] = [(f"PID {job.pid}", "text")]
    if job.inner_pid is not None and job.inner_pid != job.pid:
        facts[0] = (f"PID {job.pid} ({job.inner_pid} inside)", "text")
    if job.user is not None:
        facts.append((job.user, "text"))
    if job.started_at_unix_seconds is not None and ended_at(view, job) is None:
        now = view.snapshot.taken_at_unix_seconds
        facts.append((f"for {units.age(now - job.started_at_unix_seconds)}", "text"))
    ranks = _ranks(job)
    if ranks is not None:
        facts.append((ranks, "text"))
    for text in (
        job.framework,
        job.slurm_job and f"slurm {job.slurm_job}",
        job.container and f"container {job.container}",
        job.pod and f"pod {job.pod}",
        job.environment,
        job.working_directory and f"in {job.working_directory}",
    ):
        if text:
            facts.append((text, "label"))
    return facts


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


def _loading(job: Job) -> Fact:
    sentence = job_loading_sentence(job)
    known = job.ranks and job.loader_workers is not None
    return sentence, "value" if known else "label"


def _cores(job: Job, host: Host) -> list[Fact]:
    """``8 of 16 cores usable (quota 8.0), 4 a rank``, and whether it is held back."""
    facts: list[Fact] = []
    cores = cores_sentence(job, host)
    if cores is not None:
        facts.append((cores, "label"))
    held = job.cpu_throttled_percent
    if held is not None and held >= _THROTTLED_WORTH_SAYING_PERCENT:
        facts.append((f"CPU throttled {held:.0f}% of the time", "warn"))
    return facts
