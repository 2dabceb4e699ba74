"""Every key on every screen: what it does, seen on the running application.

A key of ``keys`` that has no expectation here fails ``test_every_key_has_a_test``.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gpuwatch.outputs.report.document import report_document
from gpuwatch.outputs.report.html import document_html
from gpuwatch.tui import keys as tables
from gpuwatch.tui.charts.timeline import SPANS, FindingMark
from gpuwatch.tui.pages import findings
from gpuwatch.tui.pages.detail import DetailScreen
from gpuwatch.tui.pages.findings import EvidenceScreen, FindingsScreen
from gpuwatch.tui.pages.job import ReportScreen
from gpuwatch.tui.pages.overview import OverviewScreen
from gpuwatch.tui.panels.findings import cause
from gpuwatch.tui.terminal.palette import THEMES
from gpuwatch.tui.view import SORT_KEYS
from tests.tui.diagnoses import HandEngine, several
from tests.tui.driving import Driven, driven, pictures
from tests.tui.scenes import Printed, scene

SIZE = (120, 40)

Expectation = Callable[[Driven, str], Awaitable[None]]
EXPECTED: dict[str, Expectation] = {}
"""By ``"screen key"``: presses the key and looks at what it did."""

WAY_TO: dict[str, tuple[str, ...]] = {
    "overview": (),
    "app": (),
    "detail": ("enter",),
    "job": ("j",),
    "report": ("j", "R"),
    "findings": ("d",),
    "evidence": ("d", "enter"),
}
"""What to press to get to the screen."""

CHARTS = ("overview", "detail", "job", "evidence")


def expect(screens: str, *keys: str) -> Callable[[Expectation], Expectation]:
    """Of these keys on each of these screens."""

    def keep(expectation: Expectation) -> Expectation:
        EXPECTED.update({f"{one} {key}": expectation for one in screens.split() for key in keys})
        return expectation

    return keep


def expect_after(
    screens: str, keys: str, before: Sequence[str], holds: Callable[[Driven], Any]
) -> None:
    """After ``before`` and the key, ``holds`` is true of it."""

    async def check(drive: Driven, key: str) -> None:
        await drive.press(*before)
        await drive.press(key)
        assert holds(drive)

    expect(screens, *keys.split())(check)


def every_key() -> list[list[str]]:
    """Of each screen, the keys that are bound to the same."""
    return [
        [f"{screen} {name}" for name in key.keys.split(",")]
        for screen in WAY_TO
        for key in getattr(tables, f"{screen.upper()}_KEYS")
    ]


def test_every_key_has_a_test() -> None:
    """A key that is bound is pressed below, or another that is bound to the same, and nothing is
    expected of keys that are not."""
    assert sorted(EXPECTED) == sorted(chain.from_iterable(every_key()))
    assert all(len({EXPECTED[one] for one in same}) == 1 for same in every_key())


def pressed() -> list[str]:
    """One key of each binding. Those of the charts do on other screens what they do on the first;
    of each pair that goes back and forth one is pressed there."""
    found = [same[-1] for same in every_key()]
    charts = {one.split()[1] for one in found if one.startswith("detail")} & {
        one.split()[1] for one in found if one.startswith("evidence")
    }
    left_out = charts & {"right_square_bracket", "greater_than_sign", "0", "full_stop", "N"}
    return [one for one in found if one.startswith("overview") or one.split()[1] not in left_out]


@pytest.mark.parametrize("name", pressed())
async def test_key(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key does what the help says, and the screen stays whole."""
    monkeypatch.chdir(tmp_path)
    screen, key = name.split()
    what = scene("healthy", 2, seconds=15)
    async with driven(what, SIZE, engine=HandEngine(several(what.now))) as drive:
        for step in WAY_TO[screen]:
            await drive.press(step)
        await EXPECTED[name](drive, key)
        assert len(drive.lines) == SIZE[1]
        assert {len(line) for line in drive.lines} == {SIZE[0]}


# -- the overview -----------------------------------------------------------------------------


def table(drive: Driven) -> list[Any]:
    """The rows of the overview, those out of sight too."""
    return drive.app.screen_stack[0].shown.table


def order(drive: Driven) -> list[int]:
    return [row.process.pid for row in table(drive)]


def selected(drive: Driven) -> int:
    """The place of the selected process, which is in sight."""
    assert drive.view.selected_row[0] in drive.table
    return order(drive).index(drive.view.selected_row[0])


