"""CSV and JSON lines: tidy rows, true values, nothing that a spreadsheet would calculate."""

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

import pytest

from gpuwatch.core.codec import Decoder
from gpuwatch.core.model import (
    BusySample,
    GpuIdentity,
    GpuReading,
    Host,
    Process,
    RdmaPort,
    ReasonSeconds,
    Snapshot,
)
from gpuwatch.outputs import export
from gpuwatch.outputs.export import GPU_COLUMNS, JsonLinesWriter, RowWriter, csv_text
from tests.support.recordings import simulated
from tests.support.snapshots import gpu, snapshot

TABLES = {
    "gpus": (GPU_COLUMNS, export.gpu_rows),
    "processes": (export.PROCESS_COLUMNS, export.process_rows),
    "host": (export.HOST_COLUMNS, export.host_rows),
}


@pytest.fixture(scope="module")
def taken() -> list[Snapshot]:
    return simulated("mixed", 25, gpus=8)


def written(table: str, taken: Iterable[Snapshot]) -> str:
    out = io.StringIO()
    columns, rows = TABLES[table]
    writer = RowWriter(out, columns)
    for one in taken:
        writer.write(rows(one))
    assert len(list(csv.reader(io.StringIO(out.getvalue())))) == writer.written + 1
    return out.getvalue()


def rows_of(table: str, taken: Iterable[Snapshot]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(written(table, taken))))


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_every_column(table: str, taken: list[Snapshot]) -> None:
    """Names are unique, and no cell lies outside of them."""
    columns, _ = TABLES[table]
    assert len(columns) == len(set(columns))
    for row in rows_of(table, taken):
        assert None not in row
        assert None not in row.values()


