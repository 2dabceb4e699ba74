"""The processes on the GPUs, their descendants, and on request all the others.

Those on a GPU and their descendants are read every time, straight from ``/proc/PID/stat``; the
others on a slower timer. From top to bottom: ``ProcessSource`` makes the rows, ``ProcessEntry``
watches one process, then the facts that rarely change (command line, user), the descent, and the
ending of a process that a person pointed at.
"""

from __future__ import annotations

import functools
import math
import os
import pwd
import re
import resource
import shlex
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.model import Problem, Process
from gpuwatch.core.source import Clock, ReadOptions
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux import cgroup, procfs

T = TypeVar("T")

OTHERS_INTERVALS = 2.5
"""Processes without a GPU are read every so many intervals,"""
OTHERS_SECONDS = 2.0
"""but never more often than this: there can be thousands."""
MOST_KEPT_OPEN = 512

LEFT_SECONDS = 10.0
"""The driver goes on naming a process that has ended for some seconds."""
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""``PROC_PID_INIT_INO``, include/linux/proc_ns.h."""


class ProcessSource:
    """Reads processes; keeps what it knows of each between reads."""

    def __init__(self, clock: Clock, options: ReadOptions, proc: Path = procfs.PROC) -> None:
        self.options = options
        self._clock = clock
        self._proc = proc
        self._tree = ProcessTree(clock, proc)
        self._entries: dict[int, ProcessEntry] = {}
        self._kept_open = 0
        self._may_keep_open = descriptors_to_keep()
        self._roots: set[int] = set()
        self._below: list[int] = []
        self._ended: set[int] = set()
        """Processes that ended since the last look."""
        self._tree_moved = False
        self._others: list[Process] = []
        self._others_due: float | None = None
        self._unseen = _UnseenProcesses(clock, proc)
        self._messages: dict[str, str] = {}
        self._since: dict[str, float] = {}

    def read(
        self, gpu_processes: Sequence[GpuProcess], roots: Collection[int] = ()
    ) -> tuple[tuple[Process, ...], tuple[Problem, ...]]:
        """Return a row for each process on each GPU, then one for each descendant, then the others.

        ``roots`` are further processes to be read each time with all below them. A process that
        ends between the driver's list and this reading is left out. One that exists but cannot
        be seen from here has a row of what the driver says.
        """
        self._messages.clear()
        on_gpus = {gpu.pid for gpu in gpu_processes}
        followed = on_gpus.union(roots)
        hot = self._read_hot(followed)
        rows = self._gpu_rows(gpu_processes)
        rows += self._entry_rows(sorted([*self._below, *(followed - on_gpus)]))
        rows += self._other_rows(hot)
        return tuple(rows), self._problems()

    def close(self) -> None:
        self._forget(list(self._entries))
        self._tree.close()

    def _read_hot(self, roots: set[int]) -> set[int]:
        """Read the roots (processes on GPUs among them) and all below; return the PIDs of both."""
        for pid in roots:
            self._update(pid, keep=True)
        self._find_below(roots)
        for pid in self._below:
            self._update(pid, keep=True)
        hot = roots.union(self._below)
        if self._ended:
            # What was below them has another parent, though it may not have run since.
            ended, self._ended = self._ended, set()
            for pid in hot & self._entries.keys():
                if self._entries[pid].parent_pid in ended:
                    self._update(pid, keep=True, whole=True)
        return hot

    def _entry_rows(self, pids: Iterable[int]) -> list[Process]:
        return [self._entries[pid].row(None) for pid in pids if pid in self._entries]

    def _find_below(self, roots: set[int]) -> None:
        if not roots:
            self._roots, self._below = roots, []
            return
        listed = self._list()
        if listed or self._tree_moved or roots != self._roots:
            self._below = self._tree.descendants(roots)
            self._roots, self._tree_moved = roots, False

    def _list(self, *, force: bool = False) -> bool:
        try:
            return self._tree.refresh(force=force)
        except OSError as error:
            self._messages["list"] = (
                f"{self._proc} cannot be listed ({error.strerror}): only the processes that the "
                "driver names are shown."
            )
            return False

    def _update(self, pid: int, *, keep: bool, whole: bool = False) -> None:
        """Read one process, new or known; one that cannot be read has no entry afterwards."""
        # Each at its own time: a first look at hundreds takes as long as the time to the second.
        now = self._clock.monotonic()
        try:
            entry = self._entries.get(pid)
            if entry is None:
                self._entries[pid] = ProcessEntry(pid, now, self._proc)
            else:
                self._read_again(entry, now, keep=keep, whole=whole)
        except ProcessEndedError:
            self._drop(pid)
            self._update(pid, keep=keep)
            if pid in self._entries:
                # Somebody else has the PID already, and no list will show it as new.
                self._tree.set_parent(pid, self._entries[pid].parent_pid)
        except PermissionError:
            # It is there and hidden, which the row of the driver's side explains.
            self._drop(pid)
        except (OSError, ValueError) as error:
            self._drop(pid)
            if not (isinstance(error, OSError) and procfs.is_gone(error)):
                # Not the error itself, which can quote what was read.
                why = error.strerror if isinstance(error, OSError) else "its text is not understood"
                self._messages["unreadable"] = f"Process {pid} cannot be read ({why})."

    def _read_again(self, entry: ProcessEntry, now: float, *, keep: bool, whole: bool) -> None:
        parent, had_ended = entry.parent_pid, entry.has_ended
        entry.update(now, whole=whole)
        if entry.has_ended and not had_ended:
            self._ended.add(entry.pid)
        if entry.parent_pid != parent:
            self._tree.set_parent(entry.pid, entry.parent_pid)
            self._tree_moved = True
        if entry.kept_open == keep:
            return
        if not keep:
            entry.close()
            self._kept_open -= 1
        elif self._kept_open < self._may_keep_open and entry.keep_open():
            self._kept_open += 1

    def _drop(self, pid: int) -> None:
        if pid in self._entries:
            self._unseen.note_ended(pid)
            self._ended.add(pid)
        self._forget([pid])
        if self._tree.remove(pid):
            self._tree_moved = True

    def _forget(self, pids: Iterable[int]) -> None:
        for pid in pids:
            entry = self._entries.pop(pid, None)
            if entry is not None:
                self._kept_open -= entry.kept_open
                entry.close()

    def _gpu_rows(self, gpu_processes: Sequence[GpuProcess]) -> list[Process]:
        rows = []
        missing = []
        ended = set()
        for gpu in gpu_processes:
            entry = self._entries.get(gpu.pid)
            if entry is None:
                missing.append(gpu)
            elif entry.has_ended:
                # The driver goes on naming it for a while: nobody's GPU process any more.
                ended.add(gpu.pid)
            else:
                rows.append(entry.row(gpu))
        shown, messages = self._unseen.explain(missing)
        self._messages.update(messages)
        unseen = [
            Process(pid=gpu.pid, unseen=self._unseen.reasons[gpu.pid], **driver_side(gpu))
            for gpu in shown
        ]
        return rows + self._entry_rows(sorted(ended)) + unseen

    def _other_rows(self, hot: set[int]) -> list[Process]:
        if not self.options.all_processes:
            self._others, self._others_due = [], None
            self._forget(self._entries.keys() - hot)
            return []
        now = self._clock.monotonic()
        if self._others_due is None or now >= self._others_due:
            self._others = self._read_others(hot, now)
        return [row for row in self._others if row.pid not in hot]

    def _read_others(self, hot: set[int], now: float) -> list[Process]:
        interval = self.options.interval_seconds
        # The second time comes soon, because CPU use needs two readings.
        first = self._others_due is None
        self._others_due = now + (
            interval * 0.9 if first else max(OTHERS_SECONDS, OTHERS_INTERVALS * interval)
        )
        self._list(force=True)
        pids = sorted(set(self._tree.pids) - hot)
        self._forget(self._entries.keys() - hot - set(pids))
        for pid in pids:
            self._update(pid, keep=False)
        return self._entry_rows(pids)

    def _problems(self) -> tuple[Problem, ...]:
        self._since = {name: self._since.get(name, self._clock.unix()) for name in self._messages}
        return tuple(
            Problem(
                source="processes",
                message=message,
                since_unix_seconds=self._since[name],
                severity="warning" if name in ("list", "unreadable") else "info",
            )
            for name, message in self._messages.items()
        )


class _UnseenProcesses:
    """Processes that the driver names and ``/proc`` does not: ended, hidden, or elsewhere."""

    def __init__(self, clock: Clock, proc: Path) -> None:
        self._clock, self._proc = clock, proc
        self._ended: dict[int, float] = {}
        """Processes that were seen and have ended, and when."""
        self._before: set[int] = set()
        self._nested: bool | None = None
        self.reasons: dict[int, str] = {}
        """Reasons of those that were explained last, as in ``Process.unseen``."""

    def note_ended(self, pid: int) -> None:
        """Note that a process seen before has ended; the driver can go on naming it for a while."""
        self._ended.setdefault(pid, self._clock.monotonic())

    def explain(self, missing: Sequence[GpuProcess]) -> tuple[list[GpuProcess], dict[str, str]]:
        """Return the processes to show by the driver's side alone, and why, for a person."""
        if not missing:
            self._ended.clear()
            self._before.clear()
            return [], {}
        pids = {gpu.pid for gpu in missing}
        self._ended = {pid: at for pid, at in self._ended.items() if pid in pids}
        hidden = {pid for pid in pids - self._ended.keys() if process_exists(pid)}
        elsewhere = pids - self._ended.keys() - hidden
        long_ago = self._clock.monotonic() - LEFT_SECONDS
        gone = {pid for pid, at in self._ended.items() if at <= long_ago}
        if not self._is_nested():
            # Most likely it ended just now. Only one that stays is worth a row.
            gone |= elsewhere & self._before
            elsewhere = set()
        self._before = pids
        self.reasons = {
            **dict.fromkeys(hidden, "hidden"),
            **dict.fromkeys(elsewhere, "elsewhere"),
            **dict.fromkeys(gone, "gone"),
        }
        shown = [gpu for gpu in missing if gpu.pid in self.reasons]
        return shown, self._messages(hidden, elsewhere, gone)

    def _messages(self, hidden: set[int], elsewhere: set[int], gone: set[int]) -> dict[str, str]:
        messages = {}
        if hidden:
            messages["hidden"] = (
                f"{_count(hidden)} on the GPUs cannot be seen because /proc hides the processes "
                "of other users (hidepid): only the GPU's side is shown. Run gpuwatch as that "
                "user or as root to see the rest."
            )
        if elsewhere:
            messages["elsewhere"] = (
                f"{_count(elsewhere)} on the GPUs cannot be seen from inside this container, "
                "because the driver names them by their PIDs outside: only the GPU's side is "
                "shown. Run gpuwatch on the host, or start the container with the host's PID "
                "namespace, to see the rest."
            )
        if gone:
            they = "it" if len(gone) == 1 else "they"
            messages["gone"] = (
                f"{_count(gone)} that the driver names cannot be found on this machine: "
                f"{they} may belong to a virtual machine, or have died without giving GPU memory "
                "back."
            )
        return messages

    def _is_nested(self) -> bool:
        """Return True in a PID namespace of its own, as in a container."""
        if self._nested is None:
            try:
                namespace = os.readlink(self._proc / "self" / "ns" / "pid")  # noqa: PTH115
            except OSError:
                return False
            self._nested = namespace != INITIAL_PID_NAMESPACE
        return self._nested


