"""The GPU waits for reinforcement-learning environments, or for other workers of the job's own.

What it checks
    GPUs of the job idle for 10% of the time or more while processes that it started itself (no
    DataLoader workers) use the CPU and its main thread rests; or while its main thread works and a
    library of environments (MuJoCo, Atari ...) is loaded in it.

Why it matters
    The policy learns only as fast as its environments step; a faster GPU or data loader changes
    nothing.

Evidence needed
    The GPUs' utilisation, the roles of the job's processes (PyTorch names its loader workers from
    2.5 on, so that others can be told from them), their CPU, the libraries loaded in them.

When it is wrong
    Without a known library such processes may do anything: prepare data (batchgenerators), compute
    rewards, search. The finding then says so, and asks for their stacks first.

What to do
    Environments: step several in each process (gymnasium.vector, EnvPool), give them the free
    cores, let the learner work while they step, or simulate on the GPU (MuJoCo MJX, Isaac Lab,
    Brax). Others: what their stacks show. Both: more cores, where they wait for one.

Thresholds
    idle 10%: see loader_cpu_bound. 2 processes or more at 40% of a core each, waits for a core
    counted: they step in turns with the policy. Where that wait is more than half of it, more of
    them would not help. Main thread at 60% of a core where it steps the environments, below where
    it waits for them. All are this project's choice.

Sources
    Stable-Baselines3, "Vectorized Environments". Weng et al., "EnvPool", 2022.
"""

from gpuwatch.diagnosis.facts.window import JobFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import loaders, loading, open_causes
from gpuwatch.diagnosis.rules.shared.words import clear_if, is_at_least, ramp, required, strength
from gpuwatch.diagnosis.sentence import number

_PARALLEL = Advice(
    "Step several environments in each of several processes (gymnasium.vector, SubprocVecEnv), as "
    "many as there are cores, or in the threads of EnvPool.",
    brief="Step more environments at the same time",
    why="the policy learns only as fast as its environments step",
)
_CORES = Advice(
    "Give them more cores (another machine, or a time when less else runs here).",
    brief="Give them more cores",
    why="they spend more time waiting for a core than running on one: more of them would not help",
)
_ON_GPU = Advice(
    "Simulate on the GPU (MuJoCo MJX, Isaac Lab, Brax) where the environment exists there, or let "
    "the learner work while the environments step.",
    brief="Simulate on the GPU (MuJoCo MJX, Isaac Lab)",
)
RULE = Rule(
    title="limited by its actors",
    gives_back="some",
    cure=(_PARALLEL, _ON_GPU),
    explains={"oscillation", "batch_too_small", "loader_in_main_process", "python_bound"},
)
LEAST_PERCENT = 40.0  # of a core each
LEAST_COUNT = 2


def check(window: Window) -> Verdict:
    found = loading.underfed(window)
    job, wait = found.job, found.reported_wait
    serves, simulates = job.job.serves, job.job.simulates
    clear_if(serves is not None, f"the job serves requests: {serves}")
    clear_if(
        job.own_workers is None and simulates is None,
        "the job has no worker processes of its own, and no environments",
    )
    has_loader = loading.no_loader(job) is None
    clear_if(
        has_loader and is_at_least(wait, loading.STARVED_SHARE),
        f"the job reports waiting for its loader {wait or 0.0:.0%} of the time",
    )
    main = found.with_queue(required(found.main_idle_percent, *loading.NO_MAIN))
    steps = main >= open_causes.MAIN_COMPUTES_PERCENT
    need = loaders.wanted(job.own_workers)
    count = 0 if job.own_workers is None else round(job.own_workers.count)
    if steps and simulates is not None:
        cause = f"its main thread is busy stepping environments ({simulates})"
        short = "the main thread is busy stepping environments", "environment steps"
        return _firing(found, cause, short, ramp(main, 50.0, 95.0), main)
    if not steps and count >= LEAST_COUNT and need is not None and need >= LEAST_PERCENT:
        what = simulates or "reinforcement-learning environments, or workers that prepare its data"
        cause = f"it waits for {number(count)} processes of its own at {number(need)}% of a core "
        cause += f"each ({what})"
        cause += ", which themselves mostly wait for a core" if _is_crowded(job) else ""
        clear = ramp(need, LEAST_PERCENT - 10.0, 80.0)
        processes = f"{number(count)} processes"
        busy = f"{processes} of the job are busy, {number(need)}% of a core each"
        in_a_word = f"{processes} busy"
        if _is_crowded(job):
            busy, in_a_word = f"{processes} of the job mostly wait for a core", "too few cores"
        return _firing(found, cause, (busy, in_a_word), clear, main, crowded=_is_crowded(job))
    return Clear("neither environments nor workers of its own are busy while the GPU idles")


def _queue_percent(job: JobFacts) -> float:
    own = job.own_workers
    return 0.0 if own is None else own.run_queue_wait_percent or 0.0


def _is_crowded(job: JobFacts) -> bool:
    """Check whether its own workers wait for a core for longer than they have one."""
    return 2.0 * _queue_percent(job) > (loaders.wanted(job.own_workers) or 0.0)


def _firing(
    found: loading.Underfed,
    cause: str,
    short: tuple[str, str],
    clear: float,
    main: float,
    *,
    crowded: bool = False,
) -> Firing:
    job, known = found.job, found.job.job.simulates is not None
    need, works = loaders.wanted(job.own_workers), main >= open_causes.MAIN_COMPUTES_PERCENT
    see = Advice(
        f"First see what they do: py-spy top --pid PID, of a child of PID {job.job.pid}.",
        brief="First see what they do: py-spy top --pid PID",
        why="environments and a pool that prepares data have different cures",
    )
    cures = RULE.cure if known else (see,)
    return found.idles(
        cause,
        short,
        [
            Evidence("own workers' CPU", need, "% of a core each", LEAST_PERCENT,
                     f"no loader workers; {_queue_percent(job):.0f}% of it is waiting for a core",
                     supports=is_at_least(need, LEAST_PERCENT)),
            Evidence("main thread's CPU while the GPU idles", main, "% of a core",
                     open_causes.MAIN_COMPUTES_PERCENT, "it is busy" if works else "it waits"),
        ],
        strength(found.clearness, clear, 1.0 if known else 0.0),
        advice=(_CORES, *cures) if crowded else cures,
        missing=() if known else ("what these processes do",),
    )  # fmt: skip
