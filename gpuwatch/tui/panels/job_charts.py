"""Charts of a job, one above the other on one time axis: who is busy and who waits.

They are of its GPUs, what it reports of its loop, its processes and its disk.
"""

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from operator import truediv
from typing import Any, cast

from gpuwatch.core import units
from gpuwatch.core.bounds import mean
from gpuwatch.core.model import Gpu, Job, JobMember, JobRank, ProcessKey
from gpuwatch.core.registry import GPU, Field
from gpuwatch.core.store import PolledThenSampled, Series
from gpuwatch.diagnosis.finding import Finding, about_job, severity_place
from gpuwatch.diagnosis.rule import STRAGGLER, THROTTLED, UNDERUSED, WAITING
from gpuwatch.jobs.words import APART_SHARE, rank_name, waits_most
from gpuwatch.tui.charts.strips import (
    Column,
    Columns,
    Held,
    TimeWindow,
    highest,
    mean_shown,
    nice_ceiling,
    scale_marks,
)
from gpuwatch.tui.charts.timeline import FindingMark, marks_about, marks_at
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, filled
from gpuwatch.tui.panels.findings import rule_of
from gpuwatch.tui.panels.gpus import FED, LEAD, held_up, scaled_metrics, state_of, work_said
from gpuwatch.tui.panels.time_axis import past_column, shown_gpu
from gpuwatch.tui.runs import ended_at
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Zone,
    left,
    right,
    spots,
    width_of,
)
from gpuwatch.tui.view import View

# -- the charts there are --------------------------------------------------------------------------


Combine = Callable[[Sequence[Column | None]], Column | None]
"""Makes one column of those that several series have at the same time."""


def means(columns: Sequence[Column | None]) -> Column | None:
    """Return the means of their minima, means and maxima."""
    known = [one for one in columns if one is not None]
    if not known:
        return None
    low, middle, high = map(truediv, map(sum, zip(*known, strict=True)), [len(known)] * 3)
    return low, middle, high


def sums(columns: Sequence[Column | None]) -> Column | None:
    """Return the sum of means, where all are known."""
    total = sum([one[1] for one in columns if one is not None])
    return None if None in columns else (total, total, total)


def envelope(columns: Sequence[Column | None]) -> Column | None:
    """Return from the least to the most that any of them had, with their mean."""
    known = [one for one in columns if one is not None]
    if not known:
        return None
    lows, middles, highs = zip(*known, strict=True)
    return min(lows), sum(middles) / len(known), max(highs)


@dataclass(frozen=True, slots=True)
class Together:
    """Series made of several. Two of the same ``names`` are equal, and what was drawn of one holds
    for the other."""

    names: Hashable
    find: Callable[[], Sequence[Columns | None]] = field(compare=False)
    combine: Combine = means

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        parts = [s.columns(end, column_seconds, count) for s in self.find() if s is not None]
        return [self.combine(column) for column in zip(*parts, strict=True)] or [None] * count


QUIET = "area"
"""The style of charts that the leading finding is not about."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Chart of a job: what it is called (in full and short), its number, its series and scale."""

    kind: str
    """The name of the chart, as rules have it (``Rule.charts``); ``gpu``: how busy GPUs are."""
    label: str
    short: str
    text: str
    style: str
    series: Columns | None
    limit: float | None = 100.0
    """``None``: the scale follows what is shown, in steps."""
    top: str = "100"
    """The limit in words, which stands beside the top of the chart."""
    note: str | None = None
    """Words in place of a chart that cannot be."""
    bytes: bool = True
    """A rate is one of bytes."""
    held: Sequence[Held] | None = None
    """Chart of how busy GPUs are, or how much they work: when findings held them up."""
    words: Sequence[tuple[str, str, str]] = ()
    """Words below the label, where the chart is high enough: a word, the number that
    goes with it, and their style."""
    is_level: bool = False
    """A line shows it, and no area: it is no amount that adds up over time."""
    parts: "Trace | None" = None
    """Chart of this and of what else its time goes to, in its place where that has room."""

    @property
    def is_quiet(self) -> bool:
        return self.style == QUIET

    def drawn(self, rows: int) -> "Trace":
        """Return what is drawn in so many rows."""
        return self if self.parts is None or rows < _PARTS_ROWS or self.is_quiet else self.parts

    def says(self, rows: int) -> Sequence[str]:
        """Return the readings of the job's loop whose numbers stand beside it in so many rows."""
        if self.kind != "wait":
            return ()
        return _SHARES[: 1 if self.drawn(rows) is self else rows]


