"""The person's view: everything a panel needs to draw a frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuwatch.core.model import Gpu, GpuKey, Job, Process, ProcessKey, Snapshot
from gpuwatch.core.store import Store
from gpuwatch.diagnosis.finding import (
    WINDOW_SECONDS,
    Diagnosis,
    Finding,
    FindingKey,
    Gain,
    Look,
    severity_place,
)
from gpuwatch.diagnosis.rule import NO_ANSWER
from gpuwatch.tui.charts.strips import (
    UNICODE,
    Columns,
    Glyphs,
    Grid,
    Held,
    StripCache,
    TimeWindow,
)
from gpuwatch.tui.charts.timeline import FindingMark, Timeline
from gpuwatch.tui.terminal.frame import Line, Run, cut, plain, with_text
from gpuwatch.tui.terminal.palette import GPUWATCH_DARK, Palette

if TYPE_CHECKING:
    from gpuwatch.diagnosis.ledger import Episode
    from gpuwatch.jobs.run.output import OutputTail
    from gpuwatch.recording.file import Bucket
    from gpuwatch.recording.replay import Tape


RowKey = tuple[int, float | None, str | None]

INTERVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Intervals between two looks at the machine, in seconds, that the keys step through."""

SORT_KEYS = ("gpu", "busy", "gpu memory", "cpu", "memory", "time", "pid", "user", "command")


def row_key(process: Process) -> RowKey:
    return (process.pid, process.started_at_unix_seconds, process.gpu_uuid)


@dataclass(frozen=True, slots=True)
class BeforeOrAfter:
    busy_percent: float | None
    """Mean of the GPUs."""
    samples_per_second: float | None
    """Rate that the jobs report: of all ranks together."""
    data_wait_share: float | None
    """Mean of what the jobs report."""
    rules: tuple[str, ...]
    """Rules of the findings."""
    predicted: Gain | None = None
    """Gain of the cure of the finding that is first among them."""

    def times(self, before: BeforeOrAfter) -> float | None:
        """Return how many times as fast it went as ``before``: by the samples that the jobs report,
        or else by how busy the GPUs were; ``None``: neither is known of both."""
        for now, then in (
            (self.samples_per_second, before.samples_per_second),
            (self.busy_percent, before.busy_percent),
        ):
            if now is not None and then:
                return now / then
        return None

    @property
    def reported(self) -> bool:
        """Jobs reported their own loops."""
        return self.samples_per_second is not None or self.data_wait_share is not None


@dataclass(slots=True)
class MarkedChange:
    """Change of which before and after are compared. Times are on the snapshots' monotonic
    clock."""

    at: float
    at_unix_seconds: float
    gpus: tuple[GpuKey, ...]
    next_run: bool
    """The job was started anew, as opposed to marked with a key."""
    before_until: float
    """Time up to which what was before was measured: the end of the run before."""
    before: BeforeOrAfter
    after_from: float | None
    """Time from which on it counts; ``None``: a new run that has not used its GPU yet."""
    job: ProcessKey | None = None
    """The next run; of a change, the job looked at where that uses no GPU."""
    after: BeforeOrAfter | None = None
    """Readings since, once enough has been seen to say what changed."""


PANES = ("small", "large", "hidden")


@dataclass(slots=True)
class GivenRange:
    """Longer range that charts have because what is to be seen does not show in the person's own,
    which is ``chosen_seconds``."""

    chosen_seconds: float
    is_refused: bool = False
    """The person has chosen another since."""


