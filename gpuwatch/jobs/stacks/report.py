"""Sum up the sampled Python stacks of a training process: what it does, and on which lines.

Lines of source files are read as the job sees them. The names come out of the job's memory, so
they are anything: a pipe, a device, a link out of its container, a file only root may read. Only
ordinary files of a bounded size are opened, below the job's own root, and only what the job's user
could read too.
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.model import Job
from gpuwatch.core.text import clean
from gpuwatch.jobs.stacks.categories import (
    CATEGORIES,
    Frame,
    ReadLine,
    Stack,
    no_source,
    read_stack,
)
from gpuwatch.sources.linux import procfs

NAME_LENGTH = 200
SOURCE_LENGTH = 200
LINES_KEPT = 5
"""Lines kept of each share, those with most samples."""


class Place(NamedTuple):
    """A line of a program; text is ``clean``. ``line`` is ``None`` where it was not known."""

    file: str
    line: int | None
    function: str

    @property
    def where(self) -> str:
        """``train.py:41 (train_one_epoch)``: the last part of the path, the line, the function."""
        name = self.file.rpartition("/")[2] or self.file
        line = "" if self.line is None else f":{self.line}"
        return f"{name}{line} ({self.function})"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLine:
    """A line of the user's own code behind a share: the innermost outside of libraries."""

    place: Place
    samples: int
    percent: float
    """Share of all samples, as the share's own."""
    doing: str
    """The category under it, one of ``CATEGORIES``: the share's own category, except while
    evaluating."""
    source: str | None = None
    """The text of the line; ``None`` where it cannot be read or may not be true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One category's share of the samples."""

    category: str
    """One of ``CATEGORIES``."""
    samples: int
    percent: float
    lines: tuple[UserLine, ...] = ()
    """Most samples first; fewer samples than the share's where no line of the user's was seen."""

    @property
    def says(self) -> str:
        """The category in plain words."""
        return CATEGORIES[self.category].says


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReport:
    """One process as it was seen, or why it could not be seen (``problem``)."""

    pid: int
    started_at_unix_seconds: float | None = None
    rank: int | None = None
    role: str = "rank"
    """One of ``model.JOB_ROLES``."""
    command: str | None = None
    seconds: float = 0.0
    """How long it was sampled."""
    samples: int = 0
    """Stacks of the main thread that were read."""
    errors: int = 0
    """Attempts that failed since the stack changed while it was read: the category ``unread``."""
    shares: tuple[Share, ...] = ()
    """Largest first; they add up to 100."""
    cpu_seconds: float | None = None
    """CPU time of py-spy, its start included."""
    ended: bool = False
    """The process ended while it was sampled."""
    problem: str | None = None
    """A sentence: why there is nothing, and what to do."""

    @property
    def cpu_percent(self) -> float | None:
        """CPU that py-spy used while it ran, percent of one core."""
        if self.cpu_seconds is None or self.seconds <= 0:
            return None
        return 100.0 * self.cpu_seconds / self.seconds

    @property
    def largest(self) -> Share | None:
        """The largest share that says something."""
        return next((share for share in self.shares if share.category != "unread"), None)

    def percent_of(self, category: str) -> float:
        return next((one.percent for one in self.shares if one.category == category), 0.0)

    def sentence(self) -> str:
        """``62% waiting for data at train.py:41 (train_one_epoch)``, or the problem."""
        if self.problem is not None:
            return self.problem
        share = self.largest
        if share is None:
            return "No stack could be read."
        line = share.lines[0] if share.lines else None
        if line is None:
            return f"{share.percent:.0f}% {share.says}"
        says_more = line.doing not in {share.category, "other"}
        inside = f" ({CATEGORIES[line.doing].says})" if says_more else ""
        # Most of it happens there, or how much does is said.
        at = "at" if line.samples >= 0.8 * share.samples else f"({line.percent:.0f}% at"
        end = "" if at == "at" else ")"
        return f"{share.percent:.0f}% {share.says}{inside} {at} {line.place.where}{end}"


