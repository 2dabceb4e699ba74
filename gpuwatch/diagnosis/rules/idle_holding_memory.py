"""Processes hold a GPU's memory and do nothing.

What it checks
    Whether a GPU ran no kernel in all the time watched while much of its memory is held by
    processes that do not work on the CPU either.

Why it matters
    Nobody else can use the card: a forgotten notebook or a hanging job costs as much as one that
    trains. A deadlocked training job looks like this, too.

Evidence needed
    The busy share over half a minute, the memory held, the CPU time of the job's processes.

When it is wrong
    Servers wait for requests by design, a large model takes minutes to load (while its GPU memory
    fills, nothing is said), and a job between two phases will come back. So processes that use the
    CPU are left alone, and the rest is only information.

What to do
    Where the driver lists no process: it is in another container, or a crash left the memory. Else
    see whose it is and what it is doing (gpuwatch diagnose --stacks) before you end anything:
    others may be waiting for it. A notebook that nobody uses: shut its kernel down (the allocator
    keeps the memory of deleted variables).

Thresholds
    mean utilisation below 1% over the window: a monitor or a display causes a few tenths. For 30 s:
    checkpoints and the ends of epochs are mostly over by then.

    1 GiB held by the job's processes: a CUDA context alone takes some 300 MB in PyTorch since CUDA
    11.7 (before: up to 1 GB). 2 GiB where the processes are not known: the driver's is in it.

    CPU below 0.3 cores, 1 MB/s read and written: processes that use more are working; waiting
    notebooks and servers use less. All but the size of a context are this project's choice.

Sources
    PyTorch's notes on its caching allocator, and its issues 107667 and 28394 (size of a CUDA
    context).
"""

from collections.abc import Mapping, Sequence

from gpuwatch.core import units
from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.facts.window import GpuFacts, JobFacts
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, words
from gpuwatch.diagnosis.rules.shared.words import clear_if, unknown_if
from gpuwatch.diagnosis.sentence import GPUS, IS, either, of_several

_UNSEEN = Advice(
    "Look for its processes as root on the host: sudo fuser -v /dev/nvidia*. If there are none, a "
    "process that died has left it behind: nvidia-smi --gpu-reset, once nobody uses the card.",
    brief="See who holds it: sudo fuser -v /dev/nvidia*",
    why="processes in other containers are not listed, and a crash can leave memory behind",
)
RULE = Rule(
    title="idle, holds memory",
    severity="info",
    of_rest=True,
    explains={"oscillation"},
    has_look_alikes=False,
    charts=("memory_used_bytes",),
)
IDLE_PERCENT = 1.0
HELD_BYTES = words.GIB  # of the job's processes
UNNAMED_BYTES = 2 * words.GIB  # of the card
LONG_ENOUGH_SECONDS = 30.0
WORKING_CORES = 0.3
WORKING_BYTES_PER_SECOND = 1e6
NAMED_MOST = 2
"""Processes that hold it and are named at most."""


def check(window: Window) -> Verdict:
    job = window.job
    held = {gpu.uuid: _held(window, gpu) for gpu in cards.with_known_load(window.gpus)}
    known = {uuid: size for uuid, size in held.items() if size is not None}
    unknown_if(not known, "the GPUs' utilisation", "memory used")
    clear_if(window.starting, "the job is starting")
    least = UNNAMED_BYTES if job is None else HELD_BYTES
    holding = [gpu for gpu in window.gpus if known.get(gpu.uuid, 0.0) >= least]
    gpus = [gpu for gpu in holding if (gpu.busy_percent or 0.0) < IDLE_PERCENT]
    clear_if(not gpus, "no GPU with memory in use is idle")
    unknown_if(window.watched_seconds < LONG_ENOUGH_SECONDS, f"{LONG_ENOUGH_SECONDS:.0f} s of data")
    works = None if job is None else _other_work(job)
    clear_if(works is not None, works or "")
    filling = job is not None and any(map(cards.is_filling, gpus))
    clear_if(filling, "its GPU memory is still filling")
    return _firing(window, gpus, known, least)


