"""Real practice jobs for tests: started, listened to, turned, ended."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from gpuwatch.practice import control
from tests.support.children import wait_until
from tests.support.warm_torch import WarmTorch

ROOT = Path(__file__).resolve().parents[2]
_LIMIT_SECONDS = 60.0
"""Only ends a failing test."""

_JOB = (
    "import runpy; from gpuwatch.practice.job import loop; loop.SAY_EVERY_SECONDS = 0.5; "
    "runpy.run_module('gpuwatch.practice.train', run_name='__main__', alter_sys=True)"
)
"""It says its step twice a second, for a test that waits for the next."""

QUICK = ("--step-ms", "0", "--python-ms", "0", "--transform-ms", "0", "--batch", "4")
"""Steps that cost next to nothing."""


def is_gone(process: psutil.Process) -> bool:
    """Or ended, and nobody has asked how."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


class PracticeJob:
    """One job, what it prints, and its knobs."""

    def __init__(self, warm: WarmTorch, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.process = warm.popen(
            [sys.executable, "-c", _JOB, "--device", "cpu", "--folder", str(folder), *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def until_it_says(self, beginning: str) -> str:
        """The next line that begins so."""
        while True:
            line = self._lines.get(timeout=_LIMIT_SECONDS)
            assert line is not None, f"it ended: {self.said}"
            self.said.append(line)
            if line.startswith(beginning):
                return line

    def rest(self) -> list[str]:
        """All further lines, up to its end."""
        lines = []
        while (line := self._lines.get(timeout=_LIMIT_SECONDS)) is not None:
            lines.append(line)
        self.process.wait(_LIMIT_SECONDS)
        return lines

    def turn(self, **knobs: object) -> None:
        """Set these, and the others back, and wait until it says so."""
        control.turn(self.folder, knobs)
        self.until_it_says("turned")

    def load(self, **knobs: object) -> list[psutil.Process]:
        """The same for knobs of loading; the new workers, once the first batch is there."""
        self.turn(**knobs)
        self.until_it_says("loader:")
        if "workers" in knobs:
            # One that has just begun has no name of its own yet.
            wait_until(lambda: len(self.workers()) == knobs["workers"])
        return self.workers()

    def step(self) -> int:
        """The number of a step that it reports from now on."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.said.append(str(self._lines.get_nowait()))
        return int(self.until_it_says("step ").split()[1])

    def children(self) -> list[psutil.Process]:
        """Those that it started, and theirs."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def workers(self) -> list[psutil.Process]:
        """Loader workers, by the name that PyTorch gives them."""
        found = []
        for child in self.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name().startswith("pt_data_worker"):
                    found.append(child)
        return found

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def practice_job(warm: WarmTorch, folder: Path, *arguments: str) -> Iterator[PracticeJob]:
    job = PracticeJob(warm, folder, *arguments)
    try:
        yield job
    finally:
        job.end()
