"""Page of one job: what it is, its GPUs, who is busy and who waits, its processes, its output.

Once it has ended, its report takes the place of the processes. First its panels, then the page,
then the screens.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textual.binding import BindingType

from gpuwatch.core import units
from gpuwatch.core.bounds import highest, mean, total
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
from gpuwatch.core.registry import GPU, LOOP, MEMBER, PROCESS, Field
from gpuwatch.diagnosis.rule import STRAGGLER, THROTTLED, WAITING
from gpuwatch.jobs.words import cores_sentence, job_loading_sentence, loop_facts, role_name
from gpuwatch.outputs.terminal import Column
from gpuwatch.tui.charts.strips import Columns, TimeWindow, Together, mean_shown
from gpuwatch.tui.keys import JOB_FOOTER, JOB_KEYS, REPORT_FOOTER, REPORT_KEYS, Footer, bindings
from gpuwatch.tui.pages.layout import (
    BOTTOM,
    Drawn,
    Frame,
    GpuStyle,
    Page,
    Panel,
    Title,
    chart_legend,
    edge,
    edge_panel,
    filled,
    fixed,
    has_boxes,
    laid_out,
    range_keys,
    scrolled,
    too_small,
)
from gpuwatch.tui.pages.screen import (
    END,
    CursorPlace,
    ListScreen,
    ScrolledScreen,
    SheetBody,
    draw_sheet,
)
from gpuwatch.tui.panels import findings, job_charts, time_axis
from gpuwatch.tui.panels.bars import HEADER, draw_footer, draw_header, footer_panel
from gpuwatch.tui.panels.gpus import GAUGED, LEAD, GpuPainter, common_limits, is_held_back, state_of
from gpuwatch.tui.panels.job_charts import has_reported
from gpuwatch.tui.panels.processes import count_of, spark_span, spark_window
from gpuwatch.tui.panels.table import (
    add_cells,
    add_headings,
    begin_row,
    branches,
    brief_command,
    fit_command,
    fitting,
    heading_notes,
    hidden,
    in_room,
    is_folded,
    share_of_each,
    short_role,
    state_style,
    stepping_back,
    width_of_columns,
)
from gpuwatch.tui.panels.time_axis import shown_gpu, shown_process
from gpuwatch.tui.runs import ended_at, find_job
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Run,
    Zone,
    fit,
    fit_end,
    left,
    right,
    width_of,
)
from gpuwatch.tui.view import PANES, View

# -- command, who, where, how it gets its data, the cores it has -----------------------------------


_THROTTLED_WORTH_SAYING_PERCENT = 1.0


def _draw_title(page: Page, _rows: int) -> Drawn:
    """Draw the command, and at the right that it has ended, if it has."""
    view, job, width = page.view, page.job, page.width
    assert job is not None
    ended = _end_text(view, job, brief=width < 76, reported=page.decided["report"])
    note = f" {ended[0]} " if ended is not None else ""
    command, ellipsis = job.command or f"PID {job.pid}", view.glyphs.ellipsis
    named = "report: " if page.decided["report"] else ""
    if page.boxed:
        note_run = ended or (_shared_limits(page),)
        room = width - width_of(note_run[0]) - _TITLE_ENDS
        command = fit_command(command, room, ellipsis, named)
        return edge(view.glyphs, width, Title(command, (), *note_run))
    row = Row(width).add(" ")
    room = max(8, row.room - width_of(note) - 1)
    row.add(fit_command(command, room, ellipsis, named), "title")
    if ended is not None:
        row.pad_to(width - width_of(note)).add(note, ended[1])
    return [row.line()], []


TITLE = fixed("title", 1, _draw_title)
_TITLE_ENDS = 8
"""Cells around the name and the note of a title."""


def _end_text(view: View, job: Job, brief: bool = False, *, reported: bool = False) -> Run | None:
    """Return ``ended 12:03:11 after 2h13, exit code 1``, and its style; ``None``: it runs. Where it
    is ``reported``, the report says how long it ran."""
    at = ended_at(view, job)
    if at is None:
        return None
    text = f"ended {units.clock(at)}"
    if job.started_at_unix_seconds is not None and not reported:
        text += f" after {units.age(at - job.started_at_unix_seconds)}"
    code = view.job.exit_code if job.exit_code is None else job.exit_code
    if code is None:
        return text, "value"
    if code < 0:
        text += f", signal {-code}"
    else:
        text += f", exit {code}" if brief else f", exit code {code}"
    return text, "text" if code == 0 else "error"


def _fact_rows(page: Page) -> int:
    """Rows of facts, as long as each chart and three processes have theirs."""
    assert page.job is not None
    height = page.tall
    # What to do comes before what it is.
    two = height < 18 or _fits_in_two(page) or job_charts.are_compared(page)
    wanted = 0 if height < 14 else 2 if two else 3
    wanted += height >= 14 and has_reported(page.view, page.job)
    return max(0, min(wanted, page.room - job_charts.count_of(page) - 3))


def _data_and_cpu(page: Page) -> tuple["_Fact", "_Fact"]:
    """Return how the job gets its data, and the cores that it may use."""
    view, job = page.view, page.job
    assert job is not None
    assert view.snapshot is not None
    known = job.ranks and job.loader_workers is not None
    data = ("data", [(job_loading_sentence(job), "text" if known else "label")])
    return data, ("CPU", _cores(job, view.snapshot.host))


def _fits_in_two(page: Page) -> bool:
    """Check whether the second line of facts has room for the job's data and its cores."""
    return page.width >= _BESIDE or sum(map(_cells_of, _data_and_cpu(page))) < page.width


def _cells_of(fact: "_Fact") -> int:
    """Count the cells of a fact, with its label and what keeps it apart."""
    _, runs = fact
    return _LABEL + 3 + sum([width_of(text) + 2 for text, _ in runs]) if runs else 0


