"""Driving the real application with a keyboard, a mouse and snapshots of a simulated machine."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from gpuwatch.core.model import Snapshot
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.tui.app import GpuwatchApp
from gpuwatch.tui.controllers.diagnosis import Diagnoser
from gpuwatch.tui.pages.job import JobScreen
from gpuwatch.tui.pages.screen import CanvasScreen, Dialog
from gpuwatch.tui.terminal.frame import Zone, plain
from gpuwatch.tui.view import View
from tests.tui.scenes import Scene, scene

TRUECOLOR = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


# A key opens a dialog, which is mounted, laid out, focused and drawn: each is a message that
# brings about the next.
_ROUNDS = 5


class HandSource:
    """A source that is never read: the test hands the snapshots over itself."""

    def __init__(self, simulated: bool) -> None:
        self.simulated = simulated
        self.options = ReadOptions()

    def open(self) -> None:
        raise AssertionError("not to be opened")

    def read(self) -> Snapshot:
        raise AssertionError("not to be read")

    def close(self) -> None:
        """Nothing is held."""


class HandSampler(Sampler):
    """Delivers what ``feed`` is given instead of polling."""

    def __init__(self, source: HandSource) -> None:
        super().__init__(source, 1.0, clock=ManualClock(seconds=1000.0))
        self._fed: asyncio.Queue[tuple[Snapshot, asyncio.Future[None]]] = asyncio.Queue()

    async def run(self, deliver: Any) -> None:
        while True:
            self.latest, delivered = await self._fed.get()
            try:
                deliver(self.latest)
            except Exception as error:
                delivered.set_exception(error)
            else:
                delivered.set_result(None)

    async def feed(self, snapshot: Snapshot) -> None:
        """Have it delivered; what that raises is raised here."""
        delivered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._fed.put((snapshot, delivered))
        await asyncio.wait_for(delivered, 60)


class InATerminal(GpuwatchApp):
    """Draws past Textual's compositor, as it does in a terminal."""

    def write_directly(self, text: str) -> bool:
        return bool(text)


class Driven:
    """The running application, and what a test wants to know of it."""

    def __init__(
        self, app: GpuwatchApp, pilot: Pilot[int], source: HandSource, sampler: HandSampler
    ) -> None:
        self.app = app
        self.pilot = pilot
        self.source = source
        self.sampler = sampler
        self.ahead: Iterator[Snapshot] = iter(())

    @property
    def view(self) -> View:
        return self.app.view

    async def press(self, *keys: str) -> None:
        """Type ``keys`` (names, or single letters and digits) without a pause between them, then
        wait until all is done."""
        driver = self.app._driver
        for key in keys:
            assert len(key) > 1 or key.isalnum()
            driver.send_message(events.Key(key, key if len(key) == 1 else None))
        await self.settle()

    async def feed(self, *snapshots: Snapshot) -> None:
        for snapshot in snapshots:
            await self.sampler.feed(snapshot)
        await self.settle()

    async def settle(self) -> None:
        """Wait until every message, and those that follow from it, has been dealt with and drawn.
        (The pilot's own ``pause`` waits 20 ms or more for the processor to be idle.)"""
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
            if not await self.pilot._wait_for_screen():
                break
        if self.app.is_running:
            self.app.screen._on_timer_update()
            await self.pilot._wait_for_screen()

    async def next(self) -> Snapshot:
        """Feed the scene's next snapshot."""
        snapshot = next(self.ahead)
        await self.feed(snapshot)
        return snapshot

    @property
    def front(self) -> CanvasScreen:
        """The dashboard screen in front, behind any dialog."""
        for screen in reversed(self.app.screen_stack):
            if isinstance(screen, CanvasScreen):
                return screen
        raise AssertionError("no dashboard screen")

    @property
    def lines(self) -> list[str]:
        return [plain(line) for line in self.front.canvas.lines]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def job_screen(self) -> JobScreen:
        screen = self.front
        assert isinstance(screen, JobScreen)
        return screen

    @property
    def dialog(self) -> Dialog | None:
        screen = self.app.screen
        return screen if isinstance(screen, Dialog) else None

    @property
    def table(self) -> list[int]:
        """PIDs of the table's rows in sight, top to bottom."""
        return [int(zone.argument[0]) for zone in self.zones("process")]  # type: ignore[index]

    def zones(self, action: str) -> list[Zone]:
        return [zone for zone in self.front.shown.zones if zone.action == action]

    async def click(self, zone: Zone, *, times: int = 1) -> None:
        await self.click_at((zone.left + zone.right) // 2, zone.y, times=times)

    async def click_at(self, x: int, y: int, *, times: int = 1) -> None:
        """Press and release the button over a cell, as the terminal reports it."""
        for _ in range(times):
            self._mouse(events.MouseDown, x, y, button=1)
            self._mouse(events.MouseUp, x, y, button=1)
        await self.settle()

    async def wheel(self, x: int, y: int, step: int) -> None:
        """Turn the wheel by one notch over a cell."""
        self._mouse(events.MouseScrollDown if step > 0 else events.MouseScrollUp, x, y)
        await self.settle()

    def _mouse(self, kind: type[events.MouseEvent], x: int, y: int, button: int = 0) -> None:
        driver = self.app._driver
        where = {"x": x, "y": y, "delta_x": 0, "delta_y": 0, "button": button}
        held = {"shift": False, "meta": False, "ctrl": False}
        driver.process_message(
            kind(widget=None, **where, **held, screen_x=x, screen_y=y)  # type: ignore[arg-type]
        )


def pictures(folder: Path) -> list[Path]:
    """What was saved there."""
    return sorted(folder.glob("*.svg"))


@contextmanager
def surroundings(environment: dict[str, str]) -> Iterator[None]:
    """What Textual itself looks up about the terminal is what the application is told."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TERM", "COLORTERM", "NO_COLOR"):
            patch.delenv(name, raising=False)
            if name in environment:
                patch.setenv(name, environment[name])
        yield


@asynccontextmanager
async def driven(
    what: Scene | Snapshot | None = None,
    size: tuple[int, int] = (80, 24),
    *,
    environment: dict[str, str] | None = None,
    app_type: type[GpuwatchApp] = GpuwatchApp,
    engine: Diagnoser | None = None,
    **options: Any,
) -> AsyncIterator[Driven]:
    """The application over ``what`` (default: a starved machine with two GPUs), its picture
    drawn. With ``what`` a snapshot there is no past; the machine is then the one it describes.
    ``options``: those of ``GpuwatchApp``."""
    what = scene("starved", 2) if what is None else what
    past = what.past if isinstance(what, Scene) else (what,)
    source = HandSource(past[-1].simulated)
    sampler = HandSampler(source)
    environment = TRUECOLOR if environment is None else environment
    with surroundings(environment):
        # Recordings are never announced in the folder of whoever runs the tests.
        settings = {"ascii_mode": False, "theme": "dark", "slow_link": False} | options
        app = app_type(source, sampler, environment=environment, **settings)
        app.diagnosis.engine = engine
    try:
        async with app.run_test(size=size) as pilot:
            drive = Driven(app, pilot, source, sampler)
            for snapshot in past[:-1]:
                app.view.history.push(snapshot)
            if isinstance(what, Scene):
                drive.ahead = iter(what.later)
            await drive.feed(past[-1])
            yield drive
    finally:
        sampler.close()
