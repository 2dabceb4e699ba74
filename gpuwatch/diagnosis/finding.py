"""Results of the diagnosis: findings with their evidence, and what could not be checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from gpuwatch.core import units
from gpuwatch.core.bounds import highest, lowest, mean, total
from gpuwatch.core.model import Gpu, GpuIdentity, GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.diagnosis.sentence import ALIKE, filled, has_marks, plain, shape, template, united

WINDOW_SECONDS = 60.0
"""Time that a diagnosis looks at; for what recurs more seldom it remembers more."""

SEVERITIES = ("error", "warning", "info")
"""``error``: work is lost or at risk; ``warning``: time is lost; ``info``: good to know."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A reading that a verdict rests on; ``supports`` is false for one that speaks against it."""

    name: str
    """In words: ``busy``, ``loader workers' CPU``, ``run-queue wait``."""
    value: float | str | bool | None = None
    """Rounded to what a person reads; ``None``: it was not read, and is no evidence."""
    unit: str | None = None
    """``%``, ``W``, ``s``, ``cores``, ``bytes/s``, ``C`` ..."""
    threshold: float | None = None
    """Limit that ``value`` was compared with, in the same unit."""
    says: str = ""
    """A clause for a person: ``the workers are at the limit of a core each``."""
    _: KW_ONLY
    supports: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "says", plain(self.says))
        object.__setattr__(self, "value", _rounded(self.value, self.unit))
        object.__setattr__(self, "threshold", _rounded(self.threshold, self.unit))


_DIGITS = {"%": 1, "W": 1, "s": 1, "bytes": 0, "bytes/s": 0, "MHz": 0}


def _rounded(value: float | str | None, unit: str | None) -> float | str | None:
    """Return a number of this unit with the digits that mean something."""
    if not isinstance(value, float):
        return value
    digits = _DIGITS.get((unit or "").partition(" ")[0], 2)
    return round(value, digits)


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster the job would be with a cure, as an estimate."""

    factor: float | None
    """Times its speed of now; ``None``: how much the cure gives is not known, only that it is
    ``high`` at most."""
    low: float
    high: float
    limited_by: str
    """Limit that the job would run up to next: ``8 cores``, ``the GPU``."""
    of_jobs: tuple[float, float] | None = None
    """Lowest and highest of several jobs, of which ``factor`` is that of the middle one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "limited_by", plain(self.limited_by))

    @property
    def worth(self) -> float:
        """Times its speed of now, by which severity and order go."""
        return self.high if self.factor is None else self.factor

    @property
    def brief(self) -> str:
        """``about 1.8x as fast``, ``at most 1.3x as fast``; of several jobs ``2.4-3.2x``."""
        about = "at most" if self.factor is None else "about"
        return f"{about} {self.times} as fast"

    @property
    def times(self) -> str:
        """``1.8x``; of several jobs ``2.4-3.2x``, where they are not nearly alike."""
        low, high = self.of_jobs or (self.worth, self.worth)
        digits = 2 if high < 1.095 else 1
        is_range = self.factor is not None and high > ALIKE * low
        return f"{low:.{digits}f}-{high:.{digits}f}x" if is_range else f"{self.worth:.{digits}f}x"

    @property
    def says(self) -> str:
        """``about 1.8x as fast, limited by 8 cores``."""
        return f"{self.brief}, limited by {self.limited_by}"

    @property
    def in_full(self) -> str:
        """``about 1.8x as fast (1.5 to 2.0), limited by 8 cores``."""
        return f"{self.within}, limited by {self.limited_by}"

    @property
    def within(self) -> str:
        """``about 1.8x as fast (1.5 to 2.0)``; where the estimate is an end of its range, the
        other: ``about 2.0x as fast (at least 1.5)``."""
        estimate, low, high = [f"{times:.1f}" for times in (self.worth, self.low, self.high)]
        if self.factor is None or low == high:
            return self.brief
        ends = {high: f"at least {low}", low: f"at most {high}"}
        within = ends.get(estimate, f"{low} to {high}")
        return f"{self.brief} ({within})"


_BETWEEN = "||"


