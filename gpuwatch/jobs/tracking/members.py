"""One process of a job, followed from its first look to its end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path

from gpuwatch.core.model import JobMember, Process, ProcessKey
from gpuwatch.jobs.identity import evidence
from gpuwatch.jobs.identity.evidence import Look, RankNumbers, ThreadNames
from gpuwatch.jobs.identity.roles import OTHER, SETTLE_SECONDS, WORKER_NAME, Candidate, Given
from gpuwatch.jobs.tracking.meters import MemberMeter, Rates
from gpuwatch.sources.linux import procfs

FRAMEWORK_SECONDS = (2.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Libraries are loaded early, and listing them costs more the more there are."""
THREADS_SECONDS = 2.0
THREADS_SECONDS_APART = 5.0
"""For jobs nobody is attached to. Both are shorter than ``loader.PIN_SETTLE_SECONDS``."""
THREADS_SECONDS_LONGEST = 60.0
SWITCHES_SECONDS = 2.0
METER_SECONDS_APART = 3.0
METER_SECONDS_ASLEEP = 10.0
ASLEEP_PERCENT = 0.5
"""What used less of a core and neither read nor wrote, and uses none now, sleeps."""
FIRST_RATES_SECONDS = 0.2
"""The second reading comes with the next snapshot, so that a single look has rates too."""

ENDED_STATES = ("Z", "X")


_of_row = attrgetter(
    "parent_pid", "name", "command", "state", "cpu_percent", "memory_resident_bytes", "threads"
)


