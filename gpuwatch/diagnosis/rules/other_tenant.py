"""Processes outside the job use its GPU.

What it checks
    The share of the GPU's SM time, and of its memory, that goes to processes outside the job, and
    whether they are of somebody else.

Why it matters
    Two processes on one GPU take turns: each runs slower, by no fault of its own, and the busy
    share looks perfect. It is the first thing to rule out on a shared machine.

Evidence needed
    Which processes are the job's, and the driver's SM share per process (not available inside most
    containers and on some drivers) or at least their memory.

When it is wrong
    A desktop holds a little memory on the GPU that drives it, hence the thresholds. Programs of the
    job's own user (in the same container) were put there on purpose as likely as not: they are
    information, as is what runs under MPS (nvidia-cuda-mps-server), where nothing takes turns.

What to do
    Move one of them to another GPU, or agree on times; where they must share, MPS lets kernels of
    several processes run side by side, and MIG gives each its own slice.

Thresholds
    others' SM time 8%: a desktop that redraws takes one to five percent. This job's own 3%: a job
    that runs less than that loses nothing to others.

    others' memory 2 GiB: a desktop and a browser stay below. A warning where the card is 90% full:
    then the job lacks what they hold. All are this project's choice (cases in tests/evaluation).

Sources
    NVML's process utilisation (share of SM time per process); NVIDIA's MPS documentation: without
    it, processes are time-sliced.
"""

from gpuwatch.core import units
from gpuwatch.core.model import Job
from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, loading, words
from gpuwatch.diagnosis.rules.shared.words import clear_if, highest, unknown_if
from gpuwatch.diagnosis.sentence import GPUS, IS, either, number

RULE = Rule(
    title="shared with others",
    gives_back="some",
    explains={"straggler", "memory_nearly_full", "busy_without_work", "batch_too_small"},
    lost_while_busy=True,
    look_alike=3,
)
OWN_PERCENT = 3.0  # of SM time
BUSY_PERCENT = 8.0  # of SM time
MEMORY_BYTES = 2 * words.GIB
CROWDED = 0.9  # of the card's memory

MPS_SERVER = "nvidia-cuda-mps-server"
NAMED_MOST = 3
"""Other processes that are named at most."""

_NO_SHARES = "SM share per process"


def check(window: Window) -> Verdict:
    job, gpus = loading.job_of(window), cards.present(window)
    # Either share is enough: a process that holds no memory runs nothing.
    known = [gpu for gpu in gpus if highest(_of_others(gpu)) is not None]
    unknown_if(not known, _NO_SHARES, "GPU memory per process")
    at_work = [gpu for gpu in known if not words.is_below(gpu.own_busy_percent, OWN_PERCENT)]
    taking = [gpu for gpu in at_work if words.is_at_least(gpu.foreign_busy_percent, BUSY_PERCENT)]
    holding = [gpu for gpu in at_work if words.is_at_least(gpu.foreign_memory_bytes, MEMORY_BYTES)]
    if taking:
        friendly = all(_is_friendly(job.job, gpu) for gpu in taking)
        return _together(taking) if friendly else _taking(job.job, taking)
    if holding:
        friendly = all(_is_friendly(job.job, gpu) for gpu in holding)
        return _holding(holding, friendly=friendly)
    clear_if(not at_work, "the job itself runs nothing")
    unknown_if(len(known) < len(gpus), _NO_SHARES)
    return Clear(f"no other process uses its {words.verb(gpus, 'GPU', 'GPUs')}")


def _of_others(gpu: GpuFacts) -> tuple[float | None, float | None]:
    return gpu.foreign_busy_percent, gpu.foreign_memory_bytes


def _others(gpus: list[GpuFacts]) -> list[str]:
    """Return the names of the processes that use most."""
    there = [one for gpu in gpus for one in gpu.others or ()]
    there.sort(key=lambda one: (-(one.gpu_busy_percent or 0.0), -(one.gpu_memory_bytes or 0)))
    names = list({one.pid: words.program(one) for one in there}.values())
    return names[:NAMED_MOST] or ["the others (nvidia-smi lists the processes)"]


def _runs_mps(gpu: GpuFacts) -> bool:
    return any(MPS_SERVER in (one.name or one.command or "") for one in gpu.others or ())


def _is_friendly(job: Job, gpu: GpuFacts) -> bool:
    """Check whether what others take goes to programs of the job's own user, or runs beside it
    under MPS, which serves one user at a time. In containers everybody is root."""
    if _runs_mps(gpu):
        return True
    at_work = [one for one in gpu.others or () if one.gpu_busy_percent != 0.0]
    return bool(at_work) and all(
        job.user is not None and (one.user, one.container) == (job.user, job.container)
        for one in at_work
    )


