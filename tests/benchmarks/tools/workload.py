"""The machine every monitor is run on: simulated GPUs that move, real processes that sleep."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.fake_nvml import PCIE_DELAY_SECONDS, FakeNvml, GpuProcess

A_GPU = r"H200|140\.4"
"""What shows that a GPU's row is on the screen: its name, or where there is no room for that the
size of its memory."""
GIB = 1 << 30


def start_process(index: int) -> subprocess.Popen[bytes]:
    """A process that costs nothing and has a command line of a usual length."""
    sleep = shutil.which("sleep")
    if sleep is None:
        raise SystemExit("the benchmark needs the sleep command")
    shown = f"python train.py --config configs/base.yaml --data /data/shards --rank {index}"
    return subprocess.Popen([shown, "1000000"], executable=sleep)


@contextlib.contextmanager
def simulated_machine(folder: Path, gpus: int, processes: int) -> Iterator[FakeNvml]:
    """``gpus`` cards whose load flickers out of step, ``processes`` spread over them.

    A PCIe throughput reading takes the 20 ms that it takes on real drivers.
    """
    fake = FakeNvml.create(folder, gpus=gpus, preset="h200", pcie_delay_seconds=PCIE_DELAY_SECONDS)
    started = [start_process(index) for index in range(processes)]
    try:
        for gpu in fake.gpu[:gpus]:
            own = started[gpu.index :: gpus]
            gpu.set(memory_utilization=60, memory_used_bytes=4 * GIB * len(own))
            gpu.waveform("flicker", period_seconds=3.7, phase_seconds=0.41 * gpu.index)
            gpu.processes = [
                GpuProcess(pid=process.pid, used_bytes=4 * GIB, sm_percent="share")
                for process in own
            ]
        yield fake
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


@contextlib.contextmanager
def training_job(fake: FakeNvml, ranks: int, workers: int) -> Iterator[int]:
    """A job of ``ranks`` with ``workers`` each, a rank a GPU; gives the PID of its launcher."""
    launcher = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.tools.training_job", str(ranks), str(workers)],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert launcher.stdout is not None
        pids = [int(pid) for pid in launcher.stdout.readline().split()]
        for gpu, pid in zip(fake.gpu, pids, strict=False):
            gpu.processes = [GpuProcess(pid=pid, used_bytes=30 * GIB, sm_percent="share")]
        yield launcher.pid
    finally:
        assert launcher.stdin is not None
        launcher.stdin.close()
        launcher.wait()
