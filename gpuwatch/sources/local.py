"""This machine: its GPUs, its host readings, its processes and what watching them costs.

Each part fails on its own: an exception in one becomes a ``Problem``, and the others show. The GPU
half is kept at arm's length (``DriverLink``), so that a driver that blocks or hangs holds up
nothing.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from gpuwatch.core.background import DaemonWorker, Task
from gpuwatch.core.model import (
    Gpu,
    GpuReading,
    Host,
    Job,
    OwnCost,
    Problem,
    Process,
    Snapshot,
)
from gpuwatch.core.source import Clock, JobReader, ReadOptions, SystemClock
from gpuwatch.core.text import bug_place, clean
from gpuwatch.sources.allocation import Allocations
from gpuwatch.sources.gpu_filter import only_wanted
from gpuwatch.sources.gpu_source import DriverReading, GpuProcess, GpuSource
from gpuwatch.sources.kernel_log import KernelLog
from gpuwatch.sources.linux.host import HostReader, OwnUsage
from gpuwatch.sources.linux.processes import ProcessSource

T = TypeVar("T")

DRIVERS = (("gpuwatch.sources.nvml.source", "NvmlSource", ""),)
"""(module, class, device file by which its driver is known to be there): the first that is there
is used; the last speaks for a machine without any."""
SOURCE = "nvml"
"""The source of problems of the GPU half."""
FIRST_WAIT_SECONDS = 0.25
"""A driver that is awake opens faster than this; the first picture does not wait longer."""
SHORTEST_WAIT_SECONDS = 0.4
CLOSE_SECONDS = 0.5
WAKES_SECONDS = 2.0
"""A wait that is longer is worth a line on the screen."""
HANGS_SECONDS = 20.0
"""A silence that is no longer the waking of several GPUs without the persistence daemon."""


class LocalSource:
    """Snapshots of this machine. ``gpus`` makes the GPU half (``NvmlSource``), on a thread of
    its own, because the driver can take seconds to wake and can hang; ``jobs`` what reads jobs,
    at the first look: by then the driver wakes, and the host's counters grow."""

    simulated = False

    def __init__(
        self,
        clock: Clock | None = None,
        options: ReadOptions | None = None,
        *,
        gpus: Callable[[], GpuSource] | None = None,
        host: HostReader | None = None,
        processes: ProcessSource | None = None,
        jobs: Callable[[], JobReader] | None = None,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.options = ReadOptions() if options is None else options
        self._driver = DriverLink(self.clock, self.options, gpus or self._gpus)
        self._host = HostReader(self.clock) if host is None else host
        self._processes = (
            ProcessSource(self.clock, self.options) if processes is None else processes
        )
        self._make_jobs = jobs
        self._jobs: JobReader | None = None
        self._own = OwnUsage()
        self._allocations = Allocations(self.clock)
        self._kernel_log = KernelLog()
        self._answered_at: float | None = None
        """Time of the driver's last answer, monotonic seconds."""
        self._began: tuple[float, float, float] | None = None
        self._sequence = 0

    @property
    def driver_silent(self) -> bool:
        """Whether the last read had to do without the GPUs, because the driver had not answered
        yet."""
        return self._driver.silent

    def open(self) -> None:
        """Start waking the driver and take the host's first sample; does not wait for either."""
        self._driver.open()
        # What goes wrong here goes wrong again in read(), which reports it.
        with suppress(Exception):
            self._host.open()

    def look_ahead(self, then: Callable[[], object]) -> float | None:
        """Ask the driver for the next ``read``, whose snapshot is of this moment."""
        self._began = self._now()
        return self._driver.look_ahead(then)

    def read(self) -> Snapshot:
        """Take a snapshot. Never raises; never waits longer for the driver than half the
        interval (or 0.4 s, if that is longer), unless ``options`` set another time."""
        unix, monotonic, started = self._began or self._now()
        self._began = None
        unread = Host(name=clean(os.uname().nodename, 255))
        host, host_problems = _guarded("the host", self._host.read, unread)
        # If nobody looked ahead. Not before the host is read: the two threads would wake each
        # other again and again.
        self._driver.ask()
        look = self._driver.collect()
        processes, jobs, process_problems = self._read_processes(look.processes)
        snapshot = Snapshot(
            sequence=self._sequence,
            taken_at_unix_seconds=unix,
            monotonic_seconds=monotonic,
            interval_seconds=self.options.interval_seconds,
            simulated=False,
            host=host,
            gpus=self._with_errors(self._allocations.with_jobs(look.gpus)),
            processes=processes,
            jobs=jobs,
            problems=(*look.problems, *host_problems, *process_problems),
            own_cost=self._cost(look, started),
        )
        self._sequence += 1
        return only_wanted(snapshot, self.options)

    def close(self) -> None:
        """Let everything go; a driver that hangs is left behind."""
        self._driver.close()
        for part in (self._host, self._processes, self._jobs, self._kernel_log):
            with suppress(Exception):
                if part is not None:
                    part.close()
        self._own.close()

    def _read_processes(
        self, on_gpus: Sequence[GpuProcess]
    ) -> tuple[tuple[Process, ...], tuple[Job, ...], tuple[Problem, ...]]:
        """Read processes first by themselves: a failure of jobs takes none of them away."""
        if self._jobs is None and self._make_jobs is not None:
            self._jobs = self._make_jobs()
        reader, roots, root_bug = self._jobs, frozenset[int](), tuple[Problem, ...]()
        if reader is not None:
            pids = [process.pid for process in on_gpus]
            roots, root_bug = _guarded("jobs", lambda: (reader.roots(pids), ()), roots)
        processes, problems = _guarded(
            "processes", lambda: self._processes.read(on_gpus, roots), tuple[Process, ...]()
        )
        if reader is None or root_bug:
            return processes, (), problems + root_bug
        jobs, job_problems = _guarded("jobs", lambda: reader.read(processes), tuple[Job, ...]())
        return processes, jobs, problems + job_problems

    def _with_errors(self, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        """Add what the kernel's log has, also of GPUs that are lost and while the driver hangs."""
        if gpus:
            self._kernel_log.read()
        return self._kernel_log.with_xids(gpus)

    def _now(self) -> tuple[float, float, float]:
        return self.clock.unix(), self.clock.monotonic(), time.perf_counter()

    def _cost(self, look: DriverReading, started: float) -> OwnCost:
        """Return the cost of watching, all threads of this process together."""
        now = self.clock.monotonic()
        # The time that the look's calls are spread over: since the answer before.
        seconds = None
        if self._driver.answered:
            before, self._answered_at = self._answered_at, now
            seconds = now - before if before is not None and now > before else None
        return OwnCost(
            cpu_percent=self._own.cpu_percent(now),
            memory_resident_bytes=self._own.resident_bytes(),
            nvml_milliseconds_per_second=(
                None if seconds is None else 1000.0 * look.call_seconds / seconds
            ),
            nvml_calls_per_second=None if seconds is None else look.call_count / seconds,
            read_milliseconds=1000.0 * (time.perf_counter() - started),
        )

    def _gpus(self) -> GpuSource:
        for module, name, device in DRIVERS:
            if not device or Path(device).exists():
                # On the driver's thread: not even the import may hold up the host half.
                source: GpuSource = getattr(import_module(module), name)(self.clock, self.options)
                return source
        raise AssertionError("the last driver speaks for machines without any")


def _guarded(
    what: str, read: Callable[[], tuple[T, tuple[Problem, ...]]], otherwise: T
) -> tuple[T, tuple[Problem, ...]]:
    try:
        return read()
    except Exception as error:
        return otherwise, (bug(what.removeprefix("the "), what, error),)


class DriverLink:
    """The GPU half of a snapshot: ``open`` once, then ``ask`` and ``collect`` for each snapshot,
    with the other readings between the two, while the driver works.

    All calls go to one daemon thread, on which ``make`` is called, too. A look is waited for half
    an interval, or ``SHORTEST_WAIT_SECONDS`` where that is longer. One that is not back in time is
    left running: the snapshot goes out without the GPUs' readings, and the answer is picked up when
    it comes. While looks keep taking longer than there is time for, each is picked up one snapshot
    late, rather than every other snapshot being empty.
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
        self._source: GpuSource | None = None
        self._open_failure: Problem | None = None
        self._task: Task[DriverReading] | None = None
        self._asked_at = 0.0
        self._last = DriverReading()
        self.answered = False
        """The reading collected last is the driver's answer to the look asked for."""
        self.silent = False
        """Whether the driver has not answered in time (a failure is an answer)."""

    def open(self) -> None:
        """Start waking the driver; returns at once."""
        if self._opening is None:
            self._opened_at = self._clock.monotonic()
            self._opening = self._worker.submit(self._open_source)

    def look_ahead(self, then: Callable[[], object]) -> float | None:
        """Start a look that ``collect`` finds done when ``then`` is called (``LooksAhead``)."""
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
        """Return the look asked for, or all that can be said without it; nothing after
        ``close``."""
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
            self._last = self._without_readings(bug(SOURCE, "the GPUs", error))
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
        """Seconds that a snapshot waits for the GPUs."""
        if self._options.driver_wait_seconds is not None:
            return self._options.driver_wait_seconds
        return max(SHORTEST_WAIT_SECONDS, self._options.interval_seconds / 2)

    def _open_source(self) -> GpuSource:
        source = self._make()
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
            self._open_failure = bug(SOURCE, "the GPUs", error)

    def _late(self, began_at: float, *, waking: bool = False) -> DriverReading:
        """Return what is known without a driver that has not answered since ``began_at``."""
        self.silent = True
        seconds = self._clock.monotonic() - began_at
        shown = f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
        since = self._clock.unix() - seconds
        message = (
            f"The NVIDIA driver has not answered for {shown}, so there are no GPU readings until "
            "it does"
        )
        severity = "error"
        if waking:
            message = f"Waiting for the NVIDIA driver ({shown})"
            severity = "info" if seconds < WAKES_SECONDS else "warning"
        if seconds >= HANGS_SECONDS:
            message += ": see whether `nvidia-smi` hangs too, and look in `dmesg` for Xid errors"
            severity = "error"
        late = Problem(
            source=SOURCE, message=f"{message}.", since_unix_seconds=since, severity=severity
        )
        return self._without_readings(late)

    def _without_readings(self, problem: Problem) -> DriverReading:
        """Return the GPUs and processes known, each without any reading."""
        last = self._last
        processes = [one._replace(memory_bytes=None, busy_percent=None) for one in last.processes]
        return DriverReading(
            gpus=tuple(replace(gpu, reading=GpuReading()) for gpu in last.gpus),
            processes=tuple(processes),
            problems=(problem,),
        )


def bug(source: str, what: str, error: Exception) -> Problem:
    """Make a sentence of an exception nobody foresaw."""
    return Problem(
        source=source,
        message=f"Reading {what} failed: {bug_place(error)}; this is a bug in gpuwatch.",
        severity="error",
    )
