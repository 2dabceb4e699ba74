"""The mouse: clicks on rows, headings and keys, and the wheel."""

import pytest
from textual.actions import parse

from gpuwatch.tui.app import GpuwatchApp
from gpuwatch.tui.keys import (
    DETAIL_FOOTER,
    EVIDENCE_FOOTER,
    FINDINGS_FOOTER,
    JOB_FOOTER,
    OVERVIEW_FOOTER,
    REPORT_FOOTER,
)
from gpuwatch.tui.pages.detail import DetailScreen
from tests.tui.diagnoses import HandEngine, several
from tests.tui.driving import driven
from tests.tui.scenes import scene


async def test_a_click_selects_a_gpu() -> None:
    """Any of a GPU's lines can be clicked; a double click opens its detail."""
    async with driven(scene("starved", 2), (120, 40)) as drive:
        second = drive.view.gpus[1].uuid
        zone = [zone for zone in drive.zones("gpu") if zone.argument == second][-1]
        await drive.press("tab")
        await drive.click(zone)
        assert (drive.view.focus, drive.view.selected_gpu) == ("gpus", second)
        await drive.click(zone, times=2)
        assert isinstance(drive.app.screen, DetailScreen)
        assert " GPU 1 of 2 " in drive.lines[1]


async def test_a_click_selects_a_process() -> None:
    """The clicked row is the selected one, and the keys go on from there."""
    async with driven(scene("healthy", 2), (120, 40)) as drive:
        zone = drive.zones("process")[-1]
        await drive.click(zone)
        assert drive.view.focus == "processes"
        assert drive.view.selected_row == zone.argument
        await drive.press("up", "down")
        assert drive.view.selected_row == zone.argument
        await drive.click(zone, times=2)
        assert drive.job_screen.shown.table
        await drive.click(drive.zones("member")[1], times=2)
        assert isinstance(drive.app.screen, DetailScreen)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
@pytest.mark.parametrize("way", [(), ("j",), ("enter",), ("d", "enter")])
async def test_a_click_in_a_chart_sets_the_cursor(
    way: tuple[str, ...], size: tuple[int, int]
) -> None:
    """On every screen with charts, in each of their rows; none of them moves for it. A second click
    takes it back."""
    what = scene("starved", 2)
    async with driven(what, size, engine=HandEngine(several(what.now))) as drive:
        await drive.press(*way)
        charts = drive.zones("moment")
        assert len(charts) > 2
        for zone in (charts[0], charts[-1]):
            await drive.click_at(zone.left + (zone.right - zone.left) // 2, zone.y)
            timeline = drive.view.timeline
            at = drive.view.window.now - timeline.span_seconds / 2
            assert timeline.cursor_seconds == pytest.approx(at, abs=timeline.span_seconds / 10)
            assert "AGO" in drive.lines[0]
            # What scrolls may be covered by the line of the values.
            there = drive.zones("moment")
            assert there == charts[: len(there)]
            await drive.press("c")
        await drive.click(charts[1], times=2)
        assert drive.view.timeline.moment is None


async def test_a_click_on_a_heading_sorts_and_a_second_reverses() -> None:
    """Every heading in sight sorts by its column; the one in force turns round."""
    async with driven(scene("healthy", 2), (120, 40)) as drive:
        headings = [zone for zone in drive.zones("sort") if zone.argument is not None]
        assert len(headings) >= 3
        for zone in headings:
            if drive.view.sort == zone.argument:
                continue
            await drive.click(zone)
            assert (drive.view.sort, drive.view.reverse) == (zone.argument, False)
            await drive.click(zone)
            assert (drive.view.sort, drive.view.reverse) == (zone.argument, True)


FOOTERS = {
    (): OVERVIEW_FOOTER,
    ("j",): JOB_FOOTER,
    ("j", "R"): REPORT_FOOTER,
    ("enter",): DETAIL_FOOTER,
    ("d",): FINDINGS_FOOTER,
    ("d", "enter"): EVIDENCE_FOOTER,
}


@pytest.mark.parametrize("way", FOOTERS)
async def test_every_key_in_the_footer_can_be_clicked(
    way: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A click on a key in the footer runs that key's action, of the screen or the application."""
    done: list[str] = []

    async def run_action(app: GpuwatchApp, action: str, *places: object) -> bool:
        name = action.removeprefix("app.")
        assert action != name or hasattr(app.screen, f"action_{parse(name)[1]}")
        assert action == name or callable(app._own_actions.get(parse(name)[1], app.action_quit))
        done.append(name)
        return True

    what = scene("healthy", 2)
    async with driven(what, (200, 50), engine=HandEngine(several(what.now))) as drive:
        for key in way:
            await drive.press(key)
        foot = [zone for zone in drive.front.shown.zones if zone.y == 49]
        with monkeypatch.context() as patch:
            patch.setattr(GpuwatchApp, "run_action", run_action)
            for zone in foot:
                await drive.click(zone)
    # It prints nothing and has no report to scroll; q leads back, where j did.
    without = {"o", "j", "up down"} if way == ("j",) else set()
    wanted = [action for key, _, action in FOOTERS[way] if key not in without]
    assert done == [zone.action for zone in foot]
    assert done == list(dict.fromkeys(wanted))


async def test_a_click_on_nothing_does_nothing() -> None:
    """The header and the host's lines are no buttons."""
    async with driven(scene("healthy", 2), (120, 40)) as drive:
        before = drive.lines
        zones = {zone.y for zone in drive.app.screen.shown.zones}  # type: ignore[attr-defined]
        for y in set(range(40)) - zones:
            await drive.click_at(60, y)
        assert drive.lines == before


async def test_the_wheel_moves_what_it_is_over() -> None:
    """Over the GPUs it selects the next, over the table it moves on by a few rows."""
    async with driven(scene("healthy", 2), (120, 40)) as drive:
        first, second = drive.view.gpus
        y = drive.zones("gpu")[0].y
        await drive.wheel(3, y, 1)
        assert drive.view.selected_gpu == second.uuid
        await drive.wheel(3, y, -1)
        assert drive.view.selected_gpu == first.uuid
        drive.view.folded = False
        drive.app.drawing.redraw()
        y = drive.zones("process")[0].y
        await drive.wheel(3, y, 1)
        one = drive.view.selected_row
        await drive.wheel(3, y, 1)
        assert drive.view.selected_row not in {None, one}
        await drive.wheel(3, y, -1)
        assert drive.view.selected_row == one
