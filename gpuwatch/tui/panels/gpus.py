"""The GPU half of the screen: numbers, limits and waveforms, in five densities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading
from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.charts.past_readings import gpu_then
from gpuwatch.tui.charts.strips import nice_ceiling
from gpuwatch.tui.pages.finding_words import about_gpu, sign, style_of
from gpuwatch.tui.pages.layout import GpuStyle, Plan, stacked_chart_rows
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, fit, left, right
from gpuwatch.tui.view import View

_LABEL_WIDTH = 7
_VALUE_WIDTH = 13
_POWER_SCALE_LEAST_WATTS = 50.0

# Reasons that say the GPU is held back (as opposed to idle, or set so by a person).
_HARMFUL = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "thermal",
    "sw_thermal_slowdown": "thermal",
    "hw_power_brake_slowdown": "power brake",
    "sync_boost": "sync boost",
}

_CHARTED = ("busy_percent", "memory_used_bytes", "power_watts", "temperature_celsius")


@dataclass(frozen=True, slots=True)
class Metric:
    """One chart: its field, its number beside it, its fixed scale, and how alarming it is."""

    label: str
    name: str
    style: str
    text: str
    limit: float | None
    mood: str
    """``""``, ``warn`` or ``error``: said by colour and by a sign."""


def metrics(
    gpu: Gpu, host_memory_bytes: float | None = None, power_peak_watts: float | None = None
) -> tuple[Metric, Metric, Metric, Metric]:
    """Busy, memory, power and temperature of ``gpu``, each against its own limit.

    A GPU that shares the host's memory has none of its own and often states no power limit: its
    memory is drawn against ``host_memory_bytes``, its power on a scale that moves in steps above
    ``power_peak_watts``, the most that is shown.
    """
    identity, reading = gpu.identity, gpu.reading
    memory_limit = identity.memory_total_bytes
    power_limit = reading.power_limit_watts or identity.power_limit_default_watts
    hot = identity.temperature_slowdown_celsius
    memory_scale: float | None = memory_limit
    if memory_scale is None and identity.memory_unified:
        memory_scale = host_memory_bytes
    power_scale = power_limit
    if power_scale is None and power_peak_watts is not None:
        power_scale = nice_ceiling(power_peak_watts, _POWER_SCALE_LEAST_WATTS)
    memory_text = units.size_of(reading.memory_used_bytes, memory_limit)
    if reading.memory_used_is_process_sum:
        memory_text = f"{units.size(reading.memory_used_bytes)} procs"
    return (
        Metric("busy", "busy_percent", "busy", units.percent(reading.busy_percent), 100.0, ""),
        Metric(
            "memory",
            "memory_used_bytes",
            "memory",
            memory_text,
            memory_scale,
            _mood(reading.memory_used_bytes, memory_limit, 0.95, 0.985),
        ),
        Metric(
            "power",
            "power_watts",
            "power",
            units.watts_of(reading.power_watts, power_limit),
            power_scale,
            "",
        ),
        Metric(
            "temp",
            "temperature_celsius",
            "temperature",
            units.celsius_of(reading.temperature_celsius, hot),
            hot or 100.0,
            _mood(reading.temperature_celsius, hot, 0.95, 1.0),
        ),
    )


def _mood(value: float | None, limit: float | None, warn: float, error: float) -> str:
    if value is None or limit is None or limit <= 0:
        return ""
    share = value / limit
    return "error" if share >= error else "warn" if share >= warn else ""


def throttle_text(reading: GpuReading) -> tuple[str, str] | None:
    """What holds the clocks back, and its style; ``None`` when nothing does or it is unknown."""
    if reading.throttle_reasons is None:
        return None
    held = [_HARMFUL[reason] for reason in reading.throttle_reasons if reason in _HARMFUL]
    if not held:
        return None
    thermal = any(word in {"thermal", "hardware slowdown", "power brake"} for word in held)
    return "throttled: " + ", ".join(dict.fromkeys(held)), "error" if thermal else "warn"


def short_name(name: str) -> str:
    """Without the maker and the family, which every row would repeat."""
    for word in ("NVIDIA ", "GeForce ", "Graphics Device "):
        name = name.removeprefix(word)
    return name


def facts(gpu: Gpu, calm: bool = False) -> list[tuple[str, str]]:
    """Everything worth a place on the heading, most important first, as (text, style); ``calm``
    leaves out the rates and activities, which change with every look."""
    if gpu.lost:
        return [("GPU is lost", "error")]
    reading = gpu.reading
    return [
        *_alarms(reading),
        *_lateness(reading),
        *_speeds(gpu.identity, reading, calm),
        *([] if calm else _activities(reading)),
        *_links(reading, calm),
        *_at_ease(reading),
    ]


def _lateness(reading: GpuReading) -> list[tuple[str, str]]:
    """How old the oldest number of a chart is, where the driver is too slow for every look."""
    ages = [seconds for name, seconds in reading.late_readings if name in _CHARTED]
    return [(f"up to {units.age(max(ages)):>3} old", "warn")] if ages else []


def _at_ease(reading: GpuReading) -> list[tuple[str, str]]:
    known = reading.throttle_reasons is not None
    return [("not throttled", "dim")] if known and throttle_text(reading) is None else []


def _alarms(reading: GpuReading) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    throttled = throttle_text(reading)
    if throttled is not None:
        out.append(throttled)
    if reading.ecc_uncorrected_count is not None and reading.ecc_uncorrected_count > 0:
        out.append((f"ECC errors {reading.ecc_uncorrected_count}", "error"))
    if reading.remapped_rows_failed:
        out.append(("row remap failed", "error"))
    elif reading.remapped_rows_pending:
        out.append(("row remap pending", "warn"))
    return out


def _speeds(identity: GpuIdentity, reading: GpuReading, calm: bool) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    if reading.performance_state is not None:
        out.append((f"P{reading.performance_state}", "label"))
    if reading.sm_clock_mhz is not None:
        most = identity.sm_clock_max_mhz
        clock = f"{reading.sm_clock_mhz:4d}" + ("" if most is None else f"/{most}")
        out.append((f"{clock}MHz", "label"))
    pcie = (reading.pcie_rx_bytes_per_second, reading.pcie_tx_bytes_per_second)
    if pcie != (None, None) and not calm:
        received = right(units.rate(reading.pcie_rx_bytes_per_second), 8)
        sent = right(units.rate(reading.pcie_tx_bytes_per_second), 8)
        out.append((f"rx {received} tx {sent}", "label"))
    return out


def _activities(reading: GpuReading) -> list[tuple[str, str]]:
    memory = ("DRAM", reading.dram_active_percent)
    if reading.dram_active_percent is None:
        memory = ("mem-ctrl", reading.memory_controller_percent)
    return [
        (f"{name} {value:3.0f}%", "label")
        for name, value in (
            ("SM active", reading.sm_active_percent),
            ("tensor", reading.tensor_active_percent),
            memory,
            ("fan", reading.fan_percent),
            ("enc", reading.encoder_percent),
            ("dec", reading.decoder_percent),
        )
        if value is not None and (value > 0 or name not in {"enc", "dec"})
    ]


def _links(reading: GpuReading, calm: bool) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    if reading.pcie_generation is not None and reading.pcie_width is not None:
        out.append((f"PCIe {reading.pcie_generation}x{reading.pcie_width}", "label"))
    if reading.nvlink_rx_bytes_per_second is not None and not calm:
        out.append((f"NVLink {right(units.rate(reading.nvlink_rx_bytes_per_second), 8)}", "label"))
    if reading.memory_clock_mhz is not None:
        out.append((f"mem {reading.memory_clock_mhz}MHz", "label"))
    return out


def draw(view: View, plan: Plan, top: int) -> tuple[list[Line], list[Zone]]:
    """The GPUs in view, in ``plan``'s style; ``top`` is the screen row they start at."""
    gpus = view.gpus
    first = view.gpu_offset
    shown = gpus[first : first + plan.gpus_shown]
    note = _hidden(view, first, len(gpus) - first - len(shown))
    # All rows give way to the note, so that their charts stay under each other.
    painter = _Painter(view, replace(plan, width=plan.width - len(note)))
    lines: list[Line] = []
    zones: list[Zone] = []
    for gpu in shown:
        drawn = painter.gpu(gpu)
        for row in range(len(drawn)):
            zones.append(Zone(top + len(lines) + row, 0, plan.width, "gpu", gpu.uuid))
        lines.extend(drawn)
    if note:
        blanks = ((" " * len(note), "text"),)
        lines = [line + blanks for line in lines[:-1]] + [(*lines[-1], (note, "warn"))]
    if painter.spans:
        view.chart_columns = max(width for _, width in painter.spans)
    if plan.axis:
        spans = painter.spans
        axis, axis_zones = time_axis.draw(view, view.window, spans, plan.width, top + len(lines))
        lines.append(axis)
        zones += axis_zones
    if plan.moment and gpus:
        gpu = gpus[view.gpu_position()]
        lines.append(time_axis.values(view, view.window, view.chart_columns, gpu, plan.width))
    return lines, zones


