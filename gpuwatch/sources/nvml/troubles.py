"""From the state of the GPUs to the problems a person should know, each said once."""

from gpuwatch.core import units
from gpuwatch.core.model import GpuIdentity, Problem
from gpuwatch.sources.nvml import messages, parse, readings, tables
from gpuwatch.sources.nvml.device import NvmlDevice
from gpuwatch.sources.nvml.schedule import (
    IMPORTANT,
    LASTED_READS,
    NOTABLE,
    SELDOM_SECONDS,
    Reading,
    Slot,
)

_UNITS = {
    "_percent": "%", "_watts": "W", "_celsius": "C", "_mhz": "MHz", "_joules": "J",
    "_bytes": "bytes", "_bytes_per_second": "bytes/s",
}  # fmt: skip
_WORTH_SAYING = (
    (readings.SAMPLES, messages.NO_SAMPLES, "busy_samples"),
    (readings.PROCESS_BUSY, messages.NO_PROCESS_BUSY, "gpu_busy_percent"),
    (readings.PROCESS_LIST, messages.NO_PROCESS_LIST, "processes"),
)
"""Readings whose absence changes what the screen can be trusted to show."""


def troubles(devices: list[NvmlDevice]) -> list[Problem]:
    """Lost GPUs, then readings that fail, cannot be true, are seldom taken, or do not exist on
    these GPUs."""
    return [
        *_lost(devices),
        *failing(devices),
        *_nonsense(devices),
        *_doubted(devices),
        *_seldom(devices),
        *_lacking(devices),
    ]


def _lost(devices: list[NvmlDevice]) -> list[Problem]:
    """GPUs that are lost alike are one problem."""
    together: dict[int, list[NvmlDevice]] = {}
    for device in devices:
        if device.lost_error:
            together.setdefault(device.lost_error, []).append(device)
    problems = []
    for code, gone in together.items():
        since = min(device.lost_since_unix for device in gone)
        problems.append(messages.lost([device.identity for device in gone], code, since))
    return problems


def failing(devices: list[NvmlDevice]) -> list[Problem]:
    """The same failure of several GPUs, or of several readings, is one problem."""
    together: dict[tuple[Reading, int], list[tuple[NvmlDevice, float]]] = {}
    for device in devices:
        for slot in () if device.lost_error else device.slots:
            # All of them, nearly always: this is asked of each slot every second.
            if not slot.failures and (slot.lacking_reads < LASTED_READS or slot.refused):
                continue
            error, since = slot.error, slot.failed_since_unix
            worth_saying = slot.lasted or error == tables.NO_PERMISSION
            if not slot.failures:
                none = all(device.card.values.get(name) is None for name in slot.gave)
                error = tables.SENSELESS if none else tables.INCOMPLETE
                since, worth_saying = slot.lacking_since_unix, True
            if worth_saying:
                together.setdefault((slot.reading, error), []).append((device, since))
    # A list of processes that cannot be read must not be taken for an empty one: these are apart.
    alike: dict[tuple[int, tuple[str, ...], bool], list[Reading]] = {}
    for (reading, error), affected in together.items():
        uuids = tuple(device.identity.uuid for device, _ in affected)
        alike.setdefault((error, uuids, reading.name in readings.LISTS), []).append(reading)
    return [
        messages.cannot_read(
            [(reading.name, _field(reading)) for reading in same],
            [device.identity for device, _ in together[same[0], error]],
            error,
            min(since for reading in same for _, since in together[reading, error]),
        )
        for (error, *_), same in alike.items()
    ]


def _field(reading: Reading) -> str | None:
    """What a problem of this reading is about."""
    if reading.name == readings.PROCESS_LIST:
        return "processes"
    return reading.fields[0] if reading.fields else None


def _nonsense(devices: list[NvmlDevice]) -> list[Problem]:
    """What the driver says and cannot be: of the same GPUs it is one problem."""
    together: dict[Reading, dict[str, tuple[NvmlDevice, Slot]]] = {}
    for device in devices:
        for slot in () if device.lost_error else device.slots:
            if slot.refused and not slot.failures and _worth_saying(device, slot):
                together.setdefault(slot.reading, {})[device.identity.uuid] = (device, slot)
    alike: dict[tuple[str, ...], list[Reading]] = {}
    for reading, affected in together.items():
        alike.setdefault(tuple(affected), []).append(reading)
    problems = []
    for same in alike.values():
        said = [
            (reading.name, name, _with_unit(name, device.card.values.refused[name]))
            for reading in same
            for device, slot in together[reading].values()
            for name in slot.refused
        ]
        slots = [slot for reading in same for _, slot in together[reading].values()]
        gpus = [device.identity for device, _ in together[same[0]].values()]
        since = min(slot.lacking_since_unix for slot in slots)
        problems.append(messages.cannot_be(said, gpus, since))
    return problems


def _worth_saying(device: NvmlDevice, slot: Slot) -> bool:
    """It is no hiccup, and not a minor reading of which the driver says "not available" by a
    number."""
    refused = device.card.values.refused
    if slot.reading.importance < NOTABLE and all(
        parse.not_available(refused[name]) for name in slot.refused
    ):
        return False
    return slot.lacking_reads >= LASTED_READS or not slot.gave.issuperset(slot.refused)


def _with_unit(field: str, value: float) -> str:
    unit = next((unit for ending, unit in _UNITS.items() if field.endswith(ending)), None)
    return units.quantity(value, unit)


def _doubted(devices: list[NvmlDevice]) -> list[Problem]:
    together: dict[tuple[str, float, str], list[GpuIdentity]] = {}
    for device in devices:
        if device.card.power_doubted is not None and not device.lost_error:
            together.setdefault(device.card.power_doubted, []).append(device.identity)
    return [
        messages.power_from_elsewhere(doubted, units.quantity(watts, "W"), instead, gpus)
        for (doubted, watts, instead), gpus in together.items()
    ]


def _seldom(devices: list[NvmlDevice]) -> list[Problem]:
    """Readings that the driver is slow to give, so that what is shown of them can be old."""
    together: dict[Reading, float] = {}
    affected: list[NvmlDevice] = []
    seconds = calls = 0.0
    for device in devices:
        seldom = [slot for slot in device.slots if slot.seldom and not device.lost_error]
        for slot in seldom:
            reading = slot.reading
            if reading.needed is None or reading.needed(device.card):
                together[reading] = max(together.get(reading, 0.0), slot.period)
                seconds += slot.cost
                calls += reading.calls
        if seldom:
            affected.append(device)
    if not any(
        period > SELDOM_SECONDS or reading.importance == IMPORTANT
        for reading, period in together.items()
    ):
        return []
    gpus = [device.identity for device in affected]
    return [messages.slow_driver(gpus, seconds / calls, max(together.values()))]


def _lacking(devices: list[NvmlDevice]) -> list[Problem]:
    cards = [device for device in devices if device.identity.mig_parent_uuid is None]
    # Of those that are not known to be busy or idle the rest follows.
    silent = [
        device for device in cards if {readings.UTILISATION, readings.SAMPLES} <= device.unsupported
    ]
    problems = []
    for divided in (False, True):
        gpus = [device.identity for device in silent if bool(device.identity.mig_mode) is divided]
        if gpus:
            problems.append(messages.no_utilisation(gpus, divided))
    for name, sentence, field in _WORTH_SAYING:
        implied = silent if name in (readings.SAMPLES, readings.PROCESS_BUSY) else []
        gpus = [
            device.identity
            for device in cards
            if name in device.unsupported and device not in implied
        ]
        if gpus:
            problems.append(messages.unsupported(sentence, field, gpus))
    return problems
