"""A night of a machine with eight GPUs, with an hour in it that is worth finding.

``python -m tests.support.long_recording OUT [SECONDS]``: 20:00 to 08:00 UTC, one snapshot every
SECONDS (5). A healthy job until midnight, one with checkpoints until 03:00, four minutes
that nobody recorded, a starved job from 03:04 to 04:04, a healthy one until 08:00.
"""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO, cast

from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.outputs.export import JsonLinesWriter
from tests.support.simulated import looks

BEGIN_UNIX_SECONDS = 1_772_395_200.0
"""2026-03-01 20:00 UTC."""
GPUS = 8


class Piece(NamedTuple):
    scenario: str | None
    """``None``: nothing was recorded."""
    seconds: float


NIGHT = (
    Piece("healthy", 4 * 3600.0),
    Piece("checkpoint", 3 * 3600.0),
    Piece(None, 240.0),
    Piece("starved", 3600.0),
    Piece("healthy", 4 * 3600.0 - 240.0),
)


def snapshots(
    pieces: tuple[Piece, ...], *, gpus: int = GPUS, interval: float = 5.0
) -> Iterator[Snapshot]:
    """One after the other on the same clock; each piece is a job of its own on the same GPUs."""
    clock = ManualClock(unix_epoch_seconds=BEGIN_UNIX_SECONDS)
    for piece in pieces:
        if piece.scenario is None:
            clock.advance(piece.seconds)
            continue
        count = round(piece.seconds / interval)
        yield from looks(piece.scenario, count, gpus=gpus, interval=interval, clock=clock)


def write(
    path: Path, pieces: tuple[Piece, ...] = NIGHT, *, gpus: int = GPUS, interval: float = 5.0
) -> int:
    """How many snapshots were written."""
    with _opened(path) as out:
        writer = JsonLinesWriter(out)
        for snapshot in snapshots(pieces, gpus=gpus, interval=interval):
            writer.write(snapshot)
    return writer.written


def _opened(path: Path) -> TextIO:
    if path.name.endswith(".gz"):
        return cast("TextIO", gzip.open(path, "wt", compresslevel=3, encoding="utf-8"))
    return path.open("w", encoding="utf-8")


if __name__ == "__main__":
    made = write(Path(sys.argv[1]), interval=float(sys.argv[2]) if len(sys.argv) > 2 else 5.0)
    print(f"{made} snapshots")
