"""The document of a report, or of two compared: what is said, in which order, as blocks that every
form (text, HTML) can write.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from gpuwatch.core import units
from gpuwatch.core.model import PIDS_OF_A_MACHINE, GpuIdentity, GpuKey
from gpuwatch.core.registry import GPU
from gpuwatch.core.throttling import REASONS
from gpuwatch.core.units import percent, samples, size
from gpuwatch.diagnosis.catalogue import known
from gpuwatch.diagnosis.finding import (
    Advice,
    Evidence,
    Finding,
    as_causes,
    names_among,
)
from gpuwatch.diagnosis.ledger import OF_FINDING
from gpuwatch.diagnosis.rule import STRAGGLER, GpuState
from gpuwatch.outputs.report import words
from gpuwatch.outputs.report.comparison import (
    Comparison,
    FindingChange,
    change_words,
    compare,
    comparison_verdict,
    doubts,
    figure_words,
    report_name,
)
from gpuwatch.outputs.report.model import (
    FindingUse,
    GpuUsage,
    JobUsage,
    Loading,
    OpenQuestion,
    Phase,
    ProcessUsage,
    Report,
    Stretch,
    TimeProfile,
    Usage,
    dumps,
    replaced,
    share_percent,
    without_profiles,
)
from gpuwatch.outputs.report.words import Times, grouped, hours
from gpuwatch.outputs.terminal import Column, cut

# --- blocks -----------------------------------------------------------------------------------

T = TypeVar("T")


class Paragraph(NamedTuple):
    """A paragraph of text; ``style`` is ``verdict``, ``why``, ``command``, ``bad``, ``warn``,
    ``note`` or nothing."""

    text: str
    style: str = ""


class FactLine(NamedTuple):
    """Facts in one line, where there is room, with dots between."""

    facts: Sequence[str]
    style: str = ""


class Labelled(NamedTuple):
    """Facts after their labels, a line each."""

    title: str
    facts: Sequence[tuple[str, str]]


class Bullets(NamedTuple):
    """Notes below a table, or (with a title) a list of its own."""

    title: str
    sentences: Sequence[str]
    style: str = "note"


class Table(NamedTuple):
    title: str
    columns: Sequence[Column[Any]]
    rows: Sequence[Sequence[str]]
    total: Sequence[str] | None = None
    left: int = 0
    """Number of rows left out."""
    judged: bool = False
    """The last column says ``better`` or ``worse``."""


class Step(NamedTuple):
    """One thing to do, and why; the first is what a person looks for."""

    action: str
    why: str

    @property
    def text(self) -> str:
        return f"{self.action}: {self.why}" if self.why else f"{self.action}."


class ToDo(NamedTuple):
    """Advice on one finding, and what the finding cost."""

    name: str
    """``#1``, as in the charts."""
    cause: str
    severity: str
    when: str
    cost: str
    gain: str
    advice: Sequence[Step]


class Found(NamedTuple):
    """One finding, or one rule of several alike."""

    name: str
    """``#1``, or what became of it."""
    cause: str
    severity: str
    when: str
    where: str
    cost: str
    what: Sequence[str]
    advice: Sequence[Step]
    evidence: Sequence[tuple[str, str, str, str]] = ()
    """(reading, value, limit, meaning); evidence against the cause says so in its meaning."""
    because: Sequence[str] = ()
    """Evidence in a line each, without what speaks against it."""
    against: Sequence[str] = ()
    ruled_out: Sequence[str] = ()
    sure: str = ""
    """Likelihood that the cause named is the right one."""
    gain: str = ""
    """How much faster its cure would make the job."""
    also_seen: Sequence[str] = ()
    """Its symptoms."""


class Lane(NamedTuple):
    number: int
    cause: str
    severity: str
    described: str
    stretches: Sequence[Stretch]
    seconds: float


class Held(NamedTuple):
    """A time over which a GPU was held up."""

    hue: str
    """Colour of the cause, by its name in the palette."""
    stretch: Stretch
    of_busy: bool
    """Whether its work is what was slow, rather than that it had none."""
    word: str
    """State that the GPU was in, as every page calls it."""


class Row(NamedTuple):
    """A time profile on the time axis."""

    label: str
    short: str
    of: str
    """A few words more about its subject."""
    profile: TimeProfile | None
    end: str
    """Figure at the end of the row, for all of its time."""
    described: str
    missing: str = ""
    top: float = 100.0
    marks: Sequence[Held] = ()
    """Findings that held up the GPU, on the chart's time axis."""
    lost: Sequence[Stretch] = ()


class Timeline(NamedTuple):
    """Rows on one time axis."""

    report: Report
    lanes: Sequence[Lane]
    gpus: Sequence[Row]
    others: Sequence[Row]
    """Rows that are charts of their own on a terminal."""
    cpu: Row | None
    name: str = ""
    """Prefix that makes the ids of a page unique."""


class Cards(NamedTuple):
    """A few small plots for each GPU, on its own scales."""

    report: Report
    cards: Sequence[tuple[str, Sequence[Row]]]
    left: int


Block = Paragraph | FactLine | Labelled | Bullets | Table | ToDo | Found | Timeline | Cards


