"""The result of ``gpuwatch tune`` as text: the recommendation first, then its grounds."""

from collections.abc import Iterator, Sequence
from functools import partial

from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.core.units import samples
from gpuwatch.outputs.report.content.document import grouped
from gpuwatch.outputs.terminal import Column, Page
from gpuwatch.outputs.tuning.chart import Point, rate_chart
from gpuwatch.tuning.search.result import Result, Row
from gpuwatch.tuning.settings import KNOBS, NAMES, WORKERS, Knob

INDENT = "  "
UNDECIDED_SHOWN = 4


def text(result: Result, *, width: int, unicode: bool) -> str:
    """Lines no wider than ``width``."""
    page = Page(width, colour=False)
    chart = partial(_chart, unicode=unicode)
    for part in (_head, _recommendation, _table, chart, _why, _failures, _rest):
        part(page, result)
        page.gap()
    return page.text(unicode)


def _head(page: Page, result: Result) -> None:
    count, cores = result.samples, result.usable_cores
    of = "unknown number of samples" if count is None else units.plural(count, "sample")
    what = [clean(result.target, 200), of, f"{cores:g} usable core{'s'[cores == 1 :]}"]
    what.append(f"torch {clean(result.torch, 40)}")
    if result.step is not None:
        what.insert(1, f"with {clean(result.step, 200)}")
    page.say(" · ".join(what))


def _recommendation(page: Page, result: Result) -> None:
    chosen = result.chosen
    if chosen is None:
        failed = any(row.failure for row in result.settings)
        page.say("No setting could be measured." if failed else "Nothing was measured.")
        return
    own = next((row for row in result.settings if row.own and row.visits), None)
    page.say(_sentence(result, chosen, own))
    page.gap()
    # The line to paste: it may go on in others within its brackets.
    page.say(clean(result.line or "", 2000), first=INDENT, later=3 * INDENT)
    if result.also_set:
        page.say(f"and inside it: {', '.join(result.also_set)}", first=INDENT)


def _sentence(result: Result, chosen: Row, own: Row | None) -> str:
    measured = "end to end" if result.step is not None else "from the loader"
    rate = f"{_rate(chosen)} samples/s {measured}{_interval(chosen)}"
    if own is chosen:
        if not result.settled:
            return f"Keep what you have: {rate}; no other setting has been shown to be faster."
        return f"Keep what you have: {rate}, and no setting is more than 3% faster."
    sentence = f"{_differences(result, own)}: {rate}"
    if own is not None and own.failure is None:
        times = (chosen.samples_per_second or 0.0) / (own.samples_per_second or 1.0)
        sentence += f", {times:.2g} times what you have ({_rate(own)})"
    return f"{sentence}."


def _differences(result: Result, own: Row | None) -> str:
    """Knobs to change, the number of workers always."""
    recommended = result.recommended
    assert recommended is not None
    found = [f"{WORKERS}={recommended.num_workers}"]
    for knob in ("batch_size", *NAMES[1:-1]):
        value = getattr(recommended, knob)
        plain = next(one.plain for one in KNOBS if one.name == knob)
        if own is not None and getattr(own, knob) is not None:
            plain = getattr(own, knob)
        if value not in (None, plain) and (knob != "batch_size" or result.varied(knob)):
            found.append(f"{knob}={value}")
    return ", ".join(found)


def _table(page: Page, result: Result) -> None:
    rows = [row for row in result.settings if row.visits]
    if not rows:
        return
    columns: list[Column[Row]] = [
        Column("", lambda row: "▸" if row.recommended else " ", text=True),
        *[_column(knob) for knob in KNOBS if knob.name == WORKERS or result.varied(knob.name)],
        *_COLUMNS,
    ]
    page.items(columns, rows)


def _column(knob: Knob) -> Column[Row]:
    def cell(row: Row) -> str:
        value = getattr(row, knob.name)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return "-" if value is None else str(value)

    return Column(knob.title, cell)


def _rate(row: Row) -> str:
    return samples(row.samples_per_second)


def _interval(row: Row) -> str:
    if row.low is None:
        times = {1: "once", 2: "twice"}.get(row.visits, f"{row.visits} times")
        return f" (measured {times})"
    return f" (95%: {samples(row.low)} to {samples(row.high)})"


def _of_workers(row: Row, name: str) -> str:
    return units.size(getattr(row, name)) if row.num_workers else "-"


_COLUMNS: tuple[Column[Row], ...] = (
    Column("samples/s", _rate),
    Column(
        "95%",
        lambda r: "-" if r.low is None else f"{samples(r.low)} to {samples(r.high)}",
        True,
    ),
    Column("of best", lambda row: units.share(row.of_best)),
    Column("waits", lambda row: units.share(row.data_wait_share), rank=1),
    Column("GPU", lambda row: units.percent(row.gpu_busy_percent), rank=1),
    Column("first batch", lambda row: units.duration(row.first_batch_seconds), rank=2),
    Column("cores", lambda row: "-" if row.cores_used is None else f"{row.cores_used:.1f}", rank=1),
    Column("memory", lambda row: _of_workers(row, "workers_memory_bytes"), rank=1),
    Column("disk", lambda row: units.rate(row.disk_read_bytes_per_second or None), rank=2),
    Column("/dev/shm", lambda row: _of_workers(row, "shm_bytes"), rank=3),
    Column("visits", lambda row: str(row.visits), rank=4),
)


