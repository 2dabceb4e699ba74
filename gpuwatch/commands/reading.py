"""Recordings read by ``diagnose FILE``, ``report FILE`` and ``compare``, and the part of them that
a person asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuwatch.commands.options import (
    Decorator,
    grouped,
    option_gpu,
    option_interval,
    option_pid,
    option_user,
)
from gpuwatch.commands.printing import EXIT_INTERRUPTED, STANDARD_STREAM, StatusLine
from gpuwatch.commands.watching import GPUS_MAX, terminated_as_interrupted
from gpuwatch.core.text import SentenceError, clean

if TYPE_CHECKING:
    from gpuwatch.core.model import ProcessKey, Snapshot
    from gpuwatch.diagnosis.finding import Unchecked
    from gpuwatch.outputs.report.model import Report, Source
    from gpuwatch.recording.file import Frame, OpenedLog
    from gpuwatch.recording.moments import Moment
    from gpuwatch.recording.statistics import Part
    from gpuwatch.sources.logs.source import LogOptions
    from gpuwatch.sources.logs.text import LogStats


_PROGRESS_SECONDS = 0.5
_COUNTS = (
    *("interval_seconds", "lines", "other_lines", "torn_lines", "overlong_lines"),
    *("unread_values", "incomplete_ticks", "missing_ticks", "clock_jumps"),
)
"""Counts of how well a file could be read; by the same names in what read it and in the report."""


class _Time(click.ParamType):  # type: ignore[type-arg]
    """A ``Moment``, as a person writes it."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        from gpuwatch.recording.moments import MomentError, parse_moment

        try:
            return parse_moment(value)
        except MomentError as error:
            self.fail(str(error), param, ctx)


