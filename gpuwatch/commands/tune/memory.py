"""``gpuwatch tune memory``: how large a batch fits, measured with real steps; and what it shares
with ``tune`` while a bench measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import Duration, option_ascii, option_json
from gpuwatch.commands.printing import (
    EXIT_INTERRUPTED,
    StatusLine,
    complain,
    drawing,
    open_output,
    print_text,
    refuse_overwriting,
    shown,
    write_file,
)
from gpuwatch.commands.watching import terminated_as_interrupted
from gpuwatch.core.text import clean

if TYPE_CHECKING:
    from gpuwatch.tuning.bench import Bench, BenchError
    from gpuwatch.tuning.messages import Answer

WIDTH_WITHOUT_TERMINAL = 100
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def check_targets(*targets: str | None) -> None:
    """Refuse what is no target, before torch is imported. Raises ``MeasureError``."""
    from gpuwatch.tuning.child.target import parse

    for one in filter(None, targets):
        parse(one)


def importing(line: StatusLine, target: str) -> Callable[[], None]:
    """Shown until the first measurement."""
    shown = f"gpuwatch: {clean(target, 60)} is being imported ... (Ctrl-C ends it)"
    return lambda: line.show(shown)


@contextmanager
def measuring(bench: Bench, line: StatusLine) -> Iterator[None]:
    """Ends ``bench`` after it: nothing is left behind, however often Ctrl-C is pressed. A target
    that cannot be used ends the command."""
    from gpuwatch.tuning.bench import BenchError

    with terminated_as_interrupted():
        try:
            yield
        except BenchError as error:
            line.end()
            raise click.exceptions.Exit(unusable(error)) from None
        finally:
            line.end()
            while True:
                with suppress(KeyboardInterrupt):
                    bench.close()
                    break


def unusable(error: BenchError) -> int:
    complain(str(error))
    if error.output:
        complain("its last output:")
    for printed in error.output:
        complain(f"| {printed}")
    return error.exit_code


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
    "--loader", metavar="FILE:NAME", help="A Dataset or DataLoader to make the batches from."
)
@click.option(
    "--device",
    metavar="DEVICE",
    help="cuda, cuda:1, or cpu: the host's memory of a step on the CPU.  [default: cuda]",
)
@click.option(
    "--precision",
    type=click.Choice(["bfloat16", "float16", "none"]),
    help="Also with this autocast around the step; none: only without.  [default: the GPU's own]",
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 90),
    default=10,
    show_default=True,
    metavar="PERCENT",
    help="Share of the device's memory to keep free.",
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
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Also write the report to a file; JSON where it ends in .json.",
)
@option_ascii()
def memory_command(
    step: str,
    loader: str | None,
    device: str | None,
    precision: str | None,
    margin: float,
    limit: int | None,
    timeout: float,
    as_json: bool,
    output: str | None,
    ascii_mode: bool | None,
) -> int:
    """Find the largest batch that fits into memory, with real steps.

    The step of --step is a function train_step(batch_size) that does one optimizer step on data
    it makes itself; with --loader it is train_step(batch), and gets a batch of that size collated
    from the dataset. Or it is a function without arguments that builds the model and returns such
    a function. It moves the model and the batch to the GPU itself, as cuda.

    A few steps run at growing batch sizes, each in its own process. A line is fitted through
    their peaks, memory = fixed + batch x per sample, and the report says how well it fits. The
    largest batch it predicts is tried with a guarded step: running out of memory is caught, and a
    smaller one tried. Then the same with mixed precision. Ctrl-C keeps what was measured.
    """
    out = open_output()
    refuse_overwriting(output, step.rpartition(":")[0])
    check_targets(step, loader)

    from gpuwatch.outputs.tuning.memory import page, report_json
    from gpuwatch.tuning import memory
    from gpuwatch.tuning.bench import Bench

    line = StatusLine(0.0)
    # A loader makes batches of the sizes that are measured, whatever its own.
    bench = Bench(
        loader, batch_size=2, step=step, patience_seconds=timeout, tick=importing(line, step)
    )

    def doing(what: str) -> None:
        bench.tick = lambda: line.show(f"gpuwatch: {what} ... (Ctrl-C ends it)")
        bench.tick()

    with measuring(bench, line):
        bench.open()
        torch = bench.list_gpus()
        index = None if device == "cpu" else _gpu_index(device, torch)
        gpu = None if index is None else torch.gpus[index]
        report = memory.MemoryReport(
            step=step,
            loader=loader,
            device="cpu" if gpu is None else f"cuda:{index}",
            device_name="this host" if gpu is None else gpu.name,
            torch_version=torch.torch,
            limit_bytes=limit,
            margin_share=margin / 100,
        )
        if precision is None and gpu is not None:
            precision = "bfloat16" if gpu.bfloat16 else "float16"
        mixed = () if precision in (None, "none") else (precision,)
        measure = partial(bench.measure_memory, device=index, limit_bytes=limit)
        memory.run(report, measure, (memory.AS_IS, *mixed), doing)
    if not report.results:
        return EXIT_INTERRUPTED
    look = drawing(out, ascii_mode, width_without_terminal=WIDTH_WITHOUT_TERMINAL)
    as_text = partial(page, report)
    print_text(
        report_json(report) if as_json else as_text(width=look.width, unicode=look.unicode), out
    )
    if output is not None:
        in_json = output.endswith(".json")
        write_file(
            output,
            report_json(report) if in_json else as_text(width=WIDTH_WITHOUT_TERMINAL, unicode=True),
        )
        complain(f"saved to {shown(output)}")
    return EXIT_INTERRUPTED if report.interrupted else 0


def _gpu_index(device: str | None, torch: Answer) -> int:
    """Raises ``click.UsageError``."""
    if not torch.gpus:
        raise click.UsageError(
            f"gpuwatch tune memory measures on a CUDA device, and there is none: {torch.no_cuda}. "
            "With --device cpu it measures the host's memory of the step on the CPU, which says "
            "nothing about a GPU's."
        )
    names = [f"cuda:{place}" for place, _gpu in enumerate(torch.gpus)]
    named = "cuda:0" if device in (None, "cuda") else device
    if named not in names:
        known = ", ".join(
            f"{name} ({gpu.name})" for name, gpu in zip(names, torch.gpus, strict=True)
        )
        raise click.UsageError(f"There is no such --device: PyTorch sees {known}.")
    if device is None and len(names) > 1:
        complain(f"{len(names)} GPUs found: measuring on cuda:0; --device chooses another.")
    return names.index(named)