_SHARES = ("data_wait_share", "compute_share", "copy_share")
_PARTS_ROWS = 2
"""Rows from which on a chart has room for what its parts are called."""


def leading(view: View, job: Job) -> Finding | FindingMark | None:
    """Return the finding about the job that its page says first: of now, of when the job ended, or
    of the moment that is looked at."""
    moment, found = view.timeline.moment, list[Finding | FindingMark]()
    if moment is not None:
        mine = marks_about(marks_at(view.spans, moment, moment), job.gpu_uuids)
        found += sorted(mine, key=lambda one: severity_place(one.severity))
    elif ended_at(view, job) is not None:
        found += view.job.findings
    else:
        found += about_job(view.diagnosis, job)
    return next(iter(found), None)


def charts_of(found: Finding | FindingMark | None) -> Sequence[str]:
    """Return the charts that show a finding, most telling first."""
    return () if found is None else rule_of(found.rule).charts


def fault_of(found: Finding | FindingMark | None) -> str:
    """Return the chart that shows what keeps a late rank from its work; ``""``: that is not known,
    or no rank is late."""
    if not isinstance(found, Finding) or not found.late:
        return ""
    # The first picture waits for no rule.
    from gpuwatch.diagnosis.rules.shared.ranks import CHARTS  # noqa: PLC0415

    return next((CHARTS[one.name] for one in found.evidence if one.name in CHARTS), "")


def late_ranks(job: Job, found: Finding | FindingMark | None) -> list[JobRank]:
    """Return the ranks that the others wait for."""
    late = set() if found is None else set(found.late)
    return [one for one in job.ranks if not late.isdisjoint(one.gpu_uuids)]


def _fault_traces(view: View, job: Job, found: Finding | FindingMark | None) -> list[Trace]:
    """Return the chart of what keeps a late rank from its work, with the number of the other
    ranks; none where that is not known."""
    kind, late = fault_of(found), late_ranks(job, found)
    if not kind or len(late) != 1:
        return []
    role, ours, theirs = _FAULTS[kind]
    sides = list[list[JobMember]]([[], []])
    for member in job.having(role):
        sides[member.rank != late[0].rank].append(member)
    if [] in sides:
        return []
    every = [tuple([one.key for one in members]) for members in sides]
    find, find_others = [partial(_cpu_of_each, view, kind, keys) for keys in every]
    text, others = [
        units.percent(mean(_shown(view, one, None) for one in found()))
        for found in (find, find_others)
    ]
    series = Together((kind, every[0]), find)
    words = [(f"other {theirs}", others, "label")]
    label = f"{rank_name(late[0])} {ours}"
    return [Trace(kind, label, ours.partition(" ")[0], text, kind, series, words=words)]


_FAULTS = {
    "worker": ("loader_worker", "workers", "workers"),
    "main": ("rank", "main thread", "threads"),
}
"""Processes that a chart is of, and what it is called of one rank and of the others."""


def _cpu_of_each(view: View, kind: str, keys: Sequence[ProcessKey]) -> list[Series | None]:
    history = view.history
    if kind == "main":
        return [history.main_thread(key) for key in keys]
    return [history.process(key, None, "cpu_percent") for key in keys]


