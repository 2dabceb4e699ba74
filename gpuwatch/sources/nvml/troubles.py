"""From the state of the GPUs to the problems a person should know, each said once."""

from gpuwatch.core.model import Problem
from gpuwatch.sources.nvml import messages, readings, tables
from gpuwatch.sources.nvml.device import NvmlDevice
from gpuwatch.sources.nvml.schedule import IMPORTANT, LASTED_READS, SELDOM_SECONDS, Reading

_WORTH_SAYING = (
    (readings.SAMPLES, messages.NO_SAMPLES, "busy_samples"),
    (readings.PROCESS_BUSY, messages.NO_PROCESS_BUSY, "gpu_busy_percent"),
    (readings.PROCESS_LIST, messages.NO_PROCESS_LIST, "processes"),
)
"""Readings whose absence changes what the screen can be trusted to show."""


def troubles(devices: list[NvmlDevice]) -> list[Problem]:
    """Lost GPUs, then readings that fail, are seldom taken, or do not exist on these GPUs."""
    return [*_lost(devices), *failing(devices), *_seldom(devices), *_lacking(devices)]


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
            if not slot.failures and slot.lacking_reads < LASTED_READS:
                continue
            error, since = slot.error, slot.failed_since_unix
            worth_saying = slot.lasted or error == tables.NO_PERMISSION
            if not slot.failures:
                none = all(device.card.values.get(name) is None for name in slot.gave)
                error = tables.SENSELESS if none else tables.INCOMPLETE
                since, worth_saying = slot.lacking_since_unix, True
            if worth_saying:
                together.setdefault((slot.reading, error), []).append((device, since))
    alike: dict[tuple[int, tuple[str, ...]], list[Reading]] = {}
    for (reading, error), affected in together.items():
        uuids = tuple(device.identity.uuid for device, _ in affected)
        alike.setdefault((error, uuids), []).append(reading)
    return [
        messages.cannot_read(
            [(reading.name, reading.fields[0] if reading.fields else None) for reading in same],
            [device.identity for device, _ in together[same[0], error]],
            error,
            min(since for reading in same for _, since in together[reading, error]),
        )
        for (error, _), same in alike.items()
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
    problems = []
    for name, sentence, field in _WORTH_SAYING:
        gpus = [
            device.identity
            for device in devices
            if name in device.unsupported and device.identity.mig_parent_uuid is None
        ]
        if gpus:
            problems.append(messages.unsupported(sentence, field, gpus))
    return problems
