"""The catalogue: every rule is there, documented and tested."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from gpuwatch.diagnosis import catalogue, rules
from gpuwatch.diagnosis.rule import Rule
from tests.diagnosis import rules as rule_tests

SECTIONS = (
    "What it checks",
    "Why it matters",
    "Evidence needed",
    "When it is wrong",
    "What to do",
    "Sources",
)
NAMED_BY_DESIGN = {
    "oscillation", "loader_cpu_bound", "loader_io_bound", "loader_in_main_process",
    "too_many_workers", "cpu_quota", "memory_not_pinned", "python_bound", "sync_every_step",
    "checkpoint_pauses", "validation_pauses", "collective_wait", "straggler", "busy_without_work",
    "batch_too_small", "memory_nearly_full", "memory_growing", "thermal_throttle",
    "power_throttle", "pcie_degraded", "hardware_errors", "gpu_lost", "other_tenant",
    "idle_holding_memory", "orphaned_workers", "host_memory_growing", "shm_full", "cpu_misplaced",
}  # fmt: skip
EVERY_RULE = [pytest.param(rule, id=rule.name) for rule in catalogue.RULES]


def test_every_rule_has_its_file() -> None:
    """The names are those of the design, and the order is theirs."""
    names = [rule.name for rule in catalogue.RULES]
    assert set(names) >= NAMED_BY_DESIGN
    assert names == sorted(names)


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_documentation_has_every_section(rule: Rule) -> None:
    """A first line that names the fault, then the sections in order."""
    lines = rule.documentation.splitlines()
    assert lines[0].endswith(".")
    assert [line for line in lines if line in SECTIONS] == list(SECTIONS)
    assert max(len(line) for line in lines) <= 100


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_rule_has_firing_quiet_and_unknown_cases(rule: Rule) -> None:
    """Side by side in a test file of the rule's name."""
    folder = Path(inspect.getfile(rule_tests)).parent
    text = (folder / f"test_{rule.name}.py").read_text("utf-8")
    for case in ("fires(", "is_clear(", "misses("):
        assert case in text, f"{rule.name} has no case with {case}"


def test_helpers_are_no_rules() -> None:
    """Modules with a leading underscore are left out."""
    helpers = [path for path in rules.__path__ for path in Path(path).glob("_*.py")]
    assert helpers
    assert not [rule for rule in catalogue.RULES if rule.name.startswith("_")]


def test_a_rule_is_found_by_its_name() -> None:
    """Dashes are taken for underscores, and a name that is none raises."""
    assert catalogue.find("cpu-quota").name == "cpu_quota"
    with pytest.raises(KeyError):
        catalogue.find("nothing")
