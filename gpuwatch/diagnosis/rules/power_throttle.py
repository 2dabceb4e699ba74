"""A GPU is slowed by a lowered power limit, by clocks that were set low, or by the power supply.

What it checks
    Whether the software power cap is active at a limit below the card's default, the hardware
    power brake is asserted, or the clock under load stays far below its maximum for no reason.

Why it matters
    Utilisation stays at 99%; only the clock shows it. A limit lowered, or clocks locked for a
    benchmark, long ago by somebody else are classics that nobody looks for.

Evidence needed
    Throttle reasons; the power limit and the card's default limit. Without the reasons, power that
    stays at a lowered limit is weaker evidence. The SM clock under load and its maximum.

When it is wrong
    A card at its own default limit reports the power cap whenever it works hard: that is full speed
    and no finding. Limits and clocks may have been lowered on purpose: noise, heat, the rack's
    budget, energy, repeatable numbers.

What to do
    Reset a limit that was not intended (nvidia-smi -pl), locked clocks (-rgc) or application clocks
    (-rac). For a power brake: check the supply, its cables and the rack's budget.

Thresholds
    limit below 95% of the card's default: within 5% is rounding, or a tool's step size.

    power cap 10% of the time: peaks of single kernels touch any limit. Power brake 2%: it cuts the
    clocks to half or less (NVML), so one second per minute is worth a line. Without the reasons,
    power at 95% of the limit: the driver keeps it a few percent below.

    clock 3% lower to be called slower. 35% below the maximum where no reason is given: cards
    without a cap run within 20% of it, some consumer cards a little lower. All but NVML's "half"
    are this project's choice.

Sources
    NVML clocks-event reasons: SwPowerCap, HwPowerBrakeSlowdown, ApplicationsClocksSetting.
    nvidia-smi: options -lgc, -rgc, -ac, -rac.
"""

from gpuwatch.core.throttling import REASONS
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
    lacking,
    named,
    ramp,
    unknown_if,
)
from gpuwatch.diagnosis.sentence import GPUS, IS, either, number

RULE = Rule(
    title="power or clocks capped",
    means=THROTTLED,
    gives_back="some",
    explains={"straggler", "collective_wait", "busy_without_work", "batch_too_small"},
    lost_while_busy=True,
    look_alike=2,
    charts=("sm_clock_mhz", "power_watts"),
)
LOWERED = 0.95  # of the default limit
CAP_SHARE = 0.10  # of the time
BRAKE_SHARE = 0.02  # of the time
AT_LIMIT = 0.95  # of the limit
SET_LOW = 0.35  # below the card's highest clock
APPLICATION_CLOCKS = "applications_clocks_setting"
SLIGHT = 0.03  # of the clock

_SUPPLY = Advice(
    "Check the power supply, its cables and the rack's power budget.",
    brief="Check the power supply and its cables",
    why="the brake comes from outside the card and cuts its clocks to half or less",
)


def check(window: Window) -> Verdict:
    gpus = cards.present(window)
    braked = [gpu for gpu in gpus if _held(window, gpu, cards.POWER_BRAKE) >= BRAKE_SHARE]
    if braked:
        return _braked(window, braked)
    capped = [gpu for gpu in gpus if _holds(window, gpu) and _is_lowered(gpu)]
    if capped:
        return _lowered(window, capped)
    low = [gpu for gpu in gpus if is_at_least(_set_low(window, gpu), SET_LOW)]
    if low:
        return _clocks(window, low)
    in_doubt = not gpus or any(_in_doubt(window, gpu) for gpu in gpus)
    unknown_if(in_doubt, *_missing(gpus))
    at_own_limit = any(_held(window, gpu, cards.POWER_CAP) >= CAP_SHARE for gpu in gpus)
    clear_if(at_own_limit, "it is at the card's own power limit, which is its full speed")
    return Clear("no power cap below the card's own limit")


def _held(window: Window, gpu: GpuFacts, reason: str) -> float:
    """Return the share of the time (0 to 1) that this reason held, 0 where it was not read."""
    return cards.reason_share(window, gpu, reason) or 0.0


def _is_lowered(gpu: GpuFacts) -> bool | None:
    """Check whether its limit is below the card's own."""
    limit, default = gpu.power_limit_watts, gpu.identity.power_limit_default_watts
    return None if limit is None or default is None else limit < LOWERED * default


def _holds(window: Window, gpu: GpuFacts) -> bool | None:
    """Check whether the cap holds it, by the driver's reasons or else by its power."""
    share = cards.reason_share(window, gpu, cards.POWER_CAP)
    if share is not None:
        return share >= CAP_SHARE
    power, limit = cards.power_when_busy(gpu), gpu.power_limit_watts
    return None if power is None or limit is None else power >= AT_LIMIT * limit


def _in_doubt(window: Window, gpu: GpuFacts) -> bool:
    return _holds(window, gpu) is not False and _is_lowered(gpu) is not False and (
        gpu.throttle_shares is None or _is_lowered(gpu) is None
    )  # fmt: skip


def _missing(gpus: list[GpuFacts]) -> tuple[str, ...]:
    defaults = [gpu.identity.power_limit_default_watts for gpu in gpus]
    return lacking({
        "throttle reasons": not gpus or any(gpu.throttle_shares is None for gpu in gpus),
        "the power limit": any(gpu.power_limit_watts is None for gpu in gpus),
        "the card's default power limit": None in defaults,
    })  # fmt: skip


