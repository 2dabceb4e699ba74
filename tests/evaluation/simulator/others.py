"""Programs on GPUs that are no training loop over a dataset."""

from tests.evaluation.simulator.clockwork import Gate, Program
from tests.evaluation.simulator.machine import GIB, Machine, Proc
from tests.evaluation.simulator.training import Rank, Recipe

_RECIPE = Recipe(workers=0)


def _process(machine: Machine, command: str, gib: float, framework: str | None = "torch") -> Rank:
    proc = machine.spawn(command)
    proc.framework, proc.resident, proc.thread_count = framework, 2.5 * GIB, 60
    device = machine.gpus[0]
    if gib:
        device.memory[proc.pid] = gib * GIB
    return Rank(machine, _RECIPE, 0, proc, [device], None)


def language_server(machine: Machine, rate: float) -> Program:
    """Continuous batching: as long as requests run, one decoding step after the other."""
    rank = _process(machine, "python -m vllm.entrypoints.openai.api_server --model m-8b", 0.0)
    rank.device.memory[rank.proc.pid] = 0.9 * rank.device.card.gib * GIB
    rank.proc.modern = True
    rank.proc.serves = "it is vLLM and listens on TCP port 8000"
    running: list[int] = []
    world = machine.world
    due = world.now + world.random.expovariate(rate)
    while True:
        if not running and due > world.now:
            rank.proc.main.waits.count(world.now)
            yield due - world.now
        while due <= world.now:
            running.append(int(world.random.lognormvariate(5.0, 0.8)))
            due += world.random.expovariate(rate)
            yield from rank.kernels(0.06, 0.01, 0.9)
        host, step = 0.004 + 0.0001 * len(running), 0.018 + 0.0004 * len(running)
        for _ in range(8):
            yield from rank.kernels(step, host, 0.45)
            yield from rank.wait(rank.device.free)
            yield from rank.python(host)
        machine.step_seen()
        running = [left - 8 for left in running if left > 8]


def model_server(machine: Machine, rate: float, children: int = 3) -> Program:
    """A web server that forks; each request is decoded, then one forward pass."""
    rank = _process(machine, "python -m uvicorn service:app --port 8000 --workers 3", 4.0)
    rank.proc.thread_names = ("python", "AnyIO worker th")
    rank.proc.serves = "it is uvicorn and listens on TCP port 8000"
    forks = [
        machine.spawn(" ".join(rank.proc.arguments), parent=rank.proc) for _ in range(children)
    ]
    world = machine.world
    while True:
        rank.proc.main.waits.count(world.now)
        yield world.random.expovariate(rate)
        yield from machine.cores.burn(world.random.choice(forks).main, 0.006)
        yield from rank.python(0.004)
        yield from rank.kernels(0.022, 0.008, 0.4)
        yield from rank.wait(rank.device.free)
        machine.step_seen()


def policy_gradient(machine: Machine, actors: int, step: float, named: bool) -> Program:
    """PPO: environments in processes make a rollout, each answer waits for all; then updates."""
    rank = _process(machine, "python ppo.py --env-id Humanoid-v4 --num-envs 16", 2.5)
    if named:
        rank.proc.modern, rank.proc.thread_names = True, ("python", "pt_autograd_0")
    if machine.world.random.random() < 0.6:
        # Else an environment of their own.
        rank.proc.simulates = "MuJoCo is loaded in it"
    world, command = machine.world, " ".join(rank.proc.arguments)
    actor_procs = [machine.spawn(command, parent=rank.proc) for _ in range(actors)]

    def act(proc: Proc, done: Gate, left: list[int]) -> Program:
        yield from machine.cores.burn(proc.main, world.random.gammavariate(4.0, step / 4.0))
        left[0] -= 1
        if not left[0]:
            done.open()

    while True:
        for _ in range(64):
            yield from rank.kernels(0.0008, 0.0025, 0.1)
            yield from rank.wait(rank.device.free)
            left, done = [actors], machine.gate()
            for proc in actor_procs:
                world.start(act(proc, done, left))
            rank.proc.main.waits.count(world.now)
            yield done
        for _ in range(40):
            yield from rank.kernels(0.009, 0.008, 0.4)
            yield from rank.wait(rank.device.free)
        machine.step_seen()


def learner(machine: Machine, actors: int, seconds: float) -> Program:
    """IMPALA: actors play on by themselves, the learner takes a batch when one is full."""
    rank = _process(machine, "python -m sample_factory.train --algo=APPO --env=doom", 5.0)
    rank.proc.modern, rank.proc.thread_names = True, ("python", "pt_autograd_0")
    rank.proc.simulates = "VizDoom is loaded in it"
    world, full = machine.world, [0]

    def play(proc: Proc) -> Program:
        while True:
            if full[0] > 3 * actors:
                yield 0.01
            yield from machine.cores.burn(proc.main, world.random.gammavariate(6.0, seconds / 6.0))
            full[0] += 1

    for _ in range(actors):
        proc = machine.spawn("python -m sample_factory.train --algo=APPO", parent=rank.proc)
        proc.name = "python"
        world.start(play(proc))
    while True:
        while full[0] < actors:
            rank.proc.main.waits.count(world.now)
            yield 0.004
        full[0] -= actors
        for _ in range(4):
            yield from rank.kernels(0.02, 0.01, 0.5)
        yield from rank.wait(rank.device.free)
        machine.step_seen()


