"""Whose a GPU is, as a scheduler's prolog writes it down."""

import os
from pathlib import Path

import pytest

from gpuwatch.core.codec import Decoder
from gpuwatch.core.model import Gpu
from gpuwatch.core.source import ManualClock
from gpuwatch.sources import allocation
from gpuwatch.sources.allocation import FOLDER_VARIABLE, JOBS_MOST, READ_SECONDS, Allocations
from tests.support.snapshots import gpu, snapshot, stream_lines


@pytest.fixture(autouse=True)
def no_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)


def test_the_files_of_both_exporters_are_read(tmp_path: Path) -> None:
    """By index (a job in each line) or UUID (with the user's number behind); no file, no job."""
    (tmp_path / "0").write_text("4711\n4712\n")
    (tmp_path / "GPU-b").write_text("4713 1000\n")
    (tmp_path / "3").write_text("0 0\n")
    clock = ManualClock()
    read = Allocations(clock, [str(tmp_path / "none"), str(tmp_path)])
    gpus = (gpu(), gpu("GPU-b", 1), gpu("GPU-c", 2), gpu("GPU-d", 3))
    found = [one.allocated_to for one in read.with_jobs(gpus)]
    assert found == [("4711", "4712"), ("4713",), (), ()]
    # What changes is seen soon.
    (tmp_path / "0").unlink()
    clock.advance(READ_SECONDS)
    assert read.with_jobs(gpus)[0].allocated_to == ()


def test_without_a_folder_nothing_is_known(tmp_path: Path) -> None:
    """Nor of one without files, or of a file that cannot be read; a pipe is not waited for."""
    for folder in (tmp_path / "none", tmp_path):
        assert Allocations(ManualClock(), [str(folder)]).with_jobs((gpu(),)) == (gpu(),)
    os.mkfifo(tmp_path / "1")
    (tmp_path / "0").mkdir()
    assert (
        Allocations(ManualClock(), [str(tmp_path)]).with_jobs((gpu(index=1),))[0].allocated_to == ()
    )
    (one,) = Allocations(ManualClock(), [str(tmp_path)]).with_jobs((gpu(),))
    assert one.allocated_to is None


def test_a_job_that_sees_a_part_of_the_cards_has_other_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's numbers are not the machine's there: only a file by UUID counts."""
    for card in ("0000:17:00.0", "0000:65:00.0"):
        (tmp_path / "cards" / card).mkdir(parents=True)
    monkeypatch.setattr(allocation, "CARDS", str(tmp_path / "cards"))
    (tmp_path / "map").mkdir()
    (tmp_path / "map" / "0").write_text("17\n")
    (tmp_path / "map" / "GPU-b").write_text("18\n")

    def found(*gpus: Gpu) -> list[tuple[str, ...] | None]:
        read = Allocations(ManualClock(), [str(tmp_path / "map")])
        return [one.allocated_to for one in read.with_jobs(gpus)]

    assert found(gpu()) == [None]
    assert found(gpu("GPU-b", 0)) == [("18",)]
    assert found(gpu(), gpu("GPU-b", 1)) == [("17",), ("18",)]


def test_hostile_files_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no number of a job is left out, a job counts once, and no file is too long; the
    variable names the folder, which can be one that cannot be."""
    numbers = b"".join(b"%d_1 ada\n" % number for number in range(10_000))
    (tmp_path / "0").write_bytes(b"\x1b[31mjob\xff x\n{gpus}\n7\n7\n" + numbers)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    (one,) = Allocations(ManualClock(), []).with_jobs((gpu(),))
    assert one.allocated_to is not None
    assert one.allocated_to[:3] == ("7", "0_1", "1_1")
    assert len(one.allocated_to) == JOBS_MOST
    monkeypatch.setenv(FOLDER_VARIABLE, "x" * 5000)
    assert Allocations(ManualClock(), []).with_jobs((gpu(),)) == (gpu(),)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    # It goes through a stream.
    decoder, sent = Decoder(), snapshot(gpus=(one,))
    assert [decoder.decode(line) for line in stream_lines(sent)][-1].gpus == (one,)
