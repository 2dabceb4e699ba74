"""What jobs tell of their own loops through ``gpuwatch.torch``, from the files they tell it in.

A process's word counts only for itself: a file is believed where the process that it names is
there, began when it says, and is the file's owner. The folders are looked at every few seconds,
and where nobody tells anything there is nothing else to do. A file that is no longer in its folder
(the runtime folder goes when its user logs out) or never was here (a container has folders of its
own) is found through the descriptor that its writer keeps, where that may be read.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core import step_file
from gpuwatch.core.model import ProcessKey, TrainingLoop
from gpuwatch.core.step_file import NONE, Counters, Header, Now, Record
from gpuwatch.jobs.identity.evidence import RankNumbers
from gpuwatch.jobs.identity.surroundings import read_inner_pid
from gpuwatch.sources.linux import procfs

LOOK_SECONDS = 2.0
DESCRIPTOR_SECONDS = (4.0, 8.0, 30.0, 120.0)
"""A training process without a file is asked for its descriptors this long after it was seen
first, and then at the last of these intervals."""
RUNTIME_FOLDERS = Path("/run/user")
FILES_AT_MOST = 512
RANKS_AT_MOST = 10**9
WORKERS_AT_MOST = 1 << 20
DESCRIPTORS_AT_MOST = 4096
IDLE_AFTER_SECONDS = 30.0
"""A loop of steps alone says nothing when it ends: this long after its last step it is idle."""
_READ_TRIES = 3
_NS = 1_000_000_000

_PHASES = ("idle", "train", "train", "train", "train", "validation", "checkpoint")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Folders = Callable[[int], list[tuple[str, tuple[str, ...]]]]


@dataclass(slots=True)
class _Told:
    """One open file."""

    descriptor: int
    last: Record | None = None


class StepFiles:
    """The telling processes of this machine. Used on one thread; ``close`` lets all files go."""

    def __init__(
        self,
        proc: Path = procfs.PROC,
        *,
        folders: Folders | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._proc = proc
        self._folders = folders or (lambda uid: step_file.folders(uid, os.environ))
        self._monotonic_ns = monotonic_ns
        self._namespace = step_file.own_pid_namespace()
        self._told: dict[ProcessKey, _Told] = {}
        self._looked_at: float | None = None
        self._changed: dict[tuple[int, str], int] = {}
        """When each folder changed last, as it was when all in it was known."""
        self._asked: dict[ProcessKey, tuple[float, int]] = {}
        self._users: dict[ProcessKey, int] = {}

    @property
    def telling(self) -> Iterable[ProcessKey]:
        """The processes that tell."""
        return self._told.keys()

    def tells(self, key: ProcessKey) -> bool:
        return key in self._told

    def look(self, now: float, ranks: Iterable[ProcessKey] = ()) -> None:
        """Find files that are new, every few seconds (``now``: monotonic seconds), and let those
        go whose process has ended. ``ranks``: processes that are likely to tell. Never raises."""
        if self._looked_at is not None and now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        for key in [key for key in self._told if not self._is_there(key)]:
            os.close(self._told.pop(key).descriptor)
            self._changed.clear()
        ranks = list(ranks)
        for uid in self._uids(ranks):
            for base, below in self._folders(uid):
                self._look_into(uid, base, below)
        self._ask_for_descriptors(now, ranks)

    def read(self, key: ProcessKey, unix: float) -> TrainingLoop | None:
        """What a process tells now; ``None`` where it does not. ``unix``: wall clock now."""
        told = self._told.get(key)
        if told is None:
            return None
        for _ in range(_READ_TRIES):
            try:
                data = os.pread(told.descriptor, step_file.FILE_BYTES + 1, 0)
            except OSError:
                break
            record = step_file.parse_record(data) if len(data) == step_file.FILE_BYTES else None
            if record is not None:
                told.last = record
                break
        if told.last is None:
            return None
        return loop_of(key, told.last, self._monotonic_ns(), unix)

    def numbers(self, key: ProcessKey) -> RankNumbers | None:
        """Which rank a process said that it is when it was read last; ``None`` if it did not."""
        told = self._told.get(key)
        now = None if told is None or told.last is None else told.last.now
        if now is None or not 0 <= now.rank < RANKS_AT_MOST:
            return None
        return RankNumbers(
            now.rank,
            _below(now.local_rank, RANKS_AT_MOST),
            _below(now.world_size, RANKS_AT_MOST),
            f"reports that it is rank {now.rank}",
        )

    def loader(self, key: ProcessKey) -> tuple[int | None, bool | None]:
        """``num_workers`` and ``pin_memory`` of its loader, as it said when it was read last."""
        told = self._told.get(key)
        if told is None or told.last is None:
            return None, None
        now = told.last.now
        return _below(now.loader_workers, WORKERS_AT_MOST), _flag(now.pinned_memory)

    def close(self) -> None:
        for told in self._told.values():
            os.close(told.descriptor)
        self._told.clear()
        self._looked_at = None
        self._changed.clear()

    # In folders

    def _uids(self, ranks: Iterable[ProcessKey]) -> list[int]:
        """Only root can read what others tell."""
        own = os.geteuid()
        uids = {own}
        if own == 0:
            try:
                names = [path.name for path in RUNTIME_FOLDERS.iterdir()]
            except OSError:
                names = []
            uids.update([int(name) for name in names if name.isdigit()])
            uids.update([uid for key in ranks if (uid := self._uid_of(key)) is not None])
        return sorted(uids)

    def _uid_of(self, key: ProcessKey) -> int | None:
        if key not in self._users:
            if len(self._users) > FILES_AT_MOST:
                self._users.clear()
            try:
                self._users[key] = (self._proc / str(key[0])).stat().st_uid
            except OSError:
                return None
        return self._users[key]

    def _look_into(self, uid: int, base: str, below: tuple[str, ...]) -> None:
        path = "/".join([base, *below])
        try:
            changed = Path(path).lstat().st_mtime_ns
            if self._changed.get((uid, path)) == changed:
                return
            folder = step_file.open_folder(base, below, uid)
        except OSError:
            return
        try:
            if uid == os.geteuid():
                step_file.remove_dead(folder, step_file.is_alive_here)
                changed = os.fstat(folder).st_mtime_ns
            for name, pid, ticks in step_file.files_in(folder):
                if not name.startswith("."):
                    self._open(folder, name, uid, pid, ticks)
            self._changed[uid, path] = changed
        except OSError:
            pass
        finally:
            os.close(folder)

    def _open(self, folder: int, name: str, uid: int, pid: int, ticks: int) -> None:
        key = self._key_of(pid, ticks)
        if key is None or self._uid_of(key) != uid or self._has(key, folder, name):
            return
        try:
            descriptor = os.open(name, _FLAGS, dir_fd=folder)
        except OSError:
            return
        header = _header(descriptor, uid)
        here = header is not None and header.pid_namespace in (0, self._namespace)
        if header is not None and here and (header.pid, header.start_ticks) == (pid, ticks):
            self._keep(key, descriptor)
        else:
            os.close(descriptor)

    def _has(self, key: ProcessKey, folder: int, name: str) -> bool:
        """Whether this very file is open, or no more can be. A process that runs another program
        (exec) begins a new file of the same name."""
        told = self._told.get(key)
        if told is None:
            return len(self._told) >= FILES_AT_MOST
        try:
            new = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return True
        return os.path.samestat(os.fstat(told.descriptor), new)

    def _keep(self, key: ProcessKey, descriptor: int) -> None:
        before = self._told.get(key)
        if before is not None:
            os.close(before.descriptor)
        self._told[key] = _Told(descriptor)

    def _key_of(self, pid: int, ticks: int) -> ProcessKey | None:
        """The process of this PID, if it began at that time."""
        try:
            found = procfs.parse_process_stat(procfs.read_once(f"{self._proc}/{pid}/stat", 2048))
        except (OSError, ValueError):
            return None
        if found.start_ticks != ticks or found.state in ("Z", "X"):
            return None
        return (pid, procfs.start_unix_seconds(found, self._proc))

    def _is_there(self, key: ProcessKey) -> bool:
        try:
            text = procfs.read_once(f"{self._proc}/{key[0]}/stat", 2048)
            found = procfs.parse_process_stat(text)
        except (OSError, ValueError):
            return False
        started = procfs.start_unix_seconds(found, self._proc)
        return started == key[1] and found.state not in ("Z", "X")

    # By descriptors

    def _ask_for_descriptors(self, now: float, ranks: Iterable[ProcessKey]) -> None:
        asked: dict[ProcessKey, tuple[float, int]] = {}
        for key in ranks:
            if key in self._told:
                continue
            due, tries = self._asked.get(key, (now + DESCRIPTOR_SECONDS[0], 0))
            if now >= due and len(self._told) < FILES_AT_MOST:
                tries = min(tries + 1, len(DESCRIPTOR_SECONDS) - 1)
                due = now + DESCRIPTOR_SECONDS[tries]
                self._ask(key)
            asked[key] = (due, tries)
        self._asked = asked

    def _ask(self, key: ProcessKey) -> None:
        folder = f"{self._proc}/{key[0]}/fd"
        try:
            numbers = os.listdir(folder)[:DESCRIPTORS_AT_MOST]  # noqa: PTH208 - no Path each
        except OSError:
            return
        for number in numbers:
            path = f"{folder}/{number}"
            try:
                target = os.readlink(path)  # noqa: PTH115
                name = target.removesuffix(" (deleted)").rpartition("/")[2]
                if step_file.NAME.fullmatch(name) and self._take(path, key):
                    return
            except OSError:
                continue

    def _take(self, path: str, key: ProcessKey) -> bool:
        """Whether a descriptor of the process is its own file, and not one that it inherited.

        What it refers to is looked at before it is opened: opening a device does things.
        """
        held = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            uid = (self._proc / str(key[0])).stat().st_uid
            found = os.fstat(held)
            if not _is_plain(found, uid):
                return False
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            descriptor = os.open(f"/proc/self/fd/{held}", flags)
        finally:
            os.close(held)
        header = _header(descriptor, uid)
        inner = read_inner_pid(key[0], self._proc) or key[0]
        if header is None or header.pid != inner or self._key_of(key[0], header.start_ticks) != key:
            os.close(descriptor)
            return False
        self._keep(key, descriptor)
        return True


def _is_plain(found: os.stat_result, uid: int) -> bool:
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_uid == uid
        and found.st_nlink <= 1
        and found.st_size == step_file.FILE_BYTES
    )


def _header(descriptor: int, uid: int) -> Header | None:
    """The file's header, if it is a plain file of this user and of this layout."""
    try:
        if not _is_plain(os.fstat(descriptor), uid):
            return None
        return step_file.parse_header(os.pread(descriptor, step_file.FILE_BYTES, 0))
    except OSError:
        return None


