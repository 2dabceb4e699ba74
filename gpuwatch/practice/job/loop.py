"""The training loop of a practice job, as its knobs are now."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Sampler

from gpuwatch.practice.control import Control
from gpuwatch.practice.ending import end_with
from gpuwatch.practice.job import data, saving
from gpuwatch.practice.job.device import MIB, TorchDevice
from gpuwatch.practice.job.side_jobs import HANG_FILE, Orphans, Tenant
from gpuwatch.practice.job.store import Store
from gpuwatch.practice.knobs import Knobs, in_words

SAY_EVERY_SECONDS = 2.0
_LOADER_KNOBS = frozenset(
    {knob.name for knob in fields(Knobs) if knob.metadata["group"] == "loading"}
    | {"host_leak_kib", "slow_rank", "slow_loads"}
)
"""A loader is made anew when one of these is turned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and as what a job runs."""

    folder: Path
    device_name: str
    rank: int = 0
    ranks: int = 1
    reports: bool = True
    hangs: bool = False
    """The loader hangs once there is a file ``hang`` in the folder."""
    ends_with: int | None = None
    """The process that its workers end with, besides their own parent."""

    def say(self, line: str | None) -> None:
        """The first rank speaks for all."""
        if line is not None and self.rank == 0:
            print(line, flush=True)


class Training:
    """One rank. ``reported`` is ``gpuwatch.torch``, or does nothing."""

    def __init__(self, control: Control, device: TorchDevice, place: Place, reported: Any) -> None:
        self.control, self.device, self.place, self.reported = control, device, place, reported
        self.knobs = control.knobs
        self.steps = 0
        self._say = place.say
        self._side_jobs: dict[type[Tenant | Orphans], Tenant | Orphans] = {}
        self._aside = saving.AsideSaver()
        self._store = Store()
        self._loading: Loader | None = None
        self._stale = False
        self._file: Path | None = None
        self._meter = Meter()

    # -- life -------------------------------------------------------------------------------

    def run(self) -> None:
        self._apply(Knobs())
        began = self._saved = self._validated = time.monotonic()
        for batch in self._batches():
            if not self.steps:
                self._say("training")
                began = self._saved = self._validated = time.monotonic()
            with self.reported.step():
                self._step(batch)
            self.steps += 1
            now = time.monotonic()
            self._pauses(now)
            self._idle(began)
            self._say(self._meter.step(self.steps, len(batch[0])))
            self._follow()
            self._meter.asked = time.monotonic()

    def close(self) -> None:
        if self._loading is not None:
            self._loading.end_workers()
        for side_job in self._side_jobs.values():
            side_job.end()

    # -- data -------------------------------------------------------------------------------

    def _batches(self) -> Iterator[Any]:
        while True:
            loader, new = self._loader(), self._stale
            self._loading = loader
            self._stale = False
            for batch in self.reported.watch(loader):
                if new:
                    self._say(f"loader: num_workers={self.knobs.workers}")
                    new = False
                self._meter.has()
                yield batch
                if self._stale:
                    break
            loader.end_workers()

    def _loader(self) -> Loader:
        knobs, place = self.knobs, self.place
        if knobs.read in ("cached", "cold") and self._file is None:
            self._say("writing 256 MiB of samples ...")
            self._file = data.write_samples(place.folder)
        slow = place.rank == knobs.slow_rank
        samples = data.Samples(
            knobs,
            self._file,
            0,
            slowness=knobs.slow_loads if slow else 1.0,
            hangs_at=place.folder / HANG_FILE if place.hangs else None,
            store=self._store,
        )
        return Loader(
            samples,
            batch_size=knobs.batch,
            num_workers=knobs.workers,
            pin_memory=knobs.pin_memory and self.device.kind != "cpu",
            sampler=Endless(),
            prefetch_factor=knobs.prefetch if knobs.workers else None,
            worker_init_fn=partial(_begin_worker, place.ends_with),
        )

    # -- a step -----------------------------------------------------------------------------

    def _step(self, batch: Any) -> None:
        knobs, device = self.knobs, self.device
        there = device.copy(batch)
        work = knobs.step_ms * (knobs.slow_works if self.place.rank == knobs.slow_rank else 1.0)
        for _ in range(knobs.pieces):
            data.compute(knobs.python_ms / knobs.pieces)
            device.launch(there, work / knobs.pieces)
        device.spin(knobs.spin_ms)
        if self.place.ranks > 1:
            device.meet()
        if knobs.sync:
            device.loss()
        if knobs.log:
            # A line to a server, whose answer is waited for.
            device.synchronize()
            self._store.ask(knobs.answer_ms, body=b"loss 0.5")
        device.leak(round(knobs.gpu_leak_mib * MIB))
        device.step_done()

    def _pauses(self, now: float) -> None:
        knobs = self.knobs
        if knobs.save_every and now - self._saved >= knobs.save_every:
            self.device.synchronize()
            if self.place.rank == 0:
                self._save()
            self._saved = time.monotonic()
        if knobs.validate_every and now - self._validated >= knobs.validate_every:
            self.device.synchronize()
            with self.reported.validation():
                self._validate()
            self._validated = time.monotonic()

    def _save(self) -> None:
        knobs, began = self.knobs, time.monotonic()
        if knobs.save_aside:
            self._aside.save(self.place.folder, self.device.state(), knobs.save_mib)
            return
        with self.reported.checkpoint():
            if knobs.save_to == "network":
                self._store.take(knobs.save_mib)
            else:
                saving.save(self.place.folder, self.device.state(), knobs.save_mib)
        self._say(f"saved {knobs.save_mib} MiB in {time.monotonic() - began:.1f} s")

    def _validate(self) -> None:
        """As many do it: without workers, and with a small part of a step's work."""
        until = time.monotonic() + self.knobs.validate_for
        samples = data.Samples(self.knobs, None, 0)
        loader = DataLoader(samples, batch_size=self.knobs.batch, sampler=Endless())
        for batch in loader:
            self.device.evaluate(self.device.copy(batch), self.knobs.step_ms / 10)
            self.device.synchronize()
            if time.monotonic() >= until:
                break
        self._say(f"validated for {self.knobs.validate_for:g} s")

    def _idle(self, began: float) -> None:
        line: str | None = "doing nothing from here on"
        while 0 < self.knobs.idle_after <= time.monotonic() - began:
            self.device.synchronize()
            self._say(line)
            line = None
            time.sleep(0.1)
            self._follow()

    # -- knobs ------------------------------------------------------------------------------

    def _follow(self) -> None:
        control = self.control
        before, trouble = self.knobs, control.trouble
        if control.turned():
            self.knobs = control.knobs
            self._say(f"turned: {in_words(before, self.knobs)}")
            self._apply(before)
        if control.trouble is not None and control.trouble != trouble:
            self._say(control.trouble)

    def _apply(self, before: Knobs) -> None:
        knobs, place = self.knobs, self.place
        self._stale = any(getattr(before, name) != getattr(knobs, name) for name in _LOADER_KNOBS)
        self.device.prepare(knobs)
        if not knobs.gpu_leak_mib and before.gpu_leak_mib:
            self.device.leak(0)
        if place.rank != 0:
            return
        for kind, wanted in ((Tenant, knobs.tenant), (Orphans, knobs.orphans)):
            if wanted and kind not in self._side_jobs:
                self._side_jobs[kind] = kind(place.folder, place.device_name)
            elif not wanted and kind in self._side_jobs:
                self._side_jobs.pop(kind).end()


