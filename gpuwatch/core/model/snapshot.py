"""One look at a machine: its GPUs, processes, jobs, host, and what could not be read."""

from __future__ import annotations

from typing import NamedTuple

from gpuwatch.core.bounds import Amount, MonotonicSeconds, Seconds, Text, UnixSeconds, Whole
from gpuwatch.core.model.gpu import Gpu
from gpuwatch.core.model.job import Job
from gpuwatch.core.model.process import Process
from gpuwatch.core.model.records import dataclass, reading


class NetworkMount(NamedTuple):
    """File system on a server (NFS), as this machine used it lately. Writes are left out."""

    mount_point: Text
    kind: Text
    """``nfs4``."""
    requests_per_second: Amount
    read_bytes_per_second: Amount
    queue_milliseconds: Amount
    """Time that a request waited here before it was sent, on average,"""
    round_trip_milliseconds: Amount
    """and time to its answer."""
    waiting_requests: Amount
    """Requests on their way, on average."""


_PORT_ERRORS = "Errors of an InfiniBand or RoCE port since its counters were last cleared."


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPort:
    """Port of an InfiniBand or RoCE adapter, over which a job on several machines talks."""

    device: Text
    """``mlx5_0``."""
    port: Whole
    link_layer: Text | None = None
    """``InfiniBand``, or ``Ethernet`` (RoCE)."""
    state: Text | None = None
    """``active``, ``down``, ``init`` or ``armed``."""
    speed_gigabits_per_second: Amount | None = reading(
        "speed", charted=False, help="Speed that the link came up with."
    )
    link_downed_count: Whole | None = reading(
        "link lost", metric="errors_total", kind="link_downed", help=_PORT_ERRORS
    )
    """Times that the link could not be recovered and went down. At 255 it stops, as the next."""
    link_recovery_count: Whole | None = reading(
        "link recovered", metric="errors_total", kind="link_recovery", help=_PORT_ERRORS
    )
    receive_error_count: Whole | None = reading(
        "receive errors", metric="errors_total", kind="receive", help=_PORT_ERRORS
    )
    symbol_error_count: Whole | None = reading(
        "symbol errors", metric="errors_total", kind="symbol", help=_PORT_ERRORS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine around the GPUs. Rates are over the time since the snapshot before."""

    name: Text
    cpu_percent: Amount | None = reading("CPU", "cpu")
    """CPU use of all cores together, 0-100; waiting for a disk is not counted as busy."""
    cpu_iowait_percent: Amount | None = reading("I/O wait", "iowait")
    core_percents: tuple[Amount | None, ...] | None = None
    cpu_clock_mhz: Amount | None = reading(charted=False)
    """Mean clock of cores that are busy."""
    cpu_clock_base_mhz: Amount | None = reading(charted=False)
    """The clock that they hold with all cores at work, by the maker,"""
    cpu_clock_max_mhz: Amount | None = reading(charted=False)
    """and the highest of one alone."""
    cpu_governor: Text | None = None
    cpu_thermal_throttled: bool | None = None
    """Their temperature held the clock down since it was looked before."""
    load_average_1_minute: Amount | None = reading("load", charted=True)
    load_average_5_minutes: Amount | None = reading(charted=True)
    load_average_15_minutes: Amount | None = reading(charted=True)
    memory_total_bytes: Whole | None = None
    memory_used_bytes: Whole | None = reading("memory", "mem", limit="memory_total_bytes")
    """Total less available: what a new process could not have."""
    swap_total_bytes: Whole | None = None
    swap_used_bytes: Whole | None = reading("swap", limit="swap_total_bytes")
    pressure_cpu_some_percent: Amount | None = reading("CPU", "PSI cpu")
    pressure_io_some_percent: Amount | None = reading("I/O", "PSI io")
    pressure_io_full_percent: Amount | None = reading()
    pressure_memory_some_percent: Amount | None = reading("memory", "PSI mem")
    pressure_memory_full_percent: Amount | None = reading()
    """PSI: the share of time some (or all) runnable tasks waited for that resource."""
    disk_read_bytes_per_second: Amount | None = reading("disk read", "disk r")
    disk_write_bytes_per_second: Amount | None = reading("disk write", "disk w")
    disk_read_milliseconds: Amount | None = reading(charted=False)
    """Time that a read of a disk took, on average."""
    network_mounts: tuple[NetworkMount, ...] | None = None
    """Network mounts that were used since the snapshot before, the one most waited for first."""
    rdma_ports: tuple[RdmaPort, ...] | None = None
    """InfiniBand and RoCE ports; ``None``: the machine has none."""
    cache_refault_bytes_per_second: Amount | None = reading(charted=False)
    """Read into the page cache again, soon after memory was short and they were dropped from it."""
    network_receive_bytes_per_second: Amount | None = reading("network in", "net rx")
    network_transmit_bytes_per_second: Amount | None = reading("network out", "net tx")
    shm_total_bytes: Whole | None = None
    shm_used_bytes: Whole | None = reading("/dev/shm", "shm", limit="shm_total_bytes")
    core_count: Whole | None = None
    """Cores the machine has online."""
    affinity_cores: Whole | None = None
    """Cores this process may be scheduled on."""
    quota_cores: Amount | None = None
    """The tightest cgroup CPU quota above this process, in cores; ``None``: no quota."""
    usable_cores: Amount | None = None
    """The smaller of the two: what a job started here could really use."""
    uptime_seconds: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that could not be read, as a sentence for a person.

    ``source`` is ``nvml``, ``host``, ``processes``, ``jobs`` or ``sampler``; ``target`` the GPU's
    uuid, or ``None`` for all of the source; ``reading`` the field it concerns (of ``Gpu``:
    ``lost``), or ``None`` for all.
    """

    source: Text
    message: Text
    target: Text | None = None
    reading: Text | None = None
    since_unix_seconds: UnixSeconds | None = None
    severity: Text = "warning"
    """``error``: a whole source or GPU is missing; ``warning``; ``info``: good to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCost:
    """Cost of watching, so that a person can judge it."""

    cpu_percent: Amount | None = None
    """CPU use in percent of one core, since the snapshot before."""
    memory_resident_bytes: Whole | None = None
    nvml_milliseconds_per_second: Amount | None = None
    """Time spent inside the driver's calls, a second of wall time."""
    nvml_calls_per_second: Amount | None = None
    read_milliseconds: Amount | None = None
    """How long taking this snapshot took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything seen at one moment, live, simulated, replayed or remote alike."""

    sequence: Whole
    taken_at_unix_seconds: UnixSeconds
    monotonic_seconds: MonotonicSeconds
    """The source's monotonic clock: the time axis of charts, immune to wall-clock jumps."""
    interval_seconds: Seconds
    """The interval aimed at when this was taken."""
    simulated: bool
    host: Host
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[Process, ...] = ()
    jobs: tuple[Job, ...] = ()
    problems: tuple[Problem, ...] = ()
    own_cost: OwnCost = OwnCost()
