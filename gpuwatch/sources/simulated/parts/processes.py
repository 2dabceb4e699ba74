"""The processes of the simulated machine and what each has used so far."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from gpuwatch.core.model import Process
from gpuwatch.core.text import clean
from gpuwatch.sources.simulated.parts.cards import GIB
from gpuwatch.sources.simulated.parts.meter import Meter

MIB = 1024**2

_Moving = tuple[str, float, int, int | None, float | None, str | None]
"""State, CPU percent, resident bytes, GPU memory, GPU busy percent, GPU."""


@dataclass(slots=True, kw_only=True, eq=False)
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
    resident_growth: float = 0.0
    """Bytes a second from the scenario's start on."""
    own_pages: float = 0.92
    """Share of its first resident memory that counts as its own in PSS."""
    threads: int = 1
    cpu: Meter | None = None
    wait: Meter | None = None
    """Seconds spent waiting for the disk."""
    main: Meter | None = None
    """CPU of its main thread, where that is not all of ``cpu``."""
    reads: Meter | None = None
    writes: Meter | None = None
    """Bytes from and to storage."""
    core_share: float = 1.0
    """What it gets of a core whenever it wants one."""
    steady_cpu: float = 0.0
    """Share of a core for a process without a meter."""
    gpu: int | None = None
    """Number of the card it is on."""
    instance: int | None = None
    """MIG instance on that card."""
    gpu_memory: Callable[[float], int] | None = None
    gpu_share: float = 0.0
    """Its part of what the GPU does."""
    system: bool = False
    """Neither on a GPU nor the kin of one that is."""
    container: str | None = None
    slurm_job: str | None = None
    core: int = 0
    cpu_seconds: float = 0.0
    """Used between the last two notes."""
    wait_seconds: float = 0.0
    main_seconds: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    started_unix: float = 0.0
    _cpu_mark: float = 0.0
    _wait_mark: float = 0.0
    _main_mark: float = 0.0
    _read_mark: float = 0.0
    _write_mark: float = 0.0
    _shown: Process | None = None
    _shown_for: _Moving | None = None

    def __post_init__(self) -> None:
        self.command = clean(self.command)
        self.user = clean(self.user)
        self.name = clean(self.name)

    def lives(self, now: float) -> bool:
        return self.started <= now < self.ended

    def note(self, now: float, elapsed: float) -> None:
        """Take what was used since the last note, ``elapsed`` seconds ago."""
        if self.cpu is None:
            self.cpu_seconds = self.steady_cpu * elapsed
        else:
            total = self.cpu.total(now)
            self.cpu_seconds = total - self._cpu_mark
            self._cpu_mark = total
        if self.wait is not None:
            total = self.wait.total(now)
            self.wait_seconds = total - self._wait_mark
            self._wait_mark = total
        if self.main is not None:
            total = self.main.total(now)
            self.main_seconds = total - self._main_mark
            self._main_mark = total
        else:
            self.main_seconds = self.cpu_seconds
        if self.reads is not None:
            total = self.reads.total(now)
            self.read_bytes = total - self._read_mark
            self._read_mark = total
        if self.writes is not None:
            total = self.writes.total(now)
            self.written_bytes = total - self._write_mark
            self._write_mark = total

    def state(self, now: float) -> str:
        """The kernel's letter."""
        if self.wait is not None and self.wait.runs(now):
            return "D"
        runs = self.steady_cpu > 0.5 if self.cpu is None else self.cpu.runs(now)
        return "R" if runs else "S"

    def cpu_percent(self, elapsed: float) -> float:
        """Of one core, over the ``elapsed`` seconds between the last two notes."""
        return round(100.0 * self.cpu_seconds / elapsed, 1)

    def resident(self, now: float) -> int:
        return int(self.resident_bytes + self._grown(now))

    def proportional(self, now: float) -> int:
        """PSS: a forked worker shares most of what it began with, and none of what it gained."""
        return int(self.resident_bytes * self.own_pages + self._grown(now))

    def _grown(self, now: float) -> float:
        return self.resident_growth * max(0.0, now) if self.resident_growth else 0.0

    def show(self, now: float, elapsed: float, gpu_uuid: str | None, busy: float | None) -> Process:
        """This process as others see it; the same object again while nothing changed.

        ``busy`` is the busy percent of its GPU, ``None`` where the driver cannot say.
        """
        if self._still and self._shown is not None and gpu_uuid is self._shown.gpu_uuid:
            return self._shown
        memory = None
        share = None
        if gpu_uuid is not None:
            memory = None if self.gpu_memory is None else self.gpu_memory(now)
            share = None if busy is None else float(round(busy * self.gpu_share))
        cpu = self.cpu_percent(elapsed)
        shown_for = (self.state(now), cpu, self.resident(now), memory, share, gpu_uuid)
        if shown_for != self._shown_for:
            self._shown_for = shown_for
            self._shown = self._build(shown_for)
        assert self._shown is not None
        return self._shown

    @property
    def _still(self) -> bool:
        """Nothing about it ever changes but whether its GPU is there."""
        return self.cpu is None and not self.resident_growth and not self.gpu_share

    def _build(self, shown_for: _Moving) -> Process:
        state, cpu_percent, resident, gpu_memory, gpu_busy, gpu_uuid = shown_for
        return Process(
            pid=self.pid,
            started_at_unix_seconds=self.started_unix,
            parent_pid=self.parent,
            user=self.user,
            name=self.name,
            command=self.command,
            state=state,
            cpu_percent=cpu_percent,
            memory_resident_bytes=resident,
            threads=self.threads,
            container=self.container,
            slurm_job=self.slurm_job,
            gpu_uuid=gpu_uuid,
            gpu_memory_bytes=gpu_memory,
            gpu_busy_percent=gpu_busy,
            gpu_kind=None if gpu_uuid is None else "compute",
            mig_instance=None if gpu_uuid is None else self.instance,
        )


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
        self._next += self._rng.randrange(20, 400)


class Memory:
    """GPU memory of one process over time: steady, growing in steps, or filling up at first."""

    __slots__ = ("_base", "_begin", "_every", "_room", "_seconds", "_step")

    def __init__(
        self,
        base: float,
        *,
        step: float = 0.0,
        every: float = 1.0,
        room: float = float("inf"),
        begin: float | None = None,
        seconds: float = 8.0,
    ) -> None:
        self._base = base
        self._step = step
        self._every = every
        self._room = room
        self._begin = begin
        self._seconds = seconds

    def __call__(self, now: float) -> int:
        """Bytes at ``now`` (simulated seconds)."""
        if self._begin is not None:
            share = min(1.0, max(0.0, (now - self._begin) / self._seconds))
            return int(CONTEXT_BYTES + (self._base - CONTEXT_BYTES) * share)
        grown = self._base + self._step * max(0, int(now / self._every))
        return int(grown if grown < self._room else self._room)


CONTEXT_BYTES = 0.52 * GIB
"""What a CUDA context and its libraries take on a card before the first tensor."""

EXTRA_COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("triton", "tritonserver", "tritonserver --model-repository=/models --http-port={port}"),
    ("linus", "python", "python serve.py --model bert-base --port {port}"),
    ("grace", "python", "python -m ipykernel_launcher -f kernel-{port}.json"),
    ("ken", "python", "python evaluate.py --split val --shard {port}"),
)
"""(user, name, command) of what runs beside the jobs."""

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
"""(user, name, command, share of a core) of what every machine runs."""
