"""GPUs: their numbers against their limits, what each does in a word and a colour, and drawings.

In each of three densities how busy a GPU is gets the room, and the rest is gauges. A chart of how
busy a GPU is has the colour of its state. What a finding says comes before the reading: 99% busy in
step with a slower rank is waiting, not work.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import NamedTuple, TypeVar, cast

from gpuwatch.core import units
from gpuwatch.core.bounds import highest as most
from gpuwatch.core.bounds import mean
from gpuwatch.core.model import Gpu, GpuIdentity, GpuKey, GpuReading
from gpuwatch.core.registry import GPU, MAIN, Field
from gpuwatch.core.store import PolledThenSampled, Series, busy_name
from gpuwatch.core.text import clean
from gpuwatch.core.throttling import REASONS
from gpuwatch.diagnosis.finding import Finding
from gpuwatch.diagnosis.rule import (
    IDLE,
    NO_ANSWER,
    PAUSES,
    STARVED,
    STRAGGLER,
    THROTTLED,
    UNDERUSED,
    WAITING,
    GpuState,
)
from gpuwatch.tui.charts.strips import (
    Column,
    Columns,
    Glyphs,
    Held,
    Together,
    highest,
    is_shaded,
    nice_ceiling,
    scale_marks,
)
from gpuwatch.tui.charts.timeline import FindingMark, mark_at
from gpuwatch.tui.pages.layout import Drawn, GpuStyle, Page, Panel, scrolled
from gpuwatch.tui.panels.findings import about_gpu, rule_of, severity_sign, style_of
from gpuwatch.tui.panels.table import hidden, script_of
from gpuwatch.tui.panels.time_axis import clock, past_column, shown_gpu
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Run,
    Zone,
    fit,
    left,
    right,
    spots,
    width_of,
)
from gpuwatch.tui.view import View

# -- numbers and facts -----------------------------------------------------------------------------


_POWER_SCALE_LEAST_WATTS = 50.0


@dataclass(frozen=True, slots=True)
class Metric:
    """Metric of a GPU: its field, its number, its fixed scale, and how alarming it is."""

    field: Field
    text: str
    brief: str
    """``text`` without the limit."""
    value: float | None
    limit: float | None
    mood: str = ""
    """``""``; ``warn``, said by colour and by a sign; or the hue of the state that it explains,
    which is named already."""

    @property
    def limit_text(self) -> str:
        """Return the limit in at most four cells: a mark of a scale."""
        limit = re.match(r"([\d.]+)(.*)", self.text.partition("/")[2])
        return f"{float(limit[1]):.0f}{limit[2]}" if limit else ""

    @property
    def style(self) -> str:
        """Return the style of a gauge or a chart of it. How busy a GPU is has the colour of its
        state."""
        return self.mood or "gauge"


Metrics = tuple[Metric, Metric, Metric, Metric]

Said = tuple[str, str, str]
"""A word beside a chart, the number that goes with it, and their style."""


def metrics(
    gpu: Gpu, host_memory_bytes: float | None = None, power_peak_watts: float | None = None
) -> Metrics:
    """Busy, memory, power and temperature of ``gpu``, each against its own limit.

    A GPU that shares the host's memory has none of its own and often states no power limit: its
    memory is drawn against ``host_memory_bytes``, its power on a scale that moves in steps above
    ``power_peak_watts``, the most that is shown.
    """
    identity, reading = gpu.identity, gpu.reading
    total, power_limit, hot = _limits(gpu)
    used, heat = reading.memory_used_bytes, reading.temperature_celsius
    memory_scale = host_memory_bytes if total is None and identity.memory_unified else total
    power_scale = power_limit
    if power_scale is None and power_peak_watts is not None:
        power_scale = nice_ceiling(power_peak_watts, _POWER_SCALE_LEAST_WATTS)
    heat_mood = _mood(heat, hot, 1.0)
    if heat_mood and is_held_back(reading):
        heat_mood = THROTTLED.hue
    memory = _metric(reading, "memory_used_bytes", total, memory_scale, _mood(used, total, 0.95))
    if reading.memory_used_is_process_sum:
        memory = replace(memory, text=f"{memory.brief} procs")
    return (
        _metric(reading, busy_name(reading), None, 100.0),
        memory,
        _metric(reading, "power_watts", power_limit, power_scale),
        _metric(reading, "temperature_celsius", hot, hot or 100.0, heat_mood),
    )


def _metric(
    reading: GpuReading, name: str, limit: float | None, scale: float | None, mood: str = ""
) -> Metric:
    value, field = getattr(reading, name), GPU[name]
    return Metric(field, field.text(value, limit), field.text(value), value, scale, mood)


def clock_metric(gpu: Gpu) -> Metric:
    """Return the clock of ``gpu`` against its highest."""
    most = gpu.identity.sm_clock_max_mhz
    return _metric(gpu.reading, "sm_clock_mhz", most, most)


def scaled_metrics(view: View, gpu: Gpu, columns: int) -> Metrics:
    """Return ``metrics`` with every scale there is: ``columns`` is how much of the past is
    shown."""
    host_memory = None if view.snapshot is None else view.snapshot.host.memory_total_bytes
    if _limits(gpu)[1]:
        return metrics(gpu, host_memory)
    series = view.history.gpu(gpu.uuid, "power_watts")
    peak = highest(series, view.window, columns, gpu.reading.power_watts)
    return metrics(gpu, host_memory, peak)


def _limits(gpu: Gpu) -> tuple[float | None, float | None, float | None]:
    """Return the limits of memory, power and temperature."""
    identity = gpu.identity
    watts = gpu.reading.power_limit_watts or identity.power_limit_default_watts
    return identity.memory_total_bytes, watts, identity.temperature_slowdown_celsius


def _mood(value: float | None, limit: float | None, share: float) -> str:
    if value is None or limit is None or limit <= 0:
        return ""
    return "warn" if value / limit >= share else ""


def is_held_back(reading: GpuReading) -> bool:
    """Return whether its clocks are lower than they should be: not at its power limit alone, where
    a GPU at full work belongs."""
    return any(REASONS[one].is_grave for one in reading.throttle_reasons or () if one in REASONS)


def throttle_text(reading: GpuReading) -> Run | None:
    """Reasons for lower clocks, and their style; ``None`` when nothing does or it is unknown."""
    held = [REASONS[one] for one in reading.throttle_reasons or () if one in REASONS]
    if not held:
        return None
    style = THROTTLED.hue if is_held_back(reading) else "label"
    return "throttled: " + ", ".join(dict.fromkeys([one.label for one in held])), style


def _late_text(reading: GpuReading) -> str | None:
    """Return how old the oldest number of a chart is, where the driver is too slow for every
    look."""
    ages = [seconds for name, seconds in reading.late_readings if name in MAIN]
    return f"{units.age(max(ages)):>3} old" if ages else None


def _placed_name(gpu: GpuIdentity) -> str:
    """Return a GPU's name in short; of a job on several machines with the machine before it."""
    short = units.gpu_name(gpu.name)
    return short if gpu.machine is None else f"{gpu.machine} {short}"


