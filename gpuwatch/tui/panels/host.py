"""The host half: CPU, memory, disk, network, and who waits for them."""

from __future__ import annotations

from gpuwatch import units
from gpuwatch.model import Host
from gpuwatch.tui.charts import nice_ceiling
from gpuwatch.tui.frame import Line, Row, Run, left, right
from gpuwatch.tui.view import View

_MEGABYTE = 1024 * 1024


def draw(view: View, width: int, rows: int) -> list[Line]:
    """``rows`` lines about the host: one is a summary, three add charts, more add cores."""
    snapshot = view.snapshot
    if snapshot is None:
        return [((" " * width, "text"),)] * rows
    painter = _Painter(view, snapshot.host, width)
    if rows == 1:
        return [painter.summary()]
    if rows < 7:
        lines = [painter.cpu(), painter.memory_disk_network(), painter.cores()]
        if rows == 2:
            lines = [lines[0], lines[1]]
        return (lines + painter.pressure_lines())[:rows]
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
        """The scale of a rate: fixed steps above what the window shows, so that it rarely moves."""
        series = self._view.history.host(name)
        window = self._window
        highest = value or 0.0
        if series is not None and width > 0:
            moment = (window.last_bucket() + 0.5) * window.column_seconds
            for column in series.columns(moment, window.column_seconds, width):
                if column is not None and column[2] > highest:
                    highest = column[2]
        return nice_ceiling(highest, _MEGABYTE)

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
        return f"io-wait {right(units.percent(waits), 4)}", mood

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
                out.append((f"{name} {value:3.0f}%", "warn" if value >= 20 else "label"))
        return out

    # -- lines ----------------------------------------------------------------------------

    def summary(self) -> Line:
        """Everything that fits on one line, most important first."""
        host = self._host
        row = Row(self._width).add(" CPU ", "label").add(self._cpu_text(), "value")
        memory, mood = self._memory()
        spark = max(0, min(24, self._width - 66))
        if spark >= 8:
            row.add(" ").add_runs(self._chart("cpu_percent", spark, 100.0)[0])
        row.add("  mem " if self._width >= 50 else " mem ", "label").add(memory, mood)
        iowait, iowait_mood = self._iowait()
        row.fits("  " + iowait, iowait_mood)
        for name, read, wrote in (
            ("disk", host.disk_read_bytes_per_second, host.disk_write_bytes_per_second),
            ("net", host.network_receive_bytes_per_second, host.network_transmit_bytes_per_second),
        ):
            verb = ("r", "w") if name == "disk" else ("rx", "tx")
            text = (
                f"  {name} {verb[0]}{right(units.rate(read), 9)} {verb[1]}{right(units.rate(wrote), 9)}"
            )
            row.fits(text, "label")
        return row.line()

    def cpu(self) -> Line:
        row = Row(self._width).add(" ").add(left("cpu", 6), "label")
        row.add(left(self._cpu_text(), 13), "value").add(" ")
        notes: list[tuple[str, str]] = [self._iowait()]
        for text in (self._usable(), self._load()):
            if text is not None:
                notes.append((text, "label"))
        pressures = self._pressures()
        if pressures:
            notes.append(("waits: " + "  ".join(text for text, _ in pressures), "label"))
            if any(mood == "warn" for _, mood in pressures):
                notes[-1] = (notes[-1][0], "warn")
        tail: list[tuple[str, str]] = []
        room = self._width - row.used - 24
        for text, mood in notes:
            if len(text) + 2 <= room:
                tail.append((text, mood))
                room -= len(text) + 2
        chart = self._width - row.used - sum(len(text) + 2 for text, _ in tail) - 2
        chart = min(chart, max(24, self._width // 3))
        row.add(self._view.glyphs.separator, "rule")
        row.add_runs(self._chart("cpu_percent", chart, 100.0)[0])
        for text, mood in tail:
            row.add("  ").add(text, mood)
        return row.line()

    def cores(self) -> Line:
        """A bar for each core, now; as many as fit."""
        host = self._host
        row = Row(self._width).add(" ").add(left("cores", 6), "label")
        percents = host.core_percents or ()
        bars = self._view.glyphs.core
        room = row.room - 1
        text = "".join(
            " " if value is None else bars[max(1, min(8, round(value / 12.5)))] for value in percents
        )
        if len(text) > room:
            # Too many for one line: the busiest of each neighbouring few stands for them.
            group = -(-len(percents) // room)
            text = "".join(
                _busiest(percents[start : start + group], bars)
                for start in range(0, len(percents), group)
            )
        row.add(text, "host")
        return row.line()

    def memory_disk_network(self) -> Line:
        host = self._host
        memory, mood = self._memory()
        row = Row(self._width).add(" ").add(left("mem", 6), "label")
        row.add(left(memory, 13), mood).add(" ")
        disk = f"  disk r {right(units.rate(host.disk_read_bytes_per_second), 8)}" + (
            f" w {right(units.rate(host.disk_write_bytes_per_second), 8)} "
        )
        network = f"  net rx {right(units.rate(host.network_receive_bytes_per_second), 8)}" + (
            f" tx {right(units.rate(host.network_transmit_bytes_per_second), 8)} "
        )
        notes = [note for note in (self._shm(),) if note is not None]
        swap = self._swap()
        if swap is not None:
            notes.append((swap, "label"))
        wide = self._width >= 110
        parts = [disk, network] if self._width >= 90 else [disk]
        used = row.used + sum(len(part) for part in parts)
        tail = [(text, m) for text, m in notes if used + len(text) + 2 + 24 <= self._width]
        used += sum(len(text) + 2 for text, _ in tail)
        room = self._width - used - 3
        share = max(0, min(self._width // 6, room // (3 if wide else 1)))
        row.add(self._view.glyphs.separator, "rule")
        limit = host.memory_total_bytes or 1.0
        row.add_runs(self._chart("memory_used_bytes", share, limit, style="memory")[0])
        for part, name, value in (
            (disk, "disk_read_bytes_per_second", host.disk_read_bytes_per_second),
            (network, "network_receive_bytes_per_second", host.network_receive_bytes_per_second),
        ):
            if part not in parts:
                continue
            row.add(part, "label")
            if wide:
                row.add(self._view.glyphs.separator, "rule")
                row.add_runs(self._chart(name, share, self._ceiling(name, share, value))[0])
        for text, m in tail:
            row.add("  ").add(text, m)
        return row.line()

    def pressure_lines(self) -> list[Line]:
        return []

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
            row.pad_to(lead - 1).add(self._view.glyphs.separator, "rule").add_runs(drawn)
            lines.append(row.line())
        return lines

    def _rate(self, label: str, name: str, value: float | None) -> list[Line]:
        """A rate with its own ceiling, which the label names."""
        width = self._width - 23
        ceiling = self._ceiling(name, width, value)
        lines = self._metric(label, (units.rate(value), "value"), name, ceiling, "host")
        note = f" {self._view.glyphs.up}{units.rate(ceiling)}"
        row = Row(self._width - len(note))
        for text, style in lines[0]:
            row.add(text, style)
        return [(*row.line(), (note, "dim"))]

    def full(self, rows: int) -> list[Line]:
        """For a machine without a GPU: a chart a line, then a chart for every core."""
        host = self._host
        notes = Row(self._width).add(" ")
        for text in (self._load(), self._usable(), self._swap()):
            if text is not None and notes.room > len(text) + 3:
                notes.add(text + "   ", "label")
        shm = self._shm()
        if shm is not None:
            notes.fits(shm[0] + "   ", shm[1])
        notes.fits(self._iowait()[0] + "   ", self._iowait()[1])
        for text, mood in self._pressures():
            notes.fits("waits " + text + "   ", mood)
        grid_rows = max(0, rows - 8)
        tall = 2 if rows >= 8 else 1
        lines = self._metric(
            "cpu", (self._cpu_text(), "value"), "cpu_percent", 100.0, "host", tall
        )
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
        lines.append(notes.line())
        if grid_rows:
            lines += self._core_grid(grid_rows)
        else:
            lines = lines[:rows]
        return lines + [((" " * self._width, "text"),)] * (rows - len(lines))

    def _core_grid(self, rows: int) -> list[Line]:
        """A small chart over time for each core, in columns; the last cell says what is left out."""
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
                row.add(" ").add_runs(drawn[0])
            lines.append(row.line())
        return lines


def _busiest(percents: tuple[float | None, ...], bars: str) -> str:
    known = [value for value in percents if value is not None]
    if not known:
        return " "
    return bars[max(1, min(8, round(max(known) / 12.5)))]


