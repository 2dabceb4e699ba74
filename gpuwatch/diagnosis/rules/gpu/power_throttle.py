"""A GPU is slowed by a lowered power limit, or by the power supply.

What it checks
    Whether the software power cap is active at a limit below the card's default, or the hardware
    power brake is asserted, and what that costs in clock speed.

Why it matters
    Utilisation stays at 99%; only the clock shows it. A limit lowered long ago by somebody else is
    a classic that nobody looks for.

Evidence needed
    Throttle reasons; the power limit and the card's default limit. Without the reasons, power that
    stays at a lowered limit is weaker evidence.

When it is wrong
    A card at its own default limit reports the power cap whenever it works hard: large matrix
    products on an H100 or H200 hit it by design. That is full speed and no finding. A limit may
    have been lowered on purpose, for noise, heat or the rack's budget.

What to do
    Reset the limit (nvidia-smi -pl) if it was not intended. For a power brake: check the supply,
    its cables, the rack's budget.

Thresholds
    limit below 95% of the card's default: within 5% is rounding, or the step size of the tools
    that set it.

    power cap 10% of the time: peaks of single kernels touch any limit. Power brake 2%: it cuts the
    clocks to half or less (NVML), so one second per minute is worth a line. Without the reasons,
    power at 95% of the limit: the driver keeps it a few percent below.

    clock 3% lower for a warning: less is not worth one. All but NVML's "half" are this project's
    choice.

Sources
    NVML clocks-event reasons: SwPowerCap (clocks are lowered to stay within the power limit),
    HwPowerBrakeSlowdown (an external brake, for example from the power supply, cuts clocks to half
    or less).
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.gpu.thermal_throttle import slowed
from gpuwatch.diagnosis.rules.shared.gpus import highest, named, ramp, reason_share, verb

LOWERED = 0.95
"""Of the default limit: within 5% is rounding and steps of the tools that set it."""
CAP_SHARE = 0.10
"""Six seconds of a minute; peaks of single kernels touch any limit."""
BRAKE_SHARE = 0.02
"""The brake halves the clocks: a second of a minute is worth a line."""
AT_LIMIT = 0.95
"""Of the limit: the driver's loop keeps power a few percent below it."""
SLIGHT = 0.03
"""A clock this little lower is not worth a warning."""

SYMPTOMS = frozenset({"straggler", "collective_wait", "busy_without_work", "batch_too_small"})


def check(window: Window) -> Verdict:
    present = [gpu for gpu in window.gpus if not gpu.lost]
    braked = [gpu for gpu in present if _brake(window, gpu) >= BRAKE_SHARE]
    if braked:
        return _braked(window, braked)
    capped = [gpu for gpu in present if _capped(window, gpu)]
    if capped:
        return _lowered(window, capped)
    if not present or any(_in_doubt(window, gpu) for gpu in present):
        return Unknown(_missing(present))
    if any((reason_share(window, gpu, "sw_power_cap") or 0.0) >= CAP_SHARE for gpu in present):
        return Clear("it is at the card's own power limit, which is its full speed")
    return Clear("no power cap below the card's own limit")


def _brake(window: Window, gpu: GpuFacts) -> float:
    return reason_share(window, gpu, "hw_power_brake_slowdown") or 0.0


def _is_lowered(gpu: GpuFacts) -> bool | None:
    limit, default = gpu.power_limit_watts, gpu.identity.power_limit_default_watts
    return None if limit is None or default is None else limit < LOWERED * default


def _at_limit(gpu: GpuFacts) -> bool | None:
    power = gpu.power_mean_watts if gpu.power_busy_watts is None else gpu.power_busy_watts
    limit = gpu.power_limit_watts
    return None if power is None or limit is None else power >= AT_LIMIT * limit


def _capped(window: Window, gpu: GpuFacts) -> bool:
    """The cap holds it, at a limit that is below the card's own."""
    share = reason_share(window, gpu, "sw_power_cap")
    holds = _at_limit(gpu) if share is None else share >= CAP_SHARE
    return bool(holds) and _is_lowered(gpu) is True


def _in_doubt(window: Window, gpu: GpuFacts) -> bool:
    share = reason_share(window, gpu, "sw_power_cap")
    if share is not None:
        return share >= CAP_SHARE and _is_lowered(gpu) is None
    return _at_limit(gpu) is not False and _is_lowered(gpu) is not False


