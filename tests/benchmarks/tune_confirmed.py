"""Whether a full grid confirms what ``gpuwatch tune`` recommends, on a dataset of files on disk:
``python -m tests.benchmarks.tune_confirmed`` (at most 6 minutes; ``--seconds 60`` for a look).

It writes compressed pictures to a folder, which the search and then the grid measure. Prints a
Markdown table; ends with 1 where the grid does not confirm the search.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from gpuwatch.jobs.cores import read_cores
from gpuwatch.tuning.bench import Bench
from gpuwatch.tuning.child.usage import available_memory
from gpuwatch.tuning.search.plan import make_plan
from gpuwatch.tuning.search.result import Result, Row, make_result
from gpuwatch.tuning.search.search import Search
from gpuwatch.tuning.search.visits import NEAR, Visits

PICTURES = 800
SIDE = 256
SHOWN = 224
BATCH = 32
SEARCH_SHARE = 0.35
ASKED: Mapping[str, tuple[Any, ...]] = {"prefetch_factor": (2, 4), "persistent_workers": (False,)}
FOLDER = "GPUWATCH_PICTURES"


class Pictures:
    """Files of a picture each: read, decompress, scale, crop, flip, normalise."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*.z"))

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> torch.Tensor:
        raw = bytearray(zlib.decompress(self._files[index].read_bytes()))
        picture = torch.frombuffer(raw, dtype=torch.uint8).view(1, 3, SIDE, SIDE).float() / 255
        picture = torch.nn.functional.interpolate(picture, scale_factor=1.15, mode="bilinear")[0]
        top, left = (int(torch.randint(0, picture.shape[-1] - SHOWN, ())) for _ in range(2))
        picture = picture[:, top : top + SHOWN, left : left + SHOWN]
        if torch.rand(()) < 0.5:
            picture = picture.flip(2)
        return ((picture - 0.5) / 0.25).contiguous()


def pictures() -> Pictures:
    """What is measured."""
    return Pictures(Path(os.environ[FOLDER]))


def write(folder: Path, count: int) -> None:
    """Waves with some noise, which compress about as pictures do."""
    generator = torch.Generator().manual_seed(1)
    place = torch.arange(SIDE, dtype=torch.float32)
    for number in range(count):
        wave = torch.rand(2, 3, 1, generator=generator) / 10
        rows, columns = torch.sin(wave[0] * place), torch.sin(wave[1] * place)
        noise = torch.randint(0, 8, (3, SIDE, SIDE), generator=generator)
        picture = (rows[:, :, None] * columns[:, None, :] * 100 + 120 + noise).to(torch.uint8)
        data = zlib.compress(bytes(picture.flatten().tolist()), 6)
        (folder / f"{number:05d}.z").write_bytes(data)


def measure(seconds: float) -> list[Result]:
    """What the search and what the grid found."""
    cores = read_cores(os.getpid(), os.environ).usable_cores or float(os.cpu_count() or 1)
    found = []
    with contextlib.closing(Bench(f"{__file__}:pictures", batch_size=BATCH)) as bench:
        description = bench.open()
        assert description is not None
        for grid, share in ((False, SEARCH_SHARE), (True, 1 - SEARCH_SHARE)):
            plan, budget = make_plan(description, ASKED, cores=cores, grid=grid), share * seconds
            memory = available_memory()
            visits = Visits(bench.visit, plan, budget_seconds=budget, memory_bytes=memory)
            where = {"target": "pictures", "step": None, "machine": "", "folder": ""}
            outcome = Search(visits).run()
            found.append(make_result(outcome, plan, description, budget_seconds=budget, **where))
    return found


def table(search: Result, grid: Result) -> Iterator[str]:
    yield (
        "| num_workers | prefetch_factor | search: samples/s | grid: samples/s "
        "| of the grid's best | recommended by |\n|---:|---:|---:|---:|---:|---|"
    )
    found = {row.setting: row for row in search.settings}
    for row in grid.settings:
        other = found.get(row.setting)
        who = [name for name, one in (("search", other), ("grid", row)) if one and one.recommended]
        share = "-" if row.of_best is None else f"{100 * row.of_best:.0f}%"
        yield (
            f"| {row.num_workers} | {row.prefetch_factor or '-'} | {_rate(other)} | {_rate(row)} "
            f"| {share} | {' and '.join(who)} |"
        )


def _rate(row: Row | None) -> str:
    if row is None or row.samples_per_second is None:
        return "not measured"
    interval = "" if row.low is None else f" ({row.low:.0f} to {row.high:.0f})"
    return f"{row.samples_per_second:.0f}{interval}, {row.visits} visits"


def confirmed(search: Result, grid: Result) -> bool:
    """Whether what the search recommends may be the best by the grid's own measure."""
    chosen = search.chosen
    its = next((row for row in grid.settings if chosen and row.setting == chosen.setting), None)
    return its is not None and (its.recommended or (its.of_best_high or 0.0) >= NEAR)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300.0, help="to measure, both together")
    parser.add_argument("--pictures", type=int, default=PICTURES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpuwatch-pictures-") as folder:
        write(Path(folder), options.pictures)
        os.environ[FOLDER] = folder
        search, grid = measure(options.seconds)
    print(
        f"{options.pictures} pictures, batch {BATCH}, {search.usable_cores:g} cores, "
        f"torch {search.torch}; search {search.seconds:.0f} s, grid {grid.seconds:.0f} s\n"
    )
    print(*table(search, grid), sep="\n")
    agrees = confirmed(search, grid)
    print(f"\nThe grid {'confirms' if agrees else 'does not confirm'} {search.line}.")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