def brief_name(gpu: GpuIdentity, width: int) -> str:
    """Return as many parts of a GPU's name as fit: ``A100-SXM4`` of ``A100-SXM4-80GB``."""
    short = _placed_name(gpu)
    parts = [short[: gap.start()] for gap in re.finditer("[ -]", short) if gap.start() <= width]
    return parts[-1] if parts and len(short) > width else short


def used_by(view: View, uuid: GpuKey) -> tuple[str, str]:
    """Return ``ada`` and ``train.py``: whose job uses a GPU now, and what it runs; ``3 jobs`` of
    several; nothing where none is known, or charts are of the past."""
    if view.snapshot is None or view.timeline.moment is not None:
        return "", ""
    jobs = [job for job in view.snapshot.jobs if uuid in job.gpu_uuids]
    if len(jobs) > 1:
        return f"{len(jobs)} jobs", ""
    texts = [(clean(job.user or ""), clean(script_of(job.command or ""))) for job in jobs]
    return texts[0] if texts else ("", "")


def notes(gpu: Gpu) -> list[Run]:
    """Return what is unusual about a GPU, most important first, as (text, style)."""
    if gpu.lost:
        return [(NO_ANSWER.word, NO_ANSWER.hue)]
    reading = gpu.reading
    throttled, late = throttle_text(reading), _late_text(reading)
    out = [] if throttled is None else [throttled]
    if reading.ecc_uncorrected_count:
        out.append((f"ECC errors {reading.ecc_uncorrected_count}", "error"))
    if reading.remapped_rows_failed:
        out.append(("row remap failed", "error"))
    elif reading.remapped_rows_pending:
        out.append(("row remap pending", "warn"))
    if late is not None:
        out.append((f"up to {late}", "warn"))
    if (link := _slow_link_text(gpu)) is not None:
        out.append((link, "label"))
    return out


def _slow_link_text(gpu: Gpu) -> str | None:
    """Return ``PCIe gen1 x16 of gen5 x16`` where the link of a GPU at work is not as fast as it can
    be; idle GPUs lower it to save power."""
    now = gpu.reading.pcie_generation, gpu.reading.pcie_width
    most = gpu.identity.pcie_generation_max, gpu.identity.pcie_width_max
    if None in (*now, *most) or now == most or (gpu.reading.busy_percent or 0.0) < _WORKS_PERCENT:
        return None
    return f"{GPU['pcie_generation'].short} gen{now[0]} x{now[1]} of gen{most[0]} x{most[1]}"


_WORKS_PERCENT = 20.0


QUIET = {
    **{"sm_clock_mhz": 7, "sm_active_percent": 4, "tensor_active_percent": 4},
    **{"dram_active_percent": 4, "memory_controller_percent": 4, "pcie_rx_bytes_per_second": 8},
}
"""Readings without a gauge that have a place beside those with one, most important first, and the
cells that they take."""


_AS_ONE = (*("memory_used_bytes", "power_watts", "busy_percent"), *QUIET)


def _as_one(gpus: Sequence[Gpu]) -> Gpu:
    """Return GPUs as one that reads what they do in their mean; as hot as the hottest, and with
    what is unusual about one of them."""
    first = max(gpus, key=lambda gpu: len(notes(gpu)))
    if len(gpus) == 1:
        return first
    read = {name: [getattr(gpu.reading, name) for gpu in gpus] for name in _AS_ONE}
    means = {name: None if None in every else mean(every) for name, every in read.items()}
    heat = most([gpu.reading.temperature_celsius for gpu in gpus])
    reading = replace(first.reading, **means, temperature_celsius=heat)  # type: ignore[arg-type]
    return replace(first, reading=reading)


def quiet_readings(view: View, gpus: Sequence[Gpu]) -> list[str]:
    """Return the names in ``QUIET`` that were ever read of one of the GPUs. Rates and activities,
    which change with every look, are left out over a slow link."""
    had = [
        name
        for name in (QUIET if not view.slow_link else ["sm_clock_mhz"])
        if any(view.history.gpu(gpu.uuid, name) is not None for gpu in gpus)
    ]
    if "dram_active_percent" in had and "memory_controller_percent" in had:
        # It says less of the same, unless a GPU has no other.
        active = [view.history.gpu(gpu.uuid, "dram_active_percent") for gpu in gpus]
        had = [one for one in had if None in active or not one.startswith("memory_c")]
    return had


def _quiet_text(gpu: Gpu, name: str) -> str:
    """Return one of ``QUIET`` for a line, as wide as on the next look, with its label. The unit of
    a clock says what it is."""
    most = gpu.identity.sm_clock_max_mhz if name == "sm_clock_mhz" else None
    text = GPU[name].text(getattr(gpu.reading, name), most)
    text = text.rjust(QUIET[name] if most is None else len(f"9999/{most}MHz"))
    return text if name == "sm_clock_mhz" else f"{GPU[name].short} {text}"


class Fact(NamedTuple):
    """Numbers of a GPU that have no chart: as they stand among others in a line, each as wide as on
    the next look, and as (label, number) for lines of their own."""

    in_line: str
    pairs: tuple[tuple[str, str], ...]


def facts(gpu: Gpu, calm: bool = False) -> list[Fact]:
    """Return the numbers worth a place beside the charts, most important first; ``calm`` leaves
    out the rates and activities, which change with every look."""
    if gpu.lost:
        return []
    reading, most_mhz = gpu.reading, gpu.identity.sm_clock_max_mhz

    def number(name: str, limit: float | None = None) -> str | None:
        value = getattr(reading, name)
        return None if value is None else GPU[name].text(value, limit)

    def pair(name: str, text: str) -> tuple[str, str]:
        """Return its long name, where there is room for it before a chart, and the number."""
        field = GPU[name]
        fits = len(field.label) + len(text) < NUMBER_END - 3
        return (field.label if fits else field.short), text

    def named(name: str, width: int = 4, label: str = "", least: int = 0) -> Fact | None:
        text, label = number(name), label or GPU[name].short
        if text is None:
            return None
        return Fact(f"{label.ljust(least)} {text.rjust(width)}", (pair(name, text),))

    def bare(name: str, width: str, limit: float | None = None) -> Fact | None:
        """Return a number that says itself what it is."""
        text = number(name, limit)
        return None if text is None else Fact(f"{text:{width}}", (pair(name, text),))

    received, sent = "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"
    rates = [(GPU[name].short, number(name) or "-") for name in (received, sent)]
    controller = "memory_controller_percent" if reading.dram_active_percent is None else None
    moving = [
        named("sm_active_percent", label=GPU["sm_active_percent"].label),
        named("tensor_active_percent"),
        # Where nothing is read of SMs it has their place.
        named(controller, least=9) if controller else named("dram_active_percent"),
        named("fan_percent"),
        # Most jobs have no use for these two.
        named("encoder_percent") if reading.encoder_percent else None,
        named("decoder_percent") if reading.decoder_percent else None,
    ]
    clock_width = 7 if most_mhz is None else len(f"9999/{most_mhz}MHz")
    numbers = [
        bare("sm_clock_mhz", f">{clock_width}", most_mhz),
        *([] if calm else moving),
        None
        if calm or all(text == "-" for _, text in rates)
        else Fact(
            "PCIe " + " ".join([f"{way} {text:>8}" for way, text in rates]),
            tuple((f"PCIe {way}", text) for way, text in rates),
        ),
        named("nvlink_rx_bytes_per_second", 8)
        if reading.nvlink_rx_bytes_per_second and not calm
        else None,
    ]
    return [one for one in numbers if one is not None]


