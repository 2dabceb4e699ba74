"""One GPU (or MIG instance): its readings, when they are due, what each error means; and the
making of such devices from what the driver hands out."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading, ReadingAge
from gpuwatch.core.source import Clock
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.nvml import inquiry, parse, readings, schedule, tables
from gpuwatch.sources.nvml.card import Card
from gpuwatch.sources.nvml.inquiry import Inquirer
from gpuwatch.sources.nvml.schedule import DriverGoneError, Reading, Slot, Tally

EMPTY_READING = GpuReading()
PROBE_SECONDS = 5.0
"""How often a lost GPU is asked whether it is back."""


class NvmlDevice:
    """Reads one GPU: when each reading is due, and what each error means for it."""

    def __init__(self, card: Card, tally: Tally) -> None:
        self.card = card
        self.tally = tally
        self.period_factor = 1.0
        self.learning: Iterator[None] | None = None
        """Learns more of its identity at each step, until all of it is known."""
        self.lost_error = 0
        self.lost_since_unix = 0.0
        self.probe_at = 0.0
        self.unsupported: set[str] = set()
        self.processes: tuple[GpuProcess, ...] = ()
        self._processes_changed = False
        mig = card.identity.mig_parent_uuid is not None
        # What is known to be slow must not hold up the first picture.
        self.slots = [
            Slot(reading, card.now + (0.2 if reading.expected_seconds else 0.0))
            for reading in (readings.MIG_READINGS if mig else readings.READINGS)
        ]

    @property
    def identity(self) -> GpuIdentity:
        return self.card.identity

    # One look.

    def due(self, now: float, unix: float, horizon: float) -> list[Slot]:
        card = self.card
        card.now = now
        card.unix = unix
        due = []
        for slot in self.slots:
            reading = slot.reading
            if reading.between and not slot.failures:
                card.values.update(reading.between)
            hurried = reading.hurried is not None and not slot.failures and reading.hurried(card)
            if hurried or slot.due_at <= horizon:
                if reading.needed is None or reading.needed(card):
                    due.append(slot)
                else:
                    slot.due_at = now + reading.period_seconds
        return due

    def take(self, slot: Slot) -> None:
        """Take one reading. Raises ``DriverGoneError``."""
        error = 0
        tally = self.tally
        tally.doing = slot.reading.name, self.identity
        start = tally.timer()
        try:
            slot.reading.read(self.card)
        except self.card.nvml.NVMLError as failure:
            error = failure.value
        # An answer nobody foresaw costs this reading, and nothing else.
        except Exception:
            error = tables.SENSELESS
        seconds = tally.timer() - start
        tally.doing = None
        tally.seconds += seconds
        tally.calls += slot.reading.calls
        slot.measured(self.card.now, seconds)
        if error:
            self._failed(slot, error)
            return
        self._look_for_gaps(slot)
        slot.worked = slot.worked or bool(slot.gave) or not slot.reading.fields
        slot.failures = slot.error = 0
        self.card.failing_lists.discard(slot.reading.name)
        if not slot.reading.fields:
            self._processes_changed = True

    def _look_for_gaps(self, slot: Slot) -> None:
        names, values = readings.fields_set(self.card, slot.reading), self.card.values
        given = [name for name in names if values.get(name) is not None]
        slot.refused = [name for name in names if name in values.refused]
        complete = len(given) == len(names) or slot.gave.intersection(names) <= set(given)
        if complete and not slot.refused:
            slot.lacking_reads = 0
        else:
            if not slot.lacking_reads:
                slot.lacking_since_unix = self.card.unix
            slot.lacking_reads += 1
        slot.gave.update(given)

    def drop_outdated(self, slot: Slot) -> None:
        """Forget a value whose reading had to wait for too long."""
        if slot.outdated(self.card.now, self.card.interval_seconds):
            self._forget(slot.reading)

    def _failed(self, slot: Slot, error: int) -> None:
        if error in tables.DRIVER_GONE:
            raise DriverGoneError(error)
        if error in tables.LOST:
            self.lose(error)
            return
        self._forget(slot.reading)
        if error in tables.PERMANENT and not slot.worked:
            self.unsupported.add(slot.reading.name)
            # A new list: the caller may be walking the old one.
            self.slots = [other for other in self.slots if other is not slot]
            self.card.failing_lists.discard(slot.reading.name)
            return
        if slot.reading.name in readings.LISTS:
            self.card.failing_lists.add(slot.reading.name)
        slot.failed(error, self.card.unix)
        rarely = error == tables.NO_PERMISSION or (
            error in tables.RARELY_RETRIED and slot.failures >= schedule.LASTED_READS
        )
        slot.due_at = max(slot.due_at, self.card.now + (schedule.RARELY_SECONDS if rarely else 0.0))
        if not rarely:
            slot.due_at = min(
                slot.due_at, self.card.now + max(schedule.TRANSIENT_SECONDS, slot.cost * 100)
            )

    def _forget(self, reading: Reading) -> None:
        for name in readings.fields_set(self.card, reading):
            self.card.values[name] = None
        if reading.name in readings.LISTS:
            self.card.listed.pop(readings.LISTS[reading.name], None)
        elif reading.name == readings.PROCESS_BUSY:
            self.card.process_busy = None
        elif reading.name == readings.GPM_NAME:
            self.card.gpm_gives.clear()
        if not reading.fields:
            self._processes_changed = True

    def lose(self, error: int) -> None:
        """The GPU stopped answering: nothing that was read of it holds any more."""
        self.lost_error = error
        self.lost_since_unix = self.card.unix
        self.card.values.clear()
        self.card.before = {}
        self.card.listed = {}
        self.card.failing_lists = set()
        self.processes = ()

    # What came of it.

    def gpu(self) -> Gpu:
        if self.lost_error:
            return Gpu(identity=self.identity, reading=EMPTY_READING, lost=True)
        late = tuple(self._late())
        return Gpu(
            identity=self.identity, reading=GpuReading(**self.card.values, late_readings=late)
        )

    def _late(self) -> Iterator[ReadingAge]:
        for slot in self.slots:
            reading = slot.reading
            if not slot.late(self.card.now) or slot.failures:
                continue
            for name in readings.fields_set(self.card, reading):
                # Samples, and what is said of the time since the look before, carry their times.
                if self.card.values.get(name) is not None and name not in reading.between:
                    yield ReadingAge(name, slot.age(self.card.now))
            if reading.process_field is not None:
                yield ReadingAge(reading.process_field, slot.age(self.card.now))

    def gpu_processes(self, instances: dict[int, str]) -> tuple[GpuProcess, ...]:
        """This GPU's processes; ``instances`` gives the uuid of each of its MIG instances."""
        if self._processes_changed:
            self._processes_changed = False
            self.processes = tuple(self._rows(instances))
        return self.processes

    def _rows(self, instances: dict[int, str]) -> Iterator[GpuProcess]:
        busy = self.card.process_busy
        own_instance, own_uuid = self.identity.mig_instance, self.identity.uuid
        for (pid, listed_instance), (used, kind) in self.card.process_table.items():
            instance = own_instance if listed_instance is None else listed_instance
            uuid = own_uuid if instance is None else instances.get(instance, own_uuid)
            share = None if busy is None or instance is not None else busy.get(pid, 0.0)
            yield GpuProcess(pid, uuid, used, share, kind, instance)


