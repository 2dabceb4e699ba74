"""The overview as a pure drawing: from a view and a size to a frame of lines and zones."""

from gpuwatch.tui.keys import OVERVIEW_FOOTER
from gpuwatch.tui.pages.grid import grid, has_boxes
from gpuwatch.tui.pages.layout import (
    BOTTOM,
    Frame,
    Page,
    Title,
    edge_panel,
    laid_out,
    range_keys,
    too_small,
)
from gpuwatch.tui.panels import findings, footer, header, host, moment
from gpuwatch.tui.panels.gpus import panel as gpu_rows
from gpuwatch.tui.panels.processes import table
from gpuwatch.tui.panels.processes.order import rows
from gpuwatch.tui.view import View

_FOOTER = footer.panel(lambda _: OVERVIEW_FOOTER)
_AXIS = moment.axis(lambda page: page.grid.axis > 0)
_VERDICT = edge_panel("verdict", lambda _: Title("verdict", (("d", "why", "findings"),)))
_GPUS = edge_panel(
    "gpus", lambda page: Title("GPUs", (("enter", "open", "open"), *range_keys(page)))
)
_HOST = edge_panel("host", lambda page: Title("host", () if page.gpus else range_keys(page)))


def _of_processes(page: Page) -> Title:
    by = ("s", f"sort: {page.view.sort}", "sort")
    return Title("processes", (("/", "filter", "filter"), by, ("t", "tree", "tree")))


_PROCESSES = edge_panel("processes", _of_processes)

PANELS = (
    *(header.PANEL, _VERDICT, findings.PANEL),
    *(_GPUS, gpu_rows.PANEL, _AXIS, _HOST, host.PANEL),
    *(_PROCESSES, table.PANEL, moment.VALUES, BOTTOM, _FOOTER),
)
"""From top to bottom."""
_OF_GPUS = (_GPUS, gpu_rows.PANEL, _AXIS)
COMPETING = (moment.VALUES,)
"""What the person asks for takes its row from the table; all others have those of the grid."""

COMPETING_WITHOUT_GPU = (table.PANEL, host.PANEL, moment.VALUES)


def draw(view: View, width: int, height: int) -> Frame:
    """Exactly ``height`` lines of exactly ``width`` cells. Scroll offsets in ``view`` are brought
    into range so that the selections stay in sight."""
    if width < 20 or height < 4:
        return too_small(width, height, "20x4")
    columns = view.chart_columns
    frame = _draw(view, width, height)
    if view.chart_columns != columns and view.timeline.moment is not None:
        # The numbers beside the charts were those of other columns.
        frame = _draw(view, width, height)
    return frame


def _draw(view: View, width: int, height: int) -> Frame:
    gpus = view.gpus
    boxes = grid(width, height, len(gpus)).edges > 0 if gpus else has_boxes(width, height)
    page = Page(view, width - 2 * boxes, height, boxes, view.window, gpus, table=rows(view))
    if gpus:
        return laid_out(page, PANELS, COMPETING, table.PANEL)
    panels = [one for one in PANELS if one not in _OF_GPUS]
    return laid_out(page, panels, COMPETING_WITHOUT_GPU, table.PANEL)
