"""``gpuwatch stream``: snapshots as they come, for a program."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, TextIO

import click

from gpuwatch.commands.options import Watched, watched_options
from gpuwatch.commands.printing import complain, open_output, writing
from gpuwatch.commands.watching import watch

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.outputs.brief import BriefWriter
    from gpuwatch.outputs.export import JsonLinesWriter


@click.command("stream")
@watched_options()
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many snapshots.")
@click.option(
    "--brief",
    is_flag=True,
    help="Print what is found and how busy each GPU is, in a line of about a kilobyte each.",
)
@click.option(
    "--findings", is_flag=True, help="With --brief, print all that is found in full, too."
)
def stream_command(watched: Watched, count: int | None, brief: bool, findings: bool) -> None:
    """Print a JSON line for each reading, after a header line.

    With --brief each line stands alone, and standard input is listened to: "full" and a time in
    Unix seconds prints whole snapshots as well, of at most the last ten minutes and from then on;
    "brief" ends that. The list of many hosts reads this (docs/hosts.md).
    """
    if findings and not brief:
        raise click.UsageError("--findings goes with --brief.")
    out = open_output()
    source, notes = watched.open()
    for note in notes:
        complain(note)

    import asyncio

    from gpuwatch.core.sampler import Sampler

    writer = _brief_writer(out, findings) if brief else _full_writer(out)

    def take(snapshot: Snapshot, _passed: float) -> bool:
        with writing():
            writer.write(snapshot)
        return writer.written == count

    sampler = Sampler(source, watched.interval_seconds)
    asyncio.run(watch(watched.pid, sampler, take, users=watched.users))


def _full_writer(out: TextIO) -> JsonLinesWriter:
    from gpuwatch.outputs.export import JsonLinesWriter

    return JsonLinesWriter(out)


def _brief_writer(out: TextIO, findings: bool) -> BriefWriter:
    """Return a writer of brief lines that does what standard input asks."""
    from gpuwatch.core.background import DaemonWorker
    from gpuwatch.outputs.brief import BriefWriter

    writer = BriefWriter(out, findings=findings)

    def listen() -> None:
        # Where its reader has gone, the next brief line finds that out.
        with contextlib.suppress(OSError, ValueError):
            for line in sys.stdin or ():
                writer.answer(line)

    worker = DaemonWorker("gpuwatch-asked")
    worker.submit(listen)
    worker.stop()
    return writer
