"""A diagnosis as text for a person and as JSON.

The JSON is one object, ``schema`` 1 (``diagnosis_schema`` says the same for programs)::

    {"schema": 1, "gpuwatch": version, "verdict": a sentence,
     "decided": false where too little was seen or can be read to say that nothing is wrong,
     "taken_at_unix_seconds", "watched_seconds", "simulated",
     "source": {"kind": "live", "simulated", "recording", "query", "dmon" or "pmon",
                "name": of the file or null, "interval_seconds", "snapshots", "seconds",
                "started_at_unix_seconds", "lines", "other_lines", "torn_lines",
                "overlong_lines", "unread_values", "incomplete_ticks", "missing_ticks",
                "clock_jumps" (all 0 when live), "notes": [sentence]},
     "gpus": [{"uuid", "index", "name", "readings", "busy_percent", "busy_low_percent",
               "busy_high_percent", "power_watts"}] (means over what was watched),
     "findings": [
        {"rule", "severity": "error", "warning" or "info", "confidence": 0 to 1, "summary",
         "gpus": [uuid], "job": {"pid", "started_at_unix_seconds"} or null,
         "since_unix_seconds", "until_unix_seconds": null while it holds,
         "evidence": [{"name", "value", "unit", "threshold", "says", "supports"}],
         "ruled_out": [{"rule", "why"}],
         "advice": [{"action", "setting", "from", "to", "why"}],
         "cost": {"share": 0 to 1 of the time watched, "gpu_seconds"}}],
     "unknown": [{"rule", "missing": [reading], "gpus", "job"}],
     "stacks": [{"pid", "rank", "problem", "shares": [{"category", "percent", "line"}]}]}

Findings that hold at the end come first, errors and then the most costly; then those that had
ended. Times of a log without dates count from its beginning (1970-01-01). What was not read is
``null``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.diagnosis.finding import Advice, Diagnosis, Evidence, Finding, NotTold
from gpuwatch.diagnosis.finding_json import finding_object, finite, job_object
from gpuwatch.jobs.stacks.summary import StackReport
from gpuwatch.outputs.terminal.page import Page
from gpuwatch.outputs.terminal.painting import BOLD, COLOURS, DIM
from gpuwatch.outputs.terminal.table import wrap

SCHEMA = 1
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A finding that no longer held at the end."""

    finding: Finding
    until_unix_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeen:
    """What one GPU did, for a diagnosis that finds nothing."""

    uuid: str
    index: int
    name: str
    readings: int
    busy_percent: float | None = None
    busy_low_percent: float | None = None
    busy_high_percent: float | None = None
    power_watts: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSeen:
    """Where the snapshots came from, and how well that could be read."""

    kind: str
    name: str | None = None
    snapshots: int = 0
    seconds: float = 0.0
    """From the first snapshot to the last."""
    interval_seconds: float | None = None
    started_at_unix_seconds: float | None = None
    simulated: bool = False
    lines: int = 0
    other_lines: int = 0
    torn_lines: int = 0
    overlong_lines: int = 0
    unread_values: int = 0
    incomplete_ticks: int = 0
    missing_ticks: int = 0
    clock_jumps: int = 0
    notes: tuple[str, ...] = ()

    @property
    def is_file(self) -> bool:
        return self.kind not in {"live", "simulated"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisReport:
    """A diagnosis and all that is told with it."""

    diagnosis: Diagnosis
    source: SourceSeen
    gpus: tuple[GpuSeen, ...] = ()
    ended: tuple[Ended, ...] = ()
    stacks: tuple[StackReport, ...] = ()
    problem: str | None = None
    """Why there is no GPU, where there is none."""

    @property
    def found(self) -> bool:
        return bool(self.diagnosis.findings or self.ended)

    @property
    def decided(self) -> bool:
        return self.diagnosis.decided and any(gpu.readings for gpu in self.gpus)

    @property
    def verdict(self) -> str:
        """The headline sentence."""
        if self.diagnosis.findings:
            return self.diagnosis.verdict
        if self.ended:
            worst = self.ended[0].finding
            return f"Nothing was wrong at the end; earlier: {worst.summary}"
        if not self.gpus:
            return self.problem or "There was no GPU to look at."
        if not self.decided and self.diagnosis.decided:
            return "Idle GPUs cannot be diagnosed: no utilisation was read."
        return self.diagnosis.verdict


# --- JSON ------------------------------------------------------------------------------------


def diagnosis_json(report: DiagnosisReport) -> str:
    """One JSON object as the head of this module says, without a line end."""
    return json.dumps(diagnosis_object(report), ensure_ascii=False, allow_nan=False, indent=2)


def diagnosis_object(report: DiagnosisReport) -> dict[str, Any]:
    diagnosis, source = report.diagnosis, report.source
    return {
        "schema": SCHEMA,
        "gpuwatch": __version__,
        "verdict": report.verdict,
        "decided": report.decided,
        "taken_at_unix_seconds": finite(diagnosis.taken_at_unix_seconds),
        "watched_seconds": finite(diagnosis.watched_seconds),
        "simulated": source.simulated,
        "source": {
            "kind": source.kind,
            "name": source.name,
            "interval_seconds": finite(source.interval_seconds),
            "snapshots": source.snapshots,
            "seconds": finite(source.seconds),
            "started_at_unix_seconds": finite(source.started_at_unix_seconds),
            "lines": source.lines,
            "other_lines": source.other_lines,
            "torn_lines": source.torn_lines,
            "overlong_lines": source.overlong_lines,
            "unread_values": source.unread_values,
            "incomplete_ticks": source.incomplete_ticks,
            "missing_ticks": source.missing_ticks,
            "clock_jumps": source.clock_jumps,
            "notes": list(source.notes),
        },
        "gpus": [_gpu_object(gpu) for gpu in report.gpus],
        "findings": [
            *(finding_object(finding) for finding in diagnosis.findings),
            *(finding_object(each.finding, each.until_unix_seconds) for each in report.ended),
        ],
        "unknown": [_unknown_object(unknown) for unknown in diagnosis.unknown],
        "stacks": [_stack_object(stacks) for stacks in report.stacks],
    }


def _gpu_object(gpu: GpuSeen) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        "readings": gpu.readings,
        "busy_percent": finite(gpu.busy_percent),
        "busy_low_percent": finite(gpu.busy_low_percent),
        "busy_high_percent": finite(gpu.busy_high_percent),
        "power_watts": finite(gpu.power_watts),
    }


