"""``gpuwatch replay``: the dashboard over a recording, a log, or what comes in."""

from __future__ import annotations

import os
import sys
import time
from threading import Timer
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import Look, look_options
from gpuwatch.commands.printing import STANDARD_STREAM, complain, is_terminal, require_screen
from gpuwatch.commands.reading import LogFacts, log_options

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.recording.replay import EndableInput, Tape
    from gpuwatch.sources.logs.source import LogOptions

_LIVE_SECONDS = 120.0
"""Age of a snapshot that is live still."""
_PATIENCE_SECONDS = 5.0
_WAITING = "waiting for the first snapshot (Ctrl-C ends it)"


@click.command("replay")
@click.argument("file", metavar="FILE")
@log_options()
@look_options()
def replay_command(file: str, facts: LogFacts, look: Look) -> int:
    """Play a recording in the dashboard: pause, step, seek, jump from finding to finding.

    FILE is what gpuwatch record or stream wrote, or a log as diagnose takes it, packed or not. - is
    standard input: ssh box gpuwatch stream | gpuwatch replay -

    A file that is still being written is played as far as it goes when it is opened. To follow it:
    tail -c +1 -f FILE | gpuwatch replay -
    """
    look, options = look.checked(), facts.options()
    require_screen(
        "replay",
        "gpuwatch report FILE shows what is in a recording without one.",
        keys_elsewhere=file == STANDARD_STREAM,
    )
    given = _keys_from_terminal() if file == STANDARD_STREAM else None
    try:
        waiting = Timer(_PATIENCE_SECONDS, complain, [_WAITING])
        waiting.daemon = True
        waiting.start()
        try:
            tape, first = _tape(file, given, options)
        finally:
            waiting.cancel()

        from gpuwatch.tui.app import run_replay

        age = time.time() - first.taken_at_unix_seconds
        return run_replay(
            tape,
            simulated=first.simulated,
            follows=given is not None and abs(age) < _LIVE_SECONDS,
            **look.options(),
            message=" ".join(tape.notes()) or None,
        )
    finally:
        if given is not None:
            given.end()


def _keys_from_terminal() -> EndableInput | None:
    """The screen reads keys from descriptor 0: have that be the terminal, and read what comes in
    from another. ``None`` where standard input is a terminal."""
    from gpuwatch.recording.replay import EndableInput

    if sys.stdin is None:
        raise click.UsageError("Standard input is closed, so there is nothing to play.")
    if is_terminal(sys.stdin):
        raise click.UsageError(
            "Standard input is the keyboard: pipe a recording into it, as in: "
            "ssh box gpuwatch stream | gpuwatch replay -"
        )
    data = os.dup(0)
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        raise click.UsageError(
            "Keys are read from the terminal when standard input is a recording, and there is none."
        ) from None
    os.dup2(terminal, 0)
    os.close(terminal)
    source = EndableInput(data)
    import io

    sys.stdin = io.TextIOWrapper(io.BufferedReader(source))
    return source


def _tape(file: str, given: EndableInput | None, options: LogOptions) -> tuple[Tape, Snapshot]:
    """The tape and its first snapshot. Raises ``LogError`` for what cannot be played."""
    from gpuwatch.recording.replay import open_tape
    from gpuwatch.sources.logs.text import LogError

    tape = open_tape(file, options, end=None if given is None else given.end)
    for snapshot in tape.snapshots(float("-inf")):
        return tape, snapshot
    raise LogError(f"{tape.shown} contains no snapshot.")
