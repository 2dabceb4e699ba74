"""The causes that a practice job can have: which knobs make it, which turn it back."""

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuwatch.core.text import SentenceError, clean
from gpuwatch.practice.knobs import Knobs

NEEDS_GPU = "it is about a GPU"
BURSTS = "the bursts of a GPU between its waits"
PAUSES = "a GPU that sits idle; the loop reports it"
ROOMY_CORES = 6
"""With these, more workers are the cure; with fewer, cheaper transforms are."""
FEW_CORES = 2
"""That too many workers share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause, named for its rule (``gpuwatch explain NAME``)."""

    name: str
    says: str
    sick: Mapping[str, Any]
    """Knobs that differ from those of a healthy job."""
    cure: Mapping[str, Any] = field(default_factory=dict)
    """Knobs that are turned back; one that is not named stays."""
    roomy_cure: Mapping[str, Any] | None = None
    """The same on ``ROOMY_CORES`` and more."""
    on_cpu: str | None = None
    """Symptoms that cannot be seen there; of a cause that needs GPUs, why nothing names it there.
    ``None``: all of it can be seen."""
    gpus: int = 0
    """So many are needed, or the diagnosis cannot name it."""
    press: str | None = None
    """The key that a person must press on the dashboard to see it named."""
    after_seconds: float = 20.0
    """It shows about so long after the first step."""

    @property
    def cpu_note(self) -> str | None:
        """For a person on a CPU."""
        start = "On the CPU nothing names it" if self.gpus else "Not visible on the CPU"
        return None if self.on_cpu is None else f"{start}: {self.on_cpu}."

    @property
    def knobs(self) -> Knobs:
        return replace(Knobs(), **self.sick)

    def cure_on(self, cores: float) -> Mapping[str, Any]:
        """Knobs that are turned back where the job may use so many cores."""
        return (cores >= ROOMY_CORES and self.roomy_cure) or self.cure


# fmt: off
_ALL = (
    Cause(name="healthy", says="nothing is wrong: what a healthy job looks like", sick={},
          on_cpu="a busy GPU; the training takes the loader's cores"),
    Cause(name="loader_cpu_bound", says="too few workers for what the transforms cost",
          sick={"workers": 1, "transform_ms": 30.0}, cure={"transform_ms": 6.0},
          roomy_cure={"workers": 4}, on_cpu=BURSTS),
    Cause(name="loader_in_main_process",
          says="num_workers=0: the training process loads its own batches",
          sick={"workers": 0, "transform_ms": 10.0}, cure={"workers": 2}, on_cpu=BURSTS),
    Cause(name="loader_io_bound",
          says="samples come from a disk, in small cold reads; --read network: from a server",
          sick={"transform_ms": 1.0, "read": "cold"}, cure={"read": "none"}, on_cpu=BURSTS),
    Cause(name="late_batches", says="one sample in 400 takes 3 s, and all others wait behind it",
          sick={"workers": 4, "slow_every": 400, "transform_ms": 1.0}, cure={"slow_every": 0},
          on_cpu=BURSTS, after_seconds=40.0),
    Cause(name="too_many_workers", says="16 workers where the job may use two cores",
          sick={"workers": 16, "transform_ms": 40.0}, cure={"workers": 2, "transform_ms": 6.0},
          on_cpu=BURSTS),
    Cause(name="memory_not_pinned", says="large batches are copied from unpinned memory",
          sick={"pin_memory": False, "sample_kib": 65536, "workers": 4, "step_ms": 60.0,
                "transform_ms": 0.0},
          cure={"pin_memory": True}, gpus=1, on_cpu="there is no copy to a GPU"),
    Cause(name="python_bound",
          says="Python launches small kernels more slowly than the GPU finishes them",
          sick={"pieces": 20, "python_ms": 160.0, "step_ms": 60.0},
          cure={"pieces": 1, "python_ms": 10.0},
          on_cpu="Python and the work that it launches look alike", gpus=1),
    Cause(name="sync_every_step",
          says=".item() in each step: the GPU waits while Python prepares the next",
          sick={"sync": True, "python_ms": 60.0, "step_ms": 80.0}, cure={"sync": False},
          on_cpu="each operation is waited for anyway", press="S: only stacks show it",
          gpus=1),
    Cause(name="network_calls", says="each step sends a line to a slow server and waits for it",
          sick={"log": True, "step_ms": 80.0}, cure={"log": False}, gpus=1,
          on_cpu="a GPU that idles meanwhile"),
    Cause(name="checkpoint_pauses", says="training stops while 500 MiB are written and synced",
          sick={"save_every": 14.0}, cure={"save_aside": True}, on_cpu=PAUSES, after_seconds=30.0),
    Cause(name="validation_pauses", says="training stops for a validation every 16 s",
          sick={"validate_every": 16.0}, cure={"validate_every": 0.0}, on_cpu=PAUSES,
          after_seconds=45.0),
    Cause(name="batch_too_small", says="a batch of one sample: small kernels on a large card",
          sick={"model": "gru", "batch": 1, "width": 64, "workers": 1, "step_ms": 60.0,
                "python_ms": 1.0, "transform_ms": 0.1},
          cure={"batch": 256, "width": 1024}, gpus=1, on_cpu=NEEDS_GPU),
    # With room for a larger batch it would be batch_too_small.
    Cause(name="busy_without_work", says="a kernel is on the GPU all the time and only waits",
          sick={"step_ms": 5.0, "spin_ms": 120.0, "gpu_held_percent": 80.0},
          cure={"spin_ms": 0.0, "step_ms": 120.0}, gpus=1, on_cpu=NEEDS_GPU),
    Cause(name="memory_growing", says="24 MiB of GPU memory are kept in each step",
          sick={"gpu_leak_mib": 24.0}, cure={"gpu_leak_mib": 0.0}, gpus=1, on_cpu=NEEDS_GPU,
          after_seconds=60.0),
    Cause(name="memory_nearly_full", says="97% of the GPU's memory is held",
          sick={"gpu_held_percent": 97.0}, cure={"gpu_held_percent": 40.0}, gpus=1,
          on_cpu=NEEDS_GPU),
    Cause(name="host_memory_growing", says="workers keep a part of every sample",
          sick={"host_leak_kib": 440.0}, cure={"host_leak_kib": 0.0}, after_seconds=80.0),
    Cause(name="idle_holding_memory",
          says="after 10 s the job does nothing and holds half of the GPU's memory",
          sick={"idle_after": 10.0, "gpu_held_percent": 50.0}, cure={"idle_after": 0.0}, gpus=1,
          on_cpu=NEEDS_GPU, after_seconds=80.0),
    Cause(name="other_tenant", says="a second job takes turns on the same GPU",
          sick={"tenant": True}, cure={"tenant": False}, gpus=1, on_cpu=NEEDS_GPU),
    Cause(name="orphaned_workers", says="a job was killed and its workers stayed",
          sick={"orphans": True}, cure={"orphans": False},
          press="j shows the machine, where it is diagnosed",
          on_cpu="the GPU memory that such workers hold"),
    Cause(name="collective_wait",
          says="two ranks: one loads slowly, the other spins in the all-reduce",
          sick={"ranks": 2, "workers": 1, "slow_rank": 1, "transform_ms": 3.0, "slow_loads": 15.0},
          cure={"slow_rank": -1}, gpus=2,
          on_cpu="a rank that waits sleeps, where on a GPU it would spin"),
    Cause(name="straggler", says="two ranks: one has twice the work in each step",
          sick={"ranks": 2, "workers": 1, "slow_rank": 1, "slow_loads": 1.0, "slow_works": 2.0,
                "step_ms": 80.0},
          cure={"slow_rank": -1}, gpus=2,
          on_cpu="a rank that waits sleeps, where on a GPU it would spin"),
)
# fmt: on

