"""The recorder: what it writes reads back, whatever the disk does."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.core.codec import snapshot_line
from gpuwatch.core.model import GpuReading, Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.outputs.status.jsonlines import JsonLinesWriter
from gpuwatch.recording.reader import open_any
from gpuwatch.recording.recorder import (
    BackgroundRecorder,
    Recorder,
    RecordingError,
    open_index,
    recent_snapshots,
)
from gpuwatch.sources.files import zstd
from gpuwatch.sources.files.log_text import LogStats
from gpuwatch.sources.files.unpacked import rotated_files
from gpuwatch.sources.simulated.source import SimulatedSource
from tests.support.snapshots import gpu, snapshot


class Machine:
    """A simulated machine whose time is turned by hand."""

    def __init__(
        self, gpus: int = 1, scenario: str = "starved", processes: int | None = None
    ) -> None:
        self.clock = ManualClock()
        self.source = SimulatedSource(scenario, gpus, clock=self.clock, processes=processes)
        self.taken: list[Snapshot] = []

    def record(self, recorder: Recorder, count: int, step: float = 1.0) -> None:
        for _ in range(count):
            taken = self.source.read()
            self.taken.append(taken)
            recorder.push(taken)
            self.clock.advance(step)


def read(path: Path) -> tuple[list[Snapshot], LogStats]:
    with open_any(str(path)) as log:
        return list(log.snapshots), log.stats


def lines(path: Path) -> list[str]:
    """As ``zstdcat`` gives them."""
    data = path.read_bytes()
    text = zstd.decompress(data) if path.name.endswith(".zst") else data
    return text.decode().splitlines()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize("name", ["run.jsonl.zst", "run.jsonl"])
def test_what_was_recorded_reads_back(tmp_path: Path, machine: Machine, name: str) -> None:
    """Every snapshot, exactly, packed or plain."""
    path = tmp_path / name
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 130)
    recorder.close()
    found, stats = read(path)
    assert found == machine.taken
    assert stats.sentences() == []
    state = recorder.state
    assert (state.snapshots, state.lost_snapshots, state.trouble) == (130, 0, None)
    assert state.written_bytes == path.stat().st_size


@pytest.mark.parametrize("name", ["run.jsonl.zst", "run.jsonl"])
def test_a_recording_is_what_stream_prints(tmp_path: Path, machine: Machine, name: str) -> None:
    """The very lines, with a header once a minute."""
    recorder = Recorder(tmp_path / name, monotonic=machine.clock.monotonic)
    machine.record(recorder, 200)
    recorder.close()
    out = io.StringIO()
    writer = JsonLinesWriter(out)
    for taken in machine.taken:
        writer.write(taken)
    recorded = lines(tmp_path / name)
    headers = [line for line in recorded if line.startswith('{"kind":"header"')]
    assert [line for line in recorded if line not in headers] == out.getvalue().splitlines()[1:]
    assert 200 // 60 <= len(headers) <= 200 // 60 + 2


def test_each_frame_can_be_read_alone(tmp_path: Path, machine: Machine) -> None:
    """It begins with a header, and holds a minute."""
    path = tmp_path / "run.jsonl.zst"
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 200)
    recorder.close()
    data, frames = path.read_bytes(), []
    while data:
        frame = zstd.ZstdDecompressor()
        text = frame.decompress(data)
        assert frame.eof
        data = frame.unused_data
        frames += [text.splitlines()] if text else []
    for frame_lines in frames:
        kinds = [json.loads(line)["kind"] for line in frame_lines]
        assert kinds[0] == "header"
        assert set(kinds[1:]) == {"snapshot"}
        assert len(kinds) <= 61
    assert len(frames) >= 200 // 60


def test_a_recording_is_small(tmp_path: Path) -> None:
    """What has not changed takes little room: a third of a packed stream at most."""
    machine = Machine(gpus=2, processes=32)
    path = tmp_path / "run.jsonl.zst"
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 60)
    recorder.close()
    streamed = gzip.compress("\n".join(map(snapshot_line, machine.taken)).encode())
    assert path.stat().st_size < len(streamed) / 3


def test_files_are_for_their_owner_alone(tmp_path: Path, machine: Machine) -> None:
    """They hold command lines; also where the umask would allow more."""
    before = os.umask(0)
    try:
        recorder = Recorder(tmp_path / "run.jsonl", rotate_seconds=10, keep=3)
        machine.record(recorder, 130)
        recorder.close()
    finally:
        os.umask(before)
    files = list(tmp_path.iterdir())
    assert len(files) > 1
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_what_was_found_is_in_it(tmp_path: Path, machine: Machine) -> None:
    """Nobody has to diagnose it again; what somebody has found already is not looked for."""
    path = tmp_path / "run.jsonl.zst"
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 150)
    recorder.close()
    assert recorder.state.findings >= 1
    assert [span.rule for span in open_index(str(path)).findings]
    nothing = Diagnosis(taken_at_unix_seconds=0.0, watched_seconds=150.0, verdict="All is well.")
    given = Recorder(tmp_path / "given.jsonl.zst")
    for taken in machine.taken:
        given.push(taken, nothing)
    given.close()
    assert given.state.findings == 0


def test_a_finding_that_goes_is_told(tmp_path: Path) -> None:
    """The overview has when."""
    path = tmp_path / "run.jsonl.zst"
    machine = Machine(scenario="starved")
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 120)
    last = machine.taken[-1]
    # The same GPU, all busy from now on, and no job.
    for second in range(1, 240):
        at = last.taken_at_unix_seconds + second
        busy = GpuReading(
            busy_percent=99.0,
            busy_samples=tuple(
                type(sample)(sample.at_unix_seconds + second, 99.0)
                for sample in last.gpus[0].reading.busy_samples or ()
            ),
            power_watts=600.0,
            power_limit_watts=700.0,
            sm_clock_mhz=1980,
        )
        recorder.push(
            replace(
                last,
                sequence=last.sequence + second,
                taken_at_unix_seconds=at,
                monotonic_seconds=last.monotonic_seconds + second,
                gpus=(replace(last.gpus[0], reading=busy),),
                processes=(),
                jobs=(),
            )
        )
    recorder.close()
    index = open_index(str(path))
    ended = [span for span in index.findings if span.end_unix_seconds is not None]
    assert ended
    assert all(span.begin_unix_seconds < (span.end_unix_seconds or 0) for span in ended)
    index.close()


def test_other_gpus_get_a_header(tmp_path: Path) -> None:
    """One comes, one goes."""
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path)
    steps = [("A",), ("A", "B"), ("B",), ()]
    taken = [
        snapshot(at=float(n), sequence=n, gpus=tuple(gpu(uuid, busy_percent=1.0) for uuid in uuids))
        for n, uuids in enumerate(steps)
    ]
    for each in taken:
        recorder.push(each)
    recorder.close()
    assert read(path)[0] == taken


# --- appending, and what ends it ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.jsonl.zst", "run.jsonl"])
@pytest.mark.parametrize("torn", [0, 1, 7, 400])
def test_a_recording_is_appended_to(tmp_path: Path, name: str, torn: int) -> None:
    """Also where the one before was torn off: what was whole of both is read."""
    path = tmp_path / name
    one, two = Machine(), Machine()
    two.clock.advance(1000.0)
    recorder = Recorder(path, monotonic=one.clock.monotonic)
    one.record(recorder, 30)
    recorder._file.flush()  # type: ignore[union-attr]
    # As a crash leaves it.
    os.close(recorder._file._descriptor)  # type: ignore[union-attr]
    os.truncate(path, path.stat().st_size - torn)
    recorder = Recorder(path, monotonic=two.clock.monotonic)
    two.record(recorder, 20)
    recorder.close()
    found, _ = read(path)
    assert found[-20:] == two.taken
    first = found[:-20]
    assert first == one.taken[: len(first)]
    assert len(first) >= (30 if torn == 0 else 20)


def test_after_a_crash_a_frame_is_ended_for_other_tools(tmp_path: Path) -> None:
    """``zstdcat`` reads through what was appended later."""
    path = tmp_path / "run.jsonl.zst"
    machine = Machine()
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 10)
    recorder._file.flush()  # type: ignore[union-attr]
    os.close(recorder._file._descriptor)  # type: ignore[union-attr]
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 10)
    recorder.close()
    kinds = [json.loads(line)["kind"] for line in lines(path)]
    assert kinds.count("snapshot") == 20


def test_what_is_flushed_is_there(tmp_path: Path, machine: Machine) -> None:
    """All but the last few seconds, at any moment."""
    path = tmp_path / "run.jsonl.zst"
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    for _ in range(20):
        machine.record(recorder, 5)
        found = read(path)[0]
        assert len(machine.taken) - len(found) <= 4
        assert found == machine.taken[: len(found)]
    recorder.close()


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("train.py", b"import torch\n", "is no recording"),
        ("run.jsonl", zstd.compress(b'{"kind":"header"}\n'), "plain file by its name"),
        ("run.jsonl", gzip.compress(b'{"kind":"header"}\n', mtime=0), "and is a gzip file"),
        ("run.jsonl.zst", b'{"kind":"header"}\n', "zstd file by its name"),
        ("run.jsonl.gz", b"", r"choose a name that ends in \.jsonl\.zst"),
    ],
)
def test_other_files_are_not_appended_to(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    """A mistyped name spoils nothing."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(RecordingError, match=says):
        Recorder(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize("name", ["", "nowhere/run.jsonl", "a\0b", "x" * 300])
def test_where_it_cannot_be_the_reason_is_said(tmp_path: Path, name: str) -> None:
    """A folder, no folder, no name."""
    with pytest.raises(RecordingError, match=r"cannot be written: .*\.") as caught:
        Recorder(Path(f"{tmp_path}/{name}"))
    assert str(caught.value).isprintable()


def test_a_file_that_is_moved_away_is_begun_anew(tmp_path: Path, machine: Machine) -> None:
    """As other programs rotate."""
    path, moved = tmp_path / "run.jsonl.zst", tmp_path / "old.jsonl.zst"
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 70)
    path.rename(moved)
    machine.record(recorder, 130)
    recorder.close()
    assert read(moved)[0] + read(path)[0] == machine.taken


