"""Detail of one GPU: what was found about it, its charts, every reading, its processes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual.binding import BindingType

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, XidError
from gpuwatch.core.registry import GPU, MAIN, OF_GPU, Field
from gpuwatch.core.source import ReadOptions
from gpuwatch.core.store import busy_name
from gpuwatch.core.xids import xid_of
from gpuwatch.diagnosis.rule import THROTTLED
from gpuwatch.tui.keys import DETAIL_FOOTER, DETAIL_KEYS, bindings
from gpuwatch.tui.pages.layout import (
    Drawn,
    Frame,
    Page,
    Title,
    abreast,
    band_rows,
    edge,
    has_boxes,
    in_columns,
)
from gpuwatch.tui.pages.screen import ScrolledScreen, SheetBody, draw_sheet
from gpuwatch.tui.panels import findings, job_charts, processes, time_axis
from gpuwatch.tui.panels.findings import about_gpu, rule_of
from gpuwatch.tui.panels.gpus import (
    FED,
    LEAD,
    Said,
    add_value,
    busy_said,
    clock_metric,
    gauge,
    held_up,
    scaled_metrics,
    state_of,
    throttle_text,
)
from gpuwatch.tui.panels.job_charts import LEVELS, Trace
from gpuwatch.tui.panels.time_axis import shown_gpu
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Run,
    blank,
    fit,
    left,
    right,
    spots,
    width_of,
    wrapped,
)
from gpuwatch.tui.view import View

# -- every reading, as (label, text, style) --------------------------------------------------------


Fact = tuple[str, str, str]

_HEALTH = (
    *("ecc_corrected_count", "ecc_uncorrected_count", "remapped_rows_correctable"),
    *("remapped_rows_failed", "remapped_rows_pending"),
)
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "activity": (
        *("busy_percent", "sm_active_percent", "sm_occupancy_percent", "tensor_active_percent"),
        *("encoder_percent", "decoder_percent"),
    ),
    "memory": (
        *("memory_used_bytes", "memory_controller_percent", "dram_active_percent"),
        *("memory_clock_mhz", "memory_temperature_celsius"),
    ),
    "power, clocks": (
        *("power_watts", "power_limit_watts", "energy_joules", "temperature_celsius"),
        *("temperature_slowdown_celsius", "fan_percent", "performance_state", "sm_clock_mhz"),
        *("throttle_reasons", "throttle_durations"),
    ),
    "links, health": (
        *("pcie_generation", "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"),
        *("nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second", *_HEALTH),
    ),
    "identity": (
        *("driver_version", "cuda_version", "compute_capability", "pci_bus_id", "numa_node"),
        *("mig_mode", "busy_samples"),
    ),
}
_GROUPED = {name for names in _GROUPS.values() for name in names}
_SHOWN: Mapping[str, tuple[str, ...]] = {
    **_GROUPS,
    "others": tuple([name for name, one in GPU.items() if one.label and name not in _GROUPED]),
}
_ALARMS = {"ecc_uncorrected_count", "remapped_rows_failed", "remapped_rows_pending"}
"""Readings that are alarming where they are not zero."""


def readings(gpu: Gpu, without: Collection[str] = ()) -> tuple[list[Fact], list[str]]:
    """Return the known readings, in the order of their groups, and the labels of what this GPU does
    not report; ``without`` some."""
    groups, missing = grouped_readings(gpu, without)
    return [fact for facts in groups.values() for fact in facts], missing


def grouped_readings(
    gpu: Gpu, without: Collection[str] = ()
) -> tuple[Mapping[str, list[Fact]], list[str]]:
    """Return the known readings by the groups that are drawn, and the labels of what this GPU does
    not report; ``without`` some."""
    ages, groups, missing = dict(gpu.reading.late_readings), dict[str, list[Fact]](), list[str]()
    for group, names in _SHOWN.items():
        facts = groups.setdefault(group, [])
        found = {name: _written(gpu, name) for name in names if name not in without}
        sound = group == _OF_HEALTH and _is_sound(gpu)
        if sound:
            found = {name: run for name, run in found.items() if name not in _HEALTH or run is None}
        for name, written in found.items():
            if written is None:
                missing.append(OF_GPU[name].label)
                continue
            age = f" ({units.age(ages[name])} old)" if name in ages else ""
            facts.append((_label(name), written[0] + age, written[1]))
        if group == _OF_HEALTH:
            facts += [*_errors(gpu), *([("ECC", "no errors, no remaps", "text")] if sound else [])]
    if gpu.allocated_to is not None:
        groups["identity"].append(("allocated to", _jobs(gpu.allocated_to), "text"))
    return groups, missing


_OF_HEALTH = "links, health"
_LABELS = {
    "busy_samples": "readings per second",
    "energy_joules": "energy since driver load",
}


def _label(name: str) -> str:
    return _LABELS.get(name, OF_GPU[name].label)


def _errors(gpu: Gpu) -> list[Fact]:
    """Return what went wrong with its driver and links, of which most cards have nothing."""
    facts: list[Fact] = []
    if gpu.xid_errors:
        facts.append(("Xid errors", *_xids(gpu.xid_errors)))
    if errors := _link_errors(gpu):
        facts.append(("link errors", errors, "warn"))
    return facts


def _is_sound(gpu: Gpu) -> bool:
    """Check whether its memory was read to have had no error; what was read late is said."""
    ages = dict(gpu.reading.late_readings)
    names = [*_HEALTH, "remapped_rows_uncorrectable"]
    read = [_value(gpu, name) for name in names]
    return None not in read and not any(read) and ages.keys().isdisjoint(names)


def _xids(errors: Sequence[XidError]) -> Run:
    """Return the driver's errors, the newest first: ``31 (12:04:31), 43 x2 (11:58:02)``."""
    newest = sorted(errors, key=lambda error: -error.last_unix_seconds)
    texts = [
        f"{error.code}{f' x{error.times}' if error.times > 1 else ''}"
        f" ({units.clock(error.last_unix_seconds)})"
        for error in newest
    ]
    grave = any(xid_of(error.code).kind != "none" for error in errors)
    return ", ".join(texts), "error" if grave else "warn"


