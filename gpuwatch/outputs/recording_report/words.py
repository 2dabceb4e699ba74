"""What every form of a recording's report says in the same words: times, findings, the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuwatch.core import units
from gpuwatch.diagnosis.finding import Advice, Finding, rank
from gpuwatch.outputs.job_report.words import REASONS
from gpuwatch.outputs.summary.model import FindingUse, GpuSummary, Stretch, Summary

DAY_SECONDS = 86400.0
FINE_SECONDS = 3600.0
"""In an hour or less, seconds matter."""
STRETCHES_SHOWN = 4
FED_PERCENT = 85.0
"""From here on, nothing found means nothing wrong (as in the diagnosis)."""
NOTABLE_SHARE = 0.05
"""Of all GPU time: what costs as much is told first, though it may be as it should."""


class Times:
    """Moments of one recording as a person reads them: local times, or from its start where the
    log has no dates."""

    def __init__(self, summary: Summary) -> None:
        self._begin = summary.begin_unix_seconds
        self._dated = summary.has_dates
        self._form = "%H:%M:%S" if summary.seconds <= FINE_SECONDS else "%H:%M"
        if summary.seconds > DAY_SECONDS:
            self._form = f"%m-%d {self._form}"

    def moment(self, unix_seconds: float) -> str:
        """``14:30``, with the day where the recording is longer than one."""
        if not self._dated:
            return f"+{units.age(unix_seconds - self._begin)}"
        return local(unix_seconds).strftime(self._form)

    def full(self, unix_seconds: float) -> str:
        """``2026-03-01 14:30:05``."""
        if not self._dated:
            return self.moment(unix_seconds)
        return local(unix_seconds).strftime("%Y-%m-%d %H:%M:%S")

    def stretch(self, stretch: Stretch) -> str:
        """``14:30 to 15:30 (1h00)``."""
        begin, end = self.moment(stretch.begin_unix_seconds), self.moment(stretch.end_unix_seconds)
        length = units.age(stretch.seconds)
        return f"{begin} ({length})" if begin == end else f"{begin} to {end} ({length})"

    def zone(self) -> str:
        """``local time, UTC+01:00 (CET)``."""
        if not self._dated:
            return "from the start: the log has no dates"
        moment = local(self._begin)
        offset = moment.strftime("%z")
        name = moment.tzname() or ""
        shown = "UTC" if offset in {"", "+0000"} else f"UTC{offset[:3]}:{offset[3:5]}"
        known = name not in {"", "UTC", shown} and not name.startswith(("+", "-"))
        return f"local time, {shown} ({name})" if known else f"local time, {shown}"


def local(unix_seconds: float) -> datetime:
    return datetime.fromtimestamp(unix_seconds, tz=UTC).astimezone()


def when(summary: Summary) -> str:
    """``2026-03-01 20:00:00 to 2026-03-02 08:00:00``."""
    times = Times(summary)
    if not summary.has_dates:
        return f"{units.age(summary.seconds)} of a log without dates"
    begin, end = summary.begin_unix_seconds, summary.end_unix_seconds
    last = times.full(end)
    if times.full(begin)[:10] == last[:10]:
        last = last[11:]
    return f"{times.full(begin)} to {last}"


# --- GPUs ------------------------------------------------------------------------------------


def gpu_names(summary: Summary) -> str:
    """``8 x NVIDIA H200``, ``no GPU``."""
    counts: dict[str, int] = {}
    for gpu in summary.cards:
        counts[gpu.identity.name] = counts.get(gpu.identity.name, 0) + 1
    if not counts:
        return "no GPU"
    return ", ".join(name if n == 1 else f"{n} x {name}" for name, n in counts.items())


def labels(uuids: Sequence[str], summary: Summary) -> str:
    """``GPU 0``, ``GPUs 0-3, 6``, ``all GPUs``."""
    wanted = set(uuids)
    found = [gpu.label for gpu in summary.gpus if gpu.uuid in wanted]
    if not found:
        return "no GPU" if not uuids else "a GPU"
    if len(found) == 1:
        return f"GPU {found[0]}"
    if len(found) == len(summary.gpus):
        return "all GPUs"
    return f"GPUs {ranges(found)}"


def ranges(found: Sequence[str]) -> str:
    """``0-3, 6``."""
    spans: list[list[str]] = []
    for label in found:
        before = spans[-1][-1] if spans else ""
        if before.isdigit() and label.isdigit() and int(label) == int(before) + 1:
            spans[-1].append(label)
        else:
            spans.append([label])
    return ", ".join(one[0] if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in spans)


def throttling(gpu: GpuSummary) -> list[tuple[str, float]]:
    """What slowed it down, in words, with seconds; what was next to nothing left out."""
    return [
        (REASONS.get(reason, reason.replace("_", " ")), seconds)
        for reason, seconds in gpu.core.throttled or ()
        if seconds >= 0.5
    ]


def throttled_seconds(gpu: GpuSummary) -> float | None:
    """The longest of its reasons: they overlap."""
    if gpu.core.throttled is None:
        return None
    return max((seconds for _, seconds in gpu.core.throttled), default=0.0)


def oscillation(gpu: GpuSummary) -> str:
    """``every 1.9s, 98% of the time``; empty where there was none."""
    swinging, told = gpu.oscillating_seconds, gpu.rhythm_seconds
    if not swinging or not told or swinging < 0.02 * told:
        return ""
    share = units.percent(100.0 * swinging / told)
    if gpu.period_seconds is None:
        return f"without a rhythm, {share} of the time"
    return f"every {period(gpu.period_seconds)}, {share} of the time"


def period(seconds: float | None) -> str:
    if seconds is None:
        return units.UNKNOWN
    return f"{seconds:.1f}s" if seconds < 9.95 else units.age(seconds)


def share(value: float | None) -> str:
    """0 to 1 as a percentage; little is not nothing."""
    if value is None:
        return units.UNKNOWN
    return "<1%" if 0.0 < value < 0.005 else f"{100 * value:.0f}%"


def gpu_time(seconds: float | None) -> str:
    """``42 GPU-seconds``, ``13 GPU-minutes``, ``4.7 GPU-hours``."""
    if seconds is None:
        return units.UNKNOWN
    if seconds < 600:
        return f"{seconds:.0f} GPU-seconds"
    if seconds < 36_000 / 5:
        return f"{seconds / 60:.0f} GPU-minutes"
    return f"{seconds / 3600:.1f} GPU-hours"


def hours(seconds: float | None) -> str:
    """GPU or core time for a table: ``42s``, ``13m20``, ``93h``; hours do not become days."""
    if seconds is None or seconds < 36_000:
        return units.age(seconds)
    return f"{seconds / 3600:,.0f}h"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# --- findings --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """Findings of one rule: of other jobs, or other GPUs. ``number`` is theirs in the report."""

    number: int
    uses: tuple[FindingUse, ...]
    summary: Summary

    @property
    def finding(self) -> Finding:
        """That of the most costly."""
        return self.uses[0].finding

    @property
    def rule(self) -> str:
        return self.finding.rule

    @property
    def severity(self) -> str:
        return self.finding.severity

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(uuid for use in self.uses for uuid in use.gpus))

    @property
    def cost(self) -> float | None:
        costs = [use.cost_gpu_seconds for use in self.uses if use.cost_gpu_seconds is not None]
        return sum(costs) if costs else None

    @property
    def share(self) -> float | None:
        """0 to 1, of all GPU time watched."""
        watched = self.summary.watched_gpu_seconds
        return None if self.cost is None or not watched else min(1.0, self.cost / watched)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """When it held for any of them."""
        every = sorted(
            (stretch for use in self.uses for stretch in use.stretches),
            key=lambda stretch: stretch.begin_unix_seconds,
        )
        out: list[Stretch] = []
        for stretch in every:
            if out and stretch.begin_unix_seconds <= out[-1].end_unix_seconds:
                end = max(out[-1].end_unix_seconds, stretch.end_unix_seconds)
                begin = out[-1].begin_unix_seconds
                out[-1] = Stretch(begin_unix_seconds=begin, end_unix_seconds=end)
            else:
                out.append(stretch)
        return tuple(out)

    @property
    def seconds(self) -> float:
        return sum(stretch.seconds for stretch in self.stretches)

    def advice_lines(self) -> list[str]:
        """What to do, each once; with the GPUs it is for where that is not for all."""
        found: dict[str, list[str]] = {}
        for use in self.uses:
            for advice in use.finding.advice:
                found.setdefault(advice_line(advice), []).extend(use.gpus)
        every = set(self.gpus)
        return [
            line if every == set(uuids) else f"{labels(uuids, self.summary)}: {line}"
            for line, uuids in found.items()
        ]

    def when(self, times: Times, most: int = STRETCHES_SHOWN) -> str:
        """``03:04 to 04:04 (1h00)``, and how often else."""
        stretches = self.stretches
        longest = sorted(stretches, key=lambda stretch: -stretch.seconds)[:most]
        shown = [times.stretch(one) for one in stretches if one in longest]
        text = ", ".join(shown)
        left = len(stretches) - len(shown)
        if left > 0:
            text += f" and {plural(left, 'more time')}, {units.age(self.seconds)} in all"
        return text

    def told_cost(self) -> str:
        """``4.7 GPU-hours, 5% of all GPU time``; empty where it costs no time."""
        if self.cost is None:
            return ""
        text = gpu_time(self.cost)
        return text if self.share is None else f"{text}, {share(self.share)} of all GPU time"


def groups(summary: Summary) -> tuple[Group, ...]:
    """In the order of ``rank``."""
    found: dict[str, list[FindingUse]] = {}
    for use in summary.findings:
        found.setdefault(use.finding.rule, []).append(use)
    made = [Group(0, tuple(uses), summary) for uses in found.values()]
    made.sort(key=lambda group: rank(group.severity, group.cost, sure=group.seconds))
    return tuple([Group(place + 1, group.uses, summary) for place, group in enumerate(made)])


def advice_line(advice: Advice) -> str:
    """``Raise num_workers from 2 to 8: the workers are at their limit``."""
    text = advice.action.rstrip(".")
    if advice.setting is not None and advice.wanted is not None and advice.wanted not in text:
        present = "" if advice.present is None else f"{advice.present} -> "
        text += f" ({advice.setting}: {present}{advice.wanted})"
    return f"{text}: {advice.why}" if advice.why else f"{text}."


# --- the verdict -----------------------------------------------------------------------------


def verdict(summary: Summary) -> str:
    """The headline."""
    return " ".join(part for part in verdict_parts(summary) if part)


def verdict_parts(summary: Summary) -> tuple[str, str]:
    """How busy it was, as a sentence, and why it was no busier."""
    length = units.age(summary.seconds)
    if not summary.gpus:
        return (summary.problems[0] if summary.problems else "There was no GPU to look at."), ""
    busy = summary.busy_percent
    if busy is None:
        return f"How busy the GPUs were is not known: no utilisation was read in {length}.", ""
    subject = "The GPU was" if len(summary.cards) == 1 else "The GPUs were"
    head = f"{subject} busy {units.percent(busy)} of {length}."
    worst = [
        group
        for group in groups(summary)
        if group.severity != "info" or (group.share or 0.0) >= NOTABLE_SHARE
    ]
    if not worst:
        return head, _nothing(summary, busy)
    costly = max(worst, key=lambda group: group.cost or 0.0)
    leading = costly if costly.cost else worst[0]
    others = len(worst) - 1
    more = f" {plural(others, 'other finding')} below." if others else ""
    return head, f"{_leading(summary, leading)}{more}"


def _nothing(summary: Summary, busy: float) -> str:
    if not summary.decided:
        return "Too short, or too few readings, to say whether anything is wrong."
    if busy < FED_PERCENT:
        return "No cause was found for the rest."
    return "Nothing wrong was found."


def _leading(summary: Summary, group: Group) -> str:
    times = Times(summary)
    longest = max(group.stretches, key=lambda stretch: stretch.seconds)
    whole = longest.seconds >= 0.95 * summary.seconds
    during = "All the time" if whole else times.stretch(longest).partition(" (")[0]
    cost = group.told_cost()
    lost = f" That cost {cost}." if cost else ""
    others = [uuid for uuid in group.gpus if uuid not in group.uses[0].gpus]
    alike = f"; the same on {labels(others, summary)}" if others else ""
    return f"{during}: {group.finding.summary.rstrip('.')}{alike}.{lost}"


def facts(summary: Summary) -> Iterable[tuple[str, str, str]]:
    """The few headline figures: name, value, and what it is of."""
    if summary.busy_percent is not None:
        yield "GPU busy", units.percent(summary.busy_percent), _duty(summary)
    if summary.idle_gpu_seconds is not None:
        watched = gpu_time(summary.watched_gpu_seconds)
        number, _, unit = gpu_time(summary.idle_gpu_seconds).partition(" ")
        yield "Idle", number, f"{unit} of {watched.partition(' ')[0]}"
    if summary.lost_gpu_seconds is not None:
        number, _, unit = gpu_time(summary.lost_gpu_seconds).partition(" ")
        yield "Lost to findings", number, unit
    if summary.energy_joules is not None:
        mean = summary.power_mean_watts
        yield "Energy", units.energy(summary.energy_joules), f"{units.watts(mean)} on average"
    peak = _memory_peak(summary)
    if peak is not None:
        yield peak
    if summary.host.cpu_mean_percent is not None:
        cores = summary.host.core_count
        of = "" if cores is None else f"of {plural(cores, 'core')}"
        yield "CPU", units.percent(summary.host.cpu_mean_percent), of


def _duty(summary: Summary) -> str:
    swings = summary.oscillating_share
    if swings is None or swings < 0.02:
        return "no oscillation"
    rhythm = summary.period_seconds
    every = "" if rhythm is None else f" every {period(rhythm)}"
    return f"0-99% swings{every} in {share(swings)} of it"


def _memory_peak(summary: Summary) -> tuple[str, str, str] | None:
    known = [
        (gpu.core.memory_peak_bytes, gpu)
        for gpu in summary.gpus
        if gpu.core.memory_peak_bytes is not None
    ]
    if not known:
        return None
    most, gpu = max(known, key=lambda pair: pair[0])
    total = gpu.identity.memory_total_bytes
    of = f"on GPU {gpu.label}" if total is None else f"of {units.size(total)}, GPU {gpu.label}"
    return "GPU memory peak", units.size(most), of


def quality(summary: Summary) -> Iterable[str]:
    """How well the time was covered, and what was left out, in sentences."""
    interval = summary.interval_seconds
    every = "" if not interval else f", one every {units.interval(float(f'{interval:.2g}'))}"
    yield (
        f"{plural(summary.snapshots, 'moment')}{every}; {units.age(summary.covered_seconds)} of "
        f"{units.age(summary.seconds)} covered."
    )
    if summary.gap_count:
        times = Times(summary)
        longest = sorted(summary.gaps, key=lambda gap: -gap.seconds)[:STRETCHES_SHOWN]
        shown = ", ".join(times.stretch(gap) for gap in summary.gaps if gap in longest)
        left = summary.gap_count - len(longest)
        more = f" and {left} more" if left > 0 else ""
        yield (
            f"{plural(summary.gap_count, 'gap')}, {units.age(summary.gap_seconds)} in all, of "
            f"which nothing is known: {shown}{more}."
        )
    if summary.clock_set_back:
        yield f"The clock was set back {plural(summary.clock_set_back, 'time')}."
    if summary.left_out_processes:
        gone = f"{summary.left_out_processes:,}"
        yield f"Very many processes: {gone} that used little are not listed."
    yield from summary.file.notes
    yield from _not_told(summary)


def _not_told(summary: Summary) -> Iterable[str]:
    """The readings that were missing at the end, with how many rules wanted them."""
    wanted: dict[str, set[str]] = {}
    for unknown in summary.not_told:
        for missing in unknown.missing:
            wanted.setdefault(missing, set()).add(unknown.rule)
    if not wanted or not summary.gpus:
        return
    rules = {unknown.rule for unknown in summary.not_told}
    most = sorted(wanted.items(), key=lambda item: (-len(item[1]), item[0]))[:3]
    named = ", ".join(missing for missing, _ in most)
    more = len(wanted) - len(most)
    yield (
        f"{plural(len(rules), 'rule')} could not be checked at the end; missing: {named}"
        f"{f' and {more} more' if more > 0 else ''}."
    )
