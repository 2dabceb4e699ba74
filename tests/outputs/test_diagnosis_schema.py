"""What ``gpuwatch diagnose --json`` prints is what ``gpuwatch diagnose --schema`` says."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.commands import cli
from gpuwatch.jobs.stacks.summary import Share, StackReport
from gpuwatch.outputs.diagnosis.json import diagnosis_json
from gpuwatch.outputs.diagnosis.report import Ended
from gpuwatch.outputs.diagnosis.schema import DIAGNOSIS_SCHEMA
from gpuwatch.sources.simulated.source import SCENARIOS
from tests.outputs.test_diagnosis import FINDING, LOG, START, report

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
    if "const" in schema:
        if value != schema["const"]:
            yield f"{where} is {value!r}"
        return
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_is(value, kind) for kind in kinds):
        yield f"{where} is {value!r}, no {kinds}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r}"
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if isinstance(value, int | float) and not low <= value <= high:
        yield f"{where} is {value!r}"
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from faults(item, schema["items"], f"{where}[{number}]")
    if isinstance(value, dict):
        if set(value) != set(schema["required"]):
            yield f"{where} has other names: {set(value) ^ set(schema['required'])}"
        for name in set(value) & set(schema["properties"]):
            yield from faults(value[name], schema["properties"][name], f"{where}.{name}")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind])


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def assert_valid(text: str) -> dict[str, Any]:
    value = json.loads(text, parse_constant=refuse)
    assert list(faults(value, DIAGNOSIS_SCHEMA)) == []
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
    full = report(
        FINDING,
        source=LOG,
        ended=(Ended(finding=FINDING, until_unix_seconds=START + 9),),
        stacks=(stacks,),
    )
    value = assert_valid(diagnosis_json(full))
    assert len(value["findings"]) == 2
    assert value["stacks"][0]["shares"][0]["percent"] == 80.0


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(odd: float) -> None:
    """Whatever a rule came to; JSON has no NaN."""
    evidence = replace(FINDING.evidence[0], value=odd, threshold=odd)
    costs = {"cost_share": odd, "cost_gpu_seconds": odd, "since_unix_seconds": odd}
    finding = replace(FINDING, evidence=(evidence,), job=None, **costs)
    value = assert_valid(diagnosis_json(report(finding)))
    assert value["findings"][0]["evidence"][0]["value"] is None
    assert value["findings"][0]["cost"] == {"share": None, "gpu_seconds": None}


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, with a description of every name."""
    assert cli.run(["diagnose", "--schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == DIAGNOSIS_SCHEMA
    assert printed["properties"]["schema"]["const"] == 1
    assert list(undescribed(printed)) == []


def undescribed(schema: dict[str, Any], where: str = "$") -> Iterator[str]:
    if not schema.get("description"):
        yield where
    for name, part in schema.get("properties", {}).items():
        yield from undescribed(part, f"{where}.{name}")
    if "items" in schema:
        yield from undescribed(schema["items"], f"{where}[]")


def test_the_test_sees_what_is_wrong() -> None:
    """A missing name, one too many, another kind, a number out of bounds."""
    good = json.loads(diagnosis_json(report(FINDING)))
    for name, value in (("decided", 1), ("watched_seconds", -1), ("more", None)):
        assert list(faults({**good, name: value}, DIAGNOSIS_SCHEMA))
    del good["verdict"]
    assert list(faults(good, DIAGNOSIS_SCHEMA))
