"""The overview of a recording: lowest, mean and highest readings of half a minute each, and when
findings held: one for each cause."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuwatch.core.bounds import Seconds, Text, UnixSeconds
from gpuwatch.core.history import Column
from gpuwatch.core.model import GpuKey, ProcessKey, Snapshot
from gpuwatch.diagnosis.causes import cause_of
from gpuwatch.recording.statistics import Cell, Course, Part, rounded

if TYPE_CHECKING:
    from gpuwatch.diagnosis.engine.engine import Engine
    from gpuwatch.diagnosis.finding import Diagnosis, Finding


BUCKET_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Half a minute (by the wall clock) of a machine. What was never read in it has no column; the
    busy share is that of the fine samples, where the driver has them."""

    begin_unix_seconds: UnixSeconds
    seconds: Seconds
    gpus: Mapping[GpuKey, Mapping[str, Column]]
    """Columns of each GPU by the names of its readings."""
    host: Mapping[str, Column]

    @property
    def end_unix_seconds(self) -> float:
        return self.begin_unix_seconds + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingSpan:
    """Time for which a finding held; ``end_unix_seconds`` is ``None`` while it does."""

    rule: Text
    severity: Text
    summary: Text
    gpus: tuple[GpuKey, ...] = ()
    job: ProcessKey | None = None
    begin_unix_seconds: UnixSeconds = 0.0
    end_unix_seconds: UnixSeconds | None = None
    cost_gpu_seconds: float | None = None


_OPEN_MOST = 3
"""Half minutes to which the next part may still add: its cells begin a few seconds before it."""


class Overview:
    """Half minutes of a recording, from its parts."""

    def __init__(self) -> None:
        self._closed: list[Bucket] = []
        self._open: dict[float, dict[tuple[GpuKey | None, str], Cell]] = {}
        """By the time at which they begin: readings of each GPU, and (``None``) of the host."""

    def add_part(self, part: Part) -> None:
        for gpu in part.gpus:
            self._add_courses(gpu.identity.uuid, gpu.profiles)
        if part.host is not None:
            self._add_courses(None, part.host.profiles)
        while len(self._open) > _OPEN_MOST:
            begin = min(self._open)
            self._closed.append(_bucket(begin, self._open.pop(begin)))

    def forget_oldest(self, most: float) -> None:
        """Keep the newest ``most``, by their number: a clock can be set back and forth."""
        if len(self._closed) > most:
            del self._closed[: len(self._closed) - int(most)]

    def buckets(self) -> tuple[Bucket, ...]:
        """Return the half minutes in the order of their time."""
        found = [*self._closed, *[_bucket(begin, rows) for begin, rows in self._open.items()]]
        return tuple(sorted(found, key=lambda bucket: bucket.begin_unix_seconds))

    def _add_courses(self, uuid: GpuKey | None, courses: Mapping[str, Course]) -> None:
        for name, course in courses.items():
            for cell in course.cells():
                begin = math.floor((cell.begin + cell.end) / 2 / BUCKET_SECONDS) * BUCKET_SECONDS
                rows = self._open.setdefault(begin, {})
                held = rows.get((uuid, name))
                rows[uuid, name] = cell if held is None else _together(held, cell)


def _together(one: Cell, other: Cell) -> Cell:
    return Cell(
        one.begin,
        other.end,
        one.seconds + other.seconds,
        one.sum + other.sum,
        min(one.low, other.low),
        max(one.high, other.high),
    )


def _bucket(begin: float, rows: Mapping[tuple[GpuKey | None, str], Cell]) -> Bucket:
    gpus: dict[GpuKey, dict[str, Column]] = {}
    host: dict[str, Column] = {}
    for (uuid, name), cell in rows.items():
        mean = max(cell.low, min(cell.high, cell.sum / cell.seconds))
        columns = host if uuid is None else gpus.setdefault(uuid, {})
        columns[name] = Column(rounded(cell.low), rounded(mean), rounded(cell.high))
    return Bucket(begin_unix_seconds=begin, seconds=BUCKET_SECONDS, gpus=gpus, host=host)


SPANS_KEPT = 1000


class FindingSpans:
    """Spans of the findings of a diagnosis: its own, unless ``push`` is given one."""

    def __init__(self) -> None:
        self.raised = 0
        """Number of findings so far."""
        self._engine: Engine | None = None
        self.diagnosis: Diagnosis | None = None
        """The latest diagnosis."""
        self._open: dict[tuple[str, ...], FindingSpan] = {}
        self._ended: list[FindingSpan] = []

    @property
    def spans(self) -> tuple[FindingSpan, ...]:
        """Spans that are over (since ``take_spans``) and those that hold, by their beginning."""
        found = [*self._ended, *self._open.values()]
        return tuple(sorted(found, key=lambda span: span.begin_unix_seconds))

    def take_spans(self) -> tuple[FindingSpan, ...]:
        """Return ``spans``, and forget those that are over."""
        found = self.spans
        self._ended.clear()
        return found

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis | None = None) -> None:
        """Follow the findings of the next snapshot: of ``diagnosis``, if somebody made one
        already."""
        if diagnosis is None:
            if self._engine is None:
                # Loading the rules takes a while.
                from gpuwatch.diagnosis.engine.engine import Engine  # noqa: PLC0415

                self._engine = Engine()
            self._engine.push(snapshot)
            diagnosis = self._engine.diagnosis
        if diagnosis is self.diagnosis:
            return
        self.diagnosis = diagnosis
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
