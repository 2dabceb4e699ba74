"""The recorder: what it writes reads back, and to which files it writes."""

import gzip
import json
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.core.codec import status_text
from gpuwatch.core.model import BusySample, GpuReading, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.recording.file import RecordingFile, RecordingIndex
from gpuwatch.recording.recorder import BackgroundRecorder, Recorder, RecordingError
from gpuwatch.sources.logs.text import zstd
from tests.recording.machine import Machine, read
from tests.support.snapshots import gpu, snapshot

BOTH = pytest.mark.parametrize("name", ["run.jsonl.zst", "run.jsonl"])


def lines(path: Path) -> list[str]:
    """As ``zstdcat`` gives them."""
    data = path.read_bytes()
    text = zstd.decompress(data) if path.name.endswith(".zst") else data
    return text.decode().splitlines()


def crashed(recorder: Recorder) -> None:
    """As ``kill -9`` leaves it, some seconds after the last snapshot."""
    file = recorder._file
    assert isinstance(file, RecordingFile)
    file.flush()
    os.close(file._descriptor)


@BOTH
def test_what_was_recorded_reads_back(tmp_path: Path, machine: Machine, name: str) -> None:
    """Every snapshot, exactly, in lines as stream prints them, with a header once a minute."""
    path = tmp_path / name
    recorder = machine.recorder(path, 130)
    recorder.close()
    found, stats = read(path)
    assert found == machine.taken
    assert stats.sentences() == []
    state = recorder.state
    assert (state.snapshots, state.lost_snapshots, state.trouble) == (130, 0, None)
    assert state.written_bytes == path.stat().st_size
    recorded = lines(path)
    headers = [line for line in recorded if line.startswith('{"kind":"header"')]
    assert 130 // 60 <= len(headers) <= 130 // 60 + 2


def test_each_frame_can_be_read_alone(path: Path, machine: Machine) -> None:
    """It begins with a header, and holds a minute."""
    machine.recorder(path, 130).close()
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
        assert kinds[1] == "identities"
        assert kinds[2:].count("snapshot") <= 60
    assert len(frames) >= 130 // 60


def test_a_recording_is_small(path: Path) -> None:
    """What has not changed takes little room: a fiftieth of the plain text, statistics included."""
    machine = Machine(gpus=8)
    machine.source.options.all_processes = True
    machine.recorder(path, 90).close()
    plain = sum(map(len, map(status_text, machine.taken)))
    assert path.stat().st_size < plain / 50


def test_what_was_found_is_in_it(tmp_path: Path, path: Path, machine: Machine) -> None:
    """Nobody has to diagnose it again; what somebody has found already is not looked for."""
    recorder = machine.recorder(path, 150)
    recorder.close()
    assert recorder.state.findings >= 1
    assert [span.rule for span in RecordingIndex(str(path)).findings]
    nothing = Diagnosis(taken_at_unix_seconds=0.0, watched_seconds=150.0, verdict="All is well.")
    given = Recorder(tmp_path / "given.jsonl.zst")
    for taken in machine.taken:
        given.push(taken, nothing)
    given.close()
    assert given.state.findings == 0


def test_what_was_found_at_the_end_is_in_it(path: Path, machine: Machine) -> None:
    """Whoever diagnoses knows more of the last seconds once the recording ends."""
    taken = [machine.take() for _ in range(5)]
    end = taken[-1].taken_at_unix_seconds
    lost = [
        Finding(
            **{"rule": "late", "severity": "warning", "confidence": 0.9, "summary": "It waits."},
            since_unix_seconds=taken[0].taken_at_unix_seconds,
            cost_gpu_seconds=seconds,
        )
        for seconds in (1.0, 3.0)
    ]
    first, last = [
        Diagnosis(taken_at_unix_seconds=end, watched_seconds=5.0, verdict="", findings=(one,))
        for one in lost
    ]
    recorder = BackgroundRecorder(Recorder(path))
    for each in taken:
        recorder.push(each, first)
    assert recorder.close(diagnosis=last)
    (found,) = RecordingIndex(str(path)).findings
    assert found.cost_gpu_seconds == 3.0


