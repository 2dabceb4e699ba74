"""Every structure and reading of the simulated library, read through the real pynvml."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml as nv
import pytest

from tests.support.fake_nvml import (
    FakeNvml,
    GpuProcess,
    MigInstance,
    create_or_skip,
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


PLAIN: dict[str, tuple[dict[str, Any], Reading, Any]] = {
    "name": ({"name": "NVIDIA Test"}, nv.nvmlDeviceGetName, "NVIDIA Test"),
    "uuid": ({"uuid": "GPU-x"}, nv.nvmlDeviceGetUUID, "GPU-x"),
    "serial": ({"serial": "123"}, nv.nvmlDeviceGetSerial, "123"),
    "vbios": ({"vbios": "96.1"}, nv.nvmlDeviceGetVbiosVersion, "96.1"),
    "index": ({}, nv.nvmlDeviceGetIndex, 0),
    "minor number": ({"minor_number": 5}, nv.nvmlDeviceGetMinorNumber, 5),
    "brand": ({"brand": 14}, nv.nvmlDeviceGetBrand, 14),
    "architecture": ({"architecture": 9}, nv.nvmlDeviceGetArchitecture, 9),
    "compute capability": ({}, nv.nvmlDeviceGetCudaComputeCapability, (9, 0)),
    "cores": ({"cores": 16896}, nv.nvmlDeviceGetNumGpuCores, 16896),
    "bus width": ({"memory_bus_bits": 384}, nv.nvmlDeviceGetMemoryBusWidth, 384),
    "numa node": ({"numa_node": 1}, nv.nvmlDeviceGetNumaNodeId, 1),
    "persistence": ({"persistence_mode": 1}, nv.nvmlDeviceGetPersistenceMode, 1),
    "compute mode": ({"compute_mode": 3}, nv.nvmlDeviceGetComputeMode, 3),
    "display active": ({"display_active": 1}, nv.nvmlDeviceGetDisplayActive, 1),
    "display mode": ({"display_mode": 1}, nv.nvmlDeviceGetDisplayMode, 1),
    "cpu affinity": (
        {"cpu_affinity": 0xF0},
        lambda h: list(nv.nvmlDeviceGetCpuAffinity(h, 2)),
        [0xF0, 0],
    ),
    "memory affinity": (
        {"memory_affinity": 2},
        lambda h: list(nv.nvmlDeviceGetMemoryAffinity(h, 1, 0)),
        [2],
    ),
    "memory": (
        {
            "memory_total_bytes": 80 * GIB,
            "memory_used_bytes": 3 * GIB,
            "memory_reserved_bytes": GIB,
        },
        lambda h: fields(nv.nvmlDeviceGetMemoryInfo(h)),
        {"total": 80 * GIB, "free": 76 * GIB, "used": 4 * GIB},
    ),
    "memory v2": (
        {
            "memory_total_bytes": 80 * GIB,
            "memory_used_bytes": 3 * GIB,
            "memory_reserved_bytes": GIB,
        },
        lambda h: fields(nv.nvmlDeviceGetMemoryInfo(h, nv.nvmlMemory_v2)),
        {
            "version": nv.nvmlMemory_v2,
            "total": 80 * GIB,
            "reserved": GIB,
            "free": 76 * GIB,
            "used": 3 * GIB,
        },
    ),
    "bar1": (
        {"bar1_total_bytes": 256, "bar1_used_bytes": 6},
        lambda h: fields(nv.nvmlDeviceGetBAR1MemoryInfo(h)),
        {"bar1Total": 256, "bar1Free": 250, "bar1Used": 6},
    ),
    "utilisation": (
        {"utilization": 47, "memory_utilization": 31},
        lambda h: fields(nv.nvmlDeviceGetUtilizationRates(h)),
        {"gpu": 47, "memory": 31},
    ),
    "encoder": (
        {"encoder_utilization": 12},
        nv.nvmlDeviceGetEncoderUtilization,
        [12, 167_000],
    ),
    "decoder": (
        {"decoder_utilization": 13},
        nv.nvmlDeviceGetDecoderUtilization,
        [13, 167_000],
    ),
    "power": ({"power_mw": 312_500}, nv.nvmlDeviceGetPowerUsage, 312_500),
    "enforced limit": (
        {"power_limit_enforced_mw": 650_000},
        nv.nvmlDeviceGetEnforcedPowerLimit,
        650_000,
    ),
    "limit": ({"power_limit_mw": 600_000}, nv.nvmlDeviceGetPowerManagementLimit, 600_000),
    "default limit": ({}, nv.nvmlDeviceGetPowerManagementDefaultLimit, 700_000),
    "limits": ({}, nv.nvmlDeviceGetPowerManagementLimitConstraints, [200_000, 700_000]),
    "energy": ({"energy_mj": 2**40}, nv.nvmlDeviceGetTotalEnergyConsumption, 2**40),
    "temperature": ({"temperature_c": 71}, lambda h: nv.nvmlDeviceGetTemperature(h, 0), 71),
    "temperature v": ({"temperature_c": 71}, lambda h: nv.nvmlDeviceGetTemperatureV(h, 0), 71),
    "slowdown": ({}, lambda h: nv.nvmlDeviceGetTemperatureThreshold(h, 1), 89),
    "fans": ({"fan_count": 2}, nv.nvmlDeviceGetNumFans, 2),
    "fan": ({"fan_count": 2, "fan_percent": [38]}, nv.nvmlDeviceGetFanSpeed, 38),
    "fan v2": (
        {"fan_count": 2, "fan_percent": [38, 41]},
        lambda h: nv.nvmlDeviceGetFanSpeed_v2(h, 1),
        41,
    ),
    "fan rpm": ({"fan_count": 1, "fan_rpm": 1450}, nv.nvmlDeviceGetFanSpeedRPM, 1450),
    "sm clock": ({"clock_sm_mhz": 1755}, lambda h: nv.nvmlDeviceGetClockInfo(h, 1), 1755),
    "memory clock": ({"clock_memory_mhz": 2619}, lambda h: nv.nvmlDeviceGetClock(h, 2, 0), 2619),
    "sm clock max": ({}, lambda h: nv.nvmlDeviceGetMaxClockInfo(h, 1), 1980),
    "p-state": ({"performance_state": 2}, nv.nvmlDeviceGetPerformanceState, 2),
    "event reasons": ({"event_reasons": 0x44}, nv.nvmlDeviceGetCurrentClocksEventReasons, 0x44),
    "throttle reasons": (
        {"event_reasons": 0x44},
        nv.nvmlDeviceGetCurrentClocksThrottleReasons,
        0x44,
    ),
    "reasons supported": ({}, nv.nvmlDeviceGetSupportedClocksEventReasons, 0x1FF),
    "violation": (
        {"reason_sw_power_cap_ns": 5_000},
        lambda h: nv.nvmlDeviceGetViolationStatus(h, nv.NVML_PERF_POLICY_POWER).violationTime,
        5_000,
    ),
    "pcie tx": (
        {"pcie_tx_kib_per_second": 7},
        lambda h: nv.nvmlDeviceGetPcieThroughput(h, nv.NVML_PCIE_UTIL_TX_BYTES),
        7,
    ),
    "pcie rx": (
        {"pcie_rx_kib_per_second": 9},
        lambda h: nv.nvmlDeviceGetPcieThroughput(h, nv.NVML_PCIE_UTIL_RX_BYTES),
        9,
    ),
    "pcie generation": ({"pcie_generation": 4}, nv.nvmlDeviceGetCurrPcieLinkGeneration, 4),
    "pcie width": ({"pcie_width": 8}, nv.nvmlDeviceGetCurrPcieLinkWidth, 8),
    "pcie generation max": ({}, nv.nvmlDeviceGetMaxPcieLinkGeneration, 5),
    "pcie width max": ({}, nv.nvmlDeviceGetMaxPcieLinkWidth, 16),
    "pcie replays": ({"pcie_replays": 3}, nv.nvmlDeviceGetPcieReplayCounter, 3),
    "ecc mode": ({"ecc_mode": 1, "ecc_pending": 0}, nv.nvmlDeviceGetEccMode, [1, 0]),
    "ecc total": (
        {"ecc_volatile_uncorrected": 4},
        lambda h: nv.nvmlDeviceGetTotalEccErrors(
            h, nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC
        ),
        4,
    ),
    "ecc in device memory": (
        {"ecc_aggregate_corrected": 6},
        lambda h: nv.nvmlDeviceGetMemoryErrorCounter(
            h,
            nv.NVML_MEMORY_ERROR_TYPE_CORRECTED,
            nv.NVML_AGGREGATE_ECC,
            nv.NVML_MEMORY_LOCATION_DRAM,
        ),
        6,
    ),
    "remapped rows": (
        {
            "remapped_correctable": 1,
            "remapped_uncorrectable": 2,
            "remapped_pending": 1,
            "remapped_failed": 0,
        },
        nv.nvmlDeviceGetRemappedRows,
        (1, 2, 1, 0),
    ),
    "retired pages": (
        {"remapped_supported": 0, "retired_single": 2},
        lambda h: nv.nvmlDeviceGetRetiredPages(h, 0),
        [0x10000, 0x20000],
    ),
    "link up": ({}, lambda h: nv.nvmlDeviceGetNvLinkState(h, 3), 1),
    "link down": ({"nvlink_down": 8}, lambda h: nv.nvmlDeviceGetNvLinkState(h, 3), 0),
    "link traffic": (
        {"nvlink_rx_kib": 1800, "nvlink_tx_kib": 900},
        lambda h: nv.nvmlDeviceGetNvLinkUtilizationCounter(h, 0, 0),
        (100, 50),
    ),
    "mig mode": ({"mig_mode": 0, "mig_pending": 1}, nv.nvmlDeviceGetMigMode, [0, 1]),
    "field: power": ({"power_mw": 5, "power_instant_mw": 9}, field(185), 5),
    "field: instant power": ({"power_mw": 5, "power_instant_mw": 9}, field(186), 9),
    "field: memory temperature": ({"temperature_memory_c": 77}, field(82), 77),
    "field: energy": ({"energy_mj": 2**40}, field(83, "ullVal"), 2**40),
    "field: ecc": ({"ecc_volatile_corrected": 11}, field(3, "ullVal"), 11),
    "field: remapped": ({"remapped_pending": 1}, field(144), 1),
    "field: nvlink": ({"nvlink_tx_kib": 36}, field(138, "ullVal", 0xFFFFFFFF), 36),
    "field: nvlink of a link": ({"nvlink_rx_kib": 36}, field(139, "ullVal", 2), 2),
    "field: power cap time": ({"reason_sw_power_cap_ns": 9}, field(74, "ullVal"), 9),
    "field: hot time": ({"reason_hw_thermal_ns": 8}, field(270, "ullVal"), 8),
    "field: brake time": ({"reason_hw_power_brake_ns": 7}, field(271, "ullVal"), 7),
}


@pytest.mark.parametrize("case", PLAIN.values(), ids=PLAIN.keys())
def test_a_value_set_is_the_value_pynvml_reads(
    fake: FakeNvml, handle: Any, case: tuple[dict[str, Any], Reading, Any]
) -> None:
    """What a test sets comes back through pynvml's own structures, in every member."""
    values, read, expected = case
    fake.gpu[0].set(**values)
    assert read(handle) == expected


