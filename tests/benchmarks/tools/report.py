"""The results as a table."""

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

COLUMNS = {
    "CPU % of a core": 2, "memory MiB": 1, "PSS MiB": 1, "bytes/s to the terminal": 0,
    "NVML calls/s": 0, "NVML ms/s": 1, "first paint s": 2, "first GPU s": 2,
}  # fmt: skip
"""What is measured, and how many places are shown of it."""
OF_THE_README = ("CPU % of a core", "memory MiB", "bytes/s to the terminal", "first paint s")


@dataclass(frozen=True, slots=True)
class Result:
    """One monitor on one machine; medians where it was run more than once."""

    monitor: str
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    """By ``COLUMNS``."""
    failure: str | None = None


def median_of(results: Sequence[Result]) -> Result:
    """The median of each number over runs of the same monitor; a failure stands out."""
    failed = next((result for result in results if result.failure), None)
    if failed is not None:
        return failed
    medians: dict[str, float] = {}
    for name in COLUMNS:
        values = [one for result in results if (one := result.numbers.get(name)) is not None]
        if values:
            medians[name] = statistics.median(values)
    return replace(results[0], numbers=medians)


def table(title: str, results: Sequence[Result], columns: Iterable[str] = COLUMNS) -> str:
    """In Markdown: what the machine runs, the monitors below, a dash for no number."""
    lines = [_row([title, *columns]), "|---" + "|---:" * len(list(columns)) + "|"]
    for result in results:
        lines.append(_row([result.monitor, *[_cell(result, name) for name in columns]]))
    lines += [f"\n{one.monitor} failed: {one.failure}" for one in results if one.failure]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(result: Result, name: str) -> str:
    value = result.numbers.get(name)
    return "-" if value is None else f"{value:.{COLUMNS[name]}f}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine_line() -> str:
    """Cores, kernel, load and the versions that matter."""
    found = {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "textual": _version("textual"),
        "nvitop": _version("nvitop"),
    }
    return ", ".join(f"{name} {value}" for name, value in found.items() if value is not None)
