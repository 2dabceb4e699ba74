"""Clock times under the charts, with what was found when; above the keys the values of a moment."""

from collections.abc import Callable

from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.pages.layout import Drawn, Page, Panel


def _draw_axis(page: Page, _rows: int) -> Drawn:
    line, zones = time_axis.draw(page.view, page.window, page.spans, page.width)
    return [line], zones


def axis(has_room: Callable[[Page], bool]) -> Panel:
    """The time axis of a page; asked once, before the values."""
    return Panel("axis", lambda page: 1 if has_room(page) else 0, _draw_axis)


def _draw(page: Page, _rows: int) -> Drawn:
    view, gpus = page.view, page.gpus
    selected = (gpu for gpu in gpus if gpu.uuid == view.selected_gpu)
    gpu = next(selected, gpus[0] if gpus else None)
    return time_axis.values(view, gpu, page.width), []


VALUES = Panel("values", lambda page: int(time_axis.is_shown(page.view) and page.room > 1), _draw)
"""Below the list, which alone gets shorter: nothing else moves when a cursor is set."""
