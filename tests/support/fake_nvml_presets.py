"""What kinds of GPU the simulated library can be: the values a card of that kind reports."""

from typing import Any

MIB = 1 << 20
GIB = 1 << 30
ALL_ONES_32 = 0xFFFFFFFF
ALL_ONES_64 = 0xFFFFFFFFFFFFFFFF

_COMMON: dict[str, Any] = {
    "event_kinds": 0x1F,
    "serial": "1650123456789", "vbios": "96.00.99.00.01", "part_number": "900-21010-0040-000",
    "pci_subsystem_id": 0x18BE10DE, "brand": 14, "memory_bus_bits": 5120, "numa_node": -1,
    "persistence_mode": 1, "cpu_affinity": 0xFF, "memory_affinity": 1, "level_percent": 99,
    "period_us": 4_000_000, "duty_percent": 50, "utilization": 0, "memory_utilization": 0,
    "sample_period_us": 167_000, "sample_capacity": 120, "power_lag_us": 300_000,
    "temperature_idle_c": 34, "temperature_full_c": 68, "temperature_c": 40,
    "event_reasons_supported": 0x1FF, "pcie_rx_kib_per_second": 850_000,
    "pcie_tx_kib_per_second": 210_000, "bar1_total_bytes": 256 * MIB, "bar1_used_bytes": 4 * MIB,
    "memory_reserved_bytes": 600 * MIB,
}  # fmt: skip


def _power(idle: int, limit: int, least: int) -> dict[str, Any]:
    return {
        "power_idle_mw": idle, "power_mw": idle, "power_instant_mw": idle, "power_limit_mw": limit,
        "power_limit_enforced_mw": limit, "power_limit_default_mw": limit,
        "power_limit_min_mw": least, "power_limit_max_mw": limit,
    }  # fmt: skip


def _clocks(sm: int, sm_max: int, memory: int, video: int, idle: int) -> dict[str, Any]:
    return {
        "clock_graphics_mhz": sm, "clock_sm_mhz": sm, "clock_memory_mhz": memory,
        "clock_video_mhz": video, "clock_graphics_max_mhz": sm_max, "clock_sm_max_mhz": sm_max,
        "clock_memory_max_mhz": memory, "clock_video_max_mhz": video, "clock_sm_idle_mhz": idle,
    }  # fmt: skip


def _pcie(generation: int, width: int = 16) -> dict[str, Any]:
    return {
        "pcie_generation": generation,
        "pcie_width": width,
        "pcie_generation_max": generation,
        "pcie_width_max": width,
    }


_GPM = {
    "gpm_supported": 1, "gpm_sm_percent": 82.0, "gpm_sm_occupancy_percent": 41.5,
    "gpm_tensor_percent": 37.25, "gpm_dram_percent": 55.0, "gpm_fp64_percent": 0.0,
    "gpm_fp32_percent": 12.0, "gpm_fp16_percent": 3.0,
}  # fmt: skip

_DATACENTER = {
    "ecc_supported": 1,
    "ecc_mode": 1,
    "ecc_pending": 1,
    "remapped_supported": 1,
    "mig_supported": 1,
}

