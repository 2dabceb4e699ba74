"""Readings of a GPU: what is read, how often, and how, as one short function each.

Each function sets fields of ``GpuReading`` in ``card.values`` and lets ``NVMLError`` through;
``device`` decides what an error means. Where drivers differ, ``_first_supported`` walks from the
best call to the oldest and stays with the first that this GPU has.
"""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

from gpuwatch.core.model import ReasonSeconds
from gpuwatch.sources.nvml import parse, tables
from gpuwatch.sources.nvml.card import Card
from gpuwatch.sources.nvml.schedule import IMPORTANT, NOTABLE, PROMPT, Reading

Step = Callable[[Card], None]
CONTEXT_BYTES = 64 * 1024**2
"""A process that has allocated nothing holds more of a GPU's memory: its CUDA context."""


def _call(
    field: str, function: str, *arguments: Any, convert: Callable[[Any], Any] | None = None
) -> Step:
    """One driver call that gives one value."""

    def read(card: Card) -> None:
        value = getattr(card.nvml, function)(card.handle, *arguments)
        card.values[field] = value if convert is None else convert(value)

    return read


def _first_supported(*steps: Step) -> Step:
    """The first of ``steps`` that a GPU has, and from then on that one: another may mean
    something a little different."""

    def read(card: Card) -> None:
        known = card.steps.get(steps[0])
        if known is not None:
            steps[known](card)
            return
        for at, step in enumerate(steps):
            try:
                step(card)
            except card.nvml.NVMLError as error:
                if error.value not in tables.PERMANENT or at + 1 == len(steps):
                    raise
            else:
                card.steps[steps[0]] = at
                return

    return read


def utilization(card: Card) -> None:
    rates = card.nvml.nvmlDeviceGetUtilizationRates(card.handle)
    card.values["busy_percent"] = rates.gpu
    card.values["memory_controller_percent"] = rates.memory


def busy_samples(card: Card) -> None:
    card.values["busy_samples"] = card.sample_buffer.read(card.now, card.unix)


def _memory(version: str | None) -> Step:
    def read(card: Card) -> None:
        number = None if version is None else getattr(card.nvml, version)
        used = card.nvml.nvmlDeviceGetMemoryInfo(card.handle, number).used
        if parse.at_most(used, card.identity.memory_total_bytes) is None:
            card.values.refuse("memory_used_bytes", used)
        else:
            card.values["memory_used_bytes"] = used

    return read


# In v2 "used" leaves out what the driver keeps for itself ("reserved"). Drivers without it (before
# 510) left that out of v1, too; later ones count it in, but those have v2.
_dedicated_memory = _first_supported(_memory("nvmlMemory_v2"), _memory(None))


def memory(card: Card) -> None:
    card.values["memory_used_is_process_sum"] = card.identity.memory_unified
    if card.identity.memory_unified:
        card.values["memory_used_bytes"] = card.process_memory_sum()
    else:
        _dedicated_memory(card)


Watts = tuple[float | None, bool]
"""(watts, whether they are a mean over time)."""


def _power_field(number: int) -> Callable[[Card], Watts]:
    def read(card: Card) -> Watts:
        milliwatts = card.fields(((number, 0),)).get(number)
        return parse.in_thousands(milliwatts), number == tables.FIELD_POWER_AVERAGE

    return read


def _power_usage(card: Card) -> Watts:
    milliwatts = card.nvml.nvmlDeviceGetPowerUsage(card.handle)
    # A one-second average from Ampere on, but for GA100.
    major, minor = (card.identity.compute_capability or "99.0").split(".")
    return parse.in_thousands(milliwatts), (int(major), int(minor)) > (8, 0)


def _power_by_energy(card: Card) -> Watts:
    if card.energy_watts is None:
        raise card.nvml.NVMLError(tables.NOT_SUPPORTED)
    return card.energy_watts, True


