"""``gpuwatch report``: what jobs did that were watched before, and what a recording says."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from gpuwatch.commands import common
from gpuwatch.commands.recordings.reading import (
    STANDARD_STREAM,
    Cut,
    moment_option,
    pid_callback,
    refuse_overwriting,
    summarise,
    write_file,
)

if TYPE_CHECKING:
    from gpuwatch.jobs.report.report import JobReport
    from gpuwatch.jobs.report.store import Kept, ReportStore
    from gpuwatch.outputs.summary.model import Summary
    from gpuwatch.outputs.summary.moments import Moment

WIDTH_WITHOUT_TERMINAL = 80


@click.command("report")
@click.argument("reference", required=False, metavar="[NUMBER|PID|FILE]")
@click.option("--list", "as_list", is_flag=True, help="List the saved reports.")
@click.option(
    "--compare",
    "other",
    metavar="NUMBER|PID|FILE",
    help="Compare with this report instead of the previous run.",
)
@click.option(
    "--pid",
    callback=pid_callback,
    metavar="PID",
    help="Of a recording: only the job of this process (any of its processes).",
)
@click.option(
    "--from",
    "begin",
    callback=moment_option,
    metavar="TIME",
    help="Of a recording: from 14:30, 2026-03-01 14:30, +15m (from its start), -2h (from its end).",
)
@click.option("--to", "end", callback=moment_option, metavar="TIME", help="End of the time range.")
@click.option("--html", metavar="OUT", help="Of a recording: write one HTML file (- prints it).")
@click.option("--md", "as_markdown", is_flag=True, help="Of a recording: print Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (see --schema).")
@click.option(
    "--schema",
    is_flag=True,
    help="Print the JSON Schema of a recording's report, and exit.",
)
@click.option("--ascii/--no-ascii", "ascii_mode", default=None, help="Draw with ASCII only.")
def report_command(
    reference: str | None,
    as_list: bool,
    other: str | None,
    pid: int | None,
    begin: Moment | None,
    end: Moment | None,
    html: str | None,
    as_markdown: bool,
    as_json: bool,
    schema: bool,
    ascii_mode: bool | None,
) -> int:
    """Print the report of a job that was watched, or of a recording.

    Without an argument it is that of the last job. Reports of jobs are numbered from the newest,
    which is 1; a larger number is a job's PID. A job's report is compared with that of its
    previous run: the same command, started by the same user in the same folder. The last 200 are
    kept.

    FILE may also be a recording (of gpuwatch record or stream, also gzip) or a log that nvidia-smi
    wrote; - is standard input. Its report covers everything that was on the machine, or a part of
    it (--pid, --from, --to); what was wrong, and what it cost, is worked out from its readings.
    Files that record --rotate put aside are read with it. Times are local; in --from and --to a
    time of day is the first one after the start of the recording.
    """
    if schema:
        return _print_schema()
    _refuse_forms(html, as_markdown=as_markdown, as_json=as_json)
    if reference is not None and _is_recording(reference):
        if as_list or other is not None:
            raise click.UsageError(
                "--list and --compare are for reports of jobs: gpuwatch compare compares two "
                "recordings."
            )
        cut = Cut(begin, end, pid)
        return _recording(reference, cut, html, as_markdown, as_json, ascii_mode)
    _refuse_recordings_options(
        {
            "--pid": pid,
            "--from": begin,
            "--to": end,
            "--html": html,
            "--md": as_markdown or None,
        }
    )
    return _job(reference, as_list, other, as_json, ascii_mode)


def _job(
    reference: str | None,
    as_list: bool,
    other: str | None,
    as_json: bool,
    ascii_mode: bool | None,
) -> int:
    from gpuwatch.jobs.report.report import ReportError
    from gpuwatch.jobs.report.store import ReportStore, StoreError

    if as_list and (reference is not None or other is not None):
        raise click.UsageError("--list shows all reports: it takes no number and no --compare.")
    out = common.open_output()
    store = ReportStore()
    try:
        if as_list:
            text = _list(store, out, as_json, ascii_mode)
        elif other is not None:
            text = _comparison(
                _find(store, other), _find(store, reference), out, as_json, ascii_mode
            )
        else:
            text = _one(store, _find(store, reference), out, as_json, ascii_mode)
    except (StoreError, ReportError) as error:
        raise click.UsageError(str(error)) from None
    common.write_to(out, lambda: out.write(text + "\n"))
    return 0


# --- a recording -----------------------------------------------------------------------------

_KINDS = re.compile(rb'"kind"\s*:\s*"(?:header|snapshot|delta|bucket|finding)"')
_GZIP = b"\x1f\x8b"


def _is_recording(reference: str) -> bool:
    """Rather than the kept report of a job (which a number or a PID is, too)."""
    if reference == STANDARD_STREAM:
        return True
    if reference.isascii() and reference.isdigit():
        return False
    try:
        with Path(reference).open("rb") as file:
            start = file.read(4096)
    except (OSError, ValueError):
        # Whoever reads it says what is wrong with it.
        return False
    if start.startswith(_GZIP):
        return True
    body = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    return not body.startswith(b"{") or bool(_KINDS.search(start)) or _is_of_lines(body)


def _is_of_lines(body: bytes) -> bool:
    """An object a line, as a recording is and a report is not."""
    first, _, rest = body.partition(b"\n")
    return first.rstrip().endswith(b"}") and rest.lstrip().startswith(b"{")


def _recording(
    path: str,
    cut: Cut,
    html: str | None,
    as_markdown: bool,
    as_json: bool,
    ascii_mode: bool | None,
) -> int:
    refuse_overwriting(html, path)
    out = None if html is not None else common.open_output()
    summary = summarise(path, cut)
    if html is not None:
        from gpuwatch.outputs.html.report import recording_html

        write_file(html, recording_html(summary))
        return 0
    assert out is not None
    text = _recording_text(summary, out, as_markdown, as_json, ascii_mode)
    common.write_to(out, lambda: out.write(text + "\n"))
    return 0


def _recording_text(
    summary: Summary, out: TextIO, as_markdown: bool, as_json: bool, ascii_mode: bool | None
) -> str:
    if as_json:
        from gpuwatch.outputs.recording_report.json import recording_json

        return recording_json(summary)
    if as_markdown:
        from gpuwatch.outputs.recording_report.markdown import recording_markdown

        return recording_markdown(summary)
    from gpuwatch.outputs.recording_report.text import recording_text

    return recording_text(summary, **drawing(out, ascii_mode))


def _print_schema() -> int:
    from gpuwatch.outputs.recording_report.schema import RECORDING_SCHEMA

    out = common.open_output()
    common.write_to(out, lambda: out.write(_dumps(RECORDING_SCHEMA) + "\n"))
    return 0


def _refuse_forms(html: str | None, *, as_markdown: bool, as_json: bool) -> None:
    if (html is not None) + as_markdown + as_json > 1:
        raise click.UsageError("Choose one of --html, --json and --md.")


def _refuse_recordings_options(given: dict[str, object]) -> None:
    for option, value in given.items():
        if value is not None:
            raise click.UsageError(
                f"{option} is for the report of a recording: name its file, as in: gpuwatch "
                f"report FILE {option}"
            )


# --- a job -----------------------------------------------------------------------------------


def _find(store: ReportStore, reference: str | None) -> JobReport:
    """The report that is meant. Raises ``StoreError`` or ``ReportError``."""
    from gpuwatch.jobs.report.store import read_file

    if reference is None:
        return _newest(store)
    if reference.isascii() and reference.isdigit():
        return store.find(reference).report
    return read_file(Path(reference))


def _newest(store: ReportStore) -> JobReport:
    from gpuwatch.jobs.report.store import NONE_KEPT, StoreError

    newest = store.last(1)
    if not newest:
        raise StoreError(NONE_KEPT)
    return newest[0].report


def _one(
    store: ReportStore, report: JobReport, out: TextIO, as_json: bool, ascii_mode: bool | None
) -> str:
    tuning = _tuning(report)
    if as_json:
        from gpuwatch.jobs.report.json import report_object

        return _dumps({**report_object(report), "tuning": tuning})
    from gpuwatch.outputs.job_report.text import report_text

    previous = _run_before(store, report)
    return report_text(report, previous=previous, tuning=tuning, **drawing(out, ascii_mode))


def _tuning(report: JobReport) -> dict[str, Any] | None:
    """What ``gpuwatch tune --save`` measured last in the folder that the job ran in."""
    from gpuwatch.outputs.tuning.text import summary
    from gpuwatch.tuning.search.keep import last

    if report.working_directory is None or report.simulated:
        return None
    found = last(run_in=report.working_directory)
    return None if found is None else summary(found)


def _run_before(store: ReportStore, report: JobReport) -> JobReport | None:
    from gpuwatch.jobs.report.store import StoreError

    try:
        return store.previous_run(report)
    except StoreError:
        # For a report in a file there need be no others.
        return None


def _comparison(
    one: JobReport, two: JobReport, out: TextIO, as_json: bool, ascii_mode: bool | None
) -> str:
    before, after = sorted((one, two), key=lambda report: report.started_at_unix_seconds or 0.0)
    if as_json:
        from gpuwatch.jobs.report.json import SCHEMA_VERSION, report_object

        return _dumps(
            {
                "kind": "comparison",
                "schema": SCHEMA_VERSION,
                "before": report_object(before),
                "after": report_object(after),
            }
        )
    from gpuwatch.outputs.job_report.compare import compare_text

    return compare_text(before, after, **drawing(out, ascii_mode))


def _list(store: ReportStore, out: TextIO, as_json: bool, ascii_mode: bool | None) -> str:
    from gpuwatch.jobs.report.store import NONE_KEPT, StoreError

    kept = store.last()
    if not kept:
        raise StoreError(NONE_KEPT)
    if as_json:
        from gpuwatch.jobs.report.json import SCHEMA_VERSION

        reports = [_summary(each) for each in kept]
        return _dumps({"kind": "reports", "schema": SCHEMA_VERSION, "reports": reports})
    from gpuwatch.outputs.job_report.list import list_text

    return list_text([(each.number, each.report) for each in kept], **drawing(out, ascii_mode))


_SUMMED = (
    "pid",
    "started_at_unix_seconds",
    "ended_at_unix_seconds",
    "command",
    "exit_code",
    "duration_seconds",
    "busy_percent",
    "idle_gpu_seconds",
)


def _summary(kept: Kept) -> dict[str, Any]:
    from gpuwatch.jobs.report.json import report_object

    written = report_object(kept.report)
    return {
        "number": kept.number,
        "path": str(kept.path),
        **{name: written[name] for name in _SUMMED},
    }


def _dumps(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, allow_nan=False)


def drawing(out: TextIO, ascii_mode: bool | None) -> dict[str, Any]:
    """``width``, ``colour`` and ``unicode`` for what is printed to ``out``."""
    if ascii_mode is None:
        ascii_mode = not (out.encoding or "").lower().replace("-", "").startswith("utf")
    terminal = out.isatty()
    return {
        "width": common.terminal_width(out) if terminal else WIDTH_WITHOUT_TERMINAL,
        "colour": terminal and not os.environ.get("NO_COLOR") and not common.is_dumb(),
        "unicode": not ascii_mode,
    }
