"""``gpuwatch status`` and ``gpuwatch stream``: one snapshot for a person or a program, or many."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

import click

from gpuwatch.commands.options import Watched, option_json, watched_options
from gpuwatch.commands.printing import (
    EXIT_INTERRUPTED,
    EXIT_NO_ANSWER,
    complain,
    drawing,
    is_terminal,
    open_output,
    print_text,
    writing,
)
from gpuwatch.commands.watching import attached_only

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.source import Source


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

    from gpuwatch.outputs.status.once import SETTLE_SECONDS, NoAnswerError, look_once

    try:
        snapshot = look_once(
            source,
            settle_seconds=0.0 if quick else SETTLE_SECONDS,
            on_wait=_say_waiting if is_terminal(sys.stderr) else None,
        )
    except NoAnswerError as error:
        return complain(str(error), EXIT_NO_ANSWER)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    if watched.pid is not None:
        snapshot = attached_only(snapshot, watched.pid)
        for note in notes:
            complain(note)
    print_text(_status_text(snapshot, out, as_json, as_csv, watched.all_processes), out)
    return EXIT_NO_ANSWER if _is_driver_silent(source) else 0


def _say_waiting() -> None:
    complain("waiting for the NVIDIA driver (Ctrl-C ends) ...")


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

        return status_text(snapshot)
    if as_csv:
        from gpuwatch.outputs.status.csv import csv_text

        return csv_text(snapshot)
    from gpuwatch.outputs.status.text import PROCESSES_SHOWN, WIDTH_WITHOUT_TERMINAL, status_page

    look = drawing(out, width_without_terminal=WIDTH_WITHOUT_TERMINAL)
    return status_page(
        snapshot,
        width=look.width,
        colour=look.colour,
        processes_shown=None if all_processes else PROCESSES_SHOWN,
    )


class _EnoughError(Exception):
    """Ends a stream that has printed what it was asked for."""


@click.command("stream")
@watched_options()
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many snapshots.")
def stream_command(watched: Watched, count: int | None) -> int:
    """Print a JSON line for each reading, after a header line."""
    out = open_output()
    source, notes = watched.open()
    for note in notes:
        complain(note)

    import asyncio
    import contextlib

    from gpuwatch.core.sampler import Sampler
    from gpuwatch.outputs.status.jsonlines import JsonLinesWriter

    writer = JsonLinesWriter(out)
    sampler = Sampler(source, watched.interval_seconds)

    def deliver(snapshot: Snapshot) -> None:
        shown = snapshot if watched.pid is None else attached_only(snapshot, watched.pid)
        with writing():
            writer.write(shown)
        if writer.written == count:
            raise _EnoughError
        if watched.pid is not None and shown.jobs[0].ended_at_unix_seconds is not None:
            # It has been written that the job has ended, and nothing follows.
            raise _EnoughError

    try:
        with contextlib.suppress(_EnoughError):
            asyncio.run(sampler.run(deliver))
    except KeyboardInterrupt:
        # Caught here, since click would print an empty line for it.
        return EXIT_INTERRUPTED
    finally:
        sampler.close()
    return 0
