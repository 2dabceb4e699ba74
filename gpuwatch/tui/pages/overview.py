"""The overview as a pure drawing: from a view and a size to a frame of lines and zones."""

from gpuwatch.tui.keys import OVERVIEW_FOOTER
from gpuwatch.tui.pages.layout import Frame, Page, laid_out, rule, too_small
from gpuwatch.tui.panels import findings, footer, header, host, moment
from gpuwatch.tui.panels.gpus import panel as gpus
from gpuwatch.tui.panels.processes import table
from gpuwatch.tui.panels.processes.order import rows
from gpuwatch.tui.view import View

_FOOTER = footer.panel(lambda _: OVERVIEW_FOOTER)
_AXIS = moment.axis(lambda page: page.grid.axis > 0)
_RULE = rule(lambda page: page.grid.rules > 0 if page.gpus else page.height >= 30)

PANELS = (
    *(header.PANEL, findings.PANEL),
    *(gpus.PANEL, _AXIS, moment.VALUES, _RULE, host.PANEL, _RULE),
    *(table.PANEL, _FOOTER),
)
"""From top to bottom."""
COMPETING = (moment.VALUES,)
"""What the person asks for takes its row from the table; all others have those of the grid."""

PANELS_WITHOUT_GPU = (
    *(header.PANEL, findings.PANEL, host.PANEL, moment.VALUES, _RULE),
    *(table.PANEL, _FOOTER),
)
COMPETING_WITHOUT_GPU = (_RULE, table.PANEL, host.PANEL, moment.VALUES)


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
    page = Page(view, width, height, view.window, view.gpus, table=rows(view))
    if view.gpus:
        return laid_out(page, PANELS, COMPETING, table.PANEL)
    return laid_out(page, PANELS_WITHOUT_GPU, COMPETING_WITHOUT_GPU, table.PANEL)
