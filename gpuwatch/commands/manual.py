"""``gpuwatch explain``: the rules of the diagnosis, what they check and when they are wrong; and
what a shell and ``man`` are given, made of the commands themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import option_json
from gpuwatch.commands.printing import drawing, open_output, print_text
from gpuwatch.core.text import clean

if TYPE_CHECKING:
    from gpuwatch.diagnosis.rule import Rule

WIDTH_MAX = 100
_NAMES_SHOWN = 3


def rules_begun(_context: object, _parameter: object, begun: str) -> list[str]:
    from gpuwatch.diagnosis.engine.catalogue import RULES

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

    from gpuwatch.diagnosis.engine.catalogue import RULES

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
    if wanted in names:
        return names[wanted]
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
    for indent, together in groupby(rule.documentation.splitlines(), _indent):
        text = " ".join(together)
        lines += wrap(text, width, first=indent, later=indent) if text.strip() else [""]
    return "\n".join(lines)


def _indent(line: str) -> str:
    """Of a heading or a paragraph; a line without words has one of its own."""
    return line[: len(line) - len(line.lstrip())] if line else "\n"


_EXIT = """\
0 done; 2 the request cannot be met as it was made; 69 no answer from the machine; 70 a bug; 74
the output cannot be written; 130 interrupted. diagnose: 1 where something was found, 3 where that
cannot be decided. run: those of the job."""
_FILES = """\
~/.config/gpuwatch/config.toml holds preferences, ~/.local/state/gpuwatch reports and the output of
jobs (XDG_CONFIG_HOME, XDG_STATE_HOME). Only their owner can read them."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> int:
    """Print what makes a shell complete commands, options and names of gpuwatch.

    Add it to what the shell reads when it starts:

    \b
    gpuwatch completion bash >> ~/.bashrc
    gpuwatch completion zsh >> ~/.zshrc
    gpuwatch completion fish > ~/.config/fish/completions/gpuwatch.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root()
    print_text(kind(root.command, {}, "gpuwatch", "_GPUWATCH_COMPLETE").source())
    return 0


@click.command("man")
def man_command() -> int:
    """Print the manual page: gpuwatch man | man -l -"""
    root = click.get_current_context().find_root()
    print_text("\n".join(_page(root)))
    return 0


def _page(root: click.Context) -> Iterator[str]:
    from gpuwatch import __version__
    from gpuwatch.tui.keys import described

    assert isinstance(root.command, click.Group)
    summary, *more = _paragraphs(root.command)
    yield f'.TH GPUWATCH 1 "" "gpuwatch {__version__}"'
    yield from (".SH NAME", f"gpuwatch \\- {summary}", ".SH SYNOPSIS")
    yield f".B gpuwatch\n{_escaped('[OPTIONS] [COMMAND [ARGUMENTS]]')}"
    yield from (".SH DESCRIPTION", "\n.PP\n".join(more), ".SH OPTIONS", *_options(root))
    yield ".SH COMMANDS"
    for name in root.command.list_commands(root):
        command = root.command.get_command(root, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=root)
        usage = " ".join(command.collect_usage_pieces(inner))
        yield f".SS {_escaped(f'gpuwatch {name} {usage}')}"
        yield "\n.PP\n".join(_paragraphs(command))
        yield from _options(inner)
    yield ".SH KEYS"
    for group, keys in described(replay=False, practice=False):
        yield f".SS {group}"
        for key in keys:
            yield f".TP\n.B {_escaped(key.shown)}\n{_escaped(key.help)}"
    yield from (".SH FILES", _escaped(_FILES), ".SH EXIT STATUS", _escaped(_EXIT))


def _paragraphs(command: click.Command) -> list[str]:
    text = (command.help or "").replace("\b\n", "")
    return [_escaped(" ".join(one.split())) for one in text.split("\n\n")]


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield f".TP\n.B {_escaped(record[0])}\n{_escaped(record[1])}"


def _escaped(text: str) -> str:
    """Nothing in it is a request of roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", text)
