"""Many machines on one screen, and the application that shows it until one of them is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from textual import events
from textual.binding import BindingType
from textual.screen import Screen

from gpuwatch.core.model import Snapshot
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import Source
from gpuwatch.recording.hosts.remote import RemoteTape
from gpuwatch.tui.app import GpuwatchApp
from gpuwatch.tui.keys import FLEET_KEYS, NOT_IN_FLEET, bindings
from gpuwatch.tui.pages import fleet as page
from gpuwatch.tui.pages.fleet import SORTS, Fleet, Member
from gpuwatch.tui.pages.layout import Frame
from gpuwatch.tui.screens.canvas_screen import END, CanvasScreen
from gpuwatch.tui.terminal.frame import Zone
from gpuwatch.tui.view import View


class FleetScreen(CanvasScreen):
    """Draws ``fleet.draw``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(FLEET_KEYS)
    CANVAS_ID = "fleet"

    def __init__(self, view: View, fleet: Fleet, opens: Callable[[Member], object]) -> None:
        super().__init__(view)
        self.fleet = fleet
        self._opens = opens

    def drawn(self, width: int, height: int) -> Frame:
        return page.draw(self.view, self.fleet, width, height)

    def action_move(self, step: int) -> None:
        rows = [one.host.name for one in self.fleet.rows(self.view.filter_text)]
        if rows:
            here = rows.index(self.fleet.selected) if self.fleet.selected in rows else 0
            self.fleet.selected = rows[max(0, min(here + step, len(rows) - 1))]
        self.redraw()

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.size.height - 4))

    def action_edge(self, end: int) -> None:
        self.action_move(END if end else -END)

    def action_clear(self) -> None:
        self.view.filter_text = ""
        self.redraw()

    def action_sort(self) -> None:
        fleet = self.fleet
        fleet.sort = SORTS[(SORTS.index(fleet.sort) + 1) % len(SORTS)]
        self.redraw()

    def action_reverse(self) -> None:
        self.fleet.reverse = not self.fleet.reverse
        self.redraw()

    def action_open(self) -> None:
        if (one := self.fleet.chosen) is not None:
            self._opens(one)

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        if zone.action != "host":
            await super().clicked(zone, event)
        elif self.fleet.selected == zone.argument and event.chain > 1:
            self.action_open()
        else:
            self.fleet.selected = str(zone.argument)
            self.redraw()

    async def wheel(self, y: int, step: int) -> None:
        del y
        self.action_move(step)


class _NoSampler(Sampler):
    """Nothing of this machine is read; a look at the others once an interval."""

    def __init__(self, source: Source, interval_seconds: float, look: Callable[[], None]) -> None:
        super().__init__(source, interval_seconds)
        self._look = look

    async def run(self, deliver: Callable[[Snapshot], None]) -> None:
        del deliver
        while True:
            self._look()
            await asyncio.sleep(self.interval_seconds)

    @property
    def overdue(self) -> bool:
        return False


class FleetApp(GpuwatchApp):
    """Ends with ``opened`` set once a machine or a job is chosen. ``opens``: the only machine, or
    the first job on several of them, opens by itself as soon as it can."""

    def __init__(self, source: Source, fleet: Fleet, opens: bool, **options: Any) -> None:
        self.fleet = fleet
        self.opened: RemoteTape | None = None
        self._opens = opens
        interval = max([one.host.interval_seconds for one in fleet.members])
        super().__init__(source, _NoSampler(source, interval, self._look), **options)
        self.view.fleet, self.view.filter_text = True, fleet.filter_text
        self._fleet_screen = FleetScreen(self.view, fleet, self._open)

    def get_default_screen(self) -> Screen[None]:
        return self._fleet_screen

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in NOT_IN_FLEET and super().check_action(action, parameters)

    def _look(self) -> None:
        self.fleet.look()
        alone = self.fleet.members if len(self.fleet.members) == 1 else ()
        for one in (*self.fleet.jobs, *alone):
            if self._opens and one.host.latest is not None and one.host.tape is not None:
                self._opens = False
                self._open(one)
        self.drawing.redraw()

    def action_copy_host(self) -> None:
        if (one := self.fleet.chosen) is not None:
            self.drawing.copy(one.said()[-1])

    def _open(self, one: Member) -> None:
        if one.host.latest is None or one.host.tape is None:
            self.drawing.answer(one.said()[0])
        else:
            self.opened, self.fleet.filter_text = one.host, self.view.filter_text
            self.exit()
