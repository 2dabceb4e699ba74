"""Ending a process from the dashboard: real children, real signals."""

import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model import Process, Snapshot
from gpuwatch.sources.linux import procfs
from gpuwatch.tui.pages.screen import Dialog
from tests.support.children import Children, children
from tests.support.snapshots import gpu, snapshot
from tests.tui.driving import Driven, driven
from tests.tui.scenes import member, one_job

STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\nwait()"


@pytest.fixture
def family() -> Iterator[Children]:
    with children() as started:
        yield started


def start(family: Children, code: str = "ready()\nwait()") -> subprocess.Popen[bytes]:
    child = family.python(code)
    family.ready(child)
    return child


def live(child: subprocess.Popen[bytes], started_off: float = 0.0, **fields: object) -> Snapshot:
    """A snapshot, not simulated, with this child on the GPU."""
    stat = procfs.parse_process_stat(Path(f"/proc/{child.pid}/stat").read_bytes())
    shown = Process(
        pid=child.pid,
        started_at_unix_seconds=procfs.start_unix_seconds(stat) + started_off,
        user="ada",
        name="python",
        command="python train.py",
        gpu_uuid="GPU-a",
    )
    return snapshot(gpus=(gpu(),), processes=(dataclasses.replace(shown, **fields),))  # type: ignore[arg-type]


async def ask(drive: Driven) -> Dialog:
    """Select the process and press the key."""
    await drive.press("tab")
    await drive.press("k")
    assert isinstance(drive.dialog, Dialog)
    return drive.dialog


async def test_yes_sends_term_and_the_process_ends(family: Children) -> None:
    """The question names the process; y ends it by TERM, and a message says so."""
    child = start(family)
    async with driven(live(child)) as drive:
        dialog = await ask(drive)
        for said in (str(child.pid), "ada", "python train.py", "TERM"):
            assert said in dialog.text
        await drive.press("y")
        assert drive.dialog is None
        assert "asked to end" in drive.lines[-2]
    assert child.wait(60) == -15


async def test_no_other_key_ends_it(family: Children) -> None:
    """No, Esc and q send nothing, and q does not quit. Nor does a key pressed by habit, or a click,
    which open no second question either."""
    child = start(family)
    async with driven(live(child)) as drive:
        for key in ("n", "escape", "q"):
            await ask(drive)
            await drive.press(key)
            assert drive.dialog is None
            await drive.press("tab")
        await ask(drive)
        for key in ("enter", "k", "space", "Y"):
            await drive.press(key)
            assert sum(isinstance(s, Dialog) for s in drive.app.screen_stack) == 1
        await drive.click_at(40, 12)
        await drive.click_at(1, 1)
        assert drive.dialog is not None
        await drive.press("n")
    assert child.poll() is None


async def test_a_process_that_has_ended_meanwhile(family: Children) -> None:
    """It ends by itself while the question is open: a sentence, no error."""
    child = start(family)
    async with driven(live(child), (120, 40)) as drive:
        await ask(drive)
        child.kill()
        child.wait()
        await drive.press("y")
        assert "already ended" in drive.lines[-2]
        assert drive.app.is_running


async def test_a_process_that_ignores_term_is_offered_kill(family: Children) -> None:
    """The second time the question is about KILL, and y ends it for good."""
    child = start(family, STUBBORN)
    async with driven(live(child)) as drive:
        dialog = await ask(drive)
        assert "send SIGTERM" in dialog.text
        await drive.press("y")
        await drive.press("k")
        assert "send SIGKILL" in drive.dialog.text
        assert child.poll() is None
        await drive.press("y")
    assert child.wait(60) == -9


async def test_the_process_asked_about_is_the_one_that_is_ended(family: Children) -> None:
    """While the question is open the table changes and the selection's row with it: the answer
    still concerns the process that was named."""
    named, other = start(family), start(family)
    one = live(named)
    both = dataclasses.replace(
        one, processes=(live(other).processes[0],), sequence=2, monotonic_seconds=101.0
    )
    async with driven(one) as drive:
        await ask(drive)
        await drive.feed(both)
        await drive.press("y")
    assert named.wait(60) == -15
    assert other.poll() is None


async def test_a_process_of_a_job_is_ended_from_its_screen(family: Children) -> None:
    """The question names it; y sends TERM. One that the process table does not have, too."""
    child = start(family)
    first = live(child)
    shown = first.processes[0]
    one = member(
        child.pid,
        role="rank",
        command="python train.py",
        started_at_unix_seconds=shown.started_at_unix_seconds,
    )
    job = one_job(
        pid=child.pid,
        started_at_unix_seconds=shown.started_at_unix_seconds,
        members=(one, member(child.pid + 1, role="helper")),
    )
    async with driven(dataclasses.replace(first, processes=(), jobs=(job,))) as drive:
        await drive.press("j", "k")
        assert "select a process" in drive.lines[-2]
        await drive.press("home", "k")
        assert isinstance(drive.dialog, Dialog)
        for said in (str(child.pid), "ada", "python train.py", "TERM"):
            assert said in drive.dialog.text
        await drive.press("y")
        assert "asked to end" in drive.lines[-2]
    assert child.wait(60) == -15
