"""Devices, processes and the computer they are in."""

from dataclasses import dataclass, field

from tests.evaluation.simulator.clockwork import Cores, Gate, Program, Store, Thread, Track, World

GIB = 1 << 30


@dataclass(frozen=True)
class Card:
    name: str
    gib: int
    watts: int
    idle_watts: int
    clock: int
    memory_clock: int
    capability: str
    sleeps: bool
    """Its clocks and its link go down when it has nothing to do."""

    @property
    def counts_activity(self) -> bool:
        return float(self.capability) >= 9.0 and not self.sleeps


CARDS = (
    Card("NVIDIA H100 80GB HBM3", 80, 700, 72, 1980, 2619, "9.0", False),
    Card("NVIDIA A100-SXM4-80GB", 80, 400, 58, 1410, 1593, "8.0", False),
    Card("Tesla V100-SXM2-32GB", 32, 300, 41, 1530, 877, "7.0", False),
    Card("Tesla T4", 15, 70, 10, 1590, 5001, "7.5", True),
    Card("NVIDIA L4", 23, 72, 13, 2040, 6251, "8.9", True),
    Card("NVIDIA GeForce RTX 4090", 24, 450, 22, 2520, 10501, "8.9", True),
    Card("NVIDIA GeForce RTX 3090", 24, 350, 26, 1695, 9751, "8.6", True),
    Card("NVIDIA GeForce RTX 2080 Ti", 11, 250, 18, 1545, 7000, "7.5", True),
)


class Device:
    """Executes what is launched, in its order. ``busy``: a kernel was resident; ``work``: how much
    of the card it kept occupied, which is what costs power."""

    def __init__(self, world: World, index: int, card: Card) -> None:
        self.world, self.index, self.card = world, index, card
        self.busy, self.work, self.received, self.sent = Track(), Track(), Track(), Track()
        self.owners: dict[int, Track] = {}
        self.memory: dict[int, float] = {}
        self.free = 0.0
        self.slowness = 1.0
        self.clock: int | None = None
        self.reasons: tuple[str, ...] = ()
        self.celsius: float | None = None
        self.watts_limit = float(card.watts)
        self.link_width = 16
        self.leak = 0.0
        self.lost_at = self.errors_at = float("inf")

    def kernels(self, start: float, end: float, *, pid: int, density: float, work: float) -> None:
        self.busy.add(start, end, density)
        self.work.add(start, end, density * work)
        self.owners.setdefault(pid, Track()).add(start, end, density)
        self.free = max(self.free, end)

    def run(self, seconds: float, *, pid: int, work: float, density: float = 1.0) -> float:
        """Queue so much work; when it will be done."""
        start = max(self.free, self.world.now)
        end = start + seconds * self.slowness
        self.kernels(start, end, pid=pid, density=density, work=work)
        return end

    def begin_spin(self, pid: int) -> None:
        """A collective's kernel waits on the device for the others."""
        now = self.world.now
        for track, level in ((self.busy, 1.0), (self.work, 0.12)):
            track.begin(now, level)
        self.owners.setdefault(pid, Track()).begin(now)

    def end_spin(self, pid: int) -> None:
        now = self.world.now
        for track in (self.busy, self.work, self.owners[pid]):
            track.end(now)
        self.free = max(self.free, now)


@dataclass(eq=False)
class Proc:
    pid: int
    parent: int
    arguments: tuple[str, ...]
    name: str
    born: float
    ended: float | None = None
    user: str = "mira"
    framework: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    thread_names: tuple[str, ...] = ()
    thread_count: int = 1
    resident: float = 0.4 * GIB
    growth: float = 0.0
    """Bytes a second."""
    main: Thread = field(default_factory=Thread)
    pool: Thread = field(default_factory=Thread)
    """All its other threads."""
    modern: bool = False
    """Its PyTorch names loader workers."""
    serves: str | None = None
    simulates: str | None = None
    stopped: bool = False
    orphaned: bool = False

    def alive(self, at: float) -> bool:
        return self.born <= at and (self.ended is None or self.ended > at)


class Machine:
    """``age``: how long the job's processes exist at the simulation's start."""

    def __init__(
        self, world: World, *, card: Card, gpus: int, cores: int, quota: float | None = None
    ) -> None:
        self.world = world
        self.cores = Cores(world, cores, quota)
        self.gpus = [Device(world, index, card) for index in range(gpus)]
        self.disk = Store(world, 1.5e9, 0.0002, network=False)
        self.network = Store(world, 1.2e9, 0.02, network=True)
        self.procs: list[Proc] = []
        self.age = 0.0
        self.first_steps: dict[int, float] = {}
        """By the number of its GPU."""
        self.shm_total, self.shm_used = 64.0 * GIB, 0.02 * GIB
        self.memory_total = world.random.choice((64, 128, 256, 512)) * GIB
        self.memory_used = 0.1 * self.memory_total
        self._pid = world.random.randrange(2_000, 900_000)

    def spawn(self, command: str, *, parent: Proc | None = None, name: str = "python") -> Proc:
        """A process; one without a parent was started by a shell."""
        self._pid += self.world.random.randrange(1, 9)
        now = self.world.now
        born = now if now > 0.0 else -self.age + 0.01 * len(self.procs)
        above = 1 if parent is None else parent.pid
        proc = Proc(self._pid, above, tuple(command.split()), name, born)
        if parent is not None:
            proc.user, proc.framework = parent.user, parent.framework
            proc.environment, proc.modern = dict(parent.environment), parent.modern
        self.procs.append(proc)
        return proc

    def kill(self, proc: Proc) -> None:
        """Its children live on, taken in by init."""
        proc.ended = self.world.now
        for child in self.procs:
            if child.parent == proc.pid:
                child.parent, child.orphaned = 1, True
        for device in self.gpus:
            device.memory.pop(proc.pid, None)

    def gate(self) -> Gate:
        return Gate(self.world)

    def step_seen(self, gpu: int = 0) -> None:
        self.first_steps.setdefault(gpu, self.world.now)

    def hog(self, cores: float, user: str = "olaf") -> None:
        """Another person's program that computes all the time."""
        proc = self.spawn("./simulate --grid 4096", name="simulate")
        proc.user = user

        def forever() -> Program:
            while True:
                yield from self.cores.burn(proc.pool, 0.2, cores)

        self.world.start(forever())
