"""Which NUMA nodes a process's cores belong to."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path

from gpuwatch.jobs.resources.cores import parse_core_list, read_allowed

NODES = Path("/sys/devices/system/node")
"""``nodeN/cpulist`` of each (Linux, Documentation/ABI/stable/sysfs-devices-node)."""


def read_nodes(pid: int, nodes: Path = NODES) -> tuple[int, ...] | None:
    """The nodes whose cores this process may use, in order; ``None`` where it is not known."""
    layout = _layout(nodes)
    allowed = read_allowed(pid) if layout else None
    return None if allowed is None else nodes_of(allowed, layout)


def nodes_of(cores: Set[int], layout: Mapping[int, frozenset[int]]) -> tuple[int, ...] | None:
    """``layout``: the cores of each node. ``None`` if none of the cores is in it."""
    return tuple([node for node, own in layout.items() if not own.isdisjoint(cores)]) or None


@cache
def _layout(nodes: Path) -> dict[int, frozenset[int]]:
    """Does not change while a machine runs, but for cores taken offline; empty if not known."""
    found = {}
    for folder in nodes.glob("node[0-9]*"):
        try:
            cores = parse_core_list((folder / "cpulist").read_text("ascii"))
        except (OSError, ValueError):
            continue
        # A node without cores holds memory only (CXL, HBM, a GPU's).
        if cores:
            found[int(folder.name[4:])] = cores
    return dict(sorted(found.items()))
