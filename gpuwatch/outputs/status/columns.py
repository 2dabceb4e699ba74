"""Tables of the status page: each column is declared once, with what its cells say."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gpuwatch.core.model import GpuKey, Snapshot
from gpuwatch.core.units import gpu_label
from gpuwatch.outputs.terminal.table import Heading, table

Item = TypeVar("Item")
Columns = Sequence[tuple[Heading, Callable[[Item], str]]]
Paint = Callable[[str], str]


def rows_of(columns: Columns[Item], items: Iterable[Item]) -> list[list[str]]:
    return [[cell(item) for _, cell in columns] for item in items]


def titled(
    columns: Columns[Item], rows: Sequence[Sequence[str]], width: int, bold: Paint
) -> list[str]:
    """The titles and the rows; a column with nothing in it is left out."""
    titles, *lines = table([heading for heading, _ in columns], rows, width)
    return [bold(titles), *lines]


def labels_of(snapshot: Snapshot) -> dict[GpuKey, str]:
    return {gpu.uuid: gpu_label(gpu) for gpu in snapshot.gpus}


def more_text(left_out: int) -> list[str]:
    return [f"and {left_out} more (--all shows them)"] if left_out else []


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def said(*readings: tuple[str, float | None, Callable[[float], str]]) -> list[str]:
    """Label and value of what was read."""
    return [f"{label} {write(value)}" for label, value, write in readings if value is not None]