def _count(pids: set[int]) -> str:
    return "1 process" if len(pids) == 1 else f"{len(pids)} processes"


def process_exists(pid: int) -> bool:
    """Return True where this PID namespace has such a process, visible or not."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def descriptors_to_keep() -> int:
    """Return a quarter of the files this process may open, so that nothing else runs out."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_KEPT_OPEN if soft == resource.RLIM_INFINITY else min(MOST_KEPT_OPEN, soft // 4)


# --- one process, watched over time ---------------------------------------------------------------

CPU_MINIMUM_SECONDS = 0.05
"""CPU time is counted in ticks of 10 ms where there is no clock of it (``cpu_seconds``): over less
than five a share means nothing."""
SETTLE_SECONDS = 2.0
"""Between fork and exec a process still shows its parent's command line."""
COMMAND_SECONDS = 20.0
"""A process can rewrite its command line in place; nothing announces it, so it is read again."""
REST_SECONDS = 5.0
"""A process that has not run is read this often: others can take memory from it."""

FULL_READS = 2
"""Everything is read at first sight (or after an exec) and once settled; from then on only the
command line."""

_BUFFER = 1024


class ProcessEndedError(Exception):
    """The process has ended, or its PID belongs to another one now."""


class ProcessEntry:
    """Reads one process again and again. Raises ``OSError`` where it cannot be read."""

    __slots__ = (
        "_descriptor", "_details", "_details_due", "_full_reads", "_has_clock", "_measured_at",
        "_path", "_proc", "_raw", "_read_due", "_rows", "_stat", "_used", "cpu_percent",
        "has_ended", "name", "parent_pid", "pid", "started_at", "version",
    )  # fmt: skip

    def __init__(self, pid: int, now: float, proc: Path) -> None:
        self.pid = pid
        self._proc = proc
        self._path = f"{proc}/{pid}/stat"
        self._descriptor: int | None = None
        self._has_clock = procfs.has_clocks(proc)
        used = procfs.cpu_clock(pid) if self._has_clock else None
        self._raw = procfs.read_once(self._path, _BUFFER)
        self._stat = procfs.parse_process_stat(self._raw)
        self.parent_pid, self.has_ended = self._stat.parent_pid, self._stat.has_ended
        self.started_at = procfs.start_unix_seconds(self._stat, proc)
        self.cpu_percent: float | None = None
        self._used = used or self._stat.cpu_ticks / procfs.TICKS_PER_SECOND
        self._measured_at = now
        self._read_due = now
        self.version = 0
        self._rows: dict[tuple[str, int | None] | None, tuple[int, GpuProcess | None, Process]] = {}
        self.name = clean_name(self._stat.name)
        self._details = ProcessDetails()
        self._details_due = now
        self._full_reads = FULL_READS
        self._refresh_details(now)

    @property
    def kept_open(self) -> bool:
        return self._descriptor is not None

    def keep_open(self) -> bool:
        """Read through one descriptor from now on, at half the cost. Return True if it worked."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return False
        return True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def update(self, now: float, *, whole: bool = False) -> None:
        """Read the process again; all but its CPU time only if it has run since or ``whole`` asks
        for it. Raises ``ProcessEndedError`` when it is no longer the same."""
        # Before all else: what happens in between shows at the next look.
        used = procfs.cpu_clock(self.pid) if self._has_clock else None
        rests = used == self._used
        if not rests or whole or now >= self._read_due:
            self._read(now)
            self._read_due = now + REST_SECONDS + self.pid % 8 * 0.25
        seconds = now - self._measured_at
        if seconds >= CPU_MINIMUM_SECONDS:
            if used is None:
                used = self._stat.cpu_ticks / procfs.TICKS_PER_SECOND
            percent = max(0.0, used - self._used) * 100.0 / seconds
            self._used, self._measured_at = used, now
            if percent != self.cpu_percent:
                self.cpu_percent = percent
                self.version += 1
        # What has not run has not rewritten its command line either.
        if now >= self._details_due and (self._full_reads or not rests):
            self._refresh_details(now)

    def _read(self, now: float) -> None:
        try:
            if self._descriptor is None:
                raw = procfs.read_once(self._path, _BUFFER)
            else:
                raw = os.pread(self._descriptor, _BUFFER, 0)
        except OSError as error:
            if procfs.is_gone(error):
                raise ProcessEndedError from None
            raise
        if raw == self._raw:
            return
        before, stat = self._stat, procfs.parse_process_stat(raw)
        if stat.start_ticks != before.start_ticks:
            raise ProcessEndedError
        self._raw, self._stat = raw, stat
        self.parent_pid, self.has_ended = stat.parent_pid, stat.has_ended
        if stat.name != before.name or stat.stack_start not in (before.stack_start, b"0"):
            self.name = clean_name(stat.name)
            self._full_reads = FULL_READS
            self._details_due = now
        if stat[:3] != before[:3] or stat[5:9] != before[5:9]:
            self.version += 1

    def _refresh_details(self, now: float) -> None:
        before = self._details
        if self._stat.state in "ZX" and before.uid is not None:
            # A zombie has no command line any more; what it was is worth more than "[name]".
            details = before
        elif self._full_reads > 0:
            self._full_reads -= 1
            details = ProcessDetails(
                read_uid(self.pid, self._proc),
                read_command(self.pid, self._stat.name, self._proc),
                *cgroup.read_membership(self.pid, self._proc),
            )
        else:
            command = read_command(self.pid, self._stat.name, self._proc)
            details = before._replace(command=command)
        if details.command in (None, f"[{self.name}]") and before.command is not None:
            # The memory of an ending process is gone before it is a zombie.
            details = details._replace(command=before.command)
        # Spread out: else all that was there at the start would be read again at one moment.
        self._details_due = now + (
            SETTLE_SECONDS if self._full_reads else COMMAND_SECONDS + self.pid % 16
        )
        if details != before:
            self._details = details
            self.version += 1

    def row(self, gpu: GpuProcess | None) -> Process:
        """Return the row for one GPU, or for none: the same object while nothing in it changes."""
        key = None if gpu is None else (gpu.gpu_uuid, gpu.mig_instance)
        uid = self._details.uid
        # Asked each time, since the answer can be late.
        user = None if uid is None else user_name(uid)
        cached = self._rows.get(key)
        if cached is not None and cached[0] == self.version and cached[1] == gpu:
            row = cached[2]
            if row.user == user:
                return row
        row = self._build_row(gpu, user)
        self._rows[key] = (self.version, gpu, row)
        return row

    def _build_row(self, gpu: GpuProcess | None, user: str | None) -> Process:
        stat, details = self._stat, self._details
        return Process(
            pid=self.pid,
            started_at_unix_seconds=self.started_at,
            parent_pid=stat.parent_pid,
            user=user,
            name=self.name,
            command=details.command,
            state=stat.state,
            cpu_percent=self.cpu_percent,
            memory_resident_bytes=stat.resident_pages * procfs.PAGE_BYTES,
            threads=stat.threads,
            container=details.container,
            slurm_job=details.slurm_job,
            **({} if gpu is None else driver_side(gpu)),
        )


def driver_side(gpu: GpuProcess) -> dict[str, Any]:
    """Return the driver's side of a process as fields of its row."""
    return {
        "gpu_uuid": gpu.gpu_uuid, "gpu_memory_bytes": gpu.memory_bytes, "gpu_kind": gpu.kind,
        "gpu_busy_percent": gpu.busy_percent, "mig_instance": gpu.mig_instance,
    }  # fmt: skip


