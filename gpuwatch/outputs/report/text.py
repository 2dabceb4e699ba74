"""A report for a terminal: plain text in lines that fit, with charts on one time axis.

The filled area of a chart is the mean, so that what is filled is the work done and what is empty
was lost; a dot above it is the highest that was reached. Where nothing was measured nothing is
drawn; a measured zero is a line on the ground. The scale is always 0 to 100%.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.outputs.report import document, words
from gpuwatch.outputs.report.document import (
    Document,
    Found,
    Timeline,
    report_document,
    tabled,
)
from gpuwatch.outputs.report.model import JobUsage, Report, TimeProfile
from gpuwatch.outputs.terminal import (
    BOLD,
    COLOURS,
    CYAN,
    DIM,
    LABEL,
    RED,
    YELLOW,
    Column,
    Page,
    cut,
    wrap,
)

# --- charts -----------------------------------------------------------------------------------

LABEL_CELLS = 5
_BLOCKS = "▁▂▃▄▅▆▇█"


class ChartColumn(NamedTuple):
    """Values of one column; ``None`` in a list of columns is a gap."""

    mean: float
    highest: float


class TimeAxis(NamedTuple):
    """Time that charts span: seconds since the job's start."""

    start: float
    seconds: float


def chart_columns(profile: TimeProfile, count: int) -> list[ChartColumn | None]:
    """Return the profile in ``count`` columns, however many buckets it has."""
    buckets = len(profile.mean)
    if not buckets:
        return [None] * count
    out: list[ChartColumn | None] = []
    for place in range(count):
        first = place * buckets // count
        last = max(first + 1, -(-(place + 1) * buckets // count))
        means = _known(profile.mean[first:last])
        highest = _known(profile.maximum[first:last])
        out.append(
            ChartColumn(sum(means) / len(means), max(highest)) if means and highest else None
        )
    return out


def mean_profile(profiles: Sequence[TimeProfile]) -> TimeProfile:
    """Return the mean over several profiles, with the lowest and highest of any."""
    lows, means, highs = (
        [_known(values) for values in zip_longest(*series)]
        for series in zip(*[(one.minimum, one.mean, one.maximum) for one in profiles], strict=True)
    )
    return TimeProfile(
        minimum=tuple([min(values, default=None) for values in lows]),
        mean=tuple([sum(values) / len(values) if values else None for values in means]),
        maximum=tuple([max(values, default=None) for values in highs]),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def canvas_cells(width: int) -> int:
    return max(8, width - LABEL_CELLS - 1)


def chart(
    profile: TimeProfile, time: TimeAxis, *, width: int, rows: int, time_labels: bool
) -> list[str]:
    """Return ``rows`` lines of data and one or two of axis, none wider than ``width``."""
    cells = canvas_cells(width)
    area = [[" "] * cells for _ in range(rows)]
    for place, column in enumerate(chart_columns(profile, cells)):
        if column is None:
            continue
        eighths = _level(column.mean, 8 * rows)
        for row in range(-(-eighths // 8)):
            area[-1 - row][place] = _BLOCKS[min(7, eighths - 8 * row - 1)]
        highest = (_level(column.highest, 8 * rows) - 1) // 8
        if area[-1 - highest][place] == " ":
            area[-1 - highest][place] = "·"
    labels = [""] * rows
    labels[-1], labels[0] = "0%", "100%"
    lines = [
        f"{label:>{LABEL_CELLS}}{'┤' if label else '│'}{''.join(line)}"
        for label, line in zip(labels, area, strict=True)
    ]
    axis, below = ["─"] * cells, [" "] * width
    # About one every 12 cells; the text of the last would be cut off at the edge.
    marks = units.round_marks(
        time.start, time.seconds * (1 - 4 / cells), time.seconds * 12 / cells
    )[1]
    for moment in marks if time_labels and time.seconds > 0 else ():
        cell = int((moment - time.start) / time.seconds * (cells - 1) + 0.5)
        axis[cell] = "┬"
        text = _moment(moment)
        start = LABEL_CELLS + 1 + cell - (len(text) - 1) // 2
        below[start : start + len(text)] = text
    lines.append(f"{'':{LABEL_CELLS}}└{''.join(axis)}")
    lines += ["".join(below)] if time_labels else []
    return [line.rstrip() for line in lines]


def _level(percent: float, up: int) -> int:
    """Return how many of ``up`` steps are filled; a measured zero is one."""
    return max(1, min(up, round(percent / 100.0 * up)))


def _moment(seconds: float) -> str:
    """Return ``0s``, ``5m``, ``1h30``."""
    return units.age(seconds).removesuffix("00") if seconds >= 60 else units.age(seconds)


def strips(named: Sequence[tuple[str, TimeProfile]], width: int) -> Iterator[str]:
    """Yield a line for each profile with its means, on the same columns as a chart of this
    width."""
    for name, profile in named:
        cells = [
            " " if column is None else _BLOCKS[_level(column.mean, len(_BLOCKS)) - 1]
            for column in chart_columns(profile, canvas_cells(width))
        ]
        yield f"{name[:LABEL_CELLS]:>{LABEL_CELLS}} {''.join(cells)}".rstrip()


# --- lines ------------------------------------------------------------------------------------

WIDTH_MIN = 40
WIDTH_MAX = 140
"""Widest page: wider charts and sentences are no easier to read."""
COMMAND_LINES = 3
CHART_ROWS = 6
SMALL_CHART_ROWS = 4
STRIPS_SHOWN = 16
_STYLES = {"verdict": BOLD, "bad": RED, "warn": YELLOW, "note": DIM}


def report_text(
    report: Report,
    *,
    width: int = 80,
    colour: bool = False,
    unicode: bool = True,
    previous: Report | None = None,
) -> str:
    """Return the report in lines of at most ``width`` cells (40 or more), without a line end.

    ``previous``: of the report of a job, that of the run before.
    """
    return document_text(report_document(report, "text", previous=previous), width, colour, unicode)


def document_text(
    made: Document, width: int = 80, colour: bool = False, unicode: bool = True
) -> str:
    """Return the document in lines of at most ``width`` cells, without a line end."""
    page = Page(min(max(width, WIDTH_MIN), WIDTH_MAX), colour)
    if made.simulated:
        page.say("SIMULATED: none of this ran.", style=YELLOW)
    for place, section in enumerate(made.sections):
        if place:
            page.gap()
        for block in section.blocks:
            write_block(page, block)
    return page.text(unicode)


def write_block(page: Page, block: document.Block) -> None:
    match block:
        case document.Paragraph(text, "command"):
            lines = wrap(text, page.width, most=COMMAND_LINES)
            page.lines += [page.paint(line, BOLD) for line in lines]
        case document.Paragraph(text, style):
            page.say(cut(text, 2000), style=_STYLES.get(style, ""))
        case document.FactLine(facts, style):
            page.facts(facts, " · ", style=_STYLES.get(style, ""))
        case document.Labelled(_, facts):
            for label, text in facts:
                first, *rest = wrap(text, page.width, first=label.ljust(LABEL), later=" " * LABEL)
                page.lines += [page.paint(first[:LABEL], BOLD) + first[LABEL:], *rest]
        case document.Bullets(title, sentences, style):
            indent = "" if title else "  "
            for sentence in sentences:
                page.say(cut(sentence, 400), style=_STYLES[style], first=indent, later=indent * 2)
        case document.Table():
            _table(page, block)
        case document.ToDo():
            _to_do(page, block)
        case Found():
            _finding(page, block)
        case Timeline():
            _charts(page, block)


def _table(page: Page, made: document.Table) -> None:
    page.table(made.columns, [*made.rows, *([] if made.total is None else [made.total])])
    if made.left > 0:
        page.say(f"and {made.left:,} more (--json has them)", style=DIM)


def _to_do(page: Page, block: document.ToDo) -> None:
    page.gap()
    mark = f"{block.name} {block.severity}:"
    first, *rest = wrap(f"{mark} {block.cause}, {block.when}", page.width, later="  ")
    painted = page.paint(mark, COLOURS.get(block.severity, ""))
    page.lines += [painted + first.removeprefix(mark), *rest]
    for number, step in enumerate(block.advice):
        page.labelled("" if number else "Do", step.text, "- ")
    if block.gain:
        page.labelled("Gain", block.gain)
    if block.cost:
        page.labelled("Lost", block.cost)


def _finding(page: Page, found: Found) -> None:
    page.gap()
    mark = f"{found.name} {found.severity}:".lstrip()
    head = f"{mark} {found.cause}{found.sure and f' ({found.sure} sure)'}, {found.when}"
    lines = wrap(head, page.width, later="  ")
    painted = page.paint(mark, COLOURS.get(found.severity, ""))
    page.lines += [painted + lines[0].removeprefix(mark), *lines[1:]]
    write_details(page, found)


def write_details(page: Page, found: Found) -> None:
    """Write all of a finding but its heading."""
    if found.cost:
        page.labelled("Lost", found.cost)
    if found.gain:
        page.labelled("Gain", found.gain)
    for label, texts in (
        ("What", found.what),
        ("Do", [step.text for step in found.advice]),
        ("Because", found.because),
        ("Against", found.against),
        ("Also seen", found.also_seen),
        ("Not", found.ruled_out),
    ):
        for number, text in enumerate(texts):
            page.labelled("" if number else label, text, "- ")


def _charts(page: Page, made: Timeline) -> None:
    """Draw the charts one below the other on one time axis, and a line each for GPUs, CPU and
    findings."""
    drawn = list(_drawn(made))
    if not drawn:
        return
    report, job = made.report, made.report.job
    first, start = report.time.begin_unix_seconds, None
    if job is not None and report.source is None:
        # Of a job that was watched time counts from its start.
        start = job.started_at_unix_seconds
    seconds = report.time.bucket_seconds * max(len(profile.mean) for _, profile, _ in drawn)
    time = TimeAxis(0.0 if start is None else max(0.0, first - start), seconds)
    for place, (name, profile, rows) in enumerate(drawn):
        said = name if place else f"{name} (filled: mean, dots: highest)"
        page.lines.append(page.paint(cut(said, page.width), BOLD))
        last = place == len(drawn) - 1
        picture = chart(profile, time, width=page.width, rows=rows, time_labels=last)
        edge = LABEL_CELLS
        page.lines += [
            page.paint(line[:edge], DIM) + page.paint(line[edge:], CYAN) for line in picture
        ]
        if not place:
            page.lines += strips(_strips(made), page.width)
    page.lines += _lanes(page.width, made, seconds)


def _drawn(made: Timeline) -> Iterator[tuple[str, TimeProfile, int]]:
    """Yield name, profile and height of each chart: the GPUs (or else the CPU) first."""
    gpus = [row.profile for row in made.gpus if row.profile]
    if len(gpus) == 1:
        (name,) = [row.label for row in made.gpus if row.profile]
        yield f"{name} busy", gpus[0], CHART_ROWS
    elif gpus:
        yield f"GPUs busy, mean of {len(gpus)}", mean_profile(gpus), CHART_ROWS
    elif made.cpu is not None and made.cpu.profile:
        yield "CPU busy", made.cpu.profile, CHART_ROWS
    for row in made.others:
        if row.profile:
            yield f"{row.label}, {row.of}", row.profile, SMALL_CHART_ROWS


def _strips(made: Timeline) -> list[tuple[str, TimeProfile]]:
    gpus = [row for row in made.gpus if row.profile]
    rows = gpus[:STRIPS_SHOWN] if len(gpus) > 1 else []
    if made.cpu is not None and gpus and (made.report.job is None or made.report.source):
        rows.append(made.cpu)
    return [(row.short, row.profile) for row in rows if row.profile]


def _lanes(width: int, made: Timeline, seconds: float) -> list[str]:
    """Return a line for each finding; ``seconds``: the time that the charts span."""
    room, start = canvas_cells(width), made.report.time.begin_unix_seconds
    lines = []
    for one in made.lanes:
        lane = [" "] * room
        for stretch in one.stretches if seconds > 0 else ():
            first = int((stretch.begin_unix_seconds - start) / seconds * room)
            last = round((stretch.end_unix_seconds - start) / seconds * room)
            begin = min(room - 1, max(0, first))
            end = min(room, max(begin + 1, last))
            lane[begin:end] = "━" * (end - begin)
        lines.append(f"{f'#{one.number}':>{LABEL_CELLS}} {''.join(lane)}".rstrip())
    return lines


_NumberedJob = tuple[int, Report, JobUsage]


def list_text(
    numbered: Sequence[tuple[int, Report]],
    width: int = 80,
    *,
    colour: bool = False,
    unicode: bool = True,
) -> str:
    """Return a line for each report, of at most ``width`` cells."""
    jobs = [(number, report, job) for number, report in numbered if (job := report.job) is not None]

    def started(one: _NumberedJob) -> str:
        start = one[2].started_at_unix_seconds
        return units.UNKNOWN if start is None else words.clock(start, "%F %H:%M")

    columns: tuple[Column[_NumberedJob], ...] = (
        Column("NO", lambda one: str(one[0])),
        Column("STARTED", started, "text", 1),
        Column("TOOK", lambda one: units.age(one[1].duration_seconds)),
        Column("EXIT", lambda one: one[2].end_words.removeprefix("exit "), "text", 3),
        Column("GPUS", lambda one: str(len(one[1].gpus)), rank=4),
        Column("BUSY", lambda one: units.percent(one[1].total.busy_percent)),
        Column("IDLE GPU-S", lambda one: words.amount(one[1].total.idle_gpu_seconds), rank=2),
        Column("COMMAND", lambda one: _short(words.command(one[2])), "long"),
    )
    page = Page(max(width, WIDTH_MIN), colour)
    _table(page, tabled("", columns, jobs, "text"))
    return page.text(unicode)


def _short(command: str) -> str:
    """Return the command without the path of the program: ``python train.py``."""
    program, *rest = command.split(" ")
    return " ".join([program.rpartition("/")[2] or program, *rest])
