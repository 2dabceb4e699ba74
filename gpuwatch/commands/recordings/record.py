"""``gpuwatch record``: snapshots into a file, for hours.

Exit codes: 0 also when a signal ended it, 74 where the file could not be written at the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpuwatch.commands import common

if TYPE_CHECKING:
    import asyncio

    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.source import Source
    from gpuwatch.recording.recorder import BackgroundRecorder, RecordingState
    from gpuwatch.recording.running import RunningRecording

FOR_MOST_SECONDS = 366 * 86400.0
ROTATE_LEAST_SECONDS = 60.0
STOP_SECONDS = 15.0
"""How long --stop waits for an end to be written."""
_EARLY_BY_SECONDS = 0.05
_STATUS_SECONDS = 1.0
_SILENT_SECONDS = 60.0
"""Written to more seldom than that, a recording is in trouble."""
_READY = "ready"
_Callback = Callable[[click.Context, click.Parameter, str | None], float | None]


def _time_option(least: float, most: float) -> _Callback:
    def callback(
        _context: click.Context, _parameter: click.Parameter, value: str | None
    ) -> float | None:
        return None if value is None else common.parse_duration(value, least, most)

    return callback


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be recorded, and how."""

    path: Path
    seconds: float | None
    interval: float
    rotate: float | None
    keep: int | None
    redact: bool
    pid: int | None
    all_processes: bool
    gpus: int | None
    demo: str | None
    detached: bool

    def source(self) -> Source:
        return common.make_source(self.demo, self.gpus, self.all_processes, self.interval)


@click.command("record")
@click.option(
    "-o", "--output", "output", metavar="FILE", help="The file, compressed if it ends in .zst."
)
@click.option(
    "--for",
    "seconds",
    callback=_time_option(1.0, FOR_MOST_SECONDS),
    metavar="TIME",
    help="Stop after this time: 90s, 15m, 12h, 2d.  [default: until Ctrl-C]",
)
@click.option(
    "-i",
    "--interval",
    default="1s",
    show_default=True,
    callback=_time_option(0.1, 3600.0),
    metavar="TIME",
    help="Time between readings, 0.1s to 1h.",
)
@click.option(
    "--rotate",
    callback=_time_option(ROTATE_LEAST_SECONDS, FOR_MOST_SECONDS),
    metavar="TIME",
    help="Start a new file this often; the old one gets its start time in its name.",
)
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N", help="Keep N such old files.  [default: all]"
)
@click.option("--redact", is_flag=True, help="Omit what may be secret or identify a person.")
@common.source_options
@common.pid_option
@click.option("--detach", is_flag=True, help="Run in the background, also without a terminal.")
@click.option("--list", "as_list", is_flag=True, help="List running recordings.")
@click.option(
    "--stop",
    is_flag=False,
    flag_value="",
    metavar="[PID|FILE]",
    help="Stop a running recording (all of them: --stop all).",
)
def record_command(
    output: str | None,
    seconds: float | None,
    interval: float,
    rotate: float | None,
    keep: int | None,
    redact: bool,
    all_processes: bool,
    gpus: int | None,
    demo: str | None,
    pid: int | None,
    detach: bool,
    as_list: bool,
    stop: str | None,
) -> int:
    """Record this machine into FILE, for replay, report, compare and diagnose.

    FILE is appended to, and can be read while it is written: after a crash all but the last few
    seconds are there. If the disk fills up, it keeps what it has and continues as soon as it can.

    Only you can read the file, since it contains command lines (with their arguments), user names,
    the host name, folders and the names of containers and Python environments. It never contains
    environment variables other than those that identify a job's ranks. With --redact it has only
    program names and user numbers, and no host, folder, container or environment; the GPUs' UUIDs
    and PCI addresses, PIDs and Slurm job numbers stay.
    """
    if as_list:
        return _list()
    if stop is not None:
        return _stop(stop)
    if output is None:
        raise click.UsageError("Name the file to record to: gpuwatch record -o run.jsonl.zst")
    if keep is not None and rotate is None:
        raise click.UsageError("--keep limits the files that --rotate puts aside: add --rotate 1h.")
    request = Request(
        path=Path(os.path.abspath(output)),  # noqa: PTH100 - resolve() would follow links
        seconds=seconds,
        interval=interval,
        rotate=rotate,
        keep=keep,
        redact=redact,
        pid=pid,
        all_processes=all_processes,
        gpus=gpus,
        demo=demo,
        detached=detach,
    )
    return _detach(request) if detach else _record(request)


