"""Sampled Python stacks of a training process, summed up: what it does, and on which lines.

Everything here is pure. ``stack_sampler`` takes the samples, ``stack_rules`` holds what is known
of libraries, ``stack_source`` reads lines of source files.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.jobs.stacks import rules as stack_rules
from gpuwatch.jobs.stacks.rules import CATEGORIES, Frame

NAME_LENGTH = 200
SOURCE_LENGTH = 200
LINES_KEPT = 5
"""Lines kept of each share, those with most samples."""

_Z_95 = 1.959964


class Place(NamedTuple):
    """A line of a program; text is ``clean``. ``line`` is ``None`` where it was not known."""

    file: str
    line: int | None
    function: str

    @property
    def where(self) -> str:
        """``train.py:41``: the last part of the path, and the line."""
        name = self.file.rpartition("/")[2] or self.file
        return name if self.line is None else f"{name}:{self.line}"


class SourceLine(NamedTuple):
    """One line of a source file, ``clean`` and stripped; or why it cannot be shown."""

    text: str | None = None
    why_not: str | None = None


NO_SOURCE = SourceLine()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLine:
    """A line of the user's own code behind a share: the innermost outside of libraries."""

    place: Place
    samples: int
    percent: float
    """Of all samples, as the share's own."""
    doing: str
    """What happened under it, one of ``CATEGORIES``: the share's own category, except while
    evaluating."""
    source: SourceLine = NO_SOURCE
    caller: Place | None = None
    """The user's line that called the library which called this one: for a slow transform the
    line of the training loop."""

    @property
    def where(self) -> str:
        """``train.py:41 (train_one_epoch)``."""
        return f"{self.place.where} ({self.place.function})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One category's share of the samples, with its 95% interval (Wilson's).

    The interval takes samples as independent. Those of one long wait are not, so of a job with
    few long phases less is known than it says.
    """

    category: str
    """One of ``CATEGORIES``."""
    samples: int
    percent: float
    low_percent: float
    high_percent: float
    lines: tuple[UserLine, ...] = ()
    """Most samples first; fewer samples than the share's where no line of the user's was seen."""

    @property
    def says(self) -> str:
        """The category in plain words."""
        return CATEGORIES[self.category]

    @property
    def margin_percent(self) -> float:
        """Half the interval: for ``62% ±7``."""
        return (self.high_percent - self.low_percent) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StackCost:
    """What sampling this process cost."""

    cpu_seconds: float | None = None
    """CPU time of py-spy, its start included."""
    cpu_percent: float | None = None
    """The same, of one core over the time it ran."""
    paused: bool = False
    """The process was stopped for each sample."""


NO_COST = StackCost()


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReport:
    """What one process was seen doing, or why it could not be seen (``problem``)."""

    pid: int
    started_at_unix_seconds: float | None = None
    rank: int | None = None
    role: str = "rank"
    """One of ``model.JOB_ROLES``."""
    command: str | None = None
    seconds: float = 0.0
    """How long it was sampled."""
    rate_per_second: int = 0
    samples: int = 0
    """Stacks of the main thread that were read."""
    errors: int = 0
    """Attempts that failed since the stack changed while it was read: the category ``unread``."""
    torn: int = 0
    """Samples whose outermost frames are missing, for the same reason; they are counted where
    what is left of them belongs."""
    shares: tuple[Share, ...] = ()
    """Largest first; they add up to 100."""
    cost: StackCost = NO_COST
    ended: bool = False
    """The process ended while it was sampled."""
    problem: str | None = None
    """A sentence: why there is nothing, and what to do."""
    refused: bool = False
    """It is not possible or not permitted, and trying again would not help."""

    @property
    def largest(self) -> Share | None:
        """The largest share that says something."""
        return next((share for share in self.shares if share.category != "unread"), None)

    def share(self, category: str) -> Share | None:
        return next((share for share in self.shares if share.category == category), None)

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
        inside = f" ({CATEGORIES[line.doing]})" if _says_more(share, line) else ""
        # Most of it happens there, or how much does is said.
        at = "at" if line.samples >= 0.8 * share.samples else f"({line.percent:.0f}% at"
        end = "" if at == "at" else ")"
        return f"{share.percent:.0f}% {share.says}{inside} {at} {line.where}{end}"

    def cost_sentence(self) -> str | None:
        """``py-spy used 2.1% of a core for 10 s; the job was never paused.``"""
        if self.cost.cpu_percent is None:
            return None
        paused = (
            f"the job was paused {self.samples + self.errors} times, for about a millisecond each"
            if self.cost.paused
            else "the job was never paused"
        )
        used = f"{self.cost.cpu_percent:.1f}% of a core for {self.seconds:.0f} s"
        return f"py-spy used {used}; {paused}."


def _says_more(share: Share, line: UserLine) -> bool:
    return line.doing not in {share.category, "other"}


class Stack(NamedTuple):
    """One distinct stack of one thread, outermost frame first, and how often it was seen."""

    thread: str
    """py-spy's number of the thread: the kernel's (3.11 on) or ``0x`` and the pthread's."""
    name: str
    frames: tuple[Frame, ...]
    samples: int


