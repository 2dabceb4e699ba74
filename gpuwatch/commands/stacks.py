"""``gpuwatch stacks``: what a job's Python is doing, and on which lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import Pid, option_json
from gpuwatch.commands.printing import (
    EXIT_INTERRUPTED,
    EXIT_NO_ANSWER,
    EXIT_USAGE,
    complain,
    drawing,
    is_terminal,
    open_output,
    print_text,
)

if TYPE_CHECKING:
    from gpuwatch.jobs.stacks.sampler import StackSampler, StackTarget
    from gpuwatch.jobs.stacks.summary import StackReport

WIDTH_WITHOUT_TERMINAL = 120


@click.command("stacks")
@click.argument("pid", type=Pid())
@click.option(
    "-s",
    "--seconds",
    type=click.IntRange(1, 600),
    default=10,
    show_default=True,
    help="How long to take 20 samples a second.",
)
@click.option("--only", is_flag=True, help="Only this process, not all ranks of its job.")
@click.option("--workers", is_flag=True, help="Also one loader worker per rank.")
@option_json()
def stacks_command(pid: int, seconds: int, only: bool, workers: bool, as_json: bool) -> int:
    """Sample the Python stacks of a job and say where its time goes.

    PID is any process of the job. py-spy samples the main thread of each rank from outside; the
    job is not stopped. Each share of the time (waiting for data, copying, synchronising, saving
    ...) comes with the line of your code behind it. Ctrl-C shows what was seen so far.
    """
    out = open_output()

    from gpuwatch.jobs.stacks.access import INSTALL, find_py_spy
    from gpuwatch.jobs.stacks.sampler import StackSampler
    from gpuwatch.outputs.stacks import stacks_json, stacks_page

    if find_py_spy() is None:
        raise click.UsageError(INSTALL)
    targets = _targets(pid, only=only, workers=workers)
    sampler = StackSampler(targets, seconds=seconds)
    try:
        sampler.start()
        if is_terminal(sys.stderr):
            what = "1 process" if len(targets) == 1 else f"{len(targets)} processes"
            complain(f"sampling {what} for {sampler.seconds_in_all} s (Ctrl-C ends early) ...")
        reports, interrupted = _sample(sampler)
    finally:
        sampler.close()
    if code := exit_code(reports):
        problems = [report.problem for report in reports if report.problem]
        return complain(problems[0] if problems else "Nothing was sampled.", code)
    look = drawing(out, width_without_terminal=WIDTH_WITHOUT_TERMINAL)
    page = stacks_page(reports, width=look.width, ascii_only=not look.unicode)
    print_text(stacks_json(reports) if as_json else page, out)
    return EXIT_INTERRUPTED if interrupted else 0


def _sample(sampler: StackSampler) -> tuple[tuple[StackReport, ...], bool]:
    """The reports, and whether a Ctrl-C ended it early. A second one raises."""
    try:
        return sampler.wait(), False
    except KeyboardInterrupt:
        sampler.stop()
        return sampler.wait(), True


def exit_code(reports: tuple[StackReport, ...]) -> int:
    """0 where something was seen; 2 where nothing can be, 69 where it could have been."""
    if any(report.samples for report in reports):
        return 0
    return EXIT_USAGE if all(report.refused for report in reports) else EXIT_NO_ANSWER


def _targets(pid: int, *, only: bool, workers: bool) -> list[StackTarget]:
    """The processes to sample. Raises ``AttachError`` where there is nothing."""
    from gpuwatch.commands import watching
    from gpuwatch.jobs.identity.attach import resolve
    from gpuwatch.jobs.stacks.sampler import StackTarget
    from gpuwatch.jobs.stacks.targets import find_job, job_targets

    if only:
        return [StackTarget(pid)]
    found = resolve(pid, uses_gpu=watching.uses_gpu)
    key = (found.pid, found.started_at_unix_seconds)
    job = find_job(key)
    return [StackTarget(*key)] if job is None else job_targets(job, key, workers=workers)