@dataclass(frozen=True)
class Section:
    """Blocks that belong together; only pages show the ``title``."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    title: str
    heading: str
    simulated: bool
    sections: Sequence[Section]


PAGE_RANK_MAX = 9
"""Columns of a higher rank are for wide terminals only."""


def tabled(
    title: str,
    columns: Sequence[Column[T]],
    items: Sequence[T],
    form: str,
    *,
    most: int | None = None,
    totals: Report | None = None,
) -> Table:
    """Return a table of the first ``most`` of ``items``, in the columns of ``form`` (``text`` or
    ``page``) that have anything in them."""
    shown = items[:most]
    kept: list[tuple[Column[T], list[str]]] = []
    for column in columns:
        if form == "page" and column.rank > PAGE_RANK_MAX:
            continue
        cells = [column.cell(item) for item in shown]
        if column.rank == 0 or not set(cells) <= {units.UNKNOWN, ""}:
            kept.append((column, cells))
    total = None
    if totals is not None:
        total = ["" if column.total is None else column.total(totals) for column, _ in kept]
    return Table(
        title,
        [column for column, _ in kept],
        list(zip(*[cells for _, cells in kept], strict=True)),
        total,
        len(items) - len(shown),
    )


# --- findings, those of one cause together, and the headline that they make -------------------

EVIDENCE_SHOWN = 4
LANE_STRETCHES = 12
JOBS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Group:
    """Findings of one cause. ``number`` is their number in the report."""

    number: int
    cause: Finding
    uses: tuple[FindingUse, ...]
    report: Report

    @property
    def severity(self) -> str:
        return self.cause.severity

    @property
    def cost(self) -> float | None:
        return self.cause.cost_gpu_seconds

    @property
    def share(self) -> float | None:
        """Cost as a share of all GPU time watched, 0 to 1."""
        all_ = self.report.gpu_seconds
        return None if self.cost is None or not all_ else min(1.0, self.cost / all_)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Stretches in which it held for any of them."""
        spans: list[list[float]] = []
        every = [stretch for use in self.uses for stretch in use.stretches]
        for one in sorted(every, key=lambda stretch: stretch.begin_unix_seconds):
            if spans and one.begin_unix_seconds <= spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], one.end_unix_seconds)
            else:
                spans.append([one.begin_unix_seconds, one.end_unix_seconds])
        return tuple([Stretch(begin_unix_seconds=a, end_unix_seconds=b) for a, b in spans])

    @property
    def seconds(self) -> float:
        return sum(stretch.seconds for stretch in self.stretches)

    def when(self, most: int = words.STRETCHES_SHOWN) -> str:
        """Return ``03:04 to 04:04 (1h00)``, and how often else."""
        text, left = Times(self.report).stretches(self.stretches, most)
        if left > 0:
            text += f" and {units.plural(left, 'more time')}, {units.age(self.seconds)} in all"
        return text

    @property
    def is_of_all_time(self) -> bool:
        """Whether it held for about as long as was read."""
        read = self.report.time.covered_seconds or self.report.time.seconds
        return self.seconds >= MOST_OF * read or not self.seconds

    @property
    def named(self) -> str:
        return words.cause(self.cause.rule, in_doubt=self.cause.in_doubt)

    def cost_words(self) -> str:
        """Return ``4.7 GPU-hours, 5% of all GPU time``; empty where no time is lost. Of all time
        and GPUs the sentence has the share that idles, as it was when it was surest; how often a
        GPU is slowed down is not what is lost by that."""
        cause, all_ = self.cause, {gpu.uuid for gpu in self.report.gpus}
        alone = len(self.uses) == 1 and self.is_of_all_time and all_ <= set(cause.gpus)
        idles = not known(cause.rule).lost_while_busy
        share_said = alone and idles and "% of the time" in cause.summary
        return words.cost(self.cost, self.report, cause.lost_joules, share_said=share_said)

    def gain_words(self) -> str:
        """Return the promise, or what is known instead. What held for a part of the time makes the
        job faster in that part: then how much faster all of it would have been is said, too."""
        gain, said = self.cause.gain, self.cause.gain_in_words
        if gain is None or self.is_of_all_time:
            return said
        said += f", while it held ({units.age(self.seconds)})"
        time = self.report.time
        read = time.covered_seconds or time.seconds
        if gain.factor is None or len(self.uses) > 1 or self.seconds >= read:
            return said
        saved = self.seconds * (1.0 - 1.0 / max(1.0, gain.factor))
        whole = replace(gain, factor=read / (read - saved))
        return f"{said}; {whole.brief} over all {units.age(time.seconds)}"

    def _what(self) -> Iterable[str]:
        """Return the sentence, and each job, where there are several."""
        yield self.cause.summary
        commands = {job.key: f" ({job.command})" for job in self.report.jobs if job.command}
        several = len(self.uses) > 1
        named = several or (self.cause.job is not None and len(self.report.jobs) > 1)
        for one in self.cause.members[:JOBS_SHOWN] if named else ():
            who = "" if one.job is None else f"PID {one.job[0]}{commands.get(one.job, '')}"
            where = words.labels(one.gpus, self.report) if one.gpus else ""
            parts = [" on ".join(filter(None, (who, where)))]
            if several:
                parts += [units.gpu_time(one.cost_gpu_seconds)] if one.cost_gpu_seconds else []
                parts += [each.change for each in one.advice if each.wanted is not None]
            yield "; ".join(parts)
        yield from [f"and {left} more"] if (left := len(self.uses) - JOBS_SHOWN) > 0 else []

    def to_do(self) -> ToDo:
        """Return what to do about it, what it cost, and what doing it gains."""
        return ToDo(
            f"#{self.number}",
            self.named,
            self.severity,
            self.when(),
            self.cost_words(),
            self.gain_words(),
            [step(one) for one in self.cause.advice],
        )

    def evidence(self) -> Found:
        """Return what was found and why, without what ``to_do`` says."""
        return self.found()._replace(cost="", advice=(), gain="")

    def found(self) -> Found:
        evidence = [one for one in self.cause.evidence if one.value is not None]
        because = [evidence_line(one) for one in evidence if one.supports]
        against = [evidence_line(one) for one in evidence if not one.supports]
        ruled_out = self.cause.ruled_out
        not_it = [f"{words.cause(one.rule)}: {one.why}" for one in ruled_out if not one.symptom]
        return Found(
            f"#{self.number}",
            self.named,
            self.severity,
            self.when(),
            words.labels(self.cause.gpus, self.report),
            self.cost_words(),
            list(self._what()),
            [step(one) for one in self.cause.advice],
            [evidence_row(one) for one in evidence],
            because[:EVIDENCE_SHOWN],
            against[:EVIDENCE_SHOWN],
            not_it,
            f"{100.0 * self.cause.confidence:.0f}%",
            self.gain_words(),
            [one.why for one in ruled_out if one.symptom],
        )

    def lane(self) -> Lane:
        described = f"{self.severity}, {self.when(LANE_STRETCHES)}"
        return Lane(self.number, self.named, self.severity, described, self.stretches, self.seconds)


def groups(report: Report) -> tuple[Group, ...]:
    same = (*OF_FINDING, "gpus", "cost_gpu_seconds")
    found = [Finding(**{name: getattr(use, name) for name in same}) for use in report.findings]
    uses = {id(one): use for one, use in zip(found, report.findings, strict=True)}
    causes = as_causes(found, names_among(map(_identity, report.gpus)))
    return tuple(
        Group(number, cause, tuple([uses[id(one)] for one in cause.members]), report)
        for number, cause in enumerate(causes, start=1)
    )


def _identity(gpu: GpuUsage) -> GpuIdentity:
    return GpuIdentity(index=gpu.index, uuid=gpu.uuid, name=gpu.name, mig_instance=gpu.mig_instance)


def step(advice: Advice) -> Step:
    """Return what to do, with the setting where the sentence has not named its new value."""
    text = advice.action.rstrip(".")
    if advice.setting is not None and advice.wanted is not None and advice.wanted not in text:
        present = "" if advice.present is None else f"{advice.present} -> "
        text += f" ({advice.setting}: {present}{advice.wanted})"
    return Step(text, advice.why)


def evidence_value(evidence: Evidence) -> str:
    """Return ``99%``, ``0.4%``, ``29 cores``. What a share is one of the meaning beside it says;
    tenths are kept where a limit below ten percent, or less than one, makes them matter."""
    value, unit = evidence.value, _short_unit(evidence) if evidence.says else evidence.unit
    limit = evidence.threshold
    if unit == "%" and isinstance(value, float) and (limit is None or limit >= 10.0):
        value = value if abs(value) < 0.95 else float(round(value))
    return units.quantity(value, unit)


