"""List of many machines, a row each, and of the jobs that run on several of them.

First the drawing, then the screen, the application that shows it until a machine is opened, and
what runs both.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, ClassVar

from textual.binding import BindingType
from textual.screen import Screen

from gpuwatch.core import units
from gpuwatch.core.bounds import highest, mean, total
from gpuwatch.core.model import Snapshot
from gpuwatch.core.registry import GPU
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import Source
from gpuwatch.core.store import Column, column_of
from gpuwatch.core.text import clean
from gpuwatch.outputs.terminal import Column as TableColumn
from gpuwatch.recording.hosts.brief import Brief, FindingBrief, GpuBrief, upgrade_note
from gpuwatch.recording.hosts.names import install_command
from gpuwatch.recording.hosts.remote import NEITHER, NO_START, RemoteHost, RemoteTape
from gpuwatch.recording.hosts.together import SharedJob, shared_jobs
from gpuwatch.recording.replay import Tape
from gpuwatch.tui.app import SWITCH_SECONDS, GpuwatchApp, TapeSource, replay_app, run
from gpuwatch.tui.charts.strips import draw_column
from gpuwatch.tui.keys import FLEET_FOOTER, FLEET_KEYS, NOT_IN_FLEET, bindings
from gpuwatch.tui.pages.layout import Frame, Title, boxed, edge, filled, has_boxes, scrolled
from gpuwatch.tui.pages.screen import CursorPlace, ListScreen
from gpuwatch.tui.panels.bars import draw_footer, lost_in_words
from gpuwatch.tui.panels.findings import SEVERITY_STYLES, change_in, severity_sign
from gpuwatch.tui.panels.gpus import gauge
from gpuwatch.tui.panels.table import add_cells, add_headings, begin_row, fitting
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, fit, right, width_of, wrapped
from gpuwatch.tui.view import View

# -- the drawing -----------------------------------------------------------------------------------


SORTS = ("name", "busy", "lost", "finding")
_SPARK = 30
_EACH_MOST = 16
"""GPUs at most that have a bar each in the row of their machine."""
_JOBS_MOST = 6
_GPU_CELLS = 39
"""Cells at least of a GPU of the selected machine, below the list."""
_BESIDE_GAUGE = 32
"""Cells of these that are no gauge."""


_ALL_ROOM = 1000
_ASIDE = re.compile(r" \([^()]*\)")


def _rows_below(height: int) -> int:
    """Return how many rows the selected machine has below the list at least."""
    return 10 if height >= 40 else 8 if height >= 30 else 5 if height >= 20 else 0


@dataclass(slots=True)
class FleetRow:
    """A machine, or a job on several, with what the overview keeps of it."""

    host: RemoteTape
    busy: deque[Column | None] = field(default_factory=lambda: deque(maxlen=_SPARK))
    """Readings of how busy all its GPUs are, newest last: the mean, between the idlest and the
    busiest."""
    each: deque[tuple[float | None, ...]] = field(default_factory=lambda: deque(maxlen=_SPARK))
    """Readings of how busy each is."""
    watts: deque[float | None] = field(default_factory=lambda: deque(maxlen=_SPARK))
    """Readings of the power that all of them draw."""

    def note_readings(self) -> None:
        """Keep what is known now; to be called once an interval."""
        busy = tuple([one.busy_percent and one.busy_percent.mean for one in self.gpus])
        means = [one for one in busy if one is not None]
        self.busy.append(column_of(means, [1.0] * len(means)))
        if self.each and len(self.each[-1]) != len(busy):
            self.each.clear()
            self.watts.clear()
        self.each.append(busy)
        drawn = [one.power_watts for one in self.gpus]
        self.watts.append(None if None in drawn else total(drawn))

    @property
    def busy_of_each(self) -> list[float | None]:
        """Return the mean of the last 30 readings of each GPU."""
        return [mean(one) for one in zip(*self.each, strict=True)]

    @property
    def current(self) -> Brief | None:
        """Return what came in last, unless it is too old to be the present."""
        return None if self.host.is_late else self.host.brief

    @property
    def gpus(self) -> tuple[GpuBrief, ...]:
        current = self.current
        return () if current is None else current.gpus

    @property
    def busy_percent(self) -> float | None:
        """Return the mean of the last 30 readings."""
        if self.current is None or not self.busy or self.busy[-1] is None:
            return None
        return mean([one and one.mean for one in self.busy])

    @property
    def lost(self) -> float | None:
        """Return how many of its GPUs' time is lost to what was found."""
        current = self.current
        return None if current is None else current.lost_gpus

    def says(self, room: int = _ALL_ROOM) -> tuple[str, str, str]:
        """Severity (empty where there is nothing to be told), its style, and a sentence in as many
        words as there is ``room`` for."""
        host, brief = self.host, self.host.brief
        if host.ended_seconds is not None:
            return "", "dim", f"ended {units.age(host.ended_seconds)} ago (enter: how it was)"
        if (why := host.silence) is not None:
            gone = f"nothing for {units.age(host.age_seconds)}: " if brief and host.is_late else ""
            return "error", "warn", gone + why
        if brief is None:
            return "", "dim", "connecting"
        text, severity = brief.verdict, ""
        # In a row as short as in all others.
        text = _ASIDE.sub("", text) if room < _ALL_ROOM else text
        if brief.findings:
            worst = brief.findings[0]
            forms, severity = (worst.summary, *worst.short), worst.severity
            text = next((one for one in forms if width_of(one) <= room), forms[-1])
        if brief.problem is not None and not severity:
            text, severity = brief.problem.message, brief.problem.severity
        before = []
        if host.gpu_only:
            before.append(f"GPU only ({host.why_gpu_only}).")
        elif ahead := host.clock_error_seconds:
            off = f"{units.age(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}"
            before.append(f"Its clock is {off}.")
        if isinstance(host, RemoteHost) and (note := upgrade_note(host.version)):
            # What is found is not pushed out of the row by it.
            text = f"{text.rstrip('.')}. {note}" if severity else f"{note} {text}"
        return severity, SEVERITY_STYLES.get(severity, "label"), clean(" ".join([*before, text]))

    def said(self) -> list[str]:
        """Return the sentence with the host's name, and what installs gpuwatch where it is
        missing."""
        sentence = f"{self.host.name}: {self.says()[2]}"
        why = self.host.trouble or ""
        if not self.host.gpu_only and why != NEITHER and not why.startswith(NO_START):
            return [sentence]
        sentence = f"{sentence.rstrip('.')}. To install gpuwatch there (y copies the command):"
        return [sentence, install_command(self.host.name)]


