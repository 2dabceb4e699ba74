"""``gpuwatch diagnose``: why a GPU idles, on this machine or in a log.

Exit codes: 0 nothing found, 1 findings, 2 bad input, 3 it could not be decided. Ctrl-C and SIGTERM
end the watching early: the diagnosis of what was seen is printed, with its exit code; 130 where
nothing had been seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

import click

from gpuwatch.commands import common

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.source import Source
    from gpuwatch.outputs.diagnosis.report import DiagnosisReport
    from gpuwatch.recording.reader import OpenedLog

EXIT_NOTHING = 0
EXIT_FINDINGS = 1
EXIT_UNDECIDED = 3

FOR_SECONDS = 30.0
FOR_MOST_SECONDS = 24 * 3600.0
WIDTH_WITHOUT_TERMINAL = 80
_PROGRESS_SECONDS = 0.5


def _duration(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> float | None:
    if value is None:
        return None
    return common.parse_duration(value, 1.0, FOR_MOST_SECONDS)


def _interval(
    _context: click.Context, _parameter: click.Parameter, value: float | None
) -> float | None:
    if value is not None and not 0.01 <= value <= 3600:
        raise click.BadParameter(f"{value:g} seconds is not between 0.01 and 3600.")
    return value


@click.command("diagnose")
@click.argument("file", required=False, metavar="[FILE]")
@common.pid_option
@click.option(
    "--for",
    "seconds",
    callback=_duration,
    metavar="TIME",
    help="How long to watch: 60s, 2m, 1h.  [default: 30s]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (see --schema).")
@click.option(
    "--schema", is_flag=True, help="Print the JSON Schema of what --json prints, and exit."
)
@click.option("--stacks", is_flag=True, help="Also sample the job's Python stacks (with py-spy).")
@click.option(
    "-i",
    "--interval",
    type=float,
    callback=_interval,
    metavar="SECONDS",
    help="Seconds between readings; also for a log without times.  [default: 1]",
)
@click.option(
    "--columns",
    metavar="NAMES",
    help="The columns of a log without a header, as in its query; - skips one.",
)
@click.option(
    "--gpus",
    type=click.IntRange(0, common.GPUS_MAX),
    help="How many GPUs the simulated machine has, or a log that does not tell them apart.",
)
@click.option(
    "--demo",
    is_flag=False,
    flag_value="starved",
    metavar="[SCENARIO]",
    help="Diagnose a simulated machine (an unknown name lists all).",
)
def diagnose_command(
    file: str | None,
    pid: int | None,
    seconds: float | None,
    as_json: bool,
    schema: bool,
    stacks: bool,
    interval: float | None,
    columns: str | None,
    gpus: int | None,
    demo: str | None,
) -> int:
    """Say why a GPU idles: watch this machine, or read FILE.

    FILE is a recording (gpuwatch stream > FILE) or a log that nvidia-smi wrote: --query-gpu with
    --format=csv, dmon or pmon, also gzip; - is standard input. The exit code is 0 if nothing is
    wrong, 1 if something was found, 2 for bad input, 3 if no diagnosis is possible. Ctrl-C shows
    what is known by then.
    """
    if schema:
        return _print_schema()
    _refuse(file, demo, seconds=seconds, stacks=stacks, columns=columns)
    out = common.open_output()
    with common.terminated_as_interrupted():
        if file is not None:
            report, interrupted = _read(file, pid, interval, columns, gpus)
        else:
            report, interrupted = _watch(
                pid, seconds or FOR_SECONDS, interval or 1.0, stacks, gpus, demo
            )
    if interrupted and report.source.snapshots == 0:
        return common.EXIT_INTERRUPTED
    for note in report.source.notes:
        common.complain(note, 0)
    common.write_to(out, lambda: out.write(_text(report, out, as_json) + "\n"))
    return exit_code(report)


def _print_schema() -> int:
    import json

    from gpuwatch.outputs.diagnosis.schema import DIAGNOSIS_SCHEMA

    out = common.open_output()
    common.write_to(out, lambda: out.write(json.dumps(DIAGNOSIS_SCHEMA, indent=2) + "\n"))
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
    terminal = out.isatty()
    return diagnosis_page(
        report,
        width=common.terminal_width(out) if terminal else WIDTH_WITHOUT_TERMINAL,
        colour=terminal and not os.environ.get("NO_COLOR") and not common.is_dumb(),
    )


# --- a file ----------------------------------------------------------------------------------


def _read(
    file: str, pid: int | None, interval: float | None, columns: str | None, gpus: int | None
) -> tuple[DiagnosisReport, bool]:
    from gpuwatch.recording.reader import open_any
    from gpuwatch.sources.files.log_text import LogError
    from gpuwatch.sources.smi_log.columns import parse_columns
    from gpuwatch.sources.smi_log.source import LogOptions

    if gpus == 0:
        raise click.UsageError("A log has at least one GPU.")
    try:
        options = LogOptions(
            columns=None if columns is None else parse_columns(columns),
            interval_seconds=interval,
            gpus=gpus,
        )
        with open_any(file, options) as log:
            return _read_log(log, pid)
    except LogError as error:
        raise click.UsageError(str(error)) from None


def _read_log(log: OpenedLog, pid: int | None) -> tuple[DiagnosisReport, bool]:
    from gpuwatch.commands.diagnosing import Collector, file_source

    collector = Collector()
    interrupted = False
    snapshots: Iterable[Snapshot] = log.snapshots if pid is None else _of_job(log, pid)
    progress = common.StatusLine(_PROGRESS_SECONDS)
    try:
        for snapshot in snapshots:
            collector.push(snapshot)
            if progress.due:
                progress.show(_progress_text(f"{log.stats.lines} lines read"))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.end()
    if pid is not None and collector.snapshots == 0 and not interrupted:
        raise click.UsageError(
            f"{log.shown} has no job with a process {pid}."
            if log.kind == "recording"
            else f"{log.shown} has no jobs in it: --pid needs a recording (gpuwatch stream)."
        )
    return collector.report(file_source(log, collector)), interrupted


def _of_job(log: OpenedLog, pid: int) -> Iterable[Snapshot]:
    """Yield what is about the job that ``pid`` belongs to, from the first snapshot that has it."""
    from gpuwatch.jobs.identity.job_filter import only_job

    key = None
    for snapshot in log.snapshots:
        for job in snapshot.jobs:
            own = {job.pid, *(member.pid for member in job.members)}
            if key is None and pid in own:
                key = job.key
        if key is not None:
            yield only_job(snapshot, key)


# --- this machine ----------------------------------------------------------------------------


def _watch(
    pid: int | None,
    seconds: float,
    interval: float,
    stacks: bool,
    gpus: int | None,
    demo: str | None,
) -> tuple[DiagnosisReport, bool]:
    if interval < 0.1:
        raise click.UsageError(f"{interval:g} seconds is too short: the minimum is 0.1.")
    source = common.make_source(demo, gpus, False, interval)
    if stacks:
        _require_py_spy()
    if demo is not None:
        return _watch_simulated(source, 1 if gpus is None else gpus, pid, seconds, interval), False
    for note in () if pid is None else common.attach_to(source, pid):
        common.complain(note, 0)
    return _watch_live(source, pid, seconds, interval, stacks)


def _require_py_spy() -> None:
    from gpuwatch.jobs.stacks.access import find_py_spy, install_sentence

    if find_py_spy() is None:
        raise click.UsageError(install_sentence())


def _watch_simulated(
    source: Source, gpus: int, pid: int | None, seconds: float, interval: float
) -> DiagnosisReport:
    """The simulated machine has a clock of its own, so nobody has to wait for it."""
    from gpuwatch.commands.diagnosing import Collector, live_source
    from gpuwatch.core.source import ManualClock
    from gpuwatch.sources.simulated.source import SimulatedSource

    assert isinstance(source, SimulatedSource)
    clock = ManualClock(unix_epoch_seconds=time.time())
    quick = SimulatedSource(source.scenario, gpus, clock=clock, options=source.options)
    for note in () if pid is None else common.attach_to(quick, pid):
        common.complain(note, 0)
    collector = Collector()
    for _ in range(max(1, round(seconds / interval)) + 1):
        snapshot = quick.read()
        collector.push(snapshot if pid is None else common.attached_only(snapshot, pid))
        clock.advance(interval)
    return collector.report(live_source(collector, simulated=True))


def _watch_live(
    source: Source, pid: int | None, seconds: float, interval: float, stacks: bool
) -> tuple[DiagnosisReport, bool]:
    import asyncio

    from gpuwatch.commands.diagnosing import Collector, LiveWatch, live_source
    from gpuwatch.core.sampler import Sampler

    collector = Collector()
    progress = common.StatusLine(_PROGRESS_SECONDS)
    sampler = Sampler(source, interval)
    watch = LiveWatch(
        sampler,
        collector,
        seconds,
        only=None if pid is None else lambda snapshot: common.attached_only(snapshot, pid),
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
