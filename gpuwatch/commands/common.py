"""What the commands share: options, the source they make, how they print, exit codes.

Exit codes: 0 done (also when the reader of a pipe has gone), 2 the request cannot be met as it
was made, 69 no answer from the machine, 70 a bug, 74 the output cannot be written, 130
interrupted.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from gpuwatch.core.model import ProcessKey, Snapshot
    from gpuwatch.core.source import JobReader, ReadOptions, Source

EXIT_USAGE = 2
EXIT_NO_ANSWER = 69
EXIT_BUG = 70
EXIT_OUTPUT = 74
EXIT_INTERRUPTED = 130

GPUS_MAX = 64

OPEN_FILES_LEAST = 64
"""The dashboard has 18 open without a GPU; a driver opens some for each."""
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

F = TypeVar("F", bound=Callable[..., Any])


class ReaderGoneError(Exception):
    """The reader of standard output has gone. (click ends with 1 on a ``BrokenPipeError``.)"""


class NoOutputError(Exception):
    """Standard output cannot be written; the message is a sentence."""


def _interval(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    # The bounds of the sampler, which is not imported here: it brings asyncio.
    if not 0.1 <= value <= 3600:
        raise click.BadParameter(f"{value:g} seconds is not between 0.1 and 3600.")
    return value


_UNITS = {"s": 1.0, None: 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: str, least: float, most: float) -> float:
    """Seconds of ``90s``, ``15m``, ``12h``, ``2d``; raises ``click.BadParameter``."""
    found = re.fullmatch(r"\s*(\d{1,6}(?:\.\d{1,3})?)\s*(s|m|min|h|d)?\s*", value, re.ASCII)
    if found is None:
        raise click.BadParameter("write it as 60s, 2m or 1h.")
    seconds = float(found[1]) * _UNITS[found[2]]
    if not least <= seconds <= most:
        raise click.BadParameter(f"it must be between {_told(least)} and {_told(most)}.")
    return seconds


def _told(seconds: float) -> str:
    for unit, name in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second")):
        if seconds >= unit and seconds % unit == 0 and (seconds != 86400.0 or name != "day"):
            number = seconds / unit
            return f"{number:g} {name}{'' if number == 1 else 's'}"
    return f"{seconds:g} seconds"


def source_options(command: F) -> F:
    """The options that say what is watched; the same for every command."""
    for option in (
        click.option(
            "-a",
            "--all",
            "all_processes",
            is_flag=True,
            help="Show all processes, not only those related to GPUs.",
        ),
        click.option(
            "--gpus",
            type=click.IntRange(0, GPUS_MAX),
            help="How many GPUs the simulated machine has.  [default: 1]",
        ),
        click.option(
            "--demo",
            is_flag=False,
            flag_value="starved",
            metavar="[SCENARIO]",
            help="Watch a simulated machine instead of this one (an unknown name lists all).",
        ),
    ):
        command = option(command)
    return command


def interval_option(command: F) -> F:
    return click.option(
        "-i",
        "--interval",
        type=float,
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        callback=_interval,
        help="Seconds between readings, 0.1 to 3600.",
    )(command)


def _pid(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    from gpuwatch.jobs.identity.attach import AttachError, parse_pid

    try:
        return parse_pid(value)
    except AttachError as error:
        raise click.UsageError(str(error)) from None


def pid_option(command: F) -> F:
    return click.option(
        "--pid",
        callback=_pid,
        metavar="PID",
        help="Watch only the job of this process (any of its processes).",
    )(command)


def attach_to(source: Source, pid: int) -> tuple[str, ...]:
    """Have ``source`` read the job of ``pid`` closely; notes about it for a person.

    Raises ``click.UsageError`` where there is nothing to attach to.
    """
    key, notes = _simulated_key(source, pid) if source.simulated else _local_key(pid)
    source.options.attached = key
    return notes


def attached_only(snapshot: Snapshot, pid: int) -> Snapshot:
    """The snapshot of the attached job alone. Raises ``click.UsageError`` when it is not there."""
    from gpuwatch.jobs.identity.job_filter import only_job

    for job in snapshot.jobs:
        if job.attached:
            return only_job(snapshot, job.key)
    raise click.UsageError(f"The job of process {pid} ended before it could be read.")


def _local_key(pid: int) -> tuple[ProcessKey, tuple[str, ...]]:
    from gpuwatch.jobs.identity.attach import AttachError, resolve

    try:
        found = resolve(pid)
    except AttachError as error:
        raise click.UsageError(str(error)) from None
    return (found.pid, found.started_at_unix_seconds), found.notes


def _simulated_key(source: Source, pid: int) -> tuple[ProcessKey, tuple[str, ...]]:
    from gpuwatch.sources.simulated.source import SimulatedSource

    assert isinstance(source, SimulatedSource)
    key = source.find(pid)
    if key is None:
        raise click.UsageError(
            f"The simulated machine has no process {pid}: gpuwatch status --demo lists them."
        )
    return key, ()


def check_targets(*targets: str | None) -> None:
    """Refuse what is no target, before torch is imported. Raises ``click.UsageError``."""
    from gpuwatch.tuning.child.target import parse
    from gpuwatch.tuning.failures import MeasureError

    for one in filter(None, targets):
        try:
            parse(one)
        except MeasureError as error:
            raise click.UsageError(str(error)) from None


COMMAND_NAMES = (
    "compare",
    "demo-job",
    "diagnose",
    "explain",
    "export",
    "record",
    "replay",
    "report",
    "run",
    "stacks",
    "status",
    "stream",
    "tune",
)


def _job_tracker(options: ReadOptions) -> JobReader:
    from gpuwatch.core.source import SystemClock
    from gpuwatch.jobs.tracking.tracker import JobTracker

    return JobTracker(SystemClock(), options)


def make_source(
    demo: str | None, gpus: int | None, all_processes: bool, interval: float = 1.0
) -> Source:
    from gpuwatch.core.source import ReadOptions

    options = ReadOptions(interval_seconds=interval, all_processes=all_processes)
    if demo is None:
        if gpus is not None:
            raise click.UsageError("--gpus sets the size of the simulated machine: add --demo.")
        from gpuwatch.sources.local import LocalSource

        return LocalSource(options=options, jobs=_job_tracker(options))
    from gpuwatch.sources.simulated.source import SCENARIOS, SimulatedSource

    if demo not in SCENARIOS:
        from gpuwatch.core.text import clean

        hint = f"; the command goes first: gpuwatch {demo} --demo" if demo in COMMAND_NAMES else ""
        raise click.UsageError(
            f"There is no scenario {clean(demo, 60)!r}{hint}: choose one of {', '.join(SCENARIOS)}."
        )
    return SimulatedSource(demo, 1 if gpus is None else gpus, options=options)


def complain(sentence: str, code: int) -> int:
    if sys.stderr is not None:
        try:
            print(f"gpuwatch: {sentence}", file=sys.stderr)
        except OSError:
            # A terminal that has gone away takes the sentence with it.
            return code
    return code


def can_write(out: TextIO, text: str) -> bool:
    """Whether the output's encoding has all of these characters."""
    try:
        text.encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def is_terminal(stream: TextIO | None) -> bool:
    # None: the descriptor was closed before the start.
    return stream is not None and stream.isatty()


