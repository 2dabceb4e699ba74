"""The results of ``gpuwatch tune`` and ``gpuwatch tune memory`` as text."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.core.units import samples
from gpuwatch.outputs.report.words import grouped
from gpuwatch.outputs.terminal import Column, Page
from gpuwatch.tuning.memory import BATCH_MAX, MemoryReport
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
    chosen = result.chosen
    if chosen is None:
        failed = any(row.failure for row in result.settings)
        page.say("No setting could be measured." if failed else "Nothing was measured.")
    else:
        page.say(_recommendation(result, chosen))
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
    for sentence in (*_how_far(result), *result.notes):
        page.say(clean(sentence, 900), later=INDENT)
    return page.text(unicode) + "\n"


def _order(row: Row) -> tuple[int, ...]:
    setting = row.setting
    knobs = (setting.num_workers, setting.prefetch_factor, setting.pin_memory, setting.batch_size)
    return tuple(int(value or 0) for value in knobs)


def _recommendation(result: Result, chosen: Row) -> str:
    measured = "end to end" if result.step is not None else "from the loader"
    rate = f"{samples(chosen.samples_per_second)} samples/s {measured}{_spread(chosen)}"
    own = result.own
    if own is chosen:
        if result.interrupted or result.unmeasured:
            return f"Keep what you have: {rate}; no other setting has been shown to be faster."
        than = f"more than {100 * CLOSE_SHARE:.0f}% faster"
        return f"Keep what you have: {rate}, and no setting is {than}."
    knobs = [knob for knob in KNOBS if knob == "num_workers" or _differs(result, chosen, knob)]
    values = [f"{knob}={getattr(chosen.setting, knob)}" for knob in knobs]
    sentence = f"{', '.join(values)}: {rate}"
    if own is not None and own.rate:
        times = f"{chosen.rate / own.rate:.2g} times what you have"
        sentence += f", {times} ({samples(own.samples_per_second)})"
    return f"{sentence}."


def _differs(result: Result, chosen: Row, knob: str) -> bool:
    value = getattr(chosen.setting, knob)
    own = next((row for row in result.settings if row.own), None)
    return value is not None and result.varied(knob) and (
        own is None or value != getattr(own.setting, knob))  # fmt: skip


def _spread(row: Row) -> str:
    if len(row.visits) < 2:
        return " (measured once)"
    return f" ({samples(row.low)} to {samples(row.high)} in {len(row.visits)} visits)"


def _columns(result: Result) -> list[Column[Row]]:
    fastest = max(row.rate for row in result.settings)

    def knob(name: str) -> Column[Row]:
        def cell(row: Row) -> str:
            value = getattr(row.setting, name)
            if isinstance(value, bool):
                return "yes" if value else "no"
            return "-" if value is None else str(value)

        return Column(_TITLES[name], cell)

    def middle(name: str, shown: Callable[[Any], str], title: str, rank: int = 1) -> Column[Row]:
        return Column(title, lambda row: shown(row.middle(name)), rank=rank)

    def memory(value: float | None) -> str:
        return units.size(value) if value else "-"

    return [
        Column("", lambda row: "▸" if row.recommended else " ", kind="text"),
        *[knob(name) for name in KNOBS if name == "num_workers" or result.varied(name)],
        Column("samples/s", lambda row: samples(row.samples_per_second)),
        Column("lowest", lambda row: samples(row.low), rank=2),
        Column("highest", lambda row: samples(row.high), rank=2),
        Column("of best", lambda row: units.share(row.rate / fastest if fastest else None)),
        middle("data_wait_share", units.share, "waits"),
        middle("first_batch_seconds", units.duration, "first batch", rank=3),
        middle("cores_used", lambda one: "-" if one is None else f"{one:.1f}", "cores"),
        middle("workers_memory_bytes", memory, "memory"),
        Column("visits", lambda row: str(len(row.visits)), rank=4),
    ]


def _say_failures(page: Page, result: Result) -> None:
    """Say each failure once, with all the settings that met it."""
    met = grouped((row.failure.sentence, row) for row in result.settings if row.failure is not None)
    for sentence, rows in met.items():
        failure = rows[0].failure
        assert failure is not None
        slow = failure.code == "too_slow"
        who = "; ".join(_name(row.setting) for row in rows)
        page.say(
            f"{'Not measured' if slow else 'Failed'} with {who}: {clean(sentence, 900)}",
            later=INDENT,
        )
        if failure.output and not slow:
            page.say("Its last output:", first=INDENT)
            for printed in failure.output:
                page.say(clean(printed, 300), first=f"{INDENT}| ", later=f"{INDENT}| ")


def _name(setting: Setting) -> str:
    """Return ``num_workers=4, prefetch_factor=2, batch_size=64``."""
    values = setting.as_dict().items()
    return ", ".join(f"{knob}={value}" for knob, value in values if value not in (None, False))


def _how_far(result: Result) -> Iterator[str]:
    if result.interrupted:
        yield "Interrupted." if result.chosen is None else "Interrupted: this was measured so far."
    if result.unmeasured:
        left = "; ".join(_name(one) for one in result.unmeasured)
        yield f"Not measured, as the budget ended: {left}."


# --- the memory of a step --------------------------------------------------------------------


def memory_text(report: MemoryReport, *, width: int, unicode: bool) -> str:
    """Return each size's peak, the line through them and what fits, within ``width``."""
    page = Page(max(20, width), colour=False)
    step = clean(report.step, 200)
    if report.loader is not None:
        step += f" on {clean(report.loader, 200)}"
    if report.precision is not None:
        step += f" with {report.precision} autocast"
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
        f"{size(report.margin_share * points[-1].total_bytes)} of "
        f"{size(points[-1].available_bytes)} free; the largest that a step has shown to fit is "
        f"{report.fits or 'none'}"
    )
    if report.ran_out_at is not None:
        text += f", and {report.ran_out_at} ran out of memory (which was caught)"
    return f"{text}. {stopped}".rstrip()
