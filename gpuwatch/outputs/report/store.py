"""Store of reports: a folder of JSON files in the user's state folder.

Only its owner can read it, since command lines may hold secrets, and it is not used where it is
another user's or a link. It is bounded, files appear whole or not at all, and nothing planted in
it (a link, a pipe, a file of another user) is followed or waited for. Of two reports of one run the
one that saw more of it is kept.
"""

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.private_files import (
    NO_FOLDER,
    NOT_OURS,
    make_folder,
    read_own,
    state_folder,
    why,
    write_whole,
)
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.outputs.report.model import SCHEMA_VERSION, Report, ReportError, decode, dumps, encode

REPORTS_KEPT = 200
REPORT_BYTES_MAX = 16 * 2**20
"""Largest report: a hundred times that of eight GPUs."""
NONE_KEPT = (
    "No report is saved yet: one is written when a job ends that was started by "
    "'gpuwatch run -- COMMAND' or watched with 'gpuwatch --pid PID'."
)
_OF_JOB = ("pid", "started_at_unix_seconds", "ended_at_unix_seconds", "command", "exit_code")
_NAME = re.compile(
    r"(?P<saved>\d{8}T\d{6}\.\d{3})-(?P<run>\d+-(?P<pid>\d+)-(?P<digest>[0-9a-f]{16}|none))\.json"
)


class StoreError(SentenceError):
    """A report cannot be kept or found."""


class Kept(NamedTuple):
    """One kept report: its place counted from the newest, its file, and what it says."""

    number: int
    path: Path
    report: Report


class ReportStore:
    """Kept reports in their folder. Nothing is created before the first ``save``.

    Every method raises ``StoreError`` and no ``OSError`` for what a file system can do wrong.
    """

    def __init__(
        self, folder: Path | None = None, *, unix_time: Callable[[], float] = time.time
    ) -> None:
        self.folder = state_folder("reports") if folder is None else folder
        self.unreadable = 0
        """Reports that the last call of ``last`` passed over: damaged, or of an older gpuwatch."""
        self._unix_time = unix_time

    def save(self, report: Report) -> Path:
        """Keep ``report`` in place of an earlier one of the same run, and forget the oldest.

        Where another gpuwatch watched the same run for longer, its report stays.
        """
        if report.simulated or report.job is None:
            raise StoreError("Only reports of jobs that ran are saved.")
        now = self._unix_time()
        run = f"{round(_start(report) * 1000)}-{report.pid}-{_digest(report) or 'none'}"
        name = f"{_moment(now)}-{run}.json"
        try:
            make_folder(self.folder)
            found = [_read(path) for path in self._paths() if _match(path)["run"] == run]
            fullest = _fullest([report, *[one for one in found if one is not None]])
            write_whole(self.folder / name, encode(fullest) + b"\n")
            # It is there: what cannot be tidied up now is tidied up next time.
            with contextlib.suppress(OSError):
                self._forget(name, run)
        except OSError as error:
            raise self._error("The report cannot be saved in {}: {}.", error) from None
        return self.folder / name

    def last(self, count: int = REPORTS_KEPT) -> list[Kept]:
        found: list[Kept] = []
        self.unreadable = 0
        for number, path in enumerate(self._kept(), start=1):
            if len(found) >= count:
                break
            report = _read(path)
            if report is None:
                self.unreadable += 1
            else:
                found.append(Kept(number, path, report))
        return found

    def find(self, reference: str) -> Kept:
        """Return the report with this number (1 is the newest), or the newest one of this PID."""
        if not (reference.isascii() and reference.isdigit()):
            raise StoreError(f"{clean(reference, 60)!r} is neither a report number nor a PID.")
        paths = self._kept()
        if not paths:
            raise StoreError(NONE_KEPT)
        wanted = int(reference[:20])
        pids = [int(_match(path)["pid"]) for path in paths]
        if not 1 <= wanted <= len(paths):
            if wanted not in pids:
                raise StoreError(
                    f"There is no report {wanted} and none of a process {wanted}: gpuwatch report "
                    f"--list shows all {len(paths)}."
                )
            wanted = pids.index(wanted) + 1
        path = paths[wanted - 1]
        try:
            return Kept(wanted, path, _decoded(read_own(path, REPORT_BYTES_MAX + 1)))
        except (OSError, ReportError) as error:
            raise StoreError(f"{clean(str(path), 300)}: {error}") from None

    def previous_run(self, report: Report) -> Report | None:
        """Return the last run of the same command, folder and user that was started before this
        one."""
        digest, started = _digest(report), _start(report)
        if digest is None:
            return None
        runs = [_read(path) for path in self._kept() if _match(path)["digest"] == digest]
        earlier = [
            one
            for one in runs
            if one is not None and one.key != report.key and _start(one) < started
        ]
        return max(earlier, key=_start, default=None)

    def _kept(self) -> list[Path]:
        try:
            found = self.folder.lstat()
            if not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(*NO_FOLDER)
            if found.st_uid != os.geteuid():
                # What is in it would be theirs.
                raise PermissionError(*NOT_OURS)
            return self._paths()
        except FileNotFoundError:
            raise StoreError(NONE_KEPT) from None
        except OSError as error:
            raise self._error("The reports in {} cannot be read: {}.", error) from None

    def _paths(self) -> list[Path]:
        names = [name for name in os.listdir(self.folder) if _NAME.fullmatch(name)]  # noqa: PTH208
        return [self.folder / name for name in sorted(names, reverse=True)]

    def _forget(self, saved: str, run: str) -> None:
        """Delete earlier reports of the same run, and those beyond the bound."""
        # Never the one just saved, even if the clock was ahead when the others were.
        others = [path for path in self._paths() if path.name != saved]
        same = [path for path in others if _match(path)["run"] == run]
        surplus = [path for path in others if path not in same][REPORTS_KEPT - 1 :]
        for path in (*same, *surplus):
            with contextlib.suppress(OSError):
                path.unlink()

    def _error(self, sentence: str, error: OSError) -> StoreError:
        return StoreError(sentence.format(clean(str(self.folder), 300), why(error)))


