"""The driver's array calls, each with a buffer that is made once and used again.

pynvml's own wrappers of these ask the driver twice a call (once for the size), which doubles
what takes milliseconds on real drivers, and turn each record into an object. The functions and
structures used here are still pynvml's. Every method raises ``pynvml.NVMLError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import byref, c_int32, c_uint, c_ulonglong, create_string_buffer
from struct import calcsize
from typing import Any

from gpuwatch.model import BusySample
from gpuwatch.sources import nvml_parse as parse
from gpuwatch.sources import nvml_tables as tables

FieldValues = dict[int, float | int]

GROWTH_TRIES = 4
"""A list can grow between learning its size and fetching it; past this many it is trouble."""
STUCK_SECONDS = 10.0


class FieldBatch:
    """Several field ids read by one ``nvmlDeviceGetFieldValues`` call.

    Ids this GPU does not have are left out of the following calls, so they cost nothing.
    """

    def __init__(self, nvml: Any, handle: Any, fields: tuple[tuple[int, int], ...]) -> None:
        self._nvml = nvml
        self._handle = handle
        self._prepare(fields)

    def _prepare(self, fields: tuple[tuple[int, int], ...]) -> None:
        self._fields = fields
        self._array = (self._nvml.c_nvmlFieldValue_t * len(fields))()
        for cell, (field, scope) in zip(self._array, fields, strict=True):
            cell.fieldId = field
            cell.scopeId = scope
        # Views into the array: making one for each access would cost as much as the call.
        self._cells = [
            (field, cell, cell.value) for (field, _), cell in zip(fields, self._array, strict=True)
        ]
        self._count = c_int32(len(fields))
        self._reference = byref(self._array)

    def read(self) -> FieldValues:
        """Values by field id; ids that gave none are absent.

        Raises when the whole call failed, the GPU is lost, or no id is left.
        """
        if not self._fields:
            raise self._nvml.NVMLError(tables.NOT_SUPPORTED)
        call = self._nvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        code = call(self._handle, self._count, self._reference)
        if code:
            raise self._nvml.NVMLError(code)
        values: FieldValues = {}
        permanent = False
        for field, cell, value in self._cells:
            failed = cell.nvmlReturn
            if not failed:
                kind = cell.valueType
                if kind < len(tables.VALUE_MEMBERS):
                    values[field] = getattr(value, tables.VALUE_MEMBERS[kind])
            elif failed in tables.PERMANENT_FIELD:
                permanent = True
            elif failed in tables.FATAL or len(self._cells) == 1:
                raise self._nvml.NVMLError(failed)
        if permanent:
            self._drop_unsupported()
        return values

    def _drop_unsupported(self) -> None:
        self._prepare(
            tuple(
                fields
                for fields, cell in zip(self._fields, self._array, strict=True)
                if cell.nvmlReturn not in tables.PERMANENT_FIELD
            )
        )
        if not self._fields:
            raise self._nvml.NVMLError(tables.NOT_SUPPORTED)

    def is_wide(self, field: int) -> bool:
        """Whether the last value of ``field`` was a 64-bit one."""
        return any(f == field and cell.valueType in tables.WIDE_TYPES for f, cell, _ in self._cells)


class BusySampleBuffer:
    """``nvmlDeviceGetSamples`` of the GPU utilisation, remembering the newest time stamp."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._capacity = 0
        self._buffer: Any = None
        self._value_type = c_uint(0)
        self._count = c_uint(0)
        self._last_microseconds = 0
        self._newest_at = 0.0

    def read(self, monotonic_seconds: float, unix_seconds: float) -> tuple[BusySample, ...]:
        """New samples, oldest first; at the first call all the driver still holds."""
        code = self._fetch(self._last_microseconds)
        samples = self._parse(code, unix_seconds)
        if samples:
            self._last_microseconds = round(samples[-1].at_unix_seconds * 1e6)
            self._newest_at = monotonic_seconds
        elif monotonic_seconds - self._newest_at >= STUCK_SECONDS:
            self._newest_at = monotonic_seconds
            self._rewind_after_clock_step(unix_seconds)
        return samples

    def _rewind_after_clock_step(self, unix_seconds: float) -> None:
        # The time stamps are wall time: after the clock was set back, every new one is older
        # than the last one seen, and the driver would answer "none newer" until it catches up.
        if self._fetch(0) == tables.SUCCESS:
            newest = parse.newest_stamp(self._filled(), unix_seconds)
            if 0 < newest < self._last_microseconds:
                self._last_microseconds = newest

    def _parse(self, code: int, unix_seconds: float) -> tuple[BusySample, ...]:
        if code in (tables.NOT_FOUND, tables.NO_DATA):
            return ()
        if code:
            raise self._nvml.NVMLError(code)
        if not self._count.value:
            return ()
        return parse.busy_samples(
            self._filled(), self._value_type.value, self._last_microseconds, unix_seconds
        )

    def _filled(self) -> memoryview:
        return memoryview(self._buffer)[: self._count.value * parse.SAMPLE_BYTES]

    def _fetch(self, last_microseconds: int) -> int:
        for _ in range(GROWTH_TRIES):
            if self._buffer is None:
                code = self._ask_size()
                if code or not self._capacity:
                    return code
            self._count.value = self._capacity
            code = self._call(last_microseconds, self._buffer)
            if code != tables.INSUFFICIENT_SIZE:
                return code
            self._buffer = None
        return tables.INSUFFICIENT_SIZE

    def _ask_size(self) -> int:
        self._count.value = 0
        code = self._call(0, None)
        if code == tables.SUCCESS:
            self._capacity = self._count.value
            self._count.value = 0
            if self._capacity:
                self._buffer = create_string_buffer(self._capacity * parse.SAMPLE_BYTES)
        return code

    def _call(self, last_microseconds: int, buffer: Any) -> int:
        call = self._nvml._nvmlGetFunctionPointer("nvmlDeviceGetSamples")
        code: int = call(
            self._handle,
            tables.SAMPLING_GPU_UTILIZATION,
            c_ulonglong(last_microseconds),
            byref(self._value_type),
            byref(self._count),
            buffer,
        )
        return code


