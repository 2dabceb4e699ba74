"""Programs that train: a loop of steps, its loader, its collectives, and what interrupts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.evaluation.simulator.clockwork import Gate, Program, Store, Thread
from tests.evaluation.simulator.machine import GIB, Device, Machine, Proc

Pause = Callable[["Rank"], Program]
_WORKER_BYTES, _LIBRARY_BYTES = 0.35 * GIB, 1.6 * GIB


@dataclass(kw_only=True)
class Recipe:
    """Seconds and bytes are of one step of one rank."""

    command: str = "python train.py --cfg base.yaml"
    framework: str = "torch"
    launcher: str | None = None
    names_threads: bool = True
    """PyTorch 2.5 and later."""
    ranks: int = 1
    gpu: float = 0.15
    work: float = 0.75
    host: float = 0.04
    """Python and launches, while the GPU works already."""
    gap: float = 0.004
    """Python between the last kernel and the first of the next step."""
    awaited: int = 1
    """How often in a step a result is waited for; 0: the host runs a step ahead."""
    spins: bool = True
    batch_cpu: float = 0.1
    batch_bytes: float = 12e6
    requests: float = 64
    cached: float = 1.0
    remote: bool = False
    workers: int = 4
    threads: int = 0
    prefetch: int = 2
    tail: float = 0.0
    tail_factor: float = 20.0
    copied: float = 2e7
    pinned: bool = True
    reduce: float = 0.0
    gloo: bool = False
    late: Callable[[Rank], float] | None = None
    pauses: tuple[tuple[float, Pause], ...] = ()
    """Each every so many seconds."""
    scale: Callable[[float], float] | None = None
    """Of the work of a step, over time."""
    import_seconds: float = 0.0
    compile_seconds: float = 0.0
    tune_seconds: float = 0.0
    memory_gib: float = 9.0
    first: int = 0
    """The GPU of its first rank."""
    stages: int = 0
    """GPUs of one process that work one after the other."""


class Loader:
    """Makes batches in order: by processes, by threads, or when it is asked."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self.recipe, self.machine = rank, rank.recipe, rank.machine
        self.taken, self.generation, self.slowness = 0, 0, 1.0
        self.procs: list[Proc] = []
        self._gates: dict[tuple[str, int], Gate] = {}

    def start(self, after: float = 0.0) -> None:
        recipe, rank, machine = self.recipe, self.rank, self.machine
        self.generation, self._gates = self.generation + 1, {}
        makers: list[Thread] = [rank.proc.pool] * recipe.threads
        for proc in self.procs:
            proc.ended = machine.world.now
        self.procs = []
        for _ in range(recipe.workers):
            proc = machine.spawn(" ".join(rank.proc.arguments), parent=rank.proc)
            proc.name = "pt_data_worker" if recipe.names_threads else "python"
            proc.resident, proc.thread_count = _WORKER_BYTES, 2
            self.procs.append(proc)
            makers.append(proc.main)
        for place, maker in enumerate(makers):
            program = self._maker(maker, self.taken + place, len(makers))
            machine.world.start(program, after + 0.01 * place)

    def _gate(self, kind: str, index: int) -> Gate:
        return self._gates.setdefault((kind, index), self.machine.gate())

    def _maker(self, thread: Thread, index: int, apart: int) -> Program:
        generation = self.generation
        while generation == self.generation:
            if index >= self.taken + self.recipe.prefetch * apart:
                yield self._gate("room", index)
            yield from self.make(thread)
            if generation == self.generation:
                self._gate("ready", index).open()
            index += apart

    def make(self, thread: Thread) -> Program:
        recipe, world = self.recipe, self.machine.world
        slow = self.slowness * (recipe.tail_factor if world.random.random() < recipe.tail else 1.0)
        store: Store = self.machine.network if recipe.remote else self.machine.disk
        missing = 1.0 - recipe.cached
        for _ in range(4):
            if missing > 0.0:
                requests = recipe.requests * missing / 4
                yield from store.move(thread, recipe.batch_bytes * missing / 4, requests)
            yield from self.machine.cores.burn(thread, world.jitter(recipe.batch_cpu * slow) / 4)

    def take(self) -> Program:
        apart = self.recipe.workers + self.recipe.threads
        if not apart:
            yield from self.make(self.rank.proc.main)
            return
        index, self.taken = self.taken, self.taken + 1
        self._gate("room", index + self.recipe.prefetch * apart).open()
        ready = self._gate("ready", index)
        if not ready.is_open:
            self.rank.proc.main.waits.count(self.machine.world.now)
            yield ready
        del self._gates[("ready", index)]
        # Unpickling, and the look into the queue.
        yield from self.machine.cores.burn(self.rank.proc.main, 0.001)


