"""The options that several commands have: each is declared once, and read in one way."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from gpuwatch.core.text import clean
from gpuwatch.core.units import PRICE_MOST, is_price, seconds_in

if TYPE_CHECKING:
    from gpuwatch.core.sampler import Sampler
    from gpuwatch.core.source import Clock, Source
    from gpuwatch.recording.hosts.remote import RemoteHost

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]

INTERVAL_LEAST_SECONDS, INTERVAL_MOST_SECONDS = 0.1, 3600.0
"""The bounds of the sampler, which is not imported here: it brings asyncio."""
_OF_THIS_MACHINE = ("demo", "pid", "only", "all_processes", "users")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPU_NAME = re.compile(r"\d{1,3}(\.\d{1,3})?|(GPU|MIG)-[0-9A-Za-z/-]{1,80}", re.ASCII)


# Generic only in new versions of click.
class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, as ``seconds_in`` reads them."""

    name = "time"

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = seconds_in(value)
        if seconds is None:
            self.fail(f"{clean(value, 60)!r} is not a time: write it as 60s, 2m or 1h.", param, ctx)
        if not self.least <= seconds <= self.most:
            bounds = f"{_duration_text(self.least)} and {_duration_text(self.most)}"
            self.fail(f"it must be between {bounds}.", param, ctx)
        return seconds


class Price(click.ParamType):  # type: ignore[type-arg]
    """Price of a GPU-hour."""

    name = "price"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            price = float(value)
        except ValueError:
            price = -1.0
        if not is_price(price):
            text = clean(str(value), 60)
            most = f"{PRICE_MOST:,.0f}"
            self.fail(
                f"{text!r} is no price of a GPU-hour: write a number up to {most}.", param, ctx
            )
        return price


def _duration_text(seconds: float) -> str:
    for unit, name in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second")):
        if seconds >= unit and seconds % unit == 0 and (seconds != 86400.0 or name != "day"):
            number = seconds / unit
            return f"{number:g} {name}{'' if number == 1 else 's'}"
    return f"{seconds:g} seconds"


class Pid(click.ParamType):  # type: ignore[type-arg]
    """The number of a process, which need not run."""

    name = "pid"

    def convert(self, value: Any, *_where: Any) -> int:
        from gpuwatch.jobs.identity.attach import parse_pid

        return parse_pid(value)


def _gpu_names(_context: object, _option: object, value: str | None) -> tuple[str, ...]:
    """Parse GPUs by index, or by the beginning of a uuid; ``cuda``: as the environment names
    them."""
    where_from = f"{clean(value or '', 60)!r}"
    if value == "cuda":
        value, where_from = os.environ.get(_VISIBLE), f"what {_VISIBLE} holds"
    if value is None:
        return ()
    names = tuple([one.strip() for one in value.split(",")])
    if not all(map(_GPU_NAME.fullmatch, names)):
        raise click.BadParameter(f"{where_from} names no GPUs: write 0,2 or how their uuids begin.")
    return names


def grouped(name: str, made: Callable[..., Any], *options: Decorator) -> Decorator:
    """Add options that the command gets as one argument ``name``: a named tuple ``made`` of
    them."""

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def called(*arguments: Any, **given: Any) -> Any:
            fields: tuple[str, ...] = made._fields  # type: ignore[attr-defined]
            values = {field: given.pop(field) for field in fields if field in given}
            return command(*arguments, **{name: made(**values)}, **given)

        decorated: Command = called
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return add


def option_interval(
    least: float = INTERVAL_LEAST_SECONDS,
    default: str | None = "1s",
    help_text: str = "Refresh interval, 0.1s to 1h.",
) -> Decorator:
    return click.option(
        "-i",
        "--interval",
        "interval_seconds",
        type=Duration(least, INTERVAL_MOST_SECONDS),
        default=default,
        show_default=default is not None,
        help=help_text,
    )


def option_pid(help_text: str = "Watch only the job of this process") -> Decorator:
    return click.option("--pid", type=Pid(), help=f"{help_text} (any of its processes).")


def _refuse(_context: object, option: click.Parameter, value: object) -> None:
    if value is None:
        return
    assert isinstance(option, click.Option)
    raise click.UsageError(option.help or "")


def option_refused(*names: str, why: str) -> Decorator:
    """Add an option that other commands have, which ends with a sentence: why this one has not."""
    own = f"refused_{names[-1].strip('-')}"
    return click.option(*names, own, hidden=True, expose_value=False, callback=_refuse, help=why)


def option_gpu() -> Decorator:
    """Add ``-g``, as the argument ``only``."""
    return click.option(
        "-g",
        "--gpu",
        "only",
        callback=_gpu_names,
        metavar="LIST",
        help="Only these GPUs: 0,2 as nvidia-smi numbers them, or how their uuids begin "
        "(cuda: those in CUDA_VISIBLE_DEVICES).",
    )


