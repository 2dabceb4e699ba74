"""Whether a full grid confirms what ``gpuwatch tune`` recommends, on a dataset of files on disk:
``python -m tests.benchmarks.tune_confirmed`` (at most 6 minutes; ``--seconds 60`` for a look).

It writes compressed pictures to a folder. Search and grid then measure them in turns, visit by
visit, so that whatever else the machine does meets both alike. Prints a Markdown table; ends with 1
where the grid does not confirm the search.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gpuwatch.jobs.cores import read_cores
from gpuwatch.tuning.bench import Bench
from gpuwatch.tuning.child.usage import available_memory
from gpuwatch.tuning.messages import Order
from gpuwatch.tuning.search.outcome import NEAR
from gpuwatch.tuning.search.plan import Plan, make_plan
from gpuwatch.tuning.search.result import Result, Row, make_result
from gpuwatch.tuning.search.search import Search
from gpuwatch.tuning.search.visits import Visits
from gpuwatch.tuning.settings import Description, Failure, Visit

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


class Turns:
    """One bench for two searches, each of which waits for its turn; a clock for each that runs
    only while it is served."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._free = threading.Condition()
        self._next = 0
        self._left = {0, 1}
        self.seconds = [0.0, 0.0]

    def visit(self, who: int, order: Order) -> Visit | Failure:
        with self._free:
            self._free.wait_for(lambda: self._next == who or len(self._left) == 1)
            begun = time.monotonic()
            try:
                return self._bench.visit(order)
            finally:
                self.seconds[who] += time.monotonic() - begun
                self._next = 1 - who
                self._free.notify_all()

    def leave(self, who: int) -> None:
        with self._free:
            self._left.discard(who)
            self._free.notify_all()


def measure(seconds: float) -> tuple[Result, Result]:
    """What the search and what the grid found."""
    cores = read_cores(os.getpid(), os.environ).usable_cores or float(os.cpu_count() or 1)
    budgets = (SEARCH_SHARE * seconds, (1 - SEARCH_SHARE) * seconds)
    bench = Bench(f"{__file__}:pictures", batch_size=BATCH)
    found: dict[int, Result] = {}
    try:
        description = bench.open()
        assert description is not None
        turns = Turns(bench)
        plans = [make_plan(description, ASKED, cores=cores, grid=grid) for grid in (False, True)]

        def run(who: int) -> None:
            try:
                found[who] = _run(turns, who, plans[who], budgets[who], description)
            finally:
                turns.leave(who)

        threads = [threading.Thread(target=run, args=(who,)) for who in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        bench.close()
    return found[0], found[1]


def _run(turns: Turns, who: int, plan: Plan, budget: float, description: Description) -> Result:
    visits = Visits(
        lambda order: turns.visit(who, order),
        plan,
        budget_seconds=budget,
        window_seconds=min(2.0, max(0.3, budget / 50)),
        memory_bytes=available_memory(),
        clock=lambda: turns.seconds[who],
    )
    return make_result(
        Search(visits).run(),
        plan,
        description,
        target="pictures",
        step=None,
        machine=os.uname().nodename,
        folder=str(Path.cwd()),
        budget_seconds=budget,
    )


# --- what is printed -------------------------------------------------------------------------


def table(search: Result, grid: Result) -> list[str]:
    headings = (
        "num_workers",
        "prefetch_factor",
        "search: samples/s",
        "grid: samples/s",
        "of the grid's best",
        "recommended by",
    )
    lines = [f"| {' | '.join(headings)} |", "|---:|---:|---:|---:|---:|---|"]
    found = {row.setting: row for row in search.settings}
    for row in grid.settings:
        other = found.get(row.setting)
        who = [name for name, one in (("search", other), ("grid", row)) if one and one.recommended]
        share = "-" if row.of_best is None else f"{100 * row.of_best:.0f}%"
        cells = [
            str(row.num_workers),
            str(row.prefetch_factor or "-"),
            *(_rate(one) for one in (other, row)),
            share,
            " and ".join(who),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _rate(row: Row | None) -> str:
    if row is None or row.samples_per_second is None:
        return "not measured"
    interval = "" if row.low is None else f" ({row.low:.0f} to {row.high:.0f})"
    return f"{row.samples_per_second:.0f}{interval}, {row.visits} visits"


def verdict(search: Result, grid: Result) -> tuple[str, bool]:
    """Whether what the search recommends is as good as the best by the grid's own measure."""
    chosen = search.chosen
    its = next((row for row in grid.settings if chosen and row.setting == chosen.setting), None)
    if chosen is None or its is None or its.of_best is None:
        return "The grid did not measure what the search recommends.", False
    name = f"num_workers={chosen.num_workers}"
    if chosen.num_workers:
        name += f", prefetch_factor={chosen.prefetch_factor}"
    share = f"{100 * its.of_best:.0f}% of the grid's best"
    if its.of_best_low is None or its.of_best_high is None or chosen.low is None:
        return f"Too little was measured of {name} ({share}): --seconds 300.", False
    if its.of_best != 1:
        share += f" ({100 * its.of_best_low:.0f}% to {100 * its.of_best_high:.0f}%)"
    if its.recommended:
        return f"The grid recommends the same: {name}, {share}.", True
    if its.of_best_high >= NEAR:
        return f"The grid confirms {name} within its interval: {share}.", True
    return f"The grid does not confirm {name}: {share}.", False


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300.0, help="to measure, both together")
    parser.add_argument("--pictures", type=int, default=PICTURES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpuwatch-pictures-") as folder:
        write(Path(folder), options.pictures)
        os.environ[FOLDER] = folder
        size = sum(one.stat().st_size for one in Path(folder).iterdir())
        search, grid = measure(options.seconds)
    print(
        f"{options.pictures} pictures of {size / options.pictures / 1024:.0f} KiB, batch {BATCH}, "
        f"{search.usable_cores:g} cores, torch {search.torch}; search "
        f"{search.seconds:.0f} s{'' if search.settled else ' (not settled)'}, grid "
        f"{grid.seconds:.0f} s{'' if grid.settled else ' (not settled)'}\n"
    )
    for line in table(search, grid):
        print(line)
    sentence, confirmed = verdict(search, grid)
    print(f"\n{sentence}")
    for note in search.notes:
        if "Other processes" in note:
            print(note)
    return 0 if confirmed else 1


if __name__ == "__main__":
    sys.exit(main())