def evidence_limit(evidence: Evidence) -> str:
    """Return ``> 75%``: where a reading lies that speaks for the finding."""
    value, limit = evidence.value, evidence.threshold
    if limit is None or not isinstance(value, (int, float)):
        return ""
    side = "<" if (value < limit) == evidence.supports else ">"
    # A unit that is a word stands beside the value.
    return f"{side} " + _UNIT_WORD.sub("", units.quantity(limit, _short_unit(evidence)))


_UNIT_WORD = re.compile(r" [a-z]{4,}.*$")


def _short_unit(evidence: Evidence) -> str | None:
    """Return ``%`` of what is a share of something."""
    return "%" if (evidence.unit or "").startswith("%") else evidence.unit


def evidence_row(evidence: Evidence) -> tuple[str, str, str, str]:
    """Return the reading, its value, its limit and its meaning, as texts."""
    says = evidence.says
    if not evidence.supports:
        says = f"against it: {says}" if says else "evidence against it"
    return evidence.name, evidence_value(evidence), evidence_limit(evidence), says


def evidence_line(evidence: Evidence) -> str:
    """Return ``busy 47% (limit 90%): it idles half of the time``."""
    limit = evidence_limit(evidence).lstrip("<> ")
    text = evidence.name
    text += "" if evidence.value is None else f" {evidence_value(evidence)}"
    text += f" (limit {limit})" if limit else ""
    return f"{text}: {evidence.says}" if evidence.says else text


NOTABLE_SHARE = 0.05
"""Share of all GPU time from which a loss is said first, though it may be as it should."""
MOST_OF = 0.95
WORKS_PERCENT = 5.0
RESTS_SHOWN = 3
MOMENTS_SAID = 3
"""Most different readings of one moment that the sentence names; more are in the table."""


def verdict(report: Report) -> str:
    return " ".join(part for part in verdict_parts(report) if part)


def verdict_parts(report: Report) -> tuple[str, str]:
    """Return one sentence on how busy it was, and one on why it was no busier."""
    head, lead = _how_busy(report), _leading(report)
    once = report.time.seconds < words.MOMENT_SECONDS
    unknown = not report.gpus or report.total.busy_percent is None or once
    undiagnosed = lead is None and report.source is None and not report.phases
    if not report.gpus or undiagnosed or (unknown and not isinstance(lead, Group)):
        return head, ""
    why = _lead_words(report, lead) if lead is not None else _nothing(report)
    others = len(_worst(report)) - isinstance(lead, Group)
    more = f"{units.plural(others, 'other finding')} below{_in_all(report)}." if others > 0 else ""
    return head, " ".join(part for part in (why, *_rests(report), more) if part)


def _in_all(report: Report) -> str:
    """Return what was lost to several findings, for the end of a sentence."""
    costs = [group.cost for group in groups(report) if group.cost]
    cost = words.cost(sum(costs), report) if len(costs) > 1 else ""
    return f"; lost in all: {cost}" if cost else ""


def besides_findings(report: Report) -> str:
    """Return the verdict without what was found: how busy it was, what nobody could tell, and what
    the GPUs did besides work."""
    lead = _leading(report)
    asked = [_lead_words(report, lead)] if isinstance(lead, OpenQuestion) else []
    return " ".join([_how_busy(report), *asked, *_rests(report)])


def _how_busy(report: Report) -> str:
    """Return the sentence on how busy the GPUs were, or why nobody knows."""
    if not report.gpus:
        if report.job is not None:
            return "The job used no GPU while it was watched."
        return report.problems[0] if report.problems else "There was no GPU to look at."
    length, covered = units.age(report.time.seconds), report.time.covered_seconds
    if 0.0 < covered < MOST_OF * report.time.seconds:
        length = f"the {units.age(covered)} read, within {length}"
    if report.time.seconds < words.MOMENT_SECONDS:
        unknown = "How busy the GPUs were is not known: one moment was read."
        return _moment(report) or unknown
    if report.total.busy_percent is None:
        return f"How busy the GPUs were is not known: no utilisation was read in {length}."
    subject = "The GPU was" if len(report.cards) == 1 else "The GPUs were"
    return f"{subject} busy {units.percent(report.total.busy_percent)} of {length}."


def _moment(report: Report) -> str:
    """Return how busy each GPU was in the one moment that was read; empty where nothing says so."""
    known = [(one.busy_last_percent, one) for one in report.gpus]
    read = [(percent, one.uuid) for percent, one in known if percent is not None]
    if not read:
        return ""
    found = grouped((units.percent(percent), uuid) for percent, uuid in read)
    said = [
        f"{words.labels(uuids, report)} {'was' if len(uuids) == 1 else 'were'} at {percent}"
        for percent, uuids in found.items()
    ]
    if len(said) > MOMENTS_SAID:
        low, high = (units.percent(end([percent for percent, _ in read])) for end in (min, max))
        said = [f"the GPUs were at {low} to {high}"]
    return f"At that moment {units.listed(said)}; one moment is no mean."


def outcome(report: Report) -> str:
    """Return ``found``, ``nothing``, or ``undecided`` where nobody can say what cost most."""
    lead, worst = _leading(report), _worst(report)
    grave = [one for one in worst if one.severity == "error" or _group_share(one) >= NOTABLE_SHARE]
    if isinstance(lead, Group) or grave:
        return "found"
    known = any(gpu.busy_percent is not None for gpu in report.gpus)
    return "nothing" if lead is None and report.decided and known else "undecided"


def _group_share(group: Group) -> float:
    return group.share or 0.0


def _worst(report: Report) -> list[Group]:
    every = groups(report)
    return [one for one in every if one.severity != "info" or _group_share(one) >= NOTABLE_SHARE]


def _leading(report: Report) -> Group | OpenQuestion | None:
    """Return the finding that endangers work, else what cost most: a finding, or an open
    question."""
    worst = _worst(report)
    grave = [one for one in worst if one.severity == "error"]
    costly = max(grave or worst, key=lambda group: group.cost or 0.0, default=None)
    open_ = report.questions[0] if report.questions else None
    if costly is None or grave or open_ is None:
        return costly or open_
    return open_ if open_.lost_gpu_seconds > (costly.cost or 0.0) else costly


def _nothing(report: Report) -> str:
    if not report.decided:
        return "Too short, or too few readings, to say whether anything is wrong."
    if not report.phases or any(phase.kind == "steady" for phase in report.phases):
        rests = [one for one in groups(report) if _settles(one.cause.rule)]
        why = f"{_lead_words(report, rests[0])} " if rests else ""
        return f"{why}Nothing wrong was found."
    moments = (report.total.busy_gpu_seconds or 0.0) >= 1.0
    return "Almost nothing ran: idle except for moments." if moments else "Nothing ran: idle."


