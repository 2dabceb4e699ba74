"""CSV and JSON lines."""

import csv
import dataclasses
import io
import json
import math

import pytest

from gpuwatch.core.codec import Decoder
from gpuwatch.core.model import BusySample, GpuIdentity, GpuReading, Host, Process, ReasonSeconds
from gpuwatch.outputs.export import (
    GPU_COLUMNS,
    HOST_COLUMNS,
    PROCESS_COLUMNS,
    RowWriter,
    gpu_rows,
    host_rows,
    process_rows,
)
from gpuwatch.outputs.status.csv import csv_text
from gpuwatch.outputs.status.jsonlines import JsonLinesWriter
from tests.support.snapshots import gpu, snapshot


def test_csv_is_one_row_a_gpu() -> None:
    """Every GPU is a row, every reading a column with the model's name."""
    text = csv_text(snapshot(gpus=(gpu("a", 0, power_watts=0.0), gpu("b", 1, lost=True))))
    first, second = csv.DictReader(io.StringIO(text))
    assert (first["uuid"], second["uuid"]) == ("a", "b")
    assert (first["lost"], second["lost"]) == ("false", "true")
    assert (first["power_watts"], second["power_watts"]) == ("0.0", "")
    names = {field.name for made in (GpuIdentity, GpuReading) for field in dataclasses.fields(made)}
    assert names - set(first) == {"busy_samples"}


def test_csv_without_a_gpu_is_its_titles() -> None:
    """No GPU leaves the title row, so that a script finds its columns."""
    (titles,) = csv.reader(io.StringIO(csv_text(snapshot())))
    assert titles[:2] == ["taken_at_unix_seconds", "simulated"]
    assert "busy_percent" in titles


def test_csv_cells_of_lists_and_odd_numbers() -> None:
    """Lists are joined, NaN is empty, and a comma in a name is quoted."""
    reading = {
        "busy_percent": math.nan,
        "busy_samples": (BusySample(1.0, 2.0),),
        "throttle_reasons": ("sw_power_cap", "sync_boost"),
        "throttle_durations": (ReasonSeconds("sw_power_cap", 0.5),),
    }
    (row,) = csv.DictReader(io.StringIO(csv_text(snapshot(gpus=(gpu('a,"b', **reading),)))))
    assert row["uuid"] == 'a,"b'
    assert row["busy_percent"] == ""
    assert row["throttle_reasons"] == "sw_power_cap;sync_boost"
    assert row["throttle_durations"] == "sw_power_cap=0.5"


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t=", "\r=", " =", "\t@"])
def test_no_text_is_a_formula_in_either_csv(begin: str) -> None:
    """A spreadsheet that opens the file runs nothing that somebody put into a name; a number below
    zero is no text."""
    text = f"{begin}cmd|'/c calc'!A0"
    taken = snapshot(
        host=Host(name=text),
        gpus=(gpu(text, power_watts=-1.0, throttle_reasons=(text,)),),
        processes=(Process(pid=1, user=text, name=text, command=text, gpu_uuid=text),),
    )
    out = io.StringIO()
    RowWriter(out, GPU_COLUMNS).write(gpu_rows(taken))
    RowWriter(out, PROCESS_COLUMNS).write(process_rows(taken))
    RowWriter(out, HOST_COLUMNS).write(host_rows(taken))
    cells = [
        cell for row in csv.reader(io.StringIO(csv_text(taken) + out.getvalue())) for cell in row
    ]
    told = [cell for cell in cells if "calc" in cell]
    assert len(told) >= 10
    assert all(cell.startswith("'") for cell in told)
    assert cells.count("-1.0") == 2


class FlushCounter(io.StringIO):
    """Counts flushes."""

    flushes = 0

    def flush(self) -> None:
        self.flushes += 1


def test_stream_is_flushed_with_every_snapshot() -> None:
    """A reader sees a snapshot as soon as it is written."""
    out = FlushCounter()
    writer = JsonLinesWriter(out)
    for sequence in range(3):
        writer.write(snapshot(sequence=sequence))
    assert out.flushes == 3
    assert writer.written == 3


def test_stream_repeats_the_header_only_when_gpus_change() -> None:
    """One header at the start, another when a GPU comes; all of it reads back."""
    out = io.StringIO()
    writer = JsonLinesWriter(out)
    one, two = (gpu("a"),), (gpu("a"), gpu("b", 1))
    taken = [snapshot(sequence=n, gpus=gpus) for n, gpus in enumerate((one, one, two, two))]
    for item in taken:
        writer.write(item)
    lines = out.getvalue().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["header", "snapshot", "snapshot", "header", "snapshot", "snapshot"]
    decoder = Decoder()
    read = [decoder.decode(line) for line in lines]
    assert [item for item, kind in zip(read, kinds, strict=True) if kind == "snapshot"] == taken


def test_stream_of_a_machine_without_gpus_has_a_header() -> None:
    """No GPU is no reason for no header."""
    out = io.StringIO()
    JsonLinesWriter(out).write(snapshot())
    assert json.loads(out.getvalue().splitlines()[0])["kind"] == "header"