_RECORD = re.compile(r"^(?=thread \()", re.MULTILINE)
_THREAD = re.compile(r"thread \((0x[0-9A-Fa-f]+|\d+)\)(?:: ([^;]*))?;")
# Function names and file names can hold anything, so the shortest text is taken that ends as a
# frame must end.
_FRAME = re.compile(r"(.*?) \((.*?)(?::(-?\d+))?\)(?:;|\Z)", re.DOTALL)

TEXT_LENGTH = 16 << 20
RECORD_LENGTH = 1 << 20
"""Longer ones (a runaway recursion of hostile names) are left out."""


def parse_raw(text: str) -> list[Stack]:
    """The stacks in py-spy's ``raw`` format with thread ids: a line for each distinct stack,

        ``thread (26003): MainThread;<module> (train.py:9);main (train.py:5) 59``

    Thread, function and file names are the program's and may hold ``;``, parentheses, even line
    ends: what cannot be told apart is misread, never an error. Records without frames are left
    out.
    """
    stacks = []
    for record in _RECORD.split(text[:TEXT_LENGTH]):
        stack = _parse_record(record)
        if stack is not None:
            stacks.append(stack)
    return stacks


def _parse_record(record: str) -> Stack | None:
    body, _, count = record.rstrip().rpartition(" ")
    thread = _THREAD.match(body)
    if thread is None or not (count.isascii() and count.isdecimal() and len(count) < 10):
        return None
    frames = []
    at = thread.end()
    while len(body) < RECORD_LENGTH and (found := _FRAME.match(body, at)):
        frames.append(Frame(found[1], found[2], _line_number(found[3])))
        at = found.end()
    return Stack(thread[1], thread[2] or "", tuple(frames), int(count)) if frames else None


def _line_number(text: str | None) -> int | None:
    # 0: py-spy found no line for a torn frame.
    number = 0 if text is None else int(text[:9])
    return number if number > 0 else None


def main_thread(stacks: Iterable[Stack], pids: Sequence[int]) -> list[Stack]:
    """The stacks of the main thread.

    ``pids`` are the process's own numbers, as seen here and in its PID namespace: since Python
    3.11 the main thread is numbered as one of them. Before, it is the one still named so, or
    else the one whose stacks begin with a module.
    """
    by_thread: dict[str, list[Stack]] = {}
    for stack in stacks:
        by_thread.setdefault(stack.thread, []).append(stack)
    for pid in pids:
        if str(pid) in by_thread:
            return by_thread[str(pid)]
    named = [some for some in by_thread.values() if some[0].name == "MainThread"]
    if named:
        return named[0]
    return max(by_thread.values(), key=_modules_at_the_root, default=[])


def _modules_at_the_root(stacks: list[Stack]) -> int:
    return sum(stack.samples for stack in stacks if stack.frames[0].function == "<module>")


