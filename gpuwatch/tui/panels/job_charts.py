"""Charts of a job, one above the other on one time axis: who is busy and who waits.

They are of its GPUs, what it reports of its loop, its processes and its disk.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, cast

from gpuwatch.core import units
from gpuwatch.core.bounds import mean
from gpuwatch.core.model import Gpu, Job, JobMember, JobRank, ProcessKey, TrainingLoop
from gpuwatch.core.registry import GPU, Field
from gpuwatch.core.store import PolledThenSampled, Series
from gpuwatch.diagnosis.finding import Finding, about_job, severity_place
from gpuwatch.diagnosis.rule import STRAGGLER, THROTTLED, UNDERUSED, WAITING
from gpuwatch.jobs.words import APART_SHARE, rank_name, waits_most
from gpuwatch.tui.charts.strips import (
    Column,
    Columns,
    Held,
    Smoothed,
    TimeWindow,
    Together,
    highest,
    mean_shown,
    nice_ceiling,
    scale_marks,
)
from gpuwatch.tui.charts.timeline import FindingMark, marks_about, marks_at
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, filled
from gpuwatch.tui.panels.findings import rule_of
from gpuwatch.tui.panels.gpus import (
    FED,
    IN_STEP,
    LEAD,
    held_up,
    idle_said,
    scaled_metrics,
    state_of,
    state_said,
    work_said,
)
from gpuwatch.tui.panels.time_axis import past_column, shown_gpu, wall_offset
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
from gpuwatch.tui.view import Owner, View

# -- the charts there are --------------------------------------------------------------------------


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
    owner: Owner | None = None
    """Job that it is of, where it is known when that began."""
    hue: str = "label"
    """The style of what it is called: of a part of a whole, or of a state, that of its chart."""
    is_level: bool = False
    """A line shows it, and no area: it is no amount that adds up over time."""
    parts: "Trace | None" = None
    """Chart of this and of what else its time goes to, in its place where words have room."""

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
        units.percent(mean(_shown(view, job, one, None) for one in found()))
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


def groups_of(page: Page) -> list[list[Gpu]]:
    """Return the GPUs that are drawn together as they show the same, the ones to look at first: by
    the leading finding, which comes and goes seldom. Without one a few GPUs have a chart each."""
    if "groups" not in page.decided:
        assert page.job is not None
        found, gpus = leading(page.view, page.job), list(page.gpus)
        apart = found is None and 1 < len(gpus) <= _MOST_EACH
        page.decided["groups"] = [[gpu] for gpu in gpus] if apart else _sides(gpus, found)
    return cast("list[list[Gpu]]", page.decided["groups"])


def are_compared(page: Page) -> bool:
    """Check whether a finding sets some GPUs of the job apart from the others."""
    assert page.job is not None
    return len(groups_of(page)) > 1 and leading(page.view, page.job) is not None


def lanes(view: View, job: Job, groups: Sequence[Sequence[Gpu]]) -> list[Trace]:
    """Return the charts of a job by cause: how busy its GPUs are, one for each of the groups, what
    shows the finding that leads, then the rest, which is grey: the disk only where the finding is
    about it, as the processes' table has it. Those of which there never was a reading are none."""
    groups = [[shown_gpu(view, gpu) for gpu in group] for group in groups]
    gpus, found = [gpu for group in groups for gpu in group], leading(view, job)
    charts = charts_of(found)
    named, rest = _of_job(view, job, charts)
    rest = [one for one in rest if one.kind not in _OF_DISK]
    faults = _fault_traces(view, job, found)
    if not gpus:
        # They have left the list.
        charts = [name for name in charts if name not in GPU]
    by = next((_compared_by(name, gpus) for name in charts if name in GPU), "")
    in_step = found is not None and found.rule == IN_STEP and len(groups) > 1
    if found is not None and found.late and len(groups) > 1:
        # What the late rank lacks tells more than what its GPU does for want of it.
        charts = [name for name in charts if name not in GPU]
    if faults:
        # What all ranks do besides clears none.
        charts, named, rest = [*charts, faults[0].kind], [*named, *faults], []
    if in_step and by:
        # All are as busy: what tells them apart stands in the place of that.
        out = [metric_trace(view, group, by, among=gpus, found=found) for group in groups]
        out = [out[0], *[one if one.held is not None else quiet(one) for one in out[1:]]]
    else:
        out = [busy_trace(view, group, gpus, found) for group in groups]
    for name in charts:
        if name in GPU:
            out.append(_steadied(metric_trace(view, groups[0] if found else gpus, name)))
        out += [one for one in named if one.kind == name]
    out += map(quiet, rest)
    ended = ended_at(view, job) is not None
    return [of_the_past(one) for one in out] if ended and view.timeline.moment is None else out


