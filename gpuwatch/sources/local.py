"""This machine: its GPUs, its host readings, its processes and what watching them costs.

Each part fails on its own: an exception in one becomes a ``Problem``, and the others show.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from gpuwatch.core.model import Host, Job, OwnCost, Problem, Process, Snapshot
from gpuwatch.core.source import Clock, JobReader, ReadOptions, SystemClock
from gpuwatch.core.text import clean
from gpuwatch.sources.allocation import Allocations
from gpuwatch.sources.driver_link import DriverLink, bug
from gpuwatch.sources.gpu_source import DriverReading, GpuProcess, GpuSource
from gpuwatch.sources.linux.host import HostReader, OwnUsage
from gpuwatch.sources.linux.processes import ProcessSource
from gpuwatch.sources.only import only_wanted

T = TypeVar("T")

DRIVERS = (("gpuwatch.sources.nvml.source", "NvmlSource", ""),)
"""(module, class, device file by which its driver is known to be there): the first that is there
is used; the last speaks for a machine without any."""


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
        self._answered_at: float | None = None
        """When the driver answered last."""
        self._began: tuple[float, float, float] | None = None
        self._sequence = 0

    @property
    def driver_silent(self) -> bool:
        """The last read had to do without the GPUs, because the driver had not answered yet."""
        return self._driver.silent

    def open(self) -> None:
        """Start waking the driver and take the host's first sample; does not wait for either."""
        self._driver.open()
        # What goes wrong here goes wrong again in read(), which reports it.
        with suppress(Exception):
            self._host.open()

    def look_ahead(self, then: Callable[[], object]) -> float | None:
        """Ask the driver; the snapshot of the next ``read`` is of this moment."""
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
            gpus=self._allocations.of(look.gpus),
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
        for part in (self._host, self._processes, self._jobs):
            with suppress(Exception):
                if part is not None:
                    part.close()
        self._own.close()

    def _read_processes(
        self, on_gpus: Sequence[GpuProcess]
    ) -> tuple[tuple[Process, ...], tuple[Job, ...], tuple[Problem, ...]]:
        """Processes first by themselves: what goes wrong with jobs takes none of them away."""
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

    def _now(self) -> tuple[float, float, float]:
        return self.clock.unix(), self.clock.monotonic(), time.perf_counter()

    def _cost(self, look: DriverReading, started: float) -> OwnCost:
        """Cost of watching, all threads of this process together."""
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
