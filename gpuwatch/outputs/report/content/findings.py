"""The findings of a report, those of one cause together; the headline that they make, how evidence
and advice are worded, and how well the time was covered.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuwatch.core import units
from gpuwatch.core.model import GpuIdentity
from gpuwatch.diagnosis.causes import as_causes
from gpuwatch.diagnosis.finding import Advice, Evidence, Finding
from gpuwatch.diagnosis.rules.shared.words import named_of_all
from gpuwatch.outputs.report.accumulators.findings import OF_FINDING
from gpuwatch.outputs.report.content import words
from gpuwatch.outputs.report.content.document import Found, Lane, grouped
from gpuwatch.outputs.report.content.words import Times
from gpuwatch.outputs.report.model import FindingUse, Report
from gpuwatch.outputs.report.parts import GpuUsage, OpenQuestion, Phase, Stretch, replaced

EVIDENCE_SHOWN = 4
LANE_STRETCHES = 12
JOBS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Group:
    """Findings of one cause. ``number`` is theirs in the report."""

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
        """0 to 1, of all GPU time watched."""
        all_ = self.report.gpu_seconds
        return None if self.cost is None or not all_ else min(1.0, self.cost / all_)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """When it held for any of them."""
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
        """``03:04 to 04:04 (1h00)``, and how often else."""
        text, left = Times(self.report).stretches(self.stretches, most)
        if left > 0:
            text += f" and {units.plural(left, 'more time')}, {units.age(self.seconds)} in all"
        return text

    def cost_words(self) -> str:
        """``4.7 GPU-hours, 5% of all GPU time``; empty where it costs no time."""
        return words.cost(self.cost, self.report)

    def _what(self) -> Iterable[str]:
        """The sentence, and each job, where there are several."""
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

    def found(self) -> Found:
        evidence = [one for one in self.cause.evidence if one.value is not None]
        rows = []
        for one in evidence:
            unit = "%" if (one.unit or "").startswith("%") else one.unit
            other = "" if one.supports else "against it: " if one.says else "evidence against it"
            threshold = "" if one.threshold is None else units.quantity(one.threshold, unit)
            value = units.quantity(one.value, one.unit)
            rows.append((one.name, value, threshold, f"{other}{one.says}"))
        because = [evidence_line(one) for one in evidence if one.supports][:EVIDENCE_SHOWN]
        against = [evidence_line(one) for one in evidence if not one.supports][:EVIDENCE_SHOWN]
        return Found(
            f"#{self.number}",
            self.cause.rule,
            self.severity,
            self.when(),
            words.labels(self.cause.gpus, self.report),
            self.cost_words(),
            list(self._what()),
            [advice_line(one) for one in self.cause.advice],
            rows,
            because,
            against,
            [f"{other.rule}: {other.why}" for other in self.cause.ruled_out],
            f"{100.0 * self.cause.confidence:.0f}%",
        )

    def lane(self) -> Lane:
        described = f"{self.severity}, {self.when(LANE_STRETCHES)}"
        rule = self.cause.rule
        return Lane(self.number, rule, self.severity, described, self.stretches, self.seconds)


def groups(report: Report) -> tuple[Group, ...]:
    same = (*OF_FINDING, "gpus", "cost_gpu_seconds")
    found = [Finding(**{name: getattr(use, name) for name in same}) for use in report.findings]
    uses = {id(one): use for one, use in zip(found, report.findings, strict=True)}
    causes = as_causes(found, lambda uuids: named_of_all(uuids, map(_identity, report.gpus)))
    return tuple(
        Group(number, cause, tuple([uses[id(one)] for one in cause.members]), report)
        for number, cause in enumerate(causes, start=1)
    )


def _identity(gpu: GpuUsage) -> GpuIdentity:
    return GpuIdentity(index=gpu.index, uuid=gpu.uuid, name=gpu.name, mig_instance=gpu.mig_instance)


def advice_line(advice: Advice) -> str:
    """``Raise num_workers from 2 to 8: the workers are at their limit``."""
    text = advice.action.rstrip(".")
    if advice.setting is not None and advice.wanted is not None and advice.wanted not in text:
        present = "" if advice.present is None else f"{advice.present} -> "
        text += f" ({advice.setting}: {present}{advice.wanted})"
    return f"{text}: {advice.why}" if advice.why else f"{text}."


def evidence_line(evidence: Evidence) -> str:
    """``busy 47% (threshold 90%): it idles half of the time``."""
    text = evidence.name
    if evidence.value is not None:
        text += f" {units.quantity(evidence.value, evidence.unit)}"
    if evidence.threshold is not None:
        # "75% of a core each": what it is a share of has just been said.
        unit = "%" if (evidence.unit or "").startswith("%") else evidence.unit
        text += f" (threshold {units.quantity(evidence.threshold, unit)})"
    return f"{text}: {evidence.says}" if evidence.says else text


NOTABLE_SHARE = 0.05
"""Of all GPU time: what costs as much is said first, though it may be as it should."""
MOST_OF = 0.95
WORKS_PERCENT = 5.0
RESTS_SHOWN = 3
MOMENTS_SAID = 3
"""Different readings of one moment that the sentence names; more are in the table."""


def verdict(report: Report) -> str:
    return " ".join(part for part in verdict_parts(report) if part)


def verdict_parts(report: Report) -> tuple[str, str]:
    """One sentence on how busy it was, and why it was no busier."""
    length, covered = units.age(report.time.seconds), report.time.covered_seconds
    if 0.0 < covered < MOST_OF * report.time.seconds:
        length = f"the {units.age(covered)} read, within {length}"
    if not report.gpus:
        if report.job is not None:
            return "The job used no GPU while it was watched.", ""
        return (report.problems[0] if report.problems else "There was no GPU to look at."), ""
    busy, lead = report.total.busy_percent, _leading(report)
    once = report.time.seconds < words.MOMENT_SECONDS
    subject = "The GPU was" if len(report.cards) == 1 else "The GPUs were"
    head = f"{subject} busy {units.percent(busy)} of {length}."
    if busy is None or once:
        head = _moment(report) if once else ""
        if not head:
            why = "one moment was read" if once else f"no utilisation was read in {length}"
            head = f"How busy the GPUs were is not known: {why}."
        if not isinstance(lead, Group):
            return head, ""
    if lead is None and report.source is None and not report.phases:
        # Nobody has diagnosed it.
        return head, ""
    why = _lead_words(report, lead) if lead is not None else _nothing(report)
    others = len(_worst(report)) - isinstance(lead, Group)
    more = f"{units.plural(others, 'other finding')} below." if others > 0 else ""
    return head, " ".join(part for part in (why, *_rests(report), more) if part)


def _moment(report: Report) -> str:
    """How busy each GPU was in the one moment that was read; empty where nothing says so."""
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
    """``found``, ``nothing``, or ``undecided`` where nobody can say what cost most."""
    lead, worst = _leading(report), _worst(report)
    grave = [one for one in worst if one.severity == "error" or _share(one) >= NOTABLE_SHARE]
    if isinstance(lead, Group) or grave:
        return "found"
    known = any(gpu.busy_percent is not None for gpu in report.gpus)
    return "nothing" if lead is None and report.decided and known else "undecided"


def _share(group: Group) -> float:
    return group.share or 0.0


def _worst(report: Report) -> list[Group]:
    every = groups(report)
    return [one for one in every if one.severity != "info" or _share(one) >= NOTABLE_SHARE]


def _leading(report: Report) -> Group | OpenQuestion | None:
    """What is in danger, else what cost most: a finding, or something that cannot be decided."""
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
        return "Nothing wrong was found."
    moments = (report.total.busy_gpu_seconds or 0.0) >= 1.0
    return "Almost nothing ran: idle except for moments." if moments else "Nothing ran: idle."


def _lead_words(report: Report, lead: Group | OpenQuestion) -> str:
    if isinstance(lead, OpenQuestion):
        cost = words.cost(lead.lost_gpu_seconds, report)
        when = f"For {units.age(lead.seconds)}"
        seconds, text = lead.seconds, lead.says
        they = "It" if len(lead.gpus) == 1 else "They"
        lost = f" {they} sat idle for {cost}." if cost else ""
    else:
        longest = max(lead.stretches, key=lambda stretch: stretch.seconds)
        seconds, text = longest.seconds, lead.cause.summary.rstrip(".")
        text = f"a{text[1:]}" if text.startswith("All ") else text
        when = Times(report).stretch(longest).partition(" (")[0]
        lost = f" That cost {lead.cost_words()}." if lead.cost_words() else ""
    read = report.time.covered_seconds or report.time.seconds
    whole = seconds >= MOST_OF * read or not seconds
    return f"{'All the time' if whole else when}: {text}.{lost}"


def _rests(report: Report) -> Iterable[str]:
    """What GPUs did but work, of those of which it was much."""
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


def quality(report: Report) -> Iterable[str]:
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
    """The readings that were missing at the end, with how many rules wanted them."""
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
