"""The process table: who uses the GPUs, and the children that feed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.core import units
from gpuwatch.core.model import Process, ProcessKey
from gpuwatch.tui.charts.strips import TimeWindow
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, fit, left, right
from gpuwatch.tui.view import RowKey, View, row_key


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the table. ``importance``: the least important are dropped first."""

    title: str
    sort: str
    width: int
    importance: int
    text: Callable[[Process], str]
    flush_left: bool = False


def _since(process: Process, now: float) -> float | None:
    started = process.started_at_unix_seconds
    return None if started is None else now - started


_NOBODY: Mapping[ProcessKey, float | None] = {}
_UNSORTED = {"S", "THR", "DATA"}
_GPU_SORTS = {"gpu", "gpu memory", "sm"}


def fields(
    now: float, gpu_labels: dict[str, str], waits: Mapping[ProcessKey, float | None] = _NOBODY
) -> tuple[Field, ...]:
    """All columns, left to right; the spark and the command come after them. Without a GPU, those
    that would be about one are left out. ``waits``: the data-wait shares that training processes
    tell of, which have a column where there are any."""
    everything: tuple[Field, ...] = (
        Field("GPU", "gpu", 4, 9, lambda p: gpu_labels.get(p.gpu_uuid or "", "")),
        Field("PID", "pid", 8, 10, lambda p: str(p.pid)),
        Field("USER", "user", 8, 5, lambda p: p.user or units.UNKNOWN, flush_left=True),
        Field("S", "user", 1, 2, lambda p: p.state or units.UNKNOWN, flush_left=True),
        Field("GPU-MEM", "gpu memory", 7, 8, _gpu_memory),
        Field("SM", "sm", 4, 9, _gpu_busy),
        Field("CPU", "cpu", 5, 7, lambda p: units.percent(p.cpu_percent)),
        Field("MEM", "memory", 6, 4, lambda p: units.size(p.memory_resident_bytes)),
        Field("THR", "user", 4, 1, lambda p: _count(p.threads)),
        Field("TIME", "time", 6, 3, lambda p: units.age(_since(p, now))),
    )
    if waits:
        wait = Field(
            "DATA", "gpu", 4, 8, lambda p: units.share(waits[p.key]) if p.key in waits else ""
        )
        everything = (*everything[:6], wait, *everything[6:])
    if gpu_labels:
        return everything
    return tuple(f for f in everything if f.title == "DATA" or f.sort not in _GPU_SORTS)


def _gpu_memory(process: Process) -> str:
    return units.size(process.gpu_memory_bytes) if process.gpu_uuid is not None else ""


def _gpu_busy(process: Process) -> str:
    return units.percent(process.gpu_busy_percent) if process.gpu_uuid is not None else ""


def _count(value: int | None) -> str:
    return units.UNKNOWN if value is None else str(value)


_SPARK_WIDTH = 12
_SPARK_IMPORTANCE = 6
_COMMAND_LEAST = 12


def choose(all_fields: Sequence[Field], width: int) -> tuple[list[Field], int]:
    """The columns that fit beside a readable command, and the width of the spark (0: none)."""
    chosen = list(all_fields)
    spark = _SPARK_WIDTH

    def needed() -> int:
        return 1 + sum(f.width + 1 for f in chosen) + (spark + 1 if spark else 0) + _COMMAND_LEAST

    while needed() > width and (chosen or spark):
        least = min((f.importance for f in chosen), default=99)
        if spark and least > _SPARK_IMPORTANCE:
            spark = 0
        elif len(chosen) > 1:
            chosen.remove(min(chosen, key=lambda f: f.importance))
        else:
            break
    if spark and width >= 150:
        spark = 24
    return chosen, spark


# -- which rows, in which order -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableRow:
    """A process and the branches drawn before its command (tree view)."""

    process: Process
    branch: str = ""


