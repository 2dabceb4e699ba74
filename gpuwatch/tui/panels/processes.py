"""The process table: which processes it has in which order, and as many of its columns as fit."""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

from gpuwatch.core import units
from gpuwatch.core.model import GpuKey, JobMember, Process, ProcessKey
from gpuwatch.core.registry import LOOP, PROCESS, Field
from gpuwatch.jobs.identity.roles import WORKER_NAME
from gpuwatch.jobs.words import role_name
from gpuwatch.outputs.terminal import Column
from gpuwatch.tui.charts.strips import Columns, TimeWindow, Together
from gpuwatch.tui.charts.timeline import span_in
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, filled, scrolled
from gpuwatch.tui.panels.table import (
    add_cells,
    add_headings,
    always_dim,
    as_one,
    begin_row,
    branches,
    fit_command,
    fitting,
    heading_notes,
    hidden,
    in_room,
    share_of_each,
    short_role,
    state_style,
    stepping_back,
)
from gpuwatch.tui.panels.time_axis import shown_process
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, fit
from gpuwatch.tui.view import RowKey, View, row_key

# -- which processes, in which order ---------------------------------------------------------------


USER = "user:"
"""Begins a word of a filter that names users, whole and with commas: ``user:ada,bob``."""


class TableRow(NamedTuple):
    """A process, and what the table says of it that is not its own."""

    process: Process
    branch: str = ""
    """Branches drawn before its command (tree view)."""
    gpu: str = ""
    seconds: float | None = None
    """Time for which it has run."""
    wait: str = ""
    """The share of its time that a training process says it waits for data."""
    command: str = ""
    """Command. A process that serves a rank, and has the same command, by its role."""
    rank: str = ""
    """Text before the command of one of several ranks: ``rank 0: ``."""
    spark: Sequence[Run] = ()
    """Its chart; drawn for the rows in sight."""
    together: tuple[Process, ...] = ()
    """The loader workers of one parent in one row: ``process`` is their mean, with the key of the
    first."""
    matches: int = 1
    """Processes of the row that match the filter; 0: it is there for its kin, which do."""

    @property
    def key(self) -> RowKey:
        return row_key(self.process)


