"""Numbers of the NVML ABI: error codes, field ids, bit masks, sentinels.

They are part of the driver's binary interface and so the same in every binding; keeping them
here means that an older or newer ``nvidia-ml-py`` cannot lack or rename one. Source: NVIDIA's
``nvml.h`` (drivers 450 to 610), by the names in the comments.
"""

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
NO_DATA = 21
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
GPU_NOT_FOUND = 28
UNKNOWN = 999
SENSELESS = -1
"""Ours: what the driver answered cannot be, or nobody foresaw it."""
INCOMPLETE = -2
"""Ours: it leaves out a value that it gave before."""
UNREADABLE_LIST = -3
"""Ours: a list whose records cannot be told apart."""

ERROR_WORDS = {
    UNINITIALIZED: "the driver library is not initialised",
    INVALID_ARGUMENT: "invalid argument",
    NOT_SUPPORTED: "not supported",
    NO_PERMISSION: "no permission",
    NOT_FOUND: "not found",
    INSUFFICIENT_SIZE: "insufficient size",
    8: "a power cable of the card is not attached",
    DRIVER_NOT_LOADED: "driver not loaded",
    TIMEOUT: "timeout",
    11: "an interrupt problem of the kernel",
    LIBRARY_NOT_FOUND: "library not found",
    FUNCTION_NOT_FOUND: "function not found",
    14: "the card's information ROM is corrupted",
    GPU_IS_LOST: "GPU is lost",
    RESET_REQUIRED: "the GPU needs a reset",
    17: "the operating system refused the call",
    LIB_RM_VERSION_MISMATCH: "driver and library differ in version",
    19: "the GPU is in use",
    20: "out of memory",
    NO_DATA: "no data",
    23: "insufficient resources",
    ARGUMENT_VERSION_MISMATCH: "the call's version is unknown to the driver",
    DEPRECATED: "no longer offered by the driver",
    27: "not ready",
    GPU_NOT_FOUND: "no such GPU",
    29: "invalid state",
    UNKNOWN: "unknown error",
    SENSELESS: "the driver gives no usable answer",
    INCOMPLETE: "the driver leaves some out",
    UNREADABLE_LIST: "the driver writes it in a form that gpuwatch does not know",
}

PERMANENT = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED})
"""Errors after which a reading that never worked is not asked for again: this GPU under this driver
will never answer."""
PERMANENT_FIELD = PERMANENT | {INVALID_ARGUMENT}
"""Permanent errors of one id in ``nvmlDeviceGetFieldValues``, where an unknown id is invalid."""
REFUSED = PERMANENT | {NO_PERMISSION, INVALID_ARGUMENT}
"""An answer, not a hiccup, though it can change (rights granted, MIG mode switched)."""
RARELY_RETRIED = REFUSED | {INSUFFICIENT_SIZE}
"""Tried again every minute once it has lasted."""
LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
DRIVER_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
FATAL = LOST | DRIVER_GONE
"""Not about one reading: about the whole GPU, or all of them."""

ALL_ONES_32 = 0xFFFF_FFFF
ALL_ONES_64 = 0xFFFF_FFFF_FFFF_FFFF
"""``NVML_VALUE_NOT_AVAILABLE`` (-1) as the driver writes it into unsigned fields."""

