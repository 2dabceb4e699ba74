"""The rules there are: every module in ``rules``, except what they share.

A rule is added by adding its file. The order is that of the names, so it never depends on the
file system.
"""

import inspect
import pkgutil
import textwrap
from dataclasses import replace
from functools import partial
from importlib import import_module

from gpuwatch.diagnosis import rules
from gpuwatch.diagnosis.rule import Check, Rule, Settled, Verdict, Window


def _rules() -> tuple[Rule, ...]:
    found = []
    for info in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}."):
        if info.ispkg or info.name.startswith(f"{rules.__name__}.shared."):
            continue
        module = import_module(info.name)
        name = info.name.rpartition(".")[2]
        text = _documentation(inspect.cleandoc(module.__doc__ or ""), module.RULE)
        check = partial(_verdict, module.check)
        found.append(replace(module.RULE, name=name, documentation=text, check=check))
    return tuple(sorted(found, key=lambda rule: rule.name))


def _documentation(text: str, rule: Rule) -> str:
    """Where the docstring does not say what to do, the rule's advice does."""
    before, thresholds, after = text.partition("\nThresholds\n")
    if not rule.cure or "\nWhat to do\n" in before:
        return text
    whys = [f" {one.why[:1].upper()}{one.why[1:]}." if one.why else "" for one in rule.cure]
    says = " ".join([one.action + why for one, why in zip(rule.cure, whys, strict=True)])
    filled = textwrap.indent(textwrap.fill(says, 96, break_on_hyphens=False), "    ")
    return f"{before}\nWhat to do\n{filled}\n{thresholds}{after}"


def _verdict(check: Check, window: Window) -> Verdict:
    try:
        return check(window)
    except Settled as settled:
        return settled.verdict


RULES: tuple[Rule, ...] = _rules()
"""In the order of their names."""
_BY_NAME = {rule.name: rule for rule in RULES}


def find(name: str) -> Rule:
    """Return the rule of this name, also written with dashes. Raises ``KeyError`` if there is
    none."""
    return _BY_NAME[name.strip().replace("-", "_")]


def known(name: str) -> Rule:
    """Return the rule of this name; for that of another version, one of which nothing is known."""
    return _BY_NAME.get(name) or Rule(title=name.replace("_", " "), name=name)
