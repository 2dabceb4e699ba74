"""A recording in the dashboard: keys pressed, and what is on the screen then."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.outputs.export import JsonLinesWriter
from gpuwatch.tui.charts.strips import UNICODE
from gpuwatch.tui.pages.screen import Dialog
from gpuwatch.tui.panels.gpus import LEAD
from tests.support.long_recording import Piece, snapshots
from tests.tui.replay.recordings import BEGIN, END, STARVED, played, recorded, tape_of


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("replay") / "night.jsonl.zst")


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """As ``gpuwatch stream | gzip`` leaves it."""
    path = tmp_path_factory.mktemp("replay") / "stream.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as out:
        writer = JsonLinesWriter(out)
        for snapshot in snapshots((Piece("starved", 200.0),), gpus=1):
            writer.write(snapshot)
    return path


async def test_first_picture_is_the_beginning_and_says_that_it_is_a_replay(night: Path) -> None:
    """The recorded machine, its clock and day; nothing of what watching costs now."""
    async with played(tape_of(night)) as drive:
        top = drive.lines[0]
        assert " REPLAY " in top
        assert " SIMULATED " in top
        assert "sim-box" in top
        assert "20:00:00" in top
        assert "2026-03-01" in top
        assert "own " not in top
        assert re.search("playing +1x", drive.bar)


async def test_time_passes_as_it_was_recorded(night: Path) -> None:
    """At 1x a snapshot each five seconds; at 10x ten times as much in the same time. From 0.5x to
    1000x, and it says where it ends. While it is paused none passes."""
    async with played(tape_of(night)) as drive:
        await drive.pass_time(6.0)
        await drive.press("space")
        assert "paused" in drive.bar
        await drive.pass_time(20.0)
        assert drive.now == 5.0
        await drive.press("space")
        await drive.pass_time(6.0)
        assert drive.now == 10.0
        await drive.press("plus", "plus", "plus")
        assert "10x" in drive.bar
        await drive.pass_time(5.0)
        assert drive.now == 60.0
        await drive.press("space", *["minus"] * 6)
        assert "0.5x" in drive.bar
        assert "slowest" in drive.text
        await drive.press(*["plus"] * 12)
        assert "1000x" in drive.bar
        assert "fastest" in drive.text


async def test_steps_go_one_snapshot_forth_and_back(night: Path) -> None:
    """Also back past what has been played, and not past the beginning."""
    async with played(tape_of(night)) as drive:
        await drive.press("full_stop")
        await drive.until(lambda: drive.now == 5.0)
        assert "paused" in drive.bar
        await drive.press("full_stop", "full_stop")
        await drive.until(lambda: drive.now == 15.0)
        await drive.press("comma")
        await drive.until(lambda: drive.now == 10.0)
        await drive.press_text(":5%")
        await drive.press("escape")
        await drive.press("n")
        await drive.arrived()
        there = drive.now
        for count in (1, 2, 3):
            await drive.press("comma")
            await drive.until(lambda count=count: drive.now == there - 5.0 * count)
        await drive.go_to("0%")
        await drive.press("comma")
        await drive.until(lambda: "beginning" in drive.text)
        assert drive.now == 0.0


@pytest.mark.parametrize(
    ("typed", "seconds"), [("20:08:31", 510.0), ("+5m", 300.0 - 5.0), ("100%", END - BEGIN)]
)
async def test_prompt_goes_to_a_time(night: Path, typed: str, seconds: float) -> None:
    """To the last snapshot that was taken by then: at five minutes the gap has just begun."""
    async with played(tape_of(night)) as drive:
        await drive.press("space")
        await drive.press_text(f":{typed}")
        assert f"go to: {typed}" in drive.text
        await drive.press("enter")
        await drive.arrived()
        assert drive.now == seconds
        assert "go to" not in drive.text.replace(": go to", "")


async def test_prompt_takes_keys_that_are_commands_otherwise(night: Path) -> None:
    """Nothing quits, pauses or sorts while a time is typed; what is none is said."""
    async with played(tape_of(night)) as drive:
        await drive.press_text(":qsp")
        assert "go to: qsp" in drive.text
        await drive.press("enter")
        assert "not a time" in drive.text
        assert drive.app.is_running
        await drive.press("colon", "1", "backspace", "backspace")
        assert drive.view.prompt is None
        await drive.go_to("23:00")
        assert "20:00:00 to 20:14:55" in drive.text


async def test_starved_stretch_is_found_with_one_key(night: Path) -> None:
    """``n`` goes to where the finding is told, with charts and diagnosis of that moment."""
    async with played(tape_of(night), (120, 40)) as drive:
        await drive.known()
        await drive.press("n")
        await drive.arrived()
        assert 0 <= drive.now - (STARVED - BEGIN) <= 120
        assert "num_workers" in drive.text
        assert "loader is CPU-bound" in drive.text
        await drive.press("d")
        assert "loader" in drive.text
        assert "REPLAY" in drive.lines[0]


async def test_a_finding_of_a_short_recording_is_gone_to_before_its_end(tmp_path: Path) -> None:
    """In its middle; from there none begins later."""
    path = recorded(tmp_path / "short.jsonl.zst", (Piece("starved", 60.0),), interval=1.0)
    async with played(tape_of(path)) as drive:
        await drive.known()
        await drive.press("n")
        await drive.arrived()
        assert 25.0 <= drive.now <= 35.0
        assert "loader is CPU-bound" in drive.text
        await drive.press("n")
        await drive.arrived()
        assert "no finding begins later" in drive.text


async def test_findings_have_an_end(night: Path) -> None:
    """``N`` goes back to the finding before; past the last and the first it says so."""
    async with played(tape_of(night)) as drive:
        await drive.known()
        count = 0
        while "no finding begins later" not in drive.text:
            await drive.press("n")
            await drive.arrived()
            count += 1
            assert count < 10
        last = drive.now
        await drive.press("N")
        await drive.arrived()
        assert drive.now <= last
        for _ in range(count):
            await drive.press("N")
            await drive.arrived()
        assert "no finding begins before this" in drive.text


async def test_finding_is_gone_to_where_the_file_does_not_tell_it(stream: Path) -> None:
    """Once the file was looked through on a thread."""
    async with played(tape_of(stream)) as drive:
        await drive.known()
        await drive.press("n")
        await drive.until(lambda: drive.now > 20.0)
        assert "loader is CPU-bound" in drive.text


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_finding_that_is_not_read_yet_is_gone_to_once_it_is(
    stream: Path, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the person goes elsewhere meanwhile."""
    async with played(tape_of(stream)) as drive:
        await drive.known()
        player = drive.player
        state, found = player.state, player.state.findings
        with monkeypatch.context() as patched:
            patched.setattr(player, "look_at_tape", lambda: False)
            state.findings, state.progress = (), 0.4
            await drive.press("n")
            assert "looking for the next finding" in drive.text
            if leaves:
                await drive.press("full_stop")
            state.findings, state.progress = found, 1.0
            player.screen.note_more_is_known()
        if leaves:
            assert player.pending_seek is None
        else:
            await drive.until(lambda: drive.now > 20.0)
            assert "loader is CPU-bound" in drive.text