def test_a_value_changed_while_initialised_is_seen_at_once(fake: FakeNvml, handle: Any) -> None:
    """The library reads the control file anew on every call."""
    for percent in (3, 97):
        fake.gpu[0].set(utilization=percent)
        assert nv.nvmlDeviceGetUtilizationRates(handle).gpu == percent


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


def test_process_lists_carry_memory_and_instances(fake: FakeNvml, handle: Any) -> None:
    """Compute, graphics and MPS lists hold their own kinds, with every member in its place."""
    fake.gpu[0].processes = [
        GpuProcess(pid=10, used_bytes=3 * GIB, gpu_instance=2, compute_instance=1),
        GpuProcess(pid=11, used_bytes=None, kinds=("graphics",)),
        GpuProcess(pid=12, used_bytes=5, kinds=("compute", "graphics")),
        GpuProcess(pid=13, used_bytes=6, kinds=("mps",)),
    ]
    compute = nv.nvmlDeviceGetComputeRunningProcesses(handle)
    assert [(p.pid, p.usedGpuMemory) for p in compute] == [(10, 3 * GIB), (12, 5)]
    assert (compute[0].gpuInstanceId, compute[0].computeInstanceId) == (2, 1)
    graphics = nv.nvmlDeviceGetGraphicsRunningProcesses(handle)
    assert [(p.pid, p.usedGpuMemory) for p in graphics] == [(11, None), (12, 5)]
    assert [p.pid for p in nv.nvmlDeviceGetMPSComputeRunningProcesses(handle)] == [13]
    assert [p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses_v2(handle)] == [10, 12]
    assert fake.gpu[0].processes[1].used_bytes is None


