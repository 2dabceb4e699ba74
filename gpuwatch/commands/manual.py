"""What a shell and ``man`` are given: both are made of the commands themselves."""

import re
from collections.abc import Iterator

import click

from gpuwatch.commands.printing import print_text

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
