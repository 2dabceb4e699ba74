"""Detail of one GPU: its charts, every reading, its processes."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from textual.binding import BindingType

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, XidError
from gpuwatch.core.registry import GPU, MAIN, OF_GPU, Field
from gpuwatch.core.source import ReadOptions
from gpuwatch.core.xids import xid_of
from gpuwatch.tui.keys import DETAIL_FOOTER, DETAIL_KEYS, bindings
from gpuwatch.tui.pages.layout import Drawn, Frame, Title, filled, has_boxes
from gpuwatch.tui.pages.screen import ScrolledScreen, SheetBody, draw_sheet
from gpuwatch.tui.panels import processes, time_axis
from gpuwatch.tui.panels.gpus import FED, held_up, scaled_metrics, state_of, throttle_text
from gpuwatch.tui.panels.time_axis import shown_gpu
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Run,
    Zone,
    blank,
    fit,
    left,
    right,
    spots,
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
        *("busy_percent", "busy_samples", "sm_active_percent", "sm_occupancy_percent"),
        *("tensor_active_percent", "memory_controller_percent", "dram_active_percent"),
        *("encoder_percent", "decoder_percent"),
    ),
    "memory, power, clocks": (
        *("memory_used_bytes", "power_watts", "power_limit_watts", "energy_joules"),
        *("temperature_celsius", "temperature_slowdown_celsius", "memory_temperature_celsius"),
        *("fan_percent", "performance_state", "sm_clock_mhz", "memory_clock_mhz"),
        *("throttle_reasons", "throttle_durations"),
    ),
    "links": (
        *("pcie_generation", "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"),
        *("nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second"),
    ),
    "health": _HEALTH,
    "identity": (
        *("driver_version", "cuda_version", "compute_capability", "pci_bus_id", "numa_node"),
        "mig_mode",
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
        if group == "health":
            facts += _errors(gpu)
            if _is_sound(gpu):
                facts.append(("ECC", "no errors, no remaps", "text"))
                found = {name: run for name, run in found.items() if run is None}
        for name, written in found.items():
            if written is None:
                missing.append(OF_GPU[name].label)
                continue
            age = f" ({units.age(ages[name])} old)" if name in ages else ""
            facts.append((OF_GPU[name].label, written[0] + age, written[1]))
    if gpu.allocated_to is not None:
        groups["identity"].append(("allocated to", _jobs(gpu.allocated_to), "text"))
    return groups, missing


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
        f" ({time.strftime('%H:%M:%S', time.localtime(error.last_unix_seconds))})"
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
    samples = gpu.reading.busy_samples
    return None if samples is None else (f"{len(samples)} since last poll", "text")


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
    return None if joules is None else (f"{units.energy(joules)} since driver load", "text")


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
    texts = [f"{one.reason.replace('_', ' ')} {one.seconds:.2f}s" for one in held]
    return ", ".join(texts) or "not since last poll", "text"


def _link(gpu: Gpu) -> Run | None:
    reading, identity = gpu.reading, gpu.identity
    if reading.pcie_generation is None and reading.pcie_width is None:
        return None
    now = f"gen{units.count(reading.pcie_generation)} x{units.count(reading.pcie_width)}"
    most = f"gen{units.count(identity.pcie_generation_max)} x{units.count(identity.pcie_width_max)}"
    return f"{now} of {most}", "text"


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


_GIB = 1024.0**3
_SIDE_WIDTH, _NARROW_SIDE_WIDTH = 47, 41
_BUSY_LEAST, _CHART_LEAST = 5, 3
_WIDE, _HALVED = 110, 72
"""Widths from which on the readings have so much room beside the charts."""
_LEAD = 7
"""Cells before a chart, for its ticks."""
_LABEL_WIDTH = 13
"""Cells for the label above a chart: the numbers of all stand under each other."""


class _Chart(NamedTuple):
    field: Field
    number: str
    style: str
    limit: float
    """The scale goes from 0 to this."""
    now: str = ""
    word: Run = ("", "text")
    """Reading of now, beside a number that is a mean."""

    def tick(self, share: float) -> str:
        """Return the value at this share of the scale."""
        value, symbol = share * self.limit, self.field.unit.symbol
        if symbol == "bytes":
            return f"{value / _GIB:.0f}G"
        return f"{value:.0f}{symbol if len(symbol) == 1 else ''}"


def draw(view: View, width: int, height: int, offset: int) -> tuple[Frame, int]:
    """Return the frame, and ``offset`` (how far the body is scrolled) brought into range."""
    if width < 20 or height < 6 or not view.gpus:
        return Frame(lines=[blank(width)] * height), 0
    live = view.gpus[view.gpu_position()]
    boxes = has_boxes(width, height)

    def body(width: int, room: int) -> SheetBody:
        view.chart_columns = max(1, width - _beside(width) - _LEAD - 1)
        top = [] if boxes else [_title(view, live, width)]
        lines, zones = _body(view, live, width, room - len(top))
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
    notes = [("GPU does not answer", "error")] if gpu.lost else []
    return f"GPU {units.gpu_label(gpu)}{count}  {name}", [*notes, *filter(None, [throttled])]


def _title(view: View, gpu: Gpu, width: int) -> Line:
    text, notes = _named(view, gpu)
    row = Row(width).add(f" {text}", "title")
    for note in notes:
        row.add("   ").add(*note)
    return row.line()


def _charts(view: View, gpu: Gpu, columns: int) -> list[_Chart]:
    """Return the charts of ``gpu``, most important first."""
    now, live = gpu.reading, view.timeline.moment is None and not gpu.lost
    gpu = shown_gpu(view, gpu)
    busy, memory, power, temperature = scaled_metrics(view, gpu, columns)
    reading, most_clock = gpu.reading, gpu.identity.sm_clock_max_mhz
    state = state_of(view, gpu)
    out = [_Chart(busy.field, busy.text, FED.hue, 100.0, word=(state.word, state.hue))]
    for metric in (memory, power, temperature):
        seen = metric.value is not None or view.history.gpu(gpu.uuid, metric.field.name)
        if metric.limit is not None and seen:
            out.append(_Chart(metric.field, metric.text, metric.mood or "area", metric.limit))
    for name, limit in (("sm_active_percent", 100.0), ("sm_clock_mhz", most_clock)):
        value, field = getattr(reading, name), GPU[name]
        if value is not None and limit is not None and field is not busy.field:
            number = field.text(value, limit if field.limit else None)
            out.append(_Chart(field, number, "area", limit))
    means = (busy.field.name, "power_watts", "sm_active_percent") if live else ()
    return [
        one._replace(now=f"now {one.field.text(getattr(now, one.field.name))}")
        if one.field.name in means
        else one
        for one in out
    ]


def _drawn(view: View, gpu: Gpu, chart: _Chart, width: int, height: int) -> list[Line]:
    row = Row(width).add("  ").add(left(chart.field.label, _LABEL_WIDTH), "label")
    value, slash, limit = chart.number.partition("/")
    row.add(value, "value").add(slash + limit, "label")
    for text, style in (chart.word, (chart.now, "dim")):
        row.add(f"  {text}" if text else "", style)
    heading = row.line()
    cells, rows = max(1, width - _LEAD - 1), height - 1
    name = chart.field.name
    series, key = view.history.gpu(gpu.uuid, name), ("detail", gpu.uuid, name)
    held = held_up(view, gpu.uuid) if chart.style == FED.hue else None
    drawn = view.chart(key, series, cells, chart.limit, chart.style, rows, None, held)
    lines = [heading]
    for number, runs in enumerate(drawn):
        shares = {0: 1.0, rows // 2: 0.5, rows - 1: 0.0}
        tick = chart.tick(shares[number]) if number in shares else ""
        row = Row(width).add(right(tick, _LEAD - 1), "dim").add(view.glyphs.separator, "rule")
        lines.append(row.add_runs(runs, cells).line())
    return lines


def _beside(width: int) -> int:
    """Return how many cells the readings have beside the charts; 0: they stand below."""
    return _SIDE_WIDTH if width >= _WIDE else _NARROW_SIDE_WIDTH if width >= _HALVED else 0


def _body(view: View, gpu: Gpu, width: int, room: int) -> Drawn:
    """Draw the charts, that of how busy it is higher than the others, on one time axis; the
    readings beside them, or below where that is too narrow; its processes."""
    side = _beside(width)
    area = width - side
    busy, *others = _charts(view, gpu, area)
    identity = [_uuid(gpu, width)]
    table = [*identity, *processes.processes_of_gpu(view, gpu.uuid, width, max(4, room // 5))]
    charts = max(room - len(table) - 1, _BUSY_LEAST)
    if not side or room < _BUSY_LEAST + len(others) * _CHART_LEAST + len(table) + 1:
        # The processes are reached by scrolling.
        charts = max(room - 1, _BUSY_LEAST + len(others) * _CHART_LEAST)
    each = max(_CHART_LEAST, charts // (len(others) + 2))
    lines, zones = list[Line](), list[Zone]()
    for chart in (busy, *others):
        rows = charts - each * len(others) if chart is busy else each
        drawn = _drawn(view, gpu, chart, area, rows)
        zones += spots(len(lines) + 1, rows - 1, _LEAD, max(1, area - _LEAD - 1))
        lines += drawn
    axis, clicks = time_axis.draw(view, view.window, [(_LEAD, max(1, area - _LEAD - 1))], area)
    zones += [zone._replace(y=len(lines)) for zone in clicks]
    lines.append(axis)
    names = [name for chart in (busy, *others) for name in (chart.field.name, chart.field.limit)]
    late = dict(gpu.reading.late_readings)
    said = {name for name in names if name and name not in late and _value(gpu, name) is not None}
    facts = _facts(gpu, side - 1 if side else width, view, said)
    if not side:
        return [*lines, *table, blank(width), *facts], zones
    shown = [((" ", "text"), *fact) for fact in facts]
    rows = max(len(lines), len(facts))
    both = zip(filled(lines, area, rows), filled(shown, side, rows), strict=True)
    body = [first + second for first, second in both]
    return body[: len(lines)] + table + body[len(lines) :], zones


def _uuid(gpu: Gpu, width: int) -> Line:
    """Draw the name by which scripts know it, whole."""
    return Row(width).add(" UUID  ", "label").add(gpu.uuid, "text").line()


def _facts(gpu: Gpu, width: int, view: View, said: Collection[str]) -> list[Line]:
    """Draw the readings but those that are ``said`` beside a chart."""
    groups, missing = grouped_readings(shown_gpu(view, gpu, facts=True), said)
    lines = []
    for group, facts in groups.items():
        lines += [Row(width).add(group, "title").line()] if facts else []
        for label, text, style in facts:
            row = Row(width).add(left(" " + label, 19, view.glyphs.ellipsis) + " ", "label")
            first, *rest = wrapped(text, row.room) or [""]
            lines.append(row.add(first, style).line())
            lines += [Row(width).add(" " * 20).add(one, style).line() for one in rest]
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