def _chart(page: Page, result: Result, *, unicode: bool) -> None:
    points = [
        Point(row.num_workers, row.samples_per_second, row.low, row.high)
        for row in _workers_alone(result)
        if row.samples_per_second is not None
    ]
    if len(points) > 1:
        page.say("samples/s over num_workers")
        page.lines += rate_chart(points, width=page.width, unicode=unicode)


def _workers_alone(result: Result) -> list[Row]:
    """The settings that differ by their workers alone, as in the first comparison."""
    first = result.comparisons[0].settings if result.comparisons else ()
    chosen = result.chosen
    found: dict[int, Row] = {}
    for row in result.settings:
        alike = chosen is None or (row.batch_size, row.pin_memory) == (
            chosen.batch_size,
            chosen.pin_memory,
        )
        measured = row.visits and row.failure is None and row.setting in first
        if measured and (alike or not result.grid):
            found.setdefault(row.num_workers, row)
    return list(found.values())


def _why(page: Page, result: Result) -> None:
    for reason in (*result.reasons, *_cold(result)):
        page.say(clean(reason, 600), later=INDENT)


def _cold(result: Result) -> Iterator[str]:
    rows = [row for row in result.settings if row.first_pass and row.visits]
    row = next((row for row in rows if row.recommended), rows[-1] if rows else None)
    if row is None or row.first_pass is None:
        return
    yield (
        f"First pass: with num_workers={row.num_workers} "
        f"{samples(row.first_pass.samples_per_second)} samples/s while files were read from the "
        f"disk ({units.rate(row.first_pass.disk_read_bytes_per_second)})"
    ) + (
        ", as in every pass."
        if all(one.all_passes_cold for one in rows)
        else "; the table is of later passes, which find them in memory."
    )


def _failures(page: Page, result: Result) -> None:
    """Each failure once, with all the settings that met it."""
    met = grouped((row.failure.sentence, row) for row in result.settings if row.failure is not None)
    for sentence, rows in met.items():
        failure = rows[0].failure
        assert failure is not None
        slow = failure.code == "too_slow"
        how = f"{'Not measured' if slow else 'Failed'} with {_who(result, rows)}"
        page.say(f"{how}: {clean(sentence, 900)}", later=INDENT)
        if failure.output and not slow:
            page.say("Its last output:", first=INDENT)
            for line in failure.output:
                page.say(clean(line, 300), first=f"{INDENT}| ", later=f"{INDENT}| ")


def _who(result: Result, rows: Sequence[Row]) -> str:
    """``num_workers=2, 4``, and the other knobs where the same workers were measured otherwise."""
    counts = sorted({row.num_workers for row in rows})
    said = [f"{WORKERS}={', '.join(str(count) for count in counts)}"]
    known = [row for row in result.settings if row.visits or row.failure]
    for knob in NAMES[1:]:
        if len({getattr(row, knob) for row in known if row.num_workers in counts}) > 1:
            said.append(f"{knob}={', '.join(sorted({str(getattr(row, knob)) for row in rows}))}")
    return ", ".join(said)


def _rest(page: Page, result: Result) -> None:
    for sentence in (*_how_far(result), *result.notes):
        page.say(clean(sentence, 900), later=INDENT)


def _how_far(result: Result) -> Iterator[str]:
    if result.interrupted:
        yield "Interrupted." if result.chosen is None else "Interrupted: this was measured so far."
    undecided = [row for row in result.settings if row.undecided]
    if undecided:
        fastest = next(row for row in result.settings if row.fastest)
        listed = [f"{_name(result, row)}{_share(row)}" for row in undecided[:UNDECIDED_SHOWN]]
        more = len(undecided) - len(listed)
        yield (
            f"Too close to call against the fastest ({_name(result, fastest)}): "
            f"{'; '.join(listed)}{f'; and {more} more' if more else ''}. A longer --budget may "
            "decide it."
        )
    elif not (result.settled or result.interrupted or result.chosen is None):
        yield (
            f"The budget of {units.age(result.budget_seconds)} ended before all intervals had "
            "settled: a longer --budget narrows them."
        )
    if result.unmeasured:
        why = "" if result.interrupted else ", as the budget ended"
        yield f"Not measured{why}: {'; '.join(result.unmeasured)}."


def _name(result: Result, row: Row) -> str:
    """``num_workers=4, prefetch_factor=2``: the knobs that were varied."""
    knobs = [knob for knob in NAMES if knob == WORKERS or result.varied(knob)]
    return ", ".join(f"{k}={getattr(row, k)}" for k in knobs if getattr(row, k) is not None)


def _share(row: Row) -> str:
    if row.of_best_low is None or row.of_best_high is None:
        return " (measured too few times)"
    return f" ({100 * row.of_best_low:.0f}% to {100 * row.of_best_high:.0f}% of it)"
