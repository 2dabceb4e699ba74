"""The parts of a report about processes and jobs: who used what."""

from msgspec import field

from gpuwatch.core.model import GpuKey, ProcessKey
from gpuwatch.core.units import exit_words
from gpuwatch.outputs.report.parts import Amount, Count, Part, Percent, Profiles, Unix


class Usage(Part, frozen=True):
    """Use of a process or a job while it was seen."""

    pid: Count
    started_at_unix_seconds: Unix | None = None
    user: str | None = None
    command: str | None = None
    gpus: tuple[GpuKey, ...] = ()
    gpu_held_seconds: Amount = 0.0
    """Time on GPUs, each counted."""
    gpu_busy_seconds: Amount | None = None
    """GPU time used (of a job: of its GPUs, whoever used them)."""
    gpu_memory_peak_bytes: Count | None = None
    """On all GPUs together."""
    cpu_core_seconds: Amount | None = None
    memory_peak_bytes: Count | None = None
    """Of a job: PSS where it is known for all its processes, else the sum of RSS."""
    read_bytes: Amount | None = None
    """From storage."""
    written_bytes: Amount | None = None
    first_unix_seconds: Unix = 0.0
    """When it was first seen."""
    last_unix_seconds: Unix = 0.0

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)


class ProcessUsage(Usage, frozen=True):
    """Use of one process while it was seen."""

    name: str | None = None
    role: str | None = None
    """In its job: rank, loader_worker ..."""


class Loading(Part, frozen=True):
    """Ways in which the job got its data. Shares are means over the time each process was seen."""

    sentence: str | None = None
    """As seen for most of the time in which there were workers: ``4 loader workers, pinned
    memory on``."""
    loader_workers: Count | None = None
    """Of all ranks together, by the same rule."""
    loader_workers_peak: Count | None = None
    loader_workers_started: Count | None = None
    """Worker processes seen to appear: more than the peak when each epoch starts its own."""
    pinned_memory: bool | None = None
    loader_worker_cpu_percent: Amount | None = None
    """Of one core each."""
    loader_worker_at_limit_percent: Percent | None = None
    """Share of the workers' time in which one used 90% of a core or more."""
    loader_worker_queue_wait_percent: Amount | None = None
    """Share of the time in which one could have run and waited for a core."""
    loader_worker_disk_wait_percent: Amount | None = None
    main_thread_cpu_percent: Amount | None = None
    """Of one core, mean over the ranks."""
    main_thread_at_limit_percent: Percent | None = None
    main_thread_queue_wait_percent: Amount | None = None


class Loop(Part, frozen=True):
    """Figures that the job reported of its own training loops (``gpuwatch.torch``); means are over
    the time in which they ran, and over the ranks that reported."""

    reported_seconds: Amount = 0.0
    """For how long they ran; 0: it reported nothing."""
    ranks: Count | None = None
    """That reported."""
    samples_per_second: Amount | None = None
    """Of all of them together, pauses included."""
    steps: Count | None = None
    """Of the rank with the fewest."""
    last_epoch: Count | None = None
    data_wait_percent: Percent | None = None
    """Share of the time in which the loop waited for its data."""
    data_wait_most_percent: Percent | None = None
    """Of the rank that waited most, where several reported."""
    data_wait_most_rank: Count | None = None
    compute_percent: Percent | None = None
    compute_on_device: bool | None = None
    """``compute_percent`` was measured on the GPU; false: on the CPU's clock."""
    copy_percent: Percent | None = None
    validation_percent: Percent | None = None
    checkpoint_percent: Percent | None = None
    memory_allocated_peak_bytes: Count | None = None
    memory_reserved_peak_bytes: Count | None = None
    """Of any rank, by PyTorch's own counters."""


class JobUsage(Usage, frozen=True):
    """Use of one job while it was seen, all its processes together."""

    ended_at_unix_seconds: Unix | None = None
    end_is_last_seen: bool = False
    """Nobody saw it end: it was there at that moment, and gone at the next look."""
    exit_code: int | None = None
    working_directory: str | None = None
    run_digest: str | None = None
    """The same for the same command of the same user in the same folder."""
    launcher: str | None = None
    framework: str | None = None
    ranks: Count | None = None
    """Training processes on this machine, the most seen."""
    world_size: Count | None = None
    container: str | None = None
    pod: str | None = None
    slurm_job: str | None = None
    environment: str | None = None
    cpu_mean_cores: Amount | None = None
    cpu_peak_cores: Amount | None = None
    usable_cores: Amount | None = None
    quota_cores: Amount | None = None
    cpu_throttled_percent: Amount | None = None
    """Share of the quota's periods in which the job was held back, mean over the time."""
    memory_proportional_peak_bytes: Count | None = None
    """PSS: true for processes that share pages, but read seldom."""
    memory_resident_peak_bytes: Count | None = None
    """Sum of RSS, which counts shared pages once for each process."""
    loading: Loading = Loading()
    loop: Loop = Loop()
    profiles: Profiles = field(default_factory=dict)
    """Of a report about this job alone: ``loader_worker_cpu_percent`` and
    ``main_thread_cpu_percent`` (of one core, mean), ``data_wait_percent``."""

    @property
    def failed(self) -> bool:
        return self.exit_code not in (None, 0)

    @property
    def exit_words(self) -> str:
        """``exit code 3``, ``ended by SIGKILL``; ``ended`` where its exit code is not known."""
        return "ended" if self.exit_code is None else exit_words(self.exit_code)

    @property
    def end_words(self) -> str:
        """``running``, ``exit 3``, ``SIGKILL``."""
        if self.ended_at_unix_seconds is None:
            return "running"
        return self.exit_words.removeprefix("ended by ").replace("exit code", "exit")
