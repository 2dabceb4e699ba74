"""What a process and its descendants cost: CPU time and memory."""

import contextlib

import psutil


def tree(root: int) -> list[psutil.Process]:
    """``root`` and all that descend from it; nothing once it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(root)
        return [first, *first.children(recursive=True)]
    return []


def cpu_seconds(root: int) -> float:
    """User and system time of the tree, of children that have ended and were waited for too."""
    spent = 0.0
    for process in tree(root):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent += sum(process.cpu_times()[:4])
    return spent


def own_resident_bytes(pid: int) -> int:
    """Resident memory of one process; 0 once it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


def memory(root: int) -> tuple[int, int]:
    """Resident and proportional bytes of the tree now; of the latter a page is shared between its
    users."""
    resident = proportional = 0
    for process in tree(root):
        with contextlib.suppress(psutil.NoSuchProcess):
            found = process.memory_full_info()
            resident, proportional = resident + found.rss, proportional + found.pss
    return resident, proportional
