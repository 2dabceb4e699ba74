"""A real PyTorch job on the CPU, driven from a test.

    with TrainingJob() as job:
        job.load(workers=4)             # begins an epoch and fetches the first batch
        job.load(workers=0)
        job.pin(True)                   # the thread that pins, which needs an accelerator
        job.end_epoch()                 # the workers end, as without persistent_workers

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

SCRIPT = r"""
import json, os, sys, threading, time
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Samples(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        if self.transform == "busy":
            until = time.process_time() + 0.02
            while time.process_time() < until:
                pass
        elif self.transform == "disk":
            with open(f"{sys.argv[1]}/{os.getpid()}", "wb") as file:
                file.write(os.urandom(1 << 16))
                file.flush()
                os.fsync(file.fileno())
        else:
            time.sleep(0.005)
        return torch.zeros(8)


def forget_name(worker):
    # As before PyTorch 2.5, which gave workers no name.
    with open("/proc/self/comm", "w") as file:
        file.write("python")


class Training:
    def __init__(self):
        self.epoch = None
        self.stop_pinning = None

    def load(self, workers, context="fork", transform="sleep", unnamed=False):
        self.end_epoch()
        loader = DataLoader(
            Samples(transform),
            batch_size=2,
            num_workers=workers,
            multiprocessing_context=context if workers else None,
            worker_init_fn=forget_name if unnamed else None,
        )
        self.epoch = iter(loader)
        for _ in range(max(1, workers)):
            next(self.epoch)
        return [worker.pid for worker in getattr(self.epoch, "_workers", ())]

    def end_epoch(self):
        if hasattr(self.epoch, "_shutdown_workers"):
            self.epoch._shutdown_workers()
        self.epoch = None

    def work(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            next(self.epoch)

    def pin(self, on):
        if self.stop_pinning is not None:
            self.stop_pinning.set()
            self.pinning.join()
            self.stop_pinning = None
        if on:
            self.stop_pinning, named = threading.Event(), threading.Event()
            self.pinning = threading.Thread(target=self.pin_loop, args=(named,), daemon=True)
            self.pinning.start()
            named.wait()

    def pin_loop(self, named):
        torch.multiprocessing._set_thread_name("pt_data_pin")
        named.set()
        self.stop_pinning.wait()


def answer(value):
    # In one piece: the ranks of torchrun share their output, unbuffered.
    os.write(1, json.dumps(value).encode() + b"\n")


def main():
    if os.environ.get("GLOO") == "1":
        import torch.distributed
        torch.distributed.init_process_group("gloo")
    training = Training()
    answer({"pid": os.getpid()})
    for line in sys.stdin:
        name, options = json.loads(line)
        answer(getattr(training, name)(**options))
    os._exit(0)


if __name__ == "__main__":
    main()
"""


class TrainingJob:
    """``folder`` holds the script and what a disk-bound job writes."""

    def __init__(self, folder: Path, *options: str) -> None:
        script = folder / "train.py"
        script.write_text(SCRIPT)
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            start_new_session=True,
        )
        self._answer()

    @property
    def pid(self) -> int:
        return self.process.pid

    def load(self, workers: int, **options: Any) -> list[int]:
        """Begin an epoch; the PIDs of the loader workers once the first batches are there."""
        pids: list[int] = self._ask("load", workers=workers, **options)
        return pids

    def end_epoch(self) -> None:
        self._ask("end_epoch")

    def work(self, seconds: float) -> None:
        """Fetch batches for so long."""
        self._ask("work", seconds=seconds)

    def pin(self, on: bool) -> None:
        self._ask("pin", on=on)

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

    def _ask(self, name: str, **options: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, options]).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("the job has ended")
        return json.loads(line)
