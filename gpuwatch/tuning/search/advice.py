"""The grounds for a recommendation, and the line to paste. Pure; text for a person."""

from collections.abc import Iterator, Sequence

from gpuwatch.core import units
from gpuwatch.tuning.search.plan import Plan
from gpuwatch.tuning.search.rates import Trial, scatter_of
from gpuwatch.tuning.search.visits import Outcome
from gpuwatch.tuning.settings import DEFAULT_PREFETCH, KNOBS, NAMES, WORKERS, Description, Setting

BUSY_SHARE = 0.85
"""Of the usable cores: beyond it all of them count as in use."""
MORE_SHOWN = 2
OTHERS_SHARE = 0.25
MEMORY_LEAST_BYTES = 32 << 20
ONLY_WITH_WORKERS = ("multiprocessing_context", "timeout")
"""Arguments that DataLoader refuses without workers."""
ALWAYS_WRITTEN = ("batch_size", WORKERS)
_LINE_ORDER = ("batch_size", *NAMES[:-1])
_PLAIN = {knob.name: knob.plain for knob in KNOBS}


def call(description: Description, setting: Setting) -> tuple[str, list[str]]:
    """A callable and its arguments, as in ``("DataLoader", ["dataset", "num_workers=4"])``."""
    values = setting.as_dict()
    if description.takes:
        return description.line_name, list(_of_function(description, setting))
    given = dict(description.line_arguments)
    fixed = [
        f"{key}={value}"
        for key, value in given.items()
        if setting.num_workers or key not in ONLY_WITH_WORKERS
    ]
    order = [one for one in fixed if one.partition("=")[0] in ("shuffle", "sampler")]
    written = {
        knob: f"{knob}={values[knob]}"
        for knob in _LINE_ORDER
        if knob in ALWAYS_WRITTEN or values[knob] not in (None, _PLAIN[knob])
    }
    batch = [written.pop("batch_size")]
    if "batch_sampler" in given:
        batch = []
    later = [one for one in fixed if one not in order]
    return description.line_name, ["dataset", *batch, *order, *written.values(), *later]


def _of_function(description: Description, setting: Setting) -> Iterator[str]:
    """Arguments for a function of the user's own, where its defaults say otherwise."""
    values, defaults = setting.as_dict(), description.defaults
    for knob in _LINE_ORDER:
        if knob not in description.takes or (knob == "batch_size" and values[knob] is None):
            continue
        default = defaults.get(knob)
        if knob == "prefetch_factor" and setting.num_workers and default is None:
            default = DEFAULT_PREFETCH
        always = knob in ALWAYS_WRITTEN or knob not in defaults
        if always or values[knob] != default:
            yield f"{knob}={values[knob]}"


def line(description: Description, setting: Setting) -> str:
    name, arguments = call(description, setting)
    return f"{name}({', '.join(arguments)})"


def not_in_call(description: Description, setting: Setting) -> list[str]:
    """Knobs that a function of the user's own does not take, so they are set inside of it."""
    if not description.takes:
        return []
    base = description.base
    if not base.num_workers or not setting.num_workers:
        # What cannot be set without workers is as DataLoader has it.
        base = base.with_knobs(num_workers=setting.num_workers)
    own, values = base.as_dict(), setting.as_dict()
    return [f"{k}={values[k]}" for k in NAMES if k not in description.takes and own[k] != values[k]]


def reasons(outcome: Outcome, plan: Plan) -> list[str]:
    chosen = outcome.trial(outcome.measured)
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
    count = chosen.setting.num_workers
    alike = [
        trial
        for trial in outcome.trials
        if trial.setting.with_knobs(num_workers=count) == chosen.setting
        or trial.setting == chosen.setting.with_knobs(num_workers=trial.setting.num_workers)
    ]
    group = next((group for knob, group in outcome.groups if knob == WORKERS), [])
    if len(alike) < len(group):
        alike = [trial for one in group if (trial := outcome.trial(one)) is not None]
    return sorted(alike, key=lambda trial: trial.setting.num_workers)


def _peer(group: Sequence[Trial], chosen: Trial) -> Trial:
    count = chosen.setting.num_workers
    alike = (one for one in group if one.setting.num_workers == count and one.alive)
    return next(alike, chosen)


