"""What a slow driver leaves of the readings: a sweep over 1 to 10 ms a call and 1 to 8 GPUs.

    python -m tests.benchmarks.slow_driver                 # virtual latencies, 30 s
    python -m tests.benchmarks.slow_driver --plan [GPUS]   # what is asked of a real driver

The sweep runs the NVML source on a simulated driver with a clock and a timer of its own, so its
table is the same on every machine. A row is one GPU in one snapshot, one a second; a field counts
as shown where it is not ``None``, of the fields that a quick driver gives on this card.
"""

import dataclasses
import sys
import tempfile
from collections import Counter
from pathlib import Path

from gpuwatch.core.model import Gpu
from tests.sources.nvml.watch import watching

LATENCIES_SECONDS = (0.001, 0.0025, 0.005, 0.010)
GPU_COUNTS = (1, 2, 4, 8)
WARM_UP_SNAPSHOTS = 30
SNAPSHOTS = 120
CALM_SNAPSHOTS = 10
USUAL_SECONDS = 2.0
"""No field that is read at every look is late before this."""
REAL_SECONDS = {
    "nvmlDeviceGetPcieThroughput": 20e-3,
    "nvmlDeviceGetComputeRunningProcesses_v3": 3e-3,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": 3e-3,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": 3e-3,
    "nvmlDeviceGetProcessUtilization": 1e-3,
    "nvmlDeviceGetSamples": 1e-3,
    "nvmlDeviceGetFieldValues": 1e-4,
    "nvmlGpmSampleGet": 2e-4,
}
USUAL_CALL_SECONDS = 2e-5
"""What calls take on real drivers; those of the table, and any other."""
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


def asked_of_a_real_driver(folder: Path, gpus: int) -> dict[str, tuple[float, float]]:
    """Calls a second, and the seconds that each takes, by function, once it has settled."""
    with watching(folder, gpus=gpus) as watch:
        watch.ticks(2)
        kinds = ("nvmlDeviceGet", "nvmlGpm")
        asked = [name for name in watch.fake.call_counts() if name.startswith(kinds)]
        watch.costs = {name: REAL_SECONDS.get(name, USUAL_CALL_SECONDS) for name in asked}
        watch.ticks(CALM_SNAPSHOTS)
        watch.fake.reset_counters()
        watch.ticks(SNAPSHOTS)
        counts = watch.fake.call_counts()
        return {name: (counts.get(name, 0) / SNAPSHOTS, watch.costs[name]) for name in asked}


def print_plan(folder: Path, gpus: int) -> None:
    asked = asked_of_a_real_driver(folder, gpus)
    for name, (calls, seconds) in sorted(asked.items(), key=lambda one: -one[1][0] * one[1][1]):
        every = f"every {gpus / calls:5.1f} s of each GPU" if calls else "at the start"
        print(f"{name:44} {every:26} {1e3 * seconds:6.2f} ms a call")
    total = sum(calls * seconds for calls, seconds in asked.values())
    print(f"{gpus} GPUs: {total:.2%} of the time")


def main() -> None:
    if "--plan" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            print_plan(Path(folder), int(sys.argv[-1]) if sys.argv[-1].isdecimal() else 8)
        return
    print("Rows that show a reading: mean over all fields, busy, memory, power; time in the driver")
    for gpus in GPU_COUNTS:
        for latency in LATENCIES_SECONDS:
            with tempfile.TemporaryDirectory() as folder:
                shown = sweep(Path(folder), latency, gpus)
            oldest = shown.oldest_seconds.get("busy_percent", USUAL_SECONDS)
            main_shares = " ".join(f"{shown.share[name]:4.0%}" for name in MAIN_FIELDS)
            print(
                f"{gpus} GPUs {latency * 1000:4.1f} ms: {shown.mean:4.0%}  {main_shares}"
                f"  driver {shown.driver_share:5.1%}  problems {len(shown.problems)}"
                f"  busy at most {oldest:.0f} s old"
            )
    print(*shown.problems, sep="\n")


if __name__ == "__main__":
    main()
