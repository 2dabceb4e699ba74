"""Which processes the table has, in which order."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.core.model import JobMember, Process
from gpuwatch.jobs.words import role_name
from gpuwatch.tui.terminal.listing import branches, brief_command
from gpuwatch.tui.view import RowKey, View, row_key

USER = "user:"
"""Begins a word of a filter that names users, whole and with commas: ``user:ada,bob``."""


class TableRow(NamedTuple):
    """A process, and what the table says of it that is not its own."""

    process: Process
    branch: str = ""
    """Drawn before its command (tree view)."""
    gpu: str = ""
    seconds: float | None = None
    """For how long it has run."""
    wait: str = ""
    """The share of its time that a training process says it waits for data."""
    command: str = ""
    """With its number if it is one of several ranks. A process that serves one, and has the same
    command, by its role."""

    @property
    def key(self) -> RowKey:
        return row_key(self.process)


def rows(view: View) -> list[TableRow]:
    """The processes in the view's order, filtered, as a tree where that is asked for."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    ordered = sorted(snapshot.processes, key=_sort_key(view), reverse=view.reverse)
    wanted = _wanted(view)
    branch = [""] * len(ordered)
    if view.tree:
        ordered = _as_tree(ordered, wanted)
        branch = branches([(one.pid, one.parent_pid) for one in ordered], view.glyphs)
    else:
        ordered = [process for process in ordered if wanted(process)]
    labels = {gpu.uuid: units.gpu_label(gpu) for gpu in snapshot.gpus}
    waits = {
        loop.key: units.share(loop.data_wait_share) for job in snapshot.jobs for loop in job.loops
    }
    members = {member.key: member for job in snapshot.jobs for member in job.members}
    now = snapshot.taken_at_unix_seconds
    return [
        TableRow(
            process,
            before,
            labels.get(process.gpu_uuid or "", ""),
            None if (since := process.started_at_unix_seconds) is None else now - since,
            waits.get(process.key, ""),
            _command(process, members.get(process.key)),
        )
        for process, before in zip(ordered, branch, strict=False)
    ]


def _command(process: Process, member: JobMember | None) -> str:
    command = brief_command(process.command or process.name or "(unseen)")
    if member is None or member.role not in ("rank", "loader_worker"):
        return command
    if member.role == "loader_worker":
        return role_name(member)
    return command if member.rank is None else f"{role_name(member)}: {command}"


_NUMBERS = {
    "sm": "gpu_busy_percent",
    "gpu memory": "gpu_memory_bytes",
    "cpu": "cpu_percent",
    "memory": "memory_resident_bytes",
}


def _sort_key(view: View) -> Callable[[Process], tuple[float | str, ...]]:
    """Numbers largest first (unknown last), names and GPUs ascending; ties by GPU, then PID."""
    order = {gpu.uuid: position for position, gpu in enumerate(view.gpus)}
    sort = view.sort

    def down(value: float | None) -> float:
        return 1.0 if value is None else -value

    def key(process: Process) -> tuple[float | str, ...]:
        place, pid = order.get(process.gpu_uuid or "", len(order)), process.pid
        match sort:
            case "gpu":
                return (place, down(process.gpu_memory_bytes), pid)
            case "pid":
                return (pid, place)
            case "user" | "command":
                return (getattr(process, sort) or "~", place, pid)
            case "time":
                since = process.started_at_unix_seconds
                return (float("inf") if since is None else since, place, pid)
            case _:
                return (down(getattr(process, _NUMBERS[sort])), place, pid)

    return key


def _wanted(view: View) -> Callable[[Process], bool]:
    words = view.filter_text.lower().split()
    users = [word.removeprefix(USER) for word in words if word.startswith(USER)]
    words = [word for word in words if not word.startswith(USER)]
    among = None
    if view.this_gpu_only and view.selected_gpu is not None and view.snapshot is not None:
        among = _of_gpu(view.snapshot.processes, view.selected_gpu)
    if among is None and not view.filter_text:
        return lambda _: True

    def keep(process: Process) -> bool:
        if among is not None and row_key(process) not in among:
            return False
        user = (process.user or "").lower()
        if any(user not in names.split(",") for names in users):
            return False
        text = f"{process.pid} {process.user or ''} {process.name or ''} {process.command or ''}"
        return all(word in text.lower() for word in words)

    return keep


def _of_gpu(processes: Sequence[Process], uuid: str) -> set[RowKey]:
    """The rows of this GPU: processes that use it, and those below them that use none."""
    below: dict[int | None, list[Process]] = {}
    for process in processes:
        if process.gpu_uuid is None:
            below.setdefault(process.parent_pid, []).append(process)
    found = [process for process in processes if process.gpu_uuid == uuid]
    for process in found:
        # It grows meanwhile: children of children are found too.
        found += below.pop(process.pid, ())
    return {row_key(process) for process in found}


def _as_tree(ordered: Sequence[Process], wanted: Callable[[Process], bool]) -> list[Process]:
    """Children under their parents. A match below keeps its ancestors in sight; a process on
    several GPUs has a row for each and its children under the first."""
    present = {process.pid: process for process in ordered}
    if not any(one.parent_pid in present for one in ordered):
        return [process for process in ordered if wanted(process)]
    children: dict[int, list[Process]] = {}
    roots: list[Process] = []
    for process in ordered:
        parent = process.parent_pid
        if parent is not None and parent in present and parent != process.pid:
            children.setdefault(parent, []).append(process)
        else:
            roots.append(process)
    _sort_by_family(ordered, roots, children)
    keep = _with_ancestors(ordered, wanted, present)
    out: dict[RowKey, Process] = {}
    # Torn parent links can form a loop, which no root leads to: nobody may be hidden for it.
    for start in (*roots, *ordered):
        waiting = [start]
        while waiting:
            process = waiting.pop()
            key = row_key(process)
            if key in out or key not in keep:
                continue
            out[key] = process
            waiting += reversed(children.pop(process.pid, ()))
    return list(out.values())


def _sort_by_family(
    ordered: Sequence[Process], roots: list[Process], children: dict[int, list[Process]]
) -> None:
    """A family stands where its best member would: a launcher without a GPU stands where its
    first rank does."""
    ranks = {row_key(process): rank for rank, process in enumerate(ordered)}
    parents = {process.pid: process.parent_pid for process in ordered}
    below: dict[int, int] = {}
    for rank, process in enumerate(ordered):
        # The best comes first, so what is set stays (and a loop in torn parent links ends).
        pid = process.parent_pid if process.pid in children else process.pid
        while pid is not None and pid in parents and pid not in below:
            below[pid] = rank
            pid = parents[pid]

    def family_rank(process: Process) -> int:
        own = ranks[row_key(process)]
        return min(own, below.get(process.pid, own))

    roots.sort(key=family_rank)
    for family in children.values():
        family.sort(key=family_rank)


def _with_ancestors(
    ordered: Sequence[Process], wanted: Callable[[Process], bool], present: dict[int, Process]
) -> set[RowKey]:
    keep: set[RowKey] = set()
    for process in ordered:
        current: Process | None = process if wanted(process) else None
        while current is not None and row_key(current) not in keep:
            keep.add(row_key(current))
            parent = current.parent_pid
            current = None if parent is None else present.get(parent)
    return keep
