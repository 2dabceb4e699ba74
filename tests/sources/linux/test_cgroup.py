"""CPU quotas, containers and Slurm jobs, from literal cgroup texts."""

from pathlib import Path

import pytest

from gpuwatch.sources.linux import cgroup

ID = "0123456789abcdef" * 4
INNER = "fedcba9876543210" * 4
POD = "8d5c0f3e-1f2b-4a6d-9c3e-7b1a2c3d4e5f"
POD_IN_SLICE = POD.replace("-", "_")

UNDER_USER = "user.slice/user-1000.slice/user@1000.service/user.slice"
CONTAINERS = {
    "docker with systemd": f"0::/system.slice/docker-{ID}.scope",
    "docker with cgroupfs": f"0::/docker/{ID}",
    "docker v1": f"4:cpu,cpuacct:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/",
    "docker rootless": f"0::/{UNDER_USER}/docker-{ID}.scope",
    "docker seen from another namespace": f"0::/../{ID}",
    "a folder made inside the container": f"0::/system.slice/docker-{ID}.scope/init.scope",
    "docker in docker names the inner": f"0::/docker/{INNER}/docker/{ID}",
    "kubernetes, containerd, systemd": f"0::/kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{POD_IN_SLICE}.slice/cri-containerd-{ID}.scope",
    "kubernetes, containerd, cgroupfs": f"0::/kubepods/besteffort/pod{POD}/{ID}",
    "kubernetes v1, cgroupfs": f"5:cpu,cpuacct:/kubepods/burstable/pod{POD}/{ID}",
    "kubernetes, colons in the folder": f"0::/system.slice/containerd.service/"
    f"kubepods-pod{POD_IN_SLICE}.slice:cri-containerd:{ID}",
    "kubernetes, cri-o": f"0::/kubepods.slice/kubepods-pod{POD_IN_SLICE}.slice/"
    f"crio-{ID}.scope/container",
    "podman": f"0::/machine.slice/libpod-{ID}.scope/container",
    "podman rootless": f"0::/{UNDER_USER}/libpod-{ID}.scope",
    "podman cgroupfs": f"0::/libpod_parent/libpod-{ID}",
    "nerdctl": f"0::/system.slice/nerdctl-{ID}.scope",
    "containerd's default namespace": f"0::/default/{ID}",
}
"""Folders of the container ``ID``."""
SLURM_JOBS = {
    "v2": "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0",
    "v2, several daemons a node": "0::/system.slice/node07_slurmstepd.scope/job_4711/step_batch",
    "v1": "5:memory:/slurm/uid_1000/job_4711/step_0/task_0\n1:name=systemd:/system.slice",
    "v1 with the node's name": "4:cpuset:/slurm_node07/uid_1000/job_4711/step_extern",
}
NEITHER = {
    "bare machine": "0::/user.slice/user-1000.slice/session-3.scope",
    "namespace root": "0::/",
    "podman's monitor is outside": f"0::/machine.slice/libpod-conmon-{ID}.scope",
    "cri-o's monitor is outside": f"0::/system.slice/crio-conmon-{ID}.scope",
    "a folder called job_ that is not Slurm's": "0::/batch.slice/job_4711",
    "64 digits inside a longer word": f"0::/cache-{ID}ff",
    "no cgroup at all": "",
}
MEMBERSHIPS: dict[str, tuple[str, str | None, str | None]] = {
    **{case: (text, ID[:12], None) for case, text in CONTAINERS.items()},
    **{f"slurm {case}": (text, None, "4711") for case, text in SLURM_JOBS.items()},
    **{case: (text, None, None) for case, text in NEITHER.items()},
    "a pod without a container": (f"0::/kubepods-pod{POD_IN_SLICE}.slice", POD[:13], None),
    "podman in slurm": (f"{SLURM_JOBS['v2']}/libpod-{ID}.scope", ID[:12], "4711"),
}


@pytest.mark.parametrize("case", MEMBERSHIPS)
def test_container_and_job_are_named_as_their_own_tools_print_them(case: str) -> None:
    """Each engine's and cgroup driver's layout gives the short container id and the job."""
    text, container, slurm_job = MEMBERSHIPS[case]
    assert cgroup.parse_membership(f"{text}\n") == (container, slurm_job)


def test_this_process_can_ask_for_its_own_membership() -> None:
    """The real file is read without an error, and a process that is not there gives nothing."""
    assert len(cgroup.read_membership(1)) == 2
    assert cgroup.read_membership(2**22 + 1) == (None, None)


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("50000 100000\n", 0.5),
        ("150000\n", 1.5),
        ("", None),
        ("100 0", None),
    ],
)
def test_cpu_max_is_quota_over_period(tmp_path: Path, text: str, cores: float | None) -> None:
    """The v2 file gives cores, and ``max`` no quota."""
    (tmp_path / "cpu.max").write_text(text)
    assert cgroup.folder_quota(tmp_path) == cores


