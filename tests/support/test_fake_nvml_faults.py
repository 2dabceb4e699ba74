"""Every fault the simulated library can play, met through the real pynvml."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pynvml as nv
import pytest

from tests.support.fake_nvml import (
    FakeNvml,
    GpuProcess,
    create_or_skip,
)


def test_calls_after_shutdown_are_uninitialized(fake: FakeNvml, handle: Any) -> None:
    """The library is initialised as often as it is shut down."""
    nv.nvmlInit()
    nv.nvmlShutdown()
    assert nv.nvmlDeviceGetCount() == 2
    nv.nvmlShutdown()
    with pytest.raises(nv.NVMLError_Uninitialized):
        nv.nvmlDeviceGetPowerUsage(handle)


def test_a_misspelt_missing_function_is_refused(tmp_path: Path) -> None:
    """A variant that would lack nothing is an error in the test."""
    with pytest.raises(ValueError, match=r"nvmlDeviceGetSample$"):
        FakeNvml.create(tmp_path, missing=["nvmlDeviceGetSample"])


def test_the_count_of_a_list_can_be_wrong(fake: FakeNvml, handle: Any) -> None:
    """A list can have no records, rubbish in them, or a count far beyond the buffer."""
    fake.gpu[0].processes = [GpuProcess(pid=10)]
    name = "nvmlDeviceGetComputeRunningProcesses_v3"
    fake.answer(name, "empty", gpu=0)
    assert nv.nvmlDeviceGetComputeRunningProcesses_v3(handle) == []
    fake.answer(name, "garbage", gpu=0)
    assert [p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses_v3(handle)] == [0xF4DBF5C2]
    fake.answer(name, "garbage count", gpu=0)
    count = ctypes.c_uint(8)
    records = ctypes.create_string_buffer(8 * 24)
    assert nv._nvmlGetFunctionPointer(name)(handle, ctypes.byref(count), records) == 0
    assert count.value == 0xF4DBF5C2


def test_a_slow_call_takes_its_time(fake: FakeNvml, handle: Any) -> None:
    """A delay is spent inside the call it was set for."""
    fake.delay("nvmlDeviceGetFanSpeed", 0.02, gpu=0)
    with pytest.raises(nv.NVMLError_NotSupported):
        nv.nvmlDeviceGetFanSpeed(handle)
    assert fake.seconds("nvmlDeviceGetFanSpeed") >= 0.02


def test_a_hanging_call_blocks_until_released(fake: FakeNvml, handle: Any) -> None:
    """The call does not return, others do, and it goes on when released."""
    fake.hang("nvmlDeviceGetPowerUsage", gpu=0)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(nv.nvmlDeviceGetPowerUsage(handle)))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    assert nv.nvmlDeviceGetUtilizationRates(handle).gpu == 0
    fake.release()
    thread.join(10)
    assert len(answers) == 1


def test_without_a_control_file_there_is_no_driver(tmp_path: Path) -> None:
    """A program that is not told of a machine finds the library and no driver."""
    machine = create_or_skip(tmp_path)
    environment = machine.env()
    environment["FAKE_NVML_STATE"] = str(tmp_path / "none")
    code = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as e: print(e.value)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(nv.NVML_ERROR_DRIVER_NOT_LOADED)
