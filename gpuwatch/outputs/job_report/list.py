"""The reports that are kept, a line each."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core import units
from gpuwatch.jobs.report.report import JobReport
from gpuwatch.outputs.job_report.lines import WIDTH_MIN
from gpuwatch.outputs.job_report.words import clock, command, end_word, moment, optional_grouped
from gpuwatch.outputs.terminal.painting import BOLD, painter, to_ascii
from gpuwatch.outputs.terminal.table import Heading, table

_LIST_HEADINGS = (
    Heading("NO"),
    Heading("STARTED", text=True, rank=1),
    Heading("TOOK"),
    Heading("EXIT", text=True, rank=3),
    Heading("GPUS", rank=4),
    Heading("BUSY"),
    Heading("IDLE GPU-S", rank=2),
    Heading("COMMAND", text=True),
)


def list_text(
    numbered: Sequence[tuple[int, JobReport]],
    width: int = 80,
    *,
    colour: bool = False,
    unicode: bool = True,
) -> str:
    """One line a report, in lines of at most ``width`` cells."""
    width = max(width, WIDTH_MIN)
    newest = max((report.started_at_unix_seconds or 0.0 for _, report in numbered), default=0.0)
    year = clock(newest, "%Y")
    rows = [_list_row(number, report, year) for number, report in numbered]
    titles, *lines = table(_LIST_HEADINGS, rows, width)
    text = "\n".join([painter(colour)(titles, BOLD), *lines])
    return text if unicode else to_ascii(text)


def _list_row(number: int, report: JobReport, year: str) -> list[str]:
    return [
        str(number),
        moment(report.started_at_unix_seconds, year),
        units.age(report.duration_seconds),
        end_word(report).removeprefix("exit "),
        str(len(report.gpus)),
        units.percent(report.busy_percent),
        optional_grouped(report.idle_gpu_seconds),
        _short_command(report),
    ]


def _short_command(report: JobReport) -> str:
    """Without the path of the program: ``python train.py``."""
    program, *rest = command(report).split(" ")
    return " ".join([program.rpartition("/")[2] or program, *rest])