# --- facts of a process that rarely change --------------------------------------------------------

COMMAND_BYTES = 4096
"""A command line can be megabytes; no screen shows more than this of it."""

PATIENCE_SECONDS = 0.2
"""Time that all users' names are waited for: those in a local file are known in less, so that the
first picture has them."""

_NEEDS_QUOTES = re.compile(r"[\s'\"]")
_NOT_IN_DOUBLE_QUOTES = re.compile(r'["$`\\!]')


class ProcessDetails(NamedTuple):
    """Text from outside, passed through ``text.clean``; ``None`` where it could not be read."""

    uid: int | None = None
    command: str | None = None
    container: str | None = None
    slurm_job: str | None = None


def read_command(pid: int, name: bytes, proc: Path = procfs.PROC) -> str | None:
    """Return the command line, made safe; ``None`` where it may not be read."""
    try:
        # One byte more than is shown: if it comes, something was cut.
        text = procfs.read_once(f"{proc}/{pid}/cmdline", COMMAND_BYTES + 1)
    except OSError:
        return None
    return parse_command(text, name)


@functools.lru_cache(maxsize=256)
def parse_command(text: bytes, name: bytes) -> str:
    """Parse ``/proc/PID/cmdline`` into one line.

    Arguments are separated by NUL; those with white space or quotes in them are quoted, so that
    they stay distinct. A process that rewrote its title (setproctitle) has a single argument,
    shown as it is. An empty command line (a zombie, or a process that erased it) gives the name
    in brackets, as ps does.
    """
    cut = len(text) > COMMAND_BYTES
    if cut:
        text = text[: COMMAND_BYTES - 1]
    # Rewritten titles are padded with NULs or blanks up to the room the arguments had.
    arguments = text.rstrip(b"\0 \n").decode("utf-8", "replace").split("\0")
    if arguments == [""]:
        return f"[{clean_name(name)}]"
    if len(arguments) > 1:
        arguments = [
            _quoted(part) if not part or _NEEDS_QUOTES.search(part) else part for part in arguments
        ]
    line = clean(" ".join(arguments), COMMAND_BYTES)
    return f"{line[: COMMAND_BYTES - 1]}…" if cut and not line.endswith("…") else line


