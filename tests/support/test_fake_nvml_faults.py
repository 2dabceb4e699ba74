"""Every fault the simulated library can play, met through the real pynvml."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml as nv
import pytest

from tests.support.fake_nvml import (
    ALL_ONES_64,
    OLD_DRIVER,
    FakeNvml,
    GpuProcess,
    create_or_skip,
)

ERRORS = [
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "UNKNOWN",
    "GPU_IS_LOST",
    "TIMEOUT",
    "DRIVER_NOT_LOADED",
    "LIB_RM_VERSION_MISMATCH",
    "INSUFFICIENT_SIZE",
]


@pytest.mark.parametrize("error", ERRORS)
def test_any_function_can_answer_any_error_for_one_gpu(
    fake: FakeNvml, handle: Any, error: str
) -> None:
    """The fault meets one function of one GPU, and goes when it is taken back."""
    fake.fault("nvmlDeviceGetPowerUsage", error, gpu=0)
    with pytest.raises(nv.NVMLError) as raised:
        nv.nvmlDeviceGetPowerUsage(handle)
    assert raised.value.value == getattr(nv, f"NVML_ERROR_{error}")
    assert nv.nvmlDeviceGetPowerUsage(nv.nvmlDeviceGetHandleByIndex(1)) > 0
    assert nv.nvmlDeviceGetUtilizationRates(handle).gpu == 0
    fake.fault("nvmlDeviceGetPowerUsage", "SUCCESS", gpu=0)
    assert nv.nvmlDeviceGetPowerUsage(handle) > 0


def test_a_fault_can_last_for_some_calls_only(fake: FakeNvml, handle: Any) -> None:
    """A passing error is gone after as many calls as were asked for."""
    fake.fault("nvmlDeviceGetPowerUsage", "TIMEOUT", times=2)
    for _ in range(2):
        with pytest.raises(nv.NVMLError_Timeout):
            nv.nvmlDeviceGetPowerUsage(handle)
    assert nv.nvmlDeviceGetPowerUsage(handle) > 0


def test_a_lost_gpu_comes_back(fake: FakeNvml, handle: Any) -> None:
    """While it is lost every call on it fails, its handle included; the others go on."""
    fake.gpu[0].set(lost=1)
    for call in (nv.nvmlDeviceGetName, nv.nvmlDeviceGetUtilizationRates):
        with pytest.raises(nv.NVMLError_GpuIsLost):
            call(handle)
    with pytest.raises(nv.NVMLError_GpuIsLost):
        nv.nvmlDeviceGetHandleByIndex(0)
    assert nv.nvmlDeviceGetName(nv.nvmlDeviceGetHandleByIndex(1)) == "NVIDIA H200"
    fake.gpu[0].set(lost=0)
    assert nv.nvmlDeviceGetName(handle) == "NVIDIA H200"


@pytest.mark.parametrize("error", ["DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "NO_PERMISSION"])
def test_initialising_can_fail_and_be_mended(tmp_path: Path, error: str) -> None:
    """No driver, one out of step, no permission: init says which, and works once mended."""
    machine = create_or_skip(tmp_path)
    machine.fault_init(error)
    with machine.in_this_process():
        with pytest.raises(nv.NVMLError) as raised:
            nv.nvmlInit()
        assert raised.value.value == getattr(nv, f"NVML_ERROR_{error}")
        with pytest.raises(nv.NVMLError_Uninitialized):
            nv.nvmlDeviceGetCount()
        machine.fault_init("SUCCESS")
        nv.nvmlInit()
        assert nv.nvmlDeviceGetCount() == 1


def test_a_machine_can_have_no_gpus(tmp_path: Path) -> None:
    """The driver is there and finds no device."""
    machine = create_or_skip(tmp_path, gpus=0)
    with machine.in_this_process():
        nv.nvmlInit()
        assert nv.nvmlDeviceGetCount() == 0


def test_calls_after_shutdown_are_uninitialized(fake: FakeNvml, handle: Any) -> None:
    """The library is initialised as often as it is shut down."""
    nv.nvmlInit()
    nv.nvmlShutdown()
    assert nv.nvmlDeviceGetCount() == 2
    nv.nvmlShutdown()
    with pytest.raises(nv.NVMLError_Uninitialized):
        nv.nvmlDeviceGetPowerUsage(handle)


def test_an_old_driver_lacks_the_functions(tmp_path: Path) -> None:
    """What an old driver does not export is a missing symbol; older calls still answer."""
    machine = create_or_skip(tmp_path, missing=OLD_DRIVER, preset="t4")
    machine.gpu[0].processes = [GpuProcess(pid=10)]
    with machine.in_this_process():
        nv.nvmlInit()
        handle = nv.nvmlDeviceGetHandleByIndex(0)
        absent: tuple[Callable[[], Any], ...] = (
            lambda: nv.nvmlDeviceGetMemoryInfo(handle, nv.nvmlMemory_v2),
            lambda: nv.nvmlDeviceGetComputeRunningProcesses_v3(handle),
            lambda: nv.nvmlDeviceGetComputeRunningProcesses_v2(handle),
            lambda: nv.nvmlDeviceGetCurrentClocksEventReasons(handle),
            lambda: nv.nvmlDeviceGetFieldValues(handle, [185]),
            lambda: nv.nvmlGpmQueryDeviceSupport(handle),
        )
        for call in absent:
            with pytest.raises(nv.NVMLError_FunctionNotFound):
                call()
        assert nv.nvmlDeviceGetMemoryInfo(handle).total == 15360 << 20
        assert nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle) == 0


def test_one_function_can_be_missing(tmp_path: Path) -> None:
    """A variant lacks only what was named."""
    machine = create_or_skip(tmp_path, missing=["nvmlDeviceGetSamples"])
    with machine.in_this_process():
        nv.nvmlInit()
        handle = nv.nvmlDeviceGetHandleByIndex(0)
        with pytest.raises(nv.NVMLError_FunctionNotFound):
            nv.nvmlDeviceGetSamples(handle, 1, 0)
        assert nv.nvmlDeviceGetFieldValues(handle, [185])[0].nvmlReturn == 0


def test_a_misspelt_missing_function_is_refused(tmp_path: Path) -> None:
    """A variant that would lack nothing is an error in the test."""
    with pytest.raises(ValueError, match=r"nvmlDeviceGetSample$"):
        FakeNvml.create(tmp_path, missing=["nvmlDeviceGetSample"])


def test_one_field_value_refuses_and_the_others_answer(fake: FakeNvml, handle: Any) -> None:
    """Each field carries its own return code."""
    fake.gpu[0].field_error(nv.NVML_FI_DEV_POWER_INSTANT)
    values = nv.nvmlDeviceGetFieldValues(
        handle, [nv.NVML_FI_DEV_POWER_INSTANT, nv.NVML_FI_DEV_POWER_AVERAGE]
    )
    assert [value.nvmlReturn for value in values] == [nv.NVML_ERROR_NOT_SUPPORTED, 0]


def test_a_process_list_can_grow_between_the_two_calls(fake: FakeNvml, handle: Any) -> None:
    """The filling call finds the list longer than asked, so many times, then fits."""
    fake.gpu[0].processes = [GpuProcess(pid=10)]
    fake.gpu[0].set(process_growth=1)
    with pytest.raises(nv.NVMLError_InsufficientSize):
        nv.nvmlDeviceGetComputeRunningProcesses(handle)
    assert [p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses(handle)] == [10]


def test_sentinels_pass_unchanged(fake: FakeNvml, handle: Any) -> None:
    """All ones, percentages over 100, blank samples and old stamps are the reader's to drop."""
    fake.gpu[0].set(utilization=0xFFFFFFFF, power_mw=0xFFFFFFFF, memory_used_bytes=ALL_ONES_64)
    fake.gpu[0].processes = [GpuProcess(pid=10, sm_percent=4_000_000_000, sample_at_us=1)]
    fake.gpu[0].set(process_blank_samples=1)
    assert nv.nvmlDeviceGetUtilizationRates(handle).gpu == 0xFFFFFFFF
    assert nv.nvmlDeviceGetPowerUsage(handle) == 0xFFFFFFFF
    blank, stale = nv.nvmlDeviceGetProcessUtilization(handle, 0)
    assert (blank.pid, blank.timeStamp) == (0, 0)
    assert (stale.smUtil, stale.timeStamp) == (4_000_000_000, 1)