def _other_work(job: JobFacts) -> str | None:
    """Return what the job's processes do on the CPU or with files, as a clause."""
    if job.cpu_cores is not None and job.cpu_cores >= WORKING_CORES:
        return f"its processes work on the CPU ({words.cores_of(job.cpu_cores)})"
    moved = words.mean([job.read_bytes_per_second, job.write_bytes_per_second])
    reads = words.is_at_least(moved, WORKING_BYTES_PER_SECOND)
    return "its processes read or write" if reads else None


def _firing(
    window: Window, gpus: list[GpuFacts], held: Mapping[GpuKey, float], least: float
) -> Firing:
    job, watched = window.job, window.watched_seconds
    cores = None if job is None else job.cpu_cores
    nobody = job is None and all(gpu.foreign_memory_bytes == 0.0 for gpu in gpus)
    missing = words.lacking({
        "the processes that hold it": job is None, "their CPU time": cores is None,
    })  # fmt: skip
    evidence = [
        *[Evidence(f"{words.named([gpu])} busy", gpu.busy_percent, "%", IDLE_PERCENT)
          for gpu in gpus],
        *[Evidence(f"{words.named([gpu])} memory held", held[gpu.uuid], "bytes", float(least))
          for gpu in gpus],
        Evidence("CPU of its processes", cores, "cores", WORKING_CORES, "they wait"),
    ]  # fmt: skip
    memory = sum([held[gpu.uuid] for gpu in gpus])
    memory_held = f"{words.amount(memory)} of memory {of_several('is', 'each is')} held"
    by = "" if job is None else f" by {either('its', 'their')} processes"
    by = " by no process that the driver lists" if nobody else by
    return Firing(
        # For how long is said beside it: a window is a minute at most.
        summary=f"{GPUS} {either('runs', 'run')} nothing while {memory_held}{by}",
        short=(
            f"{GPUS} {either('runs', 'run')} nothing while {memory_held}",
            f"{GPUS} {IS} idle, with {words.amount(memory)} held",
        ),
        evidence=evidence,
        advice=(_UNSEEN,) if nobody else (_advice(window, gpus),),
        strength=(0.6 if missing else 0.8) + 0.2 * words.ramp(watched, LONG_ENOUGH_SECONDS, 120.0),
        missing=missing,
        gpus=words.keys(gpus),
        lost_share=min(_held_part(window, gpu) for gpu in gpus),
    )


def _held(window: Window, gpu: GpuFacts) -> float | None:
    return gpu.memory_used_bytes if window.job is None else gpu.own_memory_bytes


def _held_part(window: Window, gpu: GpuFacts) -> float:
    """Time in which the memory was held, 0 to 1 of the window: a rest can begin with empty memory,
    and the mean is then below the highest."""
    highest, mean = gpu.memory_highest_bytes, gpu.memory_used_bytes
    if window.job is not None or not highest or mean is None:
        return 1.0
    return words.clamp(mean / highest)


def _advice(window: Window, gpus: Sequence[GpuFacts]) -> Advice:
    """Return what to look at first: that nobody waits for a process does not show from outside."""
    frees = "the memory is freed only when the process ends, and others may be waiting for it"
    if window.job is None:
        known = {one.pid: words.program(one) for gpu in gpus for one in gpu.others or ()}
        who = units.listed(list(known.values())[:NAMED_MOST]) or "what is on it (see nvidia-smi)"
        return Advice(
            f"Ask whoever started {who} before you end anything.",
            brief="Ask whoever started it before you end it",
            why=frees,
        )
    job = window.job.job
    see = f"Check what {words.program(job)} is doing: gpuwatch diagnose --stacks --pid {job.pid}."
    if any((gpu.busy_percent or 0.0) >= IDLE_PERCENT for gpu in cards.present(window)):
        why = "the job works on its other GPUs: it may need this one again"
        return Advice(see, brief="See whether the job still needs this GPU", why=why)
    act = f"{see} If nobody uses it any more, shut it down."
    return Advice(act, brief="Shut it down if nobody uses it any more", why=frees)
