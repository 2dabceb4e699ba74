"""``gpuwatch record``: real processes, real signals, real files."""

import contextlib
import json
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

from gpuwatch.commands.cli import run
from gpuwatch.commands.recordings import record as record_module
from gpuwatch.commands.recordings import running as running_module
from gpuwatch.recording.reader import open_any
from gpuwatch.recording.recorder import RecordingState
from gpuwatch.recording.running import (
    RunningRecording,
    announced,
    notes_folder,
    process_mark,
    running_recordings,
)
from gpuwatch.sources.files.log_text import LogError
from tests.commands.running import environment_in
from tests.recording.machine import read
from tests.support.children import wait_until

RECORD = (sys.executable, "-m", "gpuwatch", "record")
DEMO = ("--demo", "--gpus", "2", "--interval", "0.1s")


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


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return notes_folder()


def test_it_records_for_the_time_asked_for(tmp_path: Path, state: Path) -> None:
    """And says so in a sentence; without a terminal nothing else."""
    path = tmp_path / "run.jsonl.zst"
    done = record(tmp_path, "-o", "run.jsonl.zst", "--for", "1s", *DEMO)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"Recorded \d+ snapshots of \d+s to \S+ \([\d.]+K\)\.\n", done.stdout)
    found, _ = read(path)
    # A busy machine misses some.
    assert len(found) >= 2
    assert found[-1].monotonic_seconds - found[0].monotonic_seconds > 0.3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert running_recordings() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_well(tmp_path: Path, state: Path, number: signal.Signals) -> None:
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
def test_after_kill_9_all_but_the_last_seconds_is_there(
    tmp_path: Path, state: Path, name: str
) -> None:
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
    assert running_recordings() == []
    assert record(tmp_path, "-o", str(path), "--for", "1s", *DEMO).returncode == 0
    after, _ = read(path)
    assert after[: len(before)] == before
    assert len(after) > len(before)


def test_this_machine_is_recorded_without_what_is_private(
    tmp_path: Path, state: Path, capsys: pytest.CaptureFixture[str]
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


def test_one_job_is_recorded_until_it_ends(tmp_path: Path, state: Path) -> None:
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
        (("--stop",), "No recording is running"),
    ],
)
def test_what_cannot_be_is_said(
    tmp_path: Path, state: Path, arguments: tuple[str, ...], says: str
) -> None:
    """In one line, with exit code 2."""
    done = record(tmp_path, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_that_may_not_grow_is_no_traceback(tmp_path: Path, state: Path) -> None:
    """It is said once, what is there is kept, and by the exit code."""
    command = ("bash", "-c", "ulimit -f 8; trap '' XFSZ; exec \"$@\"", "-", *RECORD)
    done = record(tmp_path, "-o", "run.jsonl", "--for", "2s", *DEMO, command=command)
    assert done.returncode == 74
    assert "the largest file size allowed (ulimit -f) is reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"\d snapshots? lost", done.stdout)
    assert (tmp_path / "run.jsonl").stat().st_size <= 8 * 1024


@pytest.fixture
def detached(tmp_path: Path, state: Path) -> Iterator[RunningRecording]:
    done = record(tmp_path, "-o", "run.jsonl.zst", "--detach", *DEMO)
    assert done.returncode == 0, done.stderr
    (found,) = running_recordings()
    assert f"Process {found.pid} records to" in done.stdout
    try:
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGKILL)


def test_detached_it_has_left_the_terminal(
    tmp_path: Path, state: Path, detached: RunningRecording
) -> None:
    """A session of its own, nothing open that anybody could wait for, a note for its owner."""
    assert os.getsid(detached.pid) == detached.pid
    shown = {str(Path(f"/proc/{detached.pid}/fd/{number}").readlink()) for number in (0, 1, 2)}
    assert shown == {"/dev/null"}
    assert detached.path == str(tmp_path / "run.jsonl.zst")
    assert detached.detached
    notes = list(state.iterdir())
    assert [stat.S_IMODE(note.stat().st_mode) for note in notes] == [0o600]
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    os.kill(detached.pid, signal.SIGHUP)
    wait_until(lambda: process_mark(detached.pid) is None)


