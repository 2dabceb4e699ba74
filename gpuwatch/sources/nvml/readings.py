"""One GPU (or MIG instance) and what is read of it.

``NvmlDevice`` keeps the state of one GPU, takes its readings when they are due, and knows what each
error means for it. The functions below it read one thing each: they set fields of ``GpuReading`` in
``device.values``, or of ``GpuIdentity`` in ``device.facts``, and let ``NVMLError`` through. Where
drivers differ, ``_first_supported`` walks from the best call to the oldest and stays with the first
that this GPU has. The tables at the end say how often each is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from gpuwatch.core.model import (
    Gpu,
    GpuIdentity,
    GpuReading,
    ReadingAge,
    ReasonSeconds,
    XidError,
)
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux.procfs import read_if_possible
from gpuwatch.sources.nvml import buffers, parse, schedule, tables
from gpuwatch.sources.nvml.schedule import (
    EVERY_LOOK,
    EVERY_SECOND,
    IMPORTANT,
    NOTABLE,
    PROMPT,
    SELDOM,
    CallCounter,
    DriverGoneError,
    Reading,
    Slot,
)

EMPTY_READING = GpuReading()
CONTEXT_BYTES = 64 * 1024**2
"""A process that has allocated nothing holds more of a GPU's memory: its CUDA context."""
POWER_FACTOR = 2.0
"""Instant power exceeds the limit for moments; at more than this many times it is not watts."""
PCI_DEVICES = Path("/sys/bus/pci/devices")
XID_MOST, XIDS_KEPT = 10_000, 64
"""No code of an Xid error is higher (the last known is below 200); codes that are kept of a GPU."""

_NONE_LISTED: parse.ProcessList = []
LIST_KINDS = {"compute": "Compute", "mps": "MPSCompute", "graphics": "Graphics"}
"""The driver's lists of processes, with their names in NVML's functions."""


