"""The rules there are: every module of ``rules`` whose name does not begin with an underscore.

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


def _names() -> list[str]:
    found = [module.name for module in pkgutil.iter_modules(rules.__path__)]
    return sorted(name for name in found if not name.startswith("_"))


def _rule(name: str) -> Rule:
    module: ModuleType = import_module(f"{rules.__name__}.{name}")
    return Rule(name, module.check, inspect.cleandoc(module.__doc__ or ""))


RULES: tuple[Rule, ...] = tuple([_rule(name) for name in _names()])
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