def _hidden(view: View, above: int, below: int) -> str:
    """How many GPUs are scrolled out of sight, or nothing."""
    glyphs = view.glyphs
    parts = [f" {glyphs.up}{above}"] if above else []
    if below:
        parts.append(f" {glyphs.down}{below}")
    return "".join(parts) + " GPUs" if parts else ""


def scaled_metrics(view: View, gpu: Gpu, columns: int) -> tuple[Metric, Metric, Metric, Metric]:
    """``metrics`` with every scale there is: ``columns`` is how much of the past is shown."""
    host_memory = None if view.snapshot is None else view.snapshot.host.memory_total_bytes
    identity, reading = gpu.identity, gpu.reading
    if reading.power_limit_watts or identity.power_limit_default_watts:
        return metrics(gpu, host_memory)
    peak = reading.power_watts
    series = view.history.gpu(gpu.uuid, "power_watts")
    if series is not None and columns > 0:
        grid = view.window.grid(columns)
        for column in series.columns(grid.moment, grid.column_seconds, grid.count):
            if column is not None and (peak is None or column[2] > peak):
                peak = column[2]
    return metrics(gpu, host_memory, peak)


def draw_lines(view: View, gpus: Sequence[Gpu], width: int, *, busy_chart: bool) -> list[Line]:
    """One line for each of ``gpus``, unmarked; without its busy chart where another shows it."""
    shape = Plan(
        width=width,
        height=len(gpus),
        finding_rows=0,
        problem_rows=0,
        gpu_style=GpuStyle.SINGLE,
        gpu_rows_each=1,
        gpus_shown=len(gpus),
        axis=False,
        moment=False,
        host_rows=0,
        table_rows=0,
        rules=False,
    )
    painter = _Painter(view, shape, gpus)
    draw_one = painter.gpu if busy_chart else painter.brief
    return [line for gpu in gpus for line in draw_one(gpu_then(view, gpu))]


