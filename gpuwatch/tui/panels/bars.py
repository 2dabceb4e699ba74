"""The first line and the last, and the bar of a recording that is played.

The header says where, how fast, how old, and what watching costs; the footer has the keys, most
needed first, as many as fit, each of which can be clicked. The bar of a recording is like a video
player's: the whole file from left to right. A column of it is solid up to the lowest and pale up to
the highest busy share that a GPU had over half a minute, in the colours of the charts of how busy
GPUs are; dots were not read yet. The signs of findings stand on it where they began, the time of
day below it, and where the replay stands before it, or in a line below where that has no room.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from gpuwatch.core import units
from gpuwatch.core.bounds import mean
from gpuwatch.core.model import OwnCost, Snapshot
from gpuwatch.diagnosis.finding import LOST_AFTER_SECONDS, lost_gpus
from gpuwatch.diagnosis.rule import NO_ANSWER, STRAGGLER, GpuState
from gpuwatch.tui.charts.strips import Glyphs, draw_column
from gpuwatch.tui.keys import OVERVIEW_FOOTER, Footer, replay_footer
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, fixed, has_boxes
from gpuwatch.tui.panels import time_axis
from gpuwatch.tui.panels.findings import SEVERITY_STYLES, cause_of, readable_findings, rule_of
from gpuwatch.tui.panels.gpus import FED, LEAD, NUMBER_END
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, fit, right, width_of
from gpuwatch.tui.view import ReplayState, View

if TYPE_CHECKING:
    from gpuwatch.diagnosis.ledger import Episode

# -- the header ------------------------------------------------------------------------------------


_SEVERAL = 2
"""GPUs from which the machine is summed up; one shows all of it in its own row."""
_CLOCK_WIDTH = 50
"""Width from which on the header has the time of day, but over a slow link."""
_IDLE_PERCENT = 1.0
"""Mean utilisation of a GPU that runs nothing."""


def draw_header(view: View, width: int, *, of_job: bool = False, has_clock: bool = True) -> Line:
    """Name, state and machine on the left; own cost and the clock on the right, unless another row
    has the time (``has_clock``). ``of_job``: what all GPUs are used for is said to be the
    machine's, on the page of a job that has a few."""
    snapshot = view.snapshot
    row = Row(width, prefix="b:").add(" gpuwatch ", "title")
    if snapshot is None:
        return row.add(" " + (view.message or "reading the machine..."), "label").line("label")
    for word, style, holds in (
        (_played(view), "replay", view.replay is not None),
        ("SIMULATED", "simulated", snapshot.simulated),
        ("PAUSED", "warn", view.paused),
        (view.recording, "recording", view.recording is not None),
        (f"{right(time_axis.ago(view), 5)} AGO", "past", time_axis.is_shown(view)),
    ):
        if holds:
            row.add(" ").add(f" {word} ", style)
    right_parts = _header_right(view, snapshot, width, has_clock=has_clock)
    reserved = sum(len(text) + 2 for text, _ in right_parts)
    for text, style in _header_left(view, snapshot, of_job=of_job):
        # Two blanks before the clock.
        if row.room < len(text) + 3 + reserved:
            break
        row.add("  ").add(text, style)
    row.pad_to(width - reserved, "label")
    for text, style in right_parts:
        row.add(" ").add(text, style).add(" ", "label")
    return row.line("label")


def _played(view: View) -> str:
    """Return where a live recording comes from, else ``REPLAY``."""
    state = view.replay
    return fit(state.shown, 24, view.glyphs.ellipsis) if state and state.following else "REPLAY"


def _draw(page: Page, _rows: int) -> Drawn:
    of_job = page.job is not None and len(page.gpus) < len(page.view.gpus)
    has_clock = not page.rows.get(time_axis.VALUES.name)
    return [draw_header(page.view, page.width, of_job=of_job, has_clock=has_clock)], []


HEADER = fixed("header", 1, _draw)


