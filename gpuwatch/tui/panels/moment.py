"""Under the charts: clock times with what was found when, and the values of a moment."""

from collections.abc import Callable

from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.pages.layout import Drawn, Page, Panel


def _draw_axis(page: Page, _rows: int) -> Drawn:
    line, zones = time_axis.draw(page.view, page.window, page.spans, page.width)
    return [line], zones


def axis(has_room: Callable[[Page], bool]) -> Panel:
    """The time axis of a page; asked once, before the values."""
    return Panel("axis", lambda page: 1 if has_room(page) else 0, _draw_axis)


def _rows(page: Page) -> int:
    """A row, and one for the axis: people who look at the past want to know when that was. The
    charts stay where they are."""
    missing = 1 - page.rows.get("axis", 1)
    if not time_axis.is_shown(page.view) or page.room <= 1 + missing:
        return 0
    if missing:
        page.give("axis", 1)
    return 1


def _draw(page: Page, _rows: int) -> Drawn:
    view, gpus = page.view, page.gpus
    selected = (gpu for gpu in gpus if gpu.uuid == view.selected_gpu)
    gpu = next(selected, gpus[0] if gpus else None)
    return [time_axis.values(view, page.window, view.chart_columns, gpu, page.width)], []


VALUES = Panel("values", _rows, _draw)
