"""Jobs that a practice job starts beside itself: a second tenant, and one that is killed."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

MODULE = "gpuwatch.practice.train"
HANG_FILE = "hang"
_HANG_WITHIN_SECONDS = 20.0
"""Workers end the batch they are at, and hang in the next: one that waits for its next batch when
its parent is killed would end by itself."""


def _command(folder: Path, device: str, *options: str) -> list[str]:
    """Of another practice job; it ends when this process does."""
    folder.mkdir(exist_ok=True)
    return [
        sys.executable, "-P", "-m", MODULE, *options, "--no-report", "--device", device,
        "--folder", str(folder), "--ends-with", str(os.getpid()),
    ]  # fmt: skip


def _end(process: psutil.Process) -> None:
    """It with all that it started; a process that has its number by now is left alone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


class Tenant:
    """A second job on the same device; not below this one, of which it would be a part."""

    def __init__(self, folder: Path, device: str) -> None:
        command = _command(folder / "tenant", device, "healthy", "--step-ms", "80")
        started = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _APART, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        self._jobs: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            self._jobs = [psutil.Process(int(started.stdout))]

    def end(self) -> None:
        for job in self._jobs:
            _end(job)


_APART = """
import subprocess, sys
nothing = subprocess.DEVNULL
job = subprocess.Popen(sys.argv[1:], stdin=nothing, stdout=nothing, start_new_session=True)
print(job.pid)
"""
"""Starts a job and ends, so that the job has no parent but init."""


class Orphans:
    """A job that trains, hangs in its loader, and is killed: its workers stay. Begins at once."""

    def __init__(self, folder: Path, device: str) -> None:
        self._left: list[psutil.Process] = []
        self._ended = False
        self._lock = threading.Lock()
        self._folder = folder / "killed"
        for old in self._folder.glob(f"{HANG_FILE}*"):
            old.unlink()
        self._job = subprocess.Popen(
            _command(self._folder, device, "healthy", "--hangs", "--step-ms", "20"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._kill_it, daemon=True)
        self._thread.start()

    def _kill_it(self) -> None:
        assert self._job.stdout is not None
        for line in self._job.stdout:
            if line.startswith("training"):
                break
        (self._folder / HANG_FILE).touch()
        until = time.monotonic() + _HANG_WITHIN_SECONDS
        while not self._all_hang() and time.monotonic() < until:
            time.sleep(0.05)
        with self._lock:
            if not self._ended:
                self._left = self._workers()
                self._job.kill()
                self._job.wait()

    def _workers(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self._job.pid).children()
        return []

    def _all_hang(self) -> bool:
        files = [self._folder / f"{HANG_FILE}.{worker.pid}" for worker in self._workers()]
        return all(file.exists() for file in files)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for worker in self._left:
                _end(worker)
            self._left = []
            if self._job.poll() is None:
                _end(psutil.Process(self._job.pid))
                self._job.wait()
        self._thread.join()
        if self._job.stdout is not None:
            self._job.stdout.close()
