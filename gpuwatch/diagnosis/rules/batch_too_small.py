"""The batch (or the model) is too small for the GPU.

What it checks
    Whether a GPU that is always busy does little work (SM activity, power) while half of its
    memory or more is free.

Why it matters
    Each kernel has too few rows to fill the multiprocessors, so a step with four times the
    samples often takes hardly longer. It is the cheapest speed-up there is.

Evidence needed
    The busy share; SM activity, or power with its limit; memory used and the card's memory. All
    GPUs of the job must show it: if only one works hard, the others are waiting for it.

When it is wrong
    When the method limits the batch (small batches for convergence), or the work is decoding one
    token at a time. Power alone cannot tell small kernels from bandwidth-bound ones: the finding is
    then less certain. Where NCCL joins ranks of several machines it is undetermined:
    kernels that wait for them look alike.

What to do
    Raise the batch size (and the learning rate with it). The factor named is what fits if all the
    memory used were the batch's; the model's part does not grow, so more will fit. If tensor cores
    are idle: bfloat16 autocast. Several small jobs can share the card (MPS, MIG). A server should
    answer waiting requests in one batch.

Thresholds
    busy 85% of the time; from 60% on where the level is steady (the 5th percentile of the samples
    is 60% of their mean or more) and the main thread is below 85% of a core: launches of tiny
    kernels leave gaps, and Python is not the bottleneck. SM activity and power: as of
    busy_without_work, which gives the reasons; power 1.6 times as high before is a wait.

    memory at most 50% used: a batch of twice the size should then fit (SageMaker's BatchSize
    requires 70% or less). The advice fills it to 90%: the rest is for
    fragmentation and evaluation. Tensor cores active below 2% of the time: the large products run
    in full precision. All but DCGM's and SageMaker's are this project's choice.

Sources
    DCGM's guidance on SM activity (below 0.5: likely ineffective use); NVIDIA's deep-learning
    performance guide (small matrices do not fill the GPU; tensor cores need mixed precision or
    TF32). SageMaker Debugger, BatchSize (95th percentiles of CPU, GPU and GPU memory at 70%).
"""

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, words
from gpuwatch.diagnosis.rules.shared.loading import MAIN_AT_LIMIT_PERCENT
from gpuwatch.diagnosis.rules.shared.words import clear_if, keys, mean, ramp, unknown_if
from gpuwatch.diagnosis.sentence import GPUS, IS, number

RULE = Rule(
    title="batch too small",
    explains={"busy_without_work"},
    lost_while_busy=True,
    charts=("power_watts",),
)
ROOM = 0.5  # of the memory
FILL_TO = 0.9  # of the memory
MANY_TIMES = 8.0
"""Nobody can foresee a step so large."""
FLAT_PERCENT = 60.0
NO_TENSOR_PERCENT = 2.0

_PRECISION = Advice(
    "Use mixed precision (bfloat16; in PyTorch torch.autocast, or TF32 matrix products).",
    setting="precision",
    wanted="bfloat16",
    why="the tensor cores are idle",
)
_BATCHING = Advice(
    "Answer several requests in one batch: wait a few milliseconds for more of them (dynamic "
    "batching), or let new ones join the running batch (continuous batching).",
    brief="Answer several requests in one batch",
    why="requests queue while the GPU is busy, and several cost it hardly more than one",
)


def check(window: Window) -> Verdict:
    gpus = cards.required_load(window)
    clear_if(window.starting, "the job is starting")
    fed = all(_is_fed(window, gpu) for gpu in gpus)
    clear_if(not fed, "its GPUs are not always busy, so the batch is not the bottleneck")
    little = [cards.does_little(gpu) for gpu in gpus]
    well_used = False in little or any(map(cards.is_bandwidth_bound, gpus))
    clear_if(well_used, "the GPUs are well used while busy")
    waits = any(map(cards.waits_now, gpus))
    clear_if(waits, "it draws more power at other times: now it waits")
    clear_if(any(map(cards.encodes, gpus)), cards.ENCODES)
    unknown_if(_spans_machines(window), "whether its kernels wait for ranks on other machines")
    unknown_if(None in little, "SM activity", "power and its limit")
    fullest = max(gpus, key=lambda gpu: cards.memory_share(gpu) or 0.0)
    share = cards.memory_share(fullest)
    share = words.required(share, "memory used", "the card's memory size")
    clear_if(share > ROOM, f"{100 * share:.0f}% of the memory is used: no room for a larger batch")
    serves = window.job is not None and window.job.job.serves is not None
    return _firing(gpus, share, _BATCHING if serves else _larger(fullest, share))