def _shown(path: Path | str) -> str:
    from gpuwatch.core.text import clean

    return clean(str(path), 200)


# --- recording -------------------------------------------------------------------------------


def _record(request: Request, ready: Callable[[], None] = lambda: None) -> int:
    import asyncio

    from gpuwatch.recording.recorder import BackgroundRecorder, Recorder, RecordingError
    from gpuwatch.recording.running import RunningRecording, announced

    source = request.source()
    for note in () if request.pid is None else common.attach_to(source, request.pid):
        common.complain(note, 0)
    try:
        plain = Recorder(
            request.path,
            rotate_seconds=request.rotate,
            keep=request.keep,
            redact=request.redact,
        )
    except RecordingError as error:
        raise click.UsageError(str(error)) from None
    now = time.time()
    running = RunningRecording(
        pid=os.getpid(),
        path=str(request.path),
        started_at_unix_seconds=now,
        until_unix_seconds=None if request.seconds is None else now + request.seconds,
        interval_seconds=request.interval,
        detached=request.detached,
        redacted=request.redact,
        watched_pid=request.pid,
        simulated=source.simulated,
    )
    recorder = BackgroundRecorder(plain)
    with announced(running) as announcement:
        ready()
        watch = _Watch(request, source, recorder, announcement.tell)
        try:
            asyncio.run(watch.run())
        except KeyboardInterrupt:
            # Before the signal had its handler.
            pass
        finally:
            whole = recorder.close()
            watch.status.end()
    if recorder.error is not None:
        raise recorder.error
    return _tell_end(recorder.state, watch.watched_seconds, whole)


