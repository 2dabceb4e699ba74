"""``gpuwatch diagnose``: why a GPU idles, on this machine or in a log.

Exit codes: 0 nothing found, 1 findings, 2 bad input, 3 it could not be decided. Ctrl-C and SIGTERM
end the watching early: the diagnosis of what was seen is printed, with its exit code; 130 where
nothing had been seen.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

import click

from gpuwatch.commands.options import (
    INTERVAL_LEAST_SECONDS,
    Duration,
    Watched,
    option_demo,
    option_json,
    option_pid,
    option_schema,
)
from gpuwatch.commands.printing import (
    EXIT_INTERRUPTED,
    StatusLine,
    complain,
    drawing,
    open_output,
    print_text,
)
from gpuwatch.commands.recordings.reading import Cut, LogFacts, log_options, read_report
from gpuwatch.commands.watching import attached_only, terminated_as_interrupted

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.source import ManualClock, Source
    from gpuwatch.outputs.diagnosis.report import DiagnosisReport

EXIT_NOTHING = 0
EXIT_FINDINGS = 1
EXIT_UNDECIDED = 3

FOR_SECONDS = 30.0
FOR_MOST_SECONDS = 24 * 3600.0
_PROGRESS_SECONDS = 0.5


@click.command("diagnose")
@click.argument("file", required=False, metavar="[FILE]")
@option_pid()
@click.option(
    "--for",
    "seconds",
    type=Duration(1.0, FOR_MOST_SECONDS),
    metavar="TIME",
    help="How long to watch: 60s, 2m, 1h.  [default: 30s]",
)
@option_json("Print one JSON object (see --schema).")
@option_schema()
@click.option("--stacks", is_flag=True, help="Also sample the job's Python stacks (with py-spy).")
@log_options(
    "Number of GPUs in the simulated machine, or in a log that does not tell them apart.",
    "Interval between readings, also in a log without times.  [default: 1s]",
)
@option_demo("Diagnose")
def diagnose_command(
    file: str | None,
    pid: int | None,
    seconds: float | None,
    as_json: bool,
    schema: bool,
    stacks: bool,
    facts: LogFacts,
    demo: str | None,
) -> int:
    """Say why a GPU sits idle: watch this machine, or read FILE.

    FILE is a recording (of gpuwatch record or stream) or a log of GPUs: any that nvidia-smi writes,
    DCGM, gpustat, Prometheus, W&B, CSV; gzip or zstd too; - is standard input. The exit code is 0
    if nothing is wrong, 1 if something was found, 2 for bad input, 3 if no diagnosis is possible.
    Ctrl-C shows what is known so far.
    """
    if schema:
        from gpuwatch.outputs.diagnosis.json import diagnosis_schema
        from gpuwatch.outputs.report.encoding import dumps

        print_text(dumps(diagnosis_schema()))
        return 0
    from gpuwatch.outputs.diagnosis.report import of_file

    _refuse(file, demo, seconds=seconds, stacks=stacks, columns=facts.columns)
    out = open_output()
    with terminated_as_interrupted():
        if file is not None:
            read = read_report(file, Cut(pid=pid), facts.options(), partly=True)
            report: DiagnosisReport | None = of_file(read)
        else:
            watched = Watched(False, facts.gpus, demo, pid, facts.interval_seconds or 1.0)
            report = _watch(watched, seconds or FOR_SECONDS, stacks)
    if report is None:
        return EXIT_INTERRUPTED
    for note in () if report.report.source is None else report.report.source.notes:
        complain(note)
    print_text(_text(report, out, as_json), out)
    return exit_code(report)


def exit_code(report: DiagnosisReport) -> int:
    """1 where something was found, 0 where nothing is wrong, 3 where that cannot be decided."""
    if report.found:
        return EXIT_FINDINGS
    return EXIT_NOTHING if report.decided else EXIT_UNDECIDED


def _refuse(
    file: str | None, demo: str | None, *, seconds: float | None, stacks: bool, columns: str | None
) -> None:
    if file is None:
        if columns is not None:
            raise click.UsageError("--columns names the columns of a log: give its file too.")
        if stacks and demo is not None:
            raise click.UsageError("A simulated machine has no stacks to sample.")
        return
    if demo is not None:
        raise click.UsageError("Choose either a file or --demo.")
    if stacks:
        raise click.UsageError("--stacks samples running processes: it does not apply to a file.")
    if seconds is not None:
        raise click.UsageError("--for is for live watching: a file is read as a whole.")


def _text(report: DiagnosisReport, out: TextIO, as_json: bool) -> str:
    from gpuwatch.outputs.diagnosis.json import diagnosis_json
    from gpuwatch.outputs.diagnosis.text import diagnosis_page

    if as_json:
        return diagnosis_json(report)
    look = drawing(out)
    return diagnosis_page(report, width=look.width, colour=look.colour)


# --- a file ----------------------------------------------------------------------------------


# --- this machine ----------------------------------------------------------------------------


def _watch(watched: Watched, seconds: float, stacks: bool) -> DiagnosisReport | None:
    interval_seconds = watched.interval_seconds
    if interval_seconds < INTERVAL_LEAST_SECONDS:
        raise click.UsageError(
            f"{interval_seconds:g} seconds is too short: the minimum is {INTERVAL_LEAST_SECONDS}."
        )
    if stacks:
        _require_py_spy()
    clock = None
    if watched.demo is not None:
        from gpuwatch.core.source import ManualClock

        # The simulated machine has a clock of its own, so nobody has to wait for it.
        clock = ManualClock(unix_epoch_seconds=time.time())
    source, notes = watched.open(clock)
    for note in notes:
        complain(note)
    only = None if watched.pid is None else functools.partial(attached_only, pid=watched.pid)
    if clock is not None:
        return _watch_simulated(source, clock, only, seconds, interval_seconds)
    return _watch_live(source, only, seconds, interval_seconds, stacks)


def _require_py_spy() -> None:
    from gpuwatch.jobs.stacks.access import find_py_spy, install_sentence

    if find_py_spy() is None:
        raise click.UsageError(install_sentence())


def _watch_simulated(
    source: Source,
    clock: ManualClock,
    only: Callable[[Snapshot], Snapshot] | None,
    seconds: float,
    interval_seconds: float,
) -> DiagnosisReport | None:
    from gpuwatch.commands.diagnosing import Collector

    collector = Collector()
    for _ in range(max(1, round(seconds / interval_seconds)) + 1):
        snapshot = source.read()
        collector.push(snapshot if only is None else only(snapshot))
        clock.advance(interval_seconds)
    return collector.report()


def _watch_live(
    source: Source,
    only: Callable[[Snapshot], Snapshot] | None,
    seconds: float,
    interval_seconds: float,
    stacks: bool,
) -> DiagnosisReport | None:
    import asyncio

    from gpuwatch.commands.diagnosing import Collector, LiveWatch
    from gpuwatch.core.sampler import Sampler

    collector = Collector()
    progress = StatusLine(_PROGRESS_SECONDS)
    sampler = Sampler(source, interval_seconds)
    watch = LiveWatch(
        sampler,
        collector,
        seconds,
        only=only,
        stacks=stacks,
        show=lambda text: progress.show(_progress_text(text)),
    )
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(watch.run())
    finally:
        progress.end()
        sampler.close()
    return collector.report()


def _progress_text(text: str) -> str:
    return f"gpuwatch: {text} (Ctrl-C shows what is known)"
