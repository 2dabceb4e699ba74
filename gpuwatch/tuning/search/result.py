"""A tuning's result: one record, which is the JSON, and is drawn as text."""

import time
from operator import attrgetter
from typing import Any

from msgspec import Struct

from gpuwatch.tuning.search import advice
from gpuwatch.tuning.search.plan import Plan
from gpuwatch.tuning.search.rates import Scatter, Trial, interval, scatter_of
from gpuwatch.tuning.search.visits import Outcome
from gpuwatch.tuning.settings import KNOBS, Description, Failure, Setting, Visit

SCHEMA = 1


class FirstPass(Struct, frozen=True, kw_only=True):
    """A visit that read from the disk."""

    samples_per_second: float
    disk_read_bytes_per_second: float | None


class Row(Setting, frozen=True, kw_only=True):
    """A setting and all its visits (medians). Rates with 95% intervals; ``None``: not known."""

    visits: int
    samples_per_second: float | None = None
    low: float | None = None
    high: float | None = None
    of_best: float | None = None
    of_best_low: float | None = None
    of_best_high: float | None = None
    first_batch_seconds: float | None = None
    cores_used: float | None = None
    other_cores_used: float | None = None
    workers_memory_bytes: float | None = None
    main_memory_bytes: float | None = None
    disk_read_bytes_per_second: float | None = None
    shm_bytes: float | None = None
    data_wait_share: float | None = None
    gpu_busy_percent: float | None = None
    first_pass: FirstPass | None = None
    all_passes_cold: bool = False
    dropped: str | None = None
    failure: Failure | None = None
    recommended: bool = False
    fastest: bool = False
    undecided: bool = False
    own: bool = False

    @property
    def setting(self) -> Setting:
        return Setting(**{name: getattr(self, name) for name in Setting.__struct_fields__})


class Comparison(Struct, frozen=True):
    """Settings that differ by one knob."""

    knob: str
    settings: tuple[Setting, ...]


class Restarts(Struct, frozen=True):
    """Seconds to a second epoch's first batch, without and with persistent workers."""

    without: float
    persistent: float


class Result(Struct, frozen=True, kw_only=True):
    """Everything measured. Rates are samples a second. ``folder``: where it was run."""

    schema: int = SCHEMA
    kind: str = "tune"
    target: str
    step: str | None
    taken_at_unix_seconds: float
    machine: str
    folder: str
    usable_cores: float
    torch: str
    accelerator: str | None
    start_method: str
    dataset: str
    is_dataset: bool
    samples: int | None
    budget_seconds: float
    seconds: float
    settled: bool
    interrupted: bool
    whole_epochs: bool
    grid: bool
    settings: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]
    restart_seconds: Restarts | None
    recommended: Setting | None
    call: tuple[str, tuple[str, ...]] | None
    line: str | None
    also_set: tuple[str, ...]
    reasons: tuple[str, ...]
    unmeasured: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def chosen(self) -> Row | None:
        return next((row for row in self.settings if row.recommended), None)

    def varied(self, knob: str) -> bool:
        """True if several of its values were measured."""
        known = {getattr(row, knob) for row in self.settings if row.visits} - {None}
        return len(known) > 1


def make_result(
    outcome: Outcome,
    plan: Plan,
    description: Description,
    *,
    more_notes: tuple[str, ...] = (),
    **where: Any,
) -> Result:
    """``where``: target, step, folder, machine and budget_seconds of the ``Result``."""
    chosen, best = outcome.recommended, outcome.trial(outcome.best)
    scatter = scatter_of(outcome.trials)
    own = None if description.is_dataset else description.base
    call = None if chosen is None else advice.call(description, chosen)
    restarts = outcome.restarts
    loader = ("torch", "accelerator", "start_method", "dataset", "is_dataset")
    where |= {name: getattr(description, name) for name in loader}
    ended = ("seconds", "settled", "interrupted", "whole_epochs")
    where |= {name: getattr(outcome, name) for name in ended}
    return Result(
        taken_at_unix_seconds=time.time(),
        usable_cores=plan.cores,
        samples=plan.samples,
        grid=plan.grid,
        settings=tuple(
            Row(
                **trial.setting.as_dict(),
                **_measured(trial, scatter, best),
                recommended=trial.setting == outcome.measured,
                fastest=trial is best,
                undecided=trial.setting in outcome.undecided,
                own=trial.setting == own,
            )
            for trial in sorted(outcome.trials, key=lambda trial: _order(trial.setting))
        ),
        comparisons=tuple(Comparison(knob, tuple(group)) for knob, group in outcome.groups),
        restart_seconds=Restarts(restarts[False], restarts[True]) if restarts else None,
        recommended=chosen,
        call=None if call is None else (call[0], tuple(call[1])),
        line=None if chosen is None else advice.line(description, chosen),
        also_set=() if chosen is None else tuple(advice.not_in_call(description, chosen)),
        reasons=tuple(advice.reasons(outcome, plan)),
        unmeasured=tuple(outcome.unmeasured),
        notes=(*advice.notes(outcome, plan, description), *more_notes),
        **where,
    )


def _order(setting: Setting) -> tuple[int, ...]:
    values = setting.as_dict()
    knobs = sorted(KNOBS, key=lambda knob: knob.name == "pin_memory")
    return tuple(values[knob.name] or 0 for knob in knobs)


_MEDIANS = [
    name for name in Row.__struct_fields__ if name != "samples_per_second" and hasattr(Visit, name)
]
"""Of a row, as the visits have them."""


def _measured(trial: Trial, scatter: Scatter, best: Trial | None) -> dict[str, Any]:
    found: dict[str, Any] = {name: trial.middle(attrgetter(name)) for name in _MEDIANS}
    if trial.visits:
        rate = interval(trial.rates, scatter)
        found |= zip(("samples_per_second", "low", "high"), rate, strict=True)
    if trial.alive and best is not None:
        ratio = trial.compared(best, scatter)
        found |= zip(("of_best", "of_best_low", "of_best_high"), ratio, strict=True)
    if trial.cold:
        first = trial.cold[0]
        found["first_pass"] = FirstPass(
            samples_per_second=first.samples_per_second,
            disk_read_bytes_per_second=first.disk_read_bytes_per_second,
        )
    return {
        **found,
        "visits": len(trial.visits),
        "all_passes_cold": bool(trial.visits) and len(trial.cold) == len(trial.visits),
        "dropped": trial.dropped,
        "failure": trial.failure,
    }