@dataclass(frozen=True, slots=True)
class Advice:
    """A change to make; ``setting`` names a knob where there is one (``num_workers``)."""

    action: str
    """A sentence in the imperative: ``Raise num_workers from 2 to 8.``"""
    _: KW_ONLY
    setting: str | None = None
    present: str | None = None
    """Value of the setting now."""
    wanted: str | None = None
    """Value to set it to."""
    brief: str = ""
    """The change in about 45 characters, for one line; empty where ``change`` is as short."""
    why: str = ""
    gain: Gain | None = None
    """Gain of this change alone, where it can be estimated."""
    check_first: bool = False
    """Whether the action begins with a check, and the change only helps if that confirms the
    cause."""
    says: str = ""
    """The action, ``present`` and ``wanted``, with places for their numbers (``sentence.template``)
    and bars between, since a recording keeps no line ends; empty where they have no numbers."""

    def __post_init__(self) -> None:
        parts = _BETWEEN.join([self.action, self.present or "", self.wanted or ""])
        if has_marks(parts):
            object.__setattr__(self, "says", template(parts))
        for name in ("action", "present", "wanted", "brief", "why"):
            text = getattr(self, name)
            object.__setattr__(self, name, text and plain(text))

    @property
    def change(self) -> str:
        """``num_workers 2 -> 8``, ``pin_memory=True``, ``batch size: 2 times``, or the action;
        ``if so, num_workers 0 -> 3`` where the cause is to be checked first."""
        if self.setting is None or self.wanted is None:
            return self.action.rstrip(".")
        if_so = "if so, " if self.check_first else ""
        if self.present is None:
            between = "=" if self.setting.isidentifier() else ": "
            return f"{if_so}{self.setting}{between}{self.wanted}"
        return f"{if_so}{self.setting} {self.present} -> {self.wanted}"


def is_in_doubt(advice: Iterable[Advice]) -> bool:
    """Check whether what is advised begins with a check of the cause."""
    return any(one.check_first for one in advice)


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A rule that fired, or could have been thought of, and is not the cause here."""

    rule: str
    why: str
    symptom: bool = False
    """Whether it fired on a symptom of the cause, which ``why`` says."""


def severity_place(severity: str) -> int:
    """0 for the gravest; one that a later version made counts as a warning."""
    return SEVERITIES.index(severity if severity in SEVERITIES else "warning")


class FindingKey(NamedTuple):
    """Identity of a finding: it is the same one a second later."""

    rule: str
    gpus: tuple[GpuKey, ...]
    job: ProcessKey | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause of under-use (or a danger) that holds now."""

    rule: str
    severity: str
    confidence: float
    """Likelihood that the cause named is the right one, 0 to 1."""
    summary: str
    """A sentence: what and where, with its numbers."""
    gpus: tuple[GpuKey, ...] = ()
    late: tuple[GpuKey, ...] = ()
    """GPUs of the finding that the other GPUs wait for."""
    job: ProcessKey | None = None
    since_unix_seconds: float | None = None
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    cost_share: float | None = None
    """Share of the GPU time of its job, while that was watched, that is lost, 0 to 1. The shares of
    one job add up to 1 at most."""
    lost_share: float | None = None
    """Share of that time that is lost now, 0 to 1: over what the sentence speaks of, the last
    minute or the pauses remembered; ``None``: nothing is lost, or only ``cost_share`` is known."""
    lost_of_seconds: float | None = None
    """Length of that time."""
    wait_share: float | None = None
    """Share of it for which each of the others waits for those that are ``late``, 0 to 1."""
    cost_gpu_seconds: float | None = None
    """GPU time lost to it so far."""
    idle_seconds_lost: tuple[tuple[GpuKey, float], ...] = ()
    """Part of it in which no kernel was resident, of each GPU that it has been about."""
    watched_gpu_seconds: float | None = None
    """GPU time that the share is of."""
    gain: Gain | None = None
    """Gain of its best cure; ``None``: it cannot be known, and nothing is promised."""
    lost_watts: float | None = None
    """Power of one of its GPUs in the time that is lost; ``None``: not read."""
    says: str = ""
    """The summary with places for its GPUs (``sentence.filled``)."""
    short: tuple[str, ...] = ()
    """Shorter forms of ``says``, the longest first, with places for the names of GPUs."""
    members: tuple[Finding, ...] = ()
    """Findings of which it is made where several jobs, or GPUs of no known job, have one cause."""

    @property
    def key(self) -> FindingKey:
        return FindingKey(self.rule, self.gpus, self.job)

    @property
    def in_doubt(self) -> bool:
        """Whether its sentence says what may be, and its advice begins with a check of that."""
        return is_in_doubt(self.advice)

    @property
    def share_lost(self) -> float | None:
        """Return the share that is lost now; of what was found elsewhere, the share lost so far."""
        return self.cost_share if self.lost_share is None else self.lost_share

    @property
    def lost_joules(self) -> float | None:
        """Energy of its GPUs in the time lost so far."""
        if self.cost_gpu_seconds is None or self.lost_watts is None:
            return None
        return self.cost_gpu_seconds * self.lost_watts

    @property
    def promise(self) -> str:
        """``num_workers 2 -> 8: about 1.8x as fast, limited by 8 cores``; empty where nothing
        is promised: idle time alone would promise far more than a cure gives."""
        if self.gain is None or self.gain.factor is None:
            return ""
        change = next(
            (one.change for one in self.advice if one.gain == self.gain and one.wanted), None
        )
        if change is None:
            return f"a fix would make the job {self.gain.says}"
        return f"{change}: {self.gain.says}"

    @property
    def gain_in_words(self) -> str:
        """The promise, or what is known instead; empty where nothing is."""
        if self.promise or self.gain is None:
            return self.promise
        return f"not known: {self.gain.says}"

    @property
    def headline(self) -> str:
        """The summary with the promise."""
        return f"{self.summary.rstrip('.')}; {self.promise}" if self.promise else self.summary


