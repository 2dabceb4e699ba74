"""A report as a document: what is said, in which order."""

from collections.abc import Iterable

from gpuwatch.core import units
from gpuwatch.outputs.report.comparison import compare
from gpuwatch.outputs.report.content import facts, tables, words
from gpuwatch.outputs.report.content.changes import compared_table
from gpuwatch.outputs.report.content.document import (
    Block,
    Bullets,
    Document,
    Labelled,
    Listed,
    Said,
    Section,
)
from gpuwatch.outputs.report.content.findings import groups, quality, verdict_parts, worded
from gpuwatch.outputs.report.content.timeline import cards, meta, timeline
from gpuwatch.outputs.report.encoding import dumps
from gpuwatch.outputs.report.model import Report

PROBLEMS_SHOWN = {"text": 4, "page": 12}


def report_document(report: Report, form: str, *, previous: Report | None = None) -> Document:
    """In the order of ``form`` (``text`` or ``page``). ``previous``: the run before, of the report
    of a job."""
    job = report.job
    chart = Section("Over time", [timeline(report)])
    found = Section("Findings", [group.found() for group in groups(report)])
    figures = Section("GPUs", list(tables.gpus(report, form)))
    machine = Labelled("Machine", list(facts.host_facts(report)))
    several = len(report.phases) > 1
    phases = Section("Phases", list(tables.phases(report, form)) if several else [])
    problems = [*quality(report), *report.problems[: PROBLEMS_SHOWN[form]]]
    quality_ = Bullets("Data quality", problems)
    alone = job is not None and report.source is None
    sections = [
        Section("", list(_head(report, form, previous))),
        *([figures] if form == "text" else [chart, found, figures]),
        phases,
        Section("Job", [] if job is None else [Labelled("Job", facts.job_facts(job))]),
        *([chart, found] if form == "text" else [cards(report)]),
        Section("Jobs", list(tables.jobs(report, form))),
        Section("Processes", list(tables.processes(report, form))),
        Section("Machine", [machine] if machine.facts and not alone else []),
        Section("Data quality", [] if alone else [quality_]),
    ]
    if previous is not None:
        changes = compared_table(compare(previous, report))
        sections.append(Section("Since the last run", [changes]))
    title = words.when(report)
    who = report.machine or "" if job is None else words.command(job)
    return Document(
        f"GPU report: {who}, {title}",
        "GPU report",
        report.simulated,
        [section for section in sections if section.blocks],
    )


def _head(report: Report, form: str, previous: Report | None) -> Iterable[Block]:
    job, source = report.job, report.source
    if job is not None:
        yield Said(words.command(job), "command")
        yield Listed(facts.when(report, job))
        yield Listed(facts.where(report, job))
        if job.failed:
            yield Said(job.exit_words, "bad")
        if watched := facts.watched(report):
            yield Said(watched, "warn")
        if previous is not None and previous.job is not None:
            last, start = previous.job, previous.job.started_at_unix_seconds
            began = [] if start is None else [words.clock(start, "%F %H:%M")]
            # Of a run that failed the duration says little.
            when = ", ".join([*began, *([last.exit_words] if last.failed else [])])
            yield Said(f"Compared with the last run ({when}) at the end.")
    idle, busy = report.total.idle_gpu_seconds, report.total.busy_percent
    if job is None or source is not None or report.phases or not report.gpus:
        head, why = verdict_parts(report)
        yield from (
            [Said(f"{head} {why}".strip(), "verdict")]
            if form == "text"
            else [Said(head, "verdict"), *([Said(why, "why")] if why else [])]
        )
    elif idle is not None and busy is not None:
        yield Said(
            f"{words.grouped(idle)} GPU-seconds idle, {units.percent(100.0 - busy)} of the time "
            "watched.",
            "verdict",
        )
    if source is not None:
        yield from meta(report)


def report_json(report: Report) -> str:
    """One JSON object, without a line end."""
    return dumps(worded(report))