class Machine:
    """A /proc and cgroup mounts in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        (self.proc / "self").mkdir(parents=True)
        self._mounts: list[str] = ["22 1 8:1 / / rw - ext4 /dev/sda1 rw"]

    def cgroup(self, text: str) -> None:
        (self.proc / "self" / "cgroup").write_text(text)

    def mount(
        self, name: str, *, root: str = "/", kind: str = "cgroup2", options: str = "rw"
    ) -> Path:
        point = self.root / name
        point.mkdir(parents=True, exist_ok=True)
        shown = str(point).replace(" ", "\\040")
        self._mounts.append(
            f"30 22 0:26 {root} {shown} rw,nosuid shared:4 - {kind} {kind} {options}"
        )
        return point

    def set_quota(self, folder: str, text: str) -> None:
        """``quota period`` of v2, ``quota/period`` of v1."""
        path = self.root / folder
        path.mkdir(parents=True, exist_ok=True)
        quota, slash, period = text.partition("/")
        if not slash:
            (path / "cpu.max").write_text(f"{text}\n")
            return
        (path / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (path / "cpu.cfs_period_us").write_text(f"{period}\n")

    def quota(self) -> float | None:
        (self.proc / "self" / "mountinfo").write_text("\n".join(self._mounts) + "\n")
        return cgroup.read_quota_cores(proc=self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "a machine")


V1 = {"kind": "cgroup", "options": "rw,cpu,cpuacct"}
QUOTAS: dict[str, tuple[dict[str, dict[str, str]], dict[str, str], str, float | None]] = {
    # name: (mounts with their options, quota of each folder, /proc/self/cgroup, cores)
    "v2: a parent binds even where the own folder allows more": (
        {"cgroup": {}}, {"cgroup/jobs": "300000 100000", "cgroup/jobs/own": "800000 100000"},
        "0::/jobs/own", 3.0),
    "v2: max is no quota": ({"cgroup": {}}, {"cgroup/jobs": "max 100000"}, "0::/jobs", None),
    "v2: a sibling does not bind": (
        {"cgroup": {}}, {"cgroup/other": "10000 100000"}, "0::/mine", None),
    "v2 in a container: the mount's top is its own folder": (
        {"cgroup": {}}, {"cgroup": "250000 100000"}, "0::/", 2.5),
    "v2: text that is not understood does not stop the others": (
        {"cgroup": {}}, {"cgroup/a/b": "what", "cgroup/a": "100000 100000"}, "0::/a/b", 1.0),
    "v2: a process outside the namespace's root": (
        {"cgroup": {}}, {"cgroup": "100000 100000"}, "0::/../elsewhere", None),
    "v2: a mount made outside the namespace counts from its top": (
        {"cgroup": {"root": "/../.."}}, {"cgroup": "700000 100000"}, "0::/", 7.0),
    "v1: the mount that has the cpu controller": (
        {"memory": {"kind": "cgroup", "options": "rw,memory"}, "cpu": V1},
        {"memory/jobs": "1000/100000", "cpu/jobs": "600000/100000"},
        "5:memory:/jobs\n4:cpu,cpuacct:/jobs", 6.0),
    "v1 in docker: the mount shows only the container's folder": (
        {"cpu": {"root": f"/docker/{ID}", **V1}}, {"cpu": "150000/100000", "cpu/sub": "-1/100000"},
        f"4:cpu,cpuacct:/docker/{ID}/sub", 1.5),
    "hybrid: v2 without a cpu controller does not hide v1": (
        {"unified": {}, "cpu": V1}, {"cpu/jobs": "200000/100000"}, "1:cpu:/jobs\n0::/jobs", 2.0),
}  # fmt: skip


@pytest.mark.parametrize("case", QUOTAS)
def test_the_tightest_quota_on_the_way_to_the_root_counts(machine: Machine, case: str) -> None:
    """Of both versions, in and outside of containers."""
    mounts, quotas, text, cores = QUOTAS[case]
    for name, options in mounts.items():
        machine.mount(name, **options)
    for folder, quota in quotas.items():
        machine.set_quota(folder, quota)
    machine.cgroup(f"{text}\n")
    assert machine.quota() == cores


IN_POD = f"kubepods-burstable-pod{POD_IN_SLICE}.slice"
PODS = {
    "systemd driver": (f"0::/kubepods.slice/{IN_POD}/cri-containerd-{ID}.scope\n", POD),
    "cgroupfs driver": (f"0::/kubepods/besteffort/pod{POD}/{ID}\n", POD),
    "colons in the folder": (f"0::/system.slice/{IN_POD}:cri-containerd:{ID}\n", POD),
    "static pod": (f"0::/kubepods/pod{ID[:32]}/{ID}\n", ID[:32]),
    "the pod's own folder": (f"4:cpu:/kubepods/pod{POD}\n0::/\n", POD),
    "docker": (f"0::/docker/{ID}\n", None),
    "a podman pod": (f"0::/machine.slice/libpod_pod_{ID}.slice/libpod-{INNER}.scope\n", None),
    "inside": ("0::/\n", None),
}


@pytest.mark.parametrize("case", PODS)
def test_a_pods_uid_is_given_as_kubernetes_writes_it(case: str) -> None:
    """Either driver's folder gives the uid with dashes; other containers give none."""
    text, uid = PODS[case]
    assert cgroup.parse_pod_uid(text) == uid


