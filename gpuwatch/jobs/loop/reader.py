"""Read what jobs report of their own loops through ``gpuwatch.torch``.

A process's word counts only for itself: a file is believed where the process that it names is
there, began when it says, and is the file's owner. The folders are looked at every few seconds.
A file that is no longer in its folder (the runtime folder goes when its user logs out) or never
was here (a container has folders of its own) is found through the descriptor that its writer
keeps, where that may be read.
"""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.core.model import ProcessKey, TrainingLoop
from gpuwatch.jobs.loop import step_file, writer
from gpuwatch.jobs.loop.step_file import NONE, Counters, Header, Now, Record
from gpuwatch.sources.linux import procfs

LOOK_SECONDS = 2.0
DESCRIPTOR_SECONDS = (4.0, 8.0, 30.0, 120.0)
"""A training process without a file is asked for its descriptors this long after it was seen
first, and then at the last of these intervals."""
RUNTIME_FOLDERS = Path("/run/user")
FILES_AT_MOST = 512
RANKS_AT_MOST = 10**9
DESCRIPTORS_AT_MOST = 4096
_READ_TRIES = 3
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Folders = Callable[[int], list[tuple[str, tuple[str, str]]]]


@dataclass(slots=True)
class _OpenFile:
    descriptor: int
    last: Record | None = None


