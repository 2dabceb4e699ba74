"""The cores a job may use: real affinity and quotas, Slurm's words, and the least of all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.jobs import cores
from gpuwatch.jobs.cores import (
    JobCores,
    PressureMeter,
    ThrottleMeter,
    read_cores,
    read_nodes,
    slurm_cores,
)
from tests.support.children import Children, children, wait_until
from tests.support.fake_proc import FakeProc

CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    made = FakeProc(tmp_path / "proc")
    made.process(42)
    return made


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[int, set[int]]:
    """The cores that each process may use, on a machine of 16."""
    allowed: dict[int, set[int]] = {}

    def ask(pid: int) -> set[int]:
        if pid not in allowed:
            raise ProcessLookupError
        return allowed[pid]

    monkeypatch.setattr(os, "sched_getaffinity", ask)
    (tmp_path / "online").write_text("0-15\n")
    monkeypatch.setattr(cores, "ONLINE", tmp_path / "online")
    return allowed


def quota_v2(tmp_path: Path, fake: FakeProc, text: str) -> Path:
    """A v2 tree with a quota on the folder of process 42."""
    top = tmp_path / "cgroup"
    (top / "job").mkdir(parents=True, exist_ok=True)
    (top / "job" / "cpu.max").write_text(text)
    fake.write("42/cgroup", "0::/job\n")
    fake.write("self/mountinfo", f"30 22 0:26 / {top} rw - cgroup2 cgroup2 rw\n")
    return top / "job"


def test_a_pinned_process_may_use_the_cores_it_is_pinned_to(started: Children) -> None:
    """One core of the machine's, read from the process, not from gpuwatch."""
    child = started.waiting("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})")
    found = read_cores(child.pid, {})
    assert found.affinity_cores == 1
    assert 0.0 < (found.usable_cores or 0.0) <= 1.0


def test_the_least_of_all_limits_is_usable(
    fake: FakeProc, tmp_path: Path, machine: dict[int, set[int]]
) -> None:
    """Affinity 8, quota 3, Slurm 6, 16 online: three cores; and each in turn the least."""
    quota_v2(tmp_path, fake, "300000 100000\n")
    slurm = {"SLURM_CPUS_ON_NODE": "6"}
    machine[42] = set(range(8))
    assert read_cores(42, slurm, fake.root) == JobCores(8, 3.0, 6, 3.0)
    quota_v2(tmp_path, fake, "1200000 100000\n")
    assert read_cores(42, slurm, fake.root) == JobCores(8, 12.0, 6, 6.0)
    assert read_cores(42, {}, fake.root) == JobCores(8, 12.0, None, 8.0)
    quota_v2(tmp_path, fake, "6400000 100000\n")
    del machine[42]
    assert read_cores(42, {}, fake.root) == JobCores(None, 64.0, None, 16.0)
    # Nothing known is not a number, and not the machine's.
    assert read_cores(43, {}, fake.root) == JobCores(None, None, None, None)


def test_ranks_pinned_apart_share_the_cores_of_all(
    fake: FakeProc, machine: dict[int, set[int]]
) -> None:
    """Each rank on cores of its own: the job has all of them; a rank that is gone adds none."""
    machine.update({42: set(range(4)), 43: set(range(2, 8))})
    assert read_cores(42, {}, fake.root).usable_cores == 4.0
    both = read_cores(42, {}, fake.root, others=[43, 44])
    assert (both.affinity_cores, both.usable_cores) == (8, 8.0)


@pytest.fixture
def fifth_of_a_core() -> Iterator[Path]:
    """A real cgroup with a quota, where this machine lets us make one."""
    v1 = CGROUPS / "cpu"
    folder = (v1 if v1.exists() else CGROUPS) / f"gpuwatch_test_{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("may not make cgroups with a CPU quota here")
    try:
        if v1.exists():
            (folder / "cpu.cfs_period_us").write_text("10000")
            (folder / "cpu.cfs_quota_us").write_text("2000")
        elif (folder / "cpu.max").exists():
            (folder / "cpu.max").write_text("2000 10000")
        else:
            pytest.skip("may not make cgroups with a CPU quota here")
        yield folder
    finally:

        def removed() -> bool:
            # It can only be removed once its last process is really gone.
            with contextlib.suppress(OSError):
                folder.rmdir()
            return not folder.exists()

        wait_until(removed)


