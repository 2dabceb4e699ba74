"""When findings come, change and go: what a recording says of them."""

from __future__ import annotations

from typing import Any

from gpuwatch.core.json_values import Json
from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.engine.engine import Engine
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.diagnosis.finding_json import finding_object

TOLD_AGAIN_SECONDS = 300.0
"""The cost of a finding grows all the time, and its sentence has numbers in it."""

_Key = tuple[str, tuple[str, ...], Any]


class FindingEvents:
    """Runs an engine; gives the events as lines of a recording (objects).

    ``raised`` and ``cleared`` come at once, ``changed`` seldom: when the severity is another, else
    with the newest numbers now and then. All have the finding whole, as ``diagnose --json`` does.
    """

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = Engine() if engine is None else engine
        self.raised = 0
        """Findings so far."""
        self._seen: Diagnosis | None = None
        self._held: dict[_Key, tuple[Finding, float]] = {}
        """With the time at which it was last told."""
        self._newest: dict[_Key, Finding] = {}

    def push(self, snapshot: Snapshot) -> list[Json]:
        """The events that this snapshot brings, mostly none."""
        self.engine.push(snapshot)
        diagnosis = self.engine.diagnosis
        if diagnosis is self._seen:
            return []
        self._seen = diagnosis
        at = snapshot.taken_at_unix_seconds
        now = {_key(finding): finding for finding in diagnosis.findings}
        events = [_event("cleared", self._newest[key], at) for key in self._held if key not in now]
        self._held = {key: held for key, held in self._held.items() if key in now}
        for key, finding in now.items():
            kind = self._kind(key, finding, at)
            if kind is not None:
                events.append(_event(kind, finding, at))
                self._held[key] = (finding, at)
        self._newest = now
        return events

    def _kind(self, key: _Key, finding: Finding, at: float) -> str | None:
        if key not in self._held:
            self.raised += 1
            return "raised"
        told, when = self._held[key]
        if finding.severity != told.severity:
            return "changed"
        other = (finding.summary, finding.cost_gpu_seconds)
        if other == (told.summary, told.cost_gpu_seconds):
            return None
        return "changed" if at - when >= TOLD_AGAIN_SECONDS else None

    def end(self, at: float) -> list[Json]:
        """What holds, with the newest numbers, as the recording ends."""
        return [_event("changed", finding, at) for finding in self._newest.values()]


def _key(finding: Finding) -> _Key:
    return (finding.rule, finding.gpus, finding.job)


def _event(event: str, finding: Finding, at: float) -> Json:
    return {
        "kind": "finding",
        "event": event,
        "at_unix_seconds": at,
        **finding_object(finding),
    }