_OF_DISK = ("read", "write")
_SAMPLED_SECONDS = 15.0


def _steadied(trace: Trace) -> Trace:
    """Return a chart of what goes over a link in means of some seconds. Many drivers look at it for
    a moment once a second: beside bursts of about a second these looks make waves that are not
    there."""
    if trace.series is None or not trace.kind.startswith("pcie_"):
        return trace
    words = [(f"means of {_SAMPLED_SECONDS:.0f} s", "", "label")]
    return replace(trace, series=Smoothed(trace.series, _SAMPLED_SECONDS), words=words)


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
    """Return how many charts there are, those of GPUs that have one each counted as one: by the
    height of the page, and by what the job is."""
    job, view, height = page.job, page.view, page.tall
    assert job is not None
    reported = has_reported(view, job)
    most = (
        (2 if height < 14 else 3 if height < 18 else 4 if height < 36 else 5)
        + reported
        + (reported and height >= 18)
    )
    compared = are_compared(page)
    traces = _lanes_of(page, groups_of(page) if compared else [page.gpus])
    if compared and height < _TALL:
        # What is no sign of the cause gives its rows to the ranks.
        traces = [one for place, one in enumerate(traces) if place < 2 or not one.is_quiet]
    return min(most, len(traces))


def _lanes_of(page: Page, groups: Sequence[Sequence[Gpu]]) -> list[Trace]:
    """Return the charts of a page, which asks for them to count them and to draw them."""
    assert page.job is not None
    name = f"lanes of {len(groups)}"
    if name not in page.decided:
        page.decided[name] = lanes(page.view, page.job, groups)
    return cast("list[Trace]", page.decided[name])


def shown(page: Page) -> list[tuple[Trace, int]]:
    """Return the charts of a page that is laid out, and how high each is."""
    return cast("list[tuple[Trace, int]]", page.decided["lanes"])


def _in_order(page: Page, count: int) -> list[Trace]:
    """Return ``count`` charts, and those of GPUs that have one each. What keeps a late rank from
    its work stands below its GPU, and then those that wait for it."""
    groups = groups_of(page) if page.decided["apart"] else [page.gpus]
    traces = _lanes_of(page, groups)
    if not are_compared(page):
        return traces[: count + len(groups) - 1]
    own = [one for one in traces[2:count] if not one.is_quiet]
    return [traces[0], *own, *traces[1:2], *traces[2 + len(own) :]][:count]


