"""What this process and others told."""

import os
from pathlib import Path

from gpuwatch.jobs.loop import step_file
from gpuwatch.jobs.loop.step_file import Record

ROOT = Path(step_file.__file__).parents[3]
PATH = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
"""For the code of a child without site packages."""


def packed(record: Record) -> bytes:
    """As a slot of the file holds it, without its checksum."""
    now, counters, base = record
    live = step_file._LIVE
    return step_file._BODY.pack(*now[:live], *counters, *now[live:], *base)


def files_below(folder: Path) -> list[Path]:
    return sorted((folder / "gpuwatch" / "steps").glob("*"))


def reported() -> Record:
    """The only record of this process."""
    (path,) = files_below(Path(os.environ["XDG_RUNTIME_DIR"]))
    record = step_file.parse_record(path.read_bytes())
    assert record is not None
    return record