# -- the state -------------------------------------------------------------------------------------


Answer = TypeVar("Answer")


FED = GpuState("fed", "fed", "busy: its work comes in time")
IN_USE = GpuState("in use", "unknown", "busy for part of the time")
UNKNOWN = GpuState("unknown", "unknown", "nothing is read of how busy it is")
"""States beside those that findings mean (``diagnosis.rule``)."""
STATES = (
    *(FED, STARVED, PAUSES, THROTTLED, WAITING, UNDERUSED, STRAGGLER, IDLE, NO_ANSWER, IN_USE),
    UNKNOWN,
)

_RECENT_SECONDS = 30.0
_COARSE_SECONDS = 5.0
_HELD_SECONDS = 4.0
IDLE_PERCENT, _FED_PERCENT = 5.0, 70.0
"""Limits of the states where no finding says it. Never more than the first is idle, a mean from
the second on is fed."""


def state_of(view: View, gpu: Gpu) -> GpuState:
    """Return the state of now; or of the moment that is looked at, by what was found and read
    then. The finding that leads for the GPU has the word: it comes and goes as the verdict does."""
    moment = view.timeline.moment
    said: Sequence[Finding | FindingMark]
    if moment is None:
        said, lost = about_gpu(view.diagnosis, gpu.uuid), gpu.lost
    else:
        mark = mark_at([one for one in view.spans if gpu.uuid in one.gpus], moment, moment)
        said = [] if mark is None else [mark]
        lost = any(one.rule == "gpu_lost" for one in said)
    if lost:
        return NO_ANSWER
    for one in said:
        if (word := _by_finding(one, gpu.uuid)) is not None:
            return word
    if moment is not None:
        # Why it was throttled is not kept.
        return _state_read(view, gpu)
    return _kept_for_seconds(view, gpu.uuid, lambda: _read_now(view, gpu))


def _read_now(view: View, gpu: Gpu) -> GpuState:
    return THROTTLED if is_held_back(gpu.reading) else _state_read(view, gpu)


def _state_read(view: View, gpu: Gpu) -> GpuState:
    of_sms = busy_name(gpu.reading) != "busy_percent"
    return _by_readings(_recent(view, gpu), of_sms=of_sms)


def held_up(view: View, *gpus: GpuKey) -> list[Held]:
    """Return when findings held up most of these GPUs: what their chart is coloured by."""
    out = []
    for mark in view.spans:
        if 2 * sum(one in mark.gpus for one in gpus) <= len(gpus):
            continue
        held = next((one for one in gpus if one not in mark.late), gpus[0])
        state = _by_finding(mark, held)
        if state is None:
            continue
        end = inf if mark.end_seconds is None else mark.end_seconds
        of_busy, hue = rule_of(mark.rule).lost_while_busy, state.hue
        work = _work_of(view, state, gpus) if of_busy else None
        if state is STRAGGLER:
            # In step with the others it is busy all the time, too, and held against them by what
            # of that was work; else its idle time is what they wait for.
            work = work if mark.rule == IN_STEP else None
            of_busy, hue = work is not None, hue if work is None else IDLE.hue
        out.append(Held(mark.begin_seconds, end, hue, of_busy, work))
    return out


IN_STEP = "straggler"
"""Rule of ranks that are all busy all the time, of which one has more to do."""


@dataclass(frozen=True, slots=True)
class _AtClock:
    """Busy percent of a GPU at its highest clock that would have done the same work."""

    busy: Series | PolledThenSampled
    clock: Series | PolledThenSampled
    highest_mhz: float

    def columns(self, end: float, column_seconds: float, count: int) -> Sequence[Column | None]:
        columns = [one.columns(end, column_seconds, count) for one in (self.busy, self.clock)]
        return [
            None
            if busy is None or clock is None
            else (0.0, busy[1] * clock[1] / self.highest_mhz, busy[1])
            for busy, clock in zip(*columns, strict=True)
        ]


def _work_of(view: View, state: GpuState, keys: Sequence[GpuKey]) -> Columns | None:
    """Return what of the busy time of GPUs was work, in their mean; ``None`` where nothing that is
    read says that of one of them."""
    works = [_work_of_one(view, state, key) for key in keys]
    if None in works or len(works) == 1:
        return works[0] if len(works) == 1 else None
    return Together((state.word, *keys), lambda: works)


def _work_of_one(view: View, state: GpuState, key: GpuKey) -> Columns | None:
    """Return what of the busy time of a GPU was work, as far as something that is read says: its
    clock of its highest, or how active SMs were."""
    gpu = next((one for one in view.gpus if one.uuid == key), None)
    if gpu is None:
        return None
    history, highest_mhz = view.history, gpu.identity.sm_clock_max_mhz
    if state is not THROTTLED:
        return history.gpu(key, "sm_active_percent")
    busy, clock = history.gpu(key, busy_name(gpu.reading)), history.gpu(key, "sm_clock_mhz")
    if busy is None or clock is None or not highest_mhz:
        return None
    return _AtClock(busy, clock, highest_mhz)


def work_said(view: View, state: GpuState, *gpus: Gpu) -> Said | None:
    """Return how much of the busy time of GPUs in that state was work, in their mean, or at the
    moment that is looked at, where the chart tells them apart."""
    hues = {state.hue, *([IDLE.hue] if state is STRAGGLER else [])}
    held = [one for one in held_up(view, *[gpu.uuid for gpu in gpus]) if one.style in hues]
    work = held[-1].work if held else None
    if work is None:
        return None
    past = view.timeline.moment is not None
    grid = view.window_of_means(gpus[0].uuid).grid(_WORK_COLUMNS)
    columns = [past_column(view, work)] if past else grid.columns_of(work)
    known = [one[1] for one in columns if one]
    label = _EFFECTIVE if state is THROTTLED else GPU["sm_active_percent"].label
    return (label, units.percent(sum(known) / len(known)), FED.hue) if known else None


def state_said(state: GpuState, found: Finding | FindingMark | None) -> Said:
    """Return the word of a state; of waiting how much of the time, as the finding has it."""
    share = None
    if state is WAITING and isinstance(found, Finding):
        share = found.wait_share if found.late else found.lost_share
    return state.word, "" if share is None else units.share(share), state.hue


def idle_said(view: View, state: GpuState, busy_percent: float | None, *gpus: GpuKey) -> list[Said]:
    """Return how much of the time was idle, in the colour of the ground that it has in a chart;
    nothing where that is no loss, or of a moment in the past."""
    hues = {one.style for one in held_up(view, *gpus) if not one.of_busy}
    no_loss = state is STRAGGLER or state.hue not in hues
    if busy_percent is None or no_loss or view.timeline.moment is not None:
        return []
    return [(IDLE.word, f"{100 - round(busy_percent)}%", state.hue)]


