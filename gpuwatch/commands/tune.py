"""``gpuwatch tune``: measure a DataLoader with other settings, and say which to take; and
``gpuwatch tune memory``: how large a batch fits.

Exit codes: 0 measured, 2 the target cannot be used or no setting could be measured, 130 Ctrl-C or
SIGTERM: what was measured is printed all the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.commands.options import Duration, option_ascii, option_json
from gpuwatch.commands.printing import (
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    StatusLine,
    complain,
    drawing,
    open_output,
    print_text,
)
from gpuwatch.commands.watching import terminated_as_interrupted
from gpuwatch.core import units
from gpuwatch.core.text import clean

if TYPE_CHECKING:
    from gpuwatch.tuning.bench import Bench
    from gpuwatch.tuning.records import Setting

VALUES_MOST = 32
TIMEOUT_LEAST_SECONDS, TIMEOUT_MOST_SECONDS = 10.0, 60.0
MEMORY_WIDTH_WITHOUT_TERMINAL = 100
MEMORY_SCHEMA = 6
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


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


def _numbers(least: int, most: int) -> Callable[..., tuple[int, ...]]:
    """Return a callback for whole numbers with commas between; raises ``click.BadParameter``."""

    def parsed(
        _context: click.Context, _parameter: click.Parameter, text: str | None
    ) -> tuple[int, ...]:
        if text is None:
            return ()
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
            raise click.BadParameter("write whole numbers with commas between, as in 0,2,4,8.")
        found = tuple(dict.fromkeys(int(part) for part in parts))
        if len(found) > VALUES_MOST or not all(least <= one <= most for one in found):
            raise click.BadParameter(
                f"each is between {least} and {most}, and there are at most {VALUES_MOST}."
            )
        return found

    return parsed


@click.command("tune", cls=_Tune)
@click.argument("target", required=False, metavar="TARGET")
@click.option(
    "--batch-size",
    callback=_numbers(1, 10**8),
    metavar="N[,N...]",
    help="Samples in a batch; needed where TARGET is a Dataset.  [default: the loader's own]",
)
@click.option(
    "--num-workers",
    callback=_numbers(0, 512),
    metavar="N[,N...]",
    help="Try these.  [default: searched for]",
)
@click.option(
    "--prefetch-factor",
    callback=_numbers(1, 1024),
    metavar="N[,N...]",
    help="Try these.  [default: 2,4,8]",
)
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
@option_json()
@option_ascii()
def tune_command(
    target: str | None,
    step: str | None,
    budget: float,
    timeout: float | None,
    as_json: bool,
    ascii_mode: bool | None,
    **asked: tuple[Any, ...],
) -> int:
    """Measure a DataLoader with other settings: gpuwatch tune train.py:loader

    TARGET is file.py:name or package.module:name: a DataLoader, a Dataset (say --batch-size), or
    a function without arguments that returns one. The file is imported, so the training code
    belongs under if __name__ == '__main__':.

    The number of workers is varied first, then one knob at a time. Every setting is visited three
    times, in turns, and the smallest within 3% of the fastest is recommended. A setting that
    crashes or hangs is reported, and the others go on. Ctrl-C prints what was measured so far.

    --step names a function train_step(batch) that does one optimizer step and moves the batch to
    the GPU itself, or a function without arguments that builds the model and returns one.

    gpuwatch tune memory --step FILE:NAME finds the largest batch that fits: see its own --help.
    """
    if target is None:
        raise click.UsageError("Say what to measure, as in: gpuwatch tune train.py:loader")
    _check_targets(target, step)
    out = open_output()

    from gpuwatch.jobs.cores import read_cores
    from gpuwatch.tuning.bench import Bench
    from gpuwatch.tuning.search import Result, Search
    from gpuwatch.tuning.search import as_json as rows_of

    line = StatusLine(0.0)
    most = min(TIMEOUT_MOST_SECONDS, max(TIMEOUT_LEAST_SECONDS, budget / 4))
    bench = Bench(
        target,
        batch_size=asked["batch_size"][0] if asked["batch_size"] else None,
        step=step,
        patience_seconds=timeout or most,
    )

    def report(knob: str, setting: Setting, used: float, best: float) -> None:
        left = units.age(max(0.0, budget * (1 - used)))
        fastest = f", best so far {best:,.0f}/s" if best else ""
        says = f"at most {left} left, measuring {knob}={getattr(setting, knob)}{fastest}"
        bench.tick = lambda: line.show(f"gpuwatch: {says}")

    with _measuring(bench, line, target):
        loaded = bench.open()
        cores = read_cores(os.getpid(), os.environ).usable_cores or float(os.cpu_count() or 1)
        result = Result(
            target=target,
            step=step,
            torch=loaded.torch,
            samples=loaded.samples,
            usable_cores=cores,
            budget_seconds=budget,
        )
        Search(result, loaded, asked, bench.visit, report=report).run()
    if as_json:
        print_text(_json(rows_of(result)), out)
    else:
        from gpuwatch.outputs.tuning import tune_text

        look = drawing(out, ascii_mode)
        print_text(tune_text(result, width=look.width, unicode=look.unicode), out)
    if result.interrupted:
        return EXIT_INTERRUPTED
    return 0 if result.recommended is not None else EXIT_USAGE


def _json(found: dict[str, Any]) -> str:
    import msgspec

    from gpuwatch import __version__

    encoded = msgspec.json.encode({"gpuwatch": __version__, **found})
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


# A bench while it measures


def _check_targets(*targets: str | None) -> None:
    """Refuse what is no target, before torch is imported. Raises ``MeasureError``."""
    from gpuwatch.tuning.target import parse

    for one in filter(None, targets):
        parse(one)


@contextmanager
def _measuring(bench: Bench, line: StatusLine, target: str) -> Iterator[None]:
    """Show that ``target`` is imported, until something is measured, and end ``bench`` afterwards:
    nothing is left behind, however often Ctrl-C is pressed. A target that cannot be used ends the
    command."""
    from gpuwatch.tuning.failures import MeasureError

    importing = (
        f"gpuwatch: {clean(target, 60)} is being imported ... (Ctrl-C ends it; what trains belongs "
        "under if __name__ == '__main__':)"
    )
    bench.tick = lambda: line.show(importing)
    with terminated_as_interrupted():
        try:
            yield
        except MeasureError as error:
            line.end()
            complain(str(error))
            if error.output:
                complain("its last output:")
            for printed in error.output:
                complain(f"| {printed}")
            raise click.exceptions.Exit(error.exit_code) from None
        finally:
            line.end()
            while True:
                with suppress(KeyboardInterrupt):
                    bench.close()
                    break


# tune memory


def _bytes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,6}(?:\.\d{1,3})?)\s*([KMGT]?)(?:iB|B)?\s*", value, re.I | re.A)
    amount = 0 if found is None else int(float(found[1]) * _SIZES[found[2].upper()])
    if amount < 64 << 20:
        raise click.BadParameter("write a size of 64M or more, as in 24G.")
    return amount


@click.command("memory")
@click.option("--step", required=True, metavar="FILE:NAME", help="The train step; see above.")
@click.option(
    "--device",
    type=click.Choice(["cuda", "cpu"]),
    default="cuda",
    show_default=True,
    help="Of several GPUs the first that CUDA_VISIBLE_DEVICES names. cpu: the host's memory.",
)
@click.option(
    "--limit",
    callback=_bytes,
    metavar="SIZE",
    help="As if the device had only this much memory, as in 24G: to plan for a smaller one.",
)
@click.option(
    "--timeout",
    type=Duration(1.0, 86400.0),
    default="5m",
    show_default=True,
    help="Time limit for the steps of one batch size.",
)
@option_json()
@option_ascii()
def memory_command(
    step: str,
    device: str,
    limit: int | None,
    timeout: float,
    as_json: bool,
    ascii_mode: bool | None,
) -> int:
    """Find the largest batch that fits into memory, with real steps.

    The step of --step is a function train_step(batch_size) that does one optimizer step on data
    it makes itself, or a function without arguments that builds the model and returns such a
    function. It moves the model and the batch to the GPU itself, as cuda.

    A few steps run at three growing batch sizes, each in its own process. A line is fitted through
    their peaks, memory = fixed + batch x per sample, and the largest batch it predicts is tried
    with a guarded step: running out of memory is caught. Ctrl-C keeps what was measured.
    """
    out = open_output()
    _check_targets(step)

    from msgspec import structs

    from gpuwatch.outputs.tuning import memory_text, outcome
    from gpuwatch.tuning import memory
    from gpuwatch.tuning.bench import Bench

    line = StatusLine(0.0)
    bench = Bench(None, step=step, patience_seconds=timeout)

    def doing(what: str) -> None:
        bench.tick = lambda: line.show(f"gpuwatch: {what} ... (Ctrl-C ends it)")

    with _measuring(bench, line, step):
        loaded = bench.open()
        on_cpu = device == "cpu"
        if not on_cpu and loaded.gpu is None:
            raise click.UsageError(
                "gpuwatch tune memory measures on a CUDA device, and PyTorch sees none. With "
                "--device cpu it measures the host's memory of the step on the CPU, which says "
                "nothing about a GPU's."
            )
        report = memory.MemoryReport(
            step=step,
            device=device,
            device_name=(None if on_cpu else loaded.gpu) or "this host",
            torch_version=loaded.torch,
            limit_bytes=limit,
        )
        measure = partial(bench.measure_memory, on_cpu=on_cpu, limit_bytes=limit)
        memory.run(report, measure, doing)
    if not report.points:
        return EXIT_INTERRUPTED
    if as_json:
        found = {
            "kind": "tune_memory",
            "schema": MEMORY_SCHEMA,
            **structs.asdict(report),
            "fit": report.fit,
            "predicted_batch_size": report.predicted,
            "largest_batch_size": report.fits or None,
            "says": outcome(report),
        }
        print_text(_json(found), out)
    else:
        look = drawing(out, ascii_mode, width_without_terminal=MEMORY_WIDTH_WITHOUT_TERMINAL)
        print_text(memory_text(report, width=look.width, unicode=look.unicode), out)
    return EXIT_INTERRUPTED if report.interrupted else 0