def _settles(rule: str) -> bool:
    return known(rule).settles


def _lead_words(report: Report, lead: Group | OpenQuestion) -> str:
    """Return when and what; what a finding cost and what its cure gains stands with what to do."""
    lost = ""
    if isinstance(lead, OpenQuestion):
        cost = words.cost(lead.lost_gpu_seconds, report)
        when = f"For {units.age(lead.seconds)}"
        seconds, text = lead.seconds, lead.says
        they = "It" if len(lead.gpus) == 1 else "They"
        lost = f" {they} sat idle for {cost}." if cost else ""
    else:
        longest = max(lead.stretches, key=lambda stretch: stretch.seconds)
        seconds, text = longest.seconds, lead.cause.summary.rstrip(".")
        when = Times(report).stretch(longest).partition(" (")[0]
    read = report.time.covered_seconds or report.time.seconds
    whole = seconds >= MOST_OF * read or not seconds
    if whole:
        return f"{text}.{lost}"
    text = f"a{text[1:]}" if text.startswith("All ") else text
    return f"{when}: {text}.{lost}"


def _rests(report: Report) -> Iterable[str]:
    """Return sentences on what GPUs did besides work, where it took much of the time."""
    phases = grouped((words.labels(phase.gpus, report), phase) for phase in report.phases)
    found = {who: units.listed(_rested(report, of)) for who, of in phases.items()}
    shown = [f"{who[:1].upper()}{who[1:]} {what}." for who, what in found.items() if what]
    if any(phase.kind == "steady" for phase in report.phases):
        yield from shown[:RESTS_SHOWN]


def _rested(report: Report, phases: list[Phase]) -> list[str]:
    least, last = NOTABLE_SHARE * report.time.seconds, phases[-1]
    lengths = {
        "started for": sum(phase.seconds for phase in phases if phase.kind == "start"),
        "paused for": sum(phase.paused_seconds for phase in phases),
        "ran nothing for": sum(phase.seconds for phase in phases if phase.kind == "idle"),
    }
    found = [f"{did} {units.age(time)}" for did, time in lengths.items() if time >= least > 0.0]
    if last.kind == "end":
        busy = last.busy_percent or 0.0
        did = "ran nothing" if busy < WORKS_PERCENT else f"was {busy:.0f}% busy"
        found.append(f"{did} for the last {units.age(last.seconds)}")
    return found


def quality_sentences(report: Report) -> Iterable[str]:
    time = report.time
    interval = time.interval_seconds
    every = "" if not interval else f", one every {units.interval(float(f'{interval:.2g}'))}"
    yield (
        f"{units.plural(time.snapshots, 'moment')}{every}; {units.age(time.covered_seconds)} of "
        f"{units.age(time.seconds)} covered."
    )
    if time.gap_count:
        shown, left = Times(report).stretches(time.gaps)
        left += time.gap_count - len(time.gaps)
        more = f" and {left} more" if left > 0 else ""
        yield (
            f"{units.plural(time.gap_count, 'gap')}, {units.age(time.gap_seconds)} in all, of "
            f"which nothing is known: {shown}{more}."
        )
    if time.clock_set_back:
        yield f"The clock was set back {units.plural(time.clock_set_back, 'time')}."
    if report.left_out_processes:
        gone = f"{report.left_out_processes:,}"
        yield f"{gone} processes that used little are not listed."
    yield from () if report.source is None else report.source.notes
    yield from unchecked(report)


def unchecked(report: Report) -> Iterable[str]:
    """Return a sentence on the readings that were missing at the end, and how many rules wanted
    them."""
    wanted = grouped((missing, one.rule) for one in report.unknown for missing in one.missing)
    if not wanted or not report.gpus:
        return
    rules = {unknown.rule for unknown in report.unknown}
    most = sorted(wanted.items(), key=lambda item: (-len(set(item[1])), item[0]))[:3]
    named = ", ".join(missing for missing, _ in most)
    more = len(wanted) - len(most)
    yield (
        f"{units.plural(len(rules), 'check')} lacked data at the end: {named}"
        f"{f' and {more} more' if more > 0 else ''}."
    )


def worded(report: Report) -> Report:
    time = replaced(report.time, zone=Times(report).zone())
    return replaced(report, verdict=verdict(report), time=time)


# --- facts of a job and its machine, a line for each part -------------------------------------


def time_facts(report: Report, job: JobUsage) -> list[str]:
    start, end = job.started_at_unix_seconds, job.ended_at_unix_seconds
    facts = []
    if start is not None:
        since = f"since {words.clock(start, '%F %T')}"
        facts.append(since if end is None else words.span(start, end))
    duration = units.age(report.duration_seconds)
    facts.append(f"still running after {duration}" if end is None else f"took {duration}")
    if job.end_is_last_seen:
        facts.append("ended unobserved")
    if job.exit_code == 0:
        facts.append("exit code 0")
    return facts


def place_facts(report: Report, job: JobUsage) -> list[str]:
    several = job.ranks is not None and job.ranks > 1
    more = several and job.world_size is not None and job.world_size > (job.ranks or 0)
    known = (
        (job.pid, "PID {}"),
        (job.user, "{}"),
        (report.machine, "on {}"),
        (job.ranks if several else None, f"{{}} of {job.world_size} ranks" if more else "{} ranks"),
        (job.launcher, "{}"),
        (job.framework, "{}"),
        (job.environment, "{}"),
        (job.slurm_job, "Slurm job {}"),
        (job.pod, "pod {}"),
        (job.container, "container {}"),
    )
    return [form.format(value) for value, form in known if value is not None and value != ""]


def watched_sentence(report: Report) -> str:
    """Return a sentence on the part of a job that was watched; empty where it was nearly all."""
    duration, covered = report.duration_seconds, report.time.covered_seconds
    if duration - covered <= max(2.0, 0.02 * duration):
        return ""
    return f"Only {units.percent(100.0 * covered / duration)} of its run was watched."


def job_facts(job: JobUsage) -> list[tuple[str, str]]:
    sentence = job.loading.sentence or "no training process was seen"
    lines = (
        ("Training", ", ".join(_loop(job))),
        ("Loading", sentence.removeprefix("loading ")),
        ("  workers", ", ".join(_workers(job.loading))),
        ("  main", ", ".join(_main_thread(job))),
        ("CPU", ", ".join(_cpu(job))),
        ("Memory", _memory(job)),
        ("Storage", ", ".join(_storage(job))),
    )
    return [(label, text) for label, text in lines if text]