def _spans_machines(window: Window) -> bool:
    """Check whether NCCL joins its ranks with others elsewhere: kernels that wait for those are
    busy and do little, too."""
    if window.job is None or window.job.job.collectives != "nccl":
        return False
    return (window.job.job.world_size or 1) > len(window.job.ranks)


def _is_fed(window: Window, gpu: GpuFacts) -> bool:
    if gpu.busy is None:
        return False
    busy = gpu.busy.mean_percent
    main = None if window.job is None else window.job.main_thread_percent
    flat = busy >= FLAT_PERCENT and gpu.busy.low_percent >= 0.6 * busy
    flat = flat and main is not None and main < MAIN_AT_LIMIT_PERCENT
    return busy >= cards.PINNED_PERCENT or flat


def _larger(fullest: GpuFacts, share: float) -> Advice:
    times = f"{number(min(MANY_TIMES, FILL_TO / max(share, 0.01)), 1)} times"
    used = words.amount(cards.memory_most(fullest) or 0.0)
    total = words.amount(fullest.identity.memory_total_bytes or 0)
    return Advice(
        f"Raise the batch size step by step: one {times} as large should fit (gpuwatch tune memory "
        "measures it).",
        setting="batch size",
        wanted=times,
        why=f"{used} of {total} are used, and the model's part of that does not grow",
    )


def _firing(gpus: list[GpuFacts], share: float, larger: Advice) -> Firing:
    sm, power = mean(map(cards.sm_when_busy, gpus)), mean(map(cards.power_when_busy, gpus))
    seen = [] if sm is None else [f"{number(sm)}% of the multiprocessors active"]
    seen += [] if power is None else [f"{number(power)} W"]
    at = "" if power is None else f" at {number(power)} W"
    room = f"{number(100 * (1 - share))}% of"
    idle_tensor_cores = all(
        words.is_below(gpu.tensor_active_percent, NO_TENSOR_PERCENT) for gpu in gpus
    )
    return Firing(
        summary=f"{GPUS} {IS} busy but underused ({', '.join(seen)}) "
        f"with {room} the memory free: the batch is too small",
        short=(
            f"{GPUS} {IS} underused{at}, {room} memory free: the batch is too small",
            f"{GPUS} underused: batch too small",
        ),
        evidence=[item for gpu in gpus for item in _evidence(gpu)],
        advice=(larger, _PRECISION) if idle_tensor_cores else (larger,),
        strength=0.5
        + 0.35 * (mean(map(cards.little_work_clearness, gpus)) or 0.0)
        + 0.15 * ramp(share, ROOM, 0.25),
        missing=cards.missing_effort(gpus),
        gpus=keys(gpus),
        lost_share=words.highest(map(cards.wasted_share, gpus)),
    )


def _evidence(gpu: GpuFacts) -> list[Evidence]:
    name, total = words.named([gpu]), gpu.identity.memory_total_bytes or 0
    return [
        *cards.effort_evidence(gpu, "it is kept busy"),
        Evidence(f"{name} memory used", cards.memory_most(gpu), "bytes", ROOM * total,
                 "there is room"),
        Evidence(f"{name} tensor-core activity", gpu.tensor_active_percent, "%", NO_TENSOR_PERCENT,
                 supports=words.is_below(gpu.tensor_active_percent, NO_TENSOR_PERCENT)),
    ]  # fmt: skip
