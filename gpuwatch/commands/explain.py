"""``gpuwatch explain``: the rules of the diagnosis, what they check and when they are wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import option_json
from gpuwatch.commands.printing import drawing, open_output, print_text
from gpuwatch.core.text import clean, paragraphs

if TYPE_CHECKING:
    from gpuwatch.diagnosis.rule import Rule

WIDTH_MAX = 100
_NAMES_SHOWN = 3


def rules_begun(_context: object, _parameter: object, begun: str) -> list[str]:
    from gpuwatch.diagnosis.catalogue import RULES

    return [rule.name for rule in RULES if rule.name.startswith(begun)]


@click.command("explain")
@click.argument("rule", required=False, shell_complete=rules_begun)
@option_json("Print JSON.")
def explain_command(rule: str | None, as_json: bool) -> int:
    """Print what a rule of the diagnosis checks; without a name, list all rules.

    Each says what it looks at and why it matters, the evidence it needs, when it is wrong, what
    to do, and where its thresholds come from.
    """
    out = open_output()

    from gpuwatch.diagnosis.catalogue import RULES

    chosen = list(RULES) if rule is None else [find_rule(rule, RULES)]
    if as_json:
        found = [{"rule": one.name, "documentation": one.documentation} for one in chosen]
        shown = {"rules": found} if rule is None else found[0]
        text = json.dumps({"schema": 1, **shown}, indent=2)
    else:
        width = drawing(out).width
        text = rule_list(chosen, width) if rule is None else rule_page(chosen[0], width)
    print_text(text, out)
    return 0


def find_rule(name: str, rules: Sequence[Rule]) -> Rule:
    from difflib import get_close_matches

    wanted = name.strip().lower().replace("-", "_")
    names = {rule.name: rule for rule in rules}
    titled = {rule.title.lower(): rule for rule in rules}
    if (found := names.get(wanted) or titled.get(name.strip().lower())) is not None:
        return found
    near = get_close_matches(wanted, names, _NAMES_SHOWN)
    near += [name for name in names if len(wanted) > 2 and wanted in name and name not in near]
    hint = f"did you mean {' or '.join(near[:_NAMES_SHOWN])}? " if near else ""
    raise click.UsageError(
        f"There is no rule {clean(name, 60)!r}: {hint}'gpuwatch explain' lists all."
    )


def rule_list(rules: Sequence[Rule], width: int) -> str:
    """The rules with the first line of their documentation."""
    from gpuwatch.outputs.terminal import wrap

    column = max((len(rule.name) for rule in rules), default=0) + 2
    below = width - column < 30
    lines: list[str] = []
    for rule in rules:
        first, later = ("  ", "  ") if below else (f"{rule.name:<{column}}", " " * column)
        text = rule.documentation.split("\n\n", 1)[0]
        lines += [rule.name] if below else []
        lines += wrap(text, min(width, WIDTH_MAX), first=first, later=later)
    return "\n".join(lines)


def rule_page(rule: Rule, width: int) -> str:
    """A rule's documentation in lines of at most ``width`` cells; its indents stay."""
    from gpuwatch.outputs.terminal import wrap

    width = min(max(width, 20), WIDTH_MAX)
    lines = [rule.name, ""]
    for indent, text in paragraphs(rule.documentation):
        lines += wrap(text, width, first=indent, later=indent) if text else [""]
    return "\n".join(lines)
