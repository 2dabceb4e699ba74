"""``gpuwatch run --log-to``: the tools that track experiments get rows; the job is left alone."""

import contextlib
import json
import os
import sqlite3
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.outputs.experiment import log
from gpuwatch.outputs.exporter.totals import busy_of
from tests.commands.conftest import Gpuwatch
from tests.commands.running import ROOT, program
from tests.support.fake_nvml import create_or_skip
from tests.support.recordings import simulated

TRAIN = """
import sys
from tests.support.virtual_gpu import VirtualGpu
gpu = VirtualGpu.open(0, memory_bytes=6 << 30)
# A busy machine is slow to look at it for the first time.
for _ in range(50):
    gpu.run(0.1)
print("trained")
sys.exit(3)
"""
BUSY = ("busy_min_percent", "busy_mean_percent", "busy_max_percent")
NAMES = {
    *[f"gpuwatch/{place}/{one}" for place in ("gpu0", "job") for one in BUSY],
    *["gpuwatch/gpu0/memory_used_bytes", "gpuwatch/gpu0/power_watts"],
    "gpuwatch/gpu0/temperature_celsius",
}


class Logged(NamedTuple):
    """A run, as its tool has it."""

    rows: dict[str, list[tuple[int, float]]]
    """Steps and values by name."""
    run: dict[str, float]
    """The values of the run itself, by the names that rows have."""
    texts: dict[str, str]
    name: str = ""
    end: str = ""