def _fewer(outcome: Outcome, chosen: Trial) -> Iterator[str]:
    group = [trial for trial in _workers_group(outcome, chosen) if trial.alive]
    smaller = [one for one in group if one.setting.num_workers < chosen.setting.num_workers]
    if not smaller:
        return
    count = smaller[-1].setting.num_workers
    reached = smaller[-1].compared(_peer(group, chosen), scatter_of(outcome.trials))
    what = f"Fewer: {_workers(count, 'reaches', 'reach')} {100 * reached.rate:.0f}% of it"
    if reached.low is not None and reached.high is not None:
        what += f" ({100 * reached.low:.0f}% to {100 * reached.high:.0f}%)"
    yield f"{what}."


def _more(outcome: Outcome, chosen: Trial, plan: Plan) -> Iterator[str]:
    group = _workers_group(outcome, chosen)
    larger = [one for one in group if one.setting.num_workers > chosen.setting.num_workers]
    if larger:
        peer = _peer(group, chosen)
        said = [_one_more(trial, peer, outcome) for trial in larger[:MORE_SHOWN]]
        yield f"More: {'; '.join(said)}."
    used = chosen.middle(lambda visit: visit.cores_used)
    if used is not None and used >= BUSY_SHARE * plan.cores and plan.cores > 1:
        yield (
            f"It uses {used:.1f} of the {plan.cores:g} usable cores: more workers would wait for "
            "each other. Only less work per sample, or more cores, makes it faster."
        )


def _one_more(trial: Trial, chosen: Trial, outcome: Outcome) -> str:
    count = trial.setting.num_workers
    if trial.failure is not None and trial.failure.code != "too_slow":
        return f"{_workers(count, 'failed', 'failed')} (see below)"
    if not trial.visits:
        return f"{_workers(count, 'was', 'were')} not measured"
    ratio = trial.compared(chosen, scatter_of(outcome.trials))
    text = f"{_workers(count, 'gives', 'give')} {_gain(ratio.rate)}"
    if ratio.low is not None and ratio.high is not None:
        text += f" ({_signed(ratio.low)} to {_signed(ratio.high)})"
    mine, its = (one.middle(lambda visit: visit.workers_memory_bytes) for one in (trial, chosen))
    if mine is None or its is None or mine - its < MEMORY_LEAST_BYTES:
        return text
    return f"{text} and {'takes' if count == 1 else 'take'} {units.size(mine - its)} more memory"


def _other_knobs(outcome: Outcome, chosen: Trial) -> Iterator[str]:
    for knob, group in outcome.groups:
        if knob == WORKERS or knob not in NAMES:
            continue
        trials = [trial for one in group if (trial := outcome.trial(one)) and trial.visits]
        alive = [trial for trial in trials if trial.alive]
        value = getattr(chosen.setting, knob)
        here = next((one for one in alive if getattr(one.setting, knob) == value), None)
        if here is None or len(trials) < 2:
            continue
        scatter = scatter_of(alive)
        said = [
            f"{getattr(one.setting, knob)} failed"
            if one.failure is not None
            else f"{getattr(one.setting, knob)} gives {_gain(one.compared(here, scatter).rate)}"
            for one in trials
            if one is not here
        ]
        yield f"{knob}={value}: {', '.join(said)}."


def _restarts(outcome: Outcome, plan: Plan, chosen: Trial) -> Iterator[str]:
    if not outcome.restarts:
        return
    without, kept = outcome.restarts[False], outcome.restarts[True]
    text = (
        "persistent_workers: the next epoch's first batch comes after "
        f"{units.duration(kept)} instead of {units.duration(without)}"
    )
    if plan.samples:
        saved, epoch = max(0.0, without - kept), plan.samples / chosen.mean
        text += f", {100 * saved / (epoch + saved):.1f}% of an epoch of {units.age(epoch)}"
    taken = outcome.recommended is not None and outcome.recommended.persistent_workers
    yield f"{text}{'.' if taken else ': not worth its memory.'}"


def notes(outcome: Outcome, plan: Plan, description: Description) -> list[str]:
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
    if description.start_method != "fork":
        found.append(f"Workers start by {description.start_method}, which takes longer.")
    return found


def _workers(count: int, one: str, many: str) -> str:
    return f"1 worker {one}" if count == 1 else f"{count} workers {many}"


def _gain(ratio: float) -> str:
    return "the same" if abs(ratio - 1) < 0.005 else _signed(ratio)


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f}%"
