"""The NVIDIA GPUs, through ``pynvml`` (nvidia-ml-py). The only module that imports it.

``NvmlSource`` finds the driver and the GPUs, keeps looking for them while they are not there,
and takes one reading of all of them. Which GPUs there are is found in ``nvml_inventory``; what
is read of a GPU in ``nvml_readings``, when in ``nvml_schedule``, and what an error means for it
in ``nvml_device``.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from gpuwatch.model import Gpu, Problem
from gpuwatch.sources import nvml_messages as messages
from gpuwatch.sources import nvml_schedule as schedule
from gpuwatch.sources import nvml_tables as tables
from gpuwatch.sources.base import Clock, ReadOptions
from gpuwatch.sources.gpu_process import GpuProcess
from gpuwatch.sources.nvml_device import DriverGoneError, NvmlDevice, Tally
from gpuwatch.sources.nvml_inventory import PROBE_SECONDS, Inventory
from gpuwatch.sources.nvml_troubles import troubles
from gpuwatch.text import clean

LIBRARY = "libnvidia-ml.so.1"
RETRY_SECONDS = 5.0
"""How often a driver that is not there is looked for."""

BINDING_NEEDS = (
    "NVMLError",
    "nvmlInit",
    "nvmlShutdown",
    "nvmlDeviceGetSamples",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetProcessUtilization",
    "nvmlMemory_v2",
    "c_nvmlFieldValue_t",
    "nvmlGpmMetricsGet",
)


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """One look at all GPUs.

    ``call_seconds`` and ``call_count``: spent in the driver since the look before.
    """

    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    problems: tuple[Problem, ...] = ()
    call_seconds: float = 0.0
    call_count: int = 0


class BindingError(Exception):
    """pynvml cannot be used; the message is a sentence for a person."""


def load_binding() -> Any:
    """The ``pynvml`` module. Raises ``BindingError`` when it is missing or not NVIDIA's."""
    try:
        # Not at the top: without GPUs, or before they are asked for, nobody should pay for it.
        import pynvml as binding  # noqa: PLC0415
    except ImportError:
        raise BindingError(messages.NO_BINDING) from None
    # The abandoned distribution "pynvml" is a package of the same name, which Python finds
    # before nvidia-ml-py's module; it re-exports no private name.
    if not hasattr(binding, "_nvmlGetFunctionPointer"):
        raise BindingError(messages.WRONG_BINDING)
    if any(not hasattr(binding, name) for name in BINDING_NEEDS):
        raise BindingError(messages.OLD_BINDING)
    return binding


