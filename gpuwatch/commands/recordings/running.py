"""Recordings that run: ``gpuwatch record --detach`` and ``--stop``."""

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from gpuwatch.commands.printing import EXIT_BUG, EXIT_NO_ANSWER, complain, print_text, shown
from gpuwatch.core.text import SentenceError

STOP_SECONDS = 15.0
"""How long --stop waits for an end to be written."""
_READY = "ready"


def detached(path: Path, record: Callable[[Callable[[], None]], int]) -> int:
    """Record in a process of its own session; end once it has begun, or could not."""
    reading, writing = os.pipe()
    if sys.stdout is not None:
        sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_detached(record, writing)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as pipe:
        said = pipe.readline().strip()
    if said != _READY:
        raise click.UsageError(said or "The recording could not be started.")
    print_text(
        f"Process {child} records to {shown(path)}, also when this terminal closes. "
        f"gpuwatch record --stop {shown(shlex.quote(str(path)))} ends it."
    )
    return 0


def _run_detached(record: Callable[[Callable[[], None]], int], pipe: int) -> NoReturn:
    code = EXIT_BUG

    out = os.fdopen(pipe, "w", encoding="utf-8", errors="replace")

    def answer(text: str) -> None:
        # Only the first is waited for: what is closed takes no more.
        with contextlib.suppress(OSError, ValueError):
            out.write(text)
            out.close()

    try:
        os.setsid()
        _leave_terminal(pipe)
        code = record(lambda: answer(_READY))
    except (click.ClickException, SentenceError) as error:
        answer(str(error))
        code = error.exit_code
    except BaseException as error:
        answer(f"{type(error).__name__}: {shown(str(error))}. This is a bug: please report it.")
    finally:
        # What the parent had buffered, and its clean-up, is the parent's.
        os._exit(code)


def _leave_terminal(kept: int) -> None:
    """No descriptor but ``kept`` stays open: neither a terminal nor a pipe waits for this."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    for entry in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        if descriptor > 2 and descriptor != kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    os.chdir("/")


def stop_recording(wanted: str) -> int:
    """End what records to that file."""
    from gpuwatch.recording.file import holder_of
    from gpuwatch.sources.linux.processes import pinned

    try:
        file = Path(wanted).stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "there is no such file"
        raise click.UsageError(f"{shown(wanted)} cannot be read: {reason}.") from None
    holder = holder_of(file)
    if holder is None:
        raise click.UsageError(f"No gpuwatch of this user records to {shown(wanted)} now.")
    pid, only_records = holder
    if not only_records:
        raise click.UsageError(
            f"Process {pid}, a dashboard, records to {shown(wanted)}: press W there to stop it."
        )
    with contextlib.suppress(ProcessLookupError), pinned(pid) as send:
        # Looked at again once pinned: its PID may be another's by now.
        if holder_of(file) == holder:
            send(signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while holder_of(file) == holder:
        if time.monotonic() >= deadline:
            late = f"Process {pid} was asked to stop, and has not done so yet."
            return complain(late, EXIT_NO_ANSWER)
        time.sleep(0.05)
    print_text(f"The recording to {shown(wanted)} has ended.")
    return 0