class _Watch:
    """Takes snapshots until the time is over, a signal comes or the job has ended."""

    def __init__(
        self,
        request: Request,
        source: Source,
        recorder: BackgroundRecorder,
        announce: Callable[[str | None], None],
    ) -> None:
        self.status = common.StatusLine(_STATUS_SECONDS - _EARLY_BY_SECONDS)
        self._announce = announce
        self.watched_seconds = 0.0
        self._request = request
        self._source = source
        self._recorder = recorder
        self._stop: asyncio.Event | None = None
        self._began: float | None = None
        self._troubled = False
        self._noticed: str | None = None

    async def run(self) -> None:
        import asyncio

        from gpuwatch.core.sampler import Sampler

        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Not in the main thread, so no signal comes here.
            with contextlib.suppress(ValueError, RuntimeError):
                loop.add_signal_handler(number, self._stop.set)
        sampler = Sampler(self._source, self._request.interval)
        tasks = [
            asyncio.create_task(sampler.run(self._deliver)),
            asyncio.create_task(self._stop.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            sampler.close()

    def _deliver(self, snapshot: Snapshot) -> None:
        request = self._request
        assert self._stop is not None
        if self._stop.is_set():
            return
        shown = snapshot
        if request.pid is not None:
            shown = common.attached_only(snapshot, request.pid)
        self._recorder.push(shown)
        if self._recorder.error is not None:
            raise self._recorder.error
        now = snapshot.monotonic_seconds
        self._began = now if self._began is None else self._began
        self.watched_seconds = now - self._began
        state = self._recorder.state
        self._tell_trouble(state)
        limit = request.seconds
        if self.status.due:
            self.status.show(status_text(state, self.watched_seconds, limit))
        over = request.pid is not None and shown.jobs[0].ended_at_unix_seconds is not None
        # A look that comes a little early is the last one all the same.
        if over or (limit is not None and self.watched_seconds >= limit - _EARLY_BY_SECONDS):
            self._stop.set()

    def _tell_trouble(self, state: RecordingState) -> None:
        if (state.trouble is not None) != self._troubled:
            self._announce(state.trouble)
        if state.trouble is not None and not self._troubled:
            self.status.end()
            common.complain(state.trouble, 0)
        elif state.trouble is None and self._troubled:
            self.status.end()
            missing = _count(state.lost_snapshots, "snapshot is", "snapshots are")
            common.complain(f"It can be written again: {missing} missing.", 0)
        self._troubled = state.trouble is not None
        if state.notice is not self._noticed:
            # Each happening is a sentence of its own, also where it reads like the one before.
            self._noticed = state.notice
            self.status.end()
            common.complain(str(state.notice), 0)


def _tell_end(state: RecordingState, watched: float, whole: bool) -> int:
    from gpuwatch.core.units import size

    what = _count(state.snapshots, "snapshot", "snapshots")
    sentence = f"Recorded {what} of {_time(watched)} to {_shown(state.path)}"
    sentence += f" ({size(state.written_bytes)})"
    if state.findings:
        sentence += f", with {_count(state.findings, 'finding', 'findings')}"
    if state.lost_snapshots:
        sentence += f"; {_count(state.lost_snapshots, 'snapshot', 'snapshots')} lost"
    with contextlib.suppress(OSError, common.NoOutputError, common.ReaderGoneError):
        out = common.open_output()
        common.write_to(out, lambda: out.write(f"{sentence}.\n"))
    if state.trouble is not None:
        return common.complain((state.trouble + " ").partition(". ")[0] + ".", common.EXIT_OUTPUT)
    if not whole:
        return common.complain(
            "The disk does not respond: the last moments may be missing.", common.EXIT_OUTPUT
        )
    return 0


def status_text(state: RecordingState, watched: float, limit: float | None) -> str:
    """``recording to run.jsonl.zst  1.2M  60 snapshots  2 findings  59 min left``."""
    from gpuwatch.core.units import size

    parts = [
        f"recording to {_shown(state.path.name)}",
        size(state.written_bytes),
        _count(state.snapshots, "snapshot", "snapshots"),
        _count(state.findings, "finding", "findings"),
    ]
    if state.lost_snapshots:
        parts.append(f"{state.lost_snapshots} missing")
    if limit is None:
        parts.append(_time(watched))
    else:
        parts.append(f"{_time(max(0.0, limit - watched))} left")
    return "  ".join([*parts, "(Ctrl-C ends it)"])


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _time(seconds: float) -> str:
    """``45 s``, ``12 min``, ``1 h 05 min``, ``2 d 3 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


# --- in the background -----------------------------------------------------------------------


def _detach(request: Request) -> int:
    """Record in a process of its own session; end once it has begun, or could not."""
    reading, writing = os.pipe()
    if sys.stdout is not None:
        sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_detached(request, writing)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as pipe:
        said = pipe.read()
    first, _, rest = said.partition("\n")
    if first != _READY:
        raise click.UsageError(first or "The recording could not be started.")
    for note in rest.splitlines():
        common.complain(note, 0)
    out = common.open_output()
    text = (
        f"Process {child} records to {_shown(request.path)}, also when this terminal closes. "
        f"gpuwatch record --stop {child} ends it.\n"
    )
    common.write_to(out, lambda: out.write(text))
    return 0


def _run_detached(request: Request, pipe: int) -> NoReturn:
    code = common.EXIT_BUG
    answered = False

    def answer(text: str) -> None:
        nonlocal answered
        if not answered:
            answered = True
            with contextlib.suppress(OSError):
                os.write(pipe, text.encode("utf-8", "replace"))
            os.close(pipe)

    try:
        os.setsid()
        _leave_terminal(pipe)
        code = _record(request, lambda: answer(_READY))
    except click.ClickException as error:
        answer(error.format_message())
        code = error.exit_code
    except BaseException as error:
        answer(f"{type(error).__name__}: {_shown(str(error))}. This is a bug: please report it.")
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


# --- those that run --------------------------------------------------------------------------


def _list() -> int:
    from gpuwatch.recording.running import running_recordings

    out = common.open_output()
    found = running_recordings()
    lines = [_described(recording) for recording in found] or ["No recording is running."]
    common.write_to(out, lambda: out.write("\n".join(lines) + "\n"))
    return 0


def _described(recording: RunningRecording) -> str:
    from gpuwatch.core.units import size

    now = time.time()
    trouble = recording.trouble
    try:
        file = Path(recording.path).stat()
        taken = size(file.st_size)
        # Its own note may lie on the disk that is full.
        silent = now - max(file.st_mtime, recording.started_at_unix_seconds)
        if trouble is None and silent > _SILENT_SECONDS + 3 * recording.interval_seconds:
            trouble = f"Nothing was written for {_time(silent)}."
    except OSError as error:
        taken = "-"
        trouble = trouble or f"The file cannot be seen: {error.strerror}."
    parts = [
        f"{recording.pid:>7}",
        f"{taken:>6}",
        f"for {_time(max(0.0, now - recording.started_at_unix_seconds))}",
    ]
    if recording.until_unix_seconds is not None:
        parts.append(f"{_time(max(0.0, recording.until_unix_seconds - now))} left")
    parts.append(_shown(recording.path))
    notes = [
        *(["detached"] if recording.detached else []),
        *(["redacted"] if recording.redacted else []),
        *(["simulated"] if recording.simulated else []),
        *([] if recording.watched_pid is None else [f"job of {recording.watched_pid}"]),
    ]
    line = "  ".join(parts) + (f"  ({', '.join(notes)})" if notes else "")
    return line if trouble is None else f"{line}\n         {trouble}"


def _stop(wanted: str) -> int:
    from gpuwatch.recording.running import process_mark

    chosen = _chosen(wanted)
    marks = {recording.pid: _ask_to_end(recording.pid) for recording in chosen}
    deadline = time.monotonic() + STOP_SECONDS
    code = 0
    out = common.open_output()
    for recording in chosen:
        mark = marks[recording.pid]
        while mark is not None and process_mark(recording.pid) == mark:
            if time.monotonic() >= deadline:
                code = common.complain(
                    f"Process {recording.pid} was asked to stop, and has not done so yet.",
                    common.EXIT_NO_ANSWER,
                )
                break
            time.sleep(0.02)
        else:
            text = f"The recording to {_shown(recording.path)} has ended.\n"
            common.write_to(out, lambda text=text: out.write(text))  # type: ignore[misc]
    return code


def _ask_to_end(pid: int) -> str | None:
    """The mark of the process that was signalled; ``None`` where its recording had ended."""
    from gpuwatch.recording.running import process_mark, running_recordings
    from gpuwatch.sources.linux.signals import pin

    try:
        descriptor = pin(pid)
    except ProcessLookupError:
        return None
    try:
        # Looked at again once pinned: its PID may be another's by now.
        mark = process_mark(pid)
        if all(recording.pid != pid for recording in running_recordings()):
            return None
        if descriptor is None:
            os.kill(pid, signal.SIGTERM)
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    except ProcessLookupError:
        return None
    else:
        return mark
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _chosen(wanted: str) -> list[RunningRecording]:
    """The recordings that --stop means. Raises ``click.UsageError``."""
    from gpuwatch.recording.running import running_recordings

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
            f"No running recording is {_shown(wanted)}: gpuwatch record --list shows them."
        )
    return same