class NvmlDevice:
    """The state of one GPU, which its readings take from and leave in. Not for two threads."""

    def __init__(
        self,
        nvml: Any,
        handle: Any,
        identity: GpuIdentity,
        counter: CallCounter,
        now: float,
        parent_handle: Any = None,
    ) -> None:
        """``parent_handle`` is the card's, for a MIG instance."""
        self.nvml = nvml
        self.handle = handle
        self.parent_handle = parent_handle
        self.identity = identity
        self.counter = counter
        self.now = now
        self.unix = 0.0
        self.sampled_unix = 0.0
        """Time at which the buffer of samples was asked, in the look that began at ``unix``."""
        self.look_began = 0.0
        """``unix`` by the timer of the calls."""
        self.interval_seconds = 1.0
        self.values = parse.Values()
        self.facts = parse.Values()
        self.lost_error = 0
        self.lost_since_unix = 0.0
        self.probe_at = 0.0
        """Time at which a lost GPU is asked whether it is back, monotonic seconds."""
        self.unsupported: set[str] = set()
        self.processes: tuple[GpuProcess, ...] = ()
        self._processes_changed = False
        self.steps: dict[Callable[[NvmlDevice], None], int] = {}
        """Which of several calls that stand in for each other this GPU has; by the best one."""
        self.before: dict[int, tuple[float, float]] = {}
        """Counters by field id: (monotonic seconds, value) when last read."""
        self.gpm_gives: set[str] = set()
        self.pcie_from_counters = False
        self.listed: dict[str, parse.ProcessList] = {}
        """Processes of each of the driver's lists, without lists that failed or do not exist."""
        self.memory_when_listed: int | None = None
        self.failing_lists: set[str] = set()
        self.process_busy: dict[int, float] | None = None
        self.sample_buffer = buffers.BusySampleBuffer(nvml, handle)
        self.process_buffers = {
            kind: buffers.ProcessBuffer(nvml, handle, name) for kind, name in LIST_KINDS.items()
        }
        self.process_busy_buffer = buffers.ProcessBusyBuffer(nvml, handle)
        self.event_set = buffers.EventSet(nvml, handle)
        self.xids: dict[int, XidError] | None = None
        """Xid errors by their codes since watching began; ``None``: this GPU reports none."""
        self.ecc_reported = False
        """An ECC event came since the counters were read."""
        self._batches: dict[tuple[tuple[int, int], ...], buffers.FieldBatch] = {}
        self._merged_lists = [_NONE_LISTED] * len(LIST_KINDS)
        self._merged: parse.ProcessTable = {}
        mig = identity.mig_parent_uuid is not None
        # A reading that is known to be slow must not hold up the first picture.
        self.slots = [
            Slot(reading, now + (0.2 if reading.expected_seconds else 0.0))
            for reading in ((*MIG_FACTS, *MIG_READINGS) if mig else (*FACTS, *READINGS))
        ]

    def close(self) -> None:
        self.event_set.close()
        reader = self.__dict__.get("gpm_reader")
        if reader is not None:
            reader.close()

    # One look.

    def due(self, now: float, unix: float, horizon: float) -> list[Slot]:
        """Begin a look; return the readings that are due by ``horizon``."""
        self.now, self.unix, self.look_began = now, unix, self.counter.timer()
        due = []
        for slot in self.slots:
            reading = slot.reading
            if reading.between and not slot.failures:
                self.values.update(reading.between)
            hurried = reading.hurried is not None and not slot.failures and reading.hurried(self)
            if hurried or slot.due_at <= horizon:
                if reading.needed is None or reading.needed(self):
                    due.append(slot)
                else:
                    slot.due_at = now + reading.cadence_seconds
        return due

    def take(self, slot: Slot) -> float:
        """Take one reading; return the seconds it took. Raises ``DriverGoneError``."""
        error, reading = 0, slot.reading
        self.counter.doing = reading.name, self.identity
        started = self.counter.timer()
        try:
            reading.read(self)
        except self.nvml.NVMLError as failure:
            error = failure.value
        # An answer nobody foresaw costs this reading, and nothing else.
        except Exception:
            error = tables.SENSELESS
        seconds = self.counter.count(started, reading.calls)
        slot.measured(self.now, seconds)
        if error:
            self._failed(slot, error)
            return seconds
        if reading.is_fact:
            self._learn(slot)
        else:
            self._look_for_gaps(slot)
        slot.worked = slot.worked or bool(slot.gave) or not reading.fields
        slot.failures = slot.error = 0
        self.failing_lists.discard(reading.name)
        self._processes_changed = self._processes_changed or reading.name in OF_PROCESSES
        return seconds

    def _learn(self, slot: Slot) -> None:
        """Put a fact into the identity. It is not asked for again, unless the answer made no sense,
        or was that the memory is the host's: a driver that is starting says that of any card."""
        given = {name: self.facts.get(name) for name in slot.reading.fields}
        known = {name: value for name, value in given.items() if value is not None}
        self.identity = replace(self.identity, **known)
        slot.gave.update(known)
        if self.facts.senseless(given) or given.get("memory_unified"):
            slot.due_at = self.now + schedule.FACT_SECONDS
        else:
            self._remove(slot)

    def _look_for_gaps(self, slot: Slot) -> None:
        names, values = fields_set(self, slot.reading), self.values
        given = [name for name in names if values.get(name) is not None]
        slot.refused = [name for name in names if name in values.refused]
        complete = len(given) == len(names) or slot.gave.intersection(names) <= set(given)
        if complete and not slot.refused:
            slot.lacking_reads = 0
        else:
            if not slot.lacking_reads:
                slot.lacking_since_unix = self.unix
            slot.lacking_reads += 1
        slot.gave.update(given)

    def _failed(self, slot: Slot, error: int) -> None:
        if error in tables.DRIVER_GONE:
            raise DriverGoneError(error)
        if error in tables.LOST:
            self.lose(error, self.unix)
            return
        self._forget(slot.reading)
        if error in tables.PERMANENT and not slot.worked:
            self.unsupported.add(slot.reading.name)
            self._remove(slot)
            self.failing_lists.discard(slot.reading.name)
            return
        if slot.reading.name in LISTS:
            self.failing_lists.add(slot.reading.name)
        slot.failed(error, self.unix)
        rarely = error == tables.NO_PERMISSION or (
            error in tables.RARELY_RETRIED and slot.failures >= schedule.LASTED_READS
        )
        if rarely:
            slot.due_at = self.now + max(slot.period, schedule.RARELY_SECONDS)
        else:
            soon = schedule.FACT_SECONDS if slot.reading.is_fact else schedule.TRANSIENT_SECONDS
            slot.due_at = min(slot.due_at, self.now + max(soon, slot.cost * 100))

    def _remove(self, slot: Slot) -> None:
        # A new list: the caller may be walking the old one.
        self.slots = [other for other in self.slots if other is not slot]

    def _forget(self, reading: Reading) -> None:
        if reading.is_fact:
            return
        for name in fields_set(self, reading):
            self.values[name] = None
        if reading.name in LISTS:
            self.listed.pop(LISTS[reading.name], None)
        elif reading.name == PROCESS_BUSY:
            self.process_busy = None
        elif reading.name == GPM:
            self.gpm_gives.clear()
        self._processes_changed = self._processes_changed or reading.name in OF_PROCESSES

    def lose(self, error: int, unix_seconds: float) -> None:
        """Note that the GPU stopped answering: nothing that was read of it holds any more, but
        for the errors that it reported."""
        if self.xids is not None:
            # Whatever the driver does wrong now: the card is lost already.
            with suppress(Exception):
                events(self)
        self.lost_error = error
        self.lost_since_unix = unix_seconds
        self.values.clear()
        self.before = {}
        self.listed = {}
        self.failing_lists = set()
        self.processes = ()

    # State that several readings share.

    @cached_property
    def gpm_reader(self) -> buffers.GpmReader:
        card = self.handle if self.parent_handle is None else self.parent_handle
        return buffers.GpmReader(self.nvml, card, self.identity.mig_instance)

    @property
    def pcie_rates_from_elsewhere(self) -> bool:
        return self.pcie_from_counters or "pcie" in self.gpm_gives

    @cached_property
    def accumulators(self) -> dict[int, str]:
        return tables.accumulator_fields(self.identity.driver_version)

    @cached_property
    def counter_fields(self) -> tuple[tuple[int, int], ...]:
        return (
            *[(field, 0) for field in (*_SINGLE_COUNTERS, *self.accumulators)],
            *[(field, tables.SCOPE_ALL_LINKS) for field in _LINK_COUNTERS],
        )

    def field_values(self, fields: tuple[tuple[int, int], ...]) -> parse.FieldValues:
        """Read (field id, scope) pairs in one call. Raises ``NVMLError``."""
        batch = self._batches.get(fields)
        if batch is None:
            batch = self._batches[fields] = buffers.FieldBatch(self.nvml, self.handle, fields)
        return batch.read()

    def growth(self, field: int, got: parse.FieldValues, unit: float = 1.0) -> float | None:
        """Return how fast a counter grew since it was last read, in ``unit`` a second."""
        value = got.get(field)
        if value is None:
            return None
        rate = parse.rate(self.before.get(field), self.now, value, unit)
        self.before[field] = (self.now, value)
        return rate

    @property
    def process_table(self) -> parse.ProcessTable:
        lists = [self.listed.get(kind, _NONE_LISTED) for kind in LIST_KINDS]
        if any(new is not old for new, old in zip(lists, self._merged_lists, strict=True)):
            self._merged_lists = lists
            compute, mps, graphics = lists
            most = self.identity.memory_total_bytes
            self._merged = parse.merge_processes([*compute, *mps], graphics, most)
        return self._merged

    def process_memory_sum(self) -> int | None:
        """Return the bytes held by this GPU's processes; ``None`` when they are not known."""
        if "compute" not in self.listed or self.failing_lists:
            return None
        sizes = [used for used, _ in self.process_table.values()]
        known = [used for used in sizes if used is not None]
        return None if sizes and not known else sum(known)

    # Rows of a snapshot.

    def gpu(self) -> Gpu:
        xids = None if self.xids is None else tuple(self.xids.values())
        reading = EMPTY_READING
        if not self.lost_error:
            reading = GpuReading(**self.values, late_readings=tuple(self._late()))
        return Gpu(
            identity=self.identity, reading=reading, lost=bool(self.lost_error), xid_errors=xids
        )

    def _late(self) -> Iterator[ReadingAge]:
        for slot in self.slots:
            reading = slot.reading
            if not slot.late(self.now) or slot.failures:
                continue
            for name in fields_set(self, reading):
                # Samples, and durations since the look before, carry their times.
                if self.values.get(name) is not None and name not in reading.between:
                    yield ReadingAge(name, slot.age(self.now))
            if reading.process_field is not None:
                yield ReadingAge(reading.process_field, slot.age(self.now))

    def gpu_processes(self, instances: dict[int, str]) -> tuple[GpuProcess, ...]:
        """Return this GPU's processes; ``instances`` gives the uuid of each of its MIG
        instances."""
        if self._processes_changed:
            self._processes_changed = False
            self.processes = tuple(self._process_rows(instances))
        return self.processes

    def _process_rows(self, instances: dict[int, str]) -> Iterator[GpuProcess]:
        busy = self.process_busy
        own_instance, own_uuid = self.identity.mig_instance, self.identity.uuid
        for (pid, listed_instance), (used, kind) in self.process_table.items():
            instance = own_instance if listed_instance is None else listed_instance
            uuid = own_uuid if instance is None else instances.get(instance, own_uuid)
            share = None if busy is None or instance is not None else busy.get(pid, 0.0)
            yield GpuProcess(pid, uuid, used, share, kind, instance)


