"""The options that say how the dashboard is drawn, for the commands that open it."""

from __future__ import annotations

import click

from gpuwatch.commands.common import F, is_dumb, is_terminal


def screen_options(command: F) -> F:
    for option in (
        click.option(
            "--slow-link/--no-slow-link",
            default=None,
            help="Send less to the terminal.  [default: if the SSH connection is slow]",
        ),
        click.option(
            "--theme", metavar="NAME", help="Colours: dark, light, or a name from the help."
        ),
        click.option(
            "--ascii/--no-ascii", "ascii_mode", default=None, help="Draw with ASCII only."
        ),
    ):
        command = option(command)
    return command


def theme_called(name: str | None) -> str | None:
    """The full name of a theme. Imports Textual if there is a name to look up. Raises
    ``click.UsageError``."""
    if name is None:
        return None
    from gpuwatch.core.text import clean
    from gpuwatch.tui.terminal.palette import THEMES

    for known in (name, f"gpuwatch-{name}"):
        if known in THEMES:
            return known
    raise click.UsageError(
        f"There is no theme {clean(name, 60)!r}: choose one of {', '.join(THEMES)}."
    )


def has_screen() -> bool:
    """Whether a dashboard can be drawn and be typed at: Textual draws on standard error."""
    import sys

    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(is_terminal(stream) for stream in streams) and not is_dumb()
