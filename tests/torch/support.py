"""A reporter of a test's own, and what it told."""

import os
from pathlib import Path

from gpuwatch.jobs.loop import step_file
from gpuwatch.jobs.loop.step_file import Record
from gpuwatch.jobs.loop.writer import StepFile
from gpuwatch.torch.device import Device
from gpuwatch.torch.reporter import Reporter

ROOT = Path(step_file.__file__).parents[3]
PATH = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
"""For the code of a child without site packages."""


def reporter_in(folder: Path, device: Device | None = None) -> Reporter:
    """It reports through a file below ``folder``."""
    folder.chmod(0o700)
    environment = {"XDG_RUNTIME_DIR": str(folder)}
    return Reporter(lambda: StepFile.create(environment), lambda: device)


def files_below(folder: Path) -> list[Path]:
    return sorted((folder / "gpuwatch" / "steps").glob("*"))


def reported(folder: Path) -> Record:
    """The only record below ``folder``."""
    (path,) = files_below(folder)
    record = step_file.parse_record(path.read_bytes())
    assert record is not None
    return record


def runtime_folder() -> Path:
    """Of this worker of the tests; see ``tests/conftest.py``."""
    return Path(os.environ["XDG_RUNTIME_DIR"])
