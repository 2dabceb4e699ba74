"""``gpuwatch tune``: measure a DataLoader with other settings, and say which to take.

Exit codes: 0 measured, 2 the target cannot be used or no setting could be measured, 130 Ctrl-C or
SIGTERM: what was measured is printed all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.commands.options import Duration, option_ascii, option_json
from gpuwatch.commands.printing import (
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    StatusLine,
    drawing,
    open_output,
    print_text,
)
from gpuwatch.commands.tune.memory import check_targets, importing, measuring, memory_command
from gpuwatch.core import units
from gpuwatch.tuning.settings import EVERYTHING, KNOBS, WORKERS, Knob

if TYPE_CHECKING:
    from gpuwatch.tuning.bench import Bench
    from gpuwatch.tuning.search.result import Result
    from gpuwatch.tuning.search.visits import Progress

VALUES_MOST = 32
TIMEOUT_LEAST, TIMEOUT_MOST = 10.0, 60.0
"""Seconds."""
_BAR = 10
_WORDS = {"yes": True, "true": True, "no": False, "false": False}


class _Tune(click.Command):
    """``gpuwatch tune memory`` is a command of its own: a TARGET always has a colon in it."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args[:1] == ["memory"]:
            return memory_command.make_context(f"{info_name} memory", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def _values(knob: Knob, text: str) -> tuple[Any, ...]:
    """Values with commas between. Raises ``click.BadParameter``."""
    parts = [part.strip().lower() for part in text.split(",")]
    if knob.values is None:
        if not all(part in _WORDS for part in parts):
            raise click.BadParameter("write yes, no or no,yes.")
        return tuple(dict.fromkeys(_WORDS[part] for part in parts))
    least, most = knob.values
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise click.BadParameter("write whole numbers with commas between, as in 0,2,4,8.")
    found = tuple(dict.fromkeys(int(part) for part in parts))
    if len(found) > VALUES_MOST or not all(least <= one <= most for one in found):
        raise click.BadParameter(
            f"each is between {least} and {most}, and there are at most {VALUES_MOST}."
        )
    return found


def _knob_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for knob in reversed(KNOBS):
        command = click.option(
            f"--{knob.name.replace('_', '-')}",
            callback=lambda _context, _parameter, value, knob=knob: (
                () if value is None else _values(knob, value)
            ),
            metavar="yes|no|no,yes" if knob.values is None else "N[,N...]",
            help=knob.help,
        )(command)
    return command


@click.command("tune", cls=_Tune)
@click.argument("target", required=False, metavar="TARGET")
@_knob_options
@click.option(
    "--step",
    metavar="FILE:NAME",
    help="Measure end to end, with this train step on every batch; see above.",
)
@click.option(
    "--budget",
    type=Duration(1.0, 24 * 3600.0),
    default="2m",
    show_default=True,
    help="How long to measure, once TARGET is imported.",
)
@click.option(
    "--timeout",
    type=Duration(1.0, 3600.0),
    help="How long a batch may take.  [default: a quarter of the budget, 10s to 60s]",
)
@click.option(
    "--grid", is_flag=True, help="Measure every combination of what is listed; nothing is dropped."
)
@option_json()
@option_ascii()
def tune_command(
    target: str | None,
    step: str | None,
    budget: float,
    timeout: float | None,
    grid: bool,
    as_json: bool,
    ascii_mode: bool | None,
    **knobs: tuple[Any, ...],
) -> int:
    """Measure a DataLoader with other settings: gpuwatch tune train.py:loader

    TARGET is file.py:name or package.module:name: a DataLoader, a Dataset (say --batch-size), or
    a function that returns one. A function gets those of num_workers, batch_size, pin_memory,
    prefetch_factor and persistent_workers that it accepts, and no other arguments. The file is
    imported, so the training code belongs under if __name__ == '__main__':.

    Every measurement runs in its own process, so a setting that crashes or hangs affects only
    itself. Clearly slower settings are dropped; the others take turns until their 95% intervals
    settle or the budget ends. The smallest setting within 3% of the best is recommended, and those
    too close to call are listed. Ctrl-C prints what was measured so far.

    --step names a function train_step(batch) that does one optimizer step and moves the batch to
    the GPU itself, or a function without arguments that builds the model and returns one.

    gpuwatch tune memory --step FILE:NAME finds the largest batch that fits: see its own --help.
    """
    if target is None:
        raise click.UsageError("Say what to measure, as in: gpuwatch tune train.py:loader")
    check_targets(target, step)
    out = open_output()

    from gpuwatch.tuning.bench import Bench

    line = StatusLine(0.0)
    bench = Bench(
        target,
        batch_size=knobs["batch_size"][0] if knobs["batch_size"] else None,
        step=step,
        patience_seconds=timeout or min(TIMEOUT_MOST, max(TIMEOUT_LEAST, budget / 4)),
        tick=importing(line, target),
        notice=line.complain,
    )
    asked = {knob: values for knob, values in knobs.items() if values}
    with measuring(bench, line):
        result = _measured(bench, line, target, asked, step, budget, grid)
    print_text(_text(result, as_json, ascii_mode), out)
    if result.interrupted:
        return EXIT_INTERRUPTED
    return 0 if result.recommended is not None else EXIT_USAGE


def _measured(
    bench: Bench,
    line: StatusLine,
    target: str,
    asked: Mapping[str, tuple[Any, ...]],
    step: str | None,
    budget: float,
    grid: bool,
) -> Result:
    from gpuwatch.jobs.cores import read_cores
    from gpuwatch.tuning.child.usage import available_memory
    from gpuwatch.tuning.search.plan import make_plan
    from gpuwatch.tuning.search.result import make_result
    from gpuwatch.tuning.search.search import Search
    from gpuwatch.tuning.search.visits import Visits

    description = bench.open()
    assert description is not None
    cores = read_cores(os.getpid(), os.environ).usable_cores or float(os.cpu_count() or 1)
    plan = make_plan(description, asked, cores=cores, grid=grid)

    def report(progress: Progress) -> None:
        begun = monotonic()
        bench.tick = lambda: line.show(bar(progress, budget, monotonic() - begun))
        bench.tick()

    visits = Visits(
        bench.visit, plan, budget_seconds=budget, memory_bytes=available_memory(), report=report
    )
    outcome = Search(visits).run()
    anew = "Each measurement imported the target again, which used up some of the budget"
    return make_result(
        outcome,
        plan,
        description,
        target=target,
        step=step,
        machine=os.uname().nodename,
        folder=str(Path.cwd()),
        budget_seconds=budget,
        more_notes=(f"{anew}: {bench.reloads_because}.",) if bench.reloads_because else (),
    )


def bar(progress: Progress, budget: float, since: float) -> str:
    """How much of the budget is used ``since`` seconds after ``progress``, what is being measured,
    the fastest so far. The end may come sooner."""
    used = min(1.0, progress.used + since / budget)
    done = int(_BAR * used)
    left = budget * (1 - used)
    time = f"at most {units.age(left)} left" if left >= 1 else "ending"
    knob = WORKERS if progress.phase == EVERYTHING else progress.phase
    value = getattr(progress.setting, knob)
    if isinstance(value, bool):
        value = "yes" if value else "no"
    best = "" if progress.best is None else f", best {progress.best:,.0f}/s"
    return f"gpuwatch: [{'#' * done}{'.' * (_BAR - done)}] {time}, {knob}={value}{best}"


def _text(result: Result, as_json: bool, ascii_mode: bool | None) -> str:
    if as_json:
        import msgspec

        return msgspec.json.format(msgspec.json.encode(result), indent=2).decode()
    from gpuwatch.outputs.tuning.text import text

    look = drawing(open_output(), ascii_mode)
    return text(result, width=look.width, unicode=look.unicode)
