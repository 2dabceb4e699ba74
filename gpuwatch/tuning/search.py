"""Which settings are measured, in which order, and which is recommended. Pure.

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

from gpuwatch.core import units
from gpuwatch.core.text import SentenceError
from gpuwatch.tuning.records import KNOBS, Description, Failure, Order, Setting, Visit

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
SCHEMA = 3


class Row(Struct, kw_only=True):
    """A setting and its visits. ``low`` and ``high``: samples a second of the slowest and the
    fastest visit."""

    setting: Setting
    visits: list[Visit] = []
    failure: Failure | None = None
    own: bool = False
    recommended: bool = False
    samples_per_second: float | None = None
    low: float | None = None
    high: float | None = None

    def add(self, visit: Visit) -> None:
        self.visits.append(visit)
        # The files that the first visits read from the disk are in memory for those after.
        counted = [one for one in self.visits if not one.from_disk] or self.visits
        rates = [one.samples_per_second for one in counted]
        self.samples_per_second = median(rates)
        self.low, self.high = min(rates), max(rates)

    @property
    def rate(self) -> float:
        """Samples a second; 0 where it failed or was not measured."""
        return 0.0 if self.failure is not None else self.samples_per_second or 0.0

    def middle(self, name: str) -> float | None:
        """Return the median of a field over the visits; ``None``: never read."""
        known = [value for one in self.visits if (value := getattr(one, name)) is not None]
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
    """``asked``: values by knob, as the person listed them."""

    def __init__(
        self,
        result: Result,
        description: Description,
        asked: Mapping[str, tuple[Any, ...]],
        measure: Measure,
        *,
        report: Report = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if asked.get("batch_size") and description.fixed is not None:
            raise SentenceError(f"batch_size cannot be varied: {description.fixed}.")
        self._result = result
        self._description = description
        self._asked = {knob: values for knob, values in asked.items() if values}
        self._measure, self._report, self._clock = measure, report, clock
        self._begun = clock()
        least, most = WINDOW_SECONDS
        self._window = min(most, max(least, result.budget_seconds / VISITS_PLANNED))
        # A knob with one value is fixed; without workers the base cannot hold a prefetch factor,
        # which is put in with the first of them.
        self._fixed = {knob: values[0] for knob, values in self._asked.items() if len(values) == 1}
        self._base = description.base.changed(**self._fixed)

    def run(self) -> None:
        """Fill the result in; Ctrl-C ends it with what was measured until then."""
        try:
            best = self._compare("num_workers", self._worker_counts())
            for knob in KNOBS[1:]:
                if best is not None and len(values := self._values(knob, best.setting)) > 1:
                    setting = best.setting
                    best = self._compare(knob, [setting.changed(**{knob: one}) for one in values])
        except KeyboardInterrupt:
            self._result.interrupted = True
        self._result.seconds = self._clock() - self._begun
        conclude(self._result, self._description)

    def _worker_counts(self) -> Iterator[Setting]:
        """Yield the settings of the first comparison, as far as more workers pay. Each has been
        measured when the next one is asked for, unless the budget has ended."""

        def with_workers(count: int) -> Setting:
            fixed = {**self._fixed, "num_workers": count}
            return self._base.changed(num_workers=count).changed(**fixed)

        listed = self._asked.get("num_workers")
        if listed is not None:
            yield from map(with_workers, sorted(listed))
            return
        own = self._base.num_workers
        yield with_workers(own)
        count, before, cores = 0, 0.0, self._result.usable_cores
        while count <= WORKERS_MOST and self._used() < 1:
            if count != own:
                yield with_workers(count)
            row = self._result.row_of(with_workers(count))
            if row is None:
                return
            used = row.middle("cores_used")
            full = count >= cores or (used is not None and used >= BUSY_SHARE * cores)
            if count > 1 and (row.failure or (full and row.rate < GAIN_SHARE * before)):
                break
            before = max(before, row.rate)
            count = 2 * count or 1
        # Halfway to the neighbours of the fastest.
        measured = sorted(row.setting.num_workers for row in self._result.settings if row.rate)
        if measured:
            fastest = max(self._result.settings, key=lambda row: row.rate).setting.num_workers
            place = measured.index(fastest)
            for other in (*measured[max(0, place - 1) : place], *measured[place + 1 : place + 2]):
                middle = (fastest + other) // 2
                if abs(fastest - other) > max(1, fastest // 5) and middle not in measured:
                    yield with_workers(middle)

    def _values(self, knob: str, best: Setting) -> list[Any]:
        """Return the values of a knob to compare: those asked for, else the usual ones and the
        user's own; none where the knob has no effect."""
        if (knob == "prefetch_factor" and not best.num_workers) or (
            knob == "pin_memory" and not self._description.cuda
        ):
            return []
        if knob in self._asked:
            return sorted(set(self._asked[knob]))
        usual = {"prefetch_factor": PREFETCH, "pin_memory": (False, True)}.get(knob)
        return [] if usual is None else sorted({*usual, getattr(best, knob)})

    # --- visits ------------------------------------------------------------------------------

    def _compare(self, knob: str, settings: Iterable[Setting]) -> Row | None:
        """Visit settings in rounds; return the best. The first round takes them as they come."""
        result, rows = self._result, list[Row]()
        share = WORKERS_BUDGET_SHARE if knob == "num_workers" else 1.0
        places = result.comparisons.setdefault(knob, [])
        for setting in settings:
            row = result.row_of(setting)
            if row is None:
                if self._used() >= 1 and any(one.visits for one in result.settings):
                    if knob in self._asked:
                        result.unmeasured.append(setting)
                    continue
                row = Row(setting=setting, own=setting == self._description.base)
                self._visit(knob, row)
            rows.append(row)
            places.append(result.settings.index(row))
            failed = [one.failure.code for one in rows if one.failure is not None]
            if len(rows) == len(failed) == 2 and failed[0] == failed[1]:
                break
        for number in range(1, ROUNDS):
            fastest = max((row.rate for row in rows), default=0.0)
            alive = [row for row in rows if row.rate >= HOPELESS_SHARE * fastest > 0]
            for row in alive if number % 2 == 0 else reversed(alive):
                if len(row.visits) <= number and self._used() < share:
                    self._visit(knob, row)
        return best_of(rows)

    def _used(self) -> float:
        """Return the share of the budget that is used."""
        return (self._clock() - self._begun) / self._result.budget_seconds

    def _visit(self, knob: str, row: Row) -> None:
        """Measure a setting, which is in the result once it has been."""
        used = self._used()
        fastest = max((one.rate for one in self._result.settings), default=0.0)
        self._report(knob, row.setting, used, fastest)
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
            row.add(found)
        if row not in self._result.settings:
            self._result.settings.append(row)


