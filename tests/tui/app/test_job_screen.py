"""The job screen in the running application: how it is reached and left, what follows the job."""

import dataclasses
import re
from pathlib import Path

import pytest

from gpuwatch.core.model import Process, Snapshot
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.outputs.report.store import ReportStore
from gpuwatch.outputs.report.text import report_text
from gpuwatch.sources.simulated.source import SimulatedSource
from gpuwatch.tui.app import new_engine
from gpuwatch.tui.pages.detail import DetailScreen
from gpuwatch.tui.pages.findings import EvidenceScreen
from gpuwatch.tui.pages.job import JobScreen, ReportScreen
from gpuwatch.tui.pages.overview import OverviewScreen
from gpuwatch.tui.view import row_key
from tests.support.snapshots import gpu, snapshot
from tests.tui.diagnoses import HandEngine, diagnosis, found_on_cpu
from tests.tui.driving import Driven, driven
from tests.tui.scenes import KEY, machine, member, one_job, scene, without_driver


def select(drive: Driven, process: Process) -> None:
    drive.view.focus = "processes"
    drive.view.selected_row = row_key(process)


# -- getting there and back -----------------------------------------------------------------


async def test_enter_on_a_process_opens_its_job() -> None:
    """On any process of it; and it is read closely from then on."""
    what = scene("starved", 4)
    wanted = what.now.jobs[1]
    worker = next(p for p in what.now.processes if p.key == wanted.members[-1].key)
    async with driven(what, (120, 40)) as drive:
        select(drive, worker)
        await drive.press("enter")
        assert drive.job_screen.view.job.key == wanted.key == drive.source.options.attached
        assert str(wanted.pid) in drive.lines[5]


async def test_a_process_without_a_job_opens_its_gpu_or_says_why_not() -> None:
    """No job, but a GPU: its detail; neither: a sentence."""
    processes = (Process(pid=7, gpu_uuid="GPU-a"), Process(pid=8))
    async with driven(snapshot(gpus=(gpu(),), processes=processes)) as drive:
        select(drive, processes[0])
        await drive.press("enter")
        assert isinstance(drive.app.screen, DetailScreen)
        await drive.press("escape")
        select(drive, processes[1])
        await drive.press("enter")
        assert "belongs to no job and uses no GPU" in drive.lines[-2]


async def test_j_takes_the_job_of_the_selected_gpu() -> None:
    """With several jobs the GPU under the cursor decides; then that job stays the one meant. The
    attached job comes first wherever the cursor is."""
    what = scene("starved", 4)
    first, second = what.now.jobs[:2]
    async with driven(what) as drive:
        drive.view.selected_gpu = second.gpu_uuids[0]
        await drive.press("j")
        assert drive.view.job.key == second.key
        await drive.press("j")
        assert isinstance(drive.front, OverviewScreen)
        process = next(p for p in what.now.processes if p.pid == first.members[-1].pid)
        select(drive, process)
        await drive.press("j")
        assert drive.view.job.key == first.key
    what = scene("starved", 4, attached=True)
    async with driven(what, attached=what.now.jobs[0].key) as drive:
        await drive.press("j")
        drive.view.selected_gpu = what.now.jobs[1].gpu_uuids[0]
        await drive.press("j")
        assert drive.view.job.key == what.now.jobs[0].key


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (snapshot(gpus=(gpu(),)), "no job found"),
        (machine(one_job(gpu_uuids=()), one_job(pid=5, gpu_uuids=())), "2 jobs: select one"),
    ],
)
async def test_j_without_a_job_says_why(what: Snapshot, said: str) -> None:
    """None at all, or several and no cursor that tells them apart."""
    async with driven(what) as drive:
        await drive.press("j")
        assert isinstance(drive.front, OverviewScreen)
        assert said in drive.lines[-2]


async def test_attached_at_the_start_the_first_picture_is_the_job() -> None:
    """Asked for by any of its processes, a worker too; esc goes to the whole machine."""
    what = scene("starved", 2, attached=True)
    job = what.now.jobs[0]
    async with driven(what, (120, 40), attached=job.members[-1].key) as drive:
        assert drive.job_screen.view.job.key == job.key
        assert job.command in drive.text
        await drive.press("escape")
        assert isinstance(drive.front, OverviewScreen)