def table_rows(view: View, room: int) -> list[TableRow]:
    """Return the processes in the view's order, filtered, as a tree where that is asked for, with
    ``room`` for so many rows."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    every: Sequence[Process] = snapshot.processes
    if view.sort in _FLICKERING_SORTS:
        # They stand in the order of the numbers that are shown.
        every = [shown_process(view, one, one.gpu_uuid) for one in every]
    ordered = sorted(every, key=_sort_key(view), reverse=view.reverse)
    found = set(map(row_key, filter(_wanted(view), ordered)))
    branch, families = [""] * len(ordered), dict[ProcessKey, tuple[Process, ...]]()
    members = _members(view)
    if view.tree:
        ordered, families = in_room(
            *(view, _as_tree(view, ordered, found), room, partial(_family, members)),
            # A match stays in sight.
            lambda one: (
                one.gpu_uuid is not None or (bool(view.filter_text) and row_key(one) in found)
            ),
        )
        branch = branches([(one.pid, one.parent_pid) for one in ordered], view.glyphs)
    else:
        ordered = [process for process in ordered if row_key(process) in found]
    labels = {gpu.uuid: units.gpu_label(gpu) for gpu in snapshot.gpus}
    # What was reported then is not kept of each rank.
    jobs = snapshot.jobs if view.timeline.moment is None else ()
    waits = {loop.key: _DATA.text(loop.data_wait_share) for job in jobs for loop in job.loops}
    moment = view.timeline.moment
    past = 0.0 if moment is None else snapshot.monotonic_seconds - moment
    now = snapshot.taken_at_unix_seconds - past
    return [
        TableRow(
            process,
            before,
            labels.get(process.gpu_uuid or "", ""),
            None if (since := process.started_at_unix_seconds or inf) > now else now - since,
            waits.get(key, ""),
            *_command(process, members.get(key), len(together)),
            together=together,
            matches=sum([row_key(one) in found for one in together or (process,)]),
        )
        for process, before in zip(ordered, branch, strict=False)
        for key in (process.key,)
        for together in (families.get(key, ()),)
    ]


def _members(view: View) -> dict[ProcessKey, JobMember]:
    jobs = () if view.snapshot is None else view.snapshot.jobs
    return {member.key: member for job in jobs for member in job.members}


def _family(members: Mapping[ProcessKey, JobMember], process: Process) -> Hashable:
    """Return what loader workers of one row have in common; ``None`` for any other process."""
    member = members.get(process.key)
    # A job on the CPU is none that is watched.
    is_worker = process.name == WORKER_NAME if member is None else member.role == "loader_worker"
    return (process.parent_pid,) if is_worker and process.gpu_uuid is None else None


def _command(process: Process, member: JobMember | None, together: int = 0) -> tuple[str, str]:
    """Return the command and what stands before it, see ``TableRow``."""
    command = process.command or process.name or "(unseen)"
    if (member is None and process.name == WORKER_NAME) or (
        member is not None and member.role == "loader_worker"
    ):
        name = "loader worker" if member is None else role_name(member)
        return f"{together} {name.replace('worker', 'workers')}" if together else name, ""
    if member is None:
        return command, ""
    is_ranked = member.role == "rank" and member.rank is not None
    return command, f"{role_name(member)}: " if is_ranked else ""


_NUMBERS = {
    "busy": "gpu_busy_percent",
    "gpu memory": "gpu_memory_bytes",
    "cpu": "cpu_percent",
    "memory": "memory_resident_bytes",
}

_FLICKERING_SORTS = {"busy", "cpu"}


def gpus_first(view: View) -> Sequence[GpuKey]:
    """Return the GPUs whose processes come first in the order by GPU, where they would not anyway:
    those few that the leading finding names, of a job's ranks the one that the others wait for."""
    found = () if view.diagnosis is None else view.diagnosis.causes
    if not found or found[0].severity == "info" or view.snapshot is None:
        return ()
    gpus = view.gpus
    named = found[0].late or found[0].gpus
    first_anyway = set(named) == {gpu.uuid for gpu in gpus[: len(named)]}
    if first_anyway or 2 * len(named) > len(gpus):
        return ()
    return named if any(one.gpu_uuid in named for one in view.snapshot.processes) else ()


def _sort_key(view: View) -> Callable[[Process], tuple[float | str, ...]]:
    """Numbers largest first (unknown last), names and GPUs ascending; ties by GPU, then PID."""
    first = gpus_first(view)
    uuids = sorted([gpu.uuid for gpu in view.gpus], key=lambda one: one not in first)
    order = {uuid: place for place, uuid in enumerate(uuids)}
    sort = view.sort

    def down(value: float | None) -> float:
        return 1.0 if value is None else -value

    def key(process: Process) -> tuple[float | str, ...]:
        place, pid = order.get(process.gpu_uuid or "", len(order)), process.pid
        match sort:
            case "gpu":
                return (place, down(process.gpu_memory_bytes), pid)
            case "pid":
                return (pid, place)
            case "user" | "command":
                return (getattr(process, sort) or "~", place, pid)
            case "time":
                since = process.started_at_unix_seconds
                return (float("inf") if since is None else since, place, pid)
            case _:
                return (down(getattr(process, _NUMBERS[sort])), place, pid)

    return key


def _wanted(view: View) -> Callable[[Process], bool]:
    words = view.filter_text.lower().split()
    users = [word.removeprefix(USER) for word in words if word.startswith(USER)]
    words = [word for word in words if not word.startswith(USER)]
    among = None
    if view.this_gpu_only and view.selected_gpu is not None and view.snapshot is not None:
        among = _rows_of_gpu(view.snapshot.processes, view.selected_gpu)
    if among is None and not view.filter_text:
        return lambda _: True
    members = _members(view)

    def keep(process: Process) -> bool:
        if among is not None and row_key(process) not in among:
            return False
        user = (process.user or "").lower()
        if any(user not in names.split(",") for names in users):
            return False
        # What the table says of it can be searched for, and what it has no room for.
        shown = _command(process, members.get(process.key))
        own = (process.own_pid, process.user, process.name, process.command, *reversed(shown))
        text = " ".join([str(one) for one in own if one is not None]).lower()
        return all(word in text for word in words)

    return keep


