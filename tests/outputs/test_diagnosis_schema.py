"""What ``gpuwatch diagnose --json`` prints is what ``gpuwatch diagnose --schema`` says."""

import dataclasses
import json
import math
from typing import Any

import msgspec
import pytest

from gpuwatch.commands import cli
from gpuwatch.jobs.stacks.summary import Share, StackReport
from gpuwatch.outputs.diagnosis.json import DiagnosisSeen, diagnosis_json
from gpuwatch.outputs.diagnosis.report import DiagnosisReport
from gpuwatch.outputs.report.encoding import schema
from gpuwatch.outputs.report.parts import replaced
from gpuwatch.sources.simulated.source import SCENARIOS
from tests.outputs.test_diagnosis import ENDED, FINDING, LOG, PHASE, watched, whole


def checked(text: str) -> Any:
    """It is read by the class that the schema is made of, and nothing is over or lacking."""
    value = json.loads(text, parse_constant=pytest.fail)
    assert json.loads(msgspec.json.encode(msgspec.convert(value, DiagnosisSeen))) == value
    return value


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_is_printed_keeps_to_the_schema(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every name is there, of the kind that is said, and no other."""
    assert cli.run(["diagnose", "--demo", scenario, "--json"]) in {0, 1, 3}
    checked(capsys.readouterr().out)


def test_all_parts_keep_to_the_schema() -> None:
    """Findings that ended and stacks too."""
    share = Share(category="loader", samples=80, percent=80.0, low_percent=70.0, high_percent=88.0)
    stacks = StackReport(pid=4242, rank=0, shares=(share,))
    report = whole(FINDING, ENDED, source=LOG, phases=(PHASE,))
    full = DiagnosisReport(report=report, verdict="-", found=True, decided=True, stacks=(stacks,))
    value = checked(diagnosis_json(full))
    assert len(value["findings"]) == 2
    assert value["stacks"][0]["shares"][0]["percent"] == 80.0


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(odd: float) -> None:
    """Whatever a rule came to; JSON has no NaN."""
    evidence = dataclasses.replace(FINDING.evidence[0], value=odd, threshold=odd)
    finding = replaced(FINDING, evidence=(evidence,), job=None, cost_gpu_seconds=odd)
    value = checked(diagnosis_json(watched(finding)))
    assert value["findings"][0]["evidence"][0]["value"] is None
    assert value["findings"][0]["cost"]["gpu_seconds"] is None


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, with a description of the names."""
    assert cli.run(["diagnose", "--schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(schema(DiagnosisSeen, "gpuwatch diagnose --json")))
    for name in ("DiagnosisSeen", "FindingSeen", "GpuSeen", "UnknownSeen", "StacksSeen"):
        parts = printed["$defs"][name]["properties"].values()
        assert all(part["description"] for part in parts)
