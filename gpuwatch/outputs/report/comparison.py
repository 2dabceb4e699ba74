"""Two reports compared: figures side by side, the sentences that say what changed and whether that
can be said at all, and conditions for a script that is to stop when one holds.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.bounds import total
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.diagnosis.finding import rank
from gpuwatch.outputs.report import words
from gpuwatch.outputs.report.model import SCHEMA_VERSION, FindingUse, Part, Report, Share
from gpuwatch.outputs.report.words import grouped

# --- figures and findings, before and after ---------------------------------------------------

SAME_SHARE = 0.02
"""Smallest change of a reading, as a share, that is not noise between two runs of the same job."""
SAME_POINTS = 1.0
STATES = ("new", "still", "gone")

Value = float | str | None


class Figure(Part, frozen=True):
    """One figure before and after; null: not read."""

    name: str
    label: str
    kind: str
    """Unit of the figure, or ``text``."""
    before: Value = None
    after: Value = None
    difference: float | None = None
    """Figure after minus figure before."""
    judged: str | None = None
    """``better``, ``worse``, ``same``; null where that cannot be said of it."""


class FindingChange(Part, frozen=True):
    """A rule that found something in one report or in both."""

    rule: str
    severity: str
    """Severity of the newer finding."""
    state: str
    """``new``, ``still`` or ``gone``."""
    before_share: Share | None = None
    """Cost of its findings as a share of all GPU time."""
    after_share: Share | None = None
    before: FindingUse | None = None
    """Most costly of its findings."""
    after: FindingUse | None = None


class Outcome(Part, frozen=True):
    """A condition that holds, or of which it is unknown whether it holds."""

    condition: str
    says: str
    """A sentence with both figures."""
    change: float | None = None
    """Change in points, percent or findings; null: unknown."""


class Comparison(Part, frozen=True, kw_only=True):
    """Two reports, what changed between them, and what speaks against comparing them."""

    kind: str = "comparison"
    schema: int = SCHEMA_VERSION
    gpuwatch: str = __version__
    """Version of the program."""
    verdict: str | None = None
    """The headline sentence."""
    comparable: bool = True
    """Whether the two can be compared; if not, ``doubts`` say why."""
    doubts: tuple[str, ...] = ()
    """Reasons against comparing the two, in sentences."""
    figures: tuple[Figure, ...] = ()
    findings: tuple[FindingChange, ...] = ()
    """Findings: new ones first, then those still there, then those gone."""
    failed: tuple[Outcome, ...] = ()
    """Conditions (``--fail-if``) that hold."""
    undecided: tuple[Outcome, ...] = ()
    """Conditions (``--fail-if``) of which it is unknown whether they hold."""
    before: Report
    after: Report

    def rules_in(self, state: str) -> list[str]:
        return [change.rule for change in self.findings if change.state == state]

    def figure(self, name: str) -> Figure:
        return next(one for one in self.figures if one.name == name)


Measure = tuple[str, str, str, str | Callable[[Report], Value], str | None, str]
"""(name, label, kind, where it is in a report, whether ``more`` or ``less`` is better or neither,
whether it is for two jobs or two machines only). The kind is ``percent``, ``seconds``, ``bytes``,
``bytes/s``, ``watts``, ``joules``, ``celsius``, ``per second``, ``GPU-s``,
``cores``, ``count``, ``unix`` or ``text``."""


def _value(report: Report, read: str | Callable[[Report], Value]) -> Value:
    """Return the value that ``read`` gives, or that is at that path; ``None`` where there is
    none."""
    if callable(read):
        return read(report)
    value: Any = report
    for name in read.split("."):
        value = None if value is None else getattr(value, name)
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _peak(name: str) -> Callable[[Report], Value]:
    def read(report: Report) -> Value:
        known = [getattr(gpu, name) for gpu in report.gpus]
        return max([value for value in known if value is not None], default=None)

    return read


def _rate(name: str) -> Callable[[Report], Value]:
    def read(report: Report) -> Value:
        amount, seconds = getattr(report.host, name), report.time.covered_seconds
        return None if amount is None or seconds <= 0 else amount / seconds

    return read


def _lost_percent(report: Report) -> Value:
    """Return the share of GPU time that was lost: 0 where it was watched and nothing was found."""
    watched = report.total.watched_gpu_seconds
    lost = share_of(report.findings, watched)
    return _percent(0.0 if lost is None and watched else lost)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _throttled_percent(report: Report) -> Value:
    seen = sum(gpu.seen_seconds for gpu in report.cards)
    throttled = total(gpu.throttled_seconds for gpu in report.cards)
    return None if throttled is None or not seen else 100.0 * throttled / seen


MEASURES: tuple[Measure, ...] = (
    ("started", "started", "unix", "job.started_at_unix_seconds", None, "job"),
    ("seconds", "duration", "seconds", "duration_seconds", None, ""),
    ("end", "end", "text", "job.end_words", None, "job"),
    ("gpus", "GPUs", "count", lambda r: float(len(r.gpus)), None, "job"),
    ("samples_per_second", "samples/s", "per second",
     "samples_per_second", "more", ""),
    ("data_wait_percent", "waits for data", "percent",
     "data_wait_percent", "less", ""),
    ("busy_percent", "GPU busy", "percent", "total.busy_percent", "more", ""),
    ("idle_gpu_seconds", "idle GPU-s", "GPU-s", "total.idle_gpu_seconds", None, "job"),
    ("duty_percent", "duty cycle", "percent", lambda r: _percent(r.total.duty), "more", ""),
    ("oscillating_percent", "time in swings", "percent",
     lambda r: _percent(r.total.oscillating_share), "less", ""),
    ("period_seconds", "swing period", "seconds", "total.period_seconds", None, ""),
    ("finding_percent", "lost GPU time", "percent", _lost_percent, "less", "machine"),
    ("power_mean_watts", "GPU power", "watts", "total.power_mean_watts", None, ""),
    ("energy_joules", "GPU energy", "joules", "total.energy_joules", None, ""),
    ("received_bytes_per_second", "bytes to GPUs", "bytes/s",
     "total.received_bytes_per_second", None, ""),
    ("throttled_percent", "time throttled", "percent", _throttled_percent, "less", ""),
    ("temperature_peak_celsius", "hottest GPU", "celsius",
     _peak("temperature_peak_celsius"), None, ""),
    ("job_gpu_memory_peak_bytes", "job GPU memory", "bytes",
     _peak("job_memory_peak_bytes"), None, "job"),
    ("gpu_memory_peak_bytes", "GPU memory", "bytes", _peak("memory_peak_bytes"), None, ""),
    ("loader_workers", "loader workers", "count", "job.loading.loader_workers", None, "job"),
    ("pinned_memory", "pinned memory", "text", "job.loading.pinned_memory", None, "job"),
    ("loader_worker_cpu_percent", "worker CPU", "percent",
     "job.loading.loader_worker_cpu_percent", None, "job"),
    ("main_thread_cpu_percent", "main CPU", "percent",
     "job.loading.main_thread_cpu_percent", None, "job"),
    ("cpu_mean_cores", "cores busy", "cores", "job.cpu_mean_cores", None, "job"),
    ("memory_proportional_peak_bytes", "memory (PSS)", "bytes",
     "job.memory_proportional_peak_bytes", None, "job"),
    ("memory_resident_peak_bytes", "memory (RSS)", "bytes",
     "job.memory_resident_peak_bytes", None, "job"),
    ("read_bytes", "storage read", "bytes", "job.read_bytes", None, "job"),
    ("cpu_percent", "CPU", "percent", "host.cpu_mean_percent", None, "machine"),
    ("cpu_iowait_percent", "I/O wait", "percent",
     "host.cpu_iowait_mean_percent", "less", "machine"),
    ("memory_peak_bytes", "memory peak", "bytes", "host.memory_peak_bytes", None, "machine"),
    ("disk_read_bytes_per_second", "disk read", "bytes/s",
     _rate("disk_read_bytes"), None, "machine"),
    ("disk_write_bytes_per_second", "disk written", "bytes/s",
     _rate("disk_written_bytes"), None, "machine"),
)  # fmt: skip


def compare(before: Report, after: Report) -> Comparison:
    jobs = before.job is not None and after.job is not None
    left_out = "machine" if jobs else "job"
    return Comparison(
        figures=tuple([measured(one, before, after) for one in MEASURES if one[5] != left_out]),
        findings=tuple(_changes(before, after)),
        before=before,
        after=after,
    )


def measured(measure: Measure, before: Report, after: Report) -> Figure:
    name, label, kind, read, better, _ = measure
    one, two = _value(before, read), _value(after, read)
    difference = judged = None
    if isinstance(one, (int, float)) and isinstance(two, (int, float)):
        difference = two - one
        if better is not None:
            least = SAME_POINTS if kind == "percent" else SAME_SHARE * abs(one)
            good = (difference > 0) == (better == "more")
            judged = "same" if abs(difference) <= least else "better" if good else "worse"
    return Figure(
        name=name,
        label=label,
        kind=kind,
        before=one,
        after=two,
        difference=difference,
        judged=judged,
    )


def _changes(before: Report, after: Report) -> Iterable[FindingChange]:
    one, two = (grouped((use.rule, use) for use in report.findings) for report in (before, after))
    changes = []
    for rule in {**two, **one}:
        old, new = one.get(rule, []), two.get(rule, [])
        changes.append(
            FindingChange(
                rule=rule,
                severity=(new or old)[0].severity,
                state="still" if old and new else "new" if new else "gone",
                before=old[0] if old else None,
                after=new[0] if new else None,
                before_share=share_of(old, before.total.watched_gpu_seconds),
                after_share=share_of(new, after.total.watched_gpu_seconds),
            )
        )
    return sorted(changes, key=_order)


def _order(change: FindingChange) -> tuple[object, ...]:
    share = max(change.before_share or 0.0, change.after_share or 0.0)
    return (STATES.index(change.state), rank(change.severity, share))


def share_of(uses: Iterable[FindingUse], watched: float | None) -> float | None:
    """Return the part of the GPU time watched, 0 to 1, that these cost together."""
    cost = total(use.cost_gpu_seconds for use in uses)
    return None if cost is None or not watched else min(1.0, cost / watched)


# --- in words ---------------------------------------------------------------------------------

MUCH_LONGER = 3.0


_WRITERS: dict[str, Callable[[float], str]] = {
    "percent": units.fine_percent,
    "seconds": words.period,
    "bytes": units.size,
    "bytes/s": units.rate,
    "watts": units.watts,
    "joules": units.energy,
    "celsius": units.celsius,
    "per second": units.samples,
    "GPU-s": words.amount,
    "cores": "{:.1f}".format,
    "count": "{:.0f}".format,
    "unix": lambda value: words.clock(value, "%m-%d %H:%M"),
}


def figure_words(figure: Figure, value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or units.UNKNOWN
    return _WRITERS[figure.kind](value)


def change_words(figure: Figure) -> str:
    """Return ``+61 points``, ``-12%``, ``same``; empty where one is unknown."""
    difference, before = figure.difference, figure.before
    if difference is None or not isinstance(before, (int, float)):
        return ""
    if figure.kind in {"percent", "celsius"}:
        unit = " points" if figure.kind == "percent" else "C"
        return "same" if abs(difference) < 0.5 else f"{difference:+.0f}{unit}"
    if before <= 0 or figure.kind in {"unix", "count"}:
        return ""
    return words.ratio(1 + difference / before)


def comparison_verdict(comparison: Comparison) -> str:
    before, after = (one.total.busy_percent for one in (comparison.before, comparison.after))
    if before is None or after is None:
        said = "How busy the GPUs were cannot be compared: it was not read in both."
    else:
        points = after - before
        more = f"{abs(points):.0f} points {'more' if points > 0 else 'less'}"
        how = "as busy as before" if abs(points) < 0.5 else more
        said = (
            f"The GPUs were busy {units.percent(before)} before and {units.percent(after)} "
            f"after, {how}."
        )
    parts = [said]
    speed = comparison.figure("samples_per_second")
    if speed.difference is not None:
        # What it comes to, where the jobs of both reported it.
        one, two = (figure_words(speed, value) for value in (speed.before, speed.after))
        both = f"{one} samples/s before and {two} after"
        ratio = f" ({change_words(speed)})" if change_words(speed) else ""
        parts.append(f"As reported by the jobs, {both}{ratio}.")
    for state, word in (("gone", "Gone"), ("still", "Still there"), ("new", "New")):
        if rules := comparison.rules_in(state):
            parts.append(f"{word}: {', '.join(map(words.cause, rules))}.")
    return " ".join(parts)


def doubts(comparison: Comparison) -> Iterable[str]:
    """Return reasons against comparing the two, in sentences."""
    before, after = comparison.before, comparison.after
    one, two = words.gpu_names(before), words.gpu_names(after)
    if one != two:
        yield f"The GPUs differ: {one} before, {two} after."
    if before.simulated != after.simulated:
        yield f"The {'first' if before.simulated else 'second'} is of a simulated machine."
    if before.job is not None or after.job is not None:
        # Runs of a job may well differ in length: that is what they are compared for.
        return
    shorter, longer = sorted((before.time.seconds, after.time.seconds))
    if longer > MUCH_LONGER * max(shorter, 1.0):
        yield (
            f"One is much longer than the other: {units.age(before.time.seconds)} before, "
            f"{units.age(after.time.seconds)} after."
        )
    for report, which in ((before, "before"), (after, "after")):
        if report.gpus and report.total.busy_percent is None:
            yield f"No utilisation was read {which}."
        if report.time.gap_seconds > 0.2 * report.time.seconds:
            share = units.percent(100.0 * report.time.gap_seconds / report.time.seconds)
            yield f"{share} of the time {which} is missing."


def report_name(report: Report) -> str:
    simulated = ", simulated" if report.simulated else ""
    if report.job is not None and report.source is None:
        return f"{words.command(report.job)}, {words.when(report)}{simulated}"
    name = None if report.source is None else report.source.name
    # A redacted recording names no machine.
    known = filter(None, (name, report.machine, words.gpu_names(report), words.when(report)))
    return ", ".join(known) + simulated


# --- conditions: ``busy<-5%``, ``energy>10%``, ``new``, ``new:power_throttle`` ----------------

METRICS = {
    "busy": "busy_percent",
    "duty": "duty_percent",
    "lost": "finding_percent",
    "throttled": "throttled_percent",
    "waits": "data_wait_percent",
    "samples/s": "samples_per_second",
    "duration": "seconds",
    "power": "power_mean_watts",
    "energy": "energy_joules",
    "memory": "gpu_memory_peak_bytes",
}
"""Metrics that a condition can name, each with its figure."""
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_CHANGE = re.compile(r"([a-z/]+)\s*(<=?|>=?)\s*([+-]?\d{1,9}(?:\.\d{1,9})?)\s*%", re.ASCII)


class Condition(NamedTuple):
    text: str
    metric: str
    """One of ``METRICS``, or ``new``."""
    operator: str = ">"
    value: float = 0.0
    rule: str | None = None

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse a condition as a person writes it. Raises ``SentenceError``."""
        # Slow to import.
        from gpuwatch.diagnosis.catalogue import RULES  # noqa: PLC0415

        rules, (metric, colon, rule) = {one.name for one in RULES}, text.partition(":")
        if metric == "new" and (rule in rules or not colon):
            return cls(text, metric, rule=rule or None)
        found = _CHANGE.fullmatch(text)
        if found is not None and found[1] in METRICS:
            return cls(text, found[1], found[2], float(found[3]))
        raise SentenceError(
            f"{clean(text, 60)!r} is no condition: write busy<-5% (with one of "
            f"{', '.join(METRICS)}), new or new:RULE with a rule that gpuwatch explain lists."
        )

    def judge(self, comparison: Comparison) -> Outcome | None:
        """Return the outcome, or ``None`` where the condition does not hold."""
        change, says = (self._found if self.metric == "new" else self._changed)(comparison)
        if change is None or _OPERATORS[self.operator](change, self.value):
            return Outcome(condition=self.text, says=says, change=change)
        return None

    def _changed(self, comparison: Comparison) -> tuple[float | None, str]:
        row = next(one for one in MEASURES if one[0] == METRICS[self.metric])
        figure = measured(row, comparison.before, comparison.after)
        label, before, change = figure.label, figure.before, figure.difference
        sides = {"before": before, "after": figure.after}
        if change is None:
            missing = [side for side, value in sides.items() if value is None]
            return None, f"unknown: {label} was not measured {' or '.join(missing)}."
        unit = " points"
        if figure.kind != "percent":
            if not before:
                return None, f"unknown: {label} was 0 before."
            change, unit = 100.0 * change / float(before), "%"
        both = ", ".join(f"{figure_words(figure, value)} {side}" for side, value in sides.items())
        return change, f"{label} {both} ({change:+.1f}{unit})."

    def _found(self, comparison: Comparison) -> tuple[float | None, str]:
        after, rule = comparison.after, self.rule
        names = [name for name in comparison.rules_in("new") if rule in (None, name)]
        unchecked = not after.decided or rule in {one.rule for one in after.unknown}
        if not names and unchecked and rule not in {one.rule for one in after.findings}:
            return None, "unknown: what was read after does not decide it."
        return float(len(names)), f"{', '.join(names)} found after, not before."
