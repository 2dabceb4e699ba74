"""A diagnosis with all that is shown beside it: of a watch by its last minute, of a file by its
report, which judges all of it."""

from dataclasses import dataclass

from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.jobs.stacks.summary import StackReport
from gpuwatch.outputs.report.content import verdict
from gpuwatch.outputs.report.model import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisReport:
    report: Report
    verdict: str
    """The headline sentence."""
    found: bool
    decided: bool
    stacks: tuple[StackReport, ...] = ()

    @property
    def is_file(self) -> bool:
        return self.report.source is not None


def of_file(report: Report) -> DiagnosisReport:
    outcome = verdict.outcome(report)
    return DiagnosisReport(
        report=report,
        verdict=verdict.verdict(report),
        found=outcome == "found",
        decided=outcome != "undecided" and report.decided,
    )


def of_watch(
    report: Report,
    diagnosis: Diagnosis,
    *,
    stacks: tuple[StackReport, ...] = (),
    problem: str | None = None,
) -> DiagnosisReport:
    """The last ``diagnosis`` says how it is. ``problem``: why there is no GPU, where that is so."""
    read = any(gpu.busy_readings for gpu in report.gpus)
    sentence = diagnosis.verdict
    if not diagnosis.findings:
        if report.findings:
            earlier = report.findings[0].summary
            sentence = f"Nothing was wrong at the end; earlier: {earlier}"
        elif not report.gpus:
            sentence = problem or "There was no GPU to look at."
        elif diagnosis.decided and not read:
            sentence = "Idle GPUs cannot be diagnosed: no utilisation was read."
    return DiagnosisReport(
        report=report,
        verdict=sentence,
        found=bool(report.findings),
        decided=diagnosis.decided and read,
        stacks=stacks,
    )
