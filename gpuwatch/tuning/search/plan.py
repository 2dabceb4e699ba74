"""Which settings a search may choose from. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuwatch.tuning.search.setting import KNOBS, Setting

PREFETCH = (2, 4, 8)
WORKERS_MOST = 64
"""Of those that are tried without being asked for."""


class PlanError(Exception):
    """What was asked for cannot be varied; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``base``: where the search starts. ``workers``: the counts to try, ``None``: searched for.

    ``others``: values of the further knobs, only those with more than one.
    """

    base: Setting
    workers: tuple[int, ...] | None
    others: Mapping[str, tuple[Any, ...]]
    cores: float
    samples: int | None = None
    iterable: bool = False
    grid: bool = False
    notes: tuple[str, ...] = field(default=())

    def ladder(self) -> list[int]:
        """The counts of workers that are tried first, in order."""
        if self.workers is not None:
            return sorted(self.workers)
        most = max(4, 2 * round(self.cores))
        rungs = [0, 1]
        while rungs[-1] * 2 <= most:
            rungs.append(rungs[-1] * 2)
        own = self.base.num_workers
        return sorted({*rungs, own} if own <= WORKERS_MOST else rungs)

    def combinations(self) -> list[Setting]:
        """All settings of a full grid."""
        values: dict[str, Sequence[Any]] = {knob: (getattr(self.base, knob),) for knob in KNOBS}
        values["num_workers"] = self.ladder()
        values.update(self.others)
        found = [
            Setting(**dict(zip(KNOBS, combination, strict=True))).valid()
            for combination in itertools.product(*(values[knob] for knob in KNOBS))
        ]
        return list(dict.fromkeys(found))


def make_plan(
    description: Mapping[str, Any],
    asked: Mapping[str, tuple[Any, ...]],
    *,
    cores: float,
    grid: bool = False,
) -> Plan:
    """From what the target is and what was asked for (knob: values). Raises ``PlanError``."""
    base = Setting.from_dict(description["base"])
    notes: list[str] = []
    for knob, why in description["fixed"].items():
        if asked.get(knob):
            raise PlanError(f"{knob} cannot be varied: {why}.")
    others = {knob: values for knob, values in asked.items() if knob != "num_workers"}
    workers = asked.get("num_workers")
    if description["accelerator"] is None:
        if others.pop("pin_memory", None):
            notes.append("pin_memory: left as it is, since it does nothing without a GPU.")
        else:
            notes.append("pin_memory: not measured, since there is no GPU to copy to.")
    else:
        others.setdefault("pin_memory", (False, True))
    others.setdefault("prefetch_factor", tuple(sorted({*PREFETCH, base.prefetch_factor or 2})))
    others.setdefault("persistent_workers", (False, True))
    for knob, values in list(others.items()):
        if len(values) == 1:
            base = base.with_knob(knob, values[0])
            # Without workers the base cannot hold it: it is put in again with the first worker.
            if getattr(base, knob) != values[0]:
                continue
            del others[knob]
    if workers == (0,):
        others = {k: v for k, v in others.items() if k in ("pin_memory", "batch_size")}
    return Plan(
        base=base,
        workers=workers,
        others=others,
        cores=cores,
        samples=description["samples"],
        iterable=description["iterable"],
        grid=grid,
        notes=tuple(notes),
    )