def _link_errors(gpu: Gpu) -> str:
    """Return the errors of its links, of which most cards have none."""
    reading = gpu.reading
    counts = (
        (reading.nvlink_recovery_count, "NVLink restart"),
        (reading.nvlink_replay_count, "NVLink replay"),
        (reading.nvlink_crc_count, "NVLink CRC error"),
        (reading.pcie_replay_count, "PCIe replay"),
    )
    return ", ".join([units.plural(count, what) for count, what in counts if count])


def _jobs(numbers: Sequence[str]) -> str:
    return f"job {', '.join(numbers)}" if numbers else "no job"


def _written(gpu: Gpu, name: str) -> Run | None:
    """Return a reading in words, and its style; ``None``: it is not reported."""
    if name in _IN_OTHER_WORDS:
        return _IN_OTHER_WORDS[name](gpu)
    value, field = _value(gpu, name), OF_GPU[name]
    if value is None:
        return None
    style = "error" if name in _ALARMS and value else "value" if name in MAIN else "text"
    if isinstance(value, bool):
        return ("yes" if value else "no"), style
    if isinstance(value, str):
        return value, style
    # A limit that has a line of its own is not said twice.
    has_limit = field.limit and field.limit not in _GROUPED
    return field.text(value, _value(gpu, field.limit) if has_limit else None), style


def _value(gpu: Gpu, name: str) -> Any:
    return getattr(gpu.reading if name in GPU else gpu.identity, name)


def _samples(gpu: Gpu) -> Run | None:
    """Return how many samples of its utilisation the driver takes a second."""
    samples = gpu.reading.busy_samples
    if samples is None or len(samples) < 2:
        return None if samples is None else (units.UNKNOWN, "text")
    seconds = samples[-1].at_unix_seconds - samples[0].at_unix_seconds
    return f"{(len(samples) - 1) / seconds:.3g}" if seconds > 0 else units.UNKNOWN, "text"


def _memory(gpu: Gpu) -> Run | None:
    used = gpu.reading.memory_used_bytes
    return None if used is None else (units.gpu_memory(gpu), "value")


