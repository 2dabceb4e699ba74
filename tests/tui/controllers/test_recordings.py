"""A recording made from the dashboard."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.recording.file import RecordingIndex, open_any
from tests.support.simulated import looks
from tests.tui.diagnoses import HandEngine, several
from tests.tui.driving import driven
from tests.tui.scenes import scene


def simulated(seconds: int, scenario: str = "starved", start: float = 5000.0) -> list[Snapshot]:
    """Snapshots a second apart."""
    return list(looks(scenario, seconds, gpus=2, clock=ManualClock(seconds=start)))


def recorded_in(folder: Path) -> Path:
    (path,) = folder.glob("*.jsonl.zst")
    return path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, to which a dashboard records."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def until(done: Callable[[], bool]) -> None:
    for _ in range(3000):
        if done():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it is not so after 30 seconds")


async def test_a_recording_from_the_dashboard_reads_back(here: Path) -> None:
    """W records what comes in to a file of our own; leaving ends it whole, and says where it is."""
    what = scene("starved", 2)
    async with driven(what) as drive:
        await drive.press("W")
        await drive.feed(next(drive.ahead), next(drive.ahead))
        path = recorded_in(here)
        assert mode_of(path) == 0o600
        drive.app.every_second()
        assert drive.view.recording is not None
    assert f"recorded 2 snapshots to {path}" in str(drive.app.drawing.farewell)
    with open_any(str(path)) as log:
        read = list(log.snapshots)
    assert [one.sequence for one in read] == [one.sequence for one in what.later[:2]]


async def test_a_recording_from_the_dashboard_has_what_the_dashboard_found(here: Path) -> None:
    """Its findings are those of the engine that is there: no second one looks at the snapshots."""
    what = scene("starved", 2)
    engine = HandEngine(several(what.now))
    async with driven(what, engine=engine) as drive:
        await drive.press("W")
        await drive.feed(*what.later[:3])
        await drive.press("W")
    assert len(engine.pushed) == 4
    index = RecordingIndex(str(recorded_in(here)))
    assert {one.rule for one in index.findings} == {one.rule for one in several(what.now).findings}


async def test_a_recording_that_cannot_begin_says_so(here: Path) -> None:
    """In a folder that is no more nothing is recorded, and a sentence says why."""
    os.rmdir(here)  # noqa: PTH106 - of a folder that is empty
    async with driven() as drive:
        await drive.press("W")
        assert "nothing can be recorded in this folder" in drive.lines[-2]
        assert drive.view.recording is None


async def test_a_deleted_recording_is_told_on_the_screen(here: Path) -> None:
    """Within a second, and what comes is recorded under the same name."""
    what = scene("starved", 2)
    async with driven(what) as drive:
        await drive.press("W")
        await drive.feed(next(drive.ahead))
        path = Path(recorded_in(here))
        recorder = drive.app.recording.recorder
        await until(lambda: recorder.state.snapshots == 1)
        os.unlink(path)  # noqa: PTH108 - of a few bytes
        await drive.feed(next(drive.ahead))
        await until(lambda: recorder.state.notice is not None)
        drive.app.every_second()
        await drive.settle()
        assert f"{path.name} was deleted during the recording" in drive.text
    with open_any(str(path)) as log:
        assert [one.sequence for one in log.snapshots] == [what.later[1].sequence]
