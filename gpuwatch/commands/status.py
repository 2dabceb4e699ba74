"""``gpuwatch status``: one snapshot, for a person or a program."""

from __future__ import annotations

import sys

import click

from gpuwatch.commands.options import Watched, option_json, watched_options
from gpuwatch.commands.printing import (
    EXIT_NO_ANSWER,
    complain,
    drawing,
    is_terminal,
    open_output,
    print_text,
)
from gpuwatch.commands.watching import attached_only


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
    from gpuwatch.sources.gpu_filter import no_such_gpu, only_users

    if not snapshot.gpus and (says := no_such_gpu(snapshot)):
        raise click.UsageError(says)
    if watched.pid is not None:
        snapshot = attached_only(snapshot, watched.pid)
        for note in notes:
            complain(note)
    snapshot = only_users(snapshot, watched.users)
    if watched.users and not snapshot.processes:
        complain(f"No process of {' or '.join(watched.users)} is here.")
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
