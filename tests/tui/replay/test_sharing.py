"""What stays as it was from snapshot to snapshot of a recording, and is kept once."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.core.codec import Decoder
from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.recording.recorder import Recorder
from gpuwatch.recording.replay import share
from gpuwatch.tui.app import new_engine
from gpuwatch.tui.replay import FINE_SNAPSHOTS_MOST, LoadedPast, Seek
from tests.support.long_recording import Piece, snapshots
from tests.support.snapshots import stream_lines
from tests.tui.replay.recordings import recorded, tape_of


def decoded(*given: Snapshot) -> list[Snapshot]:
    decoder = Decoder()
    lines = map(decoder.decode, stream_lines(*given))
    return [one for one in lines if isinstance(one, Snapshot)]


def test_snapshot_that_shares_says_the_same() -> None:
    """Every value is its own, also where processes came, went or changed their order."""
    taken = list(snapshots((Piece("starved", 60.0),), gpus=2, interval=5.0))
    odd = replace(taken[1], processes=taken[1].processes[::-1], jobs=(), gpus=taken[1].gpus[:1])
    before, *rest = decoded(*taken, odd, *taken, replace(odd, processes=()), *taken)
    for one in rest:
        before = share(one, before)
        assert before == one


def test_what_did_not_change_is_kept_once() -> None:
    """The process that did nothing; of one that did, its command line."""
    taken = next(snapshots((Piece("starved", 5.0),), gpus=1, interval=5.0))
    moved = replace(taken.processes[0], cpu_percent=12.5)
    busy = replace(taken, sequence=7, processes=(moved, *taken.processes[1:]))
    first, second = decoded(taken, busy)
    shared = share(second, first)
    assert shared.processes[0].cpu_percent == 12.5
    assert shared.processes[0].command is first.processes[0].command
    assert shared.processes[1] is first.processes[1]
    assert shared.jobs[0].members is first.jobs[0].members


def test_no_more_of_the_past_is_read_than_is_kept(tmp_path: Path) -> None:
    """Of twelve minutes every second: the last minutes, the charts' beginning by half
    minutes."""
    recorder = Recorder(tmp_path / "long.jsonl.zst")
    nothing = Diagnosis(taken_at_unix_seconds=0.0, watched_seconds=0.0, verdict="")
    for snapshot in snapshots((Piece("healthy", 720.0),), gpus=1, interval=1.0):
        recorder.push(snapshot, nothing)
    recorder.close()
    tape, read = tape_of(recorder.path), list[Snapshot]()
    taken, end = tape.snapshots, tape.last_unix_seconds
    assert end is not None

    def counted(begin: float) -> Iterator[Snapshot]:
        for one in taken(begin):
            read.append(one)
            yield one

    tape.snapshots = counted  # type: ignore[method-assign]
    there = threading.Event()
    seek = Seek(tape, end, 900.0, None, there.set)
    there.wait(60.0)
    loaded = seek.loaded or LoadedPast()
    seek.stop()
    assert loaded.from_overview
    assert loaded.history.earliest_at == tape.first_unix_seconds
    assert FINE_SNAPSHOTS_MOST <= len(read) <= FINE_SNAPSHOTS_MOST + 100


def test_first_half_minute_of_a_recording_is_shown_with_all_its_readings(tmp_path: Path) -> None:
    """It begins within a half minute of the overview, which has it no more whole."""
    recorder = Recorder(tmp_path / "short.jsonl.zst")
    nothing = Diagnosis(taken_at_unix_seconds=0.0, watched_seconds=0.0, verdict="")
    late = list(snapshots((Piece("healthy", 50.0),), gpus=1, interval=1.0))[10:]
    for snapshot in late:
        recorder.push(snapshot, nothing)
    recorder.close()
    tape = tape_of(recorder.path)
    end = tape.last_unix_seconds
    assert end is not None
    there = threading.Event()
    seek = Seek(tape, end, 60.0, None, there.set)
    there.wait(60.0)
    loaded = seek.loaded or LoadedPast()
    seek.stop()
    columns = loaded.history.gpu(late[0].gpus[0].uuid, "power_watts").columns(end, 1.0, len(late))
    assert len(set(columns[:15])) > 10


def test_what_was_lost_before_a_jump_counts(tmp_path: Path) -> None:
    """The finding says as much as the report of the file does, though only the last two minutes
    are read again."""
    path = recorded(tmp_path / "starved.jsonl.zst", (Piece("starved", 400.0),), 1.0)
    tape = tape_of(path)
    end = tape.last_unix_seconds
    assert end is not None
    there = threading.Event()
    seek = Seek(tape, end, 60.0, new_engine, there.set)
    there.wait(60.0)
    loaded = seek.loaded or LoadedPast()
    seek.stop()
    assert loaded.engine is not None
    loaded.engine.finish()
    diagnosis = loaded.engine.diagnosis
    assert diagnosis is not None
    (one,) = [one for one in diagnosis.findings if one.rule == "loader_cpu_bound"]
    (episode,) = [one for one in tape.findings if one.rule == "loader_cpu_bound"]
    assert one.cost_gpu_seconds == pytest.approx(episode.cost_gpu_seconds, rel=0.02)
    assert one.watched_gpu_seconds == pytest.approx(800.0, rel=0.02)
    assert one.cost_share == pytest.approx(episode.cost_share, abs=0.02)
