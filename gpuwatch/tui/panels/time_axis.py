"""The axis below the charts, and the moment that the person looks at.

The axis has clock times and what was found when. While the charts do not show the newest, a line
above the keys has the exact values under the cursor, and the numbers beside the charts are those of
that moment, put together from the history.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import NamedTuple, TypeVar

from gpuwatch.core import units
from gpuwatch.core.model import (
    Gpu,
    GpuKey,
    GpuReading,
    Host,
    JobMember,
    Process,
    ProcessKey,
    Snapshot,
)
from gpuwatch.core.registry import GPU, HOST, MEMBER, PROCESS, Field, Unit, charted
from gpuwatch.core.store import (
    GPU_SERIES,
    HOST_SERIES,
    PROCESS_SERIES,
    Column,
    Series,
    bucket_index,
)
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import WINDOW_SECONDS, severity_place
from gpuwatch.tui.charts.strips import (
    ASCII,
    HIGHEST,
    UNICODE,
    Columns,
    Glyphs,
    TimeWindow,
    mean_shown,
)
from gpuwatch.tui.charts.timeline import FindingMark, mark_at, marks_about, marks_at, span_in
from gpuwatch.tui.pages.layout import Drawn, Page, Panel
from gpuwatch.tui.panels.findings import cause_of, severity_sign
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, fit, with_text
from gpuwatch.tui.view import View

# -- readings of the moment that is looked at ------------------------------------------------------


def past_column(view: View, series: Columns | None) -> Column | None:
    """Values of ``series`` in the column looked at; ``None``: not read, or it is now."""
    moment = view.timeline.moment
    if moment is None or series is None:
        return None
    column = series.columns(moment, view.column_seconds, 1)[0]
    return None if column is None else Column(*column)


_FLICKERING = ("busy_percent", "sm_active_percent", "power_watts")
_FLICKERING_FACTS = (
    *("tensor_active_percent", "dram_active_percent", "sm_occupancy_percent"),
    *("memory_controller_percent", "encoder_percent", "decoder_percent"),
    *(f"{link}_{way}_bytes_per_second" for link in ("pcie", "nvlink") for way in ("rx", "tx")),
)
_FLICKERING_OF_HOST = (
    *("cpu_percent", "cpu_iowait_percent"),
    *(f"disk_{way}_bytes_per_second" for way in ("read", "write")),
    *(f"network_{way}_bytes_per_second" for way in ("receive", "transmit")),
)


def shown_gpu(view: View, gpu: Gpu, *, facts: bool = False) -> Gpu:
    """Return ``gpu`` with the readings that stand beside charts: those of the moment looked at, or
    of now. What flickers, as how busy it is and the power it draws, is a mean
    (``View.window_of_means``); with ``facts`` also what has no chart in a list of GPUs."""
    if view.timeline.moment is not None or gpu.lost:
        return past_gpu(view, gpu)
    window = view.window_of_means(gpu.uuid)
    # The header and several panels of a picture ask for it.
    key = f"shown {gpu.uuid}{' with facts' if facts else ''}"
    before: tuple[TimeWindow, Gpu, Gpu, dict[str, float | None]] | None = view.kept.get(key)
    if before is not None and before[0] == window and before[1] is gpu:
        return before[2]
    # Means are the same for seconds.
    means = before[3] if before is not None and before[0] == window else {}
    reading, shown = gpu.reading, dict[str, float]()
    for name in (*_FLICKERING, *(_FLICKERING_FACTS if facts else ())):
        if getattr(reading, name) is None:
            continue
        if (mean := means.get(name)) is None:
            mean = means[name] = mean_shown(view.history.gpu(gpu.uuid, name), window)
        if mean is not None:
            shown[name] = mean
    made = replace(gpu, reading=replace(reading, **shown))  # type: ignore[arg-type]
    view.kept[key] = window, gpu, made, means
    return made


Shown = TypeVar("Shown", Process, JobMember)


def shown_process(
    view: View, process: Shown, uuid: GpuKey | None, job: ProcessKey | None = None
) -> Shown:
    """Return a process, or a member of a job, with the readings that stand beside charts: shares
    that flicker as means, or as they were at the moment looked at, of which nothing else is known;
    ``uuid``: the GPU that it uses; ``job``: the job that the page is about."""
    history, key, values = view.history, process.key, dict[str, float | str | None]()
    series = {
        name: history.process(key, uuid, name)
        for name in PROCESS_SERIES
        if getattr(process, name, None) is not None
    }
    if getattr(process, _MAIN_THREAD, None) is not None:
        series[_MAIN_THREAD] = history.main_thread(key)
    moment = view.timeline.moment
    if moment is None:
        window = view.window_of_means(uuid if job is None else job)
        numbers = {name: mean_shown(one, window) for name, one in series.items()}
        values |= {name: value for name, value in numbers.items() if value is not None}
    else:
        fields: tuple[str, ...] = charted(PROCESS if isinstance(process, Process) else MEMBER)
        values |= dict.fromkeys(["state", "threads", *fields])
        values |= {name: _value(view, one) for name, one in series.items()}
    gpu = None if uuid is None or _BUSY not in series else _used_by_one(view).get(uuid)
    if gpu is not None:
        own, of_gpu = values.get(_BUSY), shown_gpu(view, gpu).reading.busy_percent
        whole = of_gpu
        if moment is not None:
            # At one moment they are further apart.
            window = TimeWindow(moment, WINDOW_SECONDS)
            own = mean_shown(series[_BUSY], window)
            whole = mean_shown(history.gpu(gpu.uuid, "busy_percent"), window)
        apart = abs(own - whole) if isinstance(own, float) and whole is not None else inf
        if of_gpu is not None and apart <= _SAME_PERCENT:
            values[_BUSY] = of_gpu
    return replace(process, **values)  # type: ignore[arg-type]


_BUSY = "gpu_busy_percent"
_SAME_PERCENT = 5.0
"""How far apart the means of two readings of the same may be: what a process alone on its GPU is
said to use has coarser samples than how busy the GPU is, and the number of that."""


def _used_by_one(view: View) -> Mapping[GpuKey, Gpu]:
    """Return the GPUs that one process uses now."""
    snapshot = view.snapshot
    kept: tuple[Snapshot | None, dict[GpuKey, Gpu]] | None = view.kept.get("used by one")
    if kept is None or kept[0] is not snapshot:
        count = Counter([one.gpu_uuid for one in snapshot.processes] if snapshot else [])
        alone = {gpu.uuid: gpu for gpu in view.gpus if count[gpu.uuid] == 1}
        kept = view.kept["used by one"] = snapshot, alone
    return kept[1]


_MAIN_THREAD = "main_thread_cpu_percent"


def past_gpu(view: View, gpu: Gpu) -> Gpu:
    """Return ``gpu`` with its readings of the moment looked at; what has no history is not known of
    it."""
    if view.timeline.moment is None:
        return gpu
    history, now = view.history, gpu.reading
    values = {
        name: _value(view, history.gpu(gpu.uuid, name), whole=GPU[name].whole)
        for name in ("busy_percent", *GPU_SERIES)
    }
    reading = GpuReading(
        **values,  # type: ignore[arg-type]
        memory_used_is_process_sum=now.memory_used_is_process_sum,
        ecc_corrected_count=now.ecc_corrected_count,
        ecc_uncorrected_count=now.ecc_uncorrected_count,
        remapped_rows_pending=now.remapped_rows_pending,
        remapped_rows_failed=now.remapped_rows_failed,
    )
    # A limit that is not recorded at that moment was most likely the one of now.
    if reading.power_limit_watts is None:
        reading = replace(reading, power_limit_watts=now.power_limit_watts)
    return replace(gpu, reading=reading)


def shown_host(view: View, host: Host) -> Host:
    """Return ``host`` with the readings that stand beside charts: those of the moment looked at, or
    of now; what flickers as means."""
    history = view.history
    if view.timeline.moment is None:
        window = view.window_of_means()
        means = {
            name: mean
            for name in _FLICKERING_OF_HOST
            if getattr(host, name) is not None
            if (mean := mean_shown(history.host(name), window)) is not None
        }
        # Cores are shown as they are now, and as seldom anew as the means.
        before: tuple[TimeWindow, Host] | None = view.kept.get("shown cores")
        if before is None or before[0] != window or before[1].name != host.name:
            before = view.kept["shown cores"] = window, host
        return replace(host, core_percents=before[1].core_percents, **means)  # type: ignore[arg-type]
    values = {
        name: _value(view, history.host(name), whole=HOST[name].whole) for name in HOST_SERIES
    }
    cores = host.core_percents
    if cores is not None:
        cores = tuple(_value(view, history.host_core(number)) for number in range(len(cores)))
    return replace(host, core_percents=cores, **values)  # type: ignore[arg-type]


def _value(view: View, series: Series | None, *, whole: bool = False) -> float | int | None:
    column = past_column(view, series)
    if column is None:
        return None
    return round(column.mean) if whole else column.mean


_FAR_CELLS, _CLOCK_CELLS, _MINUTE_CELLS, _MANY = 14, 11, 9, 4
"""Cells from one mark to the next, as long as there are that many; else with its text, with and
without seconds, and some room before the next."""
_CLOSER = 5
"""Moments that stand in for a tick are closer by about so much."""

_STYLES = {"error": "error", "warning": "warn", "info": "key"}

Span = tuple[int, int]
"""Place of a chart: its first cell and its width."""


def wall_offset(view: View) -> float:
    """Unix time less the history's clock."""
    snapshot = view.snapshot
    return 0.0 if snapshot is None else snapshot.taken_at_unix_seconds - snapshot.monotonic_seconds


