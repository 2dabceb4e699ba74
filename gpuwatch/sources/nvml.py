"""The NVIDIA GPUs, through ``pynvml`` (nvidia-ml-py). The only module that imports it.

``NvmlSource`` finds the driver and the GPUs, keeps looking for them while they are not there,
and takes one reading of all of them. What is read of a GPU is in ``nvml_readings``, when in
``nvml_schedule``, and what an error means for it in ``nvml_device``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from gpuwatch.model import Gpu, GpuIdentity, Problem
from gpuwatch.sources import nvml_messages as messages
from gpuwatch.sources import nvml_parse as parse
from gpuwatch.sources import nvml_readings as readings
from gpuwatch.sources import nvml_schedule as schedule
from gpuwatch.sources import nvml_tables as tables
from gpuwatch.sources.base import Clock, ReadOptions
from gpuwatch.sources.gpu_process import GpuProcess
from gpuwatch.sources.nvml_device import DriverGoneError, NvmlDevice, Tally
from gpuwatch.sources.nvml_identity import Inquirer, read_identity, read_mig_identity

RETRY_SECONDS = 5.0
"""How often a driver that is not there is looked for."""
ENUMERATE_SECONDS = 10.0
"""How often the list of GPUs is compared with the driver's."""
PROBE_SECONDS = 5.0
"""How often a lost GPU is asked whether it is back."""

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


