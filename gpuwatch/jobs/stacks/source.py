"""Lines of source files as a job sees them, read as plain text.

The names come out of the job's memory, so they are anything: a pipe, a device, a link out of its
container, a file only root may read. Only ordinary files of a bounded size are opened, below the
job's own root, and only what the job's user could read too.
"""

import os
import re
import stat
from pathlib import Path

from gpuwatch.jobs.stacks.reading import NO_SOURCE, SourceLine
from gpuwatch.sources.linux import procfs

FILE_BYTES = 4 << 20
FILES_MAX = 64
_LINKS_MAX = 40
"""As the kernel follows at most in one path (path_resolution(7))."""

_LINE_ENDS = re.compile(r"\r\n|\r|\n")
"""Those of Python; ``str.splitlines`` also splits at form feeds, which some sources hold."""

EDITED_SECONDS = 2.0
"""Start times are off by up to a second (procfs.boot_unix_seconds), and a program is read some
time after its start: ``sed -i ... && python train.py`` runs the new file."""
EDITED = "edited since the job started"


class JobSource:
    """Reads lines of a job's files, each file once. Never raises for what a file can be."""

    def __init__(
        self, pid: int, started_at_unix_seconds: float | None, proc: Path = procfs.PROC
    ) -> None:
        self._pid = pid
        self._started_at = started_at_unix_seconds
        self._proc = proc
        self._files: dict[str, list[str] | str] = {}

    def line(self, file: str, number: int) -> SourceLine:
        """The line, 1 the first; without a text where it cannot be read or may not be true."""
        if file.startswith("<") or "\0" in file:
            return NO_SOURCE
        found = self._files.get(file)
        if found is None:
            if len(self._files) >= FILES_MAX:
                return NO_SOURCE
            found = self._files[file] = self._read(file)
        if isinstance(found, str):
            return SourceLine(why_not=found or None)
        if not 0 < number <= len(found):
            return SourceLine(why_not=EDITED)
        return SourceLine(text=found[number - 1])

    def _read(self, file: str) -> list[str] | str:
        try:
            path = self._path(file)
            # Opening a device can already do something.
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return ""
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return ""
        with os.fdopen(descriptor, "rb") as opened:
            facts = os.fstat(descriptor)
            is_source = stat.S_ISREG(facts.st_mode) and facts.st_size <= FILE_BYTES
            if not is_source or not self._may_read(facts):
                return ""
            # It may have been imported after that, but nothing says so.
            if self._started_at is not None and facts.st_mtime > self._started_at + EDITED_SECONDS:
                return EDITED
            return _LINE_ENDS.split(opened.read(FILE_BYTES).decode("utf-8-sig", "replace"))

    def _path(self, file: str) -> str:
        """Where the file is for us. Links are followed here, not by the kernel: it would take
        an absolute one inside a container for a path of ours."""
        root = f"{self._proc}/{self._pid}/root"
        if not file.startswith("/"):
            file = f"{os.readlink(f'{self._proc}/{self._pid}/cwd')}/{file}"  # noqa: PTH115
        parts = file.split("/")[::-1]
        done: list[str] = []
        links = 0
        while parts:
            part = parts.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                del done[-1:]
                continue
            try:
                target = os.readlink("/".join([root, *done, part]))  # noqa: PTH115
            except OSError:
                done.append(part)
                continue
            links += 1
            if links > _LINKS_MAX:
                raise OSError("too many links")
            if target.startswith("/"):
                done = []
            parts.extend(target.split("/")[::-1])
        return "/".join([root, *done])

    def _may_read(self, facts: os.stat_result) -> bool:
        """Root can read more than the job's user: a file's name alone must not be a way to it."""
        own = os.geteuid()
        if own != 0 or facts.st_mode & stat.S_IROTH:
            return True
        try:
            owner = os.stat(f"{self._proc}/{self._pid}").st_uid  # noqa: PTH116
        except OSError:
            return False
        return owner in {facts.st_uid, own}