def notebook(machine: Machine, think: float) -> Program:
    """A person runs a cell, looks at it, and thinks."""
    rank = _process(machine, "python -m ipykernel_launcher -f kernel-8f2.json", 3.0)
    world = machine.world
    while True:
        yield world.random.expovariate(1.0 / think)
        for _ in range(world.random.randrange(3, 60)):
            yield from rank.kernels(world.random.uniform(0.01, 0.2), 0.02, 0.5)
            yield from rank.wait(rank.device.free)
        machine.step_seen()


def scoring(machine: Machine) -> Program:
    """Evaluation in bursts: a queue of checkpoints, each loaded and then scored at full speed."""
    rank = _process(machine, "python score.py --watch runs/17", 12.0)
    world = machine.world
    while True:
        yield from machine.disk.move(rank.proc.main, 3e9, 40)
        yield from rank.python(1.0)
        yield from _works(rank, world.random.uniform(4.0, 16.0))
        rank.proc.main.waits.count(world.now)
        yield world.random.expovariate(1.0 / 8.0)


def sweep(machine: Machine) -> Program:
    """Short runs one after the other, each a process of its own that begins anew."""
    driver = machine.spawn("bash sweep.sh", name="bash")
    while True:
        rank = _process(machine, "python fit.py --trial", 0.0)
        rank.proc.parent, rank.proc.born = driver.pid, machine.world.now
        yield from rank.python(2.5)
        rank.device.memory[rank.proc.pid] = 3.0 * GIB
        yield from _works(rank, machine.world.random.uniform(15.0, 40.0))
        machine.kill(rank.proc)


def molecules(machine: Machine) -> Program:
    """A simulation in C++ that works on cores and GPU by turns, as it is meant to."""
    rank = _process(machine, "gmx mdrun -deffnm md -nb gpu", 1.2, None)
    rank.proc.name = "gmx"
    while True:
        yield from rank.kernels(0.0032, 0.0008, 0.6)
        yield from machine.cores.burn(rank.proc.pool, 0.0004, 6.0)
        yield from rank.wait(rank.device.free)
        machine.step_seen()


def _works(rank: Rank, seconds: float) -> Program:
    end = rank.machine.world.now + seconds
    while rank.machine.world.now < end:
        yield from rank.kernels(0.15, 0.02, 0.8)
        yield from rank.wait(rank.device.free)
        rank.machine.step_seen(rank.device.index)


def on_processor(machine: Machine) -> Program:
    """Trains on the cores, although there are GPUs: a build without CUDA, or none visible."""
    rank = _process(machine, "python train.py --cfg base.yaml", 0.0)
    rank.proc.environment["CUDA_VISIBLE_DEVICES"] = ""
    rank.proc.thread_names = ("python",)
    while True:
        pool = machine.cores.burn(rank.proc.pool, 0.4, machine.cores.number * 0.8)
        machine.world.start(pool)
        yield from machine.cores.burn(rank.proc.main, 0.42)
        machine.step_seen()


def graphics(machine: Machine) -> Program:
    """A desktop."""
    rank = _process(machine, "/usr/lib/xorg/Xorg :0 -auth /run/user/1000", 0.4, None)
    rank.proc.name, rank.proc.framework = "Xorg", None
    while True:
        rank.device.run(0.0004, pid=rank.proc.pid, work=0.3)
        yield from rank.python(0.0005)
        yield 0.06


def mps(machine: Machine) -> Program:
    """The server through which the kernels of one user's programs run side by side."""
    server = machine.spawn("nvidia-cuda-mps-server", name="nvidia-cuda-mps-server")
    machine.gpus[0].memory[server.pid] = 0.03 * GIB
    yield 1e9


def tenant(machine: Machine, share: float, user: str = "olaf") -> Program:
    """Another program takes turns on the same GPU: somebody else's, or the same person's."""
    rank = _process(machine, "python sweep.py --seed 3", 0.0)
    rank.proc.user, rank.device = user, machine.gpus[0]
    rank.device.memory[rank.proc.pid] = 4.0 * GIB
    while True:
        end = rank.device.run(0.02, pid=rank.proc.pid, work=0.6)
        yield from rank.wait(end)
        yield machine.world.jitter(0.02 * (1.0 - share) / share, 0.2)