class _Seen(NamedTuple):
    """What one stack says."""

    category: str
    doing: str
    user: Frame | None
    caller: Frame | None


ReadLine = Callable[[str, int], SourceLine]
"""Reads a line of a file by its name as the process knows it. It is asked for raw names."""


def no_source(_file: str, _line: int) -> SourceLine:
    """For stacks whose files cannot be read."""
    return NO_SOURCE


def read_stack(frames: Sequence[Frame], read_line: ReadLine = no_source) -> _Seen:
    """Category, what is done inside, the user's innermost line and the one that called it."""
    frames = frames[stack_rules.begins_at(frames) :]
    doing = stack_rules.activity(frames, _leaf_category(frames[-1], read_line))
    category = doing
    if doing not in {"saving", "waiting_for_work"} and stack_rules.is_evaluating(frames):
        category = "evaluating"
    user, caller = user_frames(frames)
    return _Seen(category, doing, user, caller)


def _leaf_category(leaf: Frame, read_line: ReadLine) -> str | None:
    if leaf.line is None or leaf.file.startswith("<"):
        return None
    # Torch's own files are known by name.
    if stack_rules.tags(leaf.file, leaf.function):
        return None
    text = read_line(leaf.file, leaf.line).text
    return None if text is None else stack_rules.line_category(text)


def user_frames(frames: Sequence[Frame]) -> tuple[Frame | None, Frame | None]:
    """The innermost frame of the user's own code, and the next one outwards that is behind a
    library's. A program that is installed itself counts as the user's if nothing else does."""
    own = [_is_own(frames, at) for at in range(len(frames))]
    if not any(own) and (frames[0].function == "<module>" or frames[0].file.startswith("<frozen")):
        package = next(
            (found for frame in frames if (found := stack_rules.package_of(frame.file))), None
        )
        own = [package is not None and frame.file.startswith(package) for frame in frames]
    if not any(own):
        return None, None
    innermost = len(own) - 1 - own[::-1].index(True)
    library = next((at for at in range(innermost, -1, -1) if not own[at]), 0)
    caller = next((frames[at] for at in range(library, -1, -1) if own[at]), None)
    return frames[innermost], caller if library < innermost and not own[library] else None


def _is_own(frames: Sequence[Frame], at: int) -> bool:
    file = frames[at].file
    if not stack_rules.is_users(file) or stack_rules.is_entry_point(file):
        return False
    # The command line of a process that multiprocessing started.
    begins = at + 1 < len(frames) and frames[at + 1].file.endswith("/multiprocessing/spawn.py")
    return not (file == "<string>" and begins)


@dataclass(slots=True)
class _Tally:
    samples: int = 0
    lines: dict[tuple[Frame, str], _LineTally] = field(default_factory=dict)


@dataclass(slots=True)
class _LineTally:
    samples: int = 0
    callers: Counter[Frame] = field(default_factory=Counter)


def shares_of(
    stacks: Iterable[Stack], errors: int = 0, read_line: ReadLine = no_source
) -> tuple[Share, ...]:
    """The shares of one thread's stacks, largest first; ``errors`` attempts that gave none are
    the share ``unread``, since a stack that cannot be read is one that changes."""
    tallies: dict[str, _Tally] = {}
    for stack in stacks:
        seen = read_stack(stack.frames, read_line)
        tally = tallies.setdefault(seen.category, _Tally())
        tally.samples += stack.samples
        if seen.user is not None:
            line = tally.lines.setdefault((seen.user, seen.doing), _LineTally())
            line.samples += stack.samples
            if seen.caller is not None:
                line.callers[seen.caller] += stack.samples
    if errors:
        tallies["unread"] = _Tally(errors)
    total = sum(tally.samples for tally in tallies.values())
    order = list(CATEGORIES)
    return tuple(
        [
            _share(category, tally, total, read_line)
            for category, tally in sorted(
                tallies.items(), key=lambda item: (-item[1].samples, order.index(item[0]))
            )
        ]
    )


