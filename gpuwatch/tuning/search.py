"""Search for the best loader setting: what is measured next, and what is recommended. Pure.

The number of workers comes first, then one knob at a time on top of the best so far. The settings
of a comparison are visited in rounds, so that what the machine does meanwhile meets all of them; a
setting's rate is the median of its visits, and the smallest setting within 3% of the fastest is
the best: fewer workers take less memory and leave cores to others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct, structs

from gpuwatch.core.text import SentenceError
from gpuwatch.tuning.records import KNOBS, Failure, Loaded, Order, Setting, Visit

ROUNDS = 3
CLOSE_SHARE = 0.03
"""Settings this close to the fastest are as good."""
GAIN_SHARE = 1.05
"""Twice the workers have to give this much for more of them to be tried."""
HOPELESS_SHARE = 0.7
"""A setting that reaches less than this of the fastest is not visited again."""
WORKERS_MOST = 64
WORKERS_BUDGET_SHARE = 0.6
"""Share of the budget after which the other knobs have their turn."""
BUSY_SHARE = 0.85
"""Share of the usable cores beyond which all of them count as in use."""
WINDOW_SECONDS = (0.2, 8.0)
VISITS_PLANNED = 40
"""Visits that a budget is to suffice for; each has a start and a warm-up besides its window."""
PREFETCH = (2, 4, 8)
SCHEMA = 4


class Row(Struct, kw_only=True):
    """A setting and its visits; ``own``: it is what the user has."""

    setting: Setting
    visits: list[Visit] = []
    failure: Failure | None = None
    own: bool = False
    recommended: bool = False

    @property
    def rates(self) -> list[float]:
        """Samples a second of each visit, the slowest first."""
        return sorted([one.samples_per_second for one in self.visits])

    @property
    def rate(self) -> float:
        """Samples a second; 0 where it failed or was not measured."""
        return median(self.rates) if self.visits and self.failure is None else 0.0

    def median_of(self, field: str) -> float | None:
        """Return the median of a field over the visits; ``None``: never read."""
        known = [value for one in self.visits if (value := getattr(one, field)) is not None]
        return median(known) if known else None


class Result(Struct, kw_only=True):
    """Everything measured; the JSON of ``gpuwatch tune``. ``comparisons``: by knob, the places of
    the compared settings in ``settings``. ``unmeasured``: settings that the budget left out."""

    schema: int = SCHEMA
    kind: str = "tune"
    target: str
    step: str | None
    torch: str
    samples: int | None
    usable_cores: float
    budget_seconds: float
    seconds: float = 0.0
    interrupted: bool = False
    settings: list[Row] = []
    comparisons: dict[str, list[int]] = {}
    unmeasured: list[Setting] = []
    recommended: Setting | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Row | None:
        return next((row for row in self.settings if row.recommended), None)

    @property
    def own(self) -> Row | None:
        """The setting as the user has it, if it was measured."""
        return next((row for row in self.settings if row.own and row.visits), None)

    @property
    def fastest(self) -> float:
        """The best rate so far; 0: none was measured."""
        return max((row.rate for row in self.settings), default=0.0)

    def row_of(self, setting: Setting) -> Row | None:
        return next((row for row in self.settings if row.setting == setting), None)

    def compared(self, knob: str) -> list[Row]:
        return [self.settings[place] for place in self.comparisons.get(knob, ())]

    def varied(self, knob: str) -> bool:
        return len({getattr(row.setting, knob) for row in self.settings if row.visits}) > 1


Measure = Callable[[Order], Visit | Failure]
Report = Callable[[str, Setting, float, float], None]
"""Given the knob, the setting that is measured next, the share of the budget that is used, and the
best rate so far."""


class Search:
    """``asked``: values by knob, as the person listed them; one value alone is the knob's."""

    def __init__(
        self,
        result: Result,
        loaded: Loaded,
        asked: Mapping[str, tuple[Any, ...]],
        measure: Measure,
        *,
        report: Report = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if asked.get("batch_size") and loaded.fixed is not None:
            raise SentenceError(f"batch_size cannot be varied: {loaded.fixed}.")
        self._result = result
        self._loaded = loaded
        self._asked = {knob: sorted(set(values)) for knob, values in asked.items() if values}
        self._measure, self._report, self._clock = measure, report, clock
        self._begun = clock()
        least, most = WINDOW_SECONDS
        self._window = min(most, max(least, result.budget_seconds / VISITS_PLANNED))
        self._fixed = {knob: values[0] for knob, values in self._asked.items() if len(values) == 1}

    def run(self) -> None:
        """Fill the result in; Ctrl-C ends it with what was measured until then."""
        try:
            best: Setting | None = self._loaded.base.changed(**self._fixed)
            for knob in KNOBS:
                if best is not None:
                    best = self._compare(knob, best)
        except KeyboardInterrupt:
            self._result.interrupted = True
        self._result.seconds = self._clock() - self._begun
        conclude(self._result, self._loaded)

    # The values of a knob

    def _settings(self, knob: str, best: Setting) -> Iterable[Setting]:
        """Return the settings to compare: of the values asked for, else of the usual ones and the
        user's own; none where the knob has no effect."""
        if knob == "num_workers":
            counts = self._asked.get(knob) or self._worker_counts(best)
            return (self._with_workers(best, count) for count in counts)
        usual = {"prefetch_factor": PREFETCH, "pin_memory": (False, True)}.get(knob, ())
        if (knob == "prefetch_factor" and not best.num_workers) or (
            knob == "pin_memory" and not self._loaded.gpu
        ):
            return []
        values = self._asked.get(knob) or sorted({*usual, getattr(best, knob)} if usual else ())
        return [best.changed(**{knob: one}) for one in values] if len(values) > 1 else []

    def _with_workers(self, base: Setting, count: int) -> Setting:
        # Without workers the base cannot hold a prefetch factor.
        return base.changed(**{**self._fixed, "num_workers": count})

    def _worker_counts(self, base: Setting) -> Iterator[int]:
        """Yield the user's own number of workers, then twice as many as long as that pays, then
        those halfway to the neighbours of the fastest. Each has been measured when the next is
        asked for, unless the budget has ended."""
        yield base.num_workers
        count, before = 0, 0.0
        while count <= WORKERS_MOST and self._used() < 1:
            if count != base.num_workers:
                yield count
            row = self._result.row_of(self._with_workers(base, count))
            if row is None:
                return
            pays = row.rate >= GAIN_SHARE * before
            if count > 1 and (row.failure or (self._fills_the_cores(row) and not pays)):
                break
            before = max(before, row.rate)
            count = 2 * count or 1
        yield from self._counts_between()

    def _fills_the_cores(self, row: Row) -> bool:
        cores, used = self._result.usable_cores, row.median_of("cores_used") or 0.0
        return row.setting.num_workers >= cores or used >= BUSY_SHARE * cores

    def _counts_between(self) -> Iterator[int]:
        measured = [row for row in self._result.settings if row.rate]
        counts = sorted([row.setting.num_workers for row in measured])
        for best in sorted(measured, key=lambda row: -row.rate)[:1]:
            fastest = best.setting.num_workers
            place = counts.index(fastest)
            for other in counts[max(0, place - 1) : place + 2]:
                middle = (fastest + other) // 2
                if abs(fastest - other) > max(1, fastest // 5) and middle not in counts:
                    yield middle

    # Visits

    def _compare(self, knob: str, start: Setting) -> Setting | None:
        """Visit settings in rounds; return the best, ``None``: none was measured. The first round
        takes them as they come."""
        rows = list[Row]()
        for setting in self._settings(knob, start):
            row = self._first_visit(knob, setting)
            if row is not None:
                rows.append(row)
                places = self._result.comparisons.setdefault(knob, [])
                places.append(self._result.settings.index(row))
            if len(rows) == 2 and all(one.failure is not None for one in rows):
                # Others would meet the same.
                break
        share = WORKERS_BUDGET_SHARE if knob == "num_workers" else 1.0
        for number in range(1, ROUNDS):
            fastest = max((row.rate for row in rows), default=0.0)
            alive = [row for row in rows if row.rate >= HOPELESS_SHARE * fastest > 0]
            for row in alive if number % 2 == 0 else reversed(alive):
                if len(row.visits) <= number and self._used() < share:
                    self._visit(knob, row)
        if not rows:
            return start
        best = best_of(rows)
        return None if best is None else best.setting

    def _first_visit(self, knob: str, setting: Setting) -> Row | None:
        """Visit a setting unless it has been visited; ``None``: the budget has ended."""
        row = self._result.row_of(setting)
        if row is None and self._used() >= 1 and any(one.visits for one in self._result.settings):
            if knob in self._asked:
                self._result.unmeasured.append(setting)
            return None
        if row is None:
            row = Row(setting=setting, own=setting == self._loaded.base)
            self._visit(knob, row)
            self._result.settings.append(row)
        return row

    def _used(self) -> float:
        """Return the share of the budget that is used."""
        return (self._clock() - self._begun) / self._result.budget_seconds

    def _visit(self, knob: str, row: Row) -> None:
        used = self._used()
        self._report(knob, row.setting, used, self._result.fastest)
        left = max(0.0, 1 - used) * self._result.budget_seconds
        found = self._measure(
            Order(
                setting=row.setting,
                seconds=self._window,
                limit_seconds=max(left, 4 * self._window),
                # The same samples for all settings of a round.
                seed=len(row.visits),
            )
        )
        if isinstance(found, Failure):
            row.failure = found
        else:
            row.visits.append(found)


def best_of(rows: Sequence[Row]) -> Row | None:
    """Return the smallest setting within 3% of the fastest; ``None``: none was measured."""
    fastest = max((row.rate for row in rows), default=0.0)
    close = [row for row in rows if row.rate >= (1 - CLOSE_SHARE) * fastest > 0]

    def size(row: Row) -> tuple[int, ...]:
        one = row.setting
        return one.batch_size or 0, one.num_workers, one.prefetch_factor or 0, one.pin_memory

    return min(close, key=size, default=None)


# What it says


def conclude(result: Result, loaded: Loaded) -> None:
    """Choose the setting to recommend; write the reasons and the notes."""
    best = [best_of(result.compared(knob)) for knob in result.comparisons]
    chosen = next(filter(None, reversed(best)), None)
    own = result.own
    if chosen is not None and own is not None and own.rate >= (1 - CLOSE_SHARE) * chosen.rate:
        smaller = own.setting.num_workers <= chosen.setting.num_workers
        chosen = own if smaller or own.rate > (1 + CLOSE_SHARE) * chosen.rate else chosen
    if chosen is not None:
        chosen.recommended = True
        result.recommended = chosen.setting
        result.reasons = tuple(_reasons(result, chosen))
    result.notes = tuple(_notes(result, loaded))


def _reasons(result: Result, chosen: Row) -> Iterator[str]:
    for knob in result.comparisons:
        value = getattr(chosen.setting, knob)
        rows = {getattr(row.setting, knob): row for row in result.compared(knob)}
        here = rows.pop(value, None)
        if here is not None and here.rate and rows:
            # Of workers the nearest ones say enough.
            others = _nearest(rows, value) if knob == "num_workers" else sorted(rows)
            said = [f"{one} {_against(rows[one], here)}" for one in others]
            yield f"{knob}={value}: {'; '.join(said)}."
    used, cores = chosen.median_of("cores_used"), result.usable_cores
    if used is not None and used >= BUSY_SHARE * cores and cores > 1:
        yield (
            f"It uses {used:.1f} of the {cores:g} usable cores: more workers would wait for each "
            "other. Only less work per sample, or more cores, makes it faster."
        )


def _nearest(rows: Mapping[int, Row], value: int) -> list[int]:
    fewer = sorted([one for one, row in rows.items() if one < value and row.rate])
    return fewer[-1:] + sorted([one for one in rows if one > value])[:2]


def _against(row: Row, chosen: Row) -> str:
    if row.failure is not None:
        return "failed (see below)"
    ratio = row.rate / chosen.rate
    return "gives the same" if abs(ratio - 1) < 0.005 else f"gives {100 * (ratio - 1):+.0f}%"


def _notes(result: Result, loaded: Loaded) -> Iterator[str]:
    visits = [visit for row in result.settings for visit in row.visits]
    rates = [] if result.chosen is None else result.chosen.rates
    if not loaded.gpu:
        yield "pin_memory: not measured, since there is no GPU to copy to."
    if rates and rates[-1] > 1.1 * rates[0]:
        yield (
            f"The visits of the recommended setting differ by {rates[-1] / rates[0] - 1:.0%}: "
            "a longer --budget on a quiet machine says more."
        )
    if any(visit.whole_epochs for visit in visits):
        yield "The dataset is so short that whole epochs were timed, with the start of workers."
    if loaded.is_iterable and result.varied("num_workers"):
        yield (
            "The dataset is iterable: every worker goes through all of it unless its __iter__ "
            "shares it out (torch.utils.data.get_worker_info), and more workers then only repeat "
            "samples."
        )


def as_json(result: Result) -> dict[str, Any]:
    """Return the result for programs: rows with their setting's knobs and medians side by side."""
    rows = []
    for row in result.settings:
        fields = Visit.__struct_fields__[2:]
        rates = row.rates
        rows.append(
            {
                **structs.asdict(row.setting),
                "own": row.own,
                "recommended": row.recommended,
                "failure": row.failure,
                "visits": len(row.visits),
                "samples_per_second": row.rate or None,
                "low": min(rates, default=None),
                "high": max(rates, default=None),
                **{field: row.median_of(field) for field in fields},
            }
        )
    return {**structs.asdict(result), "settings": rows}