def rank(
    severity: str, gpu_seconds: float | None, share: float | None = None, sure: float = 0.0
) -> tuple[int, float, float, float]:
    """Return a key that sorts the gravest first, then what loses most. This is the order of
    findings everywhere."""
    return severity_place(severity), -(gpu_seconds or 0.0), -(share or 0.0), -sure


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """A rule that could not be checked, and the readings that were missing."""

    rule: str
    missing: tuple[str, ...]
    gpus: tuple[GpuKey, ...] = ()
    job: ProcessKey | None = None


class Question(NamedTuple):
    """Something that cannot be decided."""

    says: str
    """A sentence with places for names and numbers (``sentence.filled``)."""
    gpus: tuple[GpuKey, ...]


SAVE_BYTES = 32.0 * 1024**2
"""The weights of a small convolutional network with their optimizer; logs are far below."""
SAVE_BYTES_PER_SECOND = 10e6
"""A slow network disk; a pause of minutes with a trickle of logs stays below."""
REPORTED = ("checkpoint", "validation")
"""Phases that a job reports of its pauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A stretch of idling of a GPU that had been steadily busy, longer than its usual waits, or
    one in which it was far less busy than usual (see ``busy_percent``)."""

    at_unix_seconds: float
    seconds: float
    busy_percent: float | None = None
    """Mean of those GPUs meanwhile: near 0 is idling, more is another kind of work (a validation
    pass with smaller batches)."""
    gpus: tuple[GpuKey, ...] = ()
    """Which paused."""
    wrote_bytes: float | None = None
    sent_bytes: float | None = None
    """Over the network; where only the machine's traffic was read, what was more than before."""
    main_thread_percent: float | None = None
    busiest_worker_percent: float | None = None
    other_workers_percent: float | None = None
    """Field of ``JobFacts`` of the same name, in the pause."""
    restart_seconds: float = 0.0
    """Time of the pause in which a GPU idled from the start of loader workers that took the place
    of others to its first work on what they made."""
    epoch_seconds: float = 0.0
    """the others had begun so long before."""
    phase: str | None = None
    """Phase that the job reported: ``checkpoint``, ``validation`` or ``train``."""
    memory_freed_share: float | None = None
    """0 to 1: how much of the GPU memory held just before was given back in it."""
    compiled: bool = False
    """Compilers ran among the job's processes in it."""

    @property
    def is_restart(self) -> bool:
        """Whether the GPU waited for new loader workers in it, and for hardly anything else."""
        return self.restart_seconds > 0.5 * self.seconds

    def overlaps(self, other: Pause) -> bool:
        distance = self.at_unix_seconds - other.at_unix_seconds
        return -self.seconds < distance < other.seconds

    @property
    def saved_bytes(self) -> float:
        """Bytes written or sent in it, whichever is more."""
        return max(self.wrote_bytes or 0.0, self.sent_bytes or 0.0)

    @property
    def is_save(self) -> bool:
        """Whether the job saved in it: by what it reports that it did, else by what it wrote, or
        sent to other storage."""
        if self.phase in REPORTED:
            return self.phase == "checkpoint"
        much = self.saved_bytes / max(0.1, self.seconds) >= SAVE_BYTES_PER_SECOND
        return much and self.saved_bytes >= SAVE_BYTES