def _loop(job: JobUsage) -> Iterable[str]:
    loop = job.loop
    if loop.reported_seconds <= 0:
        return
    if loop.samples_per_second is not None:
        yield f"{units.samples(loop.samples_per_second)} samples/s"
    if loop.data_wait_percent is not None:
        yield f"waited for data {units.percent(loop.data_wait_percent)} of the time"
    if most := words.waited_most(job):
        yield most
    for name, value in (
        ("in steps", loop.compute_percent),
        ("copying to the GPU", loop.copy_percent),
        ("validating", loop.validation_percent),
        ("saving checkpoints", loop.checkpoint_percent),
    ):
        yield from _if_any(f"{name} ", value)
    if loop.steps is not None:
        yield units.plural(loop.steps, "step")
    if loop.memory_reserved_peak_bytes is not None:
        both = units.size_of(loop.memory_allocated_peak_bytes, loop.memory_reserved_peak_bytes)
        yield f"{both} allocated/reserved at most"


def _if_any(before: str, percent: float | None, after: str = "") -> Iterable[str]:
    if percent is not None and percent >= 0.5:
        yield f"{before}{units.percent(percent)}{after}"


def _workers(loading: Loading) -> Iterable[str]:
    peak, started = loading.loader_workers_peak, loading.loader_workers_started
    if not peak:
        return
    yield f"{units.percent(loading.loader_worker_cpu_percent)} of a core each"
    limit = loading.loader_worker_at_limit_percent
    yield from _if_any("at the limit of a core ", limit, " of the time")
    yield from _if_any("waiting for a core ", loading.loader_worker_queue_wait_percent)
    yield from _if_any("waiting for storage ", loading.loader_worker_disk_wait_percent)
    if started is not None and started > peak:
        yield f"{started} started, {peak} at once"


def _main_thread(job: JobUsage) -> Iterable[str]:
    loading = job.loading
    if loading.main_thread_cpu_percent is None:
        return
    which = "each" if job.ranks is not None and job.ranks > 1 else "the"
    yield f"{units.percent(loading.main_thread_cpu_percent)} of a core in {which} main thread"
    yield from _if_any("at its limit ", loading.main_thread_at_limit_percent, " of the time")
    yield from _if_any("waiting for a core ", loading.main_thread_queue_wait_percent)


def _cpu(job: JobUsage) -> Iterable[str]:
    usable = None if job.usable_cores is None else f"{job.usable_cores:g} usable"
    if job.cpu_mean_cores is None:
        yield from () if usable is None else [f"{usable} cores"]
        return
    yield f"{job.cpu_mean_cores:.1f}{'' if usable is None else f' of {usable}'} cores busy"
    if job.cpu_peak_cores is not None:
        yield f"{job.cpu_peak_cores:.1f} at most"
    if job.cpu_core_seconds is not None:
        yield f"{words.amount(job.cpu_core_seconds)} core-seconds"
    if job.quota_cores is not None:
        held = job.cpu_throttled_percent
        back = "" if held is None else f" throttled it {units.percent(held)} of the time"
        yield f"quota of {job.quota_cores:g} cores{back}"


def _memory(job: JobUsage) -> str:
    if job.memory_proportional_peak_bytes is not None:
        return f"{units.size(job.memory_proportional_peak_bytes)} at most (PSS)"
    if job.memory_resident_peak_bytes is None:
        return ""
    resident = units.size(job.memory_resident_peak_bytes)
    return f"{resident} at most (sum of RSS: shared pages count several times)"


def _storage(job: JobUsage) -> Sequence[str]:
    known = ((job.read_bytes, "read"), (job.written_bytes, "written"))
    return [f"{units.size(value)} {word}" for value, word in known if value is not None]


def host_facts(report: Report) -> Iterable[tuple[str, str]]:
    host = report.host
    if host.cpu_mean_percent is not None:
        of = "" if host.core_count is None else f" of {units.plural(host.core_count, 'core')}"
        text = f"{units.percent(host.cpu_mean_percent)} busy{of}"
        text += f", at most {units.percent(host.cpu_peak_percent)}"
        if host.cpu_iowait_mean_percent is not None:
            text += f"; I/O wait {units.fine_percent(host.cpu_iowait_mean_percent)}"
        if host.usable_cores is not None and host.usable_cores < (host.core_count or 0):
            text += f"; {host.usable_cores:g} cores usable"
        yield "CPU", text
    if host.memory_peak_bytes is not None:
        text = f"at most {units.size_of(host.memory_peak_bytes, host.memory_total_bytes)}"
        if host.swap_peak_bytes:
            text += f", swap {units.size(host.swap_peak_bytes)}"
        if host.shm_peak_bytes is not None and host.shm_total_bytes:
            text += f", /dev/shm {units.size_of(host.shm_peak_bytes, host.shm_total_bytes)}"
        yield "Memory", text
    if host.disk_read_bytes is not None or host.disk_written_bytes is not None:
        read, written = units.size(host.disk_read_bytes), units.size(host.disk_written_bytes)
        fastest = units.rate(host.disk_read_peak_bytes_per_second)
        fastest_out = units.rate(host.disk_write_peak_bytes_per_second)
        yield "Disk", f"read {read} (at most {fastest}), written {written} (at most {fastest_out})"


# --- tables: each column declared once, for every form ----------------------------------------

MOST_OF_IT = 0.75
"""Share of the time that a GPU was used from which the rest needs no note: any job imports
libraries and loads a model before its first use of a GPU."""
SHOWN = {"text": {"jobs": 10, "processes": 10}, "page": {"jobs": 30, "processes": 40}}
LOSSES_SHOWN = 3
LOSS_SHARE = 0.1
"""Share of the largest loss from which another is shown; less is for --json."""
_T = "text"


def _period(gpu: GpuUsage) -> str:
    return words.period(gpu.period_seconds) if words.oscillation(gpu) else units.UNKNOWN


GPU_COLUMNS: tuple[Column[GpuUsage], ...] = (
    Column("GPU", lambda g: g.label, page="GPU", total="all".format),
    Column("HOST", lambda g: g.machine or units.UNKNOWN, _T, 1),
    Column("NAME", lambda g: units.gpu_name(g.name), _T, 9,
           total=lambda r: units.plural(len(r.cards), "GPU")),
    Column("BUSY", lambda g: percent(g.busy_shown_percent),
           total=lambda r: percent(r.total.busy_percent)),
    Column("IDLE", lambda g: words.lost(g.idle_seconds), rank=1,
           total=lambda r: words.lost(r.total.idle_gpu_seconds)),
    Column("BURST EVERY", _period, rank=3, page="Burst every"),
    Column("JOB-MEM", lambda g: size(g.job_memory_peak_bytes), rank=1, page="Job memory"),
    Column("MEM-PEAK", lambda g: units.size_of(g.memory_peak_bytes, g.memory_total_bytes),
           rank=2, page="Memory peak"),
    Column("POWER", lambda g: GPU["power_watts"].text(g.power_shown_watts, g.power_limit_watts),
           rank=4, page="Power mean", total=lambda r: units.watts(r.total.power_mean_watts)),
    Column("PEAK", lambda g: units.watts(g.power_peak_watts), rank=10, page="Power peak"),
    Column("ENERGY", lambda g: units.energy(g.energy_joules), rank=2,
           total=lambda r: units.energy(r.total.energy_joules)),
    Column("TEMP", lambda g: units.celsius(g.temperature_peak_celsius), rank=6, page="Hottest"),
    Column("THROTTLED", lambda g: units.age(g.throttled_seconds), rank=3),
    Column("SM-CLOCK", lambda g: units.megahertz(g.sm_clock_mean_mhz), rank=7, page="SM clock"),
    Column("FROM-HOST", lambda g: size(g.received_bytes), rank=8, page="From host"),
    Column("SM", lambda g: percent(g.sm_active_percent), rank=11, page="SM active"),
    Column("TENSOR", lambda g: percent(g.tensor_active_percent), rank=12),
)  # fmt: skip


