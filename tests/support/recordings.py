"""Recordings of simulated machines, in files or in memory, for the tests of reports."""

import io
from collections.abc import Iterable
from pathlib import Path

from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.export import JsonLinesWriter
from gpuwatch.outputs.report.accumulator import Accumulator
from gpuwatch.outputs.report.comparison import Comparison
from gpuwatch.outputs.report.document import comparison_document
from gpuwatch.outputs.report.model import Report, Source
from gpuwatch.outputs.report.text import document_text
from tests.support.long_recording import Piece, snapshots, write

FILE = Source(name="night.jsonl", kind="recording")


def simulated(
    scenario: str, seconds: float = 60.0, *, gpus: int = 2, interval: float = 1.0
) -> list[Snapshot]:
    return list(snapshots((Piece(scenario, seconds),), gpus=gpus, interval=interval))


def recorded(
    path: Path, scenario: str, seconds: float = 60.0, *, gpus: int = 2, interval: float = 1.0
) -> Path:
    """A file that ``JsonLinesWriter`` wrote, gzip by its ending."""
    write(path, (Piece(scenario, seconds),), gpus=gpus, interval=interval)
    return path


def streamed(taken: Iterable[Snapshot]) -> str:
    """As ``gpuwatch stream`` prints them."""
    out = io.StringIO()
    writer = JsonLinesWriter(out)
    for snapshot in taken:
        writer.write(snapshot)
    return out.getvalue()


def written(path: Path, taken: Iterable[Snapshot]) -> Path:
    path.write_text(streamed(taken), encoding="utf-8")
    return path


def summed(taken: Iterable[Snapshot], source: Source = FILE) -> Report:
    accumulator = Accumulator()
    for snapshot in taken:
        accumulator.push(snapshot)
    return accumulator.report(source)


def comparison_text(comparison: Comparison, width: int = 80, *, unicode: bool = True) -> str:
    return document_text(comparison_document(comparison, "text"), width, unicode=unicode)
