"""Panels of one job: what it is, its GPUs, its processes as a tree, and what it prints."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gpuwatch.core import units
from gpuwatch.core.bounds import mean, total
from gpuwatch.core.model import (
    PIDS_OF_A_MACHINE,
    Gpu,
    Host,
    Job,
    JobMember,
    Process,
    ProcessKey,
    TrainingLoop,
)
from gpuwatch.jobs.words import cores_sentence, job_loading_sentence, loop_facts, role_name
from gpuwatch.outputs.terminal import Column
from gpuwatch.tui.charts.strips import Columns, TimeWindow
from gpuwatch.tui.pages.layout import (
    Drawn,
    GpuStyle,
    Page,
    Panel,
    Title,
    edge,
    filled,
    fixed,
    scrolled,
)
from gpuwatch.tui.panels.gpus import GpuPainter, throttle_text
from gpuwatch.tui.panels.job_charts import Together, has_reported, kinds
from gpuwatch.tui.panels.listing import (
    add_cells,
    add_headings,
    begin_row,
    branches,
    brief_command,
    fitting,
    state_style,
    width_of_columns,
)
from gpuwatch.tui.panels.processes import spark_span, spark_window
from gpuwatch.tui.runs import ended_at
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Run,
    Zone,
    fit,
    fit_end,
    fit_middle,
    left,
    right,
    width_of,
)
from gpuwatch.tui.view import View

# -- command, who, where, how it gets its data, the cores it has -----------------------------------


_GAP = "   "
_THROTTLED_WORTH_SAYING_PERCENT = 1.0


def _draw_title(page: Page, _rows: int) -> Drawn:
    """The command, and at the right that it has ended, if it has."""
    view, job, width = page.view, page.job, page.width
    assert job is not None
    ended = _end_text(view, job, brief=width < 76)
    note = f" {ended[0]} " if ended is not None else ""
    command = brief_command(job.command or f"PID {job.pid}")
    if page.boxed:
        return edge(view.glyphs, width, Title(command, (), *(ended or ())))
    row = Row(width).add(" ")
    row.add(fit(command, max(8, row.room - width_of(note) - 1), view.glyphs.ellipsis), "title")
    if ended is not None:
        row.pad_to(width - width_of(note)).add(note, ended[1])
    return [row.line()], []


TITLE = fixed("title", 1, _draw_title)


def _end_text(view: View, job: Job, brief: bool = False) -> Run | None:
    """``ended 12:03:11 after 2h13, exit code 1``, and its style; ``None``: it runs."""
    at = ended_at(view, job)
    if at is None:
        return None
    text = f"ended {time.strftime('%H:%M:%S', time.localtime(at))}"
    if job.started_at_unix_seconds is not None:
        text += f" after {units.age(at - job.started_at_unix_seconds)}"
    code = view.job.exit_code if job.exit_code is None else job.exit_code
    if code is None:
        return text, "warn"
    if code < 0:
        text += f", signal {-code}"
    else:
        text += f", exit {code}" if brief else f", exit code {code}"
    return text, "text" if code == 0 else "error"


def _fact_rows(page: Page) -> int:
    """Rows of facts, as long as each chart and three processes have theirs."""
    assert page.job is not None
    height = page.tall
    wanted = 1 if height < 14 else 2 if height < 18 or page.width >= 110 else 3
    wanted += height >= 14 and has_reported(page.view, page.job)
    return max(0, min(wanted, page.room - len(kinds(page)) - 3))


def _draw_facts(page: Page, rows: int) -> Drawn:
    """Draw at most ``rows`` lines of facts, most telling first, in the order of the screen."""
    view, job = page.view, page.job
    assert job is not None
    assert view.snapshot is not None
    known = job.ranks and job.loader_workers is not None
    loading = job_loading_sentence(job), "value" if known else "label"
    cores = _cores(job, view.snapshot.host)
    together = [loading, *cores]
    reported = _reported(view, job)
    flow = partial(_flow, view, page.width)
    if reported and rows <= 2:
        return [flow(reported), flow(together)][:rows], []
    most = rows - bool(reported)
    one_line = sum(width_of(text) + len(_GAP) for text, _ in together) <= page.width
    apart = most >= 3 and bool(cores) and not one_line
    lines = [flow(one) for one in (([loading], cores) if apart else (together,))]
    if most > 1:
        lines = [flow(_identity(view, job), gap="  "), *lines][:most]
    return [*lines, flow(reported)] if reported else lines, []


FACTS = Panel("facts", _fact_rows, _draw_facts)


def _reported(view: View, job: Job) -> list[Run]:
    """The job's report on its own loop."""
    now = None if view.snapshot is None else view.snapshot.taken_at_unix_seconds
    if ended_at(view, job) is not None:
        return []
    texts = loop_facts(job, now)
    return [(text, "value" if number == 0 else "text") for number, text in enumerate(texts)]


