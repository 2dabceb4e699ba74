"""GPUs and MIG instances of a driver, compared again and again with the driver's list."""

from collections.abc import Callable
from typing import Any

from gpuwatch.core.model import Problem
from gpuwatch.core.source import Clock
from gpuwatch.sources.nvml import inquiry, messages, parse, tables
from gpuwatch.sources.nvml.device import PROBE_SECONDS, Finder, Known, NvmlDevice
from gpuwatch.sources.nvml.schedule import Tally

RECHECK_SECONDS = 10.0
"""How often the number of GPUs and their MIG mode are compared with what we know ..."""
RECHECK_SHARE = 0.01
"""... unless that would take more than this share of the time."""
GPUS_MAX = 256
"""No machine has more; a count beyond is rubbish."""
INSTANCES_MAX = 64
"""The same for the MIG instances of a card (7 so far)."""


class Inventory:
    """The GPUs of a running driver: cards in NVML's order, each followed by its MIG instances.

    Every method raises ``DriverGoneError`` when the driver turns out to be gone, and no other
    error of the driver.
    """

    def __init__(
        self,
        nvml: Any,
        clock: Clock,
        tally: Tally,
        found: Callable[[list[NvmlDevice]], None],
    ) -> None:
        """``found`` is called with the GPUs so far after each that the first search finds."""
        self._finder = Finder(nvml, clock, tally)
        self._error = nvml.NVMLError
        self._clock = clock
        self._tally = tally
        self._found = found
        self._recheck_at = 0.0
        self._count_seen = 0
        self._refused: dict[int, list[int]] = {}
        self.devices: list[NvmlDevice] = []
        self.instances: dict[str, dict[int, str]] = {}
        """For each card with MIG instances: their uuids by GPU instance."""
        self.unopened: list[Problem] = []
        """Why GPUs that the driver counts have no row."""

    def find(self) -> None:
        """Ask the driver who it is and which GPUs it has."""
        finder = self._finder
        self._recheck_at = self._clock.monotonic() + RECHECK_SECONDS
        self.unopened = []
        self._refused = {}
        finder.ask_versions()
        known = {device.identity.uuid: device for device in self.devices}
        found: Known = {}
        self._count_seen = self._count()
        for index in range(self._count_seen):
            device = self._card_at(index, known)
            if device is None or (device.lost_error and device.identity.uuid in found):
                continue
            found[device.identity.uuid] = device
            if not known:
                self._found(list(found.values()))
            for instance in self._mig_instances(device, known):
                found[instance.identity.uuid] = instance
        self.unopened += [messages.cannot_open(*one) for one in self._refused.items()]
        indexes = {device.identity.index for device in found.values()}
        for uuid, device in known.items():
            # What had a makeshift name has been found under its own.
            renamed = not parse.UUID.fullmatch(uuid) and device.identity.index in indexes
            if uuid not in found and not renamed and not _is_retired_instance(device, found):
                if not device.lost_error:
                    finder.lose(device, tables.GPU_NOT_FOUND)
                found[uuid] = device
        finder.incomplete &= found.keys()
        self._take_over(list(found.values()))

    def refresh(self, now: float) -> None:
        """See whether lost GPUs are back and whether the list changed, each on its slow timer."""
        due = [device for device in self.devices if device.lost_error and now >= device.probe_at]
        for lost in due:
            self._probe(lost, now)
        if now >= self._recheck_at:
            self._recheck(now)

    def close(self) -> None:
        for device in self.devices:
            device.card.close()
        self.devices = []

    def _take_over(self, devices: list[NvmlDevice]) -> None:
        for old in self.devices:
            if not any(old is device for device in devices):
                old.card.close()
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
        incomplete = self._finder.incomplete
        for device in [device for device in self.devices if device.identity.memory_unified]:
            with self._finder.ask(quiet=True) as ask:
                if inquiry.memory_total_bytes(ask, device.card.handle)[0] is not None:
                    incomplete.add(device.identity.uuid)
        unnamed = any(not parse.UUID.fullmatch(device.identity.uuid) for device in self.devices)
        changed = bool(unnamed or incomplete or self.unopened)
        changed = changed or self._count() != self._count_seen
        for device in [device for device in self.devices if device.identity.mig_mode is not None]:
            if device.lost_error:
                continue
            mode = None
            # Lost at this moment: its readings will say so.
            with self._finder.ask(quiet=True) as ask:
                mode = inquiry.mig_mode(ask, device.card.handle)
            enabled = bool(device.identity.mig_mode) if mode is None else mode
            if enabled != device.identity.mig_mode:
                # Its readings differ in the other mode: begin anew.
                self.devices.remove(device)
                device.card.close()
                changed = True
            changed = changed or enabled
        seconds = self._tally.timer() - started
        self._recheck_at = now + max(RECHECK_SECONDS, seconds / RECHECK_SHARE)
        if changed:
            self.find()

    def _count(self) -> int:
        try:
            with self._finder.ask() as ask:
                count = int(ask.must("nvmlDeviceGetCount"))
            if count <= GPUS_MAX:
                return count
            why = f"it says there are {count:,}"
        except self._error as error:
            why = messages.error_words(error.value)
        self.unopened.append(messages.cannot_count(why))
        return sum(device.identity.mig_parent_uuid is None for device in self.devices)

    def _card_at(self, index: int, known: Known) -> NvmlDevice | None:
        finder, handle = self._finder, None
        try:
            with finder.ask() as ask:
                handle = ask.must("nvmlDeviceGetHandleByIndex", index)
                uuid = ask.text("nvmlDeviceGetUUID", handle, like=parse.UUID)
                # One that does not say who it is now is the one that was there.
                old = known.get(uuid) if uuid else _card_known_at(index, known)
                if old is None or not parse.UUID.fullmatch(old.identity.uuid):
                    # Without a uuid (never seen on a real card) the bus id is as unique.
                    uuid = uuid or inquiry.pci_bus_id(ask, handle) or f"index-{index}"
                    old = known.get(uuid)
                    # It answers, and what is found by such a name is not looked for by it.
                    old = None if old is not None and old.lost_error else old
                if old is not None and (
                    old.lost_error or old.identity.uuid not in finder.incomplete
                ):
                    return old
                facts = inquiry.essential_facts(ask, handle)
        except self._error as error:
            return self._unreachable(index, handle, error.value, known)
        name = old.identity.uuid if old is not None else uuid or f"index-{index}"
        return finder.card(ask, handle, index, name, facts, old)

    def _unreachable(self, index: int, handle: Any, code: int, known: Known) -> NvmlDevice | None:
        device = _card_known_at(index, known)
        if device is not None:
            if code in tables.LOST and not device.lost_error:
                self._finder.lose(device, code)
            return device
        if code not in tables.LOST:
            self._refused.setdefault(code, []).append(index)
            return None
        return self._finder.lost_card(handle, index, code)

    def _mig_instances(self, device: NvmlDevice, known: Known) -> list[NvmlDevice]:
        if device.lost_error or not device.identity.mig_mode:
            return []
        for _ in device.learning or ():
            # All at once: the instances have most of their facts from the card.
            continue
        places = None
        with self._finder.ask(quiet=True) as ask:
            places = ask.number("nvmlDeviceGetMaxMigDeviceCount", device.card.handle)
        if places is None or places > INSTANCES_MAX:
            # It does not say now: those that were there are taken to be.
            parent = device.identity.uuid
            return [one for one in known.values() if one.identity.mig_parent_uuid == parent]
        found = (self._finder.mig_instance(device, place, known) for place in range(places))
        return [one for one in found if one is not None]

    def _probe(self, lost: NvmlDevice, now: float) -> None:
        """Put a fresh device in the place of a lost one that answers again."""
        lost.probe_at = now + PROBE_SECONDS
        if lost.identity.mig_parent_uuid is not None:
            # Instances come back with their card, when the list is compared.
            return
        uuid = None
        with self._finder.ask(quiet=True) as ask:
            handle = ask.must("nvmlDeviceGetHandleByUUID", lost.identity.uuid.encode())
            # A handle and a uuid can be had from the library's memory; a temperature cannot.
            ask.ask("nvmlDeviceGetTemperature", handle, tables.TEMPERATURE_GPU)
            facts = inquiry.essential_facts(ask, handle)
            uuid = ask.text("nvmlDeviceGetUUID", handle, like=parse.UUID)
        if uuid == lost.identity.uuid:
            fresh = self._finder.card(ask, handle, lost.identity.index, uuid, facts)
            self._take_over([fresh if device is lost else device for device in self.devices])
            self._recheck_at = now


def _order(device: NvmlDevice) -> tuple[int, int]:
    identity = device.identity
    if identity.mig_parent_uuid is None:
        return identity.index, -1
    return identity.index, 0 if identity.mig_instance is None else identity.mig_instance


def _card_known_at(index: int, known: Known) -> NvmlDevice | None:
    here = [one for one in known.values() if one.identity.index == index]
    return next((one for one in here if one.identity.mig_parent_uuid is None), None)


def _is_retired_instance(device: NvmlDevice, found: Known) -> bool:
    """A MIG instance that somebody removed from a healthy card is gone, not lost."""
    parent = found.get(device.identity.mig_parent_uuid or "")
    return parent is not None and not parent.lost_error
