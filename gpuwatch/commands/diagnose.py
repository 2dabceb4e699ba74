"""``gpuwatch diagnose``: why a GPU idles, on this machine or in a log.

Exit codes: 0 nothing found, 1 findings, 2 bad input, 3 it could not be decided. Ctrl-C and SIGTERM
end the watching early: the diagnosis of what was seen is printed, with its exit code; 130 where
nothing had been seen.
"""

from __future__ import annotations

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
    option_gpus,
    option_interval,
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
from gpuwatch.commands.recordings.reading import Cut, opened
from gpuwatch.commands.watching import (
    attached_only,
    terminated_as_interrupted,
)

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.source import ManualClock, Source
    from gpuwatch.outputs.diagnosis.report import DiagnosisReport
    from gpuwatch.recording.reader import OpenedLog
    from gpuwatch.sources.smi_log.source import LogOptions

EXIT_NOTHING = 0
EXIT_FINDINGS = 1
EXIT_UNDECIDED = 3

FOR_SECONDS = 30.0
FOR_MOST_SECONDS = 24 * 3600.0
LOG_INTERVAL_LEAST_SECONDS = 0.01
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
@option_interval(
    LOG_INTERVAL_LEAST_SECONDS,
    default=None,
    help_text="Time between readings; also of a log without times.  [default: 1s]",
)
@click.option(
    "--columns",
    metavar="NAMES",
    help="The columns of a log without a header, as in its query; - skips one.",
)
@option_gpus("How many GPUs the simulated machine has, or a log that does not tell them apart.")
@option_demo("Diagnose")
def diagnose_command(
    file: str | None,
    pid: int | None,
    seconds: float | None,
    as_json: bool,
    schema: bool,
    stacks: bool,
    interval_seconds: float | None,
    columns: str | None,
    gpus: int | None,
    demo: str | None,
) -> int:
    """Say why a GPU idles: watch this machine, or read FILE.

    FILE is a recording (of gpuwatch record or stream) or a log that nvidia-smi wrote: --query-gpu
    with --format=csv, dmon or pmon; plain, gzip or zstd; - is standard input. The exit code is 0 if
    nothing is wrong, 1 if something was found, 2 for bad input, 3 if no diagnosis is possible.
    Ctrl-C shows what is known by then.
    """
    if schema:
        return _print_schema()
    _refuse(file, demo, seconds=seconds, stacks=stacks, columns=columns)
    out = open_output()
    with terminated_as_interrupted():
        if file is not None:
            with opened(file, _log_options(columns, interval_seconds, gpus)) as log:
                report, interrupted = _read_log(log, Cut(pid=pid))
        else:
            watched = Watched(False, gpus, demo, pid, interval_seconds or 1.0)
            report, interrupted = _watch(watched, seconds or FOR_SECONDS, stacks)
    if interrupted and report.source.snapshots == 0:
        return EXIT_INTERRUPTED
    for note in report.source.notes:
        complain(note)
    print_text(_text(report, out, as_json), out)
    return exit_code(report)


def _print_schema() -> int:
    import json

    from gpuwatch.outputs.diagnosis.schema import DIAGNOSIS_SCHEMA

    print_text(json.dumps(DIAGNOSIS_SCHEMA, indent=2))
    return 0


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


def _log_options(
    columns: str | None, interval_seconds: float | None, gpus: int | None
) -> LogOptions:
    from gpuwatch.sources.files.log_text import LogError
    from gpuwatch.sources.smi_log.columns import parse_columns
    from gpuwatch.sources.smi_log.source import LogOptions

    if gpus == 0:
        raise click.UsageError("A log has at least one GPU.")
    try:
        named = None if columns is None else parse_columns(columns)
    except LogError as error:
        raise click.UsageError(str(error)) from None
    return LogOptions(columns=named, interval_seconds=interval_seconds, gpus=gpus)


def _read_log(log: OpenedLog, cut: Cut) -> tuple[DiagnosisReport, bool]:
    from gpuwatch.commands.diagnosing import Collector, file_source

    collector = Collector()
    interrupted = False
    progress = StatusLine(_PROGRESS_SECONDS)
    try:
        for snapshot in cut.of(log):
            collector.push(snapshot)
            if progress.due:
                progress.show(_progress_text(f"{log.stats.lines} lines read"))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.end()
    if cut.pid is not None and collector.snapshots == 0 and not interrupted:
        raise click.UsageError(cut.nothing(log))
    return collector.report(file_source(log, collector)), interrupted


# --- this machine ----------------------------------------------------------------------------


def _watch(watched: Watched, seconds: float, stacks: bool) -> tuple[DiagnosisReport, bool]:
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
        return _watch_simulated(source, clock, only, seconds, interval_seconds), False
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
) -> DiagnosisReport:
    from gpuwatch.commands.diagnosing import Collector, live_source

    collector = Collector()
    for _ in range(max(1, round(seconds / interval_seconds)) + 1):
        snapshot = source.read()
        collector.push(snapshot if only is None else only(snapshot))
        clock.advance(interval_seconds)
    return collector.report(live_source(collector, simulated=True))


def _watch_live(
    source: Source,
    only: Callable[[Snapshot], Snapshot] | None,
    seconds: float,
    interval_seconds: float,
    stacks: bool,
) -> tuple[DiagnosisReport, bool]:
    import asyncio

    from gpuwatch.commands.diagnosing import Collector, LiveWatch, live_source
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
    interrupted = False
    try:
        asyncio.run(watch.run())
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.end()
        sampler.close()
    return collector.report(live_source(collector, simulated=False)), interrupted


def _progress_text(text: str) -> str:
    return f"gpuwatch: {text} (Ctrl-C shows what is known)"
