"""Commands and options; the one place that wires the layers together.

Everything heavy is imported by the command that needs it: ``status`` and ``--help`` load
neither Textual nor plotext. Exit codes: 0 done (also when the reader of a pipe has gone), 2 the
request cannot be met as it was made, 69 no answer from the machine, 70 a bug, 74 the output
cannot be written, 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click.core import ParameterSource

from gpuwatch import __version__
from gpuwatch.commands.diagnose import diagnose_command
from gpuwatch.commands.explain import explain_command
from gpuwatch.commands.options import Look, Watched, look_options, watched_options
from gpuwatch.commands.printing import (
    CANNOT_WRITE,
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_OUTPUT,
    NoOutputError,
    ReaderGoneError,
    cannot_write,
    complain,
    require_screen,
)
from gpuwatch.commands.recordings.compare import compare_command
from gpuwatch.commands.recordings.export import export_command
from gpuwatch.commands.recordings.record import record_command
from gpuwatch.commands.recordings.replay import replay_command
from gpuwatch.commands.recordings.report import report_command
from gpuwatch.commands.run.command import run_command
from gpuwatch.commands.run.demo_job import demo_job_command
from gpuwatch.commands.snapshots import status_command, stream_command
from gpuwatch.commands.stacks import stacks_command
from gpuwatch.commands.tune.command import tune_command
from gpuwatch.commands.watching import check_open_files


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    # asyncio imports it for encrypted connections, of which gpuwatch makes none. It does without,
    # as in a Python built without OpenSSL, and saves 4 MiB and a tenth of the time to start.
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code, and says in one sentence what went wrong."""
    try:
        code = cli.main(args=arguments, prog_name="gpuwatch", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        return complain(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _discard_output()
        return EXIT_INTERRUPTED
    except (BrokenPipeError, ReaderGoneError):
        # It has what it wanted.
        _discard_output()
        return 0
    except Exception as error:
        return _explain(error)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> int:
    from gpuwatch.core.text import clean

    if isinstance(error, NoOutputError):
        _discard_output()
        return complain(str(error), EXIT_OUTPUT)
    if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
        # What click itself prints (a help text, say) does not pass _write.
        _discard_output()
        return complain(cannot_write(error), EXIT_OUTPUT)
    if os.environ.get("GPUWATCH_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    _discard_output()
    return complain(
        f"{type(error).__name__}: {clean(str(error), 300)}. This is a bug in gpuwatch: please "
        "report it (GPUWATCH_DEBUG=1 shows where it happened).",
        EXIT_BUG,
    )


def _discard_output() -> None:
    """What is still buffered must not fail once more when the interpreter ends."""
    if sys.stdout is not sys.__stdout__:
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
    except OSError:
        return


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@watched_options()
@look_options()
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, watched: Watched, look: Look) -> int:
    """Watch GPUs, CPUs and processes live, and see why a GPU sits idle.

    Without a command the dashboard opens, with --pid on one job. For scripts there are status and
    stream.
    """
    check_open_files()
    if context.invoked_subcommand is not None:
        _refuse_misplaced_options(context, context.invoked_subcommand)
        return 0
    source, notes = watched.open()
    require_screen(
        "The dashboard",
        "Use 'gpuwatch status' for one snapshot or 'gpuwatch stream' for JSON lines.",
    )

    from gpuwatch.core.sampler import Sampler

    sampler = Sampler(source, watched.interval_seconds)
    # The driver wakes up while the interface is imported.
    sampler.start_opening()

    from gpuwatch.tui.dashboard import run_dashboard

    return run_dashboard(
        source,
        sampler,
        **look.checked()._asdict(),
        attached=source.options.attached,
        message=" ".join(notes) or None,
    )


for _command in (
    diagnose_command,
    explain_command,
    run_command,
    demo_job_command,
    stacks_command,
    record_command,
    replay_command,
    report_command,
    compare_command,
    export_command,
    status_command,
    stream_command,
    tune_command,
):
    cli.add_command(_command)


def _refuse_misplaced_options(context: click.Context, command: str) -> None:
    """``gpuwatch --interval 2 stream`` would look accepted and do nothing."""
    known = {parameter.name for parameter in cli.commands[command].params}
    for parameter in context.command.params:
        if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
            continue
        option = parameter.opts[-1]
        if parameter.name in known:
            raise click.UsageError(
                f"{option} goes after the command, as in: gpuwatch {command} {option}"
            )
        raise click.UsageError(
            f"{option} is for the dashboard: gpuwatch {command} does not use it."
        )