# -- ticks ----------------------------------------------------------------------------------


class Ticks(NamedTuple):
    """Round moments of the clock, and closer ones that stand in for those without room."""

    moments: Sequence[float]
    closer: Sequence[float]
    apart: float
    """Seconds from one of ``moments`` to the next."""
    has_dates: bool
    """Not all of them are of today: the first of each day says its date."""

    def text(self, moment: float, before: float | None) -> str:
        """Return the time of ``moment``, with the date if ``before``, the one shown before it, was
        on another day."""
        is_dated = self.has_dates and (before is None or _day(before) != _day(moment))
        return _clock_text(moment, "%H:%M:%S" if self.apart < 60 else "%H:%M", is_dated)

    def near(self, moment: float) -> list[float]:
        """Return those that may stand in for ``moment``, the nearest first."""
        near = [one for one in self.closer if 0 < abs(one - moment) <= self.apart / 3]
        return sorted(near, key=lambda one: abs(one - moment))


def ticks(begin: float, end: float, cells: int, now: float) -> Ticks:
    """Return the ticks for ``cells`` cells from ``begin`` to ``end`` (unix times, like ``now``)."""
    # Round by the clock on the wall, not by that of Greenwich.
    shift, each = time.localtime(begin).tm_gmtoff, (end - begin) / max(1, cells)
    for least in (_FAR_CELLS, _MINUTE_CELLS, _CLOCK_CELLS):
        spacing, moments = units.round_marks(begin + shift, end - begin, each * least)
        many = (end - begin) / spacing >= _MANY
        if many if least == _FAR_CELLS else spacing >= 60:
            break
    # Without seconds, where the others have none.
    step = max(spacing / _CLOSER, 60.0 if spacing >= 60 else 1.0)
    _, closer = units.round_marks(begin + shift, end - begin, step)
    return Ticks(
        [one - shift for one in moments],
        [one - shift for one in closer],
        spacing,
        _day(begin) != _day(now) or _day(end) != _day(now),
    )


