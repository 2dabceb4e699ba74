"""The GPUs of a job above its charts: a line each, or one for all."""

from collections.abc import Sequence

from gpuwatch.core import units
from gpuwatch.core.bounds import total
from gpuwatch.core.model import Gpu
from gpuwatch.tui.pages.grid import GpuStyle
from gpuwatch.tui.pages.layout import Drawn, Page, Panel
from gpuwatch.tui.panels.gpus.metrics import throttle_text
from gpuwatch.tui.panels.gpus.painter import GpuPainter
from gpuwatch.tui.panels.job.traces import kinds
from gpuwatch.tui.terminal.frame import Line, Row, right
from gpuwatch.tui.view import View


def _rows(page: Page) -> int:
    """A row for each GPU while they leave room for the rest, else one for all. What the GPUs do
    once the job has ended is not about it."""
    count, height = len(page.gpus), page.tall
    room = page.room - page.table_least - len(kinds(page))
    if page.decided["report"] or count == 0 or room < 1:
        return 0
    most = 1 if height < 20 else 2 if height < 30 else 4 if height < 40 else 8
    return count if count <= min(most, room) else 1


def _draw(page: Page, rows: int) -> Drawn:
    if rows != len(page.gpus):
        return [summary(page.view, page.gpus, page.width)], []
    painter = GpuPainter(page.view, page.gpus, page.width, marked=False)
    if not page.decided["each_gpu"] and rows > 1:
        # Their mean has the chart below.
        return [line for gpu in page.gpus for line in painter.draw(gpu, GpuStyle.SINGLE, 1)], []
    return [painter.brief(gpu) for gpu in page.gpus], []


PANEL = Panel("gpus", _rows, _draw)


def summary(view: View, gpus: Sequence[Gpu], width: int) -> Line:
    """Many GPUs in one line: what they have together, and the extremes."""
    readings = [gpu.reading for gpu in gpus]
    busy = [one.busy_percent for one in readings if one.busy_percent is not None]
    heat = [one.temperature_celsius for one in readings if one.temperature_celsius is not None]
    used = _whole([one.memory_used_bytes for one in readings])
    watts = _whole([one.power_watts for one in readings])
    row = Row(width).add(f" {len(gpus)} GPUs", "title")
    numbers = []
    if busy:
        low, high = round(min(busy)), round(max(busy))
        row.add("  busy ", "label")
        row.add(right(f"{low}%" if low == high else f"{low}-{high}%", 7), "value")
    if used is not None:
        whole = _whole([gpu.identity.memory_total_bytes for gpu in gpus])
        numbers.append(("mem", units.size_of(used, whole)))
    numbers.append(("power", units.watts(watts)))
    numbers.append(("temp to", units.celsius(max(heat, default=None))))
    for label, text in numbers:
        if row.room >= len(label) + len(text) + 3:
            row.add(f"  {label} ", "label").add(text, "value")
    lost = sum(gpu.lost for gpu in gpus)
    held = sum(throttle_text(one) is not None for one in readings)
    for count, what, style in ((lost, "lost", "error"), (held, "throttled", "warn")):
        if count:
            row.fits(f"  {view.glyphs.warning}{count} {what}", style)
    return row.line()


def _whole(values: Sequence[float | None]) -> float | None:
    """Their sum, where all are known."""
    return None if None in values else total(values)
