"""``gpuwatch run``: start a job, watch it, say at its end what it did."""

from pathlib import Path

import click

from gpuwatch.commands.options import RunOptions, grouped, look_options, option_interval
from gpuwatch.commands.printing import has_screen


def _log_to(_context: object, _option: object, value: str | None) -> str | None:
    if value is None:
        return None
    from gpuwatch.outputs.experiment.log import checked

    return checked(value)


# What follows the command's name is the command's own, options included.
@click.command("run", context_settings={"allow_interspersed_args": False})
@look_options()
@grouped(
    "options",
    RunOptions,
    option_interval(),
    click.option(
        "--plain",
        is_flag=True,
        help="No dashboard: the job has this terminal, pipe or file to itself, and the report "
        "comes at its end.  [default: unless input, output and errors are a terminal]",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write what the job prints to FILE, which is emptied first.  [default: with the "
        "dashboard a file named in its title, of at most 64 MiB; the last 50 are kept]",
    ),
    click.option(
        "--kill-on-exit",
        is_flag=True,
        help="End the job when gpuwatch quits.  [default: it keeps running]",
    ),
    click.option(
        "--no-report", is_flag=True, help="Print no report ('gpuwatch report' still shows it)."
    ),
    click.option(
        "--log-to",
        callback=_log_to,
        metavar="TOOL",
        help="Also log how busy the job's GPUs are, their memory, power and temperature, and what "
        "is found, every 15 seconds: to wandb, mlflow, tensorboard or tensorboard:FOLDER.",
    ),
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGUMENT]...")
def run_command(options: RunOptions, command: tuple[str, ...]) -> int:
    """Start a job and watch it: gpuwatch run -- python train.py

    The job runs as it would without gpuwatch: its environment, input and (with --plain) output are
    untouched, it gets gpuwatch's signals, and gpuwatch exits with its exit code.

    In the dashboard its output goes to a pane and a file, and it has no input. Ctrl-C interrupts
    it (SIGINT), within ten seconds again ends it (SIGTERM), a third time kills it. It survives
    gpuwatch and its terminal: gpuwatch --pid PID watches it again.
    """
    if not command:
        raise click.UsageError("Say what to run, as in: gpuwatch run -- python train.py")
    if options.plain or not has_screen():
        from gpuwatch.commands.run.plain import run_plain

        return run_plain(command, options)
    from gpuwatch.commands.run.dashboard import run_with_dashboard

    return run_with_dashboard(command, options._replace(look=options.look.checked()))
