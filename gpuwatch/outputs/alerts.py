"""Alerts: changes of the ledger as events. One when a finding has held for long enough
(``raised``), one when it has been gone for a minute (``cleared``), none in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gpuwatch.core.model import GpuKey, ProcessKey, Snapshot
from gpuwatch.core.units import gpu_label
from gpuwatch.diagnosis.finding import Advice, Evidence, Finding, Gain, as_causes, names_among
from gpuwatch.diagnosis.ledger import MERGE_SECONDS, Episode, EpisodeKey, Ledger
from gpuwatch.outputs.report.model import Part

RAISED, CLEARED = "raised", "cleared"
_FOR_CHATS = str.maketrans("<>@", "‹›＠")
"""Slack and its like make mentions of these, and a process's name may hold them."""


class AlertJob(Part, frozen=True, kw_only=True):
    """Job that a finding is about."""

    pid: int
    started_at_unix_seconds: float | None
    user: str | None = None
    slurm_job: str | None = None


class AlertAdvice(Part, frozen=True, kw_only=True):
    """A change to make, as in ``diagnosis.finding.Advice``."""

    action: str
    setting: str | None
    present: str | None
    wanted: str | None
    why: str
    gain: Gain | None


class AlertFinding(Part, frozen=True, kw_only=True):
    """A finding for programs that know nothing of this machine: names as ``nvidia-smi`` and ``ps``
    have them, and sentences without places to fill."""

    rule: str
    severity: str
    confidence: float
    summary: str
    gpus: tuple[str, ...]
    """Numbers of its GPUs, ``0.1`` of a MIG instance; without those that are gone."""
    gpu_uuids: tuple[GpuKey, ...]
    late: tuple[str, ...]
    """Numbers of those that the others wait for."""
    jobs: tuple[AlertJob, ...]
    since_unix_seconds: float | None
    cost_share: float | None
    cost_gpu_seconds: float | None
    gain: Gain | None
    evidence: tuple[Evidence, ...]
    advice: tuple[AlertAdvice, ...]


_SAME = (
    *("rule", "severity", "confidence", "summary", "since_unix_seconds", "cost_share"),
    *("cost_gpu_seconds", "gain", "evidence"),
)


class Event(Part, frozen=True, kw_only=True):
    """Event that commands and webhooks are given. ``schema`` as in reports: raised when a name goes
    or changes its meaning."""

    kind: str = "alert"
    schema: int = 2
    event: str
    """``raised`` or ``cleared``."""
    text: str
    """In one line; Slack, Mattermost and Discord show what has this name."""
    machine: str
    simulated: bool
    at_unix_seconds: float
    finding: AlertFinding
    """Finding as it was last; it is about several jobs if one cause was found in them all."""


class Alerts:
    """Events of a ledger that goes on with the snapshots. Of findings that are ``wanted`` those are
    raised that have held for so many ``seconds`` without a break, errors at once; what is back
    within a minute was never gone, as in reports."""

    def __init__(self, wanted: Callable[[Episode], bool], seconds: float) -> None:
        self._wanted = wanted
        self._seconds = seconds
        self._raised: set[EpisodeKey] = set()

    def push(self, snapshot: Snapshot, ledger: Ledger) -> list[Event]:
        """Return what is to be said of the ledger as it is with this snapshot."""
        raised, cleared = [], []
        for one, seconds in ledger.standing():
            told = one.key in self._raised
            if told and not one.holds and seconds >= MERGE_SECONDS:
                self._raised.remove(one.key)
                cleared.append(one)
                continue
            due = one.severity == "error" or seconds >= self._seconds
            if one.holds and due and not told and self._wanted(one):
                self._raised.add(one.key)
                raised.append(one)
        return [*_events(RAISED, raised, snapshot), *_events(CLEARED, cleared, snapshot)]


def _events(event: str, episodes: Sequence[Episode], snapshot: Snapshot) -> Iterator[Event]:
    """Yield an event for each cause."""
    names = names_among(gpu.identity for gpu in snapshot.gpus)
    host = snapshot.host.name
    findings = [one.finding() for one in episodes]
    for cause in as_causes(findings, names):
        # A GPU that has gone has no name any more, but had one then.
        one = cause if len(cause.members) > 1 else replace(cause.members[0], members=())
        actions = [advice.action for advice in one.advice] if event == RAISED else []
        gain = [f"Gain: {one.promise}."] if event == RAISED and one.promise else []
        says = " ".join([f"{one.summary.rstrip('.')}.", *actions, *gain])
        where = f"{host} (simulated)" if snapshot.simulated else host
        text = f"{where}: {event} {one.severity} {one.rule}: {says}"
        yield Event(
            event=event,
            text=text.replace("->", "→").translate(_FOR_CHATS),
            machine=host,
            simulated=snapshot.simulated,
            at_unix_seconds=snapshot.taken_at_unix_seconds,
            finding=_alert_finding(one, snapshot),
        )


def _alert_finding(found: Finding, snapshot: Snapshot) -> AlertFinding:
    keys = dict.fromkeys([one.job for one in found.members or (found,)])
    return AlertFinding(
        **{name: getattr(found, name) for name in _SAME},
        gpus=tuple([gpu_label(gpu) for gpu in snapshot.gpus if gpu.uuid in found.gpus]),
        gpu_uuids=found.gpus,
        late=tuple([gpu_label(gpu) for gpu in snapshot.gpus if gpu.uuid in found.late]),
        jobs=tuple([_alert_job(key, snapshot) for key in keys if key is not None]),
        advice=tuple([_alert_advice(one) for one in found.advice]),
    )


def _alert_job(key: ProcessKey, snapshot: Snapshot) -> AlertJob:
    job = next((one for one in snapshot.jobs if one.key == key), None)
    known = {} if job is None else {"user": job.user, "slurm_job": job.slurm_job}
    return AlertJob(pid=key[0], started_at_unix_seconds=key[1], **known)


def _alert_advice(advice: Advice) -> AlertAdvice:
    names = AlertAdvice.__struct_fields__
    return AlertAdvice(**{name: getattr(advice, name) for name in names})
