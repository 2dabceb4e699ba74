"""``gpuwatch export``: the snapshots of a recording as CSV."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.printing import complain, refuse_overwriting, text_file
from gpuwatch.commands.reading import Cut, LogFacts, cut_options, log_options, part, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from gpuwatch.core.model import Snapshot

    Rows = Callable[[Snapshot], Iterator[list[Any]]]
    Table = tuple[str, Sequence[str], Rows]


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
