"""Watching all day leaves nothing behind."""

import asyncio
import gc
import weakref
from types import FunctionType

import pytest

from gpuwatch.diagnosis.engine import Engine
from gpuwatch.tui import app as app_module
from tests.support.churn import churning
from tests.tui.driving import InATerminal, driven
from tests.tui.scenes import scene

SNAPSHOTS = 10


def _garbage() -> list[str]:
    """Of all that only a collection frees: what is gpuwatch's own."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
    finally:
        gc.set_debug(0)
    found = [part if isinstance(part, FunctionType) else type(part) for part in gc.garbage]
    gc.garbage.clear()
    return [part.__qualname__ for part in found if part.__module__.startswith("gpuwatch")]


@pytest.mark.parametrize(
    "keys",
    [(), ("c",), ("enter",), ("j",), ("d", "enter")],
    ids=lambda keys: " ".join(keys) or "overview",
)
async def test_what_a_snapshot_leaves_goes_by_itself(keys: tuple[str, ...]) -> None:
    """On every screen, drawing snapshots makes no objects that only the garbage collector can
    free: it runs so rarely that they would pile up."""
    snapshots = list(churning(5 + SNAPSHOTS, 2, 1))
    async with driven(snapshots[0], (150, 50), app_type=InATerminal, make_engine=Engine) as drive:
        await drive.feed(*snapshots[1:5])
        await drive.press(*keys)
        gc.collect()
        gc.disable()
        try:
            await drive.feed(*snapshots[5:])
            assert _garbage() == []
        finally:
            gc.enable()


async def test_closed_screens_go() -> None:
    """Nothing keeps a screen, a dialog or the lines drawn of them once they are closed."""
    async with driven(scene("starved", 2), (150, 50)) as drive:
        gone: list[weakref.ref[object]] = []
        for key in ("question_mark", "enter", "j", "ctrl+p"):
            await drive.press(key)
            for widget in drive.app.screen.walk_children(with_self=True):
                gone += [weakref.ref(widget), weakref.ref(widget._styles_cache)]
            await drive.press("escape")
        del widget
        for _ in range(600):
            # A screen ends in a task of its own.
            await asyncio.sleep(0.05)
            gc.collect()
            if not any(kept() for kept in gone):
                break
        assert [kept() for kept in gone if kept() is not None] == []


async def test_what_has_piled_up_is_freed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the dashboard runs, a timer does it."""
    tidied = asyncio.Event()
    monkeypatch.setattr(app_module, "_TIDY_SECONDS", 0.001)
    monkeypatch.setattr(app_module.memory_trim, "tidy", tidied.set)
    async with driven():
        await asyncio.wait_for(tidied.wait(), 60)