def _quoted(argument: str) -> str:
    """Quote an argument as a shell would take it back, by the quotes that it does not hold."""
    if "'" in argument and not _NOT_IN_DOUBLE_QUOTES.search(argument):
        return f'"{argument}"'
    return shlex.quote(argument)


def clean_name(name: bytes) -> str:
    """Make the kernel's name of a process (at most 15 bytes, any bytes) safe to show."""
    return clean(name.decode("utf-8", "replace"), 64)


def read_uid(pid: int, proc: Path = procfs.PROC) -> int | None:
    """Return the user the process acts as; ``None`` where its status may not be read."""
    return parse_effective_uid(procfs.read_if_possible(f"{proc}/{pid}/status"))


def parse_effective_uid(text: bytes) -> int | None:
    """Parse the second number of ``Uid:`` in ``/proc/PID/status``. The owner of ``/proc/PID`` will
    not do: it is root for every process that may not be dumped."""
    found = re.search(rb"\nUid:\s*\d+\s+(\d+)", text)
    return None if found is None else int(found[1])


class UserNames:
    """Names of users, looked up once each on a thread of its own: a directory server (LDAP) can
    take half a minute to answer, or never do."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._names: dict[int, str] = {}
        self._worker = DaemonWorker("gpuwatch-users")
        self._patience_seconds = patience_seconds

    def name(self, uid: int) -> str:
        """Return the user's name; the number where nobody knows it, and until it is known."""
        known = self._names.get(uid)
        if known is not None:
            return known
        self._names[uid] = str(uid)
        begun = time.monotonic()
        self._worker.submit(lambda: self._look_up(uid)).wait(self._patience_seconds)
        self._patience_seconds = max(0.0, self._patience_seconds - (time.monotonic() - begun))
        return self._names[uid]

    def _look_up(self, uid: int) -> None:
        with suppress(KeyError, OSError):
            self._names[uid] = clean(pwd.getpwuid(uid).pw_name, 64)


