"""Snapshots of a machine that does not exist: for the demo, the pictures and the tests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpuwatch.model import (
    BusySample,
    Gpu,
    GpuIdentity,
    GpuReading,
    OwnCost,
    Problem,
    Process,
    ReasonSeconds,
    Snapshot,
)
from gpuwatch.sources.base import Clock, ReadOptions, SystemClock
from gpuwatch.sources.simulation.device import TICK_SECONDS, TICKS_PER_SECOND, Device
from gpuwatch.sources.simulation.host import build_host
from gpuwatch.sources.simulation.processes import Task
from gpuwatch.sources.simulation.scenarios import BUILDERS
from gpuwatch.sources.simulation.world import RESERVED_BYTES, World

SCENARIOS: Mapping[str, str] = {name: text for name, (text, _) in BUILDERS.items()}
"""What can be shown: name and one line about it."""

_WARM_UP_SECONDS = 60.0
_LONGEST_JUMP_SECONDS = 1800.0


class SimulatedSource:
    """A ``Source`` whose machine is computed.

    Everything follows from ``scenario``, ``gpus``, ``processes`` and ``seed`` and from the time
    that passed on ``clock`` since ``open``: how often it is read changes no state. The machine
    already ran for a minute when it is opened, and the first snapshot brings the fine samples
    of the last twenty seconds, as a driver's buffer does.

    Raises ``ValueError`` for a scenario that is not in ``SCENARIOS`` and for counts below zero.
    """

    def __init__(
        self,
        scenario: str = "starved",
        gpus: int = 1,
        seed: int = 0,
        clock: Clock | None = None,
        options: ReadOptions | None = None,
        processes: int | None = None,
    ) -> None:
        if scenario not in BUILDERS:
            raise ValueError(f"no scenario {scenario!r}: choose one of {', '.join(BUILDERS)}")
        if gpus < 0 or (processes is not None and processes < 0):
            raise ValueError("the number of GPUs and of processes cannot be below zero")
        self.scenario = scenario
        self._gpus = gpus
        self._seed = seed
        self._clock: Clock = SystemClock() if clock is None else clock
        self._options = ReadOptions() if options is None else options
        self._process_count = processes
        self._world: World | None = None
        self._origin = 0.0
        self._unix_offset = 0.0
        self._sequence = 0
        self._identities: list[GpuIdentity] = []
        self._sums: list[list[float]] = []
        self._reasons: list[dict[str, float]] = []
        self._activities: list[tuple[float, ...]] = []
        self._sample_tick = 0
        self._read_tick = 0
        self._read_at = 0.0
        self._disk = (0.0, 0.0)
        self._own = _OwnCost() if isinstance(self._clock, SystemClock) else None

    @property
    def simulated(self) -> bool:
        return True

    @property
    def options(self) -> ReadOptions:
        return self._options

    def open(self) -> None:
        """Build the machine and let it run for its first minute."""
        if self._world is None:
            self._begin(self._clock.monotonic())

    def read(self) -> Snapshot:
        """The machine as it is now."""
        began = time.perf_counter()
        self.open()
        snapshot = self._snapshot(self._clock.monotonic())
        if self._own is None:
            return snapshot
        return _with_cost(snapshot, self._own.take(began))

    def close(self) -> None:
        """Nothing is held."""

    def history(self, seconds: float) -> Iterator[Snapshot]:
        """Snapshots of the last ``seconds``, one an interval, oldest first, up to now.

        Only before the first ``read``: the scenario then began ``seconds`` ago.
        """
        if self._world is not None:
            raise RuntimeError("the past can only be asked for before the first read")
        now = self._clock.monotonic()
        interval = self._options.interval_seconds
        count = int(seconds / interval)
        self._begin(now - count * interval)
        for number in range(count):
            yield self._snapshot(now - (count - number) * interval)

    def _begin(self, origin: float) -> None:
        gpus = self._gpus
        count = gpus if self._process_count is None else self._process_count
        setup = BUILDERS[self.scenario][1](gpus)
        on_gpus = sum(len(plan.gpus) for plan in setup.jobs if plan.begin is None)
        self._origin = origin
        self._unix_offset = self._clock.unix() - self._clock.monotonic()
        world = World(
            setup,
            seed=self._seed,
            extra_processes=max(0, count - on_gpus),
            warm_up=_WARM_UP_SECONDS,
        )
        self._world = world
        self._identities = [self._identity(number) for number in range(gpus)]
        interval = min(self._options.interval_seconds, 10.0)
        world.advance(-interval)
        self._mark(-interval)
        self._sample_tick = world.tick - 120 * TICKS_PER_SECOND

    def _mark(self, now: float) -> None:
        """Remember all counters, so that the first read has something to differ from."""
        world = self._world
        assert world is not None
        self._sums = [list(device.sums) for device in world.devices]
        self._reasons = [dict(device.reason_seconds) for device in world.devices]
        self._activities = [(0.0,) * 6 for _ in world.devices]
        for task in world.tasks:
            task.note(now, 1.0)
        self._read_tick = world.tick
        self._read_at = now
        self._disk = (world.reads.total(now), world.writes.total(now))

    def _snapshot(self, monotonic: float) -> Snapshot:
        world = self._world
        assert world is not None
        now = monotonic - self._origin
        jump = now - self._read_at
        if jump > _LONGEST_JUMP_SECONDS:
            # The machine slept: its simulation sleeps too, rather than catching up for minutes.
            self._origin += jump - _LONGEST_JUMP_SECONDS
            now = monotonic - self._origin
        world.advance(now)
        elapsed = now - self._read_at
        tasks = [task for task in world.tasks if task.lives(now)]
        if elapsed > 0:
            for task in tasks:
                task.note(now, elapsed)
            self._elapsed = elapsed
            totals = (world.reads.total(now), world.writes.total(now))
            self._moved = (totals[0] - self._disk[0], totals[1] - self._disk[1])
            self._disk = totals
        host = build_host(
            world,
            tasks,
            now=now,
            elapsed=self._elapsed,
            read_bytes=self._moved[0],
            written_bytes=self._moved[1],
            seed=self._seed,
        )
        gpus = tuple(self._gpu(number, now, tasks) for number in range(len(world.devices)))
        snapshot = Snapshot(
            sequence=self._sequence,
            taken_at_unix_seconds=monotonic + self._unix_offset,
            monotonic_seconds=monotonic,
            interval_seconds=self._options.interval_seconds,
            simulated=True,
            host=host,
            gpus=gpus,
            processes=self._processes(tasks, gpus, now),
            problems=self._problems(now),
        )
        self._sequence += 1
        self._sample_tick = self._read_tick = world.tick
        self._read_at = now
        return snapshot

    def _unix(self, now: float) -> float:
        return now + self._origin + self._unix_offset

    def _identity(self, number: int) -> GpuIdentity:
        assert self._world is not None
        slot = self._world.setup.slots[number]
        card = slot.card
        tail = f"{(self._seed * 0x9E3779B1 + number * 0x85EBCA77 + 0x5EED) & 0xFFFFFFFF:08x}"
        return GpuIdentity(
            index=number,
            uuid=f"GPU-{tail}-51d0-4eed-a000-{number:012x}",
            name=card.name,
            pci_bus_id=f"00000000:{(0x18 + 0x11 * number) & 0xFF:02X}:00.0",
            driver_version="580.159.04",
            cuda_version="13.0",
            memory_total_bytes=None if card.unified else card.memory_bytes,
            memory_unified=card.unified,
            power_limit_default_watts=card.limit_watts if card.power_limit_known else None,
            power_limit_max_watts=card.limit_watts if card.power_limit_known else None,
            temperature_slowdown_celsius=card.slowdown_celsius,
            temperature_shutdown_celsius=card.shutdown_celsius,
            sm_clock_max_mhz=card.sm_clock_mhz,
            memory_clock_max_mhz=card.memory_clock_mhz,
            pcie_generation_max=card.pcie_generation,
            pcie_width_max=16,
            compute_capability=card.compute_capability,
            mig_mode=False if card.nvlink else None,
            numa_node=number * 2 // max(1, self._gpus),
        )

    def _gpu(self, number: int, now: float, tasks: list[Task]) -> Gpu:
        world = self._world
        assert world is not None
        identity = self._identities[number]
        if world.lost(number, now):
            return Gpu(identity=identity, reading=GpuReading(), lost=True)
        device = world.devices[number]
        card = device.card
        used = RESERVED_BYTES
        for task in tasks:
            if task.gpu == number and task.gpu_memory is not None:
                used += task.gpu_memory(now)
        sm, occupancy, tensor, dram, link_in, link_out = self._means(number, device)
        asleep = device.asleep
        reading = GpuReading(
            busy_percent=device.busy_percent,
            busy_samples=self._samples(device) if card.fine_samples else None,
            memory_controller_percent=device.memory_controller_percent,
            memory_used_bytes=int(min(used, card.memory_bytes)),
            memory_used_is_process_sum=card.unified,
            power_watts=round(device.power_watts, 2),
            power_limit_watts=device.power_limit_watts if card.power_limit_known else None,
            temperature_celsius=float(int(device.temperature_celsius)),
            memory_temperature_celsius=float(int(device.temperature_celsius * 1.04 + 5))
            if card.memory_temperature
            else None,
            fan_percent=_fan(device) if card.fan else None,
            sm_clock_mhz=device.sm_clock_mhz,
            memory_clock_mhz=card.memory_clock_idle_mhz if asleep else card.memory_clock_mhz,
            performance_state=card.idle_state if asleep else 0,
            throttle_reasons=device.reasons(),
            throttle_durations=self._durations(number, device) if card.accumulators else None,
            pcie_generation=card.pcie_generation if not asleep or card.idle_state == 0 else 1,
            pcie_width=16,
            pcie_rx_bytes_per_second=round(device.rx_bytes_per_second + 3e5),
            pcie_tx_bytes_per_second=round(device.tx_bytes_per_second + 2e5),
            encoder_percent=0.0,
            decoder_percent=0.0,
            energy_joules=round(device.energy_joules, 3),
            ecc_corrected_count=0 if card.ecc else None,
            ecc_uncorrected_count=0 if card.ecc else None,
            remapped_rows_correctable=0 if card.ecc else None,
            remapped_rows_uncorrectable=0 if card.ecc else None,
            remapped_rows_pending=False if card.ecc else None,
            remapped_rows_failed=False if card.ecc else None,
            nvlink_rx_bytes_per_second=round(link_in) if card.nvlink else None,
            nvlink_tx_bytes_per_second=round(link_out) if card.nvlink else None,
            sm_active_percent=round(sm * 100, 1) if card.gpm else None,
            sm_occupancy_percent=round(occupancy * 100, 1) if card.gpm else None,
            tensor_active_percent=round(tensor * 100, 1) if card.gpm else None,
            dram_active_percent=round(dram * 100, 1) if card.gpm else None,
        )
        return Gpu(identity=identity, reading=reading)

    def _means(self, number: int, device: Device) -> tuple[float, ...]:
        """Mean activities since the last read."""
        world = self._world
        assert world is not None
        ticks = world.tick - self._read_tick
        if ticks > 0:
            before = self._sums[number]
            self._activities[number] = tuple(
                (new - old) / ticks for new, old in zip(device.sums, before, strict=True)
            )
            before[:] = device.sums
        return self._activities[number]

    def _samples(self, device: Device) -> tuple[BusySample, ...]:
        since = self._sample_tick
        fresh = []
        for tick, percent in reversed(device.samples):
            if tick <= since:
                break
            fresh.append(BusySample(round(self._unix(tick * TICK_SECONDS), 6), float(percent)))
        fresh.reverse()
        return tuple(fresh)

    def _durations(self, number: int, device: Device) -> tuple[ReasonSeconds, ...]:
        before = self._reasons[number]
        spans = tuple(
            ReasonSeconds(reason, round(seconds - before[reason], 6))
            for reason, seconds in device.reason_seconds.items()
        )
        before.update(device.reason_seconds)
        return spans

    def _processes(
        self, tasks: list[Task], gpus: tuple[Gpu, ...], now: float
    ) -> tuple[Process, ...]:
        elapsed = self._elapsed
        everything = self._options.all_processes
        found = []
        for task in tasks:
            if task.system and not everything:
                continue
            gpu = None if task.gpu is None else gpus[task.gpu]
            if gpu is not None and gpu.lost:
                gpu = None
            on_gpu = gpu is not None
            busy = None if gpu is None else gpu.reading.busy_percent
            found.append(
                Process(
                    pid=task.pid,
                    started_at_unix_seconds=round(self._unix(task.started), 2),
                    parent_pid=task.parent,
                    user=task.user,
                    name=task.name,
                    command=task.command,
                    state=task.state(now),
                    cpu_percent=round(100.0 * task.cpu_seconds / elapsed, 1),
                    memory_resident_bytes=int(task.resident_bytes),
                    threads=task.threads,
                    container=task.container,
                    slurm_job=task.slurm_job,
                    gpu_uuid=None if gpu is None else gpu.identity.uuid,
                    gpu_memory_bytes=int(task.gpu_memory(now))
                    if on_gpu and task.gpu_memory is not None
                    else None,
                    gpu_busy_percent=None if busy is None else round(busy * task.gpu_share),
                    gpu_kind=task.gpu_kind if on_gpu else None,
                )
            )
        return tuple(found)

    def _problems(self, now: float) -> tuple[Problem, ...]:
        world = self._world
        assert world is not None
        found = []
        for number, identity in enumerate(self._identities):
            slot = world.setup.slots[number]
            if world.lost(number, now) and slot.lost_from is not None:
                found.append(
                    Problem(
                        source="nvml",
                        message=f"GPU {number} is lost: it no longer answers on the PCIe bus. "
                        "Its jobs have ended; look for Xid 79 in `dmesg`, then reset the GPU or "
                        "reboot.",
                        target=identity.uuid,
                        since_unix_seconds=self._unix(slot.lost_from),
                        severity="error",
                    )
                )
        return tuple(found)


def _fan(device: Device) -> float:
    """A fan stands still when the card is cool and follows its temperature when it is not."""
    over = device.temperature_celsius - 45.0
    return 0.0 if over < 0 else float(min(100, int(30 + over * 1.6)))


def _with_cost(snapshot: Snapshot, cost: OwnCost) -> Snapshot:
    # Snapshots are frozen for everybody who gets one; this one nobody has yet.
    object.__setattr__(snapshot, "own_cost", cost)
    return snapshot


class _OwnCost:
    """What this process costs, measured as the local source measures it."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._at = time.monotonic()

    def take(self, began: float) -> OwnCost:
        cpu = time.process_time()
        at = time.monotonic()
        elapsed = at - self._at
        percent = 100.0 * (cpu - self._cpu) / elapsed if elapsed > 0.05 else None
        self._cpu = cpu
        self._at = at
        return OwnCost(
            cpu_percent=percent,
            memory_resident_bytes=_resident_bytes(),
            read_milliseconds=(time.perf_counter() - began) * 1000.0,
        )


def _resident_bytes() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * 4096