def _flow(view: View, width: int, facts: list[Run], gap: str = _GAP) -> Line:
    """Facts side by side; one that has no room is cut if it is the first, else left out."""
    row = Row(width).add(" ")
    for number, (text, style) in enumerate(facts):
        if number == 0:
            row.add(fit(text, row.room - 1, view.glyphs.ellipsis), style)
        elif row.room >= width_of(text) + len(gap) + 1:
            row.add(gap).add(text, style)
    return row.line()


def _identity(view: View, job: Job) -> list[Run]:
    assert view.snapshot is not None
    now, since = view.snapshot.taken_at_unix_seconds, job.started_at_unix_seconds
    inner = "" if job.inner_pid in (None, job.pid) else f" ({job.inner_pid} inside)"
    runs = since is not None and ended_at(view, job) is None
    facts = (
        (f"PID {job.pid}{inner}", "text"),
        (job.user, "text"),
        (f"for {units.age(now - (since or 0.0))}" if runs else None, "text"),
        (_ranks(job), "text"),
        (job.framework, "label"),
        (job.slurm_job and f"slurm {job.slurm_job}", "label"),
        (job.container and f"container {job.container}", "label"),
        (job.pod and f"pod {job.pod}", "label"),
        (job.environment, "label"),
        (job.working_directory and f"in {job.working_directory}", "label"),
    )
    return [(text, style) for text, style in facts if text]


def _ranks(job: Job) -> str | None:
    count = len(job.ranks)
    if count == 0:
        return None if job.launcher is None else f"{job.launcher}, no rank seen"
    if job.world_size is not None and job.world_size > count:
        text = f"{count} of {job.world_size} ranks here"
    elif count > 1:
        text = f"{count} ranks"
    else:
        return job.launcher
    return text if job.launcher is None else f"{text} ({job.launcher})"


def _cores(job: Job, host: Host) -> list[Run]:
    """``8 of 16 cores usable (quota 8.0), 4 per rank``, and whether it is held back."""
    facts: list[Run] = []
    cores = cores_sentence(job, host)
    if cores is not None:
        facts.append((cores, "label"))
    held = job.cpu_throttled_percent
    if held is not None and held >= _THROTTLED_WORTH_SAYING_PERCENT:
        facts.append((f"CPU throttled {held:.0f}% of the time", "warn"))
    return facts


# -- its GPUs: a line each, or one for all ---------------------------------------------------------


def _gpu_rows(page: Page) -> int:
    """A row for each GPU while they leave room for the rest, else one for all. What the GPUs do
    once the job has ended is not about it."""
    count, height = len(page.gpus), page.tall
    room = page.room - page.table_least - len(kinds(page))
    if page.decided["report"] or count == 0 or room < 1:
        return 0
    most = 1 if height < 20 else 2 if height < 30 else 4 if height < 40 else 8
    return count if count <= min(most, room) else 1


