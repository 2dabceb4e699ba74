"""A machine and a plain job on it, of which each kind of case changes something; and what may
interrupt a job."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.evaluation.simulator.clockwork import Program, World
from tests.evaluation.simulator.machine import CARDS, Card, Machine
from tests.evaluation.simulator.training import Pause, Rank, Recipe, launch

_COMMANDS = (
    "python train.py --config conf/base.yaml",
    "python3 main.py --epochs 90 --data /data/set",
    "/opt/conda/bin/python -m segmentation.fit --fold 2",
    "python finetune.py --model large --bf16",
    "python run_experiment.py --name ablation_7",
)


class Setting:
    """Draws what a kind leaves open."""

    def __init__(self, seed: str) -> None:
        self.world = World(seed)
        self.draw = random.Random(seed + "-setting")
        self.some, self.pick = self.draw.uniform, self.draw.choice
        self.young = self.draw.random() < 0.35
        self.machine = self.computer()

    def computer(
        self,
        gpus: int = 1,
        cores: int | None = None,
        quota: float | None = None,
        cards: tuple[Card, ...] = CARDS,
    ) -> Machine:
        if cores is None:
            cores = self.pick((8, 16, 32, 64)) if gpus == 1 else 16 * gpus
        card = self.pick(cards)
        self.machine = Machine(self.world, card=card, gpus=gpus, cores=cores, quota=quota)
        if not self.young:
            self.machine.age = self.pick((1.0, 20.0, 1000.0)) * self.some(200.0, 500.0)
        return self.machine

    def several(self) -> int:
        """A server with some GPUs."""
        cards = tuple([card for card in CARDS if not card.sleeps])
        return len(self.computer(self.pick((2, 4, 8)), cards=cards).gpus)

    def run(self, program: Callable[..., Program], *arguments: Any) -> None:
        after = self.some(0.0, 3.0) if self.young else 0.0
        self.world.start(program(self.machine, *arguments), after)

    def train(self, *, loads: float | None = None, **changes: Any) -> list[Rank]:
        """A loop with nothing wrong but ``changes``. ``loads``: what the loader has to do for what
        its makers can do in a step's time."""
        ranks, gpu = changes.get("ranks", 1), changes.get("gpu", self.pick((0.07, 0.15, 0.3, 0.6)))
        fits = max(1, int(self.machine.cores.usable) // ranks - 1)
        workers = changes.get("workers", min(fits, self.pick((2, 4, 8, 12))))
        makers = max(1, workers, changes.get("threads", 0))
        plain: dict[str, Any] = {
            "command": self.pick(_COMMANDS),
            "gpu": gpu,
            "host": gpu * self.some(0.15, 0.6),
            "gap": gpu * self.some(0.005, 0.03),
            "awaited": self.pick((0, 1, 1)),
            "work": self.some(0.5, 0.95),
            "spins": self.draw.random() < 0.85,
            "names_threads": self.draw.random() < 0.7,
            "workers": workers,
            "batch_cpu": gpu * makers * (loads or self.some(0.1, 0.45)),
            "batch_bytes": self.some(2e6, 4e7),
            "cached": self.pick((1.0, 1.0, 0.9)),
            "memory_gib": self.machine.gpus[0].card.gib * self.some(0.35, 0.85),
            "reduce": gpu * self.some(0.02, 0.07) if ranks > 1 else 0.0,
            "import_seconds": self.some(3.0, 14.0) if self.young else 0.0,
        }
        return launch(self.machine, Recipe(**plain | changes))


@dataclass(frozen=True)
class Kind:
    name: str
    cause: str
    build: Callable[[Setting], object]
    weight: int = 1
    also: str = ""
    """Rules that are true of it as well, in a smaller way."""
    gpu: int | None = None
    """The only one it is about; the others are healthy."""
    odd: bool = False
    """Healthy, and no plain training."""


# --- what interrupts a loop --------------------------------------------------------------------


def validation(seconds: float, share: float = 0.7) -> Pause:
    """Forward passes only, smaller ones, and metrics in Python between them."""

    def pause(rank: Rank) -> Program:
        end = rank.machine.world.now + seconds
        while rank.machine.world.now < end:
            yield from rank.kernels(0.05 * share, 0.01, rank.recipe.work * 0.6)
            yield from rank.wait(rank.device.free)
            yield from rank.python(0.05 * (1.0 - share))

    return pause


def save(size: float, *, remote: bool, main_only: bool = True) -> Pause:
    """``torch.save``: tensors to the host, pickled by one thread, then written or sent."""

    def pause(rank: Rank) -> Program:
        if main_only and rank.number:
            return
        store = rank.machine.network if remote else rank.machine.disk
        rank.device.sent.add(rank.machine.world.now, rank.machine.world.now + 0.2, size / 0.2)
        for _ in range(20):
            yield from rank.python(size / 20 / 1.5e9)
            yield from store.move(rank.proc.main, size / 20, write=True)

    return pause


def late_save(size: float, seconds: float) -> Pause:
    """The main thread pickles into memory, and the kernel writes it back when the GPU works
    again."""

    def pause(rank: Rank) -> Program:
        machine = rank.machine
        yield from rank.python(seconds)

        def write_back() -> Program:
            yield 1.0
            yield from machine.disk.move(rank.proc.pool, size, write=True)

        machine.world.start(write_back())

    return pause


def metrics(seconds: float) -> Pause:
    """Something is computed in Python, and nothing written."""
    return lambda rank: rank.python(seconds)


def compiler(rank: Rank, seconds: float) -> Program:
    """A process of ptxas that lives for so long."""
    proc = rank.machine.spawn("/opt/triton/bin/ptxas -v", parent=rank.proc, name="ptxas")
    yield from rank.machine.cores.burn(proc.main, seconds)
    proc.ended = rank.machine.world.now


def recompile(seconds: float) -> Pause:
    """A batch has a shape that was not seen yet."""

    def pause(rank: Rank) -> Program:
        world = rank.machine.world
        end = world.now + world.jitter(seconds, 0.2)
        while world.now < end:
            yield from rank.python(world.random.uniform(0.3, 1.5))
            yield from compiler(rank, world.random.uniform(0.2, 0.8))

    return pause


def send(seconds: float) -> Pause:
    """Something is posted to a server, and the loop waits for the answer."""

    def pause(rank: Rank) -> Program:
        if not rank.number:
            store = rank.machine.network
            yield from store.move(rank.proc.main, 2e5, seconds / store.latency, write=True)

    return pause


def new_epoch(seconds: float) -> Pause:
    """Workers end and begin again, each importing and reading its index anew."""

    def pause(rank: Rank) -> Program:
        rank.loader.start(seconds)
        for proc in rank.loader.procs:
            rank.machine.world.start(rank.machine.cores.burn(proc.main, seconds))
        yield seconds

    return pause


def optimizer_on_host(size: float, speed: float, seconds: float, threads: int) -> Pause:
    """Gradients go to host memory, its cores update the weights (OpenMP, as DeepSpeed's CPU Adam),
    and the weights come back; the GPU has nothing to do meanwhile (ZeRO-Offload, 2021)."""

    def pause(rank: Rank) -> Program:
        world, cores, proc = rank.machine.world, rank.machine.cores, rank.proc
        for track in (rank.device.sent, rank.device.received):
            end = world.now + size / speed
            track.add(world.now, end, speed)
            yield from rank.wait(end)
            if track is rank.device.sent and threads:
                world.start(cores.burn(proc.pool, seconds, threads - 1))
                yield from cores.burn(proc.main, seconds)

    return pause


def stopped(rank: Rank) -> Program:
    """Ctrl-Z, or a scheduler that suspends it."""
    for proc in rank.machine.procs:
        proc.stopped = True
    yield 1e9


def killed(rank: Rank) -> Program:
    """By the kernel, for want of memory: nobody tells its workers."""
    rank.loader.generation += 1
    rank.machine.kill(rank.proc)
    yield 1e9
