"""GPUs and the host as the driver and the kernel show them."""

from dataclasses import dataclass

from gpuwatch.core.model import BusySample, Gpu, GpuIdentity, GpuReading, Host
from tests.evaluation.simulator.machine import GIB, Device, Machine, Proc

UNIX = 1_770_000_000.0
_POWER_LAG, _HEAT_LAG, _PART = 0.5, 25.0, 0.1
_SLEEP_SECONDS = 8.0


@dataclass(frozen=True)
class View:
    """What of the machine can be read."""

    jobs: bool = True
    host: bool = True
    rights: bool = True
    """The job is the watcher's own, or the watcher is root."""
    samples: bool = True
    """The driver keeps a buffer of utilisation samples."""
    shares: bool = True
    """The driver accounts GPU time to processes."""
    links: bool = True
    """The driver says which process is on which GPU (not so under WSL)."""
    mig: bool = False
    attached: bool = False
    delays: bool = False
    """The kernel accounts for waits for block devices."""
    window: float = 1 / 6
    """Seconds of the driver's utilisation sample."""
    interval: float = 1.0


def uuid_of(device: Device) -> str:
    return f"GPU-{device.index:08x}-2222-4222-8222-222222222222"


class Gauges:
    """Of one GPU. Power follows the work with a lag, warmth follows power with a longer one."""

    def __init__(self, device: Device, view: View, start: float) -> None:
        self.device, self.view = device, view
        self._mig = view.mig and device.card.gib >= 80
        self._watts, self._joules = float(device.card.idle_watts), 3e8
        self._celsius, self._at = 45.0, max(0.0, start - 30.0)
        card = device.card
        self.identity = GpuIdentity(
            index=device.index, uuid=uuid_of(device), name=card.name,
            pci_bus_id=f"00000000:{0x1B + 8 * device.index:02X}:00.0", driver_version="570.86.15",
            cuda_version="12.8", memory_total_bytes=card.gib * GIB,
            power_limit_default_watts=float(card.watts), power_limit_max_watts=float(card.watts),
            temperature_slowdown_celsius=89.0, temperature_shutdown_celsius=94.0,
            sm_clock_max_mhz=card.clock, memory_clock_max_mhz=card.memory_clock,
            pcie_generation_max=4, pcie_width_max=16, compute_capability=card.capability,
            mig_mode=self._mig if card.gib >= 80 else None
        )  # fmt: skip

    def _follow(self, at: float) -> None:
        device, card = self.device, self.device.card
        slow = ((device.clock or card.clock) / card.clock) ** 1.5
        while self._at + _PART <= at:
            level = device.work.mean(self._at, self._at + _PART) * slow
            wanted = card.idle_watts + (card.watts * 1.1 - card.idle_watts) * level
            self._watts += (min(wanted, device.watts_limit) - self._watts) * _PART / _POWER_LAG
            warm = 30.0 + 45.0 * self._watts / card.watts
            self._celsius += (warm - self._celsius) * _PART / _HEAT_LAG
            self._joules += self._watts * _PART
            self._at += _PART

    def _samples(self, before: float, at: float) -> list[BusySample]:
        window, busy = self.view.window, self.device.busy
        ends = [n * window for n in range(max(1, int(before / window) + 1), int(at / window) + 1)]
        means = [float(round(100.0 * busy.mean(end - window, end))) for end in ends]
        return [BusySample(UNIX + end, mean) for end, mean in zip(ends, means, strict=True)]

    def read(self, before: float, at: float) -> Gpu:
        device, card, view = self.device, self.device.card, self.view
        if at >= device.lost_at:
            return Gpu(identity=self.identity, reading=GpuReading(), lost=True)
        self._follow(at)
        samples = self._samples(min(before, at - view.window), at)
        new = tuple([one for one in samples if one.at_unix_seconds > UNIX + before])
        awake = not card.sleeps or device.busy.mean(max(0.0, at - _SLEEP_SECONDS), at) > 0.0
        capped = awake and self._watts >= device.watts_limit * 0.985
        clock = (device.clock or card.clock) * (0.9 if capped else 1.0) if awake else 210
        work = 100.0 * device.work.mean(before, at)
        counts = card.counts_activity
        reasons = tuple(dict.fromkeys((*device.reasons, *["sw_power_cap"] * capped)))
        reading = GpuReading(
            busy_percent=None if self._mig or not samples else min(100.0, samples[-1].percent),
            busy_samples=new if view.samples and not self._mig else None,
            memory_controller_percent=None if self._mig else float(round(work * 0.6)),
            memory_used_bytes=int(min(0.998 * card.gib * GIB, self._memory(at))),
            power_watts=round(self._watts + device.world.random.gauss(0.0, 0.6), 1),
            power_limit_watts=device.watts_limit,
            temperature_celsius=float(round(device.celsius or self._celsius)),
            fan_percent=38.0 if card.sleeps and card.watts > 100 else None,
            sm_clock_mhz=int(clock / 15) * 15,
            memory_clock_mhz=card.memory_clock if awake else 405,
            performance_state=(2 if card.sleeps else 0) if awake else 8,
            throttle_reasons=reasons if awake else ("gpu_idle",),
            pcie_generation=4 if awake else 1, pcie_width=device.link_width,
            pcie_rx_bytes_per_second=device.received.mean(before, at) + 2e5,
            pcie_tx_bytes_per_second=device.sent.mean(before, at) + 1e5,
            energy_joules=self._joules, ecc_corrected_count=0 if card.gib >= 32 else None,
            ecc_uncorrected_count=3 * (at >= device.errors_at) if card.gib >= 32 else None,
            sm_active_percent=round(work, 1) if counts else None,
            sm_occupancy_percent=round(work * 0.35, 1) if counts else None,
            tensor_active_percent=round(work * 0.4, 1) if counts else None,
            dram_active_percent=round(work * 0.5, 1) if counts else None
        )  # fmt: skip
        return Gpu(identity=self.identity, reading=reading)

    def _memory(self, at: float) -> float:
        return sum(self.device.memory.values()) + self.device.leak * at + 0.6 * GIB