def busy_said(
    view: View, state: GpuState, gpu: Gpu, busy_percent: float | None, now_percent: float | None
) -> list[Said]:
    """Return what stands below the number of a GPU's chart: how much of the time it waited, what of
    it was work, or how much was idle, in the colours that these have there, and what is read
    now."""
    found = next(iter(about_gpu(view.diagnosis, gpu.uuid)), None)
    work, waits = work_said(view, state, gpu), state_said(state, found)
    words = [waits] if state is WAITING and waits[1] else []
    words += [] if work is None else [work]
    words += idle_said(view, state, busy_percent, gpu.uuid)
    replay, past = view.replay, view.timeline.moment is not None
    if not (past or gpu.lost) and (replay is None or replay.following):
        words.append(("now", units.percent(now_percent), "dim"))
    return words


_EFFECTIVE = "effective"
"""Word for how busy a GPU would be with the same work at its highest clock."""
_WORK_COLUMNS = 30
"""Columns over which the number for work is a mean."""


def _kept_for_seconds(view: View, key: Hashable, make: Callable[[], Answer]) -> Answer:
    """Return what ``make`` says, kept for a few seconds: words that change with every look are not
    read."""
    now = 0.0 if view.snapshot is None else view.snapshot.monotonic_seconds
    moment = int(now / _HELD_SECONDS)
    if moment != view.held_at:
        view.held_at, view.held = moment, {}
    if key not in view.held:
        view.held[key] = make()
    return cast("Answer", view.held[key])


def _by_finding(said: Finding | FindingMark, gpu: GpuKey) -> GpuState | None:
    """Return the state that a finding means; ``None`` where that is for the readings to say."""
    loses_time = bool(said.cost_share) if isinstance(said, Finding) else said.loses_time
    return rule_of(said.rule).state_of(gpu, said.late, said.severity, loses_time=loses_time)


def _by_readings(recent: Sequence[Column | None], *, of_sms: bool) -> GpuState:
    """Return the state that readings mean; ``of_sms``: how active SMs are, which never reaches the
    utilisation of a GPU that is fed."""
    known = [one for one in recent if one is not None]
    if not known:
        return UNKNOWN
    if max(high for _, _, high in known) <= IDLE_PERCENT:
        return IDLE
    mean = sum(mean for _, mean, _ in known) / len(known)
    return FED if mean >= _FED_PERCENT and not of_sms else IN_USE


def _recent(view: View, gpu: Gpu) -> Sequence[Column | None]:
    series, end = view.history.gpu(gpu.uuid, busy_name(gpu.reading)), view.timeline.moment
    if series is None or view.snapshot is None:
        return []
    end = view.snapshot.monotonic_seconds if end is None else end
    return series.columns(end, _COARSE_SECONDS, int(_RECENT_SECONDS / _COARSE_SECONDS))


def add_value(
    row: Row, metric: Metric, glyphs: Glyphs, width: int = 0, *, brief: bool = False
) -> Row:
    """Add the number, flush right in ``width`` cells (0: as many as it takes), and in a quieter
    tone its limit."""
    sign = glyphs.warning if metric.mood == "warn" else ""
    text = sign + (metric.brief if brief else metric.text)
    number, slash, limit = right(text, width or width_of(text), glyphs.ellipsis).partition("/")
    style = "dim" if metric.value is None else metric.mood or "value"
    if style == THROTTLED.hue:
        style = "throttled value"
    return row.add(number, style).add(slash + limit, "label")


def gauge(glyphs: Glyphs, share: float, width: int, style: str) -> list[Run]:
    """Draw a line on a track, to half a cell: how much of a limit is reached, now. Only what is at
    its limit is full, and only nothing is empty."""
    if width <= 0:
        return []
    ascii_only = glyphs.is_ascii
    halves = 1 if ascii_only else 2
    most = halves * width
    filled = max(0, min(most, round(most * share)))
    if 0 < share < 1:
        filled = max(1, min(most - 1, filled))
    full, half = divmod(filled, halves)
    bar = ("=" if ascii_only else "━") * full + "╾" * half
    return [(bar, style), (glyphs.track * (width - full - half), "edge")]


# -- one GPU ---------------------------------------------------------------------------------------


LEAD = 28
"""Cells before a chart, for its label, its number and the marks of its scale; all pages have the
same."""
NUMBER_END = 22
"""The cell behind the numbers before a chart."""
_LIST_LEAD = NUMBER_END + 2
"""Cells before a chart that has no scale beside it."""
_MANY = 3
"""GPUs from which on a list of them has one word again and again."""
_LABEL_WIDTH = 7
_STATE_WIDTH = 10
_NAME_WIDTH = 9
_NARROW, _ALIGNED, _BROAD = 60, 76, 120
"""Widths below the first have room for the most needed numbers; from the second on all charts of a
page begin in one column; from the last on a line has the names of GPUs that differ."""
_TICK_ROWS = 3
"""A chart of so many rows has ticks."""
_LAST_READ = ("power_watts", "temperature_celsius", "memory_used_bytes")
_LAST_SECONDS = 5.0
"""Readings that are said of a GPU from before it was lost, and the time that they are means of."""
_LESS_POWER, _MORE_POWER = 12, 24
"""Rows of a stacked GPU from which on its power has two, and three."""
_FACTS_BESIDE = 14
"""Rows of a stacked GPU from which on its facts stand beside the chart, not above it."""


class NumberColumn(NamedTuple):
    """Numbers of several GPUs one below the other, whose heading stands once above them all."""

    field: Field
    heading: str
    width: int
    gap: int
    """Blanks before it."""

    @property
    def cells(self) -> int:
        return self.gap + self.width


GAUGED = {"memory_used_bytes": (13, 7), "power_watts": (8, 5), "temperature_celsius": (7, 4)}
"""Cells of the numbers that have a limit: with it, and a sign, and without it."""
_LEAST_SHARE, _WAVE_SHARE = 0.45, 0.54
"""Shares of a line that the chart keeps beside numbers with their limits, and beside quieter ones,
too."""
_AFTER_NUMBERS = 2
_LEAST_CHART = 16