def gpu(drive: Driven) -> int | None:
    """The selected GPU, if the cursor is on one."""
    return drive.view.gpu_position() if drive.view.focus == "gpus" else None


@expect("overview", "s", "f6")
async def sort(drive: Driven, key: str) -> None:
    seen = []
    for _ in SORT_KEYS:
        await drive.press(key)
        seen.append(drive.view.sort)
    assert tuple(seen) == (*SORT_KEYS[1:], SORT_KEYS[0])


@expect("overview", "t")
@expect("overview", "f5")
async def tree(drive: Driven, key: str) -> None:
    """A tree with workers in one row, which nobody can kill; each of them; a list; the tree."""
    folded = order(drive)
    assert any(row.together for row in table(drive))
    await drive.press("tab", "end", "k")
    assert "select a process" in drive.lines[-2]
    await drive.press(key)
    assert len(order(drive)) > len(folded)
    assert any(row.branch for row in table(drive))
    await drive.press(key)
    assert not any(row.branch for row in table(drive))
    await drive.press(key)
    assert order(drive) == folded


@expect("overview", "r")
async def reverse(drive: Driven, key: str) -> None:
    await drive.press("t", "t")
    before = order(drive)
    await drive.press(key)
    assert order(drive) == before[::-1]


@expect("overview", "a")
async def all_processes(drive: Driven, key: str) -> None:
    for wanted in (True, False):
        await drive.press(key)
        assert drive.source.options.all_processes is drive.view.all_processes is wanted


# -- the charts' range, on every screen that has some -------------------------------------------

ON_CHARTS = " ".join(CHARTS)


def cursor(drive: Driven) -> float | None:
    """How far the cursor is behind now, in columns."""
    at = drive.view.timeline.cursor_seconds
    return None if at is None else (drive.view.window.now - at) / drive.view.column_seconds


@expect(ON_CHARTS, "left_square_bracket")
async def shorter(drive: Driven, key: str) -> None:
    await drive.press(*[key] * len(SPANS))
    assert drive.view.timeline.span_seconds == SPANS[0]
    assert "the shortest range is 15 seconds" in drive.lines[-2]


@expect(ON_CHARTS, "right_square_bracket")
async def longer(drive: Driven, key: str) -> None:
    await drive.press(*[key] * len(SPANS))
    assert drive.view.timeline.span_seconds == 12 * 3600.0
    assert "the longest range is 12 hours" in drive.lines[-2]


@expect(ON_CHARTS, "less_than_sign")
async def back_in_time(drive: Driven, key: str) -> None:
    await drive.press("left_square_bracket", key)
    assert (drive.view.timeline.end_seconds or 0.0) < drive.view.window.now
    assert "AGO" in drive.lines[0]
    await drive.press(*[key] * 30)
    assert "nothing older" in drive.lines[-2]


@expect(ON_CHARTS, "greater_than_sign")
async def forward_in_time(drive: Driven, key: str) -> None:
    await drive.press("left_square_bracket", "less_than_sign", key)
    assert drive.view.timeline.end_seconds is None
    assert "AGO" not in drive.lines[0]
    await drive.press(key)
    assert "already live" in drive.lines[-2]


@expect(ON_CHARTS, "left_curly_bracket", "N")
async def mark_before(drive: Driven, key: str) -> None:
    drive.view.spans = marks(drive)
    for wanted in (1, 0):
        await drive.press(key)
        assert drive.view.timeline.cursor_seconds == drive.view.spans[wanted].begin_seconds
    await drive.press(key)
    assert "no finding began before" in drive.lines[-2]


@expect(ON_CHARTS, "right_curly_bracket", "n")
async def mark_after(drive: Driven, key: str) -> None:
    drive.view.spans = ()
    await drive.press(key)
    assert "no findings so far" in drive.lines[-2]
    drive.view.spans = marks(drive)
    await drive.press("N", "N", key)
    assert "the second" in drive.lines[-2]
    await drive.press(key)
    assert "no finding began later" in drive.lines[-2]


def marks(drive: Driven) -> tuple[FindingMark, ...]:
    now = drive.view.window.now
    return tuple(
        FindingMark(rule="oscillation", severity="warning", summary=what, begin_seconds=now - ago)
        for what, ago in (("the first", 9.0), ("the second", 4.0))
    )