def test_no_processes_is_an_empty_list(handle: Any) -> None:
    """Nothing running is no error."""
    assert nv.nvmlDeviceGetComputeRunningProcesses(handle) == []


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


def test_process_utilization_by_time_stamp(fake: FakeNvml, handle: Any) -> None:
    """Only samples newer than the time stamp passed come back; none at all is NOT_FOUND."""
    fake.gpu[0].processes = [
        GpuProcess(
            pid=10,
            sm_percent=33,
            memory_percent=4,
            encoder_percent=5,
            decoder_percent=6,
            sample_at_us=1000,
        ),
        GpuProcess(pid=11, sm_percent=44, sample_at_us=2000),
        GpuProcess(pid=12),
    ]
    samples = nv.nvmlDeviceGetProcessUtilization(handle, 0)
    assert fields(samples[0]) == {
        "pid": 10,
        "timeStamp": 1000,
        "smUtil": 33,
        "memUtil": 4,
        "encUtil": 5,
        "decUtil": 6,
    }
    assert [s.pid for s in samples] == [10, 11]
    assert [s.pid for s in nv.nvmlDeviceGetProcessUtilization(handle, 1000)] == [11]
    with pytest.raises(nv.NVMLError_NotFound):
        nv.nvmlDeviceGetProcessUtilization(handle, 2000)


