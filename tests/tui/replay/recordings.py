"""Recordings to be played, and the application that plays one, driven by keys and a clock."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual import events
from textual.keys import _character_to_key

from gpuwatch.recording.recorder import Recorder
from gpuwatch.recording.replay import Tape, open_tape
from gpuwatch.tui.app import replay_app
from gpuwatch.tui.panels.bars import replay_rows
from gpuwatch.tui.replay import Player
from tests.support.long_recording import BEGIN_UNIX_SECONDS, Piece, snapshots
from tests.tui.driving import TRUECOLOR, Driven, surroundings

BEGIN = BEGIN_UNIX_SECONDS
"""20:00:00 UTC."""
PIECES = (
    Piece("healthy", 300.0),
    Piece(None, 120.0),
    Piece("starved", 300.0),
    Piece("healthy", 180.0),
)
"""Starved from 20:07:00 to 20:12:00, after two minutes that nobody recorded."""
STARVED = BEGIN + 420.0
END = BEGIN + 895.0
_LIMIT_SECONDS = 60.0
"""Only ends a failing test."""


def recorded(path: Path, pieces: tuple[Piece, ...] = PIECES, interval: float = 5.0) -> Path:
    """As ``gpuwatch record`` writes it."""
    recorder = Recorder(path)
    for snapshot in snapshots(pieces, gpus=2, interval=interval):
        recorder.push(snapshot)
    recorder.close()
    return path


def tape_of(path: Path) -> Tape:
    return open_tape(str(path))


class HandClock:
    """Moves when it is told to; a second at a time at most, as a clock that is looked at does."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Played(Driven):
    """The running application over a recording."""

    clock: HandClock

    @property
    def player(self) -> Player:
        return self.app.player

    @property
    def bar(self) -> str:
        """Text of the bar, which is above the keys."""
        width, height = self.app.screen.size
        return "\n".join(self.lines[-1 - replay_rows(self.view, width, height) : -1])

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds of what is drawn."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.text
            await asyncio.sleep(0.01)
        await self.settle()

    async def arrived(self) -> None:
        """Wait until what was gone to is shown."""
        player = self.player
        await self.until(lambda: player.pending_seek is None and player.latest is not None)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, in frames of half a second, all of it played."""
        player = self.player
        # Once the whole file is known its past is read again, and no time passes meanwhile.
        if not player.tape.arriving:
            await self.known()
        while seconds > 0:
            self.clock.seconds += min(seconds, 0.5)
            seconds -= 0.5
            ticked = self.clock.seconds
            player.wake.set()
            await self.until(lambda at=ticked: player.clock.ticked_at >= at)  # type: ignore[misc]

    async def press_text(self, text: str) -> None:
        """Type ``text`` as a terminal sends it."""
        driver = self.app._driver
        for character in text:
            driver.send_message(events.Key(_character_to_key(character), character))
        await self.settle()

    async def go_to(self, text: str) -> None:
        """By the prompt."""
        await self.press_text(f":{text}")
        await self.press("enter")
        await self.arrived()

    async def known(self) -> None:
        """Wait until the overview is."""
        player = self.player
        await self.until(lambda: player.tape.progress >= 1.0)
        player.look_at_tape()
        await self.arrived()

    @property
    def now(self) -> float:
        """Seconds into the recording."""
        return self.player.state.now - BEGIN


@asynccontextmanager
async def played(
    tape: Tape, size: tuple[int, int] = (100, 30), **options: object
) -> AsyncIterator[Played]:
    """The application, standing paused at the beginning once it is there."""
    clock = HandClock()
    with surroundings(TRUECOLOR):
        app = replay_app(
            tape,
            simulated=True,
            environment=TRUECOLOR,
            monotonic=clock,
            **{"ascii_mode": False, "theme": "dark", "slow_link": False, **options},  # type: ignore[arg-type]
        )
    try:
        async with app.run_test(size=size) as pilot:
            drive = Played(app, pilot, None, None)  # type: ignore[arg-type]
            drive.clock = clock
            await drive.arrived()
            yield drive
    finally:
        app.player.close()