class Member:
    """What is known of one process, and its latest readings."""

    __slots__ = (
        "_framework_tries",
        "_kernels_at",
        "_made",
        "_made_of",
        "_measured",
        "_meter_due",
        "_proc",
        "_seen_at",
        "_slept_at",
        "_switches_due",
        "_threads",
        "_threads_due",
        "_threads_tries",
        "environment",
        "framework",
        "framework_due",
        "framework_readable",
        "given",
        "kernel_seconds",
        "key",
        "left_over",
        "look",
        "meter",
        "parent",
        "pid",
        "row",
        "settled",
        "tells",
        "thread_names",
        "told_numbers",
        "uses_gpu",
    )

    def __init__(self, row: Process, now: float, proc: Path = procfs.PROC) -> None:
        self.key: ProcessKey = row.key
        self.pid = row.pid
        self.row = row
        self.parent: int | None = None
        """The member above it."""
        self.left_over = False
        """What started it has ended."""
        self.given: Given = OTHER
        self.environment: Mapping[str, str] | None = None
        self.framework: str | None = None
        self.framework_readable = True
        self.framework_due: float | None = now
        self.thread_names: frozenset[str] | None = None
        """``None`` until all have been read once."""
        self.uses_gpu = False
        self.tells = False
        """It uses ``gpuwatch.torch``."""
        self.told_numbers: RankNumbers | None = None
        self.kernel_seconds = 0.0
        """From the first kernels of it that were seen to the latest."""
        self._kernels_at: float | None = None
        self.meter = MemberMeter(row.pid, proc)
        self._proc = proc
        self._threads: ThreadNames | None = None
        self._threads_due = now
        self._threads_tries = 0
        self._framework_tries = 0
        self._meter_due = now
        self._switches_due = now
        self._measured = 0
        self._slept_at: float | None = None
        self._seen_at = now
        self.settled = False
        """It has been there for ``SETTLE_SECONDS``."""
        self._made: JobMember | None = None
        self._made_of: tuple[object, ...] = ()
        self.look = self._look()

    @property
    def is_alive(self) -> bool:
        return self.row.state not in ENDED_STATES

    def take(self, row: Process, now: float, unix: float) -> bool:
        """The process's row of this time; whether anything its role depends on has changed."""
        before, self.row = self.row, row
        if row.gpu_busy_percent is not None and row.gpu_busy_percent > 0.0:
            if self._kernels_at is None:
                self._kernels_at = now
            self.kernel_seconds = now - self._kernels_at
        changed = False
        if row is not before and row.state not in ENDED_STATES:
            # After an exec it is another program, with another environment.
            renamed = (row.name, row.command) != (before.name, before.command)
            if renamed or row.parent_pid != before.parent_pid:
                self.look = self._look()
                self.framework_due = now if renamed else self.framework_due
                self._framework_tries = 0
                changed = True
        if not self.settled:
            started = row.started_at_unix_seconds
            age = 0.0 if started is None else unix - started
            self.settled = max(age, now - self._seen_at) >= SETTLE_SECONDS
            changed = changed or self.settled
        return changed

    def read_evidence(self, now: float, *, attached: bool) -> bool:
        """Read what is loaded and how threads are called, where that may decide something and
        it is time; whether it changed."""
        if not self.is_alive:
            return False
        changed = False
        if self.framework_due is not None and now >= self.framework_due and self._needs_framework():
            changed = self._read_framework(now)
        if now >= self._threads_due and self._needs_threads():
            self._threads_due = now + self._threads_apart(attached=attached)
            changed = self._read_threads() or changed
        return changed

    def measure(self, now: float, *, attached: bool, disk_wait: bool) -> Rates:
        """Rates up to now, or those of the last time where it is not time yet."""
        if not attached and (now < self._meter_due or self._sleeps_on(now)):
            return self.meter.rates
        switches = now >= self._switches_due
        if switches:
            apart = SWITCHES_SECONDS if self._measured else FIRST_RATES_SECONDS
            self._switches_due = now + apart
        self._meter_due = now + (self._meter_apart if self._measured else FIRST_RATES_SECONDS)
        self._measured += 1
        return self.meter.update(now, switches=switches, disk_wait=disk_wait and switches)

    def _sleeps_on(self, now: float) -> bool:
        """Whether its next reading can wait. What it did when it woke is of the last few seconds,
        for as long as its rates will be held: not of all the time in which it did nothing."""
        slept_at, self._slept_at = self._slept_at, None
        if self._is_asleep():
            if now >= self._meter_due + METER_SECONDS_ASLEEP - METER_SECONDS_APART:
                return False
            self._slept_at = now
            return True
        if slept_at is not None and slept_at < now:
            looks = math.ceil(self._meter_apart / (now - slept_at))
            self.meter.rested(now - looks * (now - slept_at))
        return False

    @property
    def _meter_apart(self) -> float:
        """Spread out, so that not all are read at one moment."""
        return METER_SECONDS_APART + self.pid % 8 * 0.1

    def _is_asleep(self) -> bool:
        """It did nothing between the last two readings, and by its row nothing since."""
        row, rates = self.row, self.meter.rates
        main = rates.main_thread_cpu_percent
        return (
            row.cpu_percent == 0.0
            and row.state == "S"
            and main is not None
            and main < ASLEEP_PERCENT
            and rates.read_bytes_per_second in (0.0, None)
            and rates.write_bytes_per_second in (0.0, None)
        )

    def candidate(self) -> Candidate:
        return Candidate(
            look=self.look,
            parent=self.parent,
            environment=self.environment,
            threads=self.thread_names or frozenset(),
            framework=self.framework,
            uses_gpu=self.uses_gpu,
            tells=self.tells,
            told_numbers=self.told_numbers,
            settled=self.settled,
            left_over=self.left_over,
        )

    def make(self, rates: Rates) -> JobMember:
        """What the snapshot says of it: the same object while nothing of that changes."""
        proportional = self.meter.proportional_bytes
        # Of the row only what is shown: with every look its share of the GPU is another.
        made_of = (_of_row(self.row), rates, self.given, proportional, self.left_over)
        if self._made is not None and made_of == self._made_of:
            return self._made
        row, given = self.row, self.given
        self._made_of = made_of
        self._made = JobMember(
            pid=self.pid,
            started_at_unix_seconds=row.started_at_unix_seconds,
            parent_pid=row.parent_pid,
            role=given.role,
            role_sign=given.sign,
            role_guessed=given.guessed,
            rank=None if given.numbers is None else given.numbers.rank,
            orphaned=self.left_over,
            name=row.name,
            command=row.command,
            state=row.state,
            cpu_percent=row.cpu_percent,
            main_thread_cpu_percent=rates.main_thread_cpu_percent,
            run_queue_wait_percent=rates.run_queue_wait_percent,
            disk_wait_percent=rates.disk_wait_percent,
            read_bytes_per_second=rates.read_bytes_per_second,
            write_bytes_per_second=rates.write_bytes_per_second,
            voluntary_switches_per_second=rates.voluntary_switches_per_second,
            involuntary_switches_per_second=rates.involuntary_switches_per_second,
            memory_resident_bytes=row.memory_resident_bytes,
            memory_proportional_bytes=proportional,
            threads=row.threads,
        )
        return self._made

    def close(self) -> None:
        self.meter.close()

    def _look(self) -> Look:
        """Who it is. A process that has ended since, or has nothing to show, is known by its
        row."""
        found = None if self.row.state in ENDED_STATES else evidence.read_look(self.pid, self._proc)
        if found is None or found.started_at != self.row.started_at_unix_seconds:
            return Look(
                pid=self.pid,
                parent=self.row.parent_pid or 0,
                started_at=self.row.started_at_unix_seconds,
                name=self.row.name or "",
            )
        if not found.name.startswith(WORKER_NAME):
            self.environment = evidence.read_environment(self.pid, self._proc)
        return found

    def _needs_threads(self) -> bool:
        """Whether threads can say anything about it: all others are known."""
        return self.given.role == "rank" or (
            (self.look.program.is_python or self.uses_gpu)
            and (self.given is OTHER or self.given.guessed)
            and not self.look.name.startswith(WORKER_NAME)
        )

    def _needs_framework(self) -> bool:
        """Workers have loaded what their parent has, for other reasons."""
        main = self.parent is None and self.look.program.is_python
        return self.given.role == "rank" or (main and not self.left_over)

    def _threads_apart(self, *, attached: bool) -> float:
        if self.given.role == "rank":
            return THREADS_SECONDS if attached else THREADS_SECONDS_APART
        # It has shown nothing so far; less and less likely it will.
        self._threads_tries = min(self._threads_tries + 1, 10)
        return min(THREADS_SECONDS * (1 << self._threads_tries), THREADS_SECONDS_LONGEST)

    def _read_framework(self, now: float) -> bool:
        wait = FRAMEWORK_SECONDS[min(self._framework_tries, len(FRAMEWORK_SECONDS) - 1)]
        self._framework_tries += 1
        self.framework_due = now + wait
        try:
            found = evidence.read_framework(self.pid, self._proc)
        except PermissionError:
            self.framework_readable = False
            self.framework_due = None
            return False
        except OSError:
            return False
        if found is not None:
            self.framework_due = None
        changed = found != self.framework
        self.framework = found
        return changed

    def _read_threads(self) -> bool:
        if self._threads is None:
            self._threads = ThreadNames(self.pid, self._proc)
        try:
            names = self._threads.refresh()
        except OSError:
            return False
        if not self._threads.complete or names == self.thread_names:
            return False
        self.thread_names = names
        return True
