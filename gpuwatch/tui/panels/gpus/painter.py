"""One GPU, drawn in one of three densities."""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from gpuwatch.core import units
from gpuwatch.core.model import Gpu
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.charts.past_readings import past_gpu
from gpuwatch.tui.pages.finding_words import about_gpu, severity_sign, style_of
from gpuwatch.tui.panels.gpus.metrics import (
    Metric,
    Metrics,
    facts,
    late_text,
    scaled_metrics,
    short_name,
    throttle_text,
)
from gpuwatch.tui.terminal.frame import Line, Row, Run, blank, fit, left, right
from gpuwatch.tui.view import View

_LABEL_WIDTH = 7
_VALUE_WIDTH = 13


class GpuStyle(Enum):
    """How one GPU is drawn; the value is its least rows and least width."""

    STACKED = (5, 40)
    """A heading and a full-width chart each for busy, memory, power, temperature."""
    WIDE = (2, 50)
    """The busy chart over the full width, and a line with the rest below it."""
    SINGLE = (1, 0)
    """One line: numbers, and the busy chart in all the room that they leave."""

    @property
    def rows(self) -> int:
        return self.value[0]

    @property
    def least_width(self) -> int:
        return self.value[1]


def stacked_chart_rows(rows: int) -> tuple[int, ...]:
    """Heights of the busy, memory, power and temperature charts of a stacked GPU of ``rows``
    rows: the waveform grows first, then power, memory, temperature."""
    heights = [1, 1, 1, 1]
    growth = (0, 0, 0, 2, 0, 2, 1, 0, 3, 0, 2, 1, 0, 3, 0, 2, 1)
    for position in growth[: max(0, rows - 5)]:
        heights[position] += 1
    return tuple(heights)


