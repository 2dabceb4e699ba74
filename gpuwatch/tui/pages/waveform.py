"""The waveform that shows a finding: its GPUs, who feeds them, and the reading its rule names."""

from collections.abc import Sequence
from dataclasses import replace

from gpuwatch.core.model import Gpu, Job, Snapshot
from gpuwatch.diagnosis.finding import Finding
from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.charts.past_readings import past_gpu
from gpuwatch.tui.charts.strips import TimeWindow
from gpuwatch.tui.charts.timeline import span_in
from gpuwatch.tui.controllers.following import find
from gpuwatch.tui.pages.finding_words import rule_of
from gpuwatch.tui.pages.layout import Title, edge
from gpuwatch.tui.panels.gpus.state import period_seconds
from gpuwatch.tui.panels.job import charts as job_charts
from gpuwatch.tui.panels.job import traces
from gpuwatch.tui.terminal.frame import Line
from gpuwatch.tui.view import View

_LEAST_CHART_SECONDS = 60.0
_MOST_CHARTS = 4
_AFTER_LOSS = 0.2
"""So much of the range is from after a GPU was lost."""
_SPANS = (15.0, 20.0, 30.0, 45.0, 60.0)


def draw(view: View, finding: Finding, width: int, until: float | None) -> list[Line]:
    """The GPUs named, who feeds them, and what else shows it, on one time axis."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    job = _job(view, finding)
    gpus = _named(view, finding, job)
    if not gpus and job is None:
        return []
    span = job_charts.span(width)
    view.chart_columns = max(1, span[1])
    gpus = [past_gpu(view, gpu) for gpu in gpus]
    if view.own_range:
        seconds = own_span(view, finding, gpus)
        cursor = view.timeline.cursor_seconds
        step = min(seconds / 10, 6.0)
        window = TimeWindow(snapshot.monotonic_seconds, seconds, step, cursor=cursor)
    else:
        window = view.window
    end = until
    if gpus and view.own_range and all(gpu.lost for gpu in gpus):
        # What was before tells more than the nothing since.
        end = _begin(snapshot, finding) + _AFTER_LOSS * window.span_seconds
    if end is not None:
        window = replace(window, now=min(window.now, end))
    rows = 3 if len(gpus) <= 2 else 1
    shown = [(trace, rows) for trace in traces.gpu_traces(view, gpus)]
    idle = _idle_share(finding)
    if idle is not None and rows > 1:
        # The share is that of the finding, which the sentence has as well.
        shown = [(replace(trace, idle=("idle", idle)), rows) for trace, rows in shown]
    reading = rule_of(finding.rule).chart
    shown += [(trace, 2) for trace in traces.metric_traces(view, gpus, reading)]
    if job is not None:
        shown += [(trace, 2) for trace in traces.host_traces(view, job)]
        shown += [(trace, 2) for trace in traces.disk_traces(view, job, reading)]
    if until is not None:
        shown = [(traces.of_the_past(trace), rows) for trace, rows in shown]
    lines = job_charts.draw(view, shown, window, width)
    lines.append(time_axis.draw(view, window, [span], width)[0])
    title = Title(_span_words(window, end is not None))
    return [*edge(view.glyphs, width, title)[0], *lines]


def _begin(snapshot: Snapshot, finding: Finding) -> float:
    """Since when it holds, on the snapshots' own clock."""
    now, since = snapshot.taken_at_unix_seconds, finding.since_unix_seconds
    return snapshot.monotonic_seconds - (0.0 if since is None else now - since)


def own_span(view: View, finding: Finding, gpus: Sequence[Gpu] = ()) -> float:
    """How many seconds show it best, of those that were watched: what comes in bursts is seen best
    in some eight of them, as they were when it was first looked at."""
    seconds = rule_of(finding.rule).chart_seconds
    if view.diagnosis is not None:
        seconds = min(seconds, max(_LEAST_CHART_SECONDS, view.diagnosis.watched_seconds))
    kept = view.kept.setdefault("periods", {})
    if kept.get(finding.key) is None:
        kept[finding.key] = next(filter(None, (period_seconds(view, gpu) for gpu in gpus)), None)
    period = kept[finding.key]
    if period is None or seconds > _LEAST_CHART_SECONDS:
        return seconds
    return min(seconds, next(span for span in _SPANS if span >= min(8 * period, _SPANS[-1])))


def _idle_share(finding: Finding) -> str | None:
    """Of a finding about one GPU that is without work again and again."""
    for one in finding.evidence:
        if one.name == "idle GPU" and isinstance(one.value, float) and len(finding.gpus) == 1:
            return f"{one.value:.0f}%"
    return None


def _span_words(window: TimeWindow, gone: bool) -> str:
    words = span_in(window.span_seconds, (" seconds", " minutes", " hours"))
    if window.end is not None and window.end < window.now:
        return f"{words} of the past"
    return f"its last {words}" if gone else f"the last {words}"


def _job(view: View, finding: Finding) -> Job | None:
    if finding.job is None or view.snapshot is None:
        return None
    last = view.job.last
    there = find(view.snapshot.jobs, finding.job)
    return last if there is None and last is not None and last.key == finding.job else there


def _named(view: View, finding: Finding, job: Job | None) -> list[Gpu]:
    wanted = finding.gpus or (() if job is None else job.gpu_uuids)
    return [gpu for gpu in view.gpus if gpu.uuid in wanted][:_MOST_CHARTS]


def first_gpu(view: View, finding: Finding) -> Gpu | None:
    return next(iter(_named(view, finding, _job(view, finding))), None)
