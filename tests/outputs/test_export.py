"""CSV: tidy rows, true values, nothing that a spreadsheet would calculate."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import datetime

import pytest

from gpuwatch.core.model import BusySample, Snapshot
from gpuwatch.outputs.export import (
    GPU_COLUMNS,
    HOST_COLUMNS,
    PROCESS_COLUMNS,
    RowWriter,
    cell,
    gpu_rows,
    guarded,
    host_rows,
    process_rows,
)
from tests.support.recordings import simulated

TABLES = (
    (GPU_COLUMNS, gpu_rows),
    (PROCESS_COLUMNS, process_rows),
    (HOST_COLUMNS, host_rows),
)


@pytest.fixture(scope="module")
def taken() -> list[Snapshot]:
    return simulated("mixed", 25, gpus=8)


def rows_of(columns, rows, taken: list[Snapshot]) -> list[dict[str, str]]:  # type: ignore[no-untyped-def]
    out = io.StringIO()
    writer = RowWriter(out, columns)
    for snapshot in taken:
        writer.write(rows(snapshot))
    read = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert len(read) == writer.written
    return read


@pytest.mark.parametrize(("columns", "rows"), TABLES)
def test_every_row_has_every_column(columns, rows, taken: list[Snapshot]) -> None:  # type: ignore[no-untyped-def]
    """Names are unique, and no cell lies outside of them."""
    assert len(columns) == len(set(columns))
    for row in rows_of(columns, rows, taken):
        assert None not in row
        assert None not in row.values()


def test_one_row_per_gpu_and_time(taken: list[Snapshot]) -> None:
    """With the readings of the model under their own names, nothing where nothing was read."""
    read = rows_of(GPU_COLUMNS, gpu_rows, taken)
    assert len(read) == 8 * len(taken)
    for place, row in enumerate(read):
        snapshot = taken[place // 8]
        gpu = snapshot.gpus[place % 8]
        assert float(row["unix_seconds"]) == snapshot.taken_at_unix_seconds
        moment = datetime.fromisoformat(row["time_utc"])
        assert moment.timestamp() == pytest.approx(snapshot.taken_at_unix_seconds, abs=1e-3)
        assert row["uuid"] == gpu.uuid
        assert row["lost"] == ("true" if gpu.lost else "false")
        for name in ("busy_percent", "power_watts", "memory_used_bytes", "temperature_celsius"):
            value = getattr(gpu.reading, name)
            assert row[name] == "" if value is None else float(row[name]) == value
    assert any(row["power_watts"] == "" for row in read)


def test_fine_samples_are_summed_up(taken: list[Snapshot]) -> None:
    """How many, the lowest, the mean, the highest."""
    first = taken[0].gpus[0]
    samples = tuple(BusySample(1.0 + n, percent) for n, percent in enumerate((0.0, 50.0, 100.0)))
    reading = replace(first.reading, busy_samples=samples)
    made = replace(taken[0], gpus=(replace(first, reading=reading),))
    (row,) = rows_of(GPU_COLUMNS, gpu_rows, [made])
    assert [row[name] for name in GPU_COLUMNS if name.startswith("busy_samples")] == [
        "3",
        "0.0",
        "50.0",
        "100.0",
    ]


def test_processes_of_jobs_are_there_once(taken: list[Snapshot]) -> None:
    """With their role; those that are in no list of processes too."""
    snapshot = replace(taken[-1], processes=taken[-1].processes[:3])
    read = rows_of(PROCESS_COLUMNS, process_rows, [snapshot])
    pids = {int(row["pid"]) for row in read}
    members = {member.pid for job in snapshot.jobs for member in job.members}
    assert members <= pids
    assert len(read) == len({(row["pid"], row["gpu_uuid"]) for row in read})
    assert {row["role"] for row in read} >= {"rank", "loader_worker"}


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://x","y")']
)
def test_a_hostile_name_is_no_formula(name: str, taken: list[Snapshot]) -> None:
    """It has an apostrophe before it; a tab or a line end in it is a space."""
    processes = (replace(taken[0].processes[0], command=name, user=name),)
    made = replace(taken[0], processes=processes, jobs=())
    (row,) = rows_of(PROCESS_COLUMNS, process_rows, [made])
    shown = "'" + name.replace("\t", " ").replace("\r", " ")
    assert row["command"] == row["user"] == shown


def test_numbers_below_zero_stay_numbers() -> None:
    """Only texts are guarded."""
    assert cell(-5) == -5
    assert cell(-2.5) == -2.5
    assert guarded("python -m x") == "python -m x"
    assert cell(float("nan")) == ""


def test_pandas_reads_the_types(taken: list[Snapshot]) -> None:
    """Times, numbers and truth values, where pandas is installed."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    out = io.StringIO()
    writer = RowWriter(out, GPU_COLUMNS)
    for snapshot in taken:
        writer.write(gpu_rows(snapshot))
    frame = pandas.read_csv(io.StringIO(out.getvalue()), parse_dates=["time_utc"])
    assert frame["busy_percent"].dtype.kind == "f"
    assert frame["lost"].dtype.kind == "b"
    assert str(frame["time_utc"].dt.tz) == "UTC"
