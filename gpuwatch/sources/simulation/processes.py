"""The processes of the simulated machine and what each has used so far."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from gpuwatch.sources.simulation.meter import Meter
from gpuwatch.text import clean

MIB = 1024**2
GIB = 1024**3


@dataclass(slots=True, kw_only=True)
class Task:
    """One process: its identity, and the meters its readings are taken from."""

    pid: int
    parent: int
    user: str
    name: str
    command: str
    started: float
    """Simulated seconds; negative is before the scenario began."""
    ended: float = float("inf")
    resident_bytes: float = 300.0 * MIB
    threads: int = 1
    cpu: Meter | None = None
    wait: Meter | None = None
    steady_cpu: float = 0.0
    """Share of a core for a process without a meter."""
    gpu: int | None = None
    """Number of the GPU it is on."""
    gpu_memory: Callable[[float], float] | None = None
    gpu_share: float = 0.0
    """Its part of what the GPU does."""
    gpu_kind: str = "compute"
    system: bool = False
    """Neither on a GPU nor the child of one that is."""
    container: str | None = None
    slurm_job: str | None = None
    core: int = 0
    mark: float = 0.0
    wait_mark: float = 0.0
    cpu_seconds: float = field(default=0.0)
    """Used between the two last marks."""
    wait_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.command = clean(self.command)
        self.user = clean(self.user)
        self.name = clean(self.name)

    def lives(self, now: float) -> bool:
        return self.started <= now < self.ended

    def note(self, now: float, elapsed: float) -> None:
        """Take what was used since the last time this was asked, ``elapsed`` seconds ago."""
        if self.cpu is None:
            self.cpu_seconds = self.steady_cpu * elapsed
        else:
            total = self.cpu.total(now)
            self.cpu_seconds = total - self.mark
            self.mark = total
        if self.wait is not None:
            total = self.wait.total(now)
            self.wait_seconds = total - self.wait_mark
            self.wait_mark = total

    def state(self, now: float) -> str:
        """The kernel's letter."""
        if self.wait is not None and self.wait.runs(now):
            return "D"
        if self.cpu is None:
            return "S"
        return "R" if self.cpu.runs(now) else "S"


class PidCounter:
    """Hands out PIDs as a machine that has been up for a while does: rising, with gaps."""

    def __init__(self, rng: random.Random, first: int = 4242) -> None:
        self._rng = rng
        self._next = first

    def take(self) -> int:
        pid = self._next
        self._next += 1 + int(self._rng.expovariate(0.25))
        return pid

    def skip(self) -> None:
        """Other programs ran meanwhile."""
        self._next += self._rng.randrange(150, 2600)


SYSTEM_COMMANDS: tuple[tuple[str, str, str, float], ...] = (
    ("root", "systemd", "/sbin/init", 0.001),
    ("root", "systemd-journal", "/usr/lib/systemd/systemd-journald", 0.002),
    ("root", "dockerd", "/usr/bin/dockerd -H fd://", 0.006),
    ("root", "containerd", "/usr/bin/containerd", 0.008),
    ("root", "sshd", "sshd: /usr/sbin/sshd -D [listener]", 0.0),
    ("root", "nvidia-persiste", "/usr/bin/nvidia-persistenced --verbose", 0.0),
    ("nobody", "node_exporter", "/usr/bin/node_exporter", 0.004),
    ("root", "slurmd", "/usr/sbin/slurmd -D -s", 0.003),
    ("ada", "sshd", "sshd: ada@pts/0", 0.001),
    ("ada", "tmux: server", "tmux new-session -s train", 0.004),
    ("ada", "bash", "-bash", 0.0),
    ("grace", "bash", "-bash", 0.0),
    ("grace", "vim", "vim configs/vit_l16.yaml", 0.001),
    ("linus", "htop", "htop -d 20", 0.012),
    ("linus", "rsync", "rsync -a --progress data/ backup:/data/", 0.21),
)
