"""``gpuwatch run`` with the dashboard: the job prints to a file that the dashboard shows."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from gpuwatch.commands.printing import EXIT_OUTPUT, complain, terminal_width
from gpuwatch.commands.run.job_report import open_report, print_report
from gpuwatch.commands.run.plain import SENT_ON, end_like, hold_signals, release_signals
from gpuwatch.commands.watching import make_source
from gpuwatch.jobs.launch.output_files import KEPT_BYTES, OutputFileError, open_chosen, open_kept
from gpuwatch.jobs.launch.runner import NO_INPUT, RunningJob, Start, start_in_terminal
from gpuwatch.jobs.launch.spawn import CannotStartError

if TYPE_CHECKING:
    from gpuwatch.commands.run.options import RunOptions
    from gpuwatch.outputs.report.model import Report
    from gpuwatch.tui.view import Practice

_PANE_ROWS = 10
"""Until the dashboard knows better."""

Handler = Callable[[int, FrameType | None], object]


def run_with_dashboard(command: Sequence[str], options: RunOptions) -> int:
    """The exit code: the job's, or 0 if it goes on."""
    start = Start.now()
    report_file = open_report(options.report_path)
    try:
        if options.output is None:
            output, path = open_kept(command)
        else:
            output, path = open_chosen(options.output), options.output.absolute()
    except OutputFileError as error:
        return complain(str(error), EXIT_OUTPUT)
    try:
        job = start_in_terminal(
            command,
            start,
            output=output,
            path=path,
            most_bytes=KEPT_BYTES if options.output is None else None,
            size=(terminal_width(sys.stderr), _PANE_ROWS),
        )
    except CannotStartError as error:
        if options.output is None:
            path.unlink(missing_ok=True)
        return complain(str(error), error.exit_code)
    job.ends_with_gpuwatch = options.kill_on_exit
    try:
        left_with = show(job, options)
        watched_to_its_end = job.poll() is not None
        if not watched_to_its_end:
            _leave(job, left_with, options)
        return _end(job, options, report_file, watched_to_its_end=watched_to_its_end)
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
        if report_file is not None:
            report_file.close()


def show(job: RunningJob, options: RunOptions, practice: Practice | None = None) -> int:
    """The dashboard, until it is left; its exit code."""
    source = make_source(None, None, False, options.interval_seconds)

    from gpuwatch.core.sampler import Sampler

    sampler = Sampler(source, options.interval_seconds)
    # The driver wakes up while the interface is imported.
    sampler.start_opening()

    from gpuwatch.tui.dashboard import run_dashboard

    _listen(job, options.kill_on_exit)
    return run_dashboard(
        source, sampler, **options.look._asdict(), attached=job.key, running=job, practice=practice
    )


def _listen(job: RunningJob, kill_on_exit: bool) -> None:
    """What the dashboard itself does not listen to, and would end by without a word."""

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
    """The dashboard was left while the job runs."""
    number = left_with - 128
    if options.kill_on_exit:
        _say("ending the job (SIGTERM, and after ten seconds SIGKILL) ...")
        job.end()
    elif number in SENT_ON and number != signal.SIGHUP:
        # Not left by a key but sent a signal, which is the job's; it may take its time over it.
        waited = hold_signals()
        job.signal(number)
        _say(
            f"sent {signal.Signals(number).name} to the job (PID {job.pid}) and wait for it to "
            "end; Ctrl-C asks for more"
        )
        _wait(job, waited)
        release_signals(waited)


def _wait(job: RunningJob, waited: frozenset[signal.Signals]) -> None:
    """Wait for the job without a picture of it."""
    while job.poll() is None:
        news = signal.sigtimedwait(waited, 1.0)
        if news is None or news.si_signo == signal.SIGCHLD:
            continue
        if news.si_signo == signal.SIGHUP and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            break
        if news.si_signo == signal.SIGINT and news.si_code > 0:
            # From the keyboard, which is not the job's.
            _say(job.stop_step())
        else:
            job.signal(news.si_signo)


def _end(
    job: RunningJob, options: RunOptions, report_file: TextIO | None, *, watched_to_its_end: bool
) -> int:
    code = job.poll()
    if code is None:
        _say_that_it_goes_on(job)
        return 0
    _say(f"{_how_it_ended(code)}; its output is in {_quoted(job)}")
    if job.missed_input:
        _say(f"{NO_INPUT}.")
    if not watched_to_its_end:
        _keep_end(job, code)
    if not options.no_report and not watched_to_its_end:
        _say("it ended after the dashboard had quit: 'gpuwatch report' shows what it did before.")
    elif not options.no_report:
        _report(job, options, report_file)
    if code >= 0:
        return code
    # What follows can end this program.
    job.close()
    # Only this one says something to a shell: a loop of commands ends with it.
    return end_like(-code) if code == -signal.SIGINT else 128 - code


def _report(job: RunningJob, options: RunOptions, file: TextIO | None) -> None:
    """The dashboard has shown it: it is printed only where that was asked for."""
    report = _kept_report(job)
    if report is None:
        _say(
            "there is no report: the job ended before it could be watched, or the report could "
            "not be saved."
        )
    elif file is not None or options.as_json:
        print_report(report, file or sys.stderr, as_json=options.as_json, previous=None)
    else:
        _say("'gpuwatch report' shows what it did.")


def _kept_report(job: RunningJob) -> Report | None:
    """What the dashboard has kept of it."""
    from gpuwatch.outputs.report.store import ReportStore, StoreError

    try:
        for kept in ReportStore().last(5):
            if kept.report.key == job.key:
                return kept.report
    except StoreError:
        pass
    return None


def _keep_end(job: RunningJob, code: int) -> None:
    """Add how it ended to the report that was saved when the dashboard was left."""
    from gpuwatch.outputs.report.store import ReportStore, StoreError

    report = _kept_report(job)
    if report is not None:
        with suppress(StoreError):
            ReportStore().save(report.with_end(job.ended_at_unix_seconds, exit_code=code))


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"the job ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the job was ended by {name}"


def _say_that_it_goes_on(job: RunningJob) -> None:
    _say(
        f"the job keeps running: PID {job.pid}, output in {_quoted(job)}. To watch it again: "
        f"gpuwatch --pid {job.pid}"
    )


def _quoted(job: RunningJob) -> str:
    from gpuwatch.core.text import clean

    return clean(shlex.quote(os.fspath(job.output_path or "")))


def _say(sentence: str) -> None:
    complain(sentence)
