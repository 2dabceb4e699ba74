"""The processes of a job as a tree: what each is, what it does, what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuwatch.core import units
from gpuwatch.core.model import Job, JobMember, Process, ProcessKey, TrainingLoop
from gpuwatch.jobs.words import role_name
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.charts.strips import Columns, TimeWindow
from gpuwatch.tui.panels.job.lines import Together
from gpuwatch.tui.panels.processes import spark_span, spark_window
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, fit, left, right, width_of
from gpuwatch.tui.view import View

ROLE_STYLES = {"rank": "main", "loader_worker": "worker"}
"""The colour of a role is that of its chart."""

_WORTH_A_LOOK_PERCENT = 10.0
_SERIES_KEPT = 256
"""A job that starts new workers each epoch must not fill the memory."""


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
    """What this rank tells of its own loop."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column. ``importance``: the least important are dropped first."""

    title: str
    width: int
    importance: int
    text: Callable[[TreeRow], str]
    warn_percent: Callable[[TreeRow], float | None] | None = None
    """A share that is worth a look from 10% on."""


def _gpu_memory(row: TreeRow) -> str:
    known = [p.gpu_memory_bytes for p in row.on_gpus if p.gpu_memory_bytes is not None]
    return "" if not row.on_gpus else units.size(sum(known) if known else None)


def _gpu_busy(row: TreeRow) -> str:
    """Over several GPUs the mean."""
    known = [p.gpu_busy_percent for p in row.on_gpus if p.gpu_busy_percent is not None]
    return "" if not row.on_gpus else units.percent(sum(known) / len(known) if known else None)


def _data_wait_percent(row: TreeRow) -> float | None:
    share = None if row.loop is None else row.loop.data_wait_share
    return None if share is None else 100.0 * share


def _told(row: TreeRow, name: str) -> str:
    return "" if row.loop is None else units.share(getattr(row.loop, name))


FIELDS: tuple[Field, ...] = (
    Field("PID", 8, 10, lambda r: "" if r.together else str(r.member.pid)),
    Field("S", 1, 7, lambda r: r.member.state or units.UNKNOWN),
    Field("CPU", 5, 9, lambda r: units.percent(r.member.cpu_percent)),
    Field("MAIN", 5, 7, lambda r: units.percent(r.member.main_thread_cpu_percent)),
    Field(
        "QUEUE",
        5,
        6,
        lambda r: units.percent(r.member.run_queue_wait_percent),
        lambda r: r.member.run_queue_wait_percent,
    ),
    Field(
        "DISK",
        5,
        3,
        lambda r: units.percent(r.member.disk_wait_percent),
        lambda r: r.member.disk_wait_percent,
    ),
    Field("READ", 8, 4, lambda r: units.rate(r.member.read_bytes_per_second)),
    Field("WRITE", 8, 1, lambda r: units.rate(r.member.write_bytes_per_second)),
    Field("RSS", 6, 2, lambda r: units.size(r.member.memory_resident_bytes)),
    Field("PSS", 6, 5, lambda r: units.size(r.member.memory_proportional_bytes)),
    Field("DATA", 5, 9, lambda r: _told(r, "data_wait_share"), _data_wait_percent),
    Field("COMPUTE", 7, 4, lambda r: _told(r, "compute_share")),
    Field("SM", 4, 8, _gpu_busy),
    Field("GPU-MEM", 7, 6, _gpu_memory),
)

_SPARK_IMPORTANCE = 7
_COMMAND_LEAST = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """Which columns there is room for."""

    role_width: int
    fields: tuple[Field, ...]
    spark: int
    command: bool