def read_host(machine: Machine, alive: list[Proc], before: float, at: float) -> Host:
    cores, gauss = machine.cores, machine.world.random.gauss
    each = 100.0 * min(1.0, cores.used.mean(before, at) / cores.number + 0.01)
    waits = [proc.main.disk.mean(before, at) for proc in alive]
    queued = [proc.main.queued.mean(before, at) for proc in alive]
    held = sum([proc.resident + proc.growth * at for proc in alive])
    return Host(
        name="node", cpu_percent=round(each, 1),
        cpu_iowait_percent=round(min(100.0 - each, 100.0 * sum(waits) / cores.number), 1),
        core_percents=tuple(
            [min(100.0, max(0.0, round(gauss(each, 9.0), 1))) for _ in range(cores.number)]
        ),
        load_average_1_minute=round(cores.used.mean(max(0.0, at - 60.0), at) + sum(waits), 2),
        memory_total_bytes=int(machine.memory_total),
        memory_used_bytes=int(min(0.97 * machine.memory_total, machine.memory_used + held * 0.6)),
        swap_total_bytes=0, swap_used_bytes=0,
        pressure_cpu_some_percent=round(100.0 * max(queued, default=0.0), 1),
        pressure_io_some_percent=round(100.0 * max(waits, default=0.0), 1),
        disk_read_bytes_per_second=machine.disk.read.mean(before, at),
        disk_write_bytes_per_second=machine.disk.written.mean(before, at) + 2e5,
        network_receive_bytes_per_second=machine.network.read.mean(before, at) + 3e4,
        network_transmit_bytes_per_second=machine.network.written.mean(before, at) + 2e4,
        shm_total_bytes=int(machine.shm_total), shm_used_bytes=int(machine.shm_used),
        core_count=cores.number, affinity_cores=cores.number, quota_cores=cores.quota,
        usable_cores=float(cores.usable), uptime_seconds=machine.age + at + 9e5
    )  # fmt: skip
