"""``gpuwatch stream``: JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.commands import common

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot


@click.command("stream")
@common.interval_option
@common.source_options
@common.pid_option
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many snapshots.")
def stream_command(
    interval: float,
    all_processes: bool,
    gpus: int | None,
    demo: str | None,
    pid: int | None,
    count: int | None,
) -> int:
    """Print a JSON line for each reading, after a header line."""
    out = common.open_output()
    source = common.make_source(demo, gpus, all_processes, interval)
    for note in () if pid is None else common.attach_to(source, pid):
        common.complain(note, 0)

    import asyncio
    import contextlib

    from gpuwatch.core.sampler import Sampler
    from gpuwatch.outputs.status.jsonlines import JsonLinesWriter

    writer = JsonLinesWriter(out)
    sampler = Sampler(source, interval)

    def deliver(snapshot: Snapshot) -> None:
        shown = snapshot if pid is None else common.attached_only(snapshot, pid)
        common.write_to(out, lambda: writer.write(shown))
        if writer.written == count:
            raise _EnoughError
        if pid is not None and shown.jobs[0].ended_at_unix_seconds is not None:
            # It has been written that the job has ended, and nothing follows.
            raise _EnoughError

    try:
        with contextlib.suppress(_EnoughError):
            asyncio.run(sampler.run(deliver))
    except KeyboardInterrupt:
        # Caught here, since click would print an empty line for it.
        return common.EXIT_INTERRUPTED
    finally:
        sampler.close()
    return 0


class _EnoughError(Exception):
    """Ends a stream that has printed what it was asked for."""
