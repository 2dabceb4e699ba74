"""Where a job runs: folder, Python environment, container, pod, Slurm job."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from gpuwatch.jobs.cores import read_cores
from gpuwatch.jobs.identity import surroundings
from gpuwatch.jobs.identity.process_facts import ENVIRONMENT_NAMES, read_inner_pid
from gpuwatch.jobs.identity.surroundings import read_surroundings
from tests.support.children import Children, children_of
from tests.support.fake_proc import FakeProc

ID = "0123456789abcdef" * 4
UID = "8d5c0f3e-1f2b-4a6d-9c3e-7b1a2c3d4e5f"
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
SYSTEM = "/usr/bin/python3.11"
VENV = "/home/ada/proj/.venv"
BASE = {"CONDA_PREFIX": "/opt/conda", "PATH": "/opt/conda/bin"}


def running(
    fake: FakeProc, called: str, executable: str, cwd: str = "/", files: tuple[str, ...] = ()
) -> int:
    """A process of that name and executable, in whose root these files are."""
    fake.process(42, command=called.encode() + b"\0train.py\0")
    root = fake.root.parent / "root"
    for file in files:
        (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / file[1:]).touch()
    root.mkdir(exist_ok=True)
    for name, target in (("exe", executable), ("cwd", cwd), ("root", str(root))):
        (fake.root / "42" / name).symlink_to(target)
    return 42


def test_a_real_process_is_in_its_folder_and_environment(started: Children, tmp_path: Path) -> None:
    """As the kernel has them; nothing is known of a process that is gone."""
    folder = tmp_path / "a\x1b[31mb\udce9"
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "pyvenv.cfg").touch()
    python = folder / ".venv" / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    code = f"import os; os.chdir({str(folder)!r}); print(flush=True); input()"
    child = started.run([str(python), "-S", "-c", code])
    started.ready(child)
    found = read_surroundings(child.pid, {})
    assert found.working_directory == re.sub("[\x1b\udce9]", "\ufffd", str(folder))
    assert found.environment.startswith("venv a")
    assert found.environment.isprintable()
    assert read_surroundings(2**22 + 1, {}) == surroundings.Surroundings()


IN_VENV = (f"{VENV}/pyvenv.cfg", f"{VENV}/bin/python")
CONDA = "/c/envs/ml/bin/python3.11"
PYTHONS = {
    "called by its path: a link to another": (f"{VENV}/bin/python", SYSTEM, "/", {}, "venv proj"),
    "called from its folder": (".venv/bin/python", SYSTEM, "/home/ada/proj", {}, "venv proj"),
    "found on PATH, as in a container": (
        "python", SYSTEM, "/", {"PATH": f"/nowhere:{VENV}/bin:/usr/bin"}, "venv proj",
    ),
    "replaced while it runs": (
        "python", f"{SYSTEM} (deleted)", "/", {"PATH": f"{VENV}/bin"}, "venv proj",
    ),
    "another is first on PATH": (
        "python", SYSTEM, "/", {"PATH": f"/usr/bin:{VENV}/bin"}, None,
    ),
    "activated": ("python", SYSTEM, "/", {"VIRTUAL_ENV": VENV, "PATH": f"{VENV}/bin"}, "venv proj"),
    "conda's, while base is active": (CONDA, CONDA, "/", BASE, "conda ml"),
    "conda's, while a venv is active": (CONDA, CONDA, "/", {"VIRTUAL_ENV": VENV}, "conda ml"),
    "the system's, while conda's base is active": ("/usr/bin/python3", SYSTEM, "/", BASE, None),
    "conda's own": ("/c/bin/python3", "/c/bin/python3.11", "/", {}, "conda base"),
    "conda's by a path": (
        "python", "/data/cenv/bin/python3", "/",
        {"CONDA_PREFIX": "/data/cenv"},
        "conda cenv",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PYTHONS)
def test_the_interpreter_that_runs_says_the_environment(fake: FakeProc, case: str) -> None:
    """Not what is activated; the variables count where they fit it."""
    called, executable, cwd, environment, expected = PYTHONS[case]
    meta = ("/c/envs/ml/conda-meta/history", "/c/conda-meta/history", "/c/condabin/conda")
    files = (*IN_VENV, *meta, "/usr/bin/python")
    pid = running(fake, called, executable, cwd, files)
    assert read_surroundings(pid, environment, fake.root).environment == expected


ML = {"CONDA_PREFIX": "/c/envs/ml"}
OVER_CONDA = ML | {"VIRTUAL_ENV": VENV}
HOSTILE = {"CONDA_PREFIX": "/c/\x1b]0;" + "n" * 999}
ACTIVE = {
    "conda": (ML, "conda ml"),
    "venv": ({"VIRTUAL_ENV": VENV}, "venv proj"),
    "a venv with a name": ({"VIRTUAL_ENV": "/home/ada/envs/vision"}, "venv vision"),
    "a venv near the root": ({"VIRTUAL_ENV": "/opt/venv"}, "venv /opt/venv"),
    "a venv over conda": (OVER_CONDA | {"PATH": f"{VENV}/bin:/c/envs/ml/bin"}, "venv proj"),
    "conda over a venv": (OVER_CONDA | {"PATH": f"/c/envs/ml/bin:{VENV}/bin"}, "conda ml"),
    "none": ({"PATH": "/usr/bin"}, None),
    "nonsense": ({"VIRTUAL_ENV": "no path", "CONDA_PREFIX": ""}, None),
    "hostile": (HOSTILE, "conda \ufffd]0;" + "n" * 248 + "…"),
}


@pytest.mark.parametrize("case", ACTIVE)
def test_a_launcher_is_in_the_activated_environment(fake: FakeProc, case: str) -> None:
    """mpirun is no Python: what is active, and comes first in PATH, says the environment."""
    environment, expected = ACTIVE[case]
    fake.process(42, name="mpirun", command=b"mpirun\0-n\0" + b"4\0")
    assert read_surroundings(42, environment, fake.root).environment == expected


LOGGED = "0b31a2f4-1111-4222-8333-0123456789ab"
OF_POD = f"0::/kubepods/pod{UID}/{ID}\n"
NAMED = IN_POD | {"HOSTNAME": "train-0", "POD_NAME": "train-full-name-0"}
PODS = {
    "by the pod's host name": ("0::/\n", IN_POD | {"HOSTNAME": "train-0"}, "train-0"),
    "the downward API's name first": ("0::/\n", NAMED, "train-full-name-0"),
    "by uid where its environment is not readable": (OF_POD, {}, UID),
    "the machine's name is not the pod's": (OF_POD, IN_POD | {"HOSTNAME": "node7"}, UID),
    "a host name elsewhere is no pod": (f"0::/docker/{ID}\n", {"HOSTNAME": "box"}, None),
    "with the namespace of the downward API": (
        OF_POD, NAMED | {"POD_NAMESPACE": "ml"}, "ml/train-full-name-0",
    ),
    "by the kubelet's folders first": (
        f"0::/kubepods.slice/kubepods-pod{LOGGED.replace('-', '_')}.slice/crio-{ID}.scope\n",
        NAMED, "team-a/train-7f9c",
    ),
    "nothing": ("0::/\n", {}, None),
}  # fmt: skip


@pytest.mark.parametrize("case", PODS)
def test_a_pod_is_named_only_where_it_is_one(case: str, tmp_path: Path) -> None:
    """Its name from inside, from outside those that the kubelet's folders have, or its uid, on a
    machine called node7."""
    for name in (f"team-a_train-7f9c_{LOGGED}", "kube-system_proxy_0f", "stray"):
        (tmp_path / name).mkdir()
    groups, environment, expected = PODS[case]
    assert surroundings.pod_name(groups, environment, "node7", tmp_path) == expected


def test_container_and_slurm_job_come_from_the_cgroup_or_the_environment(fake: FakeProc) -> None:
    """The cgroup is Slurm's own word; without one the variable serves."""
    fake.process(42, cgroup="0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n")
    fake.process(43, cgroup=f"0::/docker/{ID}\n")
    for pid, job, container, slurm_job in (
        (42, {"SLURM_JOB_ID": "5"}, None, "4711"), (43, {"SLURM_JOB_ID": "5"}, ID[:12], "5"),
        (43, {}, ID[:12], None),
    ):  # fmt: skip
        found = read_surroundings(pid, job, fake.root)
        assert (found.container, found.slurm_job) == (container, slurm_job)


