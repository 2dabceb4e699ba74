"""The host half: CPU, memory, disk, network, and who waits for them."""

from __future__ import annotations

from gpuwatch.core import units
from gpuwatch.core.model import Host
from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.charts.past_readings import host_then
from gpuwatch.tui.charts.strips import rate_ceiling
from gpuwatch.tui.terminal.frame import Line, Row, Run, left, right
from gpuwatch.tui.view import View

_MEGABYTE = 1024 * 1024


def draw(view: View, width: int, rows: int) -> list[Line]:
    """``rows`` lines about the host: one is a summary, three add charts, more add cores."""
    snapshot = view.snapshot
    if snapshot is None:
        return [((" " * width, "text"),)] * rows
    painter = _Painter(view, host_then(view, snapshot.host), width)
    if rows == 1:
        return [painter.summary()]
    if rows <= 3:
        return painter.halves(rows)
    return painter.full(rows)


class _Painter:
    def __init__(self, view: View, host: Host, width: int) -> None:
        self._view = view
        self._host = host
        self._width = width
        self._window = view.window

    # -- parts ----------------------------------------------------------------------------

    def _chart(
        self, name: str, width: int, limit: float, rows: int = 1, style: str = "host"
    ) -> list[list[Run]]:
        strip = self._view.strips.get(("host", name, width, rows))
        series = self._view.history.host(name)
        return strip.draw(series, self._window, width, limit, self._view.glyphs, style, rows)

    def _ceiling(self, name: str, width: int, value: float | None) -> float:
        series = self._view.history.host(name)
        return rate_ceiling(series, self._window, width, _MEGABYTE, value)

    def _cpu_text(self) -> str:
        host = self._host
        cores = "" if host.core_count is None else f" of {host.core_count}"
        return f"{right(units.percent(host.cpu_percent), 4)}{cores}"

    def _usable(self) -> str | None:
        """Said only where it differs from what the machine has."""
        host = self._host
        if host.usable_cores is None or host.usable_cores == host.core_count:
            return None
        why = "quota" if host.quota_cores == host.usable_cores else "affinity"
        return f"usable {host.usable_cores:g} ({why})"

    def _iowait(self) -> tuple[str, str]:
        waits = self._host.cpu_iowait_percent
        mood = "warn" if waits is not None and waits >= 10 else "label"
        return f"iowait {right(units.percent(waits), 4)}", mood

    def _load(self) -> str | None:
        host = self._host
        if host.load_average_1_minute is None:
            return None
        parts = (
            host.load_average_1_minute,
            host.load_average_5_minutes,
            host.load_average_15_minutes,
        )
        return "load " + " ".join(units.UNKNOWN if p is None else f"{p:.1f}" for p in parts)

    def _memory(self) -> tuple[str, str]:
        host = self._host
        text = units.size_of(host.memory_used_bytes, host.memory_total_bytes)
        used, total = host.memory_used_bytes, host.memory_total_bytes
        tight = used is not None and total is not None and total > 0 and used / total >= 0.95
        return (self._view.glyphs.warning + text if tight else text), "warn" if tight else "value"

    def _shm(self) -> tuple[str, str] | None:
        host = self._host
        used, total = host.shm_used_bytes, host.shm_total_bytes
        if used is None or total is None:
            return None
        full = total > 0 and used / total >= 0.9
        return f"shm {units.size_of(used, total)}", "warn" if full else "label"

    def _swap(self) -> str | None:
        host = self._host
        if not host.swap_total_bytes:
            return None
        return f"swap {units.size_of(host.swap_used_bytes, host.swap_total_bytes)}"

    def _pressures(self) -> list[tuple[str, str]]:
        host = self._host
        out = []
        for name, value in (
            ("cpu", host.pressure_cpu_some_percent),
            ("io", host.pressure_io_some_percent),
            ("mem", host.pressure_memory_some_percent),
        ):
            if value is not None:
                out.append((f"{name}-wait {value:3.0f}%", "warn" if value >= 20 else "label"))
        return out

    # -- lines ----------------------------------------------------------------------------

    def summary(self) -> Line:
        """Everything that fits on one line, most important first."""
        host = self._host
        row = Row(self._width).add(" CPU ", "label").add(self._cpu_text(), "value")
        memory, mood = self._memory()
        spark = max(0, min(24, self._width - 66))
        if spark >= 8:
            row.add(" ").add_runs(self._chart("cpu_percent", spark, 100.0)[0], spark)
        before = "  mem " if self._width >= 50 else " mem "
        if row.room >= len(before) + len(memory):
            row.add(before, "label").add(memory, mood)
        iowait, iowait_mood = self._iowait()
        row.fits("  " + iowait, iowait_mood)
        for name, read, wrote in (
            ("disk", host.disk_read_bytes_per_second, host.disk_write_bytes_per_second),
            ("net", host.network_receive_bytes_per_second, host.network_transmit_bytes_per_second),
        ):
            verb = ("r", "w") if name == "disk" else ("rx", "tx")
            for direction, value in zip(verb, (read, wrote), strict=True):
                row.fits(f"  {name} {direction}{right(units.rate(value), 9)}", "label")
        return row.line()

    def halves(self, rows: int) -> list[Line]:
        """Up to three lines of two cells: what the CPUs, the memory, the disks and the network
        do, and the facts that need no chart."""
        half = self._width // 2
        pairs = (
            (self._cpu_cell(half), self._cores_cell(self._width - half)),
            (self._memory_cell(half), self._rates_cell("disk", self._width - half)),
            (self._rates_cell("net", half), self._facts_cell(self._width - half)),
        )
        return [(*one.line(), *other.line()) for one, other in pairs[:rows]]

    def _cell(self, width: int, label: str, value: str, mood: str = "value") -> Row:
        """Aligned with the GPUs' charts above."""
        row = Row(width).add("  ").add(left(label, 7), "label")
        row.add(right(value, 13), mood).add(" ")
        return row.add(self._view.glyphs.separator, "rule")

    def _cpu_cell(self, width: int) -> Row:
        row = self._cell(width, "cpu", self._cpu_text())
        room = row.room - 1
        return row.add_runs(self._chart("cpu_percent", room, 100.0)[0], room)

    def _memory_cell(self, width: int) -> Row:
        text, mood = self._memory()
        row = self._cell(width, "memory", text, mood)
        limit = self._host.memory_total_bytes or 1.0
        room = row.room - 1
        chart = self._chart("memory_used_bytes", room, limit, style="memory")
        return row.add_runs(chart[0], room)

    def _rates_cell(self, label: str, width: int) -> Row:
        """Both directions, each with its chart and, where there is room, the chart's scale."""
        host = self._host
        parts = {
            "disk": (
                ("r", "disk_read_bytes_per_second", host.disk_read_bytes_per_second),
                ("w", "disk_write_bytes_per_second", host.disk_write_bytes_per_second),
            ),
            "net": (
                ("rx", "network_receive_bytes_per_second", host.network_receive_bytes_per_second),
                ("tx", "network_transmit_bytes_per_second", host.network_transmit_bytes_per_second),
            ),
        }[label]
        row = Row(width).add("  ").add(left(label, 4), "label")
        share = (width - row.used) // 2
        for direction, name, value in parts:
            end = row.used + share
            row.add(f" {direction}", "label").add(right(units.rate(value), 9), "value").add(" ")
            row.add(self._view.glyphs.separator, "rule")
            chart = max(0, end - row.used - 1)
            ceiling = self._ceiling(name, chart, value)
            scale = f" {self._view.glyphs.up}{units.size(ceiling)}"
            if chart - len(scale) >= 12:
                chart -= len(scale)
                row.add_runs(self._chart(name, chart, ceiling)[0], chart).add(scale, "dim")
            else:
                row.add_runs(self._chart(name, chart, ceiling)[0], chart)
            row.pad_to(end)
        return row

    def _cores_cell(self, width: int) -> Row:
        """A bar for each core, now; where they are too many, the busiest of each few."""
        row = Row(width).add("  ").add(left("cores", 7), "label")
        percents = self._host.core_percents or ()
        bars = self._view.glyphs.core
        group = max(1, -(-len(percents) // max(1, row.room - 1)))
        text = "".join(
            _busiest(percents[start : start + group], bars)
            for start in range(0, len(percents), group)
        )
        return row.add(text, "host")

    def _facts_cell(self, width: int) -> Row:
        row = Row(width).add("  ")
        for text, mood in self._facts():
            if len(text) + 2 <= row.room:
                row.add(text, mood).add("  ")
        return row

    def _facts(self) -> list[tuple[str, str]]:
        """What needs no chart, most telling first."""
        facts: list[tuple[str, str]] = []
        usable = self._usable()
        if usable is not None:
            facts.append((usable, "warn" if self._host.quota_cores is not None else "label"))
        facts.append(self._iowait())
        pressures = self._pressures()
        facts += [(f"{text}", mood) for text, mood in pressures if mood == "warn"]
        load = self._load()
        if load is not None:
            facts.append((load, "label"))
        shm = self._shm()
        if shm is not None:
            facts.append(shm)
        swap = self._swap()
        if swap is not None:
            facts.append((swap, "label"))
        facts += [(text, mood) for text, mood in pressures if mood != "warn"]
        return facts

    def _metric(
        self, label: str, value: tuple[str, str], name: str, limit: float, style: str, rows: int = 1
    ) -> list[Line]:
        lead = 22
        chart = self._chart(name, self._width - lead - 1, limit, rows, style)
        lines = []
        for number, drawn in enumerate(chart):
            row = Row(self._width)
            if number == rows - 1:
                row.add(" ").add(left(label, 7), "label").add(right(value[0], 12), value[1])
            row.pad_to(lead - 1).add(self._view.glyphs.separator, "rule")
            row.add_runs(drawn, self._width - lead - 1)
            lines.append(row.line())
        return lines

    def _rate(self, label: str, name: str, value: float | None) -> list[Line]:
        """A rate with its own ceiling, which the label names."""
        width = self._width - 23
        ceiling = self._ceiling(name, width, value)
        lines = self._metric(label, (units.rate(value), "value"), name, ceiling, "host")
        note = f" {self._view.glyphs.up}{units.rate(ceiling)}"
        if width < len(note) + 8:
            return lines
        row = Row(self._width - len(note))
        for text, style in lines[0]:
            row.add(text, style)
        return [(*row.line(), (note, "dim"))]

    def full(self, rows: int) -> list[Line]:
        """For a machine without a GPU: a chart a line, then a chart for every core."""
        host = self._host
        notes = Row(self._width).add(" ")
        for text, mood in self._facts():
            notes.fits(text + "   ", mood)
        grid_rows = max(0, rows - 9)
        tall = 2 if rows >= 8 else 1
        lines = self._metric("cpu", (self._cpu_text(), "value"), "cpu_percent", 100.0, "host", tall)
        lines += self._metric(
            "mem", self._memory(), "memory_used_bytes", host.memory_total_bytes or 1.0, "memory"
        )
        lines += self._rate("read", "disk_read_bytes_per_second", host.disk_read_bytes_per_second)
        lines += self._rate(
            "write", "disk_write_bytes_per_second", host.disk_write_bytes_per_second
        )
        lines += self._rate(
            "net rx", "network_receive_bytes_per_second", host.network_receive_bytes_per_second
        )
        lines += self._rate(
            "net tx", "network_transmit_bytes_per_second", host.network_transmit_bytes_per_second
        )
        if rows >= 9:
            lines.append(self._axis())
        lines.append(notes.line())
        if grid_rows:
            lines += self._core_grid(grid_rows)
        else:
            lines = lines[:rows]
        return lines + [((" " * self._width, "text"),)] * (rows - len(lines))

    def _axis(self) -> Line:
        lead = 22
        spans = [(lead, self._width - lead - 1)]
        self._view.chart_columns = max(1, self._width - lead - 1)
        return time_axis.draw(self._view, self._window, spans, self._width, 0)[0]

    def _core_grid(self, rows: int) -> list[Line]:
        """A small chart over time for each core, in columns, as many as fit."""
        percents = self._host.core_percents or ()
        columns = max(1, self._width // 20)
        cell = self._width // columns
        lines = []
        for row_number in range(rows):
            row = Row(self._width)
            for column in range(columns):
                core = column * rows + row_number
                if core >= len(percents):
                    break
                row.pad_to(column * cell)
                row.add(f" {core:3d} ", "dim").add(right(units.percent(percents[core]), 4), "text")
                strip = self._view.strips.get(("core", core, cell))
                drawn = strip.draw(
                    self._view.history.host_core(core),
                    self._window,
                    cell - 11,
                    100.0,
                    self._view.glyphs,
                    "host",
                )
                row.add(" ").add_runs(drawn[0], cell - 11)
            lines.append(row.line())
        return lines


def _busiest(percents: tuple[float | None, ...], bars: str) -> str:
    known = [value for value in percents if value is not None]
    if not known:
        return " "
    return bars[max(1, min(8, round(max(known) / 12.5)))]
