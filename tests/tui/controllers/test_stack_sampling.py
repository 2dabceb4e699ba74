"""Stacks of a real process, asked for on the job screen."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from gpuwatch.core.model import Snapshot
from gpuwatch.jobs.stacks import sampler as stack_sampler
from gpuwatch.jobs.stacks.report import Place, Share, StackReport, UserLine
from gpuwatch.sources.linux import procfs
from gpuwatch.tui.charts.strips import ASCII, UNICODE
from gpuwatch.tui.pages.dialogs import stacks_dialog
from gpuwatch.tui.view import View
from tests.jobs.stacks.support import has_sampled, py_spies_of
from tests.support.children import Children, children
from tests.tui.driving import Driven, driven
from tests.tui.scenes import machine, member, one_job

BUSY = """
def crunch():
    while True:
        sum(range(1000))
print("ready", flush=True)
crunch()
"""


@pytest.fixture
def family() -> Iterator[Children]:
    with children() as started:
        yield started


def live(child: subprocess.Popen[bytes]) -> Snapshot:
    """A snapshot, not simulated, of a job of this process."""
    stat = procfs.parse_process_stat(Path(f"/proc/{child.pid}/stat").read_bytes())
    started = procfs.start_unix_seconds(stat)
    trains = member(child.pid, role="rank", rank=0, started_at_unix_seconds=started)
    return machine(
        one_job(pid=child.pid, started_at_unix_seconds=started, members=(trains,), ranks=())
    )


async def until(drive: Driven, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.05)
        await drive.settle()


@pytest.fixture
def busy(family: Children, tmp_path: Path) -> Snapshot:
    """A job that computes and may be sampled."""
    program = stack_sampler.find_py_spy()
    if program is None:
        pytest.skip("py-spy is not installed")
    script = tmp_path / "train.py"
    script.write_text(BUSY)
    child = family.run([sys.executable, str(script)])
    assert family.ready(child) == "ready"
    refused = stack_sampler.why_not(child.pid, program)
    if refused is not None:
        pytest.skip(refused)
    return live(child)


async def test_the_users_own_line_is_named(busy: Snapshot) -> None:
    """S samples in the background and shows the shares; S again ends it sooner."""
    async with driven(busy, (100, 30)) as drive:
        await drive.press("j", "S")
        # A second later it says how long it will take: either names the key.
        assert "(S ends it early)" in drive.lines[-2]
        await until(drive, lambda: any(map(has_sampled, py_spies_of(os.getpid()))))
        await drive.press("S")
        await until(drive, lambda: drive.dialog is not None)
        assert "train.py:" in drive.dialog.text
        assert "crunch" in drive.dialog.text
        await drive.press("escape")
        assert drive.job_screen


async def test_what_cannot_be_sampled_says_why(family: Children) -> None:
    """A process that is no Python gives a sentence."""
    child = family.run(["sleep", "60"])
    async with driven(live(child), (100, 30)) as drive:
        await drive.press("j", "S")
        await until(drive, lambda: drive.dialog is not None)
        assert str(child.pid) in drive.dialog.text or "py-spy" in drive.dialog.text


async def test_a_job_that_has_ended_has_no_stacks() -> None:
    """Nothing is started for it."""
    ended = one_job(ended_at_unix_seconds=1100.0, members=())
    async with driven(machine(ended), (100, 30)) as drive:
        await drive.press("j", "S")
        assert "is not running" in drive.lines[-2]
        assert not drive.app.jobs.samples


async def test_leaving_ends_the_sampler(busy: Snapshot) -> None:
    """No py-spy outlives the dashboard."""
    async with driven(busy, (100, 30)) as drive:
        await drive.press("j", "S")
        await until(drive, lambda: bool(py_spies_of(os.getpid())))
        await drive.press("q")
    assert py_spies_of(os.getpid()) == []


def report(**fields: object) -> StackReport:
    line = UserLine(
        place=Place("/home/ada/train.py", 41, "train_one_epoch"),
        samples=120,
        percent=60.0,
        doing="waiting_for_data",
        source="for images, labels in loader:",
    )
    shares = (
        Share(
            category="waiting_for_data",
            samples=120,
            percent=60.0,
            lines=(line,),
        ),
        Share(category="computing", samples=79, percent=39.5),
        Share(category="other", samples=1, percent=0.5),
    )
    settings: dict[str, object] = {
        "pid": 4242,
        "rank": 0,
        "seconds": 10.0,
        "samples": 200,
        "shares": shares,
        "cpu_seconds": 0.2,
    }
    return StackReport(**(settings | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
def test_shares_are_shown_with_their_lines_and_cost(glyphs: object) -> None:
    """Percent, bar, what it is, the line with its source, and what sampling cost."""
    dialog = stacks_dialog(View(glyphs=glyphs), [report()])  # type: ignore[arg-type]
    text = dialog.text
    for said in (
        *("rank 0", "PID 4242", "200 samples in 10 s", "60%", "waiting for data"),
        *("train.py:41 (train_one_epoch)", "for images, labels in loader:"),
        *("py-spy used 2.0% of a core", "never paused"),
    ):
        assert said in text
    bars = [line for line in text.splitlines() if "waiting" in line or "computing" in line]
    full = glyphs.solid[8]  # type: ignore[attr-defined]
    assert [line.count(full) for line in bars] == [6, 4 - (glyphs is UNICODE)]
    assert all(cell_len(line) <= 76 for line in text.splitlines())
    assert text.isascii() or glyphs is UNICODE
