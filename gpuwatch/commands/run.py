"""``gpuwatch run``: start a job, watch it, say at its end what it did.

With ``--plain`` the job has gpuwatch's own standard streams. With a terminal it stays in gpuwatch's
process group, so that the keyboard's signals reach it as they always do, and those are not sent on;
see ``gpuwatch.jobs.run.job``. When the job ended by a signal, gpuwatch ends by the same: a shell
that runs a script stops on Ctrl-C only if what it ran was ended by SIGINT, and prints "Killed" or
"Segmentation fault" for whoever looks. A signal that somebody sends to the whole group
(``kill %1``) reaches a job in it twice: by itself, and from gpuwatch, which cannot tell it from one
that was sent to gpuwatch alone.

With the dashboard the job prints to a file that the dashboard shows.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import click

from gpuwatch.commands.options import RunOptions, grouped, look_options, option_interval
from gpuwatch.commands.printing import complain, drawing, has_screen, terminal_width
from gpuwatch.commands.watching import make_source
from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.text import clean
from gpuwatch.core.units import exit_words
from gpuwatch.jobs.run.job import (
    NO_INPUT,
    CannotStartError,
    RunningJob,
    Start,
    has_controlling_terminal,
    start_in_terminal,
    start_plain,
)
from gpuwatch.jobs.run.output import KEPT_BYTES, open_chosen, open_kept

if TYPE_CHECKING:
    from gpuwatch.outputs.experiment.log import ExperimentLog
    from gpuwatch.outputs.report.model import Report
    from gpuwatch.outputs.report.recorder import JobRecorder


def _log_to(_context: object, _option: object, value: str | None) -> str | None:
    if value is None:
        return None
    from gpuwatch.outputs.experiment.log import checked

    return checked(value)


# What follows the command's name is the command's own, options included.
@click.command("run", context_settings={"allow_interspersed_args": False})
@look_options()
@grouped(
    "options",
    RunOptions,
    option_interval(),
    click.option(
        "--plain",
        is_flag=True,
        help="No dashboard: the job has this terminal, pipe or file to itself, and the report "
        "comes at its end.  [default: unless input, output and errors are a terminal]",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write what the job prints to FILE, which is emptied first.  [default: with the "
        "dashboard a file named in its title, of at most 64 MiB; the last 50 are kept]",
    ),
    click.option(
        "--kill-on-exit",
        is_flag=True,
        help="End the job when gpuwatch quits.  [default: it keeps running]",
    ),
    click.option(
        "--no-report", is_flag=True, help="Print no report ('gpuwatch report' still shows it)."
    ),
    click.option(
        "--log-to",
        callback=_log_to,
        metavar="TOOL",
        help="Also log how busy the job's GPUs are, their memory, power and temperature, and what "
        "is found, every 15 seconds: to wandb, mlflow, tensorboard or tensorboard:FOLDER.",
    ),
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGUMENT]...")
def run_command(options: RunOptions, command: tuple[str, ...]) -> int:
    """Start a job and watch it: gpuwatch run -- python train.py

    The job runs as it would without gpuwatch: its environment, input and (with --plain) output are
    untouched, it gets gpuwatch's signals, and gpuwatch exits with its exit code.

    In the dashboard its output goes to a pane and a file, and it has no input. Ctrl-C interrupts
    it (SIGINT), within ten seconds again ends it (SIGTERM), a third time kills it. It survives
    gpuwatch and its terminal: gpuwatch --pid PID watches it again.
    """
    if not command:
        raise click.UsageError("Say what to run, as in: gpuwatch run -- python train.py")
    if options.plain or not has_screen():
        return _run_plain(command, options)
    return run_with_dashboard(command, options._replace(look=options.look.checked()))


# Plain

SENT_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_POLL_SECONDS = 1.0
_PATIENCE_SECONDS = 3.0
"""How long the end of a job waits for one more reading, which has what the driver's buffer holds
of its last moments, and the end itself."""
_READ_SHARE_MOST = 0.2
"""Share of the time that reading may take: the job is to have the rest."""


def _run_plain(command: Sequence[str], options: RunOptions) -> int:
    """Return the exit code; does not return for a job that a signal has ended."""
    start = Start.now()
    output = None if options.output is None else open_chosen(options.output)
    waited = hold_signals()
    job = start_plain(command, start, shares_group=has_controlling_terminal(), output=output)
    if output is not None:
        os.close(output)

    watch = JobWatch(job, options.interval_seconds, options.log_to)
    code = follow(job, waited)
    assert code is not None
    # A terminal that goes sends SIGHUP more than once: the report is kept all the same.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # From here on Ctrl-C is for gpuwatch, which has only the report left to do.
    release_signals(waited)
    with contextlib.suppress(KeyboardInterrupt):
        _report_plain(job, watch, options)
    return code if code >= 0 else end_like(-code)


def hold_signals() -> frozenset[signal.Signals]:
    """Block what is to be sent on, and news of the job, to be waited for; which signals those are.

    What this process ignores since its start (under ``nohup``; SIGINT and SIGQUIT where a script
    started it with ``&``) the job ignores too, unless it has a handler of its own: so it is sent on
    as well, and Linux keeps what is blocked even where it is ignored. To be called while there is
    one thread: others inherit the mask.
    """
    waited = set(SENT_ON)
    # Ignored, it would have the kernel throw the exit code away.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waited.add(signal.SIGCHLD)
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    return frozenset(waited)


def release_signals(waited: Collection[signal.Signals]) -> None:
    """Undo ``hold_signals``; what came in between is forgotten."""
    while signal.sigtimedwait(waited, 0) is not None:
        pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, waited)


def follow(job: RunningJob, waited: Collection[signal.Signals]) -> int | None:
    """Wait for the job to end and send signals on to it; its exit code, negative for a signal.
    ``None``: the terminal, which a job with output of its own does not need, has gone."""
    while (code := job.poll()) is None:
        news = signal.sigtimedwait(waited, _POLL_SECONDS)
        if news is None or news.si_signo == signal.SIGCHLD:
            continue
        # Positive: from the kernel, so from the terminal.
        by_terminal = news.si_code > 0
        if by_terminal and job.shares_group:
            # Which has told the job as well.
            continue
        if job.output_path is not None and news.si_signo == signal.SIGHUP:
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
                return None
        elif by_terminal and news.si_signo == signal.SIGINT:
            complain(job.stop_step())
            continue
        job.signal(news.si_signo)
    return code


def end_like(number: int) -> int:
    """End by the signal that ended the job; what to exit with where that is not possible (the
    first process of a container takes no signals)."""
    import resource

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    # Its core dump is the one worth having.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError, ValueError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    with contextlib.suppress(OSError):
        os.kill(os.getpid(), number)
    return 128 + number


def _report_plain(job: RunningJob, watch: JobWatch, options: RunOptions) -> None:
    ended_at = job.ended_at_unix_seconds
    assert ended_at is not None
    recorder = watch.finish()
    if watch.log is not None:
        end_log(watch.log, job.poll())
    if watch.error is not None:
        detail = f"{type(watch.error).__name__}: {clean(str(watch.error), 200)}"
        complain(
            f"Watching the job failed ({detail}), so there is no report. This is a bug in "
            "gpuwatch: please report it."
        )
    elif recorder is None or not recorder.seen:
        if not options.no_report:
            complain("the job ended before it could be watched: there is no report.")
    else:
        report = recorder.report().with_end(ended_at, exit_code=job.poll())
        _keep_and_print(report, options)


def end_log(log: ExperimentLog, exit_code: int | None) -> None:
    """Wait for the tool a moment; say what went wrong that has not been said."""
    known = len(log.said)
    log.close(exit_code)
    for sentence in log.said[known:]:
        complain(sentence)


def _keep_and_print(report: Report, options: RunOptions) -> None:
    """Keep the report and print it. Nothing that fails here fails more than itself: the exit code
    is the job's."""
    from gpuwatch.outputs.report.store import ReportStore, StoreError

    store, previous = ReportStore(), None
    # Also raised when none has ever been kept.
    with contextlib.suppress(StoreError):
        previous = store.previous_run(report)
    try:
        store.save(report)
    except StoreError as error:
        complain(str(error))
    if not options.no_report and sys.stderr is not None:
        _print(report, previous, sys.stderr)


