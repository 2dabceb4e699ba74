"""Recordings opened to be looked at here and there."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.recording.file import (
    BUCKET_SECONDS,
    ENTRY,
    Bucket,
    Overview,
    RecordingIndex,
    is_indexed,
)
from gpuwatch.recording.recorder import Recorder
from gpuwatch.recording.statistics import GPU_PROFILES, HOST_PROFILES, Statistics
from gpuwatch.sources.logs.text import LogError, zstd
from tests.recording.machine import Machine, read


def simulated(count: int, begin: float = 0.0) -> list[Snapshot]:
    machine = Machine(begin=begin)
    return [machine.take() for _ in range(count)]


COUNT = 250


@cache
def taken() -> list[Snapshot]:
    return simulated(COUNT)


def record(path: Path, snapshots: list[Snapshot]) -> str:
    recorder = Recorder(path)
    for each in snapshots:
        recorder.push(each)
    recorder.close()
    return str(path)


@cache
def recorded(suffix: str) -> bytes:
    """``taken()``, in a file with a name that ends so."""
    with TemporaryDirectory() as folder:
        path = Path(folder, f"run{suffix}")
        record(path, taken())
        return path.read_bytes()


def written(path: Path) -> str:
    path.write_bytes(recorded(path.suffix))
    return str(path)


@pytest.fixture(scope="module")
def packed() -> bytes:
    return recorded(".zst")


def folded(snapshots: list[Snapshot]) -> tuple[Bucket, ...]:
    """Half minutes of ``snapshots``, counted in one go."""
    overview, statistics = Overview(), Statistics()
    for each in snapshots:
        statistics.add_snapshot(each)
    overview.add_part(statistics.take_part())
    return overview.buckets()


def assert_alike(found: Sequence[Bucket], wanted: Sequence[Bucket]) -> None:
    """Parts end at other times, so that half minutes differ by a reading or two."""
    begins = [each.begin_unix_seconds for each in wanted]
    assert [each.begin_unix_seconds for each in found] == begins
    for one, other in zip(found, wanted, strict=True):
        assert one.gpus.keys() == other.gpus.keys()
        for uuid, columns in other.gpus.items():
            assert one.gpus[uuid].keys() == columns.keys()
            assert one.gpus[uuid]["busy_percent"].mean == pytest.approx(
                columns["busy_percent"].mean, abs=12.0
            )


@pytest.mark.parametrize("name", ["run.jsonl.zst", "run.jsonl"])
def test_a_recording_is_looked_at_here_and_there(tmp_path: Path, name: str) -> None:
    """Its times, buckets and findings are as they were recorded. Reading begins not later than
    asked for, a minute before at most (a plain file: at its beginning), and goes on to the end; the
    last minutes can be read alone."""
    path, packed = written(tmp_path / name), name.endswith(".zst")
    index = RecordingIndex(path)
    assert index.progress == 1.0
    assert index.first_unix_seconds == taken()[0].taken_at_unix_seconds
    assert index.last_unix_seconds == taken()[-1].taken_at_unix_seconds
    assert_alike(index.buckets, folded(taken()))
    assert is_indexed(path) == packed
    assert index.findings[0].rule
    assert index.findings[0].end_unix_seconds is None
    for number in (0, 59, 60, COUNT - 1):
        wanted = taken()[number].taken_at_unix_seconds
        found = list(index.snapshots(wanted))
        assert found == taken()[-len(found) :]
        assert 0 <= wanted - found[0].taken_at_unix_seconds <= (61 if packed else COUNT)
    index.close()


def test_a_clock_that_was_set_back_hides_nothing_before_it(tmp_path: Path) -> None:
    """What was recorded before it is read from its own time on."""
    back = [
        replace(each, taken_at_unix_seconds=each.taken_at_unix_seconds - 3600.0)
        for each in taken()[150:200]
    ]
    index = RecordingIndex(record(tmp_path / "run.jsonl.zst", taken()[:150] + back))
    at = taken()[140].taken_at_unix_seconds
    assert 0 <= at - next(index.snapshots(at)).taken_at_unix_seconds <= 60.0


def test_a_recording_that_is_still_written_has_its_last_moments(path: Path, packed: bytes) -> None:
    """No entry has them yet; that its end is missing is nothing to be said."""
    path.write_bytes(packed[: int(len(packed) * 0.8)])
    index = RecordingIndex(str(path))
    found, _ = read(path)
    assert index.last_unix_seconds == found[-1].taken_at_unix_seconds
    assert_alike(index.buckets, folded(found))
    assert index.notes() == ()


def test_two_recordings_in_one_file(path: Path) -> None:
    """What held in the first ends with it."""
    later = simulated(100, begin=5000.0)
    written(path)
    record(path, later)
    index = RecordingIndex(str(path))
    assert_alike(index.buckets, [*folded(taken()), *folded(later)])
    assert index.last_unix_seconds == later[-1].taken_at_unix_seconds
    ends = [span.end_unix_seconds for span in index.findings if span.end_unix_seconds is not None]
    assert ends
    assert max(ends) < later[0].taken_at_unix_seconds


def test_a_damaged_place_costs_a_minute(path: Path, packed: bytes) -> None:
    """What follows is read, and what was passed over is counted and said."""
    middle = len(packed) // 2
    path.write_bytes(packed[:middle] + bytes(300) + packed[middle + 300 :])
    found, stats = read(path)
    assert len(found) >= COUNT - 65
    assert [each for each in found if each in taken()] == found
    assert found[-1] == taken()[-1]
    assert stats.damaged_stretches == 1
    assert any("damaged in 1 place" in sentence for sentence in stats.sentences())


@pytest.mark.parametrize("suffix", [".zst", ".jsonl"])
@pytest.mark.parametrize("seed", range(3))
def test_anything_can_happen_to_a_file(tmp_path: Path, suffix: str, seed: int) -> None:
    """Bytes change, go, or come twice: it ends in snapshots or in a sentence, soon."""
    dice = random.Random(seed)
    data = bytearray(recorded(suffix)[:400_000])
    for _ in range(dice.randint(1, 6)):
        at, size = dice.randrange(len(data)), dice.choice([1, 2, 50, 5000])
        words = [b"null", b"1e999", b'"', b"{", b"\n", b"[]", b"\xff\xfe", b"-1", b"\\u001b"]
        data[at : at + size] = dice.choice(
            [
                dice.randbytes(size),
                b"",
                data[max(0, at - size) : at] + data[at : at + size],
                bytes(size),
                *words,
            ]
        )
    path = tmp_path / f"run{suffix}"
    path.write_bytes(data)
    refused = ""
    try:
        read(path)
        index = RecordingIndex(str(path))
        for _ in index.snapshots(taken()[150].taken_at_unix_seconds):
            break
        assert all(span.summary.isprintable() for span in index.findings)
    except LogError as error:
        refused = str(error)
    assert refused.isprintable()


@pytest.mark.parametrize(
    "entry",
    [
        b"{}",
        b'{"run":"\\u001b[2J","findings":[{"rule":1}]}',
        b'{"run":"x","begin_unix_seconds":1e300}',
        b'{"run":"x","part":{"time":{"begin":"x"},"gpus":[]}}',
        b'{"run":"x","part":{"time":{"begin":0,"end":9e99},"gpus":[]}}',
        b'{"run":"x","part":{"time":{},"gpus":[],"host":{"profiles":{"cpu_percent":[0,-1,[[1]]]}}}}',
        b"[" * 100_000,
        bytes(64 * 1024 * 1024),
    ],
)
def test_bad_entries_are_passed_over(path: Path, packed: bytes, entry: bytes) -> None:
    """However they are made; the lines beside them are read."""
    data = zstd.compress(entry)
    path.write_bytes(packed + ENTRY + len(data).to_bytes(4, "little") + data)
    index = RecordingIndex(str(path))
    assert_alike(index.buckets, folded(taken()))
    assert read(path)[0] == taken()


def test_rubbish_like_entries_is_not_unpacked_a_thousand_times(path: Path) -> None:
    """It was made to take hours: each of these would be megabytes."""
    data = zstd.compress(bytes(64_000_000))
    entry = ENTRY + len(data).to_bytes(4, "little") + data
    path.write_bytes(entry * 200)
    with pytest.raises(LogError):
        RecordingIndex(str(path))


@pytest.mark.parametrize("odd", [9e17, math.nan, math.inf])
def test_readings_beyond_all_measure_cost_no_overview(tmp_path: Path, odd: float) -> None:
    """What is no number, or beyond the range of its unit, is left out."""
    snapshots = [
        replace(each, host=replace(each.host, disk_read_bytes_per_second=odd))
        for each in taken()[:70]
    ]
    index = RecordingIndex(record(tmp_path / "run.jsonl.zst", snapshots))
    assert_alike(index.buckets, folded(snapshots))
    for bucket in index.buckets:
        assert "disk_read_bytes_per_second" not in bucket.host


def test_a_bucket_has_minimum_mean_and_maximum() -> None:
    """Of all readings that have a chart; the busy share is that of the driver's fine samples."""
    first = math.ceil(taken()[0].taken_at_unix_seconds / BUCKET_SECONDS) * BUCKET_SECONDS
    (bucket,) = [one for one in folded(taken()[:90]) if one.begin_unix_seconds == first]
    inside = [each for each in taken() if first < each.taken_at_unix_seconds < first + 30.5]
    readings = [each.gpus[0].reading for each in inside]
    percents = [sample.percent for one in readings for sample in one.busy_samples or ()]
    watts = [one.power_watts or 0.0 for one in readings]
    (bands,) = bucket.gpus.values()
    low, mean, high = bands["busy_percent"]
    assert (low, high) == (min(percents), max(percents))
    assert mean == pytest.approx(sum(percents) / len(percents), abs=3.0)
    assert bands["power_watts"][::2] == pytest.approx((min(watts), max(watts)), abs=0.1)
    assert bands.keys() == {"busy_percent", *GPU_PROFILES}
    assert bucket.host.keys() == set(HOST_PROFILES)


def test_gaps_have_no_bucket() -> None:
    """Nothing was seen in them; a reading that was never made has no band."""
    late = [
        replace(each, taken_at_unix_seconds=each.taken_at_unix_seconds + 600.0)
        for each in taken()[:20]
    ]
    begins = [each.begin_unix_seconds for each in folded(taken()[:20] + late)]
    assert 2 <= len(begins) <= 4
    assert max(begins) - min(begins) >= 570.0
    bare = [
        replace(each, gpus=(replace(each.gpus[0], reading=type(each.gpus[0].reading)()),))
        for each in taken()[:20]
    ]
    assert all(each.gpus == {} for each in folded(bare))
