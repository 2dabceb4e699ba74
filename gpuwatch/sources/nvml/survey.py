"""Every reading of every GPU, asked for at once and timed, for ``gpuwatch doctor``.

The looks before it are those of the dashboard, so what they say of the driver and the GPUs is what
the dashboard says.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from gpuwatch.core.model import BusySample, GpuIdentity
from gpuwatch.core.source import Clock, ReadOptions
from gpuwatch.core.text import bug_place
from gpuwatch.sources.gpu_source import DriverReading
from gpuwatch.sources.nvml import buffers, messages, parse, readings, schedule
from gpuwatch.sources.nvml.readings import NvmlDevice
from gpuwatch.sources.nvml.schedule import DriverGoneError, Reading, Slot
from gpuwatch.sources.nvml.source import NvmlSource

LOOKS = 2
"""Looks of a dashboard before the survey: rates need two."""
TIMES, ENOUGH_SECONDS = 5, 0.05
"""A reading is timed so often, or until that took so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One reading of one GPU, as the driver gave it."""

    gpu: GpuIdentity
    reading: Reading
    supported: bool = True
    needed: bool = True
    """``False``: a better reading gives what it would, so it is not taken."""
    error: int = 0
    seconds_per_call: float | None = None
    values: dict[str, Any] = field(default_factory=dict)
    earlier: dict[str, Any] = field(default_factory=dict)
    """Values shortly before ``meanwhile``; ``values`` are from after it."""

    @property
    def error_words(self) -> str:
        return messages.error_words(self.error)


class Samples(NamedTuple):
    """All that a GPU's buffer of fine samples holds, when it was asked, and by how much its time
    stamps were moved (``parse.clock_shift``)."""

    samples: tuple[BusySample, ...]
    asked_at_unix_seconds: float
    shift_seconds: float


class Survey(NvmlSource):
    """A source that also asks for everything once. ``meanwhile`` is called between the two times
    that every reading is taken. Each answer is here as soon as it is known, so that it is there
    when the driver hangs later on."""

    def __init__(
        self, clock: Clock, options: ReadOptions, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(clock, options)
        self._meanwhile = meanwhile
        self._looks = 0
        self.running = False
        """The driver's library works, as of the last look."""
        self.wake_seconds: float | None = None
        """Time that it took to start the library and to find the GPUs."""
        self.library_version: str | None = None
        self.start_error: int | None = None
        """Why the library does not start."""
        self.answers: dict[tuple[str, str], Answer] = {}
        """Answers by the uuid and the reading's name."""
        self.samples: dict[str, Samples] = {}
        """Fine samples by the uuid, of GPUs that keep some."""
        self.lists: dict[str, tuple[str, int | None]] = {}
        """The function that lists processes and the bytes of a record, by the uuid."""
        self.failing = set[str]()
        """Sentences about readings that fail."""
        self.broke_off: str | None = None
        """Why not everything was asked for."""

    @property
    def doing(self) -> str | None:
        """The reading or function that the driver is asked for at this moment."""
        doing = self._counter.doing
        if doing is None:
            return None
        what, gpu = doing
        return what if gpu is None else f"{what} of {messages.labels([gpu])}"

    def open(self) -> None:
        started = time.perf_counter()
        super().open()
        self.wake_seconds = time.perf_counter() - started
        if self._nvml is not None:
            # The library gives its own version whether or not it can talk to the kernel module.
            with suppress(Exception):
                version = readings.undecorated(self._nvml, "nvmlSystemGetNVMLVersion")()
                self.library_version = parse.text(version)

    def _start_sentence(self, code: int) -> str:
        self.start_error = code
        return super()._start_sentence(code)

    def read(self) -> DriverReading:
        found = super().read()
        self.running = self._inventory is not None
        if self._inventory is not None:
            self.failing = {
                problem.message for problem in messages.failing(self._inventory.devices)
            }
        self._looks += 1
        if self._looks == LOOKS and self._inventory is not None:
            looked_at = time.monotonic()
            try:
                self._ask_all(self._inventory.devices, looked_at)
            except DriverGoneError as error:
                self.broke_off = messages.error_words(error.code)
            # The looks were good: what they found must not be lost with this.
            except Exception as error:
                self.broke_off = f"{bug_place(error)}; this is a bug in gpuwatch"
        return found

    def _ask_all(self, devices: list[NvmlDevice], looked_at: float) -> None:
        for device in devices:
            self._ask_for_the_rest(device)
        earlier = {}
        for device in devices:
            for reading, slot in _slots(device):
                if slot is not None and not reading.pairs:
                    self._take(device, slot, 1)
                earlier[device.identity.uuid, reading.name] = _values(device, reading)
                self._note(device, reading, slot, None, {})
        self._meanwhile()
        # A reading of two samples needs them this far apart.
        time.sleep(max(0.0, looked_at + schedule.PAIR_SECONDS - time.monotonic()))
        for device in devices:
            for reading, slot in _slots(device):
                times = 1 if reading.pairs else TIMES
                cost = None if slot is None else self._take(device, slot, times)
                before = earlier.get((device.identity.uuid, reading.name), {})
                self._note(device, reading, slot, cost, before)
            buffer = device.process_buffers["compute"].function_and_record_bytes
            if buffer is not None:
                self.lists[device.identity.uuid] = buffer

    def _take(self, device: NvmlDevice, slot: Slot, times: int) -> float | None:
        """Take the reading so many times at most. Return the seconds that a call of it took."""
        costs = list[float]()
        while len(costs) < times and sum(costs) < ENOUGH_SECONDS:
            if device.lost_error or slot not in device.slots:
                break
            device.now, device.unix = self._clock.monotonic(), self._clock.unix()
            costs.append(device.take(slot))
        return median(costs) / slot.reading.calls if costs else None

    def _note(
        self,
        device: NvmlDevice,
        reading: Reading,
        slot: Slot | None,
        cost: float | None,
        earlier: dict[str, Any],
    ) -> None:
        if device.lost_error:
            return
        unsupported = reading.name in device.unsupported
        self.answers[device.identity.uuid, reading.name] = Answer(
            gpu=device.identity,
            reading=reading,
            supported=not unsupported,
            needed=slot is not None or unsupported,
            error=slot.error if slot is not None and slot.failures else 0,
            seconds_per_call=cost,
            values=_values(device, reading),
            earlier=earlier,
        )

    def _ask_for_the_rest(self, device: NvmlDevice) -> None:
        """Ask for fine samples from the oldest on, which a dashboard does not read."""
        nvml, handle, uuid = self._nvml, device.handle, device.identity.uuid
        if device.lost_error or device.identity.mig_parent_uuid is not None:
            return
        self._counter.doing = readings.SAMPLES, device.identity
        # What cannot be had, or makes no sense, costs this alone.
        with suppress(Exception):
            buffer, unix = buffers.BusySampleBuffer(nvml, handle), self._clock.unix()
            found = buffer.read(self._clock.monotonic(), unix)
            self.samples[uuid] = Samples(found, unix, buffer.shift_seconds)
        self._counter.doing = None


def _slots(device: NvmlDevice) -> Iterator[tuple[Reading, Slot | None]]:
    """Yield every reading there can be of the GPU, with its slot where it is taken."""
    mig = device.identity.mig_parent_uuid is not None
    slots = {slot.reading.name: slot for slot in device.slots}
    for reading in readings.MIG_READINGS if mig else readings.READINGS:
        slot = slots.get(reading.name)
        if slot is not None and reading.needed is not None and not reading.needed(device):
            slot = None
        yield reading, slot


def _values(device: NvmlDevice, reading: Reading) -> dict[str, Any]:
    if reading.name in readings.LISTS:
        listed = device.listed.get(readings.LISTS[reading.name])
        return {} if listed is None else {"processes": len(listed)}
    if reading.name == readings.PROCESS_BUSY:
        return {} if device.process_busy is None else {"processes": len(device.process_busy)}
    if reading.name == readings.EVENTS:
        return (
            {}
            if device.xids is None
            else {"xid_errors": sum(x.times for x in device.xids.values())}
        )
    if reading.name == readings.SAMPLES:
        return {}
    names = readings.fields_set(device, reading)
    return {name: value for name in names if (value := device.values.get(name)) is not None}
