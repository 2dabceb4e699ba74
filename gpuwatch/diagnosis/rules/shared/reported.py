"""Reports of a job on its own training loop (``gpuwatch.torch``), as evidence: it knows how long
it waits for data, which from outside can only be inferred."""

from collections.abc import Callable, Sequence

from gpuwatch.diagnosis.facts.window import LoopFacts, RankFacts
from gpuwatch.diagnosis.finding import Evidence
from gpuwatch.diagnosis.rule import Clear
from gpuwatch.diagnosis.rules.shared.words import mean, percent_of, ramp

FED_SHARE = 0.05
"""Of the time: a loop that waits less for its data is not input-bound; TensorFlow's profiler calls
5% of the step time "moderately" so."""
STARVED_SHARE = 0.10
"""From here on the wait costs what makes a GPU count as under-fed."""
SURE_SHARE = 0.30
"""Here nobody doubts it."""
COPIES_SHARE = 0.05
"""Of the time, in copies to the GPU: the same measure as for waits."""
APART_SHARE = 0.10
"""Ranks that do the same wait alike; what a step more or less makes in a window is below this."""


def _of(ranks: Sequence[RankFacts], read: Callable[[LoopFacts], float | None]) -> float | None:
    """Mean over the ranks; ``None`` unless each of them reports."""
    values = [None if rank.loop is None else read(rank.loop) for rank in ranks]
    return None if None in values else mean(values)


def reported_wait(ranks: Sequence[RankFacts]) -> float | None:
    """0 to 1: of the time they wait for data, on average."""
    return _of(ranks, lambda loop: loop.data_wait_share)


def reported_copies(ranks: Sequence[RankFacts]) -> float | None:
    """0 to 1: of the time that copies to the GPU take."""
    return _of(ranks, lambda loop: loop.copy_share)


def not_starved(ranks: Sequence[RankFacts]) -> Clear | None:
    """The answer of the loader's rules where the job itself says that it has its data in time."""
    wait = reported_wait(ranks)
    if wait is None or wait >= FED_SHARE:
        return None
    return Clear(f"the job reports waiting for data {wait:.0%} of the time")


def wait_evidence(
    wait: float | None, limit: float = STARVED_SHARE, *, fed: bool = False
) -> Evidence | None:
    """``fed``: the cause is another one, as a job shows that waits for less than ``limit``."""
    if wait is None:
        return None
    supports, says = (wait < limit) is fed, "reported by the job"
    if fed:
        part = "it has its data in time" if supports else "part of the idle time is the loader's"
        says += f": {part}"
    percent, unit = percent_of(wait), "% of the time"
    return Evidence("waits for data", percent, unit, 100.0 * limit, says, supports=supports)


def wait_clearness(wait: float | None) -> tuple[float, ...]:
    """Measure how clear it is that the loop waits for data, counted twice beside what is inferred
    from outside; nothing where nobody reports."""
    if wait is None or wait < STARVED_SHARE:
        return ()
    clear = 0.5 + 0.5 * ramp(wait, STARVED_SHARE, SURE_SHARE)
    return (clear, clear)
