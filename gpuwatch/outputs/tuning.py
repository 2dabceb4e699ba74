"""The results of ``gpuwatch tune`` and ``gpuwatch tune memory`` as text."""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import structs

from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.core.units import samples
from gpuwatch.outputs.report.words import grouped
from gpuwatch.outputs.terminal import Column, Page
from gpuwatch.tuning.memory import BATCH_MAX, MARGIN_SHARE, MemoryReport
from gpuwatch.tuning.records import KNOBS, MemoryPoint, Setting
from gpuwatch.tuning.search import CLOSE_SHARE, Result, Row

INDENT = "  "
GOOD_SHARE = 0.02
"""A line fits where no peak is further from it."""
_TITLES = {"num_workers": "workers", "prefetch_factor": "prefetch", "pin_memory": "pinned",
           "batch_size": "batch"}  # fmt: skip
size = partial(units.size, digits=2)
"""With the digits in which two batch sizes differ."""


def tune_text(result: Result, *, width: int, unicode: bool) -> str:
    """Return the recommendation, then its grounds, in lines no wider than ``width``."""
    page = Page(max(20, width), colour=False)
    count, cores = result.samples, result.usable_cores
    head = [clean(result.target, 200)]
    head += [] if result.step is None else [f"with {clean(result.step, 200)}"]
    head.append("unknown number of samples" if count is None else units.plural(count, "sample"))
    head += [f"{cores:g} usable core{'s'[cores == 1 :]}", f"torch {clean(result.torch, 40)}"]
    page.say(" · ".join(head))
    page.gap()
    page.say(_recommendation(result))
    page.gap()
    rows = sorted((row for row in result.settings if row.visits), key=_order)
    if rows:
        page.items(_columns(result), rows)
        page.gap()
    for reason in result.reasons:
        page.say(clean(reason, 600), later=INDENT)
    page.gap()
    _say_failures(page, result)
    page.gap()
    left = "; ".join([_name(one) for one in result.unmeasured])
    for sentence in (
        "Interrupted: this was measured so far." if result.interrupted and rows else "",
        f"Not measured, as the budget ended: {left}." if left else "",
        *result.notes,
    ):
        page.say(clean(sentence, 900), later=INDENT)
    return page.text(unicode) + "\n"


def _order(row: Row) -> tuple[int, ...]:
    return tuple([int(getattr(row.setting, knob) or 0) for knob in KNOBS])


def _recommendation(result: Result) -> str:
    chosen, own = result.chosen, result.own
    if chosen is None:
        failed = any(row.failure for row in result.settings)
        return "No setting could be measured." if failed else "Nothing was measured."
    measured = "end to end" if result.step is not None else "from the loader"
    rates, count = chosen.rates, len(chosen.visits)
    spread = f"{samples(rates[0])} to {samples(rates[-1])} in {count} visits"
    rate = f"{samples(chosen.rate)} samples/s {measured}"
    rate += f" ({spread})" if count > 1 else " (measured once)"
    if own is chosen:
        if result.interrupted or result.unmeasured:
            return f"Keep what you have: {rate}; no other setting has been shown to be faster."
        than = f"more than {100 * CLOSE_SHARE:.0f}% faster"
        return f"Keep what you have: {rate}, and no setting is {than}."
    mine = own.setting if own is not None else None
    values = [
        f"{knob}={value}"
        for knob in KNOBS
        if (value := getattr(chosen.setting, knob)) is not None
        and (knob == KNOBS[0] or (result.varied(knob) and value != getattr(mine, knob, None)))
    ]
    sentence = f"{', '.join(values)}: {rate}"
    if own is not None and own.rate:
        times = f"{chosen.rate / own.rate:.2g} times"
        faster = "as fast as" if times == "1 times" else times
        sentence += f", {faster} what you have ({samples(own.rate)})"
    return f"{sentence}."


