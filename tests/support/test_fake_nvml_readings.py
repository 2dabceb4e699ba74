"""Every structure and reading of the simulated library, read through the real pynvml."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pynvml as nv
import pytest

from tests.support.fake_nvml import (
    FakeNvml,
    GpuProcess,
    writing,
)

GIB = 1 << 30

Reading = Callable[[Any], Any]


def fields(structure: Any) -> dict[str, Any]:
    return {name: getattr(structure, name) for name, *_ in structure._fields_}


def field(identifier: int, kind: str = "uiVal", scope: int = 0) -> Reading:
    def read(handle: Any) -> Any:
        value = nv.nvmlDeviceGetFieldValues(handle, [(identifier, scope)])[0]
        assert value.nvmlReturn == nv.NVML_SUCCESS
        return getattr(value.value, kind)

    return read


# What gpuwatch reads is tested with gpuwatch (tests/sources/nvml); here, what other monitors ask.
PLAIN: dict[str, tuple[dict[str, Any], Reading, Any]] = {
    "serial": ({"serial": "123"}, nv.nvmlDeviceGetSerial, "123"),
    "vbios": ({"vbios": "96.1"}, nv.nvmlDeviceGetVbiosVersion, "96.1"),
    "minor number": ({"minor_number": 5}, nv.nvmlDeviceGetMinorNumber, 5),
    "architecture": ({"architecture": 9}, nv.nvmlDeviceGetArchitecture, 9),
    "cores": ({"cores": 16896}, nv.nvmlDeviceGetNumGpuCores, 16896),
    "compute mode": ({"compute_mode": 3}, nv.nvmlDeviceGetComputeMode, 3),
    "bar1": (
        {"bar1_total_bytes": 256, "bar1_used_bytes": 6},
        lambda h: fields(nv.nvmlDeviceGetBAR1MemoryInfo(h)),
        {"bar1Total": 256, "bar1Free": 250, "bar1Used": 6},
    ),
    "energy": ({"energy_mj": 2**40}, nv.nvmlDeviceGetTotalEnergyConsumption, 2**40),
    "fans": ({"fan_count": 2}, nv.nvmlDeviceGetNumFans, 2),
    "fan rpm": ({"fan_count": 1, "fan_rpm": 1450}, nv.nvmlDeviceGetFanSpeedRPM, 1450),
    "violation": (
        {"reason_sw_power_cap_ns": 5_000},
        lambda h: nv.nvmlDeviceGetViolationStatus(h, nv.NVML_PERF_POLICY_POWER).violationTime,
        5_000,
    ),
    "ecc mode": ({"ecc_mode": 1, "ecc_pending": 0}, nv.nvmlDeviceGetEccMode, [1, 0]),
    "link down": ({"nvlink_down": 8}, lambda h: nv.nvmlDeviceGetNvLinkState(h, 3), 0),
    "field: nvlink of a link": ({"nvlink_rx_kib": 36}, field(139, "ullVal", 2), 2),
}


@pytest.mark.parametrize("case", PLAIN.values(), ids=PLAIN.keys())
def test_a_value_set_is_the_value_pynvml_reads(
    fake: FakeNvml, handle: Any, case: tuple[dict[str, Any], Reading, Any]
) -> None:
    """What a test sets comes back through pynvml's own structures, in every member."""
    values, read, expected = case
    fake.gpu[0].set(**values)
    assert read(handle) == expected


def test_gpus_are_found_by_uuid_bus_id_and_index(fake: FakeNvml) -> None:
    """Each way to name a GPU leads to the same one."""
    second = nv.nvmlDeviceGetHandleByIndex(1)
    bus_id = nv.nvmlDeviceGetPciInfo(second).busId
    by_uuid = nv.nvmlDeviceGetHandleByUUID(nv.nvmlDeviceGetUUID(second))
    by_bus = nv.nvmlDeviceGetHandleByPciBusId(
        bus_id.encode() if isinstance(bus_id, str) else bus_id
    )
    assert [nv.nvmlDeviceGetIndex(h) for h in (second, by_uuid, by_bus)] == [1, 1, 1]
    with pytest.raises(nv.NVMLError_NotFound):
        nv.nvmlDeviceGetHandleByUUID(b"GPU-none")
    with pytest.raises(nv.NVMLError_InvalidArgument):
        nv.nvmlDeviceGetHandleByIndex(2)


def test_pci_facts_have_their_places(fake: FakeNvml, handle: Any) -> None:
    """The PCI structure's members do not run into one another."""
    fake.gpu[0].set(pci_domain=1, pci_bus=0xAB, pci_device_id=0x233510DE, pci_subsystem_id=7)
    pci = nv.nvmlDeviceGetPciInfo(handle)
    assert (pci.domain, pci.bus, pci.device) == (1, 0xAB, 0)
    assert (pci.pciDeviceId, pci.pciSubSystemId) == (0x233510DE, 7)
    assert pci.busId == "00000001:AB:00.0"
    assert pci.busIdLegacy == "0001:AB:00.0"


def test_system_versions(fake: FakeNvml) -> None:
    """The driver, NVML and CUDA versions are those of the machine."""
    fake.set(driver_version="999.1", nvml_version="12.9", cuda_version=12090)
    assert nv.nvmlSystemGetDriverVersion() == "999.1"
    assert nv.nvmlSystemGetNVMLVersion() == "12.9"
    assert nv.nvmlSystemGetCudaDriverVersion_v2() == 12090
    assert nv.nvmlDeviceGetCount() == 2


def test_a_list_being_replaced_is_read_whole(fake: FakeNvml, handle: Any) -> None:
    """A read that meets a writer half-way waits, and gets the new list."""
    entry = fake.gpu[0]
    entry.processes = [GpuProcess(pid=10)]
    found: list[int] = []

    def read() -> None:
        found.extend(p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses_v3(handle))

    reader = threading.Thread(target=read)
    with writing(entry._gpu, "process_sequence"):
        reader.start()
        reader.join(0.02)
        assert reader.is_alive()
        entry._gpu.processes[0].pid = 11
    reader.join(10)
    assert found == [11]


def test_process_name_comes_from_the_kernel(fake: FakeNvml) -> None:
    """A process that exists has a name; one that does not is NOT_FOUND."""
    assert nv.nvmlSystemGetProcessName(os.getpid())
    with pytest.raises(nv.NVMLError_NotFound):
        nv.nvmlSystemGetProcessName(2**22 + 1)


def test_calls_and_time_are_counted_by_function_and_gpu(fake: FakeNvml, handle: Any) -> None:
    """The counters say how often a function was called, for which GPU, and how long it took."""
    fake.reset_counters()
    fake.delay("nvmlDeviceGetPcieThroughput", 0.005)
    for _ in range(3):
        nv.nvmlDeviceGetPowerUsage(handle)
    nv.nvmlDeviceGetPcieThroughput(handle, 0)
    assert fake.call_counts() == {"nvmlDeviceGetPowerUsage": 3, "nvmlDeviceGetPcieThroughput": 1}
    assert fake.gpu[0].calls("nvmlDeviceGetPowerUsage") == 3
    assert fake.gpu[1].calls("nvmlDeviceGetPowerUsage") == 0
    assert fake.calls() == 4
    assert fake.seconds("nvmlDeviceGetPcieThroughput") >= 0.005


def test_an_unknown_member_is_refused(fake: FakeNvml) -> None:
    """A misspelt value is an error in the test, not a value nobody reads."""
    with pytest.raises(AttributeError, match="utilisation"):
        fake.gpu[0].set(utilisation=3)