def is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"


def terminal_width(out: TextIO) -> int:
    try:
        columns = os.get_terminal_size(out.fileno()).columns
    except OSError:
        columns = 0
    # A serial line says 0 when it does not know.
    return columns or 80


class StatusLine:
    """One line on a terminal's standard error that says how it goes, and is gone at the end."""

    def __init__(self, seconds_apart: float, *, first_after_seconds: float = 0.0) -> None:
        self._shown = is_terminal(sys.stderr) and not is_dumb()
        self._seconds_apart = seconds_apart
        self._next = time.monotonic() + first_after_seconds
        self._width = 0

    @property
    def due(self) -> bool:
        """Whether what is shown now would be written."""
        return self._shown and time.monotonic() >= self._next

    def show(self, text: str) -> None:
        """Write ``text``, cut to the terminal, unless the last was a moment ago."""
        if not self.due:
            return
        self._next = time.monotonic() + self._seconds_apart
        line = text[: max(10, terminal_width(sys.stderr) - 1)]
        self._write(f"\r{line:<{self._width}}")
        self._width = len(line)

    def end(self) -> None:
        if self._width:
            self._write(f"\r{'':<{self._width}}\r")
            self._width = 0

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            self._shown = False


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM (``timeout``, a batch system) ends what is inside as Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        # Not in the main thread, so no signal comes here.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_open_files() -> None:
    """Raises ``click.UsageError`` where too few files may be open at once for most of this to
    work, and what fails first would be anything."""
    try:
        import resource
    except ImportError:
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_LEAST:
        raise click.UsageError(
            f"Only {soft} files may be open at once here, and gpuwatch needs {OPEN_FILES_LEAST}: "
            "run 'ulimit -n 1024' first."
        )


def open_output() -> TextIO:
    if sys.stdout is None:
        raise NoOutputError("Standard output is closed, so there is nowhere to print to.")
    # A locale that lacks a character must not end the command.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    return sys.stdout


def write_to(out: TextIO, write: Callable[[], object]) -> None:
    try:
        write()
        out.flush()
    except BrokenPipeError as error:
        raise ReaderGoneError from error
    except OSError as error:
        raise NoOutputError(cannot_write(error)) from error


def cannot_write(error: OSError) -> str:
    return f"The output cannot be written: {error.strerror}."
