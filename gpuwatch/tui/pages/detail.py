"""Detail of one GPU: its charts, every reading, its processes."""

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from textual.binding import BindingType

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading, XidError
from gpuwatch.core.source import ReadOptions
from gpuwatch.core.xids import xid_of
from gpuwatch.tui.keys import DETAIL_FOOTER, DETAIL_KEYS, bindings
from gpuwatch.tui.pages.layout import Drawn, Frame, Title, filled, has_boxes
from gpuwatch.tui.pages.screen import ScrolledScreen, SheetBody, draw_sheet
from gpuwatch.tui.panels import processes, time_axis
from gpuwatch.tui.panels.gpus import FED, held_up, scaled_metrics, state_of, throttle_text
from gpuwatch.tui.panels.time_axis import past_gpu, shown_gpu
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, blank, fit, left, right, spots
from gpuwatch.tui.view import View

# -- every reading, as (label, text, style) --------------------------------------------------------


Fact = tuple[str, str, str]
_Write = Callable[[Any], str]


def _flag(value: bool) -> str:
    return "yes" if value else "no"


def _clock(most: int | None) -> _Write:
    return ("{}MHz" if most is None else f"{{}}/{most}MHz").format


def readings(gpu: Gpu) -> tuple[list[Fact], list[str]]:
    """Known readings, in a fixed order, and the labels of what this GPU does not report."""
    everything = [*_identity(gpu.identity), *_moving(gpu)]
    if gpu.allocated_to is not None:
        everything.insert(0, ("allocated to", _jobs(gpu.allocated_to), "text"))
    if gpu.xid_errors:
        everything.insert(0, _xids(gpu.xid_errors))
    known = [(label, text, style) for label, text, style in everything if text is not None]
    missing = [label for label, text, _ in everything if text is None]
    return known, missing


def _jobs(numbers: Sequence[str]) -> str:
    return f"job {', '.join(numbers)}" if numbers else "no job"


_Maybe = tuple[str, str | None, str]


def _xids(errors: Sequence[XidError]) -> _Maybe:
    """Return the driver's errors, the newest first: ``31 (12:04:31), 43 x2 (11:58:02)``."""
    newest = sorted(errors, key=lambda error: -error.last_unix_seconds)
    texts = [
        f"{error.code}{f' x{error.times}' if error.times > 1 else ''}"
        f" ({time.strftime('%H:%M:%S', time.localtime(error.last_unix_seconds))})"
        for error in newest
    ]
    grave = any(xid_of(error.code).kind != "none" for error in errors)
    return "Xid errors", ", ".join(texts), "error" if grave else "warn"


def _identity(identity: GpuIdentity) -> list[_Maybe]:
    mig = {True: "on", False: "off", None: None}[identity.mig_mode]
    return [
        ("driver", identity.driver_version, "text"),
        ("CUDA", identity.cuda_version, "text"),
        ("compute capability", identity.compute_capability, "text"),
        ("PCI bus", identity.pci_bus_id, "text"),
        ("NUMA node", None if identity.numa_node is None else str(identity.numa_node), "text"),
        ("MIG", mig, "text"),
        ("UUID", identity.uuid, "dim"),
    ]


