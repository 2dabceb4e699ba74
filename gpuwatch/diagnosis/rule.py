"""What a rule is: a module of ``rules`` named for the fault, with a docstring that documents it,
named thresholds with their reasons, and one pure function ``check``.

A rule looks at one ``Window``: a job with its GPUs, or one GPU of which no job is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.facts.window import Pause, Window
from gpuwatch.diagnosis.finding import Advice, Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """The fault is there."""

    summary: str
    evidence: tuple[Evidence, ...]
    advice: tuple[Advice, ...] = ()
    severity: str = "warning"
    strength: float = 1.0
    """0 to 1: how clear the evidence is; the engine makes a calibrated confidence of it."""
    missing: tuple[str, ...] = ()
    """Readings that would have made it surer."""
    gpus: tuple[GpuKey, ...] = ()
    """Those it is about; empty: all of the window."""
    lost_share: float | None = None
    """0 to 1: the share of the window's time those GPUs lost to it; ``None``: nothing is lost."""
    lost_while_busy: bool = False
    """That time was lost while a kernel was resident, though the rule is one of idle time."""
    pauses: tuple[Pause, ...] = ()
    """The time was lost in these and nowhere else; ``lost_share`` is then of the time over which
    pauses are remembered."""
    hold_seconds: float = 0.0
    """It is raised only when it held for so long: what passes by itself looks the same before."""
    explains: frozenset[str] = field(default_factory=frozenset)
    """Rules whose findings in the same window are only symptoms of this one."""


@dataclass(frozen=True, slots=True)
class Clear:
    """The fault is not there; ``why`` in a clause."""

    why: str = ""
    at_once: bool = False
    """It was there and is over beyond doubt: a finding is taken back without waiting."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be told for want of readings (named as a person knows them)."""

    missing: tuple[str, ...]


Verdict = Firing | Clear | Unknown
Check = Callable[[Window], Verdict]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the engine holds it; ``name`` is that of its module."""

    name: str
    check: Check
    documentation: str
