"""The processes of a job as a tree: what each is, what it does, what it waits for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuwatch.core import units
from gpuwatch.core.bounds import mean, total
from gpuwatch.core.model import PIDS_OF_A_MACHINE, Job, JobMember, Process, ProcessKey, TrainingLoop
from gpuwatch.jobs.words import role_name
from gpuwatch.tui.charts.strips import Columns, TimeWindow
from gpuwatch.tui.pages.layout import Drawn, Page, filled, scrolled
from gpuwatch.tui.panels.job.traces import Together
from gpuwatch.tui.panels.processes.table import spark_span, spark_window
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, fit, fit_middle, left, width_of
from gpuwatch.tui.terminal.listing import (
    ListColumn,
    begin_row,
    branches,
    brief_command,
    fitting,
    state_style,
    width_of_columns,
)
from gpuwatch.tui.view import View

ROLE_STYLES = {"rank": "main", "loader_worker": "worker"}
"""The colour of a role is that of its chart."""

_WAITS_PERCENT = 10.0


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A process of the job, its readings on GPUs, and the branches drawn before its role."""

    member: JobMember
    on_gpus: tuple[Process, ...]
    branch: str
    command: str
    """Only where it differs from its parent's."""
    together: tuple[JobMember, ...] = ()
    """The loader workers of one parent in one row: ``member`` is their mean, with the key of the
    first."""
    loop: TrainingLoop | None = None
    """This rank's report on its own loop."""
    machine: str | None = None
    """Where it and its children run, for the topmost of a job on several machines."""

    @property
    def key(self) -> ProcessKey:
        return self.member.key


_NOTHING = {units.UNKNOWN, "0%", "0B", "0B/s", ""}


def _style(_row: TreeRow, text: str) -> str:
    return "dim" if text in _NOTHING else "text"


def _column(
    title: str,
    width: int,
    importance: int,
    name: str,
    write: Callable[[float | None], str] = units.percent,
    *,
    waits_from: float | None = None,
    of_loop: bool = False,
) -> ListColumn[TreeRow]:
    """A reading of the process, or of its report on its loop; a share of the time in which it waits
    is worth a look from ``waits_from`` on."""

    def read(row: TreeRow) -> float | None:
        return getattr(row.loop if of_loop else row.member, name, None)

    def text(row: TreeRow) -> str:
        return "" if of_loop and row.loop is None else write(read(row))

    def style(row: TreeRow, text: str) -> str:
        waits = waits_from is not None and (read(row) or 0.0) >= waits_from
        return "warn" if waits else _style(row, text)

    return ListColumn(title, width, importance, text, style)


def _gpu_busy(row: TreeRow) -> str:
    """Over several GPUs the mean."""
    return units.percent(mean(p.gpu_busy_percent for p in row.on_gpus)) if row.on_gpus else ""


def _gpu_memory(row: TreeRow) -> str:
    return units.size(total(p.gpu_memory_bytes for p in row.on_gpus)) if row.on_gpus else ""


COLUMNS: tuple[ListColumn[TreeRow], ...] = (
    ListColumn("PID", 8, 10, lambda r: "" if r.together else str(r.member.own_pid), _style),
    ListColumn("S", 1, 7, lambda r: r.member.state or "-", state_style, flush_left=True),
    _column("CPU", 5, 9, "cpu_percent"),
    _column("MAIN", 5, 7, "main_thread_cpu_percent"),
    _column("QUEUE", 5, 6, "run_queue_wait_percent", waits_from=_WAITS_PERCENT),
    _column("DISK", 5, 3, "disk_wait_percent", waits_from=_WAITS_PERCENT),
    _column("READ", 8, 4, "read_bytes_per_second", units.rate),
    _column("WRITE", 8, 1, "write_bytes_per_second", units.rate),
    _column("RSS", 6, 2, "memory_resident_bytes", units.size),
    _column("PSS", 6, 5, "memory_proportional_bytes", units.size),
    _column(
        *("DATA", 5, 9, "data_wait_share", units.share),
        waits_from=_WAITS_PERCENT / 100.0,
        of_loop=True,
    ),
    _column("COMPUTE", 7, 4, "compute_share", units.share, of_loop=True),
    ListColumn("SM", 4, 8, _gpu_busy, _style),
    ListColumn("GPU-MEM", 7, 6, _gpu_memory, _style),
)

