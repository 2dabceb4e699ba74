"""Selections, the filter, zooming, dialogs: sequences of keys on the running application."""

import dataclasses
from pathlib import Path

import pytest

from gpuwatch.core.model import Problem, Process, Snapshot
from gpuwatch.tui.pages.dialogs import problems_dialog
from gpuwatch.tui.view import row_key
from tests.support.snapshots import gpu, snapshot
from tests.tui.driving import Driven, driven
from tests.tui.scenes import scene, view_of

SMALL = (40, 12)


def machine(*processes: Process, at: float = 100.0, gpus: int = 2) -> Snapshot:
    cards = tuple(gpu(f"GPU-{number}", number, busy_percent=50.0) for number in range(gpus))
    return snapshot(at=at, sequence=int(at), gpus=cards, processes=processes)


def process(pid: int, **fields: object) -> Process:
    settings: dict[str, object] = {"started_at_unix_seconds": 1.0, "gpu_uuid": "GPU-0"}
    return Process(pid=pid, **(settings | fields))  # type: ignore[arg-type]


def selected(drive: Driven) -> int | None:
    return None if drive.view.selected_row is None else drive.view.selected_row[0]


def marked(drive: Driven) -> list[str]:
    """Lines of the table that carry the selection's mark."""
    first = drive.zones("process")[0].y
    return [line for line in drive.lines[first:-1] if line.startswith("▌")]


# -- the selection ----------------------------------------------------------------------------


async def test_the_selection_stays_on_its_process_when_the_order_changes() -> None:
    """The busiest process changes; the mark goes where the selected process goes."""
    before = machine(*(process(pid, cpu_percent=float(pid)) for pid in (1, 2, 3)))
    after = machine(*(process(pid, cpu_percent=float(-pid)) for pid in (1, 2, 3)), at=102.0)
    async with driven(before) as drive:
        await drive.press("t", "s", "s", "s", "tab", "down")
        assert drive.view.sort == "cpu"
        assert drive.table == [3, 2, 1]
        assert selected(drive) == 2
        await drive.feed(after)
        assert drive.table == [1, 2, 3]
        assert selected(drive) == 2
        (line,) = marked(drive)
        assert " 2 " in line


async def test_a_reused_pid_is_not_the_selected_process() -> None:
    """The same PID with another start time is another process: it is not marked or ended."""
    async with driven(machine(process(1), process(2))) as drive:
        await drive.press("tab", "down")
        reused = machine(process(1), process(2, started_at_unix_seconds=50.0), at=101.0)
        await drive.feed(reused)
        assert marked(drive) == []
        await drive.press("k")
        assert drive.dialog is None
        assert "select a process" in drive.lines[-2]


async def test_the_selected_row_is_always_in_sight() -> None:
    """Walking down through all processes and back up scrolls with the selection."""
    many = machine(*(process(pid, gpu_memory_bytes=None) for pid in range(1, 61)))
    async with driven(many, SMALL) as drive:
        await drive.press("tab")
        for _ in range(6):
            await drive.press(*["down"] * 10)
            assert selected(drive) in drive.table
        assert selected(drive) == 60
        await drive.press(*["up"] * 59)
        assert selected(drive) == drive.table[0] == 1


async def test_the_selected_gpu_is_always_in_sight() -> None:
    """With more GPUs than rows the list scrolls to the selected one."""
    async with driven(scene("starved", 16), SMALL) as drive:
        for number in range(1, 16):
            await drive.press("down")
            uuid = drive.view.gpus[number].uuid
            assert drive.view.selected_gpu == uuid
            assert uuid in {zone.argument for zone in drive.zones("gpu")}


async def test_moving_with_nothing_to_move_in() -> None:
    """Without GPUs and processes every movement is harmless."""
    async with driven(machine(gpus=0)) as drive:
        await drive.press("up", "down", "left", "right", "tab", "pageup", "pagedown", "home", "end")
        await drive.press("k", "enter")
        assert "no GPU to open" in drive.lines[-2]
        assert drive.app.is_running