def _clock_text(moment: float, pattern: str, dated: bool) -> str:
    """Return ``12:31:05``; ``dated``: ``20 Mar 12:31:05``."""
    local = time.localtime(moment)
    day = f"{local.tm_mday} {time.strftime('%b', local)} " if dated else ""
    return day + time.strftime(pattern, local)


def _day(moment: float) -> tuple[int, int]:
    local = time.localtime(moment)
    return local.tm_year, local.tm_yday


# -- the axis -------------------------------------------------------------------------------


def draw(
    view: View,
    window: TimeWindow,
    spans: Sequence[Span],
    width: int,
    *,
    gpus: Collection[GpuKey] | None = None,
    said: str = "",
    has_range: bool = False,
) -> tuple[Line, list[Zone]]:
    """Draw an axis under each of ``spans``, in one line; a click on it sets the cursor. ``gpus``:
    only findings about these are on it. ``said``: the rule whose finding the page is about, which
    is not named again. ``has_range``: it says how much time that is, where there is room."""
    row = Row(width)
    zones: list[Zone] = []
    offset = wall_offset(view)
    changed = _changed(view)
    marks = view.spans if gpus is None else marks_about(view.spans, gpus)
    for start, cells in spans:
        if cells <= 0:
            continue
        grid = window.grid(cells)
        if not zones and start > _LABEL_CELLS:
            found = marks_at(marks, grid.begin_seconds, grid.end_seconds)
            names = _named(found, None if is_shown(view) else window.now, said)
            name = next((one for one in names if len(one) <= start - 3), "".join(names[-1:]))
            row.pad_to(2).add(fit(name, start - 3, view.glyphs.ellipsis), "label")
            text = span_in(window.span_seconds, "smh") if has_range else ""
            if text and start - 2 - len(text) >= row.used:
                # Below the scale of the charts.
                row.pad_to(start - 1 - len(text)).add(text, "dim")
        row.pad_to(start)
        for text, style in axis(marks, window, cells, offset, view.glyphs, changed):
            row.add(text, style)
        zones.append(Zone(0, start, start + cells, "moment"))
    return row.line(), zones


