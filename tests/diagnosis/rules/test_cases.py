"""The cases of all rules that need no more than a window: what fires, what is quiet, and what a
rule that cannot decide says it misses."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.diagnosis.engine.catalogue import RULES
from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis import windows as w


def cases(table: str) -> list[Any]:
    """Those of ``FIRING``, ``QUIET`` or ``UNKNOWN`` in the test file of each rule."""
    files = {path.stem: path for path in Path(__file__).parent.glob("*/test_*.py")}
    tables = {}
    for rule in RULES:
        path = files[f"test_{rule.name}"]
        module = import_module(f"{__package__}.{path.parent.name}.{path.stem}")
        tables[rule.name] = getattr(module, table, {})
    return [
        pytest.param(rule, case, id=f"{rule}: {name}")
        for rule, found in tables.items()
        for name, case in found.items()
    ]


@pytest.mark.parametrize(("rule", "window"), cases("FIRING"))
def test_it_fires(rule: str, window: Window) -> None:
    """The fault is there."""
    w.fires(w.check_of(rule)(window))


@pytest.mark.parametrize(("rule", "window"), cases("QUIET"))
def test_it_is_quiet(rule: str, window: Window) -> None:
    """It is not there, or something else explains what is seen; the rule says why."""
    w.is_clear(w.check_of(rule)(window))


@pytest.mark.parametrize(("rule", "case"), cases("UNKNOWN"))
def test_it_says_what_is_missing(rule: str, case: tuple[Any, ...]) -> None:
    """A window, and words of each reading that is named."""
    window, *missing = case
    w.misses(w.check_of(rule)(window), *missing)
