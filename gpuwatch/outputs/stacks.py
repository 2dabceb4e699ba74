"""Sampled stacks as text for a person and as JSON.

The JSON is one object for each process::

    {"pid", "started_at_unix_seconds", "rank", "role", "command", "sentence",
     "problem": a sentence where there is nothing, else null, "ended",
     "seconds", "samples", "errors",
     "shares": [
        {"category": one of stacks.categories.CATEGORIES, "says", "samples", "percent",
         "lines": [{"file", "line", "function", "samples", "percent" (of all samples),
                    "doing": a category, "source": the text of the line or null}]}],
     "cost": {"cpu_seconds", "cpu_percent" (of one core)}}
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpuwatch.core import units
from gpuwatch.jobs.stacks.categories import CATEGORIES
from gpuwatch.jobs.stacks.report import (
    Share,
    StackReport,
    UserLine,
    compare_ranks,
    cost_sentence,
    name_of,
)
from gpuwatch.outputs.terminal import as_ascii, cell_width, cut, wrap

BAR_WIDTH = 20
BAR_WIDTH_NARROW = 10
NARROW = 100
"""Below this many columns the words need the room."""
LINES_SHOWN = 3
LINE_LEAST_PERCENT = 2.0
"""A line with less is left out, unless it is the share's only one."""
DETAILED_AT_MOST = 4
"""With more processes each gets a sentence instead of its lines."""
UNREAD_MUCH_PERCENT = 15.0

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def process_object(report: StackReport) -> dict[str, Any]:
    shares = [
        asdict(one) | {"says": one.says, "lines": [_line(line) for line in one.lines]}
        for one in report.shares
    ]
    made = asdict(report)
    cost = {"cpu_seconds": made.pop("cpu_seconds"), "cpu_percent": report.cpu_percent}
    return made | {"sentence": report.sentence(), "shares": shares, "cost": cost}


def _line(line: UserLine) -> dict[str, Any]:
    made = line.place._asdict() | asdict(line)
    del made["place"]
    return made


def stacks_page(reports: Sequence[StackReport], *, width: int, ascii_only: bool = False) -> str:
    """Return the processes as they were seen, in lines of at most ``width`` cells: how the ranks
    compare, each with its shares and lines, and what it cost."""
    seen = [report for report in reports if report.problem is None]
    parts = []
    sentence = compare_ranks(seen)
    if sentence is not None:
        parts.append(wrap(sentence, width))
    if len(seen) <= DETAILED_AT_MOST:
        parts += [_details(report, width) for report in seen]
    else:
        parts.append([cut(f"{name_of(report)}: {report.sentence()}", width) for report in seen])
    for said in (
        [f"{name_of(report)}: {report.problem}" for report in reports if report.problem],
        _remarks(seen),
    ):
        parts.append([line for sentence in said for line in wrap(sentence, width)])
    page = "\n\n".join("\n".join(lines) for lines in parts if lines)
    return as_ascii(page) if ascii_only else page


def _details(report: StackReport, width: int) -> list[str]:
    name = name_of(report)
    if str(report.pid) not in name.split():
        name += f" (PID {report.pid})"
    samples = units.plural(report.samples, "sample")
    until = ", until it ended" if report.ended else ""
    head = f"{name}: {samples} in {report.seconds:.0f} s{until}"
    lines = [cut(f"{head}  {report.command or ''}".rstrip(), width)]
    for share in report.shares:
        lines += _share_lines(share, width)
    return lines


def _share_lines(share: Share, width: int) -> list[str]:
    bar = _bar(share.percent, BAR_WIDTH if width >= NARROW else BAR_WIDTH_NARROW)
    lines = [cut(f"{share.percent:4.0f}%  {bar}  {share.says}", width)]
    shown = [
        line
        for at, line in enumerate(share.lines[:LINES_SHOWN])
        if at == 0 or line.percent >= LINE_LEAST_PERCENT
    ]
    places = [_place(share, line) for line in shown]
    column = min(max(map(cell_width, places), default=0), max(20, (width - 12) // 2))
    for line, place in zip(shown, places, strict=True):
        padding = " " * max(0, column - cell_width(place))
        where, text = f"{cut(place, max(column, 20))}{padding}", line.source or ""
        row = f"     {line.percent:3.0f}%  {where}  {text}"
        lines.append(cut(row.rstrip(), width))
    return lines


def _place(share: Share, line: UserLine) -> str:
    where = line.place.where
    return where if line.doing == share.category else f"{where}: {CATEGORIES[line.doing].says}"


def _bar(percent: float, width: int) -> str:
    filled = width * min(max(percent, 0.0), 100.0) / 100
    whole = int(filled)
    part = _EIGHTHS[int(8 * (filled - whole))] if whole < width else ""
    return ("█" * whole + part.strip()).ljust(width)


def _remarks(reports: Sequence[StackReport]) -> list[str]:
    lines = []
    worst = max([report.percent_of("unread") for report in reports], default=0.0)
    if worst >= UNREAD_MUCH_PERCENT:
        lines.append(
            f"{worst:.0f}% of the attempts failed: the stack changed while it was read, so code "
            "that runs fast in Python is under-counted."
        )
    cost = cost_sentence(reports)
    return lines if cost is None else [*lines, cost]