def test_one_that_runs_is_found_read_and_stopped(
    tmp_path: Path, state: Path, detached: RunningRecording
) -> None:
    """By whoever comes later."""
    path = Path(detached.path)
    wait_until(lambda: count(path) >= 2)
    listed = record(tmp_path, "--list").stdout
    assert str(detached.pid) in listed
    assert detached.path in listed
    again = record(tmp_path, "-o", "run.jsonl.zst", *DEMO)
    assert again.returncode == 2
    assert f"Process {detached.pid} records" in again.stderr
    wrong = record(tmp_path, "--stop", "1")
    assert wrong.returncode == 2
    done = record(tmp_path, "--stop", "run.jsonl.zst")
    assert done.returncode == 0, done.stderr
    assert "has ended" in done.stdout
    assert running_recordings() == []
    assert record(tmp_path, "--list").stdout == "No recording is running.\n"
    found, stats = read(path)
    assert (found != [], stats.sentences()) == (True, [])


def test_a_note_that_is_no_longer_true_is_none(state: Path) -> None:
    """Its process has ended, its PID is another's or no process's (a signal to -1 reaches all), it
    is of another machine, or no note."""
    ended = Popen(["true"])
    ended.wait()
    mine = RunningRecording(pid=os.getpid(), path="/x", started_at_unix_seconds=1.0)
    with announced(mine):
        assert running_recordings() == [mine]
        (note,) = state.iterdir()
        text = note.read_text()
        (state / "a.json").write_text(text.replace(str(os.getpid()), str(ended.pid)))
        mark = process_mark(os.getpid())
        (state / "b.json").write_text(text.replace(mark, mark + "1"))
        (state / "c.json").write_text(text.replace('"machine":"', '"machine":"x'))
        (state / "d.json").write_text("{")
        (state / "e.json").write_text("[]")
        (state / "f.json").symlink_to(note)
        os.mkfifo(state / "g.json")
        for number, pid in enumerate((-1, 0, 1, -os.getpid())):
            forged = {**json.loads(text), "process": process_mark(pid)}
            forged["recording"]["pid"] = pid
            (state / f"h{number}.json").write_text(json.dumps(forged))
        assert running_recordings() == [mine]
    assert running_recordings() == []


def test_only_the_process_of_the_note_is_signalled(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the one that has its PID by the time --stop comes to it."""
    child = Popen(["sleep", "600"])
    try:
        recording = RunningRecording(pid=child.pid, path="/x", started_at_unix_seconds=1.0)
        monkeypatch.setattr(running_module, "_chosen", lambda _wanted: [recording])
        monkeypatch.setattr(running_module, "STOP_SECONDS", 60.0)
        assert run(["record", "--stop", "all"]) == 0
        assert child.poll() is None
        with announced(recording):
            assert run(["record", "--stop", "all"]) == 0
        assert child.wait() == -signal.SIGTERM
    finally:
        child.kill()
        child.wait()


def test_the_list_says_what_is_the_matter(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the recording says it; and where its note cannot be written (on the same full disk), that
    nothing came into the file for long."""
    path = tmp_path / "run.jsonl.zst"
    path.write_bytes(b"")
    now = time.time()
    mine = RunningRecording(pid=os.getpid(), path=str(path), started_at_unix_seconds=now - 900)
    with announced(mine) as announce:
        assert run(["record", "--list"]) == 0
        assert capsys.readouterr().out.count("\n") == 1
        announce("The disk is full\x1b[2J.")
        assert run(["record", "--list"]) == 0
        shown = capsys.readouterr().out
        assert "The disk is full" in shown
        assert "\x1b" not in shown
        announce(None)
        os.utime(path, (now - 600, now - 600))
        assert run(["record", "--list"]) == 0
        assert "Nothing was written for 10m" in capsys.readouterr().out
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("more", ["", " What is in it is kept, and writing is retried."])
def test_the_last_word_is_one_sentence(capsys: pytest.CaptureFixture[str], more: str) -> None:
    """Why nothing could be written, with one full stop; nothing is tried again any more."""
    none = {"snapshots": 0, "written_bytes": 0, "findings": 0, "lost_snapshots": 15}
    trouble = f"run.jsonl cannot be written: there is no such folder.{more}"
    state = RecordingState(path=Path("run.jsonl"), trouble=trouble, **none)
    assert record_module._report_end(state, 14.0, whole=True) != 0
    said = capsys.readouterr().err
    assert said == "gpuwatch: run.jsonl cannot be written: there is no such folder.\n"
