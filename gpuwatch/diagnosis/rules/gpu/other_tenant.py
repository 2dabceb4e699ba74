"""Processes outside the job use its GPU.

What it checks
    The share of the GPU's SM time, and of its memory, that goes to processes outside the job.

Why it matters
    Two processes on one GPU take turns: each runs slower, by no fault of its own, and the busy
    share looks perfect. It is the first thing to rule out on a shared machine.

Evidence needed
    Which processes are the job's, and the driver's SM share per process (not available inside most
    containers and on some drivers) or at least their memory.

When it is wrong
    A desktop holds a little memory on the GPU that drives it, hence the thresholds. Your own
    processes that gpuwatch takes for another job count as others, too: they do take turns.

What to do
    Move one of them to another GPU, or agree on times; where they must share, MPS lets kernels of
    several processes run side by side, and MIG gives each its own slice.

Thresholds
    others' SM time 8%: a desktop that redraws takes one to five percent. This job's own 3%: a job
    that runs less than that loses nothing to others.

    others' memory 2 GiB: a desktop and a browser stay below. A warning where the card is 90% full:
    then the job is short of what they hold. All are this project's choice; the 3% was set on the
    labelled cases in tests/evaluation.

Sources
    NVML's process utilisation (share of SM time per process); NVIDIA's MPS documentation: without
    it, processes are time-sliced.
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.gpus import GIB, clamp, gib, highest, named, ramp, verb

OWN_PERCENT = 3.0
"""Of SM time: a job that runs less than this there loses nothing to others."""
BUSY_PERCENT = 8.0
"""Of SM time. A desktop that redraws takes one to five percent."""
MEMORY_BYTES = 2 * GIB
"""A desktop and a browser stay below."""
CROWDED = 0.9
"""Of the card's memory: from here what others hold is what is missing."""

SYMPTOMS = frozenset({"straggler", "memory_nearly_full", "busy_without_work", "batch_too_small"})


def check(window: Window) -> Verdict:
    if window.job is None:
        return Unknown(("the job's processes",))
    present = [gpu for gpu in window.gpus if not gpu.lost]
    known = [gpu for gpu in present if _readable(gpu)]
    if not known:
        return Unknown(("SM share per process", "GPU memory per process"))
    return _found(known) or _nothing(present, known)


def _found(known: list[GpuFacts]) -> Firing | None:
    taking = [gpu for gpu in known if _takes(gpu)]
    if taking:
        return _taking(taking)
    holding = [gpu for gpu in known if _holds(gpu)]
    return _holding(holding) if holding else None


def _nothing(present: list[GpuFacts], known: list[GpuFacts]) -> Verdict:
    if all(_rests(gpu) for gpu in known):
        return Clear("the job itself runs nothing")
    if len(known) < len(present):
        return Unknown(("SM share per process",))
    return Clear("no other process uses its GPU" + ("" if len(present) == 1 else "s"))


def _readable(gpu: GpuFacts) -> bool:
    """Either share is enough: who holds no memory runs nothing."""
    return gpu.foreign_busy_percent is not None or gpu.foreign_memory_bytes is not None


def _rests(gpu: GpuFacts) -> bool:
    return gpu.own_busy_percent is not None and gpu.own_busy_percent < OWN_PERCENT


def _takes(gpu: GpuFacts) -> bool:
    return not _rests(gpu) and (gpu.foreign_busy_percent or 0.0) >= BUSY_PERCENT


def _holds(gpu: GpuFacts) -> bool:
    return not _rests(gpu) and (gpu.foreign_memory_bytes or 0.0) >= MEMORY_BYTES


def _taking(gpus: list[GpuFacts]) -> Firing:
    share = highest([gpu.foreign_busy_percent for gpu in gpus]) or 0.0
    return Firing(
        summary=f"Other processes take {share:.0f}% of {named(gpus)}",
        evidence=_evidence(gpus),
        advice=(
            Advice(
                action=f"Move this job or the other one away from {named(gpus)}, or agree on "
                "times.",
                why="processes on one GPU take turns, and each waits for the other",
            ),
        ),
        strength=0.75 + 0.25 * ramp(share, BUSY_PERCENT, 25.0),
        gpus=tuple([gpu.uuid for gpu in gpus]),
        lost_share=clamp(share / 100.0),
        explains=SYMPTOMS,
    )


def _holding(gpus: list[GpuFacts]) -> Firing:
    held = highest([gpu.foreign_memory_bytes for gpu in gpus]) or 0.0
    crowded = any(_crowded(gpu) for gpu in gpus)
    blind = any(gpu.foreign_busy_percent is None for gpu in gpus)
    return Firing(
        severity="warning" if crowded else "info",
        summary=f"Other processes hold {gib(held)} of memory on {named(gpus)}"
        + ("" if blind else f" and {verb(gpus, 'use it', 'use them')} little"),
        evidence=_evidence(gpus),
        advice=(
            Advice(
                action="Ask their owner to end them, or use another GPU, before trying a "
                "larger batch.",
                why="memory they hold cannot be used here",
            ),
        ),
        strength=0.7,
        missing=("SM share per process",) if blind else (),
        gpus=tuple([gpu.uuid for gpu in gpus]),
        explains=frozenset({"memory_nearly_full"}),
    )


def _crowded(gpu: GpuFacts) -> bool:
    total, used = gpu.identity.memory_total_bytes, gpu.memory_used_bytes
    return total is not None and used is not None and used >= CROWDED * total


def _evidence(gpus: list[GpuFacts]) -> tuple[Evidence, ...]:
    out = []
    for gpu in gpus:
        name = named([gpu])
        busy, memory = gpu.foreign_busy_percent, gpu.foreign_memory_bytes
        out += [
            Evidence(
                name=f"{name} SM share of others",
                value=None if busy is None else round(busy, 1),
                unit="%",
                threshold=BUSY_PERCENT,
                supports=busy is not None and busy >= BUSY_PERCENT,
            ),
            Evidence(
                name=f"{name} SM share of this job",
                value=gpu.own_busy_percent,
                unit="%",
            ),
            Evidence(
                name=f"{name} memory of others",
                value=memory,
                unit="bytes",
                threshold=float(MEMORY_BYTES),
                supports=memory is not None and memory >= MEMORY_BYTES,
            ),
        ]
    return tuple(out)
