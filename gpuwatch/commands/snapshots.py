"""``gpuwatch status``, ``stream`` and ``export``: one snapshot for a person or a program, many
as they come, or those of a recording.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import Watched, option_json, watched_options
from gpuwatch.commands.printing import (
    EXIT_NO_ANSWER,
    complain,
    drawing,
    is_terminal,
    open_output,
    print_text,
    refuse_overwriting,
    text_file,
    writing,
)
from gpuwatch.commands.recordings.reading import (
    Cut,
    LogFacts,
    cut_options,
    log_options,
    part,
    progress,
)
from gpuwatch.commands.watching import attached_only, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from gpuwatch.core.model import Snapshot

    Rows = Callable[[Snapshot], Iterator[list[Any]]]
    Table = tuple[str, Sequence[str], Rows]


@click.command("status")
@watched_options(interval=False)
@option_json()
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one row per GPU.")
@click.option("--quick", is_flag=True, help="Read only once: rates such as CPU % are missing.")
def status_command(watched: Watched, as_json: bool, as_csv: bool, quick: bool) -> int:
    """Print the current state: a table, JSON or CSV."""
    if as_json and as_csv:
        raise click.UsageError("Choose one of --json and --csv.")
    out = open_output()
    source, notes = watched.open()

    from gpuwatch.commands.watching import SETTLE_SECONDS, look_once

    snapshot = look_once(
        source,
        settle_seconds=0.0 if quick else SETTLE_SECONDS,
        on_wait=_say_waiting if is_terminal(sys.stderr) else None,
    )
    if watched.pid is not None:
        snapshot = attached_only(snapshot, watched.pid)
        for note in notes:
            complain(note)
    if as_json:
        from gpuwatch.core.codec import status_text

        text = status_text(snapshot)
    elif as_csv:
        from gpuwatch.outputs.export import csv_text

        text = csv_text(snapshot)
    else:
        from gpuwatch.outputs.status import PROCESSES_SHOWN, WIDTH_WITHOUT_TERMINAL, status_page

        look = drawing(out, width_without_terminal=WIDTH_WITHOUT_TERMINAL)
        shown = None if watched.all_processes else PROCESSES_SHOWN
        text = status_page(snapshot, width=look.width, colour=look.colour, processes_shown=shown)
    print_text(text, out)
    return EXIT_NO_ANSWER if getattr(source, "driver_silent", False) else 0


def _say_waiting() -> None:
    complain("waiting for the NVIDIA driver (Ctrl-C ends) ...")


@click.command("stream")
@watched_options()
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many snapshots.")
def stream_command(watched: Watched, count: int | None) -> None:
    """Print a JSON line for each reading, after a header line."""
    out = open_output()
    source, notes = watched.open()
    for note in notes:
        complain(note)

    import asyncio

    from gpuwatch.core.sampler import Sampler
    from gpuwatch.outputs.export import JsonLinesWriter

    writer = JsonLinesWriter(out)

    def take(snapshot: Snapshot, _passed: float) -> bool:
        with writing():
            writer.write(snapshot)
        return writer.written == count

    asyncio.run(watch(watched.pid, Sampler(source, watched.interval_seconds), take))


@click.command("export")
@click.argument("file", metavar="FILE")
@click.option("--csv", "readings", metavar="OUT", help="One row per GPU and reading.")
@click.option("--processes", metavar="OUT", help="One row per process and reading.")
@click.option("--host", metavar="OUT", help="One row per reading: CPU, memory, disk, network.")
@cut_options()
@log_options()
def export_command(
    file: str,
    readings: str | None,
    processes: str | None,
    host: str | None,
    cut: Cut,
    facts: LogFacts,
) -> int:
    """Write a recording as CSV, for pandas and spreadsheets.

    FILE is a recording, a log as diagnose takes it, or - for standard input. OUT may
    be - for standard output, and is gzip if it ends in .gz. Times are in UTC; units are in the
    column names; missing readings are empty. Text that a spreadsheet would take for a formula
    starts with an apostrophe.
    """
    from gpuwatch.outputs import export

    tables: list[Table] = [
        (path, columns, rows)
        for path, columns, rows in (
            (readings, export.GPU_COLUMNS, export.gpu_rows),
            (processes, export.PROCESS_COLUMNS, export.process_rows),
            (host, export.HOST_COLUMNS, export.host_rows),
        )
        if path is not None
    ]
    _refuse(file, [path for path, _, _ in tables])
    with part(file, cut, facts.options()) as (log, snapshots):
        if _write(progress(log, snapshots), tables) == 0:
            raise click.UsageError(cut.nothing(log))
    for note in log.stats.sentences():
        complain(note)
    return 0


def _refuse(file: str, paths: Sequence[str]) -> None:
    if not paths:
        raise click.UsageError(
            "Say what to write: --csv OUT, --processes OUT or --host OUT (- is standard output)."
        )
    if len(set(paths)) < len(paths):
        raise click.UsageError("Two tables cannot go to the same place.")
    for path in paths:
        refuse_overwriting(path, file)


def _write(snapshots: Iterator[Snapshot], tables: Sequence[Table]) -> int:
    """Write the tables; returns how many snapshots there were. Files are made at the first, so that
    a FILE that is none leaves none behind."""
    from gpuwatch.outputs.export import RowWriter

    written = 0
    with ExitStack() as files:
        writers: list[tuple[RowWriter, Rows]] = []
        for snapshot in snapshots:
            if not writers:
                writers = [
                    (RowWriter(files.enter_context(text_file(path)), columns), rows)
                    for path, columns, rows in tables
                ]
            for writer, rows in writers:
                writer.write(rows(snapshot))
            written += 1
    return written
