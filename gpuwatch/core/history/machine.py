"""The series of a machine: GPUs, host, cores, processes, jobs."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from gpuwatch.core.history.axis import READINGS_KEPT
from gpuwatch.core.history.columns import Band
from gpuwatch.core.history.series import Finer, Group, Series
from gpuwatch.core.history.tiers import BLOCK_SECONDS, LONG_TIERS, SPARK_TIERS, TIERS, Tiers
from gpuwatch.core.model import Gpu, GpuKey, Job, ProcessKey, Snapshot

GPU_SERIES = (
    "memory_controller_percent", "memory_used_bytes", "power_watts", "power_limit_watts",
    "temperature_celsius", "memory_temperature_celsius", "fan_percent", "sm_clock_mhz",
    "memory_clock_mhz", "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second", "encoder_percent",
    "decoder_percent", "nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second",
    "sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_active_percent",
)  # fmt: skip
"""The readings of a GPU that have a series, beside ``busy_percent``, which has its own axis."""
_MOVING = {*GPU_SERIES, "busy_percent", "throttle_reasons", "pcie_generation", "pcie_width"}
_MOVING -= {"memory_used_bytes", "power_limit_watts", "temperature_celsius"}

HOST_SERIES = (
    "cpu_percent", "cpu_iowait_percent", "load_average_1_minute", "load_average_5_minutes",
    "load_average_15_minutes", "memory_used_bytes", "swap_used_bytes", "pressure_cpu_some_percent",
    "pressure_io_some_percent", "pressure_io_full_percent", "pressure_memory_some_percent",
    "pressure_memory_full_percent", "disk_read_bytes_per_second", "disk_write_bytes_per_second",
    "network_receive_bytes_per_second", "network_transmit_bytes_per_second", "shm_used_bytes",
)  # fmt: skip

PROCESS_SERIES = ("gpu_busy_percent", "cpu_percent")

FINE_JOB_SERIES = {
    "main_thread_cpu_percent": "main_thread_samples",
    "loader_worker_cpu_percent": "loader_worker_samples",
}
"""Of a job; fed by its fine samples too while it has any, which have axes of their own."""
_JOB_READINGS = (
    "read_bytes_per_second", "write_bytes_per_second", "data_wait_share", "samples_per_second",
    *FINE_JOB_SERIES,
)  # fmt: skip
JOB_SERIES = (*_JOB_READINGS, "data_wait_least_share", "data_wait_most_share")
"""Of a job; ``least`` and ``most`` are those of its ranks."""

GAP_INTERVALS = 2.5
"""A poll this many intervals after the one before still speaks for the time between them."""

JOB_READINGS_KEPT = 600
PROCESS_READINGS_KEPT = 256
"""Of processes only sparks are drawn, up to now."""
PROCESSES_KEPT = 512
"""With all processes of a large machine shown, those without a GPU beyond this have no series."""
JOBS_KEPT = 128
PROCESS_FORGOTTEN_SECONDS = 60.0
"""After the last snapshot it was in; jobs alike."""

K = TypeVar("K")
_gpu_values = attrgetter(*GPU_SERIES)
_host_values = attrgetter(*HOST_SERIES)
_process_values = attrgetter(*PROCESS_SERIES)
_job_readings = attrgetter(*_JOB_READINGS)


class History:
    """The series of everything in the snapshots pushed so far.

    A series exists from its first reading on. Names are the field names of ``GpuReading``,
    ``Host``, ``Process`` and ``Job``; an unknown name is a ``KeyError``.
    """

    def __init__(self) -> None:
        self._gpus: dict[GpuKey, Group] = {}
        self._host = Group(HOST_SERIES)
        self._cores = Group((), JOB_READINGS_KEPT, LONG_TIERS)
        self._processes: dict[tuple[ProcessKey, GpuKey | None], Group] = {}
        self._jobs: dict[ProcessKey, Group] = {}
        self._busy: dict[GpuKey, Series] = {}
        self._fine: dict[tuple[ProcessKey, str], Finer] = {}
        """Of a job, by name."""
        self._read: dict[ProcessKey, tuple[Job, tuple[float | None, ...]]] = {}
        """Of each job what was read of it last, with the object that was read: most are the same
        one for several snapshots."""
        self._reporting: set[ProcessKey] = set()
        self._at = -math.inf
        self._interval_seconds = 0.0
        self._next_sweep = -math.inf
        self._axes_made = 0

    @property
    def latest_at(self) -> float | None:
        """The monotonic time of the last snapshot pushed: what ``end`` of a live chart is."""
        return None if self._at == -math.inf else self._at

    @property
    def earliest_at(self) -> float | None:
        """The first moment of which something is kept."""
        return self._host.earliest_at

    def gpu(self, uuid: GpuKey, name: str) -> Series | None:
        """A GPU's series; ``busy_percent`` is fed by the driver's fine samples where it has any."""
        if name == "busy_percent":
            return self._busy.get(uuid)
        return _named(self._gpus.get(uuid), name, GPU_SERIES)

    def host(self, name: str) -> Series | None:
        return _named(self._host, name, HOST_SERIES)

    def host_core(self, core: int) -> Series | None:
        """One core's busy percent."""
        return self._cores.one(core)

    def process(self, key: ProcessKey, gpu_uuid: GpuKey | None, name: str) -> Series | None:
        return _named(self._processes.get((key, gpu_uuid)), name, PROCESS_SERIES)

    def job(self, key: ProcessKey, name: str) -> Series | Finer | None:
        """A job's series, by ``Job.key``."""
        return self._fine.get((key, name)) or _named(self._jobs.get(key), name, JOB_SERIES)

    def job_reported(self, key: ProcessKey) -> bool:
        """The job has reported its own loop since it was seen first."""
        return key in self._reporting

    def push(self, snapshot: Snapshot) -> None:
        """Take a snapshot in. One no later than the last, as after a failed read, is ignored."""
        at = snapshot.monotonic_seconds
        if at <= self._at:
            return
        # After "faster" is pressed the time since the last poll is still the slower interval.
        longest = GAP_INTERVALS * max(snapshot.interval_seconds, self._interval_seconds)
        self._interval_seconds = snapshot.interval_seconds
        # The driver stamps samples with wall time.
        offset = at - snapshot.taken_at_unix_seconds
        for gpu in without_late(snapshot.gpus):
            uuid, reading = gpu.identity.uuid, gpu.reading
            self._gpu_axis(uuid).push(at, longest, _gpu_values(reading))
            samples, percent = reading.busy_samples, reading.busy_percent
            if samples is not None or percent is not None or uuid in self._busy:
                self._busy_series(uuid).take(samples, percent, at, offset, longest)
        self._host.push(at, longest, _host_values(snapshot.host))
        cores = snapshot.host.core_percents
        if cores is not None:
            if len(cores) > len(self._cores.names):
                self._cores.name(range(len(cores)))
            # A core taken offline leaves fewer than there were.
            offline = len(self._cores.names) - len(cores)
            self._cores.push(at, longest, (*cores, *[None] * offline))
        shown = set()
        for process in snapshot.processes:
            key = process.key
            shown.add(key)
            self._push_process((key, process.gpu_uuid), at, longest, _process_values(process))
        self._push_jobs(snapshot, shown, offset, longest)
        self._at = at
        if at >= self._next_sweep:
            self._next_sweep = at + PROCESS_FORGOTTEN_SECONDS / 6
            self._forget(at - max(PROCESS_FORGOTTEN_SECONDS, longest))

    def take_block(
        self, begin: float, gpus: Mapping[GpuKey, Mapping[str, Band]], host: Mapping[str, Band]
    ) -> None:
        """Take what is known only as (minimum, mean, maximum) of the ``BLOCK_SECONDS`` from
        ``begin`` (a multiple of them): of a recording, the time before the first snapshot that is
        pushed. In the order of time, and before any snapshot."""
        block = round(begin / BLOCK_SECONDS)
        for uuid, bands in gpus.items():
            if "busy_percent" in bands:
                self._busy_series(uuid).take_block(block, bands["busy_percent"])
            self._gpu_axis(uuid).take_block(block, _charted(bands, GPU_SERIES))
        self._host.take_block(block, _charted(host, HOST_SERIES))

    def _busy_series(self, uuid: GpuKey) -> Series:
        series = self._busy.get(uuid)
        if series is None:
            # Where there are fine samples it keeps more.
            series = self._busy[uuid] = Series(READINGS_KEPT)
        return series

    def _push_process(
        self,
        key: tuple[ProcessKey, GpuKey | None],
        at: float,
        longest: float,
        values: tuple[float | None, ...],
    ) -> None:
        axes = self._processes
        axis = axes.get(key)
        if axis is None and (key[1] is not None or len(axes) < PROCESSES_KEPT):
            axis = self._begin(axes, key, PROCESS_SERIES, PROCESS_READINGS_KEPT, SPARK_TIERS)
        if axis is not None and axis.latest_at < at:
            axis.push(at, longest, values)

    def _push_jobs(
        self, snapshot: Snapshot, shown: set[ProcessKey], offset: float, longest: float
    ) -> None:
        at = snapshot.monotonic_seconds
        for job in snapshot.jobs:
            key = job.key
            axis = self._jobs.get(key)
            if axis is None and len(self._jobs) < JOBS_KEPT:
                axis = self._begin(self._jobs, key, JOB_SERIES, JOB_READINGS_KEPT, LONG_TIERS)
            if axis is None or axis.latest_at == at:
                continue
            before, values = self._read.get(key, (None, ()))
            if job is not before:
                values = _job_values(job)
                self._read[key] = job, values
            axis.push(at, longest, values)
            if job.loops:
                self._reporting.add(key)
            for name, field in FINE_JOB_SERIES.items():
                samples = getattr(job, field)
                if samples is None and not self._fine:
                    continue
                finer = self._fine.get((key, name))
                if finer is None and samples is not None:
                    finer = self._fine[key, name] = Finer(axis, name, max(0.0, self._at))
                if finer is not None:
                    finer.fine.take(samples, getattr(job, name), at, offset, longest)
            for member in job.members:
                child = member.key
                if child not in shown:
                    self._push_process((child, None), at, longest, (None, member.cpu_percent))

    def _begin(
        self, axes: dict[K, Group], key: K, names: tuple[str, ...], kept: int, tiers: Tiers = TIERS
    ) -> Group:
        # A few readings more for each than for the last, so that they do not all fold at once.
        self._axes_made += 1
        axes[key] = Group(names, kept + self._axes_made % 32, tiers)
        return axes[key]

    def _gpu_axis(self, uuid: GpuKey) -> Group:
        return self._gpus.get(uuid) or self._begin(self._gpus, uuid, GPU_SERIES, READINGS_KEPT)

    def _forget(self, before: float) -> None:
        for key in [key for key, axis in self._processes.items() if axis.latest_at < before]:
            del self._processes[key]
        for job in [key for key, axis in self._jobs.items() if axis.latest_at < before]:
            del self._jobs[job]
            self._read.pop(job, None)
            self._reporting.discard(job)
            for name in FINE_JOB_SERIES:
                self._fine.pop((job, name), None)


def _named(axis: Group | None, name: str, names: tuple[str, ...]) -> Series | None:
    if name not in names:
        raise KeyError(name)
    return None if axis is None else axis.one(name)


def _charted(bands: Mapping[str, Band], names: tuple[str, ...]) -> dict[Hashable, Band]:
    return {name: band for name, band in bands.items() if name in names}


def _job_values(job: Job) -> tuple[float | None, ...]:
    waits = [loop.data_wait_share for loop in job.loops if loop.data_wait_share is not None]
    least, most = (min(waits), max(waits)) if waits else (None, None)
    return (*_job_readings(job), least, most)


def without_late(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """``gpus`` without the late readings of what moves by the second: charts have a gap there."""
    if not any(gpu.reading.late_readings for gpu in gpus):
        return gpus
    return tuple([_without_late(gpu) if gpu.reading.late_readings else gpu for gpu in gpus])


def _without_late(gpu: Gpu) -> Gpu:
    late: dict[str, Any] = {name: None for name, _ in gpu.reading.late_readings if name in _MOVING}
    return replace(gpu, reading=replace(gpu.reading, **late))
