"""The knobs of the recorded jobs: what is right to say of each, and how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HANG_FILE = "hang"
"""Once it is among a job's files, reading them waits for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One recording."""

    label: str
    also: tuple[str, ...] = ()
    """What else is right to say first."""
    seconds: float = 45.0
    interval: float = 0.5
    gpus: int = 1
    program: str = "real_job"
    """A module beside this one."""
    launcher: tuple[str, ...] = ()
    """Arguments of Python that start the program; ``{port}`` is a free one."""
    whole_machine: bool = False
    """Watched without ``--pid``, which would leave out who else uses the GPU, and would end with
    the job."""
    tenant: bool = False
    """Somebody else's process uses the GPU as well."""
    quota_cores: float | None = None
    killed_after: float | None = None
    """Seconds after which the main process is killed, without its workers."""

    @property
    def accepted(self) -> list[str]:
        return sorted({self.label, *self.also})


_TORCHRUN = (
    "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
    "--master-port", "{port}"
)  # fmt: skip
_RANKS_SECONDS = 60.0

KNOBS: Mapping[str, Knob] = {
    "healthy": Knob(label="healthy"),
    "healthy_two_workers": Knob(label="healthy"),
    "healthy_long_steps": Knob(label="healthy"),
    # Without workers, and batches that cost next to nothing.
    "healthy_in_main_process": Knob(label="healthy"),
    # The caching allocator takes memory for half a minute, and then no more.
    "allocator_settles": Knob(label="healthy", seconds=90.0, interval=1.0),
    "asynchronous_checkpoints": Knob(label="healthy", seconds=60.0),
    "loader_cpu_bound": Knob(label="loader_cpu_bound"),
    # The same job before and after it was given what the advice says.
    "slow_transform_one_worker": Knob(label="loader_cpu_bound"),
    "slow_transform_two_workers": Knob(label="healthy"),
    "loader_in_main_process": Knob(label="loader_in_main_process"),
    "loader_in_main_process_light": Knob(label="loader_in_main_process"),
    "loader_io_bound": Knob(label="loader_io_bound"),
    # On two cores twelve workers are short of cores, and fewer would be as well.
    "too_many_workers": Knob(label="too_many_workers"),
    # Two cores would do for it.
    "cpu_quota": Knob(label="cpu_quota", quota_cores=0.5),
    "checkpoint_pauses": Knob(label="checkpoint_pauses", seconds=60.0),
    "validation_pauses": Knob(label="validation_pauses", also=("healthy",)),
    # Not a fault, and worth a word: see the rule.
    "epoch_ends": Knob(label="validation_pauses", also=("healthy",), seconds=90.0),
    "python_bound": Knob(label="python_bound"),
    # Nobody took stacks.
    "sync_every_step": Knob(label="sync_every_step", also=("python_bound",)),
    "batch_too_small": Knob(label="batch_too_small", also=("busy_without_work",)),
    "busy_without_work": Knob(label="busy_without_work"),
    "memory_growing": Knob(label="memory_growing", seconds=120.0),
    "memory_nearly_full": Knob(label="memory_nearly_full"),
    "host_memory_growing": Knob(label="host_memory_growing", seconds=120.0, interval=1.0),
    # So young a process may still be reading its data.
    "idle_holding_memory": Knob(label="idle_holding_memory", also=("undecided",), seconds=150.0),
    "slow_start": Knob(label="healthy", seconds=60.0),
    "other_tenant": Knob(label="other_tenant", tenant=True, whole_machine=True),
    # Somebody's notebook holds some memory there and does nothing.
    "quiet_neighbour": Knob(
        label="healthy", also=("idle_holding_memory",), tenant=True, whole_machine=True
    ),
    "orphaned_workers": Knob(
        label="orphaned_workers", whole_machine=True, killed_after=20.0, seconds=80.0, interval=1.0
    ),
    "ranks_healthy": Knob(
        label="healthy", program="real_ranks", gpus=2, launcher=_TORCHRUN, seconds=_RANKS_SECONDS
    ),
    # The rank that saves is what the other waits for: either of the two says it.
    "ranks_checkpoint": Knob(
        label="checkpoint_pauses", also=("collective_wait",), program="real_ranks", gpus=2,
        launcher=_TORCHRUN, seconds=_RANKS_SECONDS
    ),
    # Each of these names the rank that is waited for.
    "ranks_slow_loader": Knob(
        label="collective_wait", also=("loader_cpu_bound", "straggler"), program="real_ranks",
        gpus=2, seconds=_RANKS_SECONDS
    )
}  # fmt: skip
