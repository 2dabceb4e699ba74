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

from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import loaders, loading, open_causes
from gpuwatch.diagnosis.rules.shared.words import ramp, required, strength

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
    cure=(_PARALLEL, _ON_GPU),
    explains={"oscillation", "batch_too_small", "loader_in_main_process", "python_bound"},
)
LEAST_PERCENT = 40.0  # of a core each
LEAST_COUNT = 2


def check(window: Window) -> Verdict:
    found = loading.underfed(window)
    job, main, wait = found.job, found.main_idle_percent, found.reported_wait
    own, sign = job.own_workers, job.job.simulates
    need, count = loaders.wanted(own), 0 if own is None else round(own.count)
    if job.job.serves is not None:
        return Clear(f"the job serves requests: {job.job.serves}")
    if own is None and sign is None:
        return Clear("the job has no worker processes of its own, and no environments")
    if wait is not None and wait >= loading.STARVED_SHARE and loading.no_loader(job) is None:
        return Clear(f"the job reports waiting for its loader {wait:.0%} of the time")
    main = required(main, *loading.NO_MAIN)
    # On a crowded machine it would have run in the time it waited for a core.
    main = min(100.0, main + found.main_queue_percent)
    queue = (own and own.run_queue_wait_percent) or 0.0
    crowded = 2.0 * queue > (need or 0.0)
    steps, at_work = main >= open_causes.MAIN_COMPUTES_PERCENT, (need or 0.0) >= LEAST_PERCENT
    if steps and sign is not None:
        who = f"its main thread works meanwhile and steps environments ({sign})"
    elif not steps and at_work and count >= LEAST_COUNT:
        what = sign or "environments of reinforcement learning, or workers that prepare its data"
        who = f"it waits for {count} processes of its own at {need:.0f}% of a core each ({what})"
        who += ", which wait for a core most of that time" if crowded else ""
    else:
        return Clear("neither environments nor workers of its own are at work while the GPU idles")
    see = Advice(
        f"First see what they do: gpuwatch stacks --only PID, of a child of PID {job.job.pid}.",
        why="environments and a pool that prepares data have other cures",
    )
    cures = (see,) if sign is None else RULE.cure
    clear = ramp(main, 50.0, 95.0) if steps else ramp(need or 0.0, LEAST_PERCENT - 10.0, 80.0)
    return Firing(
        summary=f"{found.complaint}: {who}",
        evidence=[
            found.evidence,
            Evidence("own workers' CPU", None if need is None else round(need, 1),
                     "% of a core each", LEAST_PERCENT,
                     f"no loader workers; {queue:.0f}% is their wait for a core", supports=at_work),
            Evidence("main thread's CPU while the GPU idles", round(main, 1), "% of a core",
                     open_causes.MAIN_COMPUTES_PERCENT, "it works" if steps else "it waits"),
        ],
        advice=(_CORES, *cures) if crowded and not steps else cures,
        strength=strength(found.clearness, clear, 0.0 if sign is None else 1.0),
        missing=("what these processes do",) if sign is None else (),
        gpus=found.keys,
        lost_share=found.idle_share,
    )  # fmt: skip