def _draw_gpus(page: Page, rows: int) -> Drawn:
    if rows != len(page.gpus):
        return [_gpu_summary(page.view, page.gpus, page.width)], []
    painter = GpuPainter(page.view, page.gpus, page.width, marked=False)
    if not page.decided["each_gpu"] and rows > 1:
        # Their mean has the chart below.
        return [line for gpu in page.gpus for line in painter.draw(gpu, GpuStyle.SINGLE, 1)], []
    return [painter.brief(gpu) for gpu in page.gpus], []


GPUS = Panel("gpus", _gpu_rows, _draw_gpus)


def _gpu_summary(view: View, gpus: Sequence[Gpu], width: int) -> Line:
    """Draw many GPUs in one line: what they have together, and the extremes."""
    readings = [gpu.reading for gpu in gpus]
    busy = [one.busy_percent for one in readings if one.busy_percent is not None]
    heat = [one.temperature_celsius for one in readings if one.temperature_celsius is not None]
    used = _sum_if_all_known([one.memory_used_bytes for one in readings])
    watts = _sum_if_all_known([one.power_watts for one in readings])
    row = Row(width).add(f" {len(gpus)} GPUs", "title")
    numbers = []
    if busy:
        low, high = round(min(busy)), round(max(busy))
        row.add("  busy ", "label")
        row.add(right(f"{low}%" if low == high else f"{low}-{high}%", 7), "value")
    if used is not None:
        whole = _sum_if_all_known([gpu.identity.memory_total_bytes for gpu in gpus])
        numbers.append(("mem", units.size_of(used, whole)))
    numbers.append(("power", units.watts(watts)))
    numbers.append(("temp to", units.celsius(max(heat, default=None))))
    for label, text in numbers:
        if row.room >= len(label) + len(text) + 3:
            row.add(f"  {label} ", "label").add(text, "value")
    lost = sum(gpu.lost for gpu in gpus)
    held = sum(throttle_text(one) is not None for one in readings)
    for count, what, style in ((lost, "lost", "error"), (held, "throttled", "warn")):
        if count:
            row.fits(f"  {view.glyphs.warning}{count} {what}", style)
    return row.line()


def _sum_if_all_known(values: Sequence[float | None]) -> float | None:
    """Return the sum, where all are known."""
    return None if None in values else total(values)


# -- its processes: what each is, what it does, what it waits for ----------------------------------


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
    """Command, where it differs from its parent's."""
    together: tuple[JobMember, ...] = ()
    """The loader workers of one parent in one row: ``member`` is their mean, with the key of the
    first."""
    loop: TrainingLoop | None = None
    """Report of this rank on its own loop."""
    machine: str | None = None
    """Machine of it and its children, for the topmost of a job on several machines."""

    @property
    def key(self) -> ProcessKey:
        return self.member.key


_NOTHING = {units.UNKNOWN, "0%", "0B", "0B/s", ""}


def _style(_row: TreeRow, text: str) -> str:
    return "dim" if text in _NOTHING else "text"


def _column(
    heading: str,
    width: int,
    rank: int,
    name: str,
    write: Callable[[float | None], str] = units.percent,
    *,
    waits_from: float | None = None,
    of_loop: bool = False,
) -> Column[TreeRow]:
    """A reading of the process, or of its report on its loop; a share of the time in which it waits
    is worth a look from ``waits_from`` on."""

    def read(row: TreeRow) -> float | None:
        return getattr(row.loop if of_loop else row.member, name, None)

    def text(row: TreeRow) -> str:
        return "" if of_loop and row.loop is None else write(read(row))

    def style(row: TreeRow, text: str) -> str:
        waits = waits_from is not None and (read(row) or 0.0) >= waits_from
        return "warn" if waits else _style(row, text)

    return Column(heading, text, rank=rank, width=width, style=style)


def _gpu_busy(row: TreeRow) -> str:
    """Return how busy it keeps its GPU; over several GPUs the mean."""
    return units.percent(mean(p.gpu_busy_percent for p in row.on_gpus)) if row.on_gpus else ""


