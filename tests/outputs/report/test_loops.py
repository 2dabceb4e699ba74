"""What a job told of its own loops, in its report."""

import re
from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import Job, Snapshot, TrainingLoop
from gpuwatch.outputs.report.comparison import compare
from gpuwatch.outputs.report.model import Loop, Report
from gpuwatch.outputs.report.text import report_text
from tests.outputs.report.stories import PID, STARTED, UNIX, job, look, of_job, rank, recorded
from tests.support.recordings import comparison_text, simulated, summed

SGR = re.compile(r"\x1b\[\d*m")


def loop(at: int, number: int = 0, **fields: Any) -> TrainingLoop:
    """Ten steps of 8 samples a second, a fifth of it waiting for data."""
    settings: dict[str, Any] = {
        "pid": PID + number,
        "started_at_unix_seconds": STARTED,
        "window_seconds": min(float(at), 10.0),
        "steps": 10 * at,
        "steps_per_second": 10.0,
        "samples_per_second": 80.0,
        "data_wait_share": 0.2,
        "compute_share": 0.7,
        "compute_on_device": True,
        "validation_share": 0.0,
        "checkpoint_share": 0.0,
        "phase": "train",
        "reported_at_unix_seconds": UNIX + at,
    }
    return TrainingLoop(**(settings | fields))


def told(*of_ranks: dict[str, Any], seconds: int = 60, until: int | None = None) -> Report:
    """Of a job watched for ``seconds`` whose ranks told these until ``until``."""
    ranks = tuple([rank(pid=PID + number, rank=number) for number in range(len(of_ranks))])
    looks: list[Snapshot] = []
    for at in range(1, seconds + 1):
        tells = until is None or at <= until
        loops = [loop(at, number, **fields) for number, fields in enumerate(of_ranks)]
        looks.append(look(float(at), job(ranks=ranks, loops=tuple(loops) if tells else ())))
    return recorded(looks)


def training_line(report: Report, width: int = 400) -> str:
    (line,) = [text for text in report_text(report, width=width).splitlines() if "Training" in text]
    return SGR.sub("", line)


def test_one_rank() -> None:
    """Its rate, its waits, its steps, and what else its time went to."""
    report = told({})
    loop = of_job(report).loop
    assert loop.samples_per_second == pytest.approx(80.0)
    assert (loop.data_wait_percent, loop.compute_percent) == pytest.approx((20.0, 70.0))
    assert (loop.steps, loop.ranks, loop.data_wait_most_percent) == (600, 1, None)
    words = training_line(report)
    for part in ("80.0 samples/s", "waited for data 20% of the time", "in steps 70%", "600 steps"):
        assert part.replace("80.0", "80") in words.replace("80.0", "80")
    assert "saving" not in words
    assert "validating" not in words


def test_ranks_together() -> None:
    """Their samples add up, their waits are a mean, and the one that waits most is named."""
    report = told({}, {}, {"data_wait_share": 0.5, "steps": None})
    loop = of_job(report).loop
    assert loop.samples_per_second == pytest.approx(240.0)
    assert (loop.data_wait_percent, loop.data_wait_most_percent) == pytest.approx((30.0, 50.0))
    assert (loop.data_wait_most_rank, loop.ranks, loop.steps) == (2, 3, 600)
    assert "rank 2 (50% of the time)" in training_line(report)
    assert "rank" not in training_line(told({}, {"data_wait_share": 0.22}))


def test_unknown_is_not_zero() -> None:
    """What is not told has no words, no chart, and is null in the JSON; a measured none has."""
    unknown = told({"data_wait_share": None, "samples_per_second": None, "compute_share": None})
    assert of_job(unknown).loop.samples_per_second is None
    assert of_job(unknown).loop.data_wait_percent is None
    assert of_job(unknown).loop.copy_percent is None
    words = training_line(unknown)
    assert "waited" not in words
    assert "samples" not in words
    assert "waits for data" not in report_text(unknown)
    none = told({"data_wait_share": 0.0})
    assert of_job(none).loop.data_wait_percent == 0.0
    assert "waited for data 0% of the time" in training_line(none)
    one_lacks_it = told({}, {"samples_per_second": None})
    assert of_job(one_lacks_it).loop.samples_per_second is None


