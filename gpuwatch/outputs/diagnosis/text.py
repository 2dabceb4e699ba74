"""A diagnosis as text for a person."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core import units
from gpuwatch.diagnosis.finding import Advice, Evidence, Finding
from gpuwatch.jobs.stacks.summary import StackReport
from gpuwatch.outputs.diagnosis.report import DiagnosisReport, GpuSeen
from gpuwatch.outputs.terminal.page import Page
from gpuwatch.outputs.terminal.painting import BOLD, COLOURS, DIM
from gpuwatch.outputs.terminal.table import wrap

WIDTH_MIN = 28
"""Narrower, the words beside a label have no room."""
WIDTH_MAX = 100
"""Longer lines of prose are no easier to read."""
GPUS_SHOWN = 8
MISSING_SHOWN = 6
RULED_OUT_SHOWN = 6
LONG_SECONDS = 120.0
"""Two of the diagnosis's windows."""
FINE_SECONDS = 0.3
"""The driver's own samples are at least 1/6 s apart."""


def diagnosis_page(report: DiagnosisReport, *, width: int = 80, colour: bool = False) -> str:
    """The verdict, then each finding with its evidence, in lines of at most ``width`` cells."""
    width = min(max(width, WIDTH_MIN), WIDTH_MAX)
    page = Page(width, colour)
    page.say(report.verdict, style=BOLD)
    page.say(_watched(report), style=DIM)
    for alike in _grouped(report):
        _finding(page, report, *alike)
    if not report.found:
        _seen(page, report)
    _unchecked(page, report)
    _stacks(page, report.stacks)
    return "\n".join(page.lines)


def _watched(report: DiagnosisReport) -> str:
    source = report.source
    seconds = units.age(source.seconds)
    readings = _plural(source.snapshots, "reading")
    count = _plural(len(report.gpus), "GPU")
    if not source.is_file:
        simulated = " (a simulated machine)" if source.simulated else ""
        return f"Watched {count} for {seconds}, {readings}{simulated}."
    kind = "a recording" if source.kind == "recording" else f"an nvidia-smi {source.kind} log"
    interval = source.interval_seconds
    every = "" if interval is None else f", one every {units.interval(float(f'{interval:.2g}'))}"
    return f"{source.name}: {kind} of {count} over {seconds}, {readings}{every}."


_Held = tuple[Finding, float | None]


def _grouped(report: DiagnosisReport) -> list[list[_Held]]:
    """The findings, those together that say to do the same about other GPUs or jobs."""
    held: list[_Held] = [(finding, None) for finding in report.diagnosis.findings]
    held += [(each.finding, each.until_unix_seconds) for each in report.ended]
    groups: dict[tuple[str, str, tuple[Advice, ...], bool], list[_Held]] = {}
    for finding, until in held:
        key = (finding.rule, finding.severity, finding.advice, until is None)
        groups.setdefault(key, []).append((finding, until))
    return list(groups.values())


def _finding(page: Page, report: DiagnosisReport, first: _Held, *others: _Held) -> None:
    page.gap()
    finding, until = first
    sure = f"{finding.confidence * 100:.0f}% sure"
    word = f"{finding.severity}:"
    head = f"{word} {finding.rule} ({sure}{_when(finding, report, until)})"
    lines = wrap(head, page.width, later="  ")
    # Only the word is coloured: the rest is for reading.
    painted = page.paint(word, COLOURS.get(finding.severity, ""))
    page.lines += [painted + lines[0].removeprefix(word), *lines[1:]]
    if finding.summary != report.verdict:
        page.say(finding.summary, first="  ", later="  ")
    cost = _cost(finding)
    if cost:
        page.labelled("Cost", cost)
    _listed(page, "Do", [_advice(advice) for advice in finding.advice])
    read = [evidence for evidence in finding.evidence if evidence.value is not None]
    unread = [evidence for evidence in finding.evidence if evidence.value is None]
    _listed(page, "Because", [evidence_line(evidence) for evidence in read if evidence.supports])
    _listed(page, "Against", [evidence_line(one) for one in read if not one.supports])
    _listed(page, "Unread", [evidence_line(evidence) for evidence in unread])
    causes = [f"{other.rule}: {other.why}" for other in finding.ruled_out[:RULED_OUT_SHOWN]]
    left = len(finding.ruled_out) - RULED_OUT_SHOWN
    if left > 0:
        causes.append(f"and {_plural(left, 'other cause')} (--json)")
    _listed(page, "Not", causes)
    _listed(page, "Also", [_also(report, *other) for other in others])


def _listed(page: Page, label: str, texts: Sequence[str]) -> None:
    for number, text in enumerate(texts):
        page.labelled(label if number == 0 else "", text, "- ")


def _also(report: DiagnosisReport, finding: Finding, ended: float | None) -> str:
    lost = _cost(finding)
    text = finding.summary + (f" (cost: {lost})" if lost else "")
    return text if ended is None else text + _when(finding, report, ended)


