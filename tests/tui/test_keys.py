"""Every key, at every size: what it does, seen on the running application.

A key of ``keys`` that has no expectation here fails ``test_every_key_has_a_test``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuwatch.tui.charts.glyphs import ASCII
from gpuwatch.tui.charts.timeline import SPANS, FindingMark
from gpuwatch.tui.keys import (
    APP_KEYS,
    DETAIL_KEYS,
    EVIDENCE_KEYS,
    FINDINGS_KEYS,
    JOB_KEYS,
    OVERVIEW_KEYS,
    REPORT_KEYS,
)
from gpuwatch.tui.screens.detail import DetailScreen
from gpuwatch.tui.screens.dialogs.record import RecordDialog
from gpuwatch.tui.screens.evidence import EvidenceScreen
from gpuwatch.tui.screens.findings import FindingsScreen
from gpuwatch.tui.screens.job import JobScreen
from gpuwatch.tui.screens.report import ReportScreen
from gpuwatch.tui.terminal.palette import THEMES
from gpuwatch.tui.view import SORT_KEYS
from tests.tui.diagnoses import HandEngine, several
from tests.tui.driving import Driven, driven, pictures
from tests.tui.scenes import Printed, scene

SIZES = ((80, 24), (120, 40), (200, 50), (40, 12))
LARGE = SIZES[1:3]
"""A key is pressed at the small sizes and, in turn, at one of these."""

Expectation = Callable[[Driven, str], Awaitable[None]]

EXPECTED: dict[str, Expectation] = {}
"""By ``"screen key"``: presses the key once and looks at what it did."""


def expect(screen: str, *keys: str) -> Callable[[Expectation], Expectation]:
    def keep(expectation: Expectation) -> Expectation:
        for key in keys:
            EXPECTED[f"{screen} {key}"] = expectation
        return expectation

    return keep


WAY_TO = {
    "overview": (),
    "app": (),
    "detail": ("enter",),
    "job": ("j",),
    "report": ("j", "R"),
    "findings": ("d",),
    "evidence": ("d", "enter"),
}
"""What to press to get to the screen."""


def every_key() -> list[str]:
    groups = (
        ("overview", OVERVIEW_KEYS),
        ("app", APP_KEYS),
        ("detail", DETAIL_KEYS),
        ("job", JOB_KEYS),
        ("report", REPORT_KEYS),
        ("findings", FINDINGS_KEYS),
        ("evidence", EVIDENCE_KEYS),
    )
    return [
        f"{screen} {name}"
        for screen, keys in groups
        for key in keys
        for name in key.keys.split(",")
    ]


def test_every_key_has_a_test() -> None:
    """A key that is bound is pressed below, and nothing is expected of keys that are not."""
    assert sorted(EXPECTED) == sorted(every_key())


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, id=f"{name}-{size[0]}x{size[1]}")
        for number, name in enumerate(every_key())
        for size in SIZES
        if size not in LARGE or size == LARGE[number % 2]
    ],
)
async def test_key(
    name: str, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key does what the help says, and the screen stays whole."""
    monkeypatch.chdir(tmp_path)
    screen, key = name.split()
    what = scene("healthy", 2, seconds=15)
    async with driven(what, size, engine=HandEngine(several(what.now))) as drive:
        for step in WAY_TO[screen]:
            await drive.press(step)
        await EXPECTED[name](drive, key)
        assert len(drive.lines) == size[1]
        assert {len(line) for line in drive.lines} == {size[0]}


# -- the overview -----------------------------------------------------------------------------


@expect("overview", "down")
async def down(drive: Driven, key: str) -> None:
    first, second = drive.view.gpus
    await drive.press(key)
    assert (drive.view.focus, drive.view.selected_gpu) == ("gpus", second.uuid)
    await drive.press(key)
    assert drive.view.focus == "processes"
    assert selected(drive) == order(drive)[0]
    assert drive.view.selected_gpu != first.uuid


