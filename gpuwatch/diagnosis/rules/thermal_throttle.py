"""A GPU is too hot and lowers its clocks.

What it checks
    How long the driver's thermal slowdown reasons held while the GPU worked, and what it cost in
    clock speed against the other GPUs of the job, or against the card's highest clock.

Why it matters
    Utilisation stays at 99% while kernels take longer; a job's GPUs run at the pace of the hot one.

Evidence needed
    The throttle reasons (or the driver's counters of how long each held). Without them: the
    temperature and the clock, which are weaker evidence.

When it is wrong
    A one-second burst is no fault, hence the threshold; a card at its limit that is no slower is
    only information. The loss is given in clock speed: memory-bound kernels lose less.

What to do
    Cooling first: airflow, dust, fans, the room, cards too close together. Until then a lower
    power limit costs less than a slowdown does, because it lowers voltage with the clock.

Thresholds
    thermal slowdown 5% of the time: three seconds of a minute is a condition, less is a moment.
    DCGM's health check warns of any. HwSlowdown counts only within 5 C of the card's own slowdown
    temperature, since NVML sets it for a power brake too.

    Without the reasons: within 1 C of the slowdown temperature, with a clock at 93% of the highest
    or less; 8 C below it a card does not throttle thermally. All but the card's own temperature are
    this project's choice. A clock that is less than 2% lower has lost nothing that can be measured.

Sources
    NVML clocks-event reasons: SwThermalSlowdown (clocks are lowered to keep temperature below its
    limit), HwThermalSlowdown (clocks are cut to half or less because it is too high) and HwSlowdown
    (that, or an external power brake). DCGM's health checks count any thermal violation.
"""

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import (
    THROTTLED,
    Advice,
    Clear,
    Evidence,
    Firing,
    Rule,
    Verdict,
    Window,
)
from gpuwatch.diagnosis.rules.shared import cards
from gpuwatch.diagnosis.rules.shared.words import (
    clear_if,
    highest,
    in_percent,
    is_at_least,
    keys,
    named,
    ramp,
    unknown_if,
)
from gpuwatch.diagnosis.sentence import GPUS, IS, either, number

_LOWER_LIMIT = Advice(
    "Until its cooling is better, lower its power limit a little (nvidia-smi -pl).",
    brief="Lower its power limit a little",
    setting="power limit",
    why="a lower limit costs less speed than a thermal slowdown",
)
RULE = Rule(
    title="thermally throttled",
    means=THROTTLED,
    gives_back="some",
    cure=(_LOWER_LIMIT,),
    explains={
        "straggler", "collective_wait", "busy_without_work", "batch_too_small", "power_throttle",
    },
    lost_while_busy=True,
    slows_clocks=True,
    harms=True,
    look_alike=1,
    charts=("sm_clock_mhz", "temperature_celsius"),
    chart_seconds=180.0,
)  # fmt: skip
SHARE = 0.05  # of the time
NEAR_CELSIUS = 5.0  # below the slowdown, as the next two
FAR_CELSIUS = 8.0
AT_CELSIUS = 1.0
LOW_CLOCK = 0.93  # of the highest
SLIGHT = 0.02  # of the clock


def check(window: Window) -> Verdict:
    gpus = cards.present(window)
    shares = {gpu.uuid: _share(window, gpu) for gpu in gpus}
    hot = [gpu for gpu in gpus if is_at_least(shares[gpu.uuid], SHARE)]
    if hot:
        return _firing(window, hot, highest([shares[gpu.uuid] for gpu in hot]))
    blind = [gpu for gpu in gpus if shares[gpu.uuid] is None]
    guessed = [gpu for gpu in blind if _is_hot_and_slow(gpu)]
    if guessed:
        return _firing(window, guessed, None)
    near = any((_below_slowdown(gpu) or 0.0) < FAR_CELSIUS for gpu in blind)
    unknown_if(not gpus or near, "throttle reasons")
    clear_if(bool(blind), "far below its slowdown temperature")
    return Clear(f"no thermal slowdown in {window.watched_seconds:.0f} s")