# -- everywhere -------------------------------------------------------------------------------


@expect("app", "p", "space")
async def pause(drive: Driven, key: str) -> None:
    await drive.press(key)
    picture = drive.text
    assert "PAUSED" in picture
    newer = await drive.next()
    assert drive.text == picture
    assert drive.view.history.latest_at == newer.monotonic_seconds
    await drive.press(key)
    assert drive.view.snapshot is newer
    assert "PAUSED" not in drive.text != picture


def says(drive: Driven, text: str) -> bool:
    return text in drive.lines[-2]


def on(drive: Driven, screen: type) -> bool:
    return isinstance(drive.app.screen, screen)


def detailed(drive: Driven) -> int | None:
    """The GPU that is read closely."""
    uuids = [gpu.uuid for gpu in drive.view.gpus]
    wanted = drive.source.options.detailed_gpu
    return None if wanted is None else uuids.index(wanted)


def interval(drive: Driven) -> float:
    assert drive.sampler.interval_seconds == drive.view.interval_seconds
    return drive.view.interval_seconds


@expect("app", "T")
async def theme(drive: Driven, key: str) -> None:
    seen = []
    for _ in THEMES:
        await drive.press(key)
        seen.append(drive.app.theme)
        assert drive.front.canvas.palette is drive.view.palette
        assert drive.app.theme in drive.lines[-2]
    assert seen == [*THEMES[1:], THEMES[0]]


@expect("app", "w")
async def save_picture(drive: Driven, key: str) -> None:
    await drive.press(key, key)
    assert "saved" in drive.lines[-2]
    saved = pictures(Path.cwd())
    assert len(saved) == 2
    for path in saved:
        assert path.stat().st_mode & 0o777 == 0o600
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "SIMULATED" in "".join(root.itertext())


@expect("report", "w")
async def save_report(drive: Driven, key: str) -> None:
    await drive.press(key)
    (path,) = Path.cwd().glob("gpuwatch-report-*.html")
    assert f"saved {path}"[:60] in drive.lines[-2]
    report = drive.app.jobs.report.report()
    assert path.read_text("utf-8") == document_html(report_document(report, "page"))
    assert not pictures(Path.cwd())
    assert "save as HTML" in drive.lines[-1]


