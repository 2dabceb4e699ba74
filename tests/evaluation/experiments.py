"""``python -m tests.evaluation.experiments``: what this project grew from, measured.

Utilisation at 1 and 8 workers with batches of one sample, reading time at growing worker counts,
checkpoint time against the worker count (``gpuwatch tune memory`` measures batch size against
memory). Repeats are interleaved, so that what else the machine does meets all settings alike. Each
figure is the median with the lowest and highest of the repeats (of five, a 94% interval for the
median).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from gpuwatch.practice import Samples, Settings, save
from tests.support.fake_nvml import FakeNvml

ROOT = Path(__file__).parents[2]
WORKERS = (0, 1, 2, 4, 8, 16, 32)
SAVING_WORKERS = (0, 2, 4, 8, 16)
READ_SAMPLES = 128
READ_BATCH = 8
TRANSFORM_MS = 3.0
SAVE_MIB = 32
USE_SNAPSHOTS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, load {load:.1f} at the start, PyTorch {torch.__version__}\n")
    for measure in (utilisation, reading, checkpoints):
        measure(options.repeats)


def utilisation(repeats: int) -> None:
    """Mean of the GPU's utilisation, with batches of one sample."""
    real = torch.cuda.is_available()
    where = torch.cuda.get_device_name() if real else "a VIRTUAL GPU: only the loader is real"
    found = _interleaved((1, 8), lambda workers: _use(workers, real), max(1, repeats // 2))
    title = f"Utilisation in percent, transforms of 20 ms, steps of 8 ms, on {where}"
    _print(title, found, "{:.0f}")


def _use(workers: int, real: bool) -> float:
    with tempfile.TemporaryDirectory() as place, machine(Path(place), real) as environment:
        settings = Settings(
            batch_size=1, workers=workers, transform_ms=20.0, step_ms=8.0, python_ms=1.0
        )
        job = subprocess.Popen(
            [sys.executable, "-m", "tests.device.job", "train", json.dumps(asdict(settings)), "{}"],
            stdin=subprocess.PIPE,
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )  # fmt: skip
        assert job.stdout is not None
        assert job.stdin is not None
        job.stdin.write("\n")
        job.stdin.flush()
        try:
            for line in job.stdout:
                # The first of these is from before it was at its pace.
                if line.startswith("step "):
                    break
            stream = subprocess.run(
                [sys.executable, "-m", "gpuwatch", "stream", "-i", "0.25", "-n",
                 str(USE_SNAPSHOTS)],
                cwd=ROOT, env=environment, capture_output=True, text=True, check=True
            )  # fmt: skip
        finally:
            job.terminate()
            job.communicate()
    lines = [json.loads(line) for line in stream.stdout.splitlines()]
    busy = [
        line["gpus"][0]["busy_percent"]
        for line in lines
        if line["kind"] == "snapshot" and line["gpus"][0].get("busy_percent") is not None
    ]
    return statistics.fmean(busy[1:])


@contextmanager
def machine(place: Path, real: bool) -> Iterator[dict[str, str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if not real:
        fake = FakeNvml.create(place, gpus=1, preset="h200")
        fake.gpu[0].waveform("virtual")
        environment = fake.env(environment)
    yield environment


def reading(repeats: int) -> None:
    """Time to read one epoch, workers started anew for it."""

    def epoch(workers: int) -> float:
        samples: Any = Samples(Settings(transform_ms=TRANSFORM_MS))
        began = time.perf_counter()
        order: Any = range(READ_SAMPLES)
        for _ in DataLoader(samples, READ_BATCH, sampler=order, num_workers=workers):
            pass
        return time.perf_counter() - began

    title = f"Seconds to read {READ_SAMPLES} samples of {TRANSFORM_MS:g} ms CPU"
    _print(title, _interleaved(WORKERS, epoch, repeats))


def checkpoints(repeats: int) -> None:
    """Time of a synced checkpoint while workers make batches that nobody waits for."""
    state = {"model": torch.zeros(1)}

    def save_beside(workers: int) -> float:
        samples: Any = Samples(Settings(transform_ms=20.0))
        order: Any = count()
        # Prefetching enough to keep them at work all the while.
        batches = iter(
            DataLoader(
                samples, READ_BATCH, num_workers=workers, sampler=order,
                prefetch_factor=64 if workers else None,
            )
        )  # fmt: skip
        next(batches)
        began = time.perf_counter()
        save(state, SAVE_MIB)
        return time.perf_counter() - began

    found = _interleaved(SAVING_WORKERS, save_beside, repeats)
    _print(f"Seconds to write {SAVE_MIB} MiB, synced, while the workers transform", found)


def _interleaved(
    settings: Sequence[int], measure: Callable[[int], float], repeats: int
) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {setting: [] for setting in settings}
    for number in range(repeats):
        # Back and forth, so that no setting always comes after the same one.
        for setting in settings if number % 2 == 0 else reversed(settings):
            found[setting].append(measure(setting))
    return found


def _print(title: str, found: dict[int, list[float]], form: str = "{:.2f}") -> None:
    print(f"{title}\n\n| workers | median (lowest-highest) |\n|---:|---:|")
    for workers, values in found.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        interval = f"{form.format(middle)} ({form.format(low)}-{form.format(high)})"
        print(f"| {workers} | {interval}, n={len(values)} |", flush=True)
    print()


if __name__ == "__main__":
    main()
