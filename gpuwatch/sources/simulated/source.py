"""Snapshots of a machine that does not exist: for the demo, the pictures and the tests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from gpuwatch.core.model import Gpu, Job, OwnCost, Process, ProcessKey, Snapshot
from gpuwatch.core.source import Clock, ReadOptions, SystemClock
from gpuwatch.sources.linux.own_cpu import OwnUse
from gpuwatch.sources.only import only_wanted
from gpuwatch.sources.simulated.gpus import (
    TICK_SECONDS,
    TICKS_PER_SECOND,
    GpuView,
    losses,
    standing_problems,
)
from gpuwatch.sources.simulated.machine import (
    RESERVED_BYTES,
    GpuRows,
    Moment,
    SimulatedJob,
    Task,
    World,
    build_host,
    build_job,
)
from gpuwatch.sources.simulated.scenarios import BUILDERS

SCENARIOS: Mapping[str, str] = {name: text for name, (text, _) in BUILDERS.items()}

_WARM_UP_SECONDS = 60.0
_KEPT_SECONDS = 20.0
"""As far back as fine samples go."""
_LONGEST_JUMP_SECONDS = 1800.0
_FIRST_INTERVAL_MAX_SECONDS = 10.0


class SimulatedSource:
    """A ``Source`` whose machine is computed.

    Everything follows from ``scenario``, ``gpus`` and ``seed`` and from the time that has passed on
    ``clock`` since ``open``: how often it is read changes no state. The machine has run for a
    minute when it is opened, and the first snapshot brings the fine samples of the last twenty
    seconds, as a driver's buffer does. Its own cost is measured with a ``SystemClock`` only, so
    that any other clock gives equal snapshots each time.

    Raises ``ValueError`` for a scenario that is not in ``SCENARIOS`` and for fewer than no GPUs.
    """

    simulated = True

    def __init__(
        self,
        scenario: str = "starved",
        gpus: int = 1,
        seed: int = 0,
        *,
        clock: Clock | None = None,
        options: ReadOptions | None = None,
    ) -> None:
        if scenario not in BUILDERS:
            raise ValueError(f"no scenario {scenario!r}: choose one of {', '.join(BUILDERS)}")
        if gpus < 0:
            raise ValueError("the number of GPUs cannot be below zero")
        self.scenario = scenario
        self._gpus = gpus
        self._seed = seed
        self._clock: Clock = SystemClock() if clock is None else clock
        self.options = ReadOptions() if options is None else options
        self._machine: _Machine | None = None
        measured = isinstance(self._clock, SystemClock)
        self._own = OwnUse() if measured else None

    def open(self) -> None:
        """Build the machine and let it run for its first minute."""
        if self._machine is None:
            setup = BUILDERS[self.scenario][1](self._gpus)
            world = World(setup, seed=self._seed, warm_up=_WARM_UP_SECONDS)
            origin = self._clock.monotonic()
            self._machine = _Machine(world, origin, self._clock.unix() - origin, self.options)

    def read(self) -> Snapshot:
        began = time.perf_counter()
        self.open()
        assert self._machine is not None
        looked = self._machine.look(self._clock.monotonic())
        snapshot = only_wanted(looked, self.options)
        if self._own is None:
            return snapshot
        cost = OwnCost(
            cpu_percent=self._own.cpu_percent(time.monotonic()),
            memory_resident_bytes=self._own.resident_bytes(),
            read_milliseconds=(time.perf_counter() - began) * 1000.0,
        )
        return replace(snapshot, own_cost=cost)

    def close(self) -> None:
        """Let go of what the cost is read from."""
        if self._own is not None:
            self._own.close()

    def find(self, pid: int) -> ProcessKey | None:
        """Return the process that has this PID now; ``None`` if there is none. Opens the source."""
        self.open()
        assert self._machine is not None
        return self._machine.find(pid)


class _Machine:
    """Looks at a world: everything that is a difference between two looks is kept here."""

    def __init__(
        self, world: World, origin: float, unix_offset: float, options: ReadOptions
    ) -> None:
        self._world = world
        self._options = options
        self._origin = origin
        self._unix_offset = unix_offset
        self._sequence = 0
        # Looked at once one interval before time zero, so that the first look has differences.
        world.advance(-min(options.interval_seconds, _FIRST_INTERVAL_MAX_SECONDS))
        before = world.tick * TICK_SECONDS
        self._read_at = before
        self._tick = world.tick - 600 * TICKS_PER_SECOND
        self._elapsed = -before
        self._attached_to: ProcessKey | None = None
        self._attached: SimulatedJob | None = None
        self._views = [
            GpuView(number, slot, world.devices[number], seed=world.seed, gpus=len(world.devices))
            for number, slot in enumerate(world.setup.slots)
        ]
        for task in world.tasks:
            task.started_unix = round(origin + unix_offset + task.started, 2)
        unix_at_zero = origin + unix_offset
        self._standing = standing_problems(self._views, unix_at_zero - _WARM_UP_SECONDS)
        self._losses = losses(self._views, unix_at_zero)

    def look(self, monotonic: float) -> Snapshot:
        """Return the machine at this time of the source's clock, which must not go back."""
        world = self._world
        if self._options.attached != self._attached_to:
            self._attached_to = self._options.attached
            asked = self._attached_to
            self._attached = None if asked is None else world.job_of(asked)
        world.advance(self._time(monotonic))
        # What happens between two ticks is known at the later one only.
        now = world.tick * TICK_SECONDS
        tasks = [task for task in world.tasks if task.lives(now)]
        self._elapsed = now - self._read_at or self._elapsed
        moment = Moment(
            now=now,
            elapsed=self._elapsed,
            since_tick=self._tick,
            unix_at_zero=self._origin + self._unix_offset,
        )
        host = build_host(world, tasks, moment)
        gpus = self._show_gpus(moment, tasks)
        snapshot = Snapshot(
            sequence=self._sequence,
            taken_at_unix_seconds=monotonic + self._unix_offset,
            monotonic_seconds=monotonic,
            interval_seconds=self._options.interval_seconds,
            simulated=True,
            host=host,
            gpus=tuple(gpus.values()),
            processes=self._show_processes(moment, tasks, gpus),
            jobs=self._show_jobs(moment, gpus),
            problems=(
                *(p for number, p in self._losses if world.lost(number, now)),
                *self._standing,
            ),
        )
        self._sequence += 1
        self._tick = world.tick
        self._read_at = now
        world.forget_before(now - max(_KEPT_SECONDS, self._elapsed))
        return snapshot

    def _show_jobs(self, moment: Moment, gpus: GpuRows) -> tuple[Job, ...]:
        """Return those on GPUs; the attached one comes first, and the first is read closely."""
        jobs, first = self._world.jobs_on_gpus(moment.now), self._attached
        if first is not None:
            jobs = [first, *(job for job in jobs if job is not first)]
        return tuple(
            build_job(self._world, job, moment, gpus, attached=job is first, close=not number)
            for number, job in enumerate(jobs)
        )

    def find(self, pid: int) -> ProcessKey | None:
        """Return the process that has this PID now."""
        tasks = self._world.tasks
        keys = ((task.pid, task.started_unix) for task in tasks if task.lives(self._read_at))
        return next((key for key in keys if key[0] == pid), None)

    def _time(self, monotonic: float) -> float:
        now = monotonic - self._origin
        extra = now - self._read_at - _LONGEST_JUMP_SECONDS
        if extra > 0:
            # This computer slept: its simulation slept too, rather than catching up for long.
            self._origin += extra
            now -= extra
        return max(now, self._read_at)

    def _show_gpus(self, moment: Moment, tasks: list[Task]) -> dict[tuple[int, int | None], Gpu]:
        """Return every row, keyed by card and MIG instance, in the order shown."""
        now = moment.now
        used: Counter[tuple[int, int | None]] = Counter()
        for task in tasks:
            if task.gpu is not None and task.gpu_memory is not None:
                for part in {None, task.plan.instance}:
                    used[task.gpu, part] += task.gpu_memory(now)
        working = {(task.gpu, task.plan.instance) for task in tasks if task.works}
        rows: dict[tuple[int, int | None], Gpu] = {}
        for number, view in enumerate(self._views):
            if self._world.lost(number, now):
                rows[number, None] = view.lost()
                continue
            reserved = 0 if view.slot.card.unified else RESERVED_BYTES
            mean = view.device.activity(now - moment.elapsed, now)
            rows[number, None] = view.show(
                mean=mean,
                used_bytes=used[number, None] + reserved,
                samples=moment.new_samples(view.device.samples),
            )
            for position, identity in enumerate(view.instances):
                instance = (number, identity.mig_instance)
                rows[instance] = view.show_instance(
                    position, mean=mean, used_bytes=used[instance], works=instance in working
                )
        return rows

    def _show_processes(
        self, moment: Moment, tasks: list[Task], gpus: GpuRows
    ) -> tuple[Process, ...]:
        everything = self._options.all_processes
        asked_for = [] if self._attached is None else self._attached.tasks
        shown = []
        for task in tasks:
            if task.system and not everything and task not in asked_for:
                continue
            gpu = None if task.gpu is None else gpus[task.gpu, task.plan.instance]
            shown.append(task.show(moment, None if gpu is None or gpu.lost else gpu))
        return tuple(shown)