class GpuPainter:
    """Painter of the GPUs of one frame, all in the same style and on the same time window.
    ``marked``: the selected one has a mark; ``lead``: cells before the charts; ``alike``: their
    name is said above them, and their limits: ``headed``: with headings of the columns of
    numbers; ``index_width``: cells at least for their numbers."""

    def __init__(
        self,
        view: View,
        gpus: Sequence[Gpu],
        width: int,
        style: GpuStyle,
        *,
        marked: bool,
        lead: int = _LIST_LEAD,
        alike: bool = False,
        headed: bool = True,
        index_width: int = 1,
    ) -> None:
        self._view = view
        self._gpus = gpus
        self._alike = alike
        self._width = width
        self._style = style
        self._glyphs, self._ellipsis = view.glyphs, view.glyphs.ellipsis
        self._window = view.window
        self._marked = marked
        self._index_width = max([index_width, *[len(units.gpu_label(gpu)) for gpu in gpus]])
        self._name_width = max((len(_placed_name(gpu.identity)) for gpu in gpus), default=4)
        self._named = style is GpuStyle.SINGLE and width >= _BROAD and not alike
        """The name of each GPU stands before its state."""
        said = 3 + self._index_width + 5
        said += _STATE_WIDTH if width >= _NARROW else 0
        said += min(self._name_width, _NAME_WIDTH) + 1 if self._named else 0
        aligned = width >= _ALIGNED
        self._number_end = max(NUMBER_END, said) if aligned else said
        self._lead = max(lead, self._number_end + 2) if aligned else said + 1
        """Cells before a chart in a list."""
        self._quiet = quiet_readings(view, gpus)
        self._headed = headed
        self.has_limits = False
        """The limits are in the headings, or with the numbers where GPUs differ."""
        self._columns = self._number_columns()
        self._state = UNKNOWN
        self._states = {gpu.uuid: state_of(view, gpu) for gpu in gpus}
        words = {state.word for state in self._states.values()}
        self.common_word = next(iter(words)) if len(gpus) >= _MANY and len(words) == 1 else ""
        """State that all of many have: the verdict says it in its colour, rows in grey."""
        jobs = () if view.snapshot is None else view.snapshot.jobs
        self._with_the_one_before = {
            gpu.uuid
            for before, gpu in pairwise(gpus)
            if any({before.uuid, gpu.uuid} <= {*job.gpu_uuids} for job in jobs)
        }
        """GPUs of the same job as the one above."""
        self._now: float | None = None
        """Busy percent of the GPU that is drawn, at the newest look."""
        self.spans: list[tuple[int, int]] = []
        """Places of the charts of the last GPU, those of one line: first cell and width."""

    def _number_columns(self) -> list[NumberColumn]:
        """Return the columns beside the charts: with the limits if these keep enough of the line,
        else without; then those of quieter numbers that leave more than that."""
        if self._style is not GpuStyle.SINGLE and self._width < _NARROW:
            return []
        room = self._width - self._lead - _AFTER_NUMBERS
        least = _LEAST_SHARE * self._width
        columns = self._gauged_columns(with_limits=True)
        self.has_limits = self._headed or not self._alike
        if not self.has_limits or room - sum(one.cells for one in columns) < least:
            self.has_limits = False
            columns = self._gauged_columns(with_limits=False)
            while columns and room - sum(one.cells for one in columns) < _LEAST_CHART:
                columns.pop()
        if self._style is not GpuStyle.WIDE:
            return columns
        room -= sum(one.cells for one in columns)
        for name in self._quiet:
            heading = GPU[name].short
            one = NumberColumn(GPU[name], heading, max(len(heading), QUIET[name]), 2)
            room -= one.cells
            if room < _WAVE_SHARE * self._width:
                break
            columns.append(one)
        return columns

    def _gauged_columns(self, *, with_limits: bool) -> list[NumberColumn]:
        columns = []
        for place, (name, (long, brief)) in enumerate(GAUGED.items()):
            field, heading, width, gap = GPU[name], GPU[name].short, brief, 1
            limits = {_limits(gpu)[place] for gpu in self._gpus} - {None}
            if with_limits and self._alike:
                heading = "/".join([heading, *[field.text(one) for one in limits]])
                width, gap = len(heading), 2
            elif with_limits:
                texts = [field.text(one, one) for one in limits]
                width, gap = max([long, *[len(text) for text in texts]]), 2
            columns.append(NumberColumn(field, heading, width, gap))
        return columns

    @property
    def says_common_word(self) -> bool:
        """Return whether the title above the list says what all of them do."""
        return self._alike and self._marked and bool(self.common_word)

    @property
    def cells_beside(self) -> int:
        """Cells behind the charts in a list."""
        return _AFTER_NUMBERS + sum(one.cells for one in self._columns)

    @property
    def chart_cells(self) -> int:
        """Cells of the chart of each GPU in a list."""
        return self._width - self._lead - self.cells_beside

    @property
    def headings(self) -> str:
        """Headings of the columns of numbers: they end where the columns do."""
        return "".join([" " * one.gap + right(one.heading, one.width) for one in self._columns])

    def draw(self, gpu: Gpu, rows: int) -> list[Line]:
        """Draw ``gpu`` in exactly ``rows`` lines."""
        self.spans = []
        state = self._state = self._states[gpu.uuid]
        self._now = getattr(gpu.reading, busy_name(gpu.reading))
        gpu = shown_gpu(self._view, gpu)
        metrics = scaled_metrics(self._view, gpu, self._width)
        if self._style is GpuStyle.STACKED:
            return self._stacked(gpu, state, metrics, rows)
        if self._style is GpuStyle.WIDE and self._width < _NARROW:
            return self._narrow(gpu, metrics, rows)
        return self._lined_up(gpu, state, metrics, rows)

    # -- parts ----------------------------------------------------------------------------

    def _word_style(self, state: GpuState) -> str:
        return "label" if self.common_word else state.hue

    def _begin(self, gpu: Gpu, width: int, label: str = "") -> Row:
        """Begin a line: the selection mark, the sign of the finding that leads for the GPU, or a
        blank, and the index, or the ``label`` of several. One that waits for another has a dot:
        the cause is elsewhere."""
        view = self._view
        selected = self._marked and gpu.uuid == view.selected_gpu
        focused = selected and view.focus == "gpus" and not view.in_findings
        mark = self._glyphs.marker if selected else " "
        row = Row(width).add(mark, "marker" if focused else "dim")
        said = about_gpu(view.diagnosis, gpu.uuid)
        if not said:
            row.add(" ")
        elif said[0].late and self._states[gpu.uuid] is WAITING:
            row.add(self._glyphs.dot, WAITING.hue)
        else:
            # A warning has the colour of the word that it means.
            warns = said[0].severity == "warning"
            hue = self._states[gpu.uuid].hue if warns else style_of(said[0])
            style = "label" if self.common_word else hue
            row.add(severity_sign(said[0].severity, self._glyphs), style)
        number = right(units.gpu_label(gpu), self._index_width)
        return row.add(left(label, self._index_width) if label else number, "title").add(" ")

    def _add_name(
        self, row: Row, gpu: Gpu, most: int = _NAME_WIDTH, *, style: str = "title"
    ) -> Row:
        width = max(0, min(self._name_width, most))
        return row.add(left(brief_name(gpu.identity, width), width, self._ellipsis), style)

    def _add_facts(self, row: Row, gpu: Gpu) -> Row:
        """Add numbers without a chart, in the same places for every GPU."""
        gpu = shown_gpu(self._view, gpu, facts=True)
        return self._add_texts(row, gpu, [text for text, _ in facts(gpu, self._view.slow_link)])

    def _add_texts(self, row: Row, gpu: Gpu, texts: Sequence[str]) -> Row:
        """Add as many of ``texts`` as fit, and at the right what is unusual."""
        unusual: list[Run] = []
        room = row.room - 1
        for text, style in self._unusual(gpu):
            if room >= len(text) + 2:
                unusual += [("  ", "text"), (text, style)]
                room -= len(text) + 2
        for text in texts:
            if room < len(text) + 2:
                break
            row.add("  ").add(text, "label")
            room -= len(text) + 2
        row.pad_to(row.used + room)
        return row.add_runs(unusual, sum(len(text) for text, _ in unusual))

    def _unusual(self, gpu: Gpu) -> list[Run]:
        """Return the notes on a GPU, but for what the word of its state says."""
        if self._state is NO_ANSWER:
            return [(one, "label") for one in self._silent_since(gpu)]
        return [(text.removeprefix(f"{self._state.word}: "), style) for text, style in notes(gpu)]

    def _silent_since(self, gpu: Gpu) -> list[str]:
        """Return since when a GPU does not answer, where that is known."""
        since = self._silent_from(gpu)
        return [] if since is None else [f"since {clock(self._view, since)}"]

    def _silent_from(self, gpu: Gpu) -> float | None:
        """Return that moment on the history's clock."""
        view = self._view
        if view.snapshot is None or view.timeline.moment is not None:
            return None
        found = about_gpu(view.diagnosis, gpu.uuid)
        since = [one.since_unix_seconds for one in found if rule_of(one.rule).means is NO_ANSWER]
        now = view.snapshot.monotonic_seconds - view.snapshot.taken_at_unix_seconds
        return next((now + at for at in since if at is not None), None)

    def _add_value(self, row: Row, metric: Metric, width: int, *, brief: bool = False) -> Row:
        brief = brief or (self._alike and self._style is not GpuStyle.STACKED)
        return add_value(row, metric, self._glyphs, width, brief=brief)

    def _gauge(self, metric: Metric, width: int) -> list[Run]:
        """Draw how much of its limit is reached, now; blank where either is not known."""
        if metric.value is None or not metric.limit:
            return [(" " * width, "text")]
        return gauge(self._glyphs, metric.value / metric.limit, width, metric.style)

    def _chart(
        self,
        gpu: Gpu,
        metric: Metric,
        style: str,
        width: int,
        rows: int,
        *,
        work_alone: bool = False,
    ) -> list[list[Run]]:
        view, window, limit = self._view, self._window, metric.limit
        series = view.history.gpu(gpu.uuid, metric.field.name)
        held = held_up(view, gpu.uuid) if style == FED.hue else None
        if work_alone and held is not None and self._glyphs.tones:
            # Two tones fill a cell, and rows of such cells are one slab: the rest is the ground.
            held = [one if one.work is None else one._replace(of_busy=False) for one in held]
        key = gpu.uuid, metric.field.name
        return view.chart(key, series, width, limit, style, rows, window, held)

    def _busy(
        self,
        gpu: Gpu,
        busy: Metric,
        state: GpuState,
        lead: int,
        width: int,
        rows: int,
        *,
        work_alone: bool = False,
    ) -> tuple[list[Sequence[Run]], list[Said]]:
        """Draw how busy it is, or its work alone, and say what the chart shows: state, what is read
        now, extremes."""
        self.spans.append((lead, width))
        drawn = self._chart(gpu, busy, FED.hue, width, rows, work_alone=work_alone)
        lines: list[Sequence[Run]] = [*drawn]
        series = self._view.history.gpu(gpu.uuid, busy.field.name)
        words: list[Said] = []
        view = self._view
        if series is not None and width > 0 and rows >= _TICK_ROWS and view.timeline.moment is None:
            words = busy_said(view, state, gpu, busy.value, self._now)
        return lines, words

    # -- styles ---------------------------------------------------------------------------

    def _stacked(self, gpu: Gpu, state: GpuState, metrics: Metrics, rows: int) -> list[Line]:
        busy, memory, power, temperature = metrics
        room = self._width - LEAD - 1
        beside = rows >= _FACTS_BESIDE
        high = 1 + (rows >= _LESS_POWER) + (rows >= _MORE_POWER)
        heading = self._begin(gpu, self._width)
        long = self._width >= _ALIGNED and gpu.identity.machine is None
        name = gpu.identity.name if long else _placed_name(gpu.identity)
        # The name does not change with the state.
        free = NUMBER_END - heading.used - 2 - max([len(one.word) for one in STATES])
        if len(name) > free:
            name = brief_name(gpu.identity, free)
        heading.add(fit(name, max(4, free), self._ellipsis), "title")
        heading.add(f"  {state.word}", state.hue)
        if beside:
            heading.pad_to(LEAD).add(f"{memory.field.label} ", "label")
            self._add_value(heading, memory, len(memory.text)).add("  ")
            lines = [self._add_gauges(heading, memory, temperature).line()]
        elif state is NO_ANSWER:
            lines = [self._add_texts(heading, gpu, []).line(), self._last_read(gpu)]
        else:
            heading.pad_to(LEAD - 2)
            gauges = self._add_gauges(self._begin_memory(memory), memory, temperature)
            lines = [self._add_facts(heading, gpu).line(), gauges.line()]
        tall = rows - high - len(lines)
        chart, words = self._busy(gpu, busy, state, LEAD, room, tall)
        words = self._with_facts(gpu, words, tall - 1) if beside else words
        marks, limit = scale_marks(tall), {0: power.limit_text}
        if state is NO_ANSWER:
            # No number stands before them.
            marks, limit = {0: marks.get(0, "")}, {}
        lines += self._labelled(busy, chart, words, marks)
        watts = self._chart(gpu, power, power.mood or "area", room, high)
        return lines + self._labelled(power, watts, [], limit)

    def _last_read(self, gpu: Gpu) -> Line:
        """Return what was read last before a GPU no longer answered, as far as that is kept."""
        since, texts = self._silent_from(gpu), list[str]()
        for name in (busy_name(gpu.reading), *_LAST_READ):
            series = self._view.history.gpu(gpu.uuid, name)
            if since is None or series is None:
                continue
            columns = series.columns(since, _LAST_SECONDS, 2)
            if last := next((one for one in reversed(columns) if one is not None), None):
                texts.append(GPU[name].text(last[1]))
        row = Row(self._width).add("  ").add("last read" if texts else "", "label").pad_to(LEAD)
        return row.add(f"busy {'  '.join(texts)}" if texts else "", "label").line()

    def _begin_number(self, metric: Metric) -> Row:
        """Begin a line with a label and its number."""
        field = metric.field
        label = field.label if len(field.label) < _LABEL_WIDTH else field.short
        row = Row(self._width).add("  ").add(left(label, _LABEL_WIDTH), "label")
        return self._add_value(row, metric, NUMBER_END - row.used, brief=True)

    def _labelled(
        self,
        metric: Metric,
        chart: Sequence[Sequence[Run]],
        said: Sequence[Said],
        ticks: Mapping[int, str],
    ) -> list[Line]:
        """Return the rows of a chart with marks of its scale, behind its label and number and what
        is ``said`` of it."""
        lines = []
        for number, drawn in enumerate(chart):
            row = Row(self._width).add("  ") if number else self._begin_number(metric)
            if 0 < number <= len(said):
                self._say(row, said[number - 1], NUMBER_END)
            # A mark right behind a number of another kind would pass for its limit.
            mark = ticks.get(number, "") if not number or row.used < NUMBER_END else ""
            tick = right(mark, LEAD - 1 - row.pad_to(NUMBER_END).used)
            lines.append(self._charted(row, tick, drawn, self._width - LEAD - 1))
        return lines

    def _begin_memory(self, memory: Metric) -> Row:
        """Begin a line with memory, its limit where charts have their scale."""
        row = self._begin_number(memory)
        # Without a limit of its own it is the sum of its processes.
        note = "" if "/" in memory.text else memory.text.removeprefix(memory.brief)
        return row.add(note or right(memory.limit_text, LEAD - 1 - row.used), "dim").pad_to(LEAD)

    def _add_gauges(self, row: Row, memory: Metric, temperature: Metric) -> Row:
        """Add how much of its memory is used and how hot it is, over the rest of the line."""
        size = len(temperature.text) + (temperature.mood == "warn")
        half = max(0, self._width - row.used - size - len(temperature.field.short) - 7) // 2
        row.add_runs(self._gauge(memory, half), half).add(f"   {temperature.field.short} ", "label")
        self._add_value(row, temperature, size).add("  ")
        rest = max(0, row.room - 1)
        return row.add_runs(self._gauge(temperature, rest), rest)

    def _with_facts(self, gpu: Gpu, words: Sequence[Said], rows: int) -> list[Said]:
        """Return at most ``rows`` lines: what is unusual, ``words``, and below a blank one the
        facts."""
        gpu = shown_gpu(self._view, gpu, facts=True)
        unusual: list[Said] = [(text, "", style) for text, style in self._unusual(gpu)]
        said = [(*pair, "label") for one in facts(gpu, self._view.slow_link) for pair in one.pairs]
        return [*unusual, *words, ("", "", "text"), *said][:rows]

    def _say(self, row: Row, said: Said, end: int) -> None:
        """Add what is said of a chart: a label and, up to the cell ``end``, its number."""
        label, number, style = said
        row.add(label, style).add(right(number, max(0, end - row.used)), style)

    def _charted(self, row: Row, ticks: str, drawn: Sequence[Run], width: int) -> Line:
        """Add a row of a chart of ``width`` cells behind its tick."""
        row.add(ticks, "dim").add(self._glyphs.axis, "rule")
        return row.add_runs(drawn, max(0, width)).line()

    def _lined_up(self, gpu: Gpu, state: GpuState, metrics: Metrics, rows: int) -> list[Line]:
        """Draw a GPU of several: its chart in all rows, at the right numbers in columns and, from
        two rows on, their gauges below them."""
        busy = metrics[0]
        begin = self._begin(gpu, self._width)
        if self._named:
            self._add_name(begin, gpu).add(" ")
        if self._width >= _NARROW:
            # What the verdict says of all of them gives its place to whose each is.
            says_whose = self._marked and bool(self.common_word)
            user = used_by(self._view, gpu.uuid)[0] if says_whose else ""
            word = fit(user, _STATE_WIDTH - 1, self._ellipsis) or state.word
            style = self._word_style(state)
            if user:
                # The first GPU of each job stands out.
                style = "dim" if gpu.uuid in self._with_the_one_before else "text"
            begin.add(left(word, _STATE_WIDTH), style)
        room = self.chart_cells
        work = None
        if room > 0:
            work = work_said(self._view, state, gpu)
        says_work = rows == 1 and work is not None and begin.used <= self._number_end - 8
        if says_work and work is not None:
            # The busy time above it was no work.
            label, said, _ = work
            label = "eff" if label == _EFFECTIVE else GPU["sm_active_percent"].short
            begin.pad_to(self._number_end - 8).add(left(label, 4), "label")
            begin.add(right(said, 4), "value")
        else:
            self._add_value(begin.pad_to(self._number_end - 5), busy, 5)
        chart, _ = self._busy(gpu, busy, state, self._lead, room, rows, work_alone=says_work)
        lines, below = [], self._below_state(gpu, rows - 1, work)
        for number, drawn in enumerate(chart):
            row = begin if number == 0 else Row(self._width).add(" " * (3 + self._index_width))
            for text, style in below[number - 1] if number else []:
                row.add(text, style)
            row.pad_to(self._lead - 1).add(self._glyphs.axis, "rule").add_runs(drawn, room)
            if number == 0:
                self._add_numbers(row, gpu, metrics, late=rows == 1)
            elif number == 1:
                self._add_gauges_below(row, metrics)
            lines.append(row.line())
        return lines

    def _below_state(self, gpu: Gpu, rows: int, work: Said | None) -> list[list[Run]]:
        """Return ``rows`` lines below the word of the state: what is unusual, how much of the busy
        time was ``work``, and first the name, where it is not said above and there is room."""
        room = self._number_end - 3 - self._index_width
        lines = [[(fit(text, room, self._ellipsis), style)] for text, style in self._unusual(gpu)]
        # On the page of a job all are its own; a user who has the place of the state is said.
        says_used = self._marked and work is None
        user, script = used_by(self._view, gpu.uuid) if says_used else ("", "")
        user = "" if self.common_word else user
        used = " ".join([text for text in (user, script) if text])
        if not self._alike:
            name = brief_name(gpu.identity, min(_NAME_WIDTH, room))
            if lines and len(name) + 2 + len(lines[0][0][0]) <= room:
                lines[0].insert(0, (f"{name}  ", "label"))
            elif len(lines) < rows:
                lines.insert(0, [(name, "label")])
            beside = next((one for one in (used, user) if len(name) + 2 + len(one) <= room), "")
            if rows == 1 and beside and lines == [[(name, "label")]]:
                lines[0].append((f"  {beside}", "dim"))
        if work is not None:
            label, number, style = work
            lines.append([(label + right(number, room - len(label)), style)])
        elif used:
            lines.append([(fit(used, room, self._ellipsis), "dim")])
        return [*lines, *([] for _ in range(rows))][:rows]

    def _add_numbers(self, row: Row, gpu: Gpu, metrics: Metrics, *, late: bool) -> None:
        """Add the columns. ``late``: in a line that has room for it nowhere else, how old the
        numbers are takes the place of those behind the first."""
        age = _late_text(gpu.reading) if late and self._width >= _NARROW else None
        facts = shown_gpu(self._view, gpu, facts=True)
        gauged = {one.field: one for one in metrics}
        for place, column in enumerate(self._columns):
            row.add(" " * column.gap)
            if age is not None and place == 1:
                row.add(right(age, sum(one.cells for one in self._columns[1:]) - 1), "warn")
                break
            if column.field in gauged:
                metric = gauged[column.field]
                self._add_value(row, metric, column.width, brief=not self.has_limits)
            else:
                text = column.field.text(getattr(facts.reading, column.field.name))
                style = "dim" if text == units.UNKNOWN else "label"
                row.add(right(text, column.width), style)

    def _add_gauges_below(self, row: Row, metrics: Metrics) -> None:
        for metric, column in zip(metrics[1:], self._columns, strict=False):
            row.add(" " * column.gap).add_runs(self._gauge(metric, column.width), column.width)

    def _narrow(self, gpu: Gpu, metrics: Metrics, rows: int) -> list[Line]:
        """Draw a GPU where there is no room beside a chart: its numbers are in a line below."""
        begin = self._add_value(self._begin(gpu, self._width), metrics[0], 5)
        room = self._width - self._lead - 1
        chart, _ = self._busy(gpu, metrics[0], self._state, self._lead, room, rows - 1)
        lines = []
        for number, drawn in enumerate(chart):
            row = Row(self._width) if number else begin
            if number == 1:
                row.add(right(metrics[0].field.short, self._number_end), "label")
            row.pad_to(self._lead - 1).add(self._glyphs.axis, "rule")
            lines.append(row.add_runs(drawn, room).line())
        last = Row(self._width).add(
            left(f" {metrics[1].field.short}", 3 + self._index_width), "label"
        )
        return [*lines, self._beside(last, gpu, metrics)]

    def brief(self, group: Sequence[Gpu]) -> Line:
        """Draw GPUs that show the same in one line without the busy chart: their means, and how hot
        the hottest is."""
        state = self._state = self._states[group[0].uuid]
        gpu = _as_one([shown_gpu(self._view, one, facts=True) for one in group])
        row = self._begin(gpu, self._width, units.ranges(map(units.gpu_label, group)))
        if not self._alike:
            self._add_name(row, gpu, 16).add(" ")
        if self._width >= _NARROW:
            row.add(left(state.word, _STATE_WIDTH), self._word_style(state))
        return self._beside(row, gpu, scaled_metrics(self._view, gpu, self._width))

    def _beside(self, row: Row, gpu: Gpu, metrics: Metrics) -> Line:
        """Add memory, power and temperature, each with its gauge where there is room; then quieter
        numbers. The first gauge begins where charts do."""
        width = self._width
        brief, labelled = width < _ALIGNED, width >= _NARROW
        gap = ""
        gauge_width = 0 if brief else 4 if width < 100 else 6 if width < 150 else 12
        if gauge_width and self._alike:
            # As wide as with limits: 5, 4 and 3 cells are saved.
            gauge_width += 4
        brief = brief or self._alike
        for metric, size in zip(metrics[1:], (7, 5, 4) if brief else (13, 8, 7), strict=True):
            label = f"{gap or ' '}{metric.field.short} " if labelled else gap or " "
            if row.room < len(label) + size + gauge_width + 2:
                break
            row.add(label, "label")
            if gauge_width and not gap:
                row.pad_to(self._lead - 2 - size)
            self._add_value(row, metric, size, brief=brief)
            if gauge_width:
                row.add(" " if gap else "  ")
                row.add_runs(self._gauge(metric, gauge_width), gauge_width)
            gap = "  "
        texts = [_quiet_text(gpu, name) for name in ([] if gpu.lost else self._quiet)]
        return self._add_texts(row, gpu, texts).line()