user_name = UserNames().name


# --- descent, without reading every process every time --------------------------------------------

# A parent is read once for each new PID: it changes only when the parent ends, and then its
# children are read again. Which PIDs were given out since the last look shows in one number in
# ``/proc/loadavg``: where they are few each is tried, which takes a hundredth of a list of
# ``/proc``. ``/proc/PID/task/TID/children`` would need a read for every thread, and deep-learning
# processes have hundreds.

LIST_SECONDS = 1.5
"""Listed so often where many began: a new child is seen after two seconds at most, with an interval
of one."""
TRIED_MOST = 256
TRIED_SECONDS = 10.0
"""Then they are listed all the same, if any began: one whose birth the kernel had not finished
when its PID was tried is in no later range."""
RELIST_SECONDS = 60.0
"""All parents are read again this often: a PID used again between two lists goes unnoticed."""


class ProcessList(Generic[T]):
    """A fact of each process of the machine, read when the process is first listed, and again when
    its parent has ended. ``read`` gives ``None`` for processes that are to be left out."""

    def __init__(
        self, proc: Path, read: Callable[[int], T | None], parent_of: Callable[[T], int]
    ) -> None:
        self._proc = proc
        self._read = read
        self._parent_of = parent_of
        self._names: set[str] = set()
        self.known: dict[int, T] = {}

    def refresh(self, *, anew: bool = False) -> tuple[list[int], set[int]]:
        """List the processes; return the PIDs that were read, and those that have ended. ``anew``:
        all are read again. Raises ``OSError`` when they cannot be listed."""
        # Most are those of the last list: their names are compared and nothing is made of them.
        names = set(os.listdir(self._proc))  # noqa: PTH208 - names only, no Path each
        ended = {int(name) for name in self._names - names if name.isdigit()}
        if anew:
            self._names.clear()
            self.known.clear()
        gone = {pid for pid in ended if self.known.pop(pid, None) is not None}
        changed = [int(name) for name in names - self._names if name.isdigit()]
        self._names = names
        if gone:
            parent_of = self._parent_of
            changed += [pid for pid, one in self.known.items() if parent_of(one) in gone]
        return self.read_pids(changed), ended

    def read_pids(self, pids: list[int]) -> list[int]:
        """Read these processes, new or known; return those that are to be known."""
        for pid in pids:
            self._names.add(str(pid))
            self.known.pop(pid, None)
            if (found := self._read(pid)) is not None:
                self.known[pid] = found
        return [pid for pid in pids if pid in self.known]

    def forget(self, pid: int) -> bool:
        """Take whoever has this PID at the next list for somebody else. Return True if the PID was
        known."""
        self._names.discard(str(pid))
        return self.known.pop(pid, None) is not None


