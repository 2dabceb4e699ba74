"""The recorder on disks that fill up, under files that go, and with rotation."""

import errno
import os
from pathlib import Path

import pytest

from gpuwatch.recording.file import RecordingIndex
from gpuwatch.sources.logs.text import rotated_files
from tests.recording.machine import Machine, read


def test_a_file_that_is_moved_away_is_begun_anew(tmp_path: Path, machine: Machine) -> None:
    """As other programs rotate."""
    path, moved = tmp_path / "run.jsonl.zst", tmp_path / "old.jsonl.zst"
    recorder = machine.recorder(path, 70)
    path.rename(moved)
    machine.record(recorder, 130)
    recorder.close()
    assert read(moved)[0] + read(path)[0] == machine.taken


@pytest.mark.parametrize("replaced", [False, True])
def test_a_deleted_file_is_noticed_at_the_next_snapshot(
    tmp_path: Path, path: Path, machine: Machine, replaced: bool
) -> None:
    """It is said what went with it, and recording goes on under the same name; also where another
    file took its place."""
    recorder = machine.recorder(path, 3)
    if replaced:
        (tmp_path / "other").write_bytes(b"")
        (tmp_path / "other").replace(path)
    else:
        path.unlink()
    machine.record(recorder, 1)
    state = recorder.state
    assert state.trouble is None
    assert "deleted during the recording, with 3 snapshots in it" in state.notice
    assert (state.snapshots, state.lost_snapshots) == (1, 3)
    machine.record(recorder, 4)
    recorder.close()
    assert read(path)[0] == machine.taken[3:]


def test_a_deleted_folder_is_trouble_at_the_next_snapshot(tmp_path: Path, machine: Machine) -> None:
    """And once it is there again recording goes on in it."""
    path = tmp_path / "folder" / "run.jsonl"
    path.parent.mkdir()
    recorder = machine.recorder(path, 3)
    path.unlink()
    path.parent.rmdir()
    machine.record(recorder, 1)
    said = recorder.state.trouble
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
    recorder = machine.recorder(path, 3)
    path.unlink()
    recorder.close()
    state = recorder.state
    assert "deleted during the recording" in state.trouble
    assert (state.snapshots, state.lost_snapshots) == (0, 3)
    assert not path.exists()


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
@pytest.mark.parametrize("room", [0, 1, 9000])
def test_a_full_disk_costs_what_it_did_not_take(
    tmp_path: Path, machine: Machine, name: str, room: int
) -> None:
    """It is said, what was written is kept, it goes on when there is room, and the gap is
    counted: nothing else is lost, and the file is whole."""
    path = tmp_path / name
    disk = FullDisk(room)
    recorder = machine.recorder(path, 90, write=disk.write)
    said = recorder.state.trouble
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


def test_a_disk_that_stays_full_keeps_what_it_has(path: Path, machine: Machine) -> None:
    """Up to the last block it took."""
    recorder = machine.recorder(path, 90, write=FullDisk(9000).write)
    recorder.close()
    assert recorder.state.trouble is not None
    found, _ = read(path)
    assert found
    assert found == machine.taken[: len(found)]


def test_on_a_full_disk_the_oldest_files_make_room(path: Path, machine: Machine) -> None:
    """Where --rotate and --keep say that they may go."""
    disk = FullDisk(10**9)

    def write(descriptor: int, data: bytes) -> int:
        if disk.room <= 0 and len(rotated_files(path)) < 3:
            disk.room = 10**9
        return disk.write(descriptor, data)

    recorder = machine.recorder(path, 200, rotate_seconds=60, keep=10, write=write)
    assert len(rotated_files(path)) == 3
    oldest = rotated_files(path)[0]
    disk.room = 0
    machine.record(recorder, 30)
    recorder.close()
    assert not oldest.exists()
    assert recorder.state.trouble is None
    assert recorder.state.lost_snapshots == 0


def test_files_are_put_aside_on_time(tmp_path: Path, path: Path, machine: Machine) -> None:
    """Wherever in a minute the recording began; names sort by time, each can be read alone, and the
    recording's name stands for all."""
    machine.recorder(path, 260, rotate_seconds=60).close()
    aside = rotated_files(path)
    assert [path.name for path in aside] == sorted(path.name for path in aside)
    assert all(each.name.startswith("run.2023") for each in aside)
    assert all(each.name.endswith("Z.jsonl.zst") for each in aside)
    alone = [read(each)[0] for each in aside]
    assert [len(each) for each in alone] == [60, 60, 60, 60]
    whole, stats = read(path)
    assert whole == machine.taken
    assert whole[:240] == [snapshot for each in alone for snapshot in each]
    assert stats.sentences() == ["It is read with 4 files that were put aside before it."]
    index = RecordingIndex(str(path))
    assert index.first_unix_seconds == machine.taken[0].taken_at_unix_seconds
    wanted = machine.taken[100].taken_at_unix_seconds
    assert 0 <= wanted - next(index.snapshots(wanted)).taken_at_unix_seconds <= 60
    everything = tmp_path / "all.jsonl.zst"
    everything.write_bytes(b"".join(each.read_bytes() for each in [*aside, path]))
    assert read(everything)[0] == machine.taken


def test_a_file_that_is_put_aside_is_still_found(path: Path, machine: Machine) -> None:
    """By who opened the recording before."""
    recorder = machine.recorder(path, 150, rotate_seconds=200)
    index = RecordingIndex(str(path))
    machine.record(recorder, 100)
    recorder.close()
    for number in (0, 100, 149):
        wanted = machine.taken[number].taken_at_unix_seconds
        found = list(index.snapshots(wanted))
        assert 0 <= wanted - found[0].taken_at_unix_seconds <= 60
        assert found == machine.taken[-len(found) :]


def test_so_many_files_are_kept(tmp_path: Path, path: Path, machine: Machine) -> None:
    """The newest, besides the one being written; other files of the folder stay."""
    others = [tmp_path / name for name in ("run.jsonl", "run.old.jsonl.zst", "ru.20230101T000000Z")]
    for other in others:
        other.write_bytes(b"x")
    machine.recorder(path, 250, rotate_seconds=60, keep=2).close()
    assert len(rotated_files(path)) == 2
    found = read(path)[0]
    assert found == machine.taken[-len(found) :]
    assert all(other.exists() for other in others)
