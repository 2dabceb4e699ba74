"""Where a job runs: real folders, environments and namespaces; literal texts for clusters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.jobs.identity import surroundings
from gpuwatch.jobs.identity.surroundings import read_surroundings
from gpuwatch.jobs.resources.cores import read_cores
from tests.support.children import Children, wait_until
from tests.support.fake_proc import FakeProc

ID = "0123456789abcdef" * 4
UID = "8d5c0f3e-1f2b-4a6d-9c3e-7b1a2c3d4e5f"
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a virtual environment, its interpreter a link to this one's."""
    folder = tmp_path_factory.mktemp("home") / "proj"
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    return folder


def conda_like(prefix: Path) -> Path:
    """A folder like one of conda, with a program of its own that is called python."""
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "bin").mkdir()
    program = prefix / "bin" / "python3.11"
    shutil.copy(shutil.which("sleep") or "sleep", program)
    return program


class Running:
    """Programs that wait, in a folder and under a name of the test's choice."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(self, called: str, *arguments: str, program: Path, cwd: Path | None = None) -> int:
        # A bare name is looked up by Python, too: to find its own library.
        env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        child = subprocess.Popen(
            [called, *arguments], executable=program, cwd=cwd, env=env, stdin=subprocess.PIPE
        )
        self._started.append(child)
        wait_until(lambda: called.encode() in Path(f"/proc/{child.pid}/cmdline").read_bytes())
        return child.pid

    def end(self) -> None:
        for child in self._started:
            child.kill()
            child.communicate()


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.end()


READ = ("-c", "import sys; sys.stdin.read()")


def test_the_working_directory_is_where_the_process_is_now(running: Running, project: Path) -> None:
    """As the kernel has it; not there any more for a process that is gone."""
    pid = running(sys.executable, *READ, program=Path(sys.executable), cwd=project)
    assert read_surroundings(pid, {}).working_directory == str(project)
    assert read_surroundings(2**22 + 1, {}) == surroundings.Surroundings()


def test_a_hostile_folder_name_is_made_safe(running: Running, tmp_path: Path) -> None:
    """Escape sequences in a folder's name reach nobody's terminal."""
    folder = tmp_path / "a\x1b[31mb\udce9"
    folder.mkdir()
    pid = running(sys.executable, *READ, program=Path(sys.executable), cwd=folder)
    found = read_surroundings(pid, {}).working_directory
    assert found is not None
    assert found.isprintable()


def test_a_virtual_environment_is_known_by_the_path_python_was_called_by(
    running: Running, project: Path
) -> None:
    """Its interpreter is a link: the kernel names only the one it leads to. Nothing activated."""
    python = project / ".venv" / "bin" / "python"
    pid = running(str(python), *READ, program=python)
    assert not Path(f"/proc/{pid}/exe").readlink().is_relative_to(project)
    assert read_surroundings(pid, {}).environment == "venv proj"


def test_a_relative_call_is_seen_from_the_folder_of_the_process(
    running: Running, project: Path
) -> None:
    """``.venv/bin/python train.py`` in the project's folder."""
    python = project / ".venv" / "bin" / "python"
    pid = running(".venv/bin/python", *READ, program=python, cwd=project)
    assert read_surroundings(pid, {}).environment == "venv proj"


def test_a_bare_call_is_looked_up_on_the_search_path(running: Running, project: Path) -> None:
    """A container image puts its environment first in PATH and activates nothing."""
    python = project / ".venv" / "bin" / "python"
    pid = running("python", *READ, program=python)
    path = {"PATH": f"/nowhere:{python.parent}:/usr/bin"}
    assert read_surroundings(pid, path).environment == "venv proj"
    after = {"PATH": f"{Path(sys.executable).parent}:{python.parent}"}
    assert read_surroundings(pid, after).environment != "venv proj"


