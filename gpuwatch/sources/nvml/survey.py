"""Survey for ``gpuwatch doctor``: the driver's answer to every reading of every GPU, and its time.

Its looks are those of the dashboard, so what they say of the driver and the GPUs is what the
dashboard says.
"""

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpuwatch.core.model import BusySample, GpuIdentity
from gpuwatch.core.source import Clock, ReadOptions
from gpuwatch.sources.gpu_source import DriverReading
from gpuwatch.sources.nvml import messages, parse, readings
from gpuwatch.sources.nvml.readings import NvmlDevice
from gpuwatch.sources.nvml.schedule import Reading
from gpuwatch.sources.nvml.source import NvmlSource


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


class Samples(NamedTuple):
    """All that a GPU's buffer of fine samples held, when it was asked, and by how much its time
    stamps were moved (``parse.clock_shift``)."""

    samples: tuple[BusySample, ...]
    asked_at_unix_seconds: float
    shift_seconds: float


class Survey(NvmlSource):
    """A source that notes what each look says of each reading."""

    def __init__(self, clock: Clock, options: ReadOptions) -> None:
        super().__init__(clock, options)
        # Somebody waits for all of it, once.
        self._budget_seconds = math.inf
        self.running = False
        """The driver's library works, as of the last look."""
        self.wake_seconds: float | None = None
        """Time that it took to start the library and to find the GPUs."""
        self.library_version: str | None = None
        self.start_error: int | None = None
        """Why the library does not start."""
        self.answers: dict[tuple[str, str], Answer] = {}
        """Answers of the last look by the uuid and the reading's name."""
        self.samples: dict[str, Samples] = {}
        """Fine samples by the uuid, of GPUs that keep some."""
        self.lists: dict[str, tuple[str, int | None]] = {}
        """The function that lists processes and the bytes of a record, by the uuid."""
        self.failing = set[str]()
        """Sentences about readings that fail."""

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
        devices = [] if self._inventory is None else self._inventory.devices
        there = [device for device in devices if not device.lost_error]
        self.failing = {problem.message for problem in messages.failing(there)}
        answers = {}
        for device in there:
            self._note_buffers(device)
            for answer in _answers(device):
                answers[device.identity.uuid, answer.reading.name] = answer
        # At once: the driver's thread goes on where nobody waits for it any more.
        self.answers = answers
        return found

    def _note_buffers(self, device: NvmlDevice) -> None:
        uuid, samples = device.identity.uuid, device.values.get("busy_samples")
        if samples is not None:
            # The first look gives all that the driver holds.
            shift = device.sample_buffer.shift_seconds
            self.samples.setdefault(uuid, Samples(samples, device.sampled_unix, shift))
        listed = device.process_buffers["compute"].function_and_record_bytes
        if listed is not None:
            self.lists[uuid] = listed


def _answers(device: NvmlDevice) -> Iterator[Answer]:
    """Yield every reading that there can be of the GPU."""
    mig = device.identity.mig_parent_uuid is not None
    slots = {slot.reading.name: slot for slot in device.slots}
    for reading in readings.MIG_READINGS if mig else readings.READINGS:
        slot, unsupported = slots.get(reading.name), reading.name in device.unsupported
        taken = slot is not None and (reading.needed is None or reading.needed(device))
        seconds = None if slot is None or not taken else slot.last_seconds
        yield Answer(
            gpu=device.identity,
            reading=reading,
            supported=not unsupported,
            needed=taken or unsupported,
            error=slot.error if slot is not None and taken and slot.failures else 0,
            seconds_per_call=None if seconds is None else seconds / reading.calls,
            values=_values(device, reading),
        )


def _values(device: NvmlDevice, reading: Reading) -> dict[str, Any]:
    if reading.name in readings.LISTS:
        listed = device.listed.get(readings.LISTS[reading.name])
        return {} if listed is None else {"processes": len(listed)}
    if reading.name == readings.PROCESS_BUSY:
        return {} if device.process_busy is None else {"processes": len(device.process_busy)}
    if reading.name == readings.EVENTS:
        errors = None if device.xids is None else device.xids.values()
        return {} if errors is None else {"xid_errors": sum(one.times for one in errors)}
    if reading.name == readings.SAMPLES:
        return {}
    names = readings.fields_set(device, reading)
    return {name: value for name in names if (value := device.values.get(name)) is not None}