def _moving(gpu: Gpu) -> list[_Maybe]:
    identity, reading = gpu.identity, gpu.reading
    ages = dict(reading.late_readings)
    hot = identity.temperature_slowdown_celsius
    samples = reading.busy_samples
    reasons, reasons_style = _throttle(reading)
    power = "{:.0f}W (average)".format if reading.power_is_average else units.watts

    def fact(label: str, field: str, write: _Write, style: str = "text", other: str = "") -> _Maybe:
        """A reading with its age where it is late, or the ``other`` where there is none; ``!``:
        alarming where it is not zero."""
        value = getattr(reading, field)
        if value is None and other:
            value = getattr(reading, other)
        text = None if value is None else write(value)
        if text is not None and field in ages:
            text += f" ({units.age(ages[field])} old)"
        return label, text, ("error" if value else "text") if style == "!" else style

    return [
        fact("busy", "busy_percent", units.percent, "value"),
        ("fine samples", None if samples is None else f"{len(samples)} new", "text"),
        fact("memory controller", "memory_controller_percent", units.percent),
        fact("memory used", "memory_used_bytes", lambda _: units.gpu_memory(gpu), "value"),
        fact("power", "power_watts", power, "value"),
        fact("power limit", "power_limit_watts", units.watts),
        fact("temperature", "temperature_celsius", units.celsius, "value"),
        ("slowdown at", None if hot is None else units.celsius(hot), "text"),
        fact("memory temperature", "memory_temperature_celsius", units.celsius),
        fact("fan", "fan_percent", units.percent),
        fact("performance state", "performance_state", "P{}".format),
        fact("SM clock", "sm_clock_mhz", _clock(identity.sm_clock_max_mhz)),
        fact("memory clock", "memory_clock_mhz", _clock(identity.memory_clock_max_mhz)),
        fact("throttle reasons", "throttle_reasons", lambda _: reasons, reasons_style),
        ("throttled", *_durations(reading)),
        fact("PCIe link", "pcie_generation", lambda _: _link(gpu), other="pcie_width"),
        fact("PCIe rx (to GPU)", "pcie_rx_bytes_per_second", units.rate),
        fact("PCIe tx (to host)", "pcie_tx_bytes_per_second", units.rate),
        fact("NVLink rx", "nvlink_rx_bytes_per_second", units.rate),
        fact("NVLink tx", "nvlink_tx_bytes_per_second", units.rate),
        fact("SM active", "sm_active_percent", units.percent),
        fact("SM occupancy", "sm_occupancy_percent", units.percent),
        fact("tensor active", "tensor_active_percent", units.percent),
        fact("DRAM active", "dram_active_percent", units.percent),
        fact("encoder", "encoder_percent", units.percent),
        fact("decoder", "decoder_percent", units.percent),
        fact("energy", "energy_joules", lambda joules: f"{joules / 3.6e6:.3f}kWh"),
        fact("ECC corrected", "ecc_corrected_count", str),
        fact("ECC uncorrected", "ecc_uncorrected_count", str, "!"),
        fact(
            "remapped rows",
            "remapped_rows_correctable",
            lambda _: _remapped(reading),
            other="remapped_rows_uncorrectable",
        ),
        fact("remap failed", "remapped_rows_failed", _flag, "!"),
        fact("remap pending", "remapped_rows_pending", _flag, "!"),
    ]


def _throttle(reading: GpuReading) -> tuple[str, str]:
    held = throttle_text(reading)
    if held is not None:
        return held[0].removeprefix("throttled: "), held[1]
    reasons = [reason.replace("_", " ") for reason in reading.throttle_reasons or ()]
    return ", ".join(reasons) or "none", "text"


def _durations(reading: GpuReading) -> tuple[str | None, str]:
    """Return for how long it was throttled since the snapshot before, by reason, and a style."""
    if reading.throttle_durations is None:
        return None, "text"
    held = [d for d in reading.throttle_durations if d.seconds > 0 and d.reason != "gpu_idle"]
    texts = [f"{one.reason.replace('_', ' ')} {one.seconds:.2f}s" for one in held]
    return ", ".join(texts) or "0s", "warn" if held else "text"


def _link(gpu: Gpu) -> str:
    reading, identity = gpu.reading, gpu.identity
    now = f"gen{units.count(reading.pcie_generation)} x{units.count(reading.pcie_width)}"
    most = f"gen{units.count(identity.pcie_generation_max)} x{units.count(identity.pcie_width_max)}"
    return f"{now} of {most}"


def _remapped(reading: GpuReading) -> str:
    correctable = units.count(reading.remapped_rows_correctable)
    return f"{correctable} correctable, {units.count(reading.remapped_rows_uncorrectable)} not"


# -- the drawing -----------------------------------------------------------------------------------


_GIB = 1024.0**3
_SIDE_WIDTH = 46
_BUSY_LEAST, _CHART_LEAST = 7, 5
_WIDE = 110
_LEAD = 7
"""Cells before a chart, for its ticks."""


