"""``gpuwatch tune``: measure a DataLoader with other settings, and say which to take.

Exit codes: 0 measured, 2 the target cannot be used or no setting could be measured, 130 Ctrl-C or
SIGTERM: what was measured is printed all the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.commands import common

if TYPE_CHECKING:
    from gpuwatch.tuning.bench.bench import Bench
    from gpuwatch.tuning.search.search import Outcome, Progress

VALUES_MOST = 32
TIMEOUT_LEAST, TIMEOUT_MOST = 10.0, 60.0
"""Seconds."""
_BAR = 10


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
            from gpuwatch.commands.tune.memory import memory_command

            return memory_command.make_context(f"{info_name} memory", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def _counts(least: int, most: int) -> Any:
    """A callback for whole numbers with commas between."""

    def parse(
        _context: click.Context, _parameter: click.Parameter, value: str | None
    ) -> tuple[int, ...]:
        if value is None:
            return ()
        parts = [part.strip() for part in value.split(",")]
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
            raise click.BadParameter("write whole numbers with commas between, as in 0,2,4,8.")
        found = tuple(dict.fromkeys(int(part) for part in parts))
        if len(found) > VALUES_MOST or not all(least <= one <= most for one in found):
            raise click.BadParameter(
                f"each is between {least} and {most}, and there are at most {VALUES_MOST}."
            )
        return found

    return parse


def _flags(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[bool, ...]:
    if value is None:
        return ()
    words = {"yes": True, "true": True, "no": False, "false": False}
    parts = [part.strip().lower() for part in value.split(",")]
    if not all(part in words for part in parts):
        raise click.BadParameter("write yes, no or no,yes.")
    return tuple(dict.fromkeys(words[part] for part in parts))


def _budget(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    return common.parse_duration(value, 1.0, 24 * 3600.0)


def _patience(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> float | None:
    return None if value is None else common.parse_duration(value, 1.0, 3600.0)


@click.command("tune", cls=_Tune)
@click.argument("target", required=False, metavar="TARGET")
@click.option(
    "--batch-size",
    callback=_counts(1, 10**8),
    metavar="N[,N...]",
    help="Samples in a batch; needed where TARGET is a Dataset.  [default: the loader's own]",
)
@click.option(
    "--num-workers",
    callback=_counts(0, 512),
    metavar="N[,N...]",
    help="Try these.  [default: searched for]",
)
@click.option(
    "--prefetch-factor",
    callback=_counts(1, 1024),
    metavar="N[,N...]",
    help="Try these.  [default: 2,4,8]",
)
@click.option(
    "--pin-memory",
    callback=_flags,
    metavar="yes|no|no,yes",
    help="Only with a GPU.  [default: no,yes]",
)
@click.option(
    "--persistent-workers", callback=_flags, metavar="yes|no|no,yes", help="[default: no,yes]"
)
@click.option(
    "--step",
    metavar="FILE:NAME",
    help="Measure end to end, with this train step on every batch; see above.",
)
@click.option(
    "--budget",
    callback=_budget,
    default="2m",
    show_default=True,
    metavar="TIME",
    help="How long to measure, once TARGET is imported.",
)
@click.option(
    "--timeout",
    callback=_patience,
    metavar="TIME",
    help="How long a batch may take.  [default: a quarter of the budget, 10s to 60s]",
)
@click.option(
    "--grid", is_flag=True, help="Measure every combination of what is listed; nothing is dropped."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--save", is_flag=True, help="Save the result, for --last and for gpuwatch report.")
@click.option("--last", is_flag=True, help="Print the last saved result (of TARGET).")
@click.option("--ascii/--no-ascii", "ascii_mode", default=None, help="Draw with ASCII only.")
def tune_command(
    target: str | None,
    batch_size: tuple[int, ...],
    num_workers: tuple[int, ...],
    prefetch_factor: tuple[int, ...],
    pin_memory: tuple[bool, ...],
    persistent_workers: tuple[bool, ...],
    step: str | None,
    budget: float,
    timeout: float | None,
    grid: bool,
    as_json: bool,
    save: bool,
    last: bool,
    ascii_mode: bool | None,
) -> int:
    """Measure a DataLoader with other settings: gpuwatch tune train.py:loader

    TARGET is file.py:name or package.module:name: a DataLoader, a Dataset (say --batch-size), or
    a function that returns one. A function gets those of num_workers, batch_size, pin_memory,
    prefetch_factor and persistent_workers that it accepts, and no other arguments. The file is
    imported, so the training code belongs under if __name__ == '__main__':.

    Every measurement runs in its own process, so a setting that crashes or hangs affects only
    itself. Clearly slower settings are dropped, the others measured in turns until their 95%
    intervals settle or the budget ends. The smallest setting within 3% of the best is
    recommended; settings that cannot be told apart yet are listed.
    Ctrl-C ends it, and prints what is measured.

    --step names a function train_step(batch) that does one optimizer step and moves the batch to
    the GPU itself, or a function without arguments that builds the model and returns one.

    gpuwatch tune memory --step FILE:NAME finds the largest batch that fits: see its own --help.
    """
    if last:
        return _print_last(target, as_json, ascii_mode)
    if target is None:
        raise click.UsageError("Say what to measure, as in: gpuwatch tune train.py:loader")
    asked = {
        "num_workers": num_workers,
        "batch_size": batch_size,
        "prefetch_factor": prefetch_factor,
        "pin_memory": pin_memory,
        "persistent_workers": persistent_workers,
    }
    common.check_targets(target, step)
    out = common.open_output()

    from gpuwatch.tuning.bench.bench import Bench, BenchError

    if timeout is None:
        timeout = min(TIMEOUT_MOST, max(TIMEOUT_LEAST, budget / 4))
    line = common.StatusLine(0.0)
    bench = Bench(
        target,
        batch_size=batch_size[0] if batch_size else None,
        step=step,
        patience_seconds=timeout,
        tick=line_ticker(line, target),
        notice=lambda sentence: _show(line, sentence),
    )
    with common.terminated_as_interrupted():
        try:
            result = _measured(bench, line, target, asked, step, budget, grid)
        except BenchError as error:
            line.end()
            return _unusable(error)
        except KeyboardInterrupt:
            line.end()
            return common.EXIT_INTERRUPTED
        finally:
            line.end()
            _close(bench)
    if save:
        _keep(result)
    common.write_to(out, lambda: out.write(_text(result, as_json, ascii_mode) + "\n"))
    if result["interrupted"]:
        return common.EXIT_INTERRUPTED
    return 0 if result["recommended"] is not None else common.EXIT_USAGE


def _show(line: common.StatusLine, sentence: str) -> None:
    line.end()
    common.complain(sentence, 0)


def line_ticker(line: common.StatusLine, target: str) -> Any:
    """What is shown until the first measurement."""
    from gpuwatch.core.text import clean

    shown = f"gpuwatch: {clean(target, 60)} is being imported ... (Ctrl-C ends it)"

    def tick() -> None:
        line.show(shown)

    return tick


def _measured(
    bench: Bench,
    line: common.StatusLine,
    target: str,
    asked: Mapping[str, tuple[Any, ...]],
    step: str | None,
    budget: float,
    grid: bool,
) -> dict[str, Any]:
    from gpuwatch.jobs.resources.cores import read_cores
    from gpuwatch.tuning.bench import usage
    from gpuwatch.tuning.search.plan import PlanError, make_plan
    from gpuwatch.tuning.search.result import result
    from gpuwatch.tuning.search.search import Search

    description = bench.open()
    cores = read_cores(os.getpid(), os.environ).usable_cores or float(os.cpu_count() or 1)
    given = {knob: values for knob, values in asked.items() if values}
    try:
        plan = make_plan(description, given, cores=cores, grid=grid)
    except PlanError as error:
        raise click.UsageError(str(error)) from None
    search = Search(
        bench,
        plan,
        budget_seconds=budget,
        memory_bytes=usage.available_memory(),
        tell=_bar(line, bench, budget),
    )
    outcome = search.run()
    copies = _copies(bench, outcome, description)
    return result(
        outcome,
        plan,
        description,
        target=target,
        step=step,
        machine=os.uname().nodename,
        folder=str(Path.cwd()),
        budget_seconds=budget,
        copies=copies,
        more_notes=_how_it_went(bench),
    )


def _how_it_went(bench: Bench) -> tuple[str, ...]:
    if bench.reloads_because is None:
        return ()
    note = "Each measurement imported the target anew, which used up some of the budget"
    return (f"{note}: {bench.reloads_because}.",)


def _copies(
    bench: Bench, outcome: Outcome, description: Mapping[str, Any]
) -> dict[str, Any] | None:
    if description["accelerator"] is None or outcome.measured is None or outcome.interrupted:
        return None
    try:
        return bench.copies(outcome.measured)
    except KeyboardInterrupt:
        outcome.interrupted = True
        return None


def _bar(line: common.StatusLine, bench: Bench, budget: float) -> Any:
    def tell(progress: Progress) -> None:
        begun = monotonic()

        def show() -> None:
            line.show(bar(progress, budget, monotonic() - begun))

        show()
        bench.tick = show

    return tell


def bar(progress: Progress, budget: float, since: float) -> str:
    """How much of the budget is used ``since`` seconds after ``progress`` was told, what is being
    measured, the fastest so far. The end may come sooner."""
    from gpuwatch.core import units

    used = min(1.0, progress.used + since / budget)
    done = int(_BAR * used)
    left = budget * (1 - used)
    time = f"at most {units.age(left)} left" if left >= 1 else "ending"
    shown = f"num_workers={progress.setting.num_workers}"
    if progress.phase not in ("num_workers", "everything"):
        value = getattr(progress.setting, progress.phase)
        if isinstance(value, bool):
            value = "yes" if value else "no"
        shown = f"{progress.phase}={value}"
    best = "" if progress.best is None else f", best {progress.best:,.0f}/s"
    return f"gpuwatch: [{'#' * done}{'.' * (_BAR - done)}] {time}, {shown}{best}"


def _close(bench: Bench) -> None:
    """Nothing is left behind, however often Ctrl-C is pressed."""
    while True:
        try:
            return bench.close()
        except KeyboardInterrupt:
            continue


def _unusable(error: Any) -> int:
    code = common.complain(str(error), common.EXIT_USAGE)
    if error.output:
        common.complain("its last output:", code)
        for printed in error.output:
            common.complain(f"| {printed}", code)
    return code


def _keep(result: dict[str, Any]) -> None:
    from gpuwatch.tuning.search.keep import KeepError, save

    try:
        path = save(result)
    except KeepError as error:
        common.complain(str(error), 0)
    else:
        common.complain(f"saved in {path}; gpuwatch tune --last prints it again.", 0)


def _print_last(target: str | None, as_json: bool, ascii_mode: bool | None) -> int:
    from gpuwatch.core.text import clean
    from gpuwatch.tuning.search.keep import last

    found = last(target)
    if found is None:
        of = "" if target is None else f" of {clean(target, 200)}"
        raise click.UsageError(f"No result{of} is saved: gpuwatch tune TARGET --save saves one.")
    out = common.open_output()
    common.write_to(out, lambda: out.write(_text(found, as_json, ascii_mode) + "\n"))
    return 0


def _text(result: dict[str, Any], as_json: bool, ascii_mode: bool | None) -> str:
    if as_json:
        return json.dumps(result, indent=2, allow_nan=False)
    from gpuwatch.commands.recordings.forms import drawing
    from gpuwatch.outputs.tuning.text import text

    look = drawing(common.open_output(), ascii_mode)
    return text(result, width=look["width"], unicode=look["unicode"])
