"""NVML's utilisation of the GPU a measured step is on, read from the simulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.tuning.child.step_gpu import gpu_of, uuid_of
from tests.support.fake_nvml import FakeNvml

ROOT = Path(__file__).parents[2]

STEP = """
import json, time
from tests.support.virtual_gpu import VirtualGpu
from gpuwatch.tuning.child.step import measure_step

gpu = VirtualGpu.open(0, memory_bytes=1 << 30)

def batches():
    while True:
        time.sleep(0.05)
        yield [0] * 8

def step(batch):
    gpu.run(0.05)

found = measure_step(batches(), step, seconds=3.0, device="cpu")
print(json.dumps([found.gpu_busy_percent, found.data_wait_share]))
"""


def test_busy_share_of_the_gpu_that_the_process_is_on(tmp_path: Path) -> None:
    """A step that keeps a GPU busy half of the time reads as about half, from NVML."""
    fake = FakeNvml.create(tmp_path, gpus=2, preset="h200")
    fake.gpu[0].waveform("virtual")
    done = subprocess.run(
        [sys.executable, "-c", STEP],
        env={**os.environ, **fake.env(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    busy, wait = json.loads(done.stdout)
    # The GPU works when the step does not wait.
    assert busy == pytest.approx(100 * (1 - wait), abs=12)


def test_which_gpu_a_process_is_on() -> None:
    """One GPU is known by the process on it; none, or several, is not guessed."""
    on = [GpuProcess(pid=7, gpu_uuid="GPU-a"), GpuProcess(pid=8, gpu_uuid="GPU-a")]
    assert gpu_of(7, on) == "GPU-a"
    assert gpu_of(9, on) is None
    assert gpu_of(7, [*on, GpuProcess(pid=7, gpu_uuid="GPU-b")]) is None


def test_no_uuid_without_cuda() -> None:
    """The CPU has no name in NVML."""
    assert uuid_of("cpu") is None
    assert uuid_of(None) is None
