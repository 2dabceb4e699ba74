"""Kinds of programs by their command line: launcher, shell, Python program, ..."""

import re
from typing import Literal, NamedTuple

Kind = Literal["launcher", "wrapper", "shell", "boundary", "gpuwatch", "python", "other"]
"""``launcher`` starts ranks; ``wrapper`` starts one program and waits for it; ``boundary`` runs
things that have nothing to do with each other (init, sshd, a terminal, a Jupyter server)."""


def words(text: str) -> frozenset[str]:
    """Return a set of names, written as lines of words."""
    return frozenset(text.split())


LAUNCHERS = words(
    """
    torchrun accelerate deepspeed colossalai composer horovodrun mpirun mpiexec mpiexec.hydra
    orterun prterun orted prted hydra_pmi_proxy srun jsrun
    """
)
LAUNCHER_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "torch.distributed.elastic.multiprocessing": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "accelerate": "accelerate",
    "colossalai": "colossalai",
    "composer.cli.launcher": "composer",
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed.launcher.launch": "deepspeed",
    "horovod.runner": "horovodrun",
    "horovod.runner.launch": "horovodrun",
    "paddle.distributed.launch": "paddle.distributed.launch",
}
ELASTIC_NAME = "pt_elastic"
"""Name that torchrun gives its own main thread from PyTorch 2.5 on (pytorch#128448)."""

RAY_TITLE = "ray::"
"""Every Python process that Ray starts calls itself so: ``ray::Actor.method``, ``ray::function``,
``ray::IDLE`` between two tasks (ray.util, setproctitle)."""
_RAY_AGENTS = words("DashboardAgent RuntimeEnvAgent")

WRAPPERS = words(
    """
    apptainer bwrap catatonit chroot chrt chronic conda cpulimit docker-init doas dumb-init env
    firejail flock gdb ionice mamba micromamba ncu nice nohup nsenter nsys numactl parallel perf
    pixi poetry prlimit py-spy rtkit runuser scalene script setpriv setsid singularity starter
    stdbuf strace su sudo systemd-run taskset time timeout tini unbuffer unshare uv uvx valgrind
    watch xargs
    """
)
SHELLS = words(
    """
    ash bash busybox csh dash elvish fish ksh mksh nu pwsh rbash sh tcsh xonsh yash zsh
    """
)
_SERVICE = "a service that runs other programs"
_BOUNDARIES = {
    "a terminal multiplexer": "abduco dtach screen tmux zellij",
    "a terminal": "alacritty foot ghostty kitty konsole terminator wezterm-gui xterm",
    "a login": "login mosh-server sshd sshd-session",
    "an editor": "code code-server emacs nvim vim zed-editor",
    "a notebook server": "jupyter jupyterhub jupyterlab notebook",
    _SERVICE: """
        airflow atd celery circusd condor_starter conmon containerd cron crond crun dagster dockerd
        gcs_server gnome-terminal- gnome-terminal-server honcho init java kubelet lxc-start node
        pbs_mom podman prefect raylet ray res runc sbatchd sge_shepherd slurmd slurmstepd
        supervisord systemd xinetd
        """,
}
BOUNDARIES = {name: phrase for phrase, names in _BOUNDARIES.items() for name in names.split()}
"""Words that a person has for each."""
_BOUNDARY_PREFIXES = ("containerd-shim", "jupyter-")

PYTHON = re.compile(r"(?:python|pypy)[0-9.]*[dt]*", re.IGNORECASE)
_WITH_VALUE = "WX"

_MULTIPROCESSING = (
    ("multiprocessing.spawn import", "spawn"),
    ("multiprocessing.forkserver import", "forkserver"),
    ("multiprocessing.resource_tracker import", "resource tracker"),
    ("multiprocessing.semaphore_tracker import", "resource tracker"),
    ("loky.backend.resource_tracker import", "resource tracker"),
)
_COMPILERS = words(
    "ptxas ptxas-blackwell cicc nvcc nvlink hipcc cc1 cc1plus gcc g++ clang clang++ ld ninja"
)
_HELPERS = (
    ("torch_shm_manager", "torch_shm_manager, which cleans up shared memory"),
    ("_inductor/compile_worker", "a compile worker of torch.compile"),
    ("torch._inductor.compile_worker", "a compile worker of torch.compile"),
    ("loky.backend.popen_loky_posix", "a worker of joblib"),
    ("wandb-core", "the wandb service"),
    ("wandb-service", "the wandb service"),
    ("gpu_stats", "the wandb service"),
    ("tensorboard", "tensorboard"),
)


def boundary_phrase(*names: str) -> str:
    """Return the words for a boundary that has one of these names."""
    known = [BOUNDARIES[name] for name in names if name in BOUNDARIES]
    return "a notebook server" if names[0].startswith("jupyter-") else [*known, _SERVICE][0]