async def test_before_the_job_is_seen_the_screen_says_so() -> None:
    """A job that no snapshot has: a sentence, and all keys work."""
    async with driven(snapshot(gpus=(gpu(),)), attached=(77, None)) as drive:
        assert "PID 77" in drive.text
        await drive.press("down", "end", "t", "o", "R", "S", "k", "enter", "tab", "pagedown")
        assert isinstance(drive.app.screen, JobScreen)
        await drive.feed(machine(one_job(pid=77, started_at_unix_seconds=None), at=101.0))
        assert "python train.py" in drive.text


# -- the job goes on ------------------------------------------------------------------------


async def test_a_job_whose_launcher_is_found_is_the_same_job() -> None:
    """Its topmost process is another now: the screen, and the selection's place, follow it."""
    async with driven(machine(one_job(attached=True)), attached=KEY) as drive:
        assert drive.view.job.key == KEY
        launched = one_job(
            pid=4000, attached=True, members=(member(4000, role="launcher"), *one_job().members)
        )
        await drive.feed(machine(launched, at=101.0))
        assert drive.view.job.key == launched.key
        assert drive.app.jobs.report.report() is not None


async def test_another_job_that_was_opened_is_not_left_for_the_one_before() -> None:
    """Until the next reading the mark is still on the old one."""
    first = one_job(attached=True)
    second = one_job(pid=5, gpu_uuids=(), members=(member(5),), ranks=())
    async with driven(machine(first, second), attached=KEY) as drive:
        await drive.press("j")
        drive.app.jobs.open(second)
        await drive.settle()
        await drive.feed(machine(first, second, at=101.0))
        assert drive.view.job.key == second.key


async def ending(drive: Driven, clock: ManualClock, source: SimulatedSource, seconds: int) -> None:
    source.options.attached = drive.source.options.attached
    for _ in range(seconds):
        clock.advance(1.0)
        await drive.sampler.feed(source.read())
        source.options.attached = drive.source.options.attached
    await drive.settle()


def demo(scenario: str, gpus: int = 1) -> tuple[ManualClock, SimulatedSource, Snapshot]:
    clock = ManualClock(seconds=1000.0)
    source = SimulatedSource(scenario, gpus, clock=clock, options=ReadOptions())
    source.open()
    first = source.read()
    source.options.attached = first.jobs[0].key
    return clock, source, first


async def test_a_job_that_ends_stays_with_its_report(tmp_path: Path) -> None:
    """The screen says so with the time and shows the report, which has the only charts; a simulated
    one is not kept."""
    clock, source, first = demo("rerun")
    store = ReportStore(tmp_path / "reports")
    async with driven(first, (100, 20), attached=first.jobs[0].key, reports=store) as drive:
        await ending(drive, clock, source, 66)
        assert "ended" in drive.lines[1]
        assert "report: " in drive.text
        assert sum(" GPU 0 busy " in line for line in drive.lines) == 1
        before = drive.lines
        await drive.press("down", "down")
        assert drive.lines != before
        await drive.press("home")
        assert drive.lines[3:] == before[3:]
        await drive.press("R")
        assert isinstance(drive.app.screen, ReportScreen)
    assert not store.folder.exists()


async def test_the_next_run_takes_its_place_and_is_compared() -> None:
    """The same command again: it is the job shown, read closely, with a report of its own that
    knows the run before."""
    clock, source, first = demo("rerun")
    async with driven(first, (120, 40), attached=first.jobs[0].key) as drive:
        await ending(drive, clock, source, 70)
        before = drive.app.jobs.report.report()
        assert before is not None
        await ending(drive, clock, source, 30)
        assert drive.view.job.key != first.jobs[0].key
        assert drive.source.options.attached == drive.view.job.key
        assert "6 loader workers" in drive.text
        assert " ROLE" in drive.text
        now = drive.app.jobs.report.report()
        assert now.key == drive.view.job.key
        assert drive.app.jobs.report._previous(now) == before


def ended(at: float) -> Snapshot:
    one = one_job(attached=True, ended_at_unix_seconds=1_000_101.5, members=())
    return machine(one, at=at, taken_at_unix_seconds=1_000_000.0 + at)


@pytest.mark.parametrize("left", [False, True])
async def test_the_report_of_a_real_job_is_kept(tmp_path: Path, left: bool) -> None:
    """Once the driver's last samples have come, and the message names the file; or when the
    dashboard is left before that."""
    store = ReportStore(tmp_path / "reports")
    first = machine(one_job(attached=True))
    async with driven(first, (200, 40), attached=KEY, reports=store) as drive:
        await drive.feed(machine(one_job(attached=True), at=101.0), ended(102.0))
        if left:
            await drive.press("q")
        else:
            await drive.feed(ended(103.0), ended(104.0), ended(105.0))
            assert str(tmp_path) in drive.lines[-2]
    assert [kept.report.pid for kept in store.last()] == [4242]


