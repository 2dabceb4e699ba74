"""Find where a job runs (folder, container, pod, Slurm job, Python environment), and what it does
other than train from a loader: servers, and environments of reinforcement learning.
"""

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.jobs.identity.process_facts import ProcessFacts, read_link
from gpuwatch.jobs.identity.programs import is_python_executable, words
from gpuwatch.sources.linux import cgroup, procfs

POD_LOGS = Path("/var/log/pods")
"""Where the kubelet keeps logs, in a folder ``NAMESPACE_POD_UID`` for each pod."""
NAME_LENGTH = 253
"""As long as a Kubernetes name can be."""

_COMMON_FOLDERS = frozenset({"venv", ".venv", "env", ".env", "virtualenv", ".virtualenv"})
"""Names that say nothing: the folder they are in says which project's it is."""


class Surroundings(NamedTuple):
    """Text from outside, through ``text.clean``; ``None`` where there is none or no right to it."""

    working_directory: str | None = None
    container: str | None = None
    pod: str | None = None
    """``NAMESPACE/NAME``, ``NAME``, or its uid: as much as is known."""
    slurm_job: str | None = None
    environment: str | None = None
    """``conda ml``, ``venv proj``."""
    rendezvous: str | None = None


def read_surroundings(
    pid: int, environment: Mapping[str, str], proc: Path = procfs.PROC
) -> Surroundings:
    """Read where the process ``pid`` runs. What cannot be read is ``None``; never raises.
    ``environment``: see ``process_facts.read_environment``."""
    folder = read_link(pid, "cwd", proc)
    groups = os.fsdecode(procfs.read_if_possible(f"{proc}/{pid}/cgroup"))
    membership = cgroup.parse_membership(groups)
    # Under a plain process tracker no cgroup says it.
    job = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    met, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    return Surroundings(
        working_directory=None if folder is None else clean(folder),
        container=membership.container,
        pod=pod_name(groups, environment, os.uname().nodename),
        slurm_job=membership.slurm_job or (clean(job, 64) if job else None),
        environment=_python_environment(pid, environment, membership.container, proc),
        rendezvous=clean(f"{met}:{port}", NAME_LENGTH) if met and port else None,
    )


def pod_name(
    groups: str, environment: Mapping[str, str], host: str, logs: Path = POD_LOGS
) -> str | None:
    """Return the Kubernetes pod: its names as the kubelet writes them, its name, as pods have it
    for host name, or its uid.

    ``groups`` is the text of ``/proc/PID/cgroup``. Every pod knows where the API server is,
    so without that variable a host name is just a host name. A pod in the host's network has
    the machine's name instead of its own.
    """
    uid = cgroup.parse_pod_uid(groups)
    if uid is not None and (names := _names_of_pod(uid, logs)):
        return names
    if environment.get("KUBERNETES_SERVICE_HOST"):
        named = environment.get("POD_NAME")
        name = named or environment.get("HOSTNAME")
        if name and (named or uid is None or name != host):
            namespace = environment.get("POD_NAMESPACE")
            name = f"{namespace}/{name}" if namespace else name
            return clean(name, 2 * NAME_LENGTH)
    return uid


@functools.lru_cache(maxsize=256)
def _names_of_pod(uid: str, logs: Path) -> str | None:
    """Return ``NAMESPACE/NAME``. The folder is there before the pod's first process is."""
    try:
        folders = os.listdir(logs)  # noqa: PTH208 - thousands of names, no paths
    except OSError:
        return None
    found = [folder.split("_") for folder in folders if folder.endswith(f"_{uid}")]
    named = next((parts for parts in found if len(parts) == 3), None)
    return None if named is None else clean("/".join(named[:2]), 2 * NAME_LENGTH)


