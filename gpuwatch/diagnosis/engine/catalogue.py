"""The rules there are: every module in the folders of ``rules``, except what they share.

A rule is added by adding its file. The order is that of the names, so it never depends on the
file system.
"""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from types import ModuleType

from gpuwatch.diagnosis import rules
from gpuwatch.diagnosis.rule import Rule


def _modules() -> list[str]:
    found = pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")
    names = [module.name for module in found if not module.ispkg]
    return [name for name in names if not name.startswith(f"{rules.__name__}.shared.")]


def _rule(module_name: str) -> Rule:
    module: ModuleType = import_module(module_name)
    name = module_name.rpartition(".")[2]
    return Rule(name, module.check, inspect.cleandoc(module.__doc__ or ""))


RULES: tuple[Rule, ...] = tuple(
    sorted((_rule(name) for name in _modules()), key=lambda rule: rule.name)
)
"""In the order of their names."""


def find(name: str) -> Rule:
    """The rule of this name, also written with dashes.

    Raises ``KeyError`` where there is none.
    """
    wanted = name.strip().replace("-", "_")
    for rule in RULES:
        if rule.name == wanted:
            return rule
    raise KeyError(name)