def best_of(rows: Sequence[Row]) -> Row | None:
    """Return the smallest setting within 3% of the fastest; ``None``: none was measured."""
    alive = [row for row in rows if row.rate]
    fastest = max((row.rate for row in alive), default=0.0)
    close = [row for row in alive if row.rate >= (1 - CLOSE_SHARE) * fastest]

    def size(row: Row) -> tuple[int, ...]:
        one = row.setting
        return one.batch_size or 0, one.num_workers, one.prefetch_factor or 0, one.pin_memory

    return min(close, key=size, default=None)


# --- what it says ----------------------------------------------------------------------------


def conclude(result: Result, description: Description) -> None:
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
    result.notes = tuple(_notes(result, description))


def _reasons(result: Result, chosen: Row) -> Iterator[str]:
    for knob in result.comparisons:
        rows = sorted(result.compared(knob), key=lambda row: getattr(row.setting, knob) or 0)
        value = getattr(chosen.setting, knob)
        here = next((row for row in rows if getattr(row.setting, knob) == value), None)
        if here is None or not here.rate:
            continue
        others = [row for row in rows if row is not here]
        if knob == "num_workers":
            # The nearest ones say enough.
            fewer = [row for row in others if row.setting.num_workers < value and row.rate]
            others = fewer[-1:] + [row for row in others if row.setting.num_workers > value][:2]
        said = [f"{_value(row, knob)} {_against(row, here)}" for row in others]
        if said:
            yield f"{knob}={value}: {'; '.join(said)}."
    used, cores = chosen.middle("cores_used"), result.usable_cores
    if used is not None and used >= BUSY_SHARE * cores and cores > 1:
        yield (
            f"It uses {used:.1f} of the {cores:g} usable cores: more workers would wait for each "
            "other. Only less work per sample, or more cores, makes it faster."
        )


def _value(row: Row, knob: str) -> str:
    return str(getattr(row.setting, knob))


def _against(row: Row, chosen: Row) -> str:
    if row.failure is not None:
        slow = row.failure.code == "too_slow"
        return "is too slow to measure" if slow else "failed (see below)"
    ratio = row.rate / chosen.rate
    text = "gives the same" if abs(ratio - 1) < 0.005 else f"gives {100 * (ratio - 1):+.0f}%"
    mine, its = row.middle("workers_memory_bytes"), chosen.middle("workers_memory_bytes")
    if mine is None or its is None or mine - its < 32 << 20:
        return text
    return f"{text} and takes {units.size(mine - its)} more memory"


def _notes(result: Result, description: Description) -> Iterator[str]:
    visits = [visit for row in result.settings for visit in row.visits]
    chosen = result.chosen
    if not description.cuda:
        yield "pin_memory: not measured, since there is no GPU to copy to."
    if chosen is not None and chosen.low and chosen.high and chosen.high > 1.1 * chosen.low:
        yield (
            f"The visits of the recommended setting differ by {chosen.high / chosen.low - 1:.0%}: "
            "a longer --budget on a quiet machine says more."
        )
    if any(visit.whole_epochs for visit in visits):
        yield "The dataset is so short that whole epochs were timed, with the start of workers."
    if visits and all(visit.from_disk for visit in visits):
        yield "Every visit read from the disk: the dataset is not in memory, and its disk counts."
    if description.start_method != "fork":
        yield f"Workers start by {description.start_method}, which takes longer."


def as_json(result: Result) -> dict[str, Any]:
    """Return the result for programs: rows with their setting's knobs and medians side by side."""
    left_out = {"samples", "batches", "seconds", "setting", "visits"}
    rows = []
    for row in result.settings:
        medians = {name: row.middle(name) for name in Visit.__struct_fields__}
        plain = {name: getattr(row, name) for name in Row.__struct_fields__}
        both = {name: value for name, value in (plain | medians).items() if name not in left_out}
        rows.append(row.setting.as_dict() | both | {"visits": len(row.visits)})
    return {**structs.asdict(result), "settings": rows}