Step = Callable[[NvmlDevice], None]


def _call(
    field: str,
    function: str,
    *arguments: Any,
    convert: Callable[[Any], Any] | None = None,
) -> Step:
    """Make the reader of one driver call that gives one value."""

    def read(device: NvmlDevice) -> None:
        value = getattr(device.nvml, function)(device.handle, *arguments)
        device.values[field] = value if convert is None else convert(value)

    return read


def _first_supported(*steps: Step) -> Step:
    """Make a reader of the first of ``steps`` that a GPU has. It stays with that one: another may
    mean something a little different."""

    def read(device: NvmlDevice) -> None:
        known = device.steps.get(steps[0])
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
                device.steps[steps[0]] = at
                return

    return read


# --- facts of its identity -------------------------------------------------------------------


def card_name(device: NvmlDevice) -> None:
    name = parse.text(undecorated(device.nvml, "nvmlDeviceGetName")(device.handle))
    device.facts["name"] = name or None
    if "\N{REPLACEMENT CHARACTER}" in name:
        device.facts.refused["name"] = name


def undecorated(nvml: Any, function: str) -> Callable[..., Any]:
    """Return a function of pynvml as it is below its decorator, which decodes strictly and raises
    on bytes that are not UTF-8."""
    decorated = getattr(nvml, function)
    return getattr(decorated, "__wrapped__", decorated)  # type: ignore[no-any-return]


