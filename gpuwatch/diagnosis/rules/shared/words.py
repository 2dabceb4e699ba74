"""Words, numbers and rows of evidence that findings are written with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from gpuwatch.core import bounds, units
from gpuwatch.core.model import GpuKey, Job, Process
from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.rule import Clear, Settled, Unknown
from gpuwatch.diagnosis.sentence import number

T = TypeVar("T")
GIB = 1024**3
"""Bytes."""
COMMAND_LENGTH = 60
"""Characters of a command line that a sentence shows."""
SPARE_LEAST_CORES = 0.3
"""A machine leaves less than this idle anyway."""

mean, highest, lowest = bounds.mean, bounds.highest, bounds.lowest


def is_at_least(value: float | None, least: float) -> bool:
    """Check whether a reading is known and not below ``least``."""
    return value is not None and value >= least


def is_below(value: float | None, limit: float) -> bool:
    """Check whether a reading is known and below ``limit``."""
    return value is not None and value < limit


def clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


def ramp(value: float, low: float, high: float) -> float:
    """Return 0 at ``low``, 1 at ``high`` and a line in between; ``high`` may be the smaller one."""
    return clamp((value - low) / (high - low))


def strength(*clearness: float, missing: int = 0) -> float:
    """Return 0.4 for evidence that just passes its thresholds, up to 1 for evidence far beyond
    them, less 15% for each reading that was wanted and is missing."""
    clear = sum(clearness) / len(clearness) if clearness else 0.5
    return float((0.4 + 0.6 * clear) * 0.85**missing)


def required(reading: T | None, *names: str) -> T:
    """Return the reading; raises ``Settled`` with its ``names`` as missing where there is none."""
    if reading is None:
        raise Settled(Unknown(names))
    return reading


def clear_if(holds: bool, why: str, *, at_once: bool = False) -> None:
    """Guard of a check: raise ``Settled`` where something shows that the fault is not there."""
    if holds:
        raise Settled(Clear(why, at_once))


def unknown_if(holds: bool, *missing: str) -> None:
    """Guard of a check: raise ``Settled`` with the readings that are missing where it ``holds``."""
    if holds:
        raise Settled(Unknown(missing))


def waits_little(what: str, percent: float, *, one: bool = False) -> str:
    """Return that somebody waits for ``what`` little or not at all; ``one``: who waits is one."""
    if percent < 0.5:
        return f"{'does' if one else 'do'} not wait {what}"
    return f"wait{'s' if one else ''} {what} only {percent:.0f}% of the time"


def only(percent: float) -> str:
    """``only 3%``; ``less than 1%``: how little something is, as nobody says "0%"."""
    return "less than 1%" if percent < 0.5 else f"only {percent:.0f}%"


def lacking(readings: Mapping[str, bool]) -> tuple[str, ...]:
    """Names of the readings that are marked as absent."""
    return tuple([name for name, absent in readings.items() if absent])


def once(find: Callable[[Window], T]) -> Callable[[Window], T]:
    """Cache the answer of ``find`` for the newest window: many rules ask one after the other."""
    kept: tuple[Window, T] | None = None

    def asked(window: Window) -> T:
        nonlocal kept
        known = kept
        if known is None or known[0] is not window:
            known = kept = (window, find(window))
        return known[1]

    return asked


def named(gpus: Sequence[GpuFacts]) -> str:
    """Names of GPUs as ``units.gpus_named`` writes them: ``GPU 0``, ``GPUs 0 to 3``."""
    return units.gpus_named([gpu.identity for gpu in gpus])


def briefly(gpus: Sequence[GpuFacts]) -> str:
    """Names of GPUs for a short sentence: ``GPU 0``, ``GPU 0,2``, ``7 GPUs``."""
    instances = [gpu.identity.mig_instance for gpu in gpus]
    labels = [
        f"{gpu.identity.index}{'' if instance is None else f'.{instance}'}"
        for gpu, instance in zip(gpus, instances, strict=True)
    ]
    return f"GPU {','.join(labels)}" if len(labels) <= 2 else f"{len(labels)} GPUs"


def keys(gpus: Iterable[GpuFacts]) -> tuple[GpuKey, ...]:
    return tuple([gpu.uuid for gpu in gpus])


def verb(gpus: Sequence[GpuFacts], one: str, several: str) -> str:
    return one if len(gpus) == 1 else several


# Numbers of a sentence: each is marked as one (``sentence.number``).


def counted(count: float, thing: str) -> str:
    """``1 worker``, ``8 workers``."""
    return f"{number(count)} {thing}{'' if round(count) == 1 else 's'}"


def in_percent(share: float) -> str:
    """``43%`` for 0.43."""
    return f"{number(100.0 * share)}%"


def cores_of(count: float) -> str:
    """``1 core``, ``0.6 cores``, ``12 cores``."""
    tenths = round(count, 1)
    digits = 1 if count < 1.95 and tenths % 1 else 0
    return f"{number(count, digits)} core{'' if tenths == 1 else 's'}"


def whole_cores(spare: float | None) -> float | None:
    """Return the free cores as they are said: a part of a core beyond whole ones runs no further
    process."""
    return spare if spare is None or spare < 1.95 else float(int(spare))


def free(spare: float) -> str:
    """``no cores are free``, ``1 core is free``, ``12 cores are free``."""
    if spare < SPARE_LEAST_CORES:
        return "no cores are free"
    count = whole_cores(spare) or 0.0
    return f"{cores_of(count)} {'is' if round(count, 1) == 1 else 'are'} free"


def program(of: Job | Process) -> str:
    """``PID 4242 (alice: python train.py)``, as far as it is known."""
    command = of.command or (of.name if isinstance(of, Process) else None)
    if command is not None and len(command) > COMMAND_LENGTH:
        command = f"{command[: COMMAND_LENGTH - 3]}..."
    known = ": ".join([part for part in (of.user, command) if part])
    return f"PID {of.own_pid} ({known})" if known else f"PID {of.own_pid}"


def amount(size: float) -> str:
    """``751.4M``, ``1.2G``: bytes as ``units.size`` writes them."""
    text = units.size(size)
    digits = len(text[:-1].partition(".")[2])
    return number(float(text[:-1]), digits, unit=text[-1])


def lasting(seconds: float) -> str:
    """``0.4 s``, ``40 s``, ``7 min``, ``3.5 h``."""
    if seconds < 9.5:
        return number(seconds, 1 if round(seconds, 1) % 1 else 0, unit=" s")
    if seconds < 90:
        return number(seconds, unit=" s")
    if seconds < 5400:
        return number(seconds / 60, unit=" min")
    return number(seconds / 3600, 1, unit=" h")