_POWERS: tuple[tuple[str, Callable[[Card], Watts]], ...] = (
    # Each by itself: the instant value costs microseconds, while the average takes milliseconds on
    # real drivers and would be paid for in the same call.
    ("the instant power", _power_field(tables.FIELD_POWER_INSTANT)),
    ("the average power", _power_field(tables.FIELD_POWER_AVERAGE)),
    ("the power usage", _power_usage),
    ("the growth of the energy counter", _power_by_energy),
)
"""Calls that give a GPU's power, best first, each with what it reads."""
POWER_FACTOR = 2.0
"""Instant power exceeds the limit for moments; at more than this many times it is not watts."""


def power(card: Card) -> None:
    """From the first of ``_POWERS`` that this GPU has and whose value can be true, and from then
    on that one: another may mean something a little different."""
    doubted: tuple[str, float] | None = None
    for at in range(card.steps.get(power, 0), len(_POWERS)):
        name, step = _POWERS[at]
        try:
            watts, average = step(card)
        except card.nvml.NVMLError as error:
            last = at + 1 == len(_POWERS) and doubted is None
            if last or error.value not in tables.PERMANENT:
                raise
            continue
        if watts is not None and not _can_be_power(card, watts):
            doubted = doubted or (name, watts)
            continue
        card.steps[power] = at
        if doubted is not None:
            card.power_doubted = (*doubted, name)
        card.values["power_watts"] = watts
        card.values["power_is_average"] = average
        return
    assert doubted is not None
    # A card that has nothing to do may be switched off.
    if doubted[1] == 0 and not card.values.get("busy_percent"):
        card.values["power_watts"] = 0.0
    else:
        card.values.refuse("power_watts", doubted[1])


def _can_be_power(card: Card, watts: float) -> bool:
    limit = card.identity.power_limit_max_watts or card.values.get("power_limit_watts")
    most = parse.plausible("power_watts", watts)
    return most is not None and most > 0 and (limit is None or most <= POWER_FACTOR * limit)


_limit = partial(_call, "power_limit_watts", convert=parse.in_thousands)
power_limit = _first_supported(
    _limit("nvmlDeviceGetEnforcedPowerLimit"), _limit("nvmlDeviceGetPowerManagementLimit")
)
_reasons = partial(_call, "throttle_reasons", convert=parse.throttle_reasons)
throttle_reasons = _first_supported(
    _reasons("nvmlDeviceGetCurrentClocksEventReasons"),
    # The name of the same call before driver 535.
    _reasons("nvmlDeviceGetCurrentClocksThrottleReasons"),
)
temperature = _call("temperature_celsius", "nvmlDeviceGetTemperature", tables.TEMPERATURE_GPU)
sm_clock = _call("sm_clock_mhz", "nvmlDeviceGetClockInfo", tables.CLOCK_SM)
# 0 is said where the memory is the host's.
memory_clock = _call(
    "memory_clock_mhz",
    "nvmlDeviceGetClockInfo",
    tables.CLOCK_MEMORY,
    convert=lambda megahertz: megahertz or None,
)
performance_state = _call(
    "performance_state",
    "nvmlDeviceGetPerformanceState",
    convert=lambda state: None if state == tables.PSTATE_UNKNOWN else state,
)
fan = _call("fan_percent", "nvmlDeviceGetFanSpeed")
# Both give the window over which they measure, too.
encoder = _call("encoder_percent", "nvmlDeviceGetEncoderUtilization", convert=itemgetter(0))
decoder = _call("decoder_percent", "nvmlDeviceGetDecoderUtilization", convert=itemgetter(0))


def pcie_link(card: Card) -> None:
    nvml, handle = card.nvml, card.handle
    # 0 is said where there is no such link.
    card.values["pcie_generation"] = nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle) or None
    card.values["pcie_width"] = nvml.nvmlDeviceGetCurrPcieLinkWidth(handle) or None


def pcie_throughput(card: Card) -> None:
    """Only where neither GPM nor byte counters say: the driver measures for 20 ms a call."""
    for counter, name in zip((tables.PCIE_RX, tables.PCIE_TX), RATES["pcie"], strict=True):
        kib = card.nvml.nvmlDeviceGetPcieThroughput(card.handle, counter)
        card.values[name] = kib * 1000.0