def _user_names(_context: object, _option: object, value: str | None) -> tuple[str, ...]:
    return () if value is None else tuple([one.strip() for one in value.split(",") if one.strip()])


def option_user() -> Decorator:
    """Add ``-u``, as the argument ``users``."""
    return click.option(
        "-u",
        "--user",
        "users",
        callback=_user_names,
        metavar="USER",
        help="Only processes of USER (ada,bob: of both).",
    )


def user_filter(users: tuple[str, ...]) -> str:
    """Return the dashboard's filter that shows processes of ``users`` alone; all without any."""
    return f"user:{','.join(users)}" if users else ""


def _scenarios(_context: object, _parameter: object, begun: str) -> list[str]:
    from gpuwatch.sources.simulated.source import SCENARIOS

    return [name for name in SCENARIOS if name.startswith(begun)]


def option_demo(doing: str = "Watch") -> Decorator:
    return click.option(
        "--demo",
        is_flag=False,
        flag_value="starved",
        metavar="[SCENARIO[:GPUS]]",
        shell_complete=_scenarios,
        help=f"{doing} a simulated machine instead of this one: starved:8 has eight GPUs (list: "
        "names the scenarios).",
    )


def option_json(help_text: str = "Print one JSON object.") -> Decorator:
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def option_price(*, preferred: bool = True) -> Decorator:
    """Add ``price``: what a GPU-hour costs, given or, with ``preferred``, of the user's own
    preferences; ``None``: not known."""
    return click.option(
        "--price",
        type=Price(),
        default=_preferred_price if preferred else None,
        show_default="price of the preferences file" if preferred else None,
        metavar="NUMBER",
        help="Price of a GPU-hour: what is lost is then said in money, too.",
    )


def _preferred_price() -> float | None:
    """Return the price in the preferences file; a file that cannot be used has none: the dashboard
    says what is wrong with it."""
    from gpuwatch.core.private_files import config_file, read_own

    path = config_file()
    try:
        if not path.exists():
            return None
        import tomllib

        price = tomllib.loads(read_own(path.resolve(), 65_536).decode()).get("price")
    except (OSError, ValueError):
        return None
    return None if price is None or not is_price(price) else float(price)


def option_ascii() -> Decorator:
    return click.option(
        "--ascii/--no-ascii", "ascii_mode", default=None, help="Draw with ASCII only."
    )


class Watched(NamedTuple):
    """The machine that is watched, this one or a simulated one, and one job of it or all."""

    all_processes: bool = False
    demo: str | None = None
    pid: int | None = None
    interval_seconds: float = 1.0
    only: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    slurm_job: str | None = None
    """The only job, which need not have begun."""

    def open(self, clock: Clock | None = None) -> tuple[Source, tuple[str, ...]]:
        """Open the source, attached to the job if there is one, with notes about it for a person;
        ``clock``: of a simulated one. Raises ``click.UsageError``."""
        from gpuwatch.commands import watching

        source = watching.make_source(self.demo, self.all_processes, self.interval_seconds, clock)
        source.options.only_gpus, source.options.slurm_job = self.only, self.slurm_job
        return source, () if self.pid is None else watching.attach_to(source, self.pid)

    def sampler(self, speed: float) -> tuple[Sampler, tuple[str, ...]]:
        """Open it in a sampler; the time of a simulated machine passes ``speed`` times as fast."""
        import asyncio
        import time

        from gpuwatch.core.sampler import Sampler
        from gpuwatch.core.source import ManualClock

        if self.demo is None:
            source, notes = self.open()
            return Sampler(source, self.interval_seconds), notes
        clock = ManualClock(unix_epoch_seconds=time.time())

        async def turn(passed: float, _wake: asyncio.Event) -> None:
            clock.advance(passed)
            await asyncio.sleep(passed / speed)

        source, notes = self.open(clock)
        return Sampler(source, self.interval_seconds, clock, sleep=turn), notes


def watched_options(*, interval: bool = True, processes: bool = True) -> Decorator:
    """Add the options that say what is watched, as the argument ``watched``."""
    help_text = "Show all processes, not only those related to GPUs."
    every = click.option("-a", "--all", "all_processes", is_flag=True, help=help_text)
    options: list[Decorator] = [option_demo(), option_gpu(), option_pid(), option_user()]
    options += [every] * processes
    return grouped("watched", Watched, *[option_interval()] * interval, *options)