@dataclass(slots=True)
class Fleet:
    """Machines of the fleet, and how they are sorted, filtered and selected."""

    members: Sequence[FleetRow]
    jobs: list[FleetRow] = field(default_factory=list)
    """Jobs that run on several of the machines."""
    sort: str = "name"
    reverse: bool = False
    selected: str | None = None
    offset: int = 0
    filter_text: str = ""
    """Filter that is kept while a host is open."""

    @property
    def chosen(self) -> FleetRow | None:
        every = (*self.members, *self.jobs)
        return next((one for one in every if one.host.name == self.selected), None)

    def rows(self, filter_text: str) -> list[FleetRow]:
        """Machines whose name, or what is said of them, holds ``filter_text``: the worst first, or
        as they were given; and all jobs on several."""
        wanted = filter_text.lower()
        rows = [one for one in self.members if wanted in f"{one.host.name} {one.says()[2]}".lower()]
        keys: dict[str, Callable[[FleetRow], tuple[bool, float]]] = {
            "busy": lambda one: _order(one.busy_percent, 1.0),
            "lost": lambda one: _order(one.lost, -1.0),
            "finding": lambda one: (
                one.says()[0] == "",
                {"error": 0.0, "warning": 1.0}.get(one.says()[0], 2.0),
            ),
        }
        if self.sort in keys:
            rows.sort(key=keys[self.sort])
        return [*(rows[::-1] if self.reverse else rows), *self.jobs]

    def note_readings(self) -> None:
        """Keep what is known now of all of them, and put together each job that turns out to run on
        several; to be called once an interval."""
        hosts = [one.host for one in self.members if isinstance(one.host, RemoteHost)]
        known = [one.host.key for one in self.jobs if isinstance(one.host, SharedJob)]
        for key, called in shared_jobs(hosts).items():
            if key not in known and self._has_room():
                taken = [one.host.name for one in [*self.members, *self.jobs]]
                job = SharedJob(_numbered(called, taken), key, hosts)
                job.start()
                self.jobs.append(FleetRow(job))
        for one in (*self.members, *self.jobs):
            one.note_readings()

    def _has_room(self) -> bool:
        """Make room for another job, in place of one that has ended if need be; return whether
        there is."""
        over = [one for one in self.jobs if one.host.ended_seconds is not None]
        if len(self.jobs) >= _JOBS_MOST and over:
            over[0].host.close()
            self.jobs.remove(over[0])
        return len(self.jobs) < _JOBS_MOST


