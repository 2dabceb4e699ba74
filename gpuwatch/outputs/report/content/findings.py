"""The findings of a report, those of one cause together; how evidence and advice are worded."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuwatch.core import units
from gpuwatch.core.model import GpuIdentity
from gpuwatch.diagnosis.causes import as_causes
from gpuwatch.diagnosis.finding import Advice, Evidence, Finding
from gpuwatch.diagnosis.rules.shared.words import named_of_all
from gpuwatch.outputs.report.accumulators.findings import OF_FINDING
from gpuwatch.outputs.report.content import words
from gpuwatch.outputs.report.content.document import Found, Lane
from gpuwatch.outputs.report.content.words import Times
from gpuwatch.outputs.report.model import FindingUse, Report
from gpuwatch.outputs.report.parts import GpuUsage, Stretch

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
            text += f" and {words.plural(left, 'more time')}, {units.age(self.seconds)} in all"
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
    found = [_as_finding(use) for use in report.findings]
    uses = {id(one): use for one, use in zip(found, report.findings, strict=True)}
    causes = as_causes(found, lambda uuids: named_of_all(uuids, map(_identity, report.gpus)))
    return tuple(
        Group(number, cause, tuple([uses[id(one)] for one in cause.members]), report)
        for number, cause in enumerate(causes, start=1)
    )


def _as_finding(use: FindingUse) -> Finding:
    same = (*OF_FINDING, "gpus", "cost_gpu_seconds")
    return Finding(**{name: getattr(use, name) for name in same})


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
