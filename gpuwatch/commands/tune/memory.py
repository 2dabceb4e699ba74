"""``gpuwatch tune memory``: how large a batch fits, measured with real steps; and what it shares
with ``tune`` while a bench measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TextIO

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
    from gpuwatch.tuning.memory.records import Gpu, MemoryReport, Subject
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


def _sizes(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[int, ...]:
    if value is None:
        return ()
    parts = [part.strip() for part in value.split(",")]
    if not all(re.fullmatch(r"[1-9][0-9]{0,6}", part, re.ASCII) for part in parts):
        raise click.BadParameter("write whole numbers with commas between, as in 8,16,32,64.")
    sizes = sorted({int(part) for part in parts})
    if len(sizes) < 2:
        raise click.BadParameter(
            "a line needs at least two batch sizes, and three to say how well it fits."
        )
    return tuple(sizes)


def _bytes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,6}(?:\.\d{1,3})?)\s*([KMGT]?)(?:iB|B)?\s*", value, re.I | re.A)
    amount = 0 if found is None else int(float(found[1]) * _SIZES[found[2].upper()])
    if amount < 64 << 20:
        raise click.BadParameter("write a size of 64M or more, as in 24G.")
    return amount


def _device(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is None or value == "cpu":
        return value
    found = re.fullmatch(r"(?:cuda(?::(?=\d))?)?(\d{0,3})", value, re.ASCII)
    if found is None or not value:
        raise click.BadParameter("name it cuda, cuda:1, 1 or cpu.")
    return found[1] or "0"


@click.command("memory")
@click.option("--step", required=True, metavar="FILE:NAME", help="The train step; see above.")
@click.option(
    "--loader", metavar="FILE:NAME", help="A Dataset or DataLoader to make the batches from."
)
@click.option(
    "--device",
    callback=_device,
    metavar="DEVICE",
    help="cuda, cuda:1, or cpu: the host's memory of a step on the CPU.  [default: cuda]",
)
@click.option(
    "--batch-sizes",
    "sizes",
    callback=_sizes,
    metavar="N,N,...",
    help="Measure these. Default: growing sizes until the line is clear.",
)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
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
@click.option(
    "--budget",
    type=Duration(1.0, 86400.0),
    default="10m",
    show_default=True,
    help="Start nothing new after this long.",
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
    sizes: tuple[int, ...],
    precisions: tuple[str, ...],
    margin: float,
    limit: int | None,
    timeout: float,
    budget: float,
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

    from gpuwatch.tuning.bench import Bench
    from gpuwatch.tuning.memory.plan import Plan

    line = StatusLine(0.0)
    # A loader makes batches of the sizes that are measured, whatever its own.
    bench = Bench(
        loader, batch_size=2, step=step, patience_seconds=timeout, tick=importing(line, step)
    )

    def report(doing: str) -> None:
        bench.tick = lambda: line.show(f"gpuwatch: {doing} ... (Ctrl-C ends it)")
        bench.tick()

    with measuring(bench, line):
        bench.open()
        torch = bench.list_gpus()
        subject = _subject(step, loader, device, limit, torch)
        index = int(subject.device.removeprefix("cuda:")) if subject.is_gpu else None
        gpu = None if index is None else torch.gpus[index]
        found = Plan(
            subject=subject,
            measure=partial(bench.measure_memory, device=index, limit_bytes=limit),
            precisions=_precisions(gpu, precisions),
            sizes=sizes,
            margin_share=margin / 100,
            seconds_max=timeout,
            budget_seconds=budget,
            report=report,
        ).run()
    if not found.results:
        return EXIT_INTERRUPTED
    _write(found, out, as_json, output, ascii_mode)
    return EXIT_INTERRUPTED if found.ended == "interrupted" else 0


def _subject(
    step: str, loader: str | None, device: str | None, limit: int | None, torch: Answer
) -> Subject:
    from gpuwatch.tuning.memory.records import Subject

    if device == "cpu":
        where, name = "cpu", "this host"
    else:
        index = int(device or 0)
        _require_gpu(index, torch)
        where, name = f"cuda:{index}", torch.gpus[index].name
        if device is None and len(torch.gpus) > 1:
            complain(
                f"{len(torch.gpus)} GPUs found: measuring on cuda:0 ({name}); --device "
                "chooses another."
            )
    return Subject(
        step=step,
        loader=loader,
        device=where,
        device_name=name,
        torch_version=torch.torch,
        limit_bytes=limit,
    )


def _require_gpu(index: int, torch: Answer) -> None:
    if not torch.gpus:
        raise click.UsageError(
            f"gpuwatch tune memory measures on a CUDA device, and there is none: {torch.no_cuda}. "
            "With --device cpu it measures the host's memory of the step on the CPU, which says "
            "nothing about a GPU's."
        )
    if index >= len(torch.gpus):
        known = ", ".join(f"cuda:{place} ({gpu.name})" for place, gpu in enumerate(torch.gpus))
        raise click.UsageError(f"There is no cuda:{index}: PyTorch sees {known}.")


def _precisions(gpu: Gpu | None, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Without any, and that asked for, else the mixed precision that people use on this GPU. On a
    CPU few have the instructions, and without them a step takes many times as long."""
    from gpuwatch.tuning.memory.records import AS_IS

    if "none" in asked:
        if len(set(asked)) > 1:
            raise click.UsageError("--precision none cannot be combined.")
        return (AS_IS,)
    own = () if gpu is None else ("bfloat16",) if gpu.bfloat16 else ("float16",)
    return (AS_IS, *dict.fromkeys(asked or own))


def _write(
    report: MemoryReport, out: TextIO, as_json: bool, output: str | None, ascii_mode: bool | None
) -> None:
    from gpuwatch.outputs.tuning.memory import page, report_json

    look = drawing(out, ascii_mode, width_without_terminal=WIDTH_WITHOUT_TERMINAL)
    text = report_json(report) if as_json else page(report, width=look.width, unicode=look.unicode)
    print_text(text, out)
    if output is not None:
        saved = (
            report_json(report)
            if output.endswith(".json")
            else page(report, width=WIDTH_WITHOUT_TERMINAL, unicode=True)
        )
        write_file(output, saved)
        complain(f"saved to {shown(output)}")