def test_an_activated_environment_gives_its_own_name(running: Running, project: Path) -> None:
    """The prompt that was given to it, as the shell shows it."""
    python = project / ".venv" / "bin" / "python"
    activated = {
        "VIRTUAL_ENV": str(project / ".venv"),
        "VIRTUAL_ENV_PROMPT": "(vision) ",
        "PATH": f"{python.parent}:/usr/bin",
    }
    pid = running("python", *READ, program=python)
    assert read_surroundings(pid, activated).environment == "venv vision"


def test_the_interpreter_that_runs_counts_not_what_is_activated(
    running: Running, tmp_path: Path, project: Path
) -> None:
    """A conda environment's python called by its path in a shell where another is active."""
    program = conda_like(tmp_path / "conda" / "envs" / "ml")
    pid = running(str(program), "600", program=program)
    elsewhere = {"CONDA_PREFIX": "/opt/conda", "CONDA_DEFAULT_ENV": "base"}
    assert read_surroundings(pid, elsewhere).environment == "conda ml"
    other = {"VIRTUAL_ENV": str(project / ".venv")}
    assert read_surroundings(pid, other).environment == "conda ml"


def test_a_system_python_is_in_no_environment_although_one_is_active(
    running: Running, tmp_path: Path
) -> None:
    """``/usr/bin/python3 train.py`` in a shell with conda's base."""
    program = tmp_path / "plain" / "bin" / "python3"
    program.parent.mkdir(parents=True)
    shutil.copy(shutil.which("sleep") or "sleep", program)
    base = {"CONDA_PREFIX": "/opt/conda", "CONDA_DEFAULT_ENV": "base", "PATH": "/opt/conda/bin"}
    pid = running(str(program), "600", program=program)
    assert read_surroundings(pid, base).environment is None


def test_condas_own_environment_is_base(running: Running, tmp_path: Path) -> None:
    """The installation itself has no name but base; one by path has its folder's."""
    program = conda_like(tmp_path / "miniforge")
    (tmp_path / "miniforge" / "condabin").mkdir()
    pid = running(str(program), "600", program=program)
    assert read_surroundings(pid, {}).environment == "conda base"
    other = conda_like(tmp_path / "work" / "cenv")
    pid = running("python", "600", program=other)
    active = {
        "CONDA_PREFIX": str(tmp_path / "work" / "cenv"),
        "CONDA_DEFAULT_ENV": str(tmp_path / "work" / "cenv"),
    }
    assert read_surroundings(pid, active).environment == "conda cenv"


VARIABLES = {
    "conda": ({"CONDA_PREFIX": "/c/envs/ml", "CONDA_DEFAULT_ENV": "ml"}, "conda ml"),
    "venv": ({"VIRTUAL_ENV": "/home/ada/proj/.venv"}, "venv proj"),
    "a venv with a name": ({"VIRTUAL_ENV": "/home/ada/envs/vision"}, "venv vision"),
    "a venv near the root": ({"VIRTUAL_ENV": "/opt/venv"}, "venv /opt/venv"),
    "a venv over conda's base": (
        {
            "VIRTUAL_ENV": "/home/ada/proj/.venv",
            "CONDA_PREFIX": "/c",
            "CONDA_DEFAULT_ENV": "base",
            "PATH": "/home/ada/proj/.venv/bin:/c/bin:/usr/bin",
        },
        "venv proj",
    ),
    "conda over a venv": (
        {
            "VIRTUAL_ENV": "/home/ada/proj/.venv",
            "CONDA_PREFIX": "/c/envs/ml",
            "CONDA_DEFAULT_ENV": "ml",
            "PATH": "/c/envs/ml/bin:/home/ada/proj/.venv/bin:/usr/bin",
        },
        "conda ml",
    ),
    "none": ({"PATH": "/usr/bin"}, None),
    "nonsense": ({"VIRTUAL_ENV": "no path", "CONDA_PREFIX": ""}, None),
}


@pytest.mark.parametrize("case", VARIABLES)
def test_a_launcher_is_in_the_activated_environment(fake: FakeProc, case: str) -> None:
    """mpirun is no Python: what is active, and comes first in PATH, says the environment."""
    environment, expected = VARIABLES[case]
    fake.process(42, name="mpirun", command=b"mpirun\0-n\0" + b"4\0")
    assert read_surroundings(42, environment, fake.root).environment == expected