def memory_size(device: NvmlDevice) -> None:
    """Read the total. Parts that share the host's memory have none of their own: GB10 answers "not
    supported" to both versions of the call, and a total of 0 says the same."""
    try:
        _total_memory(device)
    except device.nvml.NVMLError as error:
        if error.value != tables.NOT_SUPPORTED:
            raise
        device.facts["memory_unified"] = True


def _memory_info(version: str | None, set_memory: Callable[[NvmlDevice, Any], None]) -> Step:
    def read(device: NvmlDevice) -> None:
        number = None if version is None else getattr(device.nvml, version)
        set_memory(device, device.nvml.nvmlDeviceGetMemoryInfo(device.handle, number))

    return read


def _set_total_memory(device: NvmlDevice, memory: Any) -> None:
    device.facts["memory_unified"] = memory.total == 0
    device.facts["memory_total_bytes"] = memory.total or None


def _set_used_memory(device: NvmlDevice, memory: Any) -> None:
    if parse.at_most(memory.used, device.identity.memory_total_bytes) is None:
        device.values.refuse("memory_used_bytes", memory.used)
    else:
        device.values["memory_used_bytes"] = memory.used


# In v2 "used" leaves out what the driver keeps for itself ("reserved"). Drivers without it (before
# 510) left that out of v1, too; later ones count it in, but those have v2.
_total_memory, _dedicated_memory = (
    _first_supported(_memory_info("nvmlMemory_v2", put), _memory_info(None, put))
    for put in (_set_total_memory, _set_used_memory)
)


def compute_capability(device: NvmlDevice) -> None:
    major, minor = device.nvml.nvmlDeviceGetCudaComputeCapability(device.handle)
    if 0 < major < 100 and 0 <= minor < 100:
        device.facts["compute_capability"] = f"{major}.{minor}"
    else:
        device.facts.refuse("compute_capability", major)


def pci_bus(device: NvmlDevice) -> None:
    bus_id = pci_bus_id(device.nvml, device.handle)
    if bus_id is None:
        device.facts.refuse("pci_bus_id", 0)
    else:
        device.facts["pci_bus_id"] = bus_id
        device.facts["numa_node"] = numa_node(bus_id)


def pci_bus_id(nvml: Any, handle: Any) -> str | None:
    """Return the bus id of a card; ``None`` where the driver's answer is none. Raises
    ``NVMLError``."""
    info = nvml.nvmlDeviceGetPciInfo(handle)
    # As bytes: pynvml's structures decode strictly.
    text = parse.text(object.__getattribute__(info, "busId")).lower()
    return text if parse.BUS_ID.fullmatch(text) else None