# -- the GPU half of the overview ------------------------------------------------------------------


_SEVERAL = 2
_BESIDE_CHARTS = {GpuStyle.STACKED: (1, 1), GpuStyle.WIDE: (0, 0), GpuStyle.SINGLE: (0, 0)}
"""Lines of a GPU above and below those with a chart."""


def common_limits(gpus: Sequence[Gpu]) -> Sequence[str]:
    """Return ``8 NVIDIA H200``, ``140.4G``, ``700W``, ``87C``: the name and the limits of several
    GPUs that are all of a kind; nothing where they differ or one is not known."""
    kinds = {(gpu.identity.name, *_limits(gpu)) for gpu in gpus}
    if len(kinds) > 1 or len(gpus) < _SEVERAL:
        return ()
    name, memory, power, heat = kinds.pop()
    if memory is None or power is None or heat is None:
        return ()
    limits = units.size(memory), units.watts(power), units.celsius(heat)
    return f"{len(gpus)} {fit(name, 40)}", *limits


def _painter(page: Page) -> tuple[GpuPainter, int, str]:
    """Return the painter of an overview, the first GPU in sight, and how many are not."""
    view, shares = page.view, page.overview
    count = len(page.gpus)
    first = scrolled(view.gpu_offset, view.gpu_position(), shares.shown, count)
    note = _hidden(page, first, count - first - shares.shown)
    # All rows give way to the note, so that their charts stay under each other.
    width = page.width - len(note)
    alike = shares.edges > 0 and bool(common_limits(page.gpus))
    return GpuPainter(view, page.gpus, width, shares.style, marked=True, alike=alike), first, note