def test_a_call_can_succeed_without_the_truth(fake: FakeNvml, handle: Any) -> None:
    """Zeros or rubbish come with success, for one GPU, until taken back."""
    fake.gpu[0].set(utilization=40)
    fake.answer("nvmlDeviceGetUtilizationRates", "empty", gpu=0)
    assert nv.nvmlDeviceGetUtilizationRates(handle).gpu == 0
    fake.answer("nvmlDeviceGetUtilizationRates", "garbage", gpu=0, times=1)
    assert nv.nvmlDeviceGetUtilizationRates(handle).gpu == 0xF4DBF5C2
    assert nv.nvmlDeviceGetUtilizationRates(handle).gpu == 40


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


def test_samples_can_be_none_with_success(fake: FakeNvml, handle: Any) -> None:
    """Success with a count of 0, where drivers answer NOT_FOUND."""
    fake.answer("nvmlDeviceGetSamples", "empty", gpu=0)
    assert nv.nvmlDeviceGetSamples(handle, 1, 0)[1] == []


def test_bad_utf8_in_a_name(fake: FakeNvml, handle: Any) -> None:
    """The bytes reach the caller, who decodes them or fails."""
    fake.gpu[0].set(name=b"NVIDIA \xff\xfe")
    with pytest.raises(UnicodeDecodeError):
        nv.nvmlDeviceGetName(handle)


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