def _order(value: float | None, sign: float) -> tuple[bool, float]:
    return value is None, sign * (value or 0.0)


def _memory(one: FleetRow) -> str:
    return units.percent(mean([gpu.memory_percent for gpu in one.gpus]))


def _power(one: FleetRow) -> str:
    # It swings as they do: a mean, as how busy they are.
    watts = None if not one.watts or one.watts[-1] is None else mean(one.watts)
    return units.watts(watts) if watts is None or watts < 1000 else f"{watts / 1000:.1f}kW"


def _hottest(one: FleetRow) -> str:
    return units.celsius(highest([gpu.temperature_celsius for gpu in one.gpus]))


def _lost(one: FleetRow) -> str:
    return units.UNKNOWN if one.lost is None else f"{one.lost:.1f}"


def _lost_style(_one: FleetRow, text: str) -> str:
    return "dim" if text in {units.UNKNOWN, "0.0"} else "warn"


def _bright(_one: FleetRow, _text: str) -> str:
    return "value"


_BUSY = GPU["busy_percent"]
_COLUMNS: tuple[TableColumn[FleetRow], ...] = (
    TableColumn("HOST", lambda one: one.host.name, "text", style=_bright, sort="name"),
    TableColumn("GPUS", lambda one: str(len(one.gpus) or units.UNKNOWN), rank=3, width=4),
    TableColumn("EACH", kind="text", rank=5),
    TableColumn(
        _BUSY.heading, lambda one: _BUSY.text(one.busy_percent), rank=1, width=5, sort="busy"
    ),
    TableColumn("LAST 30 READINGS", kind="text", rank=4, width=_SPARK),
    TableColumn("LOST", _lost, rank=2, width=7, style=_lost_style, sort="lost"),
    TableColumn(GPU["memory_used_bytes"].short_heading, _memory, rank=5, width=4),
    TableColumn(GPU["power_watts"].short_heading, _power, rank=7, width=6),
    TableColumn(GPU["temperature_celsius"].short_heading, _hottest, rank=6, width=4),
)


def _columns(view: View, names: int, each: int, rows: int) -> list[list[TableColumn[FleetRow]]]:
    """Return the columns of each of the ``rows`` lines of a machine; below the first are charts
    alone. ``each``: most GPUs of one, of which each has a bar, if any."""
    host, gpus, bars, busy, chart, *rest = _COLUMNS
    # A blank sets them apart where there is room for it.
    step = 2 if each <= _EACH_MOST // 2 else 1
    bars = bars._replace(width=max(4, step * each))
    made = []
    for number in range(rows):
        charts = (
            bars._replace(runs=partial(_bars, view, bars.width, step, rows, number)),
            chart._replace(runs=partial(_spark, view, rows, number)),
        )
        columns = [host._replace(width=names), gpus, charts[0], busy, charts[1], *rest]
        if number:
            columns = [one if one.runs else one._replace(cell=lambda _: "") for one in columns]
        made.append(columns if each else [one for one in columns if one is not charts[0]])
    return made


