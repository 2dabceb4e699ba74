"""``gpuwatch report``: what jobs did that were watched before."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from gpuwatch.commands import common

if TYPE_CHECKING:
    from gpuwatch.jobs.report import JobReport
    from gpuwatch.jobs.store import Kept, ReportStore

WIDTH_WITHOUT_TERMINAL = 80


@click.command()
@click.argument("reference", required=False, metavar="[NUMBER|PID|FILE]")
@click.option("--list", "as_list", is_flag=True, help="List the reports that are kept.")
@click.option(
    "--compare",
    "other",
    metavar="NUMBER|PID|FILE",
    help="Compare with this report instead of with the run before.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--ascii/--no-ascii", "ascii_mode", default=None, help="Draw with ASCII only.")
def report_command(
    reference: str | None,
    as_list: bool,
    other: str | None,
    as_json: bool,
    ascii_mode: bool | None,
) -> int:
    """Print the report of a job that was watched: of the last one, or of the one that is named.

    Reports are numbered from the newest, which is 1; a larger number is a job's PID. A job's
    report is compared with that of its last run before: the same command, started by the same
    user in the same folder. The last 200 are kept.
    """
    from gpuwatch.jobs.report import ReportError
    from gpuwatch.jobs.store import ReportStore, StoreError

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


def _find(store: ReportStore, reference: str | None) -> JobReport:
    """The report that is meant. Raises ``StoreError`` or ``ReportError``."""
    from gpuwatch.jobs.store import read_file

    if reference is None:
        return _newest(store)
    if reference.isascii() and reference.isdigit():
        return store.find(reference).report
    return read_file(Path(reference))


def _newest(store: ReportStore) -> JobReport:
    from gpuwatch.jobs.store import NONE_KEPT, StoreError

    newest = store.last(1)
    if not newest:
        raise StoreError(NONE_KEPT)
    return newest[0].report


def _one(
    store: ReportStore, report: JobReport, out: TextIO, as_json: bool, ascii_mode: bool | None
) -> str:
    if as_json:
        from gpuwatch.jobs.report_json import report_text_json

        return report_text_json(report, indent=2)
    from gpuwatch.outputs.report import report_text

    return report_text(report, previous=_run_before(store, report), **_drawing(out, ascii_mode))


def _run_before(store: ReportStore, report: JobReport) -> JobReport | None:
    from gpuwatch.jobs.store import StoreError

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
        from gpuwatch.jobs.report_json import SCHEMA_VERSION, report_object

        return _dumps(
            {
                "kind": "comparison",
                "schema": SCHEMA_VERSION,
                "before": report_object(before),
                "after": report_object(after),
            }
        )
    from gpuwatch.outputs.report import compare_text

    return compare_text(before, after, **_drawing(out, ascii_mode))


def _list(store: ReportStore, out: TextIO, as_json: bool, ascii_mode: bool | None) -> str:
    from gpuwatch.jobs.store import NONE_KEPT, StoreError

    kept = store.last()
    if not kept:
        raise StoreError(NONE_KEPT)
    if as_json:
        from gpuwatch.jobs.report_json import SCHEMA_VERSION

        reports = [_summary(each) for each in kept]
        return _dumps({"kind": "reports", "schema": SCHEMA_VERSION, "reports": reports})
    from gpuwatch.outputs.report import list_text

    return list_text([(each.number, each.report) for each in kept], **_drawing(out, ascii_mode))


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
    from gpuwatch.jobs.report_json import report_object

    written = report_object(kept.report)
    return {
        "number": kept.number,
        "path": str(kept.path),
        **{name: written[name] for name in _SUMMED},
    }


def _dumps(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, allow_nan=False)


def _drawing(out: TextIO, ascii_mode: bool | None) -> dict[str, Any]:
    if ascii_mode is None:
        ascii_mode = not (out.encoding or "").lower().replace("-", "").startswith("utf")
    terminal = out.isatty()
    return {
        "width": common.terminal_width(out) if terminal else WIDTH_WITHOUT_TERMINAL,
        "colour": terminal and not os.environ.get("NO_COLOR") and not common.is_dumb(),
        "unicode": not ascii_mode,
    }
