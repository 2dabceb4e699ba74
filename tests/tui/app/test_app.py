"""The application as a whole: sizes, states, environments."""

import asyncio
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gpuwatch.tui.app import GpuwatchApp
from gpuwatch.tui.charts.strips import (
    ASCII,
    BARS,
    COLOURLESS,
    DOTS,
    FILLED_ASCII,
    SHADED_ASCII,
    UNICODE,
)
from gpuwatch.tui.display import Display, theme_name
from gpuwatch.tui.keys import BESIDE, described
from gpuwatch.tui.pages.dialogs import Help
from gpuwatch.tui.pages.findings import EvidenceScreen
from gpuwatch.tui.pages.job import ReportScreen
from gpuwatch.tui.panels.gpus import STATES
from gpuwatch.tui.terminal.driver import error_of
from gpuwatch.tui.terminal.frame import plain
from tests.tui.diagnoses import HandEngine, diagnosis, several, starved
from tests.tui.driving import TRUECOLOR, HandSampler, HandSource, driven, surroundings
from tests.tui.scenes import scene


@pytest.mark.parametrize("way", [(), ("j",)], ids=["overview", "job"])
async def test_resizing_while_running_always_fills_the_screen(way: tuple[str, ...]) -> None:
    """Large, small, narrow, flat and back: every size gets a whole picture at once."""
    async with driven(scene("starved", 8), (80, 24)) as drive:
        await drive.press(*way)
        for width, height in ((200, 50), (40, 12), (20, 3), (120, 40), (33, 7), (80, 24)):
            await drive.pilot.resize_terminal(width, height)
            await drive.settle()
            assert len(drive.lines) == height
            assert {len(line) for line in drive.lines} == {width}
            await drive.next()


@pytest.mark.parametrize("size", [(1, 1), (19, 4)], ids=str)
async def test_a_terminal_too_small_is_no_error(size: tuple[int, int]) -> None:
    """Snapshots, keys and the help go on working; what can be shown is."""
    async with driven(scene("starved", 2), size) as drive:
        await drive.next()
        await drive.press("down", "s", "t", "p", "p")
        await drive.press("enter", "escape", "question_mark", "escape")
        assert len(drive.lines) == size[1]
        await drive.press("q")
        assert not drive.app.is_running


@pytest.mark.parametrize("key", ["question_mark", "d", "enter"])
async def test_a_second_esc_that_was_on_its_way_closes_nothing_more(key: str) -> None:
    """On a slow machine both are typed before the first has closed what was open."""
    async with driven(scene("starved", 2)) as drive:
        await drive.press(key)
        opened = drive.app.screen
        for _ in range(2):
            opened.dismiss(None)
        await drive.press("right")
        assert drive.app.screen is not opened
        assert len(drive.app.screen_stack) == 1


async def test_a_message_goes_away_and_hides_no_key() -> None:
    """It is said above the keys, over a row that comes back after a few seconds, or with the next
    key."""
    async with driven(scene("starved", 2)) as drive:
        before = drive.lines
        await drive.press("k", "r", "r")
        assert drive.lines == before
        await drive.press("k")
        assert drive.lines[-1] == before[-1]
        assert "select a process" in drive.lines[-2]
        drive.app.drawing._message_until = time.monotonic() - 1
        drive.app.every_second()
        assert drive.lines[-2] == before[-2]


async def test_old_data_is_said_once_it_is_old() -> None:
    """More than two intervals without an answer: the age is on the first line and grows; with
    the next snapshot it is gone."""
    async with driven(scene("starved", 2)) as drive:
        clock = drive.sampler.clock
        drive.sampler._good_at = clock.monotonic()
        clock.advance(1.5)  # type: ignore[attr-defined]
        drive.app.every_second()
        assert "old" not in drive.lines[0]
        clock.advance(6.0)  # type: ignore[attr-defined]
        drive.app.every_second()
        assert "7s old" in drive.lines[0]
        clock.advance(60.0)  # type: ignore[attr-defined]
        drive.app.every_second()
        assert "1m07 old" in drive.lines[0]
        drive.sampler._good_at = clock.monotonic()
        await drive.next()
        assert "old" not in drive.lines[0]