def _named(found: Sequence[FindingMark], now: float | None, said: str) -> Sequence[str]:
    """Return what the finding that is shown is called, unless that is ``said``, of several the
    gravest, and how many there are besides it and notes, in full and shorter; before that whether
    it is over, where that is seen from ``now``."""
    found = [one for one in found if one.severity != "info"] or found
    found = sorted(found, key=lambda one: (severity_place(one.severity), one.begin_seconds))
    others = {one.rule for one in found[1:]} - {one.rule for one in found[:1]}
    if not {one.rule for one in found} - {said}:
        return []
    same = [one for one in found if one.rule == found[0].rule]
    ends = [inf if one.end_seconds is None else one.end_seconds for one in same]
    over = now is not None and max(ends) < now
    name = cause_of(found[0])
    names = [f"{name} +{len(others)}", name] if others else [name]
    return [*(["was: " + one for one in names] if over else []), *names]


Changed = tuple[float, str, str]
"""Moment of a change, and how busy GPUs were before and after; empty where that is not known."""


def _changed(view: View) -> Changed | None:
    mark = view.mark
    if mark is None:
        return None
    sides = (mark.before, mark.after)
    means = [None if one is None else one.busy_percent for one in sides]
    known = [units.percent(one) for one in means if one is not None]
    return (mark.at, known[0], known[1]) if len(known) == 2 else (mark.at, "", "")


_LABEL_CELLS = 12
"""Cells before the axis from which on there is room to say what is on it."""