# --- one file, one recorder --------------------------------------------------------------------


def test_a_file_that_is_recorded_to_is_refused(tmp_path: Path, machine: Machine) -> None:
    """With the process that records to it; what that one wrote stays whole, and once it has ended
    the file is free."""
    path = tmp_path / "run.jsonl.zst"
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 30)
    with pytest.raises(RecordingError, match=rf"Process {os.getpid()} records to .* already: .*\."):
        Recorder(path)
    machine.record(recorder, 30)
    recorder.close()
    found, stats = read(path)
    assert (found, stats.sentences()) == (machine.taken, [])
    Recorder(path).close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Whoever planted it would have chosen the file."""
    target, link = tmp_path / "target.jsonl", tmp_path / "run.jsonl"
    target.write_bytes(b"")
    link.symlink_to(target)
    with pytest.raises(RecordingError, match="symbolic link, which is not followed"):
        Recorder(link)
    assert target.read_bytes() == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_recorded_to(tmp_path: Path) -> None:
    """Though root could: they would read the command lines."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"")
    os.chown(path, 12345, -1)
    with pytest.raises(RecordingError, match="belongs to another user: choose another name"):
        Recorder(path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("replaced", [False, True])
def test_a_deleted_file_is_noticed_at_the_next_snapshot(
    tmp_path: Path, machine: Machine, replaced: bool
) -> None:
    """It is said what went with it, and recording goes on under the same name; also where another
    file took its place."""
    path = tmp_path / "run.jsonl.zst"
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 3)
    if replaced:
        (tmp_path / "other").write_bytes(b"")
        (tmp_path / "other").replace(path)
    else:
        path.unlink()
    machine.record(recorder, 1)
    state = recorder.state
    assert state.trouble is None
    assert state.notice is not None
    assert "deleted during the recording, with 3 snapshots in it" in state.notice
    assert (state.snapshots, state.lost_snapshots) == (1, 3)
    machine.record(recorder, 4)
    recorder.close()
    assert read(path)[0] == machine.taken[3:]