def _busy(usage: Usage) -> str:
    return percent(share_percent(usage.gpu_busy_seconds, usage.gpu_held_seconds))


def _held(usage: Usage) -> str:
    return hours(usage.gpu_held_seconds if usage.gpus else None)


def _used(*, cpu: int, memory: int) -> tuple[Column[Usage], ...]:
    """Return the columns of use; ``cpu`` and ``memory`` are ranks of columns."""
    return (
        Column("GPU-MEM", lambda u: size(u.gpu_memory_peak_bytes), rank=2, page="GPU memory"),
        Column("CPU-TIME", lambda u: hours(u.cpu_core_seconds), rank=cpu, page="CPU time"),
        Column("MEM", lambda u: size(u.memory_peak_bytes), rank=memory, page="Memory"),
        Column("READ", lambda u: size(u.read_bytes), rank=4),
        Column("WRITTEN", lambda u: size(u.written_bytes), rank=6),
    )


def _who(report: Report, title: str, gpus_rank: int) -> tuple[Column[Usage], ...]:
    return (
        Column(title, lambda u: str(u.pid % PIDS_OF_A_MACHINE), page="PID"),
        Column("USER", lambda u: u.user or units.UNKNOWN, _T, 5),
        Column("GPUS", lambda u: words.gpu_labels(u.gpus, report), _T, gpus_rank, page="GPUs"),
    )


def job_columns(report: Report) -> tuple[Column[JobUsage], ...]:
    moment = Times(report).moment

    def seen(job: JobUsage) -> str:
        return f"{moment(job.first_unix_seconds)} to {moment(job.last_unix_seconds)}"

    return (
        *_who(report, "JOB", 3),
        Column("SEEN", seen, _T, 9),
        Column("GPU-TIME", _held, page="GPU time"),
        Column("BUSY", _busy, rank=1),
        Column("SAMPLES/S", lambda j: samples(j.loop.samples_per_second), rank=1),
        Column("DATA-WAIT", lambda j: percent(j.loop.data_wait_percent), rank=1, page="Data wait"),
        *_used(cpu=2, memory=7),
        Column("COMMAND", lambda j: j.command or units.UNKNOWN, "long"),
    )


def phase_columns(report: Report) -> tuple[Column[Phase], ...]:
    moment = Times(report).moment
    lost_to = {"start": "start-up", "held": "held memory", "unknown": "not known"}
    lost_to |= {
        use.rule: words.cause(use.rule, in_doubt=True) for use in report.findings if use.in_doubt
    }

    def lost(phase: Phase) -> str:
        parts = [
            f"{words.lost(one.gpu_seconds)} {lost_to.get(one.to) or words.cause(one.to)}"
            for one in phase.lost
            if one.gpu_seconds >= max(1.0, LOSS_SHARE * phase.lost[0].gpu_seconds)
        ]
        return ", ".join(parts[:LOSSES_SHOWN]) or units.UNKNOWN

    def paused(phase: Phase) -> str:
        return f"{phase.pauses}, {units.age(phase.paused_seconds)}" if phase.pauses else "-"

    return (
        Column("GPU", lambda p: words.gpu_labels(p.gpus, report), _T, page="GPU"),
        Column("PHASE", lambda p: p.kind, _T),
        Column("FROM", lambda p: moment(p.begin_unix_seconds), _T, 2),
        Column("TO", lambda p: moment(p.end_unix_seconds), _T, 3),
        Column("TIME", lambda p: units.age(p.seconds)),
        Column("BUSY", lambda p: percent(p.busy_percent)),
        Column("PAUSES", paused, rank=1),
        Column("GPU TIME LOST TO", lost, "long", page="Lost to"),
    )


def process_columns(report: Report) -> tuple[Column[ProcessUsage], ...]:
    return (
        *_who(report, "PID", 7),
        Column("GPU-TIME", _held, rank=1, page="GPU time"),
        Column("GPU-BUSY", _busy, rank=3, page="GPU busy"),
        *_used(cpu=0, memory=2),
        Column("COMMAND", words.process_name, "long"),
    )


def gpu_blocks(report: Report, form: str) -> Iterable[Block]:
    if not report.gpus:
        return
    totals = report if len(report.cards) > 1 else None
    yield tabled("GPUs", GPU_COLUMNS, report.gpus, form, totals=totals)
    notes = list(gpu_notes(report))
    if notes:
        yield Bullets("", notes, "warn")


def gpu_notes(report: Report) -> Iterable[str]:
    """Return explanations of numbers in the table, alike for several GPUs in one line."""
    found = grouped(
        (text, (gpu, seconds)) for gpu in report.gpus for text, seconds in _notes_of(gpu, report)
    )
    for text, places in found.items():
        named = words.labels([gpu.uuid for gpu, _ in places], report)
        yield f"{named}: {text}{_for_seconds(places)}"


def _notes_of(gpu: GpuUsage, report: Report) -> Iterable[tuple[str, float | None]]:
    for stretch in gpu.lost:
        yield f"lost, {Times(report).stretch(stretch)}", None
    if gpu.busy_shown_percent is None:
        if not gpu.lost:
            yield f"busy unknown: {words.busy_missing(gpu, report)}", None
    elif gpu.watched_seconds is not None:
        missed = gpu.seen_seconds - gpu.watched_seconds - report.time.gap_seconds
        if missed > max(2.0, 0.05 * gpu.seen_seconds) and not gpu.lost:
            yield "busy unknown", missed
    for one in gpu.throttled or ():
        if one.seconds >= 0.5:
            known = REASONS.get(one.reason)
            why = one.reason.replace("_", " ") if known is None else known.cause
            yield f"slowed down by {why}", one.seconds
    if gpu.other_tenants_peak > 0:
        others = gpu.other_tenants_peak
        users = f" ({', '.join(gpu.other_users)})" if gpu.other_users else ""
        who = "another process" if others == 1 else f"up to {others} other processes"
        yield f"shared with {who}{users}", gpu.other_tenant_seconds
    if gpu.energy_from == "power":
        yield "energy from power readings, not from a counter", None
    if report.job is not None and gpu.seen_seconds < MOST_OF_IT * report.time.seconds:
        of = units.age(report.time.seconds)
        yield f"the job used it for {units.age(gpu.seen_seconds)} of {of}", None