def _braked(window: Window, gpus: list[GpuFacts]) -> Firing:
    share = max([_held(window, gpu, cards.POWER_BRAKE) for gpu in gpus])
    return Firing(
        summary=f"{GPUS} {IS} slowed by the hardware's power brake {in_percent(share)} of the time",
        short=(f"{GPUS} {IS} braked for power {in_percent(share)}",),
        evidence=[item for gpu in gpus for item in _evidence(window, gpu)],
        advice=(_SUPPLY,),
        strength=0.9 + 0.1 * ramp(share, BRAKE_SHARE, 0.2),
        gpus=keys(gpus),
        lost_share=highest([cards.slowed(window, gpu) for gpu in gpus]),
    )


def _lowered(window: Window, gpus: list[GpuFacts]) -> Firing:
    first, loss = gpus[0], highest([cards.slowed(window, gpu) for gpu in gpus])
    # Both are known: it was lowered.
    limit = first.power_limit_watts or 0.0
    default = first.identity.power_limit_default_watts or 0.0
    blind = any(gpu.throttle_shares is None for gpu in gpus)
    slower = "" if not loss or loss < SLIGHT else f": the clock is {in_percent(loss)} lower"
    alike = [one for one in gpus if one.identity.power_limit_default_watts == default]
    reset = Advice(
        f"Reset the power limit to {number(default)} W if it was not lowered on purpose: "
        f"sudo nvidia-smi -i {_cards(alike)} -pl {default:.0f}.",
        setting="power limit",
        present=f"{number(limit)} W",
        wanted=f"{number(default)} W",
        why="the cap lowers the clocks",
    )
    return Firing(
        summary=f"{GPUS} {IS} capped at {number(limit)} W, below the card's own limit of "
        f"{number(default)} W{slower}",
        short=(
            f"{GPUS} {IS} capped at {number(limit)} W of the card's {number(default)} W{slower}",
            f"{GPUS} capped at {number(limit)} W, not {number(default)} W",
        ),
        evidence=[item for gpu in gpus for item in _evidence(window, gpu)],
        advice=(reset,),
        strength=0.65 if blind else 0.95,
        missing=("throttle reasons",) if blind else (),
        gpus=keys(gpus),
        lost_share=loss,
    )


def _cards(gpus: list[GpuFacts]) -> str:
    return ",".join([str(gpu.identity.index) for gpu in gpus])


def _set_low(window: Window, gpu: GpuFacts) -> float | None:
    """0 to 1: how far its clock under load is below its highest for no reason that is given."""
    clock, top = gpu.sm_clock_busy_mhz, gpu.identity.sm_clock_max_mhz
    share = cards.reason_share(window, gpu, *REASONS)
    free = share is not None and share < CAP_SHARE
    return 1.0 - clock / top if free and clock is not None and top else None


def _clocks(window: Window, gpus: list[GpuFacts]) -> Firing:
    loss = highest([_set_low(window, gpu) for gpu in gpus]) or 0.0
    named_by_driver = _held(window, gpus[0], APPLICATION_CLOCKS) >= CAP_SHARE
    runs = f"{GPUS} {either('runs', 'run')} {in_percent(loss)}"
    what, option = ("application", "-rac") if named_by_driver else ("locked", "-rgc")
    reset = Advice(
        f"Reset the {what} clocks if they were not set on purpose: sudo nvidia-smi "
        f"-i {_cards(gpus)} {option}.",
        brief=f"Reset the {what} clocks: nvidia-smi {option}",
        why="neither heat nor power holds the clock down",
    )
    return Firing(
        summary=f"{runs} below the highest clock, and neither heat nor power explains it",
        short=(
            f"{runs} below the highest clock, but not for heat or power",
            f"{runs} below top clock",
        ),
        evidence=[item for gpu in gpus for item in _evidence(window, gpu)],
        advice=(reset,),
        strength=0.7 + 0.25 * ramp(loss, SET_LOW, 0.6),
        gpus=keys(gpus),
        lost_share=loss,
    )


def _evidence(window: Window, gpu: GpuFacts) -> list[Evidence]:
    name, identity = named([gpu]), gpu.identity
    read = gpu.throttle_shares is not None
    cap, brake = [_held(window, gpu, one) for one in (cards.POWER_CAP, cards.POWER_BRAKE)]
    return [
        Evidence(f"{name} power cap", 100.0 * cap if read else None, "%", 100.0 * CAP_SHARE,
                 "of the time watched", supports=cap >= CAP_SHARE),
        Evidence(f"{name} power brake", 100.0 * brake or None, "%", 100.0 * BRAKE_SHARE,
                 "of the time watched", supports=brake >= BRAKE_SHARE),
        Evidence(f"{name} power limit", gpu.power_limit_watts, "W",
                 identity.power_limit_default_watts, "against the card's own limit",
                 supports=_is_lowered(gpu) is True),
        Evidence(f"{name} power while busy", gpu.power_busy_watts, "W", gpu.power_limit_watts),
        Evidence(f"{name} SM clock while busy", gpu.sm_clock_busy_mhz, "MHz",
                 identity.sm_clock_max_mhz),
    ]  # fmt: skip
