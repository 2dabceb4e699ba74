"""Alerts: what the diagnosis says from moment to moment, as events. One when a finding has held for
long enough (``raised``), one when it has been gone for a minute (``cleared``), none in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuwatch.core.model import Snapshot
from gpuwatch.core.store import spoken_for
from gpuwatch.diagnosis.causes import as_causes
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.diagnosis.rules.shared.words import named_of_all
from gpuwatch.outputs.report.accumulators.findings import MERGE_SECONDS, Key, key_of
from gpuwatch.outputs.report.model import Part

RAISED, CLEARED = "raised", "cleared"
_FOR_CHATS = str.maketrans("<>@", "‹›＠")
"""Slack and its like make mentions of these, and a process's name may hold them."""


class Event(Part, frozen=True, kw_only=True):
    """Event that commands and webhooks are given. ``schema`` as in reports: raised when a name goes
    or changes its meaning."""

    kind: str = "alert"
    schema: int = 1
    event: str
    """``raised`` or ``cleared``."""
    text: str
    """In one line; Slack, Mattermost and Discord show what has this name."""
    machine: str
    simulated: bool
    at_unix_seconds: float
    finding: Finding
    """As it was last; of several jobs (``members``) if one cause was found in them all."""


@dataclass(slots=True)
class _Alert:
    finding: Finding
    held_seconds: float
    gone_seconds: float = 0.0
    raised: bool = False


class Alerts:
    """Takes every snapshot with its diagnosis; there is no clock but the snapshots'.

    Of findings that are ``wanted`` those are raised that have held for so many ``seconds`` without
    a break, errors at once; what is back within a minute was never gone, as in reports.
    """

    def __init__(self, wanted: Callable[[Finding], bool], seconds: float) -> None:
        self._wanted = wanted
        self._seconds = seconds
        self._alerts: dict[Key, _Alert] = {}
        self._before: float | None = None

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis) -> list[Event]:
        passed = 0.0 if self._before is None else spoken_for(snapshot, self._before)
        self._before = snapshot.monotonic_seconds
        found = {key_of(one): one for one in diagnosis.findings if self._wanted(one)}
        for key, finding in found.items():
            # What is new has held for no time yet.
            one = self._alerts.setdefault(key, _Alert(finding, -passed))
            one.finding, one.gone_seconds = finding, 0.0
            one.held_seconds += passed
        raised, cleared = [], []
        for key, one in [*self._alerts.items()]:
            if key not in found:
                one.gone_seconds += passed
                if not one.raised or one.gone_seconds >= MERGE_SECONDS:
                    cleared += [one.finding] * one.raised
                    del self._alerts[key]
            elif not one.raised:
                grave = one.finding.severity == "error"
                one.raised = grave or one.held_seconds >= self._seconds
                raised += [one.finding] * one.raised
        return [*_events(RAISED, raised, snapshot), *_events(CLEARED, cleared, snapshot)]


def _events(event: str, findings: Sequence[Finding], snapshot: Snapshot) -> Iterator[Event]:
    """One for each cause."""
    there = [gpu.identity for gpu in snapshot.gpus]
    host = snapshot.host.name
    for cause in as_causes(findings, lambda uuids: named_of_all(uuids, there)):
        # A GPU that has gone has no name any more, but had one then.
        one = cause if len(cause.members) > 1 else replace(cause.members[0], members=())
        actions = [advice.action for advice in one.advice] if event == RAISED else []
        says = " ".join([f"{one.summary.rstrip('.')}.", *actions])
        where = f"{host} (simulated)" if snapshot.simulated else host
        text = f"{where}: {event} {one.severity} {one.rule}: {says}"
        yield Event(
            event=event,
            text=text.translate(_FOR_CHATS),
            machine=host,
            simulated=snapshot.simulated,
            at_unix_seconds=snapshot.taken_at_unix_seconds,
            finding=one,
        )