def _power(gpu: Gpu) -> Run | None:
    reading = gpu.reading
    average = " (average)" if reading.power_is_average else ""
    text = GPU["power_watts"].text(reading.power_watts)
    return None if reading.power_watts is None else (text + average, "value")


def _energy(gpu: Gpu) -> Run | None:
    joules = gpu.reading.energy_joules
    return None if joules is None else (units.energy(joules), "text")


def _throttle(gpu: Gpu) -> Run | None:
    if gpu.reading.throttle_reasons is None:
        return None
    held = throttle_text(gpu.reading)
    if held is not None:
        return held[0].removeprefix("throttled: "), held[1]
    reasons = [reason.replace("_", " ") for reason in gpu.reading.throttle_reasons]
    return ", ".join(reasons) or "none", "text"


def _durations(gpu: Gpu) -> Run | None:
    """Return for how long it was throttled since the snapshot before, by reason."""
    durations = gpu.reading.throttle_durations
    if durations is None:
        return None
    held = [d for d in durations if d.seconds > 0 and d.reason != "gpu_idle"]
    texts = [f"{one.reason.replace('_', ' ')} {one.seconds:.1f}s" for one in held]
    return ", ".join(texts) or "0s", "text"


def _link(gpu: Gpu) -> Run | None:
    reading, identity = gpu.reading, gpu.identity
    if reading.pcie_generation is None and reading.pcie_width is None:
        return None
    now = f"gen{units.count(reading.pcie_generation)} x{units.count(reading.pcie_width)}"
    most = f"gen{units.count(identity.pcie_generation_max)} x{units.count(identity.pcie_width_max)}"
    return now if now == most else f"{now} of {most}", "text"


def _remapped(gpu: Gpu) -> Run | None:
    rows = gpu.reading.remapped_rows_correctable, gpu.reading.remapped_rows_uncorrectable
    correctable, uncorrectable = map(units.count, rows)
    if rows == (None, None):
        return None
    both = f"{correctable} correctable, {uncorrectable} uncorrectable"
    return both if any(rows) else "none", "text"


_MIG: Mapping[bool | None, Run] = {True: ("on", "text"), False: ("off", "text")}
_IN_OTHER_WORDS: Mapping[str, Callable[[Gpu], Run | None]] = {
    "mig_mode": lambda gpu: _MIG.get(gpu.identity.mig_mode),
    "busy_samples": _samples,
    "memory_used_bytes": _memory,
    "power_watts": _power,
    "energy_joules": _energy,
    "throttle_reasons": _throttle,
    "throttle_durations": _durations,
    "pcie_generation": _link,
    "remapped_rows_correctable": _remapped,
}
"""Readings that are more than a number in the form of its unit, or several fields in one line."""


# -- the drawing -----------------------------------------------------------------------------------


_CHARTS = ("sm_active_percent", "power_watts", "pcie_rx_bytes_per_second")
"""Readings with a chart below that of how busy it is."""
_GAUGED = ("memory_used_bytes", *LEVELS)
"""Readings that hardly vary: gauges show them, and a chart where the leading finding names it."""
_LEAST_LEVEL, _NAMED_LEVEL = 24, 36
"""Cells of a level, with its number, its limit and its label, in short and in full."""
_TURNS, _MOST_ROWS, _MOST_ROWS_SMALL = (0, 0, 1, 0, 2, 0, 3), (17, 3, 3, 2), (5, 1, 1, 1)
"""Places of the charts in the order in which they grow by a row, and how far; the last for those
behind them, too."""
_AROUND, _AROUND_WIDE, _AROUND_SMALL = 20, 17, 11
"""Rows of a page with boxes, of a wide one and of a smaller one that are for the levels, the time
axis, processes and readings."""
_COLUMNS = (72, 110, 145, 180)
"""Widths from which on readings stand in one column more."""
_COLUMN, _GAP = 40, 4
"""Cells of a column at most, where a label still stands beside its number, and between two."""


