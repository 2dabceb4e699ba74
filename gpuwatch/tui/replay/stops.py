"""Where the keys for the next and the previous finding lead in a recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuwatch.recording.buckets import FindingSpan
from gpuwatch.tui.replay.state import ReplayState

_LEAD_SECONDS = 60.0
"""Into a finding, where it is shown: by then the diagnosis has said it."""
_SAME_SECONDS = 30.0
"""Findings that begin so close to each other are gone to together."""


class Stop(NamedTuple):
    at: float
    finding: FindingSpan


LOOKING = "looking for the next finding ..."


def beside(state: ReplayState, at: float, step: int) -> Stop | str:
    """The first stop after ``at`` (1), or the last one before it (-1); else why there is none."""
    # A snapshot lies up to an interval before the moment gone to.
    near = _SAME_SECONDS / 2
    found = stops(state.findings, state.last)
    if step > 0:
        stop = next((stop for stop in found if stop.at > at + near), None)
    else:
        stop = next((stop for stop in reversed(found) if stop.at < at - near), None)
    if stop is not None:
        return stop
    if state.progress < 1.0 and step > 0:
        return LOOKING
    if not state.findings:
        return f"nothing was found {'so far' if state.arriving else 'in this recording'}"
    return f"no finding begins {'later' if step > 0 else 'before this'}"


def stops(findings: Sequence[FindingSpan], last: float) -> list[Stop]:
    """One for each finding, in order: a minute into it, or at its end. Those that are good to know
    are stops only where nothing is wrong; those that begin together are one, of the gravest."""
    wrong = [span for span in findings if span.severity != "info"] or findings
    found: list[Stop] = []
    for span in sorted(wrong, key=lambda one: one.begin_unix_seconds):
        begin = span.begin_unix_seconds
        end = last if span.end_unix_seconds is None else min(last, span.end_unix_seconds)
        stop = Stop(max(begin, min(begin + _LEAD_SECONDS, end - 1.0)), span)
        if not found or begin - found[-1].finding.begin_unix_seconds > _SAME_SECONDS:
            found.append(stop)
        elif span.severity == "error" != found[-1].finding.severity:
            found[-1] = stop
    return sorted(found, key=lambda stop: stop.at)
