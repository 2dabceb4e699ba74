"""What was asked of ``gpuwatch run``, the command aside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What was asked for, the command aside."""

    interval_seconds: float
    output: Path | None
    kill_on_exit: bool
    report: bool
    report_path: Path | None
    as_json: bool
    ascii_mode: bool | None
    theme: str | None
    slow_link: bool | None
