"""Pauses of a job's GPUs: what a save is, their rhythm, the time they cost."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev

from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import REPORTED, Evidence, Pause
from gpuwatch.diagnosis.rules.shared import cards, words
from gpuwatch.diagnosis.rules.shared.loaders import WORKERS_AT_LIMIT_PERCENT
from gpuwatch.diagnosis.rules.shared.words import clamp
from gpuwatch.diagnosis.sentence import GPUS, either

IDLE_PERCENT = 10.0
"""A GPU that is busier meanwhile evaluates."""
EDGES_SECONDS = 1.0
"""Seconds of work: pauses are cut by the second, and hold half a second of it at each end."""
HALF_BUSY_PERCENT = 50.0
"""A GPU that gets a batch now and then is no busier."""
RESTS_PERCENT = 30.0
"""Percent of a core, by one thread or worker: whoever evaluates, loads for it or writes uses
more."""
COMPUTES_PERCENT = 60.0
"""Percent of a core: waiting for anything takes less."""
LATE_WORKER_PERCENT = 60.0
"""Percent of the time, that one worker is occupied; the machine may be crowded."""
REMEMBERED_SECONDS = 900.0
"""How long a window keeps pauses."""
FREED_SHARE = 0.2
"""Share of the memory held: who saves or evaluates keeps the model; a server that rests may unload
it."""
MOST_SHARE = 0.3
"""Share of the time: saves and evaluations that cost more are seldom, and waits that do are not."""
REGULAR = 0.35
"""Coefficient of variation of the distances up to which pauses come in a rhythm: saves every N
steps jitter with the steps; unrelated events scatter around 1."""
RECUR_SECONDS = 45.0
"""Waits for the loader that come regularly come at least so often: there are minutes between
evaluations."""


def is_wait_for_batch(pause: Pause) -> bool:
    """Check whether loader workers work or wait for storage meanwhile, the same as before: all of
    them, or one while the others and the main thread rest."""
    busiest, others = pause.busiest_worker_percent or 0.0, pause.other_workers_percent or 0.0
    if busiest < LATE_WORKER_PERCENT or pause.restart_seconds or pause.is_save:
        return False
    if pause.phase in REPORTED:
        return False
    return others >= WORKERS_AT_LIMIT_PERCENT or _main_rests(pause, HALF_BUSY_PERCENT)


def is_silent(pause: Pause) -> bool:
    """Check whether nothing of the job did anything that shows: no GPU, no thread, no disk. Who
    evaluates or writes a checkpoint does."""
    busiest = pause.busiest_worker_percent or 0.0
    return not pause.is_save and _main_rests(pause, IDLE_PERCENT) and busiest < RESTS_PERCENT


def is_at_work(pause: Pause) -> bool:
    """Check whether the main thread computed in it."""
    return (pause.main_thread_percent or 0.0) >= COMPUTES_PERCENT


def is_interruption(pause: Pause) -> bool:
    """Check whether it shows by itself what it was: the job says so, its GPU went on with other
    work, or other loader workers began."""
    worked = (pause.busy_percent or 0.0) / 100.0 * pause.seconds - EDGES_SECONDS
    return (
        worked >= IDLE_PERCENT / 100.0 * pause.seconds
        or pause.restart_seconds > 0.0
        or pause.phase in REPORTED
    )


def _main_rests(pause: Pause, gpu_percent: float) -> bool:
    busy, main = pause.busy_percent, pause.main_thread_percent
    if busy is None or main is None or pause.phase in REPORTED:
        return False
    return busy < gpu_percent and main < RESTS_PERCENT


def against_saving(window: Window) -> str | None:
    """Return what speaks against saves and evaluations as the reason for the pauses, a clause;
    ``None``: nothing does."""
    job, pauses = window.job, window.pauses
    if job is not None and job.job.serves is not None:
        return "it serves requests"
    if job is not None and job.job.simulates is not None:
        return "it runs environments between its updates"
    freed = [pause for pause in pauses if (pause.memory_freed_share or 0.0) >= FREED_SHARE]
    if 2 * len(freed) > len(pauses):
        return "memory was freed meanwhile, which speaks against saving and validation"
    if len(pauses) > 2 and lost_share(window, pauses) > MOST_SHARE:
        return "more than saving and validation usually take"
    return None


def who_paused(window: Window) -> str:
    """Return ``GPU 3``; a job without a GPU is a loop."""
    return GPUS if window.gpus else "The training loop"


def summary(window: Window, found: Sequence[Pause]) -> str:
    """Return how the summary of a finding about pauses begins: ``GPU 3 paused every 45 s, for up to
    8 s``."""
    who, every = who_paused(window), rhythm(found)
    often = {1: "once", 2: "twice"}.get(len(found), words.counted(len(found), "time"))
    times = often if every is None else f"every {words.lasting(every)}"
    longest = words.lasting(max([pause.seconds for pause in found]))
    return f"{who} paused {times}, for {'' if len(found) == 1 else 'up to '}{longest}"


def briefly(window: Window, found: Sequence[Pause], cause: str, in_a_word: str) -> tuple[str, str]:
    """Return the short forms of that summary: ``GPU 3 pauses for up to 8 s every 45 s: cause``, and
    ``GPU 3 pauses every 45 s to save`` with ``to save`` for a word."""
    who, every = cards.subject_briefly(window), rhythm(found)
    longest = words.lasting(max([pause.seconds for pause in found]))
    if every is not None:
        pauses, often = f"{who} {either('pauses', 'pause')}", f"every {words.lasting(every)}"
        return f"{pauses} for up to {longest} {often}: {cause}", f"{pauses} {often} {in_a_word}"
    often = {1: "once", 2: "twice"}.get(len(found), words.counted(len(found), "time"))
    up_to = "" if len(found) == 1 else "up to "
    paused = f"{who} paused {often}"
    return f"{paused}, for {up_to}{longest}: {cause}", f"{paused} {in_a_word}"


def count_evidence(
    window: Window, found: Sequence[Pause], name: str, least: float | None = None
) -> Evidence:
    says = f"in the last {words.lasting(watched_seconds(window))}"
    return Evidence(name, float(len(found)), None, least, says)


def longest_evidence(found: Sequence[Pause], says: str) -> Evidence:
    return Evidence("longest pause", max([pause.seconds for pause in found]), "s", says=says)


def lost_evidence(lost: float, least: float | None = None) -> Evidence:
    limit, supports = None if least is None else 100.0 * least, lost >= (least or 0.0)
    says = "of the time watched"
    return Evidence("time lost", 100.0 * lost, "%", limit, says, supports=supports)


def reported_evidence(pauses: Sequence[Pause], phase: str) -> Evidence | None:
    """Return in how many of these pauses the job itself reported the phase; ``None``: in none."""
    reported = sum([pause.phase == phase for pause in pauses])
    does = "saved a checkpoint" if phase == "checkpoint" else "validated"
    if not reported:
        return None
    says = f"the job reported that it {does}"
    return Evidence(f"reported as {phase}", float(reported), says=says)


def idle_part(pause: Pause) -> float:
    """0 to 1: how much of the pause the GPU idled; a validation works on."""
    return 1.0 if pause.busy_percent is None else clamp(1.0 - pause.busy_percent / 100.0)


def rhythm(pauses: Sequence[Pause]) -> float | None:
    """Mean distance of the pauses' begins in seconds, where at least three are regular."""
    if len(pauses) < 3:
        return None
    distances = [
        later.at_unix_seconds - earlier.at_unix_seconds for earlier, later in pairwise(pauses)
    ]
    mean = fmean(distances)
    return None if mean <= 0.0 or pstdev(distances) / mean > REGULAR else mean


