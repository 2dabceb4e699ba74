"""Jobs: processes that belong together, and what their ranks report of their own loops."""

from __future__ import annotations

from typing import TypeVar

from gpuwatch.core.bounds import Amount, Text, UnixSeconds, Whole, mean, total
from gpuwatch.core.model.gpu import BusySample, GpuKey
from gpuwatch.core.model.process import Identified
from gpuwatch.core.model.records import OF_ONE_CORE, dataclass, reading

JOB_ROLES = ("launcher", "rank", "loader_worker", "helper", "other")
"""``launcher``: starts and watches ranks (torchrun, mpirun ...); ``rank``: a training process (a
job of one process is one rank); ``loader_worker``: a DataLoader worker process; ``helper``:
resource tracker, shared-memory manager, compile or checkpoint worker, or (a guess) a worker process
of the program's own; ``other``: anything else in the job's tree."""
Number = TypeVar("Number", int, float)
COMPILES_PERCENT = 10.0
"""CPU use, in percent of a core, from which a compile worker works: others sleep as long as the job
runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMember(Identified):
    """One process of a job. Rates and shares are over the time since they were last read.

    What ``Process`` says of the same ``key`` and is about GPUs (memory, SM share) is not
    repeated here.
    """

    parent_pid: Whole | None = None
    role: Text = "other"
    """One of ``JOB_ROLES``."""
    role_sign: Text | None = None
    """Its sign, as a phrase: ``named pt_data_worker``, ``RANK=3 in its environment``."""
    role_guessed: bool = False
    """No process or thread name and no environment said so; likely, not known."""
    rank: Whole | None = None
    """The rank's own number, or that of the rank this process works for."""
    orphaned: bool = False
    """The process that started it has ended, and it is still there."""
    name: Text | None = None
    command: Text | None = None
    state: Text | None = None
    cpu_percent: Amount | None = reading("CPU", between=OF_ONE_CORE)
    """CPU use of all its threads, in percent of one core."""
    children_cpu_percent: Amount | None = reading("children's CPU", between=OF_ONE_CORE)
    """CPU use of all processes below a loader worker, in percent of one core, with those that lived
    and ended between two looks (a decoder for each sample)."""
    main_thread_cpu_percent: Amount | None = reading("main CPU", "main", between=OF_ONE_CORE)
    """CPU use of the thread that runs the Python loop, in percent of one core, which is its
    limit."""
    run_queue_wait_percent: Amount | None = reading("CPU-wait")
    """Share of the time in which the main thread could have run and waited for a core."""
    disk_wait_percent: Amount | None = reading("disk-wait")
    """Share of the time spent waiting for block devices, where the kernel accounts for it."""
    read_bytes_per_second: Amount | None = reading("read")
    write_bytes_per_second: Amount | None = reading("write")
    """From and to storage (what the page cache served is not in it)."""
    awaits_network: bool | None = None
    """At the last look an answer was due on a TCP connection that it made to a process outside the
    job, or data was on its way; only of the attached job."""
    network_receive_bytes_per_second: Amount | None = reading("network in")
    network_send_bytes_per_second: Amount | None = reading("network out")
    """On such connections: sent as far as they were still there when it was looked, received with
    what else reached the machine, where some were not."""
    awaits_work: bool | None = None
    """At the last look a loader worker slept where one waits to be asked for its next batch;
    ``False``: it computed, or slept while it made one. Only of the attached job."""
    voluntary_switches_per_second: Amount | None = reading("switches to wait")
    involuntary_switches_per_second: Amount | None = reading("switches forced")
    """Switches of the main thread: it waited for something; it was pushed off its core."""
    memory_resident_bytes: Whole | None = reading("RSS")
    memory_proportional_bytes: Whole | None = reading("PSS")
    """PSS: pages shared by n processes count 1/n each, so that sums are true."""
    threads: Whole | None = None

    @property
    def whole_cpu_percent(self) -> float | None:
        """CPU use in percent of one core, with that of the processes that work for it."""
        if self.cpu_percent is None:
            return None
        return self.cpu_percent + (self.children_cpu_percent or 0.0)

    def without_readings(self) -> JobMember:
        """Whether nothing that moves is known (any more)."""
        if self.state is None:
            return self
        return JobMember(**{name: getattr(self, name) for name in _LASTING})

    @property
    def compiles(self) -> bool:
        """Whether it is a compiler, or a worker of ``torch.compile`` that does not sleep."""
        works = (self.cpu_percent or 0.0) >= COMPILES_PERCENT
        return self.role_sign == "it is a compiler" or (
            works and self.role_sign == "it is a compile worker of torch.compile"
        )