def summary(view: View, gpus: Sequence[Gpu], width: int) -> Line:
    """Many GPUs in one line: what they have together, and the extremes."""
    busy = [gpu.reading.busy_percent for gpu in gpus if gpu.reading.busy_percent is not None]
    row = Row(width).add(f" {len(gpus)} GPUs", "title")
    if busy:
        low, high = round(min(busy)), round(max(busy))
        spread = f"{low}%" if low == high else f"{low}-{high}%"
        row.add("  busy ", "label").add(right(spread, 7), "value")
    used = [g.reading.memory_used_bytes for g in gpus if g.reading.memory_used_bytes is not None]
    totals = [g.identity.memory_total_bytes for g in gpus]
    if used and len(used) == len(gpus):
        known = [total for total in totals if total is not None]
        total = sum(known) if len(known) == len(gpus) else None
        text = units.size_of(sum(used), total)
        if row.room >= len(text) + 6:
            row.add("  mem ", "label").add(text, "value")
    watts = [gpu.reading.power_watts for gpu in gpus if gpu.reading.power_watts is not None]
    heat = [
        g.reading.temperature_celsius for g in gpus if g.reading.temperature_celsius is not None
    ]
    for label, text in (
        ("power", units.watts(sum(watts) if watts else None)),
        ("temp to", units.celsius(max(heat) if heat else None)),
    ):
        if row.room >= len(label) + len(text) + 3:
            row.add(f"  {label} ", "label").add(text, "value")
    lost = sum(gpu.lost for gpu in gpus)
    if lost:
        row.fits(f"  {view.glyphs.warning}{lost} lost", "error")
    held = sum(throttle_text(gpu.reading) is not None for gpu in gpus)
    if held:
        row.fits(f"  {view.glyphs.warning}{held} throttled", "warn")
    return row.line()