class Look(NamedTuple):
    """Time over which a job, or GPUs of no known job, were looked at last."""

    gpus: tuple[GpuKey, ...]
    job: ProcessKey | None
    until_seconds: float
    """Its end on the snapshots' monotonic clock."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything the engine says at one moment, the most costly cause first."""

    taken_at_unix_seconds: float
    watched_seconds: float
    verdict: str
    """Sentence for a person."""
    findings: tuple[Finding, ...] = ()
    """Findings, each of one job or of GPUs of no known job."""
    causes: tuple[Finding, ...] = ()
    """Findings for a person: those of one cause are one."""
    unknown: tuple[Unchecked, ...] = ()
    decided: bool = True
    """False while it is too early, or too little can be read, to say that nothing is wrong."""
    undecided_gpus: tuple[GpuKey, ...] = ()
    """GPUs of which it cannot be said that nothing is wrong."""
    questions: tuple[Question, ...] = ()
    """Questions about these GPUs, and about those that cannot be read now."""
    pauses: tuple[Pause, ...] = ()
    """Pauses of the last 15 minutes."""
    looks: tuple[Look, ...] = ()
    """Times that its numbers are of; empty where it was made elsewhere."""

    def __post_init__(self) -> None:
        if not self.causes:
            object.__setattr__(self, "causes", self.findings)


def about_job(diagnosis: Diagnosis | None, job: Job) -> tuple[Finding, ...]:
    """Return the findings that name the job or a GPU of it, and those about the whole machine."""
    return () if diagnosis is None else tuple(about(diagnosis.findings, job))


def cut_to(diagnosis: Diagnosis, job: Job) -> Diagnosis:
    """Cut ``diagnosis`` down to the job: what is said of other jobs and their GPUs is left out."""
    return replace(
        diagnosis,
        findings=about_job(diagnosis, job),
        causes=(),
        unknown=tuple(about(diagnosis.unknown, job)),
    )


LOST_AFTER_SECONDS = 30.0
"""Time to watch before it is said how many GPUs' time is lost."""


def lost_gpus(findings: Iterable[Finding], snapshot: Snapshot) -> float:
    """Return how many GPUs' time is lost to findings now: the sum of what is shown of each."""
    # A share is of all GPUs of its job, also where the finding names one of them.
    used: dict[ProcessKey | None, int] = {job.key: len(job.gpu_uuids) for job in snapshot.jobs}
    each = [(one.share_lost or 0.0) * used.get(one.job, len(one.gpus)) for one in findings]
    return min(sum(each), len(snapshot.gpus))


class OfGpus(Protocol):
    """A finding, an episode of one, or a rule that could not be checked."""

    @property
    def gpus(self) -> tuple[GpuKey, ...]: ...
    @property
    def job(self) -> ProcessKey | None: ...


Said = TypeVar("Said", bound=OfGpus)


def about(said: Iterable[Said], job: Job) -> Iterator[Said]:
    """Yield those that name the job or a GPU of it, and those about the whole machine."""
    mine = set(job.gpu_uuids)
    for one in said:
        of_machine = not one.gpus or not mine.isdisjoint(one.gpus)
        if one.job == job.key or (one.job is None and of_machine):
            yield one


# --- findings of one cause as one: the same fault of several jobs, or of GPUs of no known job -----
#
# They are of one cause if their rule is one, and their sentences differ in names of GPUs and
# numbers only: another reason, or another rank to look after, stays apart, and so does an error.