_SPARK_IMPORTANCE = 7
_SPARK_MOST = 24
_COMMAND_LEAST = 16


@dataclass(frozen=True, slots=True)
class _Shape:
    """Which columns there is room for."""

    role_width: int
    columns: Sequence[ListColumn[TreeRow]]
    spark: int
    command: bool


def _shape(view: View, job: Job, table: Sequence[TreeRow], width: int) -> _Shape:
    """The columns that fit beside the roles; the command only where there is room to read it."""
    roles = [width_of(row.branch) + width_of(_role_text(row, width)) for row in table]
    role_width = min(max([4, *roles]), max(8, width * 3 // 10, min(16, width * 2 // 5)))
    on_gpu = bool(job.gpu_uuids) or any(row.on_gpus for row in table)
    without = set() if on_gpu else {"SM", "GPU-MEM"}
    without |= set() if job.loops else {"DATA", "COMPUTE"}
    columns = [one for one in COLUMNS if one.title not in without]
    spark = 0 if view.slow_link else 12 if width >= 60 else 8
    chosen, spark = fitting(columns, spark, _SPARK_IMPORTANCE, width - 2 - role_width)
    room = width - 2 - role_width - width_of_columns(chosen, spark)
    if spark and room >= 12:
        kept = _COMMAND_LEAST if room >= 12 + _COMMAND_LEAST else 0
        wider = max(0, min(_SPARK_MOST - spark, room - kept))
        spark, room = spark + wider, room - wider
    return _Shape(role_width, chosen, spark, room >= _COMMAND_LEAST)


# -- the rows -------------------------------------------------------------------------------


FOLDED_FROM = 33
"""From so many processes on the workers of a rank are one row unless they are asked for: the ranks
are what has to be compared then."""


def is_folded(view: View, job: Job) -> bool:
    folded = view.job.folded
    return len(job.members) >= FOLDED_FROM if folded is None else folded


def rows(view: View, job: Job) -> list[TreeRow]:
    """All processes of the job, each under its parent; the loader workers of a parent as one row
    where they are folded."""
    on_gpus: dict[ProcessKey, list[Process]] = {}
    for process in () if view.snapshot is None else view.snapshot.processes:
        if process.gpu_uuid is not None:
            on_gpus.setdefault(process.key, []).append(process)
    places = {gpu.uuid: gpu.identity.machine for gpu in view.gpus}
    machines = {
        one.pid // PIDS_OF_A_MACHINE: places.get(one.gpu_uuid or "")
        for processes in on_gpus.values()
        for one in processes
    }
    members, families = _folded(job.members) if is_folded(view, job) else (job.members, {})
    commands = {member.pid: member.command for member in members}
    loops = {loop.key: loop for loop in job.loops}
    drawn = branches([(member.pid, member.parent_pid) for member in members], view.glyphs)
    out = []
    for member, branch in zip(members, drawn, strict=True):
        command = brief_command(member.command or member.name or "")
        parent = member.parent_pid
        if parent is not None and parent != member.pid and commands.get(parent) == member.command:
            command = ""
        family = families.get(member.key, ())
        own = [process for one in family or (member,) for process in on_gpus.get(one.key, ())]
        where = None if branch else machines.get(member.pid // PIDS_OF_A_MACHINE)
        loop = loops.get(member.key)
        out.append(TreeRow(member, tuple(own), branch, command, family, loop, where))
    return out


def _folded(
    members: Sequence[JobMember],
) -> tuple[list[JobMember], dict[ProcessKey, tuple[JobMember, ...]]]:
    """The members with all workers of a parent as one, and who they are."""
    workers: dict[tuple[int | None, bool], list[JobMember]] = {}
    for member in members:
        if member.role == "loader_worker":
            workers.setdefault((member.parent_pid, member.orphaned), []).append(member)
    out: list[JobMember] = []
    families: dict[ProcessKey, tuple[JobMember, ...]] = {}
    for member in members:
        family = workers.get((member.parent_pid, member.orphaned), [])
        if member.role != "loader_worker" or len(family) == 1:
            out.append(member)
        elif member is family[0]:
            out.append(_as_one(family))
            families[member.key] = tuple(family)
    return out, families


_MEANS = ("cpu_percent", "main_thread_cpu_percent", "run_queue_wait_percent", "disk_wait_percent")
_SUMS = (
    "read_bytes_per_second",
    "write_bytes_per_second",
    "memory_resident_bytes",
    "memory_proportional_bytes",
)


def _as_one(family: Sequence[JobMember]) -> JobMember:
    """Shares as means, bytes as sums; the state is the one most of them are in."""
    readings = {name: mean(getattr(one, name) for one in family) for name in _MEANS}
    readings |= {name: total(getattr(one, name) for one in family) for name in _SUMS}
    states = [one.state for one in family]
    return replace(
        family[0],
        state=max(states, key=states.count),
        role_guessed=any(one.role_guessed for one in family),
        **readings,  # type: ignore[arg-type]
    )


_SHORT_ROLES = (("training process", "trains"), ("loader worker", "worker"), ("orphaned", "orphan"))


def _role_text(row: TreeRow, width: int) -> str:
    """Name of its role; in shorter words where the screen is narrow."""
    name = role_name(row.member)
    name = name if row.machine is None else f"{row.machine}: {name}"
    if row.together:
        name = f"{len(row.together)} {name.replace('worker', 'workers')}"
    if width < 70:
        for long, short in _SHORT_ROLES:
            name = name.replace(long, short)
    return name


# -- drawing --------------------------------------------------------------------------------


def draw(page: Page, job: Job, height: int) -> Drawn:
    """The heading and the rows from ``view.job.offset`` on, ``height`` lines in all."""
    view, width, table = page.view, page.width, page.table
    state = view.job
    keys = [row.key for row in table]
    position = keys.index(state.selected) if state.selected in keys else None
    state.offset = scrolled(state.offset, position, page.table_page, len(table))
    if height <= 0:
        return [], []
    shape = _shape(view, job, table, width)
    lines, zones = [_heading(view, shape, width, len(job.members))], []
    sparks = replace(spark_window(view, shape.spark), now=page.window.now)
    for row in table[state.offset : state.offset + height - 1]:
        zones.append(Zone(len(lines), 0, width, "member", row.key))
        lines.append(_row(view, row, shape, sparks, width))
    if not table:
        lines.append(Row(width).add("  No process of this job is left.", "dim").line())
    return filled(lines, width, height), zones


def _heading(view: View, shape: _Shape, width: int, total: int) -> Line:
    row = Row(width, prefix="b:").add(" ").add(left("ROLE", shape.role_width), "label").add(" ")
    for column in shape.columns:
        column.add_title(row)
    if shape.spark:
        row.add(left(f"CPU {spark_span(view, shape.spark)}", shape.spark), "label").add(" ")
    if shape.command:
        row.add("COMMAND", "label")
    return row.note(units.plural(total, "process")).line()


def _row(view: View, entry: TreeRow, shape: _Shape, window: TimeWindow, width: int) -> Line:
    member, ellipsis = entry.member, view.glyphs.ellipsis
    selected = member.key == view.job.selected
    focused = selected and not (view.job.pane_focused or view.in_findings)
    row = begin_row(width, view.glyphs, selected=selected, focused=focused)
    branch = fit(entry.branch, max(0, shape.role_width - 4), "")
    style = "warn" if member.orphaned else ROLE_STYLES.get(member.role, "label")
    role = left(_role_text(entry, width), shape.role_width - width_of(branch), ellipsis)
    row.add(branch, "dim").add(role, style).add(" ")
    for column in shape.columns:
        column.add_cell(row, entry, ellipsis)
    if shape.spark:
        row.add_runs(_spark(view, entry, window, shape.spark), shape.spark).add(" ")
    if shape.command:
        row.add(fit_middle(entry.command, row.room, ellipsis), "label")
    return row.line()


def _spark(view: View, entry: TreeRow, window: TimeWindow, width: int) -> list[Run]:
    """CPU of one core; of workers in one row their mean."""
    member, history = entry.member, view.history
    uuids = {process.key: process.gpu_uuid for process in reversed(entry.on_gpus)}
    keys = tuple(one.key for one in entry.together) or (member.key,)
    series: Columns | None = history.process(member.key, uuids.get(member.key), "cpu_percent")
    if entry.together:
        series = Together(
            keys, lambda: [history.process(k, uuids.get(k), "cpu_percent") for k in keys]
        )
    strip = view.strips.get(("member", member.key, width))
    style = ROLE_STYLES.get(member.role, "gauge")
    return strip.draw(series, window, width, 100.0, view.glyphs, style)[0]
