"""Text that anybody can put into a process's name, on every screen; and processes in hundreds."""

import dataclasses
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from gpuwatch.core.model import Problem, Process, Snapshot
from gpuwatch.core.text import clean
from gpuwatch.tui.charts.strips import ASCII
from gpuwatch.tui.pages import detail, job, overview
from gpuwatch.tui.pages.overview import OverviewScreen
from tests.support.snapshots import gpu, snapshot
from tests.tui.driving import driven, pictures
from tests.tui.scenes import Printed, controls, job_view_of, member, one_job, texts, view_of, widths
from tests.tui.terminal.emulator import AppOnTerminal

SIZES = ((200, 50), (80, 24), (40, 12), (20, 6))

HOSTILE = {
    "ten thousand lines": "python\n" * 10_000,
    "escapes": "\x1b[2J\x1b[31mred\x1b]0;title\x07\x1bP1$r\x1b\\\x9b5m\x1b[?1049l",
    "markup": "[bold red]x[/] [link=file:///]y[/link] [@click=app.quit]z[/] [/] [",
    "overrides": "a\u202etxt.exe\u202c \u2066b\u2069 \u200fc",
    "nothing to see": "\x00\x00zero\u200bwidth\u200djoin\ufeff\u00ad\u2060",
    "bytes that are no text": b"\xff\xfe\x80abc\xed\xa0\x80".decode("utf-8", "surrogateescape"),
    "wide": "訓練 학습 🚀🚀👩\u200d👩\u200d👧 ｆｕｌｌ" * 40,
    "combining": "e\u0301" * 50 + "a" + "\u0300" * 200,
    "all blanks": " \t\v\f\r\n\u00a0\u2028\u2029\u3000",
    "empty": "",
    "private": "\ue000\U000f0000\uffff\U0010ffff",
}


def machine(text: str, at: float = 100.0, pid: int = 4242) -> Snapshot:
    """A machine on which everything that has a name has this one, as a source would give it."""
    safe = clean(text)
    one = gpu(busy_percent=50.0)
    one = dataclasses.replace(one, identity=dataclasses.replace(one.identity, name=clean(text, 96)))
    parent = Process(
        pid=pid,
        started_at_unix_seconds=1.0,
        user=clean(text, 32),
        name=clean(text, 64),
        command=safe,
    )
    child = dataclasses.replace(parent, pid=pid + 1, parent_pid=pid, gpu_uuid="GPU-a")
    rank = dataclasses.replace(
        one_job().ranks[0], loader_workers=None, loader_workers_sign=clean(text, 60)
    )
    names = dict.fromkeys(("user", "container", "pod", "environment"), clean(text, 32))
    members = (
        member(role="rank", name=safe, command=safe, role_sign=safe),
        member(4250, role="loader_worker", name=safe, command=safe + "x", parent_pid=4242),
    )
    hit = one_job(command=safe, working_directory=safe, ranks=(rank,), members=members, **names)
    return snapshot(
        at=at,
        gpus=(one,),
        jobs=(hit,),
        processes=(parent, child),
        host=dataclasses.replace(snapshot().host, name=clean(text, 64)),
        problems=(Problem(source="nvml", message=safe, severity="error"),),
    )


def check(lines: list[str], width: int) -> None:
    assert not controls("".join(lines))
    assert {cell_len(line) for line in lines} == {width}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_drawing_passes_it_on(name: str) -> None:
    """Every page at every size, with a filter, in ASCII, and with output of a job: exact lines, no
    control character, brackets as text."""
    text = HOSTILE[name]
    what = machine(text)
    for width, height in SIZES:
        for fields in ({}, {"filter_text": clean(text, 200)}, {"glyphs": ASCII}):
            view = job_view_of(what, **fields)
            view.job.output, view.job.output_name = Printed([clean(text)] * 20), clean(text)
            for lines in (
                overview.draw(view, width, height).lines,
                detail.draw(view, width, height, 0)[0].lines,
                job.draw(view, width, height).lines,
            ):
                assert len(lines) == height
                check(texts(lines), width)


