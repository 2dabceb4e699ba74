"""The host around the simulated GPUs, from what its processes used since the last look."""

from __future__ import annotations

from gpuwatch.model import Host
from gpuwatch.sources.simulation.processes import GIB, Task
from gpuwatch.sources.simulation.world import World

_MASK = (1 << 64) - 1


def noise(seed: int, at: int, channel: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    mixed = (
        seed * 0x9E3779B97F4A7C15 + at * 0xBF58476D1CE4E5B9 + channel * 0x94D049BB133111EB
    ) & _MASK
    mixed ^= mixed >> 31
    mixed = mixed * 0xD6E8FEB86659FD93 & _MASK
    mixed ^= mixed >> 32
    return (mixed & 0xFFFFFFFF) / 4294967296.0


def core_percents(
    world: World, tasks: list[Task], second: int, elapsed: float, seed: int
) -> list[float]:
    """Busy share of each core: every process on its core, a little of the system on all."""
    cores = world.cores
    loads = [0.2 + 2.6 * noise(seed, second, core) ** 3 for core in range(cores)]
    for task in tasks:
        percent = 100.0 * task.cpu_seconds / elapsed
        # The scheduler moves a busy process now and then.
        core = (task.core + 7 * ((second + task.pid) // 37)) % cores
        while percent > 0.0:
            room = 100.0 - loads[core]
            part = percent if percent < room else room
            if part > 0.0:
                loads[core] += part
                percent -= part
            if percent <= 0.01:
                break
            core = (core + 1) % cores
    return [round(load, 1) for load in loads]


def memory_total(world: World) -> int:
    return (256 if world.cores <= 32 else 512 if world.cores <= 64 else 2048) * GIB


def build_host(
    world: World,
    tasks: list[Task],
    *,
    now: float,
    elapsed: float,
    read_bytes: float,
    written_bytes: float,
    seed: int,
) -> Host:
    second = int(now // 1)
    cores = core_percents(world, tasks, second, elapsed, seed)
    total = sum(cores) / len(cores)
    waiting = sum(task.wait_seconds for task in tasks) / elapsed
    resident = sum(task.resident_bytes for task in tasks) * 0.8 + 6.2 * GIB
    memory = memory_total(world)
    quota = world.setup.quota_cores
    shm = sum(
        rank.loader.queued(now) * job.plan.batch_bytes
        for job in world.jobs
        for rank in job.ranks
        if rank.loader is not None
    )
    io_some = min(98.0, 100.0 * waiting + written_bytes / elapsed / 40e6)
    return Host(
        name="sim-box",
        cpu_percent=round(total, 1),
        cpu_iowait_percent=round(min(100.0 - total, 100.0 * waiting / world.cores), 1),
        core_percents=tuple(cores),
        load_average_1_minute=round(world.load[0], 2),
        load_average_5_minutes=round(world.load[1], 2),
        load_average_15_minutes=round(world.load[2], 2),
        memory_total_bytes=memory,
        memory_used_bytes=int(min(memory * 0.97, resident + shm)),
        swap_total_bytes=8 * GIB,
        swap_used_bytes=0,
        pressure_cpu_some_percent=round(0.3 + noise(seed, second, 901), 2),
        pressure_io_some_percent=round(io_some, 2),
        pressure_io_full_percent=round(io_some * 0.55, 2),
        pressure_memory_some_percent=0.0,
        pressure_memory_full_percent=0.0,
        disk_read_bytes_per_second=round(read_bytes / elapsed, 1),
        disk_write_bytes_per_second=round(
            written_bytes / elapsed + 2e5 * noise(seed, second, 902), 1
        ),
        network_receive_bytes_per_second=round(4e4 + 9e4 * noise(seed, second, 903) ** 2, 1),
        network_transmit_bytes_per_second=round(2e4 + 6e4 * noise(seed, second, 904) ** 2, 1),
        shm_total_bytes=memory // 2,
        shm_used_bytes=int(min(memory / 2, shm)),
        core_count=world.cores,
        affinity_cores=world.cores,
        quota_cores=quota,
        usable_cores=float(world.cores) if quota is None else min(float(world.cores), quota),
        uptime_seconds=900_000.0 + now - world.begin,
    )