def title(page: Page) -> tuple[str, str]:
    """Return what the title above the GPUs says: what they are, and the headings of the columns of
    numbers, which end where these do."""
    kind = common_limits(page.gpus)
    if page.overview.style is GpuStyle.STACKED or not page.overview.edges:
        return "GPUs", ""
    painter, _, note = _painter(page)
    if kind:
        kind = kind if not painter.has_limits else kind[:1]
    name = "  ".join(kind) or "GPUs"
    name += f", all {painter.common_word}" if painter.says_common_word else ""
    return name, painter.headings.lstrip() + " " * len(note)


def shade_legend(page: Page) -> str:
    """Return what shades mean, where charts of one line have them."""
    painter, _, _ = _painter(page)
    room = painter.chart_cells
    if room <= 0 or not is_shaded(
        page.view.glyphs, page.view.window.grid(room), page.overview.each
    ):
        return ""
    return "shade: busy"


def _draw(page: Page, _rows_given: int) -> Drawn:
    view, shares = page.view, page.overview
    painter, first, note = _painter(page)
    view.gpu_offset = first
    lines: list[Line] = []
    zones: list[Zone] = []
    for gpu in page.gpus[first : first + shares.shown]:
        drawn = painter.draw(gpu, shares.each)
        places = range(len(lines), len(lines) + len(drawn))
        zones += [Zone(y, 0, page.width, "gpu", gpu.uuid) for y in places]
        above, below = _BESIDE_CHARTS[shares.style]
        for span in painter.spans:
            zones += spots(len(lines) + above, len(drawn) - above - below, *span)
        lines += drawn
    if note:
        blanks = ((" " * len(note), "text"),)
        lines = [line + blanks for line in lines[:-1]] + [(*lines[-1], (note, "label"))]
    page.spans = painter.spans
    if painter.spans and not page.boxed and shares.style is not GpuStyle.STACKED:
        # No title above has them.
        page.decided["headings below"] = painter.headings.lstrip() + " " * (
            _AFTER_NUMBERS + len(note)
        )
    if painter.spans:
        view.chart_columns = max(width for _, width in painter.spans)
    return lines, zones


PANEL = Panel("gpus", lambda page: page.overview.shown * page.overview.each, _draw)


def _hidden(page: Page, above: int, below: int) -> str:
    """Say how many GPUs are scrolled out of sight, or nothing."""
    text = hidden(page.view.glyphs, above, below)
    return f" {text}" + " GPUs" * (page.width >= 60) if text else ""