@dataclass(slots=True)
class JobView:
    first: bool = False
    """True if its page is what was asked for: none leads back from there."""
    key: ProcessKey | None = None
    """The job's own key or, until it is known, that of a process of it."""
    last: Job | None = None
    """Job as it was last seen: one that nobody is attached to leaves the list when it ends."""
    alive: Job | None = None
    """Job as it was last seen with a training process."""
    gone_at_unix_seconds: float | None = None
    """Time at which it was missed first."""
    findings: tuple[Finding, ...] = ()
    """Findings about it when it was last seen running, at ``findings_at`` on the
    snapshots' own clock."""
    findings_at: float = 0.0
    seen_seconds: float = 0.0
    """Time for which it has been watched, whether or not it was looked at."""
    decided: bool = False
    """True if enough was known then to say that nothing else was found."""
    exit_code: int | None = None
    """Exit code of a job that gpuwatch started, which snapshots do not know; negative for a
    signal."""
    selected: ProcessKey | None = None
    offset: int = 0
    most_rows: int = 0
    """Most rows that its processes took: between epochs their loader workers may be gone."""
    most_members: int = 0
    """Most processes that it had."""
    write_report: Callable[[int], Sequence[Line]] | None = None
    """The report of a job that has ended, as lines for a width."""
    report_offset: int = 0
    output: OutputTail | None = None
    output_name: str | None = None
    pane: str = "small"
    """Size of the pane, one of ``PANES``."""
    pane_focused: bool = False
    pane_first: int | None = None
    """The first line of the output shown; ``None``: the end is followed."""

    def look_at(self, key: ProcessKey) -> None:
        """Look at another job; nothing of the one before is kept but the pane."""
        self.key = key
        self.last = self.alive = None
        self.findings, self.decided = (), False
        self.gone_at_unix_seconds = self.selected = self.exit_code = None
        self.offset = self.report_offset = self.most_rows = self.most_members = 0
        self.write_report = None


@dataclass(slots=True)
class Prompt:
    """Line that is typed in the place of the footer."""

    label: str
    hints: Sequence[str]
    done: Callable[[str | None], object]
    """Function that takes the line; ``None``: it was given up."""
    changed: Callable[[str], object] = str
    text: str = ""


class Owner(NamedTuple):
    """Job that a chart is of."""

    since_seconds: float
    """When it began: what is blank after that is not kept of no run before."""
    without: str = ""
    """Words for a time in which it had nothing of what the chart shows; empty: nothing was read."""


SPEEDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


@dataclass(slots=True)
class ReplayState:
    """State that the player sets, and bar, header and footer read. Times are unix seconds."""

    shown: str
    """The file's name, made safe; ``standard input``."""
    first: float = 0.0
    last: float = 0.0
    """End of what is known so far."""
    now: float = 0.0
    """Time at which what is on the screen was recorded."""
    playing: bool = False
    speed: float = 1.0
    undiagnosed: bool = False
    """The diagnosis is left out to keep the speed."""
    seeking: bool = False
    ended: bool = False
    """True if it stands at the end."""
    following: bool = False
    """Snapshots that come in are shown as they come."""
    arriving: bool = False
    """More may come in, of standard input."""
    progress: float = 1.0
    """Share of the file that the overview knows, 0 to 1."""
    buckets: Sequence[Bucket] = ()
    findings: Sequence[Episode] = ()
    drawn: tuple[object, list[tuple[float, float] | None], list[str]] | None = None
    """The columns of the bar as they were drawn last, with their styles, and what of."""

    def show(self, at: float) -> None:
        """Have ``at`` be the moment shown."""
        self.now = at
        self.first, self.last = min(self.first, at), max(self.last, at)
        self.ended = False

    def learn(self, tape: Tape) -> bool:
        """Take over what is known of the tape by now; whether that is more than before."""
        before = self._known()
        if tape.first_unix_seconds is not None:
            self.first = min(self.first, tape.first_unix_seconds)
        if tape.last_unix_seconds is not None:
            self.last = max(self.last, tape.last_unix_seconds)
        self.progress, self.arriving = tape.progress, tape.arriving
        self.buckets, self.findings = tape.buckets, tape.findings
        return before != self._known()

    def _known(self) -> tuple[object, ...]:
        return (self.first, self.last, self.progress, len(self.findings), self.arriving)

    def holding(self, at: float) -> list[Episode]:
        """Findings that held at a moment, the gravest first."""
        spans = [
            span
            for span in self.findings
            if span.begin_unix_seconds <= at
            and (span.end_unix_seconds is None or at <= span.end_unix_seconds)
        ]
        return sorted(spans, key=lambda span: severity_place(span.severity))

    @property
    def seconds(self) -> float:
        return max(0.0, self.last - self.first)

    @property
    def share(self) -> float:
        """Return how far it is, 0 to 1."""
        if self.last <= self.first:
            return 1.0
        return min(1.0, max(0.0, (self.now - self.first) / (self.last - self.first)))