def _python_environment(
    pid: int, environment: Mapping[str, str], container: str | None, proc: Path
) -> str | None:
    """Return ``conda ml`` or ``venv proj``; ``None`` for a Python in neither, or if unknown."""
    root = f"{proc}/{pid}/root"
    if not os.access(root, os.X_OK):
        root = "" if container is None else "/nowhere"
    active = {
        kind: environment.get(variable, "")
        for kind, variable in (("venv", "VIRTUAL_ENV"), ("conda", "CONDA_PREFIX"))
    }

    def exists(place: str) -> bool:
        # The process's own file system can be another.
        return os.path.exists(root + place)  # noqa: PTH110

    for prefix in _prefixes(pid, environment, [*active.values()], exists, proc):
        kind = next((kind for kind, one in active.items() if one == prefix), None)
        if kind is None and exists(f"{prefix}/pyvenv.cfg"):
            kind = "venv"
        elif kind is None and exists(f"{prefix}/conda-meta"):
            kind = "conda"
        if kind is not None:
            above, _, name = prefix.rpartition("/")
            if name in _COMMON_FOLDERS:
                # "opt" of /opt/venv would say nothing either.
                name = above.rpartition("/")[2] if above.count("/") > 1 else prefix
            is_base = kind == "conda" and exists(f"{prefix}/condabin")
            return f"{kind} {'base' if is_base else clean(name, NAME_LENGTH)}"
    return None


def _prefixes(
    pid: int,
    environment: Mapping[str, str],
    active: Iterable[str],
    exists: Callable[[str], bool],
    proc: Path,
) -> list[str]:
    """Return the folders that can be its environment, the likeliest first.

    Which interpreter runs decides; what is ``active`` counts only where the process is no Python (a
    launcher). The interpreter of a virtual environment is a link to another, so the path it was
    called by counts before the one the kernel resolved.
    """
    called = os.fsdecode(procfs.read_if_possible(f"{proc}/{pid}/cmdline", 4096).split(b"\0")[0])
    executable = read_link(pid, "exe", proc)
    path = [folder.rstrip("/") for folder in environment.get("PATH", "").split(":")]
    binaries = {f"{one}/bin": one for one in active if one.startswith("/")}
    if not is_python_executable(executable or called):
        first = [binaries[folder] for folder in path if folder in binaries]
        return [*first, *binaries.values()]
    found: str | None = called
    if "/" not in called:
        # The first on the search path is the one that runs; an active one need not be asked for.
        places = {f"{folder}/{called}": folder for folder in path if folder.startswith("/")}
        found = next((one for one, at in places.items() if at in binaries or exists(one)), None)
    elif not called.startswith("/"):
        found = f"{read_link(pid, 'cwd', proc) or ''}/{called}"
    interpreters = [os.path.normpath(one) for one in (found, executable) if one]
    # PREFIX/bin/python
    return [one.rsplit("/", 2)[0] for one in interpreters if one.count("/") > 1]


def visible_gpus(environment: Mapping[str, str] | None) -> int | None:
    """Count what ``CUDA_VISIBLE_DEVICES`` names; CUDA sees those before the first that is none."""
    named = None if environment is None else environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return None
    is_device = re.compile(r"\d+|(GPU|MIG)-[\w/-]+").fullmatch
    devices = [one.strip() for one in named.split(",")]
    return len(list(takewhile(is_device, devices)))


# Jobs that do not train from a loader

_SERVERS = words(
    """
    gunicorn hypercorn lmdeploy llama-server mlserver ollama ray::servereplica sglang streamlit
    text-embeddings-router text-generation-launcher text-generation-server torchserve tritonserver
    uvicorn vllm
    """
)
_LISTENS = b"0A"
"""``TCP_LISTEN`` in ``/proc/net/tcp``."""
_FIRST_EPHEMERAL = 32768
"""From here on the kernel hands out ports, on which collectives of training jobs listen."""
LISTED_SECONDS = 30.0
"""For one such list the kernel goes through all connections of the machine: up to 20 ms."""
_SIMULATORS = (
    ("MuJoCo", b"/libmujoco"), ("MuJoCo", b"/mujoco/"), ("Atari", b"/ale_py/"),
    ("PyBullet", b"/pybullet."), ("Box2D", b"/_Box2D"), ("EnvPool", b"/envpool/"),
    ("Procgen", b"/procgen/"), ("NetHack", b"/nle/"), ("VizDoom", b"/vizdoom/"),
    ("Habitat", b"/habitat_sim/"),
)  # fmt: skip