class _Painter:
    """Draws GPUs of one frame, all in the same style and on the same time window."""

    def __init__(self, view: View, plan: Plan, among: Sequence[Gpu] | None = None) -> None:
        self._view = view
        self._plan = plan
        self._window = view.window
        self._glyphs = view.glyphs
        self._marked = among is None
        gpus = view.gpus if among is None else among
        self._index_width = max((len(_index_text(gpu)) for gpu in gpus), default=1)
        self._name_width = max((len(short_name(gpu.identity.name)) for gpu in gpus), default=4)
        notes = (_note(gpu, self._glyphs, plan.width)[0] for gpu in gpus)
        self._note_width = max(map(len, notes), default=0)
        self.spans: list[time_axis.Span] = []
        """Where the charts of the last GPU stand, those of one line."""

    def gpu(self, gpu: Gpu) -> list[Line]:
        draw_style = {
            GpuStyle.STACKED: self._stacked,
            GpuStyle.PAIRED: self._paired,
            GpuStyle.SIDE: self._side,
            GpuStyle.DOUBLE: self._double,
            GpuStyle.SINGLE: self._single,
        }[self._plan.gpu_style]
        self.spans = []
        return draw_style(gpu_then(self._view, gpu))

    # -- parts ----------------------------------------------------------------------------

    def _lead(self, row: Row, gpu: Gpu) -> Row:
        """The selection mark, the index, and a sign or a blank: whether a finding names it."""
        selected = self._marked and gpu.uuid == self._view.selected_gpu
        focused = selected and self._view.focus == "gpus" and not self._view.in_findings
        row.add(self._glyphs.marker if selected else " ", "marker" if focused else "dim")
        row.add(right(_index_text(gpu), self._index_width), "title")
        finding = about_gpu(self._view.diagnosis, gpu.uuid)
        if finding is None:
            return row.add(" ")
        return row.add(sign(finding, self._glyphs), style_of(finding))

    def _heading(self, gpu: Gpu) -> Line:
        row = self._lead(Row(self._plan.width), gpu)
        name = gpu.identity.name if self._plan.width >= 76 else short_name(gpu.identity.name)
        row.add(fit(name, max(4, row.room - 23), self._glyphs.ellipsis), "title")
        for text, style in facts(gpu, self._view.slow_link):
            if row.room >= len(text) + 2:
                row.add("  ").add(text, style)
        return row.line()

    def _metrics(self, gpu: Gpu) -> tuple[Metric, Metric, Metric, Metric]:
        return scaled_metrics(self._view, gpu, self._plan.width)

    def _value(self, metric: Metric, width: int) -> tuple[str, str]:
        sign = self._glyphs.warning if metric.mood else ""
        return right(sign + metric.text, width), metric.mood or "value"

    def _chart(self, gpu: Gpu, metric: Metric, width: int, rows: int = 1) -> list[list[Run]]:
        style = metric.mood or metric.style
        if metric.limit is None:
            return [[(" " * max(0, width), style)] for _ in range(rows)]
        strip = self._view.strips.get((gpu.uuid, metric.name, width, rows))
        series = self._view.history.gpu(gpu.uuid, metric.name)
        return strip.draw(series, self._window, width, metric.limit, self._glyphs, style, rows)

    def _range(self, gpu: Gpu, metric: Metric, width: int) -> list[tuple[str, str]]:
        """Mean and extremes of what the busy chart shows; the others say enough themselves."""
        series = self._view.history.gpu(gpu.uuid, metric.name)
        if metric.name != "busy_percent" or series is None:
            return []
        grid = self._window.grid(width)
        columns = series.columns(grid.moment, grid.column_seconds, grid.count)
        known = [column for column in columns if column is not None]
        if not known:
            return []
        low, high = min(c[0] for c in known), max(c[2] for c in known)
        mean = sum(c[1] for c in known) / len(known)
        return [("mean", f"{mean:.0f}%"), ("range", f"{low:.0f}-{high:.0f}%")]

    # -- styles ---------------------------------------------------------------------------

    def _stacked(self, gpu: Gpu) -> list[Line]:
        width = self._plan.width
        lines = [self._heading(gpu)]
        lead = 2 + _LABEL_WIDTH + _VALUE_WIDTH + 2
        self.spans = [(lead, width - lead - 1)]
        heights = stacked_chart_rows(self._plan.gpu_rows_each)
        for metric, rows in zip(self._metrics(gpu), heights, strict=True):
            chart = self._chart(gpu, metric, width - lead - 1, rows)
            notes = self._range(gpu, metric, width - lead - 1) if rows >= 3 else []
            for number, drawn in enumerate(chart):
                row = Row(width)
                if number < rows - 1 and rows - 2 - number < len(notes):
                    label, text = notes[rows - 2 - number]
                    row.add("  " + left(label, _LABEL_WIDTH), "dim")
                    row.add(right(text, _VALUE_WIDTH), "dim")
                if number == rows - 1:
                    row.add("  " + left(metric.label, _LABEL_WIDTH), "label")
                    row.add(*self._value(metric, _VALUE_WIDTH))
                row.pad_to(lead - 1)
                row.add(self._glyphs.separator, "rule").add_runs(drawn, width - lead - 1)
                lines.append(row.line())
        return lines

    def _paired(self, gpu: Gpu) -> list[Line]:
        width = self._plan.width
        lines = [self._heading(gpu)]
        busy, memory, power, temperature = self._metrics(gpu)
        half = width // 2
        lead = 2 + _LABEL_WIDTH + _VALUE_WIDTH + 2
        self.spans = [(lead, half - lead - 1), (half + lead, width - half - lead - 1)]
        extra = self._plan.gpu_rows_each - 3
        heights = (1 + (extra + 1) // 2, 1 + extra // 2)
        for (one, other), rows in zip(((busy, power), (memory, temperature)), heights, strict=True):
            left_chart = self._chart(gpu, one, half - lead - 1, rows)
            right_chart = self._chart(gpu, other, width - half - lead - 1, rows)
            for number in range(rows):
                row = Row(width)
                last = number == rows - 1
                for metric, chart, start, chart_width in (
                    (one, left_chart, 0, half - lead - 1),
                    (other, right_chart, half, width - half - lead - 1),
                ):
                    row.pad_to(start)
                    if last:
                        row.add("  " + left(metric.label, _LABEL_WIDTH), "label")
                        row.add(*self._value(metric, _VALUE_WIDTH))
                    row.pad_to(start + lead - 1)
                    row.add(self._glyphs.separator, "rule")
                    row.add_runs(chart[number], chart_width)
                lines.append(row.line())
        return lines

    def _side(self, gpu: Gpu) -> list[Line]:
        width = self._plan.width
        busy, memory, power, temperature = self._metrics(gpu)
        side = min(46, width // 4)
        half = (width - side) // 2
        lead = _LABEL_WIDTH + _VALUE_WIDTH + 2
        self.spans = [(start + lead, half - lead - 1) for start in (side, side + half)]
        lines = []
        remaining = facts(gpu, self._view.slow_link)
        for number, pair in enumerate(((busy, power), (memory, temperature))):
            row = Row(width)
            if number == 0:
                self._lead(row, gpu)
                name = fit(short_name(gpu.identity.name), side - 12, self._glyphs.ellipsis)
                row.add(name, "title")
            else:
                row.add(" " * (1 + self._index_width))
            while remaining and row.used + len(remaining[0][0]) + 2 <= side - 1:
                text, style = remaining.pop(0)
                row.add("  " if number == 0 or row.used > 3 else " ").add(text, style)
            for metric, start in zip(pair, (side, side + half), strict=True):
                row.pad_to(start)
                row.add(left(metric.label, _LABEL_WIDTH), "label")
                row.add(*self._value(metric, _VALUE_WIDTH))
                row.add(" ").add(self._glyphs.separator, "rule")
                chart = self._chart(gpu, metric, half - lead - 1)[0]
                row.add_runs(chart, half - lead - 1)
            lines.append(row.line())
        return lines

    def _double(self, gpu: Gpu) -> list[Line]:
        width = self._plan.width
        busy, memory, power, temperature = self._metrics(gpu)
        row = self._lead(Row(width), gpu)
        name = left(short_name(gpu.identity.name), min(self._name_width, 12), self._glyphs.ellipsis)
        row.add(name, "title")
        if gpu.lost:
            row.add("  GPU is lost", "error")
        else:
            row.add(" busy ", "label").add(*self._value(busy, 4)).add(" ")
            row.add(self._glyphs.separator, "rule")
            room = row.room - 1
            self.spans = [(row.used, room)]
            row.add_runs(self._chart(gpu, busy, room)[0], room)
        second = Row(width).add(" " * (1 + self._index_width))
        numbers = (("mem", memory, 13), ("power", power, 8), ("temp", temperature, 7))
        for label, metric, size in numbers:
            if second.room >= len(label) + size + 2:
                second.add(f" {label} ", "label").add(*self._value(metric, size))
        for text, style in facts(gpu, self._view.slow_link):
            if second.room >= len(text) + 2:
                second.add("  ").add(text, style)
        return [row.line(), second.line()]

    def _single(self, gpu: Gpu) -> list[Line]:
        width = self._plan.width
        row = self._lead(Row(width), gpu)
        busy, memory, power, temperature = self._metrics(gpu)
        if width >= 60:
            name = left(
                short_name(gpu.identity.name), min(self._name_width, 10), self._glyphs.ellipsis
            )
            row.add(name, "title")
        if gpu.lost:
            row.add("  GPU is lost", "error")
            return [row.line()]
        cells = [(busy, 5)]
        # Memory's number is compact where there is no room for its total.
        if width >= 60:
            cells += [(memory, 13), (power, 9), (temperature, 7 if width >= 72 else 0)]
        else:
            cells += [(_compact(memory, gpu), 7)]
        cells = [(metric, size) for metric, size in cells if size]
        numbers = sum(size for _, size in cells) + len(cells) * 2 - (width < 60)
        room = max(0, width - row.used - numbers - self._note_width - 1)
        charts = len(cells) if room >= 64 else 2 if room >= 40 and len(cells) > 2 else 1
        share, spare = divmod(room, charts + 1)
        widths = [share * 2 + spare] + [share] * (charts - 1) if charts > 1 else [room]
        for position, (metric, size) in enumerate(cells):
            if row.room <= size:
                break
            row.add(" " if position or width >= 60 else "").add(*self._value(metric, size))
            if position < charts:
                row.add(self._glyphs.separator, "rule")
                chart = self._chart(gpu, metric, widths[position])[0]
                self.spans.append((row.used, widths[position]))
                row.add_runs(chart, widths[position])
        return [row.add(*_note(gpu, self._glyphs, width)).line()]

    def brief(self, gpu: Gpu) -> list[Line]:
        """One line without the busy chart: memory, power and temperature, then facts."""
        width = self._plan.width
        _, memory, power, temperature = self._metrics(gpu)
        row = self._lead(Row(width), gpu)
        name = left(short_name(gpu.identity.name), min(self._name_width, 16), self._glyphs.ellipsis)
        row.add(name, "title")
        if gpu.lost:
            return [row.add("  GPU is lost", "error").line()]
        chart = max(0, (width - 70) // 5) if width >= 90 else 0
        numbers = (("mem", memory, 13), ("power", power, 8), ("temp", temperature, 7))
        for label, metric, size in numbers:
            if row.room < len(label) + size + 3:
                break
            row.add(f"  {label} ", "label").add(*self._value(metric, size))
            if chart >= 6 and metric is not temperature:
                row.add(" ").add(self._glyphs.separator, "rule")
                row.add_runs(self._chart(gpu, metric, chart)[0], chart)
        for text, style in facts(gpu, self._view.slow_link):
            if row.room >= len(text) + 2:
                row.add("  ").add(text, style)
        return [row.line()]


def _note(gpu: Gpu, glyphs: Glyphs, width: int) -> tuple[str, str]:
    """What stands behind the numbers of a GPU that has one line, and its style."""
    throttled = throttle_text(gpu.reading)
    if throttled is not None:
        return f" {glyphs.warning}throttled" if width >= 100 else f" {glyphs.warning}", throttled[1]
    late = _lateness(gpu.reading) if width >= 60 else []
    return "".join(f" {text.removeprefix('up to ')}" for text, _ in late), "warn"


def _compact(metric: Metric, gpu: Gpu) -> Metric:
    used = units.size(gpu.reading.memory_used_bytes)
    return Metric(metric.label, metric.name, metric.style, used, metric.limit, metric.mood)


def _index_text(gpu: Gpu) -> str:
    identity = gpu.identity
    if identity.mig_instance is None:
        return str(identity.index)
    return f"{identity.index}.{identity.mig_instance}"