def _draw_facts(page: Page, rows: int) -> Drawn:
    """Draw at most ``rows`` lines of facts, most telling first, in the order of the screen; two
    beside each other where that is wide enough."""
    view, job = page.view, page.job
    assert job is not None
    data, cpu = _data_and_cpu(page)
    loop = ("loop", _reported(page, job))
    said, reported = _identity(view, job), bool(loop[1])
    lines: list[Sequence[_Fact]] = [[data, cpu]]
    second = 0
    if rows - reported > 1:
        lines = [[("job", said[0]), ("env", said[1])], [data, cpu]]
        if page.width >= _BESIDE:
            # In steps, as the time that it has run for gets longer.
            ends = 2 + max([_cells_of(one) for one, _ in lines])
            second = min(page.width // 2, -(-ends // _STEP) * _STEP)
        else:
            lines = [[("job", [*said[0], *said[1]])], [data, cpu]]
            lines = [lines[0], [data], [cpu]] if rows - reported > 2 and cpu[1] else lines
    if reported:
        lines = [*lines, [loop]] if rows > 2 else [[loop], *lines]
    return [_fact_line(view, page.width, one, second) for one in lines][:rows], []


_Fact = tuple[str, Sequence[Run]]
"""A label, and what stands behind it."""
_LABELLED, _BESIDE = 60, 110
"""Widths from which on facts have labels, and stand in two columns."""
_LABEL = 6
_STEP = 10
"""Cells of which a multiple is before the second column."""


FACTS = Panel("facts", _fact_rows, _draw_facts)


def _reported(page: Page, job: Job) -> list[Run]:
    """Return the job's report on its own loop, but what the charts of the page say."""
    snapshot = page.view.snapshot
    if ended_at(page.view, job) is not None:
        return []
    said = {name for trace, rows in job_charts.shown(page) for name in trace.says(rows)}
    texts = loop_facts(job, None if snapshot is None else snapshot.taken_at_unix_seconds, said)
    return [(text, "text") for text in texts]


def _fact_line(view: View, width: int, facts: Sequence[_Fact], second: int) -> Line:
    """Draw facts beside each other, the second from the cell ``second`` on or where the first ends;
    what has no room is cut if it is the first, else left out."""
    row, labelled = Row(width).add(" "), width >= _LABELLED
    for number, (label, runs) in enumerate(facts):
        if number and runs:
            row.add("  ").pad_to(second)
        if labelled and runs and row.room > _LABEL + width_of(runs[0][0]) * bool(number):
            row.add(" ").add(left(label, _LABEL), "label")
        for place, (text, style) in enumerate(runs):
            gap = "  " * bool(place)
            if number == place == 0:
                row.add(fit(text, row.room - 1, view.glyphs.ellipsis), style)
            elif row.room >= width_of(text) + len(gap) + 1:
                row.add(gap).add(text, style)
    return row.line()


def _identity(view: View, job: Job) -> tuple[list[Run], list[Run]]:
    """Return which job it is, and in what it runs."""
    assert view.snapshot is not None
    now, since = view.snapshot.taken_at_unix_seconds, job.started_at_unix_seconds
    inner = "" if job.inner_pid in (None, job.pid) else f" ({job.inner_pid} inside)"
    runs = since is not None and ended_at(view, job) is None
    own = (
        f"PID {job.pid}{inner}",
        job.user,
        f"for {units.age(now - (since or 0.0))}" if runs else None,
        _ranks(job),
    )
    around = (
        # The name of an environment says it mostly.
        None if job.framework and job.framework in (job.environment or "") else job.framework,
        job.slurm_job and f"slurm {job.slurm_job}",
        job.container and f"container {job.container}",
        job.pod and f"pod {job.pod}",
        job.environment,
        job.working_directory and f"in {job.working_directory}",
    )
    first, second = ([(text, "text") for text in texts if text] for texts in (own, around))
    return first, second


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
    """Return ``8 of 16 cores usable (quota 8.0), 4 per rank``, and whether it is held back."""
    facts: list[Run] = []
    cores = cores_sentence(job, host)
    if cores is not None:
        facts.append((cores, "text"))
    held = job.cpu_throttled_percent
    if held is not None and held >= _THROTTLED_WORTH_SAYING_PERCENT:
        facts.append((f"CPU throttled {held:.0f}% of the time", "warn"))
    return facts


# -- its GPUs: a line each, or one for all ---------------------------------------------------------


def _gpu_rows(page: Page) -> int:
    """Return a row for each GPU, or for all that show the same where a finding sets some apart,
    while they leave room for the rest, else one for all. What the GPUs do once the job has ended is
    not about it."""
    height = page.tall
    room = page.room - page.table_least - job_charts.count_of(page)
    groups, compared = job_charts.groups_of(page), job_charts.are_compared(page)
    if not compared and len(page.gpus) > _MOST_AS_ONE:
        groups = [[gpu] for gpu in page.gpus]
    page.decided["in lines"] = groups
    if page.decided["report"] or not page.gpus or room < 1 or (compared and height < 14):
        return 0
    most = 1 if height < 20 else 2 if height < 30 else 4 if height < 40 else 8
    return len(groups) if len(groups) <= min(most, room) else 1


_MOST_AS_ONE = 4
"""GPUs at most that have one line together; of more each has a strip."""


def _shared_limits(page: Page) -> str:
    """Return the name and the limits of GPUs that are all of a kind, for the title of the page;
    nothing where it has none or no room, or they have one line together."""
    job, groups = page.job, page.decided.get("in lines", ())
    each = page.rows.get("gpus", 0) == len(groups) > 0
    if job is None or not page.boxed or not each:
        return ""
    kind, least = common_limits(page.gpus), width_of(brief_command(job.command or ""))
    if kind:
        names = [GPU[name].short for name in GAUGED]
        kind = [kind[0], *map("/".join, zip(names, kind[1:], strict=True))]
    if not page.decided["apart"] and page.rows["gpus"] > 1:
        # In the lines they would take the room of the charts.
        least = min(least, page.width // 2)
    limits = "  ".join(kind)
    room = page.width - width_of(limits) - _TITLE_ENDS
    return limits if least <= room else ""


def _draw_gpus(page: Page, rows: int) -> Drawn:
    groups: list[list[Gpu]] = page.decided["in lines"]
    if rows != len(groups):
        shown = [shown_gpu(page.view, gpu) for gpu in page.gpus]
        waits = any(state_of(page.view, gpu) is WAITING for gpu in page.gpus)
        return [_gpu_summary(shown, page.width, waits=waits)], []
    lead, _ = job_charts.span(page.width)
    painter = GpuPainter(
        # Of those that show the same one stands for all.
        *(page.view, [group[0] for group in groups], page.width, GpuStyle.SINGLE),
        marked=False,
        lead=lead,
        alike=bool(_shared_limits(page)),
        headed=False,
        index_width=max([width_of(units.ranges(map(units.gpu_label, one))) for one in groups]),
    )
    if not page.decided["apart"] and rows > 1:
        # Their mean has the chart below.
        page.decided["beside"] = painter.cells_beside - 1
        return [line for gpu in page.gpus for line in painter.draw(gpu, 1)], []
    return [painter.brief(group) for group in groups], []


GPUS = Panel("gpus", _gpu_rows, _draw_gpus)


def _gpu_summary(gpus: Sequence[Gpu], width: int, *, waits: bool) -> Line:
    """Draw many GPUs in one line: what they have together, and the extremes. Where one ``waits``
    while it is busy, how much they work."""
    readings = [gpu.reading for gpu in gpus]
    used = _sum_if_all_known([one.memory_used_bytes for one in readings])
    whole = _sum_if_all_known([gpu.identity.memory_total_bytes for gpu in gpus])
    watts = _sum_if_all_known([one.power_watts for one in readings])
    row = Row(width).add(f" {len(gpus)} GPUs", "title")
    working = [one.sm_active_percent for one in readings] if waits else [None]
    busy = "busy", [one.busy_percent for one in readings]
    name, percents = busy if None in working else (GPU["sm_active_percent"].label, working)
    for label, text in (
        (name, _reach(percents)),
        ("mem", "" if used is None else units.size_of(used, whole)),
        ("power", units.watts(watts)),
        ("temp to", units.celsius(highest([one.temperature_celsius for one in readings]))),
    ):
        if text and row.room >= len(label) + len(text) + 3:
            row.add(f"  {label} ", "label").add(text, "value")
    lost = sum(gpu.lost for gpu in gpus)
    held = sum(map(is_held_back, readings))
    for count, what, style in (
        (lost, "not answering", "error"),
        (held, THROTTLED.word, THROTTLED.hue),
    ):
        if count:
            row.fits(f"  {count} {what}", style)
    return row.line()


def _reach(percents: Sequence[float | None]) -> str:
    """Return ``31-99%``, as wide as any; nothing where none is known."""
    known = [round(one) for one in percents if one is not None]
    if not known:
        return ""
    return right("-".join(map(str, dict.fromkeys((min(known), max(known))))) + "%", 7)


def _sum_if_all_known(values: Sequence[float | None]) -> float | None:
    """Return the sum, where all are known."""
    return None if None in values else total(values)


# -- its processes: what each is, what it does, what it waits for ----------------------------------


_ROLE_CHARTS = {"rank": "main", "loader_worker": "worker"}
"""The chart of a role, which has its colour where the leading finding is about it."""

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
    workers: JobMember | None = None
    """Mean of its loader workers, where they have no row."""
    worker_count: int = 0
    workers_hue: str = ""
    """The colour of that number, where the leading finding is about them."""
    sm_active_percent: float | None = None
    """How active the SMs of its GPUs are, where nothing else runs on them."""
    is_late: bool = False
    """The others wait for this rank."""
    hue: str = ""
    """The colour of its name and, but for one that is late, of its chart, where the leading finding
    is about that."""

    @property
    def key(self) -> ProcessKey:
        return self.member.key


_NOTHING = {units.UNKNOWN, "0%", "0B", "0B/s", ""}


def _style(_row: TreeRow, text: str) -> str:
    return "dim" if text in _NOTHING else "text"


_CPU = MEMBER["cpu_percent"]
_GPU_BUSY, _GPU_MEMORY = PROCESS["gpu_busy_percent"], PROCESS["gpu_memory_bytes"]
_SM_ACTIVE = GPU["sm_active_percent"]
_DATA_WAIT, _IN_STEPS = LOOP["data_wait_share"], LOOP["compute_share"]


def _column(
    width: int, rank: int, field: Field, *, waits_from: float | None = None, role: str = ""
) -> Column[TreeRow]:
    """Return a reading of the process, or of its report on its loop; a share of the time in which
    it waits is worth a look from ``waits_from`` on. ``role``: only processes of that role have
    it."""

    of_loop = field in LOOP.values()

    def read(row: TreeRow) -> float | None:
        return getattr(row.loop if of_loop else row.member, field.name, None)

    def text(row: TreeRow) -> str:
        has_none = (of_loop and row.loop is None) or role not in ("", row.member.role)
        said = "" if has_none else field.text(read(row))
        return share_of_each(said, len(row.together), width) if field is _CPU else said

    def style(row: TreeRow, text: str) -> str:
        waits = waits_from is not None and (read(row) or 0.0) >= waits_from
        return "warn" if waits else _style(row, text)

    return Column(field.short_heading, text, rank=rank, width=width, style=style)


def _gpu_busy(row: TreeRow) -> str:
    """Return how busy it keeps its GPU; over several GPUs the mean."""
    return _GPU_BUSY.text(mean(p.gpu_busy_percent for p in row.on_gpus)) if row.on_gpus else ""


def _gpu_memory(row: TreeRow) -> str:
    return _GPU_MEMORY.text(total(p.gpu_memory_bytes for p in row.on_gpus)) if row.on_gpus else ""


_WORKERS = "WORKERS"


def _workers(row: TreeRow) -> str:
    """Return the mean CPU of each of its loader workers and how many they are."""
    one, width = row.workers, len(_WORKERS)
    return "" if one is None else share_of_each(_CPU.text(one.cpu_percent), row.worker_count, width)


def _sm_active(row: TreeRow) -> str:
    is_known = any(one.gpu_busy_percent is not None for one in row.on_gpus)
    return _SM_ACTIVE.text(row.sm_active_percent) if is_known else ""


COLUMNS: tuple[Column[TreeRow], ...] = (
    Column("PID", lambda r: "" if r.together else str(r.member.own_pid), width=8, style=_style),
    Column("S", lambda r: r.member.state or "-", "text", rank=6, width=1, style=state_style),
    _column(6, 2, _CPU),
    _column(5, 5, MEMBER["main_thread_cpu_percent"], role="rank"),
    Column(
        *(_WORKERS, _workers),
        rank=3,
        width=len(_WORKERS),
        style=lambda row, text: row.workers_hue or _style(row, text),
    ),
    _column(8, 8, MEMBER["run_queue_wait_percent"], waits_from=_WAITS_PERCENT),
    _column(9, 12, MEMBER["disk_wait_percent"], waits_from=_WAITS_PERCENT),
    _column(8, 11, MEMBER["read_bytes_per_second"]),
    _column(8, 14, MEMBER["write_bytes_per_second"]),
    _column(6, 13, MEMBER["memory_resident_bytes"]),
    _column(6, 9, MEMBER["memory_proportional_bytes"]),
    _column(5, 1, _DATA_WAIT, waits_from=_WAITS_PERCENT / 100.0),
    _column(5, 10, _IN_STEPS),
    Column(_GPU_BUSY.short_heading, _gpu_busy, rank=3, width=4, style=_style),
    Column(_SM_ACTIVE.short_heading, _sm_active, rank=3, width=4, style=_style),
    Column(_GPU_MEMORY.short_heading, _gpu_memory, rank=7, width=7, style=_style),
)

_KEPT = (
    *(_CPU.short_heading, MEMBER["main_thread_cpu_percent"].short_heading, _WORKERS),
    *(_GPU_BUSY.short_heading, _SM_ACTIVE.short_heading),
)
"""Headings of readings that have a history."""
_SPARK_RANK, _LEAST = 4, 15
_SPARK_MOST = 24
_COMMAND_LEAST = 16


def _columns(
    view: View, job: Job, table: Sequence[TreeRow], width: int, now: float, *, is_kept: bool
) -> tuple[list[Column[TreeRow]], bool]:
    """Return the columns that fit, and whether the command has room to be read behind them; the
    charts end ``now``. Of a moment in the past those of what is not kept are left out."""
    late = len(STRAGGLER.word) + 2
    roles = [
        width_of(row.branch) + width_of(_role_text(row, width)) + late * row.is_late
        for row in table
    ]
    role_width = min(max([4, *roles]), max(8, width * 3 // 10, min(16, width * 2 // 5)))
    on_gpu = bool(job.gpu_uuids) or any(row.on_gpus for row in table)
    without = set() if on_gpu else {_GPU_BUSY.short_heading, _GPU_MEMORY.short_heading}
    if all(view.history.gpu(uuid, _SM_ACTIVE.name) is None for uuid in job.gpu_uuids):
        without.add(_SM_ACTIVE.short_heading)
    without |= set() if any(row.workers for row in table) else {_WORKERS}
    without |= set() if job.loops else {_DATA_WAIT.short_heading, _IN_STEPS.short_heading}
    if view.timeline.moment is not None:
        kept = {"PID", *_KEPT} if is_kept else {"PID"}
        without |= {one.heading for one in COLUMNS}.difference(kept)
    role = Column[TreeRow](
        "ROLE",
        kind="text",
        width=role_width,
        runs=lambda row: _role(view, row, role_width, width),
    )
    columns = [role, *[one for one in COLUMNS if one.heading not in without]]
    if len(job.ranks) < 2:
        # Of one GPU it stands above.
        sm = _SM_ACTIVE.short_heading
        columns = [one._replace(rank=_LEAST) if one.heading == sm else one for one in columns]
    if is_kept and not view.slow_link:
        spark = 12 if width >= 60 else 8
        columns.append(Column("", kind="text", rank=_SPARK_RANK, width=spark))
    columns = fitting(columns, width - 1)
    room = width - 1 - width_of_columns(columns)
    if columns[-1].rank == _SPARK_RANK:
        spark, wider = columns[-1].width, room
        if room >= 12 + _COMMAND_LEAST:
            wider = max(0, min(_SPARK_MOST - spark, room - _COMMAND_LEAST))
        spark, room = spark + wider, room - wider
        window = replace(spark_window(view), now=now)
        columns[-1] = columns[-1]._replace(
            heading=f"CPU {spark_span(view)}",
            width=spark,
            runs=lambda row: _spark(view, row, window, spark),
        )
    return columns, room >= _COMMAND_LEAST


def _role(view: View, row: TreeRow, role_width: int, width: int) -> list[Run]:
    branch = fit(row.branch, max(0, role_width - 4), "")
    style = "warn" if row.member.orphaned else row.hue or "text"
    room, name = role_width - width_of(branch), _role_text(row, width)
    state = f"  {STRAGGLER.word}"
    if not row.is_late or width_of(name + state) > room:
        return [(branch, "dim"), (left(name, room, view.glyphs.ellipsis), style)]
    return [(branch, "dim"), (name, "value"), (left(state, room - width_of(name)), style)]


# -- the rows -------------------------------------------------------------------------------


def tree_rows(view: View, job: Job, room: int) -> list[TreeRow]:
    """Return all processes of the job, each under its parent, with ``room`` for so many rows."""
    on_gpus: dict[ProcessKey, list[Process]] = {}
    for process in () if view.snapshot is None else view.snapshot.processes:
        if process.gpu_uuid is not None:
            shown = shown_process(view, process, process.gpu_uuid, job.key)
            on_gpus.setdefault(process.key, []).append(shown)
    uses = {key: some[0].gpu_uuid for key, some in on_gpus.items()}
    active = _sm_active_alone(view, on_gpus)
    every = [shown_process(view, one, uses.get(one.key), job.key) for one in job.members]
    if len(job.having("rank")) == 1 and view.timeline.moment is None:
        # The number of the chart, which has finer samples.
        main = mean_shown(
            view.history.job(job.key, "main_thread_cpu_percent"), view.window_of_means(job.key)
        )
        every = [
            replace(one, main_thread_cpu_percent=main) if one.role == "rank" else one
            for one in every
        ]
    found = job_charts.leading(view, job)
    late = {one.rank: one.key for one in job_charts.late_ranks(job, found)}
    is_late = set(late.values())
    charts, fault = job_charts.charts_of(found), job_charts.fault_of(found)
    members, families = in_room(
        *(view, _late_first(every, is_late), room, _family),
        lambda one: one.key in on_gpus,
    )
    of_ranks: dict[int, tuple[JobMember, int]] = {}
    if room < len(members):
        # What only launches others has the row that is left, and workers that keep no rank from
        # its work have none.
        members.sort(key=lambda one: one.role == "launcher")
        kept = {key[0] for key in is_late}
        of_ranks = {
            one.parent_pid: (one, len(families[one.key]))
            for one in members
            if one.key in families and one.parent_pid is not None and one.parent_pid not in kept
        }
        of_ranks = of_ranks if len(job.ranks) > 1 else {}
        without_row = {one.key for one, _ in of_ranks.values()}
        members = [one for one in members if one.key not in without_row]
    # What was reported then is not kept of each rank.
    loops = {loop.key: loop for loop in job.loops if view.timeline.moment is None}
    if len(loops) == 1:
        waits, steps = (
            mean_shown(view.history.job(job.key, name), view.window_of_means(job.key))
            for name in ("data_wait_share", "compute_share")
        )
        loops = {
            key: replace(loop, data_wait_share=waits, compute_share=steps)
            for key, loop in loops.items()
        }
    branch_of = branches([(member.pid, member.parent_pid) for member in members], view.glyphs)
    machines = _machines(view, on_gpus)
    out = []
    for member, branch, command in zip(members, branch_of, _commands(members), strict=True):
        family = families.get(member.key, ())
        own = [process for one in family or (member,) for process in on_gpus.get(one.key, ())]
        where = None if branch else machines.get(member.pid // PIDS_OF_A_MACHINE)
        loop = loops.get(member.key)
        chart = _ROLE_CHARTS.get(member.role, "")
        is_hued = chart in charts or (chart == fault and member.rank in late)
        is_own = member.key in is_late
        hue = STRAGGLER.hue if is_own else chart if is_hued else ""
        workers, worker_count = of_ranks.get(member.pid, (None, 0))
        row = TreeRow(
            member=member,
            on_gpus=tuple(own),
            branch=branch,
            command=command,
            together=family,
            loop=loop,
            machine=where,
            workers=workers,
            worker_count=worker_count,
            workers_hue="worker" if "worker" in charts else "",
            sm_active_percent=active.get(member.key),
            is_late=is_own,
            hue=hue,
        )
        out.append(row)
    return out


def _sm_active_alone(
    view: View, on_gpus: Mapping[ProcessKey, Sequence[Process]]
) -> dict[ProcessKey, float | None]:
    """Return how active the SMs of its GPUs are for each process that shares them with no other."""
    users = Counter([one.gpu_uuid for some in on_gpus.values() for one in some])
    active = {
        gpu.uuid: shown_gpu(view, gpu, facts=True).reading.sm_active_percent
        for gpu in view.gpus
        if users[gpu.uuid] == 1
    }
    return {
        key: mean(active.get(one.gpu_uuid or "") for one in some)
        for key, some in on_gpus.items()
        if all(one.gpu_uuid in active for one in some)
    }


def _family(member: JobMember) -> Hashable:
    """Return what loader workers of one row have in common; ``None`` for any other process."""
    is_worker = member.role == "loader_worker"
    return (member.parent_pid, member.orphaned) if is_worker else None


def _late_first(members: Sequence[JobMember], late: Collection[ProcessKey]) -> list[JobMember]:
    """Return the members with those that are ``late``, and their children, before their
    siblings: they are what has to be looked at."""
    first: dict[int, list[JobMember]] = {}
    family: dict[int, int] = {}
    rest = list[JobMember]()
    for member in members:
        top = family.get(member.parent_pid or -1)
        top = member.pid if member.key in late else top
        if top is None:
            rest.append(member)
        else:
            family[member.pid] = top
            first.setdefault(top, []).append(member)
    for moved in reversed(first.values()):
        place = next((n + 1 for n, m in enumerate(rest) if m.pid == moved[0].parent_pid), 0)
        rest[place:place] = moved
    return rest


def _machines(view: View, on_gpus: Mapping[ProcessKey, Sequence[Process]]) -> dict[int, str | None]:
    """Return the names of the machines of a job that runs on several, by the numbers that stand
    before the PIDs there."""
    names = {gpu.uuid: gpu.identity.machine for gpu in view.gpus}
    return {
        one.pid // PIDS_OF_A_MACHINE: names.get(one.gpu_uuid or "")
        for processes in on_gpus.values()
        for one in processes
    }


def _commands(members: Sequence[JobMember]) -> Iterator[str]:
    """Yield the command of each, nothing where it is its parent's."""
    commands = {member.pid: member.command for member in members}
    for member in members:
        parent = member.parent_pid
        same = parent not in (None, member.pid) and commands.get(parent) == member.command
        yield "" if same else member.command or member.name or ""


def _role_text(row: TreeRow, width: int) -> str:
    """Name of its role; in shorter words where the screen is narrow."""
    name = role_name(row.member)
    name = name if row.machine is None else f"{row.machine}: {name}"
    if row.together:
        name = f"{len(row.together)} {name.replace('worker', 'workers')}"
    return short_role(name) if width < 70 else name


# -- drawing --------------------------------------------------------------------------------


def draw_tree(page: Page, job: Job, height: int) -> Drawn:
    """Draw the heading and the rows from ``view.job.offset`` on, ``height`` lines in all."""
    view, width, state = page.view, page.width, page.view.job
    table = page.table = tree_rows(view, job, page.table_page)
    keys = [row.key for row in table]
    position = keys.index(state.selected) if state.selected in keys else None
    state.offset = scrolled(state.offset, position, page.table_page, len(table))
    if height <= 0:
        return [], []
    past = view.timeline.moment is not None
    is_kept = not past or any(one.member.cpu_percent is not None for one in table)
    columns, has_command = _columns(view, job, table, width, page.window.now, is_kept=is_kept)
    heading = Row(width, prefix="b:").add(" ")
    last = columns[-1]._replace(width=width_of(columns[-1].heading))
    add_headings(heading, columns if has_command else [*columns[:-1], last])
    heading.add("COMMAND" if has_command else "", "label")
    out_of_sight = hidden(view.glyphs, state.offset, len(table) - state.offset - (height - 1))
    count = len(job.members)
    counts = [count_of(view, count, is_kept=is_kept), count_of(view, count)]
    notes = heading_notes(counts, out_of_sight)
    for note in notes:
        used = heading.used
        # The shortest may stand close to the last heading.
        if heading.note(note, apart=1 if note is notes[-1] and out_of_sight else 3).used > used:
            break
    lines, zones = [heading.line()], []
    ellipsis = view.glyphs.ellipsis
    for entry in table[state.offset : state.offset + height - 1]:
        zones.append(Zone(len(lines), 0, width, "member", entry.key))
        selected = entry.key == state.selected
        focused = selected and not (state.pane_focused or view.in_findings)
        row = begin_row(width, view.glyphs, selected=selected, focused=focused)
        add_cells(row, columns, entry, ellipsis, unknown="" if past else units.UNKNOWN)
        if has_command:
            row.add(fit_command(entry.command, row.room - 1, ellipsis), "label")
        lines.append(row.line() if is_kept else stepping_back(row.line()))
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
    style = "gauge" if entry.is_late else entry.hue or "gauge"
    return view.chart(("member", member.key), series, width, 100.0, style, window=window)[0]


# -- what it prints --------------------------------------------------------------------------------


def first_output_line(view: View, rows: int) -> int:
    """Return the number of the line at the pane's top: the end is followed unless it was
    scrolled."""
    output = view.job.output
    if output is None:
        return 0
    newest = max(output.first, output.total - rows)
    wanted = view.job.pane_first
    return newest if wanted is None else max(output.first, min(wanted, newest))


def _output_rows(page: Page) -> int:
    """Return the rows of the pane with its title; 0: hidden. Asked again, once the others have
    theirs, it takes those that the processes do not fill."""
    pane, height = page.view.job.pane, page.height
    if page.view.job.output is None or pane == "hidden" or height < 10:
        return 0
    if "output" in page.rows:
        return page.rows["output"] + max(0, page.room - _rows_of_processes(page))
    return max(4, height * 6 // 10) if pane == "large" else max(3, min(12, height // 4))


def _rows_of_processes(page: Page) -> int:
    """Return how many rows all processes took with their heading, at most; of a report, all there
    are."""
    if page.job is None or page.decided["report"]:
        return page.room
    members, families = page.job.members, {_family(one) for one in page.job.members}
    alone = sum(_family(one) is None for one in members)
    folded = is_folded(page.view, len(members), page.room - 1)
    rows, state = 1 + (alone + len(families - {None}) if folded else len(members)), page.view.job
    state.most_rows = max(state.most_rows, rows)
    return state.most_rows


def _draw_output(page: Page, height: int) -> Drawn:
    view, width, rows = page.view, page.width, height - 1
    output = view.job.output
    total = 0 if output is None else output.total
    first = first_output_line(view, rows)
    lines = [_output_title(page, first, total, rows)]
    for number, text in enumerate(output.lines(first, rows) if output is not None else (), first):
        # While the end is followed, the newest line is what is new.
        is_old = view.job.pane_first is None and number < total - 1
        shown = fit(text, width - 3, view.glyphs.ellipsis)
        lines.append(Row(width).add("  ").add(shown, "label" if is_old else "text").line())
    if total == 0:
        lines.append(Row(width).add("  nothing printed yet", "dim").line())
    return filled(lines, width, height), []


OUTPUT = Panel("output", _output_rows, _draw_output)


def _output_title(page: Page, first: int, total: int, rows: int) -> Line:
    view, width, state = page.view, page.width, page.view.job
    below = max(0, total - first - rows)
    if state.pane_first is not None and below:
        note, style = f"{view.glyphs.down}{below} more, end follows", "text"
    else:
        note, style = units.plural(total, "line"), "label"
    marker, name = view.glyphs.marker if state.pane_focused else "", state.output_name or ""
    # Which file it is stands at the end of its path.
    name = fit_end(name, width - len(note) - 16, view.glyphs.ellipsis)
    if page.boxed:
        said = f"{name}  {note}" if name else note
        return edge(view.glyphs, width, Title(f"{marker} output".strip(), (), said, style))[0][0]
    row = Row(width, prefix="b:").add(marker or " ", "marker").add("OUTPUT", "label")
    return row.add(f"  {name}").note(note, style).line()


# -- the drawing -----------------------------------------------------------------------------------


_OUTPUT_KEY = "o"


def _table_rows(page: Page) -> int:
    """Return no rows, as the table takes what is left, and note how much that should be: never more
    than there were processes at most."""
    report, height = page.decided["report"], page.tall
    least = 3 if height < 16 else 5 if height < 30 else 6
    page.table_least = least + (2 if report and height >= 16 else 0)
    share = 6 if len(page.gpus) <= 1 else 5 if len(page.gpus) == 2 else 4
    wanted = height * 11 // 20 if report else height // share
    page.table_wanted = max(page.table_least, wanted)
    if page.job is not None and not report:
        state = page.view.job
        state.most_members = max(state.most_members, len(page.job.members))
        page.table_least, page.table_wanted = (
            min(rows, 1 + state.most_members) for rows in (page.table_least, page.table_wanted)
        )
    return 0


def _draw_table(page: Page, rows: int) -> Drawn:
    """Draw the processes; of a job that has ended, its report."""
    view, job = page.view, page.job
    assert job is not None
    if not page.decided["report"]:
        return draw_tree(page, job, rows)
    assert view.job.write_report is not None
    return _report(page, view.job.write_report(page.width), rows), []


def _keys(view: View) -> Footer:
    """Return the keys that do something for this job."""
    job = shown_job(view)
    without = set() if view.job.output is not None else {_OUTPUT_KEY}
    # The first page is left for good, another leads back to the whole machine.
    leaving = "quit" if view.job.first else "back"
    if job is None or not shows_report(view):
        without.add("up down")
    if job is not None and ended_at(view, job) is not None:
        of_charts = {"t", "k", "p", "enter", "[]", "<>", "c", "+-", "m"}
        without |= {"S", "R", *of_charts} if shows_report(view) else {"S"}
    without |= set() if view.job.first else {"j"}
    return [k for k in JOB_FOOTER if k[0] not in without and (k[0] != "q" or k[1] == leaving)]


_TABLE = Panel("table", _table_rows, _draw_table)
_AXIS = time_axis.axis_panel(lambda page: page.tall >= 20 and page.room > page.table_least)
_ACTIVITY = edge_panel(
    "activity",
    lambda page: Title("busy and waiting", range_keys(page), legend=chart_legend(page, LEAD)),
)
_PROCESSES = edge_panel(
    "processes",
    lambda _: Title("processes", (("t", "fold", "fold"), ("S", "stacks", "stacks"))),
)
_FOOTER = footer_panel(_keys)

PANELS = (
    *(HEADER, TITLE, findings.PANEL, FACTS, GPUS, _ACTIVITY),
    *(job_charts.PANEL, _AXIS, _PROCESSES),
    *(_TABLE, time_axis.VALUES, OUTPUT, BOTTOM, _FOOTER),
)
"""Panels of the page, from top to bottom."""
COMPETING = (
    *(OUTPUT, FACTS, _TABLE, GPUS, job_charts.PANEL, _AXIS, job_charts.PANEL),
    *(time_axis.VALUES, OUTPUT),
)
"""Panels that compete for rows, by importance: first who waits for whom, the charts of GPU, main
thread and loader workers; then the processes; then everything else."""
_ENDED = (HEADER, TITLE, _TABLE, OUTPUT, BOTTOM, _FOOTER)
"""Panels once the report is there, which has a verdict, charts and facts of its own."""


def draw(view: View, width: int, height: int) -> Frame:
    """Draw exactly ``height`` lines of exactly ``width`` cells. Offsets in ``view.job`` are brought
    into range so that the selection stays in sight."""
    if width < 20 or height < 6:
        return too_small(width, height, "20x6")
    job = shown_job(view)
    if job is None or view.snapshot is None:
        return _waiting(view, width, height)
    mine = [gpu for gpu in view.gpus if gpu.uuid in job.gpu_uuids]
    boxes = has_boxes(width, height)
    width -= 2 * boxes
    page = Page(view, width, height, boxes, _window(view, job), mine, job)
    page.decided["report"] = shows_report(view)
    view.chart_columns = max(1, job_charts.span(width)[1])
    panels, competing = (_ENDED, (OUTPUT, _TABLE)) if shows_report(view) else (PANELS, COMPETING)
    return laid_out(page, panels, competing, _TABLE)


def shown_job(view: View) -> Job | None:
    """Return the job as it is now, or as it was last seen; of one that has ended what it was stays:
    how it loaded its data, on which GPUs."""
    state = view.job
    job = state.last
    if view.snapshot is not None and state.key is not None:
        job = find_job(view.snapshot.jobs, state.key) or job
    alive = state.alive
    if job is None or alive is None or job.ended_at_unix_seconds is None:
        return job
    return replace(job, ranks=job.ranks or alive.ranks, gpu_uuids=job.gpu_uuids or alive.gpu_uuids)


def shows_report(view: View) -> bool:
    """Return whether the report takes the place of the processes: the job has ended and none of
    them is left. Orphans hold memory until somebody ends them, and are to be seen for that."""
    if view.job.write_report is None:
        return False
    job = shown_job(view)
    there = () if view.snapshot is None else view.snapshot.jobs
    return job is None or not (
        any(one.key == job.key for one in there) and any(one.orphaned for one in job.members)
    )


def _window(view: View, job: Job) -> TimeWindow:
    """Return the time that the charts show: of a job that has ended, up to its end."""
    window, snapshot = view.window, view.snapshot
    at = ended_at(view, job)
    if at is None or snapshot is None:
        return window
    end = snapshot.monotonic_seconds - (snapshot.taken_at_unix_seconds - at)
    return replace(window, now=min(window.now, end + 1.0))


def _report(page: Page, whole: Sequence[Line], rows: int) -> list[Line]:
    """Draw the report of the job that has ended, from ``view.job.report_offset`` on: the heading of
    the page is its heading."""
    state = page.view.job
    state.report_offset = max(0, min(state.report_offset, len(whole) - rows))
    page.below = max(0, len(whole) - state.report_offset - rows)
    return filled(whole[state.report_offset : state.report_offset + rows], page.width, rows)


def _waiting(view: View, width: int, height: int) -> Frame:
    """Draw what was asked for, and why it may not be there, while there is no job yet."""
    lines = [draw_header(view, width)]
    if view.snapshot is not None and view.job.key is not None:
        says = [one.message for one in view.snapshot.problems if one.source == "jobs"]
        texts = says or [f"PID {view.job.key[0]}: its job has not been seen yet."]
        ellipsis = view.glyphs.ellipsis
        lines += filled([], width, 1)
        for text in texts:
            lines.append(Row(width).add("  ").add(fit(text, width - 3, ellipsis)).line())
        lines.append(Row(width).add("  j shows the whole machine", "label").line())
    foot, zones = draw_footer(view, width, _keys(view))
    zones = [zone._replace(y=height - 1) for zone in zones]
    return Frame([*filled(lines, width, height - 1), foot], zones)


# -- the screen ------------------------------------------------------------------------------------


_REPORT: CursorPlace = ("report", None)


class JobScreen(ListScreen):
    """Screen of a job; turns keys and clicks into changes of ``view.job``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(JOB_KEYS)
    CANVAS_ID = "job"
    ROWS = "member"
    OPENS: ClassVar[Mapping[str, str]] = {"member": "open_gpu"}

    def page(self, width: int, height: int) -> Frame:
        return draw(self.view, width, height)

    # -- moving about -----------------------------------------------------------------------

    @property
    def chosen(self) -> ProcessKey | None:
        return self.view.job.selected

    @property
    def cursor(self) -> CursorPlace:
        view = self.view
        if view.in_findings:
            return "finding", view.finding
        return _REPORT if shows_report(view) else ("member", view.job.selected)

    def put(self, kind: str, key: Any) -> None:
        view = self.view
        view.in_findings, view.job.pane_focused = kind == "finding", False
        if kind == "finding":
            view.finding = key
        elif kind == "member":
            view.job.selected = key

    def stops(self) -> list[CursorPlace]:
        return [*self._findings(), _REPORT] if shows_report(self.view) else super().stops()

    def selected_member(self) -> JobMember | None:
        """Return the process under the cursor; where there is only one, that one. Several in one
        row are none."""
        table, place = self.shown.table, self.position()
        if place is None and len(table) != 1:
            return None
        row = table[place or 0]
        return None if row.together else row.member

    def action_fold(self) -> None:
        job = shown_job(self.view)
        if job is not None:
            folded = is_folded(self.view, len(job.members), self.shown.table_page)
            self.view.folded = not folded
            self.view.job.most_rows = 0
            self.redraw()

    def selected_process(self) -> Process | None:
        member, snapshot = self.selected_member(), self.view.snapshot
        shown = shown_job(self.view)
        if member is None or snapshot is None or shown is None:
            return None
        for process in snapshot.processes:
            if process.key == member.key:
                return process
        return Process(
            pid=member.pid,
            started_at_unix_seconds=member.started_at_unix_seconds,
            user=shown.user,
            name=member.name,
            command=member.command,
        )

    def action_back(self) -> None:
        self.view.in_findings = False
        self.dismiss()

    def action_move(self, step: int) -> None:
        """Move the cursor; scroll the output, or the report of a job that has ended."""
        state = self.view.job
        in_report = self.cursor == _REPORT and (step > 0 or state.report_offset > 0)
        if state.pane_focused or in_report:
            self._go(step)
            self.redraw()
        else:
            super().action_move(step)

    def _go(self, rows: int) -> None:
        """Move by so many rows in what has the cursor: output, report, or processes."""
        state = self.view.job
        if state.pane_focused:
            self._scroll_output(rows)
        elif shows_report(self.view):
            state.report_offset += rows
        else:
            position = self.position()
            self.select(rows - 1 if position is None else position + rows)

    def _jump(self, rows: int) -> None:
        self.view.in_findings = False
        self._go(rows)
        self.redraw()

    def action_page(self, step: int) -> None:
        focused = self.view.job.pane_focused
        self._jump(step * max(1, self._pane_rows() if focused else self.shown.table_page))

    def action_edge(self, end: int) -> None:
        self._jump(END if end else -END)

    async def action_open_gpu(self) -> None:
        """Open the GPU of the selected process; without a selection the job's first. On a finding,
        its evidence."""
        if self.view.in_findings:
            await self.run_action("app.evidence")
            return
        shown, place = shown_job(self.view), self.position()
        uuids: Iterable[str | None] = () if shown is None else shown.gpu_uuids
        if place is not None:
            uuids = [process.gpu_uuid for process in self.shown.table[place].on_gpus]
        present = {gpu.uuid for gpu in self.view.gpus}
        uuid = next((uuid for uuid in uuids if uuid in present), None)
        if uuid is not None:
            self.view.selected_gpu = uuid
            await self.run_action("app.open_gpu")
        else:
            self.view.message = "this process uses no GPU"
            self.redraw()

    # -- the output pane ----------------------------------------------------------------------

    def action_pane(self) -> None:
        state = self.view.job
        if state.output is None:
            self.view.message = "only a job started with gpuwatch run has output to show"
        else:
            state.pane = PANES[(PANES.index(state.pane) + 1) % len(PANES)]
            if state.pane == "hidden":
                state.pane_focused = False
        self.redraw()

    def action_switch_focus(self) -> None:
        state = self.view.job
        state.pane_focused = not state.pane_focused and self._pane_rows() > 0
        self.view.in_findings = False
        self.redraw()

    def _pane_rows(self) -> int:
        plan = self.shown.plan
        return 0 if plan is None else max(0, plan.rows["output"] - 1)

    def _scroll_output(self, lines: int) -> None:
        state = self.view.job
        rows = self._pane_rows()
        if state.output is None or not rows:
            return
        newest = max(state.output.first, state.output.total - rows)
        wanted = max(state.output.first, first_output_line(self.view, rows) + lines)
        # At the end it is followed again.
        state.pane_first = None if wanted >= newest else wanted

    async def wheel(self, y: int, step: int) -> None:
        """Move what it is over."""
        plan = self.shown.plan
        if plan is not None and 0 <= y - plan.pane_top < plan.rows["output"]:
            self._scroll_output(3 * step)
            self.redraw()
        else:
            self.view.job.pane_focused = False
            self.action_move(3 * step)


# -- its report, full screen -----------------------------------------------------------------------


class ReportScreen(ScrolledScreen):
    """Screen of a report: ``write`` gives its lines for a width; it is asked once for each
    width and set of characters."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(REPORT_KEYS)
    CANVAS_ID = "report"

    def __init__(self, view: View, write: Callable[[int], Sequence[Line]]) -> None:
        super().__init__(view)
        self._write = write
        self._lines: Sequence[Line] = ()
        self._drawn_of: tuple[int, str] | None = None

    def drawn(self, width: int, height: int) -> Frame:
        view, job, title = self.view, shown_job(self.view), Title("report")
        if job is not None:
            ended = _end_text(view, job, reported=True) or ("so far", "label")
            room = width - width_of(ended[0]) - 2 * _TITLE_ENDS
            command = job.command or f"PID {job.pid}"
            text = fit_command(command, room, view.glyphs.ellipsis, "report: ")
            title = Title(text, (), *ended)
        boxes = has_boxes(width, height)

        def body(width: int, _room: int) -> SheetBody:
            top = [] if boxes else edge(view.glyphs, width, title)[0]
            return top, self._written(width), [], []

        frame, self.body_offset = draw_sheet(
            view, width, height, title, body, REPORT_FOOTER, self.body_offset
        )
        return frame

    def _written(self, width: int) -> Sequence[Line]:
        drawn_of = width, self.view.glyphs.name
        if drawn_of != self._drawn_of:
            self._lines, self._drawn_of = self._write(width), drawn_of
        return self._lines
