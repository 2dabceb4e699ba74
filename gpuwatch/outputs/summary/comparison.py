"""Two recordings side by side: what changed, and whether that can be told at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuwatch.core import units
from gpuwatch.diagnosis.finding import rank
from gpuwatch.outputs.summary.model import FindingUse, Summary
from gpuwatch.outputs.summary.spans import share_of

MUCH_LONGER = 3.0
SAME_SHARE = 0.02
"""Of a reading: less is noise from one run of the same job to the next."""
SAME_POINTS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure before and after. ``None``: not read."""

    name: str
    label: str
    before: float | None
    after: float | None
    kind: str
    """``percent``, ``seconds``, ``bytes``, ``bytes/s``, ``watts``, ``joules``, ``celsius``,
    ``per minute``, ``per second``."""
    better: str | None = None
    """``more``, ``less``, or neither by itself."""

    @property
    def difference(self) -> float | None:
        if self.before is None or self.after is None:
            return None
        return self.after - self.before

    @property
    def judged(self) -> str:
        """``better``, ``worse``, ``same``; empty where that cannot be said of it."""
        difference = self.difference
        if difference is None or self.before is None or self.better is None:
            return ""
        least = SAME_POINTS if self.kind == "percent" else SAME_SHARE * abs(self.before)
        if abs(difference) <= least:
            return "same"
        return "better" if (difference > 0) == (self.better == "more") else "worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingChange:
    """A rule that found something in one recording or in both."""

    rule: str
    severity: str
    state: str
    """``gone``, ``still`` or ``new``."""
    before: FindingUse | None
    after: FindingUse | None
    """The most costly of each."""
    before_share: float | None
    after_share: float | None
    """0 to 1: what the rule's findings cost of all GPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two recordings, what changed between them, and what speaks against comparing them."""

    before: Summary
    after: Summary
    rows: tuple[Row, ...]
    findings: tuple[FindingChange, ...]
    """New first, then what is still there, then what is gone."""
    doubts: tuple[str, ...] = ()
    """Sentences; empty: nothing speaks against it."""

    def having(self, state: str) -> list[str]:
        return [change.rule for change in self.findings if change.state == state]


def compare(before: Summary, after: Summary) -> Comparison:
    return Comparison(
        before=before,
        after=after,
        rows=tuple(_rows(before, after)),
        findings=tuple(_changes(before, after)),
        doubts=tuple(_doubts(before, after)),
    )


_FIGURES: tuple[tuple[str, str, str, str | None], ...] = (
    ("samples_per_second", "samples/s, as reported", "per second", "more"),
    ("data_wait_percent", "waits for data, as reported", "percent", "less"),
    ("busy_percent", "GPU busy", "percent", "more"),
    ("duty_percent", "duty cycle", "percent", "more"),
    ("oscillating_percent", "time in swings", "percent", "less"),
    ("period_seconds", "period of the swings", "seconds", None),
    ("cycles_per_minute", "swings per minute", "per minute", None),
    ("finding_percent", "GPU time lost to findings", "percent", "less"),
    ("power_mean_watts", "power, all GPUs", "watts", None),
    ("energy_joules", "energy", "joules", None),
    ("received_bytes_per_second", "bytes to the GPUs", "bytes/s", None),
    ("throttled_percent", "time throttled", "percent", "less"),
    ("temperature_peak_celsius", "hottest GPU", "celsius", None),
    ("gpu_memory_peak_bytes", "GPU memory peak", "bytes", None),
    ("cpu_percent", "CPU", "percent", None),
    ("cpu_iowait_percent", "waiting for disks", "percent", "less"),
    ("memory_peak_bytes", "memory peak", "bytes", None),
    ("disk_read_bytes_per_second", "disk read", "bytes/s", None),
    ("disk_write_bytes_per_second", "disk written", "bytes/s", None),
    ("seconds", "length", "seconds", None),
)


def _rows(before: Summary, after: Summary) -> Iterable[Row]:
    one, two = _figures(before), _figures(after)
    for name, label, kind, better in _FIGURES:
        yield Row(
            name=name, label=label, before=one[name], after=two[name], kind=kind, better=better
        )


