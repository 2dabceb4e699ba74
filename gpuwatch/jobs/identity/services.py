"""Jobs that do not train from a loader: servers, and environments of reinforcement learning."""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from gpuwatch.jobs.identity import surroundings
from gpuwatch.jobs.identity.evidence import Look
from gpuwatch.jobs.identity.programs import words
from gpuwatch.sources.linux import procfs

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
        """TCP ports below the ephemeral ones; none where it may not be read. ``now``: monotonic
        seconds."""
        try:
            listening = self._listening(pid, now)
            folder = f"{self._proc}/{pid}/fd"
            files = os.listdir(folder) if listening else ()  # noqa: PTH208 - names only
        except (OSError, ValueError, IndexError):
            return set()
        links = [surroundings.read_link(pid, f"fd/{name}", self._proc) or "" for name in files]
        found = {listening[link] for link in links if link in listening}
        return {port for port in found if port < _FIRST_EPHEMERAL}

    def _listening(self, pid: int, now: float) -> Mapping[str, int]:
        """Sockets that listen in the process's network namespace, as links name them."""
        space = surroundings.read_link(pid, "ns/net", self._proc) or str(pid)
        known = self._listed.get(space)
        if known is None or now - known[0] >= LISTED_SECONDS:
            recent = [each for each in self._listed.items() if now - each[1][0] < LISTED_SECONDS]
            known = (now, _listening_beside(pid, self._proc))
            self._listed = {**dict(recent), space: known}
        return known[1]


def service_sign(
    looks: Iterable[Look], listeners: Listeners, now: float, *, only_known: bool
) -> str | None:
    """Why a job of these processes serves requests, as a phrase: one of them listens on a TCP port
    that somebody chose. ``only_known``: only of a program known as a server, since the stores of
    collectives listen, too."""
    ports, names = set[int](), []
    for look in looks:
        name = look.program.name.lower()
        # Ray says the deployment behind it: ray::ServeReplica:app:Model.
        known = (name, name.partition(".")[0], ":".join(name.split(":")[:3]))
        names += [one for one in known if one in _SERVERS][:1]
        ports |= listeners.ports(look.pid, now)
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


def simulator(look: Look, proc: Path) -> str | None:
    """Why a process steps environments, as far as it shows: by a library that it has loaded, or, as
    most written in Python load none, by the one that its command names."""
    maps = procfs.read_if_possible(f"{proc}/{look.pid}/maps", procfs.LARGEST_BUFFER)
    found = next((name for name, path in _SIMULATORS if path in maps), None)
    if found is not None:
        return f"{found} is loaded in it"
    named = _ENVIRONMENT.search(" ".join(look.arguments))
    return None if named is None else f"its command names the environment {named[1]}"
