"""One process of a job, followed from its first look to its end, and what it uses.

``/proc/PID/schedstat``, ``status`` and the block delay in ``stat`` are those of the main thread
alone (proc(5), Documentation/scheduler/sched-stats); ``io`` and ``smaps_rollup`` of all threads.
"""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from gpuwatch.core.model import GpuKey, JobMember, Process, ProcessKey
from gpuwatch.jobs.identity.process_facts import (
    ProcessFacts,
    RankNumbers,
    ThreadNames,
    read_environment,
    read_facts,
    read_libraries,
)
from gpuwatch.jobs.identity.roles import OTHER, SETTLE_SECONDS, WORKER_NAME, Evidence, Role
from gpuwatch.jobs.loop.reader import LoopReader
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.connections import UNSEEN, Traffic

# What one process uses, beyond what its stat line says

MINIMUM_SECONDS = 0.05
PSS_SHARE = 0.002
"""Share of one core that adding up proportional memory may use, all processes together. The kernel
walks the page tables for it: about 5 ms for a PyTorch process, 10 ms a resident GiB."""
PSS_SHARE_APART = 0.0005
"""While nobody is attached to a job."""
PSS_FIRST_SECONDS = 0.03
"""This much may be used at once in the beginning, so that a single look at a small job is whole."""
PSS_LARGEST_BYTES = 16 << 30
"""A larger process, for which one reading takes 0.2 s, is left out: it would hold up the rest."""
PSS_SECONDS = 10.0
"""Memory moves slowly: no process is read more often."""

SWITCHES_SECONDS = 2.0
SWITCHES_SECONDS_APART = 6.0
"""Where its readings are not taken with every look: that file is the dearest of them."""
METER_SECONDS_APART = 3.0
METER_SECONDS_AT_REST = 10.0
"""Time between reads of a process that did not run, or used next to nothing; once it runs it is
read at once."""
ASLEEP_PERCENT = 0.5
METER_SECONDS_IN_TURNS = 2.0
"""For those of a large job that somebody is attached to, its ranks apart."""
FIRST_RATES_SECONDS = 0.1
"""The second reading comes with the next snapshot, so that a single look has rates too: less than
lies between its two (``watching.SETTLE_SECONDS``)."""

Pair = tuple[float, float]


def parse_schedstat(raw: bytes) -> Pair:
    """Parse percent seconds (of a core): running, and runnable but waiting for one."""
    running, waiting, _ = raw.split(None, 2)
    return int(running) / 1e7, int(waiting) / 1e7


def parse_io(raw: bytes) -> Pair:
    """Parse bytes read from and written to storage."""
    # "cancelled_write_bytes" stands after both.
    reads = raw.index(b"\nread_bytes: ") + 13
    writes = raw.index(b"\nwrite_bytes: ", reads) + 14
    return int(raw[reads : raw.index(b"\n", reads)]), int(raw[writes : raw.index(b"\n", writes)])


def parse_switches(raw: bytes) -> Pair:
    """Parse voluntary and involuntary context switches."""
    fields = raw[raw.index(b"\nvoluntary_ctxt_switches:") :].split(None, 4)
    return int(fields[1]), int(fields[3])


def parse_block_delay(raw: bytes) -> Pair:
    """Parse percent seconds of ``delayacct_blkio_ticks`` in a stat line."""
    fields = raw[raw.rindex(b")") + 2 :].split(None, 40)
    if len(fields) < 40:
        raise ValueError("this kernel does not count the delay")
    return 100.0 * int(fields[39]) / procfs.TICKS_PER_SECOND, 0.0


def parse_waited_ticks(raw: bytes) -> tuple[int, int]:
    """Parse clock ticks of a process itself, and of its children that have ended and were waited
    for (with theirs), in a stat line."""
    user, system, below_user, below_system = map(
        int, raw[raw.rindex(b")") + 2 :].split(None, 15)[11:15]
    )
    return user + system, below_user + below_system


def parse_pss(raw: bytes) -> int:
    """Parse ``Pss`` of ``smaps_rollup``, in bytes. Raises ``ValueError``."""
    return int(raw[raw.index(b"\nPss:") + 5 :].split(None, 1)[0]) * 1024