def counters(card: Card) -> None:
    """Everything that grows: energy, PCIe and NVLink bytes, time in each throttle reason."""
    got = card.fields(card.counter_fields)
    values = card.values
    values["energy_joules"] = parse.in_thousands(got.get(tables.FIELD_ENERGY_MILLIJOULES))
    card.energy_watts = card.growth(tables.FIELD_ENERGY_MILLIJOULES, got, 1e-3) or None
    # 0 is what boards without a memory sensor answer.
    values["memory_temperature_celsius"] = got.get(tables.FIELD_MEMORY_TEMPERATURE) or None
    if "nvlink" not in card.gpm_gives:
        links = (tables.FIELD_NVLINK_DATA_RX_KIB, tables.FIELD_NVLINK_DATA_TX_KIB)
        for number, name in zip(links, RATES["nvlink"], strict=True):
            values[name] = card.growth(number, got, 1024.0)
    _pcie_rates(card, got)
    values["throttle_durations"] = _durations(card, got)


def _pcie_rates(card: Card, got: parse.FieldValues) -> None:
    """From the driver's byte counters, where they have been seen to move.

    A counter that stands still may be one that the card does not have, so until it moves the
    throughput call is believed.
    """
    if "pcie" in card.gpm_gives or tables.FIELD_PCIE_RX_BYTES not in got:
        return
    fields = (tables.FIELD_PCIE_RX_BYTES, tables.FIELD_PCIE_TX_BYTES)
    rates = [card.growth(field, got) for field in fields]
    card.pcie_from_counters = card.pcie_from_counters or any(rates)
    if card.pcie_from_counters:
        for name, rate in zip(RATES["pcie"], rates, strict=True):
            card.values[name] = rate


def _durations(card: Card, got: parse.FieldValues) -> tuple[ReasonSeconds, ...] | None:
    """Seconds each reason held since the reading before; ``None``: no accumulator, or the first."""
    found = []
    for number, reason in card.accumulators:
        value = got.get(number)
        if value is None:
            continue
        held = parse.held_seconds(card.before.get(number), card.now, value)
        card.before[number] = (card.now, value)
        if held is not None:
            found.append(ReasonSeconds(reason, held))
    return tuple(found) or None


def health(card: Card) -> None:
    got = card.fields(_HEALTH_IDS)
    for number, name in tables.HEALTH.items():
        value = got.get(number)
        if name in ("remapped_rows_pending", "remapped_rows_failed"):
            value = bool(value) if value in (0, 1) else None
        card.values[name] = value


def gpm(card: Card) -> None:
    got = card.gpm.read()
    for name in GPM_ACTIVITIES:
        card.values[name] = got.get(name)
    for name, rates in RATES.items():
        if all(rate in got for rate in rates):
            card.gpm_gives.add(name)
        if name in card.gpm_gives:
            for rate in rates:
                card.values[rate] = got.get(rate)


def _list(kind: str) -> Step:
    def read(card: Card) -> None:
        card.listed[kind] = card.process_buffers[kind].read()
        if kind == "compute":
            card.memory_when_listed = card.values.get("memory_used_bytes")
        if kind == "compute" and card.identity.memory_unified:
            memory(card)

    return read


def _processes_moved(card: Card) -> bool:
    """One came or went: what it held at least of the memory is taken, or free."""
    used, before = card.values.get("memory_used_bytes"), card.memory_when_listed
    return used is not None and before is not None and abs(used - before) >= CONTEXT_BYTES


def process_busy(card: Card) -> None:
    window = max(2.0, 2 * card.interval_seconds)
    # Both kinds of samples are taken to be stamped by the same clock.
    driver_unix = card.unix - card.sample_buffer.shift_seconds
    card.process_busy = card.process_busy_buffer.read(card.now, driver_unix, window)


