"""Recordings that run: ``gpuwatch record --list``, ``--stop`` and ``--detach``."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from gpuwatch.commands.printing import EXIT_BUG, EXIT_NO_ANSWER, complain, print_text, shown
from gpuwatch.core import units
from gpuwatch.core.text import SentenceError
from gpuwatch.recording.running import RunningRecording, process_mark, running_recordings

STOP_SECONDS = 15.0
"""How long --stop waits for an end to be written."""
_SILENT_SECONDS = 60.0
"""Written to more seldom than that, a recording is in trouble."""
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
        f"gpuwatch record --stop {child} ends it."
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


def list_recordings() -> int:
    found = running_recordings()
    lines = [_described(recording) for recording in found] or ["No recording is running."]
    print_text("\n".join(lines))
    return 0


def _described(recording: RunningRecording) -> str:
    now = time.time()
    trouble = recording.trouble
    try:
        file = Path(recording.path).stat()
        taken = units.size(file.st_size)
        # Its own note may lie on the disk that is full.
        silent = now - max(file.st_mtime, recording.started_at_unix_seconds)
        if trouble is None and silent > _SILENT_SECONDS + 3 * recording.interval_seconds:
            trouble = f"Nothing was written for {units.age(silent)}."
    except OSError as error:
        taken = "-"
        trouble = trouble or f"The file cannot be seen: {error.strerror}."
    parts = [
        f"{recording.pid:>7}",
        f"{taken:>6}",
        f"for {units.age(max(0.0, now - recording.started_at_unix_seconds))}",
    ]
    if recording.until_unix_seconds is not None:
        parts.append(f"{units.age(max(0.0, recording.until_unix_seconds - now))} left")
    parts.append(shown(recording.path))
    notes = [
        *(["detached"] if recording.detached else []),
        *(["redacted"] if recording.redacted else []),
        *(["simulated"] if recording.simulated else []),
        *([] if recording.watched_pid is None else [f"job of {recording.watched_pid}"]),
    ]
    line = "  ".join(parts) + (f"  ({', '.join(notes)})" if notes else "")
    return line if trouble is None else f"{line}\n         {trouble}"


def stop_recordings(wanted: str) -> int:
    chosen = _chosen(wanted)
    marks = {recording.pid: _ask_to_end(recording.pid) for recording in chosen}
    deadline = time.monotonic() + STOP_SECONDS
    code = 0
    for recording in chosen:
        mark = marks[recording.pid]
        while mark is not None and process_mark(recording.pid) == mark:
            if time.monotonic() >= deadline:
                code = complain(
                    f"Process {recording.pid} was asked to stop, and has not done so yet.",
                    EXIT_NO_ANSWER,
                )
                break
            time.sleep(0.02)
        else:
            print_text(f"The recording to {shown(recording.path)} has ended.")
    return code


def _ask_to_end(pid: int) -> str | None:
    """The mark of the process that was signalled; ``None`` where its recording had ended."""
    from gpuwatch.sources.linux.signals import pinned

    with contextlib.suppress(ProcessLookupError), pinned(pid) as send:
        # Looked at again once pinned: its PID may be another's by now.
        mark = process_mark(pid)
        if any(recording.pid == pid for recording in running_recordings()):
            send(signal.SIGTERM)
            return mark
    return None


def _chosen(wanted: str) -> list[RunningRecording]:
    """The recordings that --stop means. Raises ``click.UsageError``."""
    found = running_recordings()
    if not found:
        raise click.UsageError("No recording is running.")
    if wanted == "all" or (wanted == "" and len(found) == 1):
        return found
    if wanted == "":
        raise click.UsageError(
            f"{len(found)} recordings are running: name the PID or the file of one (gpuwatch "
            "record --list), or all."
        )
    path = os.path.realpath(wanted)
    same = [
        recording
        for recording in found
        if str(recording.pid) == wanted or os.path.realpath(recording.path) == path
    ]
    if not same:
        raise click.UsageError(
            f"No running recording is {shown(wanted)}: gpuwatch record --list shows them."
        )
    return same
