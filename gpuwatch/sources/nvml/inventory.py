"""Which GPUs and MIG instances there are, compared again and again with the driver's list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from gpuwatch.core.model import GpuIdentity, Problem
from gpuwatch.core.source import Clock, ReadOptions
from gpuwatch.sources.nvml import messages, parse, tables
from gpuwatch.sources.nvml.device import DriverGoneError, NvmlDevice, Tally
from gpuwatch.sources.nvml.identity import (
    Inquirer,
    essential_facts,
    further_facts,
    lost_identity,
    makeshift_name,
    memory_total_bytes,
    mig_mode,
    read_mig_identity,
)

RECHECK_SECONDS = 10.0
"""How often the number of GPUs and their MIG mode are compared with what we know ..."""
RECHECK_SHARE = 0.01
"""... unless that would take more than this share of the time."""
PROBE_SECONDS = 5.0
"""How often a lost GPU is asked whether it is back."""
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
        self._refused: dict[int, list[int]] = {}
        """By error: indexes of GPUs that cannot be opened."""
        self._versions_known = False
        self._driver_version: str | None = None
        self._cuda_version: str | None = None
        self.devices: list[NvmlDevice] = []
        self.instances: dict[str, dict[int, str]] = {}
        """For each card with MIG instances: their uuids by GPU instance."""
        self.unopened: list[Problem] = []
        """Why GPUs that the driver counts have no row."""

    def find(self) -> None:
        """Ask the driver who it is and which GPUs it has."""
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
        # An answer nobody foresaw is about this GPU, or this question, alone.
        except Exception:
            raise self._nvml.NVMLError(tables.SENSELESS) from None
        finally:
            self._tally.count(start, ask.calls - before)

    # The list.

    def _ask_versions(self) -> None:
        ask = Inquirer(self._nvml)
        try:
            with self._driver_calls(ask):
                version = ask.text("nvmlSystemGetDriverVersion", like=parse.VERSION)
                self._driver_version = version
                cuda = ask.number("nvmlSystemGetCudaDriverVersion_v2")
                if cuda is not None:
                    text = parse.cuda_version(cuda) or str(cuda)
                    self._cuda_version = ask.matching(text, parse.CUDA_VERSION)
        except self._nvml.NVMLError:
            # A GPU that is lost can make even these fail: they are asked again with the list.
            return
        self._versions_known = ask.complete

    def _enumerate(self, now: float) -> None:
        self._recheck_at = now + RECHECK_SECONDS
        self.unopened = []
        self._refused = {}
        if not self._versions_known:
            self._ask_versions()
        known = {device.identity.uuid: device for device in self.devices}
        found: dict[str, NvmlDevice] = {}
        self._count_seen = self._count()
        for index in range(self._count_seen):
            device = self._card_at(index, known, now)
            if device is not None:
                if device.lost_error and device.identity.uuid in found:
                    continue
                found[device.identity.uuid] = device
                if not known:
                    self._found(list(found.values()))
                for instance in self._mig_instances(device, known, now):
                    found[instance.identity.uuid] = instance
        self.unopened += [messages.cannot_open(*one) for one in self._refused.items()]
        indexes = {device.identity.index for device in found.values()}
        for uuid, device in known.items():
            # What had a makeshift name has been found under its own.
            renamed = not parse.UUID.fullmatch(uuid) and device.identity.index in indexes
            if uuid not in found and not renamed and not _is_retired_instance(device, found):
                if not device.lost_error:
                    self._lose(device, tables.GPU_NOT_FOUND, now)
                found[uuid] = device
        self._incomplete &= found.keys()
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
        for card in [device for device in self.devices if device.identity.memory_unified]:
            ask = Inquirer(self._nvml)
            with suppress(self._nvml.NVMLError), self._driver_calls(ask):
                if memory_total_bytes(ask, card.handle)[0] is not None:
                    self._incomplete.add(card.identity.uuid)
        unnamed = any(not parse.UUID.fullmatch(device.identity.uuid) for device in self.devices)
        changed = bool(unnamed or self._incomplete or self.unopened)
        changed = changed or self._count() != self._count_seen
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
                count = int(ask.must("nvmlDeviceGetCount"))
            if count <= GPUS_MAX:
                return count
            why = f"it says there are {count:,}"
        except self._nvml.NVMLError as error:
            why = messages.error_words(error.value)
        self.unopened.append(messages.cannot_count(why))
        return sum(device.identity.mig_parent_uuid is None for device in self.devices)

    def _card_at(self, index: int, known: dict[str, NvmlDevice], now: float) -> NvmlDevice | None:
        ask = Inquirer(self._nvml)
        handle = None
        try:
            with self._driver_calls(ask):
                handle = ask.must("nvmlDeviceGetHandleByIndex", index)
                uuid = ask.text("nvmlDeviceGetUUID", handle, like=parse.UUID)
                # One that does not say who it is now is the one that was there.
                old = known.get(uuid) if uuid else _named_at(index, known)
                if old is None:
                    uuid = uuid or makeshift_name(ask, handle, index)
                    old = known.get(uuid)
                    # It answers, and what is found by such a name is not looked for by it.
                    old = None if old is not None and old.lost_error else old
                if old is not None and (
                    old.lost_error or old.identity.uuid not in self._incomplete
                ):
                    return old
                facts = essential_facts(ask, handle)
        except self._nvml.NVMLError as error:
            return self._unreachable(index, handle, error.value, known, now)
        # Which readings there are depends on the driver's version.
        if old is not None and old.identity.driver_version == self._driver_version:
            old.identity = replace(old.identity, cuda_version=self._cuda_version, **facts)
            old.learning = self._learning(old, ask)
            return old
        name = old.identity.uuid if old is not None else uuid or f"index-{index}"
        return self._new_card(handle, index, name, facts, ask, now)

    def _new_card(
        self, handle: Any, index: int, uuid: str, facts: dict[str, Any], ask: Inquirer, now: float
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
        self._note(ask, device.identity)

    def _note(self, ask: Inquirer, identity: GpuIdentity) -> None:
        if ask.complete and self._versions_known:
            self._incomplete.discard(identity.uuid)
        else:
            self._incomplete.add(identity.uuid)

    def _unreachable(
        self, index: int, handle: Any, code: int, known: dict[str, NvmlDevice], now: float
    ) -> NvmlDevice | None:
        for device in known.values():
            if device.identity.index == index and device.identity.mig_parent_uuid is None:
                if code in tables.LOST and not device.lost_error:
                    self._lose(device, code, now)
                return device
        if code not in tables.LOST:
            self._refused.setdefault(code, []).append(index)
            return None
        identity = replace(
            lost_identity(Inquirer(self._nvml), handle, index, self._count_seen),
            driver_version=self._driver_version,
            cuda_version=self._cuda_version,
        )
        lost = self._new_device(handle, identity, now)
        self._lose(lost, code, now)
        return lost

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
                mode = mig_mode(ask, card.handle)
        except self._nvml.NVMLError:
            # Lost at this moment: its readings will say so.
            mode = None
        return bool(card.identity.mig_mode) if mode is None else mode

    def _mig_instances(
        self, card: NvmlDevice, known: dict[str, NvmlDevice], now: float
    ) -> list[NvmlDevice]:
        if card.lost_error or not card.identity.mig_mode:
            return []
        for _ in card.learning or ():
            # All at once: the instances have most of their facts from the card.
            continue
        ask = Inquirer(self._nvml)
        places = None
        with suppress(self._nvml.NVMLError), self._driver_calls(ask):
            places = ask.number("nvmlDeviceGetMaxMigDeviceCount", card.handle)
        if places is None or places > INSTANCES_MAX:
            # It does not say now: those that were there are taken to be.
            parent = card.identity.uuid
            return [one for one in known.values() if one.identity.mig_parent_uuid == parent]
        found = (self._mig_instance(card, place, known, now) for place in range(places))
        return [one for one in found if one is not None]

    def _mig_instance(
        self, card: NvmlDevice, place: int, known: dict[str, NvmlDevice], now: float
    ) -> NvmlDevice | None:
        ask = Inquirer(self._nvml)
        try:
            with self._driver_calls(ask):
                handle = ask.ask("nvmlDeviceGetMigDeviceHandleByIndex", card.handle, place)
                if handle is None:
                    return None
                uuid = ask.text("nvmlDeviceGetUUID", handle, like=parse.UUID)
                device = known.get(uuid or "")
                if device is not None and not device.lost_error and uuid not in self._incomplete:
                    return device
                number = ask.number("nvmlDeviceGetGpuInstanceId", handle)
                instance: int | None = ask.fact("mig_instance", number)
                identity = read_mig_identity(ask, handle, card.identity, instance)
        except self._nvml.NVMLError:
            # Lost at this moment: its readings will say so.
            return None
        self._note(ask, identity)
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
                uuid = ask.text("nvmlDeviceGetUUID", handle, like=parse.UUID)
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


def _named_at(index: int, known: dict[str, NvmlDevice]) -> NvmlDevice | None:
    """The card known at this place by a uuid of its own."""
    for uuid, device in known.items():
        identity = device.identity
        if identity.index == index and identity.mig_parent_uuid is None:
            return device if parse.UUID.fullmatch(uuid) else None
    return None


def _is_retired_instance(device: NvmlDevice, found: dict[str, NvmlDevice]) -> bool:
    """A MIG instance that somebody removed from a healthy card is gone, not lost."""
    parent = found.get(device.identity.mig_parent_uuid or "")
    return parent is not None and not parent.lost_error