_MEANS_EVERY_SECONDS = 2.0
_ROOM_FOR_WORDS = 40
"""Cells of a chart from which on it says why a part of it is blank: not those in tables."""


def _saying(text: str, chart: Sequence[Sequence[Run]], first: int, stop: int) -> list[list[Run]]:
    """Return ``chart`` with a text in the middle of the cells from ``first`` up to ``stop``, or its
    words one below the other, where these have room for it and show nothing."""
    first = max(0, first)
    for words in ([text], text.split()) if text else ():
        lines, top = [list(line) for line in chart], len(chart) // 2
        for row, word in enumerate(words, top if len(words) == 1 else max(0, top - 1)):
            place = first + (stop - first - len(word)) // 2
            room = place > first and row < len(lines)
            if not room or not plain(tuple(lines[row]))[place : place + len(word)].isspace():
                break
            lines[row] = with_text(lines[row], place, word, "dim")
        else:
            return lines
    return [list(line) for line in chart]


@dataclass(slots=True)
class View:
    """View of one person. The app changes it; panels only read it."""

    snapshot: Snapshot | None = None
    history: Store = field(default_factory=Store)
    strips: StripCache = field(default_factory=StripCache)
    kept: dict[str, Any] = field(default_factory=dict)
    """Drawings and numbers that panels keep of a frame for the next, by what it is."""
    glyphs: Glyphs = UNICODE
    palette: Palette = field(default_factory=lambda: Palette(GPUWATCH_DARK))
    chart_columns: int = 60
    """Columns of the widest chart on the screen: how exact the cursor is. Drawing brings it up to
    date."""
    interval_seconds: float = 1.0
    slow_link: bool = False
    paused: bool = False
    stale_seconds: float | None = None
    """Age of what is shown, once it is worth saying."""
    focus: str = "gpus"
    selected_gpu: str | None = None
    gpu_offset: int = 0
    selected_row: RowKey | None = None
    process_offset: int = 0
    price_per_gpu_hour: float | None = None
    """Price for what is lost, in money; ``None``: none was given."""
    sort: str = "gpu"
    reverse: bool = False
    filter_text: str = ""
    prompt: Prompt | None = None
    """A line is being typed: keys are text."""
    this_gpu_only: bool = False
    tree: bool = True
    folded: bool | None = None
    """The loader workers of a process are one row; ``None``: where not all processes fit."""
    all_processes: bool = False
    message: str | None = None
    diagnosis: Diagnosis | None = None
    """``None``: nothing is diagnosed here, so no line says anything of it."""
    finding: FindingKey | None = None
    """The one under the cursor of the list, or that is open."""
    in_findings: bool = False
    """The cursor is on a finding of the panel, above what else can be selected."""
    recording: str | None = None
    """A recording is being made: a mark for the header."""
    mark: MarkedChange | None = None
    """A change, of which before and after are shown."""
    job: JobView = field(default_factory=JobView)
    replay: ReplayState | None = None
    """State of the recording that is played, if any."""
    fleet: bool = False
    """True if many machines are shown, a row each."""
    timeline: Timeline = field(default_factory=Timeline)
    """The stretch of the past that every chart shows."""
    given_range: GivenRange | None = None
    """``None``: charts have the range that the person chose."""
    own_range: bool = True
    """The charts of a finding's evidence show the range that shows it best, not the common one."""
    means_of_look: bool = False
    """Numbers are of what the diagnosis looked at also beside charts of more time: a sentence about
    the last minute stands above them."""
    held: dict[Hashable, object] = field(default_factory=dict)
    held_at: int | None = None
    """Period of a few seconds in which the words in ``held`` stay."""
    spans: Sequence[FindingMark] = ()
    """Findings with their times, in the order in which they began."""
    looks_kept: tuple[tuple[Look, ...], Mapping[GpuKey | ProcessKey, Look]] = ((), {})
    """Times of the newest diagnosis, and by GPU and job."""

    @property
    def window(self) -> TimeWindow:
        """Return the stretch of time to draw. A paused view's snapshot stays, and so does its
        window."""
        now = self.snapshot.monotonic_seconds if self.snapshot is not None else 0.0
        timeline = self.timeline
        span = timeline.span_seconds
        # What moves is sent again: where every byte is slow, seldom.
        step = min(span / 6, 30.0) if self.slow_link else 0.0
        return TimeWindow(now, span, step, timeline.end_seconds, timeline.cursor_seconds)

    def window_of_means(self, of: GpuKey | ProcessKey | None = None) -> TimeWindow:
        """Return the stretch of time that numbers beside charts are means of, and nothing that was
        before a change: the charts', or, where that is less than a diagnosis looks at, what this
        looked at last of the GPU or job ``of``, so that both say the same. What is not
        looked at ends every two seconds anew: digits that change with every look are not read, and
        each is sent."""
        window, mark = self.window, self.mark
        if mark is not None and mark.at <= window.now:
            since = window.now - (mark.at if mark.after_from is None else mark.after_from)
            span = min(max(window.span_seconds, WINDOW_SECONDS), max(1.0, since))
            return replace(window, span_seconds=span)
        # A mark may have come while the picture is paused.
        longer = window.span_seconds > WINDOW_SECONDS and not self.means_of_look
        look = None if longer or of is None else self._looks.get(of)
        now, span = window.now, max(window.span_seconds, WINDOW_SECONDS)
        if look is not None and look.seconds > 0.0 and look.until_seconds <= now:
            now, span = look.until_seconds, look.seconds
        elif mark is None and self.interval_seconds < _MEANS_EVERY_SECONDS:
            now -= now % _MEANS_EVERY_SECONDS
        return replace(window, now=now, span_seconds=span)

    @property
    def _looks(self) -> Mapping[GpuKey | ProcessKey, Look]:
        """Return what was looked at last, by GPU and by job. A GPU that several jobs use is in none
        of them alone."""
        found = () if self.diagnosis is None else self.diagnosis.looks
        if found is not self.looks_kept[0]:
            times = Counter([gpu for look in found for gpu in look.gpus])
            looks: dict[GpuKey | ProcessKey, Look] = {}
            for look in found:
                looks |= {gpu: look for gpu in look.gpus if times[gpu] == 1}
                if look.job is not None:
                    looks[look.job] = look
            self.looks_kept = found, looks
        return self.looks_kept[1]

    @property
    def chosen_span_seconds(self) -> float:
        """Return the range that the person chose, whatever the charts were given."""
        given = self.given_range
        if given is None or given.is_refused:
            return self.timeline.span_seconds
        return given.chosen_seconds

    def give_range(self, seconds: float | None) -> None:
        """Have the charts show ``seconds``, or what the person chose, if that is longer; ``None``:
        what the person chose. A range that was chosen since stays, and so does a picture of the
        past."""
        timeline, given = self.timeline, self.given_range
        if timeline.moment is not None or self.paused:
            return
        if given is None:
            given = GivenRange(timeline.span_seconds)
        if not given.is_refused:
            span = max(given.chosen_seconds, seconds or 0.0)
            self.timeline = replace(timeline, span_seconds=span)
        self.given_range = None if seconds is None else given

    def chart(
        self,
        key: tuple[Hashable, ...],
        series: Columns | None,
        width: int,
        limit: float | None,
        style: str,
        rows: int = 1,
        window: TimeWindow | None = None,
        held: Sequence[Held] | None = None,
        owner: Owner | None = None,
        *,
        is_level: bool = False,
    ) -> list[list[Run]]:
        """Draw ``series`` from 0 to ``limit`` in ``rows`` lines of ``width`` cells, the top one
        first; blank without a limit. What is drawn is kept for the next frame under ``key``. A
        chart of how busy a GPU is has the colours of what ``held`` it up, and a line where a change
        was marked; all have words for what they cannot show. ``owner``: the job that it is of. What
        ``is_level`` is a line."""
        if limit is None:
            return [[(" " * max(0, width), "text")]] * rows
        strip = self.strips.get((*key, width, rows))
        window = self.window if window is None else window
        glyphs = self.glyphs
        drawn = strip.draw(
            series, window, width, limit, glyphs, style, rows, held, is_level=is_level
        )
        mark, grid = self.mark, window.grid(max(1, width))
        if mark is not None and held is not None:
            place = grid.place(mark.at)
            drawn = [with_text(line, place, glyphs.separator, "marker") for line in drawn]
        for one in held or ():
            if one.style == NO_ANSWER.hue and width > 0:
                # It moves with the chart.
                first = max(0, grid.place(one.begin_seconds)) + 2
                drawn = _saying(NO_ANSWER.word, drawn, first, first + len(NO_ANSWER.word) + 2)
        if width >= _ROOM_FOR_WORDS and series is not None:
            blanks = self._blanks(series, grid, owner, drawn, of_gpus=held is not None)
            for word, first, stop in list(blanks):
                drawn = _saying(word, drawn, first, stop)
        return drawn

    def _blanks(
        self,
        series: Columns,
        grid: Grid,
        owner: Owner | None,
        drawn: Sequence[Sequence[Run]],
        *,
        of_gpus: bool,
    ) -> Iterator[tuple[str, int, int]]:
        """Yield why parts of a chart are blank, with the first column of each and the one behind
        it: of the past, and of what was before a change."""
        mark, earliest = self.mark, self.history.earliest_at
        of_all = mark is not None and set(mark.gpus) == {gpu.uuid for gpu in self.gpus}
        stop = grid.count
        if mark is not None and of_all:
            ended = grid.place(mark.before_until) + 1
            if of_gpus:
                yield "no job", ended, grid.place(mark.at)
            elif mark.next_run:
                # The row of the GPU says what is between the runs.
                stop = ended
        if earliest is not None and (mark is not None or self.timeline.moment is not None):
            begin = max(0, grid.place(earliest))
            at_begin = [plain(tuple(cut(line, begin, begin + 1))) for line in drawn]
            if not begin and "".join(at_begin).strip():
                # All columns have readings: to ask for them takes time.
                return
            columns = grid.columns_of(series)
            known = next((at for at, one in enumerate(columns) if one is not None), len(columns))
            yield "not watched", 0, begin
            if owner is not None:
                there = max(begin, grid.place(owner.since_seconds))
                stop = min(stop, there)
                yield owner.without, there, known
            yield "not kept", begin, min(known, stop)

    @property
    def column_seconds(self) -> float:
        """Return how much time the cursor stands for: a column of the widest chart."""
        return self.timeline.span_seconds / max(1, self.chart_columns)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.snapshot.gpus if self.snapshot is not None else ()

    def show(self, snapshot: Snapshot) -> None:
        """Have ``snapshot`` on the screen. The first one chooses what a person most likely wants to
        see of this machine."""
        gpus = snapshot.gpus
        if self.snapshot is None:
            self.focus = "gpus" if gpus else "processes"
            if not gpus:
                self.all_processes, self.tree = True, False
                self.sort = "cpu" if self.sort == "gpu" else self.sort
        self.snapshot = snapshot
        if gpus and self.selected_gpu not in {gpu.uuid for gpu in gpus}:
            self.selected_gpu = gpus[0].uuid

    def step_gpu(self, step: int) -> None:
        """Select the GPU so many places on, round about."""
        if self.gpus:
            self.selected_gpu = self.gpus[(self.gpu_position() + step) % len(self.gpus)].uuid

    def gpu_position(self) -> int:
        """Return where the selected GPU stands in the list; 0 if it is gone."""
        for position, gpu in enumerate(self.gpus):
            if gpu.uuid == self.selected_gpu:
                return position
        return 0