async def test_a_report_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    """A sentence instead of the file's name; the report is shown all the same."""
    (tmp_path / "file").write_text("")
    store = ReportStore(tmp_path / "file" / "reports")
    first = machine(one_job(attached=True))
    async with driven(first, (200, 40), attached=KEY, reports=store) as drive:
        await drive.feed(ended(101.0), ended(102.0), ended(105.0))
        assert "cannot be saved" in drive.lines[-2]
        assert "report: " in drive.text


async def test_a_paused_picture_still_records() -> None:
    """The report misses nothing of what came while the picture stood still."""
    what = scene("starved", 1, attached=True)
    async with driven(what, attached=what.now.jobs[0].key) as drive:
        await drive.press("p")
        for _ in range(5):
            await drive.next()
        report = drive.app.jobs.report.report()
        assert report.time.covered_seconds >= 5.0


# -- once it has ended ------------------------------------------------------------------------


async def test_orphans_of_a_job_that_ended_are_to_be_seen(tmp_path: Path) -> None:
    """Processes that are left over stand in place of the report, to be ended; R has the report.
    Once they are gone too, the report is there."""
    left = member(4250, role="loader_worker", orphaned=True)
    ended = one_job(attached=True, ended_at_unix_seconds=1_000_101.5, members=(left,), ranks=())
    store = ReportStore(tmp_path / "reports")
    async with driven(
        machine(one_job(attached=True)), (120, 40), attached=KEY, reports=store
    ) as drive:
        await drive.feed(machine(one_job(attached=True), at=101.0))
        await drive.feed(machine(ended, at=102.0))
        assert "orphaned loader worker" in drive.text
        assert "k kill" in drive.lines[-1]
        assert "report: " not in drive.text
        await drive.press("R")
        assert isinstance(drive.app.screen, ReportScreen)
        await drive.press("escape")
        gone = dataclasses.replace(ended, members=())
        await drive.feed(machine(gone, at=103.0))
        assert "report: " in drive.text
        assert "k kill" not in drive.lines[-1]


async def test_the_footer_offers_only_what_can_be_done() -> None:
    """A job that has ended has no stacks, no process to fold or to end, and its report is there."""
    clock, source, first = demo("rerun")
    async with driven(first, (200, 50), attached=first.jobs[0].key) as drive:
        for key in ("S stacks", "t fold", "k kill", "R report"):
            assert key in drive.lines[-1]
        await ending(drive, clock, source, 70)
        drive.view.message = None
        drive.app.drawing.redraw()
        for key in ("S stacks", "t fold", "k kill", "R report"):
            assert key not in drive.lines[-1]


async def test_the_report_of_a_job_that_runs_says_what_was_found() -> None:
    """R has the cause, what it cost up to now and the cure, as the job page has; below them the
    evidence in the form of its own page, and the time axis with the finding on it."""
    clock, source, first = demo("starved")
    async with driven(first, (100, 60), attached=first.jobs[0].key, engine=Engine()) as drive:
        await ending(drive, clock, source, 45)
        await drive.press("R")
        text = "\n".join(drive.lines)
        assert "loader is CPU-bound" in text
        assert re.search(r"\n│ +what to do +Raise num_workers from 2 to 8: each worker is", text)
        assert re.search(r"\+ loader workers' CPU +\d+%  > 75%  the workers are at the limit", text)
        assert re.search(r"ruled out +thermally throttled, power or clocks capped", text)
        assert "+ speaks for it   - does not" in text
        # The title has the command.
        assert text.count("python train.py") == 1
        assert re.search(r"loader is CPU-bound .*╵\d\d:\d\d:\d\d─", text)
        (found,) = drive.app.jobs.report.report().findings
        # Two thirds of 45 s, to the second.
        assert 27.0 < found.cost_gpu_seconds < 33.0


async def test_the_evidence_and_the_report_say_the_same_loss_at_any_second() -> None:
    """Also between two looks of the engine, ten seconds apart, and whichever is opened first."""
    clock, source, first = demo("starved")
    async with driven(first, (120, 60), attached=first.jobs[0].key, engine=Engine()) as drive:
        await ending(drive, clock, source, 80)
        lost = []
        for _ in range(8):
            await ending(drive, clock, source, 1)
            await drive.press("d")
            (on_screen,) = re.findall(r"(\d+) GPU-seconds.* so far", "\n".join(drive.lines))
            await drive.press("escape")
            await drive.press("R")
            (reported,) = re.findall(r"lost (\d+) GPU-seconds", " ".join(drive.lines))
            await drive.press("escape")
            assert on_screen == reported
            lost.append(int(on_screen))
        assert lost[-1] - lost[0] >= 3


