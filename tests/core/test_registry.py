"""The registry of fields: all that is said of a reading is declared once, with its field."""

import json
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import gpuwatch
from gpuwatch.core.model import GpuIdentity, GpuReading, Host, JobMember, Process
from gpuwatch.core.registry import GPU, OF_GPU, UNITS, fields_of

_LIMITS = {"memory_total_bytes", "swap_total_bytes", "shm_total_bytes", "core_count"}
"""Numbers of the host that do not move."""


@pytest.mark.parametrize("model", [GpuIdentity, GpuReading, Host, Process, JobMember])
def test_every_reading_has_a_row(model: type[Any]) -> None:
    """A field whose name ends in a unit is declared with its row of the registry."""
    with_unit = [
        one
        for one in fields(model)
        if any(one.name.removesuffix("_max").endswith(f"_{ending}") for ending in UNITS)
    ]
    without = [one.name for one in with_unit if "row" not in one.metadata]
    assert set(without) <= (_LIMITS if model is Host else set())
    assert with_unit


def test_labels_of_a_gpu_are_told_apart() -> None:
    """No two fields of a GPU have the same label, nor two metrics the same name and kind."""
    labels = [one.label for one in OF_GPU.values() if one.label]
    metrics = [(one.metric, one.kind) for one in OF_GPU.values() if one.metric]
    assert len(labels) == len(set(labels))
    assert len(metrics) == len(set(metrics))


def test_limits_are_fields() -> None:
    """What a chart ends at is another field, in the same unit."""
    for model in (GpuReading, Host):
        for one in fields_of(model).values():
            if one.limit:
                other = fields_of(model).get(one.limit) or OF_GPU[one.limit]
                assert other.unit is one.unit


def test_names_in_prometheus_are_in_its_base_units() -> None:
    """Percents are ratios, megahertz hertz; a name that does not follow is declared."""
    assert GPU["sm_active_percent"].metric == "sm_active_ratio"
    assert GPU["sm_active_percent"].unit.factor == 0.01
    assert GPU["sm_clock_mhz"].metric == "sm_clock_hertz"
    assert GPU["sm_clock_mhz"].unit.factor == 1e6
    assert GPU["power_watts"].metric == "power_watts"
    assert GPU["pcie_width"].metric == "pcie_lanes"
    assert GPU["encoder_percent"].metric == "encoder_ratio"
    assert GPU["busy_samples"].metric == ""


_ROW = (
    '    made_up_percent: Amount | None = reading("made up", "mu", help="What nobody measured.")\n'
)
_LOOK = """
import json
from gpuwatch.core.codec import CodecError, Decoder, StreamWriter, status_text
from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading, Host, Snapshot
from gpuwatch.core.store import Store
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.outputs.export import csv_text
from gpuwatch.outputs.exporter.metrics import Metrics
from gpuwatch.sources.nvml import parse
from gpuwatch.tui.pages.detail import readings

gpu = Gpu(
    identity=GpuIdentity(index=0, uuid="GPU-a", name="A"), reading=GpuReading(made_up_percent=47.0)
)
snapshot = Snapshot(
    sequence=1, taken_at_unix_seconds=1e9, monotonic_seconds=100.0, interval_seconds=1.0,
    simulated=False, host=Host(name="box"), gpus=(gpu,),
)
metrics = Metrics(lambda: (0.0, False))
engine = Engine()
engine.push(snapshot)
metrics.push(snapshot, engine.diagnosis, engine.ledger)
store = Store()
store.push(snapshot)
stream, decoder = StreamWriter(), Decoder()
lines = [stream.header(snapshot), *stream.lines(snapshot).splitlines()]
read = [decoder.decode(line) for line in lines][-1]
try:
    decoder.decode(lines[-1].replace("47.0", "-47.0"))
    refused = False
except CodecError:
    refused = True
titles, row = csv_text(snapshot).splitlines()
print(json.dumps({
    "csv": dict(zip(titles.split(","), row.split(","))).get("made_up_percent"),
    "json": json.loads(status_text(snapshot))["gpus"][0]["made_up_percent"],
    "stream": read.gpus[0].reading.made_up_percent,
    "refused": refused,
    "metrics": metrics.page("x")[0].decode(),
    "range": [parse.plausible("made_up_percent", value) for value in (100, 101)],
    "chart": store.gpu("GPU-a", "made_up_percent").columns(100.0, 1.0, 1),
    "page": [fact for fact in readings(gpu)[0] if fact[0] == "made up"],
}))
"""


def test_a_made_up_reading_needs_its_row_alone(tmp_path: Path) -> None:
    """With one line more in the model, a reading is in CSV, JSON (bounded), streams, charts and
    Prometheus, on the page of a GPU, and what cannot be is refused from the driver."""
    pytest.importorskip("prometheus_client")
    package = tmp_path / "gpuwatch"
    shutil.copytree(Path(gpuwatch.__file__).parent, package)
    model = package / "core" / "model" / "gpu.py"
    after = "    busy_percent: Amount | None = reading("
    text = model.read_text()
    assert text.count(after) == 1
    model.write_text(text.replace(after, _ROW + after))
    # The current folder comes before what is installed.
    ran = subprocess.run(
        [sys.executable, "-c", _LOOK], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["csv"] == "47.0"
    assert seen["json"] == seen["stream"] == 47.0
    assert seen["refused"]
    assert 'gpuwatch_gpu_made_up_ratio{gpu="0",gpu_uuid="GPU-a"} 0.47' in seen["metrics"]
    assert "# HELP gpuwatch_gpu_made_up_ratio What nobody measured." in seen["metrics"]
    assert seen["range"] == [100.0, None]
    assert seen["chart"] == [[47.0, 47.0, 47.0]]
    assert seen["page"] == [["made up", "47%", "text"]]