def _header_left(view: View, snapshot: Snapshot, *, of_job: bool) -> list[tuple[str, str]]:
    host, messages = snapshot.host, len(snapshot.problems)
    identity = snapshot.gpus[0].identity if snapshot.gpus else None
    stale, up = view.stale_seconds, host.uptime_seconds
    named = view.replay is not None and view.replay.shown == host.name
    machine = _machine_texts(view, snapshot)
    if of_job and machine:
        machine[0] = f"machine: {machine[0].strip()}"
    parts = [
        (stale is not None and f"data is {units.age(stale)} old", "warn"),
        (not named and fit(host.name, 24, view.glyphs.ellipsis), "text"),
        (messages and f"! {units.plural(messages, 'message')}", "key"),
        *[(text, "text") for text in machine],
        (f"every {units.interval(view.interval_seconds)}", "label"),
        (view.slow_link and "slow link", "label"),
        (identity and identity.driver_version and f"driver {identity.driver_version}", "label"),
        (identity and identity.cuda_version and f"CUDA {identity.cuda_version}", "label"),
        (up is not None and f"up {units.age(up)}", "label"),
    ]
    return [(text, style) for text, style in parts if isinstance(text, str) and text]


def _machine_texts(view: View, snapshot: Snapshot) -> list[str]:
    """Return ``41% busy``, ``4.6 of 8 GPUs' time lost``, ``2 idle``, ``1.9kW``: what several GPUs
    are used for; before that which of them does not answer. Of time that is
    lost while GPUs are busy, how busy they are says nothing."""
    if len(snapshot.gpus) < _SEVERAL or time_axis.is_shown(view):
        # Beside charts of the past it would pass for what was then.
        return []
    shown = [time_axis.shown_gpu(view, gpu).reading for gpu in snapshot.gpus]
    means = [one.busy_percent for one in shown]
    average = mean(means)
    gone = [units.gpu_label(gpu) for gpu in snapshot.gpus if gpu.lost]
    silent = f"GPU {gone[0]}" if len(gone) == 1 else f"{len(gone)} of {len(means)} GPUs"
    parts = [f"{silent}: {NO_ANSWER.word}"] if gone else []
    found, lost, busy = view.diagnosis, 0.0, 0.0
    if found is not None and found.watched_seconds >= LOST_AFTER_SECONDS:
        lost = lost_gpus(found.findings, snapshot)
        those = [one for one in found.findings if rule_of(one.rule).lost_while_busy]
        busy = lost_gpus(those, snapshot)
    said = lost_in_words(lost, len(snapshot.gpus))
    if average is not None and not (said and 2 * busy > lost):
        others = f"the other{'s' if len(means) - len(gone) > 1 else ''} " if gone else ""
        parts.append(f"{others}{average:{1 if gone else 3}.0f}% busy")
    parts += [said] if said else []
    idle = sum([one is not None and one < _IDLE_PERCENT for one in means])
    parts += [f"{idle} idle"] if idle else []
    watts = [one.power_watts for one in shown]
    drawn = sum([one for one in watts if one is not None])
    return [*parts, f"{drawn / 1000.0:.1f}kW"] if None not in watts else parts


def lost_in_words(lost: float, count: int) -> str:
    """Return ``4.6 of 8 GPUs' time lost``; nothing where it rounds to none."""
    return f"{lost:.1f} of {count} GPUs' time lost" if lost >= 0.05 else ""


def _header_right(
    view: View, snapshot: Snapshot, width: int, *, has_clock: bool
) -> list[tuple[str, str]]:
    parts = []
    past = view.timeline.moment
    back = 0.0 if past is None else snapshot.monotonic_seconds - past
    moment = time.localtime(snapshot.taken_at_unix_seconds - back)
    cost = _cost_text(snapshot.own_cost, brief=width < 100)
    if view.replay is not None:
        # What watching cost then says nothing about now; the day does.
        if width >= 60:
            parts.append((time.strftime("%Y-%m-%d", moment), "label"))
    elif cost and width >= 60:
        parts.append((cost, "dim"))
    if width >= _CLOCK_WIDTH and not view.slow_link and has_clock:
        parts.append((time.strftime("%H:%M:%S", moment), "text"))
    return parts


def _cost_text(cost: OwnCost, brief: bool) -> str:
    """Return ``own 0.7% 34.0M nvml 1.2ms/s``: what watching takes of a core, memory and the
    driver."""
    parts = []
    if cost.cpu_percent is not None:
        parts.append(f"own {cost.cpu_percent:3.1f}%")
    if brief:
        return " ".join(parts)
    if cost.memory_resident_bytes is not None:
        parts.append(units.size(cost.memory_resident_bytes))
    if cost.nvml_milliseconds_per_second is not None:
        parts.append(f"nvml {cost.nvml_milliseconds_per_second:3.1f}ms/s")
    return " ".join(parts)


# -- the footer ------------------------------------------------------------------------------------