@pytest.mark.parametrize("seconds", [47, 58])
async def test_a_report_opened_late_loses_no_more_than_it_watched(seconds: int) -> None:
    """Busy and lost together are no more than its time, whenever the job's page was opened."""
    clock, source, first = demo("starved")
    async with driven(first, (100, 60), engine=Engine()) as drive:
        await ending(drive, clock, source, seconds)
        await drive.press("j")
        await ending(drive, clock, source, 12)
        await drive.press("R")
        report = drive.app.jobs.report.report()
        (found,) = report.findings
        busy = report.total.busy_gpu_seconds
        assert found.cost_gpu_seconds > 0.0
        assert busy + found.cost_gpu_seconds <= report.gpu_seconds + 1.0


async def test_the_report_covers_what_was_watched_before_its_job_was_opened() -> None:
    """From the first snapshot on, of each of several jobs, with the lost time of the ledger; a job
    that somebody turns away from is recorded on."""
    clock, source, first = demo("starved", 4)
    async with driven(first, (100, 60), engine=Engine()) as drive:
        await ending(drive, clock, source, 60)
        jobs = drive.view.snapshot.jobs
        assert len(jobs) > 1
        for job in (jobs[0], jobs[1], jobs[0]):
            drive.app.jobs.open(job)
            await ending(drive, clock, source, 1)
            await drive.press("R", "escape")
            now = drive.view.snapshot
            report = drive.app.jobs.report.report()
            watched = now.monotonic_seconds - first.monotonic_seconds
            assert report.pid == job.pid
            assert report.time.covered_seconds == pytest.approx(watched)
            begin, end = report.time.begin_unix_seconds, report.time.end_unix_seconds
            said = [one.cost_gpu_seconds for one in report.findings]
            held = [
                one.cost_gpu_seconds
                for one in drive.app.diagnosis.ledger.episodes(begin, end)
                if one.job == job.key
            ]
            assert sorted(filter(None, said)) == pytest.approx(sorted(filter(None, held)))
            assert any(said)
            await drive.press("escape")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (80, 12)])
async def test_without_a_driver_the_finding_of_a_job_is_seen(size: tuple[int, int]) -> None:
    """Above the notice that there is no driver, which has a line; d says why, at once."""
    now = without_driver()
    engine = HandEngine(diagnosis(now, found_on_cpu()))
    async with driven(now, size, engine=engine, attached=KEY) as drive:
        await drive.feed(dataclasses.replace(now, monotonic_seconds=101.0, sequence=2))
        found = "loader is CPU-bound" if size[0] == 80 else "waited for data"
        first, second = [
            next((at for at, line in enumerate(drive.lines) if words in line), None)
            for words in (found, "No NVIDIA driver")
        ]
        assert first is not None
        assert second is not None
        assert first < second
        await drive.press("d")
        assert isinstance(drive.app.screen, EvidenceScreen)


async def test_the_report_begins_with_the_verdict_and_what_to_do() -> None:
    """Then come the dashboard's charts with the times of the clock, then the document that
    ``gpuwatch report`` prints."""
    what = scene("starved", 2, attached=True, seconds=60)
    job = what.now.jobs[0]
    async with driven(what.past[0], make_engine=new_engine, attached=job.key) as drive:
        for snapshot in what.past[1:]:
            await drive.sampler.feed(snapshot)
        await drive.press("R")
        text = drive.text
        order = (
            "report: ",
            "for data 63%",
            "num_workers 2 -> 6",
            "The GPUs were busy",
            "over time",
        )
        assert text.count("x as fast") == text.count("for data 63%") == 1
        places = [text.index(words) for words in order]
        assert places == sorted(places)
        (axis,) = [line for line in drive.lines if "\u2575" in line]
        assert ":" in axis
        busy = [line for line in drive.lines if "GPU 1 busy" in line]
        assert len(busy) == 1
        report = drive.app.jobs.report.report()
        printed = report_text(report, width=200)
        await drive.press("end")
        last = [line.strip(" \u2502") for line in drive.lines[:-1] if line.strip(" \u2502")][-2:]
        assert any(line.split("  ")[-1][:30] in printed for line in last)