# What it says


def loop_of(key: ProcessKey, record: Record, now_ns: int, unix: float) -> TrainingLoop | None:
    """A record as ``model.TrainingLoop``; ``now_ns`` on the writer's clock (``CLOCK_MONOTONIC``).

    What goes on since the record was told (a wait that lasts) is counted up to now. ``None``
    where it was told in the future, by another machine's clock.
    """
    now, counters, base = record
    since = now_ns - counters.at_ns
    if since < -_NS:
        return None
    since = max(since, 0)
    window = counters.at_ns + since - base.at_ns
    phase = _phase(now, counters, since)
    shares = _shares(now, counters, base, since, window)
    device = _device_shares(now, counters, base, window)
    return TrainingLoop(
        pid=key[0],
        started_at_unix_seconds=key[1],
        window_seconds=window / _NS,
        steps=counters.steps,
        steps_per_second=_rate(counters, base, since, counters.steps - base.steps),
        samples_per_second=(
            _rate(counters, base, since, counters.samples - base.samples)
            if counters.samples > 0
            else None
        ),
        data_wait_share=shares["wait_ns"] if now.flags & step_file.WAITS_TOLD else None,
        copy_share=device.copy,
        compute_share=device.step if device.on_device else shares["step_ns"],
        compute_on_device=device.on_device,
        phase=phase,
        validation_share=shares["validation_ns"],
        checkpoint_share=shares["checkpoint_ns"],
        epoch=_known(now.epoch),
        step_in_epoch=_known(now.step_in_epoch),
        steps_in_epoch=_known(now.steps_in_epoch),
        batch_size=_known(now.batch_size),
        loader_workers=_known(now.loader_workers),
        pinned_memory=_flag(now.pinned_memory),
        memory_allocated_bytes=_known(now.memory_allocated_bytes),
        memory_reserved_bytes=_known(now.memory_reserved_bytes),
        memory_peak_bytes=_known(now.memory_peak_bytes),
        told_at_unix_seconds=round(unix - since / _NS, 3),
    )