def choose(
    width: int, role_width: int, *, no_gpu: bool, no_spark: bool, told: bool = False
) -> Shape:
    """The columns that fit beside the roles; the command only where there is room to read it.
    ``told``: its ranks tell of their own loops."""
    without = {"SM", "GPU-MEM"} if no_gpu else set()
    without |= set() if told else {"DATA", "COMPUTE"}
    chosen = [f for f in FIELDS if f.title not in without]
    spark = 0 if no_spark else 12 if width >= 60 else 8

    def needed() -> int:
        return 2 + role_width + sum(f.width + 1 for f in chosen) + (spark + 1 if spark else 0)

    while needed() > width and len(chosen) > 1:
        least = min(chosen, key=lambda f: f.importance)
        if spark and least.importance > _SPARK_IMPORTANCE:
            spark = 0
        else:
            chosen.remove(least)
    room = width - needed()
    command = room >= _COMMAND_LEAST
    if spark and room >= 12:
        wider = min(24 - spark, room - (_COMMAND_LEAST if room >= 12 + _COMMAND_LEAST else 0))
        spark += max(0, wider)
        command = width - needed() >= _COMMAND_LEAST
    return Shape(role_width, tuple(chosen), spark, command)


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
    by_key: dict[ProcessKey, list[Process]] = {}
    if view.snapshot is not None:
        for process in view.snapshot.processes:
            if process.gpu_uuid is not None:
                by_key.setdefault(process.key, []).append(process)
    members, families = _folded(job.members) if is_folded(view, job) else (job.members, {})
    commands = {member.pid: member.command for member in members}
    loops = {loop.key: loop for loop in job.loops}
    branches = _branches(members, view.glyphs)
    out = []
    for member, branch in zip(members, branches, strict=True):
        command = member.command or member.name or ""
        parent = member.parent_pid
        if parent is not None and parent != member.pid and commands.get(parent) == member.command:
            command = ""
        family = families.get(member.key, ())
        on_gpus = [p for one in family or (member,) for p in by_key.get(one.key, ())]
        loop = loops.get(member.key)
        out.append(TreeRow(member, tuple(on_gpus), branch, command, family, loop))
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
            out.append(_mean_of(family))
            families[member.key] = tuple(family)
    return out, families


_MEANS = (
    "cpu_percent",
    "main_thread_cpu_percent",
    "run_queue_wait_percent",
    "disk_wait_percent",
)
_SUMS = (
    "read_bytes_per_second",
    "write_bytes_per_second",
    "memory_resident_bytes",
    "memory_proportional_bytes",
)


def _mean_of(family: Sequence[JobMember]) -> JobMember:
    """Shares as means, bytes as sums; the state is the one most of them are in."""
    readings: dict[str, float | None] = {}
    for name in (*_MEANS, *_SUMS):
        known = [value for one in family if (value := getattr(one, name)) is not None]
        total = sum(known) if known else None
        mean = name in _MEANS and total is not None
        readings[name] = total / len(known) if mean and total is not None else total
    states = [one.state for one in family]
    state = max(states, key=states.count)
    guessed = any(one.role_guessed for one in family)
    return replace(family[0], state=state, role_guessed=guessed, **readings)  # type: ignore[arg-type]


def _branches(members: Sequence[JobMember], glyphs: Glyphs) -> list[str]:
    """What is drawn before each role. Parents come before their children; one that comes later, or
    not at all, is none."""
    seen: set[int] = set()
    is_last = []
    for member in reversed(members):
        is_last.append(member.parent_pid not in seen)
        if member.parent_pid is not None:
            seen.add(member.parent_pid)
    is_last.reverse()
    below: dict[int, str] = {}
    out = []
    for member, last in zip(members, is_last, strict=True):
        trunk = None if member.parent_pid is None else below.get(member.parent_pid)
        if trunk is None or member.parent_pid == member.pid:
            out.append("")
            below[member.pid] = ""
        else:
            out.append(trunk + (glyphs.last_branch if last else glyphs.branch))
            below[member.pid] = trunk + ("  " if last else glyphs.trunk)
    return out


_SHORT_ROLES = (
    ("training process", "trains"),
    ("loader worker", "worker"),
    ("orphaned", "orphan"),
)


def role_text(row: TreeRow, width: int) -> str:
    """What it is; in shorter words where the screen is narrow."""
    name = role_name(row.member)
    if row.together:
        name = f"{len(row.together)} {name.replace('worker', 'workers')}"
    if width < 70:
        for long, short in _SHORT_ROLES:
            name = name.replace(long, short)
    return name


# -- drawing --------------------------------------------------------------------------------