def footer_panel(keys: Callable[[View], Footer]) -> Panel:
    """Return the footer of a page with these keys."""

    def draw_keys(page: Page, _rows: int) -> Drawn:
        line, zones = draw_footer(page.view, page.width, keys(page.view), page.below)
        return [line], zones

    return fixed("footer", 1, draw_keys)


def draw_footer(
    view: View, width: int, keys: Footer = OVERVIEW_FOOTER, below: int = 0
) -> tuple[Line, list[Zone]]:
    """Return the line that is typed, else the keys, and how many lines are below those shown."""
    row = Row(width, prefix="b:")
    prompt = view.prompt
    if prompt is not None:
        row.add(prompt.label, "key").add(fit(prompt.text, width - 24, view.glyphs.ellipsis))
        row.add(view.glyphs.cursor, "key")
        for hint in prompt.hints:
            row.fits(f"   {hint}", "label")
        return row.line("label"), []
    if view.replay is not None:
        keys = replay_footer(keys)
    alone = {"other_gpu(1)"} if len(view.gpus) < 2 else set[str]()
    alone |= {"other(1)"} if len(readable_findings(view)) < 2 else set()
    keys = [key for key in keys if key[2] not in alone]
    more = f" {view.glyphs.down}{below} more lines" if below else ""
    line, zones = _keys_line(tuple(keys), width, view.paused, more)
    return line, list(zones)


# The same at nearly every look.
@lru_cache(maxsize=8)
def _keys_line(keys: Footer, width: int, paused: bool, more: str) -> tuple[Line, Sequence[Zone]]:
    row = Row(width, prefix="b:")
    zones = []
    for key, what, action in keys:
        if row.room < len(key) + len(what) + 3 + len(more):
            break
        start = row.used
        label = "resume" if action == "pause" and paused else what
        row.add(" ").add(key, "key").add(" " + label, "label").add(" ")
        zones.append(Zone(0, start, row.used, action))
    row.pad_to(width - len(more) - 1, "label").add(more, "text")
    return row.line("label"), zones


# -- the bar of a recording: how busy it was, what was found, where we are -------------------------


_LEADING = 76
"""Width from which on there is room for words before the strip."""


def replay_rows(view: View, width: int, height: int) -> int:
    """Return how many of a screen's rows the bar takes."""
    if view.replay is None or height < 8:
        return 0
    strip = strip_rows(width, height)
    return strip + (not strip or width < _LEADING)


def strip_rows(width: int, height: int) -> int:
    """Return how many of them the strip has: the band and, where there is room, its times."""
    if height < 14:
        return 0
    return 1 if width < _LEADING and height < 20 else 2 if height < 36 else 3


def draw_replay_bar(view: View, width: int, height: int) -> list[Line]:
    """Draw exactly ``replay_rows`` lines of ``width`` cells for a screen of ``height``."""
    state = view.replay
    if state is None or not replay_rows(view, width, height):
        return []
    rows = strip_rows(width, height)
    if not rows:
        return [_status(view, state, width)]
    first, inner = _strip(view, width, height)
    found = [(one.severity, *_ends(state, one, inner), _hue(one)) for one in state.findings]
    cells = _band(view, state, inner, max(1, rows - 1), found)
    cells += [_times(view, state, inner, found)] if rows > 1 else []
    if width < _LEADING:
        lines = [Row(width).pad_to(first).add_runs(drawn, inner).line() for drawn in cells]
        return [*lines, _status(view, state, width)]
    lines = []
    for said, drawn in zip(_words(view, state, rows), cells, strict=True):
        words = Row(LEAD - 3)
        for text, style in said:
            words.add(text, style)
        row = Row(width).pad_to(2 + first - LEAD).add_runs(words.line(), LEAD - 3)
        lines.append(row.pad_to(first).add_runs(drawn, inner).line())
    return lines


def _strip(view: View, width: int, height: int) -> tuple[int, int]:
    """Return the first cell of the strip and its width: as wide as the charts above it, where there
    is room for words."""
    inset = int(has_boxes(width, height - replay_rows(view, width, height)))
    first, last = (LEAD + inset, width - 1 - inset) if width >= _LEADING else (1, width - 1)
    return first, max(1, last - first)


def moment_at(view: View, state: ReplayState, x: int, width: int, height: int) -> float:
    """Return which moment of the file a cell of the bar stands for."""
    first, inner = _strip(view, width, height)
    share = min(1.0, max(0.0, (x - first + 0.5) / inner))
    return state.first + share * state.seconds