def numa_node(bus_id: str, devices: Path = PCI_DEVICES) -> int | None:
    """Return the NUMA node the card is attached to, from the kernel; -1 there means none is
    known."""
    domain, _, rest = bus_id.partition(":")
    node = read_if_possible(devices / f"{domain[-4:]}:{rest}" / "numa_node").strip()
    return int(node) if node.isdigit() else None


def thermal_limits(device: NvmlDevice) -> None:
    """Read the limits in degrees, which drivers from Ada on may give as margins instead."""
    nvml, handle, facts = device.nvml, device.handle, device.facts
    for field, which in tables.THRESHOLDS.items():
        try:
            facts[field] = nvml.nvmlDeviceGetTemperatureThreshold(handle, which) or None
        except nvml.NVMLError as error:
            if error.value not in tables.REFUSED:
                raise
    missing = [field for field in tables.THRESHOLDS if facts.get(field) is None]
    # Old bindings have no such call.
    if not missing or not hasattr(nvml, "nvmlDeviceGetMarginTemperature"):
        return
    try:
        degrees = nvml.nvmlDeviceGetTemperature(handle, tables.TEMPERATURE_GPU)
        margin = nvml.nvmlDeviceGetMarginTemperature(handle)
        fields = tuple((number, 0) for number in tables.MARGINS.values())
        margins = buffers.FieldBatch(nvml, handle, fields).read()
    except nvml.NVMLError as error:
        if error.value not in tables.REFUSED:
            raise
        return
    for field in missing:
        number = tables.MARGINS[field]
        if parse.plausible("temperature_celsius", degrees) is not None and number in margins:
            facts[field] = degrees + margin - parse.signed(margins[number])


# --- readings that move ----------------------------------------------------------------------


def utilization(device: NvmlDevice) -> None:
    rates = device.nvml.nvmlDeviceGetUtilizationRates(device.handle)
    device.values["busy_percent"] = rates.gpu
    device.values["memory_controller_percent"] = rates.memory


def busy_samples(device: NvmlDevice) -> None:
    device.values["busy_samples"] = device.sample_buffer.read(device.now, device.unix)
    device.sampled_unix = device.unix + device.counter.timer() - device.look_began


def memory(device: NvmlDevice) -> None:
    unified = device.identity.memory_unified
    device.values["memory_used_is_process_sum"] = unified
    if unified:
        device.values["memory_used_bytes"] = device.process_memory_sum()
    else:
        _dedicated_memory(device)


def _set_power(device: NvmlDevice, milliwatts: float | None, *, average: bool) -> None:
    """Put in the power, unless it cannot be: a card that works draws something, and no card much
    more than its limit."""
    watts, values = parse.in_thousands(milliwatts), device.values
    limit = device.identity.power_limit_max_watts or values.get("power_limit_watts")
    too_much = watts is not None and limit is not None and watts > POWER_FACTOR * limit
    # One that has nothing to do may be switched off.
    if too_much or (watts == 0 and values.get("busy_percent")):
        values.refuse("power_watts", watts)
    else:
        values["power_watts"] = watts
    values["power_is_average"] = average


def _power_field(number: int, *, average: bool) -> Step:
    def read(device: NvmlDevice) -> None:
        milliwatts = device.field_values(((number, 0),)).get(number)
        _set_power(device, milliwatts, average=average)

    return read


def _power_usage(device: NvmlDevice) -> None:
    milliwatts = device.nvml.nvmlDeviceGetPowerUsage(device.handle)
    # A one-second average from Ampere on, but for GA100.
    major, minor = (device.identity.compute_capability or "99.0").split(".")
    _set_power(device, milliwatts, average=(int(major), int(minor)) > (8, 0))


power = _first_supported(
    # Each by itself: the instant value costs microseconds, while the average takes milliseconds on
    # real drivers and would be paid for in the same call.
    _power_field(tables.FIELD_POWER_INSTANT, average=False),
    _power_field(tables.FIELD_POWER_AVERAGE, average=True),
    _power_usage,
)
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


def pcie_link(device: NvmlDevice) -> None:
    nvml, handle = device.nvml, device.handle
    # 0 is said where there is no such link.
    device.values["pcie_generation"] = nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle) or None
    device.values["pcie_width"] = nvml.nvmlDeviceGetCurrPcieLinkWidth(handle) or None


def pcie_throughput(device: NvmlDevice) -> None:
    """Read the rates where neither GPM nor byte counters give them: the driver measures for 20 ms
    a call."""
    for counter, name in zip((tables.PCIE_RX, tables.PCIE_TX), RATES["pcie"], strict=True):
        kib = device.nvml.nvmlDeviceGetPcieThroughput(device.handle, counter)
        device.values[name] = kib * 1000.0