def _rows_of_gpu(processes: Sequence[Process], uuid: str) -> set[RowKey]:
    """Return the rows of this GPU: processes that use it, and those below them that use none."""
    below: dict[int | None, list[Process]] = {}
    for process in processes:
        if process.gpu_uuid is None:
            below.setdefault(process.parent_pid, []).append(process)
    found = [process for process in processes if process.gpu_uuid == uuid]
    for process in found:
        # It grows meanwhile: children of children are found too.
        found += below.pop(process.pid, ())
    return {row_key(process) for process in found}


def _as_tree(view: View, ordered: Sequence[Process], found: set[RowKey]) -> list[Process]:
    """Children under their parents. One that is wanted keeps its ancestors in sight, a match of a
    filter also all below it; a process on several GPUs has a row for each and its children under
    the first."""
    present = {process.pid: process for process in ordered}
    if not any(one.parent_pid in present for one in ordered):
        return [process for process in ordered if row_key(process) in found]
    children: dict[int, list[Process]] = {}
    roots: list[Process] = []
    for process in ordered:
        parent = process.parent_pid
        if parent is not None and parent in present and parent != process.pid:
            children.setdefault(parent, []).append(process)
        else:
            roots.append(process)
    _sort_by_family(ordered, roots, children)
    wanted = [process for process in ordered if row_key(process) in found]
    keep = _with_kin(wanted, present, children if view.filter_text else {})
    out: dict[RowKey, Process] = {}
    # Torn parent links can form a loop, which no root leads to: nobody may be hidden for it.
    for start in (*roots, *ordered):
        waiting = [start]
        while waiting:
            process = waiting.pop()
            key = row_key(process)
            if key in out or key not in keep:
                continue
            out[key] = process
            waiting += reversed(children.pop(process.pid, ()))
    return list(out.values())


def _sort_by_family(
    ordered: Sequence[Process], roots: list[Process], children: dict[int, list[Process]]
) -> None:
    """Sort families by their best member: a launcher without a GPU stands where its first rank
    does."""
    ranks = {row_key(process): rank for rank, process in enumerate(ordered)}
    parents = {process.pid: process.parent_pid for process in ordered}
    below: dict[int, int] = {}
    for rank, process in enumerate(ordered):
        # The best comes first, so what is set stays (and a loop in torn parent links ends).
        pid = process.parent_pid if process.pid in children else process.pid
        while pid is not None and pid in parents and pid not in below:
            below[pid] = rank
            pid = parents[pid]

    def family_rank(process: Process) -> int:
        own = ranks[row_key(process)]
        return min(own, below.get(process.pid, own))

    roots.sort(key=family_rank)
    for family in children.values():
        family.sort(key=family_rank)


def _with_kin(
    found: Sequence[Process],
    present: Mapping[int, Process],
    children: Mapping[int, Sequence[Process]],
) -> set[RowKey]:
    """Return the rows of those found, of their ancestors and of all below them."""
    keep = {row_key(process) for process in found}
    above, below = [one.parent_pid for one in found], [one.pid for one in found]
    while above:
        parent = present.get(above.pop() or 0)
        if parent is not None and row_key(parent) not in keep:
            keep.add(row_key(parent))
            above.append(parent.parent_pid)
    while below:
        for child in children.get(below.pop(), ()):
            if row_key(child) not in keep:
                keep.add(row_key(child))
                below.append(child.pid)
    return keep


# -- the columns -----------------------------------------------------------------------------------


_GPU_MEMORY, _BUSY = PROCESS["gpu_memory_bytes"], PROCESS["gpu_busy_percent"]
_CPU, _MEMORY = PROCESS["cpu_percent"], PROCESS["memory_resident_bytes"]
_THREADS, _DATA = PROCESS["threads"], LOOP["data_wait_share"]


def _gpu_memory(row: TableRow) -> str:
    value = row.process.gpu_memory_bytes
    return "" if row.process.gpu_uuid is None else _GPU_MEMORY.text(value)


def _gpu_busy(row: TableRow) -> str:
    return "" if row.process.gpu_uuid is None else _BUSY.text(row.process.gpu_busy_percent)


_CPU_WIDTH = 6


def _cpu(row: TableRow) -> str:
    return share_of_each(_CPU.text(row.process.cpu_percent), len(row.together), _CPU_WIDTH)