_STATES = ("idle_ns", "wait_ns", "step_ns", "copy_ns", "between_ns", "validation_ns",
           "checkpoint_ns")  # fmt: skip


def _shares(
    now: Now, counters: Counters, base: Counters, since: int, window: int
) -> Mapping[str, float | None]:
    if window <= 0:
        return dict.fromkeys(_STATES)
    first = Counters._fields.index("idle_ns")
    shares: dict[str, float | None] = {}
    for state, name in enumerate(_STATES):
        spent = counters[first + state] - base[first + state]
        if state == now.state:
            spent += since
        shares[name] = min(spent / window, 1.0)
    return shares


class _DeviceShares(NamedTuple):
    on_device: bool
    step: float | None
    copy: float | None


def _device_shares(now: Now, counters: Counters, base: Counters, window: int) -> _DeviceShares:
    steps = _device_share(
        counters.device_step_ns - base.device_step_ns,
        counters.device_steps_measured - base.device_steps_measured,
        counters.device_steps_skipped - base.device_steps_skipped,
        window,
    )
    copies = _device_share(
        counters.device_copy_ns - base.device_copy_ns,
        counters.device_copies_measured - base.device_copies_measured,
        counters.device_copies_skipped - base.device_copies_skipped,
        window,
    )
    timed = bool(now.flags & step_file.COPIES_TIMED)
    return _DeviceShares(bool(now.flags & step_file.DEVICE_TIMED), steps, copies if timed else None)


