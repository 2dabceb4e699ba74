"""Commands and options; the one place that wires the layers together.

Everything heavy is imported by the command that needs it: ``status`` and ``--help`` load
no Textual. Exit codes: see ``printing``.
"""

import gc
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

import click
from click.core import ParameterSource

from gpuwatch import __version__
from gpuwatch.commands.options import (
    Look,
    Remote,
    Watched,
    look_options,
    option_host,
    option_remote_command,
    remote_options,
    user_filter,
    watched_options,
)
from gpuwatch.commands.printing import (
    CANNOT_WRITE,
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_OUTPUT,
    ReaderGoneError,
    cannot_write,
    complain,
    require_screen,
)
from gpuwatch.commands.watching import check_open_files
from gpuwatch.core import memory_trim
from gpuwatch.core.text import SentenceError, clean

GROUPS = {
    "Watch": {
        "run": "Start a job and watch it: run -- python train.py",
        "status": "Print the current state: a table, JSON or CSV",
        "doctor": "Check the driver, every reading and the terminal",
    },
    "Why a GPU sits idle": {
        "diagnose": "Watch for 30 s, or read FILE, and name the cause",
        "explain": "Print what a rule of the diagnosis checks",
        "tune": "Measure a DataLoader with other settings",
        "demo-job": "Practise on a real job with a fault",
    },
    "Record and look back": {
        "record": "Record this machine into FILE",
        "replay": "Play a recording in the dashboard",
        "report": "Print the report of a job or recording, or its CSV",
        "compare": "Compare two recordings or reports",
    },
    "Serve": {
        "watch": "Report findings to a log, a command, a webhook",
        "exporter": "Serve metrics and findings to Prometheus",
        "stream": "Print a JSON line for each reading",
    },
}
"""The commands as the help lists them, each with a line that 80 columns hold."""
_FILES = {"compare": "report", "demo-job": "demo_job"}
"""The file of a command that is not named like it."""
_COMMANDS = frozenset(name for group in GROUPS.values() for name in group)
_PARTS = {
    "export": "gpuwatch report FILE --csv OUT writes its readings as CSV",
    "merge": "gpuwatch report and diagnose take several FILEs",
    "stacks": "gpuwatch diagnose --stacks --pid PID samples them",
}
"""Commands that people look for and that do not exist, and the one that does it."""
_EXAMPLES = (
    ("gpuwatch", "the dashboard; --demo simulates a machine"),
    ("gpuwatch --pid 4242", "only the job of this process"),
    ("gpuwatch diagnose", "why the GPUs idle, in 30 seconds"),
    ("gpuwatch report run.jsonl.zst", "what happened in a recording"),
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    # asyncio imports it for encrypted connections, of which gpuwatch makes none. It does without,
    # as in a Python built without OpenSSL, and saves 4 MiB and a tenth of the time to start.
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
    # What is imported stays: looking through it for garbage takes a fifth of the time to start.
    gc.set_threshold(memory_trim.YOUNG_OBJECTS)
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code, and says in one sentence what went wrong."""
    try:
        code = cli.main(args=arguments, prog_name="gpuwatch", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        said: click.ClickException = error
        if isinstance(error, click.NoSuchOption):
            # The nearest alone: --gpus is not --user.
            nearest = list(error.possibilities or ())[:1]
            said = click.NoSuchOption(error.option_name, possibilities=nearest)
        return complain(said.format_message(), error.exit_code)
    except SentenceError as error:
        if error.exit_code == EXIT_OUTPUT:
            _discard_output()
        return complain(str(error), error.exit_code)
    except click.Abort:
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
    _discard_output()
    if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
        # What click itself prints (a help text, say) does not pass ``writing``.
        return complain(cannot_write(error), EXIT_OUTPUT)
    if os.environ.get("GPUWATCH_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    return complain(
        f"{type(error).__name__}: {clean(str(error), 300)}. This is a bug in gpuwatch: please "
        "report it (GPUWATCH_DEBUG=1 shows where it happened).",
        EXIT_BUG,
    )


def _discard_output() -> None:
    """Discard what is still buffered: it must not fail once more when the interpreter ends."""
    if sys.stdout is not sys.__stdout__:
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
    except OSError:
        return


_ELSEWHERE = ("status", "stream", "diagnose", "doctor", "record", "report")
"""Commands that can be run on another machine."""


def _elsewhere(name: str) -> click.Command:
    """Return the command ``name``, run on other machines with all options that are not about
    them."""

    @click.command(name, context_settings={"ignore_unknown_options": True}, add_help_option=False)
    @option_host()
    @option_remote_command()
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def command(host: tuple[str, ...], remote_command: str, rest: tuple[str, ...]) -> int:
        from gpuwatch.recording.hosts.remote import run_there

        return run_there(host, (name, *rest), remote_command)

    return command


def _unknown(name: str) -> str:
    """Return the sentence for a command that there is not."""
    near = get_close_matches(name, _COMMANDS, 1, 0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    hint = _PARTS.get(name) or f"{hint}gpuwatch --help lists the commands"
    return f"There is no command {clean(name, 60)!r}: {hint}."


class _Commands(click.Group):
    """Imports a command when it is asked for: the dashboard needs none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"gpuwatch.commands.{_FILES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        if cmd_name in _ELSEWHERE and all(one.name != "host" for one in command.params):
            # For its help and completion: with it, another command runs (``resolve_command``).
            option_host("Run this on HOST over ssh", expose_value=False)(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(_unknown(args[0]))
        name, command, rest = super().resolve_command(ctx, args)
        if name in _ELSEWHERE and any(re.match("--host(=|$)", one) for one in rest):
            return name, _elsewhere(name), rest
        return name, command, rest

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what most people look for first: examples and commands, then the options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            formatter.write_dl(_EXAMPLES)
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:10}", says) for name, says in commands.items()])
        click.Command.format_options(self, ctx, formatter)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Caught here, since click would print an empty line for it.
            return EXIT_INTERRUPTED


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@watched_options()
@look_options()
@remote_options(" After status, stream, diagnose, doctor, record or report: run the command there.")
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, watched: Watched, look: Look, remote: Remote) -> int:
    """Watch GPUs, CPUs and processes live, and see why a GPU sits idle.

    Without a command the dashboard opens, with --pid on one job.
    """
    check_open_files()
    if context.invoked_subcommand is not None:
        _refuse_misplaced_options(context, context.invoked_subcommand)
        return 0
    if remote:
        hosts = remote.open()
        if len(hosts) == 1 and remote.slurm is not None:
            from gpuwatch.jobs.identity.attach import slurm_process

            watched = watched._replace(pid=slurm_process(remote.slurm))
    there = remote and watched.pid is None
    if not there:
        source, notes = watched.open()
    require_screen(
        "The dashboard",
        "Use 'gpuwatch status' for one snapshot or 'gpuwatch stream' for JSON lines.",
    )
    if there:
        from gpuwatch.tui.pages.fleet import run_fleet

        return run_fleet(hosts, slurm_job=remote.slurm, **look.checked().options())

    from gpuwatch.core.sampler import Sampler

    sampler = Sampler(source, watched.interval_seconds)
    # The driver wakes up while the interface is imported.
    sampler.start_opening()

    from gpuwatch.tui.app import run_dashboard

    return run_dashboard(
        source,
        sampler,
        **look.checked().options(),
        attached=source.options.attached,
        filter_text=user_filter(watched.users),
        message=" ".join(notes) or None,
    )


def _refuse_misplaced_options(context: click.Context, command: str) -> None:
    """``gpuwatch --interval 2 stream`` would look accepted and do nothing."""
    invoked = cli.get_command(context, command)
    known = set() if invoked is None else {parameter.name for parameter in invoked.params}
    known |= {"host", "remote_command"} if command in _ELSEWHERE else set()
    for parameter in context.command.params:
        if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
            continue
        option = parameter.opts[-1]
        if parameter.name in known:
            given = "" if getattr(parameter, "is_flag", False) else " ..."
            raise click.UsageError(
                f"{option} goes after the command, as in: gpuwatch {command} {option}{given}"
            )
        raise click.UsageError(
            f"{option} is for the dashboard: gpuwatch {command} does not use it."
        )
