"""Windows, the input of rules: the last minute of one job and its GPUs, boiled down to facts, and
the tables of readings of which facts are the means.

Built by ``observer`` from snapshots, live or not. Every fact is ``None`` where it was not read.
Means are over the window's watched time (gaps left out); shares are 0 to 1, percents 0 to 100.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from operator import attrgetter
from typing import Any

from gpuwatch.core.model import (
    GpuIdentity,
    GpuKey,
    Job,
    NetworkMount,
    Process,
    ProcessKey,
    ReasonSeconds,
    XidError,
)
from gpuwatch.core.model.records import dataclass
from gpuwatch.core.store import Table, Values
from gpuwatch.diagnosis.finding import WINDOW_SECONDS, Pause
from gpuwatch.diagnosis.signals.load import Exchange
from gpuwatch.diagnosis.signals.waveform import Waveform

PAST_SECONDS = 960.0
"""Longer than a pause is kept for: what was written in the first one must still be known."""


def mean_of(reading: str = "") -> Any:
    """Declare a field of facts that is the mean of ``reading``, a field of what is observed;
    without a name, of what is worked out from several readings at each look."""
    return field(default=None, metadata={"mean": reading})


_NOTHING: Mapping[str, float | None] = {}


class FactTable(Table):
    """Readings, by the names of the facts that are their means: those that are read of what is
    observed, those worked out, and ``more`` that are no means of facts but worked out as well."""

    def __init__(
        self, facts: type, more: Sequence[str] = (), *, keep_seconds: float = WINDOW_SECONDS
    ) -> None:
        declared = [(one.name, one.metadata["mean"]) for one in fields(facts) if one.metadata]
        read = [(name, reading) for name, reading in declared if reading]
        if len(read) == 1:
            # Of a single field, ``attrgetter`` would give no tuple.
            raise ValueError("declare two readings or none")
        own = [name for name, reading in declared if not reading]
        self.means_declared = [*[name for name, _ in read], *own]
        self._worked_out = [*own, *more]
        self._values_of = attrgetter(*[reading for _, reading in read]) if read else None
        names = (*self.means_declared, *more)
        super().__init__(names, tiers=(), code="d", keep_seconds=keep_seconds)

    def observe(
        self,
        at: float,
        seconds: float,
        observed: object,
        worked_out: Mapping[str, float | None] = _NOTHING,
    ) -> None:
        """Take what is observed, as it was over the ``seconds`` up to ``at``, and by name what was
        worked out; times ascend."""
        read: Values = () if self._values_of is None else self._values_of(observed)
        self.add_row(at, seconds, [*read, *[worked_out[name] for name in self._worked_out]])

    def facts(self, since: float) -> dict[str, Any]:
        """Return the means over what was taken after ``since``, by the names of the facts."""
        names = self.means_declared
        return dict(zip(names, self.means(since)[: len(names)], strict=True))


COMPILE_SHARE = 0.2
"""Share of the looks that is enough: many compilers live for less than a second, and few looks
catch one."""
STOPPED_STATES = ("T", "t")
"""By a signal, and held by a debugger: of the kernel's letters for what a process does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    identity: GpuIdentity
    lost: bool = False
    xid_errors: tuple[XidError, ...] | None = None
    """Driver errors as ``Gpu`` has them now."""
    allocated_to: tuple[str, ...] | None = None
    """Batch jobs, as in ``Gpu``, for so many seconds as far as was seen:"""
    allocated_seconds: float | None = None
    busy: Waveform | None = None
    """Waveform of the driver's fine samples where there are any, else of the polls; ``None`` for
    fewer than two in the window."""
    busy_read: bool = False
    """A reading of utilisation is known, be it from before the window."""
    busy_polled_evenly: bool | None = None
    """``busy`` is of polls, each of a moment, at even distances: steps about as long as these are
    seen in the same phase again and again."""
    busy_now_percent: float | None = None
    """Mean of the newest few seconds."""
    unread_seconds: float = 0.0
    """For how long it has not been read any more, though it had been: the driver is silent, or
    refuses it."""
    power_mean_watts: float | None = mean_of("power_watts")
    power_busy_watts: float | None = mean_of()
    """While a kernel was resident (busy at 90% or more)."""
    power_plateau_watts: float | None = None
    """The job's own busy plateau: the 95th percentile of its power since it has been watched."""
    power_usual_watts: float | None = None
    """The 75th percentile since watched: what it draws for more than a quarter of the time."""
    spins_share: float | None = None
    """0 to 1: of the time, a kernel was resident and drew less than half of the plateau: it
    waited, as those of collectives do."""
    spins: int | None = None
    """In how many stretches."""
    memory_rests_share: float | None = None
    """0 to 1: of the time in which a kernel was resident, its memory rested; ``None`` where it does
    not work and rest in turns that samples can show."""
    power_limit_watts: float | None = mean_of("power_limit_watts")
    sm_active_percent: float | None = mean_of("sm_active_percent")
    tensor_active_percent: float | None = mean_of("tensor_active_percent")
    dram_active_percent: float | None = mean_of("dram_active_percent")
    memory_controller_percent: float | None = mean_of("memory_controller_percent")
    memory_used_bytes: float | None = mean_of("memory_used_bytes")
    memory_highest_bytes: float | None = None
    memory_slope_bytes_per_second: float | None = None
    memory_slope_error_bytes_per_second: float | None = None
    """Standard error of the slope (over up to 10 minutes, not only the window)."""
    memory_rises: int | None = None
    """How often the memory used went higher than ever before, since the job's work is steady."""
    memory_trend_seconds: float | None = None
    """How long growth has counted: not before the first work, nor while a model is loaded."""
    temperature_highest_celsius: float | None = None
    sm_clock_busy_mhz: float | None = mean_of()
    throttle_shares: tuple[ReasonSeconds, ...] | None = None
    """Seconds of the window in which each reason held, by the driver's counters or the polls."""
    pcie_generation_busy: int | None = None
    pcie_width_busy: int | None = None
    """The highest seen under load: links power down when idle."""
    pcie_rx_bytes_per_second: float | None = mean_of("pcie_rx_bytes_per_second")
    pcie_rx_idle_bytes_per_second: float | None = mean_of()
    """Host to GPU while no kernel was resident."""
    pcie_tx_bytes_per_second: float | None = mean_of("pcie_tx_bytes_per_second")
    encoder_percent: float | None = mean_of("encoder_percent")
    ecc_uncorrected_new: int | None = None
    ecc_corrected_new: int | None = None
    remapped_rows_failed: bool | None = None
    remapped_rows_pending: bool | None = None
    pcie_replays_new: int | None = None
    nvlink_replays_new: int | None = None
    nvlink_recoveries_new: int | None = None
    link_errors_seconds: float | None = None
    """In the last quarter of an hour, or as long as it has been watched: so many seconds."""
    foreign_busy_percent: float | None = None
    """SM share of processes that are not of the window's job (``None``: not read)."""
    foreign_memory_bytes: float | None = None
    own_busy_percent: float | None = None
    own_memory_bytes: float | None = None
    others: tuple[Process, ...] | None = None
    """The processes on it now that are not of the window's job."""

    @property
    def uuid(self) -> GpuKey:
        return self.identity.uuid

    @property
    def busy_percent(self) -> float | None:
        """Mean utilisation of the window."""
        return None if self.busy is None else self.busy.mean_percent

    @property
    def idle_share(self) -> float:
        """Share of the time that it idled, 0 to 1: utilisation is the share of the time in which a
        kernel was resident, so its mean says how much was idle also where the swings are too fast
        to be seen; 1: nothing is known."""
        return 1.0 if self.lost or self.busy is None else 1.0 - self.busy.mean_percent / 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """The loader workers of a job (or of one rank) over the window: those that feed it, where
    another loader's rest."""

    count: float = mean_of()
    """Mean number alive, while any were."""
    cpu_percent: float | None = mean_of()
    """Mean CPU use in percent of one core; with child processes, which may use more than one."""
    run_queue_wait_percent: float | None = mean_of()
    disk_wait_percent: float | None = mean_of()
    in_disk_wait_share: float | None = mean_of()
    """Share of looks that found one of them in state D."""
    awaits_network_share: float | None = mean_of()
    """Mean share of their time in which an answer was due on a connection of theirs."""
    at_work_share: float | None = mean_of()
    """0 to 1, mean of all, at least: of the looks that found one making a batch, be it asleep, and
    not waiting to be asked for one."""
    resting: int = 0
    """How many more there are now, of a loader that feeds nothing (validation)."""
    involuntary_switches_per_second: float | None = mean_of()
    """Mean of all."""
    memory_slope_bytes_per_second: float | None = None
    """Growth of the PSS of all together."""
    memory_slope_error_bytes_per_second: float | None = None
    orphaned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """Reports of a rank on its own training loop (``model.TrainingLoop``), over the window.
    Shares are of the time in which it trained: validation and checkpoints are left out."""

    data_wait_share: float | None = mean_of("data_wait_share")
    copy_share: float | None = mean_of("copy_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    pid: int
    rank: int | None = None
    gpu_uuids: tuple[GpuKey, ...] = ()
    loader_workers: int | None = None
    pinned_memory: bool | None = None
    """Both as the rank itself reports, where it does."""
    main_thread_percent: float | None = mean_of("main_thread_cpu_percent")
    cpu_percent: float | None = mean_of("cpu_percent")
    """All its threads together."""
    run_queue_wait_percent: float | None = mean_of("run_queue_wait_percent")
    disk_wait_percent: float | None = mean_of("disk_wait_percent")
    awaits_network_share: float | None = mean_of("awaits_network")
    """Share of the time in which an answer was due on a connection that it made."""
    write_bytes_per_second: float | None = mean_of("write_bytes_per_second")
    collectives_behind: float | None = mean_of()
    """How many collectives fewer than the rank that was ahead it had launched, by NCCL's count."""
    workers: WorkerFacts | None = None
    loop: LoopFacts | None = None
    state: str | None = None
    """The kernel's letter for its process, now."""
    stopped_seconds: float | None = None
    """For how long its process has been stopped, up to now; 0: it is not; ``None``: its state is
    not known. While all ranks are, the job is not watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    job: Job
    """As it was last."""
    watched_seconds: float = 0.0
    cpu_cores: float | None = mean_of()
    """Mean of all its processes together, in cores."""
    main_thread_percent: float | None = mean_of()
    main_thread_when_idle_percent: float | None = None
    """The main threads' share of one core while the job's GPUs were idle."""
    workers: WorkerFacts | None = None
    workers_when_idle_percent: float | None = None
    workers_when_busy_percent: float | None = None
    busiest_worker_when_idle_percent: float | None = None
    """How much of its time the worker that had the most to do at that moment computed or waited
    for storage or the network, while the GPUs were idle,"""
    other_workers_when_idle_percent: float | None = None
    """and the mean of the others."""
    own_workers: WorkerFacts | None = None
    """Processes that it forked or spawned and that are no loader workers: a pool of its own,
    environments of reinforcement learning. ``None``: there are none."""
    main_thread_phase: float | None = None
    """Correlation (-1 to 1) of the main threads' CPU with the GPUs' busy samples; -1 is
    anti-phase."""
    cpu_throttled_percent: float | None = mean_of()
    pressure_io_percent: float | None = mean_of()
    pressure_memory_percent: float | None = mean_of()
    """Pressure (PSI) of the job's own cgroup."""
    read_bytes_per_second: float | None = mean_of()
    write_bytes_per_second: float | None = mean_of()
    network_receive_bytes_per_second: float | None = mean_of()
    network_send_bytes_per_second: float | None = mean_of()
    write_when_idle_bytes_per_second: float | None = None
    compile_share: float | None = mean_of()
    """0 to 1: of the time in which compilers ran among its processes."""
    ranks: tuple[RankFacts, ...] = ()
    stacks: tuple[tuple[str, float, str | None], ...] = ()
    """(category, percent, the user's line) of the main threads, where stacks were sampled."""

    @property
    def key(self) -> ProcessKey:
        return self.job.key

    @property
    def has_ended(self) -> bool:
        return self.job.ended_at_unix_seconds is not None

    @property
    def compiles(self) -> bool:
        """Whether compilers ran: one busy thread and an idle GPU are then no sign of slow Python or
        loading."""
        return (self.compile_share or 0.0) >= COMPILE_SHARE

    def stack_percent(self, *categories: str) -> float | None:
        """Return the share of the main threads' samples in these categories; ``None`` without
        stacks."""
        if not self.stacks:
            return None
        return sum([share for category, share, _ in self.stacks if category in categories])

    def stack_line(self, category: str) -> str | None:
        """Return the user's line under the most of this category's samples."""
        lines = [(share, line) for name, share, line in self.stacks if name == category and line]
        return max(lines)[1] if lines else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFacts:
    """Errors of an InfiniBand or RoCE port that are new since watching began, or in the last
    quarter of an hour."""

    device: str
    """``mlx5_0``."""
    name: str
    """``InfiniBand port mlx5_0/1``."""
    is_active: bool = True
    was_active: bool = True
    """Whether it was at any time since watching began."""
    link_downed_new: int | None = None
    link_recovery_new: int | None = None
    receive_errors_new: int | None = None
    symbol_errors_new: int | None = None

    @property
    def went_down(self) -> bool:
        return bool(self.link_downed_new) or (self.was_active and not self.is_active)

    @property
    def errors_new(self) -> int:
        """All errors but those of a link that went down."""
        several = (self.link_recovery_new, self.receive_errors_new, self.symbol_errors_new)
        return sum([one or 0 for one in several])


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    cpu_percent: float | None = mean_of("cpu_percent")
    core_count: int | None = None
    cpu_clock_mhz: float | None = mean_of("cpu_clock_mhz")
    cpu_clock_base_mhz: float | None = mean_of("cpu_clock_base_mhz")
    cpu_clock_max_mhz: float | None = mean_of("cpu_clock_max_mhz")
    cpu_thermal_share: float | None = mean_of("cpu_thermal_throttled")
    """0 to 1: of the looks, heat had held cores down."""
    cpu_governor: str | None = None
    pressure_io_percent: float | None = mean_of("pressure_io_some_percent")
    disk_read_milliseconds: float | None = mean_of("disk_read_milliseconds")
    network_mounts: tuple[NetworkMount, ...] | None = None
    """Network mounts as ``Host`` has them now."""
    ports: tuple[PortFacts, ...] | None = None
    network_receive_bytes_per_second: float | None = mean_of("network_receive_bytes_per_second")
    network_transmit_bytes_per_second: float | None = mean_of("network_transmit_bytes_per_second")
    cache_refault_bytes_per_second: float | None = mean_of("cache_refault_bytes_per_second")
    memory_total_bytes: int | None = None
    memory_used_bytes: float | None = mean_of("memory_used_bytes")
    memory_slope_bytes_per_second: float | None = None
    memory_slope_error_bytes_per_second: float | None = None
    memory_trend_seconds: float | None = None
    """How long growth has counted; for a job, not before its GPUs have worked."""
    swap_growth_bytes: float | None = None
    shm_total_bytes: int | None = None
    shm_used_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One subject: a job with its GPUs, or a GPU without a known job (``job`` is ``None``), or
    several of those that look like one job."""

    taken_at_unix_seconds: float
    seconds: float
    """How long the window is; of this, ``watched_seconds`` were seen."""
    watched_seconds: float
    interval_seconds: float
    """Between snapshots."""
    gpus: tuple[GpuFacts, ...]
    job: JobFacts | None = None
    host: HostFacts = HostFacts()
    starting: bool = False
    """The job is in its start-up: no steps have been seen yet."""
    pauses: tuple[Pause, ...] = ()
    """Pauses of the last 15 minutes, oldest first."""
    gathered_seconds: float = 0.0
    """Over how long those of a GPU without a job were looked for."""
    ongoing: tuple[Pause, ...] = ()
    """One for each GPU that has left its usual work and may come back to it: a pause that is not
    over, or the beginning of another regime. Not for longer than a minute or two."""
    unused: tuple[GpuFacts, ...] = ()
    """GPUs of the machine that no job uses, for a job without one."""
    steady_seconds: float = 0.0
    """How long the job has been watched past its start-up."""
    back_seconds: float = WINDOW_SECONDS
    """How far its readings reach back, also to those that the driver kept before it was watched."""
    busy_together: float | None = None
    power_together: float | None = None
    """Mean correlation of all pairs of its GPUs, -1 to 1: 1, they move together; 0, each for
    itself; far below, in turns. ``None``: one of them does not move. Without a job, over the last
    three minutes: in one, two pauses are alike by chance."""
    exchange: Exchange = Exchange()
    """Its GPUs against what the machine sends over the network."""