def test_a_deleted_folder_is_trouble_at_the_next_snapshot(tmp_path: Path, machine: Machine) -> None:
    """And once it is there again recording goes on in it."""
    path = tmp_path / "folder" / "run.jsonl"
    path.parent.mkdir()
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 3)
    path.unlink()
    path.parent.rmdir()
    machine.record(recorder, 1)
    said = recorder.state.trouble
    assert said is not None
    assert "deleted during the recording" in said
    assert "there is no such folder" in said
    path.parent.mkdir()
    machine.record(recorder, 2)
    assert recorder.state.trouble is None
    recorder.close()
    assert recorder.state.lost_snapshots == 4
    assert read(path)[0] == machine.taken[4:]


def test_a_file_deleted_at_the_very_end_is_trouble(tmp_path: Path, machine: Machine) -> None:
    """Nothing of it is left, and nobody takes it for written."""
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 3)
    path.unlink()
    recorder.close()
    state = recorder.state
    assert state.trouble is not None
    assert "deleted during the recording" in state.trouble
    assert (state.snapshots, state.lost_snapshots) == (0, 3)
    assert not path.exists()


# --- a disk that does not take it --------------------------------------------------------------


class FullDisk:
    """Takes ``room`` bytes, then none until there is room again."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = os.write(descriptor, data[: self.room])
        self.room -= count
        return count


@pytest.mark.parametrize("name", ["run.jsonl.zst", "run.jsonl"])
@pytest.mark.parametrize("room", [0, 1, 3000, 9000])
def test_a_full_disk_costs_what_it_did_not_take(
    tmp_path: Path, machine: Machine, name: str, room: int
) -> None:
    """It is said, what was written is kept, it goes on when there is room, and the gap is
    counted: nothing else is lost, and the file is whole."""
    path = tmp_path / name
    disk = FullDisk(room)
    recorder = Recorder(path, monotonic=machine.clock.monotonic, write=disk.write)
    machine.record(recorder, 90)
    said = recorder.state.trouble
    assert said is not None
    assert "the disk is full" in said
    assert said.isprintable()
    assert recorder.state.lost_snapshots > 0
    disk.room = 10**9
    machine.record(recorder, 60)
    state = recorder.state
    recorder.close()
    assert state.trouble is None
    found, stats = read(path)
    assert len(found) == 150 - state.lost_snapshots == state.snapshots
    assert found[-60:] == machine.taken[-60:]
    assert found[:-60] == machine.taken[: len(found) - 60]
    assert stats.sentences() == []


def test_a_disk_that_stays_full_keeps_what_it_has(tmp_path: Path, machine: Machine) -> None:
    """Up to the last block it took."""
    path = tmp_path / "run.jsonl.zst"
    disk = FullDisk(9000)
    recorder = Recorder(path, monotonic=machine.clock.monotonic, write=disk.write)
    machine.record(recorder, 90)
    recorder.close()
    assert recorder.state.trouble is not None
    found, _ = read(path)
    assert found
    assert found == machine.taken[: len(found)]


def test_on_a_full_disk_the_oldest_files_make_room(tmp_path: Path, machine: Machine) -> None:
    """Where --rotate and --keep say that they may go."""
    path = tmp_path / "run.jsonl.zst"
    disk = FullDisk(10**9)

    def write(descriptor: int, data: bytes) -> int:
        if disk.room <= 0 and len(rotated_files(path)) < 3:
            disk.room = 10**9
        return disk.write(descriptor, data)

    recorder = Recorder(
        path, rotate_seconds=60, keep=10, monotonic=machine.clock.monotonic, write=write
    )
    machine.record(recorder, 200)
    assert len(rotated_files(path)) == 3
    oldest = rotated_files(path)[0]
    disk.room = 0
    machine.record(recorder, 30)
    recorder.close()
    assert not oldest.exists()
    assert recorder.state.trouble is None
    assert recorder.state.lost_snapshots == 0


def _tmpfs(folder: Path) -> Iterator[Path]:
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("mounting a small tmpfs is not permitted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from _tmpfs(tmp_path)


def test_a_small_disk_runs_full(small_disk: Path, machine: Machine) -> None:
    """A real one: said, kept, and gone on with once something else is deleted."""
    other, path = small_disk / "other", small_disk / "run.jsonl.zst"
    other.write_bytes(bytes(40 * 1024))
    recorder = Recorder(path, monotonic=machine.clock.monotonic)
    machine.record(recorder, 300)
    said = recorder.state.trouble
    lost = recorder.state.lost_snapshots
    assert said is not None
    assert "the disk is full" in said
    assert lost > 0
    other.unlink()
    machine.record(recorder, 20)
    recorder.close()
    found, stats = read(path)
    assert found[-20:] == machine.taken[-20:]
    assert len(found) == 320 - lost
    assert stats.sentences() == []


# --- rotation ----------------------------------------------------------------------------------


def test_files_are_put_aside_by_time(tmp_path: Path, machine: Machine) -> None:
    """Their names sort by it, each can be read alone, and the recording's name stands for all."""
    path = tmp_path / "run.jsonl.zst"
    recorder = Recorder(path, rotate_seconds=60, monotonic=machine.clock.monotonic)
    machine.record(recorder, 260)
    recorder.close()
    aside = rotated_files(path)
    assert len(aside) >= 3
    assert [path.name for path in aside] == sorted(path.name for path in aside)
    assert all(each.name.startswith("run.2023") for each in aside)
    assert all(each.name.endswith("Z.jsonl.zst") for each in aside)
    alone = [read(each)[0] for each in aside]
    assert all(alone)
    whole, stats = read(path)
    assert whole == machine.taken
    assert whole[: sum(map(len, alone))] == [snapshot for each in alone for snapshot in each]
    assert stats.sentences() == [
        f"It is read with {len(aside)} files that were put aside before it."
    ]
    index = open_index(str(path))
    assert index.first_unix_seconds == machine.taken[0].taken_at_unix_seconds
    assert next(index.snapshots(machine.taken[100].taken_at_unix_seconds)) in machine.taken[:101]
    index.close()
    everything = tmp_path / "all.jsonl.zst"
    everything.write_bytes(b"".join(each.read_bytes() for each in [*aside, path]))
    assert read(everything)[0] == machine.taken


