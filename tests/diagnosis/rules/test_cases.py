"""The cases of all rules: what fires and with what words, what is quiet, and what a rule that
cannot decide says it misses."""

import pkgutil
import re
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown
from gpuwatch.diagnosis.rules.shared.words import briefly
from gpuwatch.diagnosis.sentence import filled, has_marks, template
from gpuwatch.diagnosis.subject import said
from tests.diagnosis import windows as w
from tests.diagnosis.rules import cases

OF_A_GPU = {
    "allocated_unused", "batch_too_small", "busy_without_work", "gpu_lost", "hardware_errors",
    "idle_holding_memory", "link_errors", "memory_growing", "memory_left_behind",
    "memory_nearly_full", "oscillation", "pcie_degraded", "power_throttle", "thermal_throttle",
    "xid_errors",
}  # fmt: skip
"""What they look at needs no job."""
CELLS_AT_80, CELLS_AT_40 = 76, 36
"""Cells of a sentence beside the sign of its severity."""
SENTENCES = ("summary", "action", "says")
ALL: dict[str, cases.Cases] = {
    one.rule: one
    for info in pkgutil.iter_modules(cases.__path__, f"{cases.__name__}.")
    for one in vars(import_module(info.name)).values()
    if isinstance(one, cases.Cases)
}


def table(kind: str) -> list[Any]:
    """(rule, window, what is said) of ``fires``, ``quiet`` or ``unknown``."""
    rows = []
    for rule, found in ALL.items():
        for name, case in getattr(found, kind).items():
            window, *words = case if isinstance(case, tuple) else (case, None)
            words = [tuple(words)] if kind == "unknown" else words
            rows.append(pytest.param(rule, window, *words, id=f"{rule}: {name}"))
    return rows


def firing_of(rule: str, window: Window) -> Firing:
    firing = w.fires(w.check_of(rule)(window))
    return replace(firing, summary=said(window, firing, firing.summary))


def part(firing: Firing, path: str) -> Any:
    """See ``Cases.fires``."""
    if path == "settings":
        return [advice.setting for advice in firing.advice or ()]
    if path == "says":
        return " / ".join([one.says for one in firing.evidence if one is not None])
    found: Any = firing
    for name in path.split("."):
        found = found[int(name)] if name.lstrip("-").isdigit() else getattr(found, name)
    return found


def holds(rule: str, firing: Firing, path: str, expected: Any) -> bool:
    if path == "against":
        return any(one is not None and not one.supports for one in firing.evidence) is expected
    if path == "weaker":
        other = ALL[rule].fires[expected]
        stronger = firing_of(rule, other[0] if isinstance(other, tuple) else other)
        return firing.strength < stronger.strength
    found = part(firing, path)
    if callable(expected):
        return bool(expected(found))
    if path.rpartition(".")[2] in SENTENCES:
        return all(words in found for words in expected.split(" ... "))
    return bool(expected <= found if isinstance(expected, set) else expected == found)


def test_what_cures_a_fault_is_understood_alone() -> None:
    """A ranking gives it without the advice that comes before it elsewhere."""
    actions = [one.action for rule in RULES for one in rule.cure]
    assert actions
    assert not [one for one in actions if one.startswith(("Until then", "Also", "Then"))]


def test_every_rule_has_cases() -> None:
    """No rule goes unnoticed, and nothing is taken for one; the order is that of the names."""
    assert [rule.name for rule in RULES] == sorted(ALL)
    assert all(one.fires and (one.quiet or one.unknown) for one in ALL.values())


@pytest.mark.parametrize("rule", ALL)
def test_a_healthy_job_is_quiet(rule: str) -> None:
    """Each rule finds that all is well; where the cores are, nobody read."""
    verdict = w.check_of(rule)(w.window())
    assert isinstance(verdict, Unknown if rule == "cpu_misplaced" else Clear)


@pytest.mark.parametrize("rule", sorted(ALL.keys() - OF_A_GPU))
def test_without_a_job_it_misses_its_processes(rule: str) -> None:
    """The rules about jobs say of a GPU alone what would be needed."""
    w.misses(w.check_of(rule)(w.gpu_only()), "the job's processes")


@pytest.mark.parametrize(("rule", "window", "expected"), table("fires"))
def test_it_fires(rule: str, window: Window, expected: dict[str, Any] | None) -> None:
    """The fault is there, with its words (free of marks), its cost and its advice."""
    firing = firing_of(rule, window)
    wanted = (expected or {}).items()
    wrong = [path for path, value in wanted if not holds(rule, firing, path, value)]
    assert not wrong, firing
    advice = [text for one in firing.advice or () for text in (one.change, one.action, one.why)]
    evidence = [text for one in firing.evidence if one for text in (one.name, one.says)]
    assert not any(map(has_marks, (firing.summary, *advice, *evidence, *firing.missing)))


@pytest.mark.parametrize(("rule", "window", "_expected"), table("fires"))
def test_it_is_said_in_less_room(
    rule: str, window: Window, _expected: dict[str, Any] | None
) -> None:
    """A sentence for 80 columns and one for 40 name GPUs where the full one does, and give the same
    numbers."""
    firing = w.fires(w.check_of(rule)(window))
    about = [gpu for gpu in window.gpus if not firing.gpus or gpu.uuid in firing.gpus]
    names = briefly(about) if about else ""
    full, *short = [
        filled(template(says), names, len(about)) for says in (firing.summary, *firing.short)
    ]
    assert len((short or [full])[0]) <= CELLS_AT_80
    assert len((short or [full])[-1]) <= CELLS_AT_40
    assert [one for one in short if len(one) > len(full)] == []
    assert not any(map(has_marks, (full, *short)))
    for text in short:
        assert numbers(text) <= numbers(full), text
        assert bool(NAMES.search(full)) <= bool(NAMES.search(text)), text


NAMES = re.compile(r"[0-9]+ GPUs?|GPUs? [0-9,]+|[0-9]+ (of [0-9]+ )?ranks|PID [0-9]+")


def numbers(text: str) -> set[str]:
    """Numbers of a sentence, but for those of GPUs and ranks."""
    return set(re.findall(r"[0-9]+(?:[.][0-9]+)?", NAMES.sub("", text)))


@pytest.mark.parametrize(("rule", "window", "why"), table("quiet"))
def test_it_is_quiet(rule: str, window: Window, why: str | None) -> None:
    """It is not there, or something else explains what is seen; the rule says why."""
    clear = w.is_clear(w.check_of(rule)(window))
    assert (why or "") in clear.why
    assert not has_marks(clear.why)


@pytest.mark.parametrize(("rule", "window", "missing"), table("unknown"))
def test_it_says_what_is_missing(rule: str, window: Window, missing: tuple[str, ...]) -> None:
    """Each reading by its name."""
    w.misses(w.check_of(rule)(window), *missing)