class Cut(NamedTuple):
    """The part of a recording that was asked for: ``--from``, ``--to``, ``--pid``, ``--gpu``,
    ``--user``."""

    begin: Moment | None = None
    end: Moment | None = None
    pid: int | None = None
    only: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether all that there was at a time is asked for."""
        return self.pid is None and not self.only and not self.users

    @property
    def needs_end(self) -> bool:
        return any(one.needs_end for one in (self.begin, self.end) if one is not None)

    def span(self, first: float, last: float | None) -> tuple[float | None, float | None]:
        """Return from when to when, in a recording from ``first`` to ``last``. Raises
        ``MomentError`` or ``click.UsageError`` for a part that cannot be."""
        begin = None if self.begin is None else self.begin.unix(first, last)
        end = None
        if self.end is not None:
            # 22:00 to 02:00 is a night: the second time of day is after the first.
            of_day = self.end.kind == "of day" and begin is not None
            end = self.end.unix(begin if of_day and begin is not None else first, last)
        if begin is not None and end is not None and end <= begin:
            raise click.UsageError("--to is not after --from: there is nothing between them.")
        return begin, end

    def snapshots(
        self, log: OpenedLog, last: float | None = None, first: float | None = None
    ) -> Iterator[Snapshot]:
        """Return the snapshots of it; ``first``: when the recording began, where ``log`` does not
        begin with it. Raises ``click.UsageError`` for a part that cannot be."""
        from gpuwatch.sources.gpu_filter import only_gpus, only_users

        found = self._between(log.snapshots, last, first)
        found = (only_users(only_gpus(one, self.only), self.users) for one in found)
        return found if self.pid is None else _of_job(found, self.pid)

    def _between(
        self, snapshots: Iterable[Snapshot], last: float | None, first: float | None
    ) -> Iterator[Snapshot]:
        span: tuple[float | None, float | None] | None = None
        for snapshot in snapshots:
            now = snapshot.taken_at_unix_seconds
            if span is None:
                span = self.span(now if first is None else first, last)
            begin, end = span
            if end is not None and now > end:
                return
            if begin is None or now >= begin:
                yield snapshot

    def refuse_what_is_not_there(self, report: Report, shown: str) -> None:
        """Raise ``click.UsageError`` where no GPU or no process of those asked for was in it: a
        report of the rest would say that the machine was well, or idle for another cause."""
        if self.only and not report.gpus:
            raise click.UsageError(f"{shown} has no GPU {', '.join(self.only)}.")
        if self.users and not report.processes and not report.jobs:
            raise click.UsageError(f"{shown} has no process of {' or '.join(self.users)}.")

    def nothing(self, log: OpenedLog) -> str:
        """Return why there was no snapshot, as a sentence."""
        if self.pid is not None:
            if log.kind == "recording":
                within = "" if self.begin is None and self.end is None else " in that time"
                return f"{log.shown} has no job with a process {self.pid}{within}."
            return f"{log.shown} has no jobs in it: --pid needs a recording."
        return f"{log.shown} has nothing between --from and --to."


LOG_INTERVAL_LEAST_SECONDS = 0.01


class LogFacts(NamedTuple):
    """Facts about a log that a person gives, as the log does not say them itself."""

    columns: str | None = None
    gpus: int | None = None
    interval_seconds: float | None = None

    def options(self) -> LogOptions:
        """Check and return them. Raises ``click.UsageError`` or ``LogError`` for what cannot be."""
        from gpuwatch.sources.logs.headings import parse_columns
        from gpuwatch.sources.logs.source import LogOptions

        if self.gpus == 0:
            raise click.UsageError("A log has at least one GPU.")
        named = None if self.columns is None else parse_columns(self.columns)
        return LogOptions(columns=named, interval_seconds=self.interval_seconds, gpus=self.gpus)


def log_options(
    interval: str = "Interval between readings in a log without times.  [default: 1s]",
) -> Decorator:
    """``--columns``, ``--gpus`` and ``--interval``, as the argument ``facts``."""
    help_text = "Column names of a log without a header, as in its query; - skips one."
    return grouped(
        "facts",
        LogFacts,
        option_interval(LOG_INTERVAL_LEAST_SECONDS, default=None, help_text=interval),
        click.option("--columns", metavar="NAMES", help=help_text),
        click.option(
            "--gpus",
            type=click.IntRange(0, GPUS_MAX),
            help="Number of GPUs in a log that does not tell them apart.",
        ),
    )


def option_rediagnose() -> Decorator:
    """``--rediagnose``, as the argument of that name."""
    return click.option(
        "--rediagnose",
        is_flag=True,
        help="Read all of a recording and judge it anew, not by what its recorder found.",
    )


def cut_options(of_what: str = "") -> Decorator:
    """``--pid``, ``--gpu``, ``--user``, ``--from`` and ``--to``, as the argument ``cut``.
    ``of_what`` begins the help."""
    only, start = ("Only", "From") if not of_what else (f"{of_what} only", f"{of_what} from")
    return grouped(
        "cut",
        Cut,
        option_pid(f"{only} the job of this process"),
        option_gpu(),
        option_user(),
        click.option(
            "--from",
            "begin",
            type=_Time(),
            help=f"{start} 14:30, 2026-03-01 14:30, +15m (from its start), -2h (from its end).",
        ),
        click.option("--to", "end", type=_Time(), help="End of the time range."),
    )


def _of_job(snapshots: Iterable[Snapshot], pid: int) -> Iterator[Snapshot]:
    """Cut down to the job that ``pid`` belongs to, from the first snapshot that has it."""
    from gpuwatch.jobs.identity.job_filter import only_job

    key = None
    for snapshot in snapshots:
        key = job_of(snapshot, pid) if key is None else key
        if key is not None:
            yield only_job(snapshot, key)


def job_of(snapshot: Snapshot, pid: int) -> ProcessKey | None:
    """Return the job that has a process ``pid``."""
    for job in snapshot.jobs:
        if pid in {job.pid, *[member.pid for member in job.members]}:
            return job.key
    return None


def read_report(
    paths: Sequence[str],
    cut: Cut | None = None,
    options: LogOptions | None = None,
    *,
    partly: bool = False,
    rediagnose: bool = False,
) -> Report:
    """Return the report of a recording or log, or of recordings of several hosts as one. Of one
    recording it says what its recorder counted and found, minute by minute, without reading its
    lines; with ``rediagnose``, of one job, some GPUs or users alone, and of anything else, the
    lines are read and diagnosed. Ctrl-C and SIGTERM end that with a sentence, or where ``partly``
    with the report of what came before. Raises ``LogError`` for what it is not."""
    cut = cut or Cut()
    with terminated_as_interrupted():
        alone = len(paths) == 1 and paths[0] != STANDARD_STREAM
        if alone and not rediagnose and cut.is_whole:
            report = _summed_report(paths[0], cut)
            if report is not None:
                return report
        return _diagnosed_report(paths, cut, options, partly=partly)


def _summed_report(path: str, cut: Cut) -> Report | None:
    """Return the report by what sums up the frames; ``None`` where not much is summed up."""
    from gpuwatch.outputs.report.accumulator import Accumulator
    from gpuwatch.recording.file import frames_of, ledger_between
    from gpuwatch.sources.logs.text import LogStats

    frames = frames_of(path, whole=cut.begin is None and cut.end is None)
    begins = [frame.begin_unix_seconds for frame in frames]
    ends = [frame.summed.part.time.end for frame in frames if frame.summed and frame.summed.part]
    # Where a clock was set back, the lines know more of what came when.
    if not ends or begins != sorted(begins):
        return None
    begin, end = cut.span(begins[0], ends[-1])
    made, stats = Accumulator(diagnoses=False), LogStats(kind="recording")
    unknown: tuple[Unchecked, ...] | None = None
    for frame, until in zip(frames, [*begins[1:], math.inf], strict=True):
        if (begin is not None and until <= begin) or not _in_time(frame.begin_unix_seconds, end):
            continue
        unknown = unknown if frame.summed is None else frame.summed.unknown
        stats = frame.stats or stats
        if (part := _whole_part(frame, begin, end)) is not None:
            made.merge_part(part)
            continue
        for snapshot in _lines_of(path, frame, until):
            at = snapshot.taken_at_unix_seconds
            if (begin is None or at >= begin) and _in_time(at, end):
                made.push(snapshot)
    if made.time.begin is None:
        raise click.UsageError(f"{clean(path, 200)} has nothing between --from and --to.")
    made.note_ledger(ledger_between(frames, begin, end), unknown)
    stats.kind, stats.lines = "recording", made.time.snapshots
    stats.interval_seconds = made.time.interval_seconds
    return made.report(_source(clean(path, 200), stats))


def _in_time(at: float, end: float | None) -> bool:
    return end is None or at <= end


def _whole_part(frame: Frame, begin: float | None, end: float | None) -> Part | None:
    """Return what sums up a frame, if all of it lies between the two."""
    from gpuwatch.recording.recorder import FRAME_SECONDS

    part = None if frame.summed is None else frame.summed.part
    at_edge = begin is not None and frame.begin_unix_seconds - begin < FRAME_SECONDS
    if part is None or at_edge or not _in_time(part.time.end, end):
        return None
    return part


def _lines_of(path: str, frame: Frame, until: float) -> Iterator[Snapshot]:
    """Yield the snapshots of one frame, up to the time at which the next begins."""
    from gpuwatch.recording.file import open_any

    with open_any(path, begin=(frame.file, frame.offset)) as log:
        for snapshot in log.snapshots:
            if snapshot.taken_at_unix_seconds >= until:
                return
            yield snapshot


def _diagnosed_report(
    paths: Sequence[str], cut: Cut, options: LogOptions | None, *, partly: bool
) -> Report:
    """Return the report by reading and diagnosing all that is asked for."""
    from gpuwatch.outputs.report.accumulator import Accumulator
    from gpuwatch.outputs.report.recorder import JobRecorder

    made: Accumulator | JobRecorder | None = None
    with together(paths, cut._replace(pid=None), options) as (log, snapshots):
        try:
            for snapshot in progress(log, snapshots):
                if made is None and cut.pid is not None:
                    key = job_of(snapshot, cut.pid)
                    made = None if key is None else JobRecorder(key, live=False)
                elif made is None:
                    made = Accumulator()
                if made is not None:
                    made.push(snapshot)
        except KeyboardInterrupt:
            read = f"{log.stats.snapshots:,} moments of {log.shown} were read"
            if made is None or not partly:
                raise SentenceError(
                    f"Interrupted when {read}: nothing is reported.", EXIT_INTERRUPTED
                ) from None
            log.stats.note(f"Interrupted when {read}: this is about them alone.")
        if made is None:
            raise click.UsageError(cut.nothing(log))
        report = made.report(_source(log.shown, log.stats))
    cut.refuse_what_is_not_there(report, log.shown)
    return report


def _source(shown: str, stats: LogStats) -> Source:
    from gpuwatch.outputs.report.model import Source
    from gpuwatch.sources.logs.headings import COLUMNS

    def readings(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({COLUMNS[name].field for name in names}))

    return Source(
        name=shown,
        kind=stats.kind,
        left_out_lines=stats.other_lines + stats.torn_lines + stats.overlong_lines,
        notes=tuple(stats.sentences()),
        unread_readings=readings(stats.unread),
        unreadable_readings=readings(stats.unreadable_columns),
        **{name: getattr(stats, name) for name in _COUNTS},
    )


@contextmanager
def together(
    paths: Sequence[str], cut: Cut, options: LogOptions | None = None
) -> Iterator[tuple[OpenedLog, Iterator[Snapshot]]]:
    """Open recordings that were made at the same time, one on each host, as one: a job that ran on
    several of them is one job. Their PIDs and clocks: see ``recording.hosts.together``."""
    with ExitStack() as stack:
        opened = [stack.enter_context(part(path, cut, options)) for path in paths]
        (log, snapshots), *others = opened
        if not others:
            yield log, snapshots
            return

        from gpuwatch.recording.hosts.together import merged

        def merge() -> Iterator[Snapshot]:
            yield from merged([one for _, one in opened])
            for other, _ in others:
                for note in other.stats.sentences():
                    log.stats.note(f"{other.shown}: {note}")

        yield replace(log, shown=" and ".join([one.shown for one, _ in opened])), merge()


@contextmanager
def part(
    path: str, cut: Cut, options: LogOptions | None = None
) -> Iterator[tuple[OpenedLog, Iterator[Snapshot]]]:
    """Open a recording, and give the snapshots of it that are asked for. What lies before them is
    passed over without being read, where that can be; for the end of anything else all of it is
    read once more. Raises ``LogError``, also while it is read."""
    from gpuwatch.recording.file import RecordingIndex, is_indexed, open_any

    first, last, place = None, None, None
    if (cut.begin is not None or cut.end is not None) and path != STANDARD_STREAM:
        if is_indexed(path):
            index = RecordingIndex(path)
            first, last = index.first_unix_seconds, index.last_unix_seconds
            begin, _ = cut.span(first or 0.0, last)
            place = None if begin is None else index.place(begin)
        elif cut.needs_end:
            with open_any(path, options) as log:
                for snapshot in progress(log, log.snapshots, "looking for the end"):
                    last = snapshot.taken_at_unix_seconds
    with open_any(path, options, begin=place) as log:
        yield log, cut.snapshots(log, last, first)


def progress(
    log: OpenedLog, snapshots: Iterable[Snapshot], doing: str = "reading"
) -> Iterator[Snapshot]:
    """Yield ``snapshots``, with one line on a terminal that says how far it is, gone at the end."""
    line = StatusLine(_PROGRESS_SECONDS, first_after_seconds=_PROGRESS_SECONDS)
    whole = log.lines.whole_bytes
    try:
        for snapshot in snapshots:
            yield snapshot
            if line.due:
                read = min(1.0, log.lines.bytes_read / whole) if whole else None
                share = "" if read is None else f" {read:.0%},"
                line.show(
                    f"gpuwatch: {doing} {log.shown},{share} {log.stats.snapshots:,} moments so far"
                )
    finally:
        line.end()