def process_in(machine: Machine, pid: int, text: str) -> None:
    folder = machine.proc / str(pid)
    folder.mkdir()
    (folder / "cgroup").write_text(text)
    machine.cgroup("0::/gpuwatch.scope\n")
    machine.quota()


def test_another_process_is_bound_by_the_quotas_on_its_own_path(machine: Machine) -> None:
    """v2, from the host: the folder of the container a process is in, not that of gpuwatch."""
    container = machine.mount("cgroup") / "system.slice" / f"docker-{ID}.scope"
    machine.set_quota(f"cgroup/system.slice/docker-{ID}.scope", "150000 100000")
    machine.set_quota("cgroup/system.slice", "800000 100000")
    machine.set_quota("cgroup/gpuwatch.scope", "10000 100000")
    process_in(machine, 42, f"0::/system.slice/docker-{ID}.scope\n")
    assert cgroup.read_tightest_quota(42, machine.proc) == (container, 1.5)
    assert cgroup.read_quota_cores(proc=machine.proc) == 0.1


def test_a_neighbour_container_is_not_bound_by_what_this_containers_mount_shows(
    machine: Machine,
) -> None:
    """v1 without a cgroup namespace: the mount's root is this container's folder alone."""
    machine.mount("cpu", root=f"/docker/{ID}", kind="cgroup", options="rw,cpu")
    machine.set_quota("cpu", "50000/100000")
    process_in(machine, 42, f"4:cpu:/docker/{INNER}\n")
    assert cgroup.read_tightest_quota(42, machine.proc) is None


def test_a_process_outside_our_mounts_is_looked_up_through_its_own(machine: Machine) -> None:
    """gpuwatch in a container with the host's PIDs: the neighbour's mounts, below its root."""
    machine.mount("cgroup")
    machine.set_quota("cgroup", "50000 100000")
    process_in(machine, 42, "0::/../neighbour/train\n")
    theirs = machine.proc / "42" / "root" / "sys" / "fs" / "cgroup"
    its_root = "proc/42/root"
    machine.set_quota(f"{its_root}/sys/fs/cgroup", "300000 100000")
    machine.set_quota(f"{its_root}/sys/fs/cgroup/train", "max 100000")
    (machine.proc / "42" / "mountinfo").write_text(
        "30 22 0:26 /../neighbour /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
    )
    assert cgroup.read_tightest_quota(42, machine.proc) == (theirs, 3.0)


def test_a_mount_below_the_namespace_of_an_outer_process_does_not_bind_it(machine: Machine) -> None:
    """A mount one level above us does not hold a process that is two levels above."""
    machine.mount("cgroup", root="/..")
    machine.set_quota("cgroup", "100000 100000")
    process_in(machine, 42, "0::/../../elsewhere\n")
    assert cgroup.read_tightest_quota(42, machine.proc) is None


def test_a_process_that_is_gone_has_no_quota(machine: Machine, tmp_path: Path) -> None:
    """No cgroup file, no quota, no error; nor where there are none at all (a sandbox)."""
    machine.mount("cgroup")
    machine.quota()
    assert cgroup.read_tightest_quota(42, machine.proc) is None
    assert cgroup.read_quota_cores(proc=tmp_path) is None


@pytest.mark.parametrize(
    ("text", "periods"),
    [
        (b"nr_periods 120\nnr_throttled 30\nthrottled_time 99\n", (120, 30)),
        (
            (
                b"usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 0\nnr_throttled 0\n"
                b"throttled_usec 0\nnr_bursts 0\nburst_usec 0\n"
            ),
            (0, 0),
        ),
        (b"usage_usec 5\nuser_usec 3\nsystem_usec 2\n", None),
        (b"", None),
    ],
    ids=["v1", "v2", "v2 without the cpu controller", "empty"],
)
def test_periods_are_read_from_either_version(text: bytes, periods: tuple[int, int] | None) -> None:
    """``cpu.stat`` of both versions has the same two lines, or none of them."""
    assert cgroup.parse_periods(text) == periods