# nvmlClocksEventReason* (before driver 535: nvmlClocksThrottleReason*).
EVENT_REASONS = (
    (0x001, "gpu_idle"), (0x002, "applications_clocks_setting"), (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"), (0x010, "sync_boost"), (0x020, "sw_thermal_slowdown"),
    (0x040, "hw_thermal_slowdown"), (0x080, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)  # fmt: skip

# nvmlEventType*
EVENT_ECC, EVENT_XID = 0x1 | 0x2, 0x8
EVENTS_WANTED = EVENT_ECC | EVENT_XID

# NVML_FI_DEV_*
FIELD_MEMORY_TEMPERATURE = 82
FIELD_ENERGY_MILLIJOULES = 83
FIELD_NVLINK_DATA_TX_KIB = 138
FIELD_NVLINK_DATA_RX_KIB = 139
FIELD_POWER_AVERAGE = 185
FIELD_POWER_INSTANT = 186
FIELD_PCIE_TX_BYTES = 197
FIELD_PCIE_RX_BYTES = 198
HEALTH = {
    # ECC_SBE_VOL_TOTAL, ECC_DBE_VOL_TOTAL, and four of REMAPPED_*.
    3: "ecc_corrected_count", 4: "ecc_uncorrected_count", 142: "remapped_rows_correctable",
    143: "remapped_rows_uncorrectable", 144: "remapped_rows_pending", 145: "remapped_rows_failed",
}  # fmt: skip
FIELD_PCIE_REPLAYS = 94
NVLINK_ERRORS = {
    # NVLINK_COUNT_LINK_RECOVERY_EVENTS (Blackwell and later, for all links), NVLINK_ERROR_DL_*
    # (before it, for each link), NVLINK_*_ERROR_COUNT_TOTAL (older drivers).
    "nvlink_recovery_count": (215, 162, 59),
    "nvlink_replay_count": (161, 52),
    "nvlink_crc_count": (163, 45),
}
"""Fields that count the errors of a GPU's NVLinks, the best first."""
NVLINK_ERRORS_OF_ALL_LINKS, NVLINK_ERRORS_OF_A_LINK = 215, (161, 162, 163)
NVLINKS_MOST = 18
MARGINS = {"temperature_slowdown_celsius": 194, "temperature_shutdown_celsius": 193}
"""Fields with the distance of a limit from where the margin temperature is 0
(TEMPERATURE_*_TLIMIT)."""
THRESHOLDS = {"temperature_slowdown_celsius": 1, "temperature_shutdown_celsius": 0}
"""``NVML_TEMPERATURE_THRESHOLD_*`` of the same limits."""

SCOPE_ALL_LINKS = ALL_ONES_32
"""For the NVLink throughput fields a scope of UINT_MAX asks for the sum over all links."""

GPM_ACTIVITIES = {
    2: "sm_active_percent", 3: "sm_occupancy_percent", 5: "tensor_active_percent",
    10: "dram_active_percent",
}  # fmt: skip
"""``NVML_GPM_METRIC_*`` in percent: SM_UTIL, SM_OCCUPANCY, ANY_TENSOR_UTIL, DRAM_BW_UTIL."""
GPM_RATES = {
    21: "pcie_rx_bytes_per_second", 20: "pcie_tx_bytes_per_second",
    60: "nvlink_rx_bytes_per_second", 61: "nvlink_tx_bytes_per_second",
}  # fmt: skip
"""Metrics in MiB a second."""

SAMPLING_GPU_UTILIZATION = 1
CLOCK_SM = 1
CLOCK_MEMORY = 2
TEMPERATURE_GPU = 0
PCIE_TX = 0
PCIE_RX = 1
PSTATE_UNKNOWN = 32


def accumulator_fields(driver_version: str | None) -> dict[int, str]:
    """Return the field ids of the "time this reason held" counters, with the reason of each.

    All count nanoseconds: DCGM exports the same ids as ``..._SW_POWER_CAP_NS`` and so on, and
    ``nvmlDeviceGetViolationStatus`` gives the perf-policy ones in nanoseconds too. The ids 269 to
    271 meant other things before they settled: the CUDA 12.8 headers (driver 570) put thermal
    slowdown at 251 to 253 and power smoothing at 269, so older drivers are asked for the policy
    counters alone, which have not moved; their thermal one covers software and hardware alike.
    """
    # PERF_POLICY_POWER, _SYNC_BOOST and _THERMAL; CLOCKS_EVENT_REASON_*.
    fields = {74: "sw_power_cap", 76: "sync_boost"}
    major = (driver_version or "").split(".", 1)[0]
    if not major.isdigit() or int(major) < 575:
        return {**fields, 75: "sw_thermal_slowdown"}
    thermal = {269: "sw_thermal_slowdown", 270: "hw_thermal_slowdown"}
    return {**fields, **thermal, 271: "hw_power_brake_slowdown"}
