"""The vocabulary: what one look at a machine can say.

Every type is frozen. ``None`` always means "not read" and never zero: the part does not have it,
the driver refused it, or the call failed, and a ``Problem`` says which where a person should know.
Units are in the names. Field names are also the names in the JSON (see ``codec``).
GPUs are keyed by ``uuid``; processes by ``(pid, started_at_unix_seconds)``, since the kernel
reuses PIDs; a process on a GPU by both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.core.bounds import MonotonicSeconds, Seconds, Text, UnixSeconds, Whole

GpuKey = Text
ProcessKey = tuple[int, float | None]

JOB_ROLES = ("launcher", "rank", "loader_worker", "helper", "other")
"""``launcher``: starts and watches ranks (torchrun, mpirun ...); ``rank``: a training process (a
job of one process is one rank); ``loader_worker``: a DataLoader worker process; ``helper``:
resource tracker, shared-memory manager, compile or checkpoint worker; ``other``: anything else
in the job's tree."""


class BusySample(NamedTuple):
    """One sample of the driver's own utilisation buffer.

    ``at_unix_seconds`` is the driver's time stamp (wall clock); ``percent`` the share of the
    driver's sample period, 0-100, in which at least one kernel was resident.
    """

    at_unix_seconds: UnixSeconds
    percent: float


class ReasonSeconds(NamedTuple):
    """How long one throttle reason held, in seconds, since the snapshot before."""

    reason: Text
    seconds: float


