"""What a tuning found, as one JSON object: printed, kept, and drawn from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gpuwatch.tuning.search import advice
from gpuwatch.tuning.search import trial as trials_of
from gpuwatch.tuning.search.intervals import Scatter
from gpuwatch.tuning.search.plan import Plan
from gpuwatch.tuning.search.search import Outcome
from gpuwatch.tuning.search.setting import Setting
from gpuwatch.tuning.search.trial import Trial

SCHEMA = 1


def result(
    outcome: Outcome,
    plan: Plan,
    description: Mapping[str, Any],
    *,
    target: str,
    step: str | None,
    machine: str,
    folder: str,
    budget_seconds: float,
    copies: Mapping[str, Any] | None = None,
    more_notes: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Everything measured. Rates are samples a second with 95% intervals; ``null``: not known.
    ``folder``: where it was run."""
    scatter = trials_of.scatter_of(outcome.trials)
    chosen = outcome.recommended
    settings = sorted(outcome.trials, key=lambda trial: _order(trial.setting))
    best = None if outcome.best is None else outcome.trial(outcome.best)
    own = Setting.from_dict(description["base"])
    return {
        "schema": SCHEMA,
        "kind": "tune",
        "target": target,
        "step": step,
        "taken_at_unix_seconds": time.time(),
        "machine": machine,
        "folder": folder,
        "usable_cores": plan.cores,
        "torch": description["torch"],
        "accelerator": description["accelerator"],
        "start_method": description["start_method"],
        "dataset": description["dataset"],
        "is_dataset": description["is_dataset"],
        "samples": plan.samples,
        "budget_seconds": budget_seconds,
        "seconds": outcome.seconds,
        "settled": outcome.settled,
        "interrupted": outcome.interrupted,
        "whole_epochs": outcome.whole_epochs,
        "grid": plan.grid,
        "settings": [
            {
                **trial.setting.as_dict(),
                **_measured(trial, scatter, best),
                "recommended": trial.setting == outcome.measured,
                "fastest": trial is best,
                "undecided": trial.setting in outcome.undecided,
                "own": trial.setting == own and not description["is_dataset"],
            }
            for trial in settings
        ],
        "comparisons": [
            {"knob": knob, "settings": [one.as_dict() for one in group]}
            for knob, group in outcome.groups
        ],
        "restart_seconds": (
            {"without": outcome.restarts[False], "persistent": outcome.restarts[True]}
            if outcome.restarts
            else None
        ),
        "copies": copies,
        "recommended": None if chosen is None else chosen.as_dict(),
        "call": None if chosen is None else list(_call(description, chosen)),
        "line": None if chosen is None else advice.line(description, chosen),
        "also_set": [] if chosen is None else advice.not_in_call(description, chosen),
        "reasons": advice.reasons(outcome, plan),
        "unmeasured": list(dict.fromkeys(outcome.unmeasured)),
        "notes": [*advice.notes(outcome, plan, description), *more_notes],
    }


def _call(description: Mapping[str, Any], setting: Setting) -> tuple[str, list[str]]:
    return advice.call(description, setting)


def _order(setting: Setting) -> tuple[Any, ...]:
    return (
        setting.batch_size or 0,
        setting.num_workers,
        setting.prefetch_factor or 0,
        setting.persistent_workers,
        setting.pin_memory,
    )


def _measured(trial: Trial, scatter: Scatter, best: Trial | None) -> dict[str, Any]:
    rate = trials_of.interval_of(trial, scatter) if trial.visits else None
    ratio = trials_of.compared(trial, best, scatter) if trial.alive and best is not None else None
    first = trial.cold[0] if trial.cold else None
    failure = trial.failure
    return {
        "visits": len(trial.visits),
        "samples_per_second": None if rate is None else rate.rate,
        "low": None if rate is None else rate.low,
        "high": None if rate is None else rate.high,
        "of_best": None if ratio is None else ratio.rate,
        "of_best_low": None if ratio is None else ratio.low,
        "of_best_high": None if ratio is None else ratio.high,
        "first_batch_seconds": trial.middle(lambda visit: visit.first_batch_seconds),
        "cores_used": trial.middle(lambda visit: visit.cores_used),
        "other_cores_used": trial.middle(lambda visit: visit.other_cores_used),
        "workers_memory_bytes": trial.middle(lambda visit: visit.workers_pss_bytes),
        "main_memory_bytes": trial.middle(lambda visit: visit.main_pss_bytes),
        "disk_read_bytes_per_second": trial.middle(lambda visit: visit.disk_bytes_per_second),
        "shm_bytes": trial.middle(lambda visit: visit.shm_used_bytes),
        "data_wait_share": trial.middle(lambda visit: visit.data_wait_share),
        "gpu_busy_percent": trial.middle(lambda visit: visit.gpu_busy_percent),
        "first_pass": (
            None
            if first is None
            else {
                "samples_per_second": first.samples_per_second,
                "disk_read_bytes_per_second": first.disk_bytes_per_second,
            }
        ),
        "all_passes_cold": bool(trial.visits) and len(trial.cold) == len(trial.visits),
        "dropped": trial.dropped,
        "failure": (
            None
            if failure is None
            else {
                "code": failure.code,
                "sentence": failure.sentence,
                "line": failure.line,
                "output": list(failure.output),
            }
        ),
    }
