"""Words and numbers of findings: how GPUs and sizes are called, means, ramps, rounding."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gpuwatch.core import bounds, units
from gpuwatch.core.model import GpuKey, Job, Process
from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Evidence
from gpuwatch.diagnosis.rule import Settled, Unknown

T = TypeVar("T")
GIB = 1024**3
"""Bytes."""
COMMAND_LENGTH = 60
"""Of a command line within a sentence."""
SPARE_LEAST_CORES = 0.3
"""Less is what a machine leaves idle anyway."""

mean, highest, lowest, amount = bounds.mean, bounds.highest, bounds.lowest, units.size


def named(gpus: Sequence[GpuFacts]) -> str:
    """As ``units.gpus_named`` has them."""
    return units.gpus_named([gpu.identity for gpu in gpus])


def keys(gpus: Iterable[GpuFacts]) -> tuple[GpuKey, ...]:
    return tuple([gpu.uuid for gpu in gpus])


def verb(gpus: Sequence[GpuFacts], one: str, several: str) -> str:
    return one if len(gpus) == 1 else several


def clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


def ramp(value: float, low: float, high: float) -> float:
    """0 at ``low``, 1 at ``high``, a line between; ``high`` may be the smaller one."""
    return clamp((value - low) / (high - low))


def strength(*clearness: float, missing: int = 0) -> float:
    """0.4 for evidence that just passes its thresholds to 1 for evidence far beyond them, less
    15% for each reading that was wanted and is missing."""
    clear = sum(clearness) / len(clearness) if clearness else 0.5
    return float((0.4 + 0.6 * clear) * 0.85**missing)


def required(reading: T | None, *names: str) -> T:
    """The reading; where there is none, the rule cannot be checked for want of it."""
    if reading is None:
        raise Settled(Unknown(names))
    return reading


def once(find: Callable[[Window], T]) -> Callable[[Window], T]:
    """The same, worked out once for each window: many rules ask one after the other."""
    kept: tuple[Window, T] | None = None

    def asked(window: Window) -> T:
        nonlocal kept
        known = kept
        if known is None or known[0] is not window:
            known = kept = (window, find(window))
        return known[1]

    return asked


def measured(
    name: str,
    value: float | None,
    unit: str,
    threshold: float | None = None,
    says: str = "",
    *,
    digits: int = 1,
    supports: bool = True,
) -> Evidence | None:
    """A reading as evidence; nothing where it was not read."""
    if value is None:
        return None
    return Evidence(name, round(value, digits or None), unit, threshold, says, supports=supports)


def rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)


def percent_of(share: float) -> float:
    return round(100.0 * share, 1)


def counted(count: float, thing: str) -> str:
    """``1 worker``, ``8 workers``."""
    number = round(count)
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def cores_of(count: float) -> str:
    """``1 core``, ``0.6 cores``, ``12 cores``."""
    number = f"{count:.1f}".removesuffix(".0") if count < 1.95 else f"{count:.0f}"
    return f"{number} core" if number == "1" else f"{number} cores"


def free(spare: float) -> str:
    """``no cores are free``, ``1 core is free``, ``12 cores are free``."""
    # What is left of the last one runs no process more.
    number = cores_of(spare if spare < 1.95 else int(spare))
    number = "no cores" if spare < SPARE_LEAST_CORES else number
    return f"{number} {'is' if number == '1 core' else 'are'} free"


def program(of: Job | Process) -> str:
    """``PID 4242 (alice: python train.py)``, as far as it is known."""
    command = of.command or (of.name if isinstance(of, Process) else None)
    if command is not None and len(command) > COMMAND_LENGTH:
        command = f"{command[: COMMAND_LENGTH - 3]}..."
    known = ": ".join([part for part in (of.user, command) if part])
    return f"PID {of.own_pid} ({known})" if known else f"PID {of.own_pid}"


def gib(size: float) -> str:
    """``31.2 GiB``."""
    return f"{size / GIB:.1f} GiB"


def lasting(seconds: float) -> str:
    """``0.4 s``, ``40 s``, ``7 min``, ``3.5 h``."""
    if seconds < 9.5:
        return f"{round(seconds, 1):g} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
