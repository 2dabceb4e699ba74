"""The host of a simulated machine: cores, memory, pressure and traffic of what runs on it."""

from collections.abc import Reversible
from dataclasses import dataclass

from gpuwatch.core.model import BusySample, Host
from gpuwatch.sources.simulated.cards import GIB
from gpuwatch.sources.simulated.device import TICK_SECONDS
from gpuwatch.sources.simulated.processes import Task
from gpuwatch.sources.simulated.world import World

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One moment at which the machine is looked at."""

    now: float
    elapsed: float
    """Seconds since the look before, above zero."""
    since_tick: int
    unix_at_zero: float

    def fresh(self, samples: Reversible[tuple[int, float]]) -> tuple[BusySample, ...]:
        """Those of (tick at its end, percent), oldest first, that came since the look before."""
        found = []
        for tick, percent in reversed(samples):
            if tick <= self.since_tick:
                break
            at = round(self.unix_at_zero + tick * TICK_SECONDS, 6)
            found.append(BusySample(at, round(float(percent), 1)))
        found.reverse()
        return tuple(found)


def noise(seed: int, at: int, channel: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    mixed = seed * 0x9E3779B97F4A7C15 + at * 0xBF58476D1CE4E5B9 + channel * 0x94D049BB133111EB
    mixed &= _MASK
    mixed ^= mixed >> 31
    mixed = mixed * 0xD6E8FEB86659FD93 & _MASK
    return ((mixed ^ (mixed >> 32)) & 0xFFFFFFFF) / 4294967296.0


def core_percents(
    cores: int, tasks: list[Task], *, second: int, elapsed: float, seed: int
) -> list[float]:
    """Busy share of each core: every process on its core, a little of the system on all."""
    # One stream of cheap numbers for all cores: a good one for each costs more than the GPUs.
    state = int(noise(seed, second, 0) * 4294967296.0)
    loads = []
    for _ in range(cores):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        share = state / 4294967296.0
        loads.append(0.2 + 2.6 * share * share * share)
    for task in tasks:
        percent = 100.0 * task.used["cpu"] / elapsed
        if percent <= 0.01:
            continue
        # The scheduler moves a busy process now and then.
        core = (task.core + 7 * ((second + task.pid) // 37)) % cores
        if loads[core] + percent <= 100.0:
            loads[core] += percent
        else:
            _spill(loads, core, percent)
    return loads


def _spill(loads: list[float], core: int, percent: float) -> None:
    """Put more than this core can take on the ones after it."""
    for _ in loads:
        part = min(percent, 100.0 - loads[core])
        loads[core] += part
        percent -= part
        if percent <= 0.01:
            return
        core = (core + 1) % len(loads)


def build_host(world: World, tasks: list[Task], look: Look) -> Host:
    """The host at ``look.now``; ``tasks`` are those alive."""
    now, elapsed, seed = look.now, look.elapsed, world.seed
    second = int(now // 1)
    cores = core_percents(world.cores, tasks, second=second, elapsed=elapsed, seed=seed)
    busy = sum(cores) / len(cores)
    waiting = sum([task.used.get("wait", 0.0) for task in tasks]) / elapsed
    usual = (256 if world.cores <= 32 else 512 if world.cores <= 64 else 2048) * GIB
    memory = world.setup.memory_bytes or usual
    shm_total = world.setup.shm_bytes or memory // 2
    # Batches lie in /dev/shm until the main process takes them.
    queued = sum(
        rank.loader.queued(now) * job.plan.batch_bytes
        for job in world.jobs
        for rank in job.ranks
        if rank.loader is not None and now < job.end
    )
    shm = min(shm_total, int(queued))
    # A worker's pages are for the greater part those of the process it was forked from.
    used = sum([task.resident(now) for task in tasks]) * 0.8 + 6.2 * GIB + shm
    for task in tasks:
        if task.gpu is not None and task.gpu_memory is not None:
            used += task.gpu_memory(now) if world.devices[task.gpu].card.unified else 0
    # Of those that have ended meanwhile, too.
    read, written = [
        sum([task.used.get(what, 0.0) for task in world.tasks]) / elapsed
        for what in ("reads", "writes")
    ]
    io_some = min(98.0, 100.0 * waiting + written / 40e6)
    quota = world.setup.quota_cores
    # Where workers get but a share of a core, somebody waits for one nearly all the time.
    slowest = min((job.plan.worker_speed for job in world.jobs), default=1.0)
    cpu_some = 0.2 if slowest >= 1.0 else 45.0 + 50.0 * (1.0 - slowest)
    return Host(
        name="sim-box",
        cpu_percent=round(busy, 1),
        cpu_iowait_percent=round(min(100.0 - busy, 100.0 * waiting / world.cores), 1),
        core_percents=tuple([round(load, 1) for load in cores]),
        load_average_1_minute=round(world.load[0], 2),
        load_average_5_minutes=round(world.load[1], 2),
        load_average_15_minutes=round(world.load[2], 2),
        memory_total_bytes=memory,
        memory_used_bytes=int(min(memory * 0.985, used)),
        swap_total_bytes=8 * GIB,
        swap_used_bytes=0,
        pressure_cpu_some_percent=round(cpu_some + noise(seed, second, 901), 2),
        pressure_io_some_percent=round(io_some, 2),
        pressure_io_full_percent=round(io_some * 0.55, 2),
        pressure_memory_some_percent=0.0,
        pressure_memory_full_percent=0.0,
        disk_read_bytes_per_second=round(read),
        disk_write_bytes_per_second=round(written + 2e5 * noise(seed, second, 902)),
        network_receive_bytes_per_second=round(4e4 + 9e4 * noise(seed, second, 903) ** 2),
        network_transmit_bytes_per_second=round(2e4 + 6e4 * noise(seed, second, 904) ** 2),
        shm_total_bytes=shm_total,
        shm_used_bytes=shm,
        core_count=world.cores,
        affinity_cores=world.cores,
        quota_cores=quota,
        usable_cores=float(world.cores) if quota is None else min(float(world.cores), quota),
        uptime_seconds=round(900_000.0 + now - world.begin, 2),
    )
