"""What is read of a GPU, how often, and how: one short function a reading.

Each function sets fields of ``GpuReading`` in ``device.values`` and lets ``NVMLError`` through;
``nvml_device`` decides what an error means. Where drivers differ, ``first_supported`` walks from
the best call to the oldest and stays with the first that this GPU has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwatch.core.model import ReasonSeconds
from gpuwatch.sources.nvml import parse, tables
from gpuwatch.sources.nvml.schedule import IMPORTANT, NOTABLE, Reading

if TYPE_CHECKING:
    from gpuwatch.sources.nvml.device import NvmlDevice

    Step = Callable[[NvmlDevice], None]


def first_supported(device: NvmlDevice, name: str, steps: tuple[Step, ...]) -> None:
    """Take the first of ``steps`` this GPU has, and from then on that one: another may mean
    something a little different."""
    known = device.steps.get(name)
    if known is not None:
        steps[known](device)
        return
    for at, step in enumerate(steps):
        try:
            step(device)
        except device.nvml.NVMLError as error:
            if error.value not in tables.PERMANENT or at + 1 == len(steps):
                raise
        else:
            device.steps[name] = at
            return


def utilization(device: NvmlDevice) -> None:
    rates = device.nvml.nvmlDeviceGetUtilizationRates(device.handle)
    device.values["busy_percent"] = rates.gpu
    device.values["memory_controller_percent"] = rates.memory


def busy_samples(device: NvmlDevice) -> None:
    device.values["busy_samples"] = device.sample_buffer.read(device.now, device.unix)


def _memory_v2(device: NvmlDevice) -> None:
    # "used" leaves out what the driver keeps for itself ("reserved").
    used = device.nvml.nvmlDeviceGetMemoryInfo(device.handle, device.nvml.nvmlMemory_v2).used
    device.values["memory_used_bytes"] = parse.at_most(used, device.identity.memory_total_bytes)


def _memory_v1(device: NvmlDevice) -> None:
    # Drivers without v2 (before 510) left the reserved part out of "used" here too; later ones
    # count it in, but those have v2.
    used = device.nvml.nvmlDeviceGetMemoryInfo(device.handle).used
    device.values["memory_used_bytes"] = parse.at_most(used, device.identity.memory_total_bytes)


def memory(device: NvmlDevice) -> None:
    device.values["memory_used_is_process_sum"] = device.identity.memory_unified
    if device.identity.memory_unified:
        device.values["memory_used_bytes"] = device.process_memory_sum()
        return
    first_supported(device, "memory", (_memory_v2, _memory_v1))


def _power_instant(device: NvmlDevice) -> None:
    milliwatts = device.power_fields.read().get(tables.FIELD_POWER_INSTANT)
    device.values["power_watts"] = parse.in_thousands(milliwatts)


def _power_average(device: NvmlDevice) -> None:
    milliwatts = device.power_average_fields.read().get(tables.FIELD_POWER_AVERAGE)
    device.values["power_watts"] = parse.in_thousands(milliwatts)
    device.values["power_is_average"] = True


def _power_usage(device: NvmlDevice) -> None:
    milliwatts = device.nvml.nvmlDeviceGetPowerUsage(device.handle)
    device.values["power_watts"] = parse.in_thousands(milliwatts)
    device.values["power_is_average"] = device.power_usage_is_average


def power(device: NvmlDevice) -> None:
    first_supported(device, "power", (_power_instant, _power_average, _power_usage))


def _limit_enforced(device: NvmlDevice) -> None:
    milliwatts = device.nvml.nvmlDeviceGetEnforcedPowerLimit(device.handle)
    device.values["power_limit_watts"] = parse.in_thousands(milliwatts)


def _limit_set(device: NvmlDevice) -> None:
    milliwatts = device.nvml.nvmlDeviceGetPowerManagementLimit(device.handle)
    device.values["power_limit_watts"] = parse.in_thousands(milliwatts)


def power_limit(device: NvmlDevice) -> None:
    first_supported(device, "power limit", (_limit_enforced, _limit_set))


def temperature(device: NvmlDevice) -> None:
    degrees = device.nvml.nvmlDeviceGetTemperature(device.handle, tables.TEMPERATURE_GPU)
    device.values["temperature_celsius"] = degrees


def sm_clock(device: NvmlDevice) -> None:
    clock = device.nvml.nvmlDeviceGetClockInfo(device.handle, tables.CLOCK_SM)
    device.values["sm_clock_mhz"] = clock


def memory_clock(device: NvmlDevice) -> None:
    clock = device.nvml.nvmlDeviceGetClockInfo(device.handle, tables.CLOCK_MEMORY)
    device.values["memory_clock_mhz"] = clock


def performance_state(device: NvmlDevice) -> None:
    state = device.nvml.nvmlDeviceGetPerformanceState(device.handle)
    device.values["performance_state"] = state


def _reasons_event(device: NvmlDevice) -> None:
    mask = device.nvml.nvmlDeviceGetCurrentClocksEventReasons(device.handle)
    device.values["throttle_reasons"] = parse.throttle_reasons(mask)


def _reasons_throttle(device: NvmlDevice) -> None:
    # The name of the same call before driver 535.
    mask = device.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device.handle)
    device.values["throttle_reasons"] = parse.throttle_reasons(mask)


def throttle_reasons(device: NvmlDevice) -> None:
    first_supported(device, "reasons", (_reasons_event, _reasons_throttle))


def pcie_link(device: NvmlDevice) -> None:
    nvml, handle = device.nvml, device.handle
    generation = nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)
    device.values["pcie_generation"] = generation
    width = nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)
    device.values["pcie_width"] = width


def pcie_throughput(device: NvmlDevice) -> None:
    """Only where neither GPM nor byte counters tell: the driver measures for 20 ms a call."""
    nvml, handle = device.nvml, device.handle
    for counter, name in (
        (tables.PCIE_RX, "pcie_rx_bytes_per_second"),
        (tables.PCIE_TX, "pcie_tx_bytes_per_second"),
    ):
        device.values[name] = nvml.nvmlDeviceGetPcieThroughput(handle, counter) * 1000.0


def encoder(device: NvmlDevice) -> None:
    busy, _ = device.nvml.nvmlDeviceGetEncoderUtilization(device.handle)
    device.values["encoder_percent"] = busy


def decoder(device: NvmlDevice) -> None:
    busy, _ = device.nvml.nvmlDeviceGetDecoderUtilization(device.handle)
    device.values["decoder_percent"] = busy


def fan(device: NvmlDevice) -> None:
    device.values["fan_percent"] = device.nvml.nvmlDeviceGetFanSpeed(device.handle)


def counters(device: NvmlDevice) -> None:
    """Everything that grows: energy, PCIe and NVLink bytes, time in each throttle reason."""
    got = device.counter_fields.read()
    values = device.values
    values["energy_joules"] = parse.in_thousands(got.get(tables.FIELD_ENERGY_MILLIJOULES))
    # 0 is what boards without a memory sensor answer.
    values["memory_temperature_celsius"] = got.get(tables.FIELD_MEMORY_TEMPERATURE) or None
    if "nvlink" not in device.gpm_gives:
        _link_rates(device, got)
    _pcie_rates(device, got)
    values["throttle_durations"] = _durations(device, got)


def _link_rates(device: NvmlDevice, got: dict[int, float | int]) -> None:
    for number, name in (
        (tables.FIELD_NVLINK_DATA_RX_KIB, "nvlink_rx_bytes_per_second"),
        (tables.FIELD_NVLINK_DATA_TX_KIB, "nvlink_tx_bytes_per_second"),
    ):
        device.values[name] = device.growth(number, got, 1024.0)


def _pcie_rates(device: NvmlDevice, got: dict[int, float | int]) -> None:
    """From the driver's byte counters, where they have been seen to move.

    A counter that stands still may be one that the card does not have, so until it moves the
    throughput call is believed.
    """
    if "pcie" in device.gpm_gives or tables.FIELD_PCIE_RX_BYTES not in got:
        return
    rx = device.growth(tables.FIELD_PCIE_RX_BYTES, got)
    tx = device.growth(tables.FIELD_PCIE_TX_BYTES, got)
    if rx or tx:
        device.pcie_from_counters = True
    if device.pcie_from_counters:
        device.values["pcie_rx_bytes_per_second"] = rx
        device.values["pcie_tx_bytes_per_second"] = tx


def _durations(device: NvmlDevice, got: dict[int, float | int]) -> tuple[ReasonSeconds, ...] | None:
    """Seconds each reason held since the reading before; ``None``: no accumulator, or the first."""
    found = []
    for number, reason in device.accumulators:
        value = got.get(number)
        if value is None:
            continue
        held = parse.held_seconds(device.before.get(number), device.now, value)
        device.before[number] = (device.now, value)
        if held is not None:
            found.append(ReasonSeconds(reason, held))
    return tuple(found) or None


def health(device: NvmlDevice) -> None:
    got = device.health_fields.read()
    values = device.values
    for number, name in (
        (tables.FIELD_ECC_CORRECTED_VOLATILE, "ecc_corrected_count"),
        (tables.FIELD_ECC_UNCORRECTED_VOLATILE, "ecc_uncorrected_count"),
        (tables.FIELD_REMAPPED_CORRECTABLE, "remapped_rows_correctable"),
        (tables.FIELD_REMAPPED_UNCORRECTABLE, "remapped_rows_uncorrectable"),
    ):
        values[name] = got.get(number)
    for number, name in (
        (tables.FIELD_REMAPPED_PENDING, "remapped_rows_pending"),
        (tables.FIELD_REMAPPED_FAILURE, "remapped_rows_failed"),
    ):
        flag = got.get(number)
        values[name] = bool(flag) if flag in (0, 1) else None


def gpm(device: NvmlDevice) -> None:
    got = device.gpm.read()
    for name in GPM_ACTIVITIES:
        device.values[name] = got.get(name)
    for name, rates in RATES.items():
        if all(rate in got for rate in rates):
            device.gpm_gives.add(name)
        if name in device.gpm_gives:
            for rate in rates:
                device.values[rate] = got.get(rate)


def processes(device: NvmlDevice) -> None:
    device.listed["compute"] = device.process_buffers["compute"].read()
    if device.identity.memory_unified:
        memory(device)


def graphics_processes(device: NvmlDevice) -> None:
    device.listed["graphics"] = device.process_buffers["graphics"].read()


def mps_processes(device: NvmlDevice) -> None:
    device.listed["mps"] = device.process_buffers["mps"].read()


def process_busy(device: NvmlDevice) -> None:
    window = max(2.0, 2 * device.interval_seconds)
    device.process_busy = device.process_busy_buffer.read(device.now, device.unix, window)


def fields_set(device: NvmlDevice, reading: Reading) -> tuple[str, ...]:
    """The fields that a reading sets on this GPU: rates come from the best call that gives them."""
    if reading.name == GPM_NAME:
        return reading.fields + tuple(
            rate for name, rates in RATES.items() if name in device.gpm_gives for rate in rates
        )
    if reading.name == COUNTERS:
        links = () if "nvlink" in device.gpm_gives else RATES["nvlink"]
        pcie = device.pcie_from_counters and "pcie" not in device.gpm_gives
        return reading.fields + links + (RATES["pcie"] if pcie else ())
    if reading.name == PCIE_THROUGHPUT and device.pcie_rates_from_elsewhere:
        return ()
    return reading.fields


GPM_ACTIVITIES = (
    "sm_active_percent",
    "sm_occupancy_percent",
    "tensor_active_percent",
    "dram_active_percent",
)
COUNTER_FIELDS = ("energy_joules", "memory_temperature_celsius", "throttle_durations")
HEALTH_FIELDS = (
    "ecc_corrected_count",
    "ecc_uncorrected_count",
    "remapped_rows_correctable",
    "remapped_rows_uncorrectable",
    "remapped_rows_pending",
    "remapped_rows_failed",
)
RATES = {
    name: (f"{name}_rx_bytes_per_second", f"{name}_tx_bytes_per_second")
    for name in ("pcie", "nvlink")
}

SAMPLES = "fine utilisation samples"
PROCESS_LIST = "the list of processes"
GRAPHICS_LIST = "the list of graphics processes"
MPS_LIST = "the list of MPS processes"
LISTS = {PROCESS_LIST: "compute", GRAPHICS_LIST: "graphics", MPS_LIST: "mps"}
PROCESS_BUSY = "the SM share of each process"
COUNTERS = "energy, link and throttle counters"
PCIE_THROUGHPUT = "PCIe throughput"
GPM_NAME = "SM, tensor and memory activity (GPM)"

# Periods: what moves with every step of a job is read each time; what moves with the state of
# the machine every few seconds; what changes when a person or a fault changes it, every ten.
# The order is that in which a GPU that was just found is read.
READINGS = (
    Reading(
        "the utilisation",
        ("busy_percent", "memory_controller_percent"),
        utilization,
        importance=IMPORTANT,
    ),
    Reading("the memory in use", ("memory_used_bytes",), memory, importance=IMPORTANT),
    Reading("power", ("power_watts",), power, importance=IMPORTANT),
    Reading(
        SAMPLES, ("busy_samples",), busy_samples, importance=IMPORTANT, between={"busy_samples": ()}
    ),
    Reading(PROCESS_LIST, (), processes, 1.0, importance=NOTABLE, process_field="gpu_memory_bytes"),
    Reading(GRAPHICS_LIST, (), graphics_processes, 1.0, importance=NOTABLE),
    Reading("the temperature", ("temperature_celsius",), temperature, 1.0, importance=NOTABLE),
    Reading("the throttle reasons", ("throttle_reasons",), throttle_reasons, importance=NOTABLE),
    Reading("the SM clock", ("sm_clock_mhz",), sm_clock, importance=NOTABLE),
    # Two samples make a reading, and a single look takes no longer than 0.7 s.
    Reading(GPM_NAME, GPM_ACTIVITIES, gpm, 0.5, calls=2, importance=NOTABLE),
    Reading(
        PROCESS_BUSY, (), process_busy, 1.0, importance=NOTABLE, process_field="gpu_busy_percent"
    ),
    Reading(
        COUNTERS,
        COUNTER_FIELDS,
        counters,
        0.5,
        importance=NOTABLE,
        between={"throttle_durations": None},
    ),
    Reading("the power limit", ("power_limit_watts",), power_limit, 5.0),
    Reading(MPS_LIST, (), mps_processes, 5.0),
    Reading("the performance state", ("performance_state",), performance_state, 1.0),
    Reading("the memory clock", ("memory_clock_mhz",), memory_clock, 2.0),
    Reading("the PCIe link", ("pcie_generation", "pcie_width"), pcie_link, 2.0, calls=2),
    Reading("encoder use", ("encoder_percent",), encoder, 2.0),
    Reading("decoder use", ("decoder_percent",), decoder, 2.0),
    Reading("the fan speed", ("fan_percent",), fan, 5.0),
    Reading("ECC errors and remapped rows", HEALTH_FIELDS, health, 10.0),
    Reading(
        PCIE_THROUGHPUT,
        RATES["pcie"],
        pcie_throughput,
        2.0,
        calls=2,
        expected_seconds=0.04,
        needed=lambda device: not device.pcie_rates_from_elsewhere,
    ),
)
MIG_READINGS = tuple(
    reading
    for reading in READINGS
    if reading.name in (PROCESS_LIST, GRAPHICS_LIST, "the memory in use", GPM_NAME)
)
"""The rest of a MIG instance's readings are its card's; NVML refuses them for the instance."""
