"""A machine on which processes come and go."""

from collections.abc import Iterator
from dataclasses import replace

from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.sources.simulated.source import SimulatedSource


def churning(count: int, gpus: int, lives_seconds: int) -> Iterator[Snapshot]:
    """Snapshots a second apart. The processes beside the jobs are others after so many seconds,
    not all at once."""
    clock = ManualClock(seconds=1000.0)
    source = SimulatedSource("starved", gpus, clock=clock, options=ReadOptions(all_processes=True))
    for second in range(count):
        clock.advance(1.0)
        snapshot = source.read()
        members = {member.key for job in snapshot.jobs for member in job.members}
        yield replace(
            snapshot,
            processes=tuple(
                process
                if process.key in members
                else replace(
                    process,
                    pid=process.pid + 10_000 * ((second + 7 * process.pid) // lives_seconds),
                )
                for process in snapshot.processes
            ),
        )
