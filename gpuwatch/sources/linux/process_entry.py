"""One process watched over time: what it used since the last look, and its row."""

import os
from pathlib import Path
from typing import Any

from gpuwatch.core.model import Process
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.process_details import (
    ProcessDetails,
    clean_name,
    read_command,
    read_details,
    user_name,
)

MINIMUM_SECONDS = 0.05
"""CPU time is counted in ticks of 10 ms where there is no clock of it (``cpu_seconds``): over less
than five a share means nothing."""
SETTLE_SECONDS = 2.0
"""Between fork and exec a process still shows its parent's command line."""
COMMAND_SECONDS = 20.0
"""A process can rewrite its command line in place; nothing announces it, so it is read again."""
REST_SECONDS = 5.0
"""One that has not run is read this often: others can take memory from it."""

FULL_READS = 2
"""At first sight (or after an exec) and once settled; from then on only the command line."""

_BUFFER = 1024


class ProcessEndedError(Exception):
    """The process has ended, or its PID belongs to another one now."""


class ProcessEntry:
    """Reads one process again and again. Raises ``OSError`` where it cannot be read."""

    __slots__ = (
        "_descriptor", "_details", "_details_due", "_full_reads", "_has_clock", "_measured_at",
        "_path", "_proc", "_raw", "_read_due", "_rows", "_stat", "_used", "cpu_percent",
        "has_ended", "name", "parent_pid", "pid", "started_at", "version",
    )  # fmt: skip

    def __init__(self, pid: int, now: float, proc: Path) -> None:
        self.pid = pid
        self._proc = proc
        self._path = f"{proc}/{pid}/stat"
        self._descriptor: int | None = None
        self._has_clock = procfs.has_clocks(proc)
        used = procfs.cpu_clock(pid) if self._has_clock else None
        self._raw = procfs.read_once(self._path, _BUFFER)
        self._stat = procfs.parse_process_stat(self._raw)
        self.parent_pid, self.has_ended = self._stat.parent_pid, self._stat.has_ended
        self.started_at = procfs.start_unix_seconds(self._stat, proc)
        self.cpu_percent: float | None = None
        self._used = used or self._stat.cpu_ticks / procfs.TICKS_PER_SECOND
        self._measured_at = now
        self._read_due = now
        self.version = 0
        self._rows: dict[tuple[str, int | None] | None, tuple[int, GpuProcess | None, Process]] = {}
        self.name = clean_name(self._stat.name)
        self._details = ProcessDetails()
        self._details_due = now
        self._full_reads = FULL_READS
        self._refresh_details(now)

    @property
    def kept_open(self) -> bool:
        return self._descriptor is not None

    def keep_open(self) -> bool:
        """Read through one descriptor from now on, at half the cost; whether that worked."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return False
        return True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def update(self, now: float, *, whole: bool = False) -> None:
        """Read the process again; all but its CPU time only if it has run since or ``whole`` asks
        for it. Raises ``ProcessEndedError`` when it is no longer the same."""
        # Before all else: what happens in between shows at the next look.
        used = procfs.cpu_clock(self.pid) if self._has_clock else None
        rests = used == self._used
        if not rests or whole or now >= self._read_due:
            self._read(now)
            self._read_due = now + REST_SECONDS + self.pid % 8 * 0.25
        seconds = now - self._measured_at
        if seconds >= MINIMUM_SECONDS:
            if used is None:
                used = self._stat.cpu_ticks / procfs.TICKS_PER_SECOND
            percent = max(0.0, used - self._used) * 100.0 / seconds
            self._used, self._measured_at = used, now
            if percent != self.cpu_percent:
                self.cpu_percent = percent
                self.version += 1
        # What has not run has not rewritten its command line either.
        if now >= self._details_due and (self._full_reads or not rests):
            self._refresh_details(now)

    def _read(self, now: float) -> None:
        try:
            if self._descriptor is None:
                raw = procfs.read_once(self._path, _BUFFER)
            else:
                raw = os.pread(self._descriptor, _BUFFER, 0)
        except OSError as error:
            if procfs.is_gone(error):
                raise ProcessEndedError from None
            raise
        if raw == self._raw:
            return
        before, stat = self._stat, procfs.parse_process_stat(raw)
        if stat.start_ticks != before.start_ticks:
            raise ProcessEndedError
        self._raw, self._stat = raw, stat
        self.parent_pid, self.has_ended = stat.parent_pid, stat.has_ended
        if stat.name != before.name or stat.stack_start not in (before.stack_start, b"0"):
            self.name = clean_name(stat.name)
            self._full_reads = FULL_READS
            self._details_due = now
        if stat[:3] != before[:3] or stat[5:9] != before[5:9]:
            self.version += 1

    def _refresh_details(self, now: float) -> None:
        before = self._details
        if self._stat.state in "ZX" and before.uid is not None:
            # A zombie has no command line any more; what it was is worth more than "[name]".
            details = before
        elif self._full_reads > 0:
            self._full_reads -= 1
            details = read_details(self.pid, self._stat.name, self._proc)
        else:
            command = read_command(self.pid, self._stat.name, self._proc)
            details = before._replace(command=command)
        if details.command in (None, f"[{self.name}]") and before.command is not None:
            # The memory of an ending process is gone before it is a zombie.
            details = details._replace(command=before.command)
        # Spread out: else all that was there at the start would be read again at one moment.
        self._details_due = now + (
            SETTLE_SECONDS if self._full_reads else COMMAND_SECONDS + self.pid % 16
        )
        if details != before:
            self._details = details
            self.version += 1

    def row(self, gpu: GpuProcess | None) -> Process:
        """The row for one GPU, or for none: the same object while nothing in it changes."""
        key = None if gpu is None else (gpu.gpu_uuid, gpu.mig_instance)
        uid = self._details.uid
        # Asked each time, since the answer can be late.
        user = None if uid is None else user_name(uid)
        cached = self._rows.get(key)
        if cached is not None and cached[0] == self.version and cached[1] == gpu:
            row = cached[2]
            if row.user == user:
                return row
        row = self._build_row(gpu, user)
        self._rows[key] = (self.version, gpu, row)
        return row

    def _build_row(self, gpu: GpuProcess | None, user: str | None) -> Process:
        stat, details = self._stat, self._details
        return Process(
            pid=self.pid,
            started_at_unix_seconds=self.started_at,
            parent_pid=stat.parent_pid,
            user=user,
            name=self.name,
            command=details.command,
            state=stat.state,
            cpu_percent=self.cpu_percent,
            memory_resident_bytes=stat.resident_pages * procfs.PAGE_BYTES,
            threads=stat.threads,
            container=details.container,
            slurm_job=details.slurm_job,
            **({} if gpu is None else driver_side(gpu)),
        )


def driver_side(gpu: GpuProcess) -> dict[str, Any]:
    """What the driver says of a process, as fields of its row."""
    return {
        "gpu_uuid": gpu.gpu_uuid, "gpu_memory_bytes": gpu.memory_bytes, "gpu_kind": gpu.kind,
        "gpu_busy_percent": gpu.busy_percent, "mig_instance": gpu.mig_instance,
    }  # fmt: skip
