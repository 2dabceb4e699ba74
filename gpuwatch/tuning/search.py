"""Which settings are measured, in which order, and which is recommended. Pure.

The number of workers comes first, then one knob at a time on top of the best so far. The settings
of a comparison are visited in rounds, so that what the machine does meanwhile meets all of them; a
setting's rate is the median of its visits, and the smallest setting within 3% of the fastest is
the best: fewer workers take less memory and leave cores to others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct, structs

from gpuwatch.core import units
from gpuwatch.core.text import SentenceError
from gpuwatch.tuning.records import (
    KNOBS,
    Description,
    Failure,
    Order,
    Setting,
    Visit,
)

ROUNDS = 3
CLOSE_SHARE = 0.03
"""Settings this close to the fastest are as good."""
GAIN_SHARE = 1.05
"""Twice the workers have to give this much for more of them to be tried."""
HOPELESS_SHARE = 0.7
"""A setting that reaches less than this of the fastest is not visited again."""
WORKERS_MOST = 64
BUSY_SHARE = 0.85
"""Share of the usable cores beyond which all of them count as in use."""
OTHERS_SHARE = 0.25
WINDOW_SECONDS = (0.2, 8.0)
VISITS_PLANNED = 40
"""Visits that a budget is to suffice for; each has a start and a warm-up besides its window."""
PREFETCH = (2, 4, 8)
SCHEMA = 2


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

    def compared(self, knob: str) -> list[Row]:
        return [self.settings[place] for place in self.comparisons.get(knob, ())]

    def varied(self, knob: str) -> bool:
        return len({getattr(row.setting, knob) for row in self.settings if row.visits}) > 1


Measure = Callable[[Order], Visit | Failure]
Report = Callable[[str, Setting, float, float], None]
"""Given the knob, the setting that is measured next, the share of the budget that is used, and the
best rate so far."""


class _BudgetEndedError(Exception):
    """No time is left."""


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
        self._knob = KNOBS[0]
        least, most = WINDOW_SECONDS
        self._window = min(most, max(least, result.budget_seconds / VISITS_PLANNED))
        single = {knob: values[0] for knob, values in self._asked.items() if len(values) == 1}
        self._base = description.base.changed(**single)
        self._single = {knob: value for knob, value in single.items() if knob != "num_workers"}

    def run(self) -> None:
        """Fill the result in; Ctrl-C ends it with what was measured until then."""
        try:
            best = self._compare("num_workers", self._counts())
            for knob in KNOBS[1:]:
                values = self._values(knob, best)
                if best is not None and len(values) > 1:
                    known = best
                    best = self._compare(
                        knob, iter([known.setting.changed(**{knob: one}) for one in values])
                    )
        except KeyboardInterrupt:
            self._result.interrupted = True
        except _BudgetEndedError:
            pass
        self._result.seconds = self._clock() - self._begun
        conclude(self._result, self._description)

    def _counts(self) -> Iterator[Setting]:
        """Yield the settings of the first comparison, as far as more workers pay."""
        own = self._base.num_workers
        listed = self._asked.get("num_workers")
        if listed is not None:
            yield from (self._with_workers(count) for count in sorted(listed))
            return
        yield self._with_workers(own)
        count, before = 0, 0.0
        cores = self._result.usable_cores
        while count <= WORKERS_MOST:
            if count != own:
                yield self._with_workers(count)
            row = self._row(self._with_workers(count))
            used = row.middle("cores_used")
            full = used is not None and used >= BUSY_SHARE * cores
            if count > 1 and (row.failure or (row.rate < GAIN_SHARE * before and
                              (full or count >= cores))):  # fmt: skip
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
                    yield self._with_workers(middle)

    def _with_workers(self, count: int) -> Setting:
        # Without workers the base cannot hold a prefetch factor: it is put in with the first.
        return self._base.changed(num_workers=count).changed(**self._single)

    def _values(self, knob: str, best: Row | None) -> list[Any]:
        if best is None or (knob == "prefetch_factor" and not best.setting.num_workers):
            return []
        asked = self._asked.get(knob)
        own = getattr(best.setting, knob)
        if knob == "pin_memory":
            if not self._description.cuda:
                return []
            values: tuple[Any, ...] = asked or (False, True)
        elif knob == "prefetch_factor":
            values = asked or PREFETCH
        else:
            values = asked or ()
        return sorted({*values, *([] if asked else [own])}) if values else []

    # --- visits ------------------------------------------------------------------------------

    def _compare(self, knob: str, settings: Iterator[Setting]) -> Row | None:
        """Visit settings in rounds; return the best. The first round takes them as they come."""
        self._knob = knob
        places = self._result.comparisons.setdefault(knob, [])
        rows: list[Row] = []
        share = 0.6 if knob == "num_workers" else 1.0
        try:
            for setting in settings:
                row = self._row(setting)
                rows.append(row)
                places.append(self._result.settings.index(row))
                if not row.visits and row.failure is None:
                    self._visit(row)
                if len(rows) == 2 and _same_failure(rows):
                    break
        except _BudgetEndedError:
            # What is left of the list is named.
            self._result.unmeasured += [row.setting for row in rows if not row.visits]
            self._result.unmeasured += list(settings) if knob in self._asked else []
            self._result.settings = [row for row in self._result.settings
                                     if row.visits or row.failure]  # fmt: skip
            places[:] = [place for place in places if place < len(self._result.settings)]
            raise
        for number in range(1, ROUNDS):
            fastest = max((row.rate for row in rows), default=0.0)
            alive = [row for row in rows if row.rate >= HOPELESS_SHARE * fastest > 0]
            for row in alive if number % 2 == 0 else reversed(alive):
                if len(row.visits) <= number and self._used() < share:
                    self._visit(row)
        return best_of(rows)

    def _row(self, setting: Setting) -> Row:
        known = next((row for row in self._result.settings if row.setting == setting), None)
        if known is None:
            known = Row(setting=setting, own=setting == self._description.base)
            self._result.settings.append(known)
        return known

    def _used(self) -> float:
        """Return the share of the budget that is used."""
        return (self._clock() - self._begun) / self._result.budget_seconds

    def _visit(self, row: Row) -> None:
        used = self._used()
        if used >= 1 and any(one.visits for one in self._result.settings):
            raise _BudgetEndedError
        fastest = max((one.rate for one in self._result.settings), default=0.0)
        self._report(self._knob, row.setting, used, fastest)
        left = max(0.0, 1 - used) * self._result.budget_seconds
        order = Order(
            what="visit",
            setting=row.setting,
            seconds=self._window,
            limit_seconds=max(left, 4 * self._window),
            # The same samples for all settings of a round.
            seed=len(row.visits),
        )
        found = self._measure(order)
        if isinstance(found, Failure):
            row.failure = found
        else:
            row.add(found)


def _same_failure(rows: Sequence[Row]) -> bool:
    one, other = (row.failure for row in rows)
    return one is not None and other is not None and one.code == other.code


def best_of(rows: Sequence[Row]) -> Row | None:
    """Return the smallest setting within 3% of the fastest; ``None``: none was measured."""
    alive = [row for row in rows if row.rate]
    fastest = max((row.rate for row in alive), default=0.0)
    close = [row for row in alive if row.rate >= (1 - CLOSE_SHARE) * fastest]
    return min(
        close,
        key=lambda row: (row.setting.batch_size or 0, row.setting.num_workers,
                         row.setting.prefetch_factor or 0, row.setting.pin_memory),
        default=None,
    )  # fmt: skip


# --- what it says ----------------------------------------------------------------------------


def conclude(result: Result, description: Description) -> None:
    """Choose the setting to recommend; write the reasons and the notes."""
    compared = [knob for knob in result.comparisons if best_of(result.compared(knob))]
    chosen = best_of(result.compared(compared[-1])) if compared else None
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
    rows = sorted(result.compared("num_workers"), key=lambda row: row.setting.num_workers)
    count = chosen.setting.num_workers
    here = next((row for row in rows if row.setting.num_workers == count and row.rate), None)
    fewer = [row for row in rows if row.setting.num_workers < count and row.rate]
    more = [row for row in rows if row.setting.num_workers > count and (row.visits or row.failure)]
    if here is not None and fewer:
        few = fewer[-1]
        reaches = "worker reaches" if few.setting.num_workers == 1 else "workers reach"
        yield (
            f"Fewer: {few.setting.num_workers} {reaches} {100 * few.rate / here.rate:.0f}% of it."
        )
    if here is not None and more:
        yield f"More: {'; '.join(_one_more(row, here) for row in more[:2])}."
    used = chosen.middle("cores_used")
    cores = result.usable_cores
    if used is not None and used >= BUSY_SHARE * cores and cores > 1:
        yield (
            f"It uses {used:.1f} of the {cores:g} usable cores: more workers would wait for each "
            "other. Only less work per sample, or more cores, makes it faster."
        )
    for knob in KNOBS[1:]:
        others = [row for row in result.compared(knob) if row.visits or row.failure]
        value = getattr(chosen.setting, knob)
        it = next((row for row in others if getattr(row.setting, knob) == value), None)
        if it is not None and it.rate and len(others) > 1:
            said = ", ".join(
                f"{getattr(row.setting, knob)} "
                + (
                    "failed"
                    if row.failure
                    else f"give{'s'[count != 1 :]} {_gain(row.rate / it.rate)}"
                )
                for row in others
                if row is not it
            )
            yield f"{knob}={value}: {said}."


def _one_more(row: Row, chosen: Row) -> str:
    count = row.setting.num_workers
    workers = f"{count} worker{'s'[count == 1 :]}"
    if row.failure is not None:
        slow = row.failure.code == "too_slow"
        were = "was" if count == 1 else "were"
        return f"{workers} {were} too slow to measure" if slow else f"{workers} failed (see below)"
    text = f"{workers} {'gives' if count == 1 else 'give'} {_gain(row.rate / chosen.rate)}"
    mine, its = row.middle("workers_memory_bytes"), chosen.middle("workers_memory_bytes")
    if mine is None or its is None or mine - its < 32 << 20:
        return text
    takes = "takes" if count == 1 else "take"
    return f"{text} and {takes} {units.size(mine - its)} more memory"


def _gain(ratio: float) -> str:
    return "the same" if abs(ratio - 1) < 0.005 else f"{100 * (ratio - 1):+.0f}%"


def _notes(result: Result, description: Description) -> Iterator[str]:
    visits = [visit for row in result.settings for visit in row.visits]
    if not description.cuda:
        yield "pin_memory: not measured, since there is no GPU to copy to."
    spreads = [row.high / row.low - 1 for row in result.settings
               if row.recommended and row.low and row.high]  # fmt: skip
    if spreads and spreads[0] > 0.1:
        yield (
            f"The visits of the recommended setting differ by {100 * spreads[0]:.0f}%: a longer "
            "--budget on a quiet machine says more."
        )
    known = [visit.other_cores_used for visit in visits if visit.other_cores_used is not None]
    if known and (other := median(known)) > OTHERS_SHARE * result.usable_cores:
        yield (
            f"Other processes used {other:.1f} of the {result.usable_cores:g} cores meanwhile, "
            "which more workers could have used: measure again when the machine is quiet."
        )
    if any(visit.whole_epochs for visit in visits):
        yield "The dataset is so short that whole epochs were timed, with the start of workers."
    rows = [row for row in result.settings if row.visits]
    if rows and all(visit.from_disk for row in rows for visit in row.visits):
        yield "Every visit read from the disk: the dataset is not in memory, and its disk counts."
    if description.start_method != "fork":
        yield f"Workers start by {description.start_method}, which takes longer."


def make_result(
    description: Description, *, target: str, step: str | None, cores: float, budget_seconds: float
) -> Result:
    return Result(
        target=target,
        step=step,
        torch=description.torch,
        samples=description.samples,
        usable_cores=cores,
        budget_seconds=budget_seconds,
    )


def as_json(result: Result) -> dict[str, Any]:
    """Return the result for programs: rows with their setting's knobs and medians side by side."""
    rows = []
    for row in result.settings:
        medians = {
            name: row.middle(name)
            for name in Visit.__struct_fields__
            if name not in ("samples", "batches", "seconds", "whole_epochs")
        }
        plain = {
            name: getattr(row, name)
            for name in Row.__struct_fields__
            if name not in ("setting", "visits")
        }
        rows.append({**row.setting.as_dict(), **plain, **medians, "visits": len(row.visits)})
    return {**structs.asdict(result), "settings": rows}
