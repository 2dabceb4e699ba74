"""The mouse: clicks on rows, headings and keys, and the wheel."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gpuwatch.tui.charts.timeline import SPANS
from gpuwatch.tui.screens.detail import DetailScreen
from gpuwatch.tui.screens.dialogs.record import RecordDialog
from gpuwatch.tui.screens.findings import FindingsScreen
from gpuwatch.tui.screens.job import JobScreen
from tests.tui.driving import driven, pictures
from tests.tui.scenes import scene

SIZES = pytest.mark.parametrize("size", [(120, 40), (40, 12)], ids=str)


@SIZES
async def test_a_click_selects_a_gpu(size: tuple[int, int]) -> None:
    """Any of a GPU's lines can be clicked; a double click opens its detail."""
    async with driven(scene("starved", 2), size) as drive:
        second = drive.view.gpus[1].uuid
        zone = [zone for zone in drive.zones("gpu") if zone.argument == second][-1]
        await drive.press("tab")
        await drive.click(zone)
        assert (drive.view.focus, drive.view.selected_gpu) == ("gpus", second)
        await drive.click(zone, times=2)
        assert isinstance(drive.app.screen, DetailScreen)
        assert " GPU 1 of 2 " in drive.lines[1]


@SIZES
async def test_a_click_selects_a_process(size: tuple[int, int]) -> None:
    """The clicked row is the selected one, and the keys go on from there."""
    async with driven(scene("healthy", 2), size) as drive:
        zone = drive.zones("process")[-1]
        await drive.click(zone)
        assert drive.view.focus == "processes"
        assert drive.view.selected_row == zone.argument
        await drive.press("up", "down")
        assert drive.view.selected_row == zone.argument


@SIZES
async def test_a_click_on_a_heading_sorts_and_a_second_reverses(size: tuple[int, int]) -> None:
    """Every heading in sight sorts by its column; the one in force turns round."""
    async with driven(scene("healthy", 2), size) as drive:
        headings = [zone for zone in drive.zones("sort") if zone.argument is not None]
        assert len(headings) >= 3
        for zone in headings:
            if drive.view.sort == zone.argument:
                continue
            await drive.click(zone)
            assert (drive.view.sort, drive.view.reverse) == (zone.argument, False)
            await drive.click(zone)
            assert (drive.view.sort, drive.view.reverse) == (zone.argument, True)


async def test_every_key_in_the_footer_can_be_clicked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A click on a key in the footer is a press of that key."""
    monkeypatch.chdir(tmp_path)
    async with driven(scene("healthy", 2), (200, 50)) as drive:
        foot = {zone.action: zone for zone in drive.app.screen.shown.zones if zone.y == 49}  # type: ignore[attr-defined]

        async def click(action: str) -> None:
            # A message stands in place of the keys for some seconds.
            drive.view.message = None
            drive.app.drawing.redraw()
            await drive.click(foot.pop(action))

        await click("help")
        assert drive.dialog is not None
        await drive.press("escape")
        await click("pause")
        assert drive.view.paused
        await click("job")
        assert isinstance(drive.app.screen, JobScreen)
        await drive.press("escape")
        await click("findings")
        assert isinstance(drive.app.screen, FindingsScreen)
        await drive.press("escape")
        await click("mark")
        assert drive.view.mark is not None
        await click("sort")
        assert drive.view.sort == "sm"
        await click("tree")
        assert not drive.view.tree
        await click("end_process")
        assert "select a process" in drive.lines[-1]
        await click("faster")
        assert drive.view.interval_seconds == 0.5
        before = SPANS.index(drive.view.timeline.span_seconds)
        await click("zoom(1)")
        assert drive.view.timeline.span_seconds == SPANS[before + 1]
        await click("cursor")
        assert drive.view.timeline.cursor_seconds is not None
        await drive.press("c")
        assert drive.view.timeline.moment is None
        await click("scroll_time(-1)")
        assert drive.view.timeline.end_seconds is not None
        await drive.press("0")
        await click("all_processes")
        assert drive.view.all_processes
        await click("save_picture")
        assert pictures(tmp_path)
        await click("record")
        assert isinstance(drive.app.screen, RecordDialog)
        await drive.press("escape")
        theme = drive.app.theme
        await click("theme")
        assert drive.app.theme != theme
        await click("filter")
        await drive.press("x", "enter")
        assert drive.view.filter_text == "x"
        await click("open")
        assert isinstance(drive.app.screen, DetailScreen)
        await drive.press("escape")
        await click("quit")
        assert not drive.app.is_running
        assert foot == {}


@SIZES
async def test_a_click_on_nothing_does_nothing(size: tuple[int, int]) -> None:
    """The header and the host's lines are no buttons."""
    async with driven(scene("healthy", 2), size) as drive:
        before = drive.lines
        zones = {zone.y for zone in drive.app.screen.shown.zones}  # type: ignore[attr-defined]
        for y in set(range(size[1])) - zones:
            await drive.click_at(size[0] // 2, y)
        assert drive.lines == before


@SIZES
async def test_the_wheel_moves_what_it_is_over(size: tuple[int, int]) -> None:
    """Over the GPUs it selects the next, over the table it moves on by a few rows."""
    async with driven(scene("healthy", 2), size) as drive:
        first, second = drive.view.gpus
        y = drive.zones("gpu")[0].y
        await drive.wheel(3, y, 1)
        assert drive.view.selected_gpu == second.uuid
        await drive.wheel(3, y, -1)
        assert drive.view.selected_gpu == first.uuid
        y = drive.zones("process")[0].y
        await drive.wheel(3, y, 1)
        one = drive.view.selected_row
        await drive.wheel(3, y, 1)
        assert drive.view.selected_row not in {None, one}
        await drive.wheel(3, y, -1)
        assert drive.view.selected_row == one


async def test_a_click_does_not_answer_the_question_before_ending_a_process() -> None:
    """Only the keys decide there; a stray click neither sends a signal nor closes it."""
    what = dataclasses.replace(scene("healthy", 2).now, simulated=False)
    async with driven(what) as drive:
        await drive.press("tab")
        await drive.press("k")
        assert drive.dialog is not None
        await drive.click_at(40, 12)
        await drive.click_at(1, 1)
        assert drive.dialog is not None
        await drive.press("n")
        assert drive.dialog is None
