"""The first line and the last.

The header says where, how fast, how old, and what watching costs; the footer has the keys, most
needed first, as many as fit, each of which can be clicked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache

from gpuwatch.core import units
from gpuwatch.core.bounds import mean
from gpuwatch.core.model import OwnCost, ProcessKey, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.tui.keys import OVERVIEW_FOOTER, Footer, replay_footer
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, fixed
from gpuwatch.tui.panels import time_axis
from gpuwatch.tui.runs import mean_busy_percent
from gpuwatch.tui.terminal.frame import Line, Row, Zone, fit, right
from gpuwatch.tui.view import View

# -- the header ------------------------------------------------------------------------------------


_SEVERAL = 2
"""GPUs from which the machine is summed up; one shows all of it in its own row."""
LOST_AFTER_SECONDS = _MEAN_SECONDS = 30.0
_IDLE_PERCENT = 1.0
"""Mean utilisation of a GPU that runs nothing."""


def draw_header(view: View, width: int) -> Line:
    """Name, state and machine on the left; own cost and the clock on the right."""
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
    right_parts = _header_right(view, snapshot, width)
    reserved = sum(len(text) + 2 for text, _ in right_parts)
    for text, style in _header_left(view, snapshot):
        if row.room < len(text) + 2 + reserved:
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


HEADER = fixed("header", 1, lambda page, _: ([draw_header(page.view, page.width)], []))


def _header_left(view: View, snapshot: Snapshot) -> list[tuple[str, str]]:
    host, notes = snapshot.host, sum(one.severity == "info" for one in snapshot.problems)
    identity = snapshot.gpus[0].identity if snapshot.gpus else None
    stale, up = view.stale_seconds, host.uptime_seconds
    named = view.replay is not None and view.replay.shown == host.name
    parts = [
        (stale is not None and f"data is {units.age(stale)} old", "warn"),
        (not named and fit(host.name, 24, view.glyphs.ellipsis), "text"),
        (notes and f"! {units.plural(notes, 'note')}", "key"),
        *[(text, "text") for text in _machine_texts(view, snapshot)],
        (f"every {units.interval(view.interval_seconds)}", "label"),
        (view.slow_link and "slow link", "label"),
        (identity and identity.driver_version and f"driver {identity.driver_version}", "label"),
        (identity and identity.cuda_version and f"CUDA {identity.cuda_version}", "label"),
        (up is not None and f"up {units.age(up)}", "label"),
    ]
    return [(text, style) for text, style in parts if isinstance(text, str) and text]


def _machine_texts(view: View, snapshot: Snapshot) -> list[str]:
    """``41% busy``, ``4.6 of 8 lost``, ``2 idle``, ``1.9kW``: what several GPUs are used for."""
    if len(snapshot.gpus) < _SEVERAL or time_axis.is_shown(view):
        # Beside charts of the past it would pass for what was then.
        return []
    end = snapshot.monotonic_seconds
    means = [mean_busy_percent(view, (gpu.uuid,), end, _MEAN_SECONDS) for gpu in snapshot.gpus]
    average = mean(means)
    parts = [] if average is None else [f"{average:3.0f}% busy"]
    found = view.diagnosis
    if found is not None and found.watched_seconds >= LOST_AFTER_SECONDS:
        parts.append(f"{lost_gpus(found, snapshot):.1f} of {len(snapshot.gpus)} lost")
    idle = sum([one is not None and one < _IDLE_PERCENT for one in means])
    parts += [f"{idle} idle"] if idle else []
    watts = [gpu.reading.power_watts for gpu in snapshot.gpus]
    drawn = sum([one for one in watts if one is not None])
    return [*parts, f"{drawn / 1000.0:.1f}kW"] if None not in watts else parts


def lost_gpus(found: Diagnosis, snapshot: Snapshot) -> float:
    """Return how many GPUs' time is lost to the findings: the sum of what is shown of each."""
    # A share is of all GPUs of its job, also where the finding names one of them.
    used: dict[ProcessKey | None, int] = {job.key: len(job.gpu_uuids) for job in snapshot.jobs}
    each = [(one.cost_share or 0.0) * used.get(one.job, len(one.gpus)) for one in found.findings]
    return min(sum(each), len(snapshot.gpus))


def _header_right(view: View, snapshot: Snapshot, width: int) -> list[tuple[str, str]]:
    parts = []
    cost = _cost_text(snapshot.own_cost, brief=width < 100)
    if view.replay is not None:
        # What watching cost then says nothing about now; the day does.
        day = time.localtime(snapshot.taken_at_unix_seconds)
        if width >= 60:
            parts.append((time.strftime("%Y-%m-%d", day), "label"))
    elif cost and width >= 60:
        parts.append((cost, "dim"))
    if width >= 50 and not view.slow_link:
        moment = time.localtime(snapshot.taken_at_unix_seconds)
        parts.append((time.strftime("%H:%M:%S", moment), "text"))
    return parts


def _cost_text(cost: OwnCost, brief: bool) -> str:
    """``own 0.7% 34.0M nvml 1.2ms/s``: what watching takes of a core, memory and the driver."""
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
    """The footer of a page with these keys."""

    def draw_keys(page: Page, _rows: int) -> Drawn:
        line, zones = draw_footer(page.view, page.width, keys(page.view))
        return [line], zones

    return fixed("footer", 1, draw_keys)


def draw_footer(
    view: View, width: int, keys: Footer = OVERVIEW_FOOTER, below: int = 0
) -> tuple[Line, list[Zone]]:
    """The line that is typed, else the keys, and how many lines are below those shown."""
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
    row.pad_to(width - len(more) - 1, "label").add(more, "warn")
    return row.line("label"), zones