class Meter:
    """The pace of the job, by itself."""

    def __init__(self) -> None:
        self._since = self.asked = time.monotonic()
        """``asked``: for the next batch."""
        self._first = self._samples = 0
        self._waited = 0.0

    def has(self) -> None:
        self._waited += time.monotonic() - self.asked

    def step(self, number: int, samples: int) -> str | None:
        """A step is done; now and then, a line about those since the last line. The loss is left
        out: to read it is to wait for the device."""
        self._samples += samples
        now = time.monotonic()
        passed = now - self._since
        if passed < SAY_EVERY_SECONDS:
            return None
        line = (
            f"step {number}  {(number - self._first) / passed:.1f} steps/s  "
            f"{self._samples / passed:.0f} samples/s  "
            f"waited for data {min(1.0, self._waited / passed):.0%}"
        )
        self._since, self._first, self._samples, self._waited = now, number, 0, 0.0
        return line


class Loader(DataLoader[Any]):
    """One whose workers can be ended at a moment of one's own."""

    _last: Any = None

    def __iter__(self) -> Any:
        self._last = super().__iter__()
        return self._last

    def end_workers(self) -> None:
        """Before others are forked: an iterator that is copied into a child complains there."""
        end = getattr(self._last, "_shutdown_workers", None)
        if end is not None:
            end()
        for worker in multiprocessing.active_children():
            # It hangs, and Python would wait for it.
            worker.kill()


class Endless(Sampler[int]):
    """Samples one after the other, without an end, and so without a length."""

    def __iter__(self) -> Iterator[int]:
        return itertools.count()


def _begin_worker(ends_with: int | None, _worker: int) -> None:
    """A worker ends with the job, which asks it to, or is gone. Amid a batch a signal would leave
    that batch in /dev/shm, half made, for as long as the machine is up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if ends_with is not None:
        # Unless it hangs.
        end_with(ends_with, after_seconds=10.0)
