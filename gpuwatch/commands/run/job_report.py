"""The report at the end of ``gpuwatch run``: kept, and printed or written to a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from gpuwatch.commands.printing import complain, drawing
from gpuwatch.core.private_files import private
from gpuwatch.core.text import clean

if TYPE_CHECKING:
    from gpuwatch.commands.run.options import RunOptions
    from gpuwatch.outputs.report.model import Report


def open_report(path: Path | None) -> TextIO | None:
    """The file for the report, opened before the job starts: hours later is too late to find that
    it cannot be written. Raises ``click.UsageError``."""
    if path is None:
        return None
    try:
        return open(path, "w", encoding="utf-8", errors="replace", opener=private)
    except OSError as error:
        raise click.UsageError(
            f"The report cannot be written to {clean(str(path), 300)}: {error.strerror}."
        ) from None


def keep_and_print(report: Report, options: RunOptions, file: TextIO | None) -> None:
    """Nothing that fails here fails more than itself: the exit code is the job's."""
    from gpuwatch.outputs.report.store import ReportStore, StoreError

    store, previous = ReportStore(), None
    try:
        previous = store.previous_run(report)
    except StoreError:
        # Also raised when none has ever been kept.
        previous = None
    try:
        store.save(report)
    except StoreError as error:
        complain(str(error))
    if options.no_report:
        return
    out = sys.stderr if file is None else file
    if out is not None:
        print_report(report, out, as_json=options.as_json, previous=previous)


def print_report(report: Report, out: TextIO, *, as_json: bool, previous: Report | None) -> None:
    try:
        out.write(_text(report, out, as_json, previous).rstrip("\n") + "\n")
        out.flush()
    except UnicodeEncodeError:
        # A locale that lacks a character must not cost the report.
        out.buffer.write(_text(report, out, as_json, previous).encode("ascii", "replace") + b"\n")
    except OSError as error:
        complain(f"The report cannot be written: {error.strerror}.")


def _text(report: Report, out: TextIO, as_json: bool, previous: Report | None) -> str:
    if as_json:
        from gpuwatch.outputs.report.forms.json import report_json

        return report_json(report)
    from gpuwatch.outputs.report.forms.text import report_text

    return report_text(report, previous=previous, **drawing(out)._asdict())