def cost_sentence(reports: Sequence[StackReport]) -> str | None:
    """``py-spy used 2.1% of a core for 10 s; the job was never paused.``"""
    known = [report for report in reports if report.cpu_percent is not None]
    if not known:
        return None
    total = sum(report.cpu_percent or 0.0 for report in known)
    processes = f"{len(known)} processes, " if len(known) > 1 else ""
    return (
        f"py-spy used {total:.1f}% of a core for {processes}"
        f"{max(report.seconds for report in known):.0f} s; the job was never paused."
    )


def shares_of(
    stacks: Iterable[Stack], errors: int = 0, read_line: ReadLine = no_source
) -> tuple[Share, ...]:
    """Return the shares of one thread's stacks, largest first; ``errors`` attempts that gave none
    are the share ``unread``, since a stack that cannot be read is one that changes."""
    samples: Counter[str] = Counter({"unread": errors} if errors else {})
    lines: Counter[tuple[str, Frame, str]] = Counter()
    for stack in stacks:
        seen = read_stack(stack.frames, read_line)
        samples[seen.category] += stack.samples
        if seen.user is not None:
            lines[seen.category, seen.user, seen.doing] += stack.samples
    total = samples.total()

    def user_line(line: tuple[str, Frame, str]) -> UserLine:
        _, frame, doing = line
        return UserLine(
            place=_place(frame),
            samples=lines[line],
            percent=100.0 * lines[line] / total,
            doing=doing,
            source=_source(frame, read_line),
        )

    def share(category: str) -> Share:
        own = [line for line, _ in lines.most_common() if line[0] == category]
        return Share(
            category=category,
            samples=samples[category],
            percent=100.0 * samples[category] / total,
            lines=tuple([user_line(line) for line in own[:LINES_KEPT]]),
        )

    in_order = [category for category in CATEGORIES if category in samples]
    return tuple([share(one) for one in sorted(in_order, key=lambda one: -samples[one])])


def _place(frame: Frame) -> Place:
    return Place(
        clean(frame.file), frame.line, clean(frame.function.replace("<locals>.", ""), NAME_LENGTH)
    )


def _source(frame: Frame, read_line: ReadLine) -> str | None:
    found = None if frame.line is None else read_line(frame.file, frame.line)
    return None if found is None else clean(found.strip(), SOURCE_LENGTH)


RANKS_DIFFER_PERCENT = 20.0
"""Less than this can be chance at 200 samples each with several categories looked at."""


def compare_ranks(reports: Sequence[StackReport]) -> str | None:
    """Return one sentence on how the ranks differ; ``None`` where they do not, or there is one.

    In a collective all wait for the last to arrive: the rank that waits least is the one the
    others wait for.
    """
    ranks = [report for report in reports if report.role == "rank" and report.samples > 0]
    if len(ranks) < 2:
        return None

    def ends(one: str) -> tuple[StackReport, StackReport]:
        least = min(ranks, key=lambda report: report.percent_of(one))
        return least, max(ranks, key=lambda report: report.percent_of(one))

    def spread(one: str) -> float:
        least, most = ends(one)
        return most.percent_of(one) - least.percent_of(one)

    category = max([one for one in CATEGORIES if one not in {"unread", "other"}], key=spread)
    if spread(category) < RANKS_DIFFER_PERCENT:
        return None
    least, most = ends(category)
    low, high = f"{least.percent_of(category):.0f}%", f"{most.percent_of(category):.0f}%"
    if category == "collective":
        return (
            f"{name_of(least)} waits least in collectives ({low}, {name_of(most)} {high}): "
            f"the others wait for it. Most of its time: {least.sentence()}."
        )
    return f"{name_of(most)} is {high} {CATEGORIES[category].says}, {name_of(least)} only {low}."


def name_of(report: StackReport) -> str:
    """``rank 3``; by its PID where the rank's number is not known."""
    if report.role == "loader_worker":
        return f"loader worker {report.pid}"
    return f"PID {report.pid}" if report.rank is None else f"rank {report.rank}"


