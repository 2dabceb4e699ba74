"""The NVIDIA GPUs, through ``pynvml`` (nvidia-ml-py). The only module that imports it.

``NvmlSource`` finds the driver and the GPUs, keeps looking for them while they are not there,
and takes one reading of all of them. Which GPUs there are is found in ``inventory``; what is read
of a GPU, and what an error means for it, is in ``readings``; when it is read, in ``schedule``.
"""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from gpuwatch.core.model import Problem
from gpuwatch.core.source import Clock, ReadOptions
from gpuwatch.sources.gpu_source import DriverReading, GpuProcess
from gpuwatch.sources.linux import cgroup
from gpuwatch.sources.nvml import messages, schedule, tables
from gpuwatch.sources.nvml.inventory import PROBE_SECONDS, Inventory
from gpuwatch.sources.nvml.readings import FIRST_ORDER, NvmlDevice
from gpuwatch.sources.nvml.schedule import CallCounter, DriverGoneError, ReadingPlanner, Slot

RETRY_SECONDS = 5.0
"""Time between looks for a driver that is not there."""
FIRST_SECONDS = 0.25
"""Time in a look for readings that were never taken: of a driver that takes longer for all of them,
more and more are shown."""


class BindingError(Exception):
    """pynvml cannot be used; the message is a sentence for a person."""


def load_binding() -> Any:
    """Return the ``pynvml`` module. Raises ``BindingError`` when it is missing or not NVIDIA's."""
    try:
        # Not at the top: without GPUs, or before they are asked for, nobody should pay for it.
        import pynvml as binding  # noqa: PLC0415
    except ImportError:
        raise BindingError(messages.NO_BINDING) from None
    # The abandoned distribution "pynvml" is a package of the same name, which Python finds
    # before nvidia-ml-py's module; it re-exports no private name.
    if not hasattr(binding, "_nvmlGetFunctionPointer"):
        raise BindingError(messages.WRONG_BINDING)
    return binding


