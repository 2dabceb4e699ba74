"""How large recordings are, what writing them costs, how soon they are open, how fast they are
played and reported, and what hours of history hold in memory.

    python -m tests.benchmarks.recording [--hours 12] [--folder FOLDER] [--report-every-second]

A simulated machine with 8 GPUs and 64 processes on them at 1 Hz, of which every reading moves: the
simulation's own noise, and on top the small movements that real machines have and it lacks (memory
of processes, rates of idle processes, clocks, unrounded power). The history is that of 16 GPUs.
Prints a Markdown table; takes about five minutes of a machine of two cores that does nothing else,
and as long again with ``--report-every-second``.
"""

import argparse
import gc
import gzip
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import psutil

from gpuwatch.core.model import BusySample, Gpu, Job, JobRank, Process, Snapshot
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.core.store import Store
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.recording.file import RecordingIndex, open_any
from gpuwatch.recording.recorder import Recorder
from gpuwatch.sources.simulated.source import SimulatedSource
from tests.benchmarks.tools import replaying
from tests.support.snapshots import stream_lines

GPUS = 8
HISTORY_GPUS = 16
PROCESSES = 64
DAY_SECONDS = 86400.0
SELDOM_SECONDS = 5.0
CYCLE = 600
"""Seconds that are made; a longer recording repeats them at later times."""


class Noise:
    """What a real machine has on top of the simulation's: seeded."""

    def __init__(self, seed: int = 0) -> None:
        self._dice = random.Random(seed)

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        return replace(
            snapshot,
            gpus=tuple([self._gpu(gpu) for gpu in snapshot.gpus]),
            processes=tuple([self._process(process) for process in snapshot.processes]),
            jobs=tuple([self._job(job) for job in snapshot.jobs]),
        )

    def _gpu(self, gpu: Gpu) -> Gpu:
        dice, reading = self._dice, gpu.reading
        samples = reading.busy_samples and tuple(
            BusySample(
                sample.at_unix_seconds + dice.uniform(-0.001, 0.001),
                min(100.0, max(0.0, sample.percent + dice.randint(-2, 2))),
            )
            for sample in reading.busy_samples
        )
        return replace(
            gpu,
            reading=replace(
                reading,
                busy_samples=samples,
                power_watts=(reading.power_watts or 0.0) + dice.gauss(0.0, 3.0),
                sm_clock_mhz=1980 - 15 * dice.randint(0, 3),
                pcie_rx_bytes_per_second=dice.uniform(1e6, 2e9),
                pcie_tx_bytes_per_second=dice.uniform(1e6, 1e9),
            ),
        )

    def _process(self, process: Process) -> Process:
        dice = self._dice
        changes: dict[str, float | int] = {}
        if dice.random() < 0.5:
            changes["cpu_percent"] = (process.cpu_percent or 0.0) + dice.choice([0.0, 0.9, 1.0])
        if dice.random() < 0.2:
            resident = process.memory_resident_bytes or 0
            changes["memory_resident_bytes"] = resident + 4096 * dice.randint(0, 2000)
        return replace(process, **changes) if changes else process  # type: ignore[arg-type]

    def _job(self, job: Job) -> Job:
        dice = self._dice
        return replace(
            job,
            members=tuple(
                [
                    replace(
                        member,
                        cpu_percent=(member.cpu_percent or 0.0) + dice.choice([0.0, 0.9, 1.0]),
                        memory_resident_bytes=(member.memory_resident_bytes or 0)
                        + 4096 * dice.randint(0, 2000),
                    )
                    if dice.random() < 0.3
                    else member
                    for member in job.members
                ]
            ),
        )


def machine(
    scenario: str = "starved", *, gpus: int = GPUS, interval: float = 1.0
) -> list[Snapshot]:
    """Ten minutes of it."""
    clock = ManualClock()
    source = SimulatedSource(
        scenario, gpus, clock=clock, options=ReadOptions(interval_seconds=interval)
    )
    noise = Noise()
    found = []
    for _ in range(round(CYCLE / interval)):
        found.append(noise(_crowded(source.read())))
        clock.advance(interval)
    return found


def _crowded(snapshot: Snapshot) -> Snapshot:
    """Give it as many processes as ``PROCESSES``, each a job of its own beyond those it has."""
    more = []
    for number in range(PROCESSES - len(snapshot.processes)):
        like = snapshot.processes[number % len(snapshot.processes)]
        gpu = snapshot.gpus[number % len(snapshot.gpus)].uuid
        more.append(replace(like, pid=90_000 + number, gpu_uuid=gpu))
    members = {one.pid: one for job in snapshot.jobs for one in job.members}
    jobs = [
        Job(
            pid=one.pid,
            command=one.command,
            user=one.user,
            gpu_uuids=(one.gpu_uuid or "",),
            ranks=(JobRank(pid=one.pid, gpu_uuids=(one.gpu_uuid or "",)),),
            members=(replace(next(iter(members.values())), pid=one.pid, role="rank"),),
        )
        for one in more
    ]
    return replace(snapshot, processes=(*snapshot.processes, *more), jobs=(*snapshot.jobs, *jobs))


def repeated(snapshots: list[Snapshot], count: int, interval: float = 1.0) -> Iterator[Snapshot]:
    """As many as ``count``: the same again, later."""
    for number in range(count):
        later = (number - number % len(snapshots)) * interval
        one = snapshots[number % len(snapshots)]
        yield replace(
            one,
            sequence=number,
            taken_at_unix_seconds=one.taken_at_unix_seconds + later,
            monotonic_seconds=one.monotonic_seconds + later,
            gpus=tuple([_later(gpu, later) for gpu in one.gpus]) if later else one.gpus,
        )


