"""Which settings a search may choose from. Pure."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuwatch.core.text import SentenceError
from gpuwatch.tuning.settings import KNOBS, NAMES, WORKERS, Description, Setting

PREFETCH = (2, 4, 8)
WORKERS_MOST = 64
"""Of those that are tried without being asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``base``: where the search starts. ``workers``: the counts to try, ``None``: searched for.

    ``others``: values of the further knobs, those with more than one and those that only a
    setting with workers can hold.
    """

    base: Setting
    workers: tuple[int, ...] | None
    others: Mapping[str, tuple[Any, ...]]
    cores: float
    samples: int | None = None
    iterable: bool = False
    grid: bool = False
    notes: tuple[str, ...] = ()

    def varied(self) -> list[str]:
        """The further knobs that have several values, in the order in which they are tried."""
        return [knob.name for knob in KNOBS if len(self.others.get(knob.name, ())) > 1]

    def with_workers(self, count: int) -> Setting:
        setting = self.base.with_knobs(num_workers=count)
        single = {knob: values[0] for knob, values in self.others.items() if len(values) == 1}
        return setting.with_knobs(**single) if count else setting

    def ladder(self) -> list[int]:
        if self.workers is not None:
            return sorted(self.workers)
        rungs = [0, 1]
        while rungs[-1] * 2 <= max(4, 2 * round(self.cores)):
            rungs.append(rungs[-1] * 2)
        own = self.base.num_workers
        return sorted({*rungs, own} if own <= WORKERS_MOST else rungs)

    def combinations(self) -> list[Setting]:
        values: dict[str, tuple[Any, ...]] = {
            knob: (value,) for knob, value in self.base.as_dict().items()
        }
        values |= {**self.others, WORKERS: tuple(self.ladder())}
        every = itertools.product(*(values[knob] for knob in NAMES))
        found = [Setting(**dict(zip(NAMES, one, strict=True))).valid() for one in every]
        return list(dict.fromkeys(found))


def make_plan(
    description: Description,
    asked: Mapping[str, tuple[Any, ...]],
    *,
    cores: float,
    grid: bool = False,
) -> Plan:
    """From what the target is and what was asked for (knob: values). Raises ``SentenceError``."""
    for knob, why in description.fixed.items():
        if asked.get(knob):
            raise SentenceError(f"{knob} cannot be varied: {why}.")
    base, workers = description.base, asked.get(WORKERS)
    others = {knob: values for knob, values in asked.items() if knob != WORKERS}
    notes: list[str] = []
    if description.accelerator is not None:
        others.setdefault("pin_memory", (False, True))
    elif others.pop("pin_memory", None):
        notes.append("pin_memory: left as it is, since it does nothing without a GPU.")
    else:
        notes.append("pin_memory: not measured, since there is no GPU to copy to.")
    others.setdefault("prefetch_factor", tuple(sorted({*PREFETCH, base.prefetch_factor or 2})))
    others.setdefault("persistent_workers", (False, True))
    for knob, values in list(others.items()):
        if len(values) == 1:
            base = base.with_knobs(**{knob: values[0]})
            # Without workers the base cannot hold it: it is put in again with the first worker.
            if getattr(base, knob) == values[0]:
                del others[knob]
    if workers == (0,):
        others = {k: v for k, v in others.items() if k in ("pin_memory", "batch_size")}
    return Plan(
        base=base,
        workers=workers,
        others=others,
        cores=cores,
        samples=description.samples,
        iterable=description.iterable,
        grid=grid,
        notes=tuple(notes),
    )


def halfway(tried: Sequence[int], around: Sequence[int]) -> list[int]:
    """Counts halfway to the neighbours of ``around``, where a fifth or more lies between."""
    found: list[int] = []
    for one in around:
        place = tried.index(one)
        for other in (*tried[max(0, place - 1) : place], *tried[place + 1 : place + 2]):
            middle = (one + other) // 2
            if middle not in (*tried, *found) and abs(one - other) > max(1, one // 5):
                found.append(middle)
    return found