class ProcessTree:
    """The processes of the machine, kernel threads left out, and their parents."""

    def __init__(self, clock: Clock, proc: Path = procfs.PROC) -> None:
        self._clock = clock
        self._proc = proc
        self._load = procfs.KernelFile(proc / "loadavg")
        self._has_clocks = procfs.has_clocks(proc)
        self._last_pid = 0
        self._listed_at = -math.inf
        self._tried = False
        """PIDs were, since the last list."""
        self._read_all_at = 0.0
        self._list = ProcessList(proc, self._read_parent, int)
        self._parents = self._list.known
        self._found_under: dict[int, int] = {}
        self._roots: set[int] = set()

    def close(self) -> None:
        self._load.close()

    @property
    def pids(self) -> Iterable[int]:
        """PIDs of the last list, kernel threads left out."""
        return self._parents.keys()

    def refresh(self, *, force: bool = False) -> bool:
        """Find the processes that began, listing all if it is time. Return True if any began or
        ended below the roots that were asked for last. Raises ``OSError`` when ``/proc`` cannot be
        listed."""
        now, last_pid = self._clock.monotonic(), self._read_last_pid()
        given_out = last_pid - self._last_pid
        few = self._has_clocks and 0 < given_out <= TRIED_MOST
        wait = TRIED_SECONDS if few or self._tried else math.inf
        if not few and (given_out or not last_pid):
            wait = LIST_SECONDS
        ended: set[int] = set()
        if force or now - self._listed_at >= wait:
            self._listed_at, self._last_pid, self._tried = now, last_pid, False
            anew = now - self._read_all_at >= RELIST_SECONDS
            if anew:
                self._read_all_at = now
            changed, ended = self._list.refresh(anew=anew)
        elif few:
            # Threads take numbers too, and have no such clock.
            pids = range(self._last_pid + 1, last_pid + 1)
            began = [pid for pid in pids if procfs.cpu_clock(pid) is not None]
            changed = self._list.read_pids(began)
            self._last_pid, self._tried = last_pid, True
        else:
            return False
        watched = self._roots | self._found_under.keys()
        return not watched.isdisjoint(ended) or any(
            pid in watched or self._parents[pid] in watched for pid in changed
        )

    def set_parent(self, pid: int, parent: int) -> None:
        """Add a process that was found elsewhere, or change its parent."""
        self._parents[pid] = parent

    def remove(self, pid: int) -> bool:
        """Remove a process that has ended. Return True if it was in the tree."""
        self._found_under.pop(pid, None)
        return self._list.forget(pid)

    def descendants(self, roots: set[int]) -> list[int]:
        """Return all processes below ``roots``, without these, in the order of their PIDs.

        A process once found below a root stays while that root does, even when the kernel gave
        it a new parent because the one between has ended.
        """
        children: dict[int, list[int]] = {}
        for pid, parent in self._parents.items():
            children.setdefault(parent, []).append(pid)
        still = self._found_under.keys() & self._parents.keys() - roots
        found = {pid: self._found_under[pid] for pid in still if self._found_under[pid] in roots}
        waiting = [(root, root) for root in roots] + list(found.items())
        while waiting:
            pid, root = waiting.pop()
            for child in children.get(pid, ()):
                if child not in found and child not in roots:
                    found[child] = root
                    waiting.append((child, root))
        self._found_under, self._roots = found, roots
        return sorted(found)

    def _read_last_pid(self) -> int:
        """Return the PID that was given out last in this PID namespace; 0 where the kernel does not
        say (sandboxes). Threads take numbers too, so an unchanged one proves that no process
        began."""
        try:
            return int(self._load.read().rsplit(None, 1)[-1])
        except (OSError, ValueError, IndexError):
            return 0

    def _read_parent(self, pid: int) -> int | None:
        stat = procfs.read_stat(pid, self._proc)
        return None if stat is None or stat.is_kernel_thread else stat.parent_pid