def _print(report: Report, previous: Report | None, out: TextIO) -> None:
    from gpuwatch.outputs.report.text import report_text

    text = report_text(report, previous=previous, **drawing(out)._asdict())
    # Standard error writes what its locale lacks as an escape.
    with contextlib.suppress(OSError):
        print(text, file=out, flush=True)


class JobWatch:
    """Reads the machine on a daemon thread, and records one job, from now on. Nothing that is slow,
    hangs or fails in it can hold up or end the program; its imports are made there too."""

    def __init__(self, job: RunningJob, interval_seconds: float, log_to: str | None) -> None:
        self._key, self._command = job.key, job.command
        self._log_to = log_to
        self.log: ExperimentLog | None = None
        self._interval_seconds = interval_seconds
        self._recorder: JobRecorder | None = None
        self._ended = threading.Event()
        worker = DaemonWorker("gpuwatch-watch")
        self._watching = worker.submit(self._watch)
        worker.stop()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the watching: a bug."""
        return self._watching.error

    def finish(self) -> JobRecorder | None:
        """Take a last look at the job, which has ended, and stop; what was recorded. ``None`` if it
        was never seen, or the watching has failed (see ``error``) or hangs."""
        recorder = self._recorder
        if not self._watching.done and (recorder is None or not recorder.seen):
            # It ended before there was a first look at it.
            return None
        self._ended.set()
        over = self._watching.wait(_PATIENCE_SECONDS)
        return recorder if over and self.error is None else None

    def _watch(self) -> None:
        from gpuwatch.diagnosis.engine import Engine
        from gpuwatch.outputs.report.accumulator import EVALUATE_SECONDS
        from gpuwatch.outputs.report.recorder import JobRecorder

        source = make_source(None, False, self._interval_seconds)
        source.options.attached = self._key
        source.options.interval_seconds = self._interval_seconds
        self._recorder = JobRecorder(self._key, command=self._command)
        source.open()
        # As a recording of the same time is diagnosed.
        engine = Engine(evaluate_seconds=EVALUATE_SECONDS)
        if self._log_to is not None:
            from gpuwatch.outputs.experiment.log import ExperimentLog

            self.log = ExperimentLog(self._log_to, self._key, self._command)
        last = False
        while not last:
            last = self._ended.is_set()
            began = time.monotonic()
            snapshot = source.read()
            engine.push(snapshot)
            self._recorder.push(snapshot, engine.diagnosis)
            if self.log is not None:
                for sentence in self.log.push(snapshot, engine.ledger):
                    complain(sentence)
            took = time.monotonic() - began
            self._ended.wait(max(self._interval_seconds - took, took / _READ_SHARE_MOST - took))
        engine.finish()
        self._recorder.note_diagnosis(engine.diagnosis)
        source.close()


# With the dashboard

_PANE_ROWS = 10
"""Until the dashboard knows better."""

Handler = Callable[[int, FrameType | None], object]


def run_with_dashboard(command: Sequence[str], options: RunOptions) -> int:
    """Return the exit code: the job's, or 0 if it goes on."""
    start = Start.now()
    job = _start_shown(command, start, options.output)
    job.ends_with_gpuwatch = options.kill_on_exit
    try:
        left_with = _show(job, options)
        watched_to_its_end = job.poll() is not None
        if not watched_to_its_end:
            _leave(job, left_with, options)
        return _end(job, options, watched_to_its_end=watched_to_its_end)
    except BaseException:
        # A bug here is none of the job's.
        if job.poll() is None:
            if options.kill_on_exit:
                job.end()
            else:
                _say_that_it_goes_on(job)
        raise
    finally:
        job.close()