def axis(
    marks: Sequence[FindingMark],
    window: TimeWindow,
    cells: int,
    offset: float,
    glyphs: Glyphs,
    changed: Changed | None = None,
) -> list[Run]:
    """Draw ``cells`` cells: ticks with their times, over them the findings, the moment of a change
    that was marked, with what was before and after, and the cursor."""
    grid = window.grid(cells)
    # A time is read rather than the line that says how long a finding held, and not at all where
    # a sign would stand in it.
    ends = [window.now if one.end_seconds is None else one.end_seconds for one in marks]
    newest = grid.last - grid.first
    found = [
        (one.severity, grid.place(one.begin_seconds), min(grid.place(end), newest))
        for one, end in zip(marks, ends, strict=True)
    ]
    over = mark_cells(found, cells, glyphs)
    cursor = -1 if window.cursor is None else grid.place(window.cursor)
    if 0 <= cursor < cells:
        over[cursor] = glyphs.separator, "c:value"
    if changed is not None:
        _mark_change(over, grid.place(changed[0]), changed[1:], glyphs)
    latest = min(window.now, grid.end_seconds) + offset
    begin = grid.begin_seconds + offset
    every = ticks(begin, grid.end_seconds + offset, cells, window.now + offset)
    out = with_times(over, every, lambda at: grid.place(at - offset), latest, glyphs)
    groups = groupby(out, key=itemgetter(1))
    return [("".join([text for text, _ in group]), style) for style, group in groups]


def with_times(
    cells: Sequence[Run | None],
    every: Ticks,
    place: Callable[[float], int],
    latest: float,
    glyphs: Glyphs,
) -> list[Run]:
    """Return ``cells`` with times up to ``latest`` in their places, where they have a blank or a
    line before and behind them. A tick is never without its time: where a sign leaves a time no
    room there is none, or one close by, if there would be few."""
    out, placed, left_out = [cell or (" ", "dim") for cell in cells], list[float](), list[float]()

    def has_placed(moment: float, before: float | None) -> bool:
        first, text = place(moment), every.text(moment, before)
        fits = moment <= latest and _has_room(out, first, text)
        if fits:
            out[first : first + 1 + len(text)] = [(one, "dim") for one in glyphs.tick + text]
            placed.append(moment)
        return fits

    for moment in every.moments:
        before = placed[-1] if placed else None
        is_whole = moment <= latest and _has_cells(out, place(moment), every.text(moment, before))
        if is_whole and not has_placed(moment, before):
            left_out.append(moment)
    for moment in left_out if len(placed) < _FEW else ():
        for at in every.near(moment):
            if has_placed(at, next((one for one in placed if _day(one) == _day(at)), None)):
                break
    return out


_FEW = 3
"""Times from which on there are enough."""


def _has_cells(cells: Sequence[Run], place: int, text: str) -> bool:
    return place >= 0 and place + 1 + len(text) <= len(cells)


def _has_room(cells: Sequence[Run], place: int, text: str) -> bool:
    if not _has_cells(cells, place, text):
        return False
    around = cells[max(0, place - 1) : place + len(text) + 2]
    return _BLANKS.issuperset([one for one, _ in around])


_BLANKS = {" ", UNICODE.rule, ASCII.rule}


def _mark_change(
    over: list[Run | None], place: int, sides: tuple[str, str], glyphs: Glyphs
) -> None:
    """Set the sign of a change in its place and what was on either side, where that has room."""
    if not 0 <= place < len(over):
        return
    over[place] = glyphs.mark, "marker"
    in_words = [("before ", "after ")] if len(over) >= _ROOM_FOR_WORDS else []
    for words in (*in_words, ("", "")) if all(sides) else ():
        before, after = [f" {word}{side} " for word, side in zip(words, sides, strict=True)]
        around = over[max(0, place - len(before)) : place] + over[place + 1 :][: len(after)]
        signs = {one for one, _ in filter(None, around)} - _BLANKS
        if len(around) == len(before + after) and not signs:
            over[place - len(before) : place] = [(one, "label") for one in before]
            over[place + 1 : place + 1 + len(after)] = [(one, "label") for one in after]
            return


