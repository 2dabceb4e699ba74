"""Snapshots that are kept to be played."""

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.export import JsonLinesWriter
from gpuwatch.recording.file import open_any
from gpuwatch.recording.replay import EndableInput, KeptTape, on_wall_clock, open_tape
from gpuwatch.sources.logs.text import LogError
from tests.support.long_recording import BEGIN_UNIX_SECONDS as BEGIN
from tests.support.long_recording import Piece, snapshots
from tests.support.recordings import written


@pytest.fixture(scope="module")
def taken() -> list[Snapshot]:
    return list(snapshots((Piece("starved", 300.0), Piece("healthy", 300.0)), gpus=2))


@pytest.fixture
def stream(tmp_path: Path, taken: list[Snapshot]) -> Path:
    return written(tmp_path / "stream.jsonl", taken)


@pytest.fixture
def keep() -> Iterator[Callable[[Path], KeptTape]]:
    tapes: list[KeptTape] = []

    def make(path: Path) -> KeptTape:
        tapes.append(KeptTape(open_any(str(path)), size=path.stat().st_size, diagnoses=False))
        return tapes[-1]

    yield make
    for tape in tapes:
        tape.close()


def test_everything_comes_back_as_it_is_recorded(
    stream: Path, taken: list[Snapshot], keep: Callable[[Path], KeptTape]
) -> None:
    """Whatever of it is packed by now, with every half minute in the overview."""
    tape = keep(stream)
    assert list(tape.snapshots(BEGIN)) == taken
    assert list(tape.snapshots(BEGIN)) == taken
    assert (tape.first_unix_seconds, tape.last_unix_seconds) == (BEGIN, BEGIN + 595.0)
    begins = [bucket.begin_unix_seconds - BEGIN for bucket in tape.buckets]
    assert begins == [30.0 * number for number in range(20)]


def test_reading_begins_at_most_a_minute_before_the_moment(
    stream: Path, keep: Callable[[Path], KeptTape]
) -> None:
    """And never after it."""
    tape = keep(stream)
    for seconds in (0.0, 60.0, 299.0, 595.0):
        first = next(tape.snapshots(BEGIN + seconds)).taken_at_unix_seconds - BEGIN
        assert seconds - 65.0 <= first <= seconds


def test_findings_are_looked_for_beside(stream: Path) -> None:
    """They are those of the engine, and all is known once the progress is 1."""
    tape = open_tape(str(stream))
    assert isinstance(tape, KeptTape)
    try:
        for task in tape._tasks:
            assert task.wait(60)
        assert tape.progress == 1.0
        assert "loader_cpu_bound" in {span.rule for span in tape.findings}
    finally:
        tape.close()


def test_log_without_a_snapshot_is_refused(tmp_path: Path) -> None:
    """With a sentence, before anything is shown."""
    path = tmp_path / "header.jsonl"
    path.write_text('{"kind":"header","schema":1,"machine":"a","simulated":true,"gpus":[]}\n')
    with pytest.raises(LogError, match="cannot be read"), open_any(str(path)) as log:
        KeptTape(log, size=10)


def test_full_temporary_folder_keeps_it_in_memory(
    stream: Path, keep: Callable[[Path], KeptTape], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, and a note says so."""
    monkeypatch.setattr(tempfile, "tempdir", str(stream / "no-folder"))
    tape = keep(stream)
    assert len(list(tape.snapshots(BEGIN))) == 120
    assert "kept in memory" in tape.notes()[-1]


def test_reader_at_the_end_waits_for_what_comes(
    taken: list[Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of standard input: what is written later is given later, and the end ends it."""
    receiver, sender = os.pipe()
    given = EndableInput(receiver)
    with os.fdopen(sender, "w", encoding="utf-8") as out:
        import io

        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(given)))
        writer = JsonLinesWriter(out)
        writer.write(taken[0])
        tape = KeptTape(open_any("-"), diagnoses=False)
        reader = tape.snapshots(BEGIN)
        assert next(reader).sequence == taken[0].sequence
        assert tape.arriving
        threading.Timer(0.05, lambda: writer.write(taken[1])).start()
        assert next(reader).sequence == taken[1].sequence
        # The overview does not wait for half a minute to be over.
        (begun,) = tape.buckets
        assert begun.begin_unix_seconds <= BEGIN
        assert "busy_percent" in begun.gpus[taken[0].gpus[0].uuid]
    assert list(reader) == []
    assert len(tape.buckets) == 1
    assert not tape.arriving
    tape.close()


def test_input_can_be_ended_while_it_is_waited_for() -> None:
    """From another thread: a pipe that nobody writes to holds up nothing."""
    receiver, sender = os.pipe()
    given = EndableInput(receiver)
    threading.Timer(0.05, given.end).start()
    assert given.read(10) == b""
    assert given.read(10) == b""
    for descriptor in (receiver, sender):
        os.close(descriptor)


def test_charts_count_as_the_wall_clock(taken: list[Snapshot]) -> None:
    """All parts of a file share it, whatever machine's clock they were taken on."""
    shown = on_wall_clock(taken[3])
    assert shown.monotonic_seconds == taken[3].taken_at_unix_seconds
    assert shown.gpus is taken[3].gpus