def _place(state: ReplayState, at: float, inner: int) -> int:
    if state.seconds <= 0:
        return 0
    return min(inner - 1, max(0, int((at - state.first) / state.seconds * inner)))


def _columns(
    view: View, state: ReplayState, inner: int
) -> tuple[list[tuple[float, float] | None], list[str]]:
    """Return the lowest and highest half minute of a GPU in each column, and its style: that of the
    charts of how busy a GPU is."""
    ends = tuple([one.end_unix_seconds for one in state.findings])
    key = (inner, len(state.buckets), ends, len(view.gpus), state.first, state.last)
    if state.drawn is not None and state.drawn[0] == key:
        return state.drawn[1:]
    columns: list[tuple[float, float] | None] = [None] * inner
    for bucket in state.buckets:
        means = [
            bands["busy_percent"].mean for bands in bucket.gpus.values() if "busy_percent" in bands
        ]
        if not means:
            continue
        low, high = min(means), max(means)
        begin = _place(state, max(bucket.begin_unix_seconds, state.first), inner)
        # The end of a bucket is the beginning of the next.
        for place in range(begin, _place(state, bucket.end_unix_seconds - 0.01, inner) + 1):
            before = columns[place]
            columns[place] = (
                (low, high) if before is None else (min(before[0], low), max(before[1], high))
            )
    styles = [FED.hue] * inner
    for one in state.findings:
        held = _state(one)
        if held is None or 2 * len(one.gpus) <= len(view.gpus):
            continue
        of_busy = rule_of(one.rule).lost_while_busy and held is not STRAGGLER
        first, last = _ends(state, one, inner)
        style = held.hue if of_busy else f"{FED.hue}/{held.hue}"
        styles[first : last + 1] = [style] * (last + 1 - first)
    state.drawn = key, columns, styles
    return columns, styles


_Found = Sequence[tuple[str, int, int, str]]
"""Findings with their severity, first and last column, and hue."""


def _band(
    view: View, state: ReplayState, inner: int, rows: int, found: _Found
) -> list[Sequence[Run]]:
    """Draw how busy GPUs were, with the signs of what was found, and the needle."""
    glyphs = view.glyphs
    columns, styles = _columns(view, state, inner)
    here = _place(state, state.now, inner)
    known = inner
    if state.progress < 1.0:
        end = state.buckets[-1].end_unix_seconds if state.buckets else state.first
        known = _place(state, end, inner)
    bands = [None if one is None else (one[0], *one) for one in columns]
    drawn = [draw_column(band, 100.0, glyphs, rows, apart=True) for band in bands]
    signs = time_axis.mark_signs(found, glyphs)
    lines: list[Sequence[Run]] = []
    for number in range(rows):
        row = Row(inner)
        for place, (text, tones) in enumerate(drawn):
            if not number and place in signs:
                # The needle is seen below it.
                row.add(*signs[place])
            elif place == here:
                row.add(glyphs.thumb, "title")
            elif columns[place] is None and place >= known:
                row.add(glyphs.dot if number == rows - 1 else " ", "dim")
            else:
                row.add(text[number], f"{styles[place]}.{tones[number]}")
        lines.append(row.line())
    return lines


def _times(view: View, state: ReplayState, inner: int, found: _Found) -> Sequence[Run]:
    """Draw the time of day and from when to when something was found, in the hue of what it meant
    for the GPUs, the gravest on top."""
    marks = time_axis.mark_lines(found, inner, view.glyphs)
    marks[_place(state, state.now, inner)] = view.glyphs.thumb, "title"
    every = time_axis.ticks(state.first, state.last, inner, state.last)
    return time_axis.with_times(
        marks, every, lambda at: _place(state, at, inner), state.last, view.glyphs
    )


def _ends(state: ReplayState, finding: Episode, inner: int) -> tuple[int, int]:
    """Return the first and the last column of a finding."""
    end = state.last if finding.end_unix_seconds is None else finding.end_unix_seconds
    return _place(state, finding.begin_unix_seconds, inner), _place(state, end, inner)


def _state(finding: Episode) -> GpuState | None:
    """Return the state of the GPUs that it holds up."""
    held = next((one for one in finding.gpus if one not in finding.late), "")
    return rule_of(finding.rule).state_of(
        held, finding.late, finding.severity, loses_time=bool(finding.cost_gpu_seconds)
    )