def _heights(page: Page, traces: Sequence[Trace], rows: int, spare: int) -> list[int]:
    """Share out the rows among charts: what shows the cause has more than the rest. Where GPUs are
    held against each other, rows that they have no use for are left to the table, but ``spare``
    ones."""
    highest, compared = page.tall * 3 // 10, are_compared(page)
    in_step = compared and traces[0].kind != "gpu"
    apart = max(3, min(_MOST_APART, page.tall // 7))
    weights = []
    for place, trace in enumerate(traces):
        if trace.note is not None:
            weights.append((1, 1))
        elif in_step and place < 2:
            weights.append((3, apart))
        elif trace.kind == "gpu" or place == 0:
            weights.append((4, highest) if place == 0 or not compared else (3, apart))
        else:
            low = trace.is_quiet and (compared or trace.kind not in _WAVES)
            weights.append((1, 2) if low else (3, 4) if trace.parts else (2, 2))
    heights = [1] * len(traces)
    for _ in range(rows - len(traces)):
        free = [at for at, (_, most) in enumerate(weights) if heights[at] < most]
        if not free and compared and sum(heights) >= spare:
            break
        # Charts that hardly vary are slabs where they are high.
        at = min(free or [0], key=lambda at: heights[at] / weights[at][0])
        heights[at] += 1
    return heights


def job_traces(view: View, job: Job) -> list[Trace]:
    """Return the job's own charts, by cause: what it reports of its loop (of several ranks how long
    the one waits that waits most), who feeds the GPUs, the disk."""
    history, key = view.history, job.key
    wait = _trace(view, job, "data_wait_share", units.share, "wait", "waits for data", "data",
                  style="starved", limit=1.0)  # fmt: skip
    slow = _waits_most(view, job)
    if slow is None:
        wait = replace(wait, parts=_parts_of_time(view, job, wait, job.loops))
    else:
        who, loop, share = slow
        series = history.job(key, "data_wait_most_share")
        short = "data" if loop is None else f"r{who.removeprefix('rank ')} data"
        wait = replace(wait, label=f"{who} data-wait", short=short, text=units.share(share))
        wait = replace(wait, series=series)
        wait = replace(wait, parts=_parts_of_time(view, job, wait, [loop] if loop else ()))
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


def _waits_most(view: View, job: Job) -> tuple[str, TrainingLoop | None, float | None] | None:
    """Return the name and the report of the rank that waits clearly more for data than another, and
    the share of its time; ``None``: all wait alike. Of the past it is not known which one it
    was."""
    if view.timeline.moment is None:
        slow = waits_most(job)
        loop = None if slow is None else job.loop_of(slow)
        if slow is None or loop is None:
            return None
        return rank_name(slow), loop, loop.data_wait_share
    ends = [view.history.job(job.key, f"data_wait_{one}_share") for one in ("least", "most")]
    least, most = [_shown(view, job, one, None) for one in ends]
    is_apart = least is not None and most is not None and most - least >= APART_SHARE
    return ("most", None, most) if is_apart else None


def _parts_of_time(
    view: View, job: Job, wait: Trace, loops: Sequence[TrainingLoop]
) -> Trace | None:
    """Return a chart of all that the time of a loop goes to: its steps, above them waits for data,
    and the rest, which is mostly copies to the GPU."""
    history, one = view.history, wait.series != view.history.job(job.key, "data_wait_share")
    steps = history.job(job.key, "compute_of_most_share" if one else "compute_share")
    waits = wait.series
    if steps is None or waits is None:
        return None
    now = mean(loop.compute_share for loop in loops)
    share = now if one and view.timeline.moment is None else _shown(view, job, steps, now)
    words = [("in steps", units.share(share), FED.hue)]
    said = [re.fullmatch(r"(\d+)%", text) for text in (wait.text, units.share(share))]
    if None not in said:
        rest = 100 - sum([int(text[1]) for text in said if text])
        copies = mean(loop.copy_share for loop in loops)
        of_copies = copies is not None and abs(rest - 100.0 * copies) <= _ROUNDED
        words.append(("copies" if of_copies else "other", f"{max(0, rest)}%", _REST))
    return replace(
        wait,
        series=Together((job.key, "parts", one), lambda: [steps, waits], sums),
        held=[Held(0.0, inf, wait.style, of_busy=True, work=steps, rest=_REST)],
        words=words,
        hue=wait.style,
    )


_REST = "disk"
"""The hue of what is neither a step nor a wait."""
_ROUNDED = 2.0
"""Points by which three rounded shares may miss the whole."""


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


def metric_trace(
    view: View,
    gpus: Sequence[Gpu],
    name: str,
    *,
    among: Sequence[Gpu] = (),
    found: Finding | FindingMark | None = None,
) -> Trace:
    """Return a chart of a reading of GPUs, in their mean; ``among`` others from which a finding
    sets them apart, their state stands below it, and in short they are called by their number."""
    field, symbol, uuids = GPU[name], GPU[name].unit.symbol, tuple([gpu.uuid for gpu in gpus])
    gpus = [shown_gpu(view, gpu, facts=True) for gpu in gpus]
    gpu, find = gpus[0], [view.history.gpu(uuid, name) for uuid in uuids]
    limits = {one.field.name: one.limit for one in scaled_metrics(view, gpu, 120)}
    limits |= {"sm_clock_mhz": gpu.identity.sm_clock_max_mhz}
    limit = limits.get(name, 100.0 if symbol == "%" else None)
    whose, short = _whose(gpus, among)
    called, state, of_bytes = _called(name), state_of(view, gpu), "bytes" in symbol
    label = f"{whose} {called}"
    held = None
    if name == "sm_active_percent" and state in (WAITING, STRAGGLER):
        # The room above it is what was lost.
        held = [one._replace(of_busy=False, work=None) for one in held_up(view, *uuids)]
    return Trace(
        kind=name,
        label=label if len(label) <= _LABEL or not among else f"{whose} {field.short}",
        short=short if among else called,
        text=field.text(mean(getattr(one.reading, name) for one in gpus)),
        style=FED.hue if held is not None else state.hue if state in _SAYS else "host",
        series=find[0] if len(find) == 1 else Together((name, *uuids), lambda: find),
        limit=limit,
        top=_top(field, limit),
        bytes=of_bytes,
        held=held,
        words=[state_said(state, found)] if among else (),
        hue=state.hue if among else "label",
        is_level=name in LEVELS,
    )


_LABEL = 15
"""Cells of a label beside which a number of four has room."""


def _whose(gpus: Sequence[Gpu], among: Sequence[Gpu]) -> tuple[str, str]:
    """Return ``GPU 3``, ``GPUs 0-2`` or, where those are in no order, ``7 others``, and in short
    ``gpu 3`` or ``others``."""
    labels = units.ranges(map(units.gpu_label, gpus))
    if len(gpus) == 1:
        return f"GPU {labels}", f"gpu {labels}"
    others = len(gpus) < len(among)
    count = f"{len(gpus)} {'others' if others else 'GPUs'}"
    named = f"GPUs {labels}"
    return named if len(named) <= _LABEL - 5 else count, "others" if others else count.lower()


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
    text = write(_shown(view, job, series, getattr(job, name)))
    began, owner = job.started_at_unix_seconds, None
    if began is not None:
        owner = Owner(began - wall_offset(view), "no workers" if kind == "worker" else "")
    return Trace(kind, label, short or kind, text, style or kind, series, owner=owner, **more)


def _shown(
    view: View, job: Job, series: Series | PolledThenSampled | None, now: float | None
) -> float | None:
    """Return the number beside a chart: the mean of what it shows, since a change if one is marked,
    or what it was at the moment that is looked at; ``now`` where that is not known."""
    if view.timeline.moment is not None:
        column = past_column(view, series)
        return None if column is None else column.mean
    shown = mean_shown(series, view.window_of_means(job.key))
    return now if shown is None else shown


def busy_trace(
    view: View,
    gpus: Sequence[Gpu],
    among: Sequence[Gpu],
    found: Finding | FindingMark | None,
    *,
    with_state: bool = False,
) -> Trace:
    """Return a chart of how busy some of a job's GPUs are, in their mean, and how much of that was
    work; their state in a word where the finding sets them apart, or nothing else says it
    (``with_state``)."""
    history, uuids = view.history, tuple([gpu.uuid for gpu in gpus])
    if not gpus:
        note = "no process of this job uses a GPU"
        return Trace("gpu", "GPU busy", "gpu", units.UNKNOWN, FED.hue, None, note=note)
    state, (whose, short) = state_of(view, gpus[0]), _whose(gpus, among)
    held, work = held_up(view, *uuids), work_said(view, state, *gpus)
    find = [history.gpu(uuid, "busy_percent") for uuid in uuids]
    apart = found is not None and len(gpus) < len(among)
    lost, percent = all(gpu.lost for gpu in gpus), mean(gpu.reading.busy_percent for gpu in gpus)
    idle = idle_said(view, state, percent, *uuids)
    says_state = apart or work is not None or (with_state and not idle)
    # What comes first stands beside low charts, too.
    words = [state_said(state, found)] if says_state else []
    words += [] if work is None else [work]
    busy = Trace(
        kind="gpu",
        label=f"{whose} busy",
        short=short,
        text=units.UNKNOWN if lost else units.percent(percent),
        style=FED.hue,
        series=find[0] if len(find) == 1 else Together(uuids, lambda: find),
        held=held,
        words=[
            *(words if state is WAITING else reversed(words)),
            *idle,
        ],
        hue=state.hue if apart else "label",
    )
    if state is not WAITING or work is None:
        return busy
    # Below what it is the work on the ground of what is lost: a slab of two tones would outshine
    # the cause.
    alone = [one if one.work is None else one._replace(of_busy=False) for one in held]
    words = [state_said(state, found), ("busy", units.percent(percent), "label")]
    drawn = replace(busy, label=f"{whose} SM", text=work[1], words=words, held=alone)
    return replace(busy, parts=drawn)


# -- the panel -------------------------------------------------------------------------------------


_MEGABYTE = 1024.0 * 1024.0

_WAVES = {"main"}
"""Charts beside the cause that move, and are worth their rows before those that hardly do."""
_MOST_ROWS = 3
"""Rows of each chart behind the first at most, on average."""
_TALL = 30
"""Rows of a page from which on the charts of GPUs that are held against each other have others
below them that say nothing of the cause."""
_MOST_APART = 6
"""Rows of each of two charts of GPUs at most that are held against each other."""
_MOST_EACH = 4
"""GPUs at most that have a chart each."""


def _rows(page: Page) -> int:
    """Return how many rows the charts take: at first one for each while there is room; asked again,
    GPUs that have one each have their own and all grow. They are others with each finding that
    leads, and stay while it does."""
    decided = page.decided
    if "count" not in decided:
        least = max(1, page.room - min(page.table_least, 2))
        decided["count"] = asked = min(least, count_of(page))
        return asked
    groups, asked = groups_of(page), decided["count"]
    room = page.room + asked
    decided["apart"] = are_compared(page) or (
        len(groups) > 1
        and (decided["report"] or page.rows["gpus"] == len(page.gpus))
        and page.room - (len(groups) - 1) >= min(page.table_wanted, page.table_least + 3)
    )
    traces = _in_order(page, asked)
    of_gpus = len(traces) - asked + 1
    first = of_gpus * (page.tall * 3 // 10) if page.gpus else 1
    most = first + _MOST_ROWS * (asked - 1)
    # Rows that neither charts held against each other nor the ranks have a use for are theirs.
    ranks = 2 + 2 * len(page.job.ranks) if page.job is not None else 0
    heights = _heights(page, traces, min(most, room - page.table_wanted), room - ranks)
    decided["lanes"] = list(zip(traces, heights, strict=True))
    return sum(heights)


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
    size = chart_width, limit, style, rows, window
    chart = view.chart(key, trace.series, *size, held, trace.owner, is_level=trace.is_level)
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
    columns = view.window_of_means().grid(_REACH_COLUMNS).columns_of(trace.series)
    known = [100.0 / (trace.limit or 100.0) * one[1] for one in columns if one is not None]
    ends = (f"{min(known):.0f}", f"{max(known):.0f}") if known else ()
    return f"range {'-'.join(dict.fromkeys(ends))}%" if ends else ""


def _name(row: Row, trace: Trace, lead: int, ellipsis: str) -> None:
    """Add what a chart is called, in short where that has no room, and its number."""
    text = trace.text
    if lead == LEAD:
        end = lead - 1 - _TICK_WIDTH
        whole = 3 + width_of(trace.label + text) <= end
        # Below it is the word that has the hue.
        said = any(look == trace.hue for _, _, look in trace.words)
        style = "label" if said else trace.hue
        row.add("  ").add(trace.label if whole else trace.short, style)
    else:
        end = lead - 2
        # Its unit gives way to the number.
        text = text if width_of(text) <= _NARROW_NUMBER else text.removesuffix("MHz")
        room = min(_NARROW_LABEL, end - 1 - width_of(text))
        row.add(" ").add(left(trace.short, room, ellipsis), trace.hue)
    # Colour is for charts and words of state: a number is what it is.
    style = "text" if trace.is_quiet else "value"
    style = "dim" if text == units.UNKNOWN else style
    row.add(right(text, end - row.used, ellipsis), style)


def _scale(trace: Trace, window: TimeWindow, width: int) -> tuple[float, str]:
    """Return the top of a rate's chart, and its name."""
    most = highest(trace.series, window, width)
    if trace.bytes:
        limit = nice_ceiling(most, _MEGABYTE)
        return limit, units.size(limit).replace(".0", "")
    limit = nice_ceiling(most, 1.0, thousand=1000.0)
    return limit, units.samples(limit).replace(".00", "").replace(".0", "")
