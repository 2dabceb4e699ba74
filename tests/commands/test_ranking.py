"""``gpuwatch report --by``: who lost GPU time, of what, by all recordings of a folder."""

import re
import shutil
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.export import JsonLinesWriter
from gpuwatch.recording.charges import GivenTime
from gpuwatch.recording.recorder import Recorder
from tests.commands.conftest import Gpuwatch
from tests.support.long_recording import Piece, snapshots

SECONDS = 480.0
NAMES = {"ada": "ada", "grace": "<b>grace\x1b[31m"}


@cache
def taken() -> tuple[Snapshot, ...]:
    """Two users of two GPUs each, both starved; only one of them is a Slurm job's."""
    return tuple(
        [
            replace(
                one,
                jobs=tuple(
                    [
                        replace(
                            job,
                            user=NAMES[job.user or ""],
                            slurm_job="17" if job.user == "ada" else None,
                        )
                        for job in one.jobs
                    ]
                ),
            )
            for one in snapshots((Piece("starved", SECONDS),), gpus=4, interval=5.0)
        ]
    )


def record(path: Path) -> None:
    recorder = Recorder(path)
    for one in taken():
        recorder.push(one)
    recorder.close()


@cache
def recorded() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.jsonl.zst")
        record(path)
        return path.read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Recordings of one night, beside what else lies there."""
    (tmp_path / "rec" / "node1").mkdir(parents=True)
    (tmp_path / "rec" / "node1" / "17.node1.jsonl.zst").write_bytes(recorded())
    (tmp_path / "rec" / "17.node1.txt").write_text("The loader is too slow.\n")
    return tmp_path / "rec"


def test_users_are_ranked_with_a_paragraph_for_each(folder: Path, gpuwatch: Gpuwatch) -> None:
    """Hours, share, cause and change; no command line is named, and a user's name is only text."""
    ran = gpuwatch("report", str(folder), "--by", "user", "--price", "2.5")
    assert re.search(r"(?m)^ada +0\.2\d +\d\d% .* loader ", ran.out)
    assert "GPU-minutes were given to the jobs of ada (Slurm job 17), busy" in ran.words
    assert re.search(r"num_workers 2 -> \d would have given back about \d", ran.words)
    assert "at 2.5 a GPU-hour" in ran.words
    assert "explain loader_cpu_bound" in ran.words
    assert "train.py" not in ran.out
    assert "\x1b" not in ran.out
    page = gpuwatch("report", str(folder), "--by", "user", "--html", "-").out
    assert "&lt;b&gt;grace" in page
    assert "<b>grace" not in page
    assert "For a mail or a ticket" in page


def test_jobs_users_and_causes_add_up_to_the_same(folder: Path, gpuwatch: Gpuwatch) -> None:
    """Of all time that was given, what was lost, and what the cures would have given back, which
    is never more than that."""
    said = {by: gpuwatch("report", str(folder), "--by", by, "--json").json for by in
            ("user", "job", "cause")}  # fmt: skip
    whole = said["user"]["total"]
    assert whole["given_gpu_seconds"] == pytest.approx(4 * SECONDS, abs=40.0)
    assert 0.0 < whole["gives_back_gpu_seconds"] <= whole["lost_gpu_seconds"]
    assert whole["lost_gpu_seconds"] <= whole["given_gpu_seconds"] - whole["busy_gpu_seconds"]
    for one in said.values():
        assert one["total"] == whole
        lost = [row["lost_gpu_seconds"] for row in one["rows"]]
        assert sum(lost) == pytest.approx(whole["lost_gpu_seconds"])
        assert lost == sorted(lost, reverse=True)
    assert [(one["slurm_job"], one["machine"]) for one in said["job"]["rows"]] in (
        [("17", None), (None, "sim-box")],
        [(None, "sim-box"), ("17", None)],
    )
    assert {one["rule"] for one in said["cause"]["rows"]} >= {"loader_cpu_bound"}
    # As much as the report of the recording says.
    (file,) = folder.rglob("*.zst")
    report = gpuwatch("report", str(file), "--json").json
    assert report["total"]["finding_gpu_seconds"] == pytest.approx(whole["lost_gpu_seconds"])
    assert report["total"]["busy_gpu_seconds"] == pytest.approx(whole["busy_gpu_seconds"], rel=0.01)