_ENVIRONMENT = re.compile(
    r"(?:^|[-_ ./])env(?:[-_.]?(?:id|name))?[ =](?:[\w.-]+/)?([a-z]\w*-v\d+)(?: |$)", re.A | re.I
)
"""Gymnasium's ids end in a version; an option of the command that has one names an environment."""


class Listeners:
    """Ports on which processes listen; each network namespace is listed once for all of them."""

    def __init__(self, proc: Path = procfs.PROC) -> None:
        self._proc = proc
        self._listed: dict[str, tuple[float, Mapping[str, int]]] = {}

    def ports(self, pid: int, now: float) -> set[int]:
        """Return TCP ports below the ephemeral ones; none where it may not be read. ``now``:
        monotonic seconds."""
        try:
            listening = self._listening(pid, now)
            folder = f"{self._proc}/{pid}/fd"
            files = os.listdir(folder) if listening else ()  # noqa: PTH208 - names only
        except (OSError, ValueError, IndexError):
            return set()
        links = [read_link(pid, f"fd/{name}", self._proc) or "" for name in files]
        found = {listening[link] for link in links if link in listening}
        return {port for port in found if port < _FIRST_EPHEMERAL}

    def _listening(self, pid: int, now: float) -> Mapping[str, int]:
        """Return sockets that listen in the process's network namespace, as links name them."""
        space = read_link(pid, "ns/net", self._proc) or str(pid)
        known = self._listed.get(space)
        if known is None or now - known[0] >= LISTED_SECONDS:
            recent = [each for each in self._listed.items() if now - each[1][0] < LISTED_SECONDS]
            known = (now, _listening_beside(pid, self._proc))
            self._listed = {**dict(recent), space: known}
        return known[1]


def service_sign(
    processes: Iterable[ProcessFacts], listeners: Listeners, now: float, *, only_known: bool
) -> str | None:
    """Say why a job of these processes serves requests, as a phrase: one of them listens on a TCP
    port that somebody chose. ``only_known``: only of a program known as a server, since the stores
    of collectives listen, too."""
    ports, names = set[int](), []
    for process in processes:
        name = process.program.name.lower()
        # Ray says the deployment behind it: ray::ServeReplica:app:Model.
        known = (name, name.partition(".")[0], ":".join(name.split(":")[:3]))
        names += [one for one in known if one in _SERVERS][:1]
        ports |= listeners.ports(process.pid, now)
    if not ports or (only_known and not names):
        return None
    listens = f"listens on TCP port {min(ports)}"
    return f"it is {names[0]} and {listens}" if names else f"it {listens}"


def _listening_beside(pid: int, proc: Path) -> dict[str, int]:
    lines = procfs.read_whole(f"{proc}/{pid}/net/tcp").splitlines()[1:]
    # A kernel without IPv6 has only the first.
    with suppress(FileNotFoundError):
        lines += procfs.read_whole(f"{proc}/{pid}/net/tcp6").splitlines()[1:]
    rows = [line.split(None, 10) for line in lines]
    return {
        f"socket:[{row[9].decode()}]": int(row[1].rpartition(b":")[2], 16)
        for row in rows
        if row[3] == _LISTENS
    }


def simulator(process: ProcessFacts, proc: Path) -> str | None:
    """Say why a process steps environments, as far as it shows: by a library that it has loaded,
    or, as most written in Python load none, by the one that its command names."""
    maps = procfs.read_if_possible(f"{proc}/{process.pid}/maps", procfs.LARGEST_BUFFER)
    found = next((name for name, path in _SIMULATORS if path in maps), None)
    if found is not None:
        return f"{found} is loaded in it"
    named = _ENVIRONMENT.search(" ".join(process.arguments))
    return None if named is None else f"its command names the environment {named[1]}"
