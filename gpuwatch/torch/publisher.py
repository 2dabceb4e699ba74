"""Writes this process's records into its step file, once there is something to report."""

import contextlib
import os
import sys

from gpuwatch.jobs.loop import step_file
from gpuwatch.jobs.loop.writer import StepFile

WINDOW_NS = 10_000_000_000
"""The counters of this long ago are written beside those of now."""
_BASE_APART_NS = 2_000_000_000
_RETRY_NS = 60_000_000_000
_COUNTERS = step_file.COUNTERS_PART


class Publisher:
    """The file of one process: opened with the first record, tried again later where no folder
    lets it."""

    def __init__(self) -> None:
        self.file: StepFile | None = None
        """Set while records can be written."""
        self._pid = os.getpid()
        self._try_at = 0
        self._refused: str | None = None
        """Why there is no file."""
        self._broken: str | None = None
        self.began_ns = 0
        self._bases: list[tuple[int, bytes]] = []
        self._base_due = 0
        self._base = b""

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that made it, unseen by Python's hooks."""
        return os.getpid() != self._pid

    def open(self, now: int) -> bool:
        """Open the file if it is time; whether records can be written."""
        if now < self._try_at or self._broken is not None:
            return False
        if _is_loader_worker():
            self._refused, self._try_at = "this is a DataLoader worker", sys.maxsize
            return False
        try:
            self.file = StepFile.create()
        except OSError as error:
            self._refused, self._try_at = error.strerror or str(error), now + _RETRY_NS
            return False
        self._refused, self.began_ns = None, now
        self._bases, self._base_due = [], 0
        if "multiprocessing.util" in sys.modules:
            # Its children end without running what atexit knows.
            from multiprocessing.util import Finalize  # noqa: PLC0415 - the job has it

            Finalize(None, self.close, exitpriority=0)
        return True

    def write(self, now: int, moving: bytes, seldom: bytes) -> None:
        """Write a record of these parts, packed as ``step_file`` has them."""
        if now >= self._base_due:
            self._keep_base(now, moving[_COUNTERS])
        assert self.file is not None
        self.file.write(moving + seldom + self._base)

    def _keep_base(self, now: int, counters: bytes) -> None:
        bases = self._bases
        bases.append((now, counters))
        while len(bases) > 1 and now - bases[1][0] >= WINDOW_NS:
            del bases[0]
        self._base = bases[0][1]
        self._base_due = now + _BASE_APART_NS

    def describe(self) -> str:
        if self._broken is not None:
            return f"gpuwatch.torch has stopped reporting: {self._broken}"
        if self.file is not None:
            return f"gpuwatch.torch reports through {self.file.path}"
        if self._refused is not None:
            return f"gpuwatch.torch reports nothing: {self._refused}"
        return "gpuwatch.torch has had nothing to report yet"

    def give_up(self, why: str) -> None:
        self._broken = why
        self.close()

    def close(self) -> None:
        """Remove the file, if it is this process's own; a later record begins a new one. Never
        raises."""
        file, self.file = self.file, None
        if file is not None:
            file.close(remove=not self.is_forked)


def _is_loader_worker() -> bool:
    module = sys.modules.get("torch.utils.data")
    with contextlib.suppress(Exception):
        return module is not None and module.get_worker_info() is not None
    return False
