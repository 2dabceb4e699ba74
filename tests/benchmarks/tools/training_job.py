"""A job as big as one node takes: ranks with a GPU each, loader workers below every rank.

    python -m tests.benchmarks.tools.training_job RANKS WORKERS

Started by the benchmark, which puts the ranks on the simulated GPUs. Prints the PIDs of the ranks
on one line, then works a little, as little as shows: each worker wakes five times a second, so
that every counter gpuwatch reads keeps moving. Ends when its standard input does.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_RANK = """
import os, sys, time

def beat(seconds):
    while os.getppid() != 1:
        sum(range(2000))
        time.sleep(seconds)
    os._exit(0)

for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        open("/proc/self/comm", "w").write("pt_data_worker")
        beat(0.2)
beat(0.1)
"""


def start(ranks: int, workers: int) -> list[subprocess.Popen[bytes]]:
    """Start the ranks with the environment that torchrun gives."""
    return [
        subprocess.Popen(
            [sys.executable, "-S", "-c", _RANK, str(workers), "--config=configs/base.yaml"],
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
            },
            stdin=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]


def main() -> None:
    """Be the launcher: torchrun's name, its ranks below."""
    Path("/proc/self/comm").write_text("torchrun")
    # A group of its own, so that all that forked below ends with it.
    os.setsid()
    started = start(int(sys.argv[1]), int(sys.argv[2]))
    time.sleep(0.5)
    print(*(rank.pid for rank in started), flush=True)
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