def _when(finding: Finding, report: DiagnosisReport, until: float | None) -> str:
    since, began = finding.since_unix_seconds, report.source.started_at_unix_seconds
    if since is None:
        return ""
    if not report.source.is_file or began is None:
        held = report.diagnosis.taken_at_unix_seconds - since
        return f", for {units.age(held)}" if until is None else f", until {_ago(report, until)}"
    if until is None:
        return f", from {units.age(since - began)} on to the end"
    return f", from {units.age(since - began)} to {units.age(until - began)}"


def _ago(report: DiagnosisReport, moment: float) -> str:
    return f"{units.age(report.diagnosis.taken_at_unix_seconds - moment)} ago"


def _cost(finding: Finding) -> str:
    parts = []
    if finding.cost_share is not None:
        parts.append(f"{finding.cost_share * 100:.0f}% of the time")
    if finding.cost_gpu_seconds is not None:
        parts.append(f"{_gpu_time(finding.cost_gpu_seconds)}")
    return ", ".join(parts)


def _gpu_time(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.0f} GPU-seconds"
    if seconds < 36_000:
        return f"{seconds / 60:.0f} GPU-minutes"
    return f"{seconds / 3600:.1f} GPU-hours"


def _advice(advice: Advice) -> str:
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


def _seen(page: Page, report: DiagnosisReport) -> None:
    """Show what there was, where nothing was found."""
    if not report.gpus:
        return
    page.gap()
    for gpu in report.gpus[:GPUS_SHOWN]:
        page.say(_gpu_line(gpu), first="  ", later="    ")
    left = len(report.gpus) - GPUS_SHOWN
    if left > 0:
        page.say(f"and {_plural(left, 'more GPU')}", first="  ")
    if not report.decided:
        page.say(_what_would_decide(report))


def _gpu_line(gpu: GpuSeen) -> str:
    text = f"GPU {gpu.index}"
    if gpu.name != "GPU":
        text += f" ({gpu.name})"
    if gpu.busy_percent is None:
        return f"{text}: its utilisation was not read"
    text += f": busy {gpu.busy_percent:.0f}%"
    if gpu.busy_low_percent is not None and gpu.busy_high_percent is not None:
        text += f" ({gpu.busy_low_percent:.0f} to {gpu.busy_high_percent:.0f}%)"
    if gpu.power_watts is not None:
        text += f", {gpu.power_watts:.0f} W"
    return text


def _what_would_decide(report: DiagnosisReport) -> str:
    source = report.source
    if source.is_file and source.kind != "recording":
        return _better_log(report)
    if not any(gpu.readings for gpu in report.gpus):
        return (
            "Needed for a diagnosis: a driver that reports how busy the GPU is (it does not with "
            "MIG, nor on some virtual GPUs)."
        )
    if source.kind == "recording":
        return "Needed for a diagnosis: a longer recording."
    return "Needed for a diagnosis: a longer observation (--for 2m), while the job trains."


def _better_log(report: DiagnosisReport) -> str:
    source = report.source
    beside = (
        "gpuwatch diagnose on the machine while the job runs, which also sees the job's processes"
    )
    if not any(gpu.readings for gpu in report.gpus):
        wanted = {
            "query": "with values of utilization.gpu",
            "dmon": "with values in the column sm (nvidia-smi dmon -s pucm)",
            "pmon": "with values in the column sm (nvidia-smi pmon -s um)",
        }[source.kind]
        return (
            f"Needed for a diagnosis: a log {wanted}, which the driver does not report for GPUs in "
            f"MIG mode; or {beside}."
        )
    better = []
    if source.seconds < LONG_SECONDS:
        better.append("longer (a minute or two)")
    if source.interval_seconds is not None and source.interval_seconds > FINE_SECONDS:
        better.append("finer (nvidia-smi --query-gpu=... -lms 200)")
    log = f"a log that is {' and '.join(better)}, or " if better else ""
    return f"Needed for a diagnosis: {log}{beside}."


def _unchecked(page: Page, report: DiagnosisReport) -> None:
    """The readings that were missing, with how many rules wanted each."""
    rules: dict[str, set[str]] = {}
    for unknown in report.diagnosis.unknown:
        for missing in unknown.missing:
            rules.setdefault(missing, set()).add(unknown.rule)
    if not rules or not report.gpus:
        return
    undecided = {unknown.rule for unknown in report.diagnosis.unknown}
    page.gap()
    page.say(f"{_plural(len(undecided), 'rule')} could not be checked; missing:")
    ordered = sorted(rules.items(), key=lambda item: (-len(item[1]), item[0]))
    for missing, names in ordered[:MISSING_SHOWN]:
        shown = ", ".join(sorted(names)[:3])
        more = len(names) - 3
        page.say(
            f"{missing} ({shown}{f' and {more} more' if more > 0 else ''})",
            first="  - ",
            later="    ",
        )
    if len(ordered) > MISSING_SHOWN:
        page.say(f"and {_plural(len(ordered) - MISSING_SHOWN, 'other reading')}", first="  - ")


def _stacks(page: Page, reports: Sequence[StackReport]) -> None:
    if not reports:
        return
    page.gap()
    page.say("What the training processes were doing:")
    for report in reports:
        who = f"process {report.pid}" if report.rank is None else f"rank {report.rank}"
        page.say(f"{who}: {report.sentence()}", first="  - ", later="    ")


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