class NvmlSource:
    """Takes readings of every NVIDIA GPU of this machine.

    All of it blocks and belongs on one thread (``DriverLink`` has one). Nothing raises for what a
    driver can do wrong. ``timer`` times driver calls.
    """

    def __init__(
        self, clock: Clock, options: ReadOptions, timer: Callable[[], float] = perf_counter
    ) -> None:
        self._clock = clock
        self._options = options
        self._counter = CallCounter(timer)
        self._closed = False
        self._nvml: Any = None
        self._inventory: Inventory | None = None
        """The GPUs, while the driver runs."""
        self._ran_before = False
        self._failure: Problem | None = None
        self._retry_at = 0.0
        self._planner = ReadingPlanner()
        self._budget_seconds: float | None = None
        """Time for the readings of one look; ``None``: as the planner says."""

    def open(self) -> None:
        """Start the driver's library and find the GPUs; what fails is a problem of ``read``."""
        self._closed = False
        if self._inventory is None:
            self._start()

    def read(self) -> DriverReading:
        absent = self._inventory is None and not self._closed
        if absent and self._clock.monotonic() >= self._retry_at:
            self._start()
        if self._inventory is not None:
            try:
                self._take_what_is_due(self._inventory)
            except DriverGoneError as error:
                self._driver_went_away(error.code)
        if self._inventory is not None:
            found = self._known(self._inventory)
            if not found.gpus and not found.problems:
                found = DriverReading(problems=(messages.problem(messages.NO_DEVICES),))
        else:
            found = DriverReading(problems=() if self._failure is None else (self._failure,))
        seconds, calls = self._counter.begin_anew()
        return replace(found, call_seconds=seconds, call_count=calls)

    def close(self) -> None:
        self._closed = True
        self._stop()

    # The driver as a whole.

    def _start(self) -> None:
        self._retry_at = self._clock.monotonic() + RETRY_SECONDS
        if not self._initialise():
            return
        self._failure = None
        self._inventory = Inventory(self._nvml, self._clock, self._counter)
        try:
            self._inventory.find()
        except DriverGoneError as error:
            self._driver_went_away(error.code)
        self._ran_before = True

    def _initialise(self) -> bool:
        start = self._counter.timer()
        try:
            self._nvml = load_binding()
            start = self._counter.timer()
            self._counter.doing = "nvmlInit", None
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
            self._counter.count(start)
        return True

    def _start_sentence(self, code: int) -> str:
        if code == tables.LIB_RM_VERSION_MISMATCH and self._ran_before:
            # The library stays loaded in this process, so only a new one can have the new one.
            return messages.UPDATED_MEANWHILE
        return messages.cannot_start(code, cgroup.in_container(), os.uname().release)

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
            # It was down already, as wanted.
            return

    def _driver_went_away(self, code: int) -> None:
        self._stop()
        self._retry_at = self._clock.monotonic() + RETRY_SECONDS
        mismatch = code == tables.LIB_RM_VERSION_MISMATCH
        self._fail(self._start_sentence(code) if mismatch else messages.WENT_AWAY)

    # One look.

    def _take_what_is_due(self, inventory: Inventory) -> None:
        """Take the readings that are due, then for some time those that were never taken."""
        now, unix = self._clock.monotonic(), self._clock.unix()
        inventory.refresh(now)
        interval, detailed = self._options.interval_seconds, self._options.detailed_gpu
        devices = [device for device in inventory.devices if not device.lost_error]
        for device in devices:
            device.interval_seconds = interval
            device.probe_at = now + PROBE_SECONDS
        first_seconds, budget_seconds = math.inf, self._budget_seconds or schedule.SINGLE_SECONDS
        if self._budget_seconds is None and self._options.driver_wait_seconds is None:
            first_seconds = FIRST_SECONDS
            gpus = [
                (d.slots, schedule.DETAILED_FACTOR if d.identity.uuid == detailed else 1.0)
                for d in devices
            ]
            budget_seconds = interval * self._planner.plan(gpus, interval, now) * schedule.BURST
        # Half an interval early is as good as half an interval late.
        horizon = now + 0.5 * interval
        due = [(device, slot) for device in devices for slot in device.due(now, unix, horizon)]
        unknown = [pair for pair in due if pair[1].unknown]
        # Readings that are known to be slow wait until everything else was read once.
        again = [pair for pair in due if not unknown or pair[1].read_at is not None]
        self._take_within(budget_seconds, again)
        # Not held to a share of the time: it is done once, and somebody waits for it.
        unknown.sort(key=lambda pair: FIRST_ORDER.index(pair[1].reading))
        started = self._counter.timer()
        for device, slot in unknown:
            if self._counter.timer() - started >= first_seconds:
                break
            if not device.lost_error:
                device.take(slot)

    def _take_within(self, budget_seconds: float, due: list[tuple[NvmlDevice, Slot]]) -> None:
        """Take the readings, the first in any case, for about so long, so that the slow calls of
        all GPUs never fall together."""
        due.sort(key=lambda pair: (-pair[1].urgency(pair[0].now), pair[1].due_at))
        spent = 0.0
        for device, slot in due:
            if spent >= budget_seconds:
                break
            if device.lost_error:
                continue
            believed, seconds = slot.cost, device.take(slot)
            spent += seconds
            self._planner.note_cost(believed, seconds)

    def _known(self, inventory: Inventory) -> DriverReading:
        devices = inventory.devices
        rows: dict[tuple[int, str], GpuProcess] = {}
        cards = {device.identity.uuid: device for device in devices}
        for device in devices:
            card = device.identity.mig_parent_uuid or device.identity.uuid
            if card in cards:
                # The errors of a card are those of its MIG instances.
                device.xids = cards[card].xids
            instances = inventory.instances.get(card, {})
            for row in () if device.lost_error else device.gpu_processes(instances):
                # A MIG card and its instances list the same processes: the fuller row counts.
                known = rows.setdefault((row.pid, row.gpu_uuid), row)
                if known.memory_bytes is None and row.memory_bytes is not None:
                    rows[row.pid, row.gpu_uuid] = row
        return DriverReading(
            gpus=tuple(device.gpu() for device in devices),
            processes=tuple(rows.values()),
            problems=(*inventory.unopened, *messages.troubles(devices)),
        )