def draw(
    view: View,
    job: Job,
    table: Sequence[TreeRow],
    window: TimeWindow,
    width: int,
    height: int,
    top: int,
) -> tuple[list[Line], list[Zone]]:
    """The heading and the rows from ``view.job.offset`` on, ``height`` lines in all."""
    if height <= 0:
        return [], []
    roles = [width_of(row.branch) + width_of(role_text(row, width)) for row in table]
    role_width = min(max([4, *roles]), max(8, width * 3 // 10, min(16, width * 2 // 5)))
    no_gpu = not job.gpu_uuids and not any(row.on_gpus for row in table)
    shape = choose(width, role_width, no_gpu=no_gpu, no_spark=view.slow_link, told=bool(job.loops))
    lines = [_heading(view, shape, width, len(job.members))]
    zones = []
    shown = table[view.job.offset : view.job.offset + height - 1]
    sparks = replace(spark_window(view, shape.spark), now=window.now)
    for number, row in enumerate(shown):
        lines.append(_row(view, row, shape, sparks, width))
        zones.append(Zone(top + 1 + number, 0, width, "member", row.member.key))
    if not shown and height > 1:
        text = "  No process of this job is left." if not table else ""
        lines.append(Row(width).add(text, "dim").line())
    while len(lines) < height:
        lines.append(((" " * width, "text"),))
    return lines[:height], zones


def _heading(view: View, shape: Shape, width: int, total: int) -> Line:
    row = Row(width, prefix="b:").add(" ").add(left("ROLE", shape.role_width), "label").add(" ")
    for field in shape.fields:
        row.add((left if field.title == "S" else right)(field.title, field.width), "label").add(" ")
    if shape.spark:
        row.add(left(f"CPU {spark_span(view, shape.spark)}", shape.spark), "label").add(" ")
    if shape.command:
        row.add("COMMAND", "label")
    note = f"{total} process{'' if total == 1 else 'es'}"
    if row.room >= len(note) + 2:
        row.pad_to(width - len(note) - 1).add(note, "label")
    return row.line()


def _row(view: View, entry: TreeRow, shape: Shape, window: TimeWindow, width: int) -> Line:
    member = entry.member
    glyphs = view.glyphs
    selected = member.key == view.job.selected
    focused = selected and not (view.job.pane_focused or view.in_findings)
    row = Row(width, prefix="s:" if focused else "")
    row.add(glyphs.marker if selected else " ", "marker" if focused else "dim")
    branch = fit(entry.branch, max(0, shape.role_width - 4), "")
    row.add(branch, "dim")
    style = "warn" if member.orphaned else ROLE_STYLES.get(member.role, "label")
    role = role_text(entry, width)
    row.add(left(role, shape.role_width - width_of(branch), glyphs.ellipsis), style).add(" ")
    for field in shape.fields:
        text = field.text(entry)
        place = left if field.title == "S" else right
        row.add(place(text, field.width, glyphs.ellipsis), _style(field, entry, text)).add(" ")
    if shape.spark:
        row.add_runs(_spark(view, entry, window, shape.spark), shape.spark).add(" ")
    if shape.command:
        row.add(fit(entry.command, row.room, glyphs.ellipsis), "label")
    return row.line()


_NOTHING = {units.UNKNOWN, "0%", "0B", "0B/s", ""}


def _style(field: Field, row: TreeRow, text: str) -> str:
    if field.title == "S":
        return "warn" if text in {"D", "Z"} else "dim"
    if field.warn_percent is not None:
        share = field.warn_percent(row)
        if share is not None and share >= _WORTH_A_LOOK_PERCENT:
            return "warn"
    return "dim" if text in _NOTHING else "text"


def _spark(view: View, entry: TreeRow, window: TimeWindow, width: int) -> list[Run]:
    """CPU of one core; of workers in one row their mean."""
    member = entry.member
    series: Columns | None
    if entry.together:
        series = _together(view, entry)
    else:
        uuid = entry.on_gpus[0].gpu_uuid if entry.on_gpus else None
        series = view.history.process(member.key, uuid, "cpu_percent")
    strip = view.strips.get(("member", member.key, width))
    style = ROLE_STYLES.get(member.role, "children")
    return strip.draw(series, window, width, 100.0, view.glyphs, style)[0]


def _together(view: View, entry: TreeRow) -> Together:
    """Kept while the workers are the same ones."""
    keys = tuple([one.key for one in entry.together])
    known = view.job.series.get(keys)
    if isinstance(known, Together):
        return known
    uuids = {process.key: process.gpu_uuid for process in entry.on_gpus}
    history = view.history
    made = Together(lambda: [history.process(key, uuids.get(key), "cpu_percent") for key in keys])
    if len(view.job.series) >= _SERIES_KEPT:
        view.job.series.clear()
    view.job.series[keys] = made
    return made