def draw(view: View, width: int, height: int, offset: int) -> tuple[Frame, int]:
    """Return the frame, and ``offset`` (how far the body is scrolled) brought into range."""
    if width < 20 or height < 6 or not view.gpus:
        return Frame(lines=[blank(width)] * height), 0
    live = view.gpus[view.gpu_position()]
    boxes = has_boxes(width, height)

    def body(width: int, room: int) -> SheetBody:
        view.chart_columns = max(1, job_charts.span(width)[1])
        top = [] if boxes else [_title(view, live, width)]
        said = _verdict(view, live, width, height)
        lines, zones = _body(view, live, width, room - len(top) - len(said), boxes=boxes)
        zones = [zone._replace(y=zone.y + len(said)) for zone in zones]
        return top, [*said, *lines], zones, time_axis.values(view, live, width)

    text, said = _named(view, live)
    title = Title(text, said=said)
    return draw_sheet(view, width, height, title, body, DETAIL_FOOTER, offset)


def _named(view: View, gpu: Gpu) -> tuple[str, list[Run]]:
    """Return ``GPU 0 of 8  NVIDIA H200``, and what it does or what is wrong with it."""
    count = f" of {len(view.gpus)}" if len(view.gpus) > 1 else ""
    whole = " ".join(filter(None, [gpu.identity.machine, gpu.identity.name]))
    name = fit(whole, 40, view.glyphs.ellipsis)
    state, throttled = state_of(view, gpu), throttle_text(gpu.reading)
    said = [(state.word, state.hue)]
    if throttled is not None and view.timeline.moment is None:
        # Why it is throttled says that it is.
        said = [*(said if state is not THROTTLED else []), throttled]
    return f"GPU {units.gpu_label(gpu)}{count}  {name}", said


def _title(view: View, gpu: Gpu, width: int) -> Line:
    text, said = _named(view, gpu)
    row = Row(width).add(f" {text}", "title")
    for one in said:
        row.add("  ").add(*one)
    return row.line()


def _verdict(view: View, gpu: Gpu, width: int, height: int) -> list[Line]:
    """Draw what was found about the GPU, or that nothing was, as other pages say it."""
    rows, found = band_rows(height, len(view.gpus)), view.diagnosis
    if found is not None:
        about = [one for one in found.causes if not one.gpus or gpu.uuid in one.gpus]
        spans = [one for one in view.spans if not one.gpus or gpu.uuid in one.gpus]
        elsewhere = f"nothing found on this GPU ({len(found.causes)} elsewhere: d)"
        verdict = elsewhere if found.causes and not about else found.verdict
        both = tuple(about)
        found = replace(found, findings=both, causes=both, verdict=verdict)
        view = replace(view, diagnosis=found, spans=spans)
    page = Page(view, width, height, has_boxes(width, height), view.window, [gpu])
    return findings.PANEL.draw(page, rows)[0] if rows else []


def _charts(view: View, live: Gpu) -> list[Trace]:
    """Return the charts of a GPU: how busy it is, levels that the leading finding is about, and
    what varies. Those that it is about have a colour."""
    gpu, state = shown_gpu(view, live), state_of(view, live)
    busy, *scaled = scaled_metrics(view, gpu, 120)
    unscaled = {one.field.name for one in scaled if one.limit is None}
    named = rule_of(found[0].rule).charts if (found := about_gpu(view.diagnosis, gpu.uuid)) else ()
    charts = [
        Trace(
            kind="gpu",
            label=busy.field.label,
            short=busy.field.short,
            text=busy.text,
            style=FED.hue,
            series=view.history.gpu(gpu.uuid, busy.field.name),
            held=held_up(view, gpu.uuid),
            words=busy_said(view, state, gpu, busy.value, _value(live, busy.field.name)),
        )
    ]
    for name in (*[name for name in named if name in _GAUGED], *_CHARTS):
        read = _value(gpu, name) is not None or view.history.gpu(gpu.uuid, name) is not None
        if not read or name in unscaled or name == busy.field.name:
            continue
        one = job_charts.metric_trace(view, [gpu], name)
        one = one if name in named else job_charts.quiet(one)
        label = "PCIe rx" if name.startswith("pcie") else GPU[name].label
        # Numbers of levels are of now.
        words = [] if name in LEVELS else _now(view, live, GPU[name])
        charts.append(replace(one, label=label, short=GPU[name].short, words=words))
    return charts