async def test_picture_after_a_jump_is_the_one_that_played_up_to_it_has(night: Path) -> None:
    """Charts, numbers and findings at a moment do not depend on how one came there."""
    at = STARVED - BEGIN + 200.0
    async with played(tape_of(night), (120, 40)) as drive:
        await drive.press("space")
        await drive.go_to(f"+{at:.0f}s")
        jumped = drive.lines[:-5]
    async with played(tape_of(night), (120, 40)) as drive:
        await drive.press("space")
        await drive.go_to(f"+{at - 60:.0f}s")
        await drive.press("space")
        await drive.pass_time(60.0)
        await drive.press("space")
        assert drive.now == at
        played_on = drive.lines[:-5]
    # What the diagnosis says of how long it has watched may differ.
    same = [one == two for one, two in zip(jumped, played_on, strict=True)]
    assert same.count(False) <= 2, (jumped, played_on)


async def test_long_range_is_filled_from_the_overview(night: Path) -> None:
    """Of an hour's chart all that was recorded before is there after a jump to the end."""
    async with played(tape_of(night), (120, 40)) as drive:
        await drive.known()
        await drive.press("space", *["right_square_bracket"] * 3)
        await drive.go_to("100%")
        series = drive.view.history.gpu(drive.view.gpus[0].uuid, "busy_percent")
        columns = series.columns(END, 30.0, 30)
        # Nobody recorded from the tenth half minute to the fourteenth.
        assert columns[10:13] == [None] * 3
        assert None not in (*columns[:10], *columns[14:])