_LINK_COUNTERS = (tables.FIELD_NVLINK_DATA_RX_KIB, tables.FIELD_NVLINK_DATA_TX_KIB)
_PCIE_COUNTERS = (tables.FIELD_PCIE_RX_BYTES, tables.FIELD_PCIE_TX_BYTES)
_SINGLE_COUNTERS = (
    tables.FIELD_ENERGY_MILLIJOULES,
    tables.FIELD_MEMORY_TEMPERATURE,
    *_PCIE_COUNTERS,
)


def counters(device: NvmlDevice) -> None:
    """Read everything that grows: energy, PCIe and NVLink bytes, time in each throttle reason."""
    got = device.field_values(device.counter_fields)
    values = device.values
    values["energy_joules"] = parse.in_thousands(got.get(tables.FIELD_ENERGY_MILLIJOULES))
    # 0 is what boards without a memory sensor answer.
    values["memory_temperature_celsius"] = got.get(tables.FIELD_MEMORY_TEMPERATURE) or None
    if "nvlink" not in device.gpm_gives:
        for number, name in zip(_LINK_COUNTERS, RATES["nvlink"], strict=True):
            values[name] = device.growth(number, got, 1024.0)
    if "pcie" not in device.gpm_gives and tables.FIELD_PCIE_RX_BYTES in got:
        rates = [device.growth(field, got) for field in _PCIE_COUNTERS]
        # A counter that stands still may be one that the card does not have, so until it moves the
        # throughput call is believed.
        device.pcie_from_counters = device.pcie_from_counters or any(rates)
        if device.pcie_from_counters:
            values.update(zip(RATES["pcie"], rates, strict=True))
    values["throttle_durations"] = _durations(device, got)


def _durations(device: NvmlDevice, got: parse.FieldValues) -> tuple[ReasonSeconds, ...] | None:
    """Return the seconds that each reason held since the reading before; ``None``: no accumulator,
    or the first reading."""
    found = []
    for number, reason in device.accumulators.items():
        value = got.get(number)
        if value is None:
            continue
        held = parse.held_seconds(device.before.get(number), device.now, value)
        device.before[number] = (device.now, value)
        if held is not None:
            found.append(ReasonSeconds(reason, held))
    return tuple(found) or None


def health(device: NvmlDevice) -> None:
    device.ecc_reported = False
    got = device.field_values(_HEALTH_IDS)
    for number, name in tables.HEALTH.items():
        value = got.get(number)
        if name in ("remapped_rows_pending", "remapped_rows_failed"):
            value = bool(value) if value in (0, 1) else None
        device.values[name] = value


def link_errors(device: NvmlDevice) -> None:
    got = device.field_values(_LINK_ERROR_IDS)
    device.values["pcie_replay_count"] = got.get(tables.FIELD_PCIE_REPLAYS)
    for name, numbers in tables.NVLINK_ERRORS.items():
        counts = [got[number] for number in numbers if number in got]
        device.values[name] = counts[0] if counts else None


def events(device: NvmlDevice) -> None:
    """Read what the driver reports by itself. Memory errors are counted in ``health``, which an
    event only hurries."""
    xids = {} if device.xids is None else device.xids
    for kind, number in device.event_set.read():
        if kind & tables.EVENT_ECC:
            device.ecc_reported = True
        elif number in xids or (0 < number < XID_MOST and len(xids) < XIDS_KEPT):
            times = xids[number].times if number in xids else 0
            xids[number] = XidError(number, times + 1, device.unix)


def ask_for_events(device: NvmlDevice) -> None:
    device.event_set.open()
    # An old library cannot ask for them.
    events(device)
    device.xids = {}


def gpm_activities(device: NvmlDevice) -> None:
    got = device.gpm_reader.read()
    for name in GPM_ACTIVITIES:
        device.values[name] = got.get(name)
    for name, rates in RATES.items():
        if all(rate in got for rate in rates):
            device.gpm_gives.add(name)
        if name in device.gpm_gives:
            for rate in rates:
                device.values[rate] = got.get(rate)


def _list(kind: str) -> Step:
    def read(device: NvmlDevice) -> None:
        device.listed[kind] = device.process_buffers[kind].read()
        if kind == "compute":
            device.memory_when_listed = device.values.get("memory_used_bytes")
            if device.identity.memory_unified:
                memory(device)

    return read