STEADY = 0.25
"""Share of a loss: causes that differ by less keep their order. Two that share what is left of a
machine differ by some percent at every look, and a list that is being read must not move for
that."""
WHOLE_LEAST = 3
"""GPUs of a machine that are called by their number where all are meant."""
Names = Callable[[Sequence[GpuKey]], str]
"""Function from GPUs to their names: ``GPUs 0 and 2``, ``all 8 GPUs``."""


class Described(Protocol):
    """A finding, or an episode of one."""

    @property
    def rule(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def says(self) -> str: ...


def names_among(there: Iterable[GpuIdentity]) -> Names:
    """Return how GPUs are called among those that are there: ``GPU 0``, ``all 8 GPUs``."""
    every = sorted({gpu.uuid: gpu for gpu in there}.values(), key=lambda gpu: gpu.index)

    def names(uuids: Sequence[GpuKey]) -> str:
        wanted = [gpu for gpu in every if gpu.uuid in uuids]
        whole = len(wanted) == len(every) >= WHOLE_LEAST
        return f"all {len(every)} GPUs" if whole else units.gpus_named(wanted)

    return names


def gpu_names(uuids: Sequence[GpuKey], gpus: Sequence[Gpu]) -> str:
    """Return ``GPU 0``, ``GPU 0-3,6``, ``8 GPUs`` (all); nothing where none of them is there."""
    named = [units.gpu_label(gpu) for gpu in gpus if gpu.uuid in uuids]
    if len(named) == len(gpus) > 1:
        return f"{len(gpus)} GPUs"
    return f"GPU {units.ranges(named)}" if named else ""


LONGEST_NAMES = 9
"""Characters of the names of GPUs in a short sentence, beyond which they are counted."""


class SaidInShort(Protocol):
    """A finding, an episode of one, or its mark on a time axis."""

    @property
    def short(self) -> tuple[str, ...]: ...
    @property
    def gpus(self) -> tuple[GpuKey, ...]: ...


def in_short(one: SaidInShort, gpus: Sequence[Gpu]) -> list[str]:
    """Return the short forms of its sentence, the longest first, with the names of its GPUs among
    ``gpus``; none where those are not there."""
    names = gpu_names(one.gpus, gpus)
    if len(names) > LONGEST_NAMES:
        names = f"{len(one.gpus)} GPUs"
    about = len(one.gpus)
    return [filled(says, names, about) for says in one.short] if names or not about else []


def cause_of(one: Described) -> tuple[str, ...]:
    """Return what a finding shares with those of the same cause, also of other moments. Whether so
    much is gained that it is a warning, or little, differs from job to job."""
    return (
        one.rule,
        "error" if one.severity == "error" else "",
        shape(one.says or template(one.summary)),
    )


def as_causes(
    findings: Iterable[Finding], names: Names, before: Iterable[Finding] = ()
) -> list[Finding]:
    """Return one finding for each cause, by ``rank``; causes to which about as much is lost stay in
    the order of ``before``."""
    places = {cause_of(one): place for place, one in enumerate(before)}
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for one in findings:
        groups.setdefault(cause_of(one), []).append(one)
    out: list[Finding] = []
    for one in sorted([_as_one(group, names) for group in groups.values()], key=_rank):
        at, place = len(out), places.get(cause_of(one), len(places))
        while at and _is_near(out[at - 1], one):
            if place >= places.get(cause_of(out[at - 1]), len(places)):
                break
            at -= 1
        out.insert(at, one)
    return out


def _as_one(members: Sequence[Finding], names: Names) -> Finding:
    first, jobs = members[0], {one.job for one in members}
    says = united([one.says or template(one.summary) for one in members])
    gpus = tuple(dict.fromkeys([uuid for one in members for uuid in one.gpus]))
    return replace(
        first,
        severity=min([one.severity for one in members], key=severity_place),
        summary=filled(says, names(gpus), len(gpus), of=len(members)),
        confidence=min([one.confidence for one in members]),
        short=_short(members),
        gpus=gpus,
        late=tuple(dict.fromkeys([uuid for one in members for uuid in one.late])),
        job=first.job if len(jobs) == 1 else None,
        since_unix_seconds=lowest(one.since_unix_seconds for one in members),
        advice=_advice(members),
        gain=_gain([one.gain for one in members]),
        lost_watts=mean(one.lost_watts for one in members),
        cost_share=_share(members),
        lost_share=_share_now(members),
        lost_of_seconds=highest(one.lost_of_seconds for one in members),
        wait_share=mean(one.wait_share for one in members),
        cost_gpu_seconds=total(one.cost_gpu_seconds for one in members),
        idle_seconds_lost=(),
        watched_gpu_seconds=_watched(members),
        members=tuple(members),
    )


def _short(members: Sequence[Finding]) -> tuple[str, ...]:
    """Return the short forms of the summary that all of them have, with their ranges of numbers."""
    forms = zip(*[one.short for one in members], strict=False)
    return tuple([united(each) for each in forms if len(set(map(shape, each))) == 1])


def _advice(members: Sequence[Finding]) -> tuple[Advice, ...]:
    """Return each change once; where only numbers differ (a job needs 6 workers, another 8), with
    both."""
    groups: dict[tuple[str | None, ...], list[Advice]] = {}
    for one in [advice for member in members for advice in member.advice]:
        alike = (shape(one.says),) if one.says else (one.action, one.present, one.wanted)
        groups.setdefault((one.setting, *alike), []).append(one)
    return tuple([_one_advice(alike) for alike in groups.values()])


def _one_advice(alike: Sequence[Advice]) -> Advice:
    parts = filled(united([one.says for one in alike])).split(_BETWEEN)
    if len(alike) == 1 or len(parts) != 3:
        return alike[0]
    action, present, wanted = parts
    return replace(
        alike[0],
        action=action,
        present=present or None,
        wanted=wanted or None,
        gain=_gain([one.gain for one in alike]),
    )


def _gain(gains: Sequence[Gain | None]) -> Gain | None:
    """Return one gain for those of several jobs: the middle one, of two the lower, and the widest
    range."""
    known = sorted([one for one in gains if one is not None], key=lambda one: one.worth)
    if not known or len(known) < len(gains):
        return None
    middle = known[(len(known) - 1) // 2]
    return replace(
        middle,
        low=min([one.low for one in known]),
        high=max([one.high for one in known]),
        of_jobs=(known[0].worth, known[-1].worth) if len(known) > 1 else None,
    )


def _share(members: Sequence[Finding]) -> float | None:
    """Return the share of the time of all their GPUs that was lost, 0 to 1."""
    shares = [one.cost_share for one in members]
    if len(members) == 1 or None in shares:
        return shares[0]
    lost = sum([one.cost_gpu_seconds or 0.0 for one in members])
    watched = _watched(members)
    return min(1.0, lost / watched) if watched else 0.0


def _share_now(members: Sequence[Finding]) -> float | None:
    """Return the share of the time of all their jobs that is lost now, 0 to 1; a job weighs by the
    time of its GPUs that was watched."""
    shares = [one.share_lost for one in members]
    if len(members) == 1 or None in shares:
        return members[0].lost_share
    weights = [one.watched_gpu_seconds or 0.0 for one in members]
    lost = sum([(share or 0.0) * weight for share, weight in zip(shares, weights, strict=True)])
    watched = _watched(members)
    return min(1.0, lost / watched) if watched else 0.0


def _watched(members: Sequence[Finding]) -> float | None:
    """Return the GPU time that they were watched for; that of GPUs that several share, once."""
    watched: dict[tuple[GpuKey, ...], float | None] = {}
    for one in members:
        watched[one.gpus] = highest([watched.get(one.gpus), one.watched_gpu_seconds])
    return total(watched.values())


def _rank(finding: Finding) -> tuple[int, float, float, float]:
    return rank(finding.severity, finding.cost_gpu_seconds, finding.cost_share, finding.confidence)


def _is_near(more: Finding, less: Finding) -> bool:
    """Whether about as much is lost to both; ``more`` ranks before ``less``."""
    if more.severity != less.severity:
        return False
    costs = (more.cost_gpu_seconds or 0.0, less.cost_gpu_seconds or 0.0)
    if costs == (0.0, 0.0):
        costs = (more.cost_share or 0.0, less.cost_share or 0.0)
    return costs[1] >= (1.0 - STEADY) * costs[0]