def _start_shown(command: Sequence[str], start: Start, chosen: Path | None) -> RunningJob:
    """Start ``command``: what it prints goes to the file ``chosen``, or to one that is kept.
    Raises ``SentenceError`` or ``CannotStartError``."""
    if chosen is None:
        output, path = open_kept(command)
    else:
        output, path = open_chosen(chosen), chosen.absolute()
    most, size = None if chosen else KEPT_BYTES, (terminal_width(sys.stderr), _PANE_ROWS)
    try:
        return start_in_terminal(
            command, start, output=output, path=path, most_bytes=most, size=size
        )
    except CannotStartError:
        if chosen is None:
            path.unlink(missing_ok=True)
        raise


def _show(job: RunningJob, options: RunOptions) -> int:
    """Show the dashboard until it is left; its exit code."""
    source = make_source(None, False, options.interval_seconds)

    from gpuwatch.core.sampler import Sampler

    sampler = Sampler(source, options.interval_seconds)
    # The driver wakes up while the interface is imported.
    sampler.start_opening()

    from gpuwatch.tui.app import run_dashboard

    _listen(job, options.kill_on_exit)
    looks, log = options.look.options(), None
    if options.log_to is not None:
        from gpuwatch.outputs.experiment.log import ExperimentLog

        log = looks["experiment"] = ExperimentLog(options.log_to, job.key, job.command)
    code = run_dashboard(source, sampler, **looks, attached=job.key, running=job)
    if log is not None:
        for sentence in log.said:
            complain(sentence)
        end_log(log, job.poll())
    return code


