"""``gpuwatch status`` and ``gpuwatch stream``: one snapshot for a person or a program, or many."""

from __future__ import annotations

import sys
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
    writing,
)
from gpuwatch.commands.watching import attached_only, watch

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot


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

    from gpuwatch.outputs.status.once import SETTLE_SECONDS, look_once

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
        from gpuwatch.outputs.status.csv import csv_text

        text = csv_text(snapshot)
    else:
        from gpuwatch.outputs.status.text import (
            PROCESSES_SHOWN,
            WIDTH_WITHOUT_TERMINAL,
            status_page,
        )

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
    from gpuwatch.outputs.status.jsonlines import JsonLinesWriter

    writer = JsonLinesWriter(out)

    def take(snapshot: Snapshot, _passed: float) -> bool:
        with writing():
            writer.write(snapshot)
        return writer.written == count

    asyncio.run(watch(watched.pid, Sampler(source, watched.interval_seconds), take))