# --- ending a process that a person pointed at ----------------------------------------------------

# Between the picture and the key press a process can end and its PID can be given to somebody
# else. The process is therefore pinned first (pidfd_open(2)), its start time compared, and the
# signal sent to what was pinned.

SAME_START_SECONDS = 0.05
"""Start times are in ticks of 10 ms, and may have been rounded on their way; no PID comes round
again this fast."""

_INIT = 1


@dataclass(frozen=True, slots=True)
class EndResult:
    """Outcome of ending a process: whether the signal was sent, and a sentence for a person."""

    ok: bool
    message: str


def end_process(pid: int, started_at_unix_seconds: float | None, force: bool = False) -> EndResult:
    """Ask a process to end (TERM), or with ``force`` end it at once (KILL).

    ``started_at_unix_seconds`` is the start time as a snapshot of this run gave it. The result
    is that the signal was sent: a process can take its time over TERM, or ignore it. Never
    raises.
    """
    kind = signal.SIGKILL if force else signal.SIGTERM
    try:
        started_at = _check_target(pid, started_at_unix_seconds)
        with pinned(pid) as send:
            name = _check_same(pid, started_at)
            send(kind)
    except SentenceError as refused:
        return EndResult(False, str(refused))
    except (ProcessLookupError, FileNotFoundError):
        return EndResult(False, f"Process {pid} has already ended.")
    except PermissionError:
        return EndResult(False, _not_permitted(pid))
    except OSError as error:
        return EndResult(False, f"Process {pid} could not be signalled: {error.strerror}.")
    return EndResult(True, f"Process {pid} ({name}) was {'killed' if force else 'asked to end'}.")


