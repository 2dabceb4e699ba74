"""``gpuwatch doctor``: what a careful colleague would check on this machine.

Exit codes: 0 nothing is wrong, 1 something is broken, 3 it works, with warnings.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import option_ascii, option_json
from gpuwatch.commands.printing import (
    complain,
    drawing,
    is_terminal,
    open_output,
    print_text,
)

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.source import Source
    from gpuwatch.doctor.check import Terminal

EXIT_CODES = {"pass": 0, "warn": 3, "fail": 1}
PATIENCE_SECONDS = 30.0


@click.command("doctor")
@option_json()
@option_ascii()
def doctor_command(as_json: bool, ascii_mode: bool | None) -> int:
    """Check what gpuwatch needs here: driver, every reading, rights, machine, terminal.

    Each line says pass, skip (it is not here), warn or fail, with the reason and what to do. The
    exit code is 0 if nothing is wrong, 1 if something failed, 3 if there are only warnings.
    """
    out = open_output()

    from gpuwatch.doctor.examination import checked, examine
    from gpuwatch.outputs.doctor import doctor_json, doctor_page

    facts = examine(_look, _terminal(ascii_mode))
    checks, gpus = checked(facts), facts.snapshot.gpus
    if as_json:
        text = doctor_json(checks, gpus, facts.snapshot.taken_at_unix_seconds)
    else:
        look = drawing(out, ascii_mode)
        text = doctor_page(checks, gpus, width=look.width, colour=look.colour, unicode=look.unicode)
    print_text(text, out)

    from gpuwatch.doctor.check import worst

    return EXIT_CODES[worst(checks)]


def _look(source: Source) -> Snapshot:
    from gpuwatch.commands.watching import look_once

    return look_once(
        source,
        patience_seconds=PATIENCE_SECONDS,
        on_wait=_say_waiting if is_terminal(sys.stderr) else None,
    )


def _say_waiting() -> None:
    complain("asking the driver for everything (Ctrl-C ends) ...")


def _terminal(ascii_mode: bool | None) -> Terminal:
    from gpuwatch.doctor.check import Terminal

    look, height = drawing(sys.stdout, ascii_mode), 0
    if is_terminal(sys.stdout):
        height = os.get_terminal_size(sys.stdout.fileno()).lines
    return Terminal(
        is_terminal=is_terminal(sys.stdout),
        width=look.width,
        height=height,
        colour=look.colour,
        unicode=look.unicode,
        encoding=sys.stdout.encoding,
    )
