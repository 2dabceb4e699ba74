"""``gpuwatch stream``: snapshots as they come, for a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import Watched, watched_options
from gpuwatch.commands.printing import complain, open_output, writing
from gpuwatch.commands.watching import of_users, watch

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot


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
            writer.write(of_users(snapshot, watched.users))
        return writer.written == count

    asyncio.run(watch(watched.pid, Sampler(source, watched.interval_seconds), take))