def _missing(gpus: list[GpuFacts]) -> tuple[str, ...]:
    names = {
        "throttle reasons": any(gpu.throttle_shares is None for gpu in gpus) or not gpus,
        "the power limit": any(gpu.power_limit_watts is None for gpu in gpus),
        "the card's default power limit": any(
            gpu.identity.power_limit_default_watts is None for gpu in gpus
        ),
    }
    return tuple([name for name, absent in names.items() if absent])


def _braked(window: Window, gpus: list[GpuFacts]) -> Firing:
    share = highest([_brake(window, gpu) for gpu in gpus]) or 0.0
    return Firing(
        summary=f"{named(gpus)} {verb(gpus, 'is', 'are')} slowed by the hardware's power brake "
        f"{100 * share:.0f}% of the time",
        evidence=tuple([item for gpu in gpus for item in _evidence(window, gpu)]),
        advice=(
            Advice(
                action="Check the power supply, its cables and the rack's power budget.",
                why="the brake comes from outside the card and cuts its clocks to half or less",
            ),
        ),
        strength=0.9 + 0.1 * ramp(share, BRAKE_SHARE, 0.2),
        gpus=tuple([gpu.uuid for gpu in gpus]),
        lost_share=highest([slowed(window, gpu) for gpu in gpus]),
        explains=SYMPTOMS,
    )


def _lowered(window: Window, gpus: list[GpuFacts]) -> Firing:
    first = gpus[0]
    limit, default = first.power_limit_watts, first.identity.power_limit_default_watts
    loss = highest([slowed(window, gpu) for gpu in gpus])
    blind = any(gpu.throttle_shares is None for gpu in gpus)
    slower = "" if loss is None else f"; the clock is {100 * loss:.0f}% lower"
    return Firing(
        severity="info" if loss is not None and loss < SLIGHT else "warning",
        summary=f"{named(gpus)} {verb(gpus, 'is', 'are')} held at a power limit of {limit:.0f} W, "
        f"{default:.0f} W is the card's own{slower}",
        evidence=tuple([item for gpu in gpus for item in _evidence(window, gpu)]),
        advice=(
            Advice(
                action=f"Reset the power limit to {default:.0f} W if it was not lowered on "
                f"purpose: nvidia-smi -i {first.identity.index} -pl {default:.0f}.",
                setting="power limit",
                present=f"{limit:.0f} W",
                wanted=f"{default:.0f} W",
                why="the cap lowers the clocks",
            ),
        ),
        strength=0.65 if blind else 0.95,
        missing=("throttle reasons",) if blind else (),
        gpus=tuple([gpu.uuid for gpu in gpus]),
        lost_share=loss,
        explains=SYMPTOMS,
    )


def _evidence(window: Window, gpu: GpuFacts) -> list[Evidence]:
    name = named([gpu])
    share = reason_share(window, gpu, "sw_power_cap")
    brake = reason_share(window, gpu, "hw_power_brake_slowdown")
    return [
        Evidence(
            name=f"{name} power cap",
            value=None if share is None else round(100.0 * share, 1),
            unit="%",
            threshold=100.0 * CAP_SHARE,
            says="of the time watched",
            supports=share is None or share >= CAP_SHARE,
        ),
        Evidence(
            name=f"{name} power brake",
            value=None if brake is None else round(100.0 * brake, 1),
            unit="%",
            threshold=100.0 * BRAKE_SHARE,
            supports=brake is not None and brake >= BRAKE_SHARE,
        ),
        Evidence(
            name=f"{name} power limit",
            value=gpu.power_limit_watts,
            unit="W",
            threshold=gpu.identity.power_limit_default_watts,
            says="against the card's own limit",
            supports=_is_lowered(gpu) is True,
        ),
        Evidence(
            name=f"{name} power while busy",
            value=gpu.power_busy_watts,
            unit="W",
            threshold=gpu.power_limit_watts,
        ),
        Evidence(
            name=f"{name} SM clock while busy",
            value=gpu.sm_clock_busy_mhz,
            unit="MHz",
            threshold=gpu.identity.sm_clock_max_mhz,
        ),
    ]
