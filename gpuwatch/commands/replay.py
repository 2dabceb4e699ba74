"""``gpuwatch replay``: the dashboard over a recording, a log, or what comes in."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from threading import Timer
from typing import TYPE_CHECKING, Any, cast

import click

from gpuwatch.commands.options import (
    Look,
    look_options,
    option_gpu,
    option_pid,
    option_user,
    user_filter,
)
from gpuwatch.commands.printing import STANDARD_STREAM, complain, is_terminal, require_screen
from gpuwatch.commands.reading import LogFacts, job_of, log_options
from gpuwatch.sources.gpu_filter import only_gpus

if TYPE_CHECKING:
    from gpuwatch.core.model import ProcessKey, Snapshot
    from gpuwatch.diagnosis.ledger import Counted, Episode, EpisodeKey
    from gpuwatch.recording.file import Bucket
    from gpuwatch.recording.replay import EndableInput, Tape
    from gpuwatch.sources.logs.source import LogOptions

_LIVE_SECONDS = 120.0
"""Age of a snapshot that is live still."""
_PATIENCE_SECONDS = 5.0
_WAITING = "waiting for the first snapshot (Ctrl-C ends it)"


@click.command("replay")
@click.argument("file", metavar="FILE")
@log_options()
@option_pid("Open the page of the job of this process")
@option_gpu()
@option_user()
@look_options()
def replay_command(
    file: str,
    facts: LogFacts,
    pid: int | None,
    only: tuple[str, ...],
    users: tuple[str, ...],
    look: Look,
) -> int:
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
            if only:
                tape = cast("Tape", _PartOfTape(tape, only, first))
            # Of what comes in the rest is still to come.
            there = tape.snapshots(float("-inf")) if given is None else [first]
            attached = None if pid is None else _job_in(there, pid, tape.shown)
        finally:
            waiting.cancel()

        from gpuwatch.tui.app import run_replay

        age = time.time() - first.taken_at_unix_seconds
        return run_replay(
            tape,
            simulated=first.simulated,
            follows=given is not None and abs(age) < _LIVE_SECONDS,
            attached=attached,
            filter_text=user_filter(users),
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


class _PartOfTape:
    """A tape of some GPUs of a machine, with what runs on them."""

    def __init__(self, tape: Tape, only: tuple[str, ...], first: Snapshot) -> None:
        self._tape, self._only = tape, only
        self._uuids = {gpu.uuid for gpu in only_gpus(first, only).gpus}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def snapshots(self, begin: float) -> Iterator[Snapshot]:
        return (only_gpus(one, self._only) for one in self._tape.snapshots(begin))

    @property
    def buckets(self) -> Sequence[Bucket]:
        """Return the overview of these GPUs alone."""
        return [
            replace(one, gpus={key: gpu for key, gpu in one.gpus.items() if key in self._uuids})
            for one in self._tape.buckets
        ]

    def lost_before(self, unix_seconds: float) -> dict[EpisodeKey, Counted]:
        """Return nothing: what was lost of other GPUs of a job is not apart."""
        del unix_seconds
        return {}

    @property
    def findings(self) -> Sequence[Episode]:
        """Return what was found about them, or about no GPU."""
        return [
            one
            for one in self._tape.findings
            if not one.gpus or not self._uuids.isdisjoint(one.gpus)
        ]


def _job_in(snapshots: Iterable[Snapshot], pid: int, shown: str) -> ProcessKey:
    """Return the job that has a process ``pid``. Raises ``click.UsageError`` where none has."""
    for snapshot in snapshots:
        key = job_of(snapshot, pid)
        if key is not None:
            return key
    raise click.UsageError(f"{shown} has no job with a process {pid}.")


def _tape(file: str, given: EndableInput | None, options: LogOptions) -> tuple[Tape, Snapshot]:
    """The tape and its first snapshot. Raises ``LogError`` for what cannot be played."""
    from gpuwatch.recording.replay import open_tape
    from gpuwatch.sources.logs.text import LogError

    tape = open_tape(file, options, end=None if given is None else given.end)
    for snapshot in tape.snapshots(float("-inf")):
        return tape, snapshot
    raise LogError(f"{tape.shown} contains no snapshot.")
