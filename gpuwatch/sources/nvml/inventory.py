"""GPUs and MIG instances of a driver, compared again and again with the driver's list."""

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpuwatch.core.model import GpuIdentity, Problem
from gpuwatch.core.source import Clock
from gpuwatch.sources.nvml import messages, parse, tables
from gpuwatch.sources.nvml.readings import NvmlDevice, pci_bus_id, undecorated
from gpuwatch.sources.nvml.schedule import CallCounter, DriverGoneError

RECHECK_SECONDS = 10.0
"""Time between comparisons of the number of GPUs and their MIG mode with the known ones ..."""
RECHECK_SHARE = 0.01
"""... unless that would take more than this share of the time."""
PROBE_SECONDS = 5.0
"""Time between questions to a lost GPU whether it is back."""
GPUS_MAX = 256
"""No machine has more; a count beyond is rubbish."""
INSTANCES_MAX = 64
"""No card has more MIG instances (7 so far)."""

Known = dict[str, NvmlDevice]
"""Devices by their uuid."""


class Inventory:
    """The GPUs of a running driver: cards in NVML's order, each followed by its MIG instances.

    Every public method raises ``DriverGoneError`` when the driver turns out to be gone, and no
    other error of the driver.
    """

    def __init__(self, nvml: Any, clock: Clock, counter: CallCounter) -> None:
        self._nvml = nvml
        self._error = nvml.NVMLError
        self._clock = clock
        self._counter = counter
        self._recheck_at = 0.0
        self._count_seen = 0
        self._versions: dict[str, Any] = {}
        self._versions_known = False
        self.devices: list[NvmlDevice] = []
        self.instances: dict[str, dict[int, str]] = {}
        """Uuids of MIG instances by the card's uuid and the GPU instance."""
        self.unopened: list[Problem] = []
        """Why GPUs that the driver counts have no row."""

    def find(self) -> None:
        """Ask the driver who it is and which GPUs it has."""
        self._recheck_at = self._clock.monotonic() + RECHECK_SECONDS
        self.unopened = []
        self._ask_versions()
        known = {device.identity.uuid: device for device in self.devices}
        found: Known = {}
        refused: dict[int, list[int]] = {}
        self._count_seen = self._count()
        for index in range(self._count_seen):
            device = self._card_at(index, known, refused)
            if device is None or (device.lost_error and device.identity.uuid in found):
                continue
            found[device.identity.uuid] = device
            for instance in self._mig_instances(device, known):
                found[instance.identity.uuid] = instance
        self.unopened += [messages.cannot_open(*one) for one in refused.items()]
        indexes = {device.identity.index for device in found.values()}
        for uuid, device in known.items():
            # A device with a makeshift name has been found under its own.
            renamed = not parse.UUID.fullmatch(uuid) and device.identity.index in indexes
            if uuid not in found and not renamed and not _is_retired_instance(device, found):
                if not device.lost_error:
                    self._lose(device, tables.GPU_NOT_FOUND)
                found[uuid] = device
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
            device.close()
        self.devices = []

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
        started = self._counter.timer()
        changed = bool(self.unopened) or self._count() != self._count_seen
        anew: list[NvmlDevice] = []
        """Devices whose readings differ from now on."""
        if not self._versions_known:
            self._ask_versions()
            if self._versions_known:
                anew = [device for device in self.devices if not device.lost_error]
        for card in [one for one in self.devices if one.identity.mig_parent_uuid is None]:
            changed = changed or not parse.UUID.fullmatch(card.identity.uuid)
            mode = None
            # Lost at this moment: its readings will say so.
            with suppress(self._error):
                mode = None if card.lost_error else self._mig_mode(card.handle)
            if mode is not None and mode != bool(card.identity.mig_mode):
                anew.append(card)
            elif mode is not None:
                card.identity = replace(card.identity, mig_mode=mode)
            # Its instances can change.
            changed = changed or bool(mode)
        for device in anew:
            device.close()
        self.devices = [device for device in self.devices if device not in anew]
        seconds = self._counter.timer() - started
        self._recheck_at = now + max(RECHECK_SECONDS, seconds / RECHECK_SHARE)
        if changed or anew:
            self.find()

    def _count(self) -> int:
        try:
            count = int(self._ask("nvmlDeviceGetCount"))
            if count <= GPUS_MAX:
                return count
            why = f"it says there are {count:,}"
        except self._error as error:
            why = messages.error_words(error.value)
        self.unopened.append(messages.cannot_count(why))
        return sum(device.identity.mig_parent_uuid is None for device in self.devices)

    def _ask_versions(self) -> None:
        """Ask for the driver's versions; a GPU that is lost can make even these fail, and they are
        asked for again with the list."""
        if self._versions_known:
            return
        with suppress(self._error):
            version = self._text("nvmlSystemGetDriverVersion", like=parse.VERSION)
            cuda = parse.cuda_version(self._answer("nvmlSystemGetCudaDriverVersion_v2"))
            self._versions = {"driver_version": version, "cuda_version": cuda}
            self._versions_known = None not in (version, cuda)

    # Cards.

    def _card_at(
        self, index: int, known: Known, refused: dict[int, list[int]]
    ) -> NvmlDevice | None:
        handle = None
        try:
            handle = self._ask("nvmlDeviceGetHandleByIndex", index)
            uuid = self._text("nvmlDeviceGetUUID", handle, like=parse.UUID)
            # A card that does not say who it is now is the one that was there.
            old = known.get(uuid) if uuid else _card_known_at(index, known)
            if old is None or not parse.UUID.fullmatch(old.identity.uuid):
                # Without a uuid (never seen on a real card) the bus id is as unique.
                uuid = uuid or self._bus_id(handle) or f"index-{index}"
                old = known.get(uuid)
                # It answers, and a card found by such a name is not looked for by it.
                old = None if old is not None and old.lost_error else old
            if old is not None:
                return old
            mode = self._mig_mode(handle)
        except self._error as error:
            return self._unreachable(index, handle, error.value, known, refused)
        return self._device(handle, index=index, uuid=uuid or f"index-{index}", mig_mode=mode)

    def _unreachable(
        self, index: int, handle: Any, code: int, known: Known, refused: dict[int, list[int]]
    ) -> NvmlDevice | None:
        device = _card_known_at(index, known)
        if device is not None:
            if code in tables.LOST and not device.lost_error:
                self._lose(device, code)
            return device
        if code not in tables.LOST:
            refused.setdefault(code, []).append(index)
            return None
        # It was lost before it said who it is; its bus may still be known.
        bus_id = None
        with suppress(self._error):
            bus_id = None if handle is None else pci_bus_id(self._nvml, handle)
        uuid = bus_id or f"index-{index}"
        device = self._device(handle, index=index, uuid=uuid, pci_bus_id=bus_id)
        self._lose(device, code)
        return device

    def _device(self, handle: Any, **facts: Any) -> NvmlDevice:
        identity = GpuIdentity(name="NVIDIA GPU", **self._versions, **facts)
        now = self._clock.monotonic()
        return NvmlDevice(self._nvml, handle, identity, self._counter, now)

    def _lose(self, device: NvmlDevice, code: int) -> None:
        device.lose(code, self._clock.unix())
        device.probe_at = self._clock.monotonic() + PROBE_SECONDS

    def _probe(self, lost: NvmlDevice, now: float) -> None:
        """Put a fresh device in the place of a lost one that answers again."""
        lost.probe_at = now + PROBE_SECONDS
        if lost.identity.mig_parent_uuid is not None:
            # Instances come back with their card, when the list is compared.
            return
        with suppress(self._error):
            handle = self._ask("nvmlDeviceGetHandleByUUID", lost.identity.uuid.encode())
            # A handle and a uuid can be had from the library's memory; a temperature cannot.
            self._answer("nvmlDeviceGetTemperature", handle, tables.TEMPERATURE_GPU)
            mode = self._mig_mode(handle)
            if self._text("nvmlDeviceGetUUID", handle, like=parse.UUID) == lost.identity.uuid:
                identity = replace(lost.identity, **self._versions, mig_mode=mode)
                fresh = NvmlDevice(self._nvml, handle, identity, self._counter, now)
                self._take_over([fresh if device is lost else device for device in self.devices])
                self._recheck_at = now

    # MIG instances.

    def _mig_instances(self, card: NvmlDevice, known: Known) -> list[NvmlDevice]:
        if card.lost_error or not card.identity.mig_mode:
            return []
        for slot in [slot for slot in card.slots if slot.reading.is_fact and slot.unknown]:
            # All at once: the instances have most of their facts from the card.
            card.take(slot)
        places = None
        with suppress(self._error):
            places = self._answer("nvmlDeviceGetMaxMigDeviceCount", card.handle)
        if places is None or places > INSTANCES_MAX:
            # It does not say now: the instances that were there are taken to be.
            parent = card.identity.uuid
            return [one for one in known.values() if one.identity.mig_parent_uuid == parent]
        found = (self._mig_instance(card, place, known) for place in range(places))
        return [one for one in found if one is not None]

    def _mig_instance(self, card: NvmlDevice, place: int, known: Known) -> NvmlDevice | None:
        """Return the MIG instance at ``place`` of a card, a known one where it is one."""
        try:
            handle = self._answer("nvmlDeviceGetMigDeviceHandleByIndex", card.handle, place)
            if handle is None:
                return None
            uuid = self._text("nvmlDeviceGetUUID", handle, like=parse.UUID)
            device = known.get(uuid or "")
            if device is not None and not device.lost_error:
                own = device.identity
                if own.mig_instance is not None:
                    device.identity = card.identity.divided(
                        uuid=own.uuid,
                        name=own.name,
                        memory_total_bytes=own.memory_total_bytes,
                        memory_unified=own.memory_unified,
                        mig_instance=own.mig_instance,
                    )
                    return device
            number = self._answer("nvmlDeviceGetGpuInstanceId", handle)
        except self._error:
            # Lost at this moment: its readings will say so.
            return None
        instance = parse.plausible("mig_instance", number)
        parent = card.identity
        identity = parent.divided(
            uuid=uuid or f"{parent.uuid}/{'?' if instance is None else instance}",
            name=f"{parent.name} MIG",
            mig_instance=instance,
        )
        now = self._clock.monotonic()
        return NvmlDevice(self._nvml, handle, identity, self._counter, now, card.handle)

    def _mig_mode(self, handle: Any) -> bool | None:
        """Return True when the card is divided; ``None`` where it cannot be, or does not say."""
        mode = self._answer("nvmlDeviceGetMigMode", handle)
        return None if mode is None or mode[0] not in (0, 1) else mode[0] == 1

    # Questions. A lost GPU raises ``NVMLError``, a driver that is gone ``DriverGoneError``.

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Return the result of the pynvml function ``name``, bytes left as they are. Raises
        ``NVMLError``."""
        self._counter.doing = name, None
        started = self._counter.timer()
        try:
            return undecorated(self._nvml, name)(*arguments)
        except Exception as error:
            # An answer nobody foresaw is about this GPU, or this question, alone.
            code = error.value if isinstance(error, self._error) else tables.SENSELESS
        finally:
            self._counter.count(started)
        if code in tables.DRIVER_GONE:
            raise DriverGoneError(code)
        raise self._error(code)

    def _answer(self, name: str, *arguments: Any) -> Any:
        """Return the result of ``name``; ``None`` where it cannot be had. Raises ``NVMLError`` for
        a lost GPU alone."""
        try:
            return self._ask(name, *arguments)
        except self._error as error:
            if error.value in tables.LOST:
                raise
            return None

    def _text(self, name: str, *arguments: Any, like: re.Pattern[str]) -> str | None:
        """Return the text that ``name`` gives; ``None`` where it is not all ``like`` that."""
        raw = self._answer(name, *arguments)
        text = "" if raw is None else parse.text(raw)
        return text if like.fullmatch(text) else None

    def _bus_id(self, handle: Any) -> str | None:
        with suppress(self._error):
            return pci_bus_id(self._nvml, handle)
        return None


def _order(device: NvmlDevice) -> tuple[int, int]:
    identity = device.identity
    if identity.mig_parent_uuid is None:
        return identity.index, -1
    return identity.index, 0 if identity.mig_instance is None else identity.mig_instance


def _card_known_at(index: int, known: Known) -> NvmlDevice | None:
    here = [one for one in known.values() if one.identity.index == index]
    return next((one for one in here if one.identity.mig_parent_uuid is None), None)


def _is_retired_instance(device: NvmlDevice, found: Known) -> bool:
    """Return True for a MIG instance that somebody removed from a healthy card: it is gone, not
    lost."""
    parent = found.get(device.identity.mig_parent_uuid or "")
    return parent is not None and not parent.lost_error
