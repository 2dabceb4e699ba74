"""Stacks of a job's main threads, in a window over its screen."""

from collections.abc import Sequence

from rich.text import Text

from gpuwatch.jobs.stacks.summary import Share, StackReport, compare_ranks, cost_sentence, name_of
from gpuwatch.tui.charts.glyphs import ASCII, Glyphs
from gpuwatch.tui.screens.dialogs.dialog import Dialog
from gpuwatch.tui.view import View

_BAR = 20
_LEAST_PERCENT = 1.0
_STYLES = {
    "computing": "fed",
    "waiting_for_data": "main",
    "loading_data": "main",
    "other": "label",
    "unread": "dim",
}


def stacks_dialog(view: View, reports: Sequence[StackReport]) -> Dialog:
    """Each process: the shares of its time with the user's own lines, or why there are none."""
    text = Text()
    compared = compare_ranks(reports)
    if compared is not None:
        text.append(f"{compared}\n\n")
    problems: dict[str, list[StackReport]] = {}
    for report in reports:
        if report.problem is not None:
            problems.setdefault(report.problem, []).append(report)
            continue
        _add_report(text, report, view.glyphs, most_lines=1 if len(reports) > 2 else 3)
    for problem, some in problems.items():
        if len(reports) > 1:
            text.append(f"{', '.join(name_of(report) for report in some)}\n", "title")
        text.append(f"{problem}\n\n")
    text.rstrip()
    return Dialog(view, "where the main threads are", text)


def _add_report(text: Text, report: StackReport, glyphs: Glyphs, most_lines: int) -> None:
    name = name_of(report)
    text.append(name, "title")
    if str(report.pid) not in name.split():
        text.append(f"  PID {report.pid}", "label")
    samples = f"{report.samples} sample{'' if report.samples == 1 else 's'}"
    text.append(f"  {samples} in {report.seconds:.0f} s", "label")
    text.append("  it ended meanwhile\n" if report.ended else "\n", "warn")
    for share in report.shares:
        if share.percent >= _LEAST_PERCENT:
            _add_share(text, share, glyphs, most_lines)
    cost = cost_sentence([report])
    if cost is not None:
        text.append(f"{cost}\n", "dim")
    text.append("\n")


def _add_share(text: Text, share: Share, glyphs: Glyphs, most_lines: int) -> None:
    full = glyphs.solid[8]
    filled = max(1, round(_BAR * share.percent / 100.0))
    style = _STYLES.get(share.category, "host")
    margin = "+-" if glyphs is ASCII else "±"
    text.append(f"  {share.percent:3.0f}%", "value")
    text.append(f" {margin}{share.margin_percent:<3.0f}", "dim")
    text.append(full * filled, style)
    text.append(" " * (_BAR - filled + 1))
    text.append(f"{share.says}\n")
    for line in share.lines[:most_lines]:
        if len(share.lines) > 1:
            text.append(f"        {line.percent:3.0f}%  ", "dim")
        else:
            text.append(" " * 14)
        text.append(line.where, "key")
        if line.caller is not None:
            text.append(f"  called at {line.caller.where}", "label")
        text.append("\n")
        if line.source.text:
            text.append(f"{' ' * 16}{line.source.text}\n", "label")
