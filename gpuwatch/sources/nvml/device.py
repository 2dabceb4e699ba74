"""One GPU (or MIG instance): its handle, its readings, and what each error means for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from time import perf_counter
from typing import Any

from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading, ReadingAge
from gpuwatch.sources.gpu_process import GpuProcess
from gpuwatch.sources.nvml import parse, readings, tables
from gpuwatch.sources.nvml.buffers import (
    BusySampleBuffer,
    FieldBatch,
    ProcessBuffer,
    ProcessBusyBuffer,
)
from gpuwatch.sources.nvml.gpm import GpmReader
from gpuwatch.sources.nvml.schedule import (
    LASTED_READS,
    RARELY_SECONDS,
    TRANSIENT_SECONDS,
    Reading,
    Slot,
)

EMPTY_READING = GpuReading()
_NONE_LISTED: list[tuple[parse.ProcessSlot, int | None]] = []


class DriverGoneError(Exception):
    """The driver was unloaded or reset under us; every handle is void."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Tally:
    """Driver time and calls since the last snapshot, over all GPUs.

    ``timer`` gives seconds on any clock; its differences are what calls are said to take.
    """

    __slots__ = ("calls", "seconds", "timer")

    def __init__(self, timer: Callable[[], float] = perf_counter) -> None:
        self.timer = timer
        self.calls = 0
        self.seconds = 0.0

    def count(self, started: float, calls: int) -> None:
        """Add ``calls`` made since ``started``."""
        self.seconds += self.timer() - started
        self.calls += calls

    def take(self) -> tuple[float, int]:
        """(seconds, calls) so far; counting begins anew."""
        taken = self.seconds, self.calls
        self.seconds, self.calls = 0.0, 0
        return taken


