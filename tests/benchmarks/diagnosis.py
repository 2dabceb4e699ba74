"""What the diagnosis adds to the cost of watching: the engine on eight GPUs with a job each.

    python -m tests.benchmarks.diagnosis
    python -m tests.benchmarks.diagnosis --seconds 300 --scenario eight-starved

A machine of the evaluation's simulator is watched at one snapshot a second, with a job of its own
on each of eight GPUs, all fed or all starved. The snapshots are made beforehand; what is timed is
``Engine.push`` and reading the diagnosis after it, past a warm-up of two minutes in which the
windows fill. CPU time of this process, the best of ``--repeat`` passes; memory is what the engine
holds at the end. Nothing here is asserted.
"""

import argparse
import gc
import time
import tracemalloc
from dataclasses import dataclass

from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.engine import Engine
from tests.evaluation.simulator.gauges import View
from tests.evaluation.simulator.observe import Observer
from tests.evaluation.simulator.setting import Setting, save, validation

WARM_UP_SECONDS = 120
MACHINES = ("eight-jobs", "eight-starved")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Milliseconds of CPU for a second of watching, of the dearest snapshot, and the findings."""

    a_second: float
    dearest: float
    findings: int
    jobs: int


def machine(kind: str, seconds: int) -> list[Snapshot]:
    """Eight jobs on eight GPUs."""
    setting = Setting("cost")
    for device in setting.computer(8, 128).gpus:
        setting.train(
            first=device.index, workers=4, gpu=0.2, loads=3.0 if kind == "eight-starved" else 0.3,
            pauses=((200.0, save(1e9, remote=False)), (300.0, validation(5.0))),
        )  # fmt: skip
    return list(Observer(setting.machine, View(), 25.0).watch(WARM_UP_SECONDS + seconds))


def measure(taken: list[Snapshot]) -> Cost:
    engine = Engine()
    for snapshot in taken[:WARM_UP_SECONDS]:
        engine.push(snapshot)
    costs = []
    for snapshot in taken[WARM_UP_SECONDS:]:
        began = time.process_time_ns()
        engine.push(snapshot)
        said = engine.diagnosis
        costs.append((time.process_time_ns() - began) / 1e6)
    return Cost(
        a_second=sum(costs) / len(costs),
        dearest=max(costs),
        findings=len(said.findings),
        jobs=len(taken[-1].jobs),
    )


def held_bytes(taken: list[Snapshot]) -> int:
    """What an engine keeps after all these snapshots, without the last of them."""
    tracemalloc.start()
    engine = Engine()
    before, _ = tracemalloc.get_traced_memory()
    for snapshot in taken:
        engine.push(snapshot)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.diagnosis")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scenario", action="append", choices=MACHINES)
    options = parser.parse_args()
    print("| scenario | jobs | findings | CPU ms/s | of a core | dearest snapshot ms | held MiB |")
    print("|---|---|---|---|---|---|---|")
    for scenario in options.scenario or MACHINES:
        taken = machine(scenario, options.seconds)
        best = min((measure(taken) for _ in range(options.repeat)), key=lambda cost: cost.a_second)
        held = held_bytes(taken) / (1 << 20)
        print(
            f"| {scenario} | {best.jobs} | {best.findings} | {best.a_second:.2f} "
            f"| {best.a_second / 10.0:.2f}% | {best.dearest:.1f} | {held:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
