"""The findings of a report, those of one rule together; how evidence and advice are worded."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuwatch.core import units
from gpuwatch.diagnosis.finding import Advice, Evidence, rank
from gpuwatch.outputs.report.content import words
from gpuwatch.outputs.report.content.document import Found, Lane, grouped
from gpuwatch.outputs.report.content.words import Times
from gpuwatch.outputs.report.model import FindingUse, Report
from gpuwatch.outputs.report.parts import Stretch, total

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
            text += f" and {words.plural(left, 'more time')}, {units.age(self.seconds)} in all"
        return text

    def cost_words(self) -> str:
        """``4.7 GPU-hours, 5% of all GPU time``; empty where it costs no time."""
        return words.cost(self.cost, self.report)

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
            other = "" if one.supports else "against it: " if one.says else "evidence against it"
            threshold = "" if one.threshold is None else quantity(one.threshold, unit)
            value = quantity(one.value, one.unit)
            rows.append((one.name, value, threshold, f"{other}{one.says}"))
        because = [evidence_line(one) for one in evidence if one.supports][:EVIDENCE_SHOWN]
        against = [evidence_line(one) for one in evidence if not one.supports][:EVIDENCE_SHOWN]
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
            against,
            [f"{other.rule}: {other.why}" for other in self.first.ruled_out],
            f"{100.0 * self.first.confidence:.0f}%",
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


def evidence_line(evidence: Evidence) -> str:
    """``busy 47% (threshold 90%): it idles half of the time``."""
    text = evidence.name
    if evidence.value is not None:
        text += f" {quantity(evidence.value, evidence.unit)}"
    if evidence.threshold is not None:
        # "75% of a core each": what it is a share of has just been said.
        unit = "%" if (evidence.unit or "").startswith("%") else evidence.unit
        text += f" (threshold {quantity(evidence.threshold, unit)})"
    return f"{text}: {evidence.says}" if evidence.says else text


def quantity(value: float | str | bool | None, unit: str | None) -> str:
    """A number with its unit as a person writes it; ``-`` where it was not read."""
    if value is None:
        return units.UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit in _WRITERS and not isinstance(value, str):
        return _WRITERS[unit](value)
    number = value if isinstance(value, str) else _number(value)
    if unit is None:
        return number
    return f"{number}{unit}" if unit.startswith("%") else f"{number} {unit}"


_WRITERS = {"bytes": units.size, "bytes/s": units.rate}


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