def rows(view: View) -> list[TableRow]:
    """The processes in the view's order, filtered, as a tree where that is asked for."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    order = {gpu.uuid: position for position, gpu in enumerate(snapshot.gpus)}
    ordered = sorted(
        snapshot.processes,
        key=_sort_key(view.sort, order, snapshot.taken_at_unix_seconds),
        reverse=view.reverse,
    )
    wanted = _wanted(view)
    if view.tree:
        return _as_tree(ordered, wanted, view)
    return [TableRow(process) for process in ordered if wanted(process)]


def _wanted(view: View) -> Callable[[Process], bool]:
    words = view.filter_text.lower().split()
    only = None
    if view.this_gpu_only and view.selected_gpu is not None and view.snapshot is not None:
        only = on_gpu(view.snapshot.processes, view.selected_gpu)

    def keep(process: Process) -> bool:
        if only is not None and row_key(process) not in only:
            return False
        if not words:
            return True
        text = f"{process.pid} {process.user or ''} {process.name or ''} {process.command or ''}"
        text = text.lower()
        return all(word in text for word in words)

    return keep


def on_gpu(processes: Sequence[Process], uuid: str) -> set[RowKey]:
    """The rows of this GPU: processes that use it, and those below them that use none."""
    users = {process.pid for process in processes if process.gpu_uuid == uuid}
    below: dict[int, list[Process]] = {}
    for process in processes:
        if process.gpu_uuid is None and process.parent_pid is not None:
            below.setdefault(process.parent_pid, []).append(process)
    keys = {row_key(process) for process in processes if process.gpu_uuid == uuid}
    waiting = list(users)
    while waiting:
        for child in below.pop(waiting.pop(), ()):
            keys.add(row_key(child))
            waiting.append(child.pid)
    return keys


def _sort_key(
    sort: str, order: dict[str, int], now: float
) -> Callable[[Process], tuple[float | str, ...]]:
    """Numbers largest first (unknown last), names and GPUs ascending; ties by GPU, then PID."""

    def down(value: float | None) -> float:
        return 1.0 if value is None else -value

    def tie(process: Process) -> tuple[float, float]:
        return (order.get(process.gpu_uuid or "", len(order)), process.pid)

    by: dict[str, Callable[[Process], tuple[float | str, ...]]] = {
        "gpu": lambda p: (tie(p)[0], down(p.gpu_memory_bytes), p.pid),
        "sm": lambda p: (down(p.gpu_busy_percent), *tie(p)),
        "gpu memory": lambda p: (down(p.gpu_memory_bytes), *tie(p)),
        "cpu": lambda p: (down(p.cpu_percent), *tie(p)),
        "memory": lambda p: (down(p.memory_resident_bytes), *tie(p)),
        "time": lambda p: (down(_since(p, now)), *tie(p)),
        "pid": lambda p: (p.pid, *tie(p)),
        "user": lambda p: (p.user or "~", *tie(p)),
        "command": lambda p: (p.command or "~", *tie(p)),
    }
    return by[sort]


def _as_tree(
    ordered: Sequence[Process], wanted: Callable[[Process], bool], view: View
) -> list[TableRow]:
    """Children under their parents. A match below keeps its ancestors in sight; a process on
    several GPUs has a row for each and its children under the first."""
    present = {process.pid for process in ordered}
    children: dict[int, list[Process]] = {}
    roots: list[Process] = []
    for process in ordered:
        parent = process.parent_pid
        if parent is not None and parent in present and parent != process.pid:
            children.setdefault(parent, []).append(process)
        else:
            roots.append(process)
    _sort_by_family(ordered, roots, children)
    keep = _with_ancestors(ordered, wanted)
    glyphs = view.glyphs
    out: list[TableRow] = []
    opened: set[int] = set()
    shown: set[RowKey] = set()
    # Torn parent links can form a loop, which no root leads to: nobody may be hidden for it.
    for start in (*roots, *ordered):
        waiting = [(start, "", "")] if row_key(start) in keep else []
        while waiting:
            process, branch, below = waiting.pop()
            if row_key(process) in shown:
                continue
            shown.add(row_key(process))
            out.append(TableRow(process, branch))
            if process.pid in opened:
                continue
            opened.add(process.pid)
            kept = [child for child in children.get(process.pid, ()) if row_key(child) in keep]
            lead, trunk = glyphs.last_branch, "  "
            for child in reversed(kept):
                waiting.append((child, below + lead, below + trunk))
                lead, trunk = glyphs.branch, glyphs.trunk
    return out


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


def _with_ancestors(ordered: Sequence[Process], wanted: Callable[[Process], bool]) -> set[RowKey]:
    by_pid = {process.pid: process for process in ordered}
    keep: set[RowKey] = set()
    for process in ordered:
        if not wanted(process):
            continue
        current: Process | None = process
        while current is not None and row_key(current) not in keep:
            keep.add(row_key(current))
            parent = current.parent_pid
            current = by_pid.get(parent) if parent is not None and parent != current.pid else None
    return keep


# -- drawing ------------------------------------------------------------------------------


def draw(
    view: View, table: Sequence[TableRow], width: int, height: int, top: int
) -> tuple[list[Line], list[Zone]]:
    """The heading and the rows from ``view.process_offset`` on, ``height`` lines in all."""
    if height <= 0:
        return [], []
    snapshot = view.snapshot
    now = snapshot.taken_at_unix_seconds if snapshot is not None else 0.0
    labels = _gpu_labels(view)
    jobs = () if snapshot is None else snapshot.jobs
    waits = {loop.key: loop.data_wait_share for job in jobs for loop in job.loops}
    chosen, spark = choose(fields(now, labels, waits), width)
    if view.slow_link:
        spark = 0
    heading, zones = _heading(view, chosen, spark, width, top, len(table))
    lines = [heading]
    shown = table[view.process_offset : view.process_offset + height - 1]
    for number, entry in enumerate(shown):
        lines.append(_row(view, entry, chosen, spark, width))
        zones.append(Zone(top + 1 + number, 0, width, "process", row_key(entry.process)))
    if not shown and height > 1:
        lines.append(_empty(view, width))
    while len(lines) < height:
        lines.append(((" " * width, "text"),))
    return lines, zones


def _gpu_labels(view: View) -> dict[str, str]:
    labels = {}
    for gpu in view.gpus:
        identity = gpu.identity
        labels[gpu.uuid] = (
            str(identity.index)
            if identity.mig_instance is None
            else f"{identity.index}.{identity.mig_instance}"
        )
    return labels


def _heading(
    view: View, chosen: Sequence[Field], spark: int, width: int, top: int, total: int
) -> tuple[Line, list[Zone]]:
    row = Row(width, prefix="b:")
    zones = []
    row.add(" ")
    arrow = view.glyphs.up if view.reverse else view.glyphs.down
    for field in chosen:
        sorted_here = view.sort == field.sort and field.title not in _UNSORTED
        title = field.title
        if sorted_here and len(title) < field.width:
            title += arrow
        start = row.used
        text = (left if field.flush_left else right)(title, field.width)
        row.add(text, "value" if sorted_here else "label").add(" ")
        if field.title not in _UNSORTED:
            zones.append(Zone(top, start, row.used, "sort", field.sort))
    if spark:
        row.add(left("LAST " + spark_span(view, spark), spark), "label").add(" ")
    start = row.used
    title = "COMMAND" + (arrow if view.sort == "command" else "")
    notes = [note for note in _notes(view, total) if len(title) + len(note) + 2 <= row.room]
    if not notes and view.filter_text:
        # What is left out must be said before what the column is called.
        row.add(fit(_notes(view, total)[-1], row.room, view.glyphs.ellipsis), "warn")
        return row.line(), zones
    row.add(title, "value" if view.sort == "command" else "label")
    zones.append(Zone(top, start, row.used, "sort", "command"))
    if notes:
        style = "warn" if view.filter_text else "label"
        row.pad_to(width - len(notes[0]) - 1).add(notes[0], style)
    return row.line(), zones


def _notes(view: View, total: int) -> list[str]:
    """What is listed, in full and shorter: a filter in force matters more than the count."""
    parts = []
    if view.filter_text:
        parts.append(f"filter: {fit(view.filter_text, 24, view.glyphs.ellipsis)}")
    if view.this_gpu_only:
        parts.append("this GPU only")
    count = f"{total} process{'' if total == 1 else 'es'}"
    return [", ".join([*parts, count]), ", ".join(parts), *parts[:1]] if parts else [count]


def _empty(view: View, width: int) -> Line:
    if view.snapshot is None:
        text = ""
    elif view.filter_text:
        text = "  No process matches the filter. Esc clears it."
    elif not view.gpus:
        text = "  Reading processes..."
    else:
        text = "  No process uses a GPU. Press a to see all processes."
    return Row(width).add(text, "dim").line()


_SPARK_SECONDS = 2.0


def spark_window(view: View, width: int) -> TimeWindow:
    """The sparks of a table cover the charts' range, in columns of at least 2 s, up to now."""
    return TimeWindow(view.window.now, max(view.timeline.span_seconds, width * _SPARK_SECONDS))


