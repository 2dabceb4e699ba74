"""What a job reports of its own training loop (``gpuwatch.torch``), as evidence: it knows how long
it waits for data, which from outside can only be inferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuwatch.diagnosis.facts.window import LoopFacts, RankFacts
from gpuwatch.diagnosis.finding import Evidence
from gpuwatch.diagnosis.rule import Clear

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
    """Mean over the ranks; ``None`` unless each of them tells."""
    values = [None if rank.told is None else read(rank.told) for rank in ranks]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def told_wait(ranks: Sequence[RankFacts]) -> float | None:
    """0 to 1: of the time they wait for data, on average; ``None`` unless all of them tell."""
    return _of(ranks, lambda told: told.data_wait_share)


def told_copies(ranks: Sequence[RankFacts]) -> float | None:
    """0 to 1: of the time that copies to the GPU take."""
    return _of(ranks, lambda told: told.copy_share)


def not_starved(ranks: Sequence[RankFacts]) -> Clear | None:
    """The answer of the loader's rules where the job itself says that it has its data in time."""
    wait = told_wait(ranks)
    if wait is None or wait >= FED_SHARE:
        return None
    return Clear(why=f"the job reports waiting for data {wait:.0%} of the time")


def wait_evidence(ranks: Sequence[RankFacts]) -> list[Evidence]:
    wait = told_wait(ranks)
    if wait is None:
        return []
    return [
        Evidence(
            name="waits for data",
            value=round(100.0 * wait, 1),
            unit="% of the time",
            threshold=100.0 * STARVED_SHARE,
            says="reported by the job",
            supports=wait >= STARVED_SHARE,
        )
    ]


def fed_evidence(ranks: Sequence[RankFacts]) -> list[Evidence]:
    """The same where the cause is another one."""
    wait = told_wait(ranks)
    if wait is None:
        return []
    fed = wait < FED_SHARE
    return [
        Evidence(
            name="waits for data",
            value=round(100.0 * wait, 1),
            unit="% of the time",
            threshold=100.0 * FED_SHARE,
            says="reported by the job"
            + (": it has its data in time" if fed else ": part of the idle time is the loader's"),
            supports=fed,
        )
    ]


def wait_clearness(wait: float | None) -> tuple[float, ...]:
    """How clear it is that the loop waits for data, counted twice beside what is inferred from
    outside; nothing where nobody tells."""
    if wait is None or wait < STARVED_SHARE:
        return ()
    clear = 0.5 + 0.5 * min(1.0, (wait - STARVED_SHARE) / (SURE_SHARE - STARVED_SHARE))
    return (clear, clear)


def waits_more(rank: RankFacts, others: Sequence[RankFacts]) -> tuple[float, float] | None:
    """What this rank waits for its data and what the others do, where it is clearly more."""
    own, theirs = told_wait([rank]), told_wait(others)
    if own is None or theirs is None or own < max(STARVED_SHARE, theirs + APART_SHARE):
        return None
    return own, theirs
