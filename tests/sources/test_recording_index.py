"""Recordings opened to be looked at here and there."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gpuwatch.core.codec.rounding import rounded
from gpuwatch.core.json_values import CodecError
from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.outputs.status.jsonlines import JsonLinesWriter
from gpuwatch.recording.buckets import (
    GPU_READINGS,
    HOST_READINGS,
    Bucket,
    BucketFolder,
    bucket_object,
    read_bucket,
)
from gpuwatch.recording.finding_events import FindingEvents
from gpuwatch.recording.index import RecordingIndex, open_index
from gpuwatch.recording.reader import open_any
from gpuwatch.recording.recorder import Recorder
from gpuwatch.sources.files.log_text import LogError
from gpuwatch.sources.simulated.source import SimulatedSource
from tests.sources.smi_writing import query_log
from tests.sources.smi_writing import simulated as simulated_log


def simulated(count: int, gpus: int = 1, begin: float = 0.0) -> list[Snapshot]:
    clock = ManualClock(seconds=begin)
    source = SimulatedSource("starved", gpus, clock=clock)
    found = []
    for _ in range(count):
        found.append(rounded(source.read()))
        clock.advance(1.0)
    return found


SNAPSHOTS = simulated(400)


def record(path: Path, snapshots: list[Snapshot]) -> str:
    if snapshots is SNAPSHOTS:
        path.write_bytes(recorded(path.suffix))
        return str(path)
    recorder = Recorder(path)
    for each in snapshots:
        recorder.push(each)
    recorder.close()
    return str(path)


@cache
def recorded(suffix: str) -> bytes:
    """``SNAPSHOTS``, in a file with a name that ends so."""
    with TemporaryDirectory() as folder:
        path = Path(folder, f"run{suffix}")
        record(path, list(SNAPSHOTS))
        return path.read_bytes()


@pytest.fixture(scope="module")
def packed() -> bytes:
    return recorded(".gz")


@cache
def stream() -> bytes:
    out = io.StringIO()
    writer = JsonLinesWriter(out)
    for each in SNAPSHOTS:
        writer.write(each)
    return out.getvalue().encode()


def opened(path: Path | str) -> RecordingIndex:
    index = open_index(str(path), findings=FindingEvents)
    assert index.wait(60)
    assert index.error is None
    return index


def folded(snapshots: list[Snapshot]) -> list[object]:
    folder = BucketFolder()
    found = [folder.push(each) for each in snapshots]
    return [bucket for bucket in [*found, folder.end()] if bucket is not None]


def test_readings_beyond_all_measure_have_an_overview() -> None:
    """Their sum is no number any more; a file can say anything."""
    odd = [
        replace(each, host=replace(each.host, disk_read_bytes_per_second=1.7e308))
        for each in SNAPSHOTS[:4]
    ]
    bucket, *_ = folded(odd)
    assert isinstance(bucket, Bucket)
    assert bucket.host["disk_read_bytes_per_second"].maximum == 1.7e308


@pytest.mark.parametrize("name", ["run.jsonl.gz", "run.jsonl"])
def test_the_overview_of_a_recording(tmp_path: Path, name: str) -> None:
    """Its times, GPUs, buckets and findings, as they were recorded."""
    index = opened(record(tmp_path / name, SNAPSHOTS))
    assert index.complete
    assert index.progress == 1.0
    assert index.kind == "recording"
    assert index.first_unix_seconds == SNAPSHOTS[0].taken_at_unix_seconds
    assert index.last_unix_seconds == SNAPSHOTS[-1].taken_at_unix_seconds
    assert list(index.buckets) == folded(SNAPSHOTS)
    assert index.identities == {gpu.uuid: gpu.identity for gpu in SNAPSHOTS[0].gpus}
    assert index.findings
    assert index.findings[0].rule
    assert index.findings[0].end_unix_seconds is None
    index.close()


@pytest.mark.parametrize("pack", [False, True])
def test_the_overview_of_a_stream_is_the_same(tmp_path: Path, pack: bool) -> None:
    """It is folded from the snapshots, and the diagnosis is made."""
    data = stream()
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(data) if pack else data)
    index = opened(path)
    assert list(index.buckets) == folded(SNAPSHOTS)
    assert index.last_unix_seconds == SNAPSHOTS[-1].taken_at_unix_seconds
    assert [span.rule for span in index.findings]
    assert index.identities
    index.close()


def test_the_overview_of_a_log(tmp_path: Path) -> None:
    """Of nvidia-smi."""
    path = tmp_path / "log.csv"
    path.write_text(query_log(simulated_log("starved", gpus=2, count=70)))
    index = opened(path)
    assert index.kind == "query"
    assert len(index.buckets) >= 2
    assert len(index.identities) == 2
    first = next(index.snapshots((index.first_unix_seconds or 0.0) + 30.0))
    assert first.taken_at_unix_seconds >= (index.first_unix_seconds or 0.0) + 30.0
    index.close()


@pytest.mark.parametrize("form", ["run.jsonl.gz", "run.jsonl", "stream", "stream.gz"])
def test_reading_begins_anywhere(tmp_path: Path, form: str) -> None:
    """Not later than asked for, a minute before at most (but where nothing can be skipped), and
    goes on to the end."""
    path = tmp_path / form
    if form.startswith("run"):
        record(path, SNAPSHOTS)
    else:
        data = stream()
        path.write_bytes(gzip.compress(data) if form.endswith(".gz") else data)
    index = opened(path)
    for number in (0, 1, 59, 60, 200, 399):
        wanted = SNAPSHOTS[number].taken_at_unix_seconds
        found = list(index.snapshots(wanted))
        assert found == SNAPSHOTS[-len(found) :]
        assert 0 <= wanted - found[0].taken_at_unix_seconds <= 61
    assert list(index.snapshots(0.0)) == SNAPSHOTS
    index.close()


def test_the_first_picture_does_not_wait_for_the_index(tmp_path: Path) -> None:
    """It is there while the rest is still to be read."""
    path = tmp_path / "log"
    path.write_bytes(stream())
    index = open_index(str(path))
    assert next(index.snapshots(0.0)) == SNAPSHOTS[0]
    assert index.first_unix_seconds == SNAPSHOTS[0].taken_at_unix_seconds
    index.close()


def test_a_moment_far_on_is_not_read_up_to(tmp_path: Path) -> None:
    """Of what record wrote, also while the overview is still looked through."""
    index = open_index(record(tmp_path / "run.jsonl", SNAPSHOTS))
    at = SNAPSHOTS[-30].taken_at_unix_seconds
    assert 0 <= at - next(index.snapshots(at)).taken_at_unix_seconds <= 60.0
    index.close()


@pytest.mark.parametrize("name", ["run.jsonl.gz", "run.jsonl"])
def test_a_clock_that_was_set_back_hides_nothing_before_it(tmp_path: Path, name: str) -> None:
    """What was recorded before it is read from its own time on."""
    back = [
        replace(each, taken_at_unix_seconds=each.taken_at_unix_seconds - 3600.0)
        for each in SNAPSHOTS[150:250]
    ]
    index = opened(record(tmp_path / name, SNAPSHOTS[:150] + back))
    at = SNAPSHOTS[140].taken_at_unix_seconds
    assert 0 <= at - next(index.snapshots(at)).taken_at_unix_seconds <= 60.0
    index.close()


def test_a_recording_that_is_still_written_has_its_last_moments(
    tmp_path: Path, packed: bytes
) -> None:
    """No bucket line tells of them."""
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(packed[: int(len(packed) * 0.8)])
    index = opened(path)
    with open_any(str(path)) as log:
        found = list(log.snapshots)
    assert index.last_unix_seconds == found[-1].taken_at_unix_seconds
    assert list(index.buckets) == folded(found)
    index.close()


def test_two_recordings_in_one_file(tmp_path: Path) -> None:
    """What held in the first ends with it."""
    path = tmp_path / "run.jsonl.gz"
    later = simulated(100, begin=5000.0)
    record(path, SNAPSHOTS)
    record(path, later)
    index = opened(path)
    assert list(index.buckets) == [*folded(SNAPSHOTS), *folded(later)]
    assert index.last_unix_seconds == later[-1].taken_at_unix_seconds
    ends = [span.end_unix_seconds for span in index.findings if span.end_unix_seconds is not None]
    assert ends
    assert max(ends) < later[0].taken_at_unix_seconds
    index.close()


@pytest.mark.parametrize("data", [b"", b"x", b"{}\n", b'{"kind":"header","schema":99}\n'])
def test_what_cannot_be_opened_is_said(tmp_path: Path, data: bytes) -> None:
    """In a sentence."""
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(LogError) as caught:
        open_index(str(path))
    assert str(caught.value).isprintable()
    for name in ("-", str(tmp_path / "none"), str(tmp_path), "a\0b"):
        with pytest.raises(LogError):
            open_index(name)


# --- damage ------------------------------------------------------------------------------------


def read(path: Path) -> list[Snapshot]:
    with open_any(str(path)) as log:
        return list(log.snapshots)


def refusal(opens: Callable[[Any], Any], path: Path | str) -> str | None:
    """The sentence with which a file is refused; ``None`` if it is not."""
    try:
        found = opens(path)
    except LogError as error:
        return str(error)
    if isinstance(found, RecordingIndex):
        found.close()
    return None


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.77, 0.99])
def test_a_cut_off_recording_is_read_to_there(tmp_path: Path, packed: bytes, share: float) -> None:
    """Wherever it is cut."""
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(packed[: int(len(packed) * share)])
    found = read(path)
    assert found == SNAPSHOTS[: len(found)]
    # Two flushes are at most so far apart.
    assert len(found) >= 400 * share * 0.6 - 65


def test_a_damaged_place_costs_a_minute(tmp_path: Path, packed: bytes) -> None:
    """What follows is read, and what was passed over is counted and said."""
    path = tmp_path / "run.jsonl.gz"
    middle = len(packed) // 2
    path.write_bytes(packed[:middle] + bytes(300) + packed[middle + 300 :])
    with open_any(str(path)) as log:
        found = list(log.snapshots)
        stats = log.stats
    assert len(found) >= 400 - 65
    assert [each for each in found if each in SNAPSHOTS] == found
    assert found[-1] == SNAPSHOTS[-1]
    assert stats.damaged_stretches == 1
    assert any("damaged in 1 place" in sentence for sentence in stats.sentences())


def test_a_damaged_line_costs_what_builds_on_it(tmp_path: Path) -> None:
    """In a plain file; deltas after it are left out and counted, up to the next key frame."""
    path = tmp_path / "run.jsonl"
    record(path, SNAPSHOTS)
    lines = path.read_bytes().splitlines()
    place = next(n for n in range(200, 300) if lines[n].startswith(b'{"kind":"delta"'))
    lines[place] = lines[place][:30]
    path.write_bytes(b"\n".join(lines) + b"\n")
    with open_any(str(path)) as log:
        found = list(log.snapshots)
        stats = log.stats
    assert [each for each in found if each in SNAPSHOTS] == found
    assert len(found) >= 400 - 61
    assert stats.other_lines == 1
    assert stats.baseless_lines == 400 - 1 - len(found)


@pytest.mark.parametrize("seed", range(12))
def test_anything_can_happen_to_a_file(tmp_path: Path, packed: bytes, seed: int) -> None:
    """Bytes change, go, or come twice: it ends in snapshots or in a sentence, soon."""
    dice = random.Random(seed)
    data = bytearray(packed)
    for _ in range(dice.randint(1, 6)):
        at, size = dice.randrange(len(data)), dice.choice([1, 2, 50, 5000])
        action = dice.randrange(4)
        if action == 0:
            data[at : at + size] = dice.randbytes(size)
        elif action == 1:
            del data[at : at + size]
        elif action == 2:
            data[at:at] = data[max(0, at - size) : at]
        else:
            data[at : at + size] = bytes(size)
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(data)
    said = [message for message in (refusal(read, path), refusal(open_index, str(path))) if message]
    assert all(message.isprintable() for message in said)
    if refusal(open_index, str(path)) is not None:
        return
    index = open_index(str(path), findings=FindingEvents)
    assert index.wait(60)
    assert index.error is None or isinstance(index.error, LogError)
    for _ in index.snapshots(SNAPSHOTS[200].taken_at_unix_seconds):
        break
    index.close()


@pytest.mark.parametrize("seed", range(12))
def test_anything_can_happen_to_a_plain_file(tmp_path: Path, packed: bytes, seed: int) -> None:
    """Also within its lines."""
    dice = random.Random(seed)
    data = bytearray(gzip.decompress(packed)[:400_000])
    for _ in range(dice.randint(1, 8)):
        at = dice.randrange(len(data))
        data[at : at + dice.randint(0, 20)] = dice.choice(
            [b"null", b"1e999", b'"', b"{", b"\n", b"[]", b"\xff\xfe", b"-1", b"true", b":"]
        )
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    assert (refusal(read, path) or "").isprintable()
    if refusal(open_index, str(path)) is not None:
        return
    index = open_index(str(path))
    assert index.wait(60)
    assert index.error is None or isinstance(index.error, LogError)
    index.close()


# --- buckets -----------------------------------------------------------------------------------


def test_a_bucket_comes_back() -> None:
    """From its line."""
    for bucket in folded(SNAPSHOTS):
        assert read_bucket(bucket_object(bucket)) == bucket  # type: ignore[arg-type]


def test_a_bucket_tells_what_has_a_chart() -> None:
    """Hours of the disks, the network and the clocks can be drawn from the overview."""
    bucket = folded(SNAPSHOTS[:40])[0]
    first = SNAPSHOTS[0]
    assert bucket.gpus[first.gpus[0].uuid].keys() == set(GPU_READINGS)  # type: ignore[attr-defined]
    assert bucket.host.keys() == set(HOST_READINGS)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": None},
        {"host": 7},
        {"begin_unix_seconds": "x"},
        {"seconds": -1},
        {"host": {"cpu_percent": [1, 2]}},
        {"host": {"cpu_percent": ["a", 1, 2]}},
    ],
)
def test_bad_buckets_are_refused(change: dict[str, object]) -> None:
    """With a sentence."""
    value = {"begin_unix_seconds": 0, "seconds": 30, "gpus": {}, "host": {}}
    with pytest.raises(CodecError):
        read_bucket({**value, **change})


def test_gaps_have_no_bucket() -> None:
    """Nothing was seen in them; a reading that was never made has no band."""
    one = SNAPSHOTS[0]
    late = replace(one, taken_at_unix_seconds=one.taken_at_unix_seconds + 600.0)
    found = folded([one, late])
    assert len(found) == 2
    bare = replace(one, gpus=(replace(one.gpus[0], reading=type(one.gpus[0].reading)()),))
    assert folded([bare])[0].gpus[one.gpus[0].uuid] == {}  # type: ignore[attr-defined]