def _hue(finding: Episode) -> str:
    """Return the hue that the charts have where it holds up GPUs, else that of its severity."""
    state = _state(finding)
    return SEVERITY_STYLES.get(finding.severity, "label") if state is None else state.hue


def _words(view: View, state: ReplayState, rows: int) -> list[Sequence[Run]]:
    """Return what stands before each of two or three rows: what the player does, where in the
    recording it is, and what else there is to say; of two the last has that if it is a warning."""
    sign, word, style = _doing(state, view.glyphs)
    speed = right(f"{state.speed:g}x", NUMBER_END - 4 - width_of(word))
    doing = [(f"{sign} ", "key"), (word, style), (speed, "value")]
    where = [(_clock(state.now, state) + " ", "title")] if view.slow_link else []
    where.append((units.age(state.now - state.first), "value"))
    whole = (f" of {units.age(state.seconds)}", "label")
    forms, look = next(iter(_said(view, state)), (("",), "label"))
    if rows > 2:
        return [doing, [*where, whole], [(_longest(view, forms, LEAD - 3), look)]]
    if look == "label":
        return [doing, [*where, whole]]
    room = LEAD - 5 - sum([width_of(text) for text, _ in where])
    return [doing, [*where, ("  ", "label"), (_longest(view, forms, room), look)]]


def _status(view: View, state: ReplayState, width: int) -> Line:
    row = Row(width, prefix="b:").add(" ")
    sign, word, style = _doing(state, view.glyphs)
    row.add(f"{sign} ", "key").add(f"{word:<7}", style)
    row.add(f" {f'{state.speed:g}x':<6}", "value")
    if width < _CLOCK_WIDTH or view.slow_link:
        # Else the header has it.
        row.add(f" {_clock(state.now, state)} ", "title")
    row.add(f" {units.age(state.now - state.first)}", "value")
    row.fits(f" of {units.age(state.seconds)}", "label")
    row.fits(f" {state.share * 100:3.0f}%", "label")
    ends = f"{_clock(state.first, state)} - {_clock(state.last, state)} "
    for forms, look in _said(view, state):
        if row.room > 12:
            row.add("   ").add(_longest(view, forms, row.room - 1), look)
    if row.room >= width_of(ends) + 3:
        row.pad_to(width - width_of(ends), "label").add(ends, "label")
    return row.line("label")


def _said(view: View, state: ReplayState) -> list[tuple[Sequence[str], str]]:
    """Return what else there is to say, most important first, in full and shorter, with its
    style."""
    searched = f"{int(state.progress * 100)}% searched" if state.progress < 1.0 else ""
    found, grave = _holding(view, state)
    trouble = ("no diagnosis at this speed", "no diagnosis") if state.undiagnosed else ("",)
    every = ((trouble, "warn"), ((searched,), "text"), ((found,), grave))
    return [(forms, look) for forms, look in every if any(forms)]


def _longest(view: View, forms: Sequence[str], room: int) -> str:
    """Return the first of the texts that fits, or the last cut."""
    text = next((one for one in forms if width_of(one) <= room), forms[-1])
    return fit(text, room, view.glyphs.ellipsis)


def _doing(state: ReplayState, glyphs: Glyphs) -> tuple[str, str, str]:
    plain = glyphs.is_ascii
    if state.seeking:
        return ("~" if plain else "◌", "seeking", "label")
    if state.ended:
        return ("#" if plain else "■", "the end", "value")
    if not state.playing:
        return ("=" if plain else "‖", "paused", "value")
    return (">" if plain else "▶", "live" if state.following else "playing", "text")


def _clock(at: float, state: ReplayState) -> str:
    """Return a time of day, with the date where the file is longer than a day."""
    moment = time.localtime(at)
    return time.strftime("%m-%d %H:%M:%S" if state.seconds > 86400 else "%H:%M:%S", moment)


def _holding(view: View, state: ReplayState) -> tuple[str, str]:
    """Return the gravest finding that holds now, in a few words, or which of all it is where the
    verdict above says it; while none holds, how many findings there are."""
    now, count = state.holding(state.now), len(state.findings)
    if now and view.diagnosis is not None and not state.undiagnosed:
        return f"finding {state.findings.index(now[0]) + 1} of {count}", "label"
    if now:
        more = f" +{len(now) - 1}" if len(now) > 1 else ""
        return cause_of(now[0]) + more, SEVERITY_STYLES.get(now[0].severity, "label")
    return units.plural(count, "finding") if count else "", "label"
