"""Reports of recordings by what their recorder counted and found, minute by minute."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gpuwatch.recording import file
from gpuwatch.recording.recorder import Recorder
from gpuwatch.sources.logs.text import zstd
from tests.commands.conftest import Gpuwatch
from tests.support.long_recording import Piece, snapshots

PIECES = (Piece("healthy", 200.0), Piece("starved", 400.0))
LATER = (Piece(None, 3600.0), Piece("starved", 300.0))


@cache
def recorded() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.jsonl.zst")
        recorder = Recorder(path)
        for snapshot in snapshots(PIECES, gpus=2, interval=1.0):
            recorder.push(snapshot)
        recorder.close()
        return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = tmp_path / "run.jsonl.zst"
    made.write_bytes(recorded())
    return str(made)


def both(gpuwatch: Gpuwatch, *words: str) -> tuple[Any, Any]:
    """What is said by the minutes, and by the lines judged anew."""
    return gpuwatch(*words, "--json").json, gpuwatch(*words, "--json", "--rediagnose").json


def test_minutes_say_what_the_lines_say(path: str, gpuwatch: Gpuwatch) -> None:
    """The same figures, findings and costs; the recorder looked more often than a report does."""
    summed, judged = both(gpuwatch, "report", path)
    assert summed["time"]["snapshots"] == judged["time"]["snapshots"] == 600
    for one, other in zip(summed["gpus"], judged["gpus"], strict=True):
        for name in ("busy_percent", "energy_joules", "memory_peak_bytes", "power_mean_watts"):
            assert one[name] == pytest.approx(other[name], rel=1e-3), name
    assert [one["rule"] for one in summed["findings"]] == [
        one["rule"] for one in judged["findings"]
    ]
    (first,), (second,) = (
        [one for one in said["findings"] if one["rule"] == "loader_cpu_bound"]
        for said in (summed, judged)
    )
    assert first["cost_gpu_seconds"] == pytest.approx(second["cost_gpu_seconds"], rel=0.05)
    assert first["evidence"]
    assert first["advice"][0]["setting"] == "num_workers"
    assert summed["decided"] is judged["decided"] is True
    assert [one["kind"] for one in summed["phases"]] == [one["kind"] for one in judged["phases"]]


def test_diagnose_reads_the_minutes_too(path: str, gpuwatch: Gpuwatch) -> None:
    """Its findings are those of the report."""
    report = gpuwatch("report", path, "--json").json
    diagnosis = gpuwatch("diagnose", path, "--json", code=1).json
    costs = [
        [(one["rule"], one["cost_gpu_seconds"]) for one in said["findings"]]
        for said in (report, diagnosis)
    ]
    assert costs[0] == costs[1] != []


def test_no_line_is_read_for_whole_minutes(
    path: str, gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours are reported in seconds."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("lines were read")

    monkeypatch.setattr(file, "open_any", refuse)
    assert "loader is CPU-bound" in gpuwatch("report", path).out


@pytest.mark.parametrize("begin", ["+5m", "+5m20s"])
def test_a_part_of_the_time_has_its_part_of_the_cost(
    path: str, gpuwatch: Gpuwatch, begin: str
) -> None:
    """Minutes at its edges are read line by line; the cost is shared within them."""
    summed, judged = both(gpuwatch, "report", path, "--from", begin, "--to", "+8m30s")
    assert summed["time"]["seconds"] == pytest.approx(judged["time"]["seconds"], abs=1.5)
    assert summed["total"]["busy_percent"] == pytest.approx(
        judged["total"]["busy_percent"], abs=1.0
    )
    (one,), (other,) = summed["findings"], judged["findings"]
    assert one["rule"] == other["rule"] == "loader_cpu_bound"
    assert one["cost_gpu_seconds"] == pytest.approx(other["cost_gpu_seconds"], rel=0.1)


def test_a_damaged_summary_costs_nothing(path: str, tmp_path: Path, gpuwatch: Gpuwatch) -> None:
    """Two minutes, one of whose summaries cannot be read, are summed up from their lines."""
    data = bytearray(Path(path).read_bytes())
    places = [offset for _, offset, _ in file.entries_of(path)]
    middle = places[len(places) // 2]
    data[middle + 30 : middle + 60] = bytes(30)
    damaged = tmp_path / "damaged.jsonl.zst"
    damaged.write_bytes(data)
    assert len(list(file.entries_of(str(damaged)))) == len(places) - 1
    one, other = (gpuwatch("report", str(name), "--json").json for name in (damaged, path))
    assert one["time"]["snapshots"] == other["time"]["snapshots"]
    assert one["time"]["gap_count"] == 0
    assert one["total"]["busy_percent"] == pytest.approx(other["total"]["busy_percent"], abs=0.5)
    costs = [
        [
            cause["cost_gpu_seconds"]
            for cause in said["findings"]
            if cause["rule"] == "loader_cpu_bound"
        ]
        for said in (one, other)
    ]
    assert costs[0] == pytest.approx(costs[1], rel=0.05)


@cache
def totalled() -> bytes:
    """``recorded()`` with a total every two minutes."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuwatch.recording.recorder.TOTAL_SECONDS", 120.0)
        path = Path(folder, "run.jsonl.zst")
        recorder = Recorder(path)
        for snapshot in snapshots(PIECES, gpus=2, interval=1.0):
            recorder.push(snapshot)
        recorder.close()
        return path.read_bytes()


