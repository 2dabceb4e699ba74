"""Jobs that a practice job starts beside itself: a second tenant, and one that is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

MODULE = "gpuwatch.practice.train"
HANG_FILE = "hang"
_HANG_WITHIN_SECONDS = 20.0
"""Workers end the batch they are at, and hang in the next: one that waits for its next batch when
its parent is killed would end by itself."""


def start(folder: Path, device: str, *options: str) -> subprocess.Popen[str]:
    """Another practice job, in a session of its own; it ends when this process does."""
    return subprocess.Popen(
        _command(folder, device, *options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _command(folder: Path, device: str, *options: str) -> list[str]:
    folder.mkdir(exist_ok=True)
    return [
        sys.executable, "-P", "-m", MODULE, *options, "--no-tell", "--device", device,
        "--folder", str(folder), "--ends-with", str(os.getpid()),
    ]  # fmt: skip


def end(job: subprocess.Popen[str]) -> None:
    """It, and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    if job.stdout is not None:
        job.stdout.close()


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
        self._pid = int(started.stdout)
        self._handle: int | None = None
        with contextlib.suppress(OSError):
            self._handle = os.pidfd_open(self._pid)

    def end(self) -> None:
        if self._handle is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # Whether it is there: the number may be another process's by now.
            signal.pidfd_send_signal(self._handle, 0)
            os.killpg(self._pid, signal.SIGKILL)
        os.close(self._handle)
        self._handle = None


_APART = """
import subprocess, sys
nothing = subprocess.DEVNULL
job = subprocess.Popen(sys.argv[1:], stdin=nothing, stdout=nothing, start_new_session=True)
print(job.pid)
"""
"""Starts a job and ends, so that the job has no parent but init."""


class Orphans:
    """A job that trains, hangs in its loader, and is killed: its workers stay.

    ``begin`` returns at once; ``pids`` has them once they are left alone.
    """

    def __init__(self, folder: Path, device: str) -> None:
        self.pids: list[int] = []
        self._handles: list[int] = []
        self._ended = False
        self._lock = threading.Lock()
        folder = folder / "killed"
        for old in folder.glob(f"{HANG_FILE}*"):
            old.unlink()
        self._job = start(folder, device, "healthy", "--hangs", "--step-ms", "20")
        self._thread = threading.Thread(target=self._kill_it, args=(folder,), daemon=True)
        self._thread.start()

    def _kill_it(self, folder: Path) -> None:
        assert self._job.stdout is not None
        for line in self._job.stdout:
            if line.startswith("training"):
                break
        (folder / HANG_FILE).touch()
        until = time.monotonic() + _HANG_WITHIN_SECONDS
        while not _all_hang(folder, self._job.pid) and time.monotonic() < until:
            time.sleep(0.05)
        with self._lock:
            if self._ended:
                return
            # By handle: a number can be another process's later.
            for pid in _children(self._job.pid):
                with contextlib.suppress(OSError):
                    self._handles.append(os.pidfd_open(pid))
                    self.pids.append(pid)
            self._job.kill()
            self._job.wait()

    def end(self) -> None:
        """As the advice says: kill them."""
        with self._lock:
            self._ended = True
            for handle in self._handles:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                os.close(handle)
            self._handles.clear()
            if self._job.poll() is None:
                end(self._job)
        self._thread.join()
        if self._job.stdout is not None:
            self._job.stdout.close()


def _all_hang(folder: Path, pid: int) -> bool:
    workers = _children(pid)
    return all((folder / f"{HANG_FILE}.{worker}").exists() for worker in workers)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found
