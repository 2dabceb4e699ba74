"""Whether hours of watching leave gpuwatch as it was: memory, CPU time, and that it still runs.

    python -m tests.benchmarks.soak                           # 16 GPUs x 256 processes, 2 hours
    python -m tests.benchmarks.soak --hours 0.1 --no-keys

The dashboard runs in a real pseudo-terminal against the simulated NVML library, refreshing five
times a second. A process ends and another starts every second, and sixteen at once every minute;
random keys open and close every screen, and the terminal changes its size. Keys that leave the
program, and ``k`` (which ends processes), are not pressed. A line a minute, and at the end (also
after SIGTERM) resident memory by quarter of the time. The exit code is 1 if gpuwatch ended.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path
from statistics import fmean

from tests.benchmarks.monitors import MIB, environment
from tests.benchmarks.tools import process_tree
from tests.benchmarks.tools.terminal import Terminal, visible_text
from tests.benchmarks.tools.workload import A_GPU, GIB, simulated_machine, start_process
from tests.support.fake_nvml import FakeNvml, GpuProcess

ROOT = Path(__file__).parents[2]
COUNTED = "nvmlDeviceGetMemoryInfo_v2"
"""Asked once of each GPU in every snapshot."""
ESCAPE, ENTER, TAB = "\x1b", "\r", "\t"
UP, DOWN, RIGHT, LEFT, HOME, END = (f"\x1b[{letter}" for letter in "ABCDHF")
PAGE_UP, PAGE_DOWN, F1 = "\x1b[5~", "\x1b[6~", "\x1bOP"
KEYS = (
    *(UP, DOWN, RIGHT, LEFT, HOME, END, PAGE_UP, PAGE_DOWN, F1, TAB, ENTER, ESCAPE, ESCAPE),
    *"jsrtag!dmM[]<>0c,.{}NntRSoyuTAwW?h",
    "p",
    "+-",
    "/train" + ENTER,
)
SIZES = ((200, 50), (80, 24), (120, 40), (60, 15), (250, 70), (20, 5))


Samples = list[tuple[float, float]]
"""Seconds since the start, and resident memory in MiB."""


class Churn:
    """The GPU processes, of which the oldest end and new ones start."""

    def __init__(self, fake: FakeNvml, gpus: int) -> None:
        self._fake = fake
        self._gpus = gpus
        self._own: list[list[int]] = [
            [process.pid for process in fake.gpu[index].processes] for index in range(gpus)
        ]
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self._turn = 0

    def replace(self, count: int) -> None:
        for _ in range(count):
            index = self._turn % self._gpus
            pids = self._own[index]
            if not pids:
                continue
            old = pids.pop(0)
            os.kill(old, signal.SIGKILL)
            process = self._started.pop(old, None)
            if process is not None:
                process.wait()
            new = start_process(self._turn)
            self._started[new.pid] = new
            pids.append(new.pid)
            self._turn += 1
            self._fake.gpu[index].processes = [
                GpuProcess(pid=pid, used_bytes=4 * GIB, sm_percent="share") for pid in pids
            ]

    def close(self) -> None:
        for process in self._started.values():
            process.kill()
            process.wait()


class Person:
    """Presses keys and resizes the terminal, at random."""

    def __init__(self, terminal: Terminal, seed: int) -> None:
        self._terminal = terminal
        self._random = random.Random(seed)
        self.pressed = 0

    def act(self) -> None:
        choice = self._random.random()
        if choice < 0.03:
            self._terminal.resize(*self._random.choice(SIZES))
            return
        keys = self._random.choice(KEYS)
        self._terminal.type(keys)
        self.pressed += 1
        if keys == "p":
            time.sleep(1.0)
            self._terminal.type(keys)


def _resident_mib(pid: int) -> float:
    return process_tree.own_resident_bytes(pid) / MIB


def _summary(samples: Samples) -> str:
    lines = ["", "resident memory, MiB    mean     max    last"]
    length = samples[-1][0] / 4
    for quarter, part in groupby(samples, lambda one: min(3, int(one[0] / length))):
        mib = [one for _, one in part]
        lines.append(
            f"quarter {quarter + 1}          {fmean(mib):8.1f}{max(mib):8.1f}{mib[-1]:8.1f}"
        )
    return "\n".join(lines)


def watch(
    terminal: Terminal,
    fake: FakeNvml,
    churn: Churn,
    person: Person | None,
    arguments: argparse.Namespace,
    samples: Samples,
) -> None:
    """Until the time is over or gpuwatch has ended."""
    start = time.monotonic()
    end = start + arguments.hours * 3600
    next_minute, next_second = start, start
    cpu, counted, written, at = 0.0, 0, 0, start
    minute = 0
    while (now := time.monotonic()) < end and terminal.exit_code is None:
        if now >= next_second:
            next_second = now + 1.0
            churn.replace(1)
        if now >= next_minute:
            next_minute = now + 60.0
            churn.replace(arguments.gpus)
            present = process_tree.cpu_seconds(terminal.pid)
            reads = fake.calls(COUNTED)
            if minute:
                elapsed = now - at
                print(
                    f"{(now - start) / 60:6.1f} min {_resident_mib(terminal.pid):7.1f} MiB "
                    f"{100 * (present - cpu) / elapsed:5.1f}% CPU "
                    f"{(reads - counted) / arguments.gpus / elapsed:5.2f} snapshots/s "
                    f"{(terminal.bytes_written - written) / elapsed / 1024:6.1f} KiB/s "
                    f"{person.pressed if person else 0} keys",
                    flush=True,
                )
            cpu, counted, written, at = present, reads, terminal.bytes_written, now
            minute += 1
        samples.append((now - start, _resident_mib(terminal.pid)))
        if person is not None:
            person.act()
        time.sleep(0.5)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.soak")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--gpus", type=int, default=16)
    parser.add_argument("--processes", type=int, default=256)
    parser.add_argument("--interval", type=float, default=0.2)
    parser.add_argument("--no-keys", action="store_true")
    parser.add_argument("--seed", type=int, default=12)
    return parser.parse_args()


def main() -> int:
    """Soak; 1 if gpuwatch did not last."""
    arguments = _arguments()

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir()
        with simulated_machine(
            Path(folder, "machine"), arguments.gpus, arguments.processes
        ) as fake:
            terminal = Terminal(*SIZES[0], A_GPU)
            churn = Churn(fake, arguments.gpus)
            env = environment(fake, home) | {"PYTHONPATH": str(ROOT)}
            options = ["--interval", f"{arguments.interval:g}"]
            terminal.start([sys.executable, "-m", "gpuwatch", *options], env, home)
            try:
                terminal.wait_for_paint(30.0, match=True)
                print(f"gpuwatch is PID {terminal.pid}; this is {os.getpid()}", flush=True)
                person = None if arguments.no_keys else Person(terminal, arguments.seed)
                samples: Samples = []
                with contextlib.suppress(KeyboardInterrupt):
                    watch(terminal, fake, churn, person, arguments, samples)
                code = terminal.exit_code
                if code is not None:
                    print(f"gpuwatch ended with {code}: {visible_text(terminal.tail)[-2000:]!r}")
                print(_summary(samples), flush=True)
            finally:
                terminal.stop()
                churn.close()
    return int(code is not None)


if __name__ == "__main__":
    sys.exit(main())
