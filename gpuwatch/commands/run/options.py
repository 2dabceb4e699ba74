"""What was asked of ``gpuwatch run``, the command aside."""

from pathlib import Path
from typing import NamedTuple

from gpuwatch.commands.options import Look


class RunOptions(NamedTuple):
    """The options of the command, by the names of their parameters."""

    interval_seconds: float
    look: Look
    plain: bool = False
    output: Path | None = None
    kill_on_exit: bool = False
    report_path: Path | None = None
    no_report: bool = False
    as_json: bool = False
