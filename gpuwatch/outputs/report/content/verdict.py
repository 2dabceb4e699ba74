"""The findings of a report, those of one rule together, and the headline that they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuwatch.core import units
from gpuwatch.diagnosis.finding import Advice, rank
from gpuwatch.outputs.diagnosis.text import evidence_line, quantity
from gpuwatch.outputs.report.content import words
from gpuwatch.outputs.report.content.document import Found, Lane, grouped
from gpuwatch.outputs.report.content.words import Times
from gpuwatch.outputs.report.model import FindingUse, Report
from gpuwatch.outputs.report.parts import Stretch, total

FED_PERCENT = 85.0
"""From here on, nothing found means nothing wrong (as in the diagnosis)."""
NOTABLE_SHARE = 0.05
"""Of all GPU time: what costs as much is said first, though it may be as it should."""
EVIDENCE_SHOWN = 4
LANE_STRETCHES = 12


@dataclass(frozen=True, slots=True)
class Group:
    """Findings of one rule: of other jobs, or other GPUs. ``number`` is theirs in the report."""

    number: int
    uses: tuple[FindingUse, ...]
    report: Report

    @property
    def first(self) -> FindingUse:
        """That of the most costly."""
        return self.uses[0]

    @property
    def severity(self) -> str:
        return self.first.severity

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(uuid for use in self.uses for uuid in use.gpus))

    @property
    def cost(self) -> float | None:
        return total(use.cost_gpu_seconds for use in self.uses)

    @property
    def share(self) -> float | None:
        """0 to 1, of all GPU time watched."""
        watched = self.report.total.watched_gpu_seconds
        return None if self.cost is None or not watched else min(1.0, self.cost / watched)

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
            text += f" and {words.plural(left, 'more time')}, {units.age(self.seconds)} in all"
        return text

    def cost_words(self) -> str:
        """``4.7 GPU-hours, 5% of all GPU time``; empty where it costs no time."""
        if self.cost is None:
            return ""
        text = words.gpu_time(self.cost)
        return text if self.share is None else f"{text}, {words.share(self.share)} of all GPU time"

    def advice(self) -> list[str]:
        """Things to do, each once; with the GPUs it is for where that is not for all."""
        found = grouped(
            (advice_line(advice), use.gpus) for use in self.uses for advice in use.advice
        )
        every = set(self.gpus)
        lines = []
        for line, places in found.items():
            uuids = [uuid for gpus in places for uuid in gpus]
            where = "" if every == set(uuids) else f"{words.labels(uuids, self.report)}: "
            lines.append(f"{where}{line}")
        return lines

    def _what(self) -> Iterable[str]:
        for use in self.uses:
            text = use.summary
            if len(self.uses) > 1 and use.cost_gpu_seconds is not None:
                text = f"{text.rstrip('.')} ({words.gpu_time(use.cost_gpu_seconds)})"
            yield text

    def found(self) -> Found:
        """As a block."""
        evidence = [one for one in self.first.evidence if one.value is not None]
        rows = []
        for one in evidence:
            unit = "%" if (one.unit or "").startswith("%") else one.unit
            against = "" if one.supports else "against it: " if one.says else "evidence against it"
            threshold = "" if one.threshold is None else quantity(one.threshold, unit)
            value = quantity(one.value, one.unit)
            rows.append((one.name, value, threshold, f"{against}{one.says}"))
        because = [evidence_line(one) for one in evidence if one.supports][:EVIDENCE_SHOWN]
        return Found(
            f"#{self.number}",
            self.first.rule,
            self.severity,
            self.when(),
            words.labels(self.gpus, self.report),
            self.cost_words(),
            list(self._what()),
            self.advice(),
            rows,
            because,
            [f"{other.rule}: {other.why}" for other in self.first.ruled_out],
        )

    def lane(self) -> Lane:
        """On the time axis."""
        described = f"{self.severity}, {self.when(LANE_STRETCHES)}"
        rule = self.first.rule
        return Lane(self.number, rule, self.severity, described, self.stretches, self.seconds)


def groups(report: Report) -> tuple[Group, ...]:
    """In the order of ``rank``."""
    by_rule = grouped((use.rule, use) for use in report.findings)
    made = [Group(0, tuple(uses), report) for uses in by_rule.values()]
    made.sort(key=lambda group: rank(group.severity, group.cost, sure=group.seconds))
    return tuple([Group(place, group.uses, report) for place, group in enumerate(made, start=1)])


def advice_line(advice: Advice) -> str:
    """``Raise num_workers from 2 to 8: the workers are at their limit``."""
    text = advice.action.rstrip(".")
    if advice.setting is not None and advice.wanted is not None and advice.wanted not in text:
        present = "" if advice.present is None else f"{advice.present} -> "
        text += f" ({advice.setting}: {present}{advice.wanted})"
    return f"{text}: {advice.why}" if advice.why else f"{text}."


def verdict(report: Report) -> str:
    """The headline."""
    return " ".join(part for part in verdict_parts(report) if part)


def verdict_parts(report: Report) -> tuple[str, str]:
    """One sentence on how busy it was, and why it was no busier."""
    length = units.age(report.time.seconds)
    if not report.gpus:
        if report.job is not None:
            return "The job used no GPU while it was watched.", ""
        return (report.problems[0] if report.problems else "There was no GPU to look at."), ""
    busy = report.total.busy_percent
    if busy is None:
        return f"How busy the GPUs were is not known: no utilisation was read in {length}.", ""
    subject = "The GPU was" if len(report.cards) == 1 else "The GPUs were"
    head = f"{subject} busy {units.percent(busy)} of {length}."
    worst = [
        group
        for group in groups(report)
        if group.severity != "info" or (group.share or 0.0) >= NOTABLE_SHARE
    ]
    if not worst:
        # What was watched live was diagnosed on the screen.
        return head, "" if report.source is None else _nothing(report, busy)
    costly = max(worst, key=lambda group: group.cost or 0.0)
    others = len(worst) - 1
    more = f" {words.plural(others, 'other finding')} below." if others else ""
    return head, f"{_leading(report, costly if costly.cost else worst[0])}{more}"


def _nothing(report: Report, busy: float) -> str:
    if not report.decided:
        return "Too short, or too few readings, to say whether anything is wrong."
    return "No cause was found for the rest." if busy < FED_PERCENT else "Nothing wrong was found."


def _leading(report: Report, group: Group) -> str:
    longest = max(group.stretches, key=lambda stretch: stretch.seconds)
    whole = longest.seconds >= 0.95 * report.time.seconds
    during = "All the time" if whole else Times(report).stretch(longest).partition(" (")[0]
    cost = group.cost_words()
    lost = f" That cost {cost}." if cost else ""
    others = [uuid for uuid in group.gpus if uuid not in group.uses[0].gpus]
    alike = f"; the same on {words.labels(others, report)}" if others else ""
    return f"{during}: {group.first.summary.rstrip('.')}{alike}.{lost}"


def quality(report: Report) -> Iterable[str]:
    """Sentences on how well the time was covered, and what was left out."""
    time = report.time
    interval = time.interval_seconds
    every = "" if not interval else f", one every {units.interval(float(f'{interval:.2g}'))}"
    yield (
        f"{words.plural(time.snapshots, 'moment')}{every}; {units.age(time.covered_seconds)} of "
        f"{units.age(time.seconds)} covered."
    )
    if time.gap_count:
        shown, left = Times(report).stretches(time.gaps)
        left += time.gap_count - len(time.gaps)
        more = f" and {left} more" if left > 0 else ""
        yield (
            f"{words.plural(time.gap_count, 'gap')}, {units.age(time.gap_seconds)} in all, of "
            f"which nothing is known: {shown}{more}."
        )
    if time.clock_set_back:
        yield f"The clock was set back {words.plural(time.clock_set_back, 'time')}."
    if report.left_out_processes:
        gone = f"{report.left_out_processes:,}"
        yield f"Very many processes: {gone} that used little are not listed."
    yield from () if report.source is None else report.source.notes
    yield from _unchecked(report)


def _unchecked(report: Report) -> Iterable[str]:
    """The readings that were missing at the end, with how many rules wanted them."""
    wanted = grouped((missing, one.rule) for one in report.unknown for missing in one.missing)
    if not wanted or not report.gpus:
        return
    rules = {unknown.rule for unknown in report.unknown}
    most = sorted(wanted.items(), key=lambda item: (-len(set(item[1])), item[0]))[:3]
    named = ", ".join(missing for missing, _ in most)
    more = len(wanted) - len(most)
    yield (
        f"{words.plural(len(rules), 'rule')} could not be checked at the end; missing: {named}"
        f"{f' and {more} more' if more > 0 else ''}."
    )