def _share(window: Window, gpu: GpuFacts) -> float | None:
    near = _below_slowdown(gpu)
    hardware = (cards.HARDWARE,) if near is not None and near <= NEAR_CELSIUS else ()
    return cards.reason_share(window, gpu, *cards.THERMAL, *hardware)


def _below_slowdown(gpu: GpuFacts) -> float | None:
    """Degrees between the highest temperature seen and the slowdown."""
    slowdown, at = gpu.identity.temperature_slowdown_celsius, gpu.temperature_highest_celsius
    return None if slowdown is None or at is None else slowdown - at


def _is_hot_and_slow(gpu: GpuFacts) -> bool:
    below, top, clock = _below_slowdown(gpu), gpu.identity.sm_clock_max_mhz, gpu.sm_clock_busy_mhz
    if below is None or top is None or clock is None:
        return False
    return below <= AT_CELSIUS and clock <= LOW_CLOCK * top


def _firing(window: Window, hot: list[GpuFacts], share: float | None) -> Firing:
    """``share``: of the time that heat held them back, by the driver's reasons."""
    loss = highest([cards.slowed(window, gpu) for gpu in hot])
    slow = loss is None or loss >= SLIGHT
    summary, *short = _sentences(hot, share, loss, slow=slow)
    clocks = () if loss is not None else ("SM clock",)
    cool = Advice(
        f"Improve the cooling of {named(hot)}: airflow, dust, fans.",
        brief="Improve cooling: airflow, dust, fans",
        why="it slows down to stay below its temperature limit",
    )
    return Firing(
        summary=summary,
        short=tuple(short),
        severity=None if slow else "info",
        evidence=[item for gpu in hot for item in _evidence(window, gpu)],
        advice=(cool, *RULE.cure) if slow else (cool,),
        strength=0.6 if share is None else 0.8 + 0.2 * ramp(share, SHARE, 0.3),
        missing=("throttle reasons",) if share is None else clocks,
        gpus=keys(hot),
        lost_share=loss if slow else None,
        explains=None if slow else frozenset(),
    )


def _sentences(
    hot: list[GpuFacts], share: float | None, loss: float | None, *, slow: bool
) -> tuple[str, str, str]:
    """Return the summary and its short forms."""
    at = highest([gpu.temperature_highest_celsius for gpu in hot])
    its = either("its", "their")
    held = f"{IS} thermally throttled" if slow else f"{IS} at {its} temperature limit"
    where = "" if at is None else f" ({number(at)} C)"
    clock = either("its clock is", "their clocks are")
    cost = "" if loss is None else f": {clock} {in_percent(loss)} lower"
    if not slow:
        often = "" if share is None else f" {in_percent(share)} of the time"
        return (
            f"{GPUS} {held}{often}{where}, so far at full clock speed",
            f"{GPUS} {held}{where}, so far at full speed",
            f"{GPUS} {IS} hot{where}, at full speed",
        )
    lower = "" if loss is None else f", clock {in_percent(loss)} lower"
    # For how much of the time says less than what of the clock is left; the evidence has it.
    return (
        f"{GPUS} {held}{where}{cost}",
        f"{GPUS} {IS} too hot{where}: throttled{lower}",
        f"{GPUS} {IS} too hot{lower}",
    )


def _evidence(window: Window, gpu: GpuFacts) -> list[Evidence]:
    name, share = named([gpu]), _share(window, gpu)
    return [
        Evidence(f"{name} thermal slowdown", share and 100.0 * share, "%", 100.0 * SHARE,
                 f"of the last {window.watched_seconds:.0f} s"),
        Evidence(f"{name} highest temperature", gpu.temperature_highest_celsius, "C",
                 gpu.identity.temperature_slowdown_celsius, "where the driver slows it"),
        Evidence(f"{name} SM clock while busy", gpu.sm_clock_busy_mhz, "MHz",
                 cards.reference_clock(window, gpu), "what it could run at"),
    ]  # fmt: skip
