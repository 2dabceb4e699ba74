"""Which NUMA nodes a process's cores belong to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwatch.jobs.resources.numa import nodes_of, read_nodes

TWO = {0: frozenset(range(8)), 1: frozenset(range(8, 16))}


@pytest.mark.parametrize(
    ("cores", "nodes"),
    [
        pytest.param({0, 3}, (0,), id="first"),
        pytest.param({9}, (1,), id="second"),
        pytest.param(set(range(16)), (0, 1), id="both"),
        pytest.param({99}, None, id="none that is known"),
    ],
)
def test_nodes_of_cores(cores: set[int], nodes: tuple[int, ...] | None) -> None:
    """A node counts as soon as one of its cores may be used."""
    assert nodes_of(cores, TWO) == nodes


def test_nodes_from_the_kernels_files(tmp_path: Path) -> None:
    """Cores in nodes that exist are found; memory-only nodes and torn files are left out."""
    mine = min(os.sched_getaffinity(0))
    for node, text in {
        "node0": "4000-4001",
        "node1": f"{mine}\n",
        "node2": "\n",
        "node3": "x",
    }.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(text)
    (tmp_path / "node4").mkdir()
    assert read_nodes(os.getpid(), nodes=tmp_path) == (1,)


def test_without_the_files_nothing_is_known(tmp_path: Path) -> None:
    """A machine without NUMA in its kernel has no such folder."""
    assert read_nodes(os.getpid(), nodes=tmp_path / "nothing") is None