def _loader_error() -> str | None:
    """Why a driver library that is there cannot be loaded; ``None`` where there is none."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        text = str(error)
        missing = text.startswith(f"{LIBRARY}:") and "No such file" in text
        return None if missing else clean(text, 200)
    return None


class NvmlSource:
    """Takes readings of every NVIDIA GPU of this machine.

    ``open`` and ``read`` block and belong on one thread (``open`` may run on another before the
    first ``read``); ``close`` may come from any, and returns at once even while a driver call
    hangs. None of them raises for what a driver can do wrong. ``timer`` is what driver calls are
    timed with.
    """

    def __init__(
        self, clock: Clock, options: ReadOptions, timer: Callable[[], float] = perf_counter
    ) -> None:
        self._clock = clock
        self._options = options
        self._tally = Tally(timer)
        self._lock = threading.Lock()
        self._closed = False
        self._nvml: Any = None
        self._inventory: Inventory | None = None
        """The GPUs, while the driver runs."""
        self._ran_before = False
        self._failure: Problem | None = None
        self._retry_at = 0.0

    def open(self) -> None:
        """Start the driver's library and find the GPUs; what fails is a problem of ``read``."""
        with self._lock:
            if not self._closed and self._inventory is None:
                self._start()

    def read(self) -> NvmlReading:
        """What every GPU says now; nothing but a problem while another thread is in a call."""
        if not self._lock.acquire(blocking=False):
            if self._ran_before:
                return NvmlReading(problems=(messages.problem(messages.BUSY, severity="warning"),))
            return NvmlReading(problems=(messages.problem(messages.STARTING, severity="info"),))
        try:
            return self._read()
        finally:
            if self._closed:
                self._stop()
            self._lock.release()

    def close(self) -> None:
        """Let go of the driver; if a call is under way, whoever makes it does so afterwards."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._stop()
            finally:
                self._lock.release()

    # The driver as a whole.

    def _start(self) -> None:
        self._retry_at = self._clock.monotonic() + RETRY_SECONDS
        if not self._initialise():
            return
        self._failure = None
        self._inventory = Inventory(self._nvml, self._clock, self._options, self._tally)
        try:
            self._inventory.find()
        except DriverGoneError as error:
            self._driver_went_away(error.code)
        self._ran_before = True
        if self._closed:
            self._stop()

    def _initialise(self) -> bool:
        start = self._tally.timer()
        try:
            self._nvml = load_binding()
            start = self._tally.timer()
            self._nvml.nvmlInit()
        except BindingError as error:
            self._fail(str(error))
            return False
        # Whatever a broken binding or loader raises here, the host half must go on.
        except Exception as error:
            code = getattr(error, "value", None)
            self._fail(self._start_sentence(code if isinstance(code, int) else tables.UNKNOWN))
            return False
        finally:
            self._tally.count(start, 1)
        return True

    def _start_sentence(self, code: int) -> str:
        if code == tables.LIB_RM_VERSION_MISMATCH and self._ran_before:
            # The library stays loaded in this process, so only a new one can have the new one.
            return messages.UPDATED_MEANWHILE
        loader_error = _loader_error() if code == tables.LIBRARY_NOT_FOUND else None
        return messages.cannot_start(code, messages.surroundings(), loader_error)

    def _fail(self, sentence: str) -> None:
        since: float | None = self._clock.unix()
        if self._failure is not None and self._failure.message == sentence:
            since = self._failure.since_unix_seconds
        self._failure = messages.problem(sentence, since=since)

    def _stop(self) -> None:
        inventory, self._inventory = self._inventory, None
        if inventory is None:
            return
        inventory.close()
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            # It was down already: what is wanted.
            return

    def _driver_went_away(self, code: int) -> None:
        self._stop()
        self._retry_at = self._clock.monotonic() + RETRY_SECONDS
        mismatch = code == tables.LIB_RM_VERSION_MISMATCH
        self._fail(self._start_sentence(code) if mismatch else messages.WENT_AWAY)

    # One look.

    def _read(self) -> NvmlReading:
        absent = self._inventory is None and not self._closed
        if absent and self._clock.monotonic() >= self._retry_at:
            self._start()
        if self._inventory is not None:
            try:
                self._look(self._inventory)
            except DriverGoneError as error:
                self._driver_went_away(error.code)
        return self._result(self._inventory)

    def _look(self, inventory: Inventory) -> None:
        now, unix = self._clock.monotonic(), self._clock.unix()
        inventory.refresh(now)
        interval = self._options.interval_seconds
        # A tick that comes a little early must not put a reading off by a whole interval.
        horizon = now + 0.1 * interval
        detailed = self._options.detailed_gpu
        deferred: list[tuple[NvmlDevice, schedule.Slot]] = []
        for device in inventory.devices:
            if device.lost_error:
                continue
            device.interval_seconds = interval
            looked_at = device.identity.uuid == detailed
            device.period_factor = schedule.DETAILED_FACTOR if looked_at else 1.0
            device.probe_at = now + PROBE_SECONDS
            device.read_due(now, unix, horizon, deferred)
        if deferred:
            self._take_slow(deferred, interval * schedule.TICK_SHARE)

    def _take_slow(
        self, deferred: list[tuple[NvmlDevice, schedule.Slot]], budget_seconds: float
    ) -> None:
        """Take the longest overdue slow readings, at least one, and leave the rest to the next
        ticks, so that the slow calls of all GPUs never fall together."""
        deferred.sort(key=lambda pair: pair[1].due_at)
        start = self._tally.timer()
        for place, (device, slot) in enumerate(deferred):
            if device.lost_error:
                continue
            if place and self._tally.timer() - start >= budget_seconds:
                device.drop_outdated(slot)
            else:
                device.take(slot)

    def _result(self, inventory: Inventory | None) -> NvmlReading:
        seconds, calls = self._tally.take()
        if inventory is None:
            failures = () if self._failure is None else (self._failure,)
            return NvmlReading((), (), failures, seconds, calls)
        devices = inventory.devices
        problems: tuple[Problem, ...] = (*inventory.unopened, *troubles(devices))
        if not devices and not problems:
            problems = (messages.problem(messages.NO_DEVICES),)
        return NvmlReading(
            gpus=tuple(device.gpu() for device in devices),
            processes=_processes(inventory),
            problems=problems,
            call_seconds=seconds,
            call_count=calls,
        )


def _processes(inventory: Inventory) -> tuple[GpuProcess, ...]:
    rows: list[GpuProcess] = []
    for device in inventory.devices:
        if not device.lost_error:
            card = device.identity.mig_parent_uuid or device.identity.uuid
            rows.extend(device.gpu_processes(inventory.instances.get(card, {})))
    return _without_repeats(rows) if inventory.instances else tuple(rows)


def _without_repeats(rows: list[GpuProcess]) -> tuple[GpuProcess, ...]:
    """A MIG card and its instances list the same processes; keep one row each, the fuller one."""
    unique: dict[tuple[int, str], GpuProcess] = {}
    for row in rows:
        known = unique.get((row.pid, row.gpu_uuid))
        if known is None or (known.memory_bytes is None and row.memory_bytes is not None):
            unique[(row.pid, row.gpu_uuid)] = row
    return tuple(unique.values())
