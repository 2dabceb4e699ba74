"""``gpuwatch record``: snapshots into a file, for hours.

Exit codes: 0 also when a signal ended it, 74 where the file could not be written at the end.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gpuwatch.commands.options import Duration, Watched, watched_options
from gpuwatch.commands.printing import (
    EXIT_BUG,
    EXIT_NO_ANSWER,
    EXIT_OUTPUT,
    STANDARD_STREAM,
    NoOutputError,
    ReaderGoneError,
    StatusLine,
    complain,
    print_text,
    shown,
)
from gpuwatch.commands.watching import EARLY_BY_SECONDS, watch
from gpuwatch.core import units
from gpuwatch.core.text import SentenceError, clean

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.source import Source
    from gpuwatch.recording.recorder import BackgroundRecorder, RecordingState

FOR_MOST_SECONDS = 366 * 86400.0
ROTATE_LEAST_SECONDS = 60.0
_STATUS_SECONDS = 1.0
FILES = ["slurm-prolog.sh", "slurm-epilog.sh", "slurm-mail.sh"]
_SLURM_JOB = re.compile(r"\d{1,10}", re.ASCII)


def _job_number(_context: object, _option: object, value: str | None) -> str | None:
    if value is not None and _SLURM_JOB.fullmatch(value) is None:
        raise click.BadParameter(
            f"{clean(value, 60)!r} is not the number of a Slurm job. A task of an array has one "
            "too: squeue --format %A prints it."
        )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    path: Path
    """Whole: a detached recording is in another folder."""
    seconds: float | None
    rotate: float | None
    keep: int | None
    redact: bool
    watched: Watched


@click.command("record")
@click.argument("file", required=False, metavar="FILE")
@click.option("-o", "--output", "output", metavar="FILE", help="FILE, named as an option.")
@click.option(
    "--for",
    "seconds",
    type=Duration(1.0, FOR_MOST_SECONDS),
    help="Stop after this time: 90s, 15m, 12h, 2d.  [default: until Ctrl-C]",
)
@click.option(
    "--rotate",
    type=Duration(ROTATE_LEAST_SECONDS, FOR_MOST_SECONDS),
    help="Start a new file this often; the old one gets its start time in its name.",
)
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N", help="Keep N old files.  [default: all]"
)
@click.option("--redact", is_flag=True, help="Redact possible secrets and personal data.")
@watched_options()
@click.option(
    "--slurm-job",
    callback=_job_number,
    metavar="JOBID",
    help="Only this Slurm job: its processes, and the GPUs that it uses or that --gpu names.",
)
@click.option("--detach", is_flag=True, help="Run in the background, also without a terminal.")
@click.option("--stop", metavar="FILE", help="Stop the recording to FILE.")
@click.option(
    "--print",
    "printed",
    type=click.Choice(FILES),
    help="Print a script that has Slurm record every job, and exit (see docs/hosts.md).",
)
def record_command(
    file: str | None,
    output: str | None,
    detach: bool,
    stop: str | None,
    printed: str | None,
    **options: Any,
) -> int:
    """Record this machine into FILE, for replay, report, compare and diagnose.

    FILE is compressed if its name ends in .zst. It is appended to and can be read while it is
    written: a crash costs the last few seconds. If the disk fills up, recording continues as soon
    as there is room.

    Only you can read the file: it contains command lines, user names, names of hosts, folders and
    the names of containers and Python environments, but no environment variables other than those
    that identify a job's ranks. --redact keeps only program names, user numbers, PIDs, Slurm job
    numbers, and the GPUs' UUIDs and PCI addresses.
    """
    if printed is not None:
        print_text(Path(__file__).with_name("files").joinpath(printed).read_text("utf-8"))
        return 0
    if stop is not None:
        return stop_recording(stop)
    if file is not None and output is not None:
        raise click.UsageError(f"Name one file to record to: {shown(file)}, or -o {shown(output)}.")
    name = output if file is None else file
    if name is None:
        raise click.UsageError("Name the file to record to: gpuwatch record run.jsonl.zst")
    if name == STANDARD_STREAM:
        raise click.UsageError("record writes a file: gpuwatch stream prints snapshots.")
    path = Path(os.path.abspath(name))  # noqa: PTH100 - resolve() would follow links
    request = Request(path=path, **options)
    if request.watched.pid is not None and request.watched.slurm_job is not None:
        raise click.UsageError("Choose either --pid or --slurm-job.")
    if request.keep is not None and request.rotate is None:
        raise click.UsageError("--keep limits the files that --rotate puts aside: add --rotate 1h.")
    if not detach:
        return record(request)
    return detached(path, lambda ready: record(request, ready))


def record(request: Request, ready: Callable[[], None] = lambda: None) -> int:
    """Record until it is over and say so; the exit code. ``ready`` is called once it has begun."""
    return _report_end(*recorded(request, ready))


def recorded(
    request: Request, ready: Callable[[], None] = lambda: None
) -> tuple[RecordingState, float, bool]:
    """Record until it is over; the state, the seconds watched, and whether the file is whole."""
    import asyncio

    from gpuwatch.recording.recorder import BackgroundRecorder, Recorder

    watched = request.watched
    source, notes = watched.open()
    for note in notes:
        complain(note)
    plain = Recorder(
        request.path, rotate_seconds=request.rotate, keep=request.keep, redact=request.redact
    )
    recorder = BackgroundRecorder(plain)
    ready()
    progress = _Progress(recorder, request.seconds)
    try:
        # Before the signal has its handler.
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_recorded(request, source, progress))
    finally:
        whole = recorder.close()
        progress.line.end()
    if recorder.error is not None:
        raise recorder.error
    return recorder.state, progress.seconds, whole


async def _recorded(request: Request, source: Source, progress: _Progress) -> None:
    """Record until the time is over, the job has ended, or a signal comes."""
    import asyncio

    from gpuwatch.core.sampler import Sampler

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Not in the main thread, so no signal comes here.
        with contextlib.suppress(ValueError, RuntimeError):
            loop.add_signal_handler(number, task.cancel)
    watched = request.watched
    sampler = Sampler(source, watched.interval_seconds)
    with contextlib.suppress(asyncio.CancelledError):
        await watch(watched.pid, sampler, progress.take, request.seconds, users=watched.users)


class _Progress:
    def __init__(self, recorder: BackgroundRecorder, limit: float | None) -> None:
        self.line = StatusLine(_STATUS_SECONDS - EARLY_BY_SECONDS)
        self.seconds = 0.0
        self._limit = limit
        self._recorder = recorder
        self._troubled = False
        self._noticed: str | None = None

    def take(self, snapshot: Snapshot, passed: float) -> None:
        self._recorder.push(snapshot)
        if self._recorder.error is not None:
            raise self._recorder.error
        self.seconds = passed
        state = self._recorder.state
        self._report_trouble(state)
        if self.line.due:
            self.line.show(status_text(state, passed, self._limit))

    def _report_trouble(self, state: RecordingState) -> None:
        if (state.trouble is not None) != self._troubled:
            self._troubled = state.trouble is not None
            missing = units.plural(state.lost_snapshots, "snapshot")
            again = f"It can be written again, with {missing} missing."
            self.line.complain(state.trouble or again)
        if state.notice is not self._noticed:
            # Each happening is a sentence of its own, also where it reads like the one before.
            self._noticed = state.notice
            self.line.complain(str(state.notice))


def _report_end(state: RecordingState, watched: float, whole: bool) -> int:
    what = units.plural(state.snapshots, "snapshot")
    sentence = f"Recorded {what} of {units.age(round(watched))} to {shown(state.path)}"
    sentence += f" ({units.size(state.written_bytes)})"
    if state.findings:
        sentence += f", with {units.plural(state.findings, 'finding')}"
    if state.lost_snapshots:
        sentence += f"; {units.plural(state.lost_snapshots, 'snapshot')} lost"
    with contextlib.suppress(OSError, NoOutputError, ReaderGoneError):
        named = shown(shlex.quote(str(state.path)))
        print_text(f"{sentence}. gpuwatch report {named} says what happened.")
    if state.trouble is not None:
        return complain((state.trouble + " ").partition(". ")[0] + ".", EXIT_OUTPUT)
    if not whole:
        return complain("The disk does not respond: the last moments may be missing.", EXIT_OUTPUT)
    return 0


def status_text(state: RecordingState, watched: float, limit: float | None) -> str:
    """``recording to run.jsonl.zst  1.2M  60 snapshots  2 findings  59m02 left``."""
    parts = [
        f"recording to {shown(state.path.name)}",
        units.size(state.written_bytes),
        units.plural(state.snapshots, "snapshot"),
        units.plural(state.findings, "finding"),
    ]
    if state.lost_snapshots:
        parts.append(f"{state.lost_snapshots} missing")
    if limit is None:
        parts.append(units.age(watched))
    else:
        parts.append(f"{units.age(max(0.0, limit - watched))} left")
    return "  ".join([*parts, "(Ctrl-C ends it)"])


# Recordings that run: --detach and --stop

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