def test_processes_utilization_info(fake: FakeNvml, handle: Any) -> None:
    """The newer call's structure holds the same values."""
    fake.gpu[0].processes = [GpuProcess(pid=10, sm_percent=33, memory_percent=4, sample_at_us=9)]
    (sample,) = nv.nvmlDeviceGetProcessesUtilizationInfo(handle, 0)
    assert (sample.pid, sample.timeStamp, sample.smUtil, sample.memUtil) == (10, 9, 33, 4)


def test_a_process_that_ended_can_be_left_out(fake: FakeNvml, handle: Any) -> None:
    """With ``check_alive`` the driver lists only processes that exist."""
    fake.gpu[0].processes = [
        GpuProcess(pid=os.getpid(), check_alive=True),
        GpuProcess(pid=2**22 + 1, check_alive=True),
    ]
    pids = [p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses(handle)]
    assert pids == [os.getpid()]


def test_process_name_comes_from_the_kernel(fake: FakeNvml) -> None:
    """A process that exists has a name; one that does not is NOT_FOUND."""
    assert nv.nvmlSystemGetProcessName(os.getpid())
    with pytest.raises(nv.NVMLError_NotFound):
        nv.nvmlSystemGetProcessName(2**22 + 1)


def test_mig_instances(fake: FakeNvml, handle: Any) -> None:
    """A divided card hands out its instances, with their own memory, names and processes."""
    fake.gpu[0].set_mig(
        [
            MigInstance(uuid="MIG-a", gpu_instance=7, memory_used_bytes=2 * GIB),
            MigInstance(uuid="MIG-b", gpu_instance=8),
        ]
    )
    fake.gpu[0].processes = [
        GpuProcess(pid=10, gpu_instance=7, compute_instance=0),
        GpuProcess(pid=11, gpu_instance=8, compute_instance=0),
    ]
    assert nv.nvmlDeviceGetMigMode(handle) == [1, 1]
    assert nv.nvmlDeviceGetMaxMigDeviceCount(handle) == 7
    first = nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
    second = nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, 1)
    assert nv.nvmlDeviceIsMigDeviceHandle(first)
    assert not nv.nvmlDeviceIsMigDeviceHandle(handle)
    assert nv.nvmlDeviceGetUUID(second) == "MIG-b"
    assert nv.nvmlDeviceGetGpuInstanceId(first) == 7
    assert nv.nvmlDeviceGetComputeInstanceId(first) == 0
    assert nv.nvmlDeviceGetMemoryInfo(first).used == 2 * GIB
    assert [p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses(second)] == [11]
    card = nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(first)
    assert nv.nvmlDeviceGetUUID(card) == nv.nvmlDeviceGetUUID(handle)
    with pytest.raises(nv.NVMLError_NotSupported):
        nv.nvmlDeviceGetUtilizationRates(first)
    with pytest.raises(nv.NVMLError_NotFound):
        nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, 2)


