"""``gpuwatch record``: real processes, real signals, real files."""

import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

import pytest

from gpuwatch.commands import record as record_module
from gpuwatch.commands.cli import run
from gpuwatch.recording import file as file_module
from gpuwatch.recording.file import holder_of, open_any
from gpuwatch.recording.recorder import RecordingState
from gpuwatch.sources.logs.text import LogError
from tests.commands.conftest import Gpuwatch
from tests.commands.running import environment_in
from tests.recording.machine import read
from tests.support.children import wait_until

RECORD = (sys.executable, "-m", "gpuwatch", "record")
DEMO = ("--demo", "starved:2", "--interval", "0.1s")


def started(folder: Path, *arguments: str, command: Sequence[str] = RECORD) -> Popen[str]:
    return Popen(
        [*command, *arguments],
        cwd=folder,
        env=environment_in(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def record(folder: Path, *arguments: str, command: Sequence[str] = RECORD) -> Done:
    process = started(folder, *arguments, command=command)
    out, errors = process.communicate(timeout=60)
    return Done(process.returncode, out, errors)


def count(path: Path) -> int:
    with contextlib.suppress(LogError), open_any(str(path)) as log:
        return sum(1 for _ in log.snapshots)
    return 0


def test_it_records_for_the_time_asked_for(tmp_path: Path) -> None:
    """And says so in a sentence, with what comes next; without a terminal nothing else."""
    path = tmp_path / "run.jsonl.zst"
    done = record(tmp_path, "run.jsonl.zst", "--for", "1s", *DEMO)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"Recorded \d+ snapshots of \d+s to \S+ \([\d.]+K\)\. .*\n", done.stdout)
    assert done.stdout.endswith(f"gpuwatch report {path} says what happened.\n")
    found, _ = read(path)
    # A busy machine misses some.
    assert len(found) >= 2
    assert found[-1].monotonic_seconds - found[0].monotonic_seconds > 0.3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_well(tmp_path: Path, number: signal.Signals) -> None:
    """The file is whole, and the exit code 0."""
    path = tmp_path / "run.jsonl.zst"
    process = started(tmp_path, "-o", str(path), *DEMO)
    wait_until(lambda: path.exists() and path.stat().st_size > 0)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert out.startswith("Recorded ")
    found, stats = read(path)
    assert (found != [], stats.sentences()) == (True, [])


@pytest.mark.parametrize("name", ["run.jsonl.zst", "run.jsonl"])
def test_after_kill_9_all_but_the_last_seconds_is_there(tmp_path: Path, name: str) -> None:
    """And it can be appended to."""
    path = tmp_path / name
    process = started(tmp_path, "-o", str(path), *DEMO)
    wait_until(lambda: path.exists() and count(path) >= 12)
    at = time.time()
    process.kill()
    process.communicate(timeout=60)
    before, _ = read(path)
    assert at - before[-1].taken_at_unix_seconds < 10.0
    assert [each.sequence for each in before] == list(range(len(before)))
    assert record(tmp_path, "-o", str(path), "--for", "1s", *DEMO).returncode == 0
    after, _ = read(path)
    assert after[: len(before)] == before
    assert len(after) > len(before)


def test_this_machine_is_recorded_without_what_is_private(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what it has: processes, if asked for; with --redact no command line and no host, whose
    name leaves no gap in reports."""
    path = tmp_path / "run.jsonl"
    every = ("--for", "1s", "--interval", "0.5", "--redact", "--all")
    done = record(tmp_path, "-o", str(path), *every)
    assert done.returncode == 0, done.stderr
    found = read(path)[0][-1]
    assert not found.simulated
    assert found.host.memory_total_bytes
    assert any(process.pid == os.getpid() for process in found.processes)
    assert all(" " not in (process.command or "") for process in found.processes)
    assert found.host.name == ""
    assert f'"{os.uname().nodename}"' not in path.read_text()
    assert run(["report", str(path)]) == run(["compare", str(path), str(path)]) == 0
    shown = capsys.readouterr().out
    assert "· ·" not in shown
    assert ", ," not in shown


def test_one_job_is_recorded_until_it_ends(tmp_path: Path) -> None:
    """With --pid: the job alone."""
    path = tmp_path / "run.jsonl"
    job = Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process = started(tmp_path, "-o", str(path), "--pid", str(job.pid), "--interval", "0.2s")
        wait_until(lambda: path.exists() and count(path) >= 2)
        job.communicate(b"\n", timeout=60)
        process.communicate(timeout=60)
    finally:
        job.kill()
    assert process.returncode == 0
    found, _ = read(path)
    assert {job.pid for snapshot in found for job in snapshot.jobs} == {job.pid}
    assert found[-1].jobs[0].ended_at_unix_seconds is not None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Name the file"),
        (("a", "-o", "b"), "Name one file"),
        (("a", "b"), "unexpected extra argument (b)"),
        (("-",), "gpuwatch stream"),
        (("-o", "-"), "gpuwatch stream"),
        (("-o", "x", "--keep", "2"), "--rotate"),
        (("-o", "x", "--for", "soon"), "write it as"),
        (("-o", "x", "--for", "0s"), "between 1 second and 366 days"),
        (("-o", "x", "--interval", "2h"), "between 0.1 seconds and 1 hour"),
        (("-o", "x", "--interval", "500ms"), "write it as"),
        (("-o", "nowhere/x"), "there is no such folder"),
        (("-o", "nowhere/x", "--detach"), "there is no such folder"),
        (("-o", "."), "it is a folder"),
        (("-o", "/dev/null"), "gpuwatch stream"),
        (("-o", "x", "--pid", "999999999"), "999999999"),
        (("-o", "x", "--demo", "nonsense", "--detach"), "--demo list"),
        (("--stop", "."), "No gpuwatch of this user records to ."),
    ],
)
def test_what_cannot_be_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpuwatch: Gpuwatch,
    arguments: tuple[str, ...],
    says: str,
) -> None:
    """In one line, with exit code 2."""
    monkeypatch.chdir(tmp_path)
    done = gpuwatch("record", *arguments, code=2)
    assert says in done.err
    assert done.err.count("\n") == 1


def test_a_file_that_may_not_grow_is_no_traceback(tmp_path: Path) -> None:
    """It is said once, what is there is kept, and by the exit code."""
    command = ("bash", "-c", "ulimit -f 8; trap '' XFSZ; exec \"$@\"", "-", *RECORD)
    done = record(tmp_path, "-o", "run.jsonl", "--for", "2s", *DEMO, command=command)
    assert done.returncode == 74
    assert "the largest file size allowed (ulimit -f) is reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"\d snapshots? lost", done.stdout)
    assert (tmp_path / "run.jsonl").stat().st_size <= 8 * 1024


@pytest.fixture
def detached(tmp_path: Path) -> Iterator[int]:
    done = record(tmp_path, "-o", "run.jsonl.zst", "--detach", *DEMO)
    assert done.returncode == 0, done.stderr
    pid = int(done.stdout.split()[1])
    assert f"Process {pid} records to {tmp_path}/run.jsonl.zst" in done.stdout
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_detached_it_has_left_the_terminal(tmp_path: Path, detached: int) -> None:
    """A session of its own, and nothing open that anybody could wait for."""
    assert os.getsid(detached) == detached
    shown = {str(Path(f"/proc/{detached}/fd/{number}").readlink()) for number in (0, 1, 2)}
    assert shown == {"/dev/null"}
    path = tmp_path / "run.jsonl.zst"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.kill(detached, signal.SIGHUP)
    wait_until(lambda: holder_of(path.stat()) is None)


def test_one_that_runs_is_read_and_stopped_by_its_file(tmp_path: Path, detached: int) -> None:
    """By whoever comes later; whoever only reads the file, or writes to it and is no gpuwatch, is
    left alone."""
    path = tmp_path / "run.jsonl.zst"
    wait_until(lambda: count(path) >= 2)
    again = record(tmp_path, "-o", "run.jsonl.zst", *DEMO)
    assert again.returncode == 2
    assert f"Process {detached} records" in again.stderr
    with path.open("rb") as file:
        reads = Popen([sys.executable, "-c", "input()", "gpuwatch"], stdin=subprocess.PIPE,
                      stdout=file)  # fmt: skip
        with path.open("ab") as written:
            other = Popen(["sleep", "600"], stdout=written)
        try:
            done = record(tmp_path, "--stop", "run.jsonl.zst")
            assert done.returncode == 0, done.stderr
            assert "has ended" in done.stdout
            wrong = record(tmp_path, "--stop", "run.jsonl.zst")
            assert wrong.returncode == 2
            assert "No gpuwatch of this user records to run.jsonl.zst" in wrong.stderr
            assert (reads.poll(), other.poll()) == (None, None)
        finally:
            for one in (reads, other):
                one.kill()
                one.communicate()
    assert "cannot be read: No such file" in record(tmp_path, "--stop", "none").stderr
    found, stats = read(path)
    assert (found != [], stats.sentences()) == (True, [])


def test_only_the_process_that_records_is_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one that has its PID by the time --stop comes to it."""
    child = Popen(["sleep", "600"])
    (tmp_path / "x").touch()
    try:
        holders = iter([(child.pid, True), None, None])
        monkeypatch.setattr(file_module, "holder_of", lambda _file: next(holders))
        assert run(["record", "--stop", str(tmp_path / "x")]) == 0
        assert child.poll() is None
        holders = iter([(child.pid, True)] * 3 + [None])
        assert run(["record", "--stop", str(tmp_path / "x")]) == 0
        assert child.wait() == -signal.SIGTERM
    finally:
        child.kill()
        child.wait()


def test_a_dashboard_that_records_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be that of a job, which would end with it."""
    child = Popen(["sleep", "600"])
    monkeypatch.setattr(file_module, "holder_of", lambda _file: (child.pid, False))
    try:
        assert run(["record", "--stop", str(tmp_path)]) == 2
        assert "press W there to stop it" in capsys.readouterr().err
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("more", ["", " What is in it is kept, and writing is retried."])
def test_the_last_word_is_one_sentence(capsys: pytest.CaptureFixture[str], more: str) -> None:
    """Why nothing could be written, with one full stop; nothing is tried again any more."""
    none = {"snapshots": 0, "written_bytes": 0, "findings": 0, "lost_snapshots": 15}
    trouble = f"run.jsonl cannot be written: there is no such folder.{more}"
    state = RecordingState(path=Path("run.jsonl"), trouble=trouble, **none)
    assert record_module._report_end(state, 14.0, whole=True) != 0
    said = capsys.readouterr().err
    assert said == "gpuwatch: run.jsonl cannot be written: there is no such folder.\n"