def lanes(view: View, job: Job, gpus: Sequence[Gpu], *, each_gpu: bool) -> list[Trace]:
    """Return the charts of a job by cause: how busy its GPUs are, what shows the finding that
    leads, then the rest, which is grey: the disk only where the finding is about it, as the
    processes' table has it. Those of which there never was a reading are none. Where some of many
    GPUs are the culprits, they are drawn against the others."""
    gpus, found = [shown_gpu(view, gpu) for gpu in gpus], leading(view, job)
    charts, sides = charts_of(found), _sides(gpus, found)
    named, rest = _of_job(view, job, charts)
    rest = [one for one in rest if one.kind not in _OF_DISK]
    of_gpus: dict[str, list[Trace]] = {}
    faults = _fault_traces(view, job, found)
    if faults:
        # What the late rank lacks tells more than what its GPU does for want of it, and what all
        # ranks do besides clears none.
        rest = []
        charts = [*[name for name in charts if name not in GPU], faults[0].kind]
        named = [*named, *faults]
    elif len(sides) > 1:
        charts = [_compared_by(name, gpus) for name in charts]
    for name in [name for name in charts if name in GPU]:
        # One reading that they are compared by is enough.
        of_gpus[name] = metric_traces(view, sides[:1] if of_gpus else sides, name)
    out = []
    if each_gpu or len(gpus) == 1:
        out += gpu_traces(view, gpus)
        if len(sides) > 1:
            # Those say it of each.
            of_gpus.pop("sm_active_percent", None)
    elif len(sides) == 1 or not of_gpus:
        # Two are found in the order of their numbers.
        pair = sorted(sides, key=lambda one: gpus.index(one[0])) if len(gpus) == 2 else sides
        out += [_busy_together(view, side, gpus) for side in pair]
    else:
        # All are as busy: what tells them apart stands in the place of that.
        out += of_gpus.pop(next(iter(of_gpus)))
    for name in charts:
        out += of_gpus.get(name, []) + [one for one in named if one.kind == name]
    out += map(quiet, rest)
    ended = ended_at(view, job) is not None
    return [of_the_past(one) for one in out] if ended and view.timeline.moment is None else out


_OF_DISK = ("read", "write")


def _compared_by(name: str, gpus: Sequence[Gpu]) -> str:
    """Return the chart that tells GPUs apart which work from those which wait: how active SMs are,
    where that is read, else the power they draw."""
    read = all(gpu.reading.sm_active_percent is not None for gpu in gpus)
    return "sm_active_percent" if name == "power_watts" and read else name


def _of_job(view: View, job: Job, charts: Sequence[str]) -> tuple[list[Trace], list[Trace]]:
    """Return the job's own charts of which there ever was a reading: those named, and the rest."""
    every = {one.kind: one for one in job_traces(view, job) if one.series is not None}
    named = [every[name] for name in charts if name in every]
    return named, [one for one in every.values() if one.kind not in charts]


def evidence(view: View, finding: Finding, gpus: Sequence[Gpu], job: Job | None) -> list[Trace]:
    """Return what shows a finding beside how busy ``gpus`` are. Where they idle, those who feed
    them are there to be seen, too."""
    rule, late, out = rule_of(finding.rule), finding.late, list[Trace]()
    for name in [name for name in rule.charts if name in GPU]:
        of_each = [(gpu, metric_trace(view, [gpu], name)) for gpu in gpus]
        out += [one if not late or gpu.uuid in late else quiet(one) for gpu, one in of_each]
    if job is None:
        return out
    named, rest = _of_job(view, job, rule.charts)
    idles = rule.has_look_alikes and not rule.lost_while_busy
    return out + named + [quiet(one) for one in rest if idles and one.kind in ("main", "worker")]


def quiet(trace: Trace) -> Trace:
    """Return a trace in grey."""
    return replace(trace, style=QUIET)


def _sides(gpus: Sequence[Gpu], found: Finding | FindingMark | None) -> list[list[Gpu]]:
    """Return the GPUs that a finding is about, or that the others wait for, and those others; all
    together where there are none."""
    named = () if found is None else found.late or found.gpus
    culprits = [gpu for gpu in gpus if gpu.uuid in named]
    others = [gpu for gpu in gpus if gpu.uuid not in named]
    return [culprits, others] if culprits and others else [list(gpus)]


def of_the_past(trace: Trace) -> Trace:
    """Return a trace without what is said of now."""
    parts = None if trace.parts is None else of_the_past(trace.parts)
    return replace(trace, text="", note=None, words=(), parts=parts)


def has_reported(view: View, job: Job) -> bool:
    """Return whether the job reports its own loop, or did within the charts' reach."""
    return bool(job.loops) or view.history.job_reported(job.key)


