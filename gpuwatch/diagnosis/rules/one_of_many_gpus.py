"""A job has several GPUs and uses one of them, or some.

What it checks
    Whether a training process runs nothing at all on GPUs of which it holds memory, or which
    CUDA_VISIBLE_DEVICES gives it, while it works on another.

Why it matters
    A program uses more than one GPU only when it is written, and started, for it. The others are
    taken from everybody else and do nothing.

Evidence needed
    The busy share of the job's GPUs over half a minute.

When it is wrong
    Where the other GPUs are for a later part of the work (evaluation, a second model).

What to do
    One process for each GPU (torchrun or accelerate launch, with DistributedDataParallel or FSDP),
    batches sharded over jax.devices(), tf.distribute.MirroredStrategy. Or name only the GPUs that
    the job uses in CUDA_VISIBLE_DEVICES.

Thresholds
    below 1% busy: a display or a monitor causes tenths. For 30 s: most programs have used all of
    their GPUs by then. 10% on one that works: less may be a job that has not begun.

Sources
    JAX (GPU memory allocation: 75% of each visible GPU is taken in advance), TensorFlow (Use a GPU:
    all memory of all visible GPUs), PyTorch (Getting Started with Distributed Data Parallel).
"""

from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.cards import UNUSED_PERCENT, required_load, unused
from gpuwatch.diagnosis.rules.shared.loading import job_of
from gpuwatch.diagnosis.rules.shared.words import (
    briefly,
    clear_if,
    counted,
    keys,
    named,
    ramp,
    unknown_if,
    verb,
)
from gpuwatch.diagnosis.sentence import number

RULE = Rule(
    title="GPUs left unused",
    explains={"idle_holding_memory", "collective_wait", "pipeline_bubbles"},
    has_look_alikes=False,
)
LONG_ENOUGH_SECONDS = 30.0

_ALL_OF_THEM = {
    "torch": "start one process for each GPU (torchrun --nproc_per_node={} or accelerate launch)",
    "jax": "shard each batch over all of jax.devices()",
    "tensorflow": "build and train the model under tf.distribute.MirroredStrategy",
}


def check(window: Window) -> Verdict:
    job, gpus, rests = job_of(window), required_load(window), unused(window)
    ranks = job.job.ranks
    more = (ranks[0].visible_gpus or 0) - len(gpus) if len(ranks) == 1 else 0
    all_used = window.starting or not (rests or more > 0)
    clear_if(all_used, "it works on all GPUs that it is known to have")
    early = window.watched_seconds < LONG_ENOUGH_SECONDS
    unknown_if(early, f"{LONG_ENOUGH_SECONDS:.0f} s of data")
    way = _ALL_OF_THEM.get(job.job.framework or "", "write and start it for several")
    left = f"{number(more)} more that it may use {'is' if more == 1 else 'are'} untouched"
    left = f"{named(rests)} {verb(rests, 'runs', 'run')} nothing" if rests else left
    works = [gpu for gpu in gpus if gpu not in rests]
    used = named(works)
    name_them = Advice(
        "Name only the GPUs that the job uses in CUDA_VISIBLE_DEVICES; to use all of "
        f"them, {way.format(len(gpus) + max(0, more))}.",
        brief="Use them all, or set CUDA_VISIBLE_DEVICES",
        setting="CUDA_VISIBLE_DEVICES",
        why="others can then use the rest",
    )
    return Firing(
        summary=f"The job uses only {used}: {left}",
        short=(f"Only {briefly(works)} works: {counted(len(rests) or more, 'GPU')} unused",),
        evidence=[
            *[Evidence(f"{named([gpu])} busy", gpu.busy_percent, "%", UNUSED_PERCENT)
              for gpu in rests],
            *[Evidence(f"{named([gpu])} memory held by the job", gpu.own_memory_bytes, "bytes")
              for gpu in rests],
        ],
        advice=(name_them,),
        severity=None if rests else "info",
        strength=0.7 + 0.3 * ramp(window.watched_seconds, LONG_ENOUGH_SECONDS, 60.0),
        gpus=keys(rests or gpus),
        lost_share=1.0 if rests else None,
    )  # fmt: skip
