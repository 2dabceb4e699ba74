"""``gpuwatch demo-job``: a practice job under the dashboard, with its fault or cured."""

import sys

import click

from gpuwatch.commands.options import Look, RunOptions, look_options, option_interval
from gpuwatch.commands.printing import has_screen, print_text


@click.command("demo-job")
@option_interval()
@click.option("--fixed", is_flag=True, help="The same job with the fault cured.")
@click.option(
    "--device",
    default="auto",
    metavar="DEVICE",
    help="Train on cpu, cuda or cuda:1.  [default: a GPU if there is one]",
)
@click.option(
    "--no-report",
    is_flag=True,
    help="The job does not report its own loop: it is seen from outside only.",
)
@look_options()
@click.argument("cause", required=False)
def demo_job_command(
    interval_seconds: float,
    fixed: bool,
    device: str,
    no_report: bool,
    look: Look,
    cause: str | None,
) -> int:
    """Practise: run a real training job with something wrong, then the same job --fixed.

    Without a CAUSE it lists them. The job trains a small model on the GPU, or on the CPU where
    there is none, until gpuwatch quits; 'gpuwatch compare 2 1' then compares the two runs.
    """
    from gpuwatch import practice

    if cause is None:
        rows = ["Practise with: gpuwatch demo-job CAUSE, then gpuwatch demo-job CAUSE --fixed", ""]
        rows += [*practice.listing(), "", "gpuwatch explain CAUSE says what each is."]
        print_text("\n".join(rows))
        return 0
    found = practice.find(cause)
    # -P: nothing is imported from the current folder.
    command = [sys.executable, "-P", "-m", practice.__name__, found.name]
    command += ["--fixed"] * fixed + ["--no-report"] * no_report
    command += [] if device == "auto" else ["--device", device]
    if not has_screen():
        raise click.UsageError(
            "The dashboard needs a terminal. The job alone: "
            f"python -m {practice.__name__} {found.name}"
        )
    from gpuwatch.commands.run import run_with_dashboard

    options = RunOptions(interval_seconds, look=look.checked(), kill_on_exit=True)
    return run_with_dashboard([*command, "--ends-with-parent"], options)
