"""The GPU half of a snapshot at arm's length: a driver that blocks or hangs holds up nothing.

All calls go to one daemon thread. A look that is not back in time is left running: the snapshot
goes out without the GPUs' readings, and the answer is picked up when it comes. While looks keep
taking longer than there is time for, each is picked up one snapshot late, rather than every
other snapshot being empty.
"""

from collections.abc import Callable
from dataclasses import replace

from gpuwatch.core.background import DaemonWorker, Task
from gpuwatch.core.model import GpuReading, Problem
from gpuwatch.core.source import Clock, ReadOptions
from gpuwatch.core.text import bug_place
from gpuwatch.sources.gpu_source import DriverReading, GpuSource
from gpuwatch.sources.nvml.messages import problem

FIRST_WAIT_SECONDS = 0.25
"""A driver that is awake opens faster than this; the first picture does not wait longer."""
SHORTEST_WAIT_SECONDS = 0.4
SO_FAR_SECONDS = 5.0
"""How long the readings so far of a slow driver are shown without any news from it."""
CLOSE_SECONDS = 0.5
WAKES_SECONDS = 2.0
"""A wait that is longer is worth a line on the screen."""
HANGS_SECONDS = 20.0
"""A silence that is no longer the waking of several GPUs without the persistence daemon."""


class DriverLink:
    """``open`` once, then ``ask`` and ``collect`` for each snapshot; what is between the two
    runs while the driver works. ``make`` is called on the driver's thread.

    A look is waited for half an interval, or ``SHORTEST_WAIT_SECONDS`` where that is longer.
    """

    def __init__(self, clock: Clock, options: ReadOptions, make: Callable[[], GpuSource]) -> None:
        self._closed = False
        self._clock = clock
        self._options = options
        self._make = make
        self._worker = DaemonWorker("gpuwatch-driver")
        self._opening: Task[GpuSource] | None = None
        self._opened_at = 0.0
        self._waited = False
        self._made: GpuSource | None = None
        """The source, from before it is open."""
        self._source: GpuSource | None = None
        self._open_failure: Problem | None = None
        self._task: Task[DriverReading] | None = None
        self._asked_at = 0.0
        self._last = DriverReading()
        self.answered = False
        """What was collected last is the driver's answer to the look asked for."""
        self.silent = False
        """It has not answered in time (a failure is an answer)."""

    def open(self) -> None:
        """Start waking the driver; returns at once."""
        if self._opening is None:
            self._opened_at = self._clock.monotonic()
            self._opening = self._worker.submit(self._open_source)

    def look_ahead(self, then: Callable[[], object]) -> float | None:
        """As ``LooksAhead`` has it: a look that ``collect`` finds done when ``then`` is called."""
        if self._closed or self._source is None or self._task is not None:
            return None
        self._submit(self._source)
        self._worker.submit(then)
        return self._patience

    def ask(self) -> None:
        """Start a look at the GPUs, unless one is under way or has come back late."""
        if self._closed:
            return
        self.open()
        self._take_source()
        if self._source is not None and self._task is None:
            self._submit(self._source)

    def collect(self) -> DriverReading:
        """The look asked for, or what can be said without it; nothing after ``close``."""
        self.answered = self.silent = False
        if self._closed:
            return DriverReading()
        if self._source is None and not self._wait_for_source():
            if self._open_failure is not None:
                return DriverReading(problems=(self._open_failure,))
            return self._late(self._opened_at, waking=True)
        assert self._source is not None
        task = self._task or self._submit(self._source)
        waited = self._clock.monotonic() - self._asked_at
        if not task.wait(max(0.0, self._patience - waited)):
            return self._late(self._asked_at)
        self._task = None
        if task.run_seconds is not None and task.run_seconds > self._patience:
            self._submit(self._source)
        try:
            self._last = task.result()
            self.answered = True
        except Exception as error:
            self._last = self._without_readings(bug("nvml", "the GPUs", error))
        return self._last

    def close(self) -> None:
        """Let the driver go, unless it hangs; never waits long."""
        if self._closed:
            return
        self._closed = True
        self._take_source()
        if self._source is not None and (self._task is None or self._task.done):
            self._worker.submit(self._source.close).wait(CLOSE_SECONDS)
        self._worker.stop()

    @property
    def _patience(self) -> float:
        """How long a snapshot waits for the GPUs, seconds."""
        if self._options.driver_wait_seconds is not None:
            return self._options.driver_wait_seconds
        return max(SHORTEST_WAIT_SECONDS, self._options.interval_seconds / 2)

    def _open_source(self) -> GpuSource:
        self._made = source = self._make()
        source.open()
        return source

    def _submit(self, source: GpuSource) -> Task[DriverReading]:
        self._asked_at = self._clock.monotonic()
        self._task = self._worker.submit(source.read)
        return self._task

    def _wait_for_source(self) -> bool:
        wait_seconds = self._options.driver_wait_seconds
        if wait_seconds is None:
            wait_seconds = 0.0 if self._waited else FIRST_WAIT_SECONDS
        self._waited = True
        if self._opening is not None:
            self._opening.wait(wait_seconds)
        self._take_source()
        return self._source is not None

    def _take_source(self) -> None:
        if self._opening is None or not self._opening.done or self._source is not None:
            return
        try:
            self._source = self._opening.result()
        except Exception as error:
            self._open_failure = bug("nvml", "the GPUs", error)

    def _late(self, began_at: float, *, waking: bool = False) -> DriverReading:
        """A driver that has not answered since; what one that is slow to give all for the first
        time has said so far."""
        self.silent = True
        now = self._clock.monotonic()
        seconds = now - began_at
        shown = f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
        since = self._clock.unix() - seconds
        known = None if self._made is None else self._made.so_far
        if known is not None and now - known[0] <= SO_FAR_SECONDS:
            message = f"The NVIDIA driver is slow to start ({shown} so far); the readings that are "
            waits = problem(f"{message}missing follow.", since=since, severity="info")
            problems = (waits, *known[1].problems)
            self._last = replace(known[1], problems=problems, call_seconds=0.0, call_count=0)
            return self._last
        message = f"The NVIDIA driver has not answered for {shown}, so there are no GPU readings "
        message, severity = f"{message}until it does", "error"
        if waking:
            message = f"Waiting for the NVIDIA driver ({shown})"
            severity = "info" if seconds < WAKES_SECONDS else "warning"
        if seconds >= HANGS_SECONDS:
            message += ": see whether `nvidia-smi` hangs too, and look in `dmesg` for Xid errors"
            severity = "error"
        late = problem(f"{message}.", since=since, severity=severity)
        return self._without_readings(late)

    def _without_readings(self, problem: Problem) -> DriverReading:
        """The GPUs and processes known, each without any reading."""
        last = self._last
        processes = [one._replace(memory_bytes=None, busy_percent=None) for one in last.processes]
        return DriverReading(
            gpus=tuple(replace(gpu, reading=GpuReading()) for gpu in last.gpus),
            processes=tuple(processes),
            problems=(problem,),
        )


def bug(source: str, what: str, error: Exception) -> Problem:
    """An exception nobody foresaw, as a sentence."""
    return Problem(
        source=source,
        message=f"Reading {what} failed: {bug_place(error)}; this is a bug in gpuwatch.",
        severity="error",
    )