def report_of(data: bytes, folder: Path, gpuwatch: Gpuwatch) -> str:
    path = folder / "one.jsonl.zst"
    path.write_bytes(data)
    return gpuwatch("report", str(path)).out


@pytest.mark.parametrize("share", [1.0, 0.9, 0.3])
def test_totals_say_what_the_minutes_say(share: float, tmp_path: Path, gpuwatch: Gpuwatch) -> None:
    """A report by totals is the same text, of a whole recording and of one that was cut off."""
    with_totals = totalled()
    data = with_totals[: int(share * len(with_totals))]
    assert data.count(file.TOTAL) >= 1
    # A reader that does not know totals passes over them.
    minutes = data.replace(file.TOTAL, b"\x53" + file.TOTAL[1:])
    assert report_of(data, tmp_path, gpuwatch) == report_of(minutes, tmp_path, gpuwatch)


@pytest.mark.parametrize("harm", ["cut off", "damaged"])
def test_a_minute_of_which_nothing_can_be_read_costs_no_other(
    tmp_path: Path, gpuwatch: Gpuwatch, harm: str
) -> None:
    """The last one, by the minutes, by the lines and in a replay; what is wrong with it is said."""
    place = 0
    # The first frame, between its entry and the next, and the beginning of the second.
    for _ in range(3):
        place += zstd.get_frame_size(recorded()[place:])
    size = zstd.get_frame_size(recorded()[place:])
    path = tmp_path / "run.jsonl.zst"
    rest = recorded()[place : place + 50]
    path.write_bytes(recorded()[:place] + (rest if harm == "cut off" else rest + bytes(size)))
    for said in both(gpuwatch, "report", str(path)):
        assert 55 <= said["time"]["snapshots"] <= 60
    says = "was cut off" if harm == "cut off" else "compressed data is damaged"
    assert says in gpuwatch("report", str(path)).out
    index = file.RecordingIndex(str(path))
    assert len(list(index.snapshots(0.0))) == len(list(index.snapshots(2e9))) + 60


def test_two_recordings_in_one_file_have_totals_of_their_own(
    tmp_path: Path, gpuwatch: Gpuwatch
) -> None:
    """One that goes on in a file that was cut off adds to what that has."""
    path = tmp_path / "run.jsonl.zst"
    path.write_bytes(totalled()[: len(totalled()) // 2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuwatch.recording.recorder.TOTAL_SECONDS", 120.0)
        recorder = Recorder(path)
        for snapshot in snapshots(LATER, gpus=2, interval=1.0):
            recorder.push(snapshot)
        recorder.close()
    data = path.read_bytes()
    minutes = data.replace(file.TOTAL, b"\x53" + file.TOTAL[1:])
    assert report_of(data, tmp_path, gpuwatch) == report_of(minutes, tmp_path, gpuwatch)


def test_minutes_in_a_total_are_not_read(
    tmp_path: Path, gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A week is reported as fast as an hour."""
    read: list[int] = []
    entries = file.entries_in

    def noted(*given: object, **named: object) -> object:
        for offset, entry in entries(*given, **named):  # type: ignore[arg-type]
            read.append(offset)
            yield offset, entry

    monkeypatch.setattr(file, "entries_in", noted)
    report_of(totalled(), tmp_path, gpuwatch)
    # The entry of the first frame, and the one that ends the recording.
    assert len(read) == 2


@pytest.mark.parametrize("place", [20, 8, -1])
def test_a_damaged_total_costs_nothing(place: int, tmp_path: Path, gpuwatch: Gpuwatch) -> None:
    """One that cannot be read, or lies about where it begins, is passed over."""
    data = bytearray(totalled())
    last = data.rfind(file.TOTAL)
    if place > 0:
        data[last + place : last + place + 30] = bytes(30)
    else:
        # What it adds up is no longer where it says.
        del data[last - 5 : last]
    minutes = bytes(data).replace(file.TOTAL, b"\x53" + file.TOTAL[1:])
    assert report_of(bytes(data), tmp_path, gpuwatch) == report_of(minutes, tmp_path, gpuwatch)


def test_a_recording_that_goes_on_behind_an_unknown_head_is_read_by_its_lines(
    tmp_path: Path, gpuwatch: Gpuwatch
) -> None:
    """One that an older gpuwatch began has its own sign at its beginning; totals behind it do not
    stop the report."""
    old_entry = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"none"
    assert "loader is CPU-bound" in report_of(old_entry + totalled(), tmp_path, gpuwatch)


def test_many_signs_of_totals_cost_one_look_at_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of nothing but beginnings of totals is read once, not once for each."""
    path = tmp_path / "run.jsonl.zst"
    path.write_bytes(file.ENTRY + bytes(4) + 500 * file.TOTAL)
    read = 0
    pread = file.os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal read
        data = pread(descriptor, size, offset)
        read += len(data)
        return data

    monkeypatch.setattr(file.os, "pread", counted)
    assert file.frames_of(str(path), whole=True) == []
    assert read < 10 * path.stat().st_size
