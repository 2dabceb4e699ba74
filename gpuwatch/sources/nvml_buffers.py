"""The driver's array calls, each with a buffer that is made once and used again.

pynvml's own wrappers of these ask the driver twice a call (once for the size), which doubles
what takes milliseconds on real drivers, and turn each record into an object. The functions and
structures used here are still pynvml's. Every method raises ``pynvml.NVMLError``.
"""

from __future__ import annotations

from ctypes import byref, c_int32, c_uint, c_ulonglong, create_string_buffer
from typing import Any

from gpuwatch.model import BusySample
from gpuwatch.sources import nvml_parse as parse
from gpuwatch.sources import nvml_tables as tables

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
        self._raw = memoryview(self._array).cast("B")
        self._count = c_int32(len(fields))
        self._reference = byref(self._array)

    def read(self) -> parse.FieldValues:
        """Values by field id; ids that gave none are absent.

        Raises when the whole call failed, the GPU is lost, or no id is left.
        """
        if not self._fields:
            raise self._nvml.NVMLError(tables.NOT_SUPPORTED)
        call = self._nvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        code = call(self._handle, self._count, self._reference)
        if code:
            raise self._nvml.NVMLError(code)
        values, failures = parse.field_values(self._raw)
        if failures:
            self._handle_failures(failures)
        return values

    def _handle_failures(self, failures: dict[int, int]) -> None:
        for code in failures.values():
            if code in tables.FATAL:
                raise self._nvml.NVMLError(code)
        left = tuple(
            (field, scope)
            for field, scope in self._fields
            if failures.get(field, tables.SUCCESS) not in tables.PERMANENT_FIELD
        )
        if len(left) < len(self._fields):
            self._prepare(left)
        if not left:
            raise self._nvml.NVMLError(tables.NOT_SUPPORTED)
        if len(failures) == 1 == len(self._fields):
            raise self._nvml.NVMLError(*failures.values())


class BusySampleBuffer:
    """``nvmlDeviceGetSamples`` of the GPU utilisation, remembering the newest time stamp."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._capacity = 0
        self._buffer: Any = None
        self._last_seen = c_ulonglong(0)
        self._value_type = c_uint(0)
        self._value_type_reference = byref(self._value_type)
        self._count = c_uint(0)
        self._count_reference = byref(self._count)
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
        self._last_seen.value = last_microseconds
        code: int = call(
            self._handle,
            tables.SAMPLING_GPU_UTILIZATION,
            self._last_seen,
            self._value_type_reference,
            self._count_reference,
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
        self._count_reference = byref(self._count)
        self._call: Any = None
        self._last = b""
        self._listed: list[tuple[parse.ProcessSlot, int | None]] = []

    def read(self) -> list[tuple[parse.ProcessSlot, int | None]]:
        """((pid, GPU instance), bytes) of each listed process: the same list object as before
        where nothing changed."""
        call = self._call = self._call or self._function()
        width = parse.PROCESS_RECORDS[self._version].size
        for _ in range(GROWTH_TRIES):
            if self._buffer is None:
                self._buffer = create_string_buffer(self._capacity * width)
            self._count.value = self._capacity
            code = call(self._handle, self._count_reference, self._buffer)
            if code != tables.INSUFFICIENT_SIZE:
                break
            # Room for those that start meanwhile, as NVML's documentation advises.
            self._capacity = max(self._count.value, self._capacity) * 2
            self._buffer = None
        if code:
            raise self._nvml.NVMLError(code)
        filled = bytes(memoryview(self._buffer)[: self._count.value * width])
        if filled != self._last:
            self._last = filled
            self._listed = list(parse.processes(filled, self._version))
        return self._listed

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
        self._count_reference = byref(self._count)
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
        return memoryview(self._buffer)[: self._count.value * parse.BUSY_RECORD.size]

    def _fetch(self, last_microseconds: int) -> int:
        call = self._nvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")
        code = tables.SUCCESS
        for _ in range(GROWTH_TRIES):
            if self._buffer is None:
                self._buffer = create_string_buffer(self._capacity * parse.BUSY_RECORD.size)
            self._count.value = self._capacity
            code = call(
                self._handle,
                self._buffer,
                self._count_reference,
                c_ulonglong(last_microseconds),
            )
            if code != tables.INSUFFICIENT_SIZE:
                break
            self._capacity = max(self._count.value, self._capacity) * 2
            self._buffer = None
        return code
