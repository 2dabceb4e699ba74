"""The device script: how it judges, and a dry run of what needs no job (CI dry-runs the rest)."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.diagnosis.catalogue import RULES
from tests.device import samples
from tests.device.__main__ import GROWS, HEALTHY, ROOT, WORKLOADS, Proof, chosen
from tests.support.fake_nvml import create_or_skip


@pytest.fixture
def proof(tmp_path: Path) -> Proof:
    (tmp_path / "out").mkdir()
    return Proof(tmp_path / "out", tmp_path, {}, True, 100.0, 1.0)


def finding(rule: str, severity: str = "warning", **more: Any) -> dict[str, Any]:
    return {"rule": rule, "severity": severity, "confidence": 0.9, "advice": [], **more}


def judged(proof: Proof, workload: Any, *findings: dict[str, Any], decided: bool = True) -> str:
    said = {"findings": findings, "decided": decided, "verdict": "", "unknown": []}
    proof.judge(workload, json.dumps(said), (0.5, None), None)
    return proof.rows[-1][3]


@pytest.mark.parametrize("one", [HEALTHY, *WORKLOADS], ids=lambda one: one.name)
def test_settings_and_rules_of_each_job_exist(one: Any) -> None:
    """A job takes them all, and what may be said of it is a rule."""
    pytest.importorskip("torch", reason="torch is not installed")
    from tests.device.job import FaultySettings

    for simulated in (False, True):
        before = FaultySettings(**one.settings(simulated))
        assert (replace(before, **one.cure) != before) == bool(one.cure)
    assert {*one.truth} <= {rule.name for rule in RULES}


def test_a_job_is_judged_by_the_first_finding_that_is_no_mere_information(proof: Proof) -> None:
    """Silence is right of a healthy job alone, and no answer yet is no wrong one."""
    fault = WORKLOADS[0]
    assert judged(proof, fault, finding(fault.truth[0], gain={"factor": 2.0})) == "right"
    assert proof.rows[-1][4] == "2.00x"
    assert judged(proof, fault, finding("oscillation"), finding(fault.truth[0])) == "WRONG"
    assert judged(proof, fault, finding("oscillation", "info"), finding(fault.truth[0])) == "right"
    assert judged(proof, fault) == "WRONG"
    assert judged(proof, fault, decided=False) == "undecided"
    assert judged(proof, HEALTHY) == "right"
    assert judged(proof, HEALTHY, finding("oscillation")) == "WRONG"
    assert "3 right, 3 wrong, 1 undecided, 0 not judged, 0 not run" in proof.summary()


def test_a_second_fault_is_judged_by_itself(proof: Proof) -> None:
    """It may come first, being the more urgent one."""
    (both,) = [one for one in WORKLOADS if one.leaks]
    judged(proof, both, finding(GROWS, "error"), finding(both.truth[0]))
    assert [row[3] for row in proof.rows] == ["right", "right"]
    judged(proof, both, finding(both.truth[0]))
    assert [row[3] for row in proof.rows[2:]] == ["right", "WRONG"]


def test_a_job_that_cannot_run_here_is_left_out(
    proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For lack of time, or of shared memory, in which workers hand over their batches."""
    (large,) = [one for one in WORKLOADS if "pin_memory" in one.cure]
    proof.simulated = False
    assert proof.reason_against(large, 1e9) == "no time was left"
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=64 << 20))
    assert proof.reason_against(large, 1.0) == "/dev/shm is too small: 64 MiB"
    assert proof.reason_against(HEALTHY, 1.0) == ""


def test_a_part_that_fails_stops_no_other(proof: Proof) -> None:
    """It is named in the summary, with the reason, and the summary is written."""

    def fails() -> None:
        raise ValueError("no such thing")

    proof.part("first", fails)
    proof.part("second", lambda: proof.notes.append("the second came to its end"))
    text = (proof.out / "summary.txt").read_text()
    assert "first CRASHED: ValueError: no such thing" in text
    assert "the second came to its end" in text
    assert "CRASHED: first" in text.splitlines()[-1]


def test_no_file_is_larger_than_may_come_back(
    proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too long is cut; of recordings, those are left out that have no room."""
    monkeypatch.setattr("tests.device.__main__.FILE_MOST_BYTES", 2 << 20)
    for number in range(3):
        (proof.scratch / f"{number}.jsonl.zst").write_bytes(bytes(400_000))
    proof.job_lines.append("x" * (3 << 20))
    proof.write()
    sizes = {path.name: path.stat().st_size for path in proof.out.iterdir()}
    assert sizes["jobs.txt"] == 2 << 20
    assert 800_000 < sizes["recordings.tar"] < 2 << 20
    assert len(sizes) <= 8


@pytest.mark.parametrize(
    ("visible", "which"),
    [(None, "0"), ("", "0"), ("3,4", "3"), ("GPU-12ab-3,1", "GPU-12ab-3"), ("NoDevFiles", "0")],
)
def test_the_gpu_is_the_first_that_cuda_may_use(visible: str | None, which: str) -> None:
    """On a shared machine that is the one which its owner was given."""
    assert chosen(visible) == which


def test_samples_are_held_against_the_times_of_kernels() -> None:
    """True ones are wrong by nothing. Those that say 0 or 99 of a half-busy time are, and their
    mean need not be. Those whose stamps are late are true of an earlier time."""
    ran = [(at, at + 0.05) for at in (0.1 * number for number in range(100))]
    stamps = [0.1 * number for number in range(1, 95)]
    true = [(at + 0.02, at, 50.0) for at in stamps]
    found = samples.judge(true, ran)
    assert found["error_points"] == pytest.approx(0.0, abs=0.01)
    assert (found["spacing_ms"], found["late_ms"]) == pytest.approx((100.0, 20.0))
    false = [(at, at, 99.0 * (number % 2)) for number, at in enumerate(stamps)]
    found = samples.judge(false, ran)
    assert found["error_points"] == pytest.approx(49.5, abs=0.6)
    assert found["half_busy_said_extreme"] == found["half_busy"] == found["samples"]
    assert found["mean_percent"] == pytest.approx(found["mean_truth_percent"], abs=1.0)
    slow = [(at, at + 0.5) for at in (1.0 * number for number in range(10))]
    late = [
        (at + 0.2, at + 0.2, 100 * samples.busy_share(slow, at - 0.1, at)) for at in stamps[:80]
    ]
    assert samples.judge(late, slow)["best_lag_ms"] == pytest.approx(200.0)
    assert samples.judge([], slow) == {"samples": 0}
    assert samples.table(true, ran).splitlines()[1] == "0.2200,0.2000,50,50.0"


def test_a_dry_run_says_that_it_is_one(tmp_path: Path) -> None:
    """Without jobs: the driver's calls, the power limit and, where there is one, the doctor."""
    create_or_skip(tmp_path / "driver", gpus=1)
    command = [str(ROOT / "tests/device/run"), "--simulated", "--only", "none"]
    environment = os.environ | {"OUT": str(tmp_path / "out"), "PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SIMULATED driver, no real GPU (NVIDIA H200") == 1
    assert "1 right, 0 wrong" in done.stdout
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert found["machine"]["simulated"] is True
    assert found["driver calls"]["idle"]["nvmlDeviceGetUtilizationRates"]["calls"] >= 2


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    """And fails: nothing was proved."""
    environment = os.environ | {"OUT": str(tmp_path), "PYTHON": sys.executable}
    done = subprocess.run(
        [str(ROOT / "tests/device/run")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "there is no GPU" not in done.stdout:
        pytest.skip("there is a GPU")
    assert done.returncode == 1
    assert "0 right, 0 wrong" in done.stdout