def accounts_for_disk_wait(proc: Path = procfs.PROC) -> bool:
    """True if the kernel adds up how long each task waits for block devices (5.14 and later:
    off unless asked for, Documentation/accounting/delay-accounting)."""
    return procfs.read_if_possible(proc / "sys/kernel/task_delayacct").strip() == b"1"


class Rates(NamedTuple):
    """Rates of use, as ``JobMember`` has them."""

    main_thread_cpu_percent: float | None = None
    run_queue_wait_percent: float | None = None
    disk_wait_percent: float | None = None
    read_bytes_per_second: float | None = None
    write_bytes_per_second: float | None = None
    voluntary_switches_per_second: float | None = None
    involuntary_switches_per_second: float | None = None


NO_RATES = Rates()
_AT_REST = (0.0, 0.0)


class Counters:
    """Two counters of one file, and how fast they rise a second; each rate at most ``most``.
    ``parse`` raises ``ValueError`` for what is no such file."""

    __slots__ = ("_at", "_before", "_most", "_parse", "path", "rates")

    def __init__(
        self, path: str, parse: Callable[[bytes], Pair], most: float = float("inf")
    ) -> None:
        self.path = path
        self._parse = parse
        self._most = most
        self._at = 0.0
        self._before: Pair | None = None
        self.rates: tuple[float | None, float | None] = (None, None)

    def read(self, now: float) -> bool:
        """Read them if some time has passed; whether that was refused. Without rates where they
        cannot be read."""
        try:
            values = self._parse(procfs.read_once(self.path))
        except (OSError, ValueError) as error:
            self._before, self.rates = None, (None, None)
            return isinstance(error, PermissionError)
        before, seconds = self._before, now - self._at
        if before is not None and seconds < MINIMUM_SECONDS:
            return False
        if values == before:
            self.rates = _AT_REST
        elif before is not None:
            self.rates = (
                min(self._most, max(0.0, (values[0] - before[0]) / seconds)),
                min(self._most, max(0.0, (values[1] - before[1]) / seconds)),
            )
        self._at, self._before = now, values
        return False

    def rested(self, until: float) -> None:
        self._at = max(self._at, until)
        if self._before is not None:
            self.rates = _AT_REST


class ChildrenMeter:
    """Meter of the CPU that all processes below one use. What a child used moves to its parent's
    counters when it has ended, so that the sum misses none, however short it lives."""

    def __init__(self, pid: int, proc: Path = procfs.PROC) -> None:
        self._pid = pid
        self._proc = proc
        self._before: tuple[float, int] | None = None

    def update(self, now: float, below: Sequence[int], *, ran: bool) -> float | None:
        """Return percent of one core since the call before; ``below``: the PIDs of those there now.
        Without any, a parent that has not ``ran`` since has not waited for one either."""
        if not (ran or below) and self._before is not None:
            self._before = (now, self._before[1])
            return 0.0
        try:
            ticks = self._read(self._pid)[1]
        except (OSError, ValueError):
            self._before = None
            return None
        for pid in below:
            # One that has just ended is in its parent's, now or with the next look.
            with contextlib.suppress(OSError, ValueError):
                ticks += sum(self._read(pid))
        before, self._before = self._before, (now, ticks)
        if before is None or now - before[0] < MINIMUM_SECONDS:
            return None
        used = max(0, ticks - before[1]) / procfs.TICKS_PER_SECOND
        return 100.0 * used / (now - before[0])

    def _read(self, pid: int) -> tuple[int, int]:
        return parse_waited_ticks(procfs.read_once(f"{self._proc}/{pid}/stat", 1024))


