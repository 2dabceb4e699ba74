"""Sampled stacks as text for a person and as JSON.

The JSON is one object for each process::

    {"pid", "started_at_unix_seconds", "rank", "role", "command", "sentence",
     "problem": a sentence where there is nothing, else null, "ended",
     "seconds", "samples", "errors",
     "shares": [
        {"category": one of stacks.categories.CATEGORIES, "says", "samples", "percent",
         "low_percent", "high_percent" (95% interval),
         "lines": [{"file", "line", "function", "samples", "percent" (of all samples),
                    "doing": a category, "source", "source_why_not",
                    "caller": {"file", "line", "function"} or null}]}],
     "cost": {"cpu_seconds", "cpu_percent" (of one core)}}
"""

import re
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
from gpuwatch.outputs.terminal import Column, as_ascii, cell_width, cut, table

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
    source = {"source": line.source.text, "source_why_not": line.source.why_not}
    del made["place"]
    return made | source | {"caller": None if line.caller is None else line.caller._asdict()}


def stacks_page(reports: Sequence[StackReport], *, width: int, ascii_only: bool = False) -> str:
    """The processes as they were seen, in lines of at most ``width`` cells: how the ranks
    compare, each with its shares and lines, and what it cost."""
    seen = [report for report in reports if report.problem is None]
    parts = []
    ranks = [report for report in seen if report.role == "rank"]
    if len(ranks) > 1:
        parts.append(_comparison(ranks, width))
    if len(seen) <= DETAILED_AT_MOST:
        parts += [_details(report, width) for report in seen]
    else:
        parts.append([cut(f"{name_of(report)}: {report.sentence()}", width) for report in seen])
    parts.append([f"{name_of(report)}: {report.problem}" for report in reports if report.problem])
    parts.append(_remarks(seen))
    page = "\n\n".join("\n".join(lines) for lines in parts if lines)
    return as_ascii(page.replace("±", "~")) if ascii_only else page


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
    callers = {line.caller for line in share.lines}
    caller = callers.pop() if len(callers) == 1 else None
    called = f", from {caller.where}" if caller is not None else ""
    margin = f"±{share.margin_percent:.0f}"
    bar = _bar(share.percent, BAR_WIDTH if width >= NARROW else BAR_WIDTH_NARROW)
    lines = [cut(f"{share.percent:4.0f}% {margin:<4}{bar}  {share.says}{called}", width)]
    shown = [
        line
        for at, line in enumerate(share.lines[:LINES_SHOWN])
        if at == 0 or line.percent >= LINE_LEAST_PERCENT
    ]
    places = [_place(share, line) for line in shown]
    column = min(max(map(cell_width, places), default=0), max(20, (width - 12) // 2))
    for line, place in zip(shown, places, strict=True):
        why_not = f"[{line.source.why_not}]" if line.source.why_not else ""
        text = why_not if line.source.text is None else line.source.text
        padding = " " * max(0, column - cell_width(place))
        row = f"     {line.percent:3.0f}%  {cut(place, max(column, 20))}{padding}  {text}"
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


def _comparison(reports: Sequence[StackReport], width: int) -> list[str]:
    said = {
        what.says: [report.percent_of(name) for report in reports]
        for name, what in CATEGORIES.items()
    }
    rows = [
        [says, *[f"{one:.0f}%" if one else "-" for one in percents]]
        for says, percents in said.items()
        if any(percents)
    ]
    names: list[Column[str]] = [
        Column(name_of(one), rank=place) for place, one in enumerate(reports, start=1)
    ]
    lines = table([Column("", kind="text"), *names], rows, width)
    left = len(names) - len(re.findall("  \\S", lines[0]))
    lines += [f"({left} more do not fit the width)"] if left else []
    sentence = compare_ranks(reports)
    return [*lines, "", sentence] if sentence else lines


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
