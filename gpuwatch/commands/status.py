"""``gpuwatch status``: one look."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

import click

from gpuwatch.commands import common

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.source import Source


@click.command("status")
@common.source_options
@common.pid_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one row per GPU.")
@click.option("--quick", is_flag=True, help="Read only once: rates such as CPU % are missing.")
def status_command(
    all_processes: bool,
    gpus: int | None,
    demo: str | None,
    pid: int | None,
    as_json: bool,
    as_csv: bool,
    quick: bool,
) -> int:
    """Print the current state: a table, JSON or CSV."""
    if as_json and as_csv:
        raise click.UsageError("Choose one of --json and --csv.")
    out = common.open_output()
    source = common.make_source(demo, gpus, all_processes)
    notes = () if pid is None else common.attach_to(source, pid)

    from gpuwatch.outputs.status.once import SETTLE_SECONDS, NoAnswerError, look_once

    try:
        snapshot = look_once(
            source,
            settle_seconds=0.0 if quick else SETTLE_SECONDS,
            on_wait=_say_waiting if common.is_terminal(sys.stderr) else None,
        )
    except NoAnswerError as error:
        return common.complain(str(error), common.EXIT_NO_ANSWER)
    except KeyboardInterrupt:
        return common.EXIT_INTERRUPTED
    if pid is not None:
        snapshot = common.attached_only(snapshot, pid)
        for note in notes:
            common.complain(note, 0)
    common.write_to(
        out, lambda: out.write(_status_text(snapshot, out, as_json, as_csv, all_processes))
    )
    return common.EXIT_NO_ANSWER if _is_driver_silent(source) else 0


def _say_waiting() -> None:
    print("gpuwatch: waiting for the NVIDIA driver (Ctrl-C ends) ...", file=sys.stderr)


def _is_driver_silent(source: Source) -> bool:
    if source.simulated:
        return False
    from gpuwatch.sources.local import LocalSource

    return isinstance(source, LocalSource) and source.driver_silent


def _status_text(
    snapshot: Snapshot, out: TextIO, as_json: bool, as_csv: bool, all_processes: bool
) -> str:
    if as_json:
        from gpuwatch.core.codec import status_text

        return status_text(snapshot) + "\n"
    if as_csv:
        from gpuwatch.outputs.status.csv import csv_text

        return csv_text(snapshot)
    from gpuwatch.outputs.status.text import PROCESSES_SHOWN, WIDTH_WITHOUT_TERMINAL, status_page

    terminal = out.isatty()
    return (
        status_page(
            snapshot,
            width=common.terminal_width(out) if terminal else WIDTH_WITHOUT_TERMINAL,
            colour=terminal and not os.environ.get("NO_COLOR") and not common.is_dumb(),
            processes_shown=None if all_processes else PROCESSES_SHOWN,
        )
        + "\n"
    )
