"""Why a setting is recommended, and the line to paste. Pure; text for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuwatch.core import units
from gpuwatch.tuning.search import trial as trials_of
from gpuwatch.tuning.search.intervals import Scatter
from gpuwatch.tuning.search.plan import Plan
from gpuwatch.tuning.search.search import Outcome
from gpuwatch.tuning.search.setting import DEFAULT_PREFETCH, KNOBS, Setting
from gpuwatch.tuning.search.trial import Trial

FAILED = {
    "hang": "no batch came",
    "killed": "killed",
    "out_of_memory": "out of memory",
    "pickle": "cannot be pickled",
    "repeats": "every sample comes more than once",
    "shm": "too little /dev/shm",
    "worker_killed": "a worker was killed",
    "worker_exited": "a worker ended",
}
"""In a few words; the sentence is told apart."""
BUSY_SHARE = 0.85
"""Of the usable cores: then all of them count as in use."""
MORE_SHOWN = 2
OTHERS_SHARE = 0.25
ONLY_WITH_WORKERS = ("multiprocessing_context", "timeout")
"""What DataLoader refuses without workers."""


def call(description: Mapping[str, Any], setting: Setting) -> tuple[str, list[str]]:
    """What is called and its arguments, as in ``("DataLoader", ["dataset", "num_workers=4"])``."""
    takes = set(description["takes"])
    name = str(description["line_name"])
    if takes:
        return name, list(_of_function(description, setting))
    knobs = _knobs(description, setting)
    fixed = [
        f"{key}={value}"
        for key, value in description["line_arguments"]
        if setting.num_workers or key not in ONLY_WITH_WORKERS
    ]
    first = [one for one in fixed if one.partition("=")[0] in ("shuffle", "sampler")]
    later = [one for one in fixed if one not in first]
    batch = [f"batch_size={knobs.pop('batch_size')}"] if "batch_size" in knobs else []
    return name, ["dataset", *batch, *first, *(f"{k}={v}" for k, v in knobs.items()), *later]


def _of_function(description: Mapping[str, Any], setting: Setting) -> Iterator[str]:
    """What a function of the user's own is to be called with, where its defaults say otherwise."""
    values, defaults = setting.as_dict(), description["defaults"]
    for knob in ("batch_size", *KNOBS[:-1]):
        if knob not in description["takes"] or (knob == "batch_size" and values[knob] is None):
            continue
        default = defaults.get(knob)
        if knob == "prefetch_factor" and setting.num_workers and default is None:
            default = DEFAULT_PREFETCH
        always = knob in ("batch_size", "num_workers") or knob not in defaults
        if always or values[knob] != default:
            yield f"{knob}={values[knob]}"


def not_in_call(description: Mapping[str, Any], setting: Setting) -> list[str]:
    """What a function of the user's own does not take, so it is to be set inside of it."""
    takes = set(description["takes"])
    if not takes:
        return []
    base = Setting.from_dict(description["base"])
    if not base.num_workers or not setting.num_workers:
        # What cannot be set without workers is as DataLoader has it.
        base = base.with_knob("num_workers", setting.num_workers)
    own, values = base.as_dict(), setting.as_dict()
    return [f"{k}={values[k]}" for k in KNOBS if k not in takes and own[k] != values[k]]