class BrokenSampler(HandSampler):
    """Stands for a snapshot that cannot be drawn."""

    async def run(self, deliver: Any) -> None:
        raise ValueError("a bug")


async def test_a_bug_ends_the_program_with_its_error() -> None:
    """A picture that would never change again is worse than an end with a code and a reason."""
    source = HandSource(simulated=True)
    app = GpuwatchApp(source, BrokenSampler(source), ascii_mode=False, environment=TRUECOLOR)
    async with app.run_test():
        pass
    assert not app.is_running
    assert isinstance(app.drawing.error, ValueError)


async def test_a_bug_prints_no_variables() -> None:
    """They may be other people's command lines: it ends without Textual's picture of them."""
    apps: list[GpuwatchApp] = []

    async def run_into_a_bug() -> None:
        async with driven() as drive:
            apps.append(drive.app)
            drive.app.call_later(lambda: 1 / 0)
            await drive.settle()

    with pytest.raises(ZeroDivisionError):
        await run_into_a_bug()
    assert isinstance(error_of(apps[0]), ZeroDivisionError)
    assert apps[0]._exit_renderables == []


async def test_keys_for_other_gpus_are_not_hinted_where_there_is_one() -> None:
    """The footer of a GPU's page has none."""
    for gpus in (1, 2):
        async with driven(scene("healthy", gpus), (120, 40)) as drive:
            await drive.press("enter")
            assert ("other GPU" in drive.lines[-1]) is (gpus == 2)


async def test_the_help_fits_a_screen_of_120_by_40() -> None:
    """All keys, every state of a GPU with what it means, and what numbers are, without
    scrolling."""
    async with driven(scene("healthy", 2), (120, 40)) as drive:
        await drive.press("question_mark")
        lines = drive.dialog.canvas.lines
        text = "\n".join(map(plain, lines))
        keys = [key for _, some in described(replay=False) for key in some if key.place != BESIDE]
        assert all(part in text for key in keys for part in (key.shown, key.help))
        assert all(f"{state.word:<10}{state.meaning}" in text for state in STATES)
        assert "nothing names the process" in text
        assert UNICODE.thumb not in text


async def test_the_help_shows_what_fills_mean_and_which_keys_come_first() -> None:
    """Each state has cells of its chart before it; keys that are seldom used step back."""
    async with driven(scene("healthy", 1), (120, 40)) as drive:
        await drive.press("question_mark")
        runs = [run for line in drive.dialog.canvas.lines for run in line]
        before = {
            text.strip(): runs[place - 1][1].removeprefix("b:")
            for place, (text, _) in enumerate(runs)
            if place
        }
        assert before["fed"] == "fed.0"
        assert before["starved"].startswith("starved/starved.")
        assert before["throttled"].startswith("fed+throttled.")
        assert before["waiting"].startswith("fed+waiting.")
        styles = {text.strip(): style.removeprefix("b:") for text, style in runs}
        assert styles["the diagnosis: what is wrong, and why"] == "value"
        assert styles["back to live"] == "text"
        assert styles["refresh more or less often"] == "label"


@pytest.mark.parametrize(("width", "seen"), [(200, {"edge"}), (184, {"text"})])
async def test_the_page_behind_a_dialog_is_grey(width: int, seen: set[str]) -> None:
    """Beside one that leaves only slivers of it there is nothing."""
    async with driven(scene("healthy", 2), (width, 50)) as drive:
        behind = {style for line in drive.front.canvas.lines for _, style in line}
        assert {"value", "fed"} <= behind
        await drive.press("question_mark")
        assert isinstance(drive.app.screen, Help)
        box = drive.app.screen.box
        beside = [line[0] for line in drive.dialog.canvas.lines[box.y : box.bottom]]
        assert {style.partition(".")[0] for _, style in beside} == seen


# -- slow connections -------------------------------------------------------------------------


