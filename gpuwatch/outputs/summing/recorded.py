"""The findings that a recording tells itself: a report of it says what was said then.

``record`` judges as it records, and writes when findings come, change and go. The places where that
stands are read without the rest, so this takes a second for twelve hours.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from gpuwatch.diagnosis.finding import (
    SEVERITIES,
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    RuledOut,
)
from gpuwatch.json_values import (
    CodecError,
    Json,
    flag,
    json_list,
    json_object,
    number,
    text,
    whole,
    wrong,
)
from gpuwatch.model import GpuKey, ProcessKey
from gpuwatch.outputs.summing.spans import Spans
from gpuwatch.outputs.summing.timeline import Step
from gpuwatch.sources.log_text import LogError
from gpuwatch.sources.recording_scan import RecordingFileReader

_PARTS_MOST = 100
"""Of a finding's evidence, advice or GPUs that are kept."""

_Key = tuple[str, tuple[GpuKey, ...], ProcessKey | None]


@dataclass(frozen=True, slots=True)
class Event:
    """A finding came, changed or went."""

    at_unix_seconds: float
    finding: Finding | None
    """``None``: another recording begins, and what held is over."""
    cleared: bool = False


def recorded_events(path: str) -> tuple[list[Event], float] | None:
    """What happened, in the order of the file, and about when it ends. ``None`` where the file (or
    a part of it) was not written by ``record``: it has to be judged."""
    try:
        reader = RecordingFileReader(path)
    except LogError:
        return None
    try:
        events: list[Event] = []
        run, end = None, None
        for offset in reader.starts(0, reader.size):
            head = reader.head(offset)
            if head is None:
                continue
            recording, at = head.recording, head.started_at_unix_seconds
            if recording is None or at is None:
                return None
            if run is not None and recording.get("run") != run and events:
                events.append(Event(at, None))
            run, end = recording.get("run"), at
            events += [event for line in head.lines if (event := _event(line)) is not None]
        return None if end is None else (events, end)
    finally:
        reader.close()


def _event(line: Json) -> Event | None:
    if line.get("kind") != "finding":
        return None
    try:
        return Event(
            number(line.get("at_unix_seconds"), "finding.at_unix_seconds"),
            read_finding(line),
            line.get("event") == "cleared",
        )
    except CodecError:
        # The others are told all the same.
        return None


def read_finding(value: Json) -> Finding:
    """As ``outputs.diagnosis.finding_object`` writes it. Raises ``CodecError``."""
    severity = text(value.get("severity"), "finding.severity")
    if severity not in SEVERITIES:
        wrong(severity, "finding.severity", "error, warning or info")
    cost = json_object(value.get("cost", {}), "finding.cost")
    return Finding(
        rule=text(value.get("rule"), "finding.rule"),
        severity=severity,
        confidence=min(1.0, max(0.0, number(value.get("confidence"), "finding.confidence"))),
        summary=text(value.get("summary"), "finding.summary"),
        gpus=tuple([text(uuid, "finding.gpus") for uuid in _parts(value, "gpus")]),
        job=_job(value.get("job")),
        since_unix_seconds=_amount(value.get("since_unix_seconds"), "finding.since"),
        evidence=tuple([_evidence(one) for one in _parts(value, "evidence")]),
        advice=tuple([_advice(one) for one in _parts(value, "advice")]),
        ruled_out=tuple([_other(one) for one in _parts(value, "ruled_out")]),
        cost_share=_amount(cost.get("share"), "finding.cost.share"),
        cost_gpu_seconds=_amount(cost.get("gpu_seconds"), "finding.cost.gpu_seconds"),
    )


def _parts(value: Json, name: str) -> list[Any]:
    return json_list(value.get(name, []), f"finding.{name}")[:_PARTS_MOST]


def _amount(value: Any, where: str) -> float | None:
    return None if value is None else number(value, where)


def _words(value: Any, where: str) -> str | None:
    return None if value is None else text(value, where)


def _job(value: Any) -> ProcessKey | None:
    if value is None:
        return None
    job = json_object(value, "finding.job")
    return (
        whole(job.get("pid"), "finding.job.pid"),
        _amount(job.get("started_at_unix_seconds"), "finding.job.started"),
    )


def _evidence(value: Any) -> Evidence:
    where = "finding.evidence"
    one = json_object(value, where)
    said = one.get("value")
    if not (said is None or isinstance(said, bool)):
        said = text(said, where) if isinstance(said, str) else number(said, where)
    return Evidence(
        name=text(one.get("name"), where),
        value=said,
        unit=_words(one.get("unit"), where),
        threshold=_amount(one.get("threshold"), where),
        says=text(one.get("says", ""), where),
        supports=flag(one.get("supports", True), where),
    )


def _advice(value: Any) -> Advice:
    where = "finding.advice"
    one = json_object(value, where)
    return Advice(
        action=text(one.get("action"), where),
        setting=_words(one.get("setting"), where),
        present=_words(one.get("from"), where),
        wanted=_words(one.get("to"), where),
        why=text(one.get("why", ""), where),
    )


def _other(value: Any) -> RuledOut:
    one = json_object(value, "finding.ruled_out")
    return RuledOut(
        rule=text(one.get("rule"), "finding.ruled_out"),
        why=text(one.get("why", ""), "finding.ruled_out"),
    )


class RecordedFindings:
    """Hands the events to ``spans`` as the report's time goes on, as an engine's diagnoses come."""

    def __init__(self, events: list[Event]) -> None:
        self._events = deque(events)
        self._held: dict[_Key, Finding] = {}
        self._before = 0.0
        """The step before, on the report's axis."""

    def advance(self, spans: Spans, step: Step, begin: float) -> None:
        """Up to ``step``, in a report that begins at ``begin``."""
        now = step.until + step.offset
        events = self._events
        while events and events[0].at_unix_seconds <= now:
            event = events.popleft()
            finding, held = event.finding, self._held
            if finding is None:
                self._tell(spans, self._before, begin, step.offset)
                held.clear()
            elif event.cleared:
                # It was seen last at the look before.
                held[_key(finding)] = finding
                self._tell(spans, self._before, begin, step.offset)
                del held[_key(finding)]
            else:
                held[_key(finding)] = finding
            self._tell(spans, step.until, begin, step.offset)
        self._before = step.until

    def _tell(self, spans: Spans, now: float, begin: float, offset: float) -> None:
        spans.add(
            Diagnosis(
                taken_at_unix_seconds=now,
                watched_seconds=0.0,
                verdict="",
                findings=tuple(self._held.values()),
            ),
            now,
            begin,
            offset,
        )


def _key(finding: Finding) -> _Key:
    return (finding.rule, finding.gpus, finding.job)
