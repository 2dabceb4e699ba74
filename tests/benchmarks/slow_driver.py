"""What a slow driver leaves of the readings: a sweep over 1 to 10 ms a call and 1 to 8 GPUs.

    python -m tests.benchmarks.slow_driver                 # the sweep: virtual latencies, 30 s
    python -m tests.benchmarks.slow_driver --fields        # and each field at 8 GPUs
    python -m tests.benchmarks.slow_driver --first-data    # time to first data: real latencies

The sweep runs the NVML source on a simulated driver with a clock and a timer of its own, so its
table is the same on every machine. A row is one GPU in one snapshot, one a second; a field counts
as shown where it is not ``None``, of the fields that a quick driver gives on this card. Time to
first data is measured with calls that really take ``--latency`` seconds, through the driver's
thread as in the dashboard, a snapshot a second.
"""

import argparse
import dataclasses
import tempfile
import time
from collections import Counter
from pathlib import Path

from gpuwatch.core.model import Gpu
from gpuwatch.core.source import ReadOptions, SystemClock
from gpuwatch.sources.driver_link import DriverLink
from gpuwatch.sources.nvml.source import NvmlSource
from tests.sources.nvml.watch import watching
from tests.support.fake_nvml import FakeNvml
from tests.support.fake_nvml_layout import FUNCTIONS

LATENCIES_SECONDS = (0.001, 0.0025, 0.005, 0.010)
GPU_COUNTS = (1, 2, 4, 8)
WARM_UP_SNAPSHOTS = 30
SNAPSHOTS = 120
CALM_SNAPSHOTS = 10
USUAL_SECONDS = 2.0
"""No field that is read at every look is late before this."""
MAIN_FIELDS = ("busy_percent", "memory_used_bytes", "power_watts")


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """What the rows of a sweep show, by field, and what it costs."""

    share: dict[str, float]
    """Of the rows: those that show the field."""
    oldest_seconds: dict[str, float]
    """The greatest age of the fields that were late."""
    driver_share: float
    """Of wall time."""
    problems: tuple[str, ...]
    """The sentences at the end."""

    @property
    def mean(self) -> float:
        return sum(self.share.values()) / len(self.share)


def present(gpu: Gpu) -> set[str]:
    values = {
        field.name: getattr(gpu.reading, field.name) for field in dataclasses.fields(gpu.reading)
    }
    # Flags and durations since the snapshot before are no readings of their own.
    return {
        name
        for name, value in values.items()
        if value is not None and not isinstance(value, bool) and name not in _NO_VALUE
    }


_NO_VALUE = frozenset({"throttle_durations", "late_readings"})


def sweep(
    folder: Path,
    latency_seconds: float,
    gpus: int,
    snapshots: int = SNAPSHOTS,
    warm_up: int = WARM_UP_SNAPSHOTS,
) -> Shown:
    """Watch ``gpus`` whose driver takes so long for every call, a snapshot a second."""
    shown: Counter[str] = Counter()
    oldest: dict[str, float] = {}
    with watching(folder, gpus=gpus) as watch:
        watch.ticks(CALM_SNAPSHOTS)
        expected = present(watch.gpu())
        watch.call_seconds = latency_seconds
        watch.ticks(warm_up)
        spent = 0.0
        for _ in range(snapshots):
            reading = watch.tick()
            spent += reading.call_seconds
            for gpu in reading.gpus:
                shown.update(present(gpu) & expected)
                for name, seconds in getattr(gpu.reading, "late_readings", ()):
                    oldest[name] = max(oldest.get(name, 0.0), seconds)
        share = {name: shown[name] / (snapshots * gpus) for name in sorted(expected)}
        return Shown(share, oldest, spent / snapshots, tuple(watch.sentences()))


def first_data(folder: Path, latency_seconds: float, gpus: int) -> tuple[float, float, float]:
    """Seconds until a GPU has a row, one has its busy percentage, and all have their main fields.

    The calls really take ``latency_seconds`` each.
    """
    fake = FakeNvml.create(folder, gpus=gpus)
    for function in FUNCTIONS:
        if function.startswith("nvmlDevice") or function.startswith("nvmlGpm"):
            fake.delay(function, latency_seconds)
    found: dict[str, float] = {}
    with fake.in_this_process():
        options = ReadOptions()
        link = DriverLink(SystemClock(), options, lambda: NvmlSource(SystemClock(), options))
        began = time.monotonic()
        link.open()
        while len(found) < 3:
            asked = time.monotonic()
            link.ask()
            rows = link.collect().reading.gpus
            now = time.monotonic() - began
            complete = [
                gpu
                for gpu in rows
                if all(getattr(gpu.reading, name) is not None for name in MAIN_FIELDS)
            ]
            if rows:
                found.setdefault("row", now)
            if any(gpu.reading.busy_percent is not None for gpu in rows):
                found.setdefault("busy", now)
            if len(complete) == gpus:
                found.setdefault("all", now)
            time.sleep(max(0.0, asked + options.interval_seconds - time.monotonic()))
        link.close()
    return found["row"], found["busy"], found["all"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--fields", action="store_true", help="each field at 8 GPUs")
    parser.add_argument("--first-data", action="store_true", help="time to first data instead")
    parser.add_argument("--latency", type=float, default=0.1, help="seconds a call (first data)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs (first data)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.first_data:
            row, busy, everything = first_data(folder, arguments.latency, arguments.gpus)
            print(f"{arguments.gpus} GPUs, {arguments.latency * 1000:g} ms a call (real)")
            print(f"first GPU row                       {row:5.1f} s")
            print(f"first GPU with its busy percentage  {busy:5.1f} s")
            print(f"all with busy, memory and power     {everything:5.1f} s")
        else:
            _print_sweep(folder, fields=arguments.fields)


def _print_sweep(folder: Path, *, fields: bool) -> None:
    print("Rows that show a reading: mean over all fields, busy, memory, power; time in the driver")
    for gpus in GPU_COUNTS:
        for latency in LATENCIES_SECONDS:
            shown = sweep(folder, latency, gpus)
            oldest = shown.oldest_seconds.get("busy_percent", USUAL_SECONDS)
            main_shares = " ".join(f"{shown.share[name]:4.0%}" for name in MAIN_FIELDS)
            print(
                f"{gpus} GPUs {latency * 1000:4.1f} ms: {shown.mean:4.0%}  {main_shares}"
                f"  driver {shown.driver_share:5.1%}  problems {len(shown.problems)}"
                f"  busy at most {oldest:.0f} s old"
            )
            if fields and gpus == GPU_COUNTS[-1]:
                for field, share in shown.share.items():
                    old = shown.oldest_seconds.get(field)
                    print(
                        f"    {field:32} {share:4.0%}" + ("" if old is None else f"  {old:.0f} s")
                    )
    print(*shown.problems, sep="\n")


if __name__ == "__main__":
    main()
