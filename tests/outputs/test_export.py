"""CSV: tidy rows, true values, nothing that a spreadsheet would calculate."""

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
    gpu_rows,
    host_rows,
    process_rows,
)
from tests.support.recordings import simulated

TABLES = ((GPU_COLUMNS, gpu_rows), (PROCESS_COLUMNS, process_rows), (HOST_COLUMNS, host_rows))


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
