"""The process table: which processes it has in which order, and as many of its columns as fit."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.core.model import JobMember, Process
from gpuwatch.jobs.words import role_name
from gpuwatch.tui.charts.strips import TimeWindow
from gpuwatch.tui.charts.timeline import span_in
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, filled, scrolled
from gpuwatch.tui.panels.listing import (
    ListColumn,
    always_dim,
    begin_row,
    branches,
    brief_command,
    fitting,
    state_style,
)
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, fit, fit_middle, left
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
    """Command, with its number if it is one of several ranks. A process that serves one, and has
    the same command, by its role."""

    @property
    def key(self) -> RowKey:
        return row_key(self.process)


def table_rows(view: View) -> list[TableRow]:
    """The processes in the view's order, filtered, as a tree where that is asked for."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    ordered = sorted(snapshot.processes, key=_sort_key(view), reverse=view.reverse)
    wanted = _wanted(view)
    branch = [""] * len(ordered)
    if view.tree:
        ordered = _as_tree(ordered, wanted)
        branch = branches([(one.pid, one.parent_pid) for one in ordered], view.glyphs)
    else:
        ordered = [process for process in ordered if wanted(process)]
    labels = {gpu.uuid: units.gpu_label(gpu) for gpu in snapshot.gpus}
    waits = {
        loop.key: units.share(loop.data_wait_share) for job in snapshot.jobs for loop in job.loops
    }
    members = {member.key: member for job in snapshot.jobs for member in job.members}
    now = snapshot.taken_at_unix_seconds
    return [
        TableRow(
            process,
            before,
            labels.get(process.gpu_uuid or "", ""),
            None if (since := process.started_at_unix_seconds) is None else now - since,
            waits.get(process.key, ""),
            _command(process, members.get(process.key)),
        )
        for process, before in zip(ordered, branch, strict=False)
    ]


def _command(process: Process, member: JobMember | None) -> str:
    command = brief_command(process.command or process.name or "(unseen)")
    if member is None or member.role not in ("rank", "loader_worker"):
        return command
    if member.role == "loader_worker":
        return role_name(member)
    return command if member.rank is None else f"{role_name(member)}: {command}"


_NUMBERS = {
    "sm": "gpu_busy_percent",
    "gpu memory": "gpu_memory_bytes",
    "cpu": "cpu_percent",
    "memory": "memory_resident_bytes",
}


def _sort_key(view: View) -> Callable[[Process], tuple[float | str, ...]]:
    """Numbers largest first (unknown last), names and GPUs ascending; ties by GPU, then PID."""
    order = {gpu.uuid: position for position, gpu in enumerate(view.gpus)}
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

    def keep(process: Process) -> bool:
        if among is not None and row_key(process) not in among:
            return False
        user = (process.user or "").lower()
        if any(user not in names.split(",") for names in users):
            return False
        text = f"{process.pid} {process.user or ''} {process.name or ''} {process.command or ''}"
        return all(word in text.lower() for word in words)

    return keep


def _rows_of_gpu(processes: Sequence[Process], uuid: str) -> set[RowKey]:
    """The rows of this GPU: processes that use it, and those below them that use none."""
    below: dict[int | None, list[Process]] = {}
    for process in processes:
        if process.gpu_uuid is None:
            below.setdefault(process.parent_pid, []).append(process)
    found = [process for process in processes if process.gpu_uuid == uuid]
    for process in found:
        # It grows meanwhile: children of children are found too.
        found += below.pop(process.pid, ())
    return {row_key(process) for process in found}


def _as_tree(ordered: Sequence[Process], wanted: Callable[[Process], bool]) -> list[Process]:
    """Children under their parents. A match below keeps its ancestors in sight; a process on
    several GPUs has a row for each and its children under the first."""
    present = {process.pid: process for process in ordered}
    if not any(one.parent_pid in present for one in ordered):
        return [process for process in ordered if wanted(process)]
    children: dict[int, list[Process]] = {}
    roots: list[Process] = []
    for process in ordered:
        parent = process.parent_pid
        if parent is not None and parent in present and parent != process.pid:
            children.setdefault(parent, []).append(process)
        else:
            roots.append(process)
    _sort_by_family(ordered, roots, children)
    keep = _with_ancestors(ordered, wanted, present)
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
    """A family stands where its best member would: a launcher without a GPU stands where its
    first rank does."""
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


def _with_ancestors(
    ordered: Sequence[Process], wanted: Callable[[Process], bool], present: dict[int, Process]
) -> set[RowKey]:
    keep: set[RowKey] = set()
    for process in ordered:
        current: Process | None = process if wanted(process) else None
        while current is not None and row_key(current) not in keep:
            keep.add(row_key(current))
            parent = current.parent_pid
            current = None if parent is None else present.get(parent)
    return keep


# -- the columns -----------------------------------------------------------------------------------