def _figures(summary: Summary) -> dict[str, float | None]:
    host = summary.host
    watched = summary.watched_gpu_seconds
    lost = share_of(summary.findings, watched)
    held = sum(gpu.core.held_seconds for gpu in summary.cards)
    throttled = [
        max((reason.seconds for reason in gpu.core.throttled), default=0.0)
        for gpu in summary.cards
        if gpu.core.throttled is not None
    ]
    return {
        "samples_per_second": summary.samples_per_second,
        "data_wait_percent": summary.data_wait_percent,
        "busy_percent": summary.busy_percent,
        "duty_percent": _percent(summary.duty),
        "oscillating_percent": _percent(summary.oscillating_share),
        "period_seconds": summary.period_seconds,
        "cycles_per_minute": summary.cycles_per_minute,
        # Where nothing was found nothing was lost, once it was watched.
        "finding_percent": _percent(lost if lost is not None else 0.0 if watched else None),
        "power_mean_watts": summary.power_mean_watts,
        "energy_joules": summary.energy_joules,
        "received_bytes_per_second": summary.received_bytes_per_second,
        "throttled_percent": 100.0 * sum(throttled) / held if throttled and held else None,
        "temperature_peak_celsius": _peak(
            gpu.core.temperature_peak_celsius for gpu in summary.gpus
        ),
        "gpu_memory_peak_bytes": _peak(gpu.core.memory_peak_bytes for gpu in summary.gpus),
        "cpu_percent": host.cpu_mean_percent,
        "cpu_iowait_percent": host.cpu_iowait_mean_percent,
        "memory_peak_bytes": host.memory_peak_bytes,
        "disk_read_bytes_per_second": _rate(host.disk_read_bytes, summary.covered_seconds),
        "disk_write_bytes_per_second": _rate(host.disk_written_bytes, summary.covered_seconds),
        "seconds": summary.seconds,
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _peak(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _rate(amount: float | None, seconds: float) -> float | None:
    return None if amount is None or seconds <= 0 else amount / seconds


def _changes(before: Summary, after: Summary) -> Iterable[FindingChange]:
    one, two = _by_rule(before), _by_rule(after)
    changes = []
    for rule in {**two, **one}:
        old, new = one.get(rule, []), two.get(rule, [])
        state = "still" if old and new else "new" if new else "gone"
        changes.append(
            FindingChange(
                rule=rule,
                severity=(new or old)[0].finding.severity,
                state=state,
                before=old[0] if old else None,
                after=new[0] if new else None,
                before_share=share_of(old, before.watched_gpu_seconds),
                after_share=share_of(new, after.watched_gpu_seconds),
            )
        )
    states = ("new", "still", "gone")
    return sorted(
        changes,
        key=lambda change: (
            states.index(change.state),
            rank(change.severity, max(change.before_share or 0.0, change.after_share or 0.0)),
        ),
    )


def _by_rule(summary: Summary) -> dict[str, list[FindingUse]]:
    found: dict[str, list[FindingUse]] = {}
    for use in summary.findings:
        found.setdefault(use.finding.rule, []).append(use)
    return found


def _doubts(before: Summary, after: Summary) -> Iterable[str]:
    one, two = _gpus(before), _gpus(after)
    if one != two:
        yield f"The GPUs differ: {_told(one)} before, {_told(two)} after."
    if before.simulated != after.simulated:
        yield f"The {'first' if before.simulated else 'second'} is of a simulated machine."
    shorter, longer = sorted((before.seconds, after.seconds))
    if longer > MUCH_LONGER * max(shorter, 1.0):
        yield (
            f"One is much longer than the other: {units.age(before.seconds)} before, "
            f"{units.age(after.seconds)} after."
        )
    for summary, which in ((before, "before"), (after, "after")):
        if summary.gpus and summary.busy_percent is None:
            yield f"How busy the GPUs were {which} was not read."
        if summary.gap_seconds > 0.2 * summary.seconds:
            share = units.percent(100.0 * summary.gap_seconds / summary.seconds)
            yield f"{share} of the time {which} is missing."


def _gpus(summary: Summary) -> dict[str, int]:
    counts: dict[str, int] = {}
    for gpu in summary.cards:
        counts[gpu.identity.name] = counts.get(gpu.identity.name, 0) + 1
    return counts


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} x {name}" for name, n in counts.items()) or "none"