def _check_target(pid: int, started_at: float | None) -> float:
    if pid == os.getpid():
        raise SentenceError(f"Process {pid} is gpuwatch itself: leave it with its own quit key.")
    if pid == _INIT:
        raise SentenceError("Process 1 keeps the machine or container running and is not ended.")
    # Zero and negative numbers name whole groups of processes to kill(2).
    if pid < _INIT:
        raise SentenceError(f"{pid} is not a process.")
    if started_at is None:
        raise SentenceError(
            f"Process {pid} cannot be seen from here, so it is not certain which process that is."
        )
    return started_at


@contextmanager
def pinned(pid: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that sends signals to the process that has this PID now, and to no later
    one: a start time that is read inside is that of the process they reach. Raises
    ``ProcessLookupError``."""
    descriptor = None
    # The kernel (before 5.3) or a sandbox may have none.
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(pid)
        except (ProcessLookupError, OverflowError):
            raise ProcessLookupError from None
        except OSError:
            pass
    if descriptor is None:
        yield partial(os.kill, pid)
        return
    try:
        yield partial(signal.pidfd_send_signal, descriptor)
    finally:
        os.close(descriptor)


def _check_same(pid: int, started_at: float) -> str:
    """Return the name of the process. Raises ``SentenceError`` where it is another, or cannot be
    ended."""
    stat = procfs.parse_process_stat(procfs.read_once(f"/proc/{pid}/stat"))
    if abs(procfs.start_unix_seconds(stat) - started_at) > SAME_START_SECONDS:
        raise SentenceError(
            f"Process {pid} is no longer the one that was shown: that one has ended and its "
            "number is in use again. Nothing was sent."
        )
    if stat.is_kernel_thread:
        raise SentenceError(f"Process {pid} is a part of the kernel and cannot be ended.")
    if stat.state in "ZX":
        raise SentenceError(
            f"Process {pid} has already ended; its parent, process {stat.parent_pid}, has not "
            "taken note yet."
        )
    return clean_name(stat.name)


def _not_permitted(pid: int) -> str:
    uid = read_uid(pid)
    owner = "another user" if uid is None else user_name(uid)
    helper = f"{owner} or root" if uid else "root"
    return (
        f"Process {pid} belongs to {owner}, and you may not end it: run "
        f"gpuwatch as {helper} to do so."
    )