_ROOM_FOR_WORDS = 40
"""Cells of an axis from which on there is room for a word beside each number."""


Found = tuple[str, int, int] | tuple[str, int, int, str]
"""Finding on an axis: its severity, its first and last column, and its hue, where that is not the
severity's."""


def mark_cells(found: Iterable[Found], cells: int, glyphs: Glyphs) -> list[Run | None]:
    """Return for each of ``cells`` columns the sign of a finding that begins there, a quieter line
    where one held, or ``None``; the gravest on top."""
    found = list(found)
    out = mark_lines(found, cells, glyphs)
    for first, sign in mark_signs(found, glyphs).items():
        if 0 <= first < cells:
            out[first] = sign
    return out


def mark_lines(found: Iterable[Found], cells: int, glyphs: Glyphs) -> list[Run | None]:
    """Return for each of ``cells`` columns a line where a finding held, or ``None``."""
    out: list[Run | None] = [None] * cells
    for severity, first, last, *hue in _gravest_last(found):
        # In ASCII it would be as loud as the verdict.
        line = "dim" if glyphs.is_ascii else f"{_hue_of(severity, hue)}.{HIGHEST}"
        for cell in range(max(0, first), min(cells, last + 1)):
            out[cell] = (glyphs.rule, line)
    return out


def mark_signs(found: Iterable[Found], glyphs: Glyphs) -> dict[int, Run]:
    """Return the sign of each finding by the column in which it begins, of several the gravest."""
    return {
        first: (severity_sign(severity, glyphs), _hue_of(severity, hue))
        for severity, first, _, *hue in _gravest_last(found)
    }


def _gravest_last(found: Iterable[Found]) -> list[Found]:
    return sorted(found, key=lambda one: severity_place(one[0]), reverse=True)


def _hue_of(severity: str, hue: Sequence[str]) -> str:
    return hue[0] if hue else _STYLES.get(severity, "warn")


# -- the exact values -----------------------------------------------------------------------


def is_shown(view: View) -> bool:
    """Return whether there is something to say of the moment: the charts do not show the newest."""
    return view.timeline.moment is not None


def ago(view: View) -> str:
    """Return how long before now the charts end, or the cursor stands: ``3m12``."""
    moment, snapshot = view.timeline.moment, view.snapshot
    if moment is None or snapshot is None:
        return ""
    return units.age(snapshot.monotonic_seconds - moment)


def values(view: View, gpu: Gpu | None, width: int) -> list[Line]:
    """Values of the column at the cursor, of the widest chart; without a cursor where the charts
    end; nothing where they show the newest."""
    row = Row(width)
    cursor, end = view.timeline.cursor_seconds, view.timeline.end_seconds
    if cursor is None:
        if end is None:
            return []
        row.add(f" charts end {clock(view, end)}", "text")
        for key, what in (("0", "live"), ("< >", "back and forth"), ("c", "cursor")):
            if row.room < len(key) + len(what) + 4:
                break
            row.add("   ").add(key, "key").add(f" {what}", "label")
        return [row.line()]
    seconds = view.column_seconds
    begin = bucket_index(cursor, seconds) * seconds
    row.add(f" {view.glyphs.separator} ", "key")
    row.add(_column_clock(view, begin, seconds), "value")
    if gpu is not None:
        row.fits(f"  GPU {units.gpu_label(gpu)}", "title")
    for label, text in _numbers(view, gpu, begin + seconds / 2, seconds):
        if row.room < len(label) + len(text) + 3:
            break
        row.add(f"  {label} ", "label").add(text, "value")
    found = mark_at(view.spans, begin, begin + seconds)
    if found is not None and row.room > 16:
        text = fit(f"  {clean(cause_of(found))}", row.room - 1, view.glyphs.ellipsis)
        row.add(text, _STYLES.get(found.severity, "warn"))
    return [row.line()]