def watched_seconds(window: Window) -> float:
    """Over how long the window's pauses were gathered."""
    known = window.gathered_seconds if window.job is None else window.job.watched_seconds
    return min(REMEMBERED_SECONDS, max(window.watched_seconds, known))


def lost_share(window: Window, pauses: Sequence[Pause]) -> float:
    """0 to 1: of that time, what GPUs idled in these pauses, and not for new loader workers."""
    watched = watched_seconds(window)
    idle = sum([max(0.0, one.seconds * idle_part(one) - one.restart_seconds) for one in pauses])
    return min(1.0, idle / watched) if watched > 0.0 else 0.0


def pause_share(window: Window, gpu: GpuKey | None = None) -> float:
    """0 to 1: the part of the watched time that this GPU (or any) idled in pauses, in one that
    goes on, too.

    Where the loader workers are at their limit all the time, what looks like a pause is a long
    wait for batches: workers that work in step deliver in bursts. Only saves count then.
    """
    if window.watched_seconds <= 0.0:
        return 0.0
    begin = window.taken_at_unix_seconds - window.seconds
    idle = 0.0
    for pause in real_pauses(window, (*window.pauses, *window.ongoing)):
        if gpu is None or not pause.gpus or gpu in pause.gpus:
            end = pause.at_unix_seconds + pause.seconds
            idle += max(0.0, end - max(begin, pause.at_unix_seconds)) * idle_part(pause)
    return min(1.0, idle / window.watched_seconds)


def idle_outside_pauses(window: Window, gpu: GpuFacts) -> float:
    """0 to 1: the part of the time that it idles outside pauses."""
    return gpu.idle_share - pause_share(window, gpu.uuid)


def waits_share(window: Window, gpu: GpuFacts) -> float:
    """0 to 1: what of that lies in waits that the samples show, from work down to the bottom. The
    rest are gaps within samples: there, many small causes add up, or one that no wait shows."""
    seen = 0.0 if gpu.busy is None else 1.0 - gpu.busy.duty
    return min(gpu.idle_share, seen) - pause_share(window, gpu.uuid)


def real_pauses(window: Window, pauses: tuple[Pause, ...] | None = None) -> tuple[Pause, ...]:
    """Return the window's finished pauses, or ``pauses``, without waits for the loader."""
    found = window.pauses if pauses is None else pauses
    if window.job is not None and window.job.job.serves is not None:
        # A server pauses for want of requests.
        return tuple([pause for pause in found if pause.is_save])
    every = rhythm([pause for pause in window.pauses if is_wait_for_batch(pause)])
    if every is not None and every > RECUR_SECONDS:
        return found
    return tuple([pause for pause in found if not is_wait_for_batch(pause)])