class MemberMeter:
    """Meter of what one process uses beyond its stat line: cheap counters, each read at
    its own pace. Never raises: what cannot be read is ``None``."""

    def __init__(self, pid: int, proc: Path = procfs.PROC) -> None:
        folder = f"{proc}/{pid}"
        self._scheduling = Counters(f"{folder}/schedstat", parse_schedstat, 100.0)
        self._io = Counters(f"{folder}/io", parse_io)
        self._switches = Counters(f"{folder}/status", parse_switches)
        self._delay = Counters(f"{folder}/stat", parse_block_delay, 100.0)
        self._pid = pid
        self.rates = NO_RATES
        self._rates_of: tuple[object, ...] = ()
        self.refused = False
        """Its user does not let gpuwatch see what it reads and writes."""
        self.due = self._switches_due = -math.inf
        """When rates are to be taken again."""
        self._read_at = -math.inf
        self._times_read = 0
        self._rests = False

    def has_run(self, ran_at: float) -> bool:
        """True if it has run since its rates were taken."""
        return ran_at > self._read_at

    def wake(self, now: float, apart: float) -> None:
        """Take its rates again at once if it rested; ``apart``: seconds between two snapshots.

        What it did when it woke is of the last few seconds, for as long as its rates will be
        held: not of all the time in which it did nothing."""
        if self._rests:
            self._rests = False
            held = math.ceil(METER_SECONDS_APART / apart) * apart if apart > 0.0 else 0.0
            self.rested(now - held)
            self.due = now

    def measure(
        self, now: float, *, every: float, disk_wait: bool, ran: bool, may_rest: bool
    ) -> Rates:
        """Return rates up to now, or those of the last time where it is not time yet.

        They are taken again in ``every`` seconds, or once it runs, where it ``may_rest`` and has
        not ``ran`` since the last reading or did nothing that counts."""
        if now < self.due:
            return self.rates
        switches = now >= self._switches_due
        first = self._times_read == 0
        if switches:
            apart = SWITCHES_SECONDS_APART if every else SWITCHES_SECONDS
            self._switches_due = now + (FIRST_RATES_SECONDS if first else apart)
        if ran:
            rates = self.update(now, switches=switches, disk_wait=disk_wait and switches)
        else:
            rates = self.rested(now)
        self._read_at = now
        rests = not ran or _did_nothing(rates)
        self._rests = may_rest and rests and every >= METER_SECONDS_APART
        every = METER_SECONDS_AT_REST if self._rests else every
        # Spread out, so that not all are read at one moment.
        spread = self._pid % 8 * every / 32
        self.due = now + (min(every, FIRST_RATES_SECONDS) if first else every + spread)
        self._times_read += 1
        return rates

    def update(self, now: float, *, switches: bool, disk_wait: bool) -> Rates:
        """Read what is cheap, and the dearer ``switches`` and ``disk_wait`` if asked to."""
        self._scheduling.read(now)
        self.refused = self.refused or self._io.read(now)
        if switches:
            self._switches.read(now)
        if disk_wait:
            self._delay.read(now)
        return self._found_rates()

    def rested(self, until: float) -> Rates:
        """Count no use up to then: the next rates are over the time after it."""
        for counters in (self._scheduling, self._io, self._switches, self._delay):
            counters.rested(until)
        return self._found_rates()

    def _found_rates(self) -> Rates:
        found = self._scheduling.rates, self._delay.rates, self._io.rates, self._switches.rates
        if found != self._rates_of:
            self._rates_of = found
            cpu, delay, io, switch = found
            self.rates = Rates(*cpu, delay[0], *io, *switch)
        return self.rates


def _did_nothing(rates: Rates) -> bool:
    main = rates.main_thread_cpu_percent
    moved = rates.read_bytes_per_second, rates.write_bytes_per_second
    return main is not None and main < ASLEEP_PERCENT and not any(moved)


# The process