def _processes_moved(device: NvmlDevice) -> bool:
    """Return True when a process came or went: the least memory that it holds is taken, or free."""
    used, before = device.values.get("memory_used_bytes"), device.memory_when_listed
    return used is not None and before is not None and abs(used - before) >= CONTEXT_BYTES


def process_busy(device: NvmlDevice) -> None:
    window = max(2.0, 2 * device.interval_seconds)
    # Both kinds of samples are taken to be stamped by the same clock.
    driver_unix = device.unix - device.sample_buffer.shift_seconds
    device.process_busy = device.process_busy_buffer.read(device.now, driver_unix, window)


def fields_set(device: NvmlDevice, reading: Reading) -> tuple[str, ...]:
    """Return the fields that a reading sets on this GPU: rates come from the best call that gives
    them."""
    if reading.name == GPM:
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


# --- tables: what is read, and how often -----------------------------------------------------

GPM_ACTIVITIES = tuple(tables.GPM_ACTIVITIES.values())
HEALTH_FIELDS = tuple(tables.HEALTH.values())
_HEALTH_IDS = tuple((number, 0) for number in tables.HEALTH)
LINK_ERROR_FIELDS = ("pcie_replay_count", *tables.NVLINK_ERRORS)
_LINK_ERROR_IDS = (
    *[(number, 0) for number in (tables.FIELD_PCIE_REPLAYS, 45, 52, 59)],
    (tables.NVLINK_ERRORS_OF_ALL_LINKS, tables.SCOPE_ALL_LINKS),
    *[
        (number, link)
        for number in tables.NVLINK_ERRORS_OF_A_LINK
        for link in range(tables.NVLINKS_MOST)
    ],
)
COUNTED_FIELDS = (HEALTH_FIELDS, LINK_ERROR_FIELDS)
"""Fields of the readings that count errors, of which there should be none."""
RATES = {
    name: (f"{name}_rx_bytes_per_second", f"{name}_tx_bytes_per_second")
    for name in ("pcie", "nvlink")
}

UTILISATION = "the utilisation"
MEMORY = "the memory in use"
SAMPLES = "fine utilisation samples"
PROCESS_LIST = "the list of processes"
GRAPHICS_LIST = "the list of graphics processes"
MPS_LIST = "the list of MPS processes"
LISTS = {PROCESS_LIST: "compute", GRAPHICS_LIST: "graphics", MPS_LIST: "mps"}
PROCESS_BUSY = "the SM share of each process"
OF_PROCESSES = (*LISTS, PROCESS_BUSY)
EVENTS = "events (Xid and ECC errors)"
COUNTERS = "energy, link and throttle counters"
PCIE_THROUGHPUT = "PCIe throughput"
GPM = "SM, tensor and memory activity (GPM)"
_UTILISATION_FIELDS = ("busy_percent", "memory_controller_percent")
_MEMORY_FACTS = ("memory_total_bytes", "memory_unified")
_MAX_CLOCK = "nvmlDeviceGetMaxClockInfo"


def _fact(
    name: str, field: str, function: str, *arguments: Any, convert: Callable[[Any], Any] = int
) -> Reading:
    """Make the row of one driver call that gives one fact; 0 is said where there is none."""

    def read(device: NvmlDevice) -> None:
        value = convert(getattr(device.nvml, function)(device.handle, *arguments))
        device.facts[field] = value or None

    return Reading(name, (field,), read, is_fact=True)