def _gpu_memory(row: TreeRow) -> str:
    return units.size(total(p.gpu_memory_bytes for p in row.on_gpus)) if row.on_gpus else ""


COLUMNS: tuple[Column[TreeRow], ...] = (
    Column("PID", lambda r: "" if r.together else str(r.member.own_pid), width=8, style=_style),
    Column("S", lambda r: r.member.state or "-", "text", rank=6, width=1, style=state_style),
    _column("CPU", 5, 2, "cpu_percent"),
    _column("MAIN", 5, 5, "main_thread_cpu_percent"),
    _column("QUEUE", 5, 8, "run_queue_wait_percent", waits_from=_WAITS_PERCENT),
    _column("DISK", 5, 12, "disk_wait_percent", waits_from=_WAITS_PERCENT),
    _column("READ", 8, 11, "read_bytes_per_second", units.rate),
    _column("WRITE", 8, 14, "write_bytes_per_second", units.rate),
    _column("RSS", 6, 13, "memory_resident_bytes", units.size),
    _column("PSS", 6, 9, "memory_proportional_bytes", units.size),
    _column(
        *("DATA", 5, 1, "data_wait_share", units.share),
        waits_from=_WAITS_PERCENT / 100.0,
        of_loop=True,
    ),
    _column("COMPUTE", 7, 10, "compute_share", units.share, of_loop=True),
    Column("SM", _gpu_busy, rank=3, width=4, style=_style),
    Column("GPU-MEM", _gpu_memory, rank=7, width=7, style=_style),
)

_SPARK_RANK = 4
_SPARK_MOST = 24
_COMMAND_LEAST = 16