FRAMEWORK_SECONDS = (2.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Libraries are loaded early, and listing them costs more the more there are."""
THREADS_SECONDS = 2.0
THREADS_SECONDS_APART = 5.0
"""For jobs nobody is attached to. Both are shorter than ``loader.PIN_SETTLE_SECONDS``."""
THREADS_SECONDS_LONGEST = 60.0

ENDED_STATES = ("Z", "X")
LASTING_STATES = (*ENDED_STATES, "T", "t")
"""Others change all the time."""
_AWAITS_WORK = (b"poll_schedule_timeout", b"do_poll", b"do_sys_poll")
"""Kernel functions in which a queue of multiprocessing waits, and with it a loader worker for the
indices of its next batch."""

_ROW_FIELDS = (
    "parent_pid", "name", "command", "state", "cpu_percent", "memory_resident_bytes", "threads",
)  # fmt: skip
_of_row = attrgetter(*_ROW_FIELDS)


class _Occasion:
    """The next time to read what costs much to read: it is due and the process has run since the
    last time."""

    __slots__ = ("due", "last", "tries")

    def __init__(self, due: float) -> None:
        self.due = due
        self.last = -math.inf
        self.tries = 0

    def is_here(self, now: float, ran_at: float) -> bool:
        return now >= self.due and ran_at > self.last


class Member(Evidence):
    """One process: the evidence of its role, and its latest readings."""

    def __init__(
        self, row: Process, now: float, proc: Path = procfs.PROC, *, orphaned: bool = False
    ) -> None:
        self.row = row
        self._proc = proc
        self._has_clock = procfs.has_clocks(proc)
        self._seen_at = self._ran_at = now
        facts = ProcessFacts(pid=row.pid, parent=row.parent_pid or 0)
        super().__init__(facts=facts, settled=False, orphaned=orphaned)
        self._read_facts()
        self.key: ProcessKey = row.key
        self.role: Role = OTHER
        self.libraries_readable = True
        self._thread_names = ThreadNames(row.pid, proc)
        self._libraries_at, self._threads_at = _Occasion(now), _Occasion(now)
        self.evidence_due = now
        self._evidence_waits = math.inf
        """When evidence is due once it runs again."""
        self.kernel_seconds = 0.0
        """From the first kernels of it that were seen to the latest."""
        self._kernels_at: float | None = None
        self.gpus: tuple[GpuKey, ...] = ()
        """GPUs that it uses now."""
        self.meter = MemberMeter(row.pid, proc)
        self.proportional_bytes: int | None = None
        self._proportional_at = -math.inf
        self._traffic: Traffic = UNSEEN
        self._below: Sequence[int] = ()
        self._children = ChildrenMeter(row.pid, proc)
        self._made: JobMember | None = None
        self._made_of: tuple[object, ...] = ()

    @property
    def is_alive(self) -> bool:
        return self.row.state not in ENDED_STATES

    # What is seen of it with every snapshot: whether its role may be another by that

    def follow_row(self, row: Process, now: float, unix: float, apart: float) -> bool:
        """Take the process's row of this time, ``apart`` seconds after the one before."""
        before, self.row = self.row, row
        self._note_use(now)
        if row is before and self.settled:
            return False
        if not self._rests_by_its_row():
            self.meter.wake(now, apart)
        state, was = row.state, before.state
        changed = state != was and (state in LASTING_STATES or was in LASTING_STATES)
        if row is not before and self.is_alive:
            changed = self._note_program(before, now) or changed
        if not self.settled:
            started = row.started_at_unix_seconds
            age = 0.0 if started is None else unix - started
            self.settled = max(age, now - self._seen_at) >= SETTLE_SECONDS
            changed = changed or self.settled
        return changed

    def _note_use(self, now: float) -> None:
        """Note when it ran, and since when it has kernels on a GPU."""
        row = self.row
        if row.gpu_busy_percent is not None and row.gpu_busy_percent > 0.0:
            if self._kernels_at is None:
                self._kernels_at = now
            self.kernel_seconds = now - self._kernels_at
        if row.cpu_percent != 0.0 or not self._has_clock:
            self._ran_at = now
            if self._evidence_waits < math.inf:
                self.evidence_due, self._evidence_waits = self._evidence_waits, math.inf

    def _note_program(self, before: Process, now: float) -> bool:
        """Read its facts again where it is another program now (after an exec), with another
        environment, or has another parent; whether that is so."""
        row = self.row
        renamed = row.name != before.name or row.command != before.command
        if not renamed and row.parent_pid == before.parent_pid:
            return False
        self._read_facts()
        self._libraries_at.tries = 0
        if renamed:
            self._libraries_at.due = now
        return True

    def use_gpus(self, gpus: tuple[GpuKey, ...]) -> None:
        self.gpus, self.uses_gpu = gpus, True

    def follow_reports(self, loops: LoopReader) -> bool:
        """Note whether it reports of its loop, and as which rank."""
        changed = False
        if not self.reports and loops.reports(self.key):
            changed = self.reports = True
        if self.reports and self.reported_numbers is None:
            found = loops.rank_of(self.key)
            if found is not None:
                sign = f"reports that it is rank {found[0]}"
                self.reported_numbers = RankNumbers(*found, sign)
                changed = True
        return changed

    def find_parent(self, here: Collection[int]) -> bool:
        """Note its parent among the PIDs ``here``; one changes only when it ends."""
        above, before = self.row.parent_pid, self.parent
        if before is not None and above != before:
            self.orphaned = True
        self.parent = None if self.orphaned or above not in here else above
        return self.parent != before

    def take_role(self, role: Role) -> bool:
        changed = role.name != self.role.name
        self.role = role
        return changed

    # The evidence of its role

    def read_evidence(self, now: float, *, attached: bool, anew: bool) -> bool:
        """Read what is loaded and how threads are called, where that may decide something, it is
        time and the process has run; whether it changed. ``anew``: something else may decide by
        now."""
        if now < self.evidence_due and not anew:
            return False
        changed, due = False, math.inf
        if self.is_alive and self._needs_libraries():
            if self._libraries_at.is_here(now, self._ran_at):
                changed = self._read_libraries(now)
            due = self._libraries_at.due
        if self.is_alive and self._needs_threads():
            if self._threads_at.is_here(now, self._ran_at):
                changed = self._read_threads(now, attached=attached) or changed
            due = min(due, self._threads_at.due)
        waits = due <= now
        self.evidence_due, self._evidence_waits = (math.inf, due) if waits else (due, math.inf)
        return changed

    def _read_facts(self) -> None:
        """Read what is constant. A process that has ended since, or has nothing to show, is known
        by its row."""
        row = self.row
        found = read_facts(row.pid, self._proc) if self.is_alive else None
        if found is None or found.started_at != row.started_at_unix_seconds:
            self.facts = ProcessFacts(
                pid=row.pid,
                parent=row.parent_pid or 0,
                started_at=row.started_at_unix_seconds,
                name=row.name or "",
            )
            return
        self.facts = found
        if not found.name.startswith(WORKER_NAME):
            self.environment = read_environment(self.pid, self._proc)

    def _needs_threads(self) -> bool:
        """True if threads can say anything about it: all others are known."""
        return self.role.name == "rank" or (
            (self.facts.program.is_python or self.uses_gpu)
            and (self.role is OTHER or self.role.guessed)
            and not self.facts.name.startswith(WORKER_NAME)
        )

    def _needs_libraries(self) -> bool:
        """True if its libraries can say anything: workers have loaded what their parent has, for
        other reasons."""
        main = self.parent is None and self.facts.program.is_python
        return self.role.name == "rank" or (main and not self.orphaned)

    def _read_libraries(self, now: float) -> bool:
        occasion, before = self._libraries_at, self.libraries
        wait = FRAMEWORK_SECONDS[min(occasion.tries, len(FRAMEWORK_SECONDS) - 1)]
        occasion.tries += 1
        occasion.due, occasion.last = now + wait, now
        try:
            self.libraries = read_libraries(self.pid, self._proc)
        except OSError as error:
            if isinstance(error, PermissionError):
                self.libraries_readable, occasion.due = False, math.inf
            return False
        if self.libraries.framework is not None:
            occasion.due = math.inf
        return self.libraries.framework != before.framework

    def _read_threads(self, now: float, *, attached: bool) -> bool:
        occasion = self._threads_at
        if self.role.name == "rank":
            occasion.due = now + (THREADS_SECONDS if attached else THREADS_SECONDS_APART)
        else:
            # It has shown nothing so far; less and less likely it will.
            occasion.tries = min(occasion.tries + 1, 10)
            wait = min(THREADS_SECONDS * (1 << occasion.tries), THREADS_SECONDS_LONGEST)
            occasion.due = now + wait
        try:
            names = self._thread_names.refresh()
        except OSError:
            return False
        if not self._thread_names.complete:
            return False
        occasion.last = now
        changed = names != self.threads
        self.threads = names
        return changed

    # What the snapshot says

    def measure_below(self, below: Sequence[int]) -> None:
        """Count what processes with these PIDs use as this loader worker's."""
        self._below = below

    def publish(
        self, now: float, traffic: Traffic, *, every: float, disk_wait: bool, anew: bool
    ) -> JobMember:
        """Return the process as the snapshot has it: as it was until its readings are due again,
        unless it is to be made ``anew``; the same object while nothing of it changes."""
        meter, role = self.meter, self.role
        self._traffic = traffic
        if self._made is not None and now < meter.due and not anew:
            return self._made
        ran = meter.has_run(self._ran_at)
        may_rest = self._rests_by_its_row() and not self._below
        rates = meter.measure(now, every=every, disk_wait=disk_wait, ran=ran, may_rest=may_rest)
        works: tuple[float | None, bool | None] = (None, None)
        if role.name == "loader_worker":
            works = self._children.update(now, self._below, ran=ran), self._awaits_work()
        of_row, proportional = _of_row(self.row), self.proportional_bytes
        # Of the row only what is shown: with every look its share of the GPU is another.
        made_of = (of_row, rates, role, proportional, self.orphaned, traffic, works)
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
                **traffic._asdict(),
            )
        return self._made

    def wants_memory_read(self, now: float) -> bool:
        """Whether its proportional memory may be another than when it was read."""
        read_at = self._proportional_at
        due = self._ran_at > read_at and now - read_at >= PSS_SECONDS
        return due and self.is_alive and not self.meter.refused

    def read_memory(self, now: float) -> float:
        """Read its proportional memory; how many seconds that took."""
        began, self._proportional_at = time.perf_counter(), now
        self.proportional_bytes = None
        if (self.row.memory_resident_bytes or 0) <= PSS_LARGEST_BYTES:
            with contextlib.suppress(OSError, ValueError):
                text = procfs.read_once(f"{self._proc}/{self.pid}/smaps_rollup", 4096)
                self.proportional_bytes = parse_pss(text)
        return time.perf_counter() - began

    @property
    def memory_read_at(self) -> float:
        """Return when its proportional memory was read last; long ago if never."""
        return self._proportional_at

    def _rests_by_its_row(self) -> bool:
        return self.row.cpu_percent == 0.0 and self.row.state == "S"

    def _awaits_work(self) -> bool | None:
        """Tell whether it waits for work, as ``JobMember`` has it. Where its connections are not
        seen it may as well wait for one of them, and where a process is below it, for its
        output."""
        waits = self._traffic.awaits_network
        if waits is None or self.role.guessed or self.row.state not in ("R", "S", "D"):
            return None
        if waits or self.row.state != "S":
            return False
        where = procfs.read_if_possible(f"{self._proc}/{self.pid}/wchan", 64)
        if where in (b"", b"0"):
            return None
        if not where.startswith(_AWAITS_WORK):
            return False
        return None if self._below else True


class MemoryShare:
    """Reads proportional memory within a share of the time: the process that waited longest is
    next."""

    def __init__(self, at_once_seconds: float = PSS_FIRST_SECONDS) -> None:
        self._at_once_seconds = at_once_seconds
        self._due = -math.inf

    def read(self, now: float, members: Iterable[Member], share: float = PSS_SHARE) -> None:
        """Read that of some of ``members``, if it is time."""
        if now < self._due:
            return
        spent = -self._at_once_seconds
        waiting = [one for one in members if one.wants_memory_read(now)]
        for member in sorted(waiting, key=attrgetter("memory_read_at", "pid")):
            spent += member.read_memory(now)
            if spent > 0.0:
                break
        # What is not needed is not saved up.
        self._at_once_seconds, self._due = 0.0, now + max(0.0, spent) / share