def _bars(view: View, width: int, step: int, rows: int, number: int, one: FleetRow) -> list[Run]:
    """Return a row of the bars of a machine's GPUs, one in ``step`` cells."""
    columns = list[Column | None]()
    for busy in one.busy_of_each[: width // step]:
        bar = column_of([] if busy is None else [busy], [1.0])
        columns += [bar, *[None] * (step - 1)]
    return _drawn(view, [*columns, *[None] * (width - len(columns))], rows, number)


def _spark(view: View, rows: int, number: int, one: FleetRow) -> list[Run]:
    return _drawn(view, [*[None] * (_SPARK - len(one.busy)), *one.busy], rows, number)


def _drawn(view: View, columns: Sequence[Column | None], rows: int, number: int) -> list[Run]:
    means = [None if one is None else (one.mean, one.mean, one.mean) for one in columns]
    drawn = [draw_column(column, 100.0, view.glyphs, rows) for column in means]
    return [(text[number], f"fed.{tones[number]}") for text, tones in drawn]


def _summary(fleet: Fleet, width: int) -> Line:
    members = fleet.members
    row = Row(width, prefix="b:").add(" gpuwatch ", "title")
    if any(brief.simulated for one in members if (brief := one.host.brief) is not None):
        row.add(" ").add(" SIMULATED ", "simulated")
    connected = [one for one in members if one.current is not None]
    gpus = sum(len(one.gpus) for one in connected)
    known = [(lost, len(one.gpus)) for one in connected if (lost := one.lost) is not None]
    busy = mean([one.busy_percent for one in connected for _ in one.gpus])
    missing = len(members) - len(connected)
    for text, style in (
        (units.plural(len(members), "host"), "text"),
        (f"{missing} not connected" if missing else "", "warn"),
        (units.plural(gpus, "GPU"), "text"),
        ("" if busy is None else f"{busy:.0f}% busy", "text"),
        (lost_in_words(sum(lost for lost, _ in known), sum(of for _, of in known)), "text"),
    ):
        if text:
            row.fits("  ", "text")
            row.fits(text, style)
    return row.line("label")


def _host_lines(
    view: View,
    one: FleetRow,
    columns: Sequence[Sequence[TableColumn[FleetRow]]],
    width: int,
    on: bool,
) -> list[Line]:
    """Return a line, and where there is room a second with what to do."""
    lines = []
    severity, style, _ = one.says()
    brief = one.current
    for number, cells in enumerate(columns):
        row = begin_row(width, view.glyphs, selected=on, focused=on)
        add_cells(row, cells, one, view.glyphs.ellipsis)
        if number == 0:
            text = one.says(row.room - 3)[2]
            sign = f"{severity_sign(severity, view.glyphs)} " if severity else "  "
            room = max(0, row.room - 3)
            row.add(sign, style)
            row.add(fit(text, room, view.glyphs.ellipsis), "text" if severity else "label")
        elif brief is not None and brief.findings:
            _add_cure(row.add("  "), brief.findings[0])
        lines.append(row.line())
    return lines


def _add_cure(row: Row, finding: FindingBrief) -> None:
    """Add what to do first, what that gives, and what is lost, as far as there is room."""
    lost, begin = finding.lost_share, row.used
    for text, style in (
        (change_in(finding.change, finding.change, row.room - 1), "value"),
        (finding.gain, "label"),
        (f"{units.share(lost)} lost" if lost else "", "label"),
    ):
        gap = "  " if row.used > begin else ""
        if text and width_of(text) + len(gap) < row.room:
            row.add(gap).add(text, style)


def _heading(columns: Sequence[TableColumn[FleetRow]], fleet: Fleet, width: int) -> Line:
    row = Row(width).add(" ")
    add_headings(row, columns, fleet.sort, chosen="key")
    return row.add("  WORST FINDING", "key" if fleet.sort == "finding" else "label").line()


def _numbered(called: str, taken: Collection[str]) -> str:
    """Return what a job is called, with a number where another has that name."""
    names = (called if n == 1 else f"{called} ({n})" for n in count(1))
    return next(one for one in names if one not in taken)


def draw(view: View, fleet: Fleet, width: int, height: int) -> Frame:
    """Draw the list, and below it the selected machine: exactly ``height`` lines of exactly
    ``width`` cells; the selection stays in sight."""
    boxes = has_boxes(width, height)
    width -= 2 * boxes
    rows = fleet.rows(view.filter_text)
    names = [one.host.name for one in rows]
    if fleet.selected not in names:
        fleet.selected = names[0] if names else None
    hosts = rows[: len(rows) - len(fleet.jobs)]
    below = len(fleet.jobs) + 2 if fleet.jobs and height >= len(fleet.jobs) + 8 else 0
    foot = _rows_below(height)
    # Above the selected machine is an edge or a blank.
    room = max(1, height - 3 - below - (3 if boxes else bool(foot)) - foot)
    place = None if fleet.selected is None else names.index(fleet.selected)
    in_hosts = None if place is None else min(place, max(0, len(hosts) - 1))
    longest = max([width_of(one.host.name) for one in (*fleet.members, *fleet.jobs)], default=4)
    each = max([len(one.gpus) for one in (*fleet.members, *fleet.jobs)], default=0)
    # The sentence gets a third of the width, and enough to be read.
    named = max(4, min(24, longest))
    # As many as are there, not as many as a filter leaves.
    tall = 2 if boxes and room >= 2 * len(fleet.members) else 1
    columns = [
        fitting(every, max(20, width - max(40, width // 3)))
        for every in _columns(view, named, each if each <= _EACH_MOST else 0, tall)
    ]
    room //= tall
    fleet.offset = scrolled(fleet.offset, in_hosts, room, len(hosts))
    lines, zones = [_summary(fleet, width)], list[Zone]()
    if boxes:
        by = ("s", f"sort: {fleet.sort}", "sort")
        _add_edge(lines, zones, view, width, Title("hosts", (("/", "filter", "app.filter"), by)))
    lines.append(_heading(columns[0], fleet, width))
    shown: list[FleetRow | str] = [*hosts[fleet.offset : fleet.offset + room]]
    shown += [] if hosts else [f" no host has {view.filter_text!r} (esc clears)"]
    shown += ["", " JOBS ON SEVERAL HOSTS", *fleet.jobs] if below else []
    for one in shown:
        if isinstance(one, str):
            lines.append(Row(width).add(one, "label").line())
        else:
            on = one.host.name == fleet.selected
            drawn = _host_lines(view, one, columns if one in hosts else columns[:1], width, on)
            places = range(len(lines), len(lines) + len(drawn))
            zones += [Zone(y, 0, width, "host", one.host.name) for y in places]
            lines += drawn
    if foot and fleet.chosen is not None:
        # Few machines leave it more; the same while some are filtered out.
        spare = tall * max(0, room - len(fleet.members))
        lines = filled(lines, width, height - 1 - boxes - foot - spare - (1 if boxes else 0))
        if boxes:
            title = Title(fleet.chosen.host.name, (("enter", "open", "open"),))
            _add_edge(lines, zones, view, width, title)
        lines += _about(view, fleet.chosen, width, foot + spare, named=not boxes)
    lines = filled(lines, width, height - 1 - boxes)
    if boxes:
        _add_edge(lines, zones, view, width, Title())
    left = max(0, len(hosts) - room - fleet.offset)
    keys, pressed = draw_footer(view, width, FLEET_FOOTER, left)
    zones += [zone._replace(y=height - 1) for zone in pressed]
    lines.append(keys)
    return Frame(boxed(lines, view.glyphs) if boxes else lines, zones, None, int(boxes))


def _add_edge(lines: list[Line], zones: list[Zone], view: View, width: int, title: Title) -> None:
    drawn, pressed = edge(view.glyphs, width, title)
    zones += [zone._replace(y=len(lines)) for zone in pressed]
    lines += drawn


def _about(view: View, one: FleetRow, width: int, rows: int, *, named: bool) -> list[Line]:
    """Return what was found on a machine, with what to do, and each of its GPUs. ``named``: no
    title above has its name."""
    brief, lines = one.current, list[Line]()
    name = f"{one.host.name}: " if named else ""
    if brief is None or not brief.findings:
        first, *more = one.said()
        first = first if named else first.removeprefix(f"{one.host.name}: ")
        for text in (first, *more):
            lines += [
                Row(width).add(f" {line}", "label").line() for line in wrapped(text, width - 2)
            ]
    for finding in () if brief is None else brief.findings:
        lines += _finding(view, finding, width, name)
        name = ""
    if len(lines) > rows:
        left_out = len(lines) - rows + 1
        note = f"   {left_out} more lines, and {units.plural(len(one.gpus), 'GPU')} (enter)"
        return [*lines[: rows - 1], Row(width).add(note, "dim").line()]
    gpus = _gpus(view, one, width, rows - len(lines) - 1)
    blank_line = [Row(width).line()] if gpus else []
    return filled([*lines, *blank_line, *gpus], width, rows)


def _finding(view: View, finding: FindingBrief, width: int, name: str) -> list[Line]:
    """Return its sentence, and below it what to do, what that gives, and what is lost."""
    style = SEVERITY_STYLES.get(finding.severity, "warn")
    room = width - 4
    forms = [name + text for text in (finding.summary, *finding.short)]
    text = next((one for one in forms if width_of(one) <= room), forms[-1])
    first = Row(width).add(f" {severity_sign(finding.severity, view.glyphs)} ", style)
    first.add(fit(text, room, view.glyphs.ellipsis), style)
    second = Row(width).add("   ")
    _add_cure(second, finding)
    return [first.line(), second.line()]


def _gpus(view: View, one: FleetRow, width: int, rows: int) -> list[Line]:
    """Return GPUs in columns, as many as have room: how busy each is, its memory, power, heat."""
    gpus = one.gpus
    if rows <= 0 or not gpus:
        return []
    # What came in since the last interval has no means yet.
    busy = [*one.busy_of_each, *[None] * len(gpus)]
    columns = max(1, min(4, (width - 1) // _GPU_CELLS))
    cells = (width - 1) // columns
    # The last line says how many have none.
    shown = len(gpus) if len(gpus) <= rows * columns else (rows - 1) * columns
    each = -(-shown // columns)
    lines = []
    for place in range(each):
        row = Row(width)
        for column, number in enumerate(range(place, shown, each)):
            row.pad_to(column * cells).add(f" {number:>3}", "title")
            _add_gpu(view, row, gpus[number], busy[number], cells - _BESIDE_GAUGE)
        lines.append(row.line())
    if shown < len(gpus):
        lines.append(Row(width).add(f"   {len(gpus) - shown} more", "dim").line())
    return lines


def _add_gpu(view: View, row: Row, gpu: GpuBrief, busy: float | None, cells: int) -> None:
    row.add(right(units.percent(busy), 5), "value").add(" ")
    if busy is None:
        row.add(" " * max(0, cells))
    else:
        row.add_runs(gauge(view.glyphs, busy / 100.0, cells, "gauge"), max(0, cells))
    row.add(right(units.percent(gpu.memory_percent), 5), "text").add(" mem", "label")
    row.add(right(units.watts(gpu.power_watts), 6), "text")
    row.add(right(units.celsius(gpu.temperature_celsius), 5), "text")


# -- the screen and its application ----------------------------------------------------------------


class FleetScreen(ListScreen):
    """Screen with the list of machines."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(FLEET_KEYS)
    CANVAS_ID = "fleet"
    OPENS: ClassVar[Mapping[str, str]] = {"host": "open"}

    def __init__(self, view: View, fleet: Fleet, opens: Callable[[FleetRow], object]) -> None:
        super().__init__(view)
        self.fleet = fleet
        self._opens = opens

    def drawn(self, width: int, height: int) -> Frame:
        return draw(self.view, self.fleet, width, height)

    @property
    def cursor(self) -> CursorPlace:
        return "host", self.fleet.selected

    def put(self, kind: str, key: Any) -> None:
        del kind
        self.fleet.selected = key

    def stops(self) -> list[CursorPlace]:
        return [("host", one.host.name) for one in self.fleet.rows(self.view.filter_text)]

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.size.height - 4))

    def action_clear(self) -> None:
        self.view.filter_text = ""
        self.redraw()

    def action_sort(self) -> None:
        fleet = self.fleet
        fleet.sort = SORTS[(SORTS.index(fleet.sort) + 1) % len(SORTS)]
        self.redraw()

    def action_reverse(self) -> None:
        self.fleet.reverse = not self.fleet.reverse
        self.redraw()

    def action_open(self) -> None:
        if (one := self.fleet.chosen) is not None:
            self._opens(one)


class _NoSampler(Sampler):
    """Sampler that reads nothing of this machine, and looks at the others once an interval."""

    def __init__(
        self, source: Source, interval_seconds: float, each_interval: Callable[[], None]
    ) -> None:
        super().__init__(source, interval_seconds)
        self._each_interval = each_interval

    async def run(self, deliver: Callable[[Snapshot], None]) -> None:
        del deliver
        while True:
            self._each_interval()
            await asyncio.sleep(self.interval_seconds)

    @property
    def overdue(self) -> bool:
        return False


_OPENING_LOOK_SECONDS = 0.05
_OPENING_MOST_SECONDS = 15.0


class FleetApp(GpuwatchApp):
    """Application that ends with ``opened`` set once a machine or a job is chosen. ``opens``: the
    only machine, or the first job on several of them, opens by itself as soon as it can."""

    def __init__(self, source: Source, fleet: Fleet, opens: bool, **options: Any) -> None:
        self.fleet = fleet
        self.opened: RemoteTape | None = None
        self._opens = opens
        self._opening: tuple[RemoteTape, float, float] | None = None
        """The machine that is being opened, since when, and the moment there from which on it has
        come in."""
        interval = max([one.host.interval_seconds for one in fleet.members])
        super().__init__(source, _NoSampler(source, interval, self._look_at_hosts), **options)
        self.view.fleet, self.view.filter_text = True, fleet.filter_text
        self._fleet_screen = FleetScreen(self.view, fleet, self._open)

    def get_default_screen(self) -> Screen[None]:
        return self._fleet_screen

    def on_mount(self) -> None:
        self.set_interval(_OPENING_LOOK_SECONDS, self._open_what_has_come)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in NOT_IN_FLEET and super().check_action(action, parameters)

    def _look_at_hosts(self) -> None:
        self.fleet.note_readings()
        alone = self.fleet.members if len(self.fleet.members) == 1 else ()
        for one in (*self.fleet.jobs, *alone):
            if self._opens and one.host.brief is not None:
                self._opens = False
                self._open(one)
        self.drawing.redraw()

    def action_copy_host(self) -> None:
        if (one := self.fleet.chosen) is not None:
            self.drawing.copy(one.said()[-1])

    def _open(self, one: FleetRow) -> None:
        """Ask for the whole of a machine, with its last ten minutes."""
        brief, host = one.host.brief, one.host
        self._leave_opening()
        if brief is None:
            self.drawing.answer(one.said()[0])
            return
        if isinstance(host, RemoteHost):
            host.read_in_full(OPENED, from_past=True)
        self._opening = host, time.monotonic(), brief.taken_at_unix_seconds
        self._open_what_has_come()
        if self.opened is None:
            self.drawing.answer(f"{host.name}: reading its last ten minutes")

    def _open_what_has_come(self) -> None:
        if self._opening is None or self.opened is not None:
            return
        host, since, at = self._opening
        latest = host.latest
        if host.tape is not None and latest is not None and latest.taken_at_unix_seconds >= at:
            self.opened, self.fleet.filter_text = host, self.view.filter_text
            self.exit()
        elif time.monotonic() - since > _OPENING_MOST_SECONDS:
            self._leave_opening()
            self.drawing.answer(f"{host.name}: {host.silence or 'no snapshot of it comes in'}")

    def _leave_opening(self) -> None:
        if self._opening is not None and isinstance(self._opening[0], RemoteHost):
            self._opening[0].read_in_brief(OPENED)
        self._opening = None


OPENED = "opened"
"""Reader of the machine that is opened."""


def run_fleet(hosts: Sequence[RemoteHost], *, slurm_job: str | None = None, **options: Any) -> int:
    """Show many machines, and the one that is opened, until the person quits; the exit code.
    ``slurm_job``: they were asked for as the job's, which is opened as soon as it is seen;
    ``options``: those of ``GpuwatchApp``. Closes ``hosts``."""
    # Threads that read share the interpreter with the one that draws.
    sys.setswitchinterval(SWITCH_SECONDS)
    fleet = Fleet([FleetRow(host) for host in hosts])
    for host in hosts:
        host.start()
    alone = len(hosts) == 1
    opens = alone or slurm_job is not None
    try:
        while True:
            app = FleetApp(TapeSource(False), fleet, opens, **options)
            code = run(app, lambda: None, None)
            opened, opens = app.opened, False
            if opened is None:
                return code
            if opened.latest is None or opened.tape is None:
                # Its clock was set at this moment: it begins anew.
                continue
            code = _run_opened(opened, opened.tape, opened.latest, alone, slurm_job, options)
            if code or alone:
                return code
    finally:
        every = [*hosts, *[one.host for one in fleet.jobs]]
        for one in every:
            one.leave()
        for one in every:
            one.close()


def _run_opened(
    opened: RemoteTape,
    tape: Tape,
    latest: Snapshot,
    alone: bool,
    slurm_job: str | None,
    options: dict[str, Any],
) -> int:
    """Show the machine or job that was opened until the person goes back; the exit code."""
    shared = isinstance(opened, SharedJob)
    jobs = [one for one in latest.jobs if shared or (alone and one.slurm_job == (slurm_job or ""))]
    played = replay_app(
        tape,
        simulated=latest.simulated,
        follows=True,
        attached=jobs[0].key if jobs else None,
        **options,
    )
    assert played.player is not None
    message = None if alone else f"{opened.name}: q returns to the list of hosts"
    apart = opened.clocks_apart_seconds if isinstance(opened, SharedJob) else None
    if apart is not None:
        message = f"The hosts' clocks agree to within {apart:.1f} s. {message}"
    code = run(played, played.player.stop, message)
    if isinstance(opened, RemoteHost):
        opened.read_in_brief(OPENED)
    return code
