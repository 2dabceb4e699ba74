"""A real PyTorch job on the CPU, driven from a test.

    with TrainingJob(tmp_path) as job:
        job.load(workers=4)             # begins an epoch and fetches the first batch
        job.load(workers=0)
        job.pin(True)                   # the thread that pins, which needs an accelerator
        job.end_epoch()                 # the workers end, as without persistent_workers
        job.do("starving")              # until something else is asked for

Importing PyTorch takes seconds, so one job goes through as many phases as a test module needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("train.py")


class TrainingJob:
    """``folder`` holds what it writes."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            start_new_session=True,
        )
        self.pid = self.process.pid
        self._answer()

    def load(self, workers: int, **options: Any) -> list[int]:
        """Begin an epoch; the PIDs of the loader workers once the first batches are there."""
        pids: list[int] = self.do("load", workers=workers, **options)
        return pids

    def end_epoch(self) -> None:
        self.do("end_epoch")

    def work(self, seconds: float) -> None:
        """Fetch batches for so long."""
        self.do("work", seconds=seconds)

    def pin(self, on: bool) -> None:
        self.do("pin", on=on)

    def do(self, name: str, **options: Any) -> Any:
        """Return once it is done, or once a phase has begun."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, options]).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def __enter__(self) -> TrainingJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("the job has ended")
        return json.loads(line)
