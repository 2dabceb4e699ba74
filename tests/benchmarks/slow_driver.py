"""What a slow driver leaves of the readings: a sweep over 1 to 10 ms a call and 1 to 8 GPUs.

    python -m tests.benchmarks.slow_driver                 # virtual latencies, 30 s
    python -m tests.benchmarks.slow_driver --plan [GPUS]   # what is asked of a real driver

The sweep runs the NVML source on a simulated driver with a clock and a timer of its own, so its
table is the same on every machine. A row is one GPU in one snapshot, one a second; a field counts
as shown where it is not ``None``, of the fields that a quick driver gives on this card.
"""

import sys
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

from tests.sources.nvml.watch import Watch, asked_of_a_real_driver, present, watching

LATENCIES_SECONDS = (0.001, 0.0025, 0.005, 0.010)
GPU_COUNTS = (1, 2, 4, 8)
WARM_UP_SNAPSHOTS = 30
SNAPSHOTS = 120
CALM_SNAPSHOTS = 10
USUAL_SECONDS = 2.0
"""No field that is read at every look is late before this."""
MAIN_FIELDS = ("busy_percent", "memory_used_bytes", "power_watts")
NO_READINGS = {"throttle_durations", "late_readings", "memory_used_is_process_sum"}


def sweep(watch: Watch, latency_seconds: float, gpus: int) -> str:
    """What the rows show where every call takes so long, and what it costs."""
    shown: Counter[str] = Counter()
    oldest = USUAL_SECONDS
    watch.ticks(CALM_SNAPSHOTS)
    expected = present(watch.reading()) - NO_READINGS
    watch.call_seconds = latency_seconds
    watch.ticks(WARM_UP_SNAPSHOTS)
    spent = 0.0
    for _ in range(SNAPSHOTS):
        look = watch.tick()
        spent += look.call_seconds
        for gpu in look.gpus:
            shown.update(present(gpu.reading) & expected)
            oldest = max(oldest, dict(gpu.reading.late_readings).get("busy_percent", 0.0))
    share = {name: shown[name] / (SNAPSHOTS * gpus) for name in expected}
    main_shares = " ".join(f"{share[name]:4.0%}" for name in MAIN_FIELDS)
    return (
        f"{gpus} GPUs {latency_seconds * 1000:4.1f} ms: {sum(share.values()) / len(share):4.0%}  "
        f"{main_shares}  driver {spent / SNAPSHOTS:5.1%}  problems {len(watch.sentences())}  "
        f"busy at most {oldest:.0f} s old"
    )


def plan(watch: Watch, gpus: int) -> None:
    asked = asked_of_a_real_driver(watch, SNAPSHOTS)
    for name, (calls, seconds) in sorted(asked.items(), key=lambda one: -one[1][0] * one[1][1]):
        every = f"every {gpus / calls:5.1f} s of each GPU" if calls else "at the start"
        print(f"{name:44} {every:26} {1e3 * seconds:6.2f} ms a call")
    total = sum(calls * seconds for calls, seconds in asked.values())
    print(f"{gpus} GPUs: {total:.2%} of the time")


def main() -> None:
    if "--plan" in sys.argv:
        gpus = int(sys.argv[-1]) if sys.argv[-1].isdecimal() else 8
        with tempfile.TemporaryDirectory() as folder, watching(Path(folder), gpus=gpus) as watch:
            plan(watch, gpus)
        return
    print("Rows that show a reading: mean over all fields, busy, memory, power; time in the driver")
    for gpus, latency in product(GPU_COUNTS, LATENCIES_SECONDS):
        with tempfile.TemporaryDirectory() as folder, watching(Path(folder), gpus=gpus) as watch:
            print(sweep(watch, latency, gpus), flush=True)


if __name__ == "__main__":
    main()
