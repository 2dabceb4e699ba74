"""The processes on the GPUs, what descends from them, and on request all the others.

Those on a GPU and their descendants are read every time, straight from ``/proc/PID/stat``; the
others on a slower timer.
"""

import os
import resource
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from gpuwatch.core.model import Problem, Process
from gpuwatch.core.source import Clock, ReadOptions
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.process_entry import ProcessEndedError, ProcessEntry, driver_side
from gpuwatch.sources.linux.process_tree import ProcessTree

OTHERS_INTERVALS = 2.5
"""Processes without a GPU are read every so many intervals,"""
OTHERS_SECONDS = 2.0
"""but never more often than this: there can be thousands."""
MOST_KEPT_OPEN = 512

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
        """Since the last look."""
        self._tree_moved = False
        self._others: list[Process] = []
        self._others_due: float | None = None
        self._unseen = _UnseenProcesses(proc)
        self._messages: dict[str, str] = {}
        self._since: dict[str, float] = {}

    def read(
        self, gpu_processes: Sequence[GpuProcess], roots: Collection[int] = ()
    ) -> tuple[tuple[Process, ...], tuple[Problem, ...]]:
        """One row for each process on each GPU, then one for each descendant, then the others.

        ``roots`` are further processes to be read each time with all below them. A process that
        ends between the driver's list and this reading is left out. One that exists but cannot
        be seen from here has a row of what the driver says.
        """
        self._messages.clear()
        on_gpus = {gpu.pid for gpu in gpu_processes}
        hot = self._read_hot(on_gpus.union(roots))
        rows = self._gpu_rows(gpu_processes)
        rows += self._entry_rows(self._beside(roots, on_gpus))
        rows += self._other_rows(hot)
        return tuple(rows), self._problems()

    def close(self) -> None:
        self._forget(list(self._entries))
        self._tree.close()

    def _read_hot(self, roots: set[int]) -> set[int]:
        """Read the roots (processes on GPUs among them) and all below; the PIDs of both."""
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

    def _beside(self, roots: Collection[int], on_gpus: set[int]) -> list[int]:
        """Processes that are read each time and are on no GPU."""
        more = [pid for pid in roots if pid not in on_gpus]
        return sorted([*self._below, *more]) if more else self._below

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
        # Of this process: a first look at hundreds takes as long as the time to the second.
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
                self._tree.put(pid, self._entries[pid].parent_pid)
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
            self._tree.put(entry.pid, entry.parent_pid)
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
            self._unseen.ended(pid)
            self._ended.add(pid)
        self._forget([pid])
        if self._tree.drop(pid):
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
        unseen = [Process(pid=gpu.pid, **driver_side(gpu)) for gpu in shown]
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

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._ended: set[int] = set()
        self._before: set[int] = set()
        self._nested: bool | None = None

    def ended(self, pid: int) -> None:
        """A process seen before has ended; the driver can go on naming it for a while."""
        self._ended.add(pid)

    def explain(self, missing: Sequence[GpuProcess]) -> tuple[list[GpuProcess], dict[str, str]]:
        """Those to show by what the driver says alone, and why, for a person."""
        if not missing:
            self._ended.clear()
            self._before.clear()
            return [], {}
        pids = {gpu.pid for gpu in missing}
        self._ended &= pids
        hidden = {pid for pid in pids - self._ended if process_exists(pid)}
        elsewhere = pids - self._ended - hidden
        if not self._is_nested():
            # Most likely it ended just now. Only one that stays is worth a row.
            elsewhere &= self._before
        self._before = pids
        shown = [gpu for gpu in missing if gpu.pid in hidden | elsewhere]
        return shown, self._messages(hidden, elsewhere)

    def _messages(self, hidden: set[int], elsewhere: set[int]) -> dict[str, str]:
        messages = {}
        if hidden:
            messages["hidden"] = (
                f"{_count(hidden)} on the GPUs cannot be seen because /proc hides the processes "
                "of other users (hidepid): only the GPU's side is shown. Run gpuwatch as that "
                "user or as root to see the rest."
            )
        if elsewhere and self._is_nested():
            messages["elsewhere"] = (
                f"{_count(elsewhere)} on the GPUs cannot be seen from inside this container, "
                "because the driver names them by their PIDs outside: only the GPU's side is "
                "shown. Run gpuwatch on the host, or start the container with the host's PID "
                "namespace, to see the rest."
            )
        elif elsewhere:
            they = "it" if len(elsewhere) == 1 else "they"
            messages["elsewhere"] = (
                f"{_count(elsewhere)} that the driver names cannot be found on this machine: "
                f"{they} may belong to a virtual machine, or have died without giving GPU memory "
                "back."
            )
        return messages

    def _is_nested(self) -> bool:
        """True in a PID namespace of its own, as in a container."""
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
    """True where this PID namespace has such a process, visible or not."""
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
    """A quarter of the files this process may open, so that nothing else runs out."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_KEPT_OPEN if soft == resource.RLIM_INFINITY else min(MOST_KEPT_OPEN, soft // 4)
