"""Words that all forms of a report share: times, GPUs, amounts, how a job ended."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.catalogue import known
from gpuwatch.outputs.report.model import GpuUsage, JobUsage, ProcessUsage, Report, Stretch

T = TypeVar("T")

DAY_SECONDS = 86400.0
FINE_SECONDS = 3600.0
"""Time up to which seconds matter."""
MOMENT_SECONDS = 0.5
"""Time within which readings are of one moment, over which nothing can be added up."""
STRETCHES_SHOWN = 4
APART_POINTS = 5.0
"""Points by which a rank must wait more than the mean to be named."""


class Times:
    """Moments of one report as a person reads them: local times, or from its start where the log
    has no dates."""

    def __init__(self, report: Report) -> None:
        self._begin = report.time.begin_unix_seconds
        self._dated = report.time.has_dates
        self._form = "%H:%M:%S" if report.time.seconds <= FINE_SECONDS else "%H:%M"
        if report.time.seconds > DAY_SECONDS:
            self._form = f"%m-%d {self._form}"

    def moment(self, unix_seconds: float) -> str:
        """Return ``14:30``, with the day where the time is longer than one."""
        if not self._dated:
            return f"+{units.age(unix_seconds - self._begin)}"
        return clock(unix_seconds, self._form)

    def stretch(self, stretch: Stretch) -> str:
        """Return ``14:30 to 15:30 (1h00)``."""
        begin, end = self.moment(stretch.begin_unix_seconds), self.moment(stretch.end_unix_seconds)
        length = units.age(stretch.seconds)
        return f"{begin} ({length})" if begin == end else f"{begin} to {end} ({length})"

    def stretches(self, every: Sequence[Stretch], most: int = STRETCHES_SHOWN) -> tuple[str, int]:
        """Return the longest stretches, in the order of their time, and how many are left out."""
        longest = sorted(every, key=lambda one: -one.seconds)[:most]
        shown = [self.stretch(one) for one in every if one in longest]
        return ", ".join(shown), len(every) - len(shown)

    def zone(self) -> str:
        """Return ``local time, UTC+01:00``."""
        if not self._dated:
            return "from the start: the log has no dates"
        offset = local(self._begin).strftime("%z")
        return f"local time, UTC{'' if offset == '+0000' else f'{offset[:3]}:{offset[3:]}'}"


def local(unix_seconds: float) -> datetime:
    return datetime.fromtimestamp(unix_seconds, tz=UTC).astimezone()


def clock(unix_seconds: float, form: str) -> str:
    """Return a local time; ``form`` as for ``strftime``, with %F and %T on every platform."""
    return local(unix_seconds).strftime(form.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S"))


def span(begin: float, end: float) -> str:
    """Return ``2026-03-01 20:00:00 to 21:00:00``."""
    same_day = clock(begin, "%F") == clock(end, "%F")
    return f"{clock(begin, '%F %T')} to {clock(end, '%T' if same_day else '%F %T')}"


def when(report: Report) -> str:
    """Return ``2026-03-01 20:00:00 to 2026-03-02 08:00:00 (12h00)``."""
    time = report.time
    if not time.has_dates:
        return f"{units.age(time.seconds)} of a log without dates"
    return f"{span(time.begin_unix_seconds, time.end_unix_seconds)} ({units.age(time.seconds)})"


def gpu_names(report: Report) -> str:
    """Return ``8 x NVIDIA H200``, ``no GPU``."""
    names = [gpu.name for gpu in report.cards]
    counts = {name: names.count(name) for name in names}
    return ", ".join(name if n == 1 else f"{n} x {name}" for name, n in counts.items()) or "no GPU"


def labels(uuids: Sequence[str], report: Report) -> str:
    """Return ``GPU 0``, ``GPUs 0-3, 6``, ``all GPUs``."""
    wanted = set(uuids)
    found = [gpu.label for gpu in report.gpus if gpu.uuid in wanted]
    if not found:
        return "no GPU" if not uuids else "a GPU"
    if len(found) == 1:
        return f"GPU {found[0]}"
    return "all GPUs" if len(found) == len(report.gpus) else f"GPUs {gpu_labels(uuids, report)}"


def gpu_labels(uuids: Sequence[str], report: Report) -> str:
    """Return ``0-3``; ``-`` for none."""
    found = [gpu.label for gpu in report.gpus if gpu.uuid in set(uuids)]
    return units.ranges(found).replace(",", ", ") if found or not uuids else "?"


def busy_missing(gpu: GpuUsage, report: Report) -> str:
    """Return why nobody knows how busy it was, as a clause."""
    if gpu.busy_missing is not None:
        return gpu.busy_missing
    if report.source is not None and "busy_percent" in report.source.unreadable_readings:
        return "its values in the log could not be read"
    return "not reported by the driver" if was_asked(report) else "not in the log"


def was_asked(report: Report) -> bool:
    """Whether somebody asked the driver how busy the GPUs are; a log can lack the column."""
    source = report.source
    if source is None or source.kind == "recording":
        return True
    return "busy_percent" in source.unread_readings


def oscillation(gpu: GpuUsage) -> str:
    """Return ``every 1.9s, 98% of the time``; empty where there was no oscillation."""
    swinging, known = gpu.oscillating_seconds, gpu.rhythm_seconds
    if not swinging or not known or swinging < 0.02 * known:
        return ""
    share_ = units.percent(100.0 * swinging / known)
    rhythm = (
        "without a rhythm" if gpu.period_seconds is None else f"every {period(gpu.period_seconds)}"
    )
    return f"{rhythm}, {share_} of the time"


def period(seconds: float | None) -> str:
    if seconds is None:
        return units.UNKNOWN
    return f"{seconds:.1f}s" if seconds < 9.95 else units.age(seconds)


def share(value: float | None) -> str:
    """Return a share of 0 to 1 as a percentage; little is not nothing."""
    if value is None:
        return units.UNKNOWN
    return "<1%" if 0.0 < value < 0.005 else f"{100 * value:.0f}%"


def cause(rule: str, *, in_doubt: bool = False) -> str:
    """Return the name of a rule's cause, as the screens have it, and in as much doubt."""
    return clean((in_doubt and known(rule).title_in_doubt) or known(rule).title, 60)


