"""What a report says of the same minutes does not depend on how their recording ended."""

import io
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.commands.cli import run
from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.recording.recorder import Recorder
from gpuwatch.sources.logs.text import zstd
from tests.support.long_recording import Piece, snapshots

FIVE_MINUTES = 300


def starved() -> list[Snapshot]:
    """Five minutes of a starved loader, one snapshot a second."""
    return list(snapshots((Piece("starved", FIVE_MINUTES),), gpus=1, interval=1.0))


def record(path: Path, made: Iterable[Snapshot], **options: Any) -> Recorder:
    """Not closed yet."""
    clock = ManualClock()
    recorder = Recorder(path, monotonic=clock.monotonic, **options)
    for snapshot in made:
        recorder.push(snapshot)
        clock.advance(1.0)
    return recorder


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same five minutes, recorded and ended in different ways."""
    folder = tmp_path_factory.mktemp("endings")
    made = starved()
    paths = {name: folder / f"{name}.jsonl.zst" for name in ("orderly", "killed", "rotated")}
    record(paths["orderly"], made).close()
    record(paths["rotated"], made, rotate_seconds=100.0).close()
    recorder = record(folder / "running.jsonl.zst", made)
    recorder._file.flush()  # type: ignore[union-attr]
    # As kill -9 leaves it: what was written so far, the zstd frame open.
    paths["killed"].write_bytes((folder / "running.jsonl.zst").read_bytes())
    recorder.close()
    return paths


@pytest.fixture(scope="module")
def swings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Starved for three minutes between healthy ones."""
    path = tmp_path_factory.mktemp("recorded") / "swings.jsonl.zst"
    pieces = (Piece("healthy", 150), Piece("starved", 180), Piece("healthy", 200))
    record(path, snapshots(pieces, gpus=1, interval=1.0)).close()
    return path


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["report", *arguments, "--json"]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def costs(value: dict[str, Any]) -> dict[str, float]:
    return {one["rule"]: one["cost_gpu_seconds"] for one in value["findings"]}


def test_the_cost_does_not_depend_on_how_the_recording_ended(
    endings: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended in order, killed, rotated and on standard input: what was lost is what was read."""
    told = {name: costs(report(capsys, str(path))) for name, path in endings.items()}
    given = io.TextIOWrapper(io.BytesIO(endings["orderly"].read_bytes()))
    monkeypatch.setattr(sys, "stdin", given)
    told["standard input"] = costs(report(capsys, "-"))
    expected = told["orderly"]
    assert expected["loader_cpu_bound"] > 0.25 * FIVE_MINUTES
    for name, found in told.items():
        assert found == pytest.approx(expected, rel=1e-5), name


def test_causes_never_cost_more_than_the_idle_time(
    endings: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them together, in each of the files, also in one that was put aside."""
    aside = sorted(endings["rotated"].parent.glob("rotated.2*.zst"))
    assert aside
    for path in (*endings.values(), *aside):
        value = report(capsys, str(path))
        idle = value["total"]["watched_gpu_seconds"] - value["total"]["busy_gpu_seconds"]
        # The report rounds to a ten-thousandth.
        assert 0.0 < sum(costs(value).values()) <= idle + 0.001


@pytest.mark.parametrize(("begin", "end"), [(14, 70), (20, 100), (22, 90)])
def test_a_recorder_killed_at_any_moment_leaves_no_time_counted_twice(
    begin: int, end: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was lost before the last frame stays before it, also where the last look of then was
    some seconds old."""
    path = tmp_path / "killed.jsonl.zst"
    recorder = record(tmp_path / "running.jsonl.zst", starved()[begin:end])
    recorder._file.flush()  # type: ignore[union-attr]
    path.write_bytes((tmp_path / "running.jsonl.zst").read_bytes())
    recorder.close()
    value = report(capsys, str(path))
    idle = value["total"]["watched_gpu_seconds"] - value["total"]["busy_gpu_seconds"]
    assert 0.9 * idle < sum(costs(value).values()) <= idle + 0.001


def test_what_held_when_the_recorder_was_killed_ends_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another run that appends knows nothing of it; the finding is no one's for ever."""
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path)
    made = list(snapshots((Piece("starved", 130), Piece(None, 600), Piece("healthy", 130)),
                          gpus=1, interval=1.0))  # fmt: skip
    for snapshot in made[:130]:
        recorder.push(snapshot)
    recorder._file.flush()  # type: ignore[union-attr]
    os.close(recorder._file._descriptor)  # type: ignore[union-attr]
    again = Recorder(path)
    for snapshot in made[130:]:
        again.push(snapshot)
    again.close()
    value = report(capsys, str(path))
    (finding,) = [one for one in value["findings"] if one["rule"] == "loader_cpu_bound"]
    assert not finding["holds_at_end"]
    assert finding["stretches"][-1]["end_unix_seconds"] <= made[129].taken_at_unix_seconds


def test_the_end_and_the_beginning_are_found_without_reading(
    swings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A part told from the end or the start has the moments it would have if all was read."""
    stream = swings.with_name("stream.jsonl")
    # Without what record writes between the lines, it is read from its beginning.
    stream.write_bytes(zstd.decompress(swings.read_bytes()))
    for options in (
        ["--from", "-2m"],
        ["--from", "+1m", "--to", "+3m"],
        ["--from", "-400s", "--to", "-100s"],
    ):
        fast, slow = report(capsys, str(swings), *options), report(capsys, str(stream), *options)
        assert fast["time"] == slow["time"]
        assert fast["total"]["busy_percent"] == pytest.approx(
            slow["total"]["busy_percent"], abs=0.5
        )
        assert fast["total"]["energy_joules"] == pytest.approx(
            slow["total"]["energy_joules"], rel=0.01
        )