class LoopReader:
    """The reporting processes of this machine. Used on one thread; ``close`` lets all files go."""

    def __init__(
        self,
        proc: Path = procfs.PROC,
        *,
        folders: Folders | None = None,
    ) -> None:
        self._proc = proc
        self._folders = folders or (lambda uid: writer.folders(uid, os.environ))
        self._namespace = writer.own_pid_namespace()
        self._files: dict[ProcessKey, _OpenFile] = {}
        self._looked_at: float | None = None
        self._owners: dict[ProcessKey, int | None] = {}
        self._asked: dict[ProcessKey, tuple[float, int]] = {}
        """Time of the next look at a process's descriptors, and the number of looks so far."""

    @property
    def reporting(self) -> Collection[ProcessKey]:
        return self._files.keys()

    def reports(self, key: ProcessKey) -> bool:
        return key in self._files

    def look(self, now: float, ranks: Iterable[ProcessKey] = ()) -> None:
        """Find files that are new, every few seconds (``now``: monotonic seconds), and let those
        go whose process has ended. ``ranks``: processes that are likely to report. Never
        raises."""
        if self._looked_at is not None and now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        for key in [key for key in self._files if self._key_of(key[0]) != key]:
            os.close(self._files.pop(key).descriptor)
        ranks = list(ranks)
        for uid in self._uids(ranks):
            for base, below in self._folders(uid):
                with contextlib.suppress(OSError):
                    self._look_into(uid, base, below)
        self._ask_for_descriptors(now, ranks)

    def read(self, key: ProcessKey, unix: float) -> TrainingLoop | None:
        """Return the loop of a process now; ``None`` where it reports none. ``unix``: wall clock
        now."""
        file = self._files.get(key)
        if file is None:
            return None
        for _ in range(_READ_TRIES):
            try:
                data = os.pread(file.descriptor, step_file.FILE_BYTES + 1, 0)
            except OSError:
                break
            record = step_file.parse_record(data)
            if record is not None:
                file.last = record
                break
        return None if file.last is None else loop_of(key, file.last, time.monotonic_ns(), unix)

    def rank_of(self, key: ProcessKey) -> tuple[int, int | None, int | None] | None:
        """Return rank, local rank and world size that a process reported when it was read last;
        ``None`` if it did not."""
        file = self._files.get(key)
        if file is None or file.last is None:
            return None
        now = file.last.now
        rank, local, size = [
            number if NONE < number < RANKS_AT_MOST else None
            for number in (now.rank, now.local_rank, now.world_size)
        ]
        return None if rank is None else (rank, local, size)

    def close(self) -> None:
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()
        self._looked_at = None

    # In folders

    def _uids(self, ranks: Iterable[ProcessKey]) -> list[int]:
        """Return the users whose folders are looked into: only root can read what others report."""
        own = os.geteuid()
        uids = {own}
        if own == 0:
            with contextlib.suppress(OSError):
                names = os.listdir(RUNTIME_FOLDERS)  # noqa: PTH208 - names only
                uids.update([int(name) for name in names if name.isdigit()])
            owners = self._owners
            self._owners = {
                key: owners[key] if key in owners else self._uid_of(key[0]) for key in ranks
            }
            uids.update([uid for uid in self._owners.values() if uid is not None])
        return sorted(uids)

    def _uid_of(self, pid: int) -> int | None:
        try:
            return os.stat(f"{self._proc}/{pid}").st_uid  # noqa: PTH116 - a Path each is dear
        except OSError:
            return None

    def _look_into(self, uid: int, base: str, below: tuple[str, str]) -> None:
        folder = writer.open_folder(base, below, uid)
        try:
            if uid == os.geteuid():
                writer.remove_dead(folder)
            for name, pid, ticks in writer.files_in(folder):
                if not name.startswith("."):
                    self._open_named(folder, name, uid, pid, ticks)
        finally:
            os.close(folder)

    def _open_named(self, folder: int, name: str, uid: int, pid: int, ticks: int) -> None:
        key = self._key_of(pid, ticks)
        if key is None or self._uid_of(pid) != uid or self._has(key, folder, name):
            return
        try:
            descriptor = os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=folder)
        except OSError:
            return
        header = _header(descriptor, uid)
        here = header is not None and header.pid_namespace in (0, self._namespace)
        if header is not None and here and (header.pid, header.start_ticks) == (pid, ticks):
            self._keep(key, descriptor)
        else:
            os.close(descriptor)

    def _has(self, key: ProcessKey, folder: int, name: str) -> bool:
        """True if this very file is open, or no more can be. A process that runs another program
        (exec) begins a new file of the same name."""
        file = self._files.get(key)
        if file is None:
            return len(self._files) >= FILES_AT_MOST
        try:
            new = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return True
        return os.path.samestat(os.fstat(file.descriptor), new)

    def _keep(self, key: ProcessKey, descriptor: int) -> None:
        before = self._files.get(key)
        if before is not None:
            os.close(before.descriptor)
        self._files[key] = _OpenFile(descriptor)

    def _key_of(self, pid: int, ticks: int | None = None) -> ProcessKey | None:
        """Return the process of this PID, if it lives and began at that time."""
        found = procfs.read_stat(pid, self._proc)
        if found is None or ticks not in (None, found.start_ticks) or found.state in "ZX":
            return None
        return (pid, procfs.start_unix_seconds(found, self._proc))

    # By descriptors

    def _ask_for_descriptors(self, now: float, ranks: Iterable[ProcessKey]) -> None:
        asked: dict[ProcessKey, tuple[float, int]] = {}
        for key in ranks:
            if key in self._files:
                continue
            due, tries = self._asked.get(key, (now + DESCRIPTOR_SECONDS[0], 0))
            if now >= due and len(self._files) < FILES_AT_MOST:
                tries = min(tries + 1, len(DESCRIPTOR_SECONDS) - 1)
                due = now + DESCRIPTOR_SECONDS[tries]
                with contextlib.suppress(OSError):
                    self._look_at_descriptors(key)
            asked[key] = (due, tries)
        self._asked = asked

    def _look_at_descriptors(self, key: ProcessKey) -> None:
        folder = f"{self._proc}/{key[0]}/fd"
        for number in os.listdir(folder)[:DESCRIPTORS_AT_MOST]:  # noqa: PTH208 - no Path each
            with contextlib.suppress(OSError):
                target = os.readlink(f"{folder}/{number}")  # noqa: PTH115
                name = target.removesuffix(" (deleted)").rpartition("/")[2]
                if writer.NAME.fullmatch(name) and self._open_held(f"{folder}/{number}", key):
                    return

    def _open_held(self, path: str, key: ProcessKey) -> bool:
        """True if a descriptor of the process is its own file, and not one that it inherited. What
        it refers to is looked at before it is opened: opening a device does things."""
        held = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            uid = self._uid_of(key[0])
            if uid is None or not _is_plain(os.fstat(held), uid):
                return False
            descriptor = os.open(f"/proc/self/fd/{held}", _FLAGS)
        finally:
            os.close(held)
        header = _header(descriptor, uid)
        inner = procfs.inner_pids(key[0], self._proc)
        own = inner[-1] if inner else key[0]
        if header and header.pid == own and self._key_of(key[0], header.start_ticks) == key:
            self._keep(key, descriptor)
            return True
        os.close(descriptor)
        return False


def _is_plain(found: os.stat_result, uid: int) -> bool:
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_uid == uid
        and found.st_nlink <= 1
        and found.st_size == step_file.FILE_BYTES
    )


def _header(descriptor: int, uid: int) -> Header | None:
    """Return the file's header, if it is a plain file of this user and of this layout."""
    try:
        if not _is_plain(os.fstat(descriptor), uid):
            return None
        return step_file.parse_header(os.pread(descriptor, step_file.FILE_BYTES, 0))
    except OSError:
        return None


# A record as the model has it

WORKERS_AT_MOST = 1 << 20
"""Nobody has more: a job can report any number."""
IDLE_AFTER_SECONDS = 30.0
"""A loop of steps alone says nothing when it ends: this long after its last step it is idle."""
_NS = 1_000_000_000
RATE_MOST = 1e15
SPENT_MOST_SECONDS = 1e11
_PHASES = ("idle", "train", "train", "train", "train", "validation", "checkpoint")
_FIRST_STATE = Counters._fields.index("idle_ns")