class ProcessBuffer:
    """One of the driver's process lists, in the newest version the driver has."""

    def __init__(self, nvml: Any, handle: Any, kind: str) -> None:
        """``kind``: ``Compute``, ``Graphics`` or ``MPSCompute``, as in NVML's function names."""
        self._nvml = nvml
        self._handle = handle
        self._kind = kind
        self._version = 3
        self._capacity = 32
        self._buffer: Any = None
        self._count = c_uint(0)

    def read(self) -> Iterator[tuple[parse.ProcessSlot, int | None]]:
        """((pid, GPU instance), bytes) of each listed process."""
        call = self._function()
        width = calcsize(parse.PROCESS_FORMATS[self._version])
        for _ in range(GROWTH_TRIES):
            if self._buffer is None:
                self._buffer = create_string_buffer(self._capacity * width)
            self._count.value = self._capacity
            code = call(self._handle, byref(self._count), self._buffer)
            if code != tables.INSUFFICIENT_SIZE:
                break
            # Room for those that start meanwhile, as NVML's documentation advises.
            self._capacity = max(self._count.value, self._capacity) * 2
            self._buffer = None
        if code:
            raise self._nvml.NVMLError(code)
        filled = memoryview(self._buffer)[: self._count.value * width]
        return parse.processes(filled, self._version)

    def _function(self) -> Any:
        while True:
            suffix = f"_v{self._version}" if self._version > 1 else ""
            name = f"nvmlDeviceGet{self._kind}RunningProcesses{suffix}"
            try:
                return self._nvml._nvmlGetFunctionPointer(name)
            except self._nvml.NVMLError as error:
                if error.value != tables.FUNCTION_NOT_FOUND or self._version == 1:
                    raise
                self._version -= 1
                self._buffer = None


class ProcessBusyBuffer:
    """``nvmlDeviceGetProcessUtilization``, remembering the newest time stamp."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._capacity = 64
        self._buffer: Any = None
        self._count = c_uint(0)
        self._last_microseconds = 0
        self._newest_at = 0.0

    def read(
        self, monotonic_seconds: float, unix_seconds: float, window_seconds: float
    ) -> dict[int, float]:
        """SM percent by pid; processes that are not in it were idle.

        ``window_seconds``: how old, against the newest, a sample may be to count as "now".
        """
        if not self._last_microseconds:
            # The buffer can hold what processes did long ago; only the last moments are news.
            self._last_microseconds = max(1, round((unix_seconds - window_seconds) * 1e6))
        code = self._fetch(self._last_microseconds)
        if code and code != tables.NOT_FOUND:
            raise self._nvml.NVMLError(code)
        busy: dict[int, float] = {}
        newest = self._last_microseconds
        if not code:
            busy, newest = parse.process_busy(
                self._filled(), self._last_microseconds, unix_seconds, window_seconds
            )
        if newest > self._last_microseconds:
            self._last_microseconds = newest
            self._newest_at = monotonic_seconds
        elif monotonic_seconds - self._newest_at >= STUCK_SECONDS:
            self._newest_at = monotonic_seconds
            self._rewind_after_clock_step(unix_seconds)
        return busy

    def _rewind_after_clock_step(self, unix_seconds: float) -> None:
        if self._fetch(0) == tables.SUCCESS:
            newest = parse.newest_busy_stamp(self._filled(), unix_seconds)
            if 0 < newest < self._last_microseconds:
                self._last_microseconds = newest

    def _filled(self) -> memoryview:
        return memoryview(self._buffer)[: self._count.value * calcsize(parse.UTILIZATION_FORMAT)]

    def _fetch(self, last_microseconds: int) -> int:
        call = self._nvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")
        code = tables.SUCCESS
        for _ in range(GROWTH_TRIES):
            if self._buffer is None:
                self._buffer = create_string_buffer(
                    self._capacity * calcsize(parse.UTILIZATION_FORMAT)
                )
            self._count.value = self._capacity
            code = call(
                self._handle,
                self._buffer,
                byref(self._count),
                c_ulonglong(last_microseconds),
            )
            if code != tables.INSUFFICIENT_SIZE:
                break
            self._capacity = max(self._count.value, self._capacity) * 2
            self._buffer = None
        return code