def _later(gpu: Gpu, seconds: float) -> Gpu:
    samples = gpu.reading.busy_samples
    if samples is None:
        return gpu
    moved = tuple([BusySample(at + seconds, percent) for at, percent in samples])
    return replace(gpu, reading=replace(gpu.reading, busy_samples=moved))


NOTHING = Diagnosis(taken_at_unix_seconds=0.0, watched_seconds=0.0, verdict="")
"""Found in the long file, whose findings are not what is measured: the diagnosis takes longer than
all the rest together."""


def measure(folder: Path, hours: float, *, report_every_second: bool) -> Iterator[tuple[str, str]]:
    snapshots = machine()
    path = folder / "short.jsonl.zst"
    clock = ManualClock()
    recorder, began = Recorder(path, monotonic=clock.monotonic), time.process_time()
    for each in snapshots:
        recorder.push(each)
        clock.advance(1.0)
    seconds = time.process_time() - began
    recorder.close()
    yield from _size("recording", path.stat().st_size / CYCLE)
    yield "recording: CPU per snapshot, with the diagnosis", f"{1000 * seconds / CYCLE:.1f} ms"

    packed = gzip.compress("\n".join(stream_lines(*snapshots)).encode(), 6)
    yield from _size("stream, through gzip", len(packed) / CYCLE)

    long = folder / "long.jsonl.zst"
    count = int(hours * 3600)
    seconds = write(long, snapshots, count, 1.0)
    yield "recording: CPU per snapshot, without it", f"{1000 * seconds / count:.1f} ms"
    yield from _opening(long, hours)
    yield from replaying.first_picture(long, hours)
    seldom = folder / "seldom.jsonl.zst"
    write(seldom, machine(interval=SELDOM_SECONDS), count // 5, SELDOM_SECONDS)
    yield from replaying.speed(long, "every second")
    yield from replaying.speed(seldom, f"every {SELDOM_SECONDS:g} s")
    yield from replaying.report(seldom, f"{hours:g} hours every {SELDOM_SECONDS:g} s")
    if report_every_second:
        yield from replaying.report(long, f"{hours:g} hours every second")


def write(path: Path, snapshots: list[Snapshot], count: int, interval: float) -> float:
    """Record the same again and again; seconds of CPU."""
    clock = ManualClock()
    recorder = Recorder(path, monotonic=clock.monotonic)
    seconds = 0.0
    for each in repeated(snapshots, count, interval):
        began = time.process_time()
        recorder.push(each, NOTHING)
        seconds += time.process_time() - began
        clock.advance(interval)
    recorder.close()
    return seconds


def _opening(long: Path, hours: float) -> Iterator[tuple[str, str]]:
    size = f"{long.stat().st_size / 1e6:.0f} MB"
    began = time.perf_counter()
    index = RecordingIndex(str(long))
    next(index.snapshots(0.0))
    yield (
        f"{hours:g} hours ({size}): overview, first snapshot",
        f"{time.perf_counter() - began:.2f} s",
    )
    middle = (index.first_unix_seconds or 0.0) + hours * 1800
    began = time.perf_counter()
    next(index.snapshots(middle))
    yield f"{hours:g} hours: to any other moment", f"{time.perf_counter() - began:.2f} s"
    index.close()
    with open_any(str(long)) as log:
        began = time.process_time()
        read = sum(1 for _ in islice(log.snapshots, 2000))
        seconds = time.process_time() - began
    yield "snapshots read per second", f"{read / seconds:.0f}"


def history(hours: float) -> str:
    """The row of a table: what this process grows by."""
    snapshots = [_cut(each) for each in machine("healthy", gpus=HISTORY_GPUS)]
    held, process = Store(), psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    for each in repeated(snapshots, int(hours * 3600)):
        held.push(each)
    grown = (process.memory_info().rss - before) / 2**20
    what = f"{hours:g} hours of {HISTORY_GPUS} GPUs and {PROCESSES} processes in memory"
    return f"| {what}: the process grew by | {grown:.1f} MiB |"


def _cut(snapshot: Snapshot) -> Snapshot:
    """To 64 processes, and jobs to those."""
    processes = snapshot.processes[:PROCESSES]
    kept = {(each.pid, each.started_at_unix_seconds) for each in processes}
    jobs = [
        replace(job, members=tuple([one for one in job.members if one.key in kept]))
        for job in snapshot.jobs
    ]
    return replace(snapshot, processes=processes, jobs=tuple(jobs))


def _size(what: str, each: float) -> Iterator[tuple[str, str]]:
    yield f"{what}: a snapshot", f"{each:.0f} bytes"
    yield f"{what}: a day", f"{each * DAY_SECONDS / 1e6:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary folder")
    parser.add_argument(
        "--report-every-second", action="store_true", help="also the report of the long recording"
    )
    parser.add_argument("--history", action="store_true", help="only what history holds in memory")
    given = parser.parse_args()
    if given.history:
        print(history(given.hours))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        print(f"{GPUS} GPUs, {PROCESSES} processes on them, every second\n")
        print("| what | measured |\n|---|---|")
        # In a process of its own, beside the rest: its memory is what is asked for.
        history_row = ("--history", "--hours", f"{given.hours:g}")
        held = replaying.started("tests.benchmarks.recording", *history_row)
        rows = measure(Path(folder), given.hours, report_every_second=given.report_every_second)
        for what, measured in rows:
            print(f"| {what} | {measured} |", flush=True)
        print(replaying.said_by(held), end="", flush=True)


if __name__ == "__main__":
    main()
