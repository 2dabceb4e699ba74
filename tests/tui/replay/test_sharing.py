"""What stays as it was from snapshot to snapshot of a recording, and is kept once."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gpuwatch.core.codec import Decoder
from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.recording.recorder import Recorder
from gpuwatch.recording.replay import share
from gpuwatch.tui.replay import FINE_SNAPSHOTS_MOST, LoadedPast, Seek
from tests.support.long_recording import Piece, snapshots
from tests.support.snapshots import stream_lines
from tests.tui.replay.recordings import tape_of


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
