"""Gathers what the checks look at, and runs them."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ReadOptions, Source, SystemClock
from gpuwatch.core.text import bug_place
from gpuwatch.doctor import driver, machine
from gpuwatch.doctor.check import FAIL, Check, ClockPair, Facts, Terminal
from gpuwatch.doctor.nvidia_smi import ask_nvidia_smi
from gpuwatch.sources.local import LocalSource
from gpuwatch.sources.nvml.survey import Survey

CHECKS: tuple[Callable[[Facts], Iterator[Check]], ...] = (
    *(machine.itself, *driver.CHECKS, *machine.CHECKS),
)
"""In the order in which they are shown."""


def examine(
    look: Callable[[Source], Snapshot],
    terminal: Terminal,
    *,
    environment: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Facts:
    """``look`` opens a source, looks at it twice and closes it, without ever hanging."""
    clock, options = SystemClock(), ReadOptions()
    survey = Survey(clock, options)
    before = both_clocks()
    source = LocalSource(clock, options, gpus=lambda: survey)
    snapshot = look(source)
    return Facts(
        snapshot=snapshot,
        survey=survey,
        driver_silent=source.driver_silent,
        smi=ask_nvidia_smi(),
        terminal=terminal,
        environment=environment,
        clocks=(before, both_clocks()),
        root=root,
    )


def both_clocks() -> ClockPair:
    return ClockPair(time.time(), time.monotonic())


def checked(facts: Facts) -> tuple[Check, ...]:
    """Return what all checks find; one that fails takes none of the others away."""
    found: list[Check] = []
    for check in CHECKS:
        try:
            found += check(facts)
        except Exception as error:
            reason = f"{bug_place(error)}; this is a bug in gpuwatch."
            name = check.__name__.replace("_", " ")
            found.append(Check(group="gpuwatch", name=name, status=FAIL, reason=reason))
    return tuple(found)