@expect("overview", "up")
async def up(drive: Driven, key: str) -> None:
    await drive.press("tab", "down", key)
    assert selected(drive) == order(drive)[0]
    await drive.press(key)
    assert (drive.view.focus, drive.view.selected_gpu) == ("gpus", drive.view.gpus[1].uuid)
    await drive.press(key, key)
    assert (drive.view.focus, drive.view.selected_gpu) == ("gpus", drive.view.gpus[0].uuid)


@expect("overview", "left", "right")
async def gpu_before_or_after(drive: Driven, key: str) -> None:
    first, second = drive.view.gpus
    for wanted in (second, first):
        await drive.press(key)
        assert drive.view.selected_gpu == wanted.uuid


@expect("overview", "pagedown")
async def page_down(drive: Driven, key: str) -> None:
    await drive.press("home", key)
    page = len(drive.table)
    assert order(drive).index(selected(drive)) == min(page, len(order(drive)) - 1)
    assert selected(drive) in drive.table


@expect("overview", "pageup")
async def page_up(drive: Driven, key: str) -> None:
    await drive.press("end", key)
    last = len(order(drive)) - 1
    assert order(drive).index(selected(drive)) == max(0, last - len(drive.table))
    assert selected(drive) in drive.table


@expect("overview", "end")
async def end(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert selected(drive) == order(drive)[-1]
    assert selected(drive) in drive.table


@expect("overview", "home")
async def home(drive: Driven, key: str) -> None:
    await drive.press("end", key)
    assert selected(drive) == order(drive)[0]
    assert selected(drive) in drive.table


@expect("overview", "tab", "shift+tab")
async def tab(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert drive.view.focus == "processes"
    assert selected(drive) in drive.table
    await drive.press(key)
    assert drive.view.focus == "gpus"


@expect("overview", "enter")
async def enter(drive: Driven, key: str) -> None:
    await drive.press("right", key)
    assert isinstance(drive.app.screen, DetailScreen)
    assert " GPU 1 of 2 " in drive.lines[1]
    assert drive.source.options.detailed_gpu == drive.view.gpus[1].uuid


@expect("overview", "j")
async def job(drive: Driven, key: str) -> None:
    wanted = drive.view.snapshot.jobs[0]  # type: ignore[union-attr]
    await drive.press(key)
    assert isinstance(drive.app.screen, JobScreen)
    assert drive.view.job.key == drive.source.options.attached == wanted.key


@expect("overview", "slash")
async def slash(drive: Driven, key: str) -> None:
    pid = order(drive)[-1]
    await drive.press(key)
    await drive.press(*str(pid))
    assert drive.view.filter_text == str(pid)
    assert pid in order(drive)
    assert len(order(drive)) < len(drive.view.snapshot.processes)  # type: ignore[union-attr]


@expect("overview", "escape")
async def escape(drive: Driven, key: str) -> None:
    everything = order(drive)
    await drive.press("slash")
    await drive.press("9", "enter")
    await drive.press("g", key)
    assert drive.view.filter_text == ""
    assert not drive.view.this_gpu_only
    assert order(drive) == everything


@expect("overview", "s")
async def sort(drive: Driven, key: str) -> None:
    seen = []
    for _ in SORT_KEYS:
        await drive.press(key)
        seen.append(drive.view.sort)
    assert tuple(seen) == (*SORT_KEYS[1:], SORT_KEYS[0])


@expect("overview", "r")
async def reverse(drive: Driven, key: str) -> None:
    await drive.press("t")
    before = order(drive)
    await drive.press(key)
    assert order(drive) == before[::-1]
    await drive.press(key)
    assert order(drive) == before


@expect("overview", "t")
async def tree(drive: Driven, key: str) -> None:
    assert any(row.branch for row in frame_table(drive))
    await drive.press(key)
    assert not any(row.branch for row in frame_table(drive))
    await drive.press(key)
    assert any(row.branch for row in frame_table(drive))


@expect("overview", "a")
async def all_processes(drive: Driven, key: str) -> None:
    for wanted in (True, False):
        await drive.press(key)
        assert drive.source.options.all_processes is wanted
        assert drive.view.all_processes is wanted
        assert "process" in drive.lines[-1]


@expect("overview", "g")
async def this_gpu(drive: Driven, key: str) -> None:
    uuid = drive.view.gpus[1].uuid
    everything = order(drive)
    await drive.press("right", key)
    assert {row.process.gpu_uuid for row in frame_table(drive)} <= {uuid, None}
    assert len(order(drive)) < len(everything)
    await drive.press(key)
    assert order(drive) == everything


@expect("overview", "k")
async def end_process(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert "select a process" in drive.lines[-1]
    await drive.press("tab", key)
    assert drive.dialog is None
    assert "simulated process cannot be" in drive.lines[-1]


# -- the charts' range, on every screen that has some -------------------------------------------

CHARTS = ("overview", "detail", "job", "evidence")


def expect_on_charts(*keys: str) -> Callable[[Expectation], Expectation]:
    def keep(expectation: Expectation) -> Expectation:
        for screen in CHARTS:
            expect(screen, *keys)(expectation)
        return expectation

    return keep


@expect_on_charts("left_square_bracket")
async def shorter(drive: Driven, key: str) -> None:
    await drive.press(key)
    before = drive.view.timeline.span_seconds
    assert before < 60.0
    for _ in SPANS:
        await drive.press(key)
    assert drive.view.timeline.span_seconds == SPANS[0]
    assert "the shortest range is 15 seconds" in drive.lines[-1]


@expect_on_charts("right_square_bracket")
async def longer(drive: Driven, key: str) -> None:
    picture = drive.text
    await drive.press(key)
    first = drive.view.timeline.span_seconds
    assert first in SPANS[2:]
    # On the smallest screen a steady load looks the same over any time.
    assert drive.text != picture or drive.app.size.width == 40
    for _ in SPANS:
        await drive.press(key)
    assert drive.view.timeline.span_seconds == 12 * 3600.0
    assert "the longest range is 12 hours" in drive.lines[-1]


@expect_on_charts("less_than_sign")
async def back_in_time(drive: Driven, key: str) -> None:
    now = drive.view.window.now
    await drive.press("left_square_bracket", key)
    end = drive.view.timeline.end_seconds
    assert end is not None
    assert end < now
    assert "AGO" in drive.lines[0]
    for _ in range(30):
        await drive.press(key)
    assert "nothing older" in drive.lines[-1]
    assert drive.view.timeline.end_seconds == pytest.approx(end, abs=60)


@expect_on_charts("greater_than_sign")
async def forth_in_time(drive: Driven, key: str) -> None:
    await drive.press("left_square_bracket", "less_than_sign")
    assert drive.view.timeline.end_seconds is not None
    await drive.press(key)
    assert drive.view.timeline.end_seconds is None
    assert "AGO" not in drive.lines[0]
    await drive.press(key)
    assert "this is now" in drive.lines[-1]


@expect_on_charts("0")
async def to_now(drive: Driven, key: str) -> None:
    await drive.press("left_square_bracket", "less_than_sign", "c")
    assert "AGO" in drive.lines[0]
    await drive.press(key)
    assert drive.view.timeline.moment is None
    assert "AGO" not in drive.lines[0]


@expect_on_charts("c")
async def cursor(drive: Driven, key: str) -> None:
    await drive.press(key)
    at = drive.view.timeline.cursor_seconds
    assert at is not None
    assert "AGO" in drive.lines[0]
    await drive.press(key)
    assert drive.view.timeline.moment is None


@expect_on_charts("comma")
async def cursor_back(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert drive.view.timeline.cursor_seconds == drive.view.window.now
    await drive.press(key, key)
    moved = drive.view.window.now - 2 * drive.view.column_seconds
    assert drive.view.timeline.cursor_seconds == pytest.approx(moved)


@expect_on_charts("full_stop")
async def cursor_forth(drive: Driven, key: str) -> None:
    await drive.press("comma", "comma", "comma", key)
    moved = drive.view.window.now - drive.view.column_seconds
    assert drive.view.timeline.cursor_seconds == pytest.approx(moved)
    await drive.press(key, key, key)
    assert drive.view.timeline.cursor_seconds == drive.view.window.now


@expect_on_charts("left_curly_bracket", "N")
async def mark_before(drive: Driven, key: str) -> None:
    drive.view.spans = marks(drive)
    await drive.press(key)
    assert drive.view.timeline.cursor_seconds == drive.view.spans[1].begin_seconds
    assert "the second" in drive.lines[-1]
    await drive.press(key)
    assert drive.view.timeline.cursor_seconds == drive.view.spans[0].begin_seconds
    await drive.press(key)
    assert "no finding began before" in drive.lines[-1]


@expect_on_charts("right_curly_bracket", "n")
async def mark_after(drive: Driven, key: str) -> None:
    drive.view.spans = ()
    await drive.press(key)
    assert "no findings so far" in drive.lines[-1]
    drive.view.spans = marks(drive)
    await drive.press("N", "N", key)
    assert drive.view.timeline.cursor_seconds == drive.view.spans[1].begin_seconds
    assert "the second" in drive.lines[-1]
    await drive.press(key)
    assert "no finding began later" in drive.lines[-1]


def marks(drive: Driven) -> tuple[FindingMark, ...]:
    now = drive.view.window.now
    return tuple(
        FindingMark(rule="oscillation", severity="warning", summary=what, begin_seconds=now - ago)
        for what, ago in (("the first", 9.0), ("the second", 4.0))
    )


@expect("overview", "exclamation_mark")
@expect("job", "exclamation_mark")
async def problems(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert drive.dialog is not None
    assert "Everything this machine reports is being read." in drive.dialog.text
    await drive.press("escape")
    assert drive.dialog is None


# -- everywhere -------------------------------------------------------------------------------


@expect("app", "p", "space")
async def pause(drive: Driven, key: str) -> None:
    await drive.press(key)
    picture = drive.text
    assert "PAUSED" in picture
    snapshot = await drive.next()
    newer = await drive.next()
    assert drive.text == picture
    assert drive.view.history.latest_at == newer.monotonic_seconds > snapshot.monotonic_seconds
    await drive.press(key)
    assert drive.view.snapshot is newer
    assert drive.text != picture
    assert "PAUSED" not in drive.text


@expect("app", "plus", "equals_sign")
async def faster(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert drive.sampler.interval_seconds == drive.view.interval_seconds == 0.5
    await drive.press(*[key] * 6)
    assert drive.sampler.interval_seconds == 0.1


@expect("app", "minus")
async def slower(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert drive.sampler.interval_seconds == drive.view.interval_seconds == 2.0
    await drive.press(*[key] * 8)
    assert drive.sampler.interval_seconds == 60.0


@expect("app", "T")
async def theme(drive: Driven, key: str) -> None:
    seen = []
    for _ in THEMES:
        await drive.press(key)
        seen.append(drive.app.theme)
        assert drive.front.canvas.palette is drive.app.palette
        assert drive.app.theme in drive.lines[-1]
    assert seen == [*THEMES[1:], THEMES[0]]


@expect("app", "A")
async def ascii_mode(drive: Driven, key: str) -> None:
    assert not drive.text.isascii()
    await drive.press(key)
    assert drive.view.glyphs is ASCII
    assert drive.text.isascii()
    await drive.press(key)
    assert not drive.text.isascii()


@expect("app", "w")
async def save_picture(drive: Driven, key: str) -> None:
    await drive.press(key, key)
    saved = pictures(Path.cwd())
    assert len(saved) == 2
    for path in saved:
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "SIMULATED" in "".join(root.itertext())
    assert "saved" in drive.lines[-1]


@expect("app", "W")
async def record(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert isinstance(drive.app.screen, RecordDialog)
    assert "gpuwatch-" in drive.app.screen.text
    await drive.press("n", "i", "g", "h", "t", "s", "backspace", "enter")
    assert "REC" in drive.lines[0]
    await drive.feed(next(drive.ahead))
    await drive.press(key)
    assert "REC" not in drive.lines[0]
    assert "1 snapshots" in drive.lines[-1]
    assert os.stat("night").st_size > 0  # noqa: PTH116 - a test, and at once


@expect("app", "question_mark", "f1")
async def help_screen(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert drive.dialog is not None
    for bound in (
        *OVERVIEW_KEYS,
        *APP_KEYS,
        *JOB_KEYS,
        *DETAIL_KEYS,
        *FINDINGS_KEYS,
        *EVIDENCE_KEYS,
    ):
        if bound.shown:
            assert bound.shown in drive.dialog.text
            assert bound.help in drive.dialog.text
    await drive.press("escape")
    assert drive.dialog is None


@expect("app", "ctrl+z")
async def suspend(drive: Driven, key: str) -> None:
    # Not stopped, the test goes on.
    await drive.press(key)
    assert "no shell to return to"[: drive.app.size.width] in drive.text


@expect("app", "q", "ctrl+c")
async def leave(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert drive.app.return_code == 0
    assert not drive.app.is_running


# -- the detail -------------------------------------------------------------------------------


@expect("detail", "escape", "enter", "backspace")
async def back(drive: Driven, key: str) -> None:
    assert isinstance(drive.app.screen, DetailScreen)
    await drive.press(key)
    assert drive.front is drive.app.screen_stack[0]
    assert drive.source.options.detailed_gpu is None


@expect("detail", "left", "right")
async def other_gpu(drive: Driven, key: str) -> None:
    for number in (1, 0):
        await drive.press(key)
        assert f" GPU {number} of 2 " in drive.lines[1]
        assert drive.source.options.detailed_gpu == drive.view.gpus[number].uuid


def hidden(drive: Driven) -> int:
    found = re.search(r"(\d+) more lines", drive.lines[-1])
    return int(found[1]) if found else 0


@expect("detail", "down")
async def scroll_down(drive: Driven, key: str) -> None:
    before = hidden(drive)
    await drive.press(key, key)
    assert hidden(drive) == max(0, before - 2)


@expect("detail", "up")
async def scroll_up(drive: Driven, key: str) -> None:
    before = drive.lines
    await drive.press("down", "down", key, key, key)
    assert drive.lines == before


@expect("detail", "pagedown")
async def scroll_page_down(drive: Driven, key: str) -> None:
    before = hidden(drive)
    await drive.press(key)
    assert hidden(drive) == max(0, before - 10)
    assert hidden(drive) < before or before == 0


@expect("detail", "pageup")
async def scroll_page_up(drive: Driven, key: str) -> None:
    before = drive.lines
    await drive.press("pagedown", key)
    assert drive.lines == before


# -- the job ----------------------------------------------------------------------------------


def members(drive: Driven) -> list[int]:
    """PIDs of the whole tree, out of sight ones too."""
    return [row.member.pid for row in drive.job_screen._shown.table]


def chosen(drive: Driven) -> int:
    """The selected process of the job; it is in sight."""
    key = drive.view.job.selected
    assert key is not None
    assert key in [zone.argument for zone in drive.zones("member")]
    return key[0]


@expect("job", "j", "escape")
async def whole_machine(drive: Driven, key: str) -> None:
    shown = drive.view.job.key
    await drive.press(key)
    assert drive.front is drive.app.screen_stack[0]
    assert drive.source.options.attached == shown
    await drive.press("j")
    assert isinstance(drive.app.screen, JobScreen)
    assert drive.view.job.key == shown


@expect("job", "down")
async def member_down(drive: Driven, key: str) -> None:
    for number in range(4):
        await drive.press(key)
        assert chosen(drive) == members(drive)[number]


@expect("job", "up")
async def member_up(drive: Driven, key: str) -> None:
    await drive.press("end", key)
    assert chosen(drive) == members(drive)[-2]


@expect("job", "end")
async def member_end(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert chosen(drive) == members(drive)[-1]


@expect("job", "home")
async def member_home(drive: Driven, key: str) -> None:
    await drive.press("end", key)
    assert chosen(drive) == members(drive)[0]


@expect("job", "pagedown")
async def member_page_down(drive: Driven, key: str) -> None:
    page = drive.job_screen._shown.table_page
    await drive.press("home", key)
    assert chosen(drive) == members(drive)[min(page, len(members(drive)) - 1)]


@expect("job", "pageup")
async def member_page_up(drive: Driven, key: str) -> None:
    page = drive.job_screen._shown.table_page
    await drive.press("end", key)
    assert chosen(drive) == members(drive)[max(0, len(members(drive)) - 1 - page)]


@expect("job", "enter")
async def gpu_of_process(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert isinstance(drive.app.screen, DetailScreen)
    assert " GPU 0 of 2 " in drive.lines[1]
    await drive.press("escape", "home", key)
    # The first is the launcher.
    assert "uses no GPU" in drive.lines[-1]
    ranks = [row for row in drive.job_screen._shown.table if row.member.role == "rank"]
    drive.view.job.selected = ranks[1].member.key
    await drive.press(key)
    assert " GPU 1 of 2 " in drive.lines[1]
    await drive.press("escape")
    assert isinstance(drive.app.screen, JobScreen)


@expect("job", "t")
async def fold(drive: Driven, key: str) -> None:
    one_by_one = members(drive)
    await drive.press(key)
    assert len(members(drive)) < len(one_by_one)
    await drive.press("end", "k")
    assert drive.dialog is None
    assert "select a process" in drive.lines[-1]
    await drive.press(key)
    assert members(drive) == one_by_one


@expect("job", "R")
async def report_so_far(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert isinstance(drive.app.screen, ReportScreen)
    assert str(drive.view.job.key[0]) in drive.text  # type: ignore[index]


@expect("job", "S")
async def stacks(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert "simulated job has no stacks" in drive.lines[-1]


@expect("job", "o")
async def no_output(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert "gpuwatch run" in drive.lines[-1] or drive.app.size.width == 40
    drive.view.job.output = Printed([f"line {number}" for number in range(100)])
    await drive.press("escape", "j")
    small = drive.text.count("line ")
    await drive.press(key)
    large = drive.text.count("line ")
    await drive.press(key)
    assert large > small > 0
    assert "line " not in drive.text


@expect("job", "tab", "shift+tab")
async def between_processes_and_output(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert not drive.view.job.pane_focused
    drive.view.job.output = Printed([f"line {number}" for number in range(100)])
    await drive.press("escape", "j", key, "home")
    assert "line 0 " in drive.text
    await drive.press("pagedown", "up")
    assert "line 0 " not in drive.text
    await drive.press("end")
    assert "line 99 " in drive.text
    await drive.press(key, "home")
    assert "line 99 " in drive.text
    assert chosen(drive) == members(drive)[0]


@expect("job", "k")
async def end_member(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert "select a process" in drive.lines[-1]
    await drive.press("down", key)
    assert drive.dialog is None
    assert "simulated process cannot be" in drive.lines[-1]


# -- the report -------------------------------------------------------------------------------


@expect("report", "escape", "R", "enter", "backspace")
async def back_to_the_job(drive: Driven, key: str) -> None:
    assert isinstance(drive.app.screen, ReportScreen)
    await drive.press(key)
    assert isinstance(drive.app.screen, JobScreen)


@expect("report", "down")
@expect("evidence", "down")
async def report_down(drive: Driven, key: str) -> None:
    before = hidden(drive)
    await drive.press(key)
    assert hidden(drive) == max(0, before - 1)


@expect("report", "up")
@expect("evidence", "up")
async def report_up(drive: Driven, key: str) -> None:
    before = drive.lines
    await drive.press("down", key, key)
    assert drive.lines == before


@expect("report", "pagedown", "end")
@expect("evidence", "pagedown", "end")
async def report_page_down(drive: Driven, key: str) -> None:
    before = hidden(drive)
    await drive.press(key)
    assert hidden(drive) < before or before == 0
    await drive.press(*[key] * 20)
    assert hidden(drive) == 0


@expect("report", "pageup", "home")
@expect("evidence", "pageup", "home")
async def report_page_up(drive: Driven, key: str) -> None:
    before = drive.lines
    await drive.press("pagedown", key)
    assert drive.lines == before


# -- the diagnosis ----------------------------------------------------------------------------


def rule(drive: Driven) -> str:
    """The rule of the finding under the cursor."""
    screen = drive.app.screen
    assert isinstance(screen, FindingsScreen)
    assert screen._shown.selected is not None
    return screen._shown.selected.rule


RULES = ("hardware_errors", "loader_cpu_bound", "pcie_degraded")
"""Of the diagnosis made by hand, in its order."""


@expect("overview", "d")
@expect("job", "d")
@expect("detail", "d")
async def diagnosis(drive: Driven, key: str) -> None:
    before = drive.front
    await drive.press(key)
    assert isinstance(drive.app.screen, FindingsScreen)
    assert rule(drive) == RULES[0]
    await drive.press("escape")
    assert drive.front is before


@expect("overview", "m")
@expect("job", "m")
@expect("findings", "m")
@expect("detail", "m")
async def mark(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert drive.view.mark is not None
    assert "marked" in drive.lines[-1]
    if isinstance(drive.app.screen, DetailScreen):
        await drive.press("escape")
    # The smallest overview has no room for it.
    assert "changed" in drive.text or drive.app.size.height == 12


@expect("overview", "M")
@expect("job", "M")
@expect("findings", "M")
@expect("detail", "M")
async def forget_mark(drive: Driven, key: str) -> None:
    await drive.press("m", key)
    assert drive.view.mark is None
    assert "changed" not in drive.text
    assert "comparison ended" in drive.lines[-1]


@expect("findings", "escape", "d", "backspace")
async def leave_findings(drive: Driven, key: str) -> None:
    assert isinstance(drive.app.screen, FindingsScreen)
    await drive.press(key)
    assert drive.front is drive.app.screen_stack[0]


@expect("findings", "down")
async def finding_down(drive: Driven, key: str) -> None:
    for wanted in (*RULES[1:], RULES[-1]):
        await drive.press(key)
        assert rule(drive) == wanted


@expect("findings", "up")
async def finding_up(drive: Driven, key: str) -> None:
    await drive.press("end", key)
    assert rule(drive) == RULES[-2]


@expect("findings", "home")
async def first_finding(drive: Driven, key: str) -> None:
    await drive.press("end", key)
    assert rule(drive) == RULES[0]


@expect("findings", "end")
async def last_finding(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert rule(drive) == RULES[-1]


@expect("findings", "enter")
async def open_finding(drive: Driven, key: str) -> None:
    await drive.press("down", key)
    assert isinstance(drive.app.screen, EvidenceScreen)
    assert RULES[1] in drive.text


@expect("findings", "y")
@expect("evidence", "y")
async def copy(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert "hardware errors" in drive.app.clipboard
    assert "Save, stop the job" in drive.app.clipboard
    assert "copied" in drive.lines[-1]


@expect("findings", "u")
@expect("evidence", "u")
async def unknown(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert drive.dialog is not None
    assert "stacks of the main thread" in drive.dialog.text
    await drive.press("escape")
    assert drive.dialog is None


@expect("evidence", "escape", "d", "enter", "backspace")
async def leave_evidence(drive: Driven, key: str) -> None:
    assert isinstance(drive.app.screen, EvidenceScreen)
    await drive.press(key)
    assert isinstance(drive.app.screen, FindingsScreen)


@expect("evidence", "right")
async def next_finding(drive: Driven, key: str) -> None:
    for wanted in (*RULES[1:], RULES[0]):
        await drive.press(key)
        assert wanted in drive.text


@expect("evidence", "left")
async def finding_before(drive: Driven, key: str) -> None:
    for wanted in RULES[::-1]:
        await drive.press(key)
        assert wanted in drive.text


def frame_table(drive: Driven) -> list:  # type: ignore[type-arg]
    return drive.app.screen_stack[0]._shown.table  # type: ignore[attr-defined, no-any-return]


def order(drive: Driven) -> list[int]:
    """PIDs of the whole table, out of sight ones too."""
    return [row.process.pid for row in frame_table(drive)]


def selected(drive: Driven) -> int:
    assert drive.view.selected_row is not None
    return drive.view.selected_row[0]
