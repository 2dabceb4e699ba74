"""Where a practice job runs: a folder on a disk, and its cores."""

import contextlib
import os
import tempfile
from pathlib import Path

import psutil

from gpuwatch.practice.knobs import parse_cores


def scratch_folder() -> Path:
    """A new folder on a disk (reads from memory would not be reads). Raises ``OSError``."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    places = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path(cache).expanduser()]
    on_disk = [place for place in places if place.is_dir() and not is_in_memory(place)]
    place = (on_disk or places)[0]
    return Path(tempfile.mkdtemp(prefix="gpuwatch-practice-", dir=place))


def is_in_memory(folder: Path) -> bool:
    """True if the folder is on a file system that is memory itself: its reads are never cold."""
    here = folder.resolve()
    mounts = [
        one for one in psutil.disk_partitions(all=True) if here.is_relative_to(one.mountpoint)
    ]
    nearest = max(mounts, key=lambda one: len(one.mountpoint), default=None)
    return nearest is not None and nearest.fstype in ("tmpfs", "ramfs")


class Cores:
    """Moves this process to other cores, and back; what it starts from then on comes along."""

    def __init__(self) -> None:
        self._first = os.sched_getaffinity(0)

    def use(self, text: str) -> str | None:
        """Empty: those it was started on. Why not, as a sentence."""
        wanted = parse_cores(text) if text else self._first
        try:
            for task in Path("/proc/self/task").iterdir():
                # A thread may have ended meanwhile.
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), wanted)
        except OSError:
            return f"the job cannot run on the cores {text}: they are not there, or not allowed"
        return None
