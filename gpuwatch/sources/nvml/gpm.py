"""GPM: what the SMs, the tensor cores and the links really did (Hopper and later).

A GPM metric is the difference of two samples. Two buffers are used in turn, so each reading
covers the time since the one before.
"""

from __future__ import annotations

import struct
from typing import Any

from gpuwatch.sources.nvml import parse, tables

METRICS = (
    (tables.GPM_SM_UTIL, "sm_active_percent", parse.activity),
    (tables.GPM_SM_OCCUPANCY, "sm_occupancy_percent", parse.activity),
    (tables.GPM_ANY_TENSOR_UTIL, "tensor_active_percent", parse.activity),
    (tables.GPM_DRAM_BANDWIDTH_UTIL, "dram_active_percent", parse.activity),
    (tables.GPM_PCIE_RX_MIB_PER_SECOND, "pcie_rx_bytes_per_second", parse.mebibytes),
    (tables.GPM_PCIE_TX_MIB_PER_SECOND, "pcie_tx_bytes_per_second", parse.mebibytes),
    (tables.GPM_NVLINK_RX_MIB_PER_SECOND, "nvlink_rx_bytes_per_second", parse.mebibytes),
    (tables.GPM_NVLINK_TX_MIB_PER_SECOND, "nvlink_tx_bytes_per_second", parse.mebibytes),
)


_METRIC_RECORD = struct.Struct("@IId24x")
"""``nvmlGpmMetric_t``: id, error, value, three pointers to names."""


class GpmReader:
    """Two sample buffers and the metrics asked of them, for one GPU or one MIG instance."""

    def __init__(self, nvml: Any, handle: Any, gpu_instance: int | None = None) -> None:
        """``handle`` is the card's, also for a MIG instance (``gpu_instance``)."""
        self._nvml = nvml
        self._handle = handle
        self._gpu_instance = gpu_instance
        self._previous: Any = None
        self._spare: Any = None
        self._query: Any = None
        self._answers = memoryview(b"")
        self._asked = b""

    def supported(self) -> bool:
        """Raises ``NVMLError``."""
        return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice)

    def read(self) -> dict[str, float]:
        """Reading fields that could be had; empty at the first call, which only takes a sample.

        Raises ``NVMLError``.
        """
        if self._spare is None:
            self._spare = self._nvml.nvmlGpmSampleAlloc()
        self._sample(self._spare)
        if self._previous is None:
            self._previous, self._spare = self._spare, None
            return {}
        query = self._prepared_query()
        query.sample1, query.sample2 = self._previous, self._spare
        self._previous, self._spare = self._spare, self._previous
        self._nvml.nvmlGpmMetricsGet(query)
        return self._values()

    def _sample(self, sample: Any) -> None:
        if self._gpu_instance is None:
            self._nvml.nvmlGpmSampleGet(self._handle, sample)
        else:
            self._nvml.nvmlGpmMigSampleGet(self._handle, self._gpu_instance, sample)

    def _prepared_query(self) -> Any:
        if self._query is None:
            self._query = self._nvml.c_nvmlGpmMetricsGet_t()
            self._query.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
            self._query.numMetrics = len(METRICS)
            first = type(self._query).metrics.offset
            # The records are read as bytes: pynvml's structures decode every attribute in Python.
            raw = memoryview(self._query).cast("B")
            self._answers = raw[first : first + len(METRICS) * _METRIC_RECORD.size]
            for place, (metric, _, _) in enumerate(METRICS):
                self._query.metrics[place].metricId = metric
            self._asked = bytes(self._answers)
        self._answers[:] = self._asked
        return self._query

    def _values(self) -> dict[str, float]:
        values = {}
        records = _METRIC_RECORD.iter_unpack(self._answers)
        for (_, name, convert), (_, code, number) in zip(METRICS, records, strict=True):
            value = None if code else convert(number)
            if value is not None:
                values[name] = value
        return values

    def close(self) -> None:
        """Give the samples back; the driver's library must still be up."""
        for sample in (self._previous, self._spare):
            if sample is not None:
                try:
                    self._nvml.nvmlGpmSampleFree(sample)
                except self._nvml.NVMLError:
                    break
        self._previous = self._spare = None