def _columns(result: Result) -> list[Column[Row]]:
    def knob(name: str) -> Column[Row]:
        def cell(row: Row) -> str:
            value = getattr(row.setting, name)
            if isinstance(value, bool):
                return "yes" if value else "no"
            return "-" if value is None else str(value)

        return Column(_TITLES[name], cell)

    def middle(name: str, shown: Callable[[Any], str], title: str, rank: int = 1) -> Column[Row]:
        return Column(title, lambda row: shown(row.median_of(name)), rank=rank)

    return [
        Column("", lambda row: "▸" if row.recommended else " ", kind="text"),
        *[knob(name) for name in KNOBS if name == "num_workers" or result.varied(name)],
        Column("samples/s", lambda row: samples(row.rate or None)),
        Column("lowest", lambda row: samples(row.rates[0]), rank=2),
        Column("highest", lambda row: samples(row.rates[-1]), rank=2),
        Column("of best", lambda row: units.share(row.rate / result.fastest if row.rate else None)),
        middle("data_wait_share", units.share, "waits"),
        middle("first_batch_seconds", units.duration, "first batch", rank=3),
        middle("cores_used", lambda one: "-" if one is None else f"{one:.1f}", "cores"),
        middle("workers_memory_bytes", lambda one: units.size(one) if one else "-", "memory"),
        Column("visits", lambda row: str(len(row.visits)), rank=4),
    ]


def _say_failures(page: Page, result: Result) -> None:
    """Say each failure once, with all the settings that met it."""
    met = grouped((row.failure.sentence, row) for row in result.settings if row.failure is not None)
    for sentence, rows in met.items():
        failure = rows[0].failure
        assert failure is not None
        who = "; ".join([_name(row.setting) for row in rows])
        page.say(f"Failed with {who}: {clean(sentence, 900)}", later=INDENT)
        if failure.output:
            page.say("Its last output:", first=INDENT)
            for printed in failure.output:
                page.say(clean(printed, 300), first=f"{INDENT}| ", later=f"{INDENT}| ")


def _name(setting: Setting) -> str:
    """Return ``num_workers=4, prefetch_factor=2, batch_size=64``."""
    values = structs.asdict(setting).items()
    return ", ".join([f"{knob}={value}" for knob, value in values if value not in (None, False)])


# The memory of a step


def memory_text(report: MemoryReport, *, width: int, unicode: bool) -> str:
    """Return each size's peak, the line through them and what fits, within ``width``."""
    page = Page(max(20, width), colour=False)
    step = clean(report.step, 200)
    on_gpu, last = report.device != "cpu", report.points[-1]
    memory = "GPU memory" if on_gpu else "Host memory (the step ran on the CPU)"
    page.say(
        f"{memory} of {step} on {report.device}: {clean(report.device_name, 120)}, "
        f"{size(last.total_bytes)}{' by --limit' if report.limit_bytes else ''}, "
        f"{size(last.available_bytes)} available"
    )
    page.gap()
    page.items(_memory_columns(on_gpu), report.points)
    page.gap()
    page.say(outcome(report))
    page.say("Interrupted: this was measured so far." if report.interrupted else "")
    return page.text(unicode).rstrip("\n") + "\n"


def _memory_columns(on_gpu: bool) -> tuple[Column[MemoryPoint], ...]:
    return (
        Column("batch", lambda one: str(one.batch_size)),
        Column("tensors", lambda one: size(one.allocated_bytes), rank=3),
        Column("reserved" if on_gpu else "resident", lambda one: size(one.peak_bytes)),
        Column("per step", lambda one: units.duration(one.seconds_per_step), rank=2),
        Column("samples/s", lambda one: units.samples(one.batch_size / one.seconds_per_step)
               if one.seconds_per_step else "-", rank=1),
    )  # fmt: skip


def outcome(report: MemoryReport) -> str:
    """Return what the line is, how well it holds, and the largest batch; a few sentences."""
    fit, predicted, points = report.fit, report.predicted, report.points
    stopped = report.stopped or ""
    if len(points) < 2:
        return stopped or "One batch size makes no line: there is no prediction."
    if fit is None or predicted is None:
        return (
            f"Memory does not grow with the batch size over {points[0].batch_size} to "
            f"{points[-1].batch_size}, so there is nothing to predict: does the step use the batch "
            f"size it is given? {stopped}"
        ).rstrip()
    share = fit.largest_deviation_share
    holds = "holds" if share <= GOOD_SHARE else "holds roughly"
    text = (
        f"memory = {size(fit.fixed_bytes)} + batch x {size(fit.per_sample_bytes)}; it {holds}: "
        f"at most {share:.1%} off, at batch {fit.largest_deviation_at}. Batch {predicted} "
        f"{'or more ' if predicted == BATCH_MAX else ''}is the largest that leaves "
        f"{size(MARGIN_SHARE * points[-1].total_bytes)} of "
        f"{size(points[-1].available_bytes)} free; the largest that a step has shown to fit is "
        f"{report.fits or 'none'}"
    )
    if report.ran_out_at is not None:
        text += f", and {report.ran_out_at} ran out of memory (which was caught)"
    return f"{text}. {stopped}".rstrip()