def from_tensorboard(folder: Path) -> Logged:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = events.EventAccumulator(str(folder / "board")).Reload()
    found = {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
    texts = {
        name: read.Tensors(name)[0].tensor_proto.string_val[0].decode()
        for name in read.Tags()["tensors"]
        if name.endswith("/says")
    }
    whole = {name for name in found if name.startswith("gpuwatch/run/")}
    run = {name.replace("/run", "", 1): found[name][0][1] for name in whole}
    from tensorboard.plugins.hparams import plugin_data_pb2 as hparams

    contents = [
        hparams.HParamsPluginData.FromString(one)
        for one in read.PluginTagToContent("hparams").values()
    ]
    (shown,) = [one.experiment for one in contents if one.experiment.metric_infos]
    assert {one.name.tag for one in shown.metric_infos} == whole
    (begun,) = [one.session_start_info for one in contents if one.HasField("session_start_info")]
    rows = {name: each for name, each in found.items() if name not in whole}
    return Logged(rows, run, texts, begun.hparams["job"].string_value)


def from_mlflow(folder: Path) -> Logged:
    # Its tables, read as they are: importing MLflow takes seconds.
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as database:

        def rows_of(query: str) -> list[Any]:
            return database.execute(query).fetchall()

        ((run, name, end),) = rows_of(
            "SELECT run_uuid, runs.name, status FROM runs JOIN experiments USING (experiment_id)"
            " WHERE experiments.name = 'mine'"
        )
        texts = dict(rows_of("SELECT key, value FROM tags"))
        metrics = rows_of(f"SELECT key, step, value FROM metrics WHERE run_uuid = '{run}'")
    rows: dict[str, list[tuple[int, float]]] = {}
    for key, step, value in sorted(metrics):
        rows.setdefault(key, []).append((step, value))
    whole = {key: rows.pop(key) for key in list(rows) if key.startswith("gpuwatch/run/")}
    assert all(len(each) == 1 for each in whole.values())
    values = {key.replace("/run", "", 1): each[0][1] for key, each in whole.items()}
    return Logged(rows, values, texts, name, end)


def from_wandb(folder: Path) -> Logged:
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, at, part, run, ended = path.read_bytes(), 7, b"", None, None
    rows: dict[str, list[tuple[int, float]]] = {}
    summary: dict[str, Any] = {}
    # Records of LevelDB's log, in blocks of 32 KiB.
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        part += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            record, part = Record.FromString(part), b""
            row = {"/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
            for name, value in row.items():
                rows.setdefault(name, []).append((row["gpuwatch/seconds"], value))
            # As W&B does it: a row's values are the run's, until the run is told others.
            told = {"/".join(i.nested_key) or i.key: i.value_json for i in record.summary.update}
            summary |= row | {name: json.loads(value) for name, value in told.items()}
            run = record.run if record.HasField("run") else run
            ended = record.exit if record.HasField("exit") else ended
    assert run.run_id != "jobs-own"
    assert (run.project, list(run.tags)) == ("mine", ["gpuwatch"])
    texts = {name: value for name, value in summary.items() if name.endswith("/says")}
    values = {name: value for name, value in summary.items() if isinstance(value, float)}
    return Logged(rows, values, texts, run.display_name, str(ended.exit_code))


TOOLS = pytest.mark.parametrize(
    ("tool", "read", "end"),
    [
        ("tensorboard:board", from_tensorboard, ""),
        ("mlflow", from_mlflow, "FAILED"),
        ("wandb", from_wandb, "3"),
    ],
)
VARIABLES = {
    **{"WANDB_MODE": "offline", "WANDB_PROJECT": "mine", "WANDB_RUN_ID": "jobs-own"},
    **{"MLFLOW_EXPERIMENT_NAME": "mine", "PYTHONPATH": str(ROOT)},
}


def test_a_job_is_logged_to_a_run_of_its_own(tmp_path: Path) -> None:
    """Output and exit code stay the job's."""
    pytest.importorskip("tensorboard")
    fake = create_or_skip(tmp_path / "driver", gpus=2)
    fake.gpu[0].waveform("virtual")
    variables = VARIABLES | {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    to = ("--log-to", "tensorboard:board")
    arguments = ("run", "--plain", "--no-report", "-i", "0.2", *to, "--")
    job = (sys.executable, "-c", TRAIN, "--token", "secret")
    done = program(*arguments, *job, env=fake.env(variables), cwd=tmp_path, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("trained\n", "", 3)
    logged = from_tensorboard(tmp_path)
    # It ended before the first 15 seconds had passed.
    assert logged.rows == {}
    values = logged.run
    assert values.keys() >= NAMES
    assert values["gpuwatch/gpu0/memory_used_bytes"] == 6 << 30
    assert 0 < values["gpuwatch/job/busy_mean_percent"] <= values["gpuwatch/gpu0/busy_max_percent"]
    assert "gpuwatch python" in logged.name
    assert "secret" not in logged.name


@pytest.fixture
def starved() -> list[Snapshot]:
    return simulated("starved", 50.0)


def pushed(made: log.ExperimentLog, snapshots: list[Snapshot]) -> list[str]:
    engine, said = Engine(), []
    for snapshot in snapshots:
        engine.push(snapshot)
        said += made.push(snapshot, engine.ledger)
    made.close(exit_code=3)
    return said


@TOOLS
def test_the_values_of_a_run_cover_all_of_it(
    starved: list[Snapshot],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    read: Callable[[Path], Logged],
    end: str,
) -> None:
    """There is a row for each 15 seconds and none for the four seconds after them, in which the
    GPUs idled; the run's mean has those too. A finding is 1 in each row in which it held; of the
    run it is the share of the time. Its sentence is a text, in which nothing is Markdown. The run
    is named after the job's program alone, in the project or experiment that the tool's own
    variables name, but never the run that the job makes. MLflow stores it where it does by
    itself."""
    pytest.importorskip(tool.partition(":")[0])
    monkeypatch.chdir(tmp_path)
    # A busy machine takes longer to import it, and to lay out its database.
    monkeypatch.setattr(log, "FLUSH_SECONDS", 120.0)
    monkeypatch.setattr(log, "CHECK_SECONDS", 120.0)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    idle = [
        replace(one, reading=replace(one.reading, busy_samples=((1e12, 0.0),) * 10))
        for one in starved[-1].gpus
    ]
    seen = [
        one
        if one.monotonic_seconds - starved[0].monotonic_seconds <= 45.0
        else replace(one, gpus=tuple(idle))
        for one in starved
    ]
    to = log.checked(tool.replace("board:", f"board:{tmp_path}/"))
    made = log.ExperimentLog(to, seen[0].jobs[0].key, "/usr/bin/python train.py --token x")
    assert pushed(made, seen) == []
    assert made.said == []
    logged, name = read(tmp_path), "gpuwatch/job/busy_mean_percent"
    assert [step for step, _ in logged.rows[name]] == [15, 30, 45]
    low, high = (logged.rows[f"gpuwatch/gpu1/busy_{one}_percent"][1][1] for one in ("min", "max"))
    assert (low < 10, high > 90) == (True, True)
    uuids = seen[0].jobs[0].gpu_uuids
    samples = {uuid: [p for s in seen for g in s.gpus if g.uuid == uuid for p in busy_of(g)]
               for uuid in uuids}  # fmt: skip
    assert logged.run[name] == pytest.approx(fmean(map(fmean, samples.values())), abs=0.01)
    assert logged.run[name] < min(value for _, value in logged.rows[name])
    watts = [g.reading.power_watts for s in seen for g in s.gpus if g.uuid == uuids[0]]
    assert logged.run["gpuwatch/gpu0/power_watts"] == pytest.approx(fmean(watts), rel=1e-4)
    found = "gpuwatch/finding/loader_cpu_bound"
    assert logged.rows[found][-1] == (45, 1.0)
    # It was raised after some seconds, and had held since the beginning.
    assert 0.9 < logged.run[found] <= 1.0
    (says,) = [text for name, text in logged.texts.items() if name.startswith(found)]
    assert says.lstrip().startswith("GPUs 0 and 1 waited for data")
    assert says.startswith("    ") == (read is from_tensorboard)
    assert ("gpuwatch python" in logged.name, logged.end) == (True, end)
    assert "token" not in logged.name


@pytest.mark.parametrize(
    ("library", "says"),
    [
        ("import time; time.sleep(600)", "wandb did not take everything within 0 s."),
        ("raise SystemExit('no\\x1b[31m key')", "wandb: nothing is logged: SystemExit: no"),
    ],
)
def test_a_tool_that_hangs_or_fails_is_a_sentence(
    starved: list[Snapshot],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    library: str,
    says: str,
) -> None:
    """Nothing waits for it but the end, and that not for long."""
    (tmp_path / "wandb.py").write_text(library)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    hangs = "sleep" in library
    monkeypatch.setattr(log, "FLUSH_SECONDS", 0.2 if hangs else 60.0)
    made = log.ExperimentLog("wandb", starved[0].jobs[0].key, None)
    before = time.monotonic()
    pushed(made, starved)
    assert hangs is False or time.monotonic() - before < 100
    assert [one[: len(says)] for one in made.said] == [says]
    assert "\x1b" not in made.said[0]


def test_a_check_that_takes_long_is_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow may be laying out its database, of which half cannot be used."""
    for name in ("go", "done"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "mlflow.py").write_text(
        "from pathlib import Path\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "def MlflowClient():\n"
        "    (folder / 'done').write_text((folder / 'go').read_text())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    monkeypatch.setattr(log, "CHECK_SECONDS", 0.0)
    assert log.checked("mlflow") == "mlflow"
    assert log._CHECKING[-1].poll() is None
    # Both wait for the process.
    (tmp_path / "go").write_text("laid out")
    assert (tmp_path / "done").read_text() == "laid out"


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("comet", "none of what --log-to takes: wandb, mlflow, tensorboard or tensorboard:FOLDER"),
        ("tensorboard:", "none of what --log-to takes"),
        ("wandb:runs", "none of what --log-to takes"),
        ("wandb", "is not installed: pip install '.[wandb]'"),
    ],
)
def test_what_cannot_be_logged_to_is_said_before_the_job_starts(
    gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, says: str
) -> None:
    """A folder named as a library is, which W&B makes, is none."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    (tmp_path / "wandb").mkdir()
    started = tmp_path / "started"
    assert says in gpuwatch("run", "--log-to", tool, "--", "touch", str(started), code=2).err
    assert not started.exists()


@pytest.mark.parametrize(
    ("variables", "hidden", "says"),
    [
        ({}, "alembic", "not installed, to store runs in a database: pip install '.["),
        ({"MLFLOW_TRACKING_URI": "file:./mlruns"}, "", "MLFLOW_ALLOW_FILE_STORE"),
    ],
)
def test_mlflow_that_cannot_store_a_run_is_refused_before_the_job_starts(
    gpuwatch: Gpuwatch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    hidden: str,
    says: str,
) -> None:
    """It lacks what it needs for a database, which is its default, or is told to use a place that
    it does not."""
    pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    # To Python, it is not installed then.
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{hidden!r}] = None\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = gpuwatch("run", "--plain", "--log-to", "mlflow", "--", "touch", "started", code=2)
    assert says in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "started").exists()
