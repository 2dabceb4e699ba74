"""``gpuwatch diagnose``: why a GPU idles, on this machine or in a log.

Exit codes: 0 nothing found, 1 findings, 2 bad input, 3 it could not be decided. Ctrl-C and SIGTERM
end the watching early: the diagnosis of what was seen is printed, with its exit code; 130 where
nothing had been seen.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import (
    INTERVAL_LEAST_SECONDS,
    Duration,
    Watched,
    option_demo,
    option_gpu,
    option_json,
    option_pid,
    option_price,
    option_user,
)
from gpuwatch.commands.printing import (
    EXIT_INTERRUPTED,
    StatusLine,
    complain,
    drawing,
    is_terminal,
    open_output,
    print_text,
)
from gpuwatch.commands.reading import (
    Cut,
    LogFacts,
    log_options,
    option_rediagnose,
    read_report,
)
from gpuwatch.commands.watching import terminated_as_interrupted, watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.core.model import Snapshot
    from gpuwatch.jobs.stacks.report import StackReport
    from gpuwatch.outputs.diagnosis import DiagnosisReport

FOR_SECONDS = 30.0
FOR_MOST_SECONDS = 24 * 3600.0
STACKS_SECONDS = 10
_PROGRESS_SECONDS = 0.5
_COUNTS_OF_LOGS = (
    "--gpus counts the GPUs of a log: give its file too. -g 0,2 watches only these GPUs, and "
    "--demo starved:8 simulates eight."
)


@click.command("diagnose")
@click.argument("files", nargs=-1, metavar="[FILE...]")
@option_pid()
@click.option(
    "--for",
    "seconds",
    type=Duration(1.0, FOR_MOST_SECONDS),
    help="How long to watch: 60s, 2m, 1h.  [default: 30s]",
)
@option_json()
@click.option(
    "--stacks", is_flag=True, help="Also sample the Python stacks of its ranks (with py-spy)."
)
@log_options(
    interval="Interval between readings, also in a log without times.  [default: 1s]",
)
@option_rediagnose()
@option_price()
@click.option(
    "-v", "--verbose", is_flag=True, help="Also say what was ruled out, and what lacked data."
)
@option_demo("Diagnose")
@option_gpu()
@option_user()
def diagnose_command(
    files: tuple[str, ...],
    pid: int | None,
    seconds: float | None,
    as_json: bool,
    stacks: bool,
    facts: LogFacts,
    rediagnose: bool,
    price: float | None,
    verbose: bool,
    demo: str | None,
    only: tuple[str, ...],
    users: tuple[str, ...],
) -> int:
    """Say why a GPU sits idle: watch this machine, or read FILE.

    FILE is a recording (of gpuwatch record or stream) or a log of GPUs: any that nvidia-smi writes,
    DCGM, gpustat, Prometheus, W&B, CSV; gzip or zstd too; - is standard input. The exit code is 0
    if nothing is wrong, 1 if something was found, 2 for bad input, 3 if no diagnosis is possible.
    Recordings of several hosts, made at the same time, are diagnosed as one. Ctrl-C shows what is
    known so far. The verdict comes first; on a terminal last, where it is seen.
    """
    _refuse(files, demo, facts, seconds=seconds, stacks=stacks, rediagnose=rediagnose)
    out = open_output()

    from gpuwatch.outputs.diagnosis import at_price, diagnosis_json, diagnosis_page, of_file

    with terminated_as_interrupted():
        if files:
            options = facts.options()
            cut = Cut(pid=pid, only=only, users=users)
            read = read_report(files, cut, options, partly=True, rediagnose=rediagnose)
            report: DiagnosisReport | None = of_file(read)
        else:
            watched = Watched(False, demo, pid, facts.interval_seconds or 1.0, only, users)
            report = _watch(watched, seconds or FOR_SECONDS, stacks)
    if report is None:
        return EXIT_INTERRUPTED
    report = at_price(report, price)
    for note in () if report.report.source is None else report.report.source.notes:
        complain(note)
    if users and not files and not report.report.processes and not report.report.jobs:
        complain(f"No process of {' or '.join(users)} was seen.")
    look = drawing(out)
    page = diagnosis_page(
        report,
        width=look.width,
        colour=look.colour,
        ascii_only=not look.unicode,
        verbose=verbose,
        on_terminal=is_terminal(out),
    )
    print_text(diagnosis_json(report) if as_json else page, out)
    return exit_code(report)


def exit_code(report: DiagnosisReport) -> int:
    """Return 1 where something was found, 0 where nothing is wrong, 3 where that cannot be
    decided."""
    return 1 if report.found else 0 if report.decided else 3


def _refuse(
    files: Sequence[str],
    demo: str | None,
    facts: LogFacts,
    *,
    seconds: float | None,
    stacks: bool,
    rediagnose: bool,
) -> None:
    for wrong, why in (
        (not files and facts.columns, "--columns names the columns of a log: give its file too."),
        (
            not files and facts.gpus is not None,
            _COUNTS_OF_LOGS,
        ),
        (not files and rediagnose, "--rediagnose is for a recording: give its file too."),
        (not files and stacks and demo, "A simulated machine has no stacks to sample."),
        (files and demo is not None, "Choose either a file or --demo."),
        (files and stacks, "--stacks samples running processes: it does not apply to a file."),
        (files and seconds is not None, "--for is for live watching: a file is read as a whole."),
    ):
        if wrong:
            raise click.UsageError(why)


def _watch(watched: Watched, seconds: float, stacks: bool) -> DiagnosisReport | None:
    import asyncio

    from gpuwatch.jobs.stacks.sampler import INSTALL, find_py_spy

    interval = watched.interval_seconds
    if interval < INTERVAL_LEAST_SECONDS:
        raise click.UsageError(
            f"{interval:g} seconds is too short: the minimum is {INTERVAL_LEAST_SECONDS}."
        )
    if stacks and find_py_spy() is None:
        raise click.UsageError(INSTALL)
    # Nobody has to wait for a simulated machine.
    sampler, notes = watched.sampler(math.inf)
    for note in notes:
        complain(note)
    progress = StatusLine(_PROGRESS_SECONDS)
    collector = Collector()

    def take(snapshot: Snapshot, passed: float) -> None:
        collector.push(snapshot)
        doing = f"watching, {passed:.0f} of {seconds:.0f} s"
        progress.show(f"gpuwatch: {doing} (Ctrl-C shows what is known)")

    async def run() -> None:
        # From the middle on, so that what they say can still be weighed.
        sampling = asyncio.create_task(collector.sample_stacks(seconds)) if stacks else None
        try:
            await watch(watched.pid, sampler, take, seconds, users=watched.users)
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                if sampling is not None:
                    sampling.cancel()
                    await sampling

    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run())
    finally:
        progress.end()
    return collector.report()


class Collector:
    """The snapshots of a watch, added up, and the stacks sampled in its middle."""

    def __init__(self) -> None:
        from gpuwatch.diagnosis.engine import EVALUATE_SECONDS
        from gpuwatch.outputs.report.accumulator import Accumulator

        self._watched = Accumulator(evaluate_seconds=EVALUATE_SECONDS, newest=True)
        self._last: Snapshot | None = None
        self._stacks: tuple[StackReport, ...] = ()

    def push(self, snapshot: Snapshot) -> None:
        self._last = snapshot
        self._watched.push(snapshot)

    async def sample_stacks(self, seconds: float) -> None:
        """Sample in the middle of so many seconds."""
        import asyncio

        from gpuwatch.jobs.stacks.report import stack_facts
        from gpuwatch.jobs.stacks.sampler import StackSampler, job_targets

        await asyncio.sleep(seconds / 2)
        jobs = () if self._last is None else self._last.jobs
        targets = [target for job in jobs for target in job_targets(job, workers=True)]
        if not targets:
            return
        length = max(1, min(STACKS_SECONDS, int(seconds / 4)))
        self._stacks = await StackSampler(targets, seconds=length).run()
        for job in jobs:
            assert self._watched.engine is not None
            self._watched.engine.note_stacks(job.key, stack_facts(job, self._stacks))

    def report(self) -> DiagnosisReport | None:
        """Return the diagnosis of what was seen; ``None`` if there was nothing."""
        from gpuwatch.outputs.diagnosis import of_watch

        if self._last is None:
            return None
        report = self._watched.report()
        assert self._watched.engine is not None
        diagnosis, problem = self._watched.engine.diagnosis, problem_of(self._last)
        return of_watch(report, diagnosis, stacks=self._stacks, problem=problem)


def problem_of(last: Snapshot) -> str | None:
    """Return why there is no GPU to look at, where that is known."""
    for severity in ("error", "warning", "info"):
        for problem in last.problems:
            if problem.severity == severity and problem.source == "nvml":
                return problem.message
    if last.jobs and not last.gpus:
        return (
            f"The job of process {last.jobs[0].pid} uses no GPU that can be seen from here: it "
            "has not started to, has released it, or is not a GPU job."
        )
    return None
