"""The catalogue: every rule is there, documented and tested."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from gpuwatch.diagnosis import catalogue, rules
from gpuwatch.diagnosis.rule import Rule

SECTIONS = (
    "What it checks", "Why it matters", "Evidence needed", "When it is wrong", "What to do",
    "Thresholds", "Sources",
)  # fmt: skip
MODULES = sorted(
    ".".join(path.relative_to(folder).with_suffix("").parts)
    for folder in rules.__path__
    for path in Path(folder).rglob("*.py")
    if path.name != "__init__.py"
)
EVERY_RULE = [pytest.param(rule, id=rule.name) for rule in catalogue.RULES]


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_documentation_has_every_section(rule: Rule) -> None:
    """A first line that names the fault, then the sections in order."""
    lines = rule.documentation.splitlines()
    assert lines[0].endswith(".")
    assert [line for line in lines if line in SECTIONS] == list(SECTIONS)
    assert max(len(line) for line in lines) <= 100


@pytest.mark.parametrize("name", MODULES)
def test_every_number_says_why(name: str) -> None:
    """A threshold of a rule is in the section of its documentation that is about them; of others,
    and of those of what rules share, a sentence below says why."""
    module = import_module(f"{rules.__name__}.{name}")
    thresholds = (module.__doc__ or "").partition("\nThresholds\n")[2].partition("\nSources\n")[0]
    bare = [
        constant
        for constant, reason in _numbers(module)
        if not reason.rstrip().endswith(".")
        and not _is_documented(getattr(module, constant), thresholds)
    ]
    assert not bare, f"no reason for {', '.join(bare)} in {name}.py"


UNITS = {
    "": 1.0, "%": 1.0, " s": 1.0, " C": 1.0, " min": 60.0, " h": 3600.0, " MB": 1e6,
    " MiB": 2.0**20, " GiB": 2.0**30
}  # fmt: skip


def _is_documented(value: float, text: str) -> bool:
    """As a person writes it: ``0.15`` as ``15%``, ``1800`` as ``30 min``."""
    written = [f"{value / size:g}{unit}" for unit, size in UNITS.items()]
    written += [f"{100.0 * value:g}%", f"{value / 2**20:g} MB"]
    return any(re.search(rf"(?<![\d.]){re.escape(one)}(?![\d.]*\d)", text) for one in written)


def test_a_number_without_a_reason_is_noticed() -> None:
    """A docstring is that of the constant right above it, and of no other."""
    module = ModuleType("rule")
    source = 'A = 2 * 3.0\nB = {1: 0.5}\n"""Why."""\nWORDS = ("x",)\nYES = True\nC: int = 1\n'
    exec(source, module.__dict__)
    assert list(_numbers(module, source)) == [("A", ""), ("B", "Why."), ("C", "")]


def _numbers(module: ModuleType, source: str | None = None) -> Iterator[tuple[str, str]]:
    """The constants of a module that are numbers or made of them, with the docstring below."""
    body = ast.parse(inspect.getsource(module) if source is None else source).body
    for node, below in zip(body, [*body[1:], None], strict=True):
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        for target in targets:
            name = target.id if isinstance(target, ast.Name) else ""
            if name.isupper() and _is_number(getattr(module, name)):
                yield name, _text(below)


def _is_number(value: object) -> bool:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return bool(value) and all(map(_is_number, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(node: ast.stmt | None) -> str:
    """Of a docstring; "" for all else."""
    constant = node.value if isinstance(node, ast.Expr) else None
    value = constant.value if isinstance(constant, ast.Constant) else None
    return value if isinstance(value, str) else ""


def test_a_rule_is_found_by_its_name() -> None:
    """Dashes are taken for underscores, and a name that is none raises."""
    assert catalogue.find("cpu-quota").name == "cpu_quota"
    with pytest.raises(KeyError):
        catalogue.find("nothing")