def _on_gpu(write: Callable[[Process], str]) -> Callable[[TableRow], str]:
    return lambda row: write(row.process) if row.process.gpu_uuid is not None else ""


def _for(seconds: float | None) -> str:
    """Write how long it has run; after the first minute without seconds, which would have every row
    drawn anew each second."""
    minutes = 0 if seconds is None else int(seconds) // 60
    return f"{minutes}m" if 1 <= minutes < 60 else units.age(seconds)


COLUMNS: tuple[ListColumn[TableRow], ...] = (
    ListColumn("GPU", 4, 9, lambda r: r.gpu, sort="gpu"),
    ListColumn("PID", 8, 10, lambda r: str(r.process.own_pid), sort="pid"),
    ListColumn("USER", 8, 5, lambda r: r.process.user or "-", always_dim, "user", flush_left=True),
    ListColumn("S", 1, 2, lambda r: r.process.state or "-", state_style, flush_left=True),
    ListColumn(
        "GPU-MEM", 7, 8, _on_gpu(lambda p: units.size(p.gpu_memory_bytes)), sort="gpu memory"
    ),
    ListColumn("SM", 4, 9, _on_gpu(lambda p: units.percent(p.gpu_busy_percent)), sort="sm"),
    ListColumn("DATA", 4, 8, lambda r: r.wait),
    ListColumn("CPU", 5, 7, lambda r: units.percent(r.process.cpu_percent), sort="cpu"),
    ListColumn("MEM", 6, 4, lambda r: units.size(r.process.memory_resident_bytes), sort="memory"),
    ListColumn("THR", 4, 1, lambda r: units.count(r.process.threads), always_dim),
    ListColumn("TIME", 6, 3, lambda r: _for(r.seconds), always_dim, "time"),
)
"""Left to right; the chart and the command come after them."""

_CHART = "CHART"
CHOICES = {
    "GPU": "index of its GPU",
    "USER": "owner",
    "S": "state: R runs, S sleeps, D waits for a disk, Z has ended",
    "GPU-MEM": "memory on its GPU",
    "SM": "share of its GPU's time",
    "DATA": "waits for data, as reported by the job",
    "CPU": "100% is one core",
    "MEM": "resident memory",
    "THR": "threads",
    "TIME": "since it began",
    _CHART: "SM or CPU over time",
}
"""Columns that can be taken out, and what they show."""

_GPU_SORTS = {"gpu", "gpu memory", "sm"}
_SPARK_WIDTH = 12
_WIDE_SPARK_WIDTH = 24
_SPARK_IMPORTANCE = 6
_COMMAND_LEAST = 12


def _chosen(view: View, width: int) -> tuple[list[ListColumn[TableRow]], int]:
    """The columns that fit beside a readable command, and the width of the spark. Without a GPU,
    those that would be about one are left out."""
    jobs = () if view.snapshot is None else view.snapshot.jobs
    reported = any(job.loops for job in jobs)
    columns = [
        one
        for one in COLUMNS
        if one.title not in view.hidden
        and (one.title != "DATA" or reported)
        and (view.gpus or one.sort not in _GPU_SORTS)
    ]
    room = width - 1 - _COMMAND_LEAST
    spark = 0 if _CHART in view.hidden else _SPARK_WIDTH
    chosen, spark = fitting(columns, spark, _SPARK_IMPORTANCE, room)
    if view.slow_link:
        return chosen, 0
    return chosen, _WIDE_SPARK_WIDTH if spark and width >= 150 else spark


# -- drawing ------------------------------------------------------------------------------


