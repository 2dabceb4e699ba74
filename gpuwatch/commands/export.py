"""``gpuwatch report --csv``: the snapshots of a recording as CSV."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import click

from gpuwatch.commands.options import Decorator, grouped
from gpuwatch.commands.printing import complain, refuse_overwriting, text_file
from gpuwatch.commands.reading import Cut, LogFacts, part, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from gpuwatch.core.model import Snapshot

    Rows = Callable[[Snapshot], Iterator[list[Any]]]
    Table = tuple[str, Sequence[str], Rows]


class CsvFiles(NamedTuple):
    """The files that the tables of ``gpuwatch report --csv`` go to."""

    csv: str | None
    csv_processes: str | None
    csv_host: str | None


def csv_options() -> Decorator:
    """Add the options that write CSV, as the argument ``csv``."""
    return grouped(
        "csv",
        CsvFiles,
        click.option("--csv", metavar="OUT", help="Write CSV: a row per GPU and reading."),
        click.option(
            "--csv-processes", metavar="OUT", help="Write CSV: a row per process and reading."
        ),
        click.option(
            "--csv-host",
            metavar="OUT",
            help="Write CSV: a row per reading of CPU, memory, disk, network.",
        ),
    )


def write_csv(file: str, csv: CsvFiles, cut: Cut, facts: LogFacts) -> int:
    """Write the readings of a recording or log. Raises ``click.UsageError``."""
    from gpuwatch.outputs import export

    tables: list[Table] = [
        (path, columns, rows)
        for path, columns, rows in (
            (csv.csv, export.GPU_COLUMNS, export.gpu_rows),
            (csv.csv_processes, export.PROCESS_COLUMNS, export.process_rows),
            (csv.csv_host, export.HOST_COLUMNS, export.host_rows),
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
