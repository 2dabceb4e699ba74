"""What a GPU is doing, in a word and a colour: the same on every screen.

A chart of how busy a GPU is has the colour of its state. What a finding says comes before the
reading: 99% busy in step with a slower rank is waiting, not work.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple, TypeVar, cast

from gpuwatch.core.model import Gpu
from gpuwatch.diagnosis.finding import Finding
from gpuwatch.tui.charts.strips import Column, Grid, TimeWindow
from gpuwatch.tui.charts.timeline import FindingMark, mark_at
from gpuwatch.tui.pages.finding_words import about_gpu
from gpuwatch.tui.panels.gpus.metrics import throttle_text
from gpuwatch.tui.view import View

Answer = TypeVar("Answer")


class State(NamedTuple):
    """``style`` is a name of the palette."""

    word: str
    style: str


FED = State("fed", "fed")
STARVED = State("starved", "starved")
IN_BURSTS = State("in bursts", "starved")
THROTTLED = State("throttled", "throttled")
WAITING = State("waiting", "waiting")
SLOWEST = State("slowest", "fed")
IDLE = State("idle", "idle")
LOST = State("lost", "error")
IN_USE = State("in use", "unknown")
UNKNOWN = State("unknown", "unknown")
STATES = (FED, STARVED, IN_BURSTS, THROTTLED, WAITING, SLOWEST, IDLE, LOST, IN_USE, UNKNOWN)

_BY_RULE = {
    "thermal_throttle": THROTTLED,
    "power_throttle": THROTTLED,
    "collective_wait": WAITING,
    "straggler": WAITING,
    "pipeline_bubbles": WAITING,
    "busy_without_work": WAITING,
}
"""The others leave a GPU without work, or say nothing of how busy it is."""

_RECENT_SECONDS = 30.0
_COARSE_SECONDS, _FINE_SECONDS = 5.0, 0.5
_HELD_SECONDS = 4.0
IDLE_PERCENT, _FED_PERCENT, _FULL_PERCENT = 5.0, 70.0, 90.0
"""Never more than the first is idle, a mean from the second on is fed. Where a finding says that
time is lost, a mean below the third is starved; where some stretch of ``_COARSE_SECONDS`` is above
it, the GPU is fed between its pauses, and the word is right in both."""


def state_of(view: View, gpu: Gpu) -> State:
    """The state of now; or of the moment that is looked at, by what was found and read then."""
    moment = view.timeline.moment
    said: Finding | FindingMark | None
    if moment is None:
        said = found = about_gpu(view.diagnosis, gpu.uuid)
        lost, loses_time = gpu.lost, found is not None and bool(found.cost_share)
    else:
        said = mark_at([one for one in view.spans if gpu.uuid in one.gpus], moment, moment)
        lost = said is not None and said.rule == "gpu_lost"
        loses_time = said is not None and said.severity != "info"
    if lost:
        return LOST
    if said is not None and said.rule in _BY_RULE:
        slowest = said.rule == "straggler" and said.gpus[0] == gpu.uuid
        return SLOWEST if slowest else _BY_RULE[said.rule]
    if moment is not None:
        # Why it was throttled is not kept.
        return _by_readings(_recent(view, gpu, _COARSE_SECONDS), loses_time)
    held_back = throttle_text(gpu.reading)
    if held_back is not None and held_back[1] == "error":
        # Not at its power limit alone, where a GPU at full work belongs.
        return THROTTLED
    return _held(
        view,
        (gpu.uuid, loses_time),
        lambda: _by_readings(_recent(view, gpu, _COARSE_SECONDS), loses_time),
    )


def _held(view: View, key: Hashable, make: Callable[[], Answer]) -> Answer:
    """What ``make`` says, for a few seconds: words that change with every look are not read."""
    now = 0.0 if view.snapshot is None else view.snapshot.monotonic_seconds
    moment = int(now / _HELD_SECONDS)
    if moment != view.held_at:
        view.held_at, view.held = moment, {}
    if key not in view.held:
        view.held[key] = make()
    return cast("Answer", view.held[key])


def _by_readings(recent: Sequence[Column | None], loses_time: bool) -> State:
    known = [one for one in recent if one is not None]
    if not known:
        return UNKNOWN
    if max(high for _, _, high in known) <= IDLE_PERCENT:
        return IDLE
    mean = sum(mean for _, mean, _ in known) / len(known)
    if loses_time and mean < _FULL_PERCENT:
        return IN_BURSTS if max(one for _, one, _ in known) >= _FULL_PERCENT else STARVED
    return FED if mean >= _FED_PERCENT else IN_USE


def _recent(view: View, gpu: Gpu, seconds: float) -> Sequence[Column | None]:
    series, end = view.history.gpu(gpu.uuid, "busy_percent"), view.timeline.moment
    if series is None or view.snapshot is None:
        return []
    end = view.snapshot.monotonic_seconds if end is None else end
    return series.columns(end, seconds, int(_RECENT_SECONDS / seconds))


# -- what a chart with too few columns can still say ----------------------------------------------

_LOW_PERCENT, _HIGH_PERCENT = 30.0, 70.0
_COLUMNS_A_PERIOD = 3.0
"""Fewer do not show a wave."""
_LEAST_PERIOD_SECONDS = 1.5
"""Shorter ones are not seen in fine columns."""
_LEAST_RISES = 3
_NEAR, _REGULAR = 0.5, 2 / 3
"""So many of the periods differ by no more than that from the one in the middle."""
_WHOLE_CELLS, _SHORT_CELLS = 50, 24
"""A narrower chart has the share and the period in fewer words, or in none."""


def duty(view: View, gpu: Gpu, window: TimeWindow, width: int) -> str | None:
    """``23% busy, every 4 s`` of a GPU that works in bursts too short for the columns of a chart of
    ``width``; ``None``: the chart shows what there is to see."""
    grid = window.grid(max(1, width))
    if _COLUMNS_A_PERIOD * grid.column_seconds <= _LEAST_PERIOD_SECONDS:
        return None
    key = (gpu.uuid, width, window.span_seconds, window.end)
    return _held(view, key, lambda: _duty(view, gpu, grid, width))


def period_seconds(view: View, gpu: Gpu) -> float | None:
    """From one burst of work to the next, of a GPU that works in regular bursts now."""
    return _period(_recent(view, gpu, _FINE_SECONDS))


def _duty(view: View, gpu: Gpu, grid: Grid, width: int) -> str | None:
    seconds, series = grid.column_seconds, view.history.gpu(gpu.uuid, "busy_percent")
    if series is None:
        return None
    known = [one for one in grid.columns_of(series) if one is not None]
    swings = [one for one in known if one[0] <= _LOW_PERCENT and one[2] >= _HIGH_PERCENT]
    period = period_seconds(view, gpu) if len(swings) * 4 > len(known) else None
    if period is None or period >= _COLUMNS_A_PERIOD * seconds:
        return None
    if period < seconds and len(swings) * 2 < len(known):
        # Most of what is shown was something else.
        return None
    mean = sum(one[1] for one in known) / len(known)
    every = f"{period:.0f}" if period >= 1.5 else f"{period:.1f}"
    if width < _SHORT_CELLS:
        return f"{mean:.0f}%/{every}s"
    if width < _WHOLE_CELLS:
        return f"{mean:.0f}% every {every}s"
    return f"{mean:.0f}% busy {view.glyphs.dot} every {every} s"


def _period(columns: Sequence[Column | None]) -> float | None:
    """Seconds from burst to burst, if they come regularly."""
    rises, low = [], False
    for place, column in enumerate(columns):
        if column is None:
            continue
        if low and column[2] >= _HIGH_PERCENT:
            rises.append(place * _FINE_SECONDS)
            low = False
        else:
            low = low or column[0] <= _LOW_PERCENT
    gaps = [later - sooner for sooner, later in pairwise(rises)]
    if len(rises) < _LEAST_RISES:
        return None
    middle = median(gaps)
    near = [gap for gap in gaps if abs(gap - middle) <= _NEAR * middle]
    return sum(near) / len(near) if len(near) >= _REGULAR * len(gaps) else None
