"""The driver's lists, samples and batches, each with a buffer that is made once and used again.

pynvml's own wrappers of these ask the driver twice a call (once for the size), which doubles
what takes milliseconds on real drivers, and turn each record into an object. The functions and
structures used here are still pynvml's. Every method raises ``pynvml.NVMLError``.

The driver writes where it likes in a buffer: what it was asked is written anew for each call.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import byref, c_int32, c_uint, c_ulonglong, create_string_buffer, memset
from struct import Struct
from typing import Any

from gpuwatch.core.model import BusySample
from gpuwatch.sources.nvml import parse, tables

GROWTH_TRIES = 4
"""A list can grow between learning its size and fetching it; past this many it is trouble."""
RECORDS_MAX = 1 << 16
"""No list of a driver is longer; a count beyond is rubbish, and room is never made for it."""
STUCK_SECONDS = 10.0
_MARK = b"\xa5"
"""No value that a driver puts last in a record of a process (memory, an instance, or "not
available") ends with it."""
_NO_SAMPLES = frozenset({tables.NOT_FOUND, tables.NO_DATA})
_NO_PROCESSES = frozenset({tables.NOT_FOUND})


EVENTS_AT_ONCE = 64
"""Events that one look takes at most."""


class EventSet:
    """Events of one GPU, which the driver reports by itself. A set for each GPU, since waiting for
    several fails as soon as one of them is lost."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._set: Any = None

    def open(self) -> None:
        """Ask the driver to report from now on. Raises ``NVMLError``."""
        nvml = self._nvml
        kinds = nvml.nvmlDeviceGetSupportedEventTypes(self._handle) & tables.EVENTS_WANTED
        if not kinds & tables.EVENT_XID:
            raise nvml.NVMLError(tables.NOT_SUPPORTED)
        self._set = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(self._handle, kinds, self._set)
        except nvml.NVMLError:
            self.close()
            raise

    def read(self) -> Iterator[tuple[int, int]]:
        """Yield the kind and the number of each event since the read before, without waiting.
        Raises ``NVMLError``."""
        nvml = self._nvml
        for _ in range(EVENTS_AT_ONCE):
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, 0)
            except nvml.NVMLError as error:
                if error.value == tables.TIMEOUT:
                    return
                raise
            yield event.eventType, event.eventData

    def close(self) -> None:
        """Let the set go; a driver that is gone has let it go itself."""
        events, self._set = self._set, None
        if events is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(events)


class FieldBatch:
    """Several field ids read by one ``nvmlDeviceGetFieldValues`` call.

    Ids this GPU does not have are left out of the following calls, so they cost nothing; one that
    ever gave a value is not such an id.
    """

    def __init__(self, nvml: Any, handle: Any, fields: tuple[tuple[int, int], ...]) -> None:
        self._nvml = nvml
        self._handle = handle
        self._gave: set[int] = set()
        self._prepare(fields)

    def _prepare(self, fields: tuple[tuple[int, int], ...]) -> None:
        self._fields = fields
        self._ids = {field for field, _ in fields}
        self._array = (self._nvml.c_nvmlFieldValue_t * len(fields))()
        for cell, (field, scope) in zip(self._array, fields, strict=True):
            cell.fieldId = field
            cell.scopeId = scope
        self._raw = memoryview(self._array).cast("B")
        self._asked = bytes(self._raw)
        self._count = c_int32(len(fields))
        self._reference = byref(self._array)

    def read(self) -> parse.FieldValues:
        """Return values by field id; ids that gave none are absent. Raises ``NVMLError`` when the
        whole call failed, the GPU is lost, or no id is left."""
        if not self._fields:
            raise self._nvml.NVMLError(tables.NOT_SUPPORTED)
        call = self._nvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        self._raw[:] = self._asked
        code = call(self._handle, self._count, self._reference)
        if code:
            raise self._nvml.NVMLError(code)
        values, failures = parse.field_values(self._raw)
        if values.keys() | failures.keys() != self._ids:
            raise self._nvml.NVMLError(tables.SENSELESS)
        self._gave |= values.keys()
        if failures:
            self._handle_failures(failures)
        return values

    def _handle_failures(self, failures: dict[int, int]) -> None:
        for code in failures.values():
            if code in tables.FATAL:
                raise self._nvml.NVMLError(code)
        none_answered = failures.keys() == self._ids
        left = tuple(
            (field, scope)
            for field, scope in self._fields
            if field in self._gave or failures.get(field) not in tables.PERMANENT_FIELD
        )
        if len(left) < len(self._fields):
            self._prepare(left)
        if not left:
            raise self._nvml.NVMLError(tables.NOT_SUPPORTED)
        if none_answered:
            raise self._nvml.NVMLError(next(iter(failures.values())))


class _Records:
    """Room for a list that the driver fills, made larger with the list, at most to ``RECORDS_MAX``;
    after a failure it is as small as at first."""

    def __init__(self, nvml: Any, record_bytes: int, capacity: int = 0) -> None:
        self._nvml = nvml
        self._record_bytes = record_bytes
        self._first_capacity = self._capacity = capacity
        self._buffer: Any = None
        self._count = c_uint(0)
        self._count_reference = byref(self._count)

    def fetch(self, call: Callable[[Any, Any], int], ask_size: bool = False) -> int:
        """Return the code of ``call(count, buffer)``, made until the list fits. ``ask_size``: the
        first is for the size, without a buffer. Raises ``NVMLError`` for a list that never fits
        and for a count that cannot be."""
        for _ in range(GROWTH_TRIES):
            if self._buffer is None and ask_size:
                self._count.value = 0
                code = call(self._count_reference, None)
                if code or not self._count.value:
                    return code
                self._capacity = self._believed(RECORDS_MAX)
            if self._buffer is None:
                self._buffer = create_string_buffer(self._capacity * self._record_bytes)
            self._count.value = self._capacity
            code = call(self._count_reference, self._buffer)
            if code == tables.SUCCESS:
                self._believed(self._capacity)
            if code != tables.INSUFFICIENT_SIZE:
                return code
            # Room for those that start meanwhile, as NVML's documentation advises.
            longer = max(self._believed(RECORDS_MAX), self._capacity) * 2
            self._capacity = min(longer, RECORDS_MAX)
            self._buffer = None
        self._forget()
        raise self._nvml.NVMLError(tables.INSUFFICIENT_SIZE)

    def filled(self) -> memoryview:
        """Return the records of the last call, which succeeded."""
        if self._buffer is None:
            return memoryview(b"")
        return memoryview(self._buffer)[: self._count.value * self._record_bytes]

    def _believed(self, most: int) -> int:
        if self._count.value <= most:
            return self._count.value
        self._forget()
        raise self._nvml.NVMLError(tables.SENSELESS)

    def _forget(self) -> None:
        self._buffer = None
        self._capacity = self._first_capacity


class _StampedBuffer:
    """Records with wall time stamps, of which the driver is asked for those since the newest."""

    def __init__(
        self, nvml: Any, handle: Any, record: Struct, stamp_place: int, capacity: int = 0
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._record = record
        self._stamp_place = stamp_place
        self._records = _Records(nvml, record.size, capacity)
        self._last_microseconds = 0
        self._newest_at = 0.0

    def _news(self, empty: frozenset[int]) -> memoryview | None:
        """Return new records; ``None`` for none, which the driver says with a code of ``empty``."""
        code = self._fetch(self._last_microseconds)
        if code and code not in empty:
            raise self._nvml.NVMLError(code)
        return None if code else self._records.filled()

    def _seen(self, newest: int, monotonic_seconds: float, unix_seconds: float) -> None:
        """Ask from ``newest`` on next time, or, after a clock step, from what is newest then."""
        if newest > self._last_microseconds:
            self._last_microseconds = newest
            self._newest_at = monotonic_seconds
        elif monotonic_seconds - self._newest_at >= STUCK_SECONDS:
            self._newest_at = monotonic_seconds
            # The time stamps are wall time: after the clock was set back, every new one is older
            # than the last one seen, and the driver would answer "none newer" until it catches up.
            if self._fetch(0) == tables.SUCCESS:
                records = self._record.iter_unpack(self._records.filled())
                stamps = (record[self._stamp_place] for record in records)
                newest = parse.newest_stamp(stamps, unix_seconds)
                if 0 < newest < self._last_microseconds:
                    self._last_microseconds = newest

    def _fetch(self, last_microseconds: int) -> int:
        raise NotImplementedError


class BusySampleBuffer(_StampedBuffer):
    """``nvmlDeviceGetSamples`` of the GPU utilisation."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        super().__init__(nvml, handle, parse.SAMPLE_RECORDS[0], 0)
        self.shift_seconds = 0.0
        """See ``parse.clock_shift``."""
        self._last_seen = c_ulonglong(0)
        self._value_type = c_uint(0)
        self._value_type_reference = byref(self._value_type)

    def read(self, monotonic_seconds: float, unix_seconds: float) -> tuple[BusySample, ...]:
        """Return new samples, oldest first; at the first call all the driver still holds."""
        raw = self._news(_NO_SAMPLES)
        samples: tuple[BusySample, ...] = ()
        if raw is not None:
            stamps = [stamp for stamp, _ in self._record.iter_unpack(raw)]
            self.shift_seconds = parse.clock_shift(stamps, unix_seconds, self.shift_seconds)
            samples = parse.busy_samples(
                raw,
                self._value_type.value,
                self._last_microseconds,
                unix_seconds,
                self.shift_seconds,
            )
        shift = self.shift_seconds
        newest = round((samples[-1].at_unix_seconds - shift) * 1e6) if samples else 0
        self._seen(newest, monotonic_seconds, unix_seconds - shift)
        return samples

    def _fetch(self, last_microseconds: int) -> int:
        call = self._nvml._nvmlGetFunctionPointer("nvmlDeviceGetSamples")

        def samples(*list_and_size: Any) -> int:
            self._last_seen.value = last_microseconds if list_and_size[1] is not None else 0
            kind, value_type = tables.SAMPLING_GPU_UTILIZATION, self._value_type_reference
            return int(call(self._handle, kind, self._last_seen, value_type, *list_and_size))

        return self._records.fetch(samples, ask_size=True)


class ProcessBuffer:
    """A process list of the driver, in the newest version the driver has.

    Each record has room for more than any driver writes, and the room is marked before each call,
    so that what was written shows how long the driver's records are.
    """

    def __init__(self, nvml: Any, handle: Any, kind: str) -> None:
        """``kind``: ``Compute``, ``Graphics`` or ``MPSCompute``, as in NVML's function names."""
        self._nvml = nvml
        self._handle = handle
        self._kind = kind
        self._call: Any = None
        self._name = ""
        self._records = _Records(nvml, parse.PROCESS_BYTES_MAX, 32)
        self._last = (0, b"")
        self._listed: parse.ProcessList = []
        self.record_bytes: int | None = None
        """Size of the driver's records; ``None`` until a process was listed."""

    def read(self) -> parse.ProcessList:
        """Return ((pid, GPU instance), bytes) of each listed process: the same list object as
        before where nothing changed. Raises ``NVMLError`` for records that cannot be told apart."""
        if self._call is None:
            self._call = self._function()
        code = self._records.fetch(self._fill)
        if code:
            raise self._nvml.NVMLError(code)
        room = bytes(self._records.filled())
        seen = len(room) // parse.PROCESS_BYTES_MAX, room.rstrip(_MARK)
        if seen != self._last:
            self._listed = self._parsed(*seen)
            self._last = seen
        return self._listed

    @property
    def function_and_record_bytes(self) -> tuple[str, int | None] | None:
        """Name of the function that gave the list, and the size of its records (``None`` until one
        was listed); ``None`` before it was called."""
        return None if self._call is None else (self._name, self.record_bytes)

    def _fill(self, count: Any, buffer: Any) -> int:
        memset(buffer, _MARK[0], len(buffer))
        return int(self._call(self._handle, count, buffer))

    def _parsed(self, count: int, written: bytes) -> parse.ProcessList:
        if not count:
            return []
        listed, size = parse.processes(written, count)
        if not listed:
            raise self._nvml.NVMLError(tables.UNREADABLE_LIST)
        self.record_bytes = size
        return listed

    def _function(self) -> Any:
        for suffix in ("_v3", "_v2", ""):
            self._name = f"nvmlDeviceGet{self._kind}RunningProcesses{suffix}"
            try:
                return self._nvml._nvmlGetFunctionPointer(self._name)
            except self._nvml.NVMLError as error:
                if error.value != tables.FUNCTION_NOT_FOUND or not suffix:
                    raise
        raise AssertionError("the oldest version was found or raised")


class ProcessBusyBuffer(_StampedBuffer):
    """``nvmlDeviceGetProcessUtilization``."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        super().__init__(nvml, handle, parse.BUSY_RECORD, 1, capacity=64)

    def read(
        self, monotonic_seconds: float, unix_seconds: float, window_seconds: float
    ) -> dict[int, float]:
        """Return the SM percent by pid; processes that are not in it were idle.
        ``window_seconds``: how old, against the newest, a sample may be to count as "now"."""
        if not self._last_microseconds:
            # The buffer can hold what processes did long ago; only the last moments are news.
            self._last_microseconds = max(1, round((unix_seconds - window_seconds) * 1e6))
        raw = self._news(_NO_PROCESSES)
        busy: dict[int, float] = {}
        newest = 0
        if raw is not None:
            busy, newest = parse.process_busy(
                raw, self._last_microseconds, unix_seconds, window_seconds
            )
        self._seen(newest, monotonic_seconds, unix_seconds)
        return busy

    def _fetch(self, last_microseconds: int) -> int:
        call = self._nvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")
        last = c_ulonglong(last_microseconds)
        return self._records.fetch(lambda count, buffer: call(self._handle, buffer, count, last))


_METRICS = {**tables.GPM_ACTIVITIES, **tables.GPM_RATES}
_METRIC_RECORD = Struct("@IId24x")
"""``nvmlGpmMetric_t``: id, error, value, three pointers to names."""


class GpmReader:
    """Metrics of one GPU or MIG instance, each the difference of two samples. Two buffers are used
    in turn, so each reading covers the time since the one before. Methods raise ``NVMLError``."""

    def __init__(self, nvml: Any, handle: Any, gpu_instance: int | None = None) -> None:
        """``handle`` is the card's, also for a MIG instance (``gpu_instance``)."""
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise nvml.NVMLError(tables.NOT_SUPPORTED)
        self._nvml = nvml
        self._handle = handle
        self._gpu_instance = gpu_instance
        self._previous: Any = None
        self._spare: Any = None
        self._query = query = nvml.c_nvmlGpmMetricsGet_t()
        query.version = nvml.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics = len(_METRICS)
        for place, metric in enumerate(_METRICS):
            query.metrics[place].metricId = metric
        # The records are read as bytes: pynvml's structures decode every attribute in Python.
        first, size = type(query).metrics.offset, len(_METRICS) * _METRIC_RECORD.size
        self._answers = memoryview(query).cast("B")[first : first + size]
        self._asked = bytes(self._answers)

    def read(self) -> dict[str, float]:
        """Return the reading fields that could be had; empty at the first call, which only takes a
        sample."""
        if self._spare is None:
            self._spare = self._nvml.nvmlGpmSampleAlloc()
        if self._gpu_instance is None:
            self._nvml.nvmlGpmSampleGet(self._handle, self._spare)
        else:
            self._nvml.nvmlGpmMigSampleGet(self._handle, self._gpu_instance, self._spare)
        if self._previous is None:
            self._previous, self._spare = self._spare, None
            return {}
        self._answers[:] = self._asked
        self._query.sample1, self._query.sample2 = self._previous, self._spare
        self._previous, self._spare = self._spare, self._previous
        self._nvml.nvmlGpmMetricsGet(self._query)
        values = {}
        records = _METRIC_RECORD.iter_unpack(self._answers)
        for (metric, name), (_, code, number) in zip(_METRICS.items(), records, strict=True):
            convert = parse.activity if metric in tables.GPM_ACTIVITIES else parse.mebibytes
            value = None if code else convert(number)
            if value is not None:
                values[name] = value
        return values

    def close(self) -> None:
        for sample in (self._previous, self._spare):
            if sample is not None:
                try:
                    self._nvml.nvmlGpmSampleFree(sample)
                except self._nvml.NVMLError:
                    break
        self._previous = self._spare = None