class NvmlDevice:
    """Reads one GPU. Not for two threads at once."""

    def __init__(
        self,
        nvml: Any,
        handle: Any,
        identity: GpuIdentity,
        *,
        now: float,
        interval_seconds: float,
        tally: Tally,
        parent_handle: Any = None,
    ) -> None:
        self.nvml = nvml
        self.handle = handle
        self.identity = identity
        self.parent_handle = parent_handle
        self.tally = tally
        self.now = now
        self.unix = 0.0
        self.interval_seconds = interval_seconds
        self.period_factor = 1.0
        self.learning: Iterator[None] | None = None
        """Learns more of its identity at each step, until all of it is known."""

        self.lost_error = 0
        self.lost_since_unix = 0.0
        self.probe_at = 0.0

        self.values = parse.Values()
        self.steps: dict[str, int] = {}
        self.before: dict[int, tuple[float, float]] = {}
        self.unsupported: set[str] = set()
        self.troubled: list[Slot] = []
        self.gpm_gives: set[str] = set()
        self.pcie_from_counters = False
        self.processes: tuple[GpuProcess, ...] = ()
        self.listed: dict[str, list[tuple[parse.ProcessSlot, int | None]]] = {}
        """What each of the driver's lists gave; none that failed or does not exist."""
        self._merged_lists = (_NONE_LISTED, _NONE_LISTED, _NONE_LISTED)
        self.process_busy: dict[int, float] | None = None
        self._merged: parse.ProcessTable = {}
        self._rows_before: dict[parse.ProcessSlot, GpuProcess] = {}
        self._processes_changed = False
        self.slots = [self._slot(reading) for reading in self._readings()]

    def _readings(self) -> tuple[Reading, ...]:
        mig = self.identity.mig_parent_uuid is not None
        return readings.MIG_READINGS if mig else readings.READINGS

    def _slot(self, reading: Reading) -> Slot:
        # What is known to be slow must not hold up the first picture.
        delay = 0.2 if reading.expected_seconds else 0.0
        return Slot(reading, self.now + delay)

    # What the readings use.

    @cached_property
    def sample_buffer(self) -> BusySampleBuffer:
        return BusySampleBuffer(self.nvml, self.handle)

    @cached_property
    def power_fields(self) -> FieldBatch:
        # By itself: the instant value costs microseconds, while the average takes milliseconds
        # on real drivers and would be paid for in the same call.
        return self._fields(tables.FIELD_POWER_INSTANT)

    @cached_property
    def power_average_fields(self) -> FieldBatch:
        return self._fields(tables.FIELD_POWER_AVERAGE)

    @property
    def power_usage_is_average(self) -> bool:
        """``nvmlDeviceGetPowerUsage`` is a one-second average from Ampere on, but for GA100."""
        capability = (self.identity.compute_capability or "99.0").split(".")
        return (int(capability[0]), int(capability[1])) > (8, 0)

    @cached_property
    def accumulators(self) -> tuple[tuple[int, str], ...]:
        return tuple(tables.accumulator_fields(self.identity.driver_version).items())

    @cached_property
    def counter_fields(self) -> FieldBatch:
        links = (tables.FIELD_NVLINK_DATA_RX_KIB, tables.FIELD_NVLINK_DATA_TX_KIB)
        single = (
            tables.FIELD_ENERGY_MILLIJOULES,
            tables.FIELD_MEMORY_TEMPERATURE,
            tables.FIELD_PCIE_RX_BYTES,
            tables.FIELD_PCIE_TX_BYTES,
            *(field for field, _ in self.accumulators),
        )
        return FieldBatch(
            self.nvml,
            self.handle,
            tuple((field, 0) for field in single)
            + tuple((field, tables.SCOPE_ALL_LINKS) for field in links),
        )

    @cached_property
    def health_fields(self) -> FieldBatch:
        return self._fields(
            tables.FIELD_ECC_CORRECTED_VOLATILE,
            tables.FIELD_ECC_UNCORRECTED_VOLATILE,
            tables.FIELD_REMAPPED_CORRECTABLE,
            tables.FIELD_REMAPPED_UNCORRECTABLE,
            tables.FIELD_REMAPPED_PENDING,
            tables.FIELD_REMAPPED_FAILURE,
        )

    def _fields(self, *fields: int) -> FieldBatch:
        return FieldBatch(self.nvml, self.handle, tuple((field, 0) for field in fields))

    @cached_property
    def gpm(self) -> GpmReader:
        card = self.handle if self.parent_handle is None else self.parent_handle
        reader = GpmReader(self.nvml, card, self.identity.mig_instance)
        if not reader.supported():
            raise self.nvml.NVMLError(tables.NOT_SUPPORTED)
        return reader

    @property
    def pcie_rates_from_elsewhere(self) -> bool:
        return self.pcie_from_counters or "pcie" in self.gpm_gives

    @cached_property
    def process_buffers(self) -> dict[str, ProcessBuffer]:
        kinds = {"compute": "Compute", "graphics": "Graphics", "mps": "MPSCompute"}
        return {kind: ProcessBuffer(self.nvml, self.handle, name) for kind, name in kinds.items()}

    @cached_property
    def process_busy_buffer(self) -> ProcessBusyBuffer:
        return ProcessBusyBuffer(self.nvml, self.handle)

    def growth(self, field: int, got: dict[int, float | int], unit: float = 1.0) -> float | None:
        """Growth a second of the counter ``field`` since it was last read."""
        value = got.get(field)
        if value is None:
            return None
        rate = parse.rate(self.before.get(field), self.now, value, unit)
        self.before[field] = (self.now, value)
        return rate

    @property
    def _process_table(self) -> parse.ProcessTable:
        compute, mps, graphics = lists = (
            self.listed.get("compute", _NONE_LISTED),
            self.listed.get("mps", _NONE_LISTED),
            self.listed.get("graphics", _NONE_LISTED),
        )
        if any(new is not old for new, old in zip(lists, self._merged_lists, strict=True)):
            self._merged_lists = lists
            most = self.identity.memory_total_bytes
            self._merged = parse.merge_processes([*compute, *mps], graphics, most)
        return self._merged

    def process_memory_sum(self) -> int | None:
        """Bytes over this GPU's processes; ``None`` when they are not known."""
        if "compute" not in self.listed:
            return None
        if any(slot.reading.name in readings.LISTS for slot in self.troubled):
            return None
        if readings.PROCESS_LIST in self.unsupported:
            return None
        sizes = [used for used, _ in self._process_table.values()]
        known = [used for used in sizes if used is not None]
        return None if sizes and not known else sum(known)

    # One look.

    def due(self, now: float, unix: float, horizon: float) -> list[Slot]:
        """Begin a look; the readings that are due by ``horizon``."""
        self.now = now
        self.unix = unix
        due = []
        for slot in self.slots:
            reading = slot.reading
            if reading.between and not slot.failures:
                self.values.update(reading.between)
            if slot.due_at <= horizon:
                if reading.needed is None or reading.needed(self):
                    due.append(slot)
                else:
                    slot.due_at = now + reading.period_seconds
        return due

    def take(self, slot: Slot) -> bool:
        """Take one reading; whether the GPU is still there. Raises ``DriverGoneError``."""
        error = 0
        tally = self.tally
        start = tally.timer()
        try:
            slot.reading.read(self)
        except self.nvml.NVMLError as failure:
            error = failure.value
        # An answer nobody foresaw costs this reading, and nothing else.
        except Exception:
            error = tables.SENSELESS
        seconds = tally.timer() - start
        tally.seconds += seconds
        tally.calls += slot.reading.calls
        slot.measured(self.now, seconds)
        if error:
            return self._failed(slot, error)
        self._look_for_gaps(slot)
        slot.worked = slot.worked or bool(slot.gave) or not slot.reading.fields
        if slot.failures:
            slot.works()
            self.troubled.remove(slot)
        if not slot.reading.fields:
            self._processes_changed = True
        return True

    def _look_for_gaps(self, slot: Slot) -> None:
        names = readings.fields_set(self, slot.reading)
        given = {name for name in names if self.values.get(name) is not None}
        if slot.gave.intersection(names) <= given:
            slot.lacking_reads = 0
        else:
            slot.lacking_since_unix = slot.lacking_since_unix if slot.lacking_reads else self.unix
            slot.lacking_reads += 1
        slot.gave |= given

    def drop_outdated(self, slot: Slot) -> None:
        """Forget a value whose reading had to wait for too long."""
        if slot.outdated(self.now, self.interval_seconds):
            self._forget(slot.reading)

    def _failed(self, slot: Slot, error: int) -> bool:
        if error in tables.DRIVER_GONE:
            raise DriverGoneError(error)
        if error in tables.LOST:
            self.lose(error)
            return False
        self._forget(slot.reading)
        if error in tables.PERMANENT and not slot.worked:
            self.unsupported.add(slot.reading.name)
            # A new list: the caller may be walking the old one.
            self.slots = [other for other in self.slots if other is not slot]
            if slot in self.troubled:
                self.troubled.remove(slot)
            return True
        if not slot.failures:
            self.troubled.append(slot)
        slot.failed(error, self.unix)
        rarely = error == tables.NO_PERMISSION or (
            error in tables.RARELY_RETRIED and slot.failures >= LASTED_READS
        )
        slot.due_at = max(slot.due_at, self.now + (RARELY_SECONDS if rarely else 0.0))
        if not rarely:
            slot.due_at = min(slot.due_at, self.now + max(TRANSIENT_SECONDS, slot.cost * 100))
        return True

    def _forget(self, reading: Reading) -> None:
        for name in readings.fields_set(self, reading):
            self.values[name] = None
        if reading.name in readings.LISTS:
            self.listed.pop(readings.LISTS[reading.name], None)
        elif reading.name == readings.PROCESS_BUSY:
            self.process_busy = None
        elif reading.name == readings.GPM_NAME:
            self.gpm_gives.clear()
        if not reading.fields:
            self._processes_changed = True

    def lose(self, error: int) -> None:
        """The GPU stopped answering: nothing that was read of it holds any more."""
        self.lost_error = error
        self.lost_since_unix = self.unix
        self.values.clear()
        self.before = {}
        self.troubled = []
        self.processes = ()
        self.listed = {}

    # What came of it.

    def gpu(self) -> Gpu:
        if self.lost_error:
            return Gpu(identity=self.identity, reading=EMPTY_READING, lost=True)
        late = tuple(self._late())
        return Gpu(identity=self.identity, reading=GpuReading(**self.values, late_readings=late))

    def _late(self) -> Iterator[ReadingAge]:
        for slot in self.slots:
            reading = slot.reading
            if not slot.late(self.now) or slot.failures:
                continue
            for name in readings.fields_set(self, reading):
                # Samples, and what is said of the time since the look before, carry their times.
                if self.values.get(name) is not None and name not in reading.between:
                    yield ReadingAge(name, slot.age(self.now))
            if reading.process_field is not None:
                yield ReadingAge(reading.process_field, slot.age(self.now))

    def gpu_processes(self, instances: dict[int, str]) -> tuple[GpuProcess, ...]:
        """This GPU's processes; ``instances`` gives the uuid of each of its MIG instances."""
        if self._processes_changed:
            self._processes_changed = False
            self.processes = tuple(self._rows(instances))
        return self.processes

    def _rows(self, instances: dict[int, str]) -> list[GpuProcess]:
        busy = self.process_busy
        own_instance, own_uuid = self.identity.mig_instance, self.identity.uuid
        rows: dict[parse.ProcessSlot, GpuProcess] = {}
        for slot, (used, kind) in self._process_table.items():
            pid, listed_instance = slot
            instance = own_instance if listed_instance is None else listed_instance
            uuid = own_uuid if instance is None else instances.get(instance, own_uuid)
            share = None if busy is None or instance is not None else busy.get(pid, 0.0)
            row = self._rows_before.get(slot)
            if (
                row is None
                or row.busy_percent != share
                or row.memory_bytes != used
                or row.kind != kind
                or row.gpu_uuid != uuid
            ):
                row = GpuProcess(pid, uuid, used, share, kind, instance)
            rows[slot] = row
        self._rows_before = rows
        return list(rows.values())

    def close(self) -> None:
        """Give back what the driver holds for us. The library must still be up."""
        reader = self.__dict__.get("gpm")
        if reader is not None:
            reader.close()