Known = dict[str, NvmlDevice]


class Finder:
    """Makes the devices of the GPUs that the driver hands out, and remembers of which of them a
    fact is missing. Methods raise ``DriverGoneError`` and, where they say so, ``NVMLError``."""

    def __init__(self, nvml: Any, clock: Clock, tally: Tally) -> None:
        self.nvml = nvml
        self.clock = clock
        self.tally = tally
        self.incomplete: set[str] = set()
        self._versions_known = False
        self._versions: dict[str, str | None] = {}

    def ask(self, *, quiet: bool = False) -> Inquirer:
        return Inquirer(self.nvml, self.tally, quiet=quiet)

    def ask_versions(self) -> None:
        """The driver's; a GPU that is lost can make even these fail: asked again with the list."""
        if not self._versions_known:
            with self.ask(quiet=True) as ask:
                self._versions = inquiry.driver_versions(ask)
            self._versions_known = ask.complete

    def card(
        self,
        ask: Inquirer,
        handle: Any,
        index: int,
        uuid: str,
        facts: dict[str, Any],
        known: NvmlDevice | None = None,
    ) -> NvmlDevice:
        """A card that answers, or one ``known`` already, of which more facts can be had now; the
        rest of its identity is learned later, with ``ask``."""
        facts = {**self._versions, **facts}
        # Which readings there are depends on the driver's version.
        if known is not None and known.identity.driver_version == facts.get("driver_version"):
            device = known
            device.card.identity = replace(device.identity, **facts)
        else:
            device = self._device(handle, GpuIdentity(index=index, uuid=uuid, **facts))
        device.learning = self._learn(device, ask)
        return device

    def lost_card(self, handle: Any, index: int, code: int) -> NvmlDevice:
        """A card that was lost before it said who it is; its bus may still be known."""
        bus_id = None
        with suppress(self.nvml.NVMLError):
            bus_id = None if handle is None else inquiry.pci_bus_id(self.ask(), handle)
        facts: dict[str, Any] = {**self._versions, "pci_bus_id": bus_id}
        uuid = bus_id or f"index-{index}"
        identity = GpuIdentity(index=index, uuid=uuid, name="NVIDIA GPU", **facts)
        device = self._device(handle, identity)
        self.lose(device, code)
        return device

    def mig_instance(self, card: NvmlDevice, place: int, known: Known) -> NvmlDevice | None:
        """The MIG instance at ``place`` of a card, a known one where it is one."""
        identity = None
        with self.ask(quiet=True) as ask:
            handle = ask.ask("nvmlDeviceGetMigDeviceHandleByIndex", card.card.handle, place)
            if handle is None:
                return None
            uuid = ask.text("nvmlDeviceGetUUID", handle, like=parse.UUID)
            device = known.get(uuid or "")
            if device is not None and not device.lost_error and uuid not in self.incomplete:
                return device
            identity = inquiry.read_mig_identity(ask, handle, card.identity)
        if identity is None:
            # Lost at this moment: its readings will say so.
            return None
        self._note(ask, identity)
        return self._device(handle, identity, card.card.handle)

    def lose(self, device: NvmlDevice, code: int) -> None:
        device.card.unix = self.clock.unix()
        device.lose(code)
        device.probe_at = self.clock.monotonic() + PROBE_SECONDS

    def _device(self, handle: Any, identity: GpuIdentity, parent: Any = None) -> NvmlDevice:
        card = Card(self.nvml, handle, identity, self.clock.monotonic(), parent)
        return NvmlDevice(card, self.tally)

    def _learn(self, device: NvmlDevice, ask: Inquirer) -> Iterator[None]:
        """Learns a few more facts of a card at each step, and marks it if any was missed."""
        ask.quiet = True
        steps = inquiry.further_facts(ask, device.card.handle)
        facts: dict[str, Any] | None = {}
        while facts is not None:
            # Lost at this moment: its readings will say so.
            facts = None
            with ask:
                facts = next(steps, None)
            if facts is not None:
                device.card.identity = replace(device.identity, **facts)
                yield
        self._note(ask, device.identity)

    def _note(self, ask: Inquirer, identity: GpuIdentity) -> None:
        if ask.complete and self._versions_known:
            self.incomplete.discard(identity.uuid)
        else:
            self.incomplete.add(identity.uuid)