async def test_a_slow_link_is_drawn_less_often() -> None:
    """Snapshots a second apart are all kept, and every second one is drawn."""
    async with driven(scene("starved", 2), slow_link=True) as drive:
        assert "slow link" in drive.lines[0]
        before = drive.lines
        first = await drive.next()
        assert drive.lines == before
        assert drive.view.history.latest_at == first.monotonic_seconds
        await drive.next()
        assert drive.lines != before


# -- environments -------------------------------------------------------------------------------


def app_in(environment: dict[str, str], ascii_mode: bool | None = False) -> GpuwatchApp:
    source = HandSource(simulated=True)
    with surroundings(environment):
        return GpuwatchApp(
            source, HandSampler(source), ascii_mode=ascii_mode, environment=environment
        )


async def test_an_empty_no_color_is_not_set() -> None:
    """As its definition says: only a value that is not empty counts, also after a new theme."""
    environment = {**TRUECOLOR, "NO_COLOR": ""}
    async with driven(scene("starved", 1), environment=environment) as drive:
        for _ in range(2):
            style = drive.front.canvas.palette["fed"]
            assert style.color is not None
            await drive.press("T")


def test_glyphs_follow_what_the_terminal_can_show() -> None:
    """Shades need all colours, tones some; without them ranges are dotted. In ASCII colours are the
    blocks that it lacks."""

    async def glyphs() -> list[object]:
        return [
            app_in(TRUECOLOR).view.glyphs,
            app_in({"TERM": "xterm-256color"}).view.glyphs,
            app_in({"TERM": "xterm"}).view.glyphs,
            app_in({"TERM": "xterm-256color", "NO_COLOR": "1"}).view.glyphs,
            app_in(TRUECOLOR, ascii_mode=True).view.glyphs,
            app_in({"TERM": "xterm-256color"}, ascii_mode=True).view.glyphs,
            app_in({"TERM": "linux"}, ascii_mode=None).view.glyphs,
            app_in({**TRUECOLOR, "NO_COLOR": "1"}, ascii_mode=True).view.glyphs,
        ]

    assert asyncio.run(glyphs()) == [
        *(UNICODE, BARS, DOTS, COLOURLESS),
        *(SHADED_ASCII, FILLED_ASCII, FILLED_ASCII, ASCII),
    ]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-256color"}, "gpuwatch-dark"),
        ({"TERM": "tmux-256color"}, "gpuwatch-dark"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "gpuwatch-dark"),
        ({"TERM": "xterm"}, "ansi-dark"),
        ({"TERM": "linux"}, "ansi-dark"),
        ({}, "ansi-dark"),
    ],
)
def test_the_theme_fits_the_terminal(environment: dict[str, str], expected: str) -> None:
    """Terminals with sixteen colours get their own; a theme asked for by name is taken."""
    assert theme_name(None, environment) == expected
    assert theme_name("light", environment) == "gpuwatch-light"
    assert theme_name("nord", environment) == "nord"


# -- pictures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["dark", "ansi"])
async def test_a_picture_is_whole_and_needs_nothing_from_elsewhere(theme: str) -> None:
    """In every theme, with a dialog open too: valid XML, no reference, all of the text."""
    async with driven(scene("throttled", 8), (120, 40), theme=theme) as drive:
        for key in (None, "exclamation_mark"):
            if key is not None:
                await drive.press(key)
            text = drive.app.drawing.picture()
            root = ElementTree.fromstring(text)
            said = " ".join(root.itertext())
            assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
            assert "@import" not in text
            assert "href" not in text
            for word in ("SIMULATED", "sim-box", "H200"):
                assert word in said
        assert "Everything" in said


async def test_a_picture_that_cannot_be_saved_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither here nor in the state folder: a sentence instead of an end."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    here = tmp_path / "gone"
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    async with driven(scene("starved", 1)) as drive:
        await drive.press("w")
        assert drive.app.is_running
        assert "could not be saved" in drive.lines[-2]