class ReadingAge(NamedTuple):
    """A reading that is shown late: the field it sets, and its age in seconds."""

    field: Text
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuIdentity:
    """What does not change while a GPU is there.

    A MIG instance is a GPU of its own: ``mig_parent_uuid`` names the card it is a part of and
    ``mig_instance`` is its number there. ``index`` is NVML's (PCI bus order), not CUDA's.
    """

    index: Whole
    uuid: GpuKey
    name: Text
    pci_bus_id: Text | None = None
    driver_version: Text | None = None
    cuda_version: Text | None = None
    memory_total_bytes: Whole | None = None
    memory_unified: bool = False
    """The GPU shares the host's memory (GB10 and the like), so there is no total of its own."""
    power_limit_default_watts: float | None = None
    power_limit_max_watts: float | None = None
    temperature_slowdown_celsius: float | None = None
    temperature_shutdown_celsius: float | None = None
    sm_clock_max_mhz: Whole | None = None
    memory_clock_max_mhz: Whole | None = None
    pcie_generation_max: Whole | None = None
    pcie_width_max: Whole | None = None
    compute_capability: Text | None = None
    mig_mode: bool | None = None
    mig_parent_uuid: GpuKey | None = None
    mig_instance: Whole | None = None
    numa_node: Whole | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What moves. Every field is ``None`` where it was not read.

    ``busy_percent`` is NVML's ``utilization.gpu``: the share of the driver's sample period in
    which a kernel was resident, which is not the share in which the GPU worked.
    ``throttle_reasons`` is the tuple of reasons in force, empty when none is (reason names are
    NVML's clocks-event reasons in snake case: ``gpu_idle``, ``sw_power_cap``, ``hw_slowdown``,
    ``sw_thermal_slowdown``, ``hw_thermal_slowdown``, ``hw_power_brake_slowdown``, ``sync_boost``,
    ``applications_clocks_setting``, ``display_clock_setting``).
    The ``sm_active``, ``sm_occupancy``, ``tensor_active`` and ``dram_active`` activities come
    from GPM and exist on Hopper and later only.
    """

    busy_percent: float | None = None
    busy_samples: tuple[BusySample, ...] | None = None
    """Driver samples since the snapshot before, oldest first; ``None``: this GPU keeps none."""
    memory_controller_percent: float | None = None
    memory_used_bytes: Whole | None = None
    memory_used_is_process_sum: bool = False
    """The driver reports no total on unified memory: this is the sum over its processes."""
    power_watts: float | None = None
    power_is_average: bool = False
    """The driver gave only its one-second average, not the instant value."""
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    fan_percent: float | None = None
    sm_clock_mhz: Whole | None = None
    memory_clock_mhz: Whole | None = None
    performance_state: Whole | None = None
    """0 (fastest) to 15, as in P0 to P15."""
    throttle_reasons: tuple[Text, ...] | None = None
    throttle_durations: tuple[ReasonSeconds, ...] | None = None
    pcie_generation: Whole | None = None
    pcie_width: Whole | None = None
    pcie_rx_bytes_per_second: float | None = None
    """Host to GPU."""
    pcie_tx_bytes_per_second: float | None = None
    """GPU to host."""
    encoder_percent: float | None = None
    decoder_percent: float | None = None
    energy_joules: float | None = None
    """Since the driver was loaded."""
    ecc_corrected_count: Whole | None = None
    ecc_uncorrected_count: Whole | None = None
    """Since the driver was loaded (NVML's volatile counters)."""
    remapped_rows_correctable: Whole | None = None
    remapped_rows_uncorrectable: Whole | None = None
    remapped_rows_pending: bool | None = None
    remapped_rows_failed: bool | None = None
    nvlink_rx_bytes_per_second: float | None = None
    nvlink_tx_bytes_per_second: float | None = None
    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None
    late_readings: tuple[ReadingAge, ...] = ()
    """Fields (of this, or of ``Process``) whose values are older than usual, because the driver
    is too slow to be asked at every look. What is not here is as old as the snapshot, or is read
    every few seconds on any driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU at one moment. A ``lost`` GPU keeps its identity; its reading is all ``None``."""

    identity: GpuIdentity
    reading: GpuReading
    lost: bool = False

    @property
    def uuid(self) -> GpuKey:
        return self.identity.uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, on one GPU (``gpu_uuid``) or on none.

    A process that uses several GPUs appears once for each, with the same host readings, so
    anything that adds up CPU or memory must count a ``key`` once. All text is ``text.clean``.
    """

    pid: Whole
    started_at_unix_seconds: UnixSeconds | None = None
    parent_pid: Whole | None = None
    user: Text | None = None
    name: Text | None = None
    command: Text | None = None
    state: Text | None = None
    """The kernel's letter: R running, S sleeping, D disk wait, T stopped, Z zombie, I idle."""
    cpu_percent: float | None = None
    """Of one core: 250 is two and a half cores."""
    memory_resident_bytes: Whole | None = None
    threads: Whole | None = None
    container: Text | None = None
    """Short container or pod id where the cgroup names one."""
    slurm_job: Text | None = None
    gpu_uuid: GpuKey | None = None
    gpu_memory_bytes: Whole | None = None
    gpu_busy_percent: float | None = None
    """Share of this GPU's SM time; measured 0 when idle, ``None`` when the driver cannot say."""
    gpu_kind: Text | None = None
    """``compute``, ``graphics`` or ``compute+graphics``."""
    mig_instance: Whole | None = None

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMember:
    """One process of a job. Rates and shares are over the time since they were last read.

    What ``Process`` says of the same ``key`` and is about GPUs (memory, SM share) is not
    repeated here.
    """

    pid: Whole
    started_at_unix_seconds: UnixSeconds | None = None
    parent_pid: Whole | None = None
    role: Text = "other"
    """One of ``JOB_ROLES``."""
    role_sign: Text | None = None
    """What gave the role, as a phrase: ``named pt_data_worker``, ``RANK=3 in its environment``."""
    role_guessed: bool = False
    """No process or thread name and no environment said so; likely, not known."""
    rank: Whole | None = None
    """The rank's own number, or that of the rank this process works for."""
    orphaned: bool = False
    """The process that started it has ended, and it is still there."""
    name: Text | None = None
    command: Text | None = None
    state: Text | None = None
    cpu_percent: float | None = None
    """Of one core, all threads together."""
    main_thread_cpu_percent: float | None = None
    """Of one core: how close the thread that runs the Python loop is to its limit."""
    run_queue_wait_percent: float | None = None
    """Share of the time in which the main thread could have run and waited for a core."""
    disk_wait_percent: float | None = None
    """Share of the time spent waiting for block devices, where the kernel accounts for it."""
    read_bytes_per_second: float | None = None
    write_bytes_per_second: float | None = None
    """From and to storage (what the page cache served is not in it)."""
    voluntary_switches_per_second: float | None = None
    involuntary_switches_per_second: float | None = None
    """Of the main thread: it waited for something; it was pushed off its core."""
    memory_resident_bytes: Whole | None = None
    memory_proportional_bytes: Whole | None = None
    """PSS: pages shared by n processes count 1/n each, so that sums are true."""
    threads: Whole | None = None

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLoop:
    """What a rank tells of its own loop through ``gpuwatch.torch``; nobody else can know it.

    Shares are of wall time, 0 to 1, over ``window_seconds`` up to now: a wait that lasts counts
    while it lasts.
    They may overlap (a copy runs beside compute) and need not add up to 1. ``pid`` and
    ``started_at_unix_seconds`` are those of the rank.
    """

    pid: Whole
    started_at_unix_seconds: UnixSeconds | None = None
    window_seconds: float | None = None
    steps: Whole | None = None
    """Since it began to tell; evaluation steps are not among them."""
    steps_per_second: float | None = None
    samples_per_second: float | None = None
    data_wait_share: float | None = None
    """The loop asked for the next batch and had to wait."""
    copy_share: float | None = None
    """Host-to-device copies, by CUDA events; ``None`` without CUDA."""
    compute_share: float | None = None
    """Between a step's first and last CUDA event; without CUDA, wall time inside the step."""
    compute_on_device: bool | None = None
    """``compute_share`` was measured on the GPU; ``False``: on the CPU's clock."""
    phase: Text | None = None
    """Now: ``train``, ``validation``, ``checkpoint`` or ``idle``."""
    validation_share: float | None = None
    checkpoint_share: float | None = None
    epoch: Whole | None = None
    step_in_epoch: Whole | None = None
    steps_in_epoch: Whole | None = None
    """``len(loader)``, where it has one."""
    batch_size: Whole | None = None
    """Samples in the last batch."""
    loader_workers: Whole | None = None
    """``num_workers`` of the loader that is watched."""
    pinned_memory: bool | None = None
    memory_allocated_bytes: Whole | None = None
    memory_reserved_bytes: Whole | None = None
    memory_peak_bytes: Whole | None = None
    """Allocated at most since the process began. All three are PyTorch's own counters."""
    told_at_unix_seconds: UnixSeconds | None = None
    """When it told last."""

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRank:
    """One training process of a job, and how it gets its data, as far as can be seen outside."""

    pid: Whole
    started_at_unix_seconds: UnixSeconds | None = None
    rank: Whole | None = None
    """``RANK``; ``None`` when not known (0 is not assumed)."""
    local_rank: Whole | None = None
    gpu_uuids: tuple[GpuKey, ...] = ()
    loader_workers: Whole | None = None
    """DataLoader workers alive now; 0: loading runs in the training process; ``None``: unknown."""
    loader_workers_sign: Text | None = None
    """What says so, or why it is unknown, as a phrase."""
    loader_workers_guessed: bool = False
    pinned_memory: bool | None = None
    """Whether batches are copied to pinned memory by a thread of the DataLoader."""
    pinned_memory_sign: Text | None = None
    """What says so, or why it is unknown, as a phrase."""
    numa_nodes: tuple[Whole, ...] | None = None
    """The NUMA nodes whose cores it may use."""

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The processes that belong together, from the launcher (or the training process) down.

    ``pid`` is the topmost process of the job, ``command`` the command line a person knows it by.
    Text is ``text.clean``. Cores are those this job may use, not those of the machine.
    """

    pid: Whole
    started_at_unix_seconds: UnixSeconds | None = None
    attached: bool = False
    """The person asked for this job by PID, or gpuwatch started it."""
    command: Text | None = None
    user: Text | None = None
    working_directory: Text | None = None
    launcher: Text | None = None
    """``torchrun``, ``mpirun``, ... where one started the ranks."""
    framework: Text | None = None
    """``torch``, ``jax``, ``tensorflow``, where a loaded library says so."""
    world_size: Whole | None = None
    """``WORLD_SIZE``: ranks on all machines."""
    ranks: tuple[JobRank, ...] = ()
    members: tuple[JobMember, ...] = ()
    """All processes, the topmost first, each after its parent."""
    loops: tuple[TrainingLoop, ...] = ()
    """Of the ranks that use ``gpuwatch.torch``, in the order of ``ranks``."""
    gpu_uuids: tuple[GpuKey, ...] = ()
    """The GPUs it uses or has used."""
    affinity_cores: Whole | None = None
    quota_cores: float | None = None
    """The tightest cgroup CPU quota on the job's path, in cores; ``None``: no quota."""
    slurm_cores: Whole | None = None
    """``SLURM_CPUS_ON_NODE`` and the like: what the scheduler gave it here."""
    usable_cores: float | None = None
    """The least of those and the machine's: what all ranks of the job on this host share."""
    cpu_throttled_percent: float | None = None
    """Share of the quota's periods in which the job was held back."""
    container: Text | None = None
    pod: Text | None = None
    slurm_job: Text | None = None
    environment: Text | None = None
    """``conda ml``, ``venv proj``: the Python environment it runs in."""
    inner_pid: Whole | None = None
    """The PID that the job's own PID namespace knows ``pid`` by, where that is another."""
    ended_at_unix_seconds: UnixSeconds | None = None
    """When the last of its ranks was seen to be gone; such a job stays in the list while somebody
    is attached to it."""
    exit_code: Whole | None = None
    """Only where gpuwatch started the job, negative for a signal."""
    main_thread_samples: tuple[BusySample, ...] | None = None
    loader_worker_samples: tuple[BusySample, ...] | None = None
    """Share of one core that the ranks' main threads (the loader workers) used, on average, in
    the time up to each moment, finer than snapshots come; only for the attached job."""

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)

    def loop_of(self, rank: JobRank) -> TrainingLoop | None:
        """What this rank tells of its loop; ``None``: it does not use ``gpuwatch.torch``."""
        return next((loop for loop in self.loops if loop.key == rank.key), None)

    def having(self, role: str) -> tuple[JobMember, ...]:
        """The members with this role."""
        return tuple([member for member in self.members if member.role == role])

    @property
    def loader_workers(self) -> int | None:
        """Of all ranks together; ``None`` if it is unknown for one, or there is no rank."""
        return _total([rank.loader_workers for rank in self.ranks])

    @property
    def pinned_memory(self) -> bool | None:
        """The ranks' common answer; ``None`` if unknown or if they differ."""
        answers = {rank.pinned_memory for rank in self.ranks}
        return answers.pop() if len(answers) == 1 else None

    @property
    def cpu_percent(self) -> float | None:
        """Of one core, all processes together; those not yet measured are left out."""
        return _sum([member.cpu_percent for member in self.members])

    @property
    def main_thread_cpu_percent(self) -> float | None:
        """Mean over the ranks."""
        return _mean([member.main_thread_cpu_percent for member in self.having("rank")])

    @property
    def loader_worker_cpu_percent(self) -> float | None:
        """Mean over the loader workers, of one core each."""
        return _mean([member.cpu_percent for member in self.having("loader_worker")])

    @property
    def read_bytes_per_second(self) -> float | None:
        return _sum([member.read_bytes_per_second for member in self.members])

    @property
    def write_bytes_per_second(self) -> float | None:
        return _sum([member.write_bytes_per_second for member in self.members])

    @property
    def memory_proportional_bytes(self) -> int | None:
        """PSS of all processes; ``None`` while it is unknown for one of them."""
        return _total([member.memory_proportional_bytes for member in self.members])

    @property
    def data_wait_share(self) -> float | None:
        """Mean over the ranks that tell of their loop."""
        return _mean([loop.data_wait_share for loop in self.loops]) if self.loops else None

    @property
    def samples_per_second(self) -> float | None:
        """Of all ranks that tell of their loop together; ``None`` while one lacks it."""
        rates = [loop.samples_per_second for loop in self.loops]
        return None if None in rates else _sum(rates)


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _total(values: list[int | None]) -> int | None:
    """The sum, if every part is known and there is one."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine around the GPUs. Rates are over the time since the snapshot before."""

    name: Text
    cpu_percent: float | None = None
    """Of all cores together, 0-100; waiting for a disk is not counted as busy."""
    cpu_iowait_percent: float | None = None
    core_percents: tuple[float | None, ...] | None = None
    load_average_1_minute: float | None = None
    load_average_5_minutes: float | None = None
    load_average_15_minutes: float | None = None
    memory_total_bytes: Whole | None = None
    memory_used_bytes: Whole | None = None
    """Total less available: what a new process could not have."""
    swap_total_bytes: Whole | None = None
    swap_used_bytes: Whole | None = None
    pressure_cpu_some_percent: float | None = None
    pressure_io_some_percent: float | None = None
    pressure_io_full_percent: float | None = None
    pressure_memory_some_percent: float | None = None
    pressure_memory_full_percent: float | None = None
    """PSI: the share of time some (or all) runnable tasks waited for that resource."""
    disk_read_bytes_per_second: float | None = None
    disk_write_bytes_per_second: float | None = None
    network_receive_bytes_per_second: float | None = None
    network_transmit_bytes_per_second: float | None = None
    shm_total_bytes: Whole | None = None
    shm_used_bytes: Whole | None = None
    core_count: Whole | None = None
    """Cores the machine has online."""
    affinity_cores: Whole | None = None
    """Cores this process may be scheduled on."""
    quota_cores: float | None = None
    """The tightest cgroup CPU quota above this process, in cores; ``None``: no quota."""
    usable_cores: float | None = None
    """The smaller of the two: what a job started here could really use."""
    uptime_seconds: float | None = None


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
    """What watching costs, so that a person can judge it."""

    cpu_percent: float | None = None
    """Of one core, over the time since the snapshot before."""
    memory_resident_bytes: Whole | None = None
    nvml_milliseconds_per_second: float | None = None
    """Time spent inside the driver's calls, a second of wall time."""
    nvml_calls_per_second: float | None = None
    read_milliseconds: float | None = None
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
