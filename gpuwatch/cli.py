"""Commands and options; the one place that wires the layers together.

Everything heavy is imported by the command that needs it: ``status`` and ``--help`` load
neither Textual nor plotext. Exit codes: 0 done (also when the reader of a pipe has gone), 2 the
request cannot be met as it was made, 69 no answer from the machine, 70 a bug, 74 the output
cannot be written, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import click
from click.core import ParameterSource

from gpuwatch import __version__

if TYPE_CHECKING:
    from gpuwatch.model import Snapshot
    from gpuwatch.sources.base import Source

EXIT_USAGE = 2
EXIT_NO_ANSWER = 69
EXIT_BUG = 70
EXIT_OUTPUT = 74
EXIT_INTERRUPTED = 130

GPUS_MAX = 64

_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

F = TypeVar("F", bound=Callable[..., Any])


class ReaderGoneError(Exception):
    """The reader of standard output has gone. (click ends with 1 on a ``BrokenPipeError``.)"""


class NoOutputError(Exception):
    """Standard output cannot be written; the message is a sentence."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code, and says in one sentence what went wrong."""
    try:
        code = cli.main(args=arguments, prog_name="gpuwatch", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code)
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
    from gpuwatch.text import clean

    if isinstance(error, NoOutputError):
        _discard_output()
        return _complain(str(error), EXIT_OUTPUT)
    if isinstance(error, OSError) and error.errno in _CANNOT_WRITE:
        # What click itself prints (a help text, say) does not pass _write.
        _discard_output()
        return _complain(_cannot_write(error), EXIT_OUTPUT)
    if os.environ.get("GPUWATCH_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    _discard_output()
    return _complain(
        f"{type(error).__name__}: {clean(str(error), 300)}. This is a bug in gpuwatch: please "
        "report it (GPUWATCH_DEBUG=1 shows where it happened).",
        EXIT_BUG,
    )


def _complain(sentence: str, code: int) -> int:
    if sys.stderr is not None:
        try:
            print(f"gpuwatch: {sentence}", file=sys.stderr)
        except OSError:
            # A terminal that has gone away takes the sentence with it.
            return code
    return code


def _discard_output() -> None:
    """What is still buffered must not fail once more when the interpreter ends."""
    if sys.stdout is not sys.__stdout__:
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
    except OSError:
        return


def _interval(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    # The bounds of the sampler, which is not imported here: it brings asyncio.
    if not 0.1 <= value <= 3600:
        raise click.BadParameter(f"{value:g} seconds is not between 0.1 and 3600.")
    return value


def _source_options(command: F) -> F:
    """The options that say what is watched; the same for every command."""
    for option in (
        click.option(
            "-a",
            "--all",
            "all_processes",
            is_flag=True,
            help="Show all processes, not only those that belong to a GPU's.",
        ),
        click.option(
            "--gpus",
            type=click.IntRange(0, GPUS_MAX),
            help="How many GPUs the simulated machine has.  [default: 1]",
        ),
        click.option(
            "--demo",
            is_flag=False,
            flag_value="starved",
            metavar="[SCENARIO]",
            help="Watch a simulated machine instead of this one (an unknown name lists all).",
        ),
    ):
        command = option(command)
    return command


def _interval_option(command: F) -> F:
    return click.option(
        "-i",
        "--interval",
        type=float,
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        callback=_interval,
        help="Seconds from one reading to the next, 0.1 to 3600.",
    )(command)


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@_interval_option
@_source_options
@click.option("--ascii/--no-ascii", "ascii_mode", default=None, help="Draw with ASCII only.")
@click.option("--theme", metavar="NAME", help="Colours: dark, light, or a name from the help.")
@click.option(
    "--slow-link/--no-slow-link",
    default=None,
    help="Send less to the terminal.  [default: if the SSH connection is slow]",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(
    context: click.Context,
    interval: float,
    all_processes: bool,
    gpus: int | None,
    demo: str | None,
    ascii_mode: bool | None,
    theme: str | None,
    slow_link: bool | None,
) -> int:
    """Watch GPUs, CPUs and processes live, and see why a GPU sits idle.

    Without a command the dashboard opens. For scripts there are status and stream.
    """
    if context.invoked_subcommand is not None:
        _refuse_misplaced_options(context, context.invoked_subcommand)
        return 0
    source = _source(demo, gpus, all_processes, interval)
    _require_terminal()

    from gpuwatch.sampler import Sampler

    sampler = Sampler(source, interval)
    # The driver wakes up while the interface is imported.
    sampler.start_opening()

    from gpuwatch.tui.app import run_dashboard

    return run_dashboard(
        source, sampler, ascii_mode=ascii_mode, theme=_theme(theme), slow_link=slow_link
    )


@cli.command()
@_source_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one row a GPU.")
@click.option("--quick", is_flag=True, help="Read once, at once: rates such as CPU % are missing.")
def status(
    all_processes: bool,
    gpus: int | None,
    demo: str | None,
    as_json: bool,
    as_csv: bool,
    quick: bool,
) -> int:
    """Print what is there now: a table, JSON or CSV."""
    if as_json and as_csv:
        raise click.UsageError("Choose one of --json and --csv.")
    out = _output()
    source = _source(demo, gpus, all_processes)

    from gpuwatch.outputs.once import SETTLE_SECONDS, NoAnswerError, look_once

    try:
        snapshot = look_once(
            source,
            settle_seconds=0.0 if quick else SETTLE_SECONDS,
            on_wait=_say_waiting if _is_terminal(sys.stderr) else None,
        )
    except NoAnswerError as error:
        return _complain(str(error), EXIT_NO_ANSWER)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    _write(out, lambda: out.write(_status_text(snapshot, out, as_json, as_csv, all_processes)))
    return EXIT_NO_ANSWER if _is_driver_silent(source) else 0


def _say_waiting() -> None:
    print("gpuwatch: waiting for the NVIDIA driver (Ctrl-C ends) ...", file=sys.stderr)


def _is_driver_silent(source: Source) -> bool:
    if source.simulated:
        return False
    from gpuwatch.sources.local import LocalSource

    return isinstance(source, LocalSource) and source.driver_silent


def _status_text(
    snapshot: Snapshot, out: TextIO, as_json: bool, as_csv: bool, all_processes: bool
) -> str:
    if as_json:
        from gpuwatch.codec import status_text

        return status_text(snapshot) + "\n"
    if as_csv:
        from gpuwatch.outputs.csv import csv_text

        return csv_text(snapshot)
    from gpuwatch.outputs.text import PROCESSES_SHOWN, WIDTH_WITHOUT_TERMINAL, status_page

    terminal = out.isatty()
    return (
        status_page(
            snapshot,
            width=_terminal_width(out) if terminal else WIDTH_WITHOUT_TERMINAL,
            colour=terminal and not os.environ.get("NO_COLOR") and not _is_dumb(),
            processes_shown=None if all_processes else PROCESSES_SHOWN,
        )
        + "\n"
    )


@cli.command()
@_interval_option
@_source_options
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after this many snapshots.")
def stream(
    interval: float, all_processes: bool, gpus: int | None, demo: str | None, count: int | None
) -> int:
    """Print a JSON line for each reading, after a header line."""
    out = _output()
    source = _source(demo, gpus, all_processes, interval)

    import asyncio
    import contextlib

    from gpuwatch.outputs.jsonlines import JsonLinesWriter
    from gpuwatch.sampler import Sampler

    writer = JsonLinesWriter(out)
    sampler = Sampler(source, interval)

    def deliver(snapshot: Snapshot) -> None:
        _write(out, lambda: writer.write(snapshot))
        if writer.written == count:
            raise _EnoughError

    try:
        with contextlib.suppress(_EnoughError):
            asyncio.run(sampler.run(deliver))
    except KeyboardInterrupt:
        # Caught here, since click would print an empty line for it.
        return EXIT_INTERRUPTED
    finally:
        sampler.close()
    return 0


class _EnoughError(Exception):
    """Ends a stream that has printed what it was asked for."""


def _source(
    demo: str | None, gpus: int | None, all_processes: bool, interval: float = 1.0
) -> Source:
    from gpuwatch.sources.base import ReadOptions

    options = ReadOptions(interval_seconds=interval, all_processes=all_processes)
    if demo is None:
        if gpus is not None:
            raise click.UsageError("--gpus sets the size of the simulated machine: add --demo.")
        from gpuwatch.sources.local import LocalSource

        return LocalSource(options=options)
    from gpuwatch.sources.simulated import SCENARIOS, SimulatedSource

    if demo not in SCENARIOS:
        from gpuwatch.text import clean

        hint = f"; the command goes first: gpuwatch {demo} --demo" if demo in cli.commands else ""
        raise click.UsageError(
            f"There is no scenario {clean(demo, 60)!r}{hint}: choose one of {', '.join(SCENARIOS)}."
        )
    return SimulatedSource(demo, 1 if gpus is None else gpus, options=options)


def _theme(name: str | None) -> str | None:
    """The full name of a theme; only called once Textual is needed anyway."""
    if name is None:
        return None
    from gpuwatch.text import clean
    from gpuwatch.tui.palette import THEMES

    for known in (name, f"gpuwatch-{name}"):
        if known in THEMES:
            return known
    raise click.UsageError(
        f"There is no theme {clean(name, 60)!r}: choose one of {', '.join(THEMES)}."
    )


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
            f"{option} is for the dashboard: gpuwatch {command} has no use of it."
        )


def _require_terminal() -> None:
    instead = "Use 'gpuwatch status' for one look or 'gpuwatch stream' for JSON lines."
    if not _is_terminal(sys.stdin) or not _is_terminal(sys.stdout):
        raise click.UsageError(
            f"The dashboard needs a terminal to read keys and to draw. {instead}"
        )
    # Textual draws on standard error.
    if not _is_terminal(sys.stderr):
        raise click.UsageError("The screen is drawn on standard error: do not redirect it.")
    if _is_dumb():
        raise click.UsageError(f"This terminal (TERM=dumb) cannot place text. {instead}")


def _is_terminal(stream: TextIO | None) -> bool:
    # None: the descriptor was closed before the start.
    return stream is not None and stream.isatty()


def _is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"


def _terminal_width(out: TextIO) -> int:
    try:
        columns = os.get_terminal_size(out.fileno()).columns
    except OSError:
        columns = 0
    # A serial line says 0 when it does not know.
    return columns or 80


def _output() -> TextIO:
    if sys.stdout is None:
        raise NoOutputError("Standard output is closed, so there is nowhere to print to.")
    # A locale that lacks a character must not end the command.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    return sys.stdout


def _write(out: TextIO, write: Callable[[], object]) -> None:
    try:
        write()
        out.flush()
    except BrokenPipeError as error:
        raise ReaderGoneError from error
    except OSError as error:
        raise NoOutputError(_cannot_write(error)) from error


def _cannot_write(error: OSError) -> str:
    return f"The output cannot be written: {error.strerror}."