async def test_gap_is_passed_over(night: Path) -> None:
    """Nobody waits for the two minutes that were not recorded."""
    async with played(tape_of(night)) as drive:
        await drive.press("space")
        await drive.go_to("20:04:58")
        assert drive.now == 295.0
        await drive.press("space")
        await drive.pass_time(4.5)
        assert drive.now == 295.0
        await drive.pass_time(1.0)
        assert drive.now == 420.0
        assert "nothing was recorded for 2m05" in drive.text


async def test_end_pauses_and_space_plays_it_again(night: Path) -> None:
    """It says that it is the end, and of what."""
    async with played(tape_of(night)) as drive:
        await drive.go_to("100%")
        await drive.pass_time(2.0)
        await drive.until(lambda: "the end" in drive.bar)
        assert "space plays it" in drive.text
        await drive.press("space")
        await drive.arrived()
        await drive.until(lambda: drive.now == 0.0)
        assert "playing" in drive.bar


async def test_fast_enough_to_leave_the_diagnosis_out_it_says_so(night: Path) -> None:
    """And catches up with it once it is paused."""
    async with played(tape_of(night)) as drive:
        await drive.press("n")
        await drive.arrived()
        await drive.known()
        state = drive.player.state
        state.undiagnosed = True
        await drive.pass_time(6.0)
        assert "no diagnosis" in drive.bar
        assert not drive.view.diagnosis.findings
        await drive.press("space")
        await drive.arrived()
        assert drive.view.diagnosis.findings


async def test_click_on_the_bar_goes_there(night: Path) -> None:
    """Its middle is the middle of the file."""
    async with played(tape_of(night)) as drive:
        await drive.press("space")
        await drive.click_at((LEAD + 99) // 2, 27)
        await drive.arrived()
        assert drive.now == pytest.approx((END - BEGIN) / 2, abs=15.0)


async def test_the_keys_are_in_the_last_row_and_can_be_clicked(night: Path) -> None:
    """As on all other pages; where the recording stands is said above them."""
    async with played(tape_of(night)) as drive:
        assert "play" in drive.lines[-1]
        (zone,) = drive.zones("pause")
        assert zone.y == len(drive.lines) - 1
        assert "playing" in drive.bar
        await drive.click(zone)
        assert "paused" in drive.bar


async def test_keys_that_act_on_the_machine_are_off(night: Path) -> None:
    """With a sentence; nothing is asked and nothing is done. The help has the player's keys, and
    not those that do nothing here."""
    async with played(tape_of(night), (120, 40)) as drive:
        for keys, says in (
            (("tab", "k"), "there is no process to end"),
            (("a",), "the processes that were recorded"),
            (("W",), "already is a recording"),
            (("j", "S"), "no stacks"),
            (("R",), "gpuwatch report FILE"),
        ):
            await drive.press(*keys)
            assert says in drive.text
            assert drive.dialog is None
        await drive.press("question_mark")
        assert isinstance(drive.app.screen, Dialog)
        text = drive.app.screen.text
        assert "0.5x to 1000x" in text
        assert "go to a time: 14:30  +5m" in text
        assert "end the selected process" not in text


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (120, 40)])
async def test_bar_fits_every_size(night: Path, size: tuple[int, int]) -> None:
    """The lines fill the screen exactly, on every screen, in ASCII too."""
    async with played(tape_of(night), size, ascii_mode=size == (80, 24)) as drive:
        await drive.press("space", "n")
        await drive.arrived()
        for key in ("d", "escape", "enter", "escape", "j"):
            await drive.press(key)
            assert len(drive.lines) == size[1]
            assert {len(line) for line in drive.lines} == {size[0]}
            assert "paused" in drive.bar
            assert size != (80, 24) or drive.text.isascii()


