"""``gpuwatch run --plain``: the job has gpuwatch's own standard streams.

With a terminal the job stays in gpuwatch's process group, so that the keyboard's signals reach it
as they always do, and those are not sent on; see ``gpuwatch.jobs.launch.runner``. When the job
ended by a signal, gpuwatch ends by the same: a shell that runs a script stops on Ctrl-C only if
what it ran was ended by SIGINT, and prints "Killed" or "Segmentation fault" for whoever looks.

A signal that somebody sends to the whole group (``kill %1``) reaches a job in it twice: by itself,
and from gpuwatch, which cannot tell it from one that was sent to gpuwatch alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TextIO

from gpuwatch.commands.printing import complain, drawing
from gpuwatch.commands.watching import make_source
from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.text import clean
from gpuwatch.jobs.launch.runner import RunningJob, Start, has_controlling_terminal, start_plain

if TYPE_CHECKING:
    from gpuwatch.commands.options import RunOptions
    from gpuwatch.outputs.experiment.log import ExperimentLog
    from gpuwatch.outputs.report.model import Report
    from gpuwatch.outputs.report.recorder import JobRecorder

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
"""Of the time: the job is to have the rest."""


def run_plain(command: Sequence[str], options: RunOptions) -> int:
    """The exit code; does not return for a job that a signal has ended."""
    from gpuwatch.jobs.launch.output_files import open_chosen

    start = Start.now()
    output = None if options.output is None else open_chosen(options.output)
    waited = hold_signals()
    job = start_plain(command, start, shares_group=has_controlling_terminal(), output=output)
    if output is not None:
        os.close(output)

    watch = JobWatch(job, options.interval_seconds, options.log_to)
    code = follow(job, waited)
    # A terminal that goes sends SIGHUP more than once: the report is kept all the same.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # From here on Ctrl-C is for gpuwatch, which has only the report left to do.
    release_signals(waited)
    with contextlib.suppress(KeyboardInterrupt):
        _report(job, watch, options)
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


def follow(job: RunningJob, waited: Collection[signal.Signals]) -> int:
    """Wait for the job to end and send signals on to it; its exit code, negative for a signal."""
    while True:
        code = job.poll()
        if code is not None:
            return code
        news = signal.sigtimedwait(waited, _POLL_SECONDS)
        if news is None or news.si_signo == signal.SIGCHLD:
            continue
        # Positive: from the kernel, so from the terminal, which has told the job as well.
        if not (job.shares_group and news.si_code > 0):
            job.signal(news.si_signo)


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


def _report(job: RunningJob, watch: JobWatch, options: RunOptions) -> None:
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
    """Waits for the tool a moment; says what went wrong that has not been said."""
    known = len(log.said)
    log.close(exit_code)
    for sentence in log.said[known:]:
        complain(sentence)


def _keep_and_print(report: Report, options: RunOptions) -> None:
    """Nothing that fails here fails more than itself: the exit code is the job's."""
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
        """What ended the watching: a bug."""
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

        source = make_source(None, None, False, self._interval_seconds)
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
