"""``gpuwatch run --log-to``: the tools that track experiments get rows; the job is left alone."""

import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.engine.engine import Engine
from gpuwatch.outputs.experiment import log
from tests.commands.conftest import Gpuwatch
from tests.commands.running import ROOT, program
from tests.support.fake_nvml import create_or_skip
from tests.support.recordings import simulated

TRAIN = """
import sys
from tests.support.virtual_gpu import VirtualGpu
gpu = VirtualGpu.open(0, memory_bytes=6 << 30)
for _ in range(15):
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


def scalars(folder: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, bytes]]:
    """Of TensorBoard's event files: steps and values, and texts."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = events.EventAccumulator(str(folder)).Reload()
    texts = {name: read.Tensors(name) for name in read.Tags()["tensors"]}
    return (
        {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]},
        {name: each[0].tensor_proto.string_val[0] for name, each in texts.items()},
    )


def from_tensorboard(folder: Path) -> tuple[dict[str, float], str, str]:
    found, _ = scalars(folder / "board")
    return {k: v[-1][1] for k, v in found.items()}, "gpuwatch python", ""


def from_mlflow(folder: Path) -> tuple[dict[str, float], str, str]:
    import mlflow

    client = mlflow.MlflowClient(f"file:{folder}/mlruns")
    experiment = client.get_experiment_by_name("mine")
    (run,) = client.search_runs([experiment.experiment_id])
    return run.data.metrics, run.info.run_name, run.info.status


def from_wandb(folder: Path) -> tuple[dict[str, float], str, str]:
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, at, part, found, run, ended = path.read_bytes(), 7, b"", {}, None, None
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
            found |= {"/".join(i.nested_key): float(i.value_json) for i in record.history.item}
            run = record.run if record.HasField("run") else run
            ended = record.exit if record.HasField("exit") else ended
    assert run.run_id != "jobs-own"
    assert (run.project, list(run.tags)) == ("mine", ["gpuwatch"])
    return found, run.display_name, str(ended.exit_code)


@pytest.mark.parametrize(
    ("tool", "read", "end"),
    [
        ("tensorboard:board", from_tensorboard, ""),
        ("mlflow", from_mlflow, "FAILED"),
        ("wandb", from_wandb, "3"),
    ],
)
def test_a_job_is_logged_to_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, read: Any, end: str
) -> None:
    """Named after its program alone, in the project or experiment that the tool's own variables
    name, but never in the run that the job makes. Output and exit code stay the job's."""
    # Files are not what it advises to keep, but need no database.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    pytest.importorskip(tool.partition(":")[0])
    fake = create_or_skip(tmp_path / "driver", gpus=2)
    fake.gpu[0].waveform("virtual")
    variables = {
        **{"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)},
        **{"WANDB_MODE": "offline", "WANDB_PROJECT": "mine", "WANDB_RUN_ID": "jobs-own"},
        **{"MLFLOW_EXPERIMENT_NAME": "mine", "MLFLOW_TRACKING_URI": "file:./mlruns"},
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    arguments = ("run", "--plain", "--no-report", "-i", "0.2", "--log-to", tool, "--")
    job = (sys.executable, "-c", TRAIN, "--token", "secret")
    done = program(*arguments, *job, env=fake.env(variables), cwd=tmp_path, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("trained\n", "", 3)
    values, name, ended = read(tmp_path)
    assert values.keys() >= NAMES
    assert values["gpuwatch/gpu0/memory_used_bytes"] == 6 << 30
    assert 0 < values["gpuwatch/job/busy_mean_percent"] <= values["gpuwatch/gpu0/busy_max_percent"]
    assert "gpuwatch python" in name
    assert "secret" not in name
    assert ended == end


@pytest.fixture
def starved() -> list[Snapshot]:
    return simulated("starved", 50.0)


def pushed(made: log.ExperimentLog, snapshots: list[Snapshot]) -> list[str]:
    engine, said = Engine(), []
    for snapshot in snapshots:
        engine.push(snapshot)
        said += made.push(snapshot, engine.diagnosis)
    made.close()
    return said


def test_findings_are_logged_as_they_occur(
    starved: list[Snapshot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row every 15 seconds and one at the end; a finding is 1 while it holds, and its sentence is
    a text, in which nothing is Markdown."""
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    to = f"tensorboard:{tmp_path / 'board'}"
    made = log.ExperimentLog(to, starved[0].jobs[0].key, "/usr/bin/python train.py --token x")
    assert pushed(made, starved) == []
    assert made.said == []
    found, texts = scalars(tmp_path / "board")
    assert [step for step, _ in found["gpuwatch/job/busy_mean_percent"]] == [15, 30, 45, 49]
    low, high = (found[f"gpuwatch/gpu1/busy_{one}_percent"][1][1] for one in ("min", "max"))
    assert (low < 10, high > 90) == (True, True)
    assert found["gpuwatch/finding/loader_cpu_bound"][-1] == (49, 1.0)
    says = texts["gpuwatch/finding/loader_cpu_bound/says"].decode()
    assert says.startswith("    GPUs 0 and 1 waited for data")


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


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("comet", "none of what --log-to takes: wandb, mlflow, tensorboard or tensorboard:FOLDER"),
        ("tensorboard:", "none of what --log-to takes"),
        ("wandb:runs", "none of what --log-to takes"),
        ("wandb", "is not installed: pip install 'gpuwatch-tui[wandb]'"),
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
