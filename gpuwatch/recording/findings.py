"""Findings over time: when each came, changed and went, one for each cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.causes import cause_of
from gpuwatch.recording.buckets import FindingSpan

if TYPE_CHECKING:
    from gpuwatch.diagnosis.engine.engine import Engine
    from gpuwatch.diagnosis.finding import Diagnosis, Finding

SPANS_KEPT = 1000


class FindingSpans:
    """Follows a diagnosis: its own, unless ``push`` is given one."""

    def __init__(self) -> None:
        self.raised = 0
        """Findings so far."""
        self._engine: Engine | None = None
        self._seen: Diagnosis | None = None
        self._open: dict[tuple[str, ...], FindingSpan] = {}
        self._ended: list[FindingSpan] = []

    @property
    def spans(self) -> tuple[FindingSpan, ...]:
        """Those that are over (since ``take``) and those that hold, by their beginning."""
        found = [*self._ended, *self._open.values()]
        return tuple(sorted(found, key=lambda span: span.begin_unix_seconds))

    def take(self) -> tuple[FindingSpan, ...]:
        """As ``spans``; those that are over are forgotten."""
        found = self.spans
        self._ended.clear()
        return found

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis | None = None) -> None:
        """Take the next snapshot, with what somebody found in it already, if they did."""
        if diagnosis is None:
            if self._engine is None:
                # Loading the rules takes a while.
                from gpuwatch.diagnosis.engine.engine import Engine  # noqa: PLC0415

                self._engine = Engine()
            self._engine.push(snapshot)
            diagnosis = self._engine.diagnosis
        if diagnosis is self._seen:
            return
        self._seen = diagnosis
        at = snapshot.taken_at_unix_seconds
        before, self._open = self._open, {}
        for finding in diagnosis.causes:
            key = cause_of(finding)
            held = before.pop(key, None)
            self.raised += held is None
            self._open[key] = _span(finding, held, at)
        self._ended += [replace(span, end_unix_seconds=at) for span in before.values()]
        del self._ended[:-SPANS_KEPT]


def _span(finding: Finding, held: FindingSpan | None, at: float) -> FindingSpan:
    since = finding.since_unix_seconds
    costs = [finding.cost_gpu_seconds, None if held is None else held.cost_gpu_seconds]
    return FindingSpan(
        rule=finding.rule,
        severity=finding.severity,
        summary=finding.summary,
        gpus=finding.gpus,
        job=finding.job,
        begin_unix_seconds=(
            held.begin_unix_seconds if held else at if since is None else min(at, since)
        ),
        cost_gpu_seconds=max([cost for cost in costs if cost is not None], default=None),
    )
