"""What ``gpuwatch diagnose --json`` prints is what ``gpuwatch diagnose --schema`` says."""

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch.commands import cli
from gpuwatch.jobs.stacks.summary import Share, StackReport
from gpuwatch.outputs.diagnosis.json import diagnosis_json, diagnosis_schema
from gpuwatch.outputs.diagnosis.report import DiagnosisReport
from gpuwatch.outputs.report.parts import replaced
from gpuwatch.sources.simulated.source import SCENARIOS
from tests.outputs.test_diagnosis import ENDED, FINDING, LOG, PHASE, watched, whole

SCHEMA = diagnosis_schema()
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def faults(value: Any, schema: dict[str, Any], where: str = "$") -> Iterator[str]:
    """What is wrong with ``value``; names that the schema does not have are wrong too."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        if all(any(faults(value, one, where)) for one in schema["anyOf"]):
            yield f"{where} is {value!r}, none of {schema['anyOf']}"
        return
    if value not in schema.get("enum", [value]):
        yield f"{where} is {value!r}"
    if not _is(value, schema.get("type", "any")):
        yield f"{where} is {value!r}, no {schema['type']}"
        return
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if isinstance(value, int | float) and not low <= value <= high:
        yield f"{where} is {value!r}"
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from faults(item, schema["items"], f"{where}[{number}]")
    if isinstance(value, dict):
        if set(value) != set(schema["properties"]):
            yield f"{where} has other names: {set(value) ^ set(schema['properties'])}"
        for name in set(value) & set(schema["properties"]):
            yield from faults(value[name], schema["properties"][name], f"{where}.{name}")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or kind == "any":
        return kind in {"boolean", "any"}
    return isinstance(value, TYPES[kind])


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def assert_valid(text: str) -> dict[str, Any]:
    value = json.loads(text, parse_constant=refuse)
    assert list(faults(value, SCHEMA)) == []
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_is_printed_keeps_to_the_schema(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every name is there, of the kind that is told, and no other."""
    assert cli.run(["diagnose", "--demo", scenario, "--json"]) in {0, 1, 3}
    assert_valid(capsys.readouterr().out)


def test_all_parts_keep_to_the_schema() -> None:
    """Findings that ended and stacks too."""
    share = Share(category="loader", samples=80, percent=80.0, low_percent=70.0, high_percent=88.0)
    stacks = StackReport(pid=4242, rank=0, shares=(share,))
    full = DiagnosisReport(
        report=whole(FINDING, ENDED, source=LOG, phases=(PHASE,)),
        verdict="-",
        found=True,
        decided=True,
        stacks=(stacks,),
    )
    value = assert_valid(diagnosis_json(full))
    assert len(value["findings"]) == 2
    assert value["stacks"][0]["shares"][0]["percent"] == 80.0


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(odd: float) -> None:
    """Whatever a rule came to; JSON has no NaN."""
    evidence = dataclasses.replace(FINDING.evidence[0], value=odd, threshold=odd)
    finding = replaced(FINDING, evidence=(evidence,), job=None, cost_gpu_seconds=odd)
    value = assert_valid(diagnosis_json(watched(finding)))
    assert value["findings"][0]["evidence"][0]["value"] is None
    assert value["findings"][0]["cost"]["gpu_seconds"] is None


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, with a description of the names."""
    assert cli.run(["diagnose", "--schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() == SCHEMA.keys()
    assert printed["$defs"].keys() == SCHEMA["$defs"].keys()
    for name in ("DiagnosisSeen", "FindingSeen", "GpuSeen", "UnknownSeen", "StacksSeen"):
        parts = printed["$defs"][name]["properties"].values()
        assert all(part["description"] for part in parts)


def test_the_test_sees_what_is_wrong() -> None:
    """A missing name, one too many, another kind, a number out of bounds."""
    good = json.loads(diagnosis_json(watched(FINDING)))
    for name, value in (("decided", 1), ("watched_seconds", -1), ("more", None)):
        assert list(faults({**good, name: value}, SCHEMA))
    del good["verdict"]
    assert list(faults(good, SCHEMA))
