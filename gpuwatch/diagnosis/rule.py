"""Parts that a rule is made of. A rule is one module in ``rules``, named for the fault: a docstring
that documents it, ``RULE`` with what else is known of it, named thresholds with their reasons, and
one pure function ``check``. It looks at one ``Window``: a job with its GPUs, or one GPU of which no
job is known.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.finding import Advice, Evidence, Gain, Pause
from gpuwatch.diagnosis.sentence import plain

__all__ = [
    "Advice", "Check", "Clear", "Evidence", "Firing", "Rule", "Settled", "Unknown", "Verdict",
    "Window"
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """The fault is there. What is ``None`` of severity, advice and explanations is ``RULE``'s."""

    summary: str
    """A sentence, with ``sentence.GPUS`` for its GPUs: it is said of those of other jobs, too."""
    short: tuple[str, ...] = ()
    """Shorter forms of the summary, the longest first: at most 76 cells, then 36."""
    evidence: Sequence[Evidence | None]
    """Readings that it rests on; ``None`` for one that was not read and says nothing."""
    advice: Sequence[Advice] | None = None
    severity: str | None = None
    strength: float = 1.0
    """0 to 1: how clear the evidence is; the engine makes a calibrated confidence of it."""
    missing: Sequence[str] = ()
    """Readings that would have made it surer."""
    gpus: tuple[GpuKey, ...] = ()
    """GPUs that it is about; empty: all of the window."""
    late: tuple[GpuKey, ...] = ()
    """GPUs of the firing that the other GPUs wait for."""
    lost_share: float | None = None
    """0 to 1: the share of the window's time those GPUs lost to it; ``None``: nothing is lost."""
    wait_share: float | None = None
    """0 to 1: for how much of it the others wait for those that are ``late``, as the summary has
    it."""
    lost_while_busy: bool = False
    """Whether ``lost_share`` was lost while a kernel was resident, though the rule is one of idle
    time."""
    pauses: tuple[Pause, ...] = ()
    """The time was lost in these and nowhere else; ``lost_share`` is then of the time over which
    pauses are remembered."""
    hold_seconds: float = 0.0
    """Time for which it must hold to be raised: what passes by itself looks the same before."""
    explains: Set[str] | None = None
    """Rules whose findings in the same window are only symptoms of this one."""
    gain: Gain | None = None
    """Gain of the best cure, which ``gain.with_gains`` works out."""


@dataclass(frozen=True, slots=True)
class Clear:
    """The fault is not there; ``why`` in a clause."""

    why: str = ""
    at_once: bool = False
    """Whether it is over beyond doubt, so that a finding is withdrawn without waiting."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", plain(self.why))


@dataclass(frozen=True, slots=True)
class Unknown:
    """The rule cannot be checked for want of readings (named as a person knows them)."""

    missing: tuple[str, ...]


class Settled(Exception):  # noqa: N818
    """Ends a check from within a question that settles it: what it asks for is not there, or was
    not read."""

    def __init__(self, verdict: Clear | Unknown) -> None:
        self.verdict = verdict


Verdict = Firing | Clear | Unknown
Check = Callable[[Window], Verdict]


def _unchecked(_window: Window) -> Verdict:
    return Unknown(("a check",))


class GpuState(NamedTuple):
    """Activity of a GPU: its word on every page, the hue of its charts, for which each output has a
    colour, and what the word means, for the help."""

    word: str
    hue: str
    meaning: str


STARVED = GpuState("starved", "starved", "idle in between: work comes too late")
PAUSES = GpuState("pauses", "starved", "stops for seconds, again and again")
THROTTLED = GpuState("throttled", "throttled", "its clocks are held down")
WAITING = GpuState("waiting", "waiting", "busy waiting for another GPU")
UNDERUSED = GpuState("underused", "waiting", "busy, yet few of its units work")
STRAGGLER = GpuState("straggler", "late", "the one that the others wait for")
IDLE = GpuState("idle", "idle", "nothing runs on it")
NO_ANSWER = GpuState("no answer", "error", "the driver cannot reach it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Declaration of a fault. The catalogue adds ``name``, ``documentation`` and ``check`` from
    its module; everything that lists, ranks, explains, draws or cures faults is made from this."""

    title: str
    """The cause in at most 22 characters."""
    title_in_doubt: str = ""
    """The cause where the sentence of a finding says only what may be (``Finding.in_doubt``)."""
    severity: str = "warning"
    cure: tuple[Advice, ...] = ()
    """Changes to make, where those do not depend on what was read; the documentation lists them, if
    it has no section on what to do."""
    explains: Set[str] = frozenset()
    """Rules that fire on its symptoms."""
    gives_back: str | None = None
    """How much of the lost time its cures give back: ``all``, ``some`` (nobody knows how much), or
    ``None`` where a job is no faster for them."""
    slows_clocks: bool = False
    """Whether the cure is a higher clock, for which there must be power."""
    harms: bool = False
    """Whether it does harm beside the time it costs: it is as grave however little is gained."""
    covers: Set[str] = frozenset()
    """Rules whose findings about the same GPUs only repeat it, also those of other windows."""
    trust: float = 1.0
    """Factor of its confidence: how often it is right beside others of the same strength."""
    lost_while_busy: bool = False
    """Whether the time lost to it lies where a kernel was resident; else it explains idle time."""
    settles: bool = False
    """Whether it says why the GPU idles, also where nothing is wrong with that."""
    uses_workers: bool = False
    """Whether it rests on which processes are loader workers: a guess makes it less sure."""
    after_end: bool = False
    """Whether it can still be wrong with a job that has ended."""
    of_rest: bool = False
    """Whether it fires only for GPUs that stay idle."""
    means: GpuState | None = None
    """State of its GPUs, where that does not follow from the time that is lost to it."""
    of_pauses: bool = False
    """Whether it says what a pause of the GPU was."""
    has_look_alikes: bool = True
    """Whether time is lost to it and it can be taken for another cause: those that were checked are
    listed."""
    look_alike: int = 0
    """Its place in that list, by how soon a person thinks of it; 0: it is not in it."""
    charts: tuple[str, ...] = ()
    """Charts that show it beside the utilisation, most telling first: fields of ``GpuReading``, and
    of a job ``wait`` (for data), ``main`` (threads), ``worker``, ``read`` and ``write``."""
    chart_seconds: float = 60.0
    """Seconds of the chart: what recurs in minutes, or grows in them, does not show in one."""
    name: str = ""
    documentation: str = ""
    check: Check = _unchecked

    def state_of(
        self, gpu: GpuKey, late: Sequence[GpuKey], severity: str, *, loses_time: bool
    ) -> GpuState | None:
        """Return the state of a GPU of a finding, of which the others wait for those that are
        ``late``; ``None``: the finding says nothing of how busy it is. ``loses_time``: any of its
        time is lost to it so far."""
        if gpu in late:
            return STRAGGLER
        if self.means is not None or self.lost_while_busy:
            return self.means
        if severity == "info" or not loses_time:
            return None
        return IDLE if self.of_rest else STARVED