@pytest.mark.parametrize("name", ["escapes", "markup", "bytes that are no text", "wide", "empty"])
async def test_no_screen_obeys_it(name: str) -> None:
    """Overview, problems, the question before ending a process, detail, job, report, and the
    picture: the terminal shows text; nothing in it is obeyed, and no key is bound by it."""
    async with driven(machine(HOSTILE[name]), (100, 20), app_type=AppOnTerminal) as drive:
        app = drive.app
        await drive.press("tab")
        check(drive.lines, 100)
        for key in ("exclamation_mark", "k"):
            await drive.press(key)
            assert drive.dialog is not None
            strips = drive.app.screen._compositor.render_strips()
            check([strip.text for strip in strips], 100)
            await drive.press("n", "escape")
            if drive.dialog is not None:
                await drive.press("escape")
        await drive.press("enter")
        check(drive.lines, 100)
        await drive.press("escape", "j", "down", "R")
        check(drive.lines, 100)
        await drive.press("escape", "escape")
        assert isinstance(drive.front, OverviewScreen)
        await drive.feed(machine(HOSTILE[name], at=101.0, pid=5000))
        assert not controls("".join(app.terminal.lines).replace("\N{REPLACEMENT CHARACTER}", ""))
        assert "title" not in app.terminal.screen.title
        assert "\x1b" not in app.drawing.picture()
        assert app.is_running


async def test_a_folder_with_escapes_in_its_name_is_shown_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said about a saved picture passes the same door as everything else."""
    folder = tmp_path / "a\x1b[31mb\nc[red]f[bold]"
    folder.mkdir()
    monkeypatch.chdir(folder)
    async with driven(machine("x"), (200, 50)) as drive:
        await drive.press("w")
        assert pictures(folder)
        assert "saved" in drive.lines[-2]
        assert "[red]f[bold]" in drive.lines[-2]
        check(drive.lines, 200)


def test_the_problem_of_a_thousand_characters_keeps_its_count() -> None:
    """A long sentence is cut with an ellipsis, and the count of the others stays whole."""
    what = dataclasses.replace(
        machine("x"),
        problems=tuple(
            Problem(source="nvml", message=f"{n} " + "very " * 300, severity="error")
            for n in range(7)
        ),
    )
    for width, height in ((200, 50), (80, 24)):
        lines = texts(overview.draw(view_of(what), width, height).lines)
        (counted,) = [line for line in lines if re.search(r"\+\d+ more", line)]
        shown = sum(bool(re.match(r".? . \d very", line)) for line in lines)
        assert f"+{7 - shown} more" in counted
        assert "…" in counted


# -- churn --------------------------------------------------------------------------------------


def crowd(second: int, count: int = 500) -> Snapshot:
    """``count`` processes that exist in this second only, on two GPUs and on none."""
    processes = tuple(
        Process(
            pid=1000 + second * count + number,
            started_at_unix_seconds=float(second),
            gpu_uuid=("GPU-a", "GPU-b", None)[number % 3],
            gpu_busy_percent=50.0,
            cpu_percent=10.0,
            command=f"short lived {number}",
        )
        for number in range(count)
    )
    return snapshot(at=100.0 + second, gpus=(gpu("GPU-a", 0), gpu("GPU-b", 1)), processes=processes)


def test_processes_that_come_and_go_leave_nothing_behind() -> None:
    """500 new processes a second for 20 s, then none: strips follow what is on the screen, and
    the history forgets who has been gone for a while."""
    view = view_of(crowd(0))
    strips = []
    for second in range(1, 20):
        one = crowd(second)
        view.history.push(one)
        view.snapshot = one
        frame = overview.draw(view, 200, 50)
        assert widths(frame.lines) == {200}
        strips.append(len(view.strips._strips))
    assert max(strips) <= 2 * min(strips) + 10
    assert max(strips) < 200
    for second in range(20, 200, 5):
        view.history.push(snapshot(at=100.0 + second, gpus=crowd(0).gpus))
    assert len(view.history._processes) == 0