def count_of(page: Page) -> int:
    """Return how many charts there are, each GPU's counted as one: by the height of the page, and
    by what the job is."""
    job, view, height = page.job, page.view, page.tall
    assert job is not None
    if "counts" not in page.decided:
        together = each = len(_lanes_of(page, each_gpu=False))
        if 1 < len(page.gpus) <= _MOST_EACH:
            each = 1 + len(_lanes_of(page, each_gpu=True)) - len(page.gpus)
        page.decided["counts"] = together, each
    reported = has_reported(view, job)
    most = (
        (2 if height < 14 else 3 if height < 18 else 4 if height < 36 else 5)
        + reported
        + (reported and height >= 18)
    )
    return min(most, max(cast("tuple[int, int]", page.decided["counts"])))


def _lanes_of(page: Page, *, each_gpu: bool) -> list[Trace]:
    """Return the charts of a page, which asks for them to count them and to draw them."""
    assert page.job is not None
    name = "lanes of each" if each_gpu else "lanes together"
    if name not in page.decided:
        page.decided[name] = lanes(page.view, page.job, page.gpus, each_gpu=each_gpu)
    return cast("list[Trace]", page.decided[name])


def shown(page: Page) -> list[tuple[Trace, int]]:
    """Return the charts of a page that is laid out, and how high each is."""
    decided = page.decided
    if "lanes" not in decided:
        heights: list[int] = decided["heights"]
        traces = _lanes_of(page, each_gpu=decided["each_gpu"])
        high = [heights[0]] * (len(page.gpus) if decided["each_gpu"] else 1) + heights[1:]
        behind = len(high) - len(heights) + 1
        kinds = [trace.kind for trace in traces[: len(high)]]
        wave = next((place for place, kind in enumerate(kinds) if kind in _WAVES), 0)
        behind += wave > behind and traces[behind].parts is not None
        if wave > behind:
            high[wave], high[behind] = high[behind], high[wave]
        together = not decided["each_gpu"] and len(high) > 1 and len(traces) > 1
        if together and traces[0].kind == traces[1].kind:
            # Those that are held against each other are of one height; the rest is for others.
            total, rest = sum(high), min(len(traces), len(high)) - 2
            low = max(1, min(_MOST_APART, (total - rest) // 2))
            high = [low, low, *[1] * min(len(traces) - 2, total - 2 * low)]
            grow = range(2, len(high)) if len(high) > 2 else range(2)
            for turn in range(total - sum(high)):
                high[grow[turn % len(grow)]] += 1
        decided["lanes"] = list(zip(traces, high, strict=False))
    return cast("list[tuple[Trace, int]]", decided["lanes"])


def job_traces(view: View, job: Job) -> list[Trace]:
    """Return the job's own charts, by cause: what it reports of its loop (of several ranks how long
    the one waits that waits most), who feeds the GPUs, the disk."""
    history, key = view.history, job.key
    wait = _trace(view, job, "data_wait_share", units.share, "wait", "waits for data", "data",
                  style="starved", limit=1.0)  # fmt: skip
    named = _waits_most(view, job)
    if named is None:
        wait = replace(wait, parts=_parts_of_time(view, job, wait))
    else:
        label, share = named
        series = history.job(key, "data_wait_most_share")
        wait = replace(wait, label=label, text=units.share(share), series=series)
    count = len(job.having("loader_worker")) if job.members else job.loader_workers or 0
    main = "main threads" if len(job.ranks) > 1 else "main thread"
    # How many there are is known of now.
    now = view.timeline.moment is None
    workers = units.plural(count, "worker") if count and now else "workers"
    percent, rate = units.percent, units.rate
    own = [
        _trace(view, job, "main_thread_cpu_percent", percent, "main", main),
        _trace(view, job, "loader_worker_cpu_percent", percent, "worker", workers, "workers"),
    ]
    disk = [
        _trace(view, job, f"{what}_bytes_per_second", rate, what, f"disk {what}", style="disk",
               limit=None)
        for what in _OF_DISK
    ]  # fmt: skip
    return [wait, *own, *disk] if has_reported(view, job) else [*own, *disk]


def _waits_most(view: View, job: Job) -> tuple[str, float | None] | None:
    """Return a name for the waits of the rank that waits clearly more than another, and their
    share; ``None``: all wait alike. Of the past it is not known which one that was."""
    if view.timeline.moment is None:
        slow = waits_most(job)
        loop = None if slow is None else job.loop_of(slow)
        if slow is None or loop is None:
            return None
        return f"{rank_name(slow)} data-wait", loop.data_wait_share
    ends = [view.history.job(job.key, f"data_wait_{one}_share") for one in ("least", "most")]
    least, most = [_shown(view, one, None) for one in ends]
    is_apart = least is not None and most is not None and most - least >= APART_SHARE
    return ("most data-wait", most) if is_apart else None


def _parts_of_time(view: View, job: Job, wait: Trace) -> Trace | None:
    """Return a chart of what the time of a loop goes to: its steps, and above them waits for
    data."""
    series = [view.history.job(job.key, name) for name in ("compute_share", "data_wait_share")]
    if None in series:
        return None
    steps = _shown(view, series[0], job.compute_share)
    copies = [one.copy_share for one in job.loops if one.copy_share is not None]
    words = [("in steps", units.share(steps), FED.hue)]
    if copies and view.timeline.moment is None:
        words.append(("copies", units.share(mean(copies)), "label"))
    return replace(
        wait,
        series=Together((job.key, "parts"), lambda: series, sums),
        held=[Held(0.0, inf, wait.style, of_busy=True, work=series[0])],
        words=words,
    )


def gpu_traces(view: View, gpus: Sequence[Gpu], *, with_state: bool = False) -> list[Trace]:
    """Return charts of how busy each of ``gpus`` is, and how much of that was work; its state in a
    word, where nothing else says that."""
    out = []
    for gpu in gpus:
        state = state_of(view, gpu)
        work = work_said(view, gpu, state)
        # What is no work has the hue of its cause, which the word has, too.
        word = [(state.word, "", state.hue)] if with_state or work is not None else []
        busy = Trace(
            kind="gpu",
            label=f"GPU {units.gpu_label(gpu)} busy",
            short=f"gpu {units.gpu_label(gpu)}",
            text=units.percent(None if gpu.lost else gpu.reading.busy_percent),
            style=FED.hue,
            series=view.history.gpu(gpu.uuid, "busy_percent"),
            held=held_up(view, gpu.uuid),
            words=[*([] if work is None else [work]), *word],
        )
        out.append(busy)
    return out


def spread_trace(view: View, gpus: Sequence[Gpu]) -> Trace:
    """Return a chart of how busy ``gpus`` are together, up to the busiest of them."""
    uuids, history = [gpu.uuid for gpu in gpus], view.history
    busy = [gpu.reading.busy_percent for gpu in gpus]
    known = [one for one in busy if one is not None]
    low, high = (f"{one:.0f}" for one in (min(known, default=0.0), max(known, default=0.0)))
    reach = units.UNKNOWN if not known else f"{low}%" if low == high else f"{low}-{high}%"
    find = [history.gpu(uuid, "busy_percent") for uuid in uuids]
    return Trace(
        kind="gpus",
        label=f"all {len(gpus)} GPUs",
        short=f"{len(gpus)} gpus",
        text=reach,
        style=FED.hue,
        series=Together(tuple(uuids), lambda: find, envelope),
        held=held_up(view, *[gpu.uuid for gpu in gpus]),
    )


LEVELS = ("temperature_celsius", "sm_clock_mhz")
"""Readings that are levels, and hardly vary: more of them does not add up to anything."""
_NAMES = {"pcie_rx_bytes_per_second": "PCIe rx", "sm_active_percent": "SM active"}
_SAYS = {THROTTLED, WAITING, UNDERUSED}
"""States whose hue the chart has that shows them: a straggler is the one that works."""


def _called(name: str) -> str:
    field = GPU[name]
    return _NAMES.get(name, field.label if len(field.label) < 8 else field.short)


def metric_traces(view: View, sides: Sequence[Sequence[Gpu]], name: str) -> list[Trace]:
    """Return charts of a reading of GPUs, the mean of each of ``sides``: the first in the hue of
    its state, the others in grey, or all in that of work where they are compared by it."""
    known = [side for side in sides if side]
    first = [metric_trace(view, side, name, apart=len(known) > 1) for side in known[:1]]
    others = [quiet(metric_trace(view, side, name, apart=True)) for side in known[1:]]
    if len(others) == 1 and len(known[1]) > 1:
        others = [replace(others[0], label=f"{len(known[1])} others", short="others")]
    return [*first, *others]


def metric_trace(view: View, gpus: Sequence[Gpu], name: str, *, apart: bool = False) -> Trace:
    """Return a chart of a reading of GPUs, in their mean; in short they are called by their number
    where they are drawn ``apart`` from others."""
    field, symbol, uuids = GPU[name], GPU[name].unit.symbol, tuple([gpu.uuid for gpu in gpus])
    gpus = [shown_gpu(view, gpu, facts=True) for gpu in gpus]
    gpu, find = gpus[0], [view.history.gpu(uuid, name) for uuid in uuids]
    limits = {one.field.name: one.limit for one in scaled_metrics(view, gpu, 120)}
    limits |= {"sm_clock_mhz": gpu.identity.sm_clock_max_mhz}
    limit = limits.get(name, 100.0 if symbol == "%" else None)
    whose = f"GPU {units.gpu_label(gpu)}" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    called, state, of_bytes = _called(name), state_of(view, gpu), "bytes" in symbol
    held = None
    if name == "sm_active_percent" and state in (WAITING, STRAGGLER):
        # The room above it is what was lost.
        held = [one._replace(of_busy=False, work=None) for one in held_up(view, *uuids)]
    return Trace(
        kind=name,
        label=f"{whose} {called}",
        short=whose.lower() if apart else called,
        text=field.text(mean(getattr(one.reading, name) for one in gpus)),
        style=FED.hue if held is not None else state.hue if state in _SAYS else "host",
        series=find[0] if len(find) == 1 else Together((name, *uuids), lambda: find),
        limit=limit,
        top=_top(field, limit),
        bytes=of_bytes,
        held=held,
        words=[(state.word, "", state.hue)] if apart else (),
        is_level=name in LEVELS,
    )


def _top(field: Field, limit: float | None) -> str:
    """Return the end of a scale in as many characters as a tick has: ``700W``, ``140G``; without
    the unit where that is too long, or the number of the chart has it on all of its scale."""
    parts = re.match(r"([\d.]+)(.*)", "" if limit is None else field.text(limit))
    if parts is None:
        return ""
    number, unit = f"{float(parts[1]):.0f}", parts[2]
    return number if unit == "%" or len(number + unit) > _TICK_WIDTH else number + unit


def _trace(
    view: View,
    job: Job,
    name: str,
    write: Callable[[float | None], str],
    kind: str,
    label: str,
    short: str | None = None,
    style: str | None = None,
    **more: Any,
) -> Trace:
    """Return the job's reading ``name``: its mean over the time that is shown, or what it was at
    the moment that is looked at."""
    series = view.history.job(job.key, name)
    value = _shown(view, series, getattr(job, name))
    text = _NOT_KEPT if value is None and view.timeline.moment is not None else write(value)
    return Trace(kind, label, short or kind, text, style or kind, series, **more)


_NOT_KEPT = "not kept"


def _shown(
    view: View, series: Series | PolledThenSampled | None, now: float | None
) -> float | None:
    """Return the number beside a chart: the mean of what it shows, since a change if one is marked,
    or what it was at the moment that is looked at; ``now`` where that is not known."""
    if view.timeline.moment is not None:
        column = past_column(view, series)
        return None if column is None else column.mean
    shown = mean_shown(series, view.window_of_means)
    return now if shown is None else shown


def _busy_together(view: View, gpus: Sequence[Gpu], every: Sequence[Gpu]) -> Trace:
    """Return a chart of how busy some of a job's GPUs are, in their mean."""
    history, uuids = view.history, tuple([gpu.uuid for gpu in gpus])
    if len(gpus) == 1:
        return gpu_traces(view, gpus)[0]
    several = f"{len(gpus)} GPUs" if len(gpus) == len(every) else f"{len(gpus)} others"
    together = Together(uuids, lambda: [history.gpu(uuid, "busy_percent") for uuid in uuids])
    return Trace(
        kind="gpu",
        label=f"{several} busy" if gpus else "GPU busy",
        short=("others" if gpus != every else several.lower()) if gpus else "gpu",
        text=units.percent(mean(gpu.reading.busy_percent for gpu in gpus)),
        style=FED.hue,
        series=together if gpus else None,
        held=held_up(view, *uuids) if gpus else None,
        note=None if gpus else "no process of this job uses a GPU",
    )


# -- the panel -------------------------------------------------------------------------------------


_MEGABYTE = 1024.0 * 1024.0

_TURNS = (0, 1, 0, 2, 1, 3)
"""Places of the charts in the order in which they grow by a row, again and again."""
_MOST_ROWS = (18, 4, 2, 2)
"""Rows of each at most; those behind them, and the last of several, have one."""
_FLAT_ROWS = 3
"""Rows at most where the first is of what a job reports, which hardly moves from second to second;
beside charts of each GPU one less."""
_WAVES = {"main"}
"""Charts behind the GPU's that move, and are worth their rows before those that hardly do."""
_SEVERAL, _MOST_APART = 4, 6
_MOST_EACH = 4
"""GPUs at most that have a chart each."""


def _rows(page: Page) -> int:
    """Return how many rows the charts take: at first one for each while there is room; asked again,
    each GPU has its own and all grow in turns. Which chart has which place changes with what is
    found, the places do not."""
    decided, count = page.decided, len(page.gpus)
    if "heights" not in decided:
        most = min(max(1, page.room - min(page.table_least, 2)), count_of(page))
        decided["heights"] = [1] * most
        return most
    heights: list[int] = decided["heights"]
    room, asked = page.room, len(heights)
    decided["each_gpu"] = (
        1 < count <= _MOST_EACH
        and (decided["report"] or page.rows["gpus"] == count)
        and room - (count - 1) >= min(page.table_wanted, page.table_least + 3)
    )
    del heights[decided["counts"][decided["each_gpu"]] :]
    room += asked - len(heights)
    gpu_lines = count if decided["each_gpu"] else 1
    room -= gpu_lines - 1
    flat = page.job is not None and has_reported(page.view, page.job)
    grows = True
    while grows:
        grows = False
        for place in _TURNS:
            # Of a job without a GPU the chart only says that there is none.
            last = place + 1 == len(heights) >= _SEVERAL
            most = 1 if last or (place == 0 and not count) else _MOST_ROWS[place]
            if place and flat:
                most = min(most, _FLAT_ROWS - (count > 1))
            cost = gpu_lines if place == 0 else 1
            if place < len(heights) and heights[place] < most and room - cost >= page.table_wanted:
                heights[place] += 1
                room -= cost
                grows = True
    return sum(heights) + (gpu_lines - 1) * heights[0]


def _draw(page: Page, rows: int) -> Drawn:
    # They end where those of the GPUs above do.
    beside = page.decided.get("beside", 0)
    page.spans = [span(page.width, beside)]
    lines = draw(page.view, shown(page), page.window, page.width, beside)
    return filled(lines, page.width, rows), spots(0, len(lines), *page.spans[0])


PANEL = Panel("charts", _rows, _draw)


_TICK_WIDTH = 5
_NARROW_LABEL, _NARROW_NUMBER = 7, 5
"""Cells for the label and the number where there are no ticks."""


def span(width: int, beside: int = 0) -> tuple[int, int]:
    """First cell and width of the charts; before them: the label, the number, the line between;
    behind them ``beside`` cells and one more."""
    lead = LEAD if width >= 76 else 15
    return lead, max(0, width - lead - 1 - beside)


def clicks(top: int, rows: int, width: int) -> list[Zone]:
    """Return where charts of ``rows`` lines can be clicked."""
    return spots(top, rows, *span(width))


def draw(
    view: View,
    shown: Sequence[tuple[Trace, int]],
    window: TimeWindow,
    width: int,
    beside: int = 0,
) -> list[Line]:
    """Draw each trace in its number of rows, see ``span``; in the cells ``beside`` a chart stands
    from where to where it goes."""
    return [
        line for trace, rows in shown for line in _chart(view, trace, rows, window, width, beside)
    ]


def _chart(
    view: View,
    trace: Trace,
    rows: int,
    window: TimeWindow,
    width: int,
    beside: int,
) -> list[Line]:
    lead, chart_width = span(width, beside)
    trace = trace.drawn(rows)
    limit, ticks = trace.limit, dict[int, str]()
    if trace.note is not None:
        limit = 0.0
    elif limit is None:
        limit, ticks[0] = _scale(trace, window, chart_width)
    else:
        whole = scale_marks(rows) if trace.top == "100" else {}
        ticks = whole or {0: trace.top}
    key = "job", trace.kind, trace.label
    held, style = trace.held, trace.style if trace.held is None else FED.hue
    chart = view.chart(
        key,
        trace.series,
        chart_width,
        limit,
        style,
        rows,
        window,
        held,
        is_level=trace.is_level,
    )
    out = []
    for number, drawn in enumerate(chart):
        row = Row(width)
        if number == 0:
            _name(row, trace, lead, view.glyphs.ellipsis)
        elif number <= len(trace.words) and lead == LEAD:
            word, said, look = trace.words[number - 1]
            row.add("  ").add(word, look)
            row.add(right(said, max(0, lead - 1 - _TICK_WIDTH - row.used)), look)
        if lead == LEAD:
            row.pad_to(lead - 1 - _TICK_WIDTH).add(right(ticks.get(number, ""), _TICK_WIDTH), "dim")
        row.pad_to(lead - 1).add(view.glyphs.axis, "rule")
        if trace.note is not None:
            row.add("" if number else f" {trace.note}", "dim")
        else:
            row.add_runs(drawn, chart_width)
        if number == 0 and beside:
            text = _reach(view, trace)
            row.add(right(text if width_of(text) <= beside else "", beside), "dim")
        out.append(row.line())
    return out


_REACH_COLUMNS = 60
"""Columns of which the means are compared: swings within one do not count."""


def _reach(view: View, trace: Trace) -> str:
    """Return ``range 36-54%``: from where to where a chart of percent goes; nothing for the past,
    of which numbers are those of a moment."""
    if trace.series is None or trace.top != "100" or view.timeline.moment is not None:
        return ""
    columns = view.window_of_means.grid(_REACH_COLUMNS).columns_of(trace.series)
    known = [100.0 / (trace.limit or 100.0) * one[1] for one in columns if one is not None]
    ends = (f"{min(known):.0f}", f"{max(known):.0f}") if known else ()
    return f"range {'-'.join(dict.fromkeys(ends))}%" if ends else ""


def _name(row: Row, trace: Trace, lead: int, ellipsis: str) -> None:
    """Add what a chart is called, in short where that has no room, and its number."""
    text = trace.text
    if lead == LEAD:
        end = lead - 1 - _TICK_WIDTH
        whole = 3 + width_of(trace.label + text) <= end
        row.add("  ").add(trace.label if whole else trace.short, "label")
    else:
        end = lead - 2
        # Its unit gives way to the number.
        text = text if width_of(text) <= _NARROW_NUMBER else text.removesuffix("MHz")
        text = units.UNKNOWN if text == _NOT_KEPT else text
        room = min(_NARROW_LABEL, end - 1 - width_of(text))
        row.add(" ").add(left(trace.short, room, ellipsis), "label")
    # Colour is for charts and words of state: a number is what it is.
    style = "text" if trace.is_quiet else "value"
    style = "label" if text == _NOT_KEPT else style
    row.add(right(text, end - row.used, ellipsis), style)


def _scale(trace: Trace, window: TimeWindow, width: int) -> tuple[float, str]:
    """Return the top of a rate's chart, and its name."""
    most = highest(trace.series, window, width)
    if trace.bytes:
        limit = nice_ceiling(most, _MEGABYTE)
        return limit, units.size(limit).replace(".0", "")
    limit = nice_ceiling(most, 1.0, thousand=1000.0)
    return limit, units.samples(limit).replace(".00", "").replace(".0", "")
