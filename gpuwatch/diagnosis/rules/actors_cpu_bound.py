"""The GPU waits for environments of reinforcement learning, or other workers of the job's own.

What it checks
    GPUs of the job idle for 10% of the time or more while processes that it started itself, and
    that are no DataLoader workers, use the CPU and its main thread rests; or while its main thread
    works and a library of environments (MuJoCo, Atari ...) is loaded in it.

Why it matters
    The policy learns as fast as its environments step; a faster GPU or data loader changes nothing.

Evidence needed
    The GPUs' utilisation, the roles of the job's processes (PyTorch names its loader workers from
    2.5 on, so that others can be told from them), their CPU, the libraries loaded in them.

When it is wrong
    Without a known library such processes may do anything: prepare data (batchgenerators), compute
    rewards, search. The finding then says so, and has their stacks taken first.

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

from gpuwatch.diagnosis.facts.window import JobFacts, WorkerFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import loaders, loading, open_causes
from gpuwatch.diagnosis.rules.shared.words import is_at_least, ramp, required, rounded, strength
from gpuwatch.diagnosis.sentence import number

_PARALLEL = Advice(
    "Step several environments in each of several processes (gymnasium.vector, SubprocVecEnv), as "
    "many as there are cores, or in threads of EnvPool.",
    why="the policy learns as fast as its environments step",
)
_CORES = Advice(
    "Give them more cores (another machine, or another time for what else runs here).",
    why="they wait for a core for longer than they have one: more of them would not help",
)
_ON_GPU = Advice(
    "Simulate on the GPU (MuJoCo MJX, Isaac Lab, Brax) where the environment exists there, or let "
    "the learner work while the environments step."
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
    if job.job.serves is not None:
        return Clear(f"the job serves requests: {job.job.serves}")
    if job.own_workers is None and job.job.simulates is None:
        return Clear("the job has no worker processes of its own, and no environments")
    has_loader = loading.no_loader(job) is None
    if wait is not None and wait >= loading.STARVED_SHARE and has_loader:
        return Clear(f"the job reports waiting for its loader {wait:.0%} of the time")
    main = found.with_queue(required(found.main_idle_percent, *loading.NO_MAIN))
    steps = main >= open_causes.MAIN_COMPUTES_PERCENT
    if steps and job.job.simulates is not None:
        return _firing(found, main, _main_thread_steps(job), steps=True)
    if not steps and _are_at_work(job.own_workers) and _count(job) >= LEAST_COUNT:
        return _firing(found, main, _waits_for_them(job), steps=False)
    return Clear("neither environments nor workers of its own are at work while the GPU idles")


def _are_at_work(own: WorkerFacts | None) -> bool:
    return is_at_least(loaders.wanted(own), LEAST_PERCENT)


def _count(job: JobFacts) -> int:
    return 0 if job.own_workers is None else round(job.own_workers.count)


def _queue_percent(job: JobFacts) -> float:
    own = job.own_workers
    return 0.0 if own is None else own.run_queue_wait_percent or 0.0


def _is_crowded(job: JobFacts) -> bool:
    """Check whether its own workers wait for a core for longer than they have one."""
    return 2.0 * _queue_percent(job) > (loaders.wanted(job.own_workers) or 0.0)


def _main_thread_steps(job: JobFacts) -> str:
    return f"its main thread works meanwhile and steps environments ({job.job.simulates})"


def _waits_for_them(job: JobFacts) -> str:
    need = loaders.wanted(job.own_workers) or 0.0
    unknown = "environments of reinforcement learning, or workers that prepare its data"
    what = job.job.simulates or unknown
    says = f"it waits for {number(_count(job))} processes of its own "
    says += f"at {number(need)}% of a core each ({what})"
    return says + (", which wait for a core most of that time" if _is_crowded(job) else "")


def _firing(found: loading.Underfed, main: float, cause: str, *, steps: bool) -> Firing:
    job, known = found.job, found.job.job.simulates is not None
    need = loaders.wanted(job.own_workers)
    see = Advice(
        f"First see what they do: py-spy top --pid PID, of a child of PID {job.job.pid}.",
        why="environments and a pool that prepares data have other cures",
    )
    cures = RULE.cure if known else (see,)
    clear = ramp(main, 50.0, 95.0) if steps else ramp(need or 0.0, LEAST_PERCENT - 10.0, 80.0)
    return found.idles(
        cause,
        [
            Evidence("own workers' CPU", rounded(need), "% of a core each", LEAST_PERCENT,
                     f"no loader workers; {_queue_percent(job):.0f}% is their wait for a core",
                     supports=_are_at_work(job.own_workers)),
            Evidence("main thread's CPU while the GPU idles", round(main, 1), "% of a core",
                     open_causes.MAIN_COMPUTES_PERCENT, "it works" if steps else "it waits"),
        ],
        strength(found.clearness, clear, 1.0 if known else 0.0),
        advice=(_CORES, *cures) if _is_crowded(job) and not steps else cures,
        missing=() if known else ("what these processes do",),
    )  # fmt: skip
