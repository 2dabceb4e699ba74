"""A GPU's memory is nearly used up.

What it checks
    The highest memory use of the window against the card's memory.

Why it matters
    A batch a little larger than the others, an evaluation with other shapes or a second process is
    then enough for an out-of-memory error, and the caching allocator starts to free and reallocate,
    which synchronises the GPU each time.

Evidence needed
    Memory used and the card's size. How fast it grows, if it does, is another rule
    (memory_growing), under which this one is shown as a symptom.

When it is wrong
    The driver sees what the framework reserved, not what tensors need: PyTorch keeps freed memory,
    so "full" may be half empty inside. JAX and TensorFlow reserve most of the card when they start,
    by design; they are left alone. A well-tuned job that never exceeds what it has is fine, so this
    is information only.

What to do
    A smaller batch with gradient accumulation, activation checkpointing, a lower precision, an
    optimizer with less state. Against fragmentation: PYTORCH_ALLOC_CONF=expandable_segments:True.

Thresholds
    96% of the card at the peak: jobs tuned to 90 to 95% are common and run for weeks. More than
    10% held by other processes is mentioned. Both are this project's choice.

Sources
    PyTorch's notes on CUDA memory management (caching allocator, expandable segments); JAX's note
    on GPU memory (75% is reserved).
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.gpus import gib, highest, named, ramp

FULL = 0.96
"""Of the card's memory. Jobs tuned to 90-95% are common and run for weeks."""
FOREIGN = 0.1
"""Of the card's memory: more than this in other hands is said."""
RESERVING = ("jax", "tensorflow")


def check(window: Window) -> Verdict:
    present = [gpu for gpu in window.gpus if not gpu.lost]
    shares = {gpu.uuid: share for gpu in present if (share := _share(gpu)) is not None}
    if not shares:
        return Unknown(("memory used", "the card's memory size"))
    full = [gpu for gpu in present if shares.get(gpu.uuid, 0.0) >= FULL]
    if not full:
        if len(shares) < len(present):
            return Unknown(("memory used", "the card's memory size"))
        return Clear(f"at most {100 * max(shares.values()):.0f}% of the memory is used")
    framework = None if window.job is None else window.job.job.framework
    if framework in RESERVING:
        return Clear(f"{framework} reserves most of the memory by design")
    return _firing(full, max(shares[gpu.uuid] for gpu in full), framework)


def _share(gpu: GpuFacts) -> float | None:
    total = gpu.identity.memory_total_bytes
    used = gpu.memory_used_bytes if gpu.memory_highest_bytes is None else gpu.memory_highest_bytes
    return None if used is None or not total else used / total


def _firing(full: list[GpuFacts], share: float, framework: str | None) -> Firing:
    free = min(
        (gpu.identity.memory_total_bytes or 0)
        - (highest([gpu.memory_highest_bytes, gpu.memory_used_bytes]) or 0.0)
        for gpu in full
    )
    foreign = any(_foreign_share(gpu) >= FOREIGN for gpu in full)
    return Firing(
        severity="info",
        summary=f"The memory of {named(full)} is {100 * share:.0f}% used: {gib(max(0.0, free))} "
        "are left" + (", and other processes hold much of it" if foreign else ""),
        evidence=tuple(
            [
                Evidence(
                    name=f"{named([gpu])} highest memory use",
                    value=highest([gpu.memory_highest_bytes, gpu.memory_used_bytes]),
                    unit="bytes",
                    threshold=FULL * (gpu.identity.memory_total_bytes or 0),
                    says=f"of {gib(gpu.identity.memory_total_bytes or 0)}",
                )
                for gpu in full
            ]
        ),
        advice=(
            Advice(
                action="Leave headroom: a smaller batch with gradient accumulation, or activation "
                "checkpointing.",
                setting="batch size",
                why="one larger batch is enough for an out-of-memory error",
            ),
            Advice(
                action="Against fragmentation set PYTORCH_ALLOC_CONF=expandable_segments:True "
                "(PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9).",
                setting="PYTORCH_ALLOC_CONF",
                wanted="expandable_segments:True",
            ),
        ),
        strength=0.7 + 0.3 * ramp(share, FULL, 0.99),
        missing=() if framework is not None else ("the framework",),
        gpus=tuple([gpu.uuid for gpu in full]),
    )


def _foreign_share(gpu: GpuFacts) -> float:
    total = gpu.identity.memory_total_bytes
    return (gpu.foreign_memory_bytes or 0.0) / total if total else 0.0
