"""A GPU is too hot and lowers its clocks.

What it checks
    How long the driver's thermal slowdown reasons held while the GPU worked, and what it cost in
    clock speed against the other GPUs of the job, or against the card's highest clock.

Why it matters
    Utilisation stays at 99% while every kernel takes longer; in a job of several GPUs all of them
    run at the pace of the hot one.

Evidence needed
    The throttle reasons (or the driver's counters of how long each held). Without them: the
    temperature and the clock, which are weaker evidence.

When it is wrong
    A one-second burst at the end of a warm-up is no fault; that is why the share of the time has a
    threshold. The loss is given in clock speed: memory-bound kernels lose less.

What to do
    Cooling first: airflow, dust, fans, the room, cards too close together. Until then a lower
    power limit costs less than a slowdown does, because it lowers voltage with the clock.

Thresholds
    thermal slowdown 5% of the time: three seconds of a minute is a condition, less is a moment.
    DCGM's health check warns of any. HwSlowdown counts only within 5 C of the card's own slowdown
    temperature, since NVML sets it for a power brake too.

    Without the reasons: within 1 C of the slowdown temperature, with a clock at 93% of the highest
    or less; 8 C below it a card does not throttle thermally. All but the card's own temperature are
    this project's choice.

Sources
    NVML clocks-event reasons: SwThermalSlowdown (clocks are lowered to keep temperature below its
    limit), HwThermalSlowdown (clocks are cut to half or less because it is too high) and HwSlowdown
    (that, or an external power brake). DCGM's health checks count any thermal violation.
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.gpus import highest, named, ramp, reason_share, verb

REASONS = ("sw_thermal_slowdown", "hw_thermal_slowdown")
SHARE = 0.05
"""Three seconds of a minute. Below that it is a moment, not a state."""
NEAR_CELSIUS = 5.0
"""``hw_slowdown`` has several causes; this close to the slowdown temperature it is heat."""
FAR_CELSIUS = 8.0
"""This far below its slowdown temperature a card does not throttle for heat."""
LOW_CLOCK = 0.93
"""Of the highest clock: without the reasons, a hot card must also be slow."""

SYMPTOMS = frozenset(
    {"straggler", "collective_wait", "busy_without_work", "batch_too_small", "power_throttle"}
)


def check(window: Window) -> Verdict:
    present = [gpu for gpu in window.gpus if not gpu.lost]
    shares = {gpu.uuid: _share(window, gpu) for gpu in present}
    hot = [gpu for gpu in present if (shares[gpu.uuid] or 0.0) >= SHARE]
    if hot:
        return _firing(window, hot, {gpu.uuid: shares[gpu.uuid] for gpu in hot})
    blind = [gpu for gpu in present if shares[gpu.uuid] is None]
    guessed = [gpu for gpu in blind if _hot_and_slow(gpu)]
    if guessed:
        return _firing(window, guessed, dict.fromkeys([gpu.uuid for gpu in guessed], None))
    if not present or any(not _cool(gpu) for gpu in blind):
        return Unknown(("throttle reasons",))
    if blind:
        return Clear("far below its slowdown temperature")
    return Clear(f"no thermal slowdown in {window.watched_seconds:.0f} s")


def _share(window: Window, gpu: GpuFacts) -> float | None:
    near = _below_slowdown(gpu)
    if near is not None and near <= NEAR_CELSIUS:
        return reason_share(window, gpu, *REASONS, "hw_slowdown")
    return reason_share(window, gpu, *REASONS)


def _below_slowdown(gpu: GpuFacts) -> float | None:
    """Degrees between the highest temperature seen and the slowdown."""
    slowdown = gpu.identity.temperature_slowdown_celsius
    at = gpu.temperature_highest_celsius
    return None if slowdown is None or at is None else slowdown - at


def _cool(gpu: GpuFacts) -> bool:
    below = _below_slowdown(gpu)
    return below is not None and below >= FAR_CELSIUS


def _hot_and_slow(gpu: GpuFacts) -> bool:
    below = _below_slowdown(gpu)
    top = gpu.identity.sm_clock_max_mhz
    clock = gpu.sm_clock_busy_mhz
    if below is None or top is None or clock is None:
        return False
    return below <= 1.0 and clock <= LOW_CLOCK * top


def reference_clock(window: Window, gpu: GpuFacts) -> float | None:
    """What this GPU could run at: the fastest of its like in the window, else its own highest."""
    alike = [
        other.sm_clock_busy_mhz
        for other in window.gpus
        if other.uuid != gpu.uuid and other.identity.name == gpu.identity.name
    ]
    siblings = highest(alike)
    own = gpu.sm_clock_busy_mhz
    if siblings is not None and own is not None and siblings > own:
        return siblings
    top = gpu.identity.sm_clock_max_mhz
    return None if top is None else float(top)


def slowed(window: Window, gpu: GpuFacts) -> float | None:
    """0 to 1: how far its clock is below what it could be."""
    reference, clock = reference_clock(window, gpu), gpu.sm_clock_busy_mhz
    if reference is None or clock is None or reference <= 0.0:
        return None
    return max(0.0, 1.0 - clock / reference)


def _firing(window: Window, hot: list[GpuFacts], shares: dict[str, float | None]) -> Firing:
    loss = highest([slowed(window, gpu) for gpu in hot])
    share = highest(shares.values())
    at = highest([gpu.temperature_highest_celsius for gpu in hot])
    cost = "" if loss is None else f", its clock {100 * loss:.0f}% lower"
    where = "" if at is None else f" at {at:.0f} C"
    held = "by heat" if share is None else f"by heat {100 * share:.0f}% of the time"
    return Firing(
        summary=f"{named(hot)} {verb(hot, 'is', 'are')} held back {held}{where}{cost}",
        evidence=tuple([item for gpu in hot for item in _evidence(window, gpu)]),
        advice=(
            Advice(
                action=f"Improve the cooling of {named(hot)}: airflow, dust, fans.",
                why="it slows down to stay below its temperature limit",
            ),
            Advice(
                action="Until then, lower its power limit a little (nvidia-smi -pl).",
                setting="power limit",
                why="a lower limit costs less speed than a thermal slowdown",
            ),
        ),
        strength=0.6 if share is None else 0.8 + 0.2 * ramp(share, SHARE, 0.3),
        missing=("throttle reasons",)
        if share is None
        else ()
        if loss is not None
        else ("SM clock",),
        gpus=tuple([gpu.uuid for gpu in hot]),
        lost_share=loss,
        explains=SYMPTOMS,
    )


def _evidence(window: Window, gpu: GpuFacts) -> list[Evidence]:
    name = named([gpu])
    share = _share(window, gpu)
    return [
        Evidence(
            name=f"{name} thermal slowdown",
            value=None if share is None else round(100.0 * share, 1),
            unit="%",
            threshold=100.0 * SHARE,
            says="of the time watched",
        ),
        Evidence(
            name=f"{name} highest temperature",
            value=gpu.temperature_highest_celsius,
            unit="C",
            threshold=gpu.identity.temperature_slowdown_celsius,
        ),
        Evidence(
            name=f"{name} SM clock while busy",
            value=gpu.sm_clock_busy_mhz,
            unit="MHz",
            threshold=reference_clock(window, gpu),
            says="against what it could run at",
        ),
    ]