def loop_of(key: ProcessKey, record: Record, now_ns: int, unix: float) -> TrainingLoop | None:
    """Return a record as ``model.TrainingLoop``; ``now_ns`` on the writer's clock
    (``CLOCK_MONOTONIC``).

    What goes on since the record was written (a wait that lasts) is counted up to now. ``None``
    where it was written in the future, by another machine's clock.
    """
    now, counters, base = record
    since = now_ns - counters.at_ns
    if since < -_NS:
        return None
    since = max(since, 0)
    window = counters.at_ns + since - base.at_ns
    grown = Counters(*[new - old for new, old in zip(counters, base, strict=True)])

    wait, compute, copy, validation, checkpoint = [
        None if ns is None or window <= 0 else min(ns / window, 1.0)
        for ns in _spent(now, grown, since)
    ]
    spent = [None if ns is None else ns / _NS for ns in _spent(now, counters, since)]
    return TrainingLoop(
        pid=key[0],
        started_at_unix_seconds=key[1],
        window_seconds=window / _NS,
        steps=counters.steps,
        steps_per_second=_rate(counters, base, since, grown.steps),
        samples_per_second=(
            _rate(counters, base, since, grown.samples) if counters.samples > 0 else None
        ),
        data_wait_share=wait,
        copy_share=copy,
        compute_share=compute,
        compute_on_device=bool(now.flags & step_file.DEVICE_TIMED),
        phase=_phase(now, counters, since),
        validation_share=validation,
        checkpoint_share=checkpoint,
        # What no loop can spend is not said: a snapshot may not hold it.
        spent_seconds=tuple(
            [None if one is None or one > SPENT_MOST_SECONDS else one for one in spent]
        ),
        epoch=_known(now.epoch),
        step_in_epoch=_known(now.step_in_epoch),
        steps_in_epoch=_known(now.steps_in_epoch),
        batch_size=_known(now.batch_size),
        loader_workers=(
            now.loader_workers if NONE < now.loader_workers < WORKERS_AT_MOST else None
        ),
        pinned_memory=None if now.pinned_memory == NONE else now.pinned_memory > 0,
        memory_allocated_bytes=_known(now.memory_allocated_bytes),
        memory_reserved_bytes=_known(now.memory_reserved_bytes),
        memory_peak_bytes=_known(now.memory_peak_bytes),
        reported_at_unix_seconds=round(unix - since / _NS, 3),
    )


def _spent(now: Now, counted: Counters, since: int) -> list[float | None]:
    """Return the nanoseconds that went to data waits, compute, copies, validation and checkpoints;
    ``since``: those that the state of now has lasted for since it was counted."""

    def in_state(state: int) -> int:
        return counted[_FIRST_STATE + state] + (since if state == now.state else 0)

    def on_device(ns: int, measured: int, skipped: int) -> float | None:
        """Return the time on the device: the stretches that were skipped count like the mean of
        the others."""
        if measured == 0 and skipped > 0:
            return None
        return ns * (measured + skipped) / max(measured, 1)

    timed = now.flags & step_file.DEVICE_TIMED
    return [
        in_state(step_file.WAIT) if now.flags & step_file.WAITS_REPORTED else None,
        on_device(*counted[-6:-3]) if timed else in_state(step_file.STEP),
        on_device(*counted[-3:]) if now.flags & step_file.COPIES_TIMED else None,
        in_state(step_file.VALIDATION),
        in_state(step_file.CHECKPOINT),
    ]


def _rate(counters: Counters, base: Counters, since: int, count: int) -> float | None:
    """Return the rate a second: from step to step, so that few slow ones give no jumps, and less
    and less once the next is overdue."""
    end = counters.at_ns + since
    over = end - base.at_ns
    if count > 0 and 0 < base.last_step_ns < counters.last_step_ns <= end:
        between = counters.last_step_ns - base.last_step_ns
        overdue = end - counters.last_step_ns
        steps = max(counters.steps - base.steps, 1)
        over = max(between, between + overdue - between // steps)
    # What no loop can do is not said: a snapshot may not hold it.
    return count * _NS / over if over > 0 and count < RATE_MOST * over / _NS else None


def _phase(now: Now, counters: Counters, since: int) -> str:
    if now.state == step_file.BETWEEN and since > IDLE_AFTER_SECONDS * _NS:
        mean = counters.step_ns // max(counters.steps, 1)
        if since > 3 * mean:
            return "idle"
    return _PHASES[now.state]


def _known(number: int) -> int | None:
    return None if number == NONE else number