def _match(path: Path) -> re.Match[str]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return match


def _digest(report: Report) -> str | None:
    digest = report.run_digest
    return digest if digest and re.fullmatch(r"[0-9a-f]{16}", digest) else None


def _start(report: Report) -> float:
    """Return when the run began, for an order of runs."""
    started = None if report.job is None else report.job.started_at_unix_seconds
    return report.time.begin_unix_seconds if started is None else started


def _moment(unix_seconds: float) -> str:
    """Return a file name's first part, by which names sort by time: ``20240305T120431.250``, in
    UTC."""
    milliseconds = round(unix_seconds * 1000)
    seconds = time.strftime("%Y%m%dT%H%M%S", time.gmtime(milliseconds // 1000))
    return f"{seconds}.{milliseconds % 1000:03d}"


def _fullest(reports: list[Report]) -> Report:
    """Return the report that saw the end, and the most before it, with the exit code, which only
    who started the job gets to know, from any."""
    best = max(reports, key=lambda report: (report.has_ended, report.time.covered_seconds))
    codes = [report.exit_code for report in reports if report.exit_code is not None]
    if best.has_ended and best.exit_code is None and codes:
        return best.with_end(exit_code=codes[0])
    return best


def _read(path: Path) -> Report | None:
    """Read a report; ``None`` for a file that is no whole report of this user."""
    try:
        return _decoded(read_own(path, REPORT_BYTES_MAX + 1))
    except (OSError, ReportError):
        return None


def read_file(path: Path) -> Report:
    """Read the report in a file that a person names; raises ``ReportError``."""
    shown = clean(str(path), 200)
    try:
        with path.open("rb") as file:
            data = file.read(REPORT_BYTES_MAX + 1)
        return _decoded(data)
    except FileNotFoundError:
        raise ReportError(
            f"{shown} is not a file: name a report by its number (gpuwatch report --list), "
            "its job's PID or its file."
        ) from None
    except ReportError as error:
        raise ReportError(f"{shown}: {error}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise ReportError(f"{shown} cannot be read: {why or 'no such name'}.") from None


def _decoded(data: bytes) -> Report:
    if len(data) > REPORT_BYTES_MAX:
        raise ReportError("This is not a report: it is too large.")
    if data[:200].lstrip().startswith(b'{"kind":"header"'):
        raise ReportError("This is a recording of snapshots, not a report.")
    return decode(data)


def list_json(kept: Sequence[Kept]) -> str:
    reports = [
        {
            "number": one.number,
            "path": str(one.path),
            **{name: getattr(one.report.job, name) for name in _OF_JOB},
            "duration_seconds": one.report.duration_seconds,
            "busy_percent": one.report.total.busy_percent,
            "idle_gpu_seconds": one.report.total.idle_gpu_seconds,
        }
        for one in kept
    ]
    return dumps({"kind": "reports", "schema": SCHEMA_VERSION, "reports": reports})