def _unknown_object(unknown: NotTold) -> dict[str, Any]:
    return {
        "rule": unknown.rule,
        "missing": list(unknown.missing),
        "gpus": list(unknown.gpus),
        "job": job_object(unknown.job),
    }


def _stack_object(stacks: StackReport) -> dict[str, Any]:
    return {
        "pid": stacks.pid,
        "rank": stacks.rank,
        "problem": stacks.problem,
        "shares": [
            {
                "category": share.category,
                "percent": finite(share.percent),
                "line": share.lines[0].where if share.lines else None,
            }
            for share in stacks.shares
        ],
    }


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
    _not_told(page, report)
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
    for number, advice in enumerate(finding.advice):
        page.labelled("Do" if number == 0 else "", _advice(advice), "- ")
    read = [evidence for evidence in finding.evidence if evidence.value is not None]
    for label, evidences in (
        ("Because", [evidence for evidence in read if evidence.supports]),
        ("Against", [evidence for evidence in read if not evidence.supports]),
        ("Unread", [evidence for evidence in finding.evidence if evidence.value is None]),
    ):
        for number, evidence in enumerate(evidences):
            page.labelled(label if number == 0 else "", evidence_line(evidence), "- ")
    for number, other in enumerate(finding.ruled_out[:RULED_OUT_SHOWN]):
        page.labelled("Not" if number == 0 else "", f"{other.rule}: {other.why}", "- ")
    left = len(finding.ruled_out) - RULED_OUT_SHOWN
    if left > 0:
        page.labelled("", f"and {_plural(left, 'other cause')} (--json)", "- ")
    for number, (other_one, ended) in enumerate(others):
        told = _cost(other_one)
        text = other_one.summary + (f" (cost: {told})" if told else "")
        if ended is not None:
            text += _when(other_one, report, ended)
        page.labelled("Also" if number == 0 else "", text, "- ")


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
    """What there was, where nothing was found."""
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


def _not_told(page: Page, report: DiagnosisReport) -> None:
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