def _columns(
    view: View, job: Job, table: Sequence[TreeRow], width: int, now: float
) -> tuple[list[Column[TreeRow]], bool]:
    """Return the columns that fit, and whether the command has room to be read behind them; the
    charts end ``now``."""
    roles = [width_of(row.branch) + width_of(_role_text(row, width)) for row in table]
    role_width = min(max([4, *roles]), max(8, width * 3 // 10, min(16, width * 2 // 5)))
    on_gpu = bool(job.gpu_uuids) or any(row.on_gpus for row in table)
    without = set() if on_gpu else {"SM", "GPU-MEM"}
    without |= set() if job.loops else {"DATA", "COMPUTE"}
    role = Column[TreeRow](
        "ROLE", kind="text", width=role_width, runs=lambda row: _role(view, row, role_width, width)
    )
    columns = [role, *[one for one in COLUMNS if one.heading not in without]]
    if not view.slow_link:
        spark = 12 if width >= 60 else 8
        columns.append(Column("", kind="text", rank=_SPARK_RANK, width=spark))
    columns = fitting(columns, width - 1)
    room = width - 1 - width_of_columns(columns)
    if columns[-1].rank == _SPARK_RANK:
        kept = _COMMAND_LEAST if room >= 12 + _COMMAND_LEAST else 0
        spark = columns[-1].width
        wider = max(0, min(_SPARK_MOST - spark, room - kept)) if room >= 12 else 0
        spark, room = spark + wider, room - wider
        window = replace(spark_window(view, spark), now=now)
        columns[-1] = columns[-1]._replace(
            heading=f"CPU {spark_span(view, spark)}",
            width=spark,
            runs=lambda row: _spark(view, row, window, spark),
        )
    return columns, room >= _COMMAND_LEAST


def _role(view: View, row: TreeRow, role_width: int, width: int) -> list[Run]:
    branch = fit(row.branch, max(0, role_width - 4), "")
    style = "warn" if row.member.orphaned else ROLE_STYLES.get(row.member.role, "label")
    room = role_width - width_of(branch)
    return [(branch, "dim"), (left(_role_text(row, width), room, view.glyphs.ellipsis), style)]


# -- the rows -------------------------------------------------------------------------------


FOLDED_FROM = 33
"""Number of processes from which on the workers of a rank are one row unless they are asked for:
the ranks are what has to be compared then."""


def is_folded(view: View, job: Job) -> bool:
    folded = view.job.folded
    return len(job.members) >= FOLDED_FROM if folded is None else folded


def tree_rows(view: View, job: Job) -> list[TreeRow]:
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
    """Add up a family: shares as means, bytes as sums; the state is the one most of them are in."""
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


def draw_tree(page: Page, job: Job, height: int) -> Drawn:
    """The heading and the rows from ``view.job.offset`` on, ``height`` lines in all."""
    view, width, table = page.view, page.width, page.table
    state = view.job
    keys = [row.key for row in table]
    position = keys.index(state.selected) if state.selected in keys else None
    state.offset = scrolled(state.offset, position, page.table_page, len(table))
    if height <= 0:
        return [], []
    columns, has_command = _columns(view, job, table, width, page.window.now)
    heading = Row(width, prefix="b:").add(" ")
    add_headings(heading, columns)
    heading.add("COMMAND" if has_command else "", "label")
    lines, zones = [heading.note(units.plural(len(job.members), "process")).line()], []
    ellipsis = view.glyphs.ellipsis
    for entry in table[state.offset : state.offset + height - 1]:
        zones.append(Zone(len(lines), 0, width, "member", entry.key))
        selected = entry.key == state.selected
        focused = selected and not (state.pane_focused or view.in_findings)
        row = begin_row(width, view.glyphs, selected=selected, focused=focused)
        add_cells(row, columns, entry, ellipsis)
        if has_command:
            row.add(fit_middle(entry.command, row.room, ellipsis), "label")
        lines.append(row.line())
    if not table:
        lines.append(Row(width).add("  No process of this job is left.", "dim").line())
    return filled(lines, width, height), zones


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


# -- what it prints --------------------------------------------------------------------------------


def first_output_line(view: View, rows: int) -> int:
    """The number of the line at the pane's top: the end is followed unless it was scrolled."""
    output = view.job.output
    if output is None:
        return 0
    newest = max(output.first, output.total - rows)
    wanted = view.job.pane_first
    return newest if wanted is None else max(output.first, min(wanted, newest))


def _output_rows(page: Page) -> int:
    """Return the rows of the pane with its title; 0: hidden."""
    pane, height = page.view.job.pane, page.height
    if page.view.job.output is None or pane == "hidden" or height < 10:
        return 0
    return max(4, height * 6 // 10) if pane == "large" else max(3, min(12, height // 4))


def _draw_output(page: Page, height: int) -> Drawn:
    view, width, rows = page.view, page.width, height - 1
    output = view.job.output
    total = 0 if output is None else output.total
    first = first_output_line(view, rows)
    lines = [_output_title(view, width, first, total, rows)]
    for text in output.lines(first, rows) if output is not None else ():
        lines.append(Row(width).add(" ").add(fit(text, width - 2, view.glyphs.ellipsis)).line())
    if total == 0:
        lines.append(Row(width).add(" nothing printed yet", "dim").line())
    return filled(lines, width, height), []


OUTPUT = Panel("output", _output_rows, _draw_output)


def _output_title(view: View, width: int, first: int, total: int, rows: int) -> Line:
    state = view.job
    row = Row(width, prefix="b:")
    row.add(view.glyphs.marker if state.pane_focused else " ", "marker").add("OUTPUT", "label")
    below = max(0, total - first - rows)
    if state.pane_first is not None and below:
        note, style = f"{view.glyphs.down}{below} more, end follows", "warn"
    else:
        note, style = units.plural(total, "line"), "label"
    if state.output_name is not None:
        # Which file it is stands at the end of its path.
        room = row.room - len(note) - 4
        row.add("  ").add(fit_end(state.output_name, room, view.glyphs.ellipsis))
    return row.note(note, style).line()
