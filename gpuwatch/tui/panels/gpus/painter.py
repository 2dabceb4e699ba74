"""One GPU, drawn in one of three densities: how busy it is gets the room, the rest is gauges."""

from collections.abc import Sequence

from gpuwatch.core import units
from gpuwatch.core.model import Gpu
from gpuwatch.tui.charts.past_readings import past_gpu
from gpuwatch.tui.pages.finding_words import about_gpu, severity_sign, style_of
from gpuwatch.tui.pages.grid import GpuStyle
from gpuwatch.tui.panels.gpus.metrics import (
    Metric,
    Metrics,
    brief_name,
    facts,
    late_text,
    placed_name,
    scaled_metrics,
    throttle_text,
)
from gpuwatch.tui.panels.gpus.state import State, duty, state_of
from gpuwatch.tui.terminal.frame import Line, Row, Run, blank, fit, left, right, written_over
from gpuwatch.tui.view import View

_LABEL_WIDTH = 7
_VALUE_WIDTH = 13
_TICK_WIDTH = 4
_STATE_WIDTH = 10
_NAME_WIDTH = 9
_NARROW, _BROAD = 60, 120
"""Widths below the first have room for the most needed numbers, from the second on for limits."""
_TICK_ROWS = 3
"""A chart of so many rows has ticks at 0, 50 and 100."""
_LESS_POWER, _MORE_POWER = 12, 18
"""Rows of a stacked GPU from which on its power has two, and three."""


