"""What jobs told of their own loops, in every report of a recording."""

import csv
import io
from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import Job, JobRank, Snapshot, TrainingLoop
from gpuwatch.outputs.export import PROCESS_COLUMNS, RowWriter, process_rows
from gpuwatch.outputs.report.forms.text import report_text
from gpuwatch.outputs.report.model import Report
from tests.support.recordings import simulated, summed
from tests.support.snapshots import snapshot


@pytest.fixture(scope="module")
def taken() -> list[Snapshot]:
    """Two jobs of two ranks, the last of which waits for its data."""
    return simulated("reported", 60, gpus=4)


@pytest.fixture(scope="module")
def told(taken: list[Snapshot]) -> Report:
    return summed(taken)


@pytest.fixture(scope="module")
def silent() -> Report:
    return summed(simulated("healthy", 60, gpus=4))


def telling(at: int, shares: tuple[float | None, ...], **fields: Any) -> Snapshot:
    """A job whose ranks each do 10 steps of 8 samples a second and wait ``shares`` of the time."""
    loops = [
        TrainingLoop(
            pid=10 + rank,
            window_seconds=min(float(at), 10.0),
            steps=10 * at,
            steps_per_second=10.0,
            samples_per_second=80.0,
            data_wait_share=share,
            phase="train",
        )
        for rank, share in enumerate(shares)
    ]
    ranks = tuple([JobRank(pid=loop.pid, rank=number) for number, loop in enumerate(loops)])
    job = Job(**({"pid": 10, "ranks": ranks, "loops": tuple(loops)} | fields))
    return snapshot(float(at), sequence=at, jobs=(job,))


# --- the sums --------------------------------------------------------------------------------


def test_jobs_one_after_the_other_are_not_added_up() -> None:
    """Jobs at one time are."""
    first = [telling(at, (0.0,)) for at in range(1, 31)]
    later = [telling(at, (0.6,), pid=99) for at in range(31, 61)]
    summary = summed(first + later)
    assert [job.loop.samples_per_second for job in summary.jobs] == pytest.approx([80.0, 80.0])
    assert summary.samples_per_second == pytest.approx(80.0, rel=0.05)
    assert summary.data_wait_percent == pytest.approx(30.0, rel=0.05)
    both = [
        replace(one, jobs=(*one.jobs, *telling(number + 1, (0.0,), pid=99).jobs))
        for number, one in enumerate(first)
    ]
    assert summed(both).samples_per_second == pytest.approx(160.0)


# --- what is written -------------------------------------------------------------------------


def test_the_text_has_columns_for_it(told: Report, silent: Report) -> None:
    """Only where a job told, with the rank that waits most; nothing is cut off at 80 columns."""
    text = report_text(told, width=80)
    titles = next(line for line in text.split("\n") if "SAMPLES/S" in line)
    assert titles.split()[:5] == ["JOB", "GPU-TIME", "BUSY", "SAMPLES/S", "DATA-WAIT"]
    job = told.jobs[0]
    row = next(line for line in text.split("\n") if line.split()[:1] == [str(job.pid)])
    assert f"{job.loop.data_wait_percent:.0f}%" in row.split()
    assert f"{job.pid}: waited most for data: rank 1 (3" in text
    assert "SAMPLES/S" not in report_text(silent)
    assert "waited most for data" not in report_text(silent)


def test_the_csv_has_a_column_for_all_that_is_told(taken: list[Snapshot]) -> None:
    """In the rows of the ranks; empty in all others, and where something is not told."""
    out = io.StringIO()
    writer = RowWriter(out, PROCESS_COLUMNS)
    last = taken[-1]
    first, *others = last.jobs
    bare = replace(first, loops=(replace(first.loops[0], copy_share=None), *first.loops[1:]))
    writer.write(process_rows(replace(last, jobs=(bare, *others))))
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    loops = {loop.pid: loop for job in last.jobs for loop in job.loops}
    assert len(loops) == 4
    for row in rows:
        loop = loops.get(int(row["pid"]))
        told = {name: row[name] for name in row if name.startswith("loop_")}
        if loop is None:
            assert set(told.values()) == {""}
            continue
        assert float(told["loop_data_wait_share"]) == loop.data_wait_share
        assert float(told["loop_samples_per_second"]) == loop.samples_per_second
        assert int(told["loop_steps"]) == loop.steps
        assert told["loop_phase"] == "train"
        missing = loop.pid == first.loops[0].pid
        assert told["loop_copy_share"] == "" if missing else float(told["loop_copy_share"]) >= 0.0
    assert {int(row["pid"]) for row in rows} >= set(loops)