def test_a_job_that_never_told_has_no_line() -> None:
    """Nor a row where it is compared with one that did."""
    silent, telling = told(), told({})
    assert of_job(silent).loop == Loop()
    assert "Training" not in report_text(silent)
    assert "samples/s" not in comparison_text(compare(silent, silent))
    compared = comparison_text(compare(silent, telling))
    (row,) = [line for line in compared.splitlines() if line.startswith("samples/s")]
    assert re.search(r" - +80(\.0)?$", row.rstrip())


def test_a_job_that_stops_telling_keeps_what_it_told() -> None:
    """The rest of its time changes nothing of it."""
    report = told({}, seconds=60, until=30)
    assert of_job(report).loop.reported_seconds == pytest.approx(29.0, abs=1.0)
    assert of_job(report).loop.samples_per_second == pytest.approx(80.0)
    assert of_job(report).loop.data_wait_percent == pytest.approx(20.0)
    profile = of_job(report).profiles["data_wait_percent"].mean
    assert profile[len(profile) // 4] == pytest.approx(20.0)
    assert profile[-1] is None


def test_two_runs_are_compared_by_what_they_told() -> None:
    """In the table at the end of a report, and of a comparison."""
    before, after = told({}), told({"samples_per_second": 160.0, "data_wait_share": 0.05})
    text = " ".join(report_text(after, width=200, previous=before).split())
    assert re.search(r"samples/s 80\.0 160 \+100% better", text)
    rows = comparison_text(compare(before, after)).splitlines()
    (waits,) = [row for row in rows if row.startswith("waits for data")]
    assert "-15 points" in waits


def reporting(at: int, number: int, wait: float) -> Job:
    """A job of one process, which waits so much of the time for its data."""
    process = {"pid": PID + number, "rank": 0}
    loops = (loop(at, number, data_wait_share=wait),)
    return job(pid=PID + number, ranks=(rank(**process),), members=(), loops=loops)


def test_jobs_one_after_the_other_are_not_added_up() -> None:
    """Jobs at one time are."""
    first = [look(float(at), reporting(at, 0, 0.0)) for at in range(1, 31)]
    later = [look(float(at), reporting(at, 1, 0.6)) for at in range(31, 61)]
    summary = summed(first + later)
    assert [job.loop.samples_per_second for job in summary.jobs] == pytest.approx([80.0, 80.0])
    assert summary.samples_per_second == pytest.approx(80.0, rel=0.05)
    assert summary.data_wait_percent == pytest.approx(30.0, rel=0.05)
    both = [
        replace(one, jobs=(*one.jobs, reporting(at, 1, 0.0))) for at, one in enumerate(first, 1)
    ]
    assert summed(both).samples_per_second == pytest.approx(160.0)


def test_the_text_has_columns_for_it() -> None:
    """Only where a job reported, with the rank that waits most; none is cut off at 80 columns."""
    reported, silent = (summed(simulated(name, 60, gpus=4)) for name in ("reported", "healthy"))
    text = report_text(reported, width=80)
    titles = next(line for line in text.split("\n") if "SAMPLES/S" in line)
    assert titles.split()[:5] == ["JOB", "GPU-TIME", "BUSY", "SAMPLES/S", "DATA-WAIT"]
    job = reported.jobs[0]
    row = next(line for line in text.split("\n") if line.split()[:1] == [str(job.pid)])
    assert f"{job.loop.data_wait_percent:.0f}%" in row.split()
    assert f"{job.pid}: waited most for data: rank 1 (3" in text
    assert "SAMPLES/S" not in report_text(silent)
    assert "waited most for data" not in report_text(silent)