def busy(last: Snapshot, second: int) -> Snapshot:
    """The machine after ``last``, its GPU busy with nothing that is known."""
    at = last.taken_at_unix_seconds + second
    reading = GpuReading(
        busy_percent=99.0,
        busy_samples=tuple(
            BusySample(sample.at_unix_seconds + second, 99.0)
            for sample in last.gpus[0].reading.busy_samples or ()
        ),
        power_watts=600.0,
        power_limit_watts=700.0,
        sm_clock_mhz=1980,
    )
    return replace(
        last,
        sequence=last.sequence + second,
        taken_at_unix_seconds=at,
        monotonic_seconds=last.monotonic_seconds + second,
        gpus=(replace(last.gpus[0], reading=reading),),
        processes=(),
        jobs=(),
    )


def test_a_finding_that_goes_has_its_end(path: Path, machine: Machine) -> None:
    """In the overview."""
    recorder = machine.recorder(path, 120)
    for second in range(1, 240):
        recorder.push(busy(machine.taken[-1], second))
    recorder.close()
    ended = [one for one in RecordingIndex(str(path)).findings if one.end_unix_seconds is not None]
    assert ended
    assert all(span.begin_unix_seconds < (span.end_unix_seconds or 0) for span in ended)


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


@BOTH
@pytest.mark.parametrize("torn", [0, 7, 400])
def test_a_recording_is_appended_to(tmp_path: Path, name: str, torn: int) -> None:
    """Also where the one before was torn off: what was whole of both is read."""
    path = tmp_path / name
    one, two = Machine(), Machine(begin=1000.0)
    crashed(one.recorder(path, 30))
    os.truncate(path, path.stat().st_size - torn)
    two.recorder(path, 20).close()
    found, _ = read(path)
    assert found[-20:] == two.taken
    first = found[:-20]
    assert first == one.taken[: len(first)]
    assert len(first) >= (30 if torn == 0 else 20)


def test_after_a_crash_a_frame_is_ended_for_other_tools(path: Path, machine: Machine) -> None:
    """``zstdcat`` reads through what was appended later."""
    crashed(machine.recorder(path, 10))
    machine.recorder(path, 10).close()
    assert [json.loads(line)["kind"] for line in lines(path)].count("snapshot") == 20


def test_what_is_flushed_is_there(path: Path, machine: Machine) -> None:
    """All but the last few seconds, at any moment."""
    recorder = machine.recorder(path)
    for _ in range(20):
        machine.record(recorder, 5)
        found = read(path)[0]
        assert len(machine.taken) - len(found) <= 4
        assert found == machine.taken[: len(found)]
    recorder.close()


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("train.py", b"import torch\n", "is not a recording"),
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


def test_a_file_that_is_recorded_to_is_refused(path: Path, machine: Machine) -> None:
    """What is written to it stays whole, and once that has ended the file is free."""
    recorder = machine.recorder(path, 30)
    with pytest.raises(RecordingError, match=r"records to .* already: choose"):
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


def test_files_are_for_their_owner_alone(tmp_path: Path, machine: Machine) -> None:
    """They hold command lines; also where the umask would allow more."""
    before = os.umask(0)
    try:
        machine.recorder(tmp_path / "run.jsonl", 130, rotate_seconds=10, keep=3).close()
    finally:
        os.umask(before)
    files = list(tmp_path.iterdir())
    assert len(files) > 1
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_in_the_background_all_is_written(path: Path, machine: Machine) -> None:
    """``close`` waits for the end of it."""
    recorder = BackgroundRecorder(Recorder(path))
    for _ in range(30):
        recorder.push(machine.take())
    assert recorder.close()
    assert recorder.error is None
    assert read(path)[0] == machine.taken
    assert recorder.state.snapshots == 30


def test_a_disk_that_hangs_holds_nobody_up(tmp_path: Path, machine: Machine) -> None:
    """What it cannot take in time is left out and counted."""
    free = threading.Event()

    def write(descriptor: int, data: bytes) -> int:
        free.wait(60)
        return os.write(descriptor, data)

    recorder = BackgroundRecorder(Recorder(tmp_path / "run.jsonl", write=write))
    taken = machine.take()
    for _ in range(300):
        recorder.push(taken)
    assert recorder.state.lost_snapshots > 100
    assert not recorder.close(0.05)
    free.set()
    assert recorder.close(30)