def fields_set(card: Card, reading: Reading) -> tuple[str, ...]:
    """Fields that a reading sets on this GPU: rates come from the best call that gives them."""
    if reading.name == GPM_NAME:
        return reading.fields + tuple(
            rate for name, rates in RATES.items() if name in card.gpm_gives for rate in rates
        )
    if reading.name == COUNTERS:
        links = () if "nvlink" in card.gpm_gives else RATES["nvlink"]
        pcie = card.pcie_from_counters and "pcie" not in card.gpm_gives
        return reading.fields + links + (RATES["pcie"] if pcie else ())
    if reading.name == PCIE_THROUGHPUT and card.pcie_rates_from_elsewhere:
        return ()
    return reading.fields


GPM_ACTIVITIES = tuple(tables.GPM_ACTIVITIES.values())
HEALTH_FIELDS = tuple(tables.HEALTH.values())
_HEALTH_IDS = tuple((number, 0) for number in tables.HEALTH)
RATES = {
    name: (f"{name}_rx_bytes_per_second", f"{name}_tx_bytes_per_second")
    for name in ("pcie", "nvlink")
}

UTILISATION = "the utilisation"
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
        UTILISATION,
        ("busy_percent", "memory_controller_percent"),
        utilization,
        importance=IMPORTANT,
    ),
    Reading("the memory in use", ("memory_used_bytes",), memory, importance=IMPORTANT),
    Reading("power", ("power_watts",), power, importance=IMPORTANT),
    Reading(
        SAMPLES, ("busy_samples",), busy_samples, importance=IMPORTANT, between={"busy_samples": ()}
    ),
    Reading(
        PROCESS_LIST,
        (),
        _list("compute"),
        1.0,
        importance=NOTABLE,
        process_field="gpu_memory_bytes",
        hurried=_processes_moved,
    ),
    Reading(GRAPHICS_LIST, (), _list("graphics"), 5.0),
    Reading("the temperature", ("temperature_celsius",), temperature, 2.0, importance=NOTABLE),
    Reading("the throttle reasons", ("throttle_reasons",), throttle_reasons, importance=NOTABLE),
    Reading("the SM clock", ("sm_clock_mhz",), sm_clock, importance=NOTABLE),
    Reading(GPM_NAME, GPM_ACTIVITIES, gpm, 0.5, calls=2, importance=PROMPT, pairs=True),
    Reading(
        PROCESS_BUSY, (), process_busy, 1.0, importance=NOTABLE, process_field="gpu_busy_percent"
    ),
    Reading(
        COUNTERS,
        ("energy_joules", "memory_temperature_celsius", "throttle_durations"),
        counters,
        0.5,
        importance=PROMPT,
        pairs=True,
        between={"throttle_durations": None},
    ),
    Reading("the power limit", ("power_limit_watts",), power_limit, 5.0),
    Reading(MPS_LIST, (), _list("mps"), 5.0),
    Reading("the performance state", ("performance_state",), performance_state, 2.0),
    Reading("the memory clock", ("memory_clock_mhz",), memory_clock, 5.0),
    Reading("the PCIe link", ("pcie_generation", "pcie_width"), pcie_link, 5.0, calls=2),
    Reading("encoder use", ("encoder_percent",), encoder, 5.0),
    Reading("decoder use", ("decoder_percent",), decoder, 5.0),
    Reading("the fan speed", ("fan_percent",), fan, 5.0),
    Reading("ECC errors and remapped rows", HEALTH_FIELDS, health, 10.0),
    Reading(
        PCIE_THROUGHPUT,
        RATES["pcie"],
        pcie_throughput,
        2.0,
        calls=2,
        expected_seconds=0.04,
        needed=lambda card: not card.pcie_rates_from_elsewhere,
    ),
)
MIG_READINGS = tuple(
    reading
    for reading in READINGS
    if reading.name in (PROCESS_LIST, GRAPHICS_LIST, "the memory in use", GPM_NAME)
)
"""The rest of a MIG instance's readings are its card's; NVML refuses them for the instance."""