async def test_a_terminal_that_is_behind_gets_the_newest_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it takes nothing, snapshots are kept and not drawn; then the last of them is."""
    async with driven(scene("starved", 2)) as drive:
        shown = drive.text
        with monkeypatch.context() as patch:
            patch.setattr(Display, "is_behind", True)
            for _ in range(3):
                newest = await drive.next()
            assert drive.text == shown
        assert drive.view.snapshot is newest
        for _ in range(500):
            if drive.text != shown:
                break
            await asyncio.sleep(0.02)
        later = drive.text
        drive.app.drawing.redraw()
        await drive.settle()
        assert drive.text == later != shown


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("R", "R works on a job's page (j)"),
        ("S", "S works on a job's page (j)"),
        ("o", "o works on a job's page (j)"),
        ("u", "u works in the diagnosis (d)"),
        ("y", "y works in the diagnosis (d)"),
        ("colon", ": works where a recording is played"),
        ("x", "this key does nothing here; ? shows those that do"),
    ],
)
async def test_a_key_that_does_nothing_here_says_what_it_needs(key: str, says: str) -> None:
    """On the overview; the page itself stays as it was."""
    async with driven(scene("starved", 2), (120, 40)) as drive:
        before = drive.lines[:-2]
        await drive.press(key)
        assert says in drive.lines[-2]
        assert drive.lines[:-2] == before


async def test_q_goes_back_page_by_page_and_quits_from_the_first() -> None:
    """The footers name it so; a job that was asked for is a first page of its own."""
    what = scene("starved", 2)
    async with driven(what, (120, 40), engine=HandEngine(several(what.now))) as drive:
        for way in (("enter",), ("d",), ("d", "enter"), ("j",), ("j", "R")):
            await drive.press(*way)
            for _ in range(len(way)):
                assert drive.lines[-1].split()[:2] == ["q", "back"]
                await drive.press("q")
            assert drive.lines[-1].split()[:2] == ["q", "quit"]
        await drive.press("q")
        assert drive.app.return_code == 0
    async with driven(what, (120, 40), attached=what.now.jobs[0].key) as drive:
        assert drive.lines[-1].split()[:2] == ["q", "quit"]
        await drive.press("R", "q")
        assert drive.app.return_code is None
        await drive.press("q")
        assert drive.app.return_code == 0


async def test_why_opens_the_only_finding() -> None:
    """Its evidence; of several the list."""
    what = scene("starved", 1)
    async with driven(what, engine=HandEngine(several(what.now))) as drive:
        await drive.press("d")
        assert isinstance(drive.app.screen, EvidenceScreen)


async def test_the_palette_opens_the_report_of_the_job_that_leads() -> None:
    """From the overview, where the selected GPU has no job; the page of the job is behind it."""
    what = scene("starved", 4)
    job = what.now.jobs[1]
    gpu = next(at for at, one in enumerate(what.now.gpus) if one.uuid in job.gpu_uuids)
    engine = HandEngine(diagnosis(what.now, starved(what.now, gpu)))
    async with driven(what, (120, 40), engine=engine) as drive:
        await drive.feed(what.later[0])
        drive.view.selected_gpu = "GPU-of-nobody"
        await drive.press("ctrl+p")
        await drive.press(*"report", "enter")
        assert isinstance(drive.app.screen, ReportScreen)
        assert drive.app.jobs.report.report().pid == job.pid
        await drive.press("q")
        assert drive.job_screen.view.job.key == job.key


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("share", "the report of the job"),
        ("stack", "where the job's main threads are"),
        ("checked", "causes that could not be checked"),
    ],
)
async def test_the_palette_finds_what_people_call_otherwise(typed: str, found: str) -> None:
    """On the overview, too, which has no key for it."""
    async with driven(scene("starved", 2), (120, 40)) as drive:
        await drive.press("ctrl+p")
        await drive.press(*typed)
        assert any(found in "".join(text for text, _ in line) for line in drive.dialog.lines(72))


async def test_the_palette_begins_with_what_people_look_for() -> None:
    """Why, the job, its report, a recording, the theme."""
    async with driven(scene("starved", 2), (120, 40)) as drive:
        await drive.press("ctrl+p")
        begins = ["".join(text for text, _ in one) for one in drive.dialog.lines(72)[2:7]]
        for line, word in zip(begins, ("why", "job", "report", "record", "theme"), strict=True):
            assert word in line
