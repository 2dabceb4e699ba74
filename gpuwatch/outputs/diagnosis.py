"""A diagnosis with all that is shown beside it: of a watch by its last minute, of a file by its
report, which judges all of it. As text for a person, and as one JSON object: the report of what was
watched, and what stands beside it. Its ``schema`` is that of the report: raised when a name goes or
changes its meaning; new names may come at any time.
"""

from dataclasses import dataclass, replace
from typing import Any

from gpuwatch.core import units
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.jobs.stacks.report import StackReport
from gpuwatch.outputs.report import words
from gpuwatch.outputs.report.document import (
    gpu_blocks,
    groups,
    outcome,
    phase_blocks,
    unchecked,
    verdict,
    worded,
)
from gpuwatch.outputs.report.model import Report, dumps, priced, without_profiles
from gpuwatch.outputs.report.text import write_block
from gpuwatch.outputs.stacks import process_object, stacks_page
from gpuwatch.outputs.terminal import BOLD, DIM, Page
from gpuwatch.sources.logs.text import LOG_KINDS

WIDTH_MIN = 28
"""Narrower, the words beside a label have no room."""
WIDTH_MAX = 100
"""Longer lines of prose are no easier to read."""


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
    came_of_it = outcome(report)
    return DiagnosisReport(
        report=report,
        verdict=verdict(report),
        found=came_of_it == "found",
        decided=came_of_it != "undecided" and report.decided,
    )


def at_price(diagnosis: DiagnosisReport, price_per_gpu_hour: float | None) -> DiagnosisReport:
    """Return the diagnosis with what is lost in money, too, where there is a price."""
    if price_per_gpu_hour is None:
        return diagnosis
    report = priced(diagnosis.report, price_per_gpu_hour)
    return of_file(report) if diagnosis.is_file else replace(diagnosis, report=report)


def of_watch(
    report: Report,
    diagnosis: Diagnosis,
    *,
    stacks: tuple[StackReport, ...] = (),
    problem: str | None = None,
) -> DiagnosisReport:
    """Return what was watched, with the last ``diagnosis`` for its verdict. ``problem``: why there
    is no GPU, where that is so."""
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


class DiagnosisSeen(Report, frozen=True, kw_only=True):
    """The report of a job, a machine or a file that was diagnosed, without its time profiles; times
    of logs without dates count from 1970."""

    kind: str = "diagnosis"
    causes: tuple[str, ...] = ()
    """Causes found, a sentence for each: findings of several jobs can share one."""
    stacks: tuple[dict[str, Any], ...] = ()
    """Python stacks, if requested: processes as ``outputs.stacks`` describes them."""


def diagnosis_json(diagnosis: DiagnosisReport) -> str:
    report = without_profiles(worded(diagnosis.report))
    same = {name: getattr(report, name) for name in report.__struct_fields__}
    own = {
        "kind": "diagnosis",
        "verdict": diagnosis.verdict,
        "decided": diagnosis.decided,
        "causes": tuple([group.cause.summary for group in groups(report)]),
        "stacks": tuple(map(process_object, diagnosis.stacks)),
    }
    return dumps(DiagnosisSeen(**{**same, **own}))


def diagnosis_page(
    report: DiagnosisReport,
    *,
    width: int = 80,
    colour: bool = False,
    ascii_only: bool = False,
    verbose: bool = False,
    on_terminal: bool = False,
) -> str:
    """Return each finding with its evidence, and the verdict: first, as in a mail, but last
    ``on_terminal``, which shows the end. In lines of at most ``width`` cells; ``verbose``: with
    what was ruled out and what could not be checked."""
    page = Page(min(max(width, WIDTH_MIN), WIDTH_MAX), colour)
    whole = report.report
    if not on_terminal:
        page.say(report.verdict, style=BOLD)
        page.gap()
    page.say(_watched(whole), style=DIM)
    _seen(page, report)
    for group in groups(whole):
        found = group.found()
        what = [one for one in found.what if one.rstrip(".") not in report.verdict]
        ruled_out = found.ruled_out if verbose else ()
        write_block(page, found._replace(name="", what=what, ruled_out=ruled_out))
    lacking = list(unchecked(whole)) if whole.gpus else []
    if verbose and lacking:
        page.gap()
        for sentence in lacking:
            page.say(sentence)
    if report.stacks:
        page.gap()
        page.say("What the training processes were doing:")
        seen = stacks_page(report.stacks, width=page.width, ascii_only=ascii_only)
        page.lines += seen.splitlines()
    if not verbose and (lacking or any(group.found().ruled_out for group in groups(whole))):
        page.gap()
        page.say("--verbose also says what was ruled out, and what lacked data.", style=DIM)
    if on_terminal:
        page.gap()
        page.say(report.verdict, style=BOLD)
    return "\n".join(page.lines).strip("\n")


def _watched(report: Report) -> str:
    source, length = report.source, units.age(report.time.seconds)
    readings = units.plural(report.time.snapshots, "reading")
    count = units.plural(len(report.gpus), "GPU")
    simulated = " (a simulated machine)" if report.simulated else ""
    if source is None:
        what = f"{count} for {length}" if report.gpus else f"for {length}, without a GPU"
        return f"Watched {what}, {readings}{simulated}."
    kind = LOG_KINDS.get(source.kind, "a recording")
    interval = source.interval_seconds
    every = "" if interval is None else f", one every {units.interval(float(f'{interval:.2g}'))}"
    return f"{source.name}: {kind} of {count} over {length}, {readings}{every}{simulated}."


def _seen(page: Page, report: DiagnosisReport) -> None:
    """Show what there was: of a file its phases; of a watch its GPUs, where nothing was found."""
    whole = report.report
    if not whole.gpus or (report.found and not report.is_file):
        return
    page.gap()
    several = report.is_file and whole.phases
    for block in phase_blocks(whole, "text") if several else gpu_blocks(whole, "text"):
        write_block(page, block)
    if not report.found and not report.decided:
        page.gap()
        page.say(_what_would_decide(report))


def _what_would_decide(report: DiagnosisReport) -> str:
    source = report.report.source
    if not any(gpu.busy_readings for gpu in report.report.gpus):
        needs = "to be read how busy the GPU is (utilization.gpu in a log)"
        if words.was_asked(report.report):
            needs += ", which the driver does not report with MIG, nor on some virtual GPUs"
    elif source is None:
        needs = "a longer observation (--for 2m), while the job trains"
    elif source.kind == "recording":
        needs = "a longer recording"
    else:
        needs = (
            "a log that is longer (a minute or two) or finer (nvidia-smi -lms 200), or gpuwatch "
            "diagnose on the machine while the job runs, which also sees the job's processes"
        )
    return f"Needed for a diagnosis: {needs}."