def test_what_two_recordings_say_counts_once(folder: Path, gpuwatch: Gpuwatch) -> None:
    """A copy, and what was printed by ``stream`` meanwhile: nothing is given or lost twice. A
    stream alone says the same, too."""
    asked = ("--by", "user", "--json")
    before = gpuwatch("report", str(folder), *asked).json
    (file,) = folder.rglob("*.zst")
    shutil.copy(file, folder / "zz.jsonl.zst")
    stream = folder / "zzz.jsonl"
    with stream.open("w") as out:
        writer = JsonLinesWriter(out)
        for one in taken():
            writer.write(one)
    after = gpuwatch("report", str(folder), *asked).json
    alone = gpuwatch("report", str(stream), *asked).json
    assert after["recordings"] == 3
    for name in ("given_gpu_seconds", "lost_gpu_seconds"):
        assert after["total"][name] == pytest.approx(before["total"][name], rel=0.02)
        assert alone["total"][name] == pytest.approx(before["total"][name], rel=0.05)


def test_a_recording_of_seconds_counts_too(tmp_path: Path, gpuwatch: Gpuwatch) -> None:
    """One that is still written to, or was cut off, in its first minute."""
    # It writes each snapshot at once.
    seconds = count(0.0, 5.0)
    recorder = Recorder(tmp_path / "run.jsonl.zst", monotonic=lambda: next(seconds))
    for one in taken()[:9]:
        recorder.push(one)
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "run.jsonl.zst", tmp_path / "copy")
    recorder.close()
    asked = ("--by", "user", "--json")
    young = gpuwatch("report", str(tmp_path / "copy"), *asked).json
    whole = gpuwatch("report", str(tmp_path / "run.jsonl.zst"), *asked).json
    assert young["total"]["given_gpu_seconds"] > 100.0
    assert young["total"] == whole["total"]


def test_a_recording_without_a_whole_reading_is_a_note(tmp_path: Path, gpuwatch: Gpuwatch) -> None:
    """Beside the others, which are ranked."""
    record(tmp_path / "run.jsonl.zst")
    (tmp_path / "torn.jsonl.zst").write_bytes((tmp_path / "run.jsonl.zst").read_bytes()[:300])
    ran = gpuwatch("report", str(tmp_path), "--by", "user").out
    assert "has no whole reading: it is still being written, or was cut off." in ran


def test_what_a_cause_cost_is_a_share_of_the_time_given(folder: Path, gpuwatch: Gpuwatch) -> None:
    """By cause as by user: the shares of all causes add up to what the verdict says."""
    ran = gpuwatch("report", str(folder), "--by", "cause").out
    assert "OF GIVEN" in ran
    (whole,) = re.findall(r"were lost \((\d+)%\)", ran)
    shares = [int(one) for one in re.findall(r"(?m)^[a-z].* +(\d+)% ", ran)]
    assert sum(shares) == pytest.approx(int(whole), abs=2)


def test_a_part_of_the_time_has_its_part(folder: Path, gpuwatch: Gpuwatch) -> None:
    """From four minutes after the beginning on; what is older is left out unread."""
    asked = ("report", str(folder), "--by", "user", "--json")
    whole = gpuwatch(*asked).json["total"]
    part = gpuwatch(*asked, "--since", "2026-03-01T20:04:00Z").json["total"]
    assert part["given_gpu_seconds"] == pytest.approx(whole["given_gpu_seconds"] / 2, rel=0.03)
    assert part["lost_gpu_seconds"] == pytest.approx(whole["lost_gpu_seconds"] / 2, rel=0.2)
    assert "no recording of that time" in gpuwatch(*asked, "--since", "2100-01-01", code=2).err


def test_recordings_of_an_older_gpuwatch_are_charged_by_their_jobs(
    tmp_path: Path, gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their minutes do not say whom GPUs were given to, but whose each job was."""
    monkeypatch.setattr(GivenTime, "take", lambda _: None)
    record(tmp_path / "old.jsonl.zst")
    found = gpuwatch("report", str(tmp_path), "--by", "job", "--json").json
    assert found["total"]["given_gpu_seconds"] == pytest.approx(4 * SECONDS, abs=40.0)
    assert {one["user"] for one in found["rows"]} == {
        "ada",
        "<b>grace\N{REPLACEMENT CHARACTER}[31m",
    }


def test_what_cannot_be_ranked_is_said(folder: Path, tmp_path: Path, gpuwatch: Gpuwatch) -> None:
    """In a sentence, with what to do; a log of GPUs says nothing of users."""
    log = tmp_path / "log.jsonl"
    log.write_text("timestamp, index, utilization.gpu [%]\n2026/03/01 20:00:00.000, 0, 5 %\n" * 3)
    for options, says in (
        ([str(folder)], "--by user"), (["--by", "user"], "Name recordings"),
        ([str(folder), "--since", "7d"], "add --by"), (["none", "--by", "job"], "no recording"),
        ([str(folder), "--by", "user", "--since", "soon"], "write it as 7d"),
        ([str(folder), "--by", "user", "--rediagnose"], "--by goes with"),
        ([str(log), "--by", "user"], "does not say whose"),
    ):  # fmt: skip
        assert says in gpuwatch("report", *options, code=2).err
