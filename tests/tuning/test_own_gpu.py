"""NVML's readings of the GPU a measuring process is on, from the simulated driver."""

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tests.support.children import ran
from tests.support.fake_nvml import FakeNvml

ROOT = Path(__file__).parents[2]
STEPS = """
import json, time
from gpuwatch.tuning.child.gpu import OwnGpu
from tests.support.virtual_gpu import VirtualGpu

gpu = VirtualGpu.open(0, memory_bytes=1 << 30)
own = OwnGpu()

def percent():
    # Of what the driver samples from now on.
    own.start()
    while own.percent() is None:
        time.sleep(0.01)
        own.note()
    return own.percent()

with gpu.kernel():
    # Longer than one of the driver's samples.
    time.sleep(0.5)
    busy = percent()
time.sleep(0.5)
print(json.dumps([busy, percent(), own.process_bytes, own.used_bytes]))
"""


def test_the_gpu_that_the_process_is_on(tmp_path: Path) -> None:
    """Of two GPUs it is the one with this process: its utilisation and its memory."""
    fake = FakeNvml.create(tmp_path, gpus=2, preset="h200")
    fake.gpu[0].waveform("virtual")
    # With this, which Lightning sets, torch counts NVML's GPUs as CUDA's.
    lightning = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "PYTHONPATH": str(ROOT)}
    done = ran("-c", STEPS, env={**os.environ, **fake.env(), **lightning})
    assert done.returncode == 0, done.stderr
    busy, idle, process_bytes, used_bytes = json.loads(done.stdout)
    assert (busy, idle) == (100, 0)
    assert process_bytes == 1 << 30
    assert used_bytes >= process_bytes
