"""Whether ``gpuwatch tune`` measures what a bare ``for batch in loader`` gives in a long run:
``python -m tests.benchmarks.tune_plain`` (8 minutes; ``--seconds 2 --rounds 3`` for a look).

Each sample sleeps for a known time, so the most that workers can make is known and the machine's
load hardly matters. Plain loops and visits take turns. Prints a Markdown table; ends with 1 where
a rate is more than 5% from the plain loop's, or a visit that far above the known maximum. Samples
of uneven cost have no such maximum, and need minutes for a steady rate.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from statistics import median

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from gpuwatch.tuning.bench import Bench
from gpuwatch.tuning.records import Order, Setting, Visit

COST = 0.008
BATCH = 16
SAMPLES = 10**6
NEAR = 0.05


def sample(index: int, cost: float = COST) -> torch.Tensor:
    time.sleep(cost)
    return torch.full((3, 64, 64), index, dtype=torch.float32)


class Naps:
    """Every sample costs the same."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return sample(index)


class UnevenNaps(Naps):
    """One sample in a hundred costs as much as 50 others: here prefetching pays."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return sample(index, COST * (50 if random.Random(index).random() < 0.01 else 0.5))


class Stream(IterableDataset[torch.Tensor]):
    """Its samples are shared out among the workers."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        for index in range(info.id if info else 0, SAMPLES, info.num_workers if info else 1):
            yield sample(index)


even = DataLoader(Naps(), batch_size=BATCH, shuffle=True)  # type: ignore[arg-type]
uneven = DataLoader(UnevenNaps(), batch_size=BATCH, shuffle=True)  # type: ignore[arg-type]
stream = DataLoader(Stream(), batch_size=BATCH)
CASES = (("even", even, 8), ("uneven", uneven, 8), ("stream", stream, 2), ("stream", stream, 8))


def plain(loader: DataLoader[torch.Tensor], setting: Setting, seconds: float) -> float:
    """Samples a second of a bare loop, from the time when all that was prefetched is taken."""
    workers, ahead = setting.num_workers, setting.prefetch_factor
    assert ahead is not None
    made = DataLoader(
        loader.dataset,
        BATCH,
        shuffle=None if isinstance(loader.dataset, IterableDataset) else True,
        num_workers=workers,
        prefetch_factor=ahead,
    )
    begun, samples = 0.0, 0
    for number, batch in enumerate(made):
        now = time.perf_counter()
        if number < 2 * workers * ahead:
            begun = now
            continue
        samples += len(batch)
        if now - begun >= seconds:
            break
    return samples / (now - begun)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0, help="of each plain loop")
    parser.add_argument("--window", type=float, default=2.0, help="seconds of each visit")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    print(
        "| samples | num_workers | prefetch_factor | at most | bare loop | tune (range) |\n"
        "|---|---:|---:|---:|---:|---:|"
    )
    good = True
    for name, loader, workers in CASES:
        most = workers / COST if loader is not uneven else None
        settings = [
            Setting(num_workers=workers, prefetch_factor=ahead, batch_size=BATCH)
            for ahead in (2, 4, 8)
        ]
        bare: dict[Setting, list[float]] = {one: [] for one in settings}
        rates: dict[Setting, list[float]] = {one: [] for one in settings}
        bench = Bench(f"{__file__}:{name}")
        try:
            bench.open()
            for number in range(options.rounds):
                for one in settings:
                    bare[one].append(plain(loader, one, options.seconds))
                    order = Order(
                        setting=one,
                        seconds=options.window,
                        limit_seconds=60,
                        seed=number,
                    )
                    found = bench.visit(order)
                    assert isinstance(found, Visit), found
                    rates[one].append(found.samples_per_second)
        finally:
            bench.close()
        for one in settings:
            rate, low, high = median(rates[one]), min(rates[one]), max(rates[one])
            truth = sum(bare[one]) / options.rounds
            good &= most is None or (abs(rate / truth - 1) <= NEAR and high <= (1 + NEAR) * most)
            print(
                f"| {name} | {workers} | {one.prefetch_factor} | "
                f"{'-' if most is None else f'{most:.0f}'} | {truth:.0f} | "
                f"{rate:.0f} ({low:.0f} to {high:.0f}) |",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