class Program(NamedTuple):
    """``name`` is what a person calls it (``torchrun``, ``train.py``); ``started_by`` the start
    method of Python's multiprocessing whose command line this is; ``helper`` a phrase that says
    which known helper it is."""

    kind: Kind
    name: str
    started_by: str | None = None
    helper: str | None = None

    @property
    def is_python(self) -> bool:
        return self.kind == "python"


def recognise(arguments: tuple[str, ...], name: str = "", executable: str | None = None) -> Program:
    """Recognise the program of a process with these arguments; ``name`` is the kernel's name of it.
    A program that rewrote its arguments is known by its name or its executable."""
    first = _base(arguments[0]).removeprefix("-") if arguments else name
    if first == "gpuwatch":
        return Program("gpuwatch", first)
    if name == ELASTIC_NAME:
        return Program("launcher", "torchrun")
    if PYTHON.fullmatch(first):
        return _python(arguments, name)
    title = arguments[0] if arguments else name
    is_ray = title.startswith(RAY_TITLE)
    # Titles such as "tmux: server".
    for label, rest in () if is_ray else ((first, arguments[1:]), (name.partition(":")[0], ())):
        if (kind := _kind_of(label, rest)) is not None:
            return Program(kind, label)
    helper = _ray_helper(title.removeprefix(RAY_TITLE)) if is_ray else _helper(first)
    if is_ray or (helper is None and is_python_executable(executable)):
        return Program("python", title if is_ray else first, helper=helper)
    return Program("other", first, helper=helper)


def _ray_helper(title: str) -> str | None:
    if title.startswith("IDLE"):
        return "a process of Ray that has no task"
    return "an agent of Ray" if title in _RAY_AGENTS else None


def is_title(arguments: tuple[str, ...]) -> bool:
    """True if the program put a title of its own in place of its arguments."""
    return len(arguments) == 1 and (" " in arguments[0] or "::" in arguments[0])


def _python(arguments: tuple[str, ...], name: str) -> Program:
    what, value, rest = parse_python(arguments)
    if what == "code":
        started = next((how for text, how in _MULTIPROCESSING if text in value), None)
        if started is None and name in LAUNCHERS:
            return Program("launcher", name)
        return Program("python", f"-c {value[:60]}" if started is None else started, started)
    label = value if what == "module" else _base(value)
    if label in ("gpuwatch", "gpuwatch.commands.cli"):
        return Program("gpuwatch", "gpuwatch")
    if what == "module" and value in LAUNCHER_MODULES:
        launches = value != "accelerate" or rest[:1] == ("launch",)
        return Program("launcher" if launches else "python", LAUNCHER_MODULES[value])
    kind = _kind_of(label if what == "script" else value.partition(".")[0], rest)
    if kind is None and name in LAUNCHERS:
        kind, label = "launcher", name
    if kind is not None and kind != "shell":
        return Program(kind, label)
    return Program("python", label, helper=_helper(value))


def is_restart(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """True if two Python command lines run the same script or module with the same arguments: by
    whatever interpreter, whether the script is named by its full path or not."""
    what, value, rest = parse_python(one)
    other_what, other_value, other_rest = parse_python(other)
    if what == "code" or value == "":
        return False
    return (what, _base(value), rest) == (other_what, _base(other_value), other_rest)


def _kind_of(name: str, rest: tuple[str, ...]) -> Kind | None:
    if name in LAUNCHERS:
        return "launcher" if name != "accelerate" or rest[:1] == ("launch",) else None
    if name in WRAPPERS:
        # A package manager is one only while it runs something.
        managers = ("uv", "conda", "mamba", "micromamba", "pixi", "poetry")
        return "wrapper" if name not in managers or "run" in rest else None
    if name in SHELLS:
        return "shell"
    if name in BOUNDARIES or name.startswith(_BOUNDARY_PREFIXES):
        return "boundary"
    return None


def _helper(program: str) -> str | None:
    if program in _COMPILERS or program.endswith(("-gcc", "-g++")):
        return "a compiler"
    return next((phrase for text, phrase in _HELPERS if text in program), None)


def parse_python(arguments: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
    """Return (``script``, ``module`` or ``code``; its path, name or text; the arguments after
    it)."""
    index = 1
    while index < len(arguments):
        argument = arguments[index]
        if not argument.startswith("-") or argument == "-":
            return "script", argument, arguments[index + 1 :]
        index += 1
        if argument.startswith("--"):
            index += argument == "--check-hash-based-pycs"
            continue
        for at, letter in enumerate(argument[1:], 2):
            if letter not in f"mc{_WITH_VALUE}":
                continue
            value = argument[at:]
            if not value:
                value = arguments[index] if index < len(arguments) else ""
                index += 1
            if letter in _WITH_VALUE:
                break
            return "module" if letter == "m" else "code", value, arguments[index:]
    return "script", "", ()


def is_python_executable(executable: str | None) -> bool:
    """True for a Python, also one that was replaced while it ran, which the kernel says behind its
    path."""
    name = _base(executable or "").removesuffix(" (deleted)")
    return PYTHON.fullmatch(name) is not None


def _base(path: str) -> str:
    return path.removesuffix(" (deleted)").rpartition("/")[2]