def test_a_file_is_put_aside_on_time(tmp_path: Path, machine: Machine) -> None:
    """Each is as long as was asked for, wherever in a minute the recording began."""
    path = tmp_path / "run.jsonl.zst"
    recorder = Recorder(path, rotate_seconds=60, monotonic=machine.clock.monotonic)
    machine.record(recorder, 250)
    recorder.close()
    assert [len(read(each)[0]) for each in rotated_files(path)] == [60, 60, 60, 60]


def test_only_so_many_files_are_kept(tmp_path: Path, machine: Machine) -> None:
    """The newest, besides the one being written; other files of the folder stay."""
    path = tmp_path / "run.jsonl.zst"
    others = [tmp_path / name for name in ("run.jsonl", "run.old.jsonl.zst", "ru.20230101T000000Z")]
    for other in others:
        other.write_bytes(b"x")
    recorder = Recorder(path, rotate_seconds=60, keep=2, monotonic=machine.clock.monotonic)
    machine.record(recorder, 400)
    recorder.close()
    aside = rotated_files(path)
    assert len(aside) == 2
    found = read(path)[0]
    assert found == machine.taken[-len(found) :]
    assert all(other.exists() for other in others)


def test_the_last_minutes_are_read_from_the_end(tmp_path: Path, machine: Machine) -> None:
    """Also while it is written, and from files put aside."""
    path = tmp_path / "run.jsonl.zst"
    recorder = Recorder(path, rotate_seconds=120, monotonic=machine.clock.monotonic)
    machine.record(recorder, 400)
    recorder._file.flush()  # type: ignore[union-attr]
    found = list(recent_snapshots(path, 200.0))
    assert found == machine.taken[-len(found) :]
    assert 200 <= len(found) <= 262
    assert list(recent_snapshots(path, 1e6)) == machine.taken
    recorder.close()
    assert list(recent_snapshots(tmp_path / "none", 100.0)) == []


# --- on a thread -------------------------------------------------------------------------------


def test_in_the_background_all_is_written(tmp_path: Path, machine: Machine) -> None:
    """``close`` waits for the end of it."""
    path = tmp_path / "run.jsonl.zst"
    recorder = BackgroundRecorder(Recorder(path))
    for _ in range(30):
        taken = machine.source.read()
        machine.taken.append(taken)
        recorder.push(taken)
        machine.clock.advance(1.0)
    assert recorder.close()
    assert recorder.error is None
    assert read(path)[0] == machine.taken
    assert recorder.state.snapshots == 30


def test_a_disk_that_hangs_holds_nobody_up(tmp_path: Path, machine: Machine) -> None:
    """What it cannot take in time is left out and counted."""
    import threading

    free = threading.Event()

    def write(descriptor: int, data: bytes) -> int:
        free.wait(60)
        return os.write(descriptor, data)

    recorder = BackgroundRecorder(Recorder(tmp_path / "run.jsonl", write=write))
    taken = machine.source.read()
    for _ in range(300):
        recorder.push(taken)
    assert recorder.state.lost_snapshots > 100
    assert not recorder.close(0.05)
    free.set()
    assert recorder.close(30)