def _together(gpus: list[GpuFacts]) -> Firing:
    """Several programs of one user."""
    own = highest([gpu.own_busy_percent for gpu in gpus])
    share = highest([gpu.foreign_busy_percent for gpu in gpus]) or 0.0
    encoder = highest([gpu.encoder_percent for gpu in gpus])
    encodes, mps = words.is_at_least(encoder, cards.ENCODES_PERCENT), _runs_mps(gpus[0])
    count = max([len(gpu.others or ()) - _runs_mps(gpu) for gpu in gpus])
    programs = words.counted(count, "other program") if count else "other programs"
    how = " through MPS, side by side" if mps else " of the same user"
    taken = f"they take {number(share)}% of the time"
    briefly = f"they take {number(share)}%" + ("" if own is None else f", this one {number(own)}%")
    taken += "" if own is None else f", this one {number(own)}%"
    video = f"; the video encoder is {number(encoder or 0.0)}% busy" if encodes else ""
    why = "processes on one GPU take turns unless MPS runs their kernels side by side"
    if mps:
        why = "under MPS their kernels share the multiprocessors"
    elif encodes:
        why = "the encoder is what they share, not the multiprocessors"
    return Firing(
        severity="info",
        summary=f"{GPUS} {IS} shared with {programs}{how}: {taken}{video}",
        short=(f"{GPUS} {IS} shared with {programs}: {briefly}", _shared(share)),
        evidence=[
            *_evidence(gpus),
            Evidence("video encoder", encoder, "%", cards.ENCODES_PERCENT, supports=encodes),
        ],
        advice=(
            Advice("Leave it as it is if they get more done together: compare their combined "
                   "throughput with that of one after the other.",
                   brief="Leave it if they get more done together", why=why),
        ),
        strength=0.75,
        gpus=words.keys(gpus),
    )  # fmt: skip


def _shared(percent: float) -> str:
    return f"{GPUS} {IS} shared: others take {number(percent)}%"


def _taking(job: Job, gpus: list[GpuFacts]) -> Firing:
    share = highest([gpu.foreign_busy_percent for gpu in gpus]) or 0.0
    # In an order that is the same for all of them, so that they say one thing.
    own = highest([gpu.own_busy_percent for gpu in gpus])
    taken = " and ".join([f"{number(one)}%" for one in sorted([share, own or 0.0], reverse=True)])
    taken = f"{number(share)}% goes to others" if own is None else f"{taken} of the time"
    move = Advice(
        f"Move {units.listed(sorted([words.program(job), *_others(gpus)]), 'or')} to another GPU, "
        "or agree on times.",
        brief="Move one to another GPU, or agree on times",
        why="processes on one GPU take turns, and each waits for the other",
    )
    return Firing(
        summary=f"{GPUS} {IS} shared by several programs that take turns: {taken}",
        short=(f"{GPUS} {IS} shared by several programs: {taken}", _shared(share)),
        evidence=_evidence(gpus),
        advice=(move,),
        strength=0.75 + 0.25 * words.ramp(share, BUSY_PERCENT, 25.0),
        gpus=words.keys(gpus),
        lost_share=words.clamp(share / 100.0),
    )


def _holding(gpus: list[GpuFacts], *, friendly: bool) -> Firing:
    held = highest([gpu.foreign_memory_bytes for gpu in gpus]) or 0.0
    ask = Advice(
        f"Use another GPU, or ask whether {units.listed(_others(gpus))} can free it, before you "
        "try a larger batch.",
        brief="Use another GPU, or ask them to free this one",
        why="memory that others hold cannot be used here",
    )
    if friendly:
        ask = Advice(
            f"Count what {units.listed(_others(gpus))} may still need, before you try a larger "
            "batch.",
            brief="Count what the others may still need",
            why="programs that share a GPU share its memory as well",
        )
    own = "programs under MPS" if _runs_mps(gpus[0]) else "programs of the same user"
    holders = own if friendly else "processes"
    blind = any(gpu.foreign_busy_percent is None for gpu in gpus)
    little = "" if blind else f" but use {either('it', 'them')} little"
    return Firing(
        severity=None if any(_is_crowded(gpu) for gpu in gpus) else "info",
        summary=f"Other {holders} hold {words.amount(held)} of memory on {GPUS}{little}",
        short=(
            f"Other programs hold {words.amount(held)} of memory on {GPUS}",
            f"Others hold {words.amount(held)} on {GPUS}",
        ),
        evidence=_evidence(gpus),
        advice=(ask,),
        strength=0.7,
        missing=(_NO_SHARES,) if blind else (),
        gpus=words.keys(gpus),
        explains={"memory_nearly_full"},
    )


def _is_crowded(gpu: GpuFacts) -> bool:
    total, used = gpu.identity.memory_total_bytes, gpu.memory_used_bytes
    return total is not None and used is not None and used >= CROWDED * total


def _evidence(gpus: list[GpuFacts]) -> list[Evidence]:
    rows = []
    for gpu in gpus:
        name, busy, memory = words.named([gpu]), gpu.foreign_busy_percent, gpu.foreign_memory_bytes
        rows += [
            Evidence(f"{name} SM share of others", busy, "%", BUSY_PERCENT,
                     supports=(busy or 0.0) >= BUSY_PERCENT),
            Evidence(f"{name} SM share of this job", gpu.own_busy_percent, "%"),
            Evidence(f"{name} memory of others", memory, "bytes", float(MEMORY_BYTES),
                     supports=(memory or 0.0) >= MEMORY_BYTES),
        ]  # fmt: skip
    return rows