def _share(category: str, tally: _Tally, total: int, read_line: ReadLine) -> Share:
    low, high = wilson_percent(tally.samples, total)
    lines = sorted(tally.lines.items(), key=lambda item: -item[1].samples)[:LINES_KEPT]
    return Share(
        category=category,
        samples=tally.samples,
        percent=100.0 * tally.samples / total,
        low_percent=low,
        high_percent=high,
        lines=tuple(
            [
                UserLine(
                    place=_place(frame),
                    samples=line.samples,
                    percent=100.0 * line.samples / total,
                    doing=doing,
                    source=_source(frame, read_line),
                    caller=_place(line.callers.most_common(1)[0][0]) if line.callers else None,
                )
                for (frame, doing), line in lines
            ]
        ),
    )


def _place(frame: Frame) -> Place:
    return Place(
        clean(frame.file), frame.line, clean(frame.function.replace("<locals>.", ""), NAME_LENGTH)
    )


def _source(frame: Frame, read_line: ReadLine) -> SourceLine:
    if frame.line is None:
        return NO_SOURCE
    found = read_line(frame.file, frame.line)
    return found._replace(
        text=None if found.text is None else clean(found.text.strip(), SOURCE_LENGTH)
    )


def torn_count(stacks: Sequence[Stack]) -> int:
    """Samples that do not begin where most do: their outermost frames are missing."""
    roots: Counter[tuple[str, str]] = Counter()
    for stack in stacks:
        roots[stack.frames[0].function, stack.frames[0].file] += stack.samples
    return sum(roots.values()) - max(roots.values(), default=0)


def wilson_percent(count: int, total: int) -> tuple[float, float]:
    """The 95% interval of a share, in percent (Wilson 1927): sensible at 0, at 100 and for few
    samples. (0, 100) where there is none."""
    if total <= 0:
        return 0.0, 100.0
    share = count / total
    scale = 1 + _Z_95**2 / total
    middle = share + _Z_95**2 / (2 * total)
    reach = _Z_95 * math.sqrt(share * (1 - share) / total + _Z_95**2 / (4 * total**2))
    return max(0.0, 100 * (middle - reach) / scale), min(100.0, 100 * (middle + reach) / scale)


RANKS_DIFFER_PERCENT = 20.0
"""Less than this can be chance at 200 samples each with several categories looked at."""


def compare_ranks(reports: Sequence[StackReport]) -> str | None:
    """One sentence on how the ranks differ; ``None`` where they do not, or there is one.

    In a collective all wait for the last to arrive: the rank that waits least is the one the
    others wait for.
    """
    ranks = [report for report in reports if report.role == "rank" and report.samples > 0]
    if len(ranks) < 2:
        return None
    best: tuple[float, str, StackReport, StackReport] | None = None
    for category in CATEGORIES:
        if category in {"unread", "other"}:
            continue
        most = max(ranks, key=lambda report: _percent(report, category))
        least = min(ranks, key=lambda report: _percent(report, category))
        spread = _percent(most, category) - _percent(least, category)
        if spread >= RANKS_DIFFER_PERCENT and (best is None or spread > best[0]):
            best = (spread, category, most, least)
    if best is None:
        return None
    _, category, most, least = best
    if category == "collective":
        return (
            f"{name_of(least)} waits least in collectives ({_percent(least, category):.0f}%, "
            f"{name_of(most)} {_percent(most, category):.0f}%): the others wait for it. "
            f"Most of its time: {least.sentence()}."
        )
    return (
        f"{name_of(most)} is {_percent(most, category):.0f}% {CATEGORIES[category]}, "
        f"{name_of(least)} only {_percent(least, category):.0f}%."
    )


def _percent(report: StackReport, category: str) -> float:
    share = report.share(category)
    return 0.0 if share is None else share.percent


def name_of(report: StackReport) -> str:
    """``rank 3``; by its PID where the rank's number is not known."""
    if report.role == "loader_worker":
        return f"loader worker {report.pid}"
    return f"PID {report.pid}" if report.rank is None else f"rank {report.rank}"
