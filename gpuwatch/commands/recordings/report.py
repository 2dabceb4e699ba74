"""``gpuwatch report``: what jobs did that were watched before, and what a recording says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.commands.printing import STANDARD_STREAM, complain, drawing, open_output, print_text
from gpuwatch.commands.recordings.forms import Form, form_options
from gpuwatch.commands.recordings.reading import (
    Cut,
    LogFacts,
    cut_options,
    log_options,
    read_report,
)

if TYPE_CHECKING:
    from gpuwatch.outputs.report.model import Report
    from gpuwatch.sources.smi_log.source import LogOptions


@click.command("report")
@click.argument("reference", required=False, metavar="[NUMBER|PID|FILE]")
@click.option("--list", "as_list", is_flag=True, help="List the saved reports.")
@click.option(
    "--compare",
    "other",
    metavar="NUMBER|PID|FILE",
    help="Compare with this report instead of the previous run.",
)
@cut_options("Of a recording:")
@log_options()
@form_options("the report")
def report_command(
    reference: str | None, as_list: bool, other: str | None, cut: Cut, facts: LogFacts, form: Form
) -> int:
    """Print the report of a job that was watched, or of a recording.

    Without an argument, it is the last job's. Reports are numbered from 1, the newest; a larger
    number is a PID. A job is compared with its previous run: the same command of the same user in
    the same folder. The last 200 reports are kept.

    FILE can also be a recording (of gpuwatch record or stream), with the files that --rotate put
    aside, or a log as diagnose takes it; - is standard input. Its report covers the whole machine,
    or part of it (--pid, --from, --to). Times are local; a time of day is the first one after the
    start of the recording.
    """
    if form.schema:
        from gpuwatch.outputs.report.model import Report

        return print_schema(Report, "gpuwatch report --json")
    form.check(*[given for given in (reference, other) if given is not None])
    for option, value in (("--pid", cut.pid), ("--from", cut.begin), ("--to", cut.end)):
        if value is not None and (reference is None or not is_recording(reference)):
            raise click.UsageError(
                f"{option} is for the report of a recording: name its file, as in: gpuwatch "
                f"report FILE {option}"
            )
    if as_list:
        if reference is not None or other is not None:
            raise click.UsageError("--list shows all reports: it takes no number and no --compare.")
        if form.as_markdown or form.html is not None:
            raise click.UsageError("--list prints text or JSON: it takes no --md and no --html.")
        return _list(form)
    options = facts.options()
    report = load(reference, cut, options)
    if other is None:
        _write(report, form)
        return 0
    pair = sorted(
        (load(other, options=options), report),
        key=lambda one: one.time.begin_unix_seconds if one.job is None else one.job.key[1] or 0.0,
    )
    return write_comparison(pair[0], pair[1], form)


def _write(report: Report, form: Form) -> None:
    from gpuwatch.outputs.report.content.report import report_document
    from gpuwatch.outputs.report.forms.json import report_json

    previous, tuning = None, None
    if report.source is None:
        previous, tuning = _run_before(report), _tuning(report)
    form.write(
        lambda name: report_document(report, name, previous=previous, tuning=tuning),
        lambda: report_json(report, tuning),
    )


def write_comparison(before: Report, after: Report, form: Form) -> int:
    from gpuwatch.outputs.report.comparison import compare
    from gpuwatch.outputs.report.content.changes import comparison_document
    from gpuwatch.outputs.report.forms.json import comparison_json

    comparison = compare(before, after)
    form.write(
        lambda name: comparison_document(comparison, name), lambda: comparison_json(comparison)
    )
    return 0


def print_schema(made: type[Any], title: str) -> int:
    from gpuwatch.outputs.report.encoding import dumps, schema

    print_text(dumps(schema(made, title)))
    return 0


# --- which report ----------------------------------------------------------------------------

_REPORT = re.compile(rb'"kind"\s*:\s*"(?:report|reports|comparison)"')


def is_recording(reference: str) -> bool:
    """Rather than the kept report of a job (which a number or a PID is, too)."""
    if reference == STANDARD_STREAM:
        return True
    if reference.isascii() and reference.isdigit():
        return False
    try:
        with Path(reference).open("rb") as file:
            return _REPORT.search(file.read(200)) is None
    except (OSError, ValueError):
        # Whoever reads it says what is wrong with it.
        return False


def load(
    reference: str | None, cut: Cut | None = None, options: LogOptions | None = None
) -> Report:
    """The report that is meant. Raises ``click.UsageError`` with a sentence for what is none."""
    from gpuwatch.outputs.report.encoding import ReportError
    from gpuwatch.outputs.report.store import NONE_KEPT, ReportStore, StoreError, read_file

    if reference is not None and is_recording(reference):
        return read_report(reference, cut, options)
    try:
        if reference is None:
            store = ReportStore()
            kept = store.last(1)
            if kept:
                return kept[0].report
            raise click.UsageError(_unreadable(store) or NONE_KEPT)
        if reference.isascii() and reference.isdigit():
            return ReportStore().find(reference).report
        return read_file(Path(reference))
    except (StoreError, ReportError) as error:
        raise click.UsageError(str(error)) from None


def _unreadable(store: Any) -> str:
    if not store.unreadable:
        return ""
    return (
        f"{store.unreadable} of the saved reports cannot be read: damaged, or of an older gpuwatch."
    )


def _tuning(report: Report) -> dict[str, Any] | None:
    """Last result of ``gpuwatch tune --save`` in the folder that the job ran in."""
    from gpuwatch.outputs.tuning.text import summary
    from gpuwatch.tuning.search.result import last

    job = report.job
    if job is None or job.working_directory is None or report.simulated:
        return None
    found = last(run_in=job.working_directory)
    return None if found is None else summary(found)


def _run_before(report: Report) -> Report | None:
    from gpuwatch.outputs.report.store import ReportStore, StoreError

    try:
        return ReportStore().previous_run(report)
    except StoreError:
        # For a report in a file there need be no others.
        return None


def _list(form: Form) -> int:
    from gpuwatch.outputs.report.store import NONE_KEPT, ReportStore, StoreError

    store = ReportStore()
    try:
        kept = store.last()
    except StoreError as error:
        raise click.UsageError(str(error)) from None
    if not kept:
        raise click.UsageError(_unreadable(store) or NONE_KEPT)
    if form.as_json:
        from gpuwatch.outputs.report.forms.json import list_json

        print_text(list_json(kept))
    else:
        from gpuwatch.outputs.report.forms.text import list_text

        numbered = [(each.number, each.report) for each in kept]
        look = drawing(open_output(), form.ascii_mode)
        print_text(list_text(numbered, **look._asdict()))
    if store.unreadable:
        complain(_unreadable(store))
    return 0
