"""Which GPUs and MIG instances there are, compared again and again with the driver's list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpuwatch.model import GpuIdentity, Problem
from gpuwatch.sources import nvml_messages as messages
from gpuwatch.sources import nvml_parse as parse
from gpuwatch.sources import nvml_tables as tables
from gpuwatch.sources.base import Clock, ReadOptions
from gpuwatch.sources.nvml_device import DriverGoneError, NvmlDevice, Tally
from gpuwatch.sources.nvml_identity import (
    Inquirer,
    essential_facts,
    further_facts,
    read_mig_identity,
    read_uuid,
)

RECHECK_SECONDS = 10.0
"""How often the number of GPUs and their MIG mode are compared with what we know ..."""
RECHECK_SHARE = 0.01
"""... unless that would take more than this share of the time."""
PROBE_SECONDS = 5.0
"""How often a lost GPU is asked whether it is back."""


class Inventory:
    """The GPUs of a running driver: cards in NVML's order, each followed by its MIG instances.

    Every method raises ``DriverGoneError`` when the driver turns out to be gone, and no other
    error of the driver.
    """

    def __init__(
        self,
        nvml: Any,
        clock: Clock,
        options: ReadOptions,
        tally: Tally,
        found: Callable[[list[NvmlDevice]], None],
    ) -> None:
        """``found`` is called with the GPUs so far after each that the first search finds."""
        self._nvml = nvml
        self._clock = clock
        self._options = options
        self._tally = tally
        self._found = found
        self._recheck_at = 0.0
        self._count_seen = 0
        self._incomplete: set[str] = set()
        self._driver_version: str | None = None
        self._cuda_version: str | None = None
        self.devices: list[NvmlDevice] = []
        self.instances: dict[str, dict[int, str]] = {}
        """For each card with MIG instances: their uuids by GPU instance."""
        self.unopened: list[Problem] = []
        """Why GPUs that the driver counts have no row."""

    def find(self) -> None:
        """Ask the driver who it is and which GPUs it has."""
        ask = Inquirer(self._nvml)
        with self._driver_calls(ask):
            self._driver_version = ask.text("nvmlSystemGetDriverVersion")
            cuda = ask.number("nvmlSystemGetCudaDriverVersion_v2")
            self._cuda_version = None if cuda is None else parse.cuda_version(cuda)
        self._enumerate(self._clock.monotonic())

    def refresh(self, now: float) -> None:
        """See whether lost GPUs are back and whether the list changed, each on its slow timer."""
        due = [device for device in self.devices if device.lost_error and now >= device.probe_at]
        for lost in due:
            self._probe(lost, now)
        if now >= self._recheck_at:
            self._recheck(now)

    def close(self) -> None:
        """Give back what the driver holds for us."""
        for device in self.devices:
            device.close()
        self.devices = []

    @contextmanager
    def _driver_calls(self, ask: Inquirer) -> Iterator[None]:
        """Counts and times calls, and turns "the driver is gone" into its own exception."""
        start, before = self._tally.timer(), ask.calls
        try:
            yield
        except self._nvml.NVMLError as error:
            if error.value in tables.DRIVER_GONE:
                raise DriverGoneError(error.value) from None
            raise
        finally:
            self._tally.count(start, ask.calls - before)

    # The list.

    def _enumerate(self, now: float) -> None:
        self._recheck_at = now + RECHECK_SECONDS
        self.unopened = []
        known = {device.identity.uuid: device for device in self.devices}
        found: dict[str, NvmlDevice] = {}
        self._count_seen = self._count()
        for index in range(self._count_seen):
            device = self._card_at(index, known, now)
            if device is not None:
                found[device.identity.uuid] = device
                if not known:
                    self._found(list(found.values()))
                for instance in self._mig_instances(device, known, now):
                    found[instance.identity.uuid] = instance
        for uuid, device in known.items():
            if uuid not in found and not _is_retired_instance(device, found):
                if not device.lost_error:
                    self._lose(device, tables.GPU_NOT_FOUND, now)
                found[uuid] = device
        self._take_over(list(found.values()))

    def _take_over(self, devices: list[NvmlDevice]) -> None:
        for old in self.devices:
            if not any(old is device for device in devices):
                old.close()
        self.devices = sorted(devices, key=_order)
        self.instances = {}
        for device in self.devices:
            parent, instance = device.identity.mig_parent_uuid, device.identity.mig_instance
            if parent is not None and instance is not None:
                self.instances.setdefault(parent, {}).setdefault(instance, device.identity.uuid)

    def _recheck(self, now: float) -> None:
        """Enumerate again only if something changed: a handle by index takes real drivers
        milliseconds a GPU."""
        started = self._tally.timer()
        changed = bool(self._incomplete or self.unopened) or self._count() != self._count_seen
        for card in [device for device in self.devices if device.identity.mig_mode is not None]:
            if card.lost_error:
                continue
            enabled = self._mig_enabled(card)
            if enabled != card.identity.mig_mode:
                # Its readings differ in the other mode: begin anew.
                self.devices.remove(card)
                card.close()
                changed = True
            changed = changed or enabled
        seconds = self._tally.timer() - started
        self._recheck_at = now + max(RECHECK_SECONDS, seconds / RECHECK_SHARE)
        if changed:
            self._enumerate(now)

    def _count(self) -> int:
        ask = Inquirer(self._nvml)
        try:
            with self._driver_calls(ask):
                return int(ask.must("nvmlDeviceGetCount"))
        except self._nvml.NVMLError as error:
            self.unopened.append(messages.cannot_count(error.value))
            return sum(device.identity.mig_parent_uuid is None for device in self.devices)

    def _card_at(self, index: int, known: dict[str, NvmlDevice], now: float) -> NvmlDevice | None:
        ask = Inquirer(self._nvml)
        try:
            with self._driver_calls(ask):
                handle = ask.must("nvmlDeviceGetHandleByIndex", index)
                uuid = read_uuid(ask, handle, index)
                old = known.get(uuid)
                if old is not None and (old.lost_error or uuid not in self._incomplete):
                    return old
                facts = essential_facts(ask, handle)
        except self._nvml.NVMLError as error:
            return self._unreachable(index, error.value, known, now)
        if old is not None:
            old.identity = replace(old.identity, **facts)
            old.learning = self._learning(old, ask)
            return old
        return self._new_card(handle, index, uuid, facts, ask, now)

    def _new_card(
        self,
        handle: Any,
        index: int,
        uuid: str,
        facts: dict[str, Any],
        ask: Inquirer,
        now: float,
    ) -> NvmlDevice:
        identity = GpuIdentity(
            index=index,
            uuid=uuid,
            driver_version=self._driver_version,
            cuda_version=self._cuda_version,
            **facts,
        )
        device = self._new_device(handle, identity, now)
        device.learning = self._learning(device, ask)
        return device

    def _learning(self, device: NvmlDevice, ask: Inquirer) -> Iterator[None]:
        """Learns a few more facts of a card at each step, and marks it if any was missed."""
        steps = further_facts(ask, device.handle)
        try:
            while True:
                with self._driver_calls(ask):
                    facts = next(steps, None)
                if facts is None:
                    break
                device.identity = replace(device.identity, **facts)
                yield
        except self._nvml.NVMLError:
            # Lost at this moment: its readings will say so.
            ask.complete = False
        self._incomplete.discard(device.identity.uuid)
        if not ask.complete:
            self._incomplete.add(device.identity.uuid)

    def _unreachable(
        self, index: int, code: int, known: dict[str, NvmlDevice], now: float
    ) -> NvmlDevice | None:
        for device in known.values():
            if device.identity.index == index and device.identity.mig_parent_uuid is None:
                if code in tables.LOST and not device.lost_error:
                    self._lose(device, code, now)
                return device
        self.unopened.append(messages.cannot_open(index, code))
        return None

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

    # MIG.

    def _mig_enabled(self, card: NvmlDevice) -> bool:
        ask = Inquirer(self._nvml)
        try:
            with self._driver_calls(ask):
                mode = ask.ask("nvmlDeviceGetMigMode", card.handle)
        except self._nvml.NVMLError:
            # Lost at this moment: its readings will say so.
            mode = None
        return bool(card.identity.mig_mode) if mode is None else mode[0] == 1

    def _mig_instances(
        self, card: NvmlDevice, known: dict[str, NvmlDevice], now: float
    ) -> list[NvmlDevice]:
        if card.lost_error or not card.identity.mig_mode:
            return []
        for _ in card.learning or ():
            # All at once: the instances have most of their facts from the card.
            continue
        ask = Inquirer(self._nvml)
        found: list[NvmlDevice] = []
        try:
            with self._driver_calls(ask):
                for place in range(ask.number("nvmlDeviceGetMaxMigDeviceCount", card.handle) or 0):
                    handle = ask.ask("nvmlDeviceGetMigDeviceHandleByIndex", card.handle, place)
                    if handle is not None:
                        found.append(self._mig_instance(ask, card, handle, known, now))
        except self._nvml.NVMLError:
            # Lost at this moment: its readings will say so.
            return found
        return found

    def _mig_instance(
        self,
        ask: Inquirer,
        card: NvmlDevice,
        handle: Any,
        known: dict[str, NvmlDevice],
        now: float,
    ) -> NvmlDevice:
        device = known.get(ask.text("nvmlDeviceGetUUID", handle) or "")
        if device is not None and not device.lost_error:
            return device
        instance = ask.number("nvmlDeviceGetGpuInstanceId", handle)
        identity = read_mig_identity(ask, handle, card.identity, instance)
        return self._new_device(handle, identity, now, card.handle)

    # Lost GPUs.

    def _lose(self, device: NvmlDevice, code: int, now: float) -> None:
        device.unix = self._clock.unix()
        device.lose(code)
        device.probe_at = now + PROBE_SECONDS

    def _probe(self, lost: NvmlDevice, now: float) -> None:
        """Put a fresh device in the place of a lost one that answers again."""
        lost.probe_at = now + PROBE_SECONDS
        if lost.identity.mig_parent_uuid is not None:
            # Instances come back with their card, when the list is compared.
            return
        ask = Inquirer(self._nvml)
        try:
            with self._driver_calls(ask):
                handle = ask.must("nvmlDeviceGetHandleByUUID", lost.identity.uuid.encode())
                # A handle and a uuid can be had from the library's memory; a temperature cannot.
                ask.ask("nvmlDeviceGetTemperature", handle, tables.TEMPERATURE_GPU)
                uuid = read_uuid(ask, handle, lost.identity.index)
                facts = essential_facts(ask, handle)
        except self._nvml.NVMLError:
            return
        if uuid == lost.identity.uuid:
            fresh = self._new_card(handle, lost.identity.index, uuid, facts, ask, now)
            self._take_over([fresh if device is lost else device for device in self.devices])
            self._recheck_at = now


def _order(device: NvmlDevice) -> tuple[int, int]:
    identity = device.identity
    if identity.mig_parent_uuid is None:
        return identity.index, -1
    return identity.index, 0 if identity.mig_instance is None else identity.mig_instance


def _is_retired_instance(device: NvmlDevice, found: dict[str, NvmlDevice]) -> bool:
    """A MIG instance that somebody removed from a healthy card is gone, not lost."""
    parent = found.get(device.identity.mig_parent_uuid or "")
    return parent is not None and not parent.lost_error
