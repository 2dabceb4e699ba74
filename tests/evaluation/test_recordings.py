"""The recordings kept with the tests: complete, labelled with what exists, and anonymous."""

import getpass
import gzip
import json
import re
import socket
from typing import Any

import pytest

from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.sources.logs.text import zstd
from tests.evaluation.case import HEALTHY, UNDECIDED
from tests.evaluation.recorded import FOLDER, INDEX, all_recordings

ENTRIES: list[dict[str, Any]] = json.loads(INDEX.read_text())
_ABSOLUTE_PATH = re.compile(r"(?<![\w.)\]])/\w|[A-Za-z]:\\")
_OF_THE_DRIVER = re.compile(r"[0-9.]+|\d+:\d+:\d+\.\d|GPU-[0-9a-f-]+|NVIDIA H200")


def _strings(value: Any, found: set[tuple[str, str]], key: str = "") -> None:
    """Every string in a JSON value, with the key it stands under."""
    if isinstance(value, str):
        found.add((key, value))
    elif isinstance(value, dict):
        for name, inner in value.items():
            _strings(inner, found, name)
    elif isinstance(value, list):
        for inner in value:
            _strings(inner, found, key)


def test_the_index_lists_the_files_that_are_there() -> None:
    """No recording is left out of the judgement, and none is missing."""
    there = {path.name for path in FOLDER.iterdir()} - {INDEX.name}
    listed = [entry["file"] for entry in ENTRIES]
    assert len(listed) == len(set(listed))
    assert set(listed) == there


def test_labels_are_rules() -> None:
    """Else a renamed rule would turn a right answer into a wrong one."""
    known = {rule.name for rule in RULES} | {HEALTHY, UNDECIDED}
    for entry in ENTRIES:
        assert entry["label"] in entry["accepted"]
        assert set(entry["accepted"]) <= known, entry["file"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: str(entry["file"].partition(".")[0]))
def test_a_recording_names_nobody(entry: dict[str, Any]) -> None:
    """No machine, no user and no absolute path is in any of its strings."""
    unpack = zstd.decompress if entry["file"].endswith(".zst") else gzip.decompress
    text = unpack((FOLDER / entry["file"]).read_bytes()).decode()
    found: set[tuple[str, str]] = set()
    for line in text.splitlines():
        _strings(json.loads(line), found)
    allowed = {
        "machine": {"box", ""},
        "user": {"ada", "margaret"},
        "name": {"box", "", "python", "pt_data_worker", "pt_data_pin", "NVIDIA H200"},
        "command": {
            f"python train.py --{entry['file'].partition('.')[0].replace('_', '-')}",
            *("python serve.py", "python"),
        },
    }
    here = {socket.gethostname(), getpass.getuser()} - {"box", "python"}
    for key, value in found:
        assert value in allowed.get(key, {value}), (key, value)
        assert not _ABSOLUTE_PATH.search(value), (key, value)
        if not _OF_THE_DRIVER.fullmatch(value):
            assert not here & set(re.split(r"[\s@=,;]+", value)), (key, value)


def test_the_advice_is_what_helped() -> None:
    """The job with a slow transform and one worker is fed with two: that is what it must be told,
    on the machine on which both were recorded."""
    (recording,) = [
        one for one in all_recordings() if one.name == "recorded/slow_transform_one_worker"
    ]
    engine = Engine()
    for snapshot in recording.watch():
        engine.push(snapshot)
    (finding,) = engine.diagnosis.findings
    assert [advice.wanted for advice in finding.advice if advice.setting == "num_workers"] == ["2"]


def test_what_is_lost_to_restarts_is_not_lost_to_slow_workers() -> None:
    """Two spawned workers restart each half minute, which takes 13 and 11 s once its steady work
    is seen, and are slow all the time; the first seconds, until new ones are seen, are open, and of
    the first restart all of it until it is recognised is counted as before it."""
    (recording,) = [
        one for one in all_recordings() if one.name == "recorded/epochs_slow_spawned_workers"
    ]
    engine = Engine()
    for snapshot in recording.watch():
        engine.push(snapshot)
    lost = {one.rule: one.cost_gpu_seconds or 0.0 for one in engine.diagnosis.findings}
    assert 15.0 < lost["workers_restart"] < 13.1 + 10.7


YOUNG = (
    "network_no_workers", "logging_no_workers", "validation_beside_sleeping",
    "validation_beside_slow", "loader_over_network_young", "late_batches_young",
    "logging_over_network_young", "actors_too_slow_queue_young", "server_batch_of_one_young",
)  # fmt: skip
SOON_SECONDS = 20.0


@pytest.mark.parametrize("name", YOUNG)
def test_the_cause_is_named_soon_after_the_first_kernels(name: str) -> None:
    """Of jobs that were recorded from their start on; pauses, new workers in each epoch and memory
    that grows need longer to be seen at all."""
    (recording,) = [one for one in all_recordings() if one.name == f"recorded/{name}"]
    (subject,) = recording.subjects
    engine, first = Engine(), None
    for snapshot in recording.watch():
        engine.push(snapshot)
        works = any((gpu.reading.busy_percent or 0.0) > 3.0 for gpu in snapshot.gpus)
        first = snapshot.monotonic_seconds if first is None and works else first
        if {one.rule for one in engine.diagnosis.findings} & subject.accepted:
            break
    assert first is not None
    assert round(snapshot.monotonic_seconds - first) <= SOON_SECONDS