def stack_facts(
    job: Job, reports: Sequence[StackReport]
) -> tuple[tuple[str, float, str | None], ...]:
    """Return (category, percent, the user's line) over the main threads of the job's training
    processes, the largest first."""
    pids = {member.pid for member in job.members} | {rank.pid for rank in job.ranks} | {job.pid}
    own = [one for one in reports if one.pid in pids and one.shares and one.role != "loader_worker"]
    percents: dict[str, float] = {}
    lines: dict[str, tuple[int, str]] = {}
    for share in [share for report in own for share in report.shares]:
        category = share.category
        if category == "unread":
            continue
        percents[category] = percents.get(category, 0.0) + share.percent / len(own)
        if share.lines and share.lines[0].samples > lines.get(category, (0, ""))[0]:
            lines[category] = (share.lines[0].samples, share.lines[0].place.where)
    in_order = sorted(percents.items(), key=lambda item: -item[1])
    return tuple([(one, percent, lines.get(one, (0, None))[1]) for one, percent in in_order])


# Source files of the job

FILE_BYTES = 4 << 20
FILES_MAX = 64
_LINKS_MAX = 40
"""As the kernel follows at most in one path (path_resolution(7))."""

_LINE_ENDS = re.compile(r"\r\n|\r|\n")
"""Line ends of Python; ``str.splitlines`` also splits at form feeds, which some sources hold."""

EDITED_SECONDS = 2.0
"""Start times are off by up to a second (procfs.boot_unix_seconds), and a program is read some
time after its start: ``sed -i ... && python train.py`` runs the new file."""


class JobSource:
    """Lines of a job's files, each file read once. Never raises for what a file can be."""

    def __init__(
        self, pid: int, started_at_unix_seconds: float | None, proc: Path = procfs.PROC
    ) -> None:
        self._pid = pid
        self._started_at = started_at_unix_seconds
        self._proc = proc
        self._files: dict[str, list[str]] = {}

    def line(self, file: str, number: int) -> str | None:
        """Return the line, 1 the first; ``None`` where it cannot be read or may not be true."""
        if file.startswith("<") or "\0" in file:
            return None
        if file not in self._files:
            if len(self._files) >= FILES_MAX:
                return None
            self._files[file] = self._read(file)
        lines = self._files[file]
        return lines[number - 1] if 0 < number <= len(lines) else None

    def _read(self, file: str) -> list[str]:
        try:
            path = self._path(file)
            # Opening a device can already do something.
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return []
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return []
        with os.fdopen(descriptor, "rb") as opened:
            facts = os.fstat(descriptor)
            is_source = stat.S_ISREG(facts.st_mode) and facts.st_size <= FILE_BYTES
            if not is_source or not self._may_read(facts):
                return []
            # It may have been imported after that, but nothing says so.
            if self._started_at is not None and facts.st_mtime > self._started_at + EDITED_SECONDS:
                return []
            return _LINE_ENDS.split(opened.read(FILE_BYTES).decode("utf-8-sig", "replace"))

    def _path(self, file: str) -> str:
        """Return the path of the file for us. Links are followed here, not by the kernel: it would
        take an absolute one inside a container for a path of ours."""
        root = f"{self._proc}/{self._pid}/root"
        if not file.startswith("/"):
            file = f"{os.readlink(f'{self._proc}/{self._pid}/cwd')}/{file}"  # noqa: PTH115
        parts = file.split("/")[::-1]
        done: list[str] = []
        links = 0
        while parts:
            part = parts.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                del done[-1:]
                continue
            try:
                target = os.readlink("/".join([root, *done, part]))  # noqa: PTH115
            except OSError:
                done.append(part)
                continue
            links += 1
            if links > _LINKS_MAX:
                raise OSError("too many links")
            if target.startswith("/"):
                done = []
            parts.extend(target.split("/")[::-1])
        return "/".join([root, *done])

    def _may_read(self, facts: os.stat_result) -> bool:
        """False where root could, and the job's user could not: a file's name alone must not be a
        way to it."""
        own = os.geteuid()
        if own != 0 or facts.st_mode & stat.S_IROTH:
            return True
        try:
            owner = os.stat(f"{self._proc}/{self._pid}").st_uid  # noqa: PTH116
        except OSError:
            return False
        return owner in {facts.st_uid, own}