def spark_span(view: View, width: int) -> str:
    """What a spark of ``width`` cells covers: ``28s``, ``5m``, ``12h``."""
    seconds = spark_window(view, width).span_seconds
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 5400 else f"{seconds / 3600:.0f}h"


def _row(view: View, entry: TableRow, chosen: Sequence[Field], spark: int, width: int) -> Line:
    process = entry.process
    selected = row_key(process) == view.selected_row
    focused = selected and view.focus == "processes" and not view.in_findings
    row = Row(width, prefix="s:" if focused else "")
    row.add(view.glyphs.marker if selected else " ", "marker" if focused else "dim")
    for field in chosen:
        style = "text"
        text = field.text(process)
        if text in {units.UNKNOWN, "0%"} or field.title in {"USER", "TIME", "THR", "S"}:
            style = "dim"
        if field.title == "S" and text in {"D", "Z"}:
            style = "warn"
        row.add(
            (left if field.flush_left else right)(text, field.width, view.glyphs.ellipsis), style
        )
        row.add(" ")
    if spark:
        row.add_runs(_spark(view, process, spark), spark).add(" ")
    if entry.branch:
        row.add(fit(entry.branch, max(0, row.room - 4), ""), "dim")
    command = process.command or process.name or "(unseen)"
    style = "text" if process.gpu_uuid is not None or not view.gpus else "label"
    row.add(fit(command, row.room, view.glyphs.ellipsis), style)
    return row.line()


def _spark(view: View, process: Process, width: int) -> list[Run]:
    """SM share of a process on a GPU, CPU of one core for the others."""
    on_gpu = process.gpu_uuid is not None
    name = "gpu_busy_percent" if on_gpu else "cpu_percent"
    series = view.history.process(process.key, process.gpu_uuid, name)
    strip = view.strips.get((row_key(process), name, width))
    window = spark_window(view, width)
    style = "busy" if on_gpu else "children"
    return strip.draw(series, window, width, 100.0, view.glyphs, style)[0]
