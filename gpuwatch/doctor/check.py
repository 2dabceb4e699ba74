"""One thing that was checked, and what the checks look at."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.core.model import GpuIdentity, Problem, Snapshot
from gpuwatch.core.text import clean
from gpuwatch.doctor.nvidia_smi import SmiAnswer
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.nvml.survey import Survey

PASS, SKIP, WARN, FAIL = STATUSES = ("pass", "skip", "warn", "fail")
"""``skip``: it is not here, which is no fault."""

Value = float | str | bool | None


class Measured(NamedTuple):
    """A number (or a word) that a check found, as programs and people read it."""

    name: str
    """With its unit, as the fields of a snapshot have it."""
    value: Value
    unit: str | None = None
    label: str = ""
    """Words before it in a sentence."""
    after: str = ""
    said: bool = True
    """``False``: it is for programs alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """``reason`` says what was found and ``measured`` the numbers of it; ``cure`` what to do."""

    group: str
    name: str
    status: str
    reason: str = ""
    measured: tuple[Measured, ...] = ()
    cure: str | None = None
    gpu: GpuIdentity | None = None
    private: bool = False
    """The reason or the cure can name a user or a folder."""


def measured_text(alike: Sequence[Sequence[Measured]]) -> str:
    """``31 C to 47 C``: what was measured in several checks that are alike."""
    names = dict.fromkeys(one.name for measured in alike for one in measured if one.said)
    parts = []
    for name in names:
        found = [one for measured in alike for one in measured if one.name == name]
        first = found[0]
        values = [one.value for one in found if one.value is not None]
        ends, between = _ends(values)
        text = between.join(dict.fromkeys(_shown(value, first.unit) for value in ends))
        parts.append(" ".join(filter(None, (first.label, text or units.UNKNOWN, first.after))))
    return ", ".join(parts)


def _ends(values: Sequence[Value]) -> tuple[Sequence[Value], str]:
    """The least and the largest number, or every word, and what stands between them."""
    numbers = [one for one in values if isinstance(one, (int, float)) and not isinstance(one, bool)]
    if numbers and len(numbers) == len(values):
        return [min(numbers), max(numbers)], " to "
    return values, " or "


def _shown(value: Value, unit: str | None) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if unit == "s":
            return units.duration(value)
        if unit == "J":
            return units.energy(value)
    return units.quantity(value, unit)


class Terminal(NamedTuple):
    """Terminal or file that the output goes to."""

    is_terminal: bool
    width: int
    height: int
    unicode: bool
    encoding: str


class ClockPair(NamedTuple):
    """Wall clock and monotonic clock, read at one moment."""

    unix: float
    monotonic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that the checks look at, gathered once."""

    snapshot: Snapshot
    survey: Survey | None
    """NVIDIA's driver; ``None`` where the machine has that of another vendor."""
    driver_silent: bool
    smi: SmiAnswer | None
    """``None`` where nvidia-smi is not installed."""
    terminal: Terminal
    environment: Mapping[str, str]
    clocks: tuple[ClockPair, ClockPair]
    """At the beginning and at the end."""
    root: Path = Path("/")
    said: set[str] = field(default_factory=set)
    """Sentences of the snapshot's problems that a check has taken over."""

    @property
    def kernel(self) -> str:
        release = procfs.read_if_possible(self.root / "proc/sys/kernel/osrelease")
        return clean(release.decode(errors="replace").strip(), 80) or platform.release()

    @property
    def wsl(self) -> bool:
        return "microsoft" in self.kernel.lower()

    def problems(
        self, source: str, readings: Iterable[str | None] = (), uuid: str | None = None
    ) -> list[Problem]:
        """Problems of a source that are about these readings (none given: any) of this GPU."""
        wanted = set(readings)
        found = [
            problem
            for problem in self.snapshot.problems
            if problem.source == source
            and (not wanted or problem.reading in wanted)
            and (uuid is None or problem.target in (None, uuid))
        ]
        self.said.update(problem.message for problem in found)
        return found


def of_problem(problem: Problem, group: str, name: str, status: str | None = None) -> Check:
    """Return a problem of the dashboard as a check: most of its sentences have the form "what is
    wrong: what to do"."""
    known = {"error": FAIL, "warning": WARN, "info": WARN}
    reason, colon, cure = problem.message.partition(": ")
    return Check(
        group=group,
        name=name,
        status=known.get(problem.severity, WARN) if status is None else status,
        reason=f"{reason}." if colon else reason,
        cure=f"{cure[:1].upper()}{cure[1:]}" if colon else None,
    )


def redacted(check: Check) -> Check:
    """The check as it may be handed on."""
    return replace(check, reason=LEFT_OUT, cure=None) if check.private else check


LEFT_OUT = "left out here, because it can name a user or a folder"


def worst(checks: Iterable[Check]) -> str:
    """``fail``, ``warn``, or ``pass`` where nothing is wrong."""
    found = {check.status for check in checks}
    return next((status for status in (FAIL, WARN) if status in found), PASS)