_SHOWN_FACTS = (
    Reading("the name", ("name",), card_name, is_fact=True),
    Reading("the memory's size", _MEMORY_FACTS, memory_size, is_fact=True),
)
"""Facts that a row needs, and its first readings."""
FACTS = (
    *_SHOWN_FACTS,
    Reading("the capability", ("compute_capability",), compute_capability, is_fact=True),
    Reading("the PCI bus", ("pci_bus_id", "numa_node"), pci_bus, is_fact=True),
    _fact(
        "the usual power limit",
        "power_limit_default_watts",
        "nvmlDeviceGetPowerManagementDefaultLimit",
        convert=parse.in_thousands,
    ),
    _fact(
        "the highest power limit",
        "power_limit_max_watts",
        "nvmlDeviceGetPowerManagementLimitConstraints",
        convert=lambda limits: parse.in_thousands(limits[1]),
    ),
    Reading("the thermal limits", tuple(tables.THRESHOLDS), thermal_limits, is_fact=True, calls=2),
    _fact("the SM clock's limit", "sm_clock_max_mhz", _MAX_CLOCK, tables.CLOCK_SM),
    _fact("the memory clock's limit", "memory_clock_max_mhz", _MAX_CLOCK, tables.CLOCK_MEMORY),
    _fact("the link's generation", "pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    _fact("the link's width", "pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    Reading(EVENTS, (), ask_for_events, is_fact=True, calls=4),
)
"""A card's identity, beside the index, the uuid, the MIG mode and the driver's versions, which
``inventory`` asks for."""
READINGS = (
    Reading(UTILISATION, _UTILISATION_FIELDS, utilization, EVERY_LOOK, IMPORTANT),
    Reading(MEMORY, ("memory_used_bytes",), memory, EVERY_LOOK, IMPORTANT),
    Reading("power", ("power_watts",), power, EVERY_LOOK, IMPORTANT),
    Reading(
        SAMPLES,
        ("busy_samples",),
        busy_samples,
        EVERY_LOOK,
        IMPORTANT,
        between={"busy_samples": ()},
    ),
    Reading(
        PROCESS_LIST,
        (),
        _list("compute"),
        EVERY_SECOND,
        NOTABLE,
        process_field="gpu_memory_bytes",
        hurried=_processes_moved,
    ),
    Reading(GRAPHICS_LIST, (), _list("graphics"), SELDOM),
    Reading("the temperature", ("temperature_celsius",), temperature, EVERY_SECOND, NOTABLE),
    Reading("the throttle reasons", ("throttle_reasons",), throttle_reasons, EVERY_LOOK, NOTABLE),
    Reading("the SM clock", ("sm_clock_mhz",), sm_clock, EVERY_LOOK, NOTABLE),
    Reading(GPM, GPM_ACTIVITIES, gpm_activities, EVERY_SECOND, PROMPT, calls=2, pairs=True),
    Reading(
        PROCESS_BUSY, (), process_busy, EVERY_SECOND, NOTABLE, process_field="gpu_busy_percent"
    ),
    Reading(
        COUNTERS,
        ("energy_joules", "memory_temperature_celsius", "throttle_durations"),
        counters,
        EVERY_SECOND,
        PROMPT,
        pairs=True,
        between={"throttle_durations": None},
    ),
    Reading("the power limit", ("power_limit_watts",), power_limit, SELDOM),
    Reading(MPS_LIST, (), _list("mps"), SELDOM),
    Reading("the performance state", ("performance_state",), performance_state, SELDOM),
    Reading("the memory clock", ("memory_clock_mhz",), memory_clock, SELDOM),
    Reading("the PCIe link", ("pcie_generation", "pcie_width"), pcie_link, SELDOM, calls=2),
    Reading("encoder use", ("encoder_percent",), encoder, SELDOM),
    Reading("decoder use", ("decoder_percent",), decoder, SELDOM),
    Reading("the fan speed", ("fan_percent",), fan, SELDOM),
    Reading(
        "ECC errors and remapped rows",
        HEALTH_FIELDS,
        health,
        SELDOM,
        hurried=lambda device: device.ecc_reported,
    ),
    Reading("PCIe and NVLink errors", LINK_ERROR_FIELDS, link_errors, SELDOM),
    Reading(
        EVENTS,
        (),
        events,
        EVERY_SECOND,
        # Known, so that what waits for readings of unknown cost does not wait for it as well.
        expected_seconds=2e-5,
        needed=lambda device: device.xids is not None,
    ),
    Reading(
        PCIE_THROUGHPUT,
        RATES["pcie"],
        pcie_throughput,
        EVERY_SECOND,
        calls=2,
        expected_seconds=0.04,
        needed=lambda device: not device.pcie_rates_from_elsewhere,
    ),
)
"""The order is that in which a GPU that was just found is read, after the facts that it needs."""
MIG_FACTS = _SHOWN_FACTS
MIG_READINGS = tuple(
    reading for reading in READINGS if reading.name in (PROCESS_LIST, GRAPHICS_LIST, MEMORY, GPM)
)
"""The rest of a MIG instance's readings are its card's; NVML refuses them for the instance."""

_IMPORTANT = tuple(reading for reading in READINGS if reading.importance == IMPORTANT)
FIRST_ORDER = tuple(dict.fromkeys((*FACTS[:3], *_IMPORTANT, *FACTS, *READINGS)))
"""The order in which GPUs that were just found are read: the facts that their rows and first
readings need, whatever matters most, the other facts, the rest."""