async def test_clock_that_was_set_back_does_not_stop_the_replay(tmp_path: Path) -> None:
    """Times that were there already are left out; it goes on after them."""
    path = tmp_path / "back.jsonl"
    taken = list(snapshots((Piece("healthy", 60.0),), gpus=1))
    back = [
        replace(one, taken_at_unix_seconds=one.taken_at_unix_seconds - 20.0) for one in taken[6:]
    ]
    with path.open("w", encoding="utf-8") as out:
        writer = JsonLinesWriter(out)
        for snapshot in (*taken[:6], *back):
            writer.write(snapshot)
    async with played(tape_of(path)) as drive:
        await drive.pass_time(45.0)
        assert drive.now == 35.0
        assert "the end" in drive.bar


async def test_file_that_was_deleted_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen stays, with a sentence that names the file, when a minute beyond is wanted."""
    # The sentence has room beside a short path.
    monkeypatch.chdir(tmp_path)
    path = recorded(Path("run.jsonl.zst"), (Piece("healthy", 600.0),))
    async with played(tape_of(path)) as drive:
        await drive.press("space")
        await drive.known()
        path.unlink()
        await drive.press_text(":90%")
        await drive.press("enter")
        await drive.until(
            lambda: any("run.jsonl.zst cannot be read" in line for line in drive.lines)
        )
        assert drive.now == 0.0


async def test_parentheses_go_a_minute_back_and_forth(night: Path) -> None:
    """Pressed again before the first is there, they add up; the ends are ends."""
    async with played(tape_of(night)) as drive:
        await drive.press("space", "right_parenthesis", "right_parenthesis")
        await drive.arrived()
        assert drive.now == 120.0
        await drive.press("left_parenthesis")
        await drive.arrived()
        assert drive.now == 60.0
        await drive.press("left_parenthesis", "left_parenthesis")
        await drive.arrived()
        assert drive.now == 0.0
        await drive.press("right_parenthesis")
        await drive.arrived()
        assert drive.now == 60.0


async def test_what_cannot_be_kept_up_with_is_played_as_fast_as_it_can_be(night: Path) -> None:
    """First the diagnosis is left out, then the clock waits: no snapshot is passed over."""
    async with played(tape_of(night)) as drive:
        await drive.known()
        player = drive.player
        await drive.press(*["plus"] * 6)
        assert player.state.speed == 100.0
        now = player.clock.now()
        player.keep_up(now, player.state.now + 75.0)
        assert player.state.undiagnosed
        player.keep_up(now, player.state.now + 300.0)
        assert player.clock.due(now) == player.state.now
        assert player.pending_seek is None
        await drive.press("space")
        await drive.arrived()
        assert not player.state.undiagnosed


async def test_the_bar_says_where_it_is_and_when(night: Path) -> None:
    """Before the whole recording, below which is the time of day; lines of findings have the hue of
    what they mean."""
    async with played(tape_of(night), (120, 40)) as drive:
        await drive.known()
        bar = drive.app.screen.canvas.lines[-4:-1]
        texts = ["".join(text for text, _ in line) for line in bar]
        assert re.search(r"▶ playing +1x +[▁-█┃]", texts[0])
        assert "0s of 14m55 " in texts[1]
        assert re.search(r"1 finding .*╵20:\d\d", texts[2])
        assert "starved" in {style.partition(".")[0] for _, style in bar[2]}


async def test_the_whole_recording_has_the_colours_of_the_charts(night: Path) -> None:
    """Where a finding held GPUs up, the room above what was work has its hue."""
    async with played(tape_of(night), (120, 40)) as drive:
        await drive.known()
        looks = {style.partition(".")[0] for _, style in drive.app.screen.canvas.lines[-3]}
        assert {"fed", "fed/starved"} <= looks


async def test_the_needle_hides_no_finding_and_nothing_is_said_twice(night: Path) -> None:
    """Where it stands at the beginning of one, its sign is seen above it; the verdict says which it
    is, and the header when that was."""
    async with played(tape_of(night), (120, 40)) as drive:
        await drive.known()
        count = drive.bar.count(UNICODE.warning)
        await drive.press("space", "n")
        await drive.arrived()
        assert count >= 1
        assert drive.lines[-4].count(UNICODE.warning) == count
        assert drive.lines[-3].count(UNICODE.thumb) == drive.lines[-2].count(UNICODE.thumb) == 1
        assert "finding 1 of 1" in drive.bar
        assert "CPU-bound" not in drive.bar
        clock = re.search(r"\d\d:\d\d:\d\d", drive.lines[0])
        assert clock is not None
        assert not drive.bar.count(clock[0])