def _knobs(description: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """Those worth writing: what is as DataLoader has it by itself is left out."""
    values = setting.as_dict()
    found = {"batch_size": values["batch_size"], "num_workers": values["num_workers"]}
    if "batch_size" in description["fixed"]:
        batches = any(key == "batch_sampler" for key, _ in description["line_arguments"])
        if batches:
            found.pop("batch_size")
    if setting.pin_memory:
        found["pin_memory"] = True
    if setting.num_workers and setting.prefetch_factor != DEFAULT_PREFETCH:
        found["prefetch_factor"] = setting.prefetch_factor
    if setting.persistent_workers:
        found["persistent_workers"] = True
    return {knob: found[knob] for knob in ("batch_size", *KNOBS) if knob in found}


def line(description: Mapping[str, Any], setting: Setting) -> str:
    name, arguments = call(description, setting)
    return f"{name}({', '.join(arguments)})"


def reasons(outcome: Outcome, plan: Plan) -> list[str]:
    """Why this one, why not fewer, why not more."""
    chosen = None if outcome.measured is None else outcome.trial(outcome.measured)
    if chosen is None or not chosen.alive:
        return []
    return [
        *_fewer(outcome, chosen),
        *_more(outcome, chosen, plan),
        *_other_knobs(outcome, chosen),
        *_restarts(outcome, plan, chosen),
    ]


def _workers_group(outcome: Outcome, chosen: Trial) -> list[Trial]:
    """Those that differ from the chosen by their workers alone; else all of that comparison."""
    alike = [
        trial
        for trial in outcome.trials
        if trial.setting.with_knob("num_workers", chosen.setting.num_workers) == chosen.setting
        or trial.setting == chosen.setting.with_knob("num_workers", trial.setting.num_workers)
    ]
    group = next((g for knob, g in outcome.groups if knob == "num_workers"), [])
    if len(alike) >= len(group):
        return sorted(alike, key=lambda trial: trial.setting.num_workers)
    found = [trial for one in group if (trial := outcome.trial(one)) is not None]
    return sorted(found, key=lambda trial: trial.setting.num_workers)


def _fewer(outcome: Outcome, chosen: Trial) -> Iterator[str]:
    count = chosen.setting.num_workers
    group = [trial for trial in _workers_group(outcome, chosen) if trial.alive]
    smaller = [trial for trial in group if trial.setting.num_workers < count]
    if smaller:
        last = smaller[-1]
        scatter = trials_of.scatter_of(outcome.trials)
        reached = trials_of.compared(last, _peer(group, count) or chosen, scatter)
        text = (
            f"Fewer: {_workers(last.setting.num_workers)} "
            f"{_verb(last.setting.num_workers, 'reach')} {100 * reached.rate:.0f}% of it"
        )
        if reached.low is not None and reached.high is not None:
            text += f" ({100 * reached.low:.0f}% to {100 * reached.high:.0f}%)"
        yield f"{text}."


def _more(outcome: Outcome, chosen: Trial, plan: Plan) -> Iterator[str]:
    count = chosen.setting.num_workers
    group = _workers_group(outcome, chosen)
    larger = [trial for trial in group if trial.setting.num_workers > count]
    peer = _peer(group, count) or chosen
    codes = {None if trial.failure is None else trial.failure.code for trial in larger}
    if len(larger) > 1 and len(codes) == 1 and not codes & {None, "too_slow"}:
        counts = " and ".join(str(trial.setting.num_workers) for trial in larger[:MORE_SHOWN])
        yield f"More: {counts} workers failed ({_failed(larger[0])})."
    else:
        told = [_one_more(trial, peer, outcome) for trial in larger[:MORE_SHOWN]]
        if told:
            yield f"More: {'; '.join(told)}."
    used = chosen.middle(lambda visit: visit.cores_used)
    if used is not None and used >= BUSY_SHARE * plan.cores and plan.cores > 1:
        yield (
            f"It uses {used:.1f} of the {plan.cores:g} usable cores: more workers would wait for "
            "each other. Only cheaper work for each sample, or more cores, makes it faster."
        )


def _one_more(trial: Trial, chosen: Trial, outcome: Outcome) -> str:
    name = _workers(trial.setting.num_workers)
    if trial.failure is not None and trial.failure.code != "too_slow":
        return f"{name} failed ({_failed(trial)})"
    if not trial.visits:
        return f"{name} {_verb(trial.setting.num_workers, 'was', 'were')} not measured"
    scatter = trials_of.scatter_of(outcome.trials)
    ratio = trials_of.compared(trial, chosen, scatter)
    text = f"{name} {_verb(trial.setting.num_workers, 'give')} {_gain(ratio.rate)}"
    if ratio.low is not None and ratio.high is not None:
        text += f" ({_signed(ratio.low)} to {_signed(ratio.high)})"
    more = _memory(trial, chosen)
    takes = _verb(trial.setting.num_workers, "take")
    return f"{text} and {takes} {more}" if more else text


def _failed(trial: Trial) -> str:
    code = "" if trial.failure is None else trial.failure.code
    return FAILED.get(code, "see below")


def _memory(trial: Trial, chosen: Trial) -> str | None:
    mine = trial.middle(lambda visit: visit.workers_pss_bytes)
    its = chosen.middle(lambda visit: visit.workers_pss_bytes)
    if mine is None or its is None or mine - its < 32 * 2**20:
        return None
    return f"{units.size(mine - its)} more memory"


def _other_knobs(outcome: Outcome, chosen: Trial) -> Iterator[str]:
    for knob, group in outcome.groups:
        if knob in ("num_workers", "everything"):
            continue
        trials = [trial for one in group if (trial := outcome.trial(one)) and trial.visits]
        alive = [trial for trial in trials if trial.alive]
        here = next(
            (one for one in alive if _value(one, knob) == getattr(chosen.setting, knob)), None
        )
        if here is None or len(trials) < 2:
            continue
        scatter = trials_of.scatter_of(alive)
        told = []
        for one in trials:
            if one is here:
                continue
            if one.failure is not None:
                told.append(f"{_value(one, knob)} failed")
                continue
            told.append(
                f"{_value(one, knob)} gives {_gain(trials_of.compared(one, here, scatter).rate)}"
            )
        yield f"{knob}={_value(here, knob)}: {', '.join(told)}."


def _restarts(outcome: Outcome, plan: Plan, chosen: Trial) -> Iterator[str]:
    if not outcome.restarts:
        return
    without, kept = outcome.restarts[False], outcome.restarts[True]
    saved = max(0.0, without - kept)
    text = (
        f"persistent_workers: the next epoch's first batch comes after {_seconds(kept)} instead "
        f"of {_seconds(without)}"
    )
    if plan.samples:
        epoch = plan.samples / _rate(chosen)
        text += f", {100 * saved / (epoch + saved):.1f}% of an epoch of {units.age(epoch)}"
    taken = outcome.recommended is not None and outcome.recommended.persistent_workers
    yield f"{text}{'.' if taken else ': not worth its memory.'}"


def notes(outcome: Outcome, plan: Plan, description: Mapping[str, Any]) -> list[str]:
    """What a reader should know of how this was measured."""
    found = list(outcome.notes)
    visits = [visit for trial in outcome.trials for visit in trial.counted]
    known = sorted(v.other_cores_used for v in visits if v.other_cores_used is not None)
    if known and (other := known[len(known) // 2]) > OTHERS_SHARE * plan.cores:
        found.append(
            f"Other processes used {other:.1f} of the {plan.cores:g} cores meanwhile, which more "
            "workers could have used: measure again when the machine is quiet."
        )
    if outcome.whole_epochs:
        found.append(
            "The dataset is so short that whole epochs were timed, with the start of their workers."
        )
    if outcome.fresh_samples:
        found.append(
            "The dataset is larger than memory can keep: every pass read other samples, from disk."
        )
    if description["start_method"] != "fork":
        found.append(f"Workers start by {description['start_method']}, which takes longer.")
    return found


def _peer(group: Sequence[Trial], count: int) -> Trial | None:
    return next((one for one in group if one.setting.num_workers == count and one.alive), None)


def _value(trial: Trial, knob: str) -> Any:
    return getattr(trial.setting, knob)


def _rate(trial: Trial) -> float:
    return trials_of.interval_of(trial, Scatter(0.0, 0.0)).rate


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _verb(count: int, one: str, many: str | None = None) -> str:
    """The verb after so many workers: ``reaches`` or ``reach``."""
    if many is not None:
        return one if count == 1 else many
    return one if count != 1 else f"{one}{'es' if one.endswith('ch') else 's'}"


def _gain(ratio: float) -> str:
    return "the same" if abs(ratio - 1) < 0.005 else _signed(ratio)


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f}%"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"
