"""GPUs that keep step: those of one job, or those that look like one where no process is known."""

from collections.abc import Sequence

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Evidence
from gpuwatch.diagnosis.rule import Clear, Settled, Unknown
from gpuwatch.diagnosis.rules.shared import loading
from gpuwatch.diagnosis.rules.shared.cards import with_load, works
from gpuwatch.diagnosis.rules.shared.words import gib, highest, mean

IN_STEP = 0.5
"""Mean correlation of power or utilisation from which GPUs do the same at the same time."""
LEAST_GPUS = 4
"""Where their load does not vary: three that agree and one that differs are a pattern, and two
separate jobs are none."""
TAKEN_SHARE = 0.7
"""Of the card: frameworks that take their memory in advance (JAX 0.75, TensorFlow and vLLM 0.9)
hold the same on every GPU, whatever runs there."""


def ranks_of(window: Window) -> list[GpuFacts]:
    """Two or more."""
    gpus = with_load(window)
    if len(gpus) < 2:
        if (loading.job_of(window).job.world_size or 0) > 1:
            raise Settled(Unknown(("the ranks on other machines",)))
        raise Settled(Clear("a single GPU waits for no other"))
    if window.starting:
        raise Settled(Clear("the job is starting"))
    return gpus


def is_sure(window: Window) -> bool:
    """Check whether they are of one job: processes say so, or they do the same at the same time."""
    moves = highest([window.busy_together, window.power_together])
    return window.job is not None or (moves or 0.0) >= IN_STEP


def are_one_job(window: Window, gpus: Sequence[GpuFacts]) -> bool:
    """The same, or at least their memory makes them look like it."""
    shares = [
        (gpu.memory_used_bytes or 0.0) / (gpu.identity.memory_total_bytes or 1) for gpu in gpus
    ]
    alike = len(gpus) >= LEAST_GPUS and min(shares) > 0.0 and max(shares) < TAKEN_SHARE
    return alike or is_sure(window)


def looks(window: Window) -> str:
    """The end of a sentence about ranks that no process shows to be ones."""
    return "; these GPUs look like one job" if window.job is None else ""


def likeness(window: Window, gpus: Sequence[GpuFacts]) -> Evidence | None:
    """The signs of it, where no process says so."""
    held = [gpu.memory_used_bytes or 0.0 for gpu in gpus]
    moves = highest([window.busy_together, window.power_together])
    value, sure = None if moves is None else round(moves, 2), is_sure(window)
    says = f"one model, {gib(min(held))} to {gib(max(held))} in use, load that rises and falls "
    says += "together" if sure else "each for itself, or too little to be compared"
    evidence = Evidence("move together", value, "correlation", IN_STEP, says, supports=sure)
    return evidence if window.job is None else None


def is_one_of_several(window: Window, found: loading.Underfed) -> bool:
    """Check whether the GPUs of most other ranks are busy meanwhile: then these save, log or
    evaluate as likely as they load."""
    few = 2 * len(found.gpus) <= len(works(window.gpus))
    return len(found.job.ranks) > 1 and few and not found.reported_only


def least_while_idle(found: loading.Underfed, cpu_percent: float) -> float:
    """Of a thread that uses so much of a core: what it used while the GPUs idled, if it spun for
    them all the time that they were busy."""
    return max(0.0, min(100.0, (cpu_percent - 100.0 * found.busy_share) / found.idle_share))


def main_works_percent(found: loading.Underfed, spins_from: int = 2) -> float | None:
    """The main threads' CPU while the GPUs idled; where samples do not show when they worked, and
    so many ranks or more may have spun for their GPUs, at least."""
    main, ranks = found.main_idle_percent, len(found.job.ranks)
    known = found.job.main_thread_when_idle_percent is not None or ranks < spins_from
    return main if main is None or known else least_while_idle(found, main)


def held_up(window: Window) -> loading.Underfed | None:
    """A job of several ranks whose GPUs look fed while its main threads wait for cores: in each
    step another one is late, and all others spend that time in a collective."""
    job, gpus = window.job, works(window.gpus)
    if job is None or not gpus or len(job.ranks) < 2 or loading.too_early(window) is not None:
        return None
    waits = mean([rank.run_queue_wait_percent for rank in job.ranks]) or 0.0
    found = loading.Underfed(
        job=job,
        gpus=tuple(gpus),
        idle_share=sum([gpu.idle_share for gpu in gpus]) / len(gpus),
        ranks=loading.driving(job, gpus),
        held_up_percent=waits,
    )
    return found if waits >= loading.HELD_UP_PERCENT else None
