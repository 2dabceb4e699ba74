"""Snapshots of a machine that does not exist: for the demo, the pictures and the tests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from gpuwatch.core.model import OwnCost, ProcessKey, Snapshot
from gpuwatch.core.source import Clock, ReadOptions, SystemClock
from gpuwatch.sources.gpu_filter import only_wanted
from gpuwatch.sources.linux.host import OwnUsage
from gpuwatch.sources.simulated.machine import Machine
from gpuwatch.sources.simulated.scenarios import BUILDERS

SCENARIOS: Mapping[str, str] = {name: text for name, (text, _) in BUILDERS.items()}


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
        self._machine: Machine | None = None
        measured = isinstance(self._clock, SystemClock)
        self._own = OwnUsage() if measured else None

    def open(self) -> None:
        """Build the machine and let it run for its first minute."""
        if self._machine is None:
            setup = BUILDERS[self.scenario][1](self._gpus)
            origin = self._clock.monotonic()
            unix_offset = self._clock.unix() - origin
            self._machine = Machine(setup, self._seed, origin, unix_offset, self.options)

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