class NvmlSource:
    """Takes readings of every NVIDIA GPU of this machine.

    ``open`` and ``read`` block and belong on one thread (``open`` may run on another before the
    first ``read``); ``close`` may come from any, and returns at once even while a driver call
    hangs. None of them raises for what a driver can do wrong.
    """

    def __init__(self, clock: Clock, options: ReadOptions) -> None:
        self._clock = clock
        self._options = options
        self._lock = threading.Lock()
        self._closed = False
        self._nvml: Any = None
        self._running = False
        self._ran_before = False
        self._failure: Problem | None = None
        self._retry_at = 0.0
        self._enumerate_at = 0.0
        self._count_seen = 0
        self._tally = Tally()
        self._devices: list[NvmlDevice] = []
        self._instances: dict[str, dict[int, str]] = {}
        self._incomplete: set[str] = set()
        self._unopened: list[Problem] = []
        self._driver_version: str | None = None
        self._cuda_version: str | None = None

    def open(self) -> None:
        """Start the driver's library and find the GPUs; what fails is a problem of ``read``."""
        with self._lock:
            if not self._closed and not self._running:
                self._start()

    def read(self) -> NvmlReading:
        """What every GPU says now; nothing but a problem while another thread is in a call."""
        if not self._lock.acquire(blocking=False):
            starting = not self._ran_before
            sentence = messages.STARTING if starting else messages.BUSY
            severity = "info" if starting else "warning"
            return NvmlReading(problems=(self._problem(sentence, severity=severity),))
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
        now = self._clock.monotonic()
        self._retry_at = now + RETRY_SECONDS
        start = perf_counter()
        try:
            self._nvml = load_binding()
            start = perf_counter()
            self._nvml.nvmlInit()
        except BindingError as error:
            self._fail(str(error))
            return
        except Exception as error:
            code = getattr(error, "value", None)
            self._fail(self._start_sentence(code if isinstance(code, int) else tables.UNKNOWN))
            return
        finally:
            self._count(start, 1)
        self._running = True
        self._ran_before = True
        self._failure = None
        try:
            self._ask_versions()
            self._enumerate(now)
        except DriverGoneError as error:
            self._driver_went_away(error.code)
        if self._closed:
            self._stop()

    def _start_sentence(self, code: int) -> str:
        if code == tables.LIB_RM_VERSION_MISMATCH and self._ran_before:
            # The library stays loaded in this process, so only a new one can have the new one.
            return messages.UPDATED_MEANWHILE
        return messages.cannot_start(code, messages.surroundings())

    def _fail(self, sentence: str) -> None:
        since = None
        if self._failure is not None and self._failure.message == sentence:
            since = self._failure.since_unix_seconds
        self._failure = self._problem(sentence, since=since or self._clock.unix())

    def _problem(
        self, sentence: str, *, since: float | None = None, severity: str = "error"
    ) -> Problem:
        return Problem(
            source=messages.SOURCE,
            message=sentence,
            since_unix_seconds=since,
            severity=severity,
        )

    def _stop(self) -> None:
        if not self._running:
            return
        self._running = False
        for device in self._devices:
            device.close()
        self._devices = []
        self._instances = {}
        self._unopened = []
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            # It was down already: what is wanted.
            return

    def _driver_went_away(self, code: int) -> None:
        self._stop()
        self._retry_at = self._clock.monotonic() + RETRY_SECONDS
        mismatch = code == tables.LIB_RM_VERSION_MISMATCH
        self._fail(messages.UPDATED_MEANWHILE if mismatch else messages.WENT_AWAY)

    def _ask_versions(self) -> None:
        ask = Inquirer(self._nvml)
        start = perf_counter()
        try:
            self._driver_version = ask.text("nvmlSystemGetDriverVersion")
            cuda = ask.number("nvmlSystemGetCudaDriverVersion_v2")
        except self._nvml.NVMLError as error:
            raise DriverGoneError(error.value) from None
        finally:
            self._count(start, ask.calls)
        self._cuda_version = None if cuda is None else parse.cuda_version(cuda)

    def _count(self, started: float, calls: int) -> None:
        self._tally.seconds += perf_counter() - started
        self._tally.calls += calls

    # Which GPUs there are.

    def _enumerate(self, now: float) -> None:
        """Compare the driver's list with ours: add, keep, or mark lost. Raises DriverGoneError."""
        self._enumerate_at = now + ENUMERATE_SECONDS
        self._unopened = []
        known = {device.identity.uuid: device for device in self._devices}
        found: dict[str, NvmlDevice] = {}
        self._count_seen = self._device_count()
        for index in range(self._count_seen):
            device = self._device_at(index, known, now)
            if device is not None:
                found[device.identity.uuid] = device
                for instance in self._mig_devices(device, known, now):
                    found[instance.identity.uuid] = instance
        for uuid, device in known.items():
            if uuid not in found and not self._is_retired_instance(device, found):
                if not device.lost_error:
                    self._lose(device, tables.GPU_NOT_FOUND, now)
                found[uuid] = device
        self._devices = sorted(found.values(), key=_order)
        self._instances = _instances(self._devices)
        for device in self._devices:
            device.gpu_count = len(self._devices)

    def _recheck(self, now: float) -> None:
        """Enumerate again if something changed: a handle by index costs milliseconds a GPU."""
        self._enumerate_at = now + ENUMERATE_SECONDS
        changed = bool(self._incomplete or self._unopened)
        if self._device_count() != self._count_seen:
            changed = True
        for card in [d for d in self._devices if d.identity.mig_mode is not None]:
            enabled = not card.lost_error and self._mig_enabled(card)
            if enabled != card.identity.mig_mode and not card.lost_error:
                # Its readings differ in the other mode: begin anew.
                self._devices.remove(card)
                card.close()
            changed = changed or enabled or enabled != card.identity.mig_mode
        if changed:
            self._enumerate(now)

    def _mig_enabled(self, card: NvmlDevice) -> bool:
        ask = Inquirer(self._nvml)
        start = perf_counter()
        try:
            mode = ask.ask("nvmlDeviceGetMigMode", card.handle)
        except self._nvml.NVMLError as error:
            if error.value in tables.DRIVER_GONE:
                raise DriverGoneError(error.value) from None
            return bool(card.identity.mig_mode)
        finally:
            self._count(start, ask.calls)
        return bool(card.identity.mig_mode) if mode is None else mode[0] == 1

    def _is_retired_instance(self, device: NvmlDevice, found: dict[str, NvmlDevice]) -> bool:
        """A MIG instance somebody removed from a healthy card is gone, not lost."""
        parent = device.identity.mig_parent_uuid
        return parent in found and not found[parent].lost_error if parent is not None else False

    def _device_count(self) -> int:
        start = perf_counter()
        try:
            count: int = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            if error.value in tables.DRIVER_GONE:
                raise DriverGoneError(error.value) from None
            self._unopened.append(
                self._problem(messages.cannot_start(error.value, messages.surroundings()))
            )
            return sum(d.identity.mig_parent_uuid is None for d in self._devices)
        finally:
            self._count(start, 1)
        return count

    def _device_at(self, index: int, known: dict[str, NvmlDevice], now: float) -> NvmlDevice | None:
        ask = Inquirer(self._nvml)
        start = perf_counter()
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = ask.text("nvmlDeviceGetUUID", handle)
            old = known.get(uuid or "")
            if old is not None and (old.lost_error or uuid not in self._incomplete):
                return old
            identity = read_identity(ask, handle, index, self._driver_version, self._cuda_version)
        except self._nvml.NVMLError as error:
            return self._unreachable(index, error.value, known, now)
        finally:
            self._count(start, ask.calls + 1)
        self._note_completeness(ask, identity)
        if old is not None:
            old.identity = identity
            return old
        return self._new_device(handle, identity, now)

    def _note_completeness(self, ask: Inquirer, identity: GpuIdentity) -> None:
        if ask.complete:
            self._incomplete.discard(identity.uuid)
        else:
            self._incomplete.add(identity.uuid)

    def _new_device(
        self, handle: Any, identity: GpuIdentity, now: float, parent_handle: Any = None
    ) -> NvmlDevice:
        return NvmlDevice(
            self._nvml,
            handle,
            identity,
            now=now,
            interval_seconds=self._options.interval_seconds,
            tally=self._tally,
            parent_handle=parent_handle,
        )

    def _unreachable(
        self, index: int, code: int, known: dict[str, NvmlDevice], now: float
    ) -> NvmlDevice | None:
        if code in tables.DRIVER_GONE:
            raise DriverGoneError(code)
        for device in known.values():
            if device.identity.index == index and device.identity.mig_parent_uuid is None:
                if code in tables.LOST and not device.lost_error:
                    self._lose(device, code, now)
                return device
        self._unopened.append(messages.cannot_open(index, code))
        return None

    def _mig_devices(
        self, card: NvmlDevice, known: dict[str, NvmlDevice], now: float
    ) -> Iterable[NvmlDevice]:
        if card.lost_error or card.identity.mig_mode is None:
            return []
        ask = Inquirer(self._nvml)
        start = perf_counter()
        try:
            return self._instances_of(ask, card, known, now)
        except self._nvml.NVMLError as error:
            if error.value in tables.DRIVER_GONE:
                raise DriverGoneError(error.value) from None
            return []
        finally:
            self._count(start, ask.calls)

    def _instances_of(
        self, ask: Inquirer, card: NvmlDevice, known: dict[str, NvmlDevice], now: float
    ) -> list[NvmlDevice]:
        mode = ask.ask("nvmlDeviceGetMigMode", card.handle)
        if mode is None or mode[0] != 1:
            return []
        found = []
        for place in range(ask.number("nvmlDeviceGetMaxMigDeviceCount", card.handle) or 0):
            handle = ask.ask("nvmlDeviceGetMigDeviceHandleByIndex", card.handle, place)
            if handle is None:
                continue
            uuid = ask.text("nvmlDeviceGetUUID", handle)
            device = known.get(uuid or "")
            if device is None or device.lost_error:
                instance = ask.number("nvmlDeviceGetGpuInstanceId", handle)
                identity = read_mig_identity(ask, handle, card.identity, instance)
                device = self._new_device(handle, identity, now, card.handle)
            found.append(device)
        return found

    def _lose(self, device: NvmlDevice, code: int, now: float) -> None:
        device.unix = self._clock.unix()
        device.lose(code)
        device.probe_at = now + PROBE_SECONDS

    def _probe(self, lost: NvmlDevice, now: float) -> NvmlDevice:
        """The lost GPU as a fresh device if it answers again, else as it is."""
        lost.probe_at = now + PROBE_SECONDS
        if lost.identity.mig_parent_uuid is not None:
            return lost
        ask = Inquirer(self._nvml)
        start = perf_counter()
        try:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(lost.identity.uuid)
            # A handle and a uuid can be had from the library's memory; a temperature cannot.
            ask.ask("nvmlDeviceGetTemperature", handle, tables.TEMPERATURE_GPU)
            identity = read_identity(
                ask, handle, lost.identity.index, self._driver_version, self._cuda_version
            )
        except self._nvml.NVMLError as error:
            if error.value in tables.DRIVER_GONE:
                raise DriverGoneError(error.value) from None
            return lost
        finally:
            self._count(start, ask.calls + 1)
        if identity.uuid != lost.identity.uuid:
            return lost
        self._note_completeness(ask, identity)
        self._enumerate_at = now
        return self._new_device(handle, identity, now)

    # One look.

    def _read(self) -> NvmlReading:
        now, unix = self._clock.monotonic(), self._clock.unix()
        if not self._running and not self._closed and now >= self._retry_at:
            self._start()
        if not self._running:
            return self._result(() if self._failure is None else (self._failure,))
        try:
            self._look(now, unix)
        except DriverGoneError as error:
            self._driver_went_away(error.code)
            assert self._failure is not None
            return self._result((self._failure,))
        return self._result(self._problems())

    def _look(self, now: float, unix: float) -> None:
        if any(device.lost_error and now >= device.probe_at for device in self._devices):
            self._devices = [
                self._probe(device, now) if device.lost_error and now >= device.probe_at else device
                for device in self._devices
            ]
        if now >= self._enumerate_at:
            self._recheck(now)
        interval = self._options.interval_seconds
        # A tick that comes a little early must not put a reading off by a whole interval.
        horizon = now + 0.1 * interval
        detailed = self._options.detailed_gpu
        deferred: list[tuple[NvmlDevice, schedule.Slot]] = []
        for device in self._devices:
            if device.lost_error:
                continue
            device.interval_seconds = interval
            looked_at = device.identity.uuid == detailed
            device.period_factor = schedule.DETAILED_FACTOR if looked_at else 1.0
            device.read_due(now, unix, horizon, deferred)
            if device.lost_error:
                device.probe_at = now + PROBE_SECONDS
        if deferred:
            self._take_slow(deferred, interval * schedule.TICK_SHARE)

    def _take_slow(
        self, deferred: list[tuple[NvmlDevice, schedule.Slot]], budget_seconds: float
    ) -> None:
        """Take the longest overdue slow readings, at least one, and leave the rest to the next
        ticks, so that the slow calls of all GPUs never fall together."""
        deferred.sort(key=lambda pair: pair[1].due_at)
        start = perf_counter()
        for place, (device, slot) in enumerate(deferred):
            if device.lost_error:
                continue
            if place and perf_counter() - start >= budget_seconds:
                device.drop_outdated(slot)
                continue
            device.take(slot)
            if device.lost_error:
                device.probe_at = device.now + PROBE_SECONDS

    def _result(self, problems: tuple[Problem, ...]) -> NvmlReading:
        seconds, calls = self._tally.seconds, self._tally.calls
        self._tally.seconds, self._tally.calls = 0.0, 0
        return NvmlReading(
            gpus=tuple(device.gpu() for device in self._devices),
            processes=self._processes(),
            problems=problems,
            call_seconds=seconds,
            call_count=calls,
        )

    def _processes(self) -> tuple[GpuProcess, ...]:
        rows: list[GpuProcess] = []
        for device in self._devices:
            if not device.lost_error:
                instances = self._instances.get(_card(device), {})
                rows.extend(device.gpu_processes(instances))
        return _without_repeats(rows) if self._instances else tuple(rows)

    # What a person should know.

    def _problems(self) -> tuple[Problem, ...]:
        problems = list(self._unopened)
        if not self._devices and not problems:
            problems.append(self._problem(messages.NO_DEVICES))
        failing: dict[tuple[schedule.Reading, int], list[tuple[NvmlDevice, float | None]]] = {}
        for device in self._devices:
            if device.lost_error:
                problems.append(
                    messages.lost(device.identity, device.lost_error, device.lost_since_unix)
                )
            for slot in device.troubled:
                if slot.lasted or slot.error == tables.NO_PERMISSION:
                    affected = failing.setdefault((slot.reading, slot.error), [])
                    affected.append((device, slot.failed_since_unix))
        for (reading, error), affected in failing.items():
            problems.append(
                messages.cannot_read(
                    reading.name,
                    reading.fields[0] if reading.fields else None,
                    [device.identity for device, _ in affected],
                    error,
                    min((since for _, since in affected if since is not None), default=None),
                )
            )
        problems.extend(self._missing())
        return tuple(problems)

    def _missing(self) -> list[Problem]:
        problems = []
        for name, sentence, field in (
            (readings.SAMPLES, messages.NO_SAMPLES, "busy_samples"),
            (readings.PROCESS_BUSY, messages.NO_PROCESS_BUSY, "gpu_busy_percent"),
            (readings.PROCESS_LIST, messages.NO_PROCESS_LIST, "processes"),
        ):
            lacking = [
                device.identity
                for device in self._devices
                if name in device.unsupported and device.identity.mig_parent_uuid is None
            ]
            if lacking:
                problems.append(messages.unsupported(sentence, field, lacking))
        return problems


def _order(device: NvmlDevice) -> tuple[int, int]:
    identity = device.identity
    if identity.mig_parent_uuid is None:
        return identity.index, -1
    return identity.index, 0 if identity.mig_instance is None else identity.mig_instance


def _card(device: NvmlDevice) -> str:
    return device.identity.mig_parent_uuid or device.identity.uuid


def _instances(devices: list[NvmlDevice]) -> dict[str, dict[int, str]]:
    """For each card with MIG instances: their uuids by GPU instance."""
    found: dict[str, dict[int, str]] = {}
    for device in devices:
        parent, instance = device.identity.mig_parent_uuid, device.identity.mig_instance
        if parent is not None and instance is not None:
            found.setdefault(parent, {}).setdefault(instance, device.identity.uuid)
    return found


def _without_repeats(rows: list[GpuProcess]) -> tuple[GpuProcess, ...]:
    """A MIG card and its instances list the same processes; keep one row each, the fuller one."""
    unique: dict[tuple[int, str], GpuProcess] = {}
    for row in rows:
        known = unique.get((row.pid, row.gpu_uuid))
        if known is None or (known.memory_bytes is None and row.memory_bytes is not None):
            unique[(row.pid, row.gpu_uuid)] = row
    return tuple(unique.values())
