"""A GPU's memory is nearly used up.

What it checks
    The highest memory use of the window against the card's memory.

Why it matters
    A larger batch, an evaluation with other shapes or a second process is then enough to run out of
    memory, and the caching allocator frees and reallocates, which synchronises the GPU each time.

Evidence needed
    Memory used and the card's size, past the job's start-up: while weights are loaded, nothing
    shows what its steps need. Where memory grows, memory_growing speaks, and this is its symptom.

When it is wrong
    The driver sees what the framework reserved, not what tensors need: PyTorch keeps freed memory,
    so "full" may be half empty inside. JAX and TensorFlow reserve most of the card by design and
    are left alone. A well-tuned job that never exceeds it is fine, so this is information only.

Thresholds
    96% of the card at the peak: jobs tuned to 90 to 95% are common and run for weeks. More than
    10% held by other processes is mentioned. Both are this project's choice.

Sources
    PyTorch's notes on CUDA memory management (caching allocator, expandable segments); JAX's note
    on GPU memory (75% is reserved).
"""

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared.cards import memory_most, memory_share, present
from gpuwatch.diagnosis.rules.shared.words import (
    amount,
    clear_if,
    highest,
    in_percent,
    is_at_least,
    keys,
    named,
    ramp,
    unknown_if,
)
from gpuwatch.diagnosis.sentence import GPUS

_HEADROOM = Advice(
    "Leave headroom (a smaller batch with gradient accumulation, or activation checkpointing), "
    "unless it was reserved from the start, as by TensorFlow, JAX and servers.",
    brief="Leave headroom: a smaller batch",
    setting="batch size",
    why="one larger batch is enough for an out-of-memory error",
)
RULE = Rule(
    title="memory nearly full",
    severity="info",
    cure=(
        _HEADROOM,
        Advice(
            "Against fragmentation set PYTORCH_ALLOC_CONF=expandable_segments:True "
            "(PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9).",
            setting="PYTORCH_ALLOC_CONF",
            wanted="expandable_segments:True",
        ),
    ),
    has_look_alikes=False,
    charts=("memory_used_bytes",),
    chart_seconds=600.0,
)
FULL = 0.96  # of the card's memory
FOREIGN = 0.1  # of the card's memory
RESERVING = ("jax", "tensorflow")


def check(window: Window) -> Verdict:
    gpus = present(window)
    shares = [memory_share(gpu) for gpu in gpus]
    most = highest(shares)
    if most is None or (most < FULL and None in shares):
        return Unknown(("memory used", "the card's memory size"))
    clear_if(most < FULL, f"at most {100 * most:.0f}% of the memory is used")
    unknown_if(window.starting, "steady work: the job is still starting up")
    model = None if window.job is None else window.job.job
    framework = None if model is None else model.framework
    clear_if(framework in RESERVING, f"{framework} reserves most of the memory by design")
    serves = model is not None and model.serves is not None
    clear_if(serves, "a server reserves memory for its requests by design")
    full = [gpu for gpu, share in zip(gpus, shares, strict=True) if is_at_least(share, FULL)]
    foreign = any((gpu.foreign_memory_bytes or 0.0) >= FOREIGN * _total(gpu) for gpu in full)
    others = ", and other processes hold much of it" if foreign else ""
    free = amount(min([_free(gpu) for gpu in full]))
    return Firing(
        summary=f"The memory of {GPUS} is {in_percent(most)} used: {free} left{others}",
        short=(
            f"The memory of {GPUS} is {in_percent(most)} used: {free} left",
            f"Memory of {GPUS} is {in_percent(most)} used",
        ),
        evidence=[
            Evidence(f"{named([gpu])} highest memory use", memory_most(gpu), "bytes",
                     FULL * _total(gpu), f"of {amount(_total(gpu))}")
            for gpu in full
        ],
        # Of others, or in a log, nobody knows whether PyTorch's settings are for them.
        advice=RULE.cure if framework == "torch" else (_HEADROOM,),
        strength=0.7 + 0.3 * ramp(most, FULL, 0.99),
        missing=() if framework is not None else ("the framework",),
        gpus=keys(full),
    )  # fmt: skip


def _free(gpu: GpuFacts) -> float:
    return max(0.0, _total(gpu) - (memory_most(gpu) or 0.0))


def _total(gpu: GpuFacts) -> int:
    return gpu.identity.memory_total_bytes or 0