def test_a_real_quota_is_read_and_its_throttling_measured(fifth_of_a_core: Path) -> None:
    """A child that spins under a fifth of a core: its quota, and that it is held back."""
    with children() as started:
        child = started.python("ready()\nwait()\nready()\nwhile True: pass\n")
        started.ready(child)
        (fifth_of_a_core / "cgroup.procs").write_text(str(child.pid))
        meter = ThrottleMeter(child.pid)
        found = read_cores(child.pid, {})
        assert found.quota_cores == 0.2
        assert found.usable_cores == 0.2
        assert meter.read() is None
        assert meter.read() == 0.0
        child.stdin.close()
        started.ready(child)
        shares: list[float] = []

        def held_back() -> bool:
            share = meter.read()
            shares.append(share)
            return share > 50.0

        wait_until(held_back)
        assert max(shares) <= 100.0


def counted(folder: Path, periods: int, throttled: int) -> None:
    (folder / "cpu.stat").write_text(f"nr_periods {periods}\nnr_throttled {throttled}\n")


def test_the_throttled_share_is_that_since_the_last_read(fake: FakeProc, tmp_path: Path) -> None:
    """Nothing at first; then the share of new periods; 0 when there were none. A folder made again
    counts from zero, of which nothing can be said once; one that is removed is no error. A parent
    with a tighter quota is what holds the job back."""
    folder = quota_v2(tmp_path, fake, "800000 100000\n")
    (folder.parent / "cpu.max").write_text("200000 100000\n")
    counted(folder, 10, 10)
    meter = ThrottleMeter(42, fake.root)
    shares = []
    for periods, throttled in (
        (1000, 900), (1010, 904), (1010, 904), (1020, 914), (10, 5), (20, 10),
    ):  # fmt: skip
        counted(folder.parent, periods, throttled)
        shares.append(meter.read())
    assert shares == [None, 40.0, 0.0, 100.0, None, 50.0]
    (folder.parent / "cpu.stat").unlink()
    assert ThrottleMeter(42, fake.root).read() is None


def test_without_a_quota_there_is_no_share_and_one_set_later_is_found(
    fake: FakeProc, tmp_path: Path
) -> None:
    """``docker update`` and ``systemctl set-property`` change quotas while a job runs."""
    folder = quota_v2(tmp_path, fake, "max 100000\n")
    counted(folder, 10, 1)
    meter = ThrottleMeter(42, fake.root)
    assert meter.read() is None
    (folder / "cpu.max").write_text("100000 100000\n")
    assert meter.read() is None
    meter.search()
    assert [meter.read(), meter.read()] == [None, 0.0]


def test_the_pressure_is_that_of_the_jobs_own_cgroup(fake: FakeProc, tmp_path: Path) -> None:
    """The share of the time since the read before; unknown at first and without such a file."""
    folder = quota_v2(tmp_path, fake, "max 100000\n")
    (folder / "io.pressure").write_text("some avg10=0.00 total=1000000\nfull total=7\n")
    meter = PressureMeter(42, fake.root)
    assert set(meter.read(10.0)) == {None}
    (folder / "io.pressure").write_text("some avg10=0.00 total=1500000\nfull total=7\n")
    assert meter.read(11.0) == (None, 50.0, None)


@pytest.mark.parametrize(
    ("text", "cores"), [("24", 24), ("0", None), ("many", None), ("9" * 5000, None), ("", None)]
)
def test_slurms_allocation_is_that_of_this_machine(text: str, cores: int | None) -> None:
    """Slurm sets it on each machine; nonsense is no allocation."""
    assert slurm_cores({"SLURM_CPUS_ON_NODE": text}) == cores


@pytest.mark.parametrize(
    ("allowed", "nodes"),
    [({0, 3}, (0,)), ({9}, (1,)), (set(range(16)), (0, 1)), ({99}, None), (None, None)],
)
def test_nodes_of_cores(
    tmp_path: Path,
    machine: dict[int, set[int]],
    allowed: set[int] | None,
    nodes: tuple[int, ...] | None,
) -> None:
    """A node counts as soon as one of its cores may be used; memory-only nodes and torn files are
    left out, and a machine without NUMA in its kernel has no such folder."""
    if allowed is not None:
        machine[42] = allowed
    for node, text in enumerate(("0-7\n", "8-15\n", "\n", "x")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(text)
    (tmp_path / "node4").mkdir()
    assert read_nodes(42, nodes=tmp_path) == nodes
    assert read_nodes(42, nodes=tmp_path / "nothing") is None