def test_ranks_met_at_the_address_in_their_environment(fake: FakeProc) -> None:
    """All ranks of a job have the same one, on whichever machine; half of it is none."""
    fake.process(42)
    met = {"MASTER_ADDR": "node1\x1b[1m", "MASTER_PORT": "29500"}
    assert read_surroundings(42, met, fake.root).rendezvous == "node1\ufffd[1m:29500"
    assert read_surroundings(42, {"MASTER_ADDR": "node1"}, fake.root).rendezvous is None


@pytest.mark.parametrize(
    ("numbers", "inner"), [("NSpid:\t42\t17\t3\n", 3), ("NSpid:\t42\n", None), ("", None)]
)
def test_the_pid_inside_is_the_innermost(fake: FakeProc, numbers: str, inner: int | None) -> None:
    """One number for each namespace; the last is the process's own, the first the reader's."""
    fake.process(42)
    fake.write("42/status", f"Name:\tx\n{numbers}Uid:\t0\t0\t0\t0\n")
    assert read_inner_pid(42, fake.root) == inner


def test_a_real_namespaces_first_process_is_known_there_as_1(started: Children) -> None:
    """Started with ``unshare``: another PID here, 1 inside."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("needs to make namespaces")
    code = "import sys; print(flush=True); sys.stdin.read()"
    outer = started.run([unshare, "--pid", "--fork", sys.executable, "-S", "-c", code])
    started.ready(outer)
    inner = [*children_of(outer.pid)]
    if not inner:
        pytest.skip("may not make namespaces here")
    assert read_inner_pid(inner[0]) == 1
    assert read_inner_pid(outer.pid) is None


def test_only_listed_variables_are_needed() -> None:
    """Whoever keeps just the listed names loses nothing: every name used is in the list."""
    asked: set[str] = set()

    class Environment(dict[str, str]):
        def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
            asked.add(name)
            return super().get(name, default)

    for environment in (Environment(), Environment(IN_POD)):
        read_surroundings(os.getpid(), environment)
        read_cores(os.getpid(), environment)
    assert {"PATH", "HOSTNAME", "SLURM_CPUS_ON_NODE", "SLURM_JOB_ID"} <= asked
    assert asked <= ENVIRONMENT_NAMES