def _rows(page: Page) -> int:
    """Return no rows, as the table takes what is left, and note how much that should be without a
    GPU."""
    page.table_least = min(max(0, page.room - 1), max(4, page.room * 2 // 5))
    return 0


def _draw(page: Page, rows: int) -> Drawn:
    view, table = page.view, page.table
    selected = view.selected_row
    places = (place for place, row in enumerate(table) if row.key == selected)
    position = None if selected is None else next(places, None)
    planned = max(1, page.room - 1)
    view.process_offset = scrolled(view.process_offset, position, planned, len(table))
    return draw(view, table, page.width, rows)


PANEL = Panel("table", _rows, _draw)


def draw(view: View, table: Sequence[TableRow], width: int, height: int) -> Drawn:
    """The heading and the rows from ``view.process_offset`` on, ``height`` lines in all."""
    if height <= 0:
        return [], []
    chosen, spark = _chosen(view, width)
    heading, zones = _heading(view, chosen, spark, width, len(table))
    lines = [heading]
    form = (chosen, spark, width, view.glyphs, bool(view.gpus))
    before_form, before = view.kept.get("rows", (None, {}))
    kept: dict[RowKey, tuple[object, Line]] = {}
    window = spark_window(view, spark)
    for entry in table[view.process_offset : view.process_offset + height - 1]:
        key = entry.key
        zones.append(Zone(len(lines), 0, width, "process", key))
        selected = key == view.selected_row
        focused = selected and view.focus == "processes" and not view.in_findings
        runs = _spark(view, entry.process, window, spark) if spark else []
        shown = (entry._replace(seconds=None), _for(entry.seconds), selected, focused, runs)
        found = before.get(key) if before_form == form else None
        if found is None or found[0] != shown:
            row = begin_row(width, view.glyphs, selected=selected, focused=focused)
            found = shown, _line(view, row, entry, chosen, runs, spark)
        kept[key] = found
        lines.append(found[1])
    view.kept["rows"] = form, kept
    if len(lines) == 1:
        lines.append(Row(width).add(_nothing_text(view), "dim").line())
    return filled(lines, width, height), zones


def _heading(
    view: View, chosen: Sequence[ListColumn[TableRow]], spark: int, width: int, total: int
) -> tuple[Line, list[Zone]]:
    row = Row(width, prefix="b:").add(" ")
    zones = []
    arrow = view.glyphs.up if view.reverse else view.glyphs.down
    for column in chosen:
        start = row.used
        by_this = view.sort == column.sort
        column.add_title(row, "value" if by_this else "label", arrow if by_this else "")
        if column.sort is not None:
            zones.append(Zone(0, start, row.used, "sort", column.sort))
    if spark:
        what = "SM/CPU" if view.gpus else "CPU"
        row.add(left(f"{what} {spark_span(view, spark)}", spark), "label").add(" ")
    start = row.used
    by_command = view.sort == "command"
    title = "COMMAND" + (arrow if by_command else "")
    notes = _notes(view, total)
    note = next((one for one in notes if len(title) + len(one) + 2 <= row.room), None)
    style = "warn" if view.filter_text else "label"
    if note is None and view.filter_text:
        # What is left out must be said before what the column is called.
        return row.add(fit(notes[-1], row.room, view.glyphs.ellipsis), style).line(), zones
    row.add(title, "value" if by_command else "label")
    zones.append(Zone(0, start, row.used, "sort", "command"))
    return row.note(note or "", style).line(), zones


def _notes(view: View, total: int) -> list[str]:
    """Notes on the list, in full and shorter: a filter in force matters more than the count."""
    parts = []
    if view.filter_text:
        parts.append(f"filter: {fit(view.filter_text, 24, view.glyphs.ellipsis)}")
    if view.this_gpu_only:
        parts.append("this GPU only")
    count = units.plural(total, "process")
    return [", ".join([*parts, count]), ", ".join(parts), *parts[:1]] if parts else [count]


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
        nothing = "No process uses this GPU. Press g to see those on all GPUs."
    else:
        nothing = "No process uses a GPU. Press a to see all processes."
    return f"  {nothing}"


_SPARK_SECONDS = 2.0


def spark_window(view: View, width: int) -> TimeWindow:
    """The sparks of a table cover the charts' range, in columns of at least 2 s, up to now."""
    return TimeWindow(view.window.now, max(view.timeline.span_seconds, width * _SPARK_SECONDS))


def spark_span(view: View, width: int) -> str:
    """Time that a spark of ``width`` cells covers: ``28s``, ``5m``, ``12h``."""
    return span_in(spark_window(view, width).span_seconds, "smh")


def _line(
    view: View,
    row: Row,
    entry: TableRow,
    chosen: Sequence[ListColumn[TableRow]],
    runs: Sequence[Run],
    spark: int,
) -> Line:
    process, ellipsis = entry.process, view.glyphs.ellipsis
    for column in chosen:
        column.add_cell(row, entry, ellipsis)
    if spark:
        row.add_runs(runs, spark).add(" ")
    row.add(fit(entry.branch, max(0, row.room - 4), ""), "dim")
    style = "text" if process.gpu_uuid is not None or not view.gpus else "label"
    return row.add(fit_middle(entry.command, row.room, ellipsis), style).line()


def _spark(view: View, process: Process, window: TimeWindow, width: int) -> list[Run]:
    """SM share of a process on a GPU, CPU of one core for the others."""
    name = "cpu_percent" if process.gpu_uuid is None else "gpu_busy_percent"
    series = view.history.process(process.key, process.gpu_uuid, name)
    strip = view.strips.get((row_key(process), name, width))
    return strip.draw(series, window, width, 100.0, view.glyphs, "gauge")[0]


def processes_of_gpu(view: View, uuid: str, width: int, most: int) -> list[Line]:
    """The processes of one GPU in at most so many lines, whatever the overview's table shows."""
    own = replace(
        view,
        selected_gpu=uuid,
        this_gpu_only=True,
        filter_text="",
        selected_row=None,
        process_offset=0,
        all_processes=False,
    )
    table = table_rows(own)
    return draw(own, table, width, min(most, len(table) + 1 or 2))[0]