def _listen(job: RunningJob, kill_on_exit: bool) -> None:
    """Handle the signals that the dashboard would end by without a word."""

    def send_on(number: int, _frame: FrameType | None) -> None:
        job.signal(number)

    def terminal_gone(number: int, _frame: FrameType | None) -> None:
        job.end()
        os._exit(128 + number)

    handlers: dict[signal.Signals, Handler] = {signal.SIGUSR1: send_on, signal.SIGUSR2: send_on}
    if kill_on_exit:
        handlers[signal.SIGHUP] = terminal_gone
    for number, handler in handlers.items():
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, handler)


def _leave(job: RunningJob, left_with: int, options: RunOptions) -> None:
    number = left_with - 128
    if options.kill_on_exit:
        complain("ending the job (SIGTERM, and after ten seconds SIGKILL) ...")
        job.end()
    elif number in SENT_ON and number != signal.SIGHUP:
        # Not left by a key but sent a signal, which is the job's; it may take its time over it.
        waited = hold_signals()
        job.signal(number)
        complain(
            f"sent {signal.Signals(number).name} to the job (PID {job.pid}) and wait for it to "
            "end; Ctrl-C asks for more"
        )
        follow(job, waited)
        release_signals(waited)


def _end(job: RunningJob, options: RunOptions, *, watched_to_its_end: bool) -> int:
    code = job.poll()
    if code is None:
        _say_that_it_goes_on(job)
        return 0
    how = f"{'ended with' if code >= 0 else 'was'} {exit_words(code)}"
    complain(f"the job {how}; its output is in {_quoted(job)}")
    if job.missed_input:
        complain(f"{NO_INPUT}.")
    is_kept = _keep_end(job, None if watched_to_its_end else code)
    if not options.no_report:
        # The dashboard has shown it.
        says = "'gpuwatch report' shows what it did."
        if not is_kept:
            says = (
                "there is no report: the job ended before it could be watched, or the report could "
                "not be saved."
            )
        complain(says)
    if code >= 0:
        return code
    # What follows can end this program.
    job.close()
    # Only this one says something to a shell: a loop of commands ends with it.
    return end_like(-code) if code == -signal.SIGINT else 128 - code


def _keep_end(job: RunningJob, code: int | None) -> bool:
    """Write the end of a job that ended after the dashboard was left into its report; whether there
    is one."""
    from gpuwatch.outputs.report.store import ReportStore, StoreError

    with contextlib.suppress(StoreError):
        store = ReportStore()
        kept = next((one for one in store.last(5) if one.report.key == job.key), None)
        if kept is not None and code is not None:
            store.save(kept.report.with_end(job.ended_at_unix_seconds, exit_code=code))
        return kept is not None
    return False


def _say_that_it_goes_on(job: RunningJob) -> None:
    complain(
        f"the job keeps running: PID {job.pid}, output in {_quoted(job)}. To watch it again: "
        f"gpuwatch --pid {job.pid}"
    )


def _quoted(job: RunningJob) -> str:
    return clean(shlex.quote(os.fspath(job.output_path or "")))
