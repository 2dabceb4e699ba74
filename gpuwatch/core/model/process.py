"""Processes of a machine, and by what one is known."""

from __future__ import annotations

from gpuwatch.core.bounds import Amount, Text, UnixSeconds, Whole
from gpuwatch.core.model.gpu import GpuKey
from gpuwatch.core.model.records import OF_ONE_CORE, dataclass, reading

ProcessKey = tuple[int, float | None]
PIDS_OF_A_MACHINE = 10_000_000
"""More than a kernel has (2**22). Of a job on several machines, the PIDs of the second begin here,
those of the third at twice this, and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """A process, or something that goes by one; the kernel reuses PIDs, so both make the key."""

    pid: Whole
    started_at_unix_seconds: UnixSeconds | None = None

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)

    @property
    def own_pid(self) -> int:
        """PID as its own machine knows it."""
        return self.pid % PIDS_OF_A_MACHINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Identified):
    """One process, on one GPU (``gpu_uuid``) or on none.

    A process that uses several GPUs appears once for each, with the same host readings, so
    anything that adds up CPU or memory must count a ``key`` once. All text is ``text.clean``.
    """

    parent_pid: Whole | None = None
    user: Text | None = None
    name: Text | None = None
    command: Text | None = None
    state: Text | None = None
    """The kernel's letter: R running, S sleeping, D disk wait, T stopped, Z zombie, I idle."""
    cpu_percent: Amount | None = reading("CPU", between=OF_ONE_CORE)
    """CPU use in percent of one core: 250 is two and a half cores."""
    memory_resident_bytes: Whole | None = reading("memory", "mem")
    threads: Whole | None = reading("threads", "thr")
    container: Text | None = None
    """Short container or pod id where the cgroup names one."""
    slurm_job: Text | None = None
    unseen: Text | None = None
    """Why only the driver's side of it is known: it is ``hidden`` (hidepid), ``elsewhere`` (outside
    this container), or ``gone``: this machine has no such process (any more)."""
    gpu_uuid: GpuKey | None = None
    gpu_memory_bytes: Whole | None = reading("GPU-mem")
    gpu_busy_percent: Amount | None = reading("busy")
    """Share of this GPU's SM time; measured 0 when idle, ``None`` when the driver cannot say."""
    gpu_kind: Text | None = None
    """``compute``, ``graphics`` or ``compute+graphics``."""
    mig_instance: Whole | None = None
