"""One GPU (or MIG instance) as its readings use it: handle, buffers, counters and values so far."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any

from gpuwatch.core.model import GpuIdentity
from gpuwatch.sources.nvml import buffers, parse, tables

Listed = list[tuple[parse.ProcessSlot, int | None]]
_NONE_LISTED: Listed = []
LIST_KINDS = {"compute": "Compute", "mps": "MPSCompute", "graphics": "Graphics"}
"""The driver's lists of processes, with their names in NVML's functions."""


class Card:
    """State that the functions of ``readings`` take from and leave in. Not for two threads."""

    def __init__(
        self, nvml: Any, handle: Any, identity: GpuIdentity, now: float, parent_handle: Any = None
    ) -> None:
        self.nvml = nvml
        self.handle = handle
        self.identity = identity
        self.parent_handle = parent_handle
        self.now = now
        self.unix = 0.0
        self.interval_seconds = 1.0
        self.values = parse.Values()
        self.steps: dict[Callable[[Card], None], int] = {}
        """Of calls that stand in for each other, by the best: the one that this GPU has."""
        self.before: dict[int, tuple[float, float]] = {}
        """Counters by field id: (monotonic seconds, value) when last read."""
        self.energy_watts: float | None = None
        """Mean power between the last two looks at the energy counter."""
        self.power_doubted: tuple[str, float, str] | None = None
        """(what reads the power, what it said and cannot be, what reads it instead)."""
        self.gpm_gives: set[str] = set()
        self.pcie_from_counters = False
        self.listed: dict[str, Listed] = {}
        """Result of each of the driver's lists; none that failed or does not exist."""
        self.memory_when_listed: int | None = None
        self.failing_lists: set[str] = set()
        self.process_busy: dict[int, float] | None = None
        self.sample_buffer = buffers.BusySampleBuffer(nvml, handle)
        self.process_buffers = {
            kind: buffers.ProcessBuffer(nvml, handle, name) for kind, name in LIST_KINDS.items()
        }
        self.process_busy_buffer = buffers.ProcessBusyBuffer(nvml, handle)
        self._batches: dict[tuple[tuple[int, int], ...], buffers.FieldBatch] = {}
        self._merged_lists = [_NONE_LISTED] * len(LIST_KINDS)
        self._merged: parse.ProcessTable = {}

    @cached_property
    def gpm(self) -> GpmReader:
        card = self.handle if self.parent_handle is None else self.parent_handle
        return GpmReader(self.nvml, card, self.identity.mig_instance)

    @property
    def pcie_rates_from_elsewhere(self) -> bool:
        return self.pcie_from_counters or "pcie" in self.gpm_gives

    @cached_property
    def accumulators(self) -> tuple[tuple[int, str], ...]:
        return tuple(tables.accumulator_fields(self.identity.driver_version).items())

    @cached_property
    def counter_fields(self) -> tuple[tuple[int, int], ...]:
        links = (tables.FIELD_NVLINK_DATA_RX_KIB, tables.FIELD_NVLINK_DATA_TX_KIB)
        single = (
            tables.FIELD_ENERGY_MILLIJOULES,
            tables.FIELD_MEMORY_TEMPERATURE,
            tables.FIELD_PCIE_RX_BYTES,
            tables.FIELD_PCIE_TX_BYTES,
            *(field for field, _ in self.accumulators),
        )
        return (
            *((field, 0) for field in single),
            *((field, tables.SCOPE_ALL_LINKS) for field in links),
        )

    def fields(self, fields: tuple[tuple[int, int], ...]) -> parse.FieldValues:
        batch = self._batches.get(fields)
        if batch is None:
            batch = self._batches[fields] = buffers.FieldBatch(self.nvml, self.handle, fields)
        return batch.read()

    def growth(self, field: int, got: parse.FieldValues, unit: float = 1.0) -> float | None:
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
        """Bytes over this GPU's processes; ``None`` when they are not known."""
        if "compute" not in self.listed or self.failing_lists:
            return None
        sizes = [used for used, _ in self.process_table.values()]
        known = [used for used in sizes if used is not None]
        return None if sizes and not known else sum(known)

    def close(self) -> None:
        reader = self.__dict__.get("gpm")
        if reader is not None:
            reader.close()


# --- GPM: what the SMs, the tensor cores and the links really did (Hopper and later) ---------

_METRICS = {**tables.GPM_ACTIVITIES, **tables.GPM_RATES}
_METRIC_RECORD = struct.Struct("@IId24x")
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
        """Reading fields that could be had; empty at the first call, which only takes a sample."""
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
