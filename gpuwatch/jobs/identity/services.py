"""Jobs that do not train from a loader: servers, and environments of reinforcement learning."""

import os
from collections.abc import Iterable
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
_SIMULATORS = (
    ("MuJoCo", b"/libmujoco"), ("MuJoCo", b"/mujoco/"), ("Atari", b"/ale_py/"),
    ("PyBullet", b"/pybullet."), ("Box2D", b"/_Box2D"), ("EnvPool", b"/envpool/"),
    ("Procgen", b"/procgen/"), ("NetHack", b"/nle/"), ("VizDoom", b"/vizdoom/"),
    ("Habitat", b"/habitat_sim/"),
)  # fmt: skip


def service_sign(looks: Iterable[Look], proc: Path, *, only_known: bool) -> str | None:
    """Why a job of these processes serves requests, as a phrase: one of them listens on a TCP port
    that somebody chose. ``only_known``: only of a program known as a server, since the stores of
    collectives listen, too."""
    ports, names = set[int](), []
    for look in looks:
        name = look.program.name.lower()
        names += [one for one in (name, name.partition(".")[0]) if one in _SERVERS]
        ports |= _ports(look.pid, proc)
    if not ports or (only_known and not names):
        return None
    listens = f"listens on TCP port {min(ports)}"
    return f"it is {names[0]} and {listens}" if names else f"it {listens}"


def _ports(pid: int, proc: Path) -> set[int]:
    """Below the ephemeral ones, on which this process listens; none where it may not be read."""
    try:
        rows = [
            line.split(None, 10)
            for name in ("tcp", "tcp6")
            for line in procfs.read_whole(f"{proc}/{pid}/net/{name}").splitlines()[1:]
        ]
        listening = {
            f"socket:[{row[9].decode()}]": int(row[1].rpartition(b":")[2], 16)
            for row in rows
            if row[3] == _LISTENS
        }
        files = os.listdir(f"{proc}/{pid}/fd") if listening else ()  # noqa: PTH208 - names only
    except (OSError, ValueError, IndexError):
        return set()
    links = (surroundings.read_link(pid, f"fd/{name}", proc) for name in files)
    found = {listening[link] for link in links if link in listening}
    return {port for port in found if port < _FIRST_EPHEMERAL}


def simulator(pid: int, proc: Path) -> str | None:
    """The library of environments loaded in a process, as people call it."""
    try:
        maps = procfs.read_whole(f"{proc}/{pid}/maps")
    except OSError:
        return None
    return next((name for name, path in _SIMULATORS if path in maps), None)
