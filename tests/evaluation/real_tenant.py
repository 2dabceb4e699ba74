"""Somebody else's process on virtual GPU 0, and how two take turns: ``real_tenant.py KNOB TURNS``.

Run as root it goes on as another user. Prints ``there`` when it begins.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

from tests.support.virtual_gpu import VirtualGpu

NOBODY = 65534
SLICE_SECONDS = 0.02


class Turns:
    """One GPU that processes share: at a time one of them has it, for a slice."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)

    def run(self, gpu: VirtualGpu, seconds: float) -> None:
        """So much work, and wait for its end."""
        left = seconds
        while left > 0.0:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                gpu.run(min(SLICE_SECONDS, left))
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            left -= SLICE_SECONDS
            # Else it takes the next slice before the other one wakes up.
            time.sleep(0.0005)


def serve(turns: Turns, gpu: VirtualGpu) -> None:
    """Requests, one after the other with a pause between."""
    while True:
        turns.run(gpu, 0.08)
        time.sleep(0.06)


def main(knob: str, path: str) -> None:
    turns = Turns(Path(path))
    quiet = knob == "quiet_neighbour"
    memory = (3 << 29) if quiet else (12 << 30)
    gpu = VirtualGpu.open(0, memory_bytes=memory, power_percent=88, sm_percent=90)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    print("there", flush=True)
    if quiet:
        time.sleep(1e6)
    serve(turns, gpu)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
