"""What hours of history hold in memory: 16 GPUs, 64 processes on them, every second.

    python -m tests.benchmarks.history_memory [HOURS]

Prints rows of a Markdown table: what the process grew by, and what the series hold.
"""

import gc
import sys
from array import array
from dataclasses import replace

import psutil

from gpuwatch.core.history import History
from gpuwatch.core.model import Snapshot
from tests.benchmarks.recording import PROCESSES, machine, repeated

GPUS = 16
_MIB = 2**20


def held_bytes(history: History) -> int:
    """Of all arrays that can be reached from ``history``."""
    seen: set[int] = set()
    total, left = 0, [history]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        if isinstance(one, array):
            total += sys.getsizeof(one)
        else:
            left += gc.get_referents(one)
    return total


def cut(snapshot: Snapshot) -> Snapshot:
    """To 64 processes, and jobs to those."""
    processes = snapshot.processes[:PROCESSES]
    kept = {(each.pid, each.started_at_unix_seconds) for each in processes}
    jobs = [
        replace(job, members=tuple([one for one in job.members if one.key in kept]))
        for job in snapshot.jobs
    ]
    return replace(snapshot, processes=processes, jobs=tuple(jobs))


def main() -> None:
    hours = float(sys.argv[1]) if len(sys.argv) > 1 else 12.0
    snapshots = [cut(each) for each in machine("healthy", gpus=GPUS)]
    history, process = History(), psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    for each in repeated(snapshots, int(hours * 3600)):
        history.push(each)
    grown = process.memory_info().rss - before
    what = f"{hours:g} hours of {GPUS} GPUs and {len(snapshots[0].processes)} processes in memory"
    print(f"| {what}: the process grew by | {grown / _MIB:.1f} MiB |")
    print(f"| the same: what its series hold | {held_bytes(history) / _MIB:.1f} MiB |")


if __name__ == "__main__":
    main()
