"""The time line of the HTML report: a row a GPU, findings as marks on the same axis."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gpuwatch.core import units
from gpuwatch.jobs.report.report import Course
from gpuwatch.outputs.html import svg
from gpuwatch.outputs.html.parts import element
from gpuwatch.outputs.html.svg import Area
from gpuwatch.outputs.recording_report import words
from gpuwatch.outputs.recording_report.words import Group, Times
from gpuwatch.outputs.summary.model import GpuSummary, Stretch, Summary

_STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
)  # fmt: skip
TICKS = 13
CARDS_SHOWN = 16


def timeline(summary: Summary, prefix: str = "") -> Iterable[str]:
    """Rows of findings, GPUs and the host's CPU, and the axis; ``prefix`` of the ids, where a page
    has several."""
    groups = words.groups(summary)
    yield '<div class="plot">'
    for group in groups:
        yield _lane(summary, group, prefix)
    for gpu in summary.gpus:
        yield _gpu_row(summary, gpu, groups, prefix)
    cpu = summary.host.courses.get("cpu_percent")
    if cpu is not None:
        yield _cpu_row(summary, cpu, prefix)
    yield _axis(summary)
    yield _key(summary, bool(groups))
    yield "</div>"


def _place(summary: Summary, unix_seconds: float) -> float:
    """0 to 1 of the width."""
    return (unix_seconds - summary.begin_unix_seconds) / (summary.seconds or 1.0)


def _area(summary: Summary, stretch: Stretch, kind: str) -> Area:
    return Area(
        _place(summary, stretch.begin_unix_seconds),
        _place(summary, stretch.end_unix_seconds),
        kind,
    )


def _gaps(summary: Summary, gpu: GpuSummary | None = None) -> list[Area]:
    lost = () if gpu is None else gpu.lost
    return [_area(summary, gap, "gapfill") for gap in (*summary.gaps, *lost)]


def _lane(summary: Summary, group: Group, prefix: str) -> str:
    times = Times(summary)
    described = f"{group.severity}, {group.when(times, 12)}"
    picture = svg.lane(
        f"{prefix}f{group.number}",
        f"Finding {group.number}: {group.rule}",
        described,
        [_area(summary, stretch, f"span {group.severity}") for stretch in group.stretches],
    )
    label = f"<b>#{group.number}</b> {escape(group.rule)}"
    return _row("lane", label, picture, units.age(group.seconds))


def _gpu_row(summary: Summary, gpu: GpuSummary, groups: Iterable[Group], prefix: str) -> str:
    percent = units.percent(gpu.core.busy_percent)
    label = f"<b>GPU {escape(gpu.label)}</b><small>{escape(_card(gpu))}</small>"
    course = gpu.courses.get("busy_percent")
    marks: list[Area] = []
    for group in groups:
        if group.severity != "info" and gpu.uuid in group.gpus:
            marks += [
                _area(summary, stretch, f"span {group.severity}")
                for use in group.uses
                if gpu.uuid in use.gpus
                for stretch in use.stretches
            ]
    if course is None:
        why = gpu.core.busy_missing or "not read"
        return _row("", label, element("span", f"busy: {why}", "note"), percent)
    rhythm = words.oscillation(gpu)
    described = f"Mean {percent}, duty {words.share(gpu.duty)}"
    described += f", swings {rhythm}." if rhythm else ", no oscillation."
    picture = svg.chart(
        f"{prefix}b{_name(summary, gpu)}",
        f"GPU {gpu.label} busy over time, 0 to 100%",
        described,
        course,
        top=100.0,
        filled=_filled(summary, course),
        marks=marks,
        gaps=_gaps(summary, gpu),
    )
    return _row("", label, picture, percent)


def _card(gpu: GpuSummary) -> str:
    return gpu.identity.name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def _name(summary: Summary, gpu: GpuSummary) -> int:
    return summary.gpus.index(gpu)


def _filled(summary: Summary, course: Course) -> float:
    """The last bucket reaches beyond the end."""
    return summary.course_seconds * len(course.mean) / (summary.seconds or 1.0)


def _cpu_row(summary: Summary, course: Course, prefix: str) -> str:
    host = summary.host
    cores = "" if host.core_count is None else words.plural(host.core_count, "core")
    mean = units.percent(host.cpu_mean_percent)
    picture = svg.chart(
        f"{prefix}cpu",
        "CPU busy over time, 0 to 100% of all cores",
        f"Mean {mean}, at most {units.percent(host.cpu_peak_percent)}.",
        course,
        top=100.0,
        filled=_filled(summary, course),
        gaps=_gaps(summary),
    )
    return _row("", f"<b>CPU</b><small>{escape(cores)}</small>", picture, mean)


def _row(kind: str, label: str, picture: str, end: str) -> str:
    """``label`` and ``picture`` are HTML."""
    return (
        f'<div class="row {kind}"><div class="name">{label}</div><div class="draw">{picture}</div>'
        f'<div class="end">{escape(end)}</div></div>'
    )


def _axis(summary: Summary) -> str:
    spans = []
    for number, (place, text) in enumerate(ticks(summary)):
        odd = ' class="odd"' if number % 2 else ""
        spans.append(f'<span{odd} style="left:{100 * place:.2f}%">{escape(text)}</span>')
    return _row("axis", "", f'<div class="ticks" aria-hidden="true">{"".join(spans)}</div>', "")


def ticks(summary: Summary) -> list[tuple[float, str]]:
    """Round local times (round times since the start for a log without dates) and where they
    lie, 0 to 1; none so near an edge that its text would be cut off."""
    seconds = summary.seconds
    if seconds <= 0:
        return []
    step = next((one for one in _STEPS if seconds / one <= TICKS), None)
    if step is None:
        step = 86400 * -(-int(seconds) // (86400 * TICKS))
    begin = summary.begin_unix_seconds
    offset = 0.0
    if summary.has_dates:
        shift = words.local(begin).utcoffset()
        offset = begin + (0.0 if shift is None else shift.total_seconds())
    first = -(-offset // step) * step - offset
    out = []
    for number in range(TICKS + 1):
        after = first + number * step
        if 0.02 * seconds <= after <= 0.98 * seconds:
            out.append((after / seconds, _tick(summary, begin + after, step)))
    return out


def _tick(summary: Summary, unix_seconds: float, step: int) -> str:
    if not summary.has_dates:
        return Times(summary).moment(unix_seconds)
    moment = words.local(unix_seconds)
    if step >= 86400:
        return moment.strftime("%m-%d")
    if step < 60:
        return moment.strftime("%H:%M:%S")
    if summary.seconds > words.DAY_SECONDS and moment.hour == 0 and moment.minute == 0:
        return moment.strftime("%m-%d")
    return moment.strftime("%H:%M")


def _key(summary: Summary, marked: bool) -> str:
    parts = [
        '<span><i class="f"></i>up to the mean</span>',
        '<span><i class="b"></i>up to the highest</span>',
        '<span><i class="l"></i>lowest</span>',
    ]
    if marked:
        parts.append('<span><i class="w"></i>a finding holds (# in the list below)</span>')
    if summary.gaps or any(gpu.lost for gpu in summary.gpus):
        parts.append('<span><i class="g"></i>no data</span>')
    return f'<div class="key">{"".join(parts)}<span>{escape(_scale(summary))}</span></div>'


def _scale(summary: Summary) -> str:
    return f"all scales 0 to 100%; {Times(summary).zone()}"


# --- power, memory, temperature --------------------------------------------------------------


def cards(summary: Summary) -> Iterable[str]:
    """A small plot for each GPU: memory, power, temperature on their own fixed scales."""
    shown = [gpu for gpu in summary.gpus if set(gpu.courses) - {"busy_percent"}]
    yield '<div class="small">'
    for gpu in shown[:CARDS_SHOWN]:
        yield f'<div class="plot"><h3>GPU {escape(gpu.label)}</h3>'
        yield from _card_rows(summary, gpu)
        yield "</div>"
    yield "</div>"
    left = len(shown) - CARDS_SHOWN
    if left > 0:
        yield element("p", f"And {words.plural(left, 'more GPU')}.", "note")


def _card_rows(summary: Summary, gpu: GpuSummary) -> Iterable[str]:
    core, identity = gpu.core, gpu.identity
    slowdown = identity.temperature_slowdown_celsius
    for name, label, top, end in (
        (
            "memory_used_bytes",
            "Memory",
            identity.memory_total_bytes,
            units.size_of(core.memory_peak_bytes, identity.memory_total_bytes),
        ),
        (
            "power_watts",
            "Power",
            core.power_limit_watts,
            units.watts_of(core.power_mean_watts, core.power_limit_watts),
        ),
        (
            "temperature_celsius",
            "Temp",
            slowdown or 100.0,
            units.celsius_of(core.temperature_peak_celsius, slowdown),
        ),
    ):
        course = gpu.courses.get(name)
        if course is None:
            continue
        highest = max((value for value in course.maximum if value is not None), default=0.0)
        picture = svg.chart(
            f"{name[0]}{_name(summary, gpu)}",
            f"GPU {gpu.label} {label.lower()} over time",
            f"{end}; the scale is 0 to the limit.",
            course,
            top=max(float(top or 0.0), highest) or 1.0,
            filled=_filled(summary, course),
            gaps=_gaps(summary, gpu),
        )
        yield _row("", escape(label), picture, end)