def _for_seconds(places: list[tuple[GpuUsage, float | None]]) -> str:
    known = [seconds for _, seconds in places if seconds is not None]
    if not known:
        return ""
    least, most = units.age(min(known)), units.age(max(known))
    if least != most:
        return f" for {least} to {most}"
    seen = max(gpu.seen_seconds for gpu, _ in places)
    part = f" ({percent(100.0 * max(known) / seen)})" if seen > 0 else ""
    return f" for {most}{part}"


def phase_blocks(report: Report, form: str) -> Iterable[Block]:
    if report.phases:
        yield tabled("Phases", phase_columns(report), report.phases, form)


def job_blocks(report: Report, form: str) -> Iterable[Block]:
    """Return the table of jobs, unless the report is about one, which it describes elsewhere."""
    if report.job is not None or not report.jobs:
        return
    yield tabled("Jobs", job_columns(report), report.jobs, form, most=SHOWN[form]["jobs"])
    notes = [
        f"{job.pid}: waited most for data: {most}."
        for job in report.jobs
        if (most := words.waited_most(job))
    ]
    if notes:
        yield Bullets("", notes)


def process_blocks(report: Report, form: str) -> Iterable[Block]:
    # Of a job of one process the table above has said it all.
    if len(report.processes) > (len(report.jobs) if form == "text" else 0):
        columns = process_columns(report)
        yield tabled("Processes", columns, report.processes, form, most=SHOWN[form]["processes"])


# --- rows on one time axis --------------------------------------------------------------------

CARDS_SHOWN = 16


def source_lines(report: Report) -> list[FactLine]:
    source = () if report.source is None else (report.source.name,)
    # A redacted recording names no machine.
    machine = filter(None, (report.machine, words.gpu_names(report)))
    time = (words.when(report), Times(report).zone())
    return [FactLine((*source, *machine), "note"), FactLine(time, "note")]


def timeline(report: Report, name: str = "") -> Timeline:
    found = groups(report)
    cpu = report.host.profiles.get("cpu_percent")
    row = None
    if cpu is not None:
        cores = report.host.core_count
        mean, most = (
            units.percent(value)
            for value in (report.host.cpu_mean_percent, report.host.cpu_peak_percent)
        )
        of = "" if cores is None else units.plural(cores, "core")
        row = Row("CPU", "CPU", of, cpu, mean, f"Mean {mean}, at most {most}.")
    others = [] if report.job is None else list(_job_rows(report.job))
    gpus = [_gpu_row(gpu, report, found) for gpu in report.gpus]
    return Timeline(report, [group.lane() for group in found], gpus, others, row, name)


def _state_of(gpu: GpuKey, use: FindingUse) -> GpuState | None:
    loses_time = bool(use.cost_gpu_seconds)
    return known(use.rule).state_of(gpu, use.late, use.severity, loses_time=loses_time)


def _gpu_row(gpu: GpuUsage, report: Report, found: Iterable[Group]) -> Row:
    percent, rhythm = units.percent(gpu.busy_shown_percent), words.oscillation(gpu)
    missing = words.busy_missing(gpu, report)
    swings = f"swings {rhythm}" if rhythm else "no oscillation"
    marks = [
        Held(state.hue, stretch, rule.lost_while_busy and state is not STRAGGLER, state.word)
        for group in found
        for rule in (known(group.cause.rule),)
        for use in group.uses
        if gpu.uuid in use.gpus and (state := _state_of(gpu.uuid, use)) is not None
        for stretch in use.stretches
    ]
    return Row(
        f"GPU {gpu.label}",
        f"GPU{'' if len(gpu.label) > 1 else ' '}{gpu.label}",
        units.gpu_name(gpu.name),
        gpu.profiles.get("busy_percent"),
        percent,
        f"Mean {percent}, {swings}.",
        f"busy: {missing}" if gpu.busy_shown_percent is None else "one moment was read",
        marks=marks,
        lost=gpu.lost,
    )


def _job_rows(job: JobUsage) -> Iterable[Row]:
    workers, main = job.loading.loader_worker_cpu_percent, job.loading.main_thread_cpu_percent
    for name, label, of, mean in (
        ("data_wait_percent", "waits for data", "% of the time", job.loop.data_wait_percent),
        ("loader_worker_cpu_percent", "loader workers", "of a core each", workers),
        ("main_thread_cpu_percent", "main thread", "of a core", main),
    ):
        if name in job.profiles:
            end = units.percent(mean)
            yield Row(label, label, of, job.profiles[name], end, f"Mean {end}.")


def cards_section(report: Report) -> Section:
    """Return memory, power and temperature of each GPU on their own fixed scales."""
    shown = [gpu for gpu in report.gpus if set(gpu.profiles) - {"busy_percent"}]
    made = [(f"GPU {gpu.label}", list(_card_rows(gpu))) for gpu in shown[:CARDS_SHOWN]]
    left = max(0, len(shown) - CARDS_SHOWN)
    blocks = [Cards(report, made, left)] if made else []
    return Section("Memory, power, temperature", blocks)


def _card_rows(gpu: GpuUsage) -> Iterable[Row]:
    slowdown, profiles = gpu.temperature_slowdown_celsius, gpu.profiles
    for name, value, limit in (
        ("memory_used_bytes", gpu.memory_peak_bytes, gpu.memory_total_bytes),
        ("power_watts", gpu.power_mean_watts, gpu.power_limit_watts),
        ("temperature_celsius", gpu.temperature_peak_celsius, slowdown),
    ):
        if name in profiles:
            field = GPU[name]
            label, end = field.label.capitalize(), field.text(value, limit)
            # What was read beyond its limit is not cut off.
            top = float(limit or field.unit.top or 1.0)
            top = max([top, *filter(None, profiles[name].maximum)])
            described = f"{end}; the scale is 0 to the limit."
            yield Row(label, label, "", profiles[name], end, described, top=top, lost=gpu.lost)


# --- two reports compared ---------------------------------------------------------------------

_ONLY_CHANGES = {"gpus", "throttled_percent"}
"""Figures that are shown only where they differ."""
_PROPORTIONAL, _RESIDENT = "memory_proportional_peak_bytes", "memory_resident_peak_bytes"


