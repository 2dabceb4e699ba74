"""Programs that start jobs and are none (shells, multiplexers, logins, services), as a person
calls them, and what runs below one of them."""

import os
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.jobs.identity import grouping
from gpuwatch.jobs.identity.evidence import Look, children_of, read_all, read_look
from gpuwatch.jobs.identity.programs import boundary_phrase, script_file
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.process_details import read_command

LABEL_LENGTH = 60
"""Of a command line within a sentence."""

_ELSEWHERE = "a connection to another machine: what runs there is seen by a gpuwatch there"
_CLIENT = (
    "only the client of a container engine: give the PID of the training process itself, which "
    "runs below the engine's service"
)
_CLIENTS = {
    **dict.fromkeys(("ssh", "mosh-client"), _ELSEWHERE),
    **dict.fromkeys(("docker", "kubectl", "nerdctl", "podman"), _CLIENT),
}


class Candidate(NamedTuple):
    """A process that may be the job somebody means."""

    pid: int
    label: str
    """Its command line, shortened and made safe."""
    foreground: bool
    """It has the keyboard of its terminal."""


def what_instead(look: Look) -> str | None:
    """The kind of a process that is no job, as the rest of "it is ..."; ``None`` for a job.
    Wrappers are not distinguished from jobs here: see ``is_wrapper``."""
    program = look.program
    if program.kind == "boundary":
        # Titles such as "tmux: server", "sshd: ada@pts/3".
        return boundary_phrase(program.name, look.name.partition(":")[0])
    return {"shell": "a shell", "gpuwatch": "gpuwatch itself"}.get(program.kind)


def runs_script(look: Look) -> bool:
    """True if a shell was started for a script or a command line, and not for a person."""
    return (
        look.program.kind == "shell"
        and len(look.arguments) > 1
        and not all(argument.startswith("-") for argument in look.arguments[1:])
    )


def script_around(look: Look, proc: Path = procfs.PROC) -> Look | None:
    """The topmost shell script that the job of a process is a command of, or that it is itself;
    ``None`` for a job that runs in no script. A script that runs this gpuwatch too does not count:
    it does not end before gpuwatch does."""
    above = partial(read_look, proc=proc)
    found, ours = None, _own_ancestors(proc)
    at = next(iter(reversed(grouping.climb(look.pid, above))), None)
    while at is not None and at.pid not in ours:
        if at.program.kind == "shell" and script_file(at.arguments) is not None:
            found = at
        parent = above(at.parent) if at.parent > 1 else None
        at = parent if parent is not None and (is_wrapper(parent) or runs_script(parent)) else None
    return found


def _own_ancestors(proc: Path) -> set[int]:
    found: set[int] = set()
    at = read_look(os.getpid(), proc)
    while at is not None and at.pid not in found:
        found.add(at.pid)
        at = read_look(at.parent, proc)
    return found


def works_elsewhere(look: Look) -> str | None:
    """For clients of other machines and of container engines, what they are as a phrase: the
    processes of the job are not below them."""
    name = look.arguments[0].rpartition("/")[2] if look.arguments else look.name
    return _CLIENTS.get(name)


def is_wrapper(look: Look) -> bool:
    """True if it starts one program and waits for it (``sudo``, ``timeout``, ``nsys``)."""
    return look.program.kind == "wrapper"


def label(look: Look, proc: Path = procfs.PROC) -> str:
    """The command line for a sentence, or the name where there is none."""
    command = read_command(look.pid, look.name.encode(), proc)
    return clean(command, LABEL_LENGTH) if command else look.name


def jobs_below(pid: int, proc: Path = procfs.PROC) -> list[Candidate]:
    """The topmost processes below ``pid`` that are no starters themselves.

    Python programs and launchers if there are any, else all; the foreground first, then by CPU
    time used. This gpuwatch is never among them.
    """
    seen = read_all(proc)
    children = children_of(seen)
    found: list[tuple[bool, Candidate]] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        at = waiting.pop()
        look = None if at == os.getpid() else read_look(at, proc)
        if look is None or seen[at].state in "ZX":
            continue
        if what_instead(look) is not None or is_wrapper(look):
            waiting += children.get(at, ())
            continue
        likely = look.program.kind in ("python", "launcher")
        found.append((likely, Candidate(at, label(look, proc), seen[at].foreground)))
    best = any(likely for likely, _ in found)
    return sorted(
        [candidate for likely, candidate in found if likely == best],
        key=lambda one: (not one.foreground, -seen[one.pid].cpu_ticks, one.pid),
    )
