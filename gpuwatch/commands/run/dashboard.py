"""``gpuwatch run`` with the dashboard: the job prints to a file that the dashboard shows."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from gpuwatch.commands.printing import complain, terminal_width
from gpuwatch.commands.run.plain import SENT_ON, end_like, end_log, hold_signals, release_signals
from gpuwatch.commands.watching import make_source
from gpuwatch.core.text import clean
from gpuwatch.core.units import exit_words
from gpuwatch.jobs.launch.output_files import KEPT_BYTES, open_chosen, open_kept
from gpuwatch.jobs.launch.runner import NO_INPUT, RunningJob, Start, start_in_terminal
from gpuwatch.jobs.launch.spawn import CannotStartError

if TYPE_CHECKING:
    from pathlib import Path

    from gpuwatch.commands.options import RunOptions
    from gpuwatch.outputs.report.model import Report

_PANE_ROWS = 10
"""Until the dashboard knows better."""

Handler = Callable[[int, FrameType | None], object]


def run_with_dashboard(command: Sequence[str], options: RunOptions) -> int:
    """The exit code: the job's, or 0 if it goes on."""
    start = Start.now()
    job = start_shown(command, start, options.output)
    job.ends_with_gpuwatch = options.kill_on_exit
    try:
        left_with = show(job, options)
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


def start_shown(command: Sequence[str], start: Start, chosen: Path | None) -> RunningJob:
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


def show(job: RunningJob, options: RunOptions) -> int:
    """The dashboard, until it is left; its exit code."""
    source = make_source(None, None, False, options.interval_seconds)

    from gpuwatch.core.sampler import Sampler

    sampler = Sampler(source, options.interval_seconds)
    # The driver wakes up while the interface is imported.
    sampler.start_opening()

    from gpuwatch.tui.dashboard import run_dashboard

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
        _wait(job, waited)
        release_signals(waited)


def _wait(job: RunningJob, waited: frozenset[signal.Signals]) -> None:
    while job.poll() is None:
        news = signal.sigtimedwait(waited, 1.0)
        if news is None or news.si_signo == signal.SIGCHLD:
            continue
        if news.si_signo == signal.SIGHUP and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            break
        if news.si_signo == signal.SIGINT and news.si_code > 0:
            # From the keyboard, which is not the job's.
            complain(job.stop_step())
        else:
            job.signal(news.si_signo)


def _end(job: RunningJob, options: RunOptions, *, watched_to_its_end: bool) -> int:
    code = job.poll()
    if code is None:
        _say_that_it_goes_on(job)
        return 0
    how = f"{'ended with' if code >= 0 else 'was'} {exit_words(code)}"
    complain(f"the job {how}; its output is in {_quoted(job)}")
    if job.missed_input:
        complain(f"{NO_INPUT}.")
    if not watched_to_its_end:
        _keep_end(job, code)
    if not options.no_report and not watched_to_its_end:
        complain(
            "it ended after the dashboard had quit: 'gpuwatch report' shows what it did before."
        )
    elif not options.no_report:
        # The dashboard has shown it.
        says = "'gpuwatch report' shows what it did."
        if _kept_report(job) is None:
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


def _kept_report(job: RunningJob) -> Report | None:
    from gpuwatch.outputs.report.store import ReportStore, StoreError

    with suppress(StoreError):
        for kept in ReportStore().last(5):
            if kept.report.key == job.key:
                return kept.report
    return None


def _keep_end(job: RunningJob, code: int) -> None:
    from gpuwatch.outputs.report.store import ReportStore, StoreError

    report = _kept_report(job)
    if report is not None:
        with suppress(StoreError):
            ReportStore().save(report.with_end(job.ended_at_unix_seconds, exit_code=code))


def _say_that_it_goes_on(job: RunningJob) -> None:
    complain(
        f"the job keeps running: PID {job.pid}, output in {_quoted(job)}. To watch it again: "
        f"gpuwatch --pid {job.pid}"
    )


def _quoted(job: RunningJob) -> str:
    return clean(shlex.quote(os.fspath(job.output_path or "")))