def cost(
    seconds: float | None, report: Report, joules: float | None = None, *, share_said: bool = False
) -> str:
    """Return ``4.7 GPU-hours, 5% of all GPU time, 11.75 at 2.5 a GPU-hour``, without a price the
    energy instead; empty where it costs no time, or only a moment is known. ``share_said``: the
    share stands beside."""
    if seconds is None or min(seconds, report.time.seconds) < MOMENT_SECONDS:
        return ""
    all_ = report.gpu_seconds
    said = not all_ or share_said
    of = "" if said else f", {share(min(1.0, seconds / all_))} of all GPU time"
    return f"{units.gpu_time(seconds)}{of}{units.worth(seconds, report.price_per_gpu_hour, joules)}"


def hours(seconds: float | None) -> str:
    """Return GPU or core time for a table: ``42s``, ``13m20``, ``93h``; hours do not become
    days."""
    if seconds is None or seconds < 36_000:
        return units.age(seconds)
    return f"{seconds / 3600:,.0f}h"


def lost(seconds: float | None) -> str:
    """Return GPU time that was idle or lost, for a table: 273.6 s are ``4m34``, as they are 274
    GPU-seconds in a sentence (``units.gpu_time``)."""
    return hours(None if seconds is None else round(seconds))


def amount(value: float | None) -> str:
    """Return an amount of seconds: ``4.2``, ``12,345``."""
    if value is None:
        return units.UNKNOWN
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def ratio(value: float) -> str:
    """Return ``same``, ``-12%``, ``11 times``."""
    if abs(value - 1) < 0.005:
        return "same"
    return f"{min(value, 9999):.0f} times" if value >= 10 else f"{100 * (value - 1):+.0f}%"


def command(job: JobUsage) -> str:
    return job.command or f"process {job.pid}"


def process_name(process: ProcessUsage) -> str:
    """Return the name of a process; a loader worker has the command line of its parent."""
    if process.role == "loader_worker":
        return f"loader worker ({process.name or 'process'})"
    return process.command or process.name or units.UNKNOWN


def waited_most(job: JobUsage) -> str:
    """Return ``rank 3 (30% of the time)`` where it waited clearly more than the mean of the
    ranks."""
    loop = job.loop
    most, mean = loop.data_wait_most_percent, loop.data_wait_percent
    if most is None or mean is None or most - mean < APART_POINTS:
        return ""
    rank = loop.data_wait_most_rank
    which = "one rank" if rank is None else f"rank {rank}"
    return f"{which} ({units.percent(most)} of the time)"


def grouped(pairs: Iterable[tuple[str, T]]) -> Mapping[str, list[T]]:
    """Return items by their text, in the order of the first of each."""
    found: dict[str, list[T]] = {}
    for text, item in pairs:
        found.setdefault(text, []).append(item)
    return found
