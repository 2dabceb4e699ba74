"""A report tells the findings that were recorded, as they were recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli import run
from gpuwatch.diagnosis.finding import Advice, Evidence, Finding, RuledOut
from gpuwatch.json_values import CodecError
from gpuwatch.outputs.diagnosis import finding_object
from gpuwatch.outputs.recorder import Recorder
from gpuwatch.outputs.summing.recorded import read_finding, recorded_events
from tests.long_recording import Piece, snapshots

WHOLE = Finding(
    rule="loader_cpu_bound",
    severity="warning",
    confidence=0.75,
    summary="GPU 0 waits.",
    gpus=("GPU-a", "GPU-b"),
    job=(4242, 1.5),
    since_unix_seconds=1_700_000_000.0,
    evidence=(
        Evidence(name="idle", value=59.5, unit="%", threshold=10.0, says="much"),
        Evidence(name="pinned", value=False, supports=False),
        Evidence(name="where", value="here"),
        Evidence(name="nothing", value=None),
    ),
    advice=(Advice(action="Raise it.", setting="num_workers", present="2", wanted="8", why="so"),),
    ruled_out=(RuledOut(rule="checkpoint_pauses", why="nothing was written"),),
    cost_share=0.5,
    cost_gpu_seconds=123.0,
)


def recorded(path: Path, *pieces: Piece) -> Path:
    recorder = Recorder(path)
    for snapshot in snapshots(pieces, gpus=1, interval=1.0):
        recorder.push(snapshot)
    recorder.close()
    return path


@pytest.fixture(scope="module")
def swings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Starved for three minutes between healthy ones."""
    path = tmp_path_factory.mktemp("recorded") / "swings.jsonl.gz"
    return recorded(path, Piece("healthy", 150), Piece("starved", 180), Piece("healthy", 200))


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["report", *arguments, "--json"]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


@pytest.mark.parametrize("finding", [WHOLE, Finding(rule="r", severity="info", confidence=0.0,
                                                    summary="s")])  # fmt: skip
def test_a_finding_reads_back_as_it_was_written(finding: Finding) -> None:
    """Evidence, advice and all; through JSON."""
    assert read_finding(json.loads(json.dumps(finding_object(finding)))) == finding


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rule", 1),
        ("severity", "fatal"),
        ("confidence", None),
        ("gpus", "GPU-a"),
        ("job", 4242),
        ("evidence", [1]),
        ("advice", [{}]),
        ("ruled_out", {}),
        ("cost", []),
    ],
)
def test_what_is_no_finding_is_refused(name: str, value: object) -> None:
    """A recording may come from anyone."""
    with pytest.raises(CodecError):
        read_finding({**finding_object(WHOLE), name: value})


def test_texts_of_a_finding_are_made_safe() -> None:
    """Nothing in them reaches a terminal as it is."""
    hostile = {**finding_object(WHOLE), "summary": "\x1b[2Jgone\x07"}
    assert "\x1b" not in read_finding(hostile).summary


def test_recorded_findings_are_told(swings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as found anew: rules, when they held (to some seconds) and what they cost."""
    told, found = report(capsys, str(swings)), report(capsys, str(swings), "--judge")
    assert told["source"]["findings"] == "recorded"
    assert found["source"]["findings"] == "judged"
    assert [one["rule"] for one in told["findings"]] == [one["rule"] for one in found["findings"]]
    assert told["findings"]
    for one, other in zip(told["findings"], found["findings"], strict=True):
        assert one["cost_gpu_seconds"] == pytest.approx(other["cost_gpu_seconds"], rel=0.2, abs=5)
        assert one["seconds"] == pytest.approx(other["seconds"], abs=30)
        assert one["holds_at_end"] == other["holds_at_end"]
        assert one["advice"]
    assert told["decided"] == found["decided"]


def test_a_part_is_judged_anew(swings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a finding cost in it was never recorded."""
    part = report(capsys, str(swings), "--from", "+150s", "--to", "+320s")
    assert part["source"]["findings"] == "judged"
    (finding,) = [one for one in part["findings"] if one["rule"] == "loader_cpu_bound"]
    assert finding["holds_at_end"]


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
    again = Recorder(path)
    for snapshot in made[130:]:
        again.push(snapshot)
    again.close()
    value = report(capsys, str(path))
    (finding,) = [one for one in value["findings"] if one["rule"] == "loader_cpu_bound"]
    assert not finding["holds_at_end"]
    assert finding["stretches"][-1]["end_unix_seconds"] <= made[129].taken_at_unix_seconds


def test_a_stream_tells_no_findings(tmp_path: Path) -> None:
    """It has to be judged; so has what is no recording, and what is not there."""
    stream = tmp_path / "stream.jsonl"
    stream.write_text('{"kind":"header","schema":1}\n', encoding="utf-8")
    log = tmp_path / "smi.csv"
    log.write_text("timestamp, index\n", encoding="utf-8")
    for path in (stream, log, tmp_path / "none"):
        assert recorded_events(str(path)) is None


def test_the_end_and_the_beginning_are_found_without_reading(
    swings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A part told from the end or the start has the moments it would have if all was read."""
    stream = swings.with_name("stream.jsonl")
    lines = gzip.decompress(swings.read_bytes()).decode().splitlines(keepends=True)
    # Without what tells that record wrote it, it is read from its beginning.
    plain = []
    for line in lines:
        value = json.loads(line)
        value.pop("recording", None)
        plain.append(json.dumps(value, separators=(",", ":")) + "\n")
    stream.write_text("".join(plain), encoding="utf-8")
    for options in (
        ["--from", "-2m"],
        ["--from", "+1m", "--to", "+3m"],
        ["--to", "-7m"],
        ["--from", "-400s", "--to", "-100s"],
    ):
        fast, slow = report(capsys, str(swings), *options), report(capsys, str(stream), *options)
        assert fast["time"] == slow["time"]
        assert fast["total"] == slow["total"]