class GpuPainter:
    """Draws GPUs of one frame, all in the same style and on the same time window. ``marked``: the
    selected one has a mark."""

    def __init__(self, view: View, gpus: Sequence[Gpu], width: int, *, marked: bool) -> None:
        self._view = view
        self._width = width
        self._glyphs = view.glyphs
        self._window = view.window
        self._marked = marked
        self._index_width = max((len(units.gpu_label(gpu)) for gpu in gpus), default=1)
        self._name_width = max((len(short_name(gpu.identity.name)) for gpu in gpus), default=4)
        notes = [_note(gpu, self._glyphs, width)[0] for gpu in gpus]
        self._note_width = max(map(len, notes), default=0)
        self.spans: list[tuple[int, int]] = []
        """Where the charts of the last GPU stand, those of one line: first cell and width."""

    def draw(self, gpu: Gpu, style: GpuStyle, rows: int) -> list[Line]:
        """``gpu`` in exactly ``rows`` lines."""
        self.spans = []
        gpu = past_gpu(self._view, gpu)
        metrics = scaled_metrics(self._view, gpu, self._width)
        match style:
            case GpuStyle.STACKED:
                return self._stacked(gpu, metrics, rows)
            case GpuStyle.WIDE:
                return self._wide(gpu, metrics, rows)
            case GpuStyle.SINGLE:
                return [self._single(gpu, metrics)]

    # -- parts ----------------------------------------------------------------------------

    def _begin(self, gpu: Gpu, width: int) -> Row:
        """The selection mark, the index, and a sign or a blank: whether a finding names it."""
        view = self._view
        selected = self._marked and gpu.uuid == view.selected_gpu
        focused = selected and view.focus == "gpus" and not view.in_findings
        row = Row(width).add(
            self._glyphs.marker if selected else " ", "marker" if focused else "dim"
        )
        row.add(right(units.gpu_label(gpu), self._index_width), "title")
        finding = about_gpu(view.diagnosis, gpu.uuid)
        if finding is None:
            return row.add(" ")
        return row.add(severity_sign(finding.severity, self._glyphs), style_of(finding))

    def _begin_named(self, gpu: Gpu, most: int) -> Row:
        """The same with the GPU's name in at most so many cells."""
        name_width = min(self._name_width, most)
        name = left(short_name(gpu.identity.name), name_width, self._glyphs.ellipsis)
        return self._begin(gpu, self._width).add(name, "title")

    def _heading(self, gpu: Gpu) -> Line:
        row = self._begin(gpu, self._width)
        name = gpu.identity.name if self._width >= 76 else short_name(gpu.identity.name)
        row.add(fit(name, max(4, row.room - 23), self._glyphs.ellipsis), "title")
        return self._add_facts(row, gpu).line()

    def _add_facts(self, row: Row, gpu: Gpu) -> Row:
        for text, style in facts(gpu, self._view.slow_link):
            if row.room >= len(text) + 2:
                row.add("  ").add(text, style)
        return row

    def _value(self, metric: Metric, width: int) -> Run:
        sign = self._glyphs.warning if metric.mood else ""
        return right(sign + metric.text, width), metric.mood or "value"

    def _chart(self, gpu: Gpu, metric: Metric, width: int, rows: int = 1) -> list[list[Run]]:
        style = metric.mood or metric.style
        if metric.limit is None:
            return [[(" " * max(0, width), style)] for _ in range(rows)]
        view = self._view
        strip = view.strips.get((gpu.uuid, metric.name, width, rows))
        series = view.history.gpu(gpu.uuid, metric.name)
        return strip.draw(series, self._window, width, metric.limit, self._glyphs, style, rows)

    def _block(self, gpu: Gpu, metric: Metric, rows: int) -> list[Line]:
        """Label, number and chart over the full width; above the number of a tall busy chart, what
        it shows is summed up."""
        lead = 2 + _LABEL_WIDTH + _VALUE_WIDTH + 2
        room = self._width - lead - 1
        self.spans.append((lead, room))
        above = self._range(gpu, metric, room) if rows >= 3 else []
        lines = []
        for number, drawn in enumerate(self._chart(gpu, metric, room, rows)):
            row = Row(self._width).add("  ")
            below = rows - 1 - number
            if below == 0:
                row.add(left(metric.label, _LABEL_WIDTH), "label")
                row.add(*self._value(metric, _VALUE_WIDTH))
            elif below <= len(above):
                label, text = above[below - 1]
                row.add(left(label, _LABEL_WIDTH), "dim").add(right(text, _VALUE_WIDTH), "dim")
            row.pad_to(lead - 1).add(self._glyphs.separator, "rule").add_runs(drawn, room)
            lines.append(row.line())
        return lines

    def _range(self, gpu: Gpu, metric: Metric, width: int) -> list[tuple[str, str]]:
        """Mean and extremes of what the busy chart shows; the others say enough themselves."""
        series = self._view.history.gpu(gpu.uuid, metric.name)
        if metric.name != "busy_percent" or series is None:
            return []
        known = [one for one in self._window.grid(width).columns_of(series) if one is not None]
        if not known:
            return []
        low, high = min(c[0] for c in known), max(c[2] for c in known)
        mean = sum(c[1] for c in known) / len(known)
        return [("mean", f"{mean:.0f}%"), ("range", f"{low:.0f}-{high:.0f}%")]

    # -- styles ---------------------------------------------------------------------------

    def _stacked(self, gpu: Gpu, metrics: Metrics, rows: int) -> list[Line]:
        lines = [self._heading(gpu)]
        for metric, height in zip(metrics, stacked_chart_rows(rows), strict=True):
            lines += self._block(gpu, metric, height)
        self.spans = self.spans[:1]
        return lines

    def _wide(self, gpu: Gpu, metrics: Metrics, rows: int) -> list[Line]:
        row = self._begin_named(gpu, 12)
        if gpu.lost:
            blanks = [blank(self._width)] * (rows - 1)
            return [row.add("  GPU is lost", "error").line(), *blanks]
        row.add(" busy ", "label").add(*self._value(metrics[0], 4)).add(" ")
        lead = row.used
        room = self._width - lead - 2
        self.spans.append((lead + 1, room))
        lines = []
        notes = self._range(gpu, metrics[0], room)
        for number, drawn in enumerate(self._chart(gpu, metrics[0], room, rows - 1)):
            if number:
                row = Row(self._width)
                if number <= len(notes):
                    label, text = notes[-number]
                    row.add(right(f"{label} {right(text, 6)}", lead - 1), "dim")
            row.pad_to(lead).add(self._glyphs.separator, "rule").add_runs(drawn, room)
            lines.append(row.line())
        second = Row(self._width).add(" " * (1 + self._index_width))
        return [*lines, self._add_numbers(second, gpu, metrics)]

    def _single(self, gpu: Gpu, metrics: Metrics) -> Line:
        width = self._width
        busy, memory, power, temperature = metrics
        row = self._begin_named(gpu, 10) if width >= 60 else self._begin(gpu, width)
        if gpu.lost:
            return row.add("  GPU is lost", "error").line()
        cells = [(busy, 5), (memory, 13), (power, 9), (temperature, 7)][: 4 if width >= 72 else 3]
        if width < 60:
            # Memory's number is compact where there is no room for its total.
            used = units.size(gpu.reading.memory_used_bytes)
            cells = [(busy, 5), (replace(memory, text=used), 7)]
        numbers = sum(size for _, size in cells) + len(cells) * 2 - (width < 60)
        room = max(0, width - row.used - numbers - self._note_width - 1)
        for position, (metric, size) in enumerate(cells):
            if row.room <= size:
                break
            row.add(" " if position or width >= 60 else "").add(*self._value(metric, size))
            if position == 0:
                row.add(self._glyphs.separator, "rule")
                self.spans.append((row.used, room))
                row.add_runs(self._chart(gpu, metric, room)[0], room)
        return row.add(*_note(gpu, self._glyphs, width)).line()

    def brief(self, gpu: Gpu) -> Line:
        """One line without the busy chart."""
        gpu = past_gpu(self._view, gpu)
        row = self._begin_named(gpu, 16)
        if gpu.lost:
            return row.add("  GPU is lost", "error").line()
        return self._add_numbers(row, gpu, scaled_metrics(self._view, gpu, self._width))

    def _add_numbers(self, row: Row, gpu: Gpu, metrics: Metrics) -> Line:
        """Memory, power and temperature, where there is room a chart of the power, which tells work
        from a busy wait; then facts."""
        _, memory, power, temperature = metrics
        chart = max(0, (self._width - 70) // 4) if self._width >= 90 else 0
        for label, metric, size in (
            ("mem", memory, 13),
            ("power", power, 8),
            ("temp", temperature, 7),
        ):
            if row.room < len(label) + size + 3:
                break
            row.add(f"  {label} ", "label").add(*self._value(metric, size))
            if chart >= 6 and metric is power:
                row.add(" ").add(self._glyphs.separator, "rule")
                row.add_runs(self._chart(gpu, metric, chart)[0], chart)
        return self._add_facts(row, gpu).line()


def _note(gpu: Gpu, glyphs: Glyphs, width: int) -> Run:
    """Note behind the numbers of a GPU that has one line, and its style."""
    throttled = throttle_text(gpu.reading)
    if throttled is not None:
        return f" {glyphs.warning}throttled" if width >= 100 else f" {glyphs.warning}", throttled[1]
    late = late_text(gpu.reading) if width >= 60 else None
    return "" if late is None else f" {late}", "warn"