def _column_clock(view: View, begin: float, seconds: float) -> str:
    """Return ``12:31:05.5``; of a column that is longer than a second or two where it begins and
    ends."""
    if seconds < 1.5:
        moment = begin + seconds / 2
        tenths = f".{int((moment + wall_offset(view)) * 10 % 10)}" if seconds < 1.0 else ""
        return clock(view, moment) + tenths
    return f"{clock(view, begin)}-{units.clock(begin + seconds + wall_offset(view))}"


def clock(view: View, at: float) -> str:
    """Return the time of day of a moment on the history's clock, with its date if that is not
    today's."""
    moment = at + wall_offset(view)
    today = view.snapshot is None or _day(moment) == _day(view.snapshot.taken_at_unix_seconds)
    return _clock_text(moment, "%H:%M:%S", dated=not today)


_NUMBERS: tuple[tuple[bool, Field], ...] = (
    *[(True, GPU[name]) for name in ("busy_percent", "power_watts")],
    (False, HOST["cpu_percent"]),
    *[(True, GPU[name]) for name in ("sm_active_percent", "sm_clock_mhz")],
    *[(True, GPU[f"pcie_{way}_bytes_per_second"]) for way in ("rx", "tx")],
    *[(False, HOST[f"disk_{way}_bytes_per_second"]) for way in ("read", "write")],
    *[(True, GPU[name]) for name in ("memory_used_bytes", "temperature_celsius")],
    (False, HOST["memory_used_bytes"]),
)
"""Whether it is of the GPU (else of the host), and the field. Means stand beside the charts: those
come first which have more to say of a column, from where to where they went."""


def _numbers(
    view: View, gpu: Gpu | None, middle: float, column_seconds: float
) -> Iterator[tuple[str, str]]:
    """(label, text) of each series that has been read."""
    for of_gpu, field in _NUMBERS:
        name = field.name
        label = field.short if of_gpu or name not in GPU else f"host {field.short}"
        if not of_gpu:
            series = view.history.host(name)
        else:
            series = None if gpu is None else view.history.gpu(gpu.uuid, name)
        if series is not None:
            column = series.columns(middle, column_seconds, 1)[0]
            yield label, "no reading" if column is None else _spread(column, field.unit)


def _spread(column: Column, unit: Unit) -> str:
    """Return ``0-99%``: the lowest and the highest."""
    low, high = unit.text(column.minimum), unit.text(column.maximum)
    if low == high:
        return low
    # The unit is said once, where it is that of both.
    low = f"{column.minimum:.0f}" if not unit.symbol.startswith("bytes") else low
    return f"{low.removesuffix('/s')}-{high}"


# -- the panels ------------------------------------------------------------------------------------


def _draw_axis(page: Page, _rows: int) -> Drawn:
    mine = None if page.job is None else page.job.gpu_uuids
    # Boxes have the range in a title.
    spans, has_range = page.spans, not page.boxed
    line, zones = draw(page.view, page.window, spans, page.width, gpus=mine, has_range=has_range)
    if headings := page.decided.get("headings below"):
        line = tuple(with_text(line, page.width - len(headings), headings, "dim"))
    return [line], zones


def axis_panel(has_room: Callable[[Page], bool]) -> Panel:
    """Return the time axis of a page; it is asked once, before the values."""
    return Panel("axis", lambda page: 1 if has_room(page) else 0, _draw_axis)


def _draw_values(page: Page, _rows: int) -> Drawn:
    view, gpus = page.view, page.gpus
    selected = (gpu for gpu in gpus if gpu.uuid == view.selected_gpu)
    gpu = next(selected, gpus[0] if gpus else None)
    return values(view, gpu, page.width), []


VALUES = Panel("values", lambda page: int(is_shown(page.view) and page.room > 1), _draw_values)
"""Panel below the list, which alone gets shorter: nothing else moves when a cursor is set."""