class GpuPainter:
    """Draws GPUs of one frame, all in the same style and on the same time window. ``marked``: the
    selected one has a mark."""

    def __init__(self, view: View, gpus: Sequence[Gpu], width: int, *, marked: bool) -> None:
        self._view = view
        self._width = width
        self._glyphs, self._ellipsis = view.glyphs, view.glyphs.ellipsis
        self._window = view.window
        self._marked = marked
        self._index_width = max((len(units.gpu_label(gpu)) for gpu in gpus), default=1)
        self._name_width = max((len(placed_name(gpu.identity)) for gpu in gpus), default=4)
        self.spans: list[tuple[int, int]] = []
        """Where the charts of the last GPU stand, those of one line: first cell and width."""

    def draw(self, gpu: Gpu, style: GpuStyle, rows: int) -> list[Line]:
        """``gpu`` in exactly ``rows`` lines."""
        self.spans = []
        state = state_of(self._view, gpu)
        gpu = past_gpu(self._view, gpu)
        metrics = scaled_metrics(self._view, gpu, self._width)
        match style:
            case GpuStyle.STACKED:
                return self._stacked(gpu, state, metrics, rows)
            case GpuStyle.WIDE:
                return self._wide(gpu, state, metrics, rows)
            case GpuStyle.SINGLE:
                return [self._single(gpu, state, metrics)]

    # -- parts ----------------------------------------------------------------------------

    def _begin(self, gpu: Gpu, width: int) -> Row:
        """The selection mark, the index, and a sign or a blank: whether a finding names it."""
        view = self._view
        selected = self._marked and gpu.uuid == view.selected_gpu
        focused = selected and view.focus == "gpus" and not view.in_findings
        mark = self._glyphs.marker if selected else " "
        row = Row(width).add(mark, "marker" if focused else "dim")
        row.add(right(units.gpu_label(gpu), self._index_width), "title")
        finding = about_gpu(view.diagnosis, gpu.uuid)
        if finding is None:
            return row.add(" ")
        return row.add(severity_sign(finding.severity, self._glyphs), style_of(finding))

    def _add_name(self, row: Row, gpu: Gpu, most: int = _NAME_WIDTH) -> Row:
        width = min(self._name_width, most)
        return row.add(left(brief_name(gpu.identity, width), width, self._ellipsis), "title")

    def _add_facts(self, row: Row, gpu: Gpu) -> Row:
        for text, style in facts(gpu, self._view.slow_link):
            if row.room >= len(text) + 2:
                row.add("  ").add(text, style)
        return row

    def _value(self, metric: Metric, width: int, *, brief: bool = False) -> Run:
        sign = self._glyphs.warning if metric.mood else ""
        text = metric.brief if brief else metric.text
        return right(sign + text, width), metric.mood or "value"

    def _gauge(self, metric: Metric, width: int) -> list[Run]:
        """How much of its limit is reached, now; blank where either is not known."""
        if metric.value is None or not metric.limit:
            return [(" " * width, "text")]
        full = min(width, round(width * metric.value / metric.limit))
        solid = self._glyphs.solid
        return [(solid[4] * full, metric.style), (solid[1] * (width - full), "rule")]

    def _chart(self, gpu: Gpu, metric: Metric, style: str, width: int, rows: int) -> list[Line]:
        if metric.limit is None:
            return [blank(max(0, width))] * rows
        view = self._view
        strip = view.strips.get((gpu.uuid, metric.name, width, rows))
        series = view.history.gpu(gpu.uuid, metric.name)
        limit, glyphs = metric.limit, self._glyphs
        lines = strip.draw(series, self._window, width, limit, glyphs, style, rows)
        return [tuple(line) for line in lines]

    def _busy(
        self, gpu: Gpu, busy: Metric, state: State, lead: int, width: int, rows: int
    ) -> tuple[list[Line], list[Run]]:
        """The chart of how busy it is, and what it shows in words: state, mean and extremes."""
        self.spans.append((lead, width))
        lines = self._chart(gpu, busy, state.style, width, rows)
        series = self._view.history.gpu(gpu.uuid, busy.name)
        words: list[Run] = [(state.word, state.style)]
        known = []
        if series is not None and width > 0 and rows >= _TICK_ROWS:
            known = [c for c in self._window.grid(width).columns_of(series) if c is not None]
        if known:
            low, high = min(c[0] for c in known), max(c[2] for c in known)
            mean = sum(c[1] for c in known) / len(known)
            words.append((f"mean {mean:6.0f}%", "dim"))
            reach = "-".join(dict.fromkeys((f"{low:.0f}", f"{high:.0f}"))) + "%"
            words.append((f"range {right(reach, 7)}", "dim"))
        text = duty(self._view, gpu, self._window, width)
        if text is not None and len(text) + 2 <= width:
            lines[0] = written_over(lines[0], f" {text} ")
        return lines, words

    def _ticks(self, number: int, rows: int) -> str:
        """The scale beside row ``number`` of a chart, from the top."""
        text = {0: "100", rows // 2: "50", rows - 1: "0"}.get(number, "")
        return right(text, _TICK_WIDTH) if rows >= _TICK_ROWS else ""

    # -- styles ---------------------------------------------------------------------------

    def _stacked(self, gpu: Gpu, state: State, metrics: Metrics, rows: int) -> list[Line]:
        busy, memory, power, temperature = metrics
        lead = 2 + _LABEL_WIDTH + _VALUE_WIDTH + 2
        room = self._width - lead - 1
        high = 1 + (rows >= _LESS_POWER) + (rows >= _MORE_POWER)
        heading = self._begin(gpu, self._width)
        long = self._width >= 76 and gpu.identity.machine is None
        name = gpu.identity.name if long else placed_name(gpu.identity)
        heading.add(fit(name, max(4, heading.room - 23), self._ellipsis), "title")
        lines = [self._add_facts(heading, gpu).line()]
        watts = self._chart(gpu, power, power.mood or "area", room, high)
        of_busy = self._busy(gpu, busy, state, lead, room, rows - 2 - high)
        for metric, chart, words in ((busy, *of_busy), (power, watts, [])):
            for number, drawn in enumerate(chart):
                row = Row(self._width).add("  ")
                ticks = self._ticks(number, len(chart)) if metric is busy else ""
                if number == 0:
                    row.add(left(metric.label, _LABEL_WIDTH), "label")
                    row.add(*self._value(metric, _VALUE_WIDTH - len(ticks)))
                elif number <= len(words):
                    row.add(*words[number - 1])
                lines.append(self._charted(row.pad_to(lead - 1 - len(ticks)), ticks, drawn))
        row = Row(self._width).add("  ").add(left(memory.label, _LABEL_WIDTH), "label")
        row.add(*self._value(memory, _VALUE_WIDTH)).add(" ").add(self._glyphs.separator, "rule")
        half = (room - 19) // 2
        row.add_runs(self._gauge(memory, half), half).add("   temp ", "label")
        row.add(*self._value(temperature, 9)).add(" ").add(self._glyphs.separator, "rule")
        return [*lines, row.add_runs(self._gauge(temperature, half), half).line()]

    def _wide(self, gpu: Gpu, state: State, metrics: Metrics, rows: int) -> list[Line]:
        tall, narrow = rows - 1, self._width < _NARROW
        begin = self._begin(gpu, self._width)
        if not narrow:
            self._add_name(begin, gpu)
            # So much is needed by what stands below the name.
            begin.pad_to(2 + self._index_width + (_NAME_WIDTH if tall >= _TICK_ROWS else 0))
        begin.add(*self._value(metrics[0], 5))
        ticks = 0 if tall < _TICK_ROWS or narrow else _TICK_WIDTH
        lead = begin.used + ticks + 1
        chart, words = self._busy(gpu, metrics[0], state, lead, self._width - lead - 1, tall)
        lines = []
        for number, drawn in enumerate(chart):
            row = Row(self._width).add(" " * (2 + self._index_width)) if number else begin
            if 0 < number <= len(words) and not narrow:
                text, style = words[number - 1]
                row.add(text if row.used + len(text) < lead - ticks else "", style)
            row.pad_to(lead - 1 - ticks)
            lines.append(self._charted(row, self._ticks(number, tall) if ticks else "", drawn))
        last = Row(self._width).add(" " * (2 + self._index_width))
        if tall == 1 and not narrow:
            last.add(left(state.word, _STATE_WIDTH), state.style)
        return [*lines, self._add_numbers(last, gpu, metrics)]

    def _charted(self, row: Row, ticks: str, drawn: Line) -> Line:
        row.add(ticks, "dim").add(self._glyphs.separator, "rule")
        return row.add_runs(drawn, sum(len(text) for text, _ in drawn)).line()

    def _single(self, gpu: Gpu, state: State, metrics: Metrics) -> Line:
        """The numbers' places are the same in every row, whatever there is to note."""
        width, glyphs = self._width, self._glyphs
        busy, memory, power, temperature = metrics
        row = self._begin(gpu, width)
        brief = width < _BROAD
        if width >= _NARROW:
            if not brief:
                self._add_name(row, gpu).add(" ")
            row.add(left(state.word, _STATE_WIDTH), state.style)
        cells = (
            [(memory, 7), (power, 6), (temperature, 5)]
            if brief
            else [(memory, 14), (power, 10), (temperature, 8)]
        )
        cells = cells[: 1 if width < _NARROW else 3]
        row.add(*self._value(busy, 5)).add(glyphs.separator, "rule")
        room = max(0, width - row.used - sum(size for _, size in cells) - 3)
        chart, _ = self._busy(gpu, busy, state, row.used, room, 1)
        row.add_runs(chart[0], room).add(" ")
        late = late_text(gpu.reading) if width >= _NARROW else None
        for metric, size in cells[: None if late is None else 1]:
            row.fits(*self._value(metric, size, brief=brief))
        if late is not None:
            row.add(f" {late}", "warn")
        elif row.room > 1 and throttle_text(gpu.reading) is not None:
            row.pad_to(width - 1).add(glyphs.warning, "warn")
        return row.line()

    def brief(self, gpu: Gpu) -> Line:
        """One line without the busy chart."""
        state = state_of(self._view, gpu)
        gpu = past_gpu(self._view, gpu)
        row = self._add_name(self._begin(gpu, self._width), gpu, 16)
        if self._width >= _NARROW:
            row.add(" ").add(left(state.word, _STATE_WIDTH), state.style)
        return self._add_numbers(row, gpu, scaled_metrics(self._view, gpu, self._width))

    def _add_numbers(self, row: Row, gpu: Gpu, metrics: Metrics) -> Line:
        """Memory, power and temperature, each with its gauge where there is room; then facts."""
        width = self._width
        brief, labelled = width < 76, width >= _NARROW
        gap = ""
        gauge = 0 if brief else 4 if width < 100 else 6 if width < 150 else 12
        for metric, size in zip(metrics[1:], (7, 5, 4) if brief else (13, 8, 7), strict=True):
            label = f"{gap}{metric.label} ".replace("ory", "") if labelled else "  " if gap else " "
            if row.room < len(label) + size + gauge + 2:
                break
            row.add(label, "label").add_runs(self._gauge(metric, gauge), gauge)
            row.add(*self._value(metric, size + bool(gauge), brief=brief))
            gap = "  "
        return self._add_facts(row, gpu).line()