def test_an_environments_name_cannot_carry_terminal_escapes(fake: FakeProc) -> None:
    """Anybody can write anything into a variable."""
    fake.process(42, name="mpirun", command=b"mpirun\0")
    hostile = {"CONDA_PREFIX": "/c/x", "CONDA_DEFAULT_ENV": "\x1b]0;title\x07" + "n" * 999}
    found = read_surroundings(42, hostile, fake.root).environment
    assert found is not None
    assert found.isprintable()
    assert len(found) < 300


PODS = {
    "by the pod's host name": ("0::/\n", IN_POD | {"HOSTNAME": "train-0"}, "train-0"),
    "the downward API's name first": (
        "0::/\n",
        IN_POD | {"HOSTNAME": "train-0", "POD_NAME": "train-full-name-0"},
        "train-full-name-0",
    ),
    "by uid where its environment is not readable": (f"0::/kubepods/pod{UID}/{ID}\n", {}, UID),
    "the machine's name is not the pod's": (
        f"0::/kubepods/pod{UID}/{ID}\n",
        IN_POD | {"HOSTNAME": "node7"},
        UID,
    ),
    "a host name elsewhere is no pod": (f"0::/docker/{ID}\n", {"HOSTNAME": "box"}, None),
    "nothing": ("0::/\n", {}, None),
}


@pytest.mark.parametrize("case", PODS)
def test_a_pod_is_named_only_where_it_is_one(case: str) -> None:
    """Its name from inside, its uid from outside, on a machine called node7."""
    groups, environment, expected = PODS[case]
    assert surroundings.pod_name(groups, environment, "node7") == expected


def test_container_and_slurm_job_come_from_the_cgroup_or_the_environment(fake: FakeProc) -> None:
    """The cgroup is Slurm's own word; without one the variable serves."""
    fake.process(42, cgroup="0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n")
    fake.process(43, cgroup=f"0::/docker/{ID}\n")
    assert read_surroundings(42, {"SLURM_JOB_ID": "5"}, fake.root).slurm_job == "4711"
    found = read_surroundings(43, {"SLURM_JOB_ID": "5"}, fake.root)
    assert (found.container, found.slurm_job) == (ID[:12], "5")
    assert read_surroundings(43, {}, fake.root).slurm_job is None


def test_the_pid_inside_is_the_innermost(fake: FakeProc) -> None:
    """One number for each namespace; the last is the process's own, the first the reader's."""
    fake.process(42)
    fake.write("42/status", "Name:\tx\nNSpid:\t42\t17\t3\nUid:\t0\t0\t0\t0\n")
    assert read_surroundings(42, {}, fake.root).inner_pid == 3
    fake.write("42/status", "Name:\tx\nNSpid:\t42\nUid:\t0\t0\t0\t0\n")
    assert read_surroundings(42, {}, fake.root).inner_pid is None
    fake.write("42/status", "Name:\tx\nUid:\t0\t0\t0\t0\n")
    assert read_surroundings(42, {}, fake.root).inner_pid is None


def test_a_real_namespaces_first_process_is_known_there_as_1(started: Children) -> None:
    """Started with ``unshare``: another PID here, 1 inside."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("needs to make namespaces")
    outer = started.run(
        [
            unshare,
            "--pid",
            "--fork",
            sys.executable,
            "-S",
            "-c",
            "import sys; print(flush=True); sys.stdin.read()",
        ]
    )
    started.ready(outer)
    listed = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    if outer.poll() is not None or not listed.exists():
        pytest.skip("may not make namespaces here")
    pid = int(listed.read_text().split()[0])
    assert read_surroundings(pid, {}).inner_pid == 1
    assert read_surroundings(outer.pid, {}).inner_pid is None


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
    assert asked <= surroundings.ENVIRONMENT_NAMES