async def test_every_key_before_the_first_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the machine has not answered yet no key does any harm."""
    monkeypatch.chdir(tmp_path)
    async with driven(machine()) as drive:
        drive.view.snapshot = None
        drive.app.drawing.redraw()
        for keys in (
            ("down", "up", "left", "right", "tab", "home", "end", "pageup", "pagedown"),
            ("s", "r", "t", "a", "k", "plus", "minus", "p", "p", "w"),
            ("left_square_bracket", "right_square_bracket", "exclamation_mark", "enter", "T"),
        ):
            await drive.press(*keys)
        await drive.press("question_mark")
        assert drive.dialog is not None


# -- the filter ---------------------------------------------------------------------------------


async def test_what_is_typed_into_the_filter_is_no_command() -> None:
    """Every letter and mark that is a command elsewhere is only text here, from right behind the
    slash on (q quits, k ends a process); Ctrl-C still quits."""
    async with driven(scene("starved", 2)) as drive:
        theme, glyphs, sort = drive.app.theme, drive.view.glyphs, drive.view.sort
        await drive.press("slash", *"qkTAspratgw")
        assert drive.app.is_running
        assert drive.view.filter_text == "qkTAspratgw"
        assert drive.dialog is None
        assert (drive.app.theme, drive.view.glyphs, drive.view.sort) == (theme, glyphs, sort)
        assert not drive.view.paused
        assert not drive.view.reverse
        await drive.press("ctrl+u")
        await drive.pilot.press("a", "space", "+", "-", "[", "]", "?", "!", "/", "=")
        assert drive.view.filter_text == "a +-[]?!/="
        assert drive.dialog is None
        await drive.press("ctrl+c")
        assert not drive.app.is_running


async def test_the_table_follows_the_typing() -> None:
    """Each letter narrows the table; Enter keeps the filter, Esc takes it away."""
    procs = (process(1, command="python train.py"), process(2, command="tensorboard"))
    async with driven(machine(*procs)) as drive:
        await drive.press("slash")
        await drive.press("t")
        assert drive.table == [1, 2]
        await drive.press("r")
        assert drive.table == [1]
        await drive.press("backspace", "backspace")
        assert drive.table == [1, 2]
        await drive.press("t", "e", "enter")
        assert drive.table == [2]
        await drive.press("T")
        assert drive.view.filter_text == "te"
        await drive.press("escape")
        assert drive.table == [1, 2]


async def test_the_cursor_stays_on_the_gpus_where_there_is_no_table() -> None:
    """Eight GPUs fill the smallest terminal: no key moves the cursor out of sight."""
    async with driven(machine(process(1), gpus=8), size=SMALL) as drive:
        await drive.press("tab", *["down"] * 9)
        assert drive.view.focus == "gpus"
        assert drive.view.selected_gpu == "GPU-7"


async def test_where_nothing_is_listed_only_up_leads_out() -> None:
    """The table is empty: down stays in it, up leads to the last GPU."""
    async with driven(machine(process(1))) as drive:
        await drive.press("tab", "slash", "z", "enter", "down")
        assert (drive.table, drive.view.focus) == ([], "processes")
        await drive.press("up")
        assert (drive.view.focus, drive.view.selected_gpu) == ("gpus", "GPU-1")


async def test_a_filter_that_hides_the_selection_keeps_it() -> None:
    """Filtered out and back again, the selected process is still the selected one."""
    async with driven(machine(process(1), process(2), process(3))) as drive:
        await drive.press("tab", "down", "down")
        await drive.press("slash")
        await drive.press("1", "enter")
        assert drive.table == [1]
        await drive.press("escape")
        assert selected(drive) == 3
        assert len(marked(drive)) == 1


# -- dialogs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["question_mark", "exclamation_mark"])
async def test_a_dialog_is_closed_by_any_of_its_keys(key: str) -> None:
    """Esc, Enter, q and the key that opened it close it, at any size; q does not quit then."""
    async with driven(scene("mixed", 2), (20, 5)) as drive:
        for closer in ("escape", "enter", "q", key):
            await drive.press(key)
            assert drive.dialog is not None
            await drive.press(closer)
            assert drive.app.is_running, closer
            assert drive.dialog is None, closer


@pytest.mark.parametrize(
    ("severities", "title"),
    [
        (("info",), "1 message"),
        (("error", "warning", "info"), "3 messages"),
        (("error", "warning"), "2 messages"),
        ((), "0 messages"),
    ],
)
def test_the_problems_dialog_says_all_of_them_whole(
    severities: tuple[str, ...], title: str
) -> None:
    """Every problem, the gravest first, with its full sentence, and how many there are."""
    problems = [
        Problem(source="nvml", message=f"{severity} sentence " * 12, severity=severity)
        for severity in severities
    ]
    view = view_of(dataclasses.replace(machine(), problems=tuple(reversed(problems))))
    dialog = problems_dialog(view)
    places = [dialog.text.index(problem.message) for problem in problems]
    assert places == sorted(places)
    assert dialog.labels[0] == title


async def test_a_key_that_pauses_before_the_first_picture_does_not_keep_it_away() -> None:
    """What is typed while the machine is still being read must not leave an empty screen."""
    async with driven(machine()) as drive:
        drive.view.snapshot, drive.view.paused = None, True
        await drive.feed(machine())
        assert "PAUSED" in drive.lines[0]
        assert drive.view.gpus
        assert "reading the machine" not in drive.text


# -- all processes ------------------------------------------------------------------------------


async def test_without_a_gpu_all_processes_are_shown() -> None:
    """The list of processes on a GPU would be empty: the machine's are asked for by itself."""
    async with driven(machine(process(1, gpu_uuid=None), gpus=0)) as drive:
        assert drive.source.options.all_processes
        assert drive.view.focus == "processes"
        assert drive.table == [1]


async def test_rows_have_a_key_of_their_own() -> None:
    """A process on two GPUs is two rows; the selection is on one of them."""
    async with driven(machine(process(9), process(9, gpu_uuid="GPU-1"))) as drive:
        await drive.press("t", "tab", "down")
        assert drive.view.selected_row == row_key(process(9, gpu_uuid="GPU-1"))
        assert len(marked(drive)) == 1
