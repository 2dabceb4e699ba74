"""Stacks of real processes, taken by the real py-spy."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model import JobMember
from gpuwatch.jobs.stacks.report import StackReport, cost_sentence
from gpuwatch.jobs.stacks.sampler import StackSampler
from tests.jobs.stacks.support import (
    TrainingJob,
    has_sampled,
    py_spies_of,
    spinning,
    target,
    training_job,
)
from tests.support.children import Children, wait_until


@pytest.fixture(scope="module")
def job() -> Iterator[TrainingJob]:
    with training_job() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def sampled(*targets: JobMember, seconds: int = 2, py_spy: str | None = None) -> list[StackReport]:
    return list(asyncio.run(StackSampler(targets, seconds=seconds, py_spy=py_spy).run()))


@pytest.mark.parametrize(
    ("phase", "category", "source"),
    [
        ("loading", "loading_data", "time.sleep(seconds)"),
        ("starving", "waiting_for_data", "for _batch in loader:"),
        ("saving", "saving", 'torch.save(state, Path(folder) / "checkpoint.pt")'),
        ("evaluate", "evaluating", "return self.second(F.relu(self.first(x)))"),
        ("training", "computing", None),
        ("logging", "synchronising", "wait(0.05) or torch.ones(1).sum().item()"),
    ],
)
def test_a_real_training_job(
    job: TrainingJob, phase: str, category: str, source: str | None
) -> None:
    """What a PyTorch job does most is found out from outside, with its own line of source."""
    job.do(phase)
    (report,) = sampled(target(job.pid))
    assert report.problem is None
    share = report.largest
    assert share.category == category, report
    assert share.percent > 50
    line = share.lines[0]
    assert line.place.file.endswith("/train.py")
    if source is not None:
        assert line.source == source


def test_several_processes_are_sampled_at_once(started: Children) -> None:
    """In the order asked for, each once however often it is named, a process that cannot be
    sampled among them. The cost is py-spy's CPU time over the time it ran."""
    pids = [spinning(started), 99_999_999, spinning(started)]
    targets = [target(pid) for pid in pids]
    reports = sampled(*targets, target(pids[0], rank=0), seconds=1)
    assert [report.pid for report in reports] == pids
    assert [report.problem is None for report in reports] == [True, False, True]
    for report in (reports[0], reports[2]):
        assert report.samples > 0
        cpu, percent = report.cpu_seconds, report.cpu_percent
        assert percent == pytest.approx(100 * cpu / report.seconds)
        assert cost_sentence([report]) == (
            f"py-spy used {percent:.1f}% of a core for {report.seconds:.0f} s; the job was never "
            "paused."
        )


@pytest.mark.parametrize("ends", ["the process", "the sampling"])
async def test_what_ends_early_gives_what_was_sampled(started: Children, ends: str) -> None:
    """The report says whether the process ended, and nobody has to wait to the end; a dashboard
    keeps drawing meanwhile."""
    pid = spinning(started)
    sampler = StackSampler([target(pid)], seconds=600)
    task = asyncio.create_task(sampler.run())
    await asyncio.sleep(0)
    (py_spy,) = py_spies_of(os.getpid())
    wait_until(lambda: has_sampled(py_spy))
    assert not task.done()
    if ends == "the process":
        os.kill(pid, signal.SIGKILL)
    else:
        sampler.stop()
    (report,) = await task
    assert report.samples > 0
    assert report.ended == (ends == "the process")
    assert report.seconds < 600


async def test_cancelling_leaves_nothing_behind(started: Children, folder: Path) -> None:
    """No py-spy and no files, as when the dashboard is closed in the middle; while it runs the
    files are the user's alone."""
    task = asyncio.create_task(StackSampler([target(spinning(started))], seconds=600).run())
    await asyncio.sleep(0)
    (made,) = os.scandir(folder)
    assert made.stat().st_mode & 0o777 == 0o700
    assert len(py_spies_of(os.getpid())) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert py_spies_of(os.getpid()) == []
    assert os.listdir(folder) == []  # noqa: PTH208 - nothing to wait for


def test_a_pid_that_is_used_again_is_not_sampled(started: Children) -> None:
    """The start time says that it is another process."""
    other = target(spinning(started), started_at_unix_seconds=1.0)
    (report,) = sampled(other)
    assert report.problem == f"Process {other.pid} has ended; another one has its PID now."


BROKEN = {
    "is no program": (b"\x7fELF nonsense", "py-spy ({program}) cannot be started"),
    "fails, and is quoted without what a terminal could obey": (
        b"#!/bin/sh\nprintf 'Error: out of \\033[31mluck\\nmore\\n' >&2\nexit 1\n",
        "py-spy could not read process {pid}: out of \N{REPLACEMENT CHARACTER}[31mluck",
    ),
    # As under Yama, where gpuwatch may read a job of its own and py-spy may not.
    "may not": (
        b"#!/bin/sh\necho 'Permission Denied: Try running again with' >&2\nexit 1\n",
        "may not be read",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_py_spy_that_fails_is_explained(started: Children, tmp_path: Path, case: str) -> None:
    """In a sentence of gpuwatch's own, or py-spy's own words made safe."""
    program, says = BROKEN[case]
    broken = tmp_path / "py-spy"
    broken.write_bytes(program)
    broken.chmod(0o755)
    (report,) = sampled(target(spinning(started)), py_spy=str(broken))
    assert says.format(program=broken, pid=report.pid) in report.problem
    assert "Try running again" not in report.problem


def test_py_spy_gets_none_of_our_environment(
    started: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets of the shell are no business of a sampler's, and its logging stays as it is. How many
    attempts failed it says once, at the end."""
    monkeypatch.setenv("API_TOKEN", "secret")
    monkeypatch.setenv("RUST_LOG", "debug")
    copy = tmp_path / "environment"
    spy = tmp_path / "py-spy"
    spy.write_text(f"#!/bin/sh\nenv > {copy}\necho 'Samples: 177 Errors: 11'\n")
    spy.chmod(0o755)
    (report,) = sampled(target(spinning(started)), py_spy=str(spy))
    assert "secret" not in copy.read_text()
    assert "RUST_LOG" not in copy.read_text()
    assert (report.samples, report.errors) == (0, 11)
