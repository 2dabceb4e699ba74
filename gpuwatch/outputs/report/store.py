"""Where reports are kept: a folder of JSON files in the user's state folder.

Only its owner can read it, since command lines may hold secrets. It is bounded, files appear
whole or not at all, and nothing planted in it (a link, a pipe, a file of another user) is followed
or waited for. Of two reports of one run the one that saw more of it is kept.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.core.private_files import make_folder, state_folder
from gpuwatch.core.text import clean
from gpuwatch.outputs.report.encoding import ReportError, decode, encode
from gpuwatch.outputs.report.model import Report

REPORTS_KEPT = 200
REPORT_BYTES_MAX = 16 * 2**20
"""A hundred times what a report of eight GPUs takes."""
_STALE_SECONDS = 3600.0

_NAME = re.compile(
    r"(?P<saved>\d{8}T\d{6}\.\d{3})-(?P<run>\d+-(?P<pid>\d+)-(?P<digest>[0-9a-f]{16}|none))\.json"
)
_TEMPORARY = ".writing-"
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_SENTENCES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "the largest file size allowed (ulimit -f) is too small",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "you may not write there",
    errno.EPERM: "it belongs to another user",
    errno.ELOOP: "it is a symbolic link, which is not followed",
    errno.ENOTDIR: "it is not a folder (a symbolic link is not followed)",
    errno.ENOENT: "it does not exist",
}


class StoreError(Exception):
    """A report cannot be kept or found; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One kept report: its place counted from the newest, its file, and what it says."""

    number: int
    path: Path
    report: Report


class ReportStore:
    """The kept reports. Nothing is created before the first ``save``.

    Every method raises ``StoreError`` and no ``OSError`` for what a file system can do wrong.
    """

    def __init__(
        self, folder: Path | None = None, *, unix_time: Callable[[], float] = time.time
    ) -> None:
        self.folder = state_folder("reports") if folder is None else folder
        self.unreadable = 0
        """How many the last call of ``last`` passed over: damaged, or of an older gpuwatch."""
        self._unix_time = unix_time

    def save(self, report: Report) -> Path:
        """Keep ``report`` in place of an earlier one of the same run, and forget the oldest.

        Where another gpuwatch watched the same run for longer, its report stays.
        """
        if report.simulated or report.job is None:
            raise StoreError("Only reports of jobs that ran are saved.")
        now = self._unix_time()
        run = _run_name(report)
        name = f"{_moment(now)}-{run}.json"
        try:
            make_folder(self.folder)
            with self._opened() as folder:
                fullest = _fullest([report, *_of_run(folder, run)])
                _write(folder, name, encode(fullest) + b"\n")
                # It is there: what cannot be tidied up now is tidied up next time.
                with contextlib.suppress(OSError):
                    _forget(folder, name, run, now)
        except OSError as error:
            raise StoreError(
                f"The report cannot be saved in {self._shown}: {_why(error)}."
            ) from None
        return self.folder / name

    def last(self, count: int = REPORTS_KEPT) -> list[Kept]:
        """The newest ``count`` that can be read, the newest first."""
        found: list[Kept] = []
        self.unreadable = 0
        with self._reading() as folder:
            for number, name in enumerate(_names(folder), start=1):
                if len(found) >= count:
                    break
                report = _read(folder, name)
                if report is None:
                    self.unreadable += 1
                else:
                    found.append(Kept(number, self.folder / name, report))
        return found

    def find(self, reference: str) -> Kept:
        """The report with this number (1 is the newest), or the newest one of this PID."""
        if not (reference.isascii() and reference.isdigit()):
            raise StoreError(f"{clean(reference, 60)!r} is neither a report number nor a PID.")
        with self._reading() as folder:
            names = _names(folder)
            if not names:
                raise StoreError(NONE_KEPT)
            number = _place(names, int(reference[:20]))
            if number is None:
                raise StoreError(
                    f"There is no report {reference[:20]} and none of a process {reference[:20]}: "
                    f"gpuwatch report --list shows all {len(names)}."
                )
            name = names[number - 1]
            try:
                return Kept(number, self.folder / name, _load(folder, name))
            except ReportError as error:
                raise StoreError(f"{self._shown}/{name}: {error}") from None

    def previous_run(self, report: Report) -> Report | None:
        """The last run of the same command, folder and user that was started before this one."""
        digest, started = _digest(report), _start(report)
        if digest is None:
            return None
        best: Report | None = None
        with self._reading() as folder:
            for name in _names(folder):
                match = _NAME.fullmatch(name)
                if match is None or match["digest"] != digest:
                    continue
                other = _read(folder, name)
                if other is None or other.key == report.key or _start(other) >= started:
                    continue
                if best is None or _start(other) > _start(best):
                    best = other
        return best

    @property
    def _shown(self) -> str:
        return clean(str(self.folder), 300)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the folder itself, whatever its name comes to mean meanwhile. Raises
        ``OSError``, also where it is another user's: what is in it would be theirs."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.folder, flags)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[int]:
        try:
            with self._opened() as descriptor:
                yield descriptor
        except FileNotFoundError:
            raise StoreError(NONE_KEPT) from None
        except OSError as error:
            raise StoreError(
                f"The reports in {self._shown} cannot be read: {_why(error)}."
            ) from None


NONE_KEPT = (
    "No report is saved yet: one is written when a job ends that was started by "
    "'gpuwatch run -- COMMAND' or watched with 'gpuwatch --pid PID'."
)


def _run_name(report: Report) -> str:
    return f"{round(_start(report) * 1000)}-{report.pid}-{_digest(report) or 'none'}"


def _digest(report: Report) -> str | None:
    digest = report.run_digest
    return digest if digest and re.fullmatch(r"[0-9a-f]{16}", digest) else None


def _start(report: Report) -> float:
    """When it began, for an order of runs."""
    started = None if report.job is None else report.job.started_at_unix_seconds
    return report.time.begin_unix_seconds if started is None else started


def _moment(unix_seconds: float) -> str:
    """A file name's first part, so that names sort by time: ``20240305T120431.250``, in UTC."""
    milliseconds = round(unix_seconds * 1000)
    seconds = time.strftime("%Y%m%dT%H%M%S", time.gmtime(milliseconds // 1000))
    return f"{seconds}.{milliseconds % 1000:03d}"


def _place(names: list[str], wanted: int) -> int | None:
    if 1 <= wanted <= len(names):
        return wanted
    for number, name in enumerate(names, start=1):
        match = _NAME.fullmatch(name)
        if match is not None and int(match["pid"]) == wanted:
            return number
    return None


def _names(folder: int) -> list[str]:
    """Those of reports, the newest first."""
    return sorted((name for name in os.listdir(folder) if _NAME.fullmatch(name)), reverse=True)


def _write(folder: int, name: str, data: bytes) -> None:
    """All of ``data`` or nothing, and no other file touched."""
    temporary = f"{_TEMPORARY}{os.getpid()}-{name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _of_run(folder: int, run: str) -> list[Report]:
    """Those kept already, the newest first."""
    found = [_read(folder, name) for name in _names(folder) if _run_of(name) == run]
    return [report for report in found if report is not None]


def _fullest(reports: list[Report]) -> Report:
    """The one that saw the end, and the most before it; the exit code, which only who started
    the job gets to know, from any."""

    best = max(reports, key=lambda report: (report.has_ended, report.time.covered_seconds))
    codes = [report.exit_code for report in reports if report.exit_code is not None]
    if best.has_ended and best.exit_code is None and codes:
        return best.with_end(exit_code=codes[0])
    return best


def _forget(folder: int, saved: str, run: str, now: float) -> None:
    """Earlier reports of the same run, those beyond the bound, and what a crash left behind."""
    names = _names(folder)
    # Never the one just saved, even if the clock was ahead when the others were.
    others = [name for name in names if name != saved]
    same = [name for name in others if _run_of(name) == run]
    surplus = [name for name in others if name not in same][REPORTS_KEPT - 1 :]
    stale = [
        name
        for name in os.listdir(folder)
        if name.startswith(_TEMPORARY)
        and now - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime > _STALE_SECONDS
    ]
    for name in (*same, *surplus, *stale):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)


def _run_of(name: str) -> str | None:
    match = _NAME.fullmatch(name)
    return None if match is None else match["run"]


def _read(folder: int, name: str) -> Report | None:
    try:
        return _load(folder, name)
    except (OSError, ReportError):
        return None


def _load(folder: int, name: str) -> Report:
    """Raises ``ReportError`` for what is no whole report of this user."""
    descriptor = os.open(name, _READ_FLAGS, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ReportError("This is not a report that gpuwatch saved.")
        return _decoded(file.read(REPORT_BYTES_MAX + 1))


def read_file(path: Path) -> Report:
    """The report in a file that a person names; raises ``ReportError``."""
    shown = clean(str(path), 200)
    try:
        with path.open("rb") as file:
            data = file.read(REPORT_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ReportError(
            f"{shown} is not a file: name a report by its number (gpuwatch report --list), "
            "its job's PID or its file."
        ) from None
    except IsADirectoryError:
        raise ReportError(f"{shown} is a folder, not a report.") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise ReportError(f"{shown} cannot be read: {why or 'no such name'}.") from None
    if data[:200].lstrip().startswith(b'{"kind":"header"'):
        raise ReportError(f"{shown} is a recording of snapshots, not a report.")
    try:
        return _decoded(data)
    except ReportError as error:
        raise ReportError(f"{shown}: {error}") from None


def _decoded(data: bytes) -> Report:
    if len(data) > REPORT_BYTES_MAX:
        raise ReportError("This is not a report: it is too large.")
    return decode(data)


def _why(error: OSError) -> str:
    return _SENTENCES.get(error.errno or 0) or clean(str(error.strerror or error), 100)
