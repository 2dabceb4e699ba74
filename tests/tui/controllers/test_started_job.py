"""A job that gpuwatch started, on its screen: real processes, their output, how they are left."""

import asyncio
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.jobs.run.job import RunningJob, Start, start_in_terminal
from gpuwatch.outputs.report.store import ReportStore
from gpuwatch.tui.pages.screen import Dialog
from tests.tui.driving import Driven, driven
from tests.tui.scenes import machine, member, one_job

WAITS = "import sys, time\nprint('ready', flush=True)\ntime.sleep(60)"
FAILS = "print('boom')\nraise SystemExit(3)"


class Jobs:
    """Starts jobs as ``gpuwatch run`` does, and ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[RunningJob] = []

    def start(self, code: str) -> RunningJob:
        path = self.folder / f"run-{len(self.started)}.log"
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        command = [sys.executable, "-S", "-c", code]
        job = start_in_terminal(command, Start.now(), output=output, path=path)
        self.started.append(job)
        return job


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    yield started
    for job in started.started:
        job.kill()
        job.wait(60)
        job.close()


def seen(job: RunningJob, at: float = 100.0, ended: float | None = None) -> Snapshot:
    """A snapshot, not simulated, with this job."""
    pid, started = job.key
    first = member(pid, role="rank", started_at_unix_seconds=started)
    rank = dataclasses.replace(one_job().ranks[0], pid=pid, started_at_unix_seconds=started)
    shown = one_job(
        pid=pid,
        started_at_unix_seconds=started,
        attached=True,
        ranks=(rank,),
        members=() if ended is not None else (first,),
        ended_at_unix_seconds=ended,
    )
    return machine(shown, at=at, taken_at_unix_seconds=time.time())


async def until(drive: Driven, condition: Callable[[], bool]) -> None:
    """Let the application go on until ``condition`` holds; the limit only ends a failing test."""
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.02)
        if drive.app.is_running:
            await drive.settle()


async def test_q_asks_and_can_be_taken_back(jobs: Jobs) -> None:
    """While the job runs it is asked what shall become of it; to stay changes nothing."""
    job = jobs.start(WAITS)
    async with driven(seen(job), (80, 24), running=job) as drive:
        for key in ("s", "escape", "n", "q"):
            await drive.press("q")
            dialog = drive.app.screen
            assert isinstance(dialog, Dialog)
            assert "leave it running" in dialog.text
            await drive.press(key)
            assert drive.job_screen
            assert drive.app.is_running
        assert job.poll() is None


async def test_q_can_interrupt_it(jobs: Jobs) -> None:
    """As Ctrl-C does."""
    job = jobs.start(WAITS)
    async with driven(seen(job), (120, 30), running=job) as drive:
        await until(drive, lambda: "ready" in drive.text)
        await drive.press("q")
        await drive.press("i")
        await until(drive, lambda: not drive.app.is_running)
        assert drive.app.return_code == 130


async def test_the_question_goes_away_once_it_has_ended(jobs: Jobs) -> None:
    """There is nothing left to decide; the dashboard stays."""
    job = jobs.start(WAITS)
    async with driven(seen(job), (80, 24), running=job) as drive:
        await drive.press("q")
        assert isinstance(drive.app.screen, Dialog)
        job.kill()
        await until(drive, lambda: not isinstance(drive.app.screen, Dialog))
        assert "the job has ended" in drive.lines[-2]
        await drive.press("q")
        assert drive.app.return_code == 137


async def test_once_it_has_ended_q_quits_with_its_exit_code(jobs: Jobs) -> None:
    """The dashboard stays until then and says how it ended."""
    job = jobs.start(FAILS)
    async with driven(seen(job), (120, 30), running=job) as drive:
        await until(drive, lambda: job.poll() is not None and "boom" in drive.text)
        for at in range(101, 105):
            await drive.feed(seen(job, float(at), ended=time.time()))
        assert "exit code 3" in drive.lines[1]
        assert "report: " in drive.text
        assert drive.app.is_running
        await drive.press("q")
        assert drive.app.return_code == 3


async def test_nothing_is_logged_of_the_time_after_it(jobs: Jobs) -> None:
    """Its dashboard stays open while a person looks at it; a run's values are the job's."""

    class Experiment:
        """Keeps the times at which it was given a snapshot."""

        def __init__(self) -> None:
            self.seen: list[float] = []

        def push(self, snapshot: Snapshot, diagnosis: object) -> list[str]:
            self.seen.append(snapshot.monotonic_seconds)
            return []

    job, experiment = jobs.start(WAITS), Experiment()
    async with driven(seen(job), running=job, experiment=experiment) as drive:
        await drive.feed(seen(job, 101.0))
        job.kill()
        await until(drive, lambda: job.poll() is not None)
        await drive.feed(seen(job, 102.0, ended=time.time()))
    assert experiment.seen == [100.0, 101.0]


async def test_the_exit_code_is_not_said_of_another_job(jobs: Jobs) -> None:
    """Another job that is looked at meanwhile has none."""
    job = jobs.start(FAILS)
    other = one_job(pid=5, members=(member(5),), ranks=(), gpu_uuids=())
    async with driven(seen(job), (120, 30), running=job) as drive:
        await until(drive, lambda: job.poll() is not None)
        both = dataclasses.replace(seen(job, 101.0), jobs=(*seen(job).jobs, other))
        await drive.feed(both)
        drive.app.jobs.open(other)
        await drive.feed(dataclasses.replace(both, monotonic_seconds=102.0))
        assert drive.view.job.key == other.key
        assert drive.view.job.exit_code is None


async def test_its_report_is_kept_while_another_job_is_looked_at(
    jobs: Jobs, tmp_path: Path
) -> None:
    """Whatever is on the screen when it ends: a report of what was started is expected."""
    job = jobs.start("import time; time.sleep(0.3)")
    store = ReportStore(tmp_path / "reports")
    other = one_job(pid=5, members=(member(5),), ranks=(), gpu_uuids=())
    async with driven(seen(job), (120, 30), running=job, reports=store) as drive:
        await drive.feed(dataclasses.replace(seen(job, 101.0), jobs=(*seen(job).jobs, other)))
        drive.app.jobs.open(other)
        await until(drive, lambda: job.poll() is not None)
        await drive.press("q")
    assert [(kept.report.pid, kept.report.exit_code) for kept in store.last()] == [(job.pid, 0)]