def _for(seconds: float | None) -> str:
    """Write how long it has run; after the first minute without seconds, which would have every row
    drawn anew each second."""
    minutes = 0 if seconds is None else int(seconds) // 60
    return f"{minutes}m" if 1 <= minutes < 60 else units.age(seconds)


def _column(field: Field, **more: Any) -> Column[TableRow]:
    read = attrgetter(f"process.{field.name}")
    return Column(field.short_heading, lambda row: field.text(read(row)), **more)


_user = attrgetter("process.user")
COLUMNS: tuple[Column[TableRow], ...] = (
    Column("GPU", lambda r: r.gpu, rank=3, width=4, sort="gpu"),
    Column("PID", lambda r: "" if r.together else str(r.process.own_pid), width=8, sort="pid"),
    Column("USER", lambda r: _user(r) or "-", "text", 8, width=8, style=always_dim, sort="user"),
    Column("S", lambda r: r.process.state or "-", "text", 11, width=1, style=state_style),
    Column(_GPU_MEMORY.short_heading, _gpu_memory, rank=6, width=7, sort="gpu memory"),
    Column(_BUSY.short_heading, _gpu_busy, rank=2, width=4, sort="busy"),
    Column(_DATA.short_heading, lambda r: r.wait, rank=4, width=4),
    Column(_CPU.short_heading, _cpu, rank=5, width=_CPU_WIDTH, sort="cpu"),
    _column(_MEMORY, rank=9, width=6, sort="memory"),
    _column(_THREADS, rank=12, width=4, style=always_dim),
    Column("TIME", lambda r: _for(r.seconds), rank=10, width=6, style=always_dim, sort="time"),
    Column("CHART", kind="text", rank=7, width=12, runs=lambda r: r.spark),
)
"""Left to right; the command comes after them."""


def _has_history(column: Column[TableRow]) -> bool:
    return column.runs is not None or column.sort in ("busy", "cpu")


_LASTING = {"gpu", "pid", "user", "time"}
_GPU_SORTS = {"gpu", "gpu memory", "busy"}
_WIDE_SPARK_WIDTH = 24
_COMMAND_LEAST, _COMMAND_NARROW = 18, 12
"""Room for ``rank 0: train.py``; on a narrow screen the numbers are needed more."""
_NARROW = 60


def _chosen(view: View, width: int, *, is_kept: bool) -> list[Column[TableRow]]:
    """Return the columns that fit beside a readable command. Without a GPU, those that would be
    about one are left out, and of a moment in the past those of what is not kept."""
    past = view.timeline.moment is not None
    jobs = () if view.snapshot is None else view.snapshot.jobs
    reported = any(job.loops for job in jobs)
    columns = [
        one
        for one in COLUMNS
        if (one.heading != _DATA.short_heading or reported)
        and (view.gpus or one.sort not in _GPU_SORTS)
        and (not past or one.sort in _LASTING or (is_kept and _has_history(one)))
    ]
    least = _COMMAND_NARROW if width < _NARROW else _COMMAND_LEAST
    chosen = fitting(columns, width - 1 - least)
    if chosen and chosen[-1].runs is not None:
        chart = chosen.pop()
        if not view.slow_link:
            cells = _WIDE_SPARK_WIDTH if width >= 150 else chart.width
            what = f"{_BUSY.short_heading}/CPU" if view.gpus else "CPU"
            heading = f"{what} {spark_span(view)}"
            chosen.append(chart._replace(heading=heading, width=cells))
    return chosen


# -- drawing ------------------------------------------------------------------------------