class _Chart(NamedTuple):
    title: str
    number: str
    name: str
    """Name of its series."""
    style: str
    limit: float
    """The scale goes from 0 to this, written in ``unit`` of so ``many`` units of the series."""
    unit: str = "%"
    many: float = 1.0


def draw(view: View, width: int, height: int, offset: int) -> tuple[Frame, int]:
    """Return the frame, and ``offset`` (how far the body is scrolled) brought into range."""
    if width < 20 or height < 6 or not view.gpus:
        return Frame(lines=[blank(width)] * height), 0
    live = view.gpus[view.gpu_position()]
    boxes = has_boxes(width, height)

    def body(width: int, room: int) -> SheetBody:
        area = width - _SIDE_WIDTH if width >= _WIDE else width
        view.chart_columns = max(1, area - _LEAD - 1)
        top = [] if boxes else [_title(view, live, width)]
        lines, zones = (_wide if width >= _WIDE else _narrow)(view, live, width, room - len(top))
        return top, lines, zones, time_axis.values(view, live, width)

    text, notes = _named(view, live)
    note, style = notes[0] if notes else ("", "label")
    title = Title(text, (), note, style)
    return draw_sheet(view, width, height, title, body, DETAIL_FOOTER, offset)


def _named(view: View, gpu: Gpu) -> tuple[str, list[Run]]:
    """Return ``GPU 0 of 8  NVIDIA H200``, and what is wrong with it."""
    count = f" of {len(view.gpus)}" if len(view.gpus) > 1 else ""
    whole = " ".join(filter(None, [gpu.identity.machine, gpu.identity.name]))
    name = fit(whole, 40, view.glyphs.ellipsis)
    throttled = throttle_text(gpu.reading)
    notes = [("GPU is lost", "error")] if gpu.lost else []
    return f"GPU {units.gpu_label(gpu)}{count}  {name}", [*notes, *filter(None, [throttled])]


def _title(view: View, gpu: Gpu, width: int) -> Line:
    text, notes = _named(view, gpu)
    row = Row(width).add(f" {text}", "title")
    for note in notes:
        row.add("   ").add(*note)
    return row.line()


def _charts(view: View, gpu: Gpu, columns: int) -> list[_Chart]:
    """Return the charts of ``gpu``, most important first."""
    gpu = shown_gpu(view, gpu)
    busy, memory, power, temperature = scaled_metrics(view, gpu, columns)
    reading, most_clock = gpu.reading, gpu.identity.sm_clock_max_mhz
    state = state_of(view, gpu)
    number = f"{busy.text}  {state.word}"
    out = [_Chart("busy", number, busy.name, FED.style, 100.0)]
    for title, metric, unit, many in (
        ("memory", memory, "G", _GIB),
        ("power", power, "W", 1.0),
        ("temperature", temperature, "C", 1.0),
    ):
        if metric.limit is not None:
            limit, style = metric.limit, metric.mood or "area"
            out.append(_Chart(title, metric.text, metric.name, style, limit, unit, many))
    if reading.sm_active_percent is not None:
        number = units.percent(reading.sm_active_percent)
        out.append(_Chart("SM active", number, "sm_active_percent", "area", 100.0))
    if reading.sm_clock_mhz is not None and most_clock is not None:
        number = f"{reading.sm_clock_mhz}/{most_clock}MHz"
        out.append(_Chart("SM clock", number, "sm_clock_mhz", "area", most_clock, ""))
    return out