class Remote(NamedTuple):
    """Other machines that are watched, over ssh."""

    host: tuple[str, ...] = ()
    hosts: str | None = None
    slurm: str | None = None
    remote_command: str = "gpuwatch"

    def __bool__(self) -> bool:
        return bool(self.host) or self.hosts is not None or self.slurm is not None

    def open(self, *, findings: bool = False) -> list[RemoteHost]:
        """Open the hosts, each read at the interval given, or at one that suits their number;
        ``findings``: each says all that it finds, in full.
        Raises ``HostNameError``, and ``click.UsageError`` on options that are about this
        machine."""
        from gpuwatch.recording.hosts.names import host_names
        from gpuwatch.recording.hosts.remote import SSH, RemoteHost, remote_command

        context, interval_seconds = click.get_current_context(), None
        for parameter in context.command.params:
            name = parameter.name or ""
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                if name in _OF_THIS_MACHINE:
                    raise click.UsageError(f"{parameter.opts[-1]} cannot be used with hosts.")
                if name == "interval_seconds":
                    interval_seconds = context.params[name]
        names = host_names(self.host, self.hosts, self.slurm)
        # 256 hosts every 2 s take a tenth of a core here.
        seconds = interval_seconds or (1.0 if len(names) <= 8 else 2.0)
        command = remote_command(seconds, self.remote_command, findings=findings)
        return [RemoteHost(name, (*SSH, "--", name, command), seconds) for name in names]


def _ssh_hosts(_context: object, _parameter: object, begun: str) -> list[str]:
    from gpuwatch.recording.hosts.names import configured_hosts

    return configured_hosts(begun)


def option_host(
    does: str = "Watch HOST over ssh instead of this machine",
    more_help: str = "",
    *,
    expose_value: bool = True,
) -> Decorator:
    return click.option(
        "--host",
        multiple=True,
        metavar="HOST",
        shell_complete=_ssh_hosts,
        expose_value=expose_value,
        help=f"{does} (repeat it, or separate names with commas).{more_help}",
    )


def option_remote_command() -> Decorator:
    return click.option(
        "--remote-command",
        default="gpuwatch",
        metavar="COMMAND",
        help="How to call gpuwatch on the hosts: '~/venv/bin/gpuwatch'.",
    )


def remote_options(more_help: str = "") -> Decorator:
    """Add the options that name other machines, as the argument ``remote``."""
    return grouped(
        "remote",
        Remote,
        option_host(more_help=more_help),
        click.option("--hosts", metavar="FILE", help="Watch the hosts in FILE, one per line."),
        click.option("--slurm", metavar="JOBID", help="Watch the hosts of a Slurm job."),
        option_remote_command(),
    )


class Look(NamedTuple):
    """The options for how the dashboard is drawn."""

    ascii_mode: bool | None
    theme: str | None
    slow_link: bool
    config: Path | None
    price: float | None = None

    def options(self) -> dict[str, Any]:
        """Return options of ``GpuwatchApp``: what is given here comes before what was preferred."""
        from gpuwatch.tui.preferences import Preferences

        options = self._asdict()
        options["preferences"] = preferences = Preferences(options.pop("config"))
        price = options.pop("price")
        if price is not None:
            preferences.values["price"] = price
        given = click.get_current_context().get_parameter_source("interval_seconds")
        if given is ParameterSource.COMMANDLINE:
            preferences.values.pop("interval_seconds", None)
        return options

    def checked(self) -> Look:
        """Return these with the theme by its full name. Imports Textual if there is a name to look
        up. Raises ``click.UsageError``."""
        if self.theme is None:
            return self
        from gpuwatch.tui.display import theme_name
        from gpuwatch.tui.terminal.palette import KNOWN_THEMES, THEMES

        known = theme_name(self.theme, {})
        if known not in KNOWN_THEMES:
            raise click.UsageError(
                f"There is no theme {clean(self.theme, 60)!r}: choose one of {', '.join(THEMES)}."
            )
        return self._replace(theme=known)


def look_options() -> Decorator:
    """Add the options that say how the dashboard is drawn, as the argument ``look``."""
    return grouped(
        "look",
        Look,
        option_ascii(),
        click.option(
            "--theme", metavar="NAME", help="Colours: dark, light, ansi, or a theme of Textual."
        ),
        click.option(
            "--slow-link",
            is_flag=True,
            help="Send less to the terminal, as over a slow SSH connection.",
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Where theme, sort order, range, interval and price are kept (TOML).  "
            "[default: ~/.config/gpuwatch/config.toml]",
        ),
        option_price(preferred=False),
    )


class RunOptions(NamedTuple):
    """Options of ``gpuwatch run``, the command aside."""

    interval_seconds: float
    look: Look
    plain: bool = False
    output: Path | None = None
    kill_on_exit: bool = False
    no_report: bool = False
    log_to: str | None = None