def _now(view: View, live: Gpu, field: Field) -> list[Said]:
    """Return the reading of now, which stands below the mean where a chart has room for it."""
    if view.timeline.moment is not None or live.lost:
        return []
    value = _value(live, field.name)
    return [] if value is None else [("now", field.text(value), "dim")]


def _heights(charts: Sequence[Trace], width: int, room: int, *, boxes: bool) -> list[int]:
    """Return how high each of the charts is; those that are lines have enough of two rows."""
    count, most = len(charts), _MOST_ROWS if boxes else _MOST_ROWS_SMALL
    heights = [1] * count
    limits = [min(most[min(n, 3)], 2 if one.is_level else 99) for n, one in enumerate(charts)]
    around = _AROUND_WIDE if width >= _COLUMNS[-1] else _AROUND
    left_over = room - (around if boxes else _AROUND_SMALL) - count
    grew = True
    while grew:
        grew = False
        for place in (*_TURNS, *range(len(most), count)):
            if place < count and heights[place] < limits[place] and left_over > 0:
                heights[place] += 1
                left_over -= 1
                grew = True
    return heights


def _gauges(
    view: View, live: Gpu, width: int, charted: Collection[str]
) -> tuple[list[str], list[Line]]:
    """Draw how much is reached of the limits of what hardly varies and is not ``charted``, in as
    many columns as there is room for, and name those readings."""
    gpu = shown_gpu(view, live)
    of_levels = {
        one.field.name: one for one in (*scaled_metrics(view, gpu, 120), clock_metric(gpu))
    }
    every = [of_levels[name] for name in _GAUGED if name not in charted]
    every = [one for one in every if one.value is not None and one.limit]
    count = max(1, min(len(_GAUGED), (width - 1) // _LEAST_LEVEL))
    cells = (width - 2) // count - _GAP
    lines = []
    for first in range(0, len(every), count):
        some = every[first : first + count]
        named = [one.field.label if cells >= _NAMED_LEVEL else one.field.short for one in some]
        # Numbers are as wide as their limits, so that nothing moves.
        sizes = [width_of(one.field.text(one.limit, one.limit)) for one in some]
        room = cells * len(some) - sum([*map(width_of, named), *sizes]) - 3 * len(some)
        row = Row(width).add("  ")
        for label, metric, size in zip(named, some, sizes, strict=True):
            row.add(f"{label} ", "label")
            add_value(row, metric, view.glyphs, size).add("  ")
            long = max(0, room // len(some))
            share = (metric.value or 0.0) / (metric.limit or 1.0)
            drawn = gauge(view.glyphs, share, long, metric.style) if long else []
            row.add_runs(drawn, long).add(" " * _GAP)
        lines.append(row.line())
    return [one.field.name for one in every], lines


def _body(view: View, live: Gpu, width: int, room: int, *, boxes: bool) -> Drawn:
    """Draw the levels, the charts on one time axis, the GPU's processes, and its readings in
    columns."""
    charts = _charts(view, live)
    names, lines = _gauges(view, live, width, [one.kind for one in charts])
    lines = [blank(width), *lines] if boxes and lines else lines
    shown = list(zip(charts, _heights(charts, width, room, boxes=boxes), strict=True))
    span, top = job_charts.span(width), len(lines)
    lines += job_charts.draw(view, shown, view.window, width)
    zones = spots(top, len(lines) - top, *span)
    axis, moments = time_axis.draw(view, view.window, [span], width)
    zones += [zone._replace(y=len(lines)) for zone in moments]
    names += [one.kind for one in charts]
    if span[0] == LEAD:
        # Limits stand beside their charts.
        names += [GPU[name].limit or "" for name in names if name in GPU]
    late = dict(live.reading.late_readings)
    said = {busy_name(live.reading), *names} - {"", "gpu", *late}
    said = {name for name in said if _value(live, name) is not None}
    facts = _facts(live, width, view, said)
    table = processes.processes_of_gpu(view, live.uuid, width, max(4, room // 5))
    of_readings = edge(view.glyphs, width, Title("readings"))[0]
    of_processes = edge(view.glyphs, width, Title("processes"))[0]
    return [*lines, axis, *of_processes, *table, *of_readings, *facts], zones


_QUIET_ZEROS = {
    "encoder_percent": "encoder",
    "decoder_percent": "decoder",
    "nvlink_rx_bytes_per_second": "NVLink",
    "nvlink_tx_bytes_per_second": "NVLink",
}
"""Readings of which zero says nothing, and how they are called in the list of those."""


def _facts(live: Gpu, width: int, view: View, said: Collection[str]) -> list[Line]:
    """Draw the readings but those that are ``said`` beside a chart: in columns, and below them the
    name by which scripts know the GPU, what is zero, and what it does not report."""
    gpu = shown_gpu(view, live, facts=True)
    zero = [name for name in _QUIET_ZEROS if _written(gpu, name) in _NOTHING]
    groups, missing = grouped_readings(gpu, {*said, *zero})
    count = 1 + sum(width >= least for least in _COLUMNS)
    wide = (width - 3 - _GAP * (count - 1)) // count
    wide = min(wide, _COLUMN) if count > 1 else wide
    blocks = [_block(group, facts, wide) for group, facts in groups.items() if facts]
    columns = in_columns(blocks, count, apart=1)
    drawn = abreast(columns, [wide] * len(columns), _GAP)
    used = (wide + _GAP) * len(columns) - _GAP
    lines = [Row(width).add("  ").add_runs(one, used).line() for one in drawn]
    notes = {
        "UUID": [gpu.uuid],
        "zero": list(dict.fromkeys([_QUIET_ZEROS[name] for name in zero])),
        "not reported": [] if gpu.lost else missing,
    }
    row = Row(width)
    for label, texts in notes.items():
        for number, text in enumerate(_listed(texts, width - _NOTE - 1)):
            beside = not number and row.used and len(label + text) + _GAP + 3 <= row.room
            if not beside:
                lines += [row.line()] if row.used else []
                row = Row(width).add("  ").add(left("" if number else label, _NOTE - 2), "label")
            else:
                row.add(f"{' ' * _GAP}{label}  ", "label")
            row.add(text, "text" if label == "UUID" else "dim")
    return [*lines, row.line()]


def _listed(texts: Sequence[str], width: int) -> list[str]:
    """Return texts with commas between them, in lines of which none ends within one of them."""
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + len(text) + 3 <= width:
            lines[-1] += f", {text}"
        else:
            lines = [*(f"{one}," if one is lines[-1] else one for one in lines), text]
    return lines


_NOTHING: Collection[Run | None] = {("0%", "text"), ("0B/s", "text")}
_NOTE = 16
"""Cells before the text of a note."""


def _block(group: str, facts: Sequence[Fact], width: int) -> list[Line]:
    """Draw a group of readings: labels at the left, what was read at the right."""
    lines = [Row(width).add(group, "title").line()]
    for label, text, style in facts:
        row = Row(width).add(f" {label}", "label")
        first, *rest = wrapped(text, width - row.used - 1) or [""]
        for number, part in enumerate((first, *rest)):
            row = Row(width) if number else row
            lines.append(row.add(right(part, row.room), style).line())
    return lines


# -- the screen ------------------------------------------------------------------------------------


class DetailScreen(ScrolledScreen):
    """Screen of one GPU; shares the view (range, pause, selected GPU) with the overview."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(DETAIL_KEYS)
    CANVAS_ID = "detail"

    def __init__(self, view: View, options: ReadOptions) -> None:
        super().__init__(view)
        self._options = options

    def on_unmount(self) -> None:
        self._options.detailed_gpu = None

    def drawn(self, width: int, height: int) -> Frame:
        self._options.detailed_gpu = self.view.selected_gpu
        frame, self.body_offset = draw(self.view, width, height, self.body_offset)
        return frame

    def action_other_gpu(self, step: int) -> None:
        self.view.step_gpu(step)
        self.redraw()