@dataclass(eq=False)
class Collective:
    """Who comes first waits for all, and the wait occupies its GPU."""

    machine: Machine
    size: int
    gloo: bool
    gate: Gate = field(init=False)
    here: list[Rank] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate = self.machine.gate()

    def join(self, rank: Rank, seconds: float) -> Program:
        self.here.append(rank)
        world, cores, main = self.machine.world, self.machine.cores, rank.proc.main
        gate, last = self.gate, len(self.here) == self.size
        if last:
            everybody, self.here, self.gate = self.here, [], self.machine.gate()
            end = world.now + world.jitter(seconds)
            for one in everybody:
                if self.gloo:
                    world.start(cores.burn(one.proc.pool, end - world.now))
                else:
                    one.device.free = end
                    one.device.sent.add(world.now, end, 4e9)
            yield from self._hold(rank, end)
            gate.open()
            return
        if self.gloo:
            main.waits.count(world.now)
            yield gate
            return
        rank.device.begin_spin(rank.proc.pid)
        if rank.recipe.spins:
            main.cpu.begin(world.now)
            cores.used.add(world.now, world.now)
        yield gate
        main.cpu.end(world.now)
        rank.device.end_spin(rank.proc.pid)

    def _hold(self, rank: Rank, end: float) -> Program:
        now = rank.machine.world.now
        if self.gloo:
            yield end - now
            return
        rank.device.kernels(now, end, pid=rank.proc.pid, density=1.0, work=0.2)
        yield from rank.wait(end)


