"""Other programs load the simulated library as they would load the driver's."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_nvml import FakeNvml, GpuProcess, create_or_skip

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path) -> FakeNvml:
    fake = create_or_skip(tmp_path, gpus=2)
    fake.gpu[1].set(utilization=63, memory_used_bytes=40 * GIB, power_mw=321_000)
    fake.gpu[1].processes = [GpuProcess(pid=os.getpid(), used_bytes=5 * GIB, sm_percent=21)]
    return fake


def run_python(fake: FakeNvml, code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**fake.env(), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_pynvml_finds_it_on_the_library_path(machine: FakeNvml) -> None:
    """The environment alone is enough: pynvml's own search finds it."""
    code = (
        "import pynvml as nv; nv.nvmlInit();"
        "print(nv.nvmlDeviceGetUtilizationRates(nv.nvmlDeviceGetHandleByIndex(1)).gpu)"
    )
    assert run_python(machine, code) == "63"


def test_nvitop_reads_it(machine: FakeNvml) -> None:
    """nvitop's own API sees the GPUs, their values and their processes."""
    if importlib.util.find_spec("nvitop") is None:
        pytest.skip("nvitop is not installed")
    code = (
        "from nvitop import Device; d = Device.all()[1]; s = d.as_snapshot();"
        "print(len(Device.all()), d.name(), s.gpu_utilization, s.memory_used >> 30,"
        " s.power_usage, list(d.processes()))"
    )
    assert run_python(machine, code) == f"2 NVIDIA H200 63 40 321000 [{os.getpid()}]"


def test_parallel_builds_end_with_one_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several processes that build at once all load a whole file, and leave only that."""
    create_or_skip(tmp_path)
    code = (
        "from tests.support.fake_nvml_build import build; import ctypes;"
        "ctypes.CDLL(str(build(['nvmlInit']))); print('loaded')"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment,
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    assert [program.communicate(timeout=60)[0].strip() for program in programs] == ["loaded"] * 2
    cache = next(tmp_path.glob("gpuwatch-fake-nvml-*"))
    assert {path.name for path in cache.glob("*/*")} == {"fake_nvml.o", "libnvidia-ml.so.1"}