def _drawn(view: View, gpu: Gpu, chart: _Chart, width: int, height: int) -> list[Line]:
    heading = Row(width).add("  " + chart.title, "label").add("  " + chart.number, "value").line()
    cells, rows = max(1, width - _LEAD - 1), height - 2
    series, key = view.history.gpu(gpu.uuid, chart.name), ("detail", gpu.uuid, chart.name)
    held = held_up(view, gpu) if chart.name == "busy_percent" else None
    drawn = view.chart(key, series, cells, chart.limit, chart.style, rows, None, held)
    lines = [heading]
    for number, runs in enumerate(drawn):
        shares = {0: 1.0, rows // 2: 0.5, rows - 1: 0.0}
        top = chart.limit / chart.many * shares.get(number, 0.0)
        tick = f"{top:.0f}{chart.unit}" if number in shares else ""
        row = Row(width).add(right(tick, _LEAD - 1), "dim").add(view.glyphs.separator, "rule")
        lines.append(row.add_runs(runs, cells).line())
    return [*lines, time_axis.draw(view, view.window, [(_LEAD, cells)], width)[0]]


def _wide(view: View, gpu: Gpu, width: int, room: int) -> Drawn:
    """Draw charts on the left, the busy one over their full width and higher than the others;
    readings on the right, processes below."""
    table = processes.processes_of_gpu(view, gpu.uuid, width, max(4, room // 5))
    facts = _facts(gpu, _SIDE_WIDTH - 2, view)
    area = width - _SIDE_WIDTH
    columns = 2 if area >= 110 else 1
    busy, *others = _charts(view, gpu, area)
    grid_room = max(room - len(table), _BUSY_LEAST)
    most = min(len(others) // columns, (grid_room - _BUSY_LEAST) // _CHART_LEAST)
    height = max(_CHART_LEAST, grid_room // (most + 2))
    grid = _drawn(view, gpu, busy, area, grid_room - most * height)
    zones = _spots(0, grid, 0, area)
    spare = ((" " * (area % columns), "text"),)
    for row in range(0, most * columns, columns):
        beside = [
            _drawn(view, gpu, one, area // columns, height) for one in others[row : row + columns]
        ]
        for place, chart in enumerate(beside):
            zones += _spots(len(grid), chart, place * (area // columns), area // columns)
        for parts in zip(*beside, strict=True):
            grid.append((*[run for part in parts for run in part], *spare))
    right_side = [(("  ", "text"), *fact) for fact in facts]
    rows = max(len(grid), len(facts))
    both = zip(filled(grid, area, rows), filled(right_side, _SIDE_WIDTH, rows), strict=True)
    body = [first + second for first, second in both]
    return body[: len(grid)] + table + body[len(grid) :], zones


def _spots(top: int, lines: Sequence[Line], left: int, width: int) -> list[Zone]:
    """Return where a chart with its heading, ``width`` cells wide, can be clicked."""
    return spots(top + 1, len(lines) - 1, left + _LEAD, max(1, width - _LEAD - 1))


def _narrow(view: View, gpu: Gpu, width: int, room: int) -> Drawn:
    """Draw charts, processes and readings one under the other; what does not fit is reached by
    scrolling."""
    busy, *others = _charts(view, gpu, width)
    body: list[Line] = []
    zones: list[Zone] = []
    for chart in (busy, *others[:3]):
        rows = max(_BUSY_LEAST, min(12, room // 2)) if chart is busy else _CHART_LEAST
        drawn = _drawn(view, gpu, chart, width, rows)
        zones += _spots(len(body), drawn, 0, width)
        body += drawn
    body += processes.processes_of_gpu(view, gpu.uuid, width, 6)
    body.append(blank(width))
    if width >= 80:
        half = width // 2
        facts = _facts(gpu, half, view)
        middle = (len(facts) + 1) // 2
        rest = ((" " * (width - 2 * half), "text"),)
        second_half = filled(facts[middle:], half, middle)
        body += [(*one, *two, *rest) for one, two in zip(facts, second_half, strict=False)]
    else:
        body += _facts(gpu, width, view)
    return body, zones


def _facts(gpu: Gpu, width: int, view: View) -> list[Line]:
    known, missing = readings(past_gpu(view, gpu))
    lines = []
    for label, text, style in known:
        row = Row(width).add(left(" " + label, 20), "label")
        row.add(fit(text, max(0, row.room), view.glyphs.ellipsis), style)
        lines.append(row.line())
    if missing and not gpu.lost:
        line = " not reported:"
        for label in missing:
            if len(line) + len(label) + 2 > width:
                lines.append(Row(width).add(line, "dim").line())
                line = "  "
            line += f" {label},"
        lines.append(Row(width).add(line.rstrip(","), "dim").line())
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