_LASTING = (
    "pid", "started_at_unix_seconds", "parent_pid", "role", "role_sign", "role_guessed", "rank",
    "orphaned", "name", "command",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLoop(Identified):
    """A rank's own report on its loop, through ``gpuwatch.torch``; ``key`` is the rank's.

    Shares are of wall time, 0 to 1, over ``window_seconds`` up to now: a wait that lasts counts
    while it lasts. They may overlap (a copy runs beside compute) and need not add up to 1.
    """

    window_seconds: Amount | None = None
    steps: Whole | None = None
    """Since its first report; evaluation steps are not among them."""
    steps_per_second: Amount | None = None
    samples_per_second: Amount | None = reading("samples/s", "smp/s")
    data_wait_share: Amount | None = reading("data-wait", "data")
    """The loop asked for the next batch and had to wait."""
    copy_share: Amount | None = None
    """Host-to-device copies, by CUDA events; ``None`` without CUDA."""
    compute_share: Amount | None = reading("in steps", "step")
    """Between a step's first and last CUDA event, waits in collectives among it; without CUDA, wall
    time inside the step."""
    compute_on_device: bool | None = None
    """``compute_share`` was measured on the GPU; ``False``: on the CPU's clock."""
    phase: Text | None = None
    """Now: ``train``, ``validation``, ``checkpoint`` or ``idle``."""
    validation_share: Amount | None = None
    checkpoint_share: Amount | None = None
    spent_seconds: tuple[Amount | None, ...] | None = None
    """Seconds since its first report that went to data waits, compute, copies, validation and
    checkpoints (in this order): what the shares are of, without a window."""
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
    reported_at_unix_seconds: UnixSeconds | None = None
    """When it reported last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRank(Identified):
    """One training process of a job, and how it gets its data, as far as can be seen outside."""

    rank: Whole | None = None
    """``RANK``; ``None`` when not known (0 is not assumed)."""
    local_rank: Whole | None = None
    gpu_uuids: tuple[GpuKey, ...] = ()
    visible_gpus: Whole | None = None
    """How many GPUs ``CUDA_VISIBLE_DEVICES`` lets it use; ``None``: it is not set, or unknown."""
    loader_workers: Whole | None = None
    """DataLoader workers alive now; 0: loading runs in the training process; ``None``: unknown."""
    loader_workers_sign: Text | None = None
    """Its sign, or why it is unknown, as a phrase."""
    loader_workers_guessed: bool = False
    pinned_memory: bool | None = None
    """Batches are copied to pinned memory by a thread of the DataLoader."""
    pinned_memory_sign: Text | None = None
    """Its sign, or why it is unknown, as a phrase."""
    numa_nodes: tuple[Whole, ...] | None = None
    """The NUMA nodes whose cores it may use."""
    collectives_behind: Whole | None = None
    """How many collectives fewer than the rank that was ahead it had launched, by NCCL's own count
    when it was asked last (RAS); ``None``: NCCL was not asked, or does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Identified):
    """The processes that belong together, from the launcher (or the training process) down.

    ``pid`` is the topmost process of the job, ``command`` the command line a person knows it by.
    Text is ``text.clean``. Cores are those this job may use, not those of the machine.
    """

    attached: bool = False
    """The person asked for this job by PID, or gpuwatch started it."""
    command: Text | None = None
    user: Text | None = None
    working_directory: Text | None = None
    launcher: Text | None = None
    """``torchrun``, ``mpirun``, ... where one started the ranks."""
    framework: Text | None = None
    """``torch``, ``jax``, ``tensorflow``, where a loaded library says so."""
    serves: Text | None = None
    """Why it is taken for a server that waits for requests, as a phrase: ``it listens on TCP port
    8000``; ``None``: nothing shows that it is one."""
    simulates: Text | None = None
    """Why it is taken for reinforcement learning with environments on the CPU, as a phrase:
    ``MuJoCo is loaded in it``; ``None``: nothing shows it."""
    collectives: Text | None = None
    """``nccl`` or ``gloo``, where threads of it show what the ranks exchange gradients with."""
    behind_elsewhere: Text | None = None
    """A rank on another machine that was further behind (``collectives_behind``) than all ranks
    here: ``rank 21 on 10.0.0.3``."""
    cpu_build: bool | None = None
    """The PyTorch that is loaded knows no GPUs; ``None``: none is loaded, or it may not be read."""
    world_size: Whole | None = None
    """``WORLD_SIZE``: ranks on all machines."""
    rendezvous: Text | None = None
    """``MASTER_ADDR:MASTER_PORT``, where its ranks met: the same for all of them."""
    ranks: tuple[JobRank, ...] = ()
    members: tuple[JobMember, ...] = ()
    """All processes, the topmost first, each after its parent."""
    loops: tuple[TrainingLoop, ...] = ()
    """Reports of the ranks that use ``gpuwatch.torch``, in the order of ``ranks``."""
    gpu_uuids: tuple[GpuKey, ...] = ()
    """The GPUs it uses or has used."""
    affinity_cores: Whole | None = None
    quota_cores: Amount | None = None
    """The tightest cgroup CPU quota on the job's path, in cores; ``None``: no quota."""
    slurm_cores: Whole | None = None
    """``SLURM_CPUS_ON_NODE`` and the like: what the scheduler gave it here."""
    usable_cores: Amount | None = None
    """The least of those and the machine's: what all ranks of the job on this host share."""
    cpu_throttled_percent: Amount | None = None
    """Share of the quota's periods in which the job was held back."""
    pressure_cpu_some_percent: Amount | None = reading(charted=False)
    pressure_io_some_percent: Amount | None = reading(charted=False)
    pressure_memory_some_percent: Amount | None = reading(charted=False)
    """PSI of its own cgroup, which other programs of its container or session may share."""
    container: Text | None = None
    pod: Text | None = None
    """``NAMESPACE/NAME`` of the Kubernetes pod, its name, or its uid: as much as is known."""
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
    the time up to each moment, finer than snapshots come; only for the attached job. None of
    loader workers whose child processes work for them, which cannot be sampled so."""

    def loop_of(self, rank: JobRank) -> TrainingLoop | None:
        """Return the rank's report on its loop; ``None``: it does not use ``gpuwatch.torch``."""
        return next((loop for loop in self.loops if loop.key == rank.key), None)

    @property
    def is_without_gpus(self) -> bool:
        """Whether it can use no GPU: its PyTorch knows none, or none is visible to it."""
        return bool(self.cpu_build) or any(rank.visible_gpus == 0 for rank in self.ranks)

    def having(self, role: str) -> tuple[JobMember, ...]:
        return tuple([member for member in self.members if member.role == role])

    @property
    def loader_workers(self) -> int | None:
        """Loader workers of all ranks; ``None`` if they are unknown for one, or there is no
        rank."""
        return _total([rank.loader_workers for rank in self.ranks])

    @property
    def pinned_memory(self) -> bool | None:
        """The ranks' common answer; ``None`` if unknown or if they differ."""
        answers = {rank.pinned_memory for rank in self.ranks}
        return answers.pop() if len(answers) == 1 else None

    @property
    def cpu_percent(self) -> float | None:
        """CPU use of all processes, in percent of one core; those not yet measured are left out."""
        known, counted = list[float | None](), set[int | None]()
        for member in self.members:
            if member.parent_pid in counted:
                # The worker above it has counted it.
                counted.add(member.pid)
                continue
            known.append(member.whole_cpu_percent)
            if member.children_cpu_percent is not None:
                counted.add(member.pid)
        return total(known)

    @property
    def main_thread_cpu_percent(self) -> float | None:
        """Mean over the ranks."""
        return mean([member.main_thread_cpu_percent for member in self.having("rank")])

    @property
    def loader_worker_cpu_percent(self) -> float | None:
        """Mean over the loader workers, of one core each; their child processes count as theirs."""
        return mean([member.whole_cpu_percent for member in self.having("loader_worker")])

    @property
    def read_bytes_per_second(self) -> float | None:
        return total([member.read_bytes_per_second for member in self.members])

    @property
    def write_bytes_per_second(self) -> float | None:
        return total([member.write_bytes_per_second for member in self.members])

    @property
    def memory_proportional_bytes(self) -> int | None:
        """PSS of all processes; ``None`` while it is unknown for one of them."""
        return _total([member.memory_proportional_bytes for member in self.members])

    @property
    def data_wait_share(self) -> float | None:
        """Mean over the ranks that report their loop."""
        return mean([loop.data_wait_share for loop in self.loops]) if self.loops else None

    @property
    def compute_share(self) -> float | None:
        """Mean over the ranks that report their loop."""
        return mean([loop.compute_share for loop in self.loops]) if self.loops else None

    @property
    def samples_per_second(self) -> float | None:
        """Samples a second of all ranks that report their loop; ``None`` while one lacks it."""
        return _total([loop.samples_per_second for loop in self.loops])


def _total(values: list[Number | None]) -> Number | None:
    """The sum, if every part is known and there is one."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