CAUSES: Mapping[str, Cause] = {cause.name: cause for cause in _ALL}

# fmt: off
UNPRACTISED: Mapping[str, tuple[str, str | None]] = {
    "cpu_quota": ("a quota comes from outside: systemd-run --user --scope -p CPUQuota=50%",
                  "cpu_quota"),
    "cpu_misplaced": ("with two NUMA nodes, put any job on cores far from its GPU (taskset)",
                      None),
    "shm_full": ("what fills /dev/shm is real memory; docker run --shm-size=64m makes it small",
                 "shm_full"),
    "oscillation": ("it is what remains of loader_cpu_bound when only GPU readings exist",
                    "starved"),
    "thermal_throttle": ("a job cannot make a card's cooling fail", "throttled"),
    "power_throttle": ("only root lowers a card's power limit", "power_capped"),
    "pcie_degraded": ("a job cannot narrow a link", "pcie_degraded"),
    "hardware_errors": ("a job cannot make memory fail", "memory_errors"),
    "allocated_unused": ("a practice job gets no GPU from a scheduler", None),
    "gpu_lost": ("a job cannot take a card off the bus", "lost"),
    "waiting_for_requests": ("a practice job trains and serves nobody", None),
    "actors_cpu_bound": ("a practice job has a loader, and no environments", None),
    "pipeline_bubbles": ("a practice job has its whole model on each GPU", None),
    "one_of_many_gpus": ("a practice job takes no GPU that it leaves idle", None),
    "trains_on_cpu": ("any job does it with --device cpu beside an idle GPU", None),
    "job_stopped": ("it could not continue by itself: send SIGSTOP to any job", None),
}
# fmt: on
"""Causes that no job can have: why, and the simulated scenario that shows it."""


def find(name: str) -> Cause:
    """The cause of this name, also written with dashes. Raises ``SentenceError`` where it cannot be
    practised here."""
    wanted = name.strip().lower().replace("-", "_")
    if wanted in UNPRACTISED:
        why, demo = UNPRACTISED[wanted]
        see = "" if demo is None else f"; see gpuwatch --demo {demo}"
        raise SentenceError(f"{wanted} cannot be practised: {why}{see}.")
    if wanted not in CAUSES:
        raise SentenceError(f"There is no cause {clean(name, 60)!r}: gpuwatch demo-job lists them.")
    if importlib.util.find_spec("torch") is None:
        raise SentenceError(
            "A practice job is a PyTorch job, and PyTorch is not installed here: "
            "pip install 'gpuwatch-tui[torch]'"
        )
    return CAUSES[wanted]


def listing() -> Iterator[str]:
    for cause in CAUSES.values():
        needs = "a GPU" if cause.gpus == 1 else f"{cause.gpus} GPUs"
        yield f"  {cause.name:<23} {cause.says}"
        yield from [f"  {'':<23} needs {needs}"] if cause.gpus else []
    yield from ("", "Cannot be practised, but can be simulated:", "")
    for name, (why, demo) in UNPRACTISED.items():
        yield f"  {name:<23} {why}"
        yield from [] if demo is None else [f"  {'':<23} gpuwatch --demo {demo}"]