def test_one_row_per_gpu_and_time(taken: list[Snapshot]) -> None:
    """With the readings of the model under their own names, nothing where nothing was read."""
    read = rows_of("gpus", taken)
    assert len(read) == 8 * len(taken)
    for place, row in enumerate(read):
        one = taken[place // 8]
        card = one.gpus[place % 8]
        assert float(row["unix_seconds"]) == one.taken_at_unix_seconds
        moment = datetime.fromisoformat(row["time_utc"])
        assert moment.timestamp() == pytest.approx(one.taken_at_unix_seconds, abs=1e-3)
        assert row["uuid"] == card.uuid
        assert row["lost"] == ("true" if card.lost else "false")
        for name in ("busy_percent", "power_watts", "memory_used_bytes", "temperature_celsius"):
            value = getattr(card.reading, name)
            assert row[name] == "" if value is None else float(row[name]) == value
    assert any(row["power_watts"] == "" for row in read)


def test_fine_samples_are_summed_up(taken: list[Snapshot]) -> None:
    """How many, the lowest, the mean, the highest."""
    first = taken[0].gpus[0]
    samples = tuple(BusySample(1.0 + n, percent) for n, percent in enumerate((0.0, 50.0, 100.0)))
    reading = replace(first.reading, busy_samples=samples)
    made = replace(taken[0], gpus=(replace(first, reading=reading),))
    (row,) = rows_of("gpus", [made])
    found = [row[name] for name in GPU_COLUMNS if name.startswith("busy_samples")]
    assert found == ["3", "0.0", "50.0", "100.0"]


def test_processes_of_jobs_are_there_once(taken: list[Snapshot]) -> None:
    """With their role; those that are in no list of processes too."""
    last = replace(taken[-1], processes=taken[-1].processes[:3])
    read = rows_of("processes", [last])
    pids = {int(row["pid"]) for row in read}
    members = {member.pid for job in last.jobs for member in job.members}
    assert members <= pids
    assert len(read) == len({(row["pid"], row["gpu_uuid"]) for row in read})
    assert {row["role"] for row in read} >= {"rank", "loader_worker"}


def test_csv_of_a_moment_is_the_same() -> None:
    """Every GPU is a row, every fact and reading a column with the model's name; without a GPU a
    script finds the columns all the same."""
    text = csv_text(snapshot(gpus=(gpu("a", 0, power_watts=0.0), gpu("b", 1, lost=True))))
    first, second = csv.DictReader(io.StringIO(text))
    assert (first["uuid"], second["uuid"]) == ("a", "b")
    assert (first["lost"], second["lost"]) == ("false", "true")
    assert (first["power_watts"], second["power_watts"]) == ("0.0", "")
    names = {field.name for made in (GpuIdentity, GpuReading) for field in dataclasses.fields(made)}
    assert names - set(first) == {"busy_samples"}
    (titles,) = csv.reader(io.StringIO(csv_text(snapshot())))
    assert titles == list(GPU_COLUMNS)


def test_csv_cells_of_lists_and_odd_numbers() -> None:
    """Lists are joined, NaN is empty, and a comma in a name is quoted."""
    reading = {
        "busy_percent": math.nan,
        "throttle_reasons": ("sw_power_cap", "sync_boost"),
        "throttle_durations": (ReasonSeconds("sw_power_cap", 0.5),),
    }
    (row,) = csv.DictReader(io.StringIO(csv_text(snapshot(gpus=(gpu('a,"b', **reading),)))))
    assert row["uuid"] == 'a,"b'
    assert row["busy_percent"] == ""
    assert row["throttle_reasons"] == "sw_power_cap|sync_boost"
    assert row["throttle_durations"] == "sw_power_cap=0.5"


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t=", "\r=", " =", "\t@"])
def test_no_text_is_a_formula_in_either_csv(begin: str) -> None:
    """A spreadsheet that opens the file runs nothing that somebody put into a name; a number below
    zero is no text."""
    name = f"{begin}cmd|'/c calc'!A0"
    taken = snapshot(
        host=Host(name=name),
        gpus=(gpu(name, power_watts=-1.0, throttle_reasons=(name,)),),
        processes=(Process(pid=1, user=name, name=name, command=name, gpu_uuid=name),),
    )
    text = "".join([csv_text(taken), *[written(table, [taken]) for table in TABLES]])
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    told = [cell for cell in cells if "calc" in cell]
    assert len(told) >= 10
    assert all(cell.startswith("'") for cell in told)
    assert cells.count("-1.0") == 2


class FlushCounter(io.StringIO):
    flushes = 0

    def flush(self) -> None:
        self.flushes += 1


def test_stream_repeats_the_header_only_when_gpus_change() -> None:
    """One header at the start, another when a GPU comes; all of it reads back, and each snapshot is
    seen by a reader as soon as it is written."""
    out = FlushCounter()
    writer = JsonLinesWriter(out)
    none, one, two = (), (gpu("a"),), (gpu("a"), gpu("b", 1))
    taken = [snapshot(sequence=n, gpus=gpus) for n, gpus in enumerate((none, one, one, two, two))]
    for item in taken:
        writer.write(item)
    assert out.flushes == writer.written == 5
    decoder = Decoder()
    read = [decoder.decode(line) for line in out.getvalue().splitlines()]
    assert [item for item in read if isinstance(item, Snapshot)] == taken
    kinds = [json.loads(line)["kind"][0] for line in out.getvalue().splitlines()]
    assert "".join(kinds) == "hshsshss"


def test_the_csv_has_a_column_for_all_that_a_loop_reports() -> None:
    """In the rows of the ranks; empty in all others, and where something is not reported."""
    last = simulated("reported", 60, gpus=4)[-1]
    first, *others = last.jobs
    bare = replace(first, loops=(replace(first.loops[0], copy_share=None), *first.loops[1:]))
    rows = rows_of("processes", [replace(last, jobs=(bare, *others))])
    loops = {loop.pid: loop for job in last.jobs for loop in job.loops}
    assert len(loops) == 4
    for row in rows:
        loop = loops.get(int(row["pid"]))
        said = {name: row[name] for name in row if name.startswith("loop_")}
        if loop is None:
            assert set(said.values()) == {""}
            continue
        assert float(said["loop_data_wait_share"]) == loop.data_wait_share
        assert float(said["loop_samples_per_second"]) == loop.samples_per_second
        assert int(said["loop_steps"]) == loop.steps
        assert said["loop_phase"] == "train"
        missing = loop.pid == first.loops[0].pid
        assert said["loop_copy_share"] == "" if missing else float(said["loop_copy_share"]) >= 0.0
    assert {int(row["pid"]) for row in rows} >= set(loops)


def test_errors_of_ports_are_added_up() -> None:
    """In a row of the host; nothing where there are no ports."""
    ports = tuple(
        [
            RdmaPort(device="mlx5_0", port=port, state=state, link_downed_count=count)
            for port, state, count in ((1, "active", 2), (2, "down", None))
        ]
    )
    for found, cells in ((ports, ("1", "2", "")), (None, ("", "", ""))):
        text = written("host", [snapshot(host=Host(name="box", rdma_ports=found))])
        (row,) = csv.DictReader(io.StringIO(text))
        names = ("rdma_ports_active", "rdma_link_downed_count", "rdma_symbol_error_count")
        assert tuple([row[name] for name in names]) == cells