PRESETS: dict[str, dict[str, Any]] = {
    "h200": {
        "name": "NVIDIA H200", "architecture": 9, "compute_major": 9, "compute_minor": 0,
        "cores": 16896, "memory_bus_bits": 6144, "pci_device_id": 0x233510DE,
        "memory_total_bytes": 143771 * MIB, "bar1_total_bytes": 262144 * MIB,
        "temperature_memory_c": 45, "temperature_threshold_c": [92, 89, 105, 87, 0, 0, 0, 0],
        "nvlink_count": 18, "nvlink_version": 6, "nvlink_mbps": 26562,
        "nvlink_rx_kib_per_second": 30 * MIB, "nvlink_tx_kib_per_second": 28 * MIB, "numa_node": 0,
        **_power(76_000, 700_000, 200_000), **_clocks(1980, 1980, 3201, 1545, 345), **_pcie(5),
        **_DATACENTER, **_GPM,
    },
    "a100": {
        "name": "NVIDIA A100-SXM4-80GB", "architecture": 7, "compute_major": 8, "compute_minor": 0,
        "cores": 6912, "pci_device_id": 0x20B210DE, "memory_total_bytes": 81920 * MIB,
        "temperature_memory_c": 44, "temperature_threshold_c": [92, 89, 95, 85, 0, 0, 0, 0],
        "nvlink_count": 12, "nvlink_version": 4, "nvlink_mbps": 25781,
        "nvlink_rx_kib_per_second": 20 * MIB, "nvlink_tx_kib_per_second": 19 * MIB,
        **_power(62_000, 400_000, 100_000), **_clocks(1410, 1410, 1593, 1275, 210), **_pcie(4),
        **_DATACENTER,
    },
    "rtx4090": {
        "name": "NVIDIA GeForce RTX 4090", "brand": 5, "architecture": 8, "compute_major": 8,
        "compute_minor": 9, "cores": 16384, "memory_bus_bits": 384, "pci_device_id": 0x268410DE,
        "serial": "", "part_number": "", "memory_total_bytes": 24564 * MIB, "persistence_mode": 0,
        "display_active": 1, "display_mode": 1,
        "temperature_threshold_c": [100, 97, 0, 90, 0, 0, 0, 0], "fan_count": 2,
        "fan_percent": [38, 38, 0, 0], "fan_rpm": 1450, **_power(22_000, 450_000, 150_000),
        **_clocks(2520, 3105, 10501, 1950, 210), **_pcie(4),
    },
    "t4": {
        "name": "Tesla T4", "brand": 4, "architecture": 6, "compute_major": 7, "compute_minor": 5,
        "cores": 2560, "memory_bus_bits": 256, "pci_device_id": 0x1EB810DE,
        "memory_total_bytes": 15360 * MIB, "temperature_threshold_c": [96, 93, 0, 85, 0, 0, 0, 0],
        "ecc_supported": 1, "ecc_mode": 1, "ecc_pending": 1, **_power(9_000, 70_000, 60_000),
        **_clocks(1590, 1590, 5000, 1470, 300), **_pcie(3),
    },
    "gb10": {
        "name": "NVIDIA GB10", "architecture": 10, "compute_major": 12, "compute_minor": 1,
        "cores": 6144, "pci_device_id": 0x2E1210DE, "serial": "", "part_number": "",
        "memory_total_bytes": 0, "temperature_threshold_c": [0, 0, 0, 0, 0, 0, 0, 0],
        **_power(5_000, 140_000, 5_000), **_clocks(2405, 3003, 0, 1500, 208), **_pcie(1, 1),
    },
    "wsl": {
        "event_kinds": 0,
        "name": "NVIDIA GeForce RTX 3070 Laptop GPU", "brand": 5, "architecture": 7,
        "compute_major": 8, "compute_minor": 6, "cores": 5120, "memory_bus_bits": 256,
        "pci_device_id": 0x24DD10DE, "serial": "", "part_number": "",
        "memory_total_bytes": 8192 * MIB, "memory_used_bytes": 161 * MIB, "display_active": 1,
        "temperature_threshold_c": [0, 0, 0, 0, 0, 0, 0, 0], "temperature_c": 48,
        **_power(3_000, 125_000, 1_000), **_clocks(1620, 2100, 7001, 1500, 210), **_pcie(4),
    },
    "vgpu": {
        "event_kinds": 0,
        "name": "GRID A100-10C", "brand": 10, "architecture": 7, "compute_major": 8,
        "compute_minor": 0, "cores": 6912, "pci_device_id": 0x20B010DE, "serial": "",
        "part_number": "", "virtualization_mode": 2, "memory_total_bytes": 10240 * MIB,
        "temperature_threshold_c": [0, 0, 0, 0, 0, 0, 0, 0],
        **_power(0, 0, 0), **_clocks(1410, 1410, 1215, 1275, 210), **_pcie(4),
    },
    "jetson": {
        "event_kinds": 0,
        "name": "Thor", "architecture": 10, "compute_major": 11, "compute_minor": 0, "cores": 2560,
        "pci_device_id": 0x2B0010DE, "serial": "", "part_number": "", "memory_total_bytes": 0,
        "temperature_threshold_c": [0, 0, 0, 0, 0, 0, 0, 0],
        **_power(0, 0, 0), **_clocks(1575, 1575, 0, 0, 0), **_pcie(0, 0),
    },
}  # fmt: skip
"""By name; ``gb10`` shares the host's memory and reports none of its own, ``wsl`` is a card of
Windows seen from Linux, ``vgpu`` a share of a card in a guest. ``UNSUPPORTED`` says where the facts
are from."""

_NO_LIMIT = (
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
)

_PROCESS_LISTS = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses{version}"
    for kind in ("Compute", "Graphics", "MPSCompute")
    for version in ("", "_v2", "_v3")
)

UNSUPPORTED: dict[str, tuple[str, ...]] = {
    "gb10": (
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetBAR1MemoryInfo",
        "nvmlDeviceGetMemoryBusWidth",
        *_NO_LIMIT,
    ),
    # nvidia-smi in reports to nvtop (124), dask/distributed (5342) and WSL (7162): utilisation,
    # fan and power limit "N/A", no processes; nvitop (49): a driver of 2022 has the utilisation.
    "wsl": (
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetSamples",
        "nvmlDeviceGetProcessUtilization",
        *_PROCESS_LISTS,
        "nvmlDeviceGetFanSpeed",
        "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceGetMinorNumber",
        *_NO_LIMIT,
    ),
    # TensorRT-LLM (1861) on a GRID guest: clock limits, links and bus width. NVIDIA's vGPU user
    # guide, on monitoring from a guest: utilisation, frame buffer, encoder and decoder, no more.
    "vgpu": (
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetFanSpeed",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetMemoryBusWidth",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "nvmlDeviceGetCurrPcieLinkWidth",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        *_NO_LIMIT,
    ),
    # jetson_stats (698), JetPack 7 on Thor: the name and the utilisation; memory, temperature,
    # power and clocks are not supported.
    "jetson": (
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetSamples",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetPerformanceState",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetDecoderUtilization",
        *_NO_LIMIT,
    ),
}
"""Functions a card of that kind answers with NOT_SUPPORTED, beyond what its values imply."""


def gpu_values(preset: str, index: int) -> dict[str, Any]:
    """Every value of GPU ``index`` in a machine of such cards."""
    values = {**_COMMON, **PRESETS[preset]}
    values["uuid"] = f"GPU-{index:08x}-1111-2222-3333-{0xABCDEF000000 + index:012x}"
    values["minor_number"] = index
    values["pci_bus"] = 0x10 + 7 * index
    return values