class Rank:
    def __init__(
        self, machine: Machine, recipe: Recipe, number: int, proc: Proc, devices: list[Device],
        collective: Collective | None,
    ) -> None:  # fmt: skip
        self.machine, self.recipe, self.number, self.proc = machine, recipe, number, proc
        self.devices, self.device, self.collective = devices, devices[0], collective
        self.loader = Loader(self)
        self.schedule: dict[int, int] = {}
        """The step after which each pause is made, for all ranks alike."""
        self.steps = 0
        self._before = 0.0

    def wait(self, until: float) -> Program:
        """Until the GPU is done."""
        now = self.machine.world.now
        if self.recipe.spins:
            yield from self.machine.cores.spin(self.proc.main, until)
        elif until > now:
            self.proc.main.waits.count(now)
            yield until - now

    def python(self, seconds: float) -> Program:
        yield from self.machine.cores.burn(self.proc.main, self.machine.world.jitter(seconds))

    def kernels(self, seconds: float, host: float, work: float) -> Program:
        """Launch so much work in so much Python: the GPU begins with the first launch."""
        world, pid = self.machine.world, self.proc.pid
        begin = max(world.now, self.device.free)
        yield from self.python(host)
        seconds *= self.device.slowness
        end = max(begin + seconds, world.now + 0.0005)
        density = min(1.0, seconds / (end - begin))
        self.device.kernels(begin, end, pid=pid, density=density, work=work)

    def run(self) -> Program:
        recipe, world = self.recipe, self.machine.world
        if recipe.import_seconds:
            yield from self._start_up()
        self._occupy()
        self.loader.start()
        due = [world.now + every * world.random.uniform(0.2, 1.0) for every, _ in recipe.pauses]
        while True:
            yield from self.loader.take()
            yield from self._copy()
            if recipe.late is not None:
                yield from self.python(recipe.late(self))
            yield from self._step()
            self.steps += 1
            self.machine.step_seen(self.device.index)
            for place, (every, pause) in enumerate(recipe.pauses):
                if self.steps == self.schedule.get(place):
                    yield from self.wait(self.device.free)
                    yield from pause(self)
                if self.number == 0 and world.now >= due[place]:
                    self.schedule[place] = self.steps + 1
                    due[place] = world.now + world.jitter(every, 0.02)

    def _step(self) -> Program:
        recipe, world = self.recipe, self.machine.world
        seconds = world.jitter(recipe.gpu, 0.03)
        if recipe.scale is not None:
            seconds *= recipe.scale(world.now)
        if recipe.stages:
            # Forward from stage to stage, and back: one works at a time.
            for device in (*self.devices, *reversed(self.devices)):
                yield from self.python(recipe.gap)
                end = device.run(seconds / 2, pid=self.proc.pid, work=recipe.work)
                yield from self.wait(end)
            return
        parts = max(1, recipe.awaited)
        for _ in range(parts):
            yield from self.python(recipe.gap)
            yield from self.kernels(seconds / parts, recipe.host / parts, recipe.work)
            if recipe.awaited:
                yield from self.wait(self.device.free)
        if not recipe.awaited:
            before, self._before = self._before, self.device.free
            yield from self.wait(before)
        if self.collective is not None:
            yield from self.wait(self.device.free)
            yield from self.collective.join(self, recipe.reduce)

    def _copy(self) -> Program:
        now, size = self.machine.world.now, self.recipe.copied
        seconds = size / (2.2e10 if self.recipe.pinned else 2.5e9)
        self.device.received.add(now, now + max(seconds, 0.01), size / max(seconds, 0.01))
        if self.recipe.pinned:
            self.device.run(seconds * 0.2, pid=self.proc.pid, work=0.05)
        else:
            yield from self.python(seconds)

    def _occupy(self) -> None:
        recipe, proc = self.recipe, self.proc
        proc.framework, proc.resident, proc.thread_count = recipe.framework, 3.2 * GIB, 40
        proc.modern = recipe.framework == "torch" and recipe.names_threads
        names = ["python"]
        if proc.modern:
            names += ["pt_autograd_0"] + [
                "pt_gloo_runloop" if recipe.gloo else "pt_nccl_watchdg"
            ] * (recipe.ranks > 1)
            names += ["pt_data_pin"] * (recipe.pinned and recipe.workers > 0)
        proc.thread_names = tuple(names)
        for device in self.devices:
            device.memory[proc.pid] = recipe.memory_gib * GIB

    def _start_up(self) -> Program:
        recipe, cores, main = self.recipe, self.machine.cores, self.proc.main
        self.proc.resident = 0.1 * GIB
        for _ in range(20):
            yield from self.machine.disk.move(main, _LIBRARY_BYTES / 20, 30)
            yield from self.python(recipe.import_seconds * 0.6 / 20)
        self.proc.framework, self.proc.resident = recipe.framework, 1.4 * GIB
        self.device.memory[self.proc.pid] = 0.5 * GIB
        yield from self.python(recipe.import_seconds * 0.4)
        self._occupy()
        if recipe.compile_seconds:
            yield from self._compile(cores.number)
        if recipe.tune_seconds:
            yield from self._tune()

    def _compile(self, cores: int) -> Program:
        """The main thread traces, helpers generate code, now and then a kernel is tried."""
        world, end = self.machine.world, self.machine.world.now + self.recipe.compile_seconds
        helpers = []
        for _ in range(min(8, cores)):
            command = "python /opt/torch/_inductor/compile_worker/__main__.py --workers=8"
            helpers.append(self.machine.spawn(command, parent=self.proc))
        while world.now < end:
            for helper in helpers:
                share = world.random.uniform(0.0, 1.5)
                world.start(self.machine.cores.burn(helper.pool, share))
            yield from self.python(world.random.uniform(0.5, 2.5))
            if world.random.random() < 0.3:
                yield from self.kernels(world.random.uniform(0.02, 0.6), 0.02, 0.4)

    def _tune(self) -> Program:
        """One kernel after the other: its variants are compiled one by one, and tried out on the
        GPU again and again."""
        world, uniform = self.machine.world, self.machine.world.random.uniform
        end = world.now + self.recipe.tune_seconds
        while world.now < end:
            yield from self.python(uniform(1.0, 4.0))
            proc = self.machine.spawn("/opt/triton/bin/ptxas -v", parent=self.proc, name="ptxas")
            yield from self.machine.cores.burn(proc.main, uniform(0.3, 3.0))
            proc.ended = world.now
            for _ in range(world.random.randrange(10, 80)):
                yield from self.kernels(uniform(0.02, 0.12), uniform(0.02, 0.1), 0.4)
                yield from self.wait(self.device.free)
                yield from self.python(0.05)


def launch(machine: Machine, recipe: Recipe) -> list[Rank]:
    """Start it as its user does: by itself, or by torchrun."""
    collective = None
    if recipe.ranks > 1:
        collective = Collective(machine, recipe.ranks, recipe.gloo)
    above = None
    if recipe.launcher or recipe.ranks > 1:
        launcher = recipe.launcher or "torchrun"
        script = recipe.command.removeprefix("python ")
        above = machine.spawn(f"python /opt/bin/{launcher} --nproc-per-node=8 {script}")
        above.name, above.framework = launcher, recipe.framework
    ranks: list[Rank] = []
    for number in range(recipe.ranks):
        proc = machine.spawn(recipe.command, parent=above)
        if recipe.ranks > 1:
            size = str(recipe.ranks)
            proc.environment |= {
                "RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": size,
            }  # fmt: skip
        devices = (
            machine.gpus[: recipe.stages]
            if recipe.stages
            else [machine.gpus[recipe.first + number]]
        )
        ranks.append(Rank(machine, recipe, number, proc, devices, collective))
        ranks[-1].schedule = ranks[0].schedule
        machine.world.start(ranks[-1].run())
    return ranks