def _device_share(ns: int, measured: int, skipped: int, window: int) -> float | None:
    """The stretches that were skipped count like the mean of the others."""
    if window <= 0:
        return None
    if measured == 0:
        return 0.0 if skipped == 0 else None
    return min(ns * (measured + skipped) / measured / window, 1.0)


def _rate(counters: Counters, base: Counters, since: int, count: int) -> float | None:
    """A second: from step to step, so that few slow ones give no jumps, and less and less once
    the next is overdue."""
    end = counters.at_ns + since
    if count > 0 and 0 < base.last_step_ns < counters.last_step_ns <= end:
        between = counters.last_step_ns - base.last_step_ns
        overdue = end - counters.last_step_ns
        steps = max(counters.steps - base.steps, 1)
        return count * _NS / max(between, between + overdue - between // steps)
    return count * _NS / (end - base.at_ns) if end > base.at_ns else None


def _phase(now: Now, counters: Counters, since: int) -> str:
    if now.state == step_file.BETWEEN and since > IDLE_AFTER_SECONDS * _NS:
        mean = counters.step_ns // max(counters.steps, 1)
        if since > 3 * mean:
            return "idle"
    return _PHASES[now.state]


def _below(number: int, most: int) -> int | None:
    return number if 0 <= number < most else None


def _flag(number: int) -> bool | None:
    return None if number == NONE else number > 0


def _known(number: int) -> int | None:
    return None if number == NONE else number
