"""``gpuwatch demo-job``: a practice job under the dashboard, ill until a key cures it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import Look, look_options, option_interval
from gpuwatch.commands.printing import EXIT_OUTPUT, complain, has_screen, print_text
from gpuwatch.core.text import SentenceError, clean

if TYPE_CHECKING:
    from gpuwatch.commands.options import RunOptions
    from gpuwatch.practice.causes import Cause

_MODULE = "gpuwatch.practice.train"


# What follows "--" is the job's own.
@click.command("demo-job")
@option_interval()
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="Train on cpu, cuda, cuda:1, or a device of your own (module:name).",
)
@click.option(
    "--no-report",
    is_flag=True,
    help="The job does not report its own loop: it is seen from outside only.",
)
@look_options()
@click.argument("cause", required=False, metavar="[CAUSE]")
@click.argument("knobs", nargs=-1, type=click.UNPROCESSED, metavar="[-- KNOB...]")
def demo_job_command(
    interval_seconds: float,
    device: str,
    no_report: bool,
    look: Look,
    cause: str | None,
    knobs: tuple[str, ...],
) -> int:
    """Practise: run a real training job with something wrong, and fix it with a key.

    Without a CAUSE it lists them. The job trains a small model on the GPU, or on the CPU where
    there is none, until gpuwatch quits. x fixes the fault and compares before and after.
    More knobs go after "--" (python -m gpuwatch.practice.train --help lists them).
    """
    from gpuwatch.practice import causes

    if cause is None:
        rows = ["Practise with: gpuwatch demo-job CAUSE", "", *causes.listing()]
        print_text("\n".join([*rows, "", "gpuwatch explain CAUSE says what each is."]))
        return 0
    found = causes.find(cause)
    look = look.checked()
    if not has_screen():
        raise click.UsageError(
            f"The dashboard needs a terminal. The job alone: python -m {_MODULE} {found.name}"
        )
    from gpuwatch.commands.options import RunOptions

    options = RunOptions(interval_seconds, look, kill_on_exit=True, no_report=True)
    silent = ("--no-report",) if no_report else ()
    return _practise(found, ("--device", device, *silent, *knobs), options)


def _practise(cause: Cause, knobs: Sequence[str], options: RunOptions) -> int:
    """The exit code: the dashboard's where it was left, else the job's."""
    from gpuwatch.commands.run import show, start_shown
    from gpuwatch.jobs.cores import read_cores
    from gpuwatch.jobs.run.job import Start
    from gpuwatch.practice.control import Practice
    from gpuwatch.practice.job.machine import scratch_folder

    start = Start.now()
    folder = None
    try:
        folder = scratch_folder()
        command = [
            # -P: nothing is imported from the current folder.
            sys.executable, "-P", "-m", _MODULE, cause.name, "--folder", str(folder),
            "--remove-folder", "--ends-with", str(os.getpid()), *knobs,
        ]  # fmt: skip
        job = start_shown(command, start, None, f"demo-{cause.name}")
    except (OSError, SentenceError) as error:
        _remove(folder)
        return complain(str(error), EXIT_OUTPUT)
    job.ends_with_gpuwatch = True
    try:
        cores = read_cores(os.getpid(), os.environ).usable_cores or 1.0
        practice = Practice(cause, folder, cores, lambda: job.poll() is not None)
        left_with = show(job, options, practice)
        code = job.poll()
    finally:
        job.end()
        job.close()
        _remove(folder)
    if code is None or code == 0:
        return left_with
    return complain(_last_words(job.output_path), code if code > 0 else 128 - code)


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _last_words(path: Path | None) -> str:
    """The job's last line, which says why it ended."""
    lines: list[str] = []
    with suppress(OSError):
        lines = [] if path is None else path.read_text("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"the practice job ended: {clean(last, 300)}"
