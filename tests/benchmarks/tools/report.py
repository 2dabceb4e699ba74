"""The results as a table to read and as JSON to keep."""

import importlib.metadata
import os
import platform
import re
import shutil
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One monitor on one machine; medians where it was run more than once."""

    monitor: str
    gpus: int
    processes: int
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


_COLUMNS = (
    ("monitor", "monitor"),
    ("CPU % of a core", "cpu_percent"),
    ("RSS MiB", "resident_mib"),
    ("PSS MiB", "proportional_mib"),
    ("terminal B/s", "bytes_per_second"),
    ("NVML calls/s", "nvml_calls_per_second"),
    ("NVML ms/s", "nvml_milliseconds_per_second"),
    ("first paint s", "first_paint_seconds"),
    ("first GPU s", "first_gpu_seconds"),
)
_DECIMALS = {
    "cpu_percent": 2,
    "first_paint_seconds": 3,
    "first_gpu_seconds": 3,
    "bytes_per_second": 0,
    "nvml_calls_per_second": 0,
}


def median_of(results: Sequence[Result]) -> Result:
    """The median of each number over runs of the same monitor; a failure stands out."""
    failed = next((result for result in results if result.failure), None)
    if failed is not None:
        return failed
    medians: dict[str, Any] = {"runs": len(results)}
    for _, name in _COLUMNS[1:]:
        values = [value for result in results if (value := getattr(result, name)) is not None]
        medians[name] = statistics.median(values) if values else None
    return replace(results[0], **medians)


def _cell(result: Result, name: str) -> str:
    value = getattr(result, name)
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.{_DECIMALS.get(name, 1)}f}"


def _rows(results: Iterable[Result]) -> list[list[str]]:
    return [[_cell(result, name) for _, name in _COLUMNS] for result in results]


def markdown(results: Sequence[Result]) -> str:
    """A table for each size of machine, aligned so that it reads well as plain text too."""
    parts = []
    sizes = dict.fromkeys((result.gpus, result.processes) for result in results)
    for gpus, processes in sizes:
        of_size = [r for r in results if (r.gpus, r.processes) == (gpus, processes)]
        rows = [[title for title, _ in _COLUMNS], *_rows(of_size)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        lines = ["| " + " | ".join(_aligned(row, widths)) + " |" for row in rows]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        lines.insert(1, "| " + " | ".join(rule) + " |")
        lines += [f"\n{r.monitor} failed: {r.failure}" for r in of_size if r.failure]
        parts.append(f"{gpus} GPUs, {processes} GPU processes\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def readme(titled: Sequence[tuple[str, Sequence[Result]]]) -> str:
    """The tables as the README has them: (what the machine runs, the results) of each."""
    parts = []
    for title, results in titled:
        lines = [
            f"| {title} | CPU % of a core | memory MiB | bytes/s to the terminal | first paint s |",
            "|---|---:|---:|---:|---:|",
        ]
        names = ("cpu_percent", "resident_mib", "bytes_per_second")
        for result in results:
            cells = [result.monitor, *[_cell(result, name) for name in names]]
            first = result.first_paint_seconds
            cells.append("-" if first is None else f"{first:.2f}")
            lines.append("| " + " | ".join(cells) + " |")
        lines += [f"\n{r.monitor} failed: {r.failure}" for r in results if r.failure]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0])] + [
        cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)
    ]


def as_json(results: Sequence[Result], settings: dict[str, object]) -> dict[str, object]:
    """Everything measured, and where and how."""
    return {
        "machine": machine(),
        "settings": settings,
        "results": [asdict(result) for result in results],
    }


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


def machine() -> dict[str, object]:
    """Cores, kernel, load and the versions that matter."""
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "textual": _version("textual"),
        "nvitop": _version("nvitop"),
        "nvtop": _nvtop_version(),
    }


def machine_line() -> str:
    """``machine`` in a line."""
    return ", ".join(f"{name} {value}" for name, value in machine().items() if value is not None)
