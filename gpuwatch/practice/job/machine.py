"""Where a practice job runs: a folder on a disk."""

import os
import tempfile
from pathlib import Path


def scratch_folder() -> Path:
    """A new folder, in /var/tmp: unlike /tmp it is on a disk, where reads are real. Raises
    ``OSError``."""
    place = os.environ.get("TMPDIR") or "/var/tmp"
    return Path(tempfile.mkdtemp(prefix="gpuwatch-practice-", dir=place))
