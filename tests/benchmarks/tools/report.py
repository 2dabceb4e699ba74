"""The results as a table."""

import importlib.metadata
import os
import platform
import re
import shutil
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One monitor on one machine; medians where it was run more than once."""

    monitor: str
    runs: int
    cpu_percent: float | None = None
    resident_mib: float | None = None
    proportional_mib: float | None = None
    bytes_per_second: float | None = None
    nvml_calls_per_second: float | None = None
    nvml_milliseconds_per_second: float | None = None
    first_paint_seconds: float | None = None
    first_gpu_seconds: float | None = None
    failure: str | None = None


COLUMNS = {
    "CPU % of a core": "cpu_percent",
    "memory MiB": "resident_mib",
    "PSS MiB": "proportional_mib",
    "bytes/s to the terminal": "bytes_per_second",
    "NVML calls/s": "nvml_calls_per_second",
    "NVML ms/s": "nvml_milliseconds_per_second",
    "first paint s": "first_paint_seconds",
    "first GPU s": "first_gpu_seconds",
}
OF_THE_README = ("CPU % of a core", "memory MiB", "bytes/s to the terminal", "first paint s")
_DECIMALS = {
    "cpu_percent": 2,
    "first_paint_seconds": 2,
    "first_gpu_seconds": 2,
    "bytes_per_second": 0,
    "nvml_calls_per_second": 0,
}


def median_of(results: Sequence[Result]) -> Result:
    """The median of each number over runs of the same monitor; a failure stands out."""
    failed = next((result for result in results if result.failure), None)
    if failed is not None:
        return failed
    medians: dict[str, Any] = {"runs": len(results)}
    for name in COLUMNS.values():
        values = [value for result in results if (value := getattr(result, name)) is not None]
        medians[name] = statistics.median(values) if values else None
    return replace(results[0], **medians)


def table(title: str, results: Sequence[Result], columns: Iterable[str] = COLUMNS) -> str:
    """In Markdown: what the machine runs, the monitors below, a dash for no number."""
    lines = [_row([title, *columns]), "|---" + "|---:" * len(list(columns)) + "|"]
    for result in results:
        lines.append(_row([result.monitor, *[_cell(result, COLUMNS[title]) for title in columns]]))
    lines += [f"\n{one.monitor} failed: {one.failure}" for one in results if one.failure]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(result: Result, name: str) -> str:
    value = getattr(result, name)
    return "-" if value is None else f"{value:.{_DECIMALS.get(name, 1)}f}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _nvtop_version() -> str | None:
    program = shutil.which("nvtop")
    if program is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(?:\.\d+)+", said.stdout)
    return found[0] if found else None


def machine_line() -> str:
    """Cores, kernel, load and the versions that matter."""
    found = {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "textual": _version("textual"),
        "nvitop": _version("nvitop"),
        "nvtop": _nvtop_version(),
    }
    return ", ".join(f"{name} {value}" for name, value in found.items() if value is not None)
