"""The bar of a recording that is played: how busy all of it was, what was found, where we are.

Like a video player's: the whole file from left to right. A column is solid up to the lowest and
pale up to the highest busy share that a GPU had over half a minute of it; dots were not read yet.
"""

import time

from gpuwatch.core import units
from gpuwatch.diagnosis.finding import SEVERITIES
from gpuwatch.tui.charts.glyphs import ASCII, FULL, Glyphs
from gpuwatch.tui.charts.strips import draw_column
from gpuwatch.tui.panels.finding_words import SEVERITY_STYLES, cause, severity_sign
from gpuwatch.tui.replay_state import ReplayState
from gpuwatch.tui.terminal.frame import Line, Row, fit, width_of
from gpuwatch.tui.view import View


def rows(view: View, height: int) -> int:
    """Return how many of a screen's rows the bar takes."""
    if view.replay is None or height < 8:
        return 0
    return 1 if height < 14 else 2 if height < 20 else 3 if height < 36 else 4


def draw(view: View, width: int, height: int) -> list[Line]:
    """Draw exactly ``rows`` lines of ``width`` cells for a screen of ``height``."""
    state = view.replay
    count = rows(view, height)
    if state is None or not count:
        return []
    lines: list[Line] = []
    if count > 1:
        inner = max(1, width - 2)
        lines += _band(view, state, width, inner, 2 if count == 4 else 1)
    if count > 2:
        lines.append(_marks(view, state, width, inner))
    lines.append(_status(view, state, width))
    return lines


def moment_at(state: ReplayState, x: int, width: int) -> float:
    """Return which moment of the file a cell of the bar stands for."""
    inner = max(1, width - 2)
    share = min(1.0, max(0.0, (x - 1 + 0.5) / inner))
    return state.first + share * state.seconds


def _place(state: ReplayState, at: float, inner: int) -> int:
    if state.seconds <= 0:
        return 0
    return min(inner - 1, max(0, int((at - state.first) / state.seconds * inner)))


# --- how busy it was -------------------------------------------------------------------------


def _columns(state: ReplayState, inner: int) -> list[tuple[float, float] | None]:
    """Lowest and highest half minute of a GPU in each column."""
    key = (inner, len(state.buckets), state.first, state.last)
    if state.drawn is not None and state.drawn[0] == key:
        return state.drawn[1]
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
    state.drawn = (key, columns)
    return columns


def _band(view: View, state: ReplayState, width: int, inner: int, count: int) -> list[Line]:
    glyphs = view.glyphs
    columns = _columns(state, inner)
    here = _place(state, state.now, inner)
    known = inner
    if state.progress < 1.0:
        end = state.buckets[-1].end_unix_seconds if state.buckets else state.first
        known = _place(state, end, inner)
    bands = [None if one is None else (one[0], *one) for one in columns]
    drawn = [draw_column(band, 100.0, glyphs, count) for band in bands]
    lines = []
    for number in range(count):
        row = Row(width).add(" ")
        for place, (text, tones) in enumerate(drawn):
            if place == here:
                row.add(_needle(glyphs), "title")
            elif columns[place] is None and place >= known:
                row.add(glyphs.dot if number == count - 1 else " ", "dim")
            else:
                tone = tones[number]
                row.add(text[number], "unknown" if tone == FULL else f"unknown.{tone}")
        lines.append(row.line())
    return lines


def _needle(glyphs: Glyphs) -> str:
    return "|" if glyphs is ASCII else "┃"


# --- what was found --------------------------------------------------------------------------


def _marks(view: View, state: ReplayState, width: int, inner: int) -> Line:
    """Draw from when to when something was found, the gravest on top."""
    glyphs = view.glyphs
    marks: list[tuple[str, str]] = [(" ", "text")] * inner
    for severity in reversed(SEVERITIES):
        style = SEVERITY_STYLES.get(severity, "label")
        for span in state.findings:
            if span.severity != severity:
                continue
            until = state.last if span.end_unix_seconds is None else span.end_unix_seconds
            begin = _place(state, span.begin_unix_seconds, inner)
            for place in range(begin + 1, _place(state, until, inner) + 1):
                marks[place] = (glyphs.rule, style)
            marks[begin] = (severity_sign(severity, glyphs), style)
    marks[_place(state, state.now, inner)] = (_needle(glyphs), "title")
    row = Row(width).add(" ")
    for text, style in marks:
        row.add(text, style)
    return row.line()


# --- in words --------------------------------------------------------------------------------


def _status(view: View, state: ReplayState, width: int) -> Line:
    row = Row(width, prefix="b:").add(" ")
    sign, word, style = _doing(state, view.glyphs)
    row.add(f"{sign} ", "key").add(f"{word:<7}", style)
    row.add(f" {f'{state.speed:g}x':<6}", "value")
    row.add(f" {_clock(state.now, state)}", "title")
    row.add(f"  {units.age(state.now - state.first)}", "value")
    row.add(f" of {units.age(state.seconds)}", "label")
    row.fits(f" {state.share * 100:3.0f}%", "label")
    ends = f"{_clock(state.first, state)} - {_clock(state.last, state)} "
    found, grave = _holding(state)
    searched = f"{int(state.progress * 100)}% searched" if state.progress < 1.0 else ""
    for text, look in ((_trouble(state), "warn"), (searched, "label"), (found, grave)):
        if text and row.room > 12:
            row.add("   ").add(fit(text, row.room - 1, view.glyphs.ellipsis), look)
    if row.room >= width_of(ends) + 3:
        row.pad_to(width - width_of(ends), "label").add(ends, "label")
    return row.line("label")


def _doing(state: ReplayState, glyphs: Glyphs) -> tuple[str, str, str]:
    plain = glyphs is ASCII
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


def _trouble(state: ReplayState) -> str:
    if state.skipping:
        return "skipping"
    return "no diagnosis at this speed" if state.undiagnosed else ""


def _holding(state: ReplayState) -> tuple[str, str]:
    """The gravest finding that holds now, in a few words; else how many findings there are."""
    now = state.holding(state.now)
    if now:
        more = f" +{len(now) - 1}" if len(now) > 1 else ""
        return cause(now[0].rule) + more, SEVERITY_STYLES.get(now[0].severity, "label")
    count = len(state.findings)
    if not count:
        return "", "label"
    return units.plural(count, "finding"), "label"