def gpm(handle: Any, identifiers: list[int]) -> list[tuple[int, float]]:
    """(nvmlReturn, value) of GPM metrics between two samples."""
    request = nv.c_nvmlGpmMetricsGet_t()
    request.version = nv.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(identifiers)
    request.sample1 = nv.nvmlGpmSampleGet(handle, nv.nvmlGpmSampleAlloc())
    request.sample2 = nv.nvmlGpmSampleGet(handle, nv.nvmlGpmSampleAlloc())
    for index, identifier in enumerate(identifiers):
        request.metrics[index].metricId = identifier
    nv.nvmlGpmMetricsGet(request)
    found = [(m.nvmlReturn, m.value) for m in request.metrics[: len(identifiers)]]
    nv.nvmlGpmSampleFree(request.sample1)
    nv.nvmlGpmSampleFree(request.sample2)
    return found


def test_gpm_metrics_answer_one_by_one(fake: FakeNvml, handle: Any) -> None:
    """Each metric has its own value and its own return code."""
    fake.gpu[0].set(gpm_sm_percent=81.5, gpm_tensor_percent=37.0, gpm_dram_percent=55.25)
    assert nv.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 1
    metrics = [
        nv.NVML_GPM_METRIC_SM_UTIL,
        nv.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        nv.NVML_GPM_METRIC_DRAM_BW_UTIL,
        nv.NVML_GPM_METRIC_NVDEC_0_UTIL,
    ]
    answers = gpm(handle, metrics)
    assert answers[:3] == [(0, 81.5), (0, 37.0), (0, 55.25)]
    assert answers[3][0] == nv.NVML_ERROR_NOT_SUPPORTED


def test_gpm_is_missing_before_hopper(tmp_path: Path) -> None:
    """An Ampere card says that it has no GPM, and refuses a sample."""
    machine = create_or_skip(tmp_path, preset="a100")
    with machine.in_this_process():
        nv.nvmlInit()
        handle = nv.nvmlDeviceGetHandleByIndex(0)
        assert nv.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 0
        with pytest.raises(nv.NVMLError_NotSupported):
            nv.nvmlGpmSampleGet(handle, nv.nvmlGpmSampleAlloc())


def test_unified_memory_has_no_total_but_processes_have_memory(tmp_path: Path) -> None:
    """A GB10 refuses both memory calls and still reports what its processes hold."""
    machine = create_or_skip(tmp_path, preset="gb10")
    machine.gpu[0].processes = [GpuProcess(pid=10, used_bytes=5 * GIB)]
    with machine.in_this_process():
        nv.nvmlInit()
        handle = nv.nvmlDeviceGetHandleByIndex(0)
        for version in (None, nv.nvmlMemory_v2):
            with pytest.raises(nv.NVMLError_NotSupported):
                nv.nvmlDeviceGetMemoryInfo(handle, version)
        (process,) = nv.nvmlDeviceGetComputeRunningProcesses(handle)
        assert process.usedGpuMemory == 5 * GIB


def test_a_card_without_a_fan_refuses_its_speed(handle: Any) -> None:
    """A passively cooled card has no fan of its own."""
    assert nv.nvmlDeviceGetNumFans(handle) == 0
    for read in (nv.nvmlDeviceGetFanSpeed, lambda h: nv.nvmlDeviceGetFanSpeed_v2(h, 0)):
        with pytest.raises(nv.NVMLError_NotSupported):
            read(handle)


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