def _rows(page: Page) -> int:
    """Return no rows, as the table takes what is left, and note how much that should be without a
    GPU."""
    page.table_least = min(max(0, page.room - 1), max(4, page.room * 2 // 5))
    return 0


def _draw(page: Page, rows: int) -> Drawn:
    view, selected = page.view, page.view.selected_row
    if rows <= 0:
        page.table_page = 0
        return [], []
    table = page.table = table_rows(view, page.table_page)
    places = (place for place, row in enumerate(table) if row.key == selected)
    position = None if selected is None else next(places, None)
    planned = max(1, page.room - 1)
    view.process_offset = scrolled(view.process_offset, position, planned, len(table))
    return draw(view, table, page.width, rows)


PANEL = Panel("table", _rows, _draw)


def _shown(view: View, row: TableRow) -> TableRow:
    """Return a row with the readings that stand beside charts."""
    each = [shown_process(view, one, one.gpu_uuid) for one in row.together or (row.process,)]
    return row._replace(process=as_one(each) if row.together else each[0])


def draw(view: View, table: Sequence[TableRow], width: int, height: int) -> Drawn:
    """Draw the heading and the rows from ``view.process_offset`` on, ``height`` lines in all."""
    if height <= 0:
        return [], []
    above = view.process_offset
    entries = [_shown(view, one) for one in table[above : above + height - 1]]
    out_of_sight = hidden(view.glyphs, above, len(table) - above - (height - 1))
    past = view.timeline.moment is not None
    is_kept = not past or any(
        {one.process.cpu_percent, one.process.gpu_busy_percent} != {None} for one in entries
    )
    chosen = _chosen(view, width, is_kept=is_kept)
    spark = chosen[-1].width if chosen and chosen[-1].runs is not None else 0
    lines, zones = list[Line](), list[Zone]()
    form = (chosen, width, view.glyphs, bool(view.gpus), past, is_kept, view.filter_text)
    before_form, before = view.kept.get("rows", (None, {}))
    kept: dict[RowKey, tuple[object, Line]] = {}
    window = spark_window(view)
    for one in entries:
        key = one.key
        zones.append(Zone(len(lines) + 1, 0, width, "process", key))
        selected = key == view.selected_row
        focused = selected and view.focus == "processes" and not view.in_findings
        entry = one._replace(spark=_spark(view, one, window, spark)) if spark else one
        shown = (entry._replace(seconds=None), _for(entry.seconds), selected, focused)
        found = before.get(key) if before_form == form else None
        if found is None or found[0] != shown:
            row = begin_row(width, view.glyphs, selected=selected, focused=focused)
            line = _line(view, row, entry, chosen)
            out_of_it = bool(view.filter_text) and not entry.matches
            found = shown, stepping_back(line) if out_of_it or not is_kept else line
        kept[key] = found
        lines.append(found[1])
    view.kept["rows"] = form, kept
    if not lines:
        is_kept = True
        lines.append(Row(width).add(_nothing_text(view), "dim").line())
    notes = _notes(view, table, is_kept=is_kept)
    heading, sorts = _heading(view, chosen, width, notes, out_of_sight)
    return filled([heading, *lines], width, height), [*sorts, *zones]


def _heading(
    view: View,
    chosen: Sequence[Column[TableRow]],
    width: int,
    notes: Sequence[str],
    out_of_sight: str,
) -> tuple[Line, list[Zone]]:
    row = Row(width, prefix="b:").add(" ")
    arrow = view.glyphs.up if view.reverse else view.glyphs.down
    zones = add_headings(row, chosen, view.sort, arrow=arrow)
    start = row.used
    by_command = view.sort == "command"
    title = "COMMAND" + (arrow if by_command else "")
    if view.filter_text:
        # A filter in force is said before what is out of sight.
        fuller = [*heading_notes(notes, out_of_sight)[: len(notes)], *notes]
    else:
        fuller = heading_notes(notes, out_of_sight)
    note = next((one for one in fuller if len(title) + len(one) + 2 <= row.room), None)
    style = "key" if view.filter_text else "label"
    if note is None and view.filter_text:
        # What is left out must be said before what the column is called.
        return row.add(fit(notes[-1], row.room, view.glyphs.ellipsis), style).line(), zones
    row.add(title, "value" if by_command else "label")
    zones.append(Zone(0, start, row.used, "sort", "command"))
    return row.note(note or "", style).line(), zones


def _notes(view: View, table: Sequence[TableRow], *, is_kept: bool) -> list[str]:
    """Notes on the list, in full and shorter: a filter in force matters more than the count, and
    that its numbers are not kept of the moment shown. While a line is typed that has the filter."""
    gpu_only = ["this GPU only"] if view.this_gpu_only else []
    total = sum(max(one.matches, 0 if view.filter_text else 1) for one in table)
    if not view.filter_text:
        counts = [count_of(view, total, is_kept=is_kept), count_of(view, total)]
        return [", ".join([*gpu_only, count]) for count in counts] + gpu_only
    every = 0 if view.snapshot is None else len(view.snapshot.processes)
    text = [fit(view.filter_text, 24, view.glyphs.ellipsis)] if view.prompt is None else []
    parts = [*text, *gpu_only]
    below = sum([not one.matches for one in table])
    with_family = f", {below} with it" if below else ""
    whole = f"{total} of {count_of(view, every)}{with_family}"
    counts = [whole, f"{total} of {every}{with_family}", f"{total} of {every}"]
    forms = [[*parts, count] for count in counts] + [one for one in (parts, text) if one]
    return ["filter: " + ", ".join(one) for one in forms]


def count_of(view: View, total: int, *, is_kept: bool = True) -> str:
    """Return ``38 processes``; beside charts of the past, where they are still those of now, with a
    word on whether what was read of them then is kept."""
    count = units.plural(total, "process")
    if view.timeline.moment is None:
        return count
    return f"{count}, as read then" if is_kept else f"not kept so far back, {count} now"


def _nothing_text(view: View) -> str:
    if view.snapshot is None:
        return ""
    if view.filter_text:
        return "  No process matches the filter. Esc clears it."
    if view.replay is not None:
        return "  No process was reported."
    if view.all_processes:
        return "  Reading processes..."
    if any(problem.reading == "processes" for problem in view.snapshot.problems):
        nothing = "Which processes use a GPU cannot be read. Press a to see all processes."
    elif view.this_gpu_only:
        nothing = "No process uses this GPU."
    else:
        nothing = "No process uses a GPU. Press a to see all processes."
    return f"  {nothing}"


def spark_window(view: View) -> TimeWindow:
    """Return the time that the charts of a table cover: that of all charts, without the cursor."""
    timeline = view.timeline
    return TimeWindow(view.window.now, timeline.span_seconds, end=timeline.end_seconds)


def spark_span(view: View) -> str:
    """Time that the charts of a table cover: ``30s``, ``5m``, ``12h``."""
    return span_in(view.timeline.span_seconds, "smh")


def _line(view: View, row: Row, entry: TableRow, chosen: Sequence[Column[TableRow]]) -> Line:
    process, ellipsis = entry.process, view.glyphs.ellipsis
    # Of the past most is not kept: that is said once.
    unknown = units.UNKNOWN if view.timeline.moment is None else ""
    add_cells(row, chosen, entry, ellipsis, unknown=unknown)
    row.add(fit(entry.branch, max(0, row.room - 4), ""), "dim")
    style = "text" if process.gpu_uuid is not None or not view.gpus else "label"
    # It ends where the note in the heading does.
    command = entry.command
    if entry.together and len(command) >= row.room:
        command = short_role(command)
    said = fit_command(command, row.room - 1, ellipsis, entry.rank)
    words = [re.escape(one) for one in view.filter_text.split() if not one.startswith(USER)]
    matched = re.compile(f"({'|'.join(words)})", re.IGNORECASE) if words else _NOTHING
    for place, part in enumerate(matched.split(said)):
        row.add(part, "key" if place % 2 else style)
    return row.line()


_NOTHING = re.compile("(?!)")


def _spark(view: View, entry: TableRow, window: TimeWindow, width: int) -> list[Run]:
    """Busy share of a process on a GPU, CPU of one core for the others; of those in one row their
    mean."""
    process, history = entry.process, view.history
    name = "cpu_percent" if process.gpu_uuid is None else "gpu_busy_percent"
    series: Columns | None = history.process(process.key, process.gpu_uuid, name)
    if entry.together:
        keys = tuple(one.key for one in entry.together)
        series = Together(keys, lambda: [history.process(key, None, name) for key in keys])
    key = row_key(process), name
    return view.chart(key, series, width, 100.0, "gauge", window=window)[0]


def processes_of_gpu(view: View, uuid: str, width: int, most: int) -> list[Line]:
    """Draw the processes of one GPU in at most so many lines, whatever the overview's table
    shows."""
    own = replace(
        view,
        selected_gpu=uuid,
        this_gpu_only=True,
        filter_text="",
        selected_row=None,
        process_offset=0,
        all_processes=False,
    )
    table = table_rows(own, most - 1)
    return draw(own, table, width, min(most, len(table) + 1 or 2))[0]