@expect("app", "W")
async def record(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert "REC" in drive.lines[0]
    await drive.next()
    await drive.press(key)
    assert "REC" not in drive.lines[0]
    assert "recorded 1 snapshot to" in drive.lines[-2]
    (path,) = Path.cwd().glob("gpuwatch-*.jsonl.zst")
    assert path.stat().st_size > 0


@expect("app", "ctrl+p")
async def palette(drive: Driven, key: str) -> None:
    for typed, holds in (
        ("hour", lambda: drive.view.timeline.span_seconds == 3600.0),
        ("nord", lambda: drive.app.theme == "nord"),
        ("30s", lambda: interval(drive) == 30.0),
        ("reverse", lambda: drive.view.reverse),
        # A way of a pair of keys, two words, the name of an action, a key.
        ("next gpu", lambda: gpu(drive) == 1),
        ("by memory", lambda: drive.view.sort == "gpu memory"),
        ("now", lambda: "already live" in drive.lines[-2]),
        ("m", lambda: drive.view.mark is not None),
        ("whole", lambda: drive.dialog is None and "select a process" in drive.lines[-2]),
    ):
        await drive.press(key)
        await drive.pilot.press(*["space" if one == " " else one for one in typed])
        await drive.press("enter")
        assert holds(), typed


@expect("app", "question_mark", "f1", "h")
async def help_dialog(drive: Driven, key: str) -> None:
    await drive.press(key)
    for _, keys in tables.described(replay=False):
        for bound in keys:
            if bound.place == tables.BESIDE:
                assert all(part in drive.dialog.text for part in bound.shown.split())
                continue
            assert bound.shown in drive.dialog.text
            assert bound.help in drive.dialog.text


# -- the detail, the report, the evidence -------------------------------------------------------


def below(drive: Driven) -> int:
    """Lines below the last that is shown."""
    found = re.search(r"(\d+) more lines", drive.lines[-1])
    return int(found[1]) if found else 0


@expect("detail report evidence", "down", "pagedown", "end")
async def further(drive: Driven, key: str) -> None:
    before = below(drive)
    await drive.press(key)
    assert below(drive) < before or before == 0


@expect("detail report evidence", "up", "pageup", "home")
async def further_up(drive: Driven, key: str) -> None:
    before = drive.lines
    await drive.press("down", key)
    assert drive.lines == before


# -- the job ----------------------------------------------------------------------------------


def members(drive: Driven) -> list[int]:
    """PIDs of the whole tree, those out of sight too."""
    return [row.member.pid for row in drive.job_screen.shown.table]


def chosen(drive: Driven) -> int:
    """The place of the selected process of the job, which is in sight."""
    key = drive.view.job.selected
    assert key in [zone.argument for zone in drive.zones("member")]
    return members(drive).index(key[0])


def page(drive: Driven) -> int:
    return drive.job_screen.shown.table_page


@expect("job", "enter")
async def gpu_of_process(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert " GPU 0 of 2 " in drive.lines[1]
    await drive.press("escape", "home", key)
    # The first is the launcher.
    assert "uses no GPU" in drive.lines[-2]
    ranks = [row for row in drive.job_screen.shown.table if row.member.role == "rank"]
    drive.view.job.selected = ranks[1].member.key
    await drive.press(key)
    assert " GPU 1 of 2 " in drive.lines[1]


@expect("job", "t")
async def fold(drive: Driven, key: str) -> None:
    folded = members(drive)
    await drive.press("end", "k")
    assert "select a process" in drive.lines[-2]
    await drive.press(key)
    assert len(members(drive)) > len(folded)
    await drive.press(key)
    assert members(drive) == folded


@expect("job", "o")
async def output_pane(drive: Driven, key: str) -> None:
    await drive.press(key)
    assert "gpuwatch run" in drive.lines[-2]
    drive.view.job.output = Printed([f"line {number}" for number in range(100)])
    await drive.press("escape", "j")
    shown = [drive.text.count("line ")]
    for _ in range(2):
        await drive.press(key)
        shown.append(drive.text.count("line "))
    assert shown[1] > shown[0] > shown[2] == 0


@expect("job", "tab", "shift+tab")
async def between_processes_and_output(drive: Driven, key: str) -> None:
    drive.view.job.output = Printed([f"line {number}" for number in range(100)])
    await drive.press("escape", "j", key, "home")
    assert "line 0 " in drive.text
    await drive.press("pagedown", "up")
    assert "line 0 " not in drive.text
    await drive.press("end")
    assert "line 99 " in drive.text
    await drive.press(key, "home")
    assert "line 99 " in drive.text
    assert chosen(drive) == 0


# -- the diagnosis ----------------------------------------------------------------------------

RULES = ("hardware_errors", "loader_cpu_bound", "pcie_degraded")
"""Of the diagnosis made by hand, in its order."""
CAUSE = [cause(one) for one in RULES]


def rule(drive: Driven) -> str:
    """The rule of the finding under the cursor."""
    assert isinstance(drive.app.screen, FindingsScreen)
    return findings.selected_finding(drive.view).rule


AFTER: dict[tuple[str, str], tuple[str, Callable[[Driven], Any]]] = {
    ("overview", "down"): ("", lambda it: gpu(it) == 1),
    ("overview", "up"): ("tab home", lambda it: gpu(it) == 1),
    ("overview", "left right"): ("", lambda it: gpu(it) == 1),
    ("overview", "end"): ("", lambda it: selected(it) == len(order(it)) - 1),
    ("overview", "home"): ("end", lambda it: selected(it) == 0),
    ("overview", "pagedown"): (
        "home",
        lambda it: selected(it) == min(len(it.table), len(order(it)) - 1),
    ),
    ("overview", "pageup"): (
        "end",
        lambda it: selected(it) == max(0, len(order(it)) - 1 - len(it.table)),
    ),
    ("overview", "tab shift+tab"): ("", lambda it: gpu(it) is None),
    ("overview", "enter"): (
        "right",
        lambda it: on(it, DetailScreen) and " GPU 1 of 2 " in it.lines[1] and detailed(it) == 1,
    ),
    ("overview", "j"): (
        "",
        lambda it: it.job_screen and it.view.job.key == it.source.options.attached is not None,
    ),
    ("overview job", "e"): ("tab home", lambda it: "train.py" in it.dialog.text),
    ("overview", "slash f3 f4"): ("slash 9 enter", lambda it: it.view.prompt is not None),
    ("overview", "escape"): (
        "slash 9 enter",
        lambda it: not it.view.filter_text,
    ),
    ("overview job", "exclamation_mark"): (
        "",
        lambda it: "Everything this machine reports" in it.dialog.text,
    ),
    (ON_CHARTS, "0"): (
        "left_square_bracket less_than_sign c",
        lambda it: it.view.timeline.moment is None and "AGO" not in it.lines[0],
    ),
    (ON_CHARTS, "c"): ("", lambda it: cursor(it) and "AGO" in it.lines[0]),
    (ON_CHARTS, "comma"): ("comma comma", lambda it: cursor(it) == pytest.approx(2)),
    (ON_CHARTS, "full_stop"): (
        "comma comma comma comma",
        lambda it: cursor(it) == pytest.approx(2),
    ),
    ("app", "plus equals_sign"): ("plus plus plus plus plus plus", lambda it: interval(it) == 0.1),
    ("app", "minus"): (
        "minus minus minus minus minus minus minus minus",
        lambda it: interval(it) == 60.0,
    ),
    ("app", "ctrl+z"): ("", lambda it: says(it, "no shell to return to")),
    ("app", "q f10 ctrl+c"): ("", lambda it: not it.app.is_running and it.app.return_code == 0),
    ("detail", "escape enter backspace"): (
        "",
        lambda it: on(it, OverviewScreen) and detailed(it) is None,
    ),
    ("detail", "left right"): ("", lambda it: " GPU 1 of 2 " in it.lines[1] and detailed(it) == 1),
    ("report", "escape R enter backspace"): ("", lambda it: it.app.screen is it.job_screen),
    ("job", "j escape"): ("", lambda it: on(it, OverviewScreen)),
    ("job", "down"): ("down down down", lambda it: chosen(it) == 3),
    ("job", "up"): ("end", lambda it: chosen(it) == len(members(it)) - 2),
    ("job", "end"): ("", lambda it: chosen(it) == len(members(it)) - 1),
    ("job", "home"): ("end", lambda it: chosen(it) == 0),
    ("job", "pagedown"): ("home", lambda it: chosen(it) == min(page(it), len(members(it)) - 1)),
    ("job", "pageup"): ("end", lambda it: chosen(it) == max(0, len(members(it)) - 1 - page(it))),
    ("job", "S"): ("", lambda it: says(it, "simulated job has no stacks")),
    ("job", "R"): ("", lambda it: on(it, ReportScreen) and str(it.view.job.key[0]) in it.text),
    ("overview job", "k f9"): (
        "tab down",
        lambda it: it.dialog is None and says(it, "simulated process cannot be"),
    ),
    ("overview job detail", "d"): ("", lambda it: rule(it) == RULES[0]),
    ("overview job findings detail", "m"): (
        "",
        lambda it: it.view.mark is not None and says(it, "marked"),
    ),
    ("overview job findings detail", "M"): (
        "m",
        lambda it: it.view.mark is None and says(it, "comparison ended"),
    ),
    ("findings", "escape d backspace"): ("", lambda it: on(it, OverviewScreen)),
    ("findings", "down"): ("down", lambda it: rule(it) == RULES[2]),
    ("findings", "up"): ("end", lambda it: rule(it) == RULES[1]),
    ("findings", "home"): ("end", lambda it: rule(it) == RULES[0]),
    ("findings", "end"): ("", lambda it: rule(it) == RULES[2]),
    ("findings", "enter"): ("down", lambda it: on(it, EvidenceScreen) and CAUSE[1] in it.text),
    ("findings evidence", "y"): (
        "",
        lambda it: "Save, stop the job" in it.app.clipboard and says(it, "copied"),
    ),
    ("findings evidence", "u"): ("", lambda it: "stacks of the main thread" in it.dialog.text),
    ("evidence", "escape d enter backspace"): ("", lambda it: on(it, FindingsScreen)),
    ("evidence", "right"): ("right", lambda it: CAUSE[2] in it.text),
    ("evidence", "left"): ("", lambda it: CAUSE[2] in it.text),
}
"""Screens and keys: what to press before, and what is true after the key as well."""

for (_screens, _keys), (_before, _holds) in AFTER.items():
    expect_after(_screens, _keys, _before.split(), _holds)
