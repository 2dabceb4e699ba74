"""What a process and its descendants cost: CPU time and memory, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Memory:
    """Summed over a process tree. ``proportional`` (PSS) shares a page between its users."""

    resident_bytes: int
    proportional_bytes: int


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on, ``None`` once the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def tree(root: int) -> list[int]:
    """``root`` and all that descend from it."""
    children: dict[int, list[int]] = {}
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    for pid in pids:
        if (stat := _stat(pid)) is not None:
            children.setdefault(int(stat[1]), []).append(pid)
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def cpu_seconds(root: int) -> float:
    """User and system time of the tree, of children that have ended and were waited for too."""
    ticks = 0
    for pid in tree(root):
        if (stat := _stat(pid)) is not None:
            ticks += sum(int(field) for field in stat[11:15])
    return ticks / _TICKS_PER_SECOND


def own_resident_bytes(pid: int) -> int:
    """Resident memory of one process; 0 once it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def memory(root: int) -> Memory:
    """Resident memory of the tree now."""
    sums = {"Rss": 0, "Pss": 0}
    for pid in tree(root):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name in sums:
                sums[name] += int(value.split()[0]) * 1024
    return Memory(sums["Rss"], sums["Pss"])