def compared_table(comparison: Comparison) -> Table:
    rows = []
    proportional = any(
        one.name == _PROPORTIONAL and one.difference is not None for one in comparison.figures
    )
    for one in comparison.figures:
        before, after = figure_words(one, one.before), figure_words(one, one.after)
        unknown = units.UNKNOWN in (before, after)
        if before == after and (unknown or one.name in _ONLY_CHANGES):
            continue
        if one.name == (_RESIDENT if proportional else _PROPORTIONAL):
            # What only one of them has cannot be compared.
            continue
        judged = one.judged if one.judged in {"better", "worse"} else ""
        rows.append([one.label, before, after, change_words(one), judged])
    columns = (
        Column("COMPARED", str, "text", page="Figure"),
        Column("BEFORE", str),
        Column("AFTER", str),
        Column("CHANGE", str, "text", 1),
        Column("", str, "text", 2),
    )
    return Table("Figures", columns, rows, judged=True)


def comparison_document(comparison: Comparison, form: str) -> Document:
    before, after = comparison.before, comparison.after
    jobs = before.job is not None and after.job is not None
    what = "jobs" if jobs else "recordings"
    head, _, rest = comparison_verdict(comparison).partition(". ")
    said: list[Block] = [*_headline(f"{head.rstrip('.')}.", rest, form)]
    said += [Paragraph(f"Hard to compare: {doubt}", "warn") for doubt in doubts(comparison)]
    sides = [("before", report_name(before)), ("after", report_name(after))]
    if form == "text":
        said.append(Labelled("", [*sides, ("times", Times(after).zone())]))
    sections = [
        Section("", said),
        Section("Figures", [compared_table(comparison)]),
        Section("Findings", [_changed_finding(one, comparison) for one in comparison.findings]),
    ]
    for title, report, name in (("Before", before, "x"), ("After", after, "y")):
        if form == "page":
            notes = Bullets("", list(quality_sentences(report)))
            sections.append(Section(title, [*source_lines(report), timeline(report, name), notes]))
    return Document(
        f"GPU reports compared: {', '.join(text for _, text in sides)}",
        f"Two {what} compared",
        before.simulated or after.simulated,
        [section for section in sections if section.blocks],
    )


def _changed_finding(found: FindingChange, comparison: Comparison) -> Found:
    use = found.after or found.before
    assert use is not None
    parts = []
    for which, one, share, report in (
        ("before", found.before, found.before_share, comparison.before),
        ("after", found.after, found.after_share, comparison.after),
    ):
        if one is not None:
            cost = "" if share is None else f", {words.share(share)} of all GPU time"
            of = units.age(report.time.seconds)
            parts.append(f"{which} {units.age(one.seconds)} of {of}{cost}")
    state = {"new": "New", "still": "Still there", "gone": "Gone"}[found.state]
    advice = () if found.after is None else found.after.advice
    return Found(
        f"{state}:",
        words.cause(found.rule, in_doubt=use.in_doubt),
        found.severity,
        "; ".join(parts),
        "",
        "",
        [use.summary],
        [step(one) for one in advice],
    )


def comparison_json(comparison: Comparison) -> str:
    found = tuple(doubts(comparison))
    made = replaced(
        comparison,
        verdict=comparison_verdict(comparison),
        comparable=not found,
        doubts=found,
        before=without_profiles(worded(comparison.before)),
        after=without_profiles(worded(comparison.after)),
    )
    return dumps(made)


# --- the report -------------------------------------------------------------------------------

TITLE_CELLS = 100
"""Cells of a command in a title."""
PROBLEMS_SHOWN = {"text": 4, "page": 12}


ABOUT = "What it was"
"""The title of the section on what ran, when and where."""


def report_document(report: Report, form: str, *, previous: Report | None = None) -> Document:
    """Return the document, for ``form`` (``text`` or ``page``): the verdict, what to do, the
    charts, what it is about, and then all else. ``previous``: the run before this one."""
    job = report.job
    machine = Labelled("Machine", list(host_facts(report)))
    several = len(report.phases) > 1
    problems = [*quality_sentences(report), *report.problems[: PROBLEMS_SHOWN[form]]]
    alone = job is not None and report.source is None
    sections = [
        Section("", list(_head(report, form, previous))),
        Section("Over time", [timeline(report)]),
        Section(ABOUT, list(_about(report))),
        Section("Findings", [group.evidence() for group in groups(report)]),
        Section("GPUs", list(gpu_blocks(report, form))),
        Section("Phases", list(phase_blocks(report, form)) if several else []),
        Section("Job", [] if job is None else [Labelled("Job", job_facts(job))]),
        *([cards_section(report)] if form == "page" else []),
        Section("Jobs", list(job_blocks(report, form))),
        Section("Processes", list(process_blocks(report, form))),
        Section("Machine", [machine] if machine.facts and not alone else []),
        Section("Data quality", [] if alone else [Bullets("Data quality", problems)]),
    ]
    if previous is not None:
        changes = compared_table(compare(previous, report))
        sections.append(Section("Since the last run", [changes]))
    who = report.machine or "" if job is None else cut(words.command(job), TITLE_CELLS)
    title = f"GPU report: {who}, {words.when(report)}"
    return Document(
        title,
        title,
        report.simulated,
        [section for section in sections if section.blocks],
    )


def _head(report: Report, form: str, previous: Report | None) -> Iterable[Block]:
    """Yield what it was like, whether all of it was seen, and what to do."""
    job = report.job
    idle, busy = report.total.idle_gpu_seconds, report.total.busy_percent
    if job is None or report.source is not None or report.phases or not report.gpus:
        yield from _headline(*verdict_parts(report), form)
    elif idle is not None and busy is not None:
        said = (
            f"{words.amount(idle)} GPU-seconds idle, {units.percent(100.0 - busy)} of the time "
            "watched."
        )
        yield Paragraph(said, "verdict")
    if job is not None and job.failed:
        yield Paragraph(job.exit_words, "bad")
    if job is not None and (watched := watched_sentence(report)):
        yield Paragraph(watched, "warn")
    if previous is not None and previous.job is not None:
        last, start = previous.job, previous.job.started_at_unix_seconds
        began = [] if start is None else [words.clock(start, "%F %H:%M")]
        # Of a run that failed the duration says little.
        when = ", ".join([*began, *([last.exit_words] if last.failed else [])])
        yield Paragraph(f"Compared with the last run ({when}) at the end.")
    for group in groups(report):
        if group.cause.advice or group.cost:
            yield group.to_do()


def _about(report: Report) -> Iterable[Block]:
    job = report.job
    if job is not None:
        yield Paragraph(words.command(job), "command")
        yield FactLine(time_facts(report, job))
        yield FactLine(place_facts(report, job))
    if report.source is not None:
        yield from source_lines(report)


def _headline(head: str, why: str, form: str) -> list[Paragraph]:
    """Return the headline, on a page with what follows it smaller."""
    if form == "text" or not why:
        return [Paragraph(f"{head} {why}".strip(), "verdict")]
    return [Paragraph(head, "verdict"), Paragraph(why, "why")]


def report_json(report: Report) -> str:
    """Return the report as one JSON object, without a line end."""
    return dumps(worded(report))
