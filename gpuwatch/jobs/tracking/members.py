"""One process of a job, followed from its first look to its end."""

import math
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from gpuwatch.core.model import GpuKey, JobMember, Process, ProcessKey
from gpuwatch.jobs.identity import evidence
from gpuwatch.jobs.identity.evidence import Look, ThreadNames
from gpuwatch.jobs.identity.roles import OTHER, SETTLE_SECONDS, WORKER_NAME, Evidence, Role
from gpuwatch.jobs.tracking.meters import ChildrenMeter, MemberMeter, Rates
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.connections import UNSEEN, Traffic

FRAMEWORK_SECONDS = (2.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Libraries are loaded early, and listing them costs more the more there are."""
THREADS_SECONDS = 2.0
THREADS_SECONDS_APART = 5.0
"""For jobs nobody is attached to. Both are shorter than ``loader.PIN_SETTLE_SECONDS``."""
THREADS_SECONDS_LONGEST = 60.0
SWITCHES_SECONDS = 2.0
SWITCHES_SECONDS_APART = 6.0
"""Where its readings are not taken with every look: that file is the dearest of them."""
METER_SECONDS_APART = 3.0
METER_SECONDS_ASLEEP = 10.0
METER_SECONDS_AT_REST = 30.0
"""Where the kernel's clock of it says that it did not run: nothing of it is read then."""
NEW_SECONDS = 60.0
"""So long after it was first seen more is still found out of it, run or not."""
METER_SECONDS_IN_TURNS = 2.0
"""For those of a large job that somebody is attached to, its ranks apart."""
ASLEEP_PERCENT = 0.5
"""A process that used less of a core and neither read nor wrote, and uses none now, sleeps."""
FIRST_RATES_SECONDS = 0.1
"""The second reading comes with the next snapshot, so that a single look has rates too: less than
lies between its two (``once.SETTLE_SECONDS``)."""

ENDED_STATES = ("Z", "X")
_AWAITS_WORK = (b"poll_schedule_timeout", b"do_poll", b"do_sys_poll")
"""Kernel functions in which a queue of multiprocessing waits, and with it a loader worker for the
indices of its next batch."""
LASTING_STATES = (*ENDED_STATES, "T", "t")
"""Others change all the time."""

_ROW_FIELDS = (
    "parent_pid", "name", "command", "state", "cpu_percent", "memory_resident_bytes", "threads",
)  # fmt: skip
_of_row = attrgetter(*_ROW_FIELDS)


class Member(Evidence):
    """One process: the evidence of its role, and its latest readings."""

    def __init__(self, row: Process, now: float, proc: Path = procfs.PROC) -> None:
        self.row = row
        self._proc = proc
        self._has_clock = procfs.has_clocks(proc)
        self.ran_at = now
        """It may have run between the look before this one and this one."""
        super().__init__(look=Look(pid=row.pid, parent=row.parent_pid or 0), settled=False)
        self._look_again()
        self.key: ProcessKey = row.key
        self.role: Role = OTHER
        self.framework_readable = True
        self.kernel_seconds = 0.0
        """From the first kernels of it that were seen to the latest."""
        self.meter = MemberMeter(row.pid, proc)
        self._kernels_at: float | None = None
        self._thread_names = ThreadNames(row.pid, proc)
        self._threads_due = now
        self._threads_at = self._framework_at = self._measured_at = -math.inf
        self._threads_tries = 0
        self._framework_due = now
        self._framework_tries = 0
        self.evidence_due = now
        self._evidence_waits = math.inf
        """When evidence is due once it runs again."""
        self.due = now
        """When its readings are to be taken again."""
        self._switches_due = now
        self._measured = 0
        self._sleeps = False
        self._seen_at = now
        self._made: JobMember | None = None
        self._made_of: tuple[object, ...] = ()
        self.traffic: Traffic = UNSEEN
        self.below: Sequence[int] = ()
        """PIDs of the processes below it, of a loader worker."""
        self._children = ChildrenMeter(row.pid, proc)
        self.gpus: tuple[GpuKey, ...] = ()
        """It uses now."""

    @property
    def has_memory_to_read(self) -> bool:
        """It lives, and has run since its proportional memory was read."""
        read_at = self.meter.proportional_at
        return self.is_alive and (read_at is None or self.ran_at > read_at)

    @property
    def is_alive(self) -> bool:
        return self.row.state not in ENDED_STATES

    def take(self, row: Process, now: float, unix: float, apart: float) -> bool:
        """The process's row of this time, ``apart`` seconds after the one before; whether anything
        its role depends on has changed."""
        before, self.row = self.row, row
        if row.gpu_busy_percent is not None and row.gpu_busy_percent > 0.0:
            if self._kernels_at is None:
                self._kernels_at = now
            self.kernel_seconds = now - self._kernels_at
        if row.cpu_percent != 0.0 or not self._has_clock:
            self.ran_at = now
            if self._evidence_waits < math.inf:
                self.evidence_due, self._evidence_waits = self._evidence_waits, math.inf
        if row is before and self.settled:
            return False
        if self._sleeps and not self._rests_by_its_row():
            # What it did when it woke is of the last few seconds, for as long as its rates will be
            # held: not of all the time in which it did nothing.
            self._sleeps = False
            held = math.ceil(METER_SECONDS_APART / apart) * apart if apart > 0.0 else 0.0
            self.meter.rested(now - held)
            self.due = now
        state, was = row.state, before.state
        changed = state != was and (state in LASTING_STATES or was in LASTING_STATES)
        if row is not before and self.is_alive:
            # After an exec it is another program, with another environment.
            renamed = row.name != before.name or row.command != before.command
            if renamed or row.parent_pid != before.parent_pid:
                self._look_again()
                self._framework_due = now if renamed else self._framework_due
                self._framework_tries = 0
                changed = True
        if not self.settled:
            started = row.started_at_unix_seconds
            age = 0.0 if started is None else unix - started
            self.settled = max(age, now - self._seen_at) >= SETTLE_SECONDS
            changed = changed or self.settled
        return changed

    # What its role depends on

    def read_evidence(self, now: float, *, attached: bool, anew: bool) -> bool:
        """Read what is loaded and how threads are called, where that may decide something, it is
        time and the process has run; whether it changed. ``anew``: something else may decide by
        now."""
        if now < self.evidence_due and not anew:
            return False
        changed, due = False, math.inf
        if self.is_alive and self._needs_framework():
            if now >= self._framework_due and self.ran_at > self._framework_at:
                changed = self._read_framework(now)
            due = self._framework_due
        if self.is_alive and self._needs_threads():
            if now >= self._threads_due and self.ran_at > self._threads_at:
                self._threads_due = now + self._threads_apart(attached=attached)
                changed = self._read_threads(now) or changed
            due = min(due, self._threads_due)
        waits = due <= now
        self.evidence_due, self._evidence_waits = (math.inf, due) if waits else (due, math.inf)
        return changed

    def _look_again(self) -> None:
        """A process that has ended since, or has nothing to show, is known by its row."""
        row = self.row
        found = evidence.read_look(row.pid, self._proc) if self.is_alive else None
        if found is None or found.started_at != row.started_at_unix_seconds:
            self.look = Look(
                pid=row.pid,
                parent=row.parent_pid or 0,
                started_at=row.started_at_unix_seconds,
                name=row.name or "",
            )
            return
        self.look = found
        if not found.name.startswith(WORKER_NAME):
            self.environment = evidence.read_environment(self.pid, self._proc)

    def _needs_threads(self) -> bool:
        """True if threads can say anything about it: all others are known."""
        return self.role.name == "rank" or (
            (self.look.program.is_python or self.uses_gpu)
            and (self.role is OTHER or self.role.guessed)
            and not self.look.name.startswith(WORKER_NAME)
        )

    def _needs_framework(self) -> bool:
        """Workers have loaded what their parent has, for other reasons."""
        main = self.parent is None and self.look.program.is_python
        return self.role.name == "rank" or (main and not self.orphaned)

    def _threads_apart(self, *, attached: bool) -> float:
        if self.role.name == "rank":
            return THREADS_SECONDS if attached else THREADS_SECONDS_APART
        # It has shown nothing so far; less and less likely it will.
        self._threads_tries = min(self._threads_tries + 1, 10)
        return min(THREADS_SECONDS * (1 << self._threads_tries), THREADS_SECONDS_LONGEST)

    def _read_framework(self, now: float) -> bool:
        wait = FRAMEWORK_SECONDS[min(self._framework_tries, len(FRAMEWORK_SECONDS) - 1)]
        self._framework_tries += 1
        self._framework_due, self._framework_at = now + wait, now
        try:
            found, self.cpu_build = evidence.read_framework(self.pid, self._proc)
        except OSError as error:
            if isinstance(error, PermissionError):
                self.framework_readable, self._framework_due = False, float("inf")
            return False
        if found is not None:
            self._framework_due = float("inf")
            self.names_workers = evidence.names_workers(self.pid, self._proc)
        changed = found != self.framework
        self.framework = found
        return changed

    def _read_threads(self, now: float) -> bool:
        try:
            names = self._thread_names.refresh()
        except OSError:
            return False
        if not self._thread_names.complete:
            return False
        self._threads_at = now
        if names == self.threads:
            return False
        self.threads = names
        return True

    # Its readings

    def measure(self, now: float, *, every: float, disk_wait: bool) -> Rates:
        """Rates up to now, or those of the last time where it is not time yet; read again in
        ``every`` seconds, or later while it sleeps."""
        if now < self.due:
            return self.meter.rates
        switches = now >= self._switches_due
        if switches:
            apart = SWITCHES_SECONDS_APART if every else SWITCHES_SECONDS
            self._switches_due = now + (apart if self._measured else FIRST_RATES_SECONDS)
        if self.ran_at > self._measured_at:
            rates = self.meter.update(now, switches=switches, disk_wait=disk_wait and switches)
        else:
            rates = self.meter.rested(now)
        self._measured_at = now
        sleeps = self._is_asleep(rates) and not self.below
        self._sleeps = every >= METER_SECONDS_APART and sleeps
        if self._sleeps:
            rests = self._has_clock and now - self._seen_at >= NEW_SECONDS
            every = METER_SECONDS_AT_REST if rests else METER_SECONDS_ASLEEP
        # Spread out, so that not all are read at one moment.
        spread = self.pid % 8 * every / 32
        self.due = now + (every + spread if self._measured else min(every, FIRST_RATES_SECONDS))
        self._measured += 1
        return rates

    def _rests_by_its_row(self) -> bool:
        return self.row.cpu_percent == 0.0 and self.row.state == "S"

    def _is_asleep(self, rates: Rates) -> bool:
        """It did nothing between the last two readings, and by its row nothing since."""
        main = rates.main_thread_cpu_percent
        return (
            self._rests_by_its_row()
            and main is not None
            and main < ASLEEP_PERCENT
            and rates.read_bytes_per_second in (0.0, None)
            and rates.write_bytes_per_second in (0.0, None)
        )

    def publish(self, now: float, *, every: float, disk_wait: bool, anew: bool) -> JobMember:
        """The process as the snapshot has it: as it was until its readings are due again, unless it
        is to be made ``anew``; the same object while nothing of it changes."""
        if self._made is not None and now < self.due and not anew:
            return self._made
        ran = self.ran_at > self._measured_at
        rates = self.measure(now, every=every, disk_wait=disk_wait)
        of_row, role, proportional = _of_row(self.row), self.role, self.meter.proportional_bytes
        works: tuple[float | None, bool | None] = (None, None)
        if role.name == "loader_worker":
            works = self._children.update(now, self.below, ran=ran), self._awaits_work()
        # Of the row only what is shown: with every look its share of the GPU is another.
        made_of = (of_row, rates, role, proportional, self.orphaned, self.traffic, works)
        if self._made is None or made_of != self._made_of:
            self._made_of = made_of
            readings: dict[str, Any] = dict(zip(Rates._fields, rates, strict=True))
            self._made = JobMember(
                pid=self.pid,
                started_at_unix_seconds=self.key[1],
                role=role.name,
                role_sign=role.sign,
                role_guessed=role.guessed,
                rank=None if role.numbers is None else role.numbers.rank,
                orphaned=self.orphaned,
                memory_proportional_bytes=proportional,
                children_cpu_percent=works[0],
                awaits_work=works[1],
                **dict(zip(_ROW_FIELDS, of_row, strict=True)),
                **readings,
                **self.traffic._asdict(),
            )
        return self._made

    def _awaits_work(self) -> bool | None:
        """As ``JobMember`` has it. Where its connections are not seen it may as well wait for one
        of them, and where a process is below it, for its output."""
        waits = self.traffic.awaits_network
        if waits is None or self.role.guessed or self.row.state not in ("R", "S", "D"):
            return None
        if waits or self.row.state != "S":
            return False
        where = procfs.read_if_possible(f"{self._proc}/{self.pid}/wchan", 64)
        if where in (b"", b"0"):
            return None
        if not where.startswith(_AWAITS_WORK):
            return False
        return None if self.below else True
